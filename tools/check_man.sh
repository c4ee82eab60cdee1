#!/bin/sh
# check_man.sh [ROOT [BUILD]] - mandoc finds no fault in a man page.
#
# Looks at the pages of ROOT/man, and, as some are made from templates, at those that were
# built in BUILD/man.
set -eu
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
