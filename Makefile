# make demo   shows Tenon at work in a sandbox; it changes nothing on the host
# make test   runs the tests of CI
# Both need Go; make test also needs root and installs missing Debian packages.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
PREFIX  ?= /usr/local
DIR     ?= /opt/cni/bin
FUZZTIME ?= 60s

.PHONY: help
help:
	@echo 'make demo      build, then attach, inspect and remove a container in a sandbox of its own'
	@echo 'make test      everything CI runs: vet, lint, tests of every tier, fuzz smoke'
	@echo 'make race      every test with the race detector, which make test has for the packages that need it most'
	@echo 'make test-clients  containerd 2, kubelet, rules of kube-proxy and firewalld with Tenon; builds the first two'
	@echo 'make bench     compare with the reference plugins (PEER_DIR, default /usr/lib/cni)'
	@echo 'make build     bin/tenon and bin/tenon-dhcp, static executables'
	@echo 'make install   both to $$(PREFIX)/bin, the plugins to $$(DIR); DESTDIR is put before both'
	@echo 'make lint      gofmt, go vet, staticcheck'
	@echo 'make fuzz      every fuzz target for FUZZTIME (default 60s)'
	@echo 'make rows      which requirements no test proves; make rows ROWSFLAGS=-v which test proves which'
	@echo 'make golden    rewrite api/, the dependency list and the reference of the plugins in docs/'

.PHONY: build
build:
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/tenon ./cmd/tenon
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/tenon-dhcp ./cmd/tenon-dhcp

.PHONY: demo
demo: build
	@bin/tenon demo

.PHONY: test
test:
	@scripts/test

.PHONY: race
race:
	@scripts/test-deps
	@CGO_ENABLED=1 go test -race ./...
	@CGO_ENABLED=1 go -C otel test -race ./...

.PHONY: test-clients
test-clients:
	@scripts/test-clients

.PHONY: bench
bench: build
	@scripts/test-deps
	@go run ./test/bench $(BENCHFLAGS)

.PHONY: lint
lint:
	@scripts/lint

# The documentation site, in bin/site. It needs Node 20.
.PHONY: site
site:
	@cd docs && npm ci --silent --no-audit --no-fund && npx vitepress build

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
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin bin/tenon bin/tenon-dhcp
	bin/tenon install $(DESTDIR)$(DIR)
