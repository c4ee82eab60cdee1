#!/bin/sh
# check_words.sh [ROOT] - Sluice's words, with one meaning each.
#
# Looks through src/, include/, docs/, man/ and README.md for words that tools/words.txt
# lists as having another name here.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"
words=${SLUICE_WORDS:-$here/words.txt}

hits=$(mktemp)
trap 'rm -f "$hits"' EXIT
tab=$(printf '\t')
bad=0
patterns=0

allowed() { # allowed FILE PATTERN
    while IFS=$tab read -r kind files allowed_pattern _why; do
        [ "$kind $allowed_pattern" = "yes $2" ] || continue
        # shellcheck disable=SC2254 # files is a pattern
        case $1 in $files) return 0 ;; esac
    done <"$words"
    return 1
}

while IFS=$tab read -r kind pattern instead; do
    [ "$kind" = no ] || continue
    patterns=$((patterns + 1))
    set --
    for place in src include docs man README.md; do
        [ ! -e "$place" ] || set -- "$@" "$place"
    done
    [ $# -gt 0 ] || { echo "there is nothing to check" >&2; exit 1; }
    # Not a part of another word; an underscore is a part of one.
    grep -rniEIw -e "$pattern" "$@" >"$hits" || continue
    while IFS= read -r hit; do
        file=${hit%%:*}
        allowed "$file" "$pattern" && continue
        echo "$hit" >&2
        echo "    write: $instead" >&2
        bad=1
    done <"$hits"
done <"$words"

[ "$patterns" -gt 0 ] || { echo "$words lists no words" >&2; exit 1; }
exit "$bad"
