#!/bin/bash
# deps.sh - tests tools/deps on simulated machines: a PATH that has only the listed programs.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

# All commands of the groups other than deb, arm64 and bench.
all='cc gcc meson ninja pkg-config nm clang clang-format shellcheck mandoc spin python3'
all="$all redis-server redis-cli node npm etcd etcdctl"

# machine TOOL...: a machine that has the programs that tools/deps needs, and these.
machine() {
    rm -rf "${work:?}/bin" "$work/calls"
    mkdir "$work/bin"
    : >"$work/calls"
    for tool in sh cat sort tr sed mktemp rm env dirname; do
        ln -s "$(command -v "$tool")" "$work/bin/$tool"
    done
    has id 'echo "${SLUICE_TEST_UID-0}"'
    for tool; do has "$tool" ''; done
}
has() { # has TOOL BODY
    { echo '#!/bin/sh'; echo "$2"; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
# An apt-get that creates the commands of the packages.
apt() {
    has apt-get "echo \"apt-get \$*\" >>'$work/calls'
[ \"\$1\" = install ] || exit 0
for tool in $all; do
    printf '#!/bin/sh\n' >'$work/bin/'\$tool
    $(command -v chmod) +x '$work/bin/'\$tool
done"
}
deps() { PATH=$work/bin "$work/bin/sh" tools/deps "$@"; }

# shellcheck disable=SC2086
machine $all
same "it prints nothing if no package is missing" "$(deps 2>&1)" ""
# shellcheck disable=SC2086
machine $all
apt
deps >/dev/null
same "it does not call apt-get if no package is missing" "$(cat "$work/calls")" ""

machine cc gcc
fails "--check lists the missing packages" 'Missing packages: meson ninja-build pkg-config$' \
    deps --check build
fails "--check prints the command that installs them" 'sudo apt-get install .*meson' deps --check build
apt
deps --check build >/dev/null 2>&1 || true
same "--check installs nothing" "$(cat "$work/calls")" ""

# A compiler that finds some headers.
compiler() { # compiler NAME PATTERN
    has "$1" "while read -r line; do
    case \$line in *'<'$2'>'*) exit 0 ;; *) exit 1 ;; esac
done"
}
# shellcheck disable=SC2086
machine $all
for name in cc gcc clang; do compiler "$name" '*[!v].h'; done # all but uv.h
fails "a header that no compiler finds is missing" 'packages: libuv1-dev$' deps --check build
rm "$work/bin/cc"
fails "any compiler can find a header" 'packages: gcc libuv1-dev$' deps --check build

machine cc
apt
says "it prints the packages that it installs" '^Installing packages: meson ninja-build pkg-config$' deps build
same "it updates the lists once, then installs" "$(cat "$work/calls")" \
    "apt-get update
apt-get install -y --no-install-recommends meson ninja-build pkg-config"
same "afterwards nothing is missing" "$(deps build 2>&1)" ""

machine cc
apt
export SLUICE_TEST_UID=1000
fails "without root and sudo it prints the command for root" 'Run as root' \
    deps build
same "without root and sudo it does not call apt-get" "$(cat "$work/calls")" ""
has sudo "echo sudo >>'$work/calls'; exec \"\$@\""
passes "with sudo it uses sudo" deps build
says "apt-get runs under sudo" '^sudo$' head -n 1 "$work/calls"
unset SLUICE_TEST_UID

machine cc
has apt-get 'echo "E: no network"; exit 100'
fails "the output of apt-get is printed if it fails" 'no network' deps build
machine cc
has apt-get ''
fails "an installation that installs nothing is a failure" 'but are not found' deps build
machine cc
fails "without apt-get it prints an error" 'no apt-get' deps build

done_testing
