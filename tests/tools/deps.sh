#!/bin/bash
# deps.sh - tools/deps on machines that do not exist: a PATH with only what we put there.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

# Every command that a group other than deb, arm64 and bench wants.
all='cc gcc meson ninja pkg-config nm clang clang-format shellcheck mandoc spin python3'
all="$all redis-server redis-cli node npm etcd"

# machine TOOL...: a machine that has the tools which tools/deps itself needs, and these.
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
# An apt-get that installs by making the commands appear.
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
same "nothing is said when nothing is missing" "$(deps 2>&1)" ""
# shellcheck disable=SC2086
machine $all
apt
deps >/dev/null
same "and apt-get is not called" "$(cat "$work/calls")" ""

machine cc gcc
fails "--check names what is missing" 'not here: meson ninja-build pkg-config$' \
    deps --check build
fails "--check tells the command" 'sudo apt-get install .*meson' deps --check build
apt
deps --check build >/dev/null 2>&1 || true
same "--check installs nothing" "$(cat "$work/calls")" ""

# A compiler that knows some headers, and says so of what it reads.
compiler() { # compiler NAME PATTERN
    has "$1" "while read -r line; do
    case \$line in *'<'$2'>'*) exit 0 ;; *) exit 1 ;; esac
done"
}
# shellcheck disable=SC2086
machine $all
for name in cc gcc clang; do compiler "$name" '*[!v].h'; done # all but uv.h
fails "a header that no compiler finds is missing" 'not here: libuv1-dev$' deps --check build
rm "$work/bin/cc"
fails "whichever compiler there is" 'not here: gcc libuv1-dev$' deps --check build

machine cc
apt
says "it says what it installs" '^installing: meson ninja-build pkg-config$' deps build
same "it updates the lists once, then installs" "$(cat "$work/calls")" \
    "apt-get update
apt-get install -y --no-install-recommends meson ninja-build pkg-config"
same "afterwards nothing is missing" "$(deps build 2>&1)" ""

machine cc
apt
export SLUICE_TEST_UID=1000
fails "without root and sudo it says what root should run" 'As root, please run' \
    deps build
same "and tries nothing" "$(cat "$work/calls")" ""
has sudo "echo sudo >>'$work/calls'; exec \"\$@\""
passes "with sudo it uses sudo" deps build
says "for every call" '^sudo$' head -n 1 "$work/calls"
unset SLUICE_TEST_UID

machine cc
has apt-get 'echo "E: no network"; exit 100'
fails "what apt-get says is shown when it fails" 'no network' deps build
machine cc
has apt-get ''
fails "an install that brought nothing is a failure" 'yet not found' deps build
machine cc
fails "without apt-get it says so" 'no apt-get' deps build

done_testing
