#!/bin/sh
# install.sh installs Tenon from a release: the programs, manual pages, completions and systemd units
# below a prefix, and the plugins into a plugin directory. "tenon uninstall" removes all of them.
#
#   curl -fsSLO https://github.com/tenon-cni/tenon/releases/latest/download/install.sh
#   sudo sh install.sh
#
#   --version V     installs release V, such as 0.1.0; default: the latest
#   --from SOURCE   installs without the release page. SOURCE is a directory with a release or the
#                   archive of one (with SHA256SUMS in the same directory), or the URL of a mirror
#   --prefix DIR    default /usr/local
#   --dir DIR       plugin directory, default /opt/cni/bin
#   --no-plugins    leaves the plugin directory alone
#   --signers FILE  checks the signature with the keys in FILE (ssh-keygen(1), ALLOWED SIGNERS)
#   --no-signature  checks the SHA-256 checksum only
#   --dry-run       downloads and checks, prints what it would install, and changes nothing
#   --help          prints this
#
# In an unpacked archive, install.sh installs that archive. Running it again upgrades: plugins are
# replaced atomically, containers stay attached, and running daemons restart. The list of installed
# files is in PREFIX/share/tenon/installed-files.
#
# Needs: sh, tar with gzip, sha256sum; curl or wget to download; ssh-keygen to check the signature.

set -eu

releases=https://github.com/tenon-cni/tenon/releases
identity=releases@tenon-cni
namespace=tenon-release

# The keys in packaging/keys/allowed_signers; a test compares both. There is no release key yet.
signers=''

die() {
	echo "install.sh: $1" >&2
	[ -z "${2:-}" ] || echo "hint: $2" >&2
	exit 1
}

note() { echo "install.sh: $1" >&2; }

usage() {
	[ -f "$0" ] || die "the options are described at the start of the script"
	sed -n '2,/^$/{s/^# \{0,1\}//p;}' "$0"
}

# The values of the options.
version='' from='' prefix=/usr/local plugins=/opt/cni/bin signers_file='' signature=yes dry_run=no

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--version | --from | --prefix | --dir | --signers)
			[ -n "${2:-}" ] || die "$1 needs a value"
			option "$1" "$2"
			shift
			;;
		--version=* | --from=* | --prefix=* | --dir=* | --signers=*)
			[ -n "${1#*=}" ] || die "${1%%=*} needs a value"
			option "${1%%=*}" "${1#*=}"
			;;
		--no-plugins) plugins='' ;;
		--no-signature) signature=no ;;
		--dry-run) dry_run=yes ;;
		--help | -h)
			usage
			exit
			;;
		*) die "unknown argument \"$1\"" "run: sh install.sh --help" ;;
		esac
		shift
	done
}

option() {
	case $1 in
	--version) version=${2#v} ;;
	--from) from=$2 ;;
	--prefix) prefix=$(absolute "$2") || exit ;;
	--dir) plugins=$(absolute "$2") || exit ;;
	--signers) signers_file=$2 ;;
	esac
}

# absolute prints the absolute path of a directory to install in.
absolute() {
	dir=${1%/}
	case $dir in
	/*) ;;
	*) dir=$PWD/$dir ;;
	esac
	case $dir in
	/ | *[!A-Za-z0-9._/+@~-]*) die "cannot install in \"$dir\"" ;;
	esac
	echo "$dir"
}

# processor prints the name of this processor in archives.
processor() {
	case $(uname -m) in
	x86_64) echo amd64 ;;
	aarch64) echo arm64 ;;
	armv7* | armv8l) echo arm ;;
	riscv64 | ppc64le | s390x) uname -m ;;
	*) die "there is no release for the processor $(uname -m)" "build from source: make build" ;;
	esac
}

# check_host refuses hosts on which the installation could not work.
check_host() {
	[ "$(uname -s)" = Linux ] || die "Tenon needs Linux, and this is $(uname -s)"
	[ ! -e /usr/lib/tenon/cni ] ||
		die "Tenon is installed as a package" "upgrade the package, or remove it first"
	[ "$dry_run" = no ] || return 0
	for dir in "$prefix" ${plugins:+"$plugins"}; do
		while [ ! -e "$dir" ]; do dir=$(dirname "$dir"); done
		[ -w "$dir" ] || die "no permission to write to $dir" "run: sudo sh install.sh"
	done
}

# fetch URL FILE
fetch() {
	if command -v curl >/dev/null; then
		curl -fsSL --retry 3 -o "$2" "$1"
	elif command -v wget >/dev/null; then
		wget -q -O "$2" "$1"
	else
		die "neither curl nor wget is installed" "download the release, and use --from DIR"
	fi
}

# get NAME copies a file of the release to $work/NAME.
get() {
	case $from in
	http://* | https://*) fetch "$from/$1" "$work/$1" ;;
	*) [ -e "$from/$1" ] && cp "$from/$1" "$work/$1" ;;
	esac
}

# find_release sets $tree, the directory of an unpacked archive.
find_release() {
	here=$(dirname "$0")
	if [ -z "$from$version" ] && [ "${0##*/}" = install.sh ] && [ -f "$here/bin/tenon" ]; then
		tree=$(cd "$here" && pwd)
		return
	fi
	archive=
	if [ -f "$from" ]; then
		archive=${from##*/}
		from=$(dirname "$from")
	elif [ -z "$from" ]; then
		from=$releases/latest/download
		[ -z "$version" ] || from=$releases/download/v$version
	fi
	from=${from%/}
	get SHA256SUMS || die "$from has no SHA256SUMS" \
		"put SHA256SUMS and SHA256SUMS.sig of the release into the directory of the archive"
	check_signature
	[ -n "$archive" ] || choose_archive
	get "$archive" || die "$from has no $archive"
	check_sum "$archive"
	tar -xzf "$work/$archive" -C "$work" || die "cannot unpack $archive"
	tree=$work/${archive%.tar.gz}
	[ -f "$tree/bin/tenon" ] || die "$archive contains no bin/tenon"
}

