#!/bin/bash
# header.sh - tests that sluice.h compiles on its own in each supported version of C and C++.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

printf '#include <sluice.h>\nint main(void) { return SLUICE_OK; }\n' >"$work/use.c"
try() { "$@" -fsyntax-only -Iinclude -Wall -Wextra -Wpedantic -Werror "$work/use.c"; }

for std in c99 c11 c17 gnu11; do
    passes "gcc, $std" try gcc -std=$std
    passes "clang, $std" try clang -std=$std
done
for std in c++11 c++17; do
    passes "clang, $std" try clang -x c++ -std=$std
done
passes "included twice" try gcc -include include/sluice.h

done_testing
