# make demo   shows Tenon at work in a sandbox; it changes nothing on the host
# make test   runs the gate: every contract, in ten minutes
# Both need Go; make test also needs root and installs missing Debian packages.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
PREFIX  ?= /usr/local
DIR     ?= /opt/cni/bin
FUZZTIME ?= 60s

# A go.work in a parent directory is not part of this repository.
export GOWORK = off

# The programs, and the modules below cmd: a program with large libraries is a module of its own.
PROGRAMS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go))
MODULES  := $(patsubst %/go.mod,%,$(wildcard cmd/*/go.mod cmd/*/*/go.mod))

.PHONY: help
help:
	@echo 'make demo          build, then attach, inspect and detach containers in a sandbox'
	@echo 'make test          run the gate, as CI does (10 minutes on two processors, root)'
	@echo 'make test-all      run every test of this host and of virtual machines; STAGES="vm fuzz" runs some'
	@echo 'make test-release  test with newer runtimes, releases and other platforms; STAGES=clients runs some'
	@echo 'make race          run every test with the race detector'
	@echo 'make fuzz          run every fuzz target for FUZZTIME (default 60s)'
	@echo 'make lint          run gofmt, go vet, staticcheck and the checks of the language'
	@echo 'make vulnerabilities  compare all modules with the Go vulnerability database (GOVULNDB)'
	@echo 'make bench         compare with other plugins; BENCHFLAGS="-peer DIR -quick"'
	@echo 'make bench-programs  compare go-cni on libcni and on Tenon; BENCHFLAGS as for bench'
	@echo 'make rows          list requirements without a test; ROWSFLAGS=-v lists all tests'
	@echo 'make pictures      draw the pictures of terminals in docs/ again, from runs as root'
	@echo 'make golden        rewrite api/, the list of dependencies, docs/plugins, docs/schema'
	@echo 'make build         build the static binaries $(PROGRAMS:%=bin/%)'
	@echo 'make install       install them in $$(PREFIX)/bin and the plugins in $$(DIR)'
	@echo 'make dist          build the artefacts of a release in bin/dist; DISTFLAGS="-arch amd64"'
	@echo 'make release-notes  prepare a release: CHANGELOG.md, modules; VERSION=v0.1.0'
	@echo 'make site          build the documentation site in bin/site (Node 20)'

.PHONY: build
build:
	@for program in $(PROGRAMS); do \
		CGO_ENABLED=0 go -C cmd/$$program build -trimpath -ldflags '$(LDFLAGS)' -o '$(CURDIR)'/bin/ . || exit; \
	done

.PHONY: demo
demo: build
	@bin/tenon demo

.PHONY: test
test:
	@scripts/test

.PHONY: test-all
test-all:
	@scripts/test $(or $(STAGES),all)

.PHONY: test-release
test-release:
	@set -e; for stage in $(or $(STAGES),clients programs image dist packages site platforms); do \
		scripts/test-$$stage; \
	done

.PHONY: race
race:
	@scripts/test-deps
	@CGO_ENABLED=1 go test -race ./...
	@for module in otel compat/cni packaging $(MODULES); do \
		CGO_ENABLED=1 go -C $$module test -race ./... || exit; \
	done

.PHONY: bench
bench: build
	@scripts/test-deps
	@go run ./test/bench $(BENCHFLAGS)

.PHONY: bench-programs
bench-programs:
	@scripts/bench-programs $(BENCHFLAGS)

.PHONY: lint
lint:
	@scripts/lint

# DISTFLAGS=-h lists the options.
.PHONY: pictures
pictures:
	@scripts/test-deps
	@TENON_STRICT=1 go test ./test/script -count=1 -run '^TestScripts/pictures$$' -update

.PHONY: dist
dist:
	@go -C packaging run ./dist $(DISTFLAGS)

.PHONY: release-notes
release-notes:
	@test '$(origin VERSION)' = 'command line' || \
		{ echo 'usage: make release-notes VERSION=v0.1.0' >&2; exit 2; }
	@go -C packaging run ./prepare -version $(VERSION)

# It needs https://vuln.go.dev, or a copy in GOVULNDB, and fails without a database.
.PHONY: vulnerabilities
vulnerabilities:
	@scripts/vulnerabilities

# The documentation site, in bin/site. It needs Node 20.
.PHONY: site
site:
	@cd docs && npm install --silent --no-save --no-audit --no-fund && npx vitepress build

.PHONY: fuzz
fuzz:
	@scripts/fuzz $(FUZZTIME)

.PHONY: rows
rows:
	@go run ./test/rows $(ROWSFLAGS)

.PHONY: golden
golden:
	@go test ./internal/archtest ./test/docs -update

.PHONY: install
install: build
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS:%=bin/%)
	bin/tenon install $(DESTDIR)$(DIR)