# choose_archive sets $archive to the archive for this processor in SHA256SUMS.
choose_archive() {
	arch=$(processor) || exit
	while read -r _ name; do
		case $name in
		tenon_"${version:-}"*_linux_"$arch".tar.gz) ;;
		*) continue ;;
		esac
		[ -z "$version" ] || [ "$name" = "tenon_${version}_linux_$arch.tar.gz" ] || continue
		[ -z "$archive" ] || die "$from has several releases" "choose one with --version"
		archive=$name
	done <"$work/SHA256SUMS"
	[ -n "$archive" ] || die "$from has no release ${version:+$version }for $arch"
}

check_sum() {
	while read -r sum name; do
		[ "$name" != "$1" ] || echo "$sum  $name"
	done <"$work/SHA256SUMS" >"$work/sum"
	[ -s "$work/sum" ] || die "SHA256SUMS does not list $1"
	(cd "$work" && sha256sum -c sum >/dev/null 2>&1) ||
		die "the checksum of $1 does not match SHA256SUMS" "download it again"
}

# check_signature checks that a release key signed SHA256SUMS.
check_signature() {
	if [ "$signature" = no ]; then
		note "the signature is not checked (--no-signature)"
		return
	fi
	if [ -n "$signers_file" ]; then
		cp "$signers_file" "$work/signers"
	elif [ -n "$signers" ]; then
		echo "$signers" >"$work/signers"
	else
		note "the signature is not checked: this script contains no release key"
		return
	fi
	get SHA256SUMS.sig || die "$from has no SHA256SUMS.sig" \
		"--no-signature installs a release that is not signed"
	command -v ssh-keygen >/dev/null ||
		die "ssh-keygen is not installed, so the signature cannot be checked" \
			"install the OpenSSH client, or use --no-signature"
	ssh-keygen -Y verify -f "$work/signers" -I $identity -n $namespace \
		-s "$work/SHA256SUMS.sig" <"$work/SHA256SUMS" >"$work/log" 2>&1 ||
		die "no release key signed SHA256SUMS: $(cat "$work/log")"
}

# targets lists the files to install: SOURCE, MODE and TARGET, separated by tabs.
targets() {
	tab=$(printf '\t')
	(cd "$tree" && find bin share lib -type f 2>/dev/null) | sort | while read -r file; do
		name=${file##*/} mode=644
		case $file in
		bin/*) to=bin/$name mode=755 ;;
		share/man/*) to=$file ;;
		share/completion/bash/* | share/bash-completion/*) to=share/bash-completion/completions/$name ;;
		share/completion/zsh/* | share/zsh/*) to=share/zsh/site-functions/$name ;;
		share/completion/fish/* | share/fish/*) to=share/fish/vendor_completions.d/$name ;;
		lib/systemd/system/*)
			echo "$work/units/$name$tab$mode$tab$prefix/$file"
			continue
			;;
		*) continue ;;
		esac
		echo "$tree/$file$tab$mode$tab$prefix/$to"
	done
	for name in LICENSE THIRD-PARTY-LICENSES; do
		[ ! -f "$tree/$name" ] || echo "$tree/$name${tab}644$tab$prefix/share/doc/tenon/$name"
	done
}

# prepare writes copies of units with the path of the programs.
prepare() {
	mkdir -p "$work/units"
	for unit in "$tree"/lib/systemd/system/*; do
		[ -f "$unit" ] || continue
		sed -E "s,/usr/(local/)?bin/tenon,$prefix/bin/tenon,g" "$unit" >"$work/units/${unit##*/}"
	done
	targets >"$work/targets"
}

# missing lists the directories among its arguments that do not exist, and their missing parents.
missing() {
	for dir in "$@"; do
		while [ ! -e "$dir" ]; do
			echo "$dir"
			dir=$(dirname "$dir")
		done
	done | sort -u
}

