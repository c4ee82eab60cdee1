#!/bin/sh
# check_symbols.sh BUILD - check the exports and dependencies of libsluice.so.
#
# The library must export exactly the functions that sluice.h declares, and need only libc.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
build=${1:?usage: check_symbols.sh BUILD}
here=$(dirname "$0")
lib=${SLUICE_LIB:-$build/src/libsluice.so}

[ -f "$lib" ] || { echo "there is no $lib" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

"$here/api_names" ${SLUICE_HEADER:+"$SLUICE_HEADER"} >"$work/declared"
nm -D --defined-only "$lib" | awk '{ print $NF }' | sort >"$work/exported"
[ -s "$work/declared" ] || { echo "sluice.h declares no function" >&2; bad=1; }
comm -23 "$work/declared" "$work/exported" | sed 's/^/declared, not exported: /' \
    >"$work/wrong"
comm -13 "$work/declared" "$work/exported" | sed 's/^/exported, not declared: /' \
    >>"$work/wrong"
readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^libc\.so\.' |
    sed 's/^/needs: /' >>"$work/wrong" || true
if [ -s "$work/wrong" ]; then
    cat "$work/wrong" >&2
    bad=1
fi
exit "$bad"
