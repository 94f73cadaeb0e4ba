#!/bin/bash
# Installs the Debian packages that one or several purposes need, and only those that are missing.
#
#   tools/install-deps.sh build test      as root: apt-get installs what is missing
#   tools/install-deps.sh --check build   installs nothing; says what is missing and fails if anything is
#   tools/install-deps.sh --list          prints the table
#
# Without root it prints the one command to run and exits 1. Nothing is fetched when nothing is missing,
# so it costs a few milliseconds on a machine that is set up.
set -euo pipefail

# purpose | package | a file that does as well (the package is then not asked for), or -
table() {
    cat <<'ROWS'
build   gcc                 -
build   libc6-dev           -
build   linux-libc-dev      -
build   meson               -
build   ninja-build         -
build   pkg-config          /usr/bin/pkg-config
build   musl-tools          -
build   libseccomp-dev      -
build   libglib2.0-dev      -
build   libjansson-dev      -
build   python3             -
build   e2fsprogs           -
run     python3             -
run     python3-matplotlib  -
run     python3-numpy       -
test    python3             -
test    nodejs              /usr/bin/node
test    gcc                 -
test    g++                 -
test    bubblewrap          -
test    busybox-static      -
test    qemu-system-x86     -
test    cpio                -
test    strace              -
test    uidmap              -
test    util-linux          -
test    clang               -
test    libclang-rt-14-dev  -
bench   hyperfine           -
bench   bubblewrap          -
bench   crun                -
fuzz    clang               -
fuzz    libclang-rt-14-dev  -
format  clang-format        -
format  clang-tidy          -
ROWS
}

usage() {
    echo "usage: $0 [--check | --list] PURPOSE...   (purposes: $(table | cut -d' ' -f1 | sort -u | xargs))" >&2
    exit 2
}

# One dpkg-query for all names; a package that dpkg has never heard of is simply not in its answer.
missing_of() {
    local wanted=() package file
    while read -r package file; do
        [ "$file" != - ] && [ -e "$file" ] && continue
        wanted+=("$package")
    done < <(for purpose in "$@"; do table | awk -v p="$purpose" '$1 == p { print $2, $3 }'; done | sort -u)
    [ ${#wanted[@]} -eq 0 ] && return
    comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
        <(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' "${wanted[@]}" 2>/dev/null | awk '$2 == "ii" { print $1 }' | sort -u)
}

mode=install
case "${1-}" in
    --check) mode=check; shift ;;
    --list) table; exit 0 ;;
    -*) usage ;;
esac
[ $# -gt 0 ] || usage
for purpose in "$@"; do
    table | grep -q "^$purpose " || { echo "$0: no purpose is called '$purpose'" >&2; usage; }
done

if ! command -v dpkg-query >/dev/null; then
    echo "hutch: this host has no dpkg; on it you need what Debian 12 calls:" >&2
    for purpose in "$@"; do table | awk -v p="$purpose" '$1 == p { print "    " $2 }'; done | sort -u >&2
    exit 0 # the build itself will name the first thing that is not there
fi

missing=$(missing_of "$@" | xargs)
[ -z "$missing" ] && exit 0

command="apt-get update && apt-get install -y --no-install-recommends $missing"
if [ "$mode" = check ] || [ "$(id -u)" -ne 0 ]; then
    {
        echo "hutch: missing for $*: $missing"
        echo "Install them with:"
        if [ "$(id -u)" -eq 0 ]; then echo "    $command"; else echo "    sudo sh -c '$command'"; fi
    } >&2
    exit 1
fi

echo "hutch: installing for $*: $missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
# shellcheck disable=SC2086 # a list of package names
apt-get install -y -qq --no-install-recommends $missing </dev/null
