#!/bin/sh
# check_man.sh [ROOT [BUILD]] - run mandoc on all man pages.
#
# Checks the pages of ROOT/man, and the pages that the build generates in BUILD/man.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
root=${1:-$(dirname "$0")/..}
built=${2-}

ls "$root"/man/*.[1-9] >/dev/null
set -- "$root"/man/*.[1-9]
for template in "$root"/man/*.in; do
    [ -f "$template" ] || continue
    page=$built/man/$(basename "$template" .in)
    if [ -z "$built" ] || [ ! -f "$page" ]; then
        echo "$template: the page was not built${built:+ in $built}" >&2
        exit 1
    fi
    set -- "$@" "$page"
done
mandoc -T lint -W warning "$@" >&2
