#!/bin/sh
# check_pure.sh BUILD - check that pure directories use only memory and string functions.
#
# Inspects the undefined symbols of the objects of base/, locks/, majority/, tx/, failover/ and resp/, of
# journal/ except its file, and of client/engine/
# and what it uses. So it finds every use of a clock, socket, file, random number or log. Symbols of other pure objects are allowed.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
build=${1:?usage: check_pure.sh BUILD}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# meson names an object after its source: base/status.c is core_status.c.o.
find "$build" -path "$build/tests" -prune -o \( -name 'base_*.c.o' -o -name 'locks_*.c.o' -o -name 'majority_*.c.o' \
    -o -name 'tx_*.c.o' -o -name 'failover_*.c.o' -o -name 'resp_*.c.o' -o -name 'journal_[jr]*.c.o' -o -name 'client_engine_*.c.o' \
    -o -name 'client_reply.c.o' -o -name 'client_watch.c.o' \) -print >"$work/objects"
if [ ! -s "$work/objects" ]; then
    echo "no object of a pure directory below $build" >&2
    exit 1
fi

while read -r object; do nm --defined-only "$object"; done <"$work/objects" |
    awk 'NF == 3 { print $3 }' | sort -u >"$work/defined"

bad=0
while read -r object; do
    nm -u "$object" | awk '{ print $2 }' | sort -u | comm -23 - "$work/defined" >"$work/u"
    while read -r name; do
        case $name in
            malloc | calloc | realloc | free | aligned_alloc) ;;
            mem* | str* | bcmp | bzero) ;;
            __mem*_chk | __str*_chk) ;;
            # An assert, and what the compiler adds by itself.
            __assert_fail | abort | __stack_chk_fail | _GLOBAL_OFFSET_TABLE_) ;;
            *)
                echo "${object##*/} uses $name" >&2
                bad=1
                ;;
        esac
    done <"$work/u"
done <"$work/objects"
exit "$bad"
