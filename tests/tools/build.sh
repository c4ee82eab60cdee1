#!/bin/bash
# build.sh - tests the output of tools/build with a fake ninja.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

mkdir "$work/bin" "$work/build"
export PATH="$work/bin:$PATH" BUILD="$work/build"
program() { # program NAME LINE...
    name=$1
    shift
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$work/bin/$name"
    chmod +x "$work/bin/$name"
}
program meson 'eval "dir=\${$#}"' 'mkdir -p "$dir"; : >"$dir/build.ninja"' \
    'echo "The Meson build system"; echo "a line of meson"'
program ninja 'echo "[1/2] Compiling a"; echo "[2/2] Linking b"'

build() { tools/build "$@" plain; }
on_terminal() { script -qec "tools/build $* plain" /dev/null; }

same "the first build shows one line" "$(build --progress 2>&1)" \
    "Building Sluice in $BUILD/plain ..."
same "the line goes to standard error" "$(build --progress 2>/dev/null)" ""
says "a terminal shows a counter" 'Building Sluice in .* \.\.\. \[2/2\]' on_terminal --progress
same "--quiet shows nothing" "$(build --quiet 2>&1)" ""
program ninja 'echo "ninja: Entering directory"; echo "ninja: no work to do."'
same "nothing is shown if there is nothing to build" "$(build --progress 2>&1)" ""
program ninja 'echo "[1/9] Generating bench/commit.h with a custom command"'
same "the file that every build generates does not count" "$(build --progress 2>&1)" ""
program ninja 'echo "[1/2] Compiling a"; echo "a.c:1: error" >&2; exit 1'
fails "a build that fails prints its output" 'a.c:1: error' build --progress
fails "a build that fails with --quiet prints its output" 'a.c:1: error' build --quiet
fails "an unknown kind lists the kinds" 'unknown kind "fast"; use plain' tools/build fast
same "no temporary file is left" "$(TMPDIR=$work/tmp; export TMPDIR; mkdir "$TMPDIR"
    build --progress >/dev/null 2>&1; ls "$TMPDIR")" ""

done_testing