# new_directories lists the directories that the installation creates, parents first.
new_directories() {
	{
		cut -f3 "$work/targets" | while read -r file; do dirname "$file"; done
		dirname "$manifest"
		[ -z "$plugins" ] || echo "$plugins"
	} | sort -u | while read -r dir; do missing "$dir"; done | sort -u
}

# later_directories lists the directories that Tenon creates when containers are attached.
later_directories() { missing /etc/cni/net.d /var/lib/cni/networks /var/lib/cni/results; }

# write_manifest lists all that is installed in $work/manifest, for "tenon uninstall".
write_manifest() {
	{
		echo "# Installed by install.sh; \"tenon uninstall\" removes these files and directories."
		{
			[ ! -f "$manifest" ] || grep -E '^(plugins|directory) ' "$manifest"
			[ -z "$plugins" ] || echo "plugins $plugins"
			{
				new_directories
				later_directories
			} | sed 's/^/directory /'
		} | sort -u
		while IFS="$(printf '\t')" read -r source _ target; do
			echo "file $(sha256sum <"$source" | cut -d' ' -f1) $target"
		done <"$work/targets"
	} >"$work/manifest"
}

# draft SOURCE MODE TARGET writes a new file next to the one that it will replace.
draft() {
	{ cp "$1" "$3.tenon-new" && chmod "$2" "$3.tenon-new"; } || die "cannot write $3"
}

# install_files writes all files before it replaces the first, so that a full file system changes
# nothing.
install_files() {
	new_directories >"$work/created"
	[ ! -f "$manifest" ] || cp "$manifest" "$work/before"
	: >"$work/incomplete"
	while read -r dir; do
		{ mkdir "$dir" && chmod 755 "$dir"; } || die "cannot create $dir"
	done <"$work/created"
	draft "$work/manifest" 644 "$manifest"
	while IFS="$(printf '\t')" read -r source mode target; do
		draft "$source" "$mode" "$target"
	done <"$work/targets"
	rm "$work/incomplete"
	mv -f "$manifest.tenon-new" "$manifest"
	while IFS="$(printf '\t')" read -r source mode target; do
		mv -f "$target.tenon-new" "$target"
	done <"$work/targets"
	remove_old
}

# clean_up removes temporary files, and the drafts and new directories of a failed installation.
clean_up() {
	if [ -f "$work/incomplete" ]; then
		{
			echo "$manifest"
			cut -f3 "$work/targets"
		} | while read -r file; do rm -f "$file.tenon-new"; done
		sort -r "$work/created" | while read -r dir; do rmdir "$dir" 2>/dev/null || :; done
	fi
	rm -rf "$work"
}

# remove_old removes the files of an earlier version that this version does not have.
remove_old() {
	[ -f "$work/before" ] || return 0
	sed -n 's/^file \([0-9a-f]*\) \(.*\)/\1 \2/p' "$work/before" | while read -r sum file; do
		grep -q "^file [0-9a-f]* $file\$" "$manifest" && continue
		[ ! -f "$file" ] || [ "$(sha256sum <"$file" | cut -d' ' -f1)" != "$sum" ] || rm -f "$file"
	done
}

install_plugins() {
	[ -n "$plugins" ] || return 0
	PATH=$prefix/bin:$PATH "$prefix/bin/tenon" install "$plugins" >"$work/log" 2>&1 ||
		die "install the plugins in $plugins: $(cat "$work/log")" \
			"run the script again when this is fixed, or remove Tenon: $prefix/bin/tenon uninstall"
}

# reload makes systemd read the units, and restarts daemons that run.
reload() {
	[ -d /run/systemd/system ] && command -v systemctl >/dev/null || return 0
	systemctl daemon-reload || note "systemd does not read the units: run systemctl daemon-reload"
	[ ! -f "$work/before" ] ||
		systemctl try-restart tenon-dhcp.service tenon-cluster.service || true
}

print_plan() {
	new_directories | sed 's/^/would create /'
	sed -n 's/^file [0-9a-f]* /would install /p' "$work/manifest"
	[ -z "$plugins" ] || echo "would install the plugins in $plugins"
}

main() {
	parse "$@"
	manifest=$prefix/share/tenon/installed-files
	check_host
	work=$(mktemp -d)
	trap clean_up EXIT
	trap 'exit 1' HUP INT TERM
	find_release
	prepare
	write_manifest
	if [ "$dry_run" = yes ]; then
		print_plan
		return
	fi
	install_files
	install_plugins
	reload
	echo "installed $("$prefix/bin/tenon" --version) in $prefix/bin${plugins:+, plugins in $plugins}"
	echo "to remove it: $prefix/bin/tenon uninstall"
	case :$PATH: in
	*:"$prefix/bin":*) ;;
	*) note "$prefix/bin is not in PATH" ;;
	esac
}

main "$@"
