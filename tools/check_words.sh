#!/bin/sh
# check_words.sh [ROOT] - find idioms that we no longer write.
#
# tools/words.txt lists the idioms, what to write instead, and where each is allowed.
# SLUICE_WORDS names another list. Exits with 1 if it finds any.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"
list=${SLUICE_WORDS:-$here/words.txt}

hits=$(mktemp)
trap 'rm -f "$hits"' EXIT
tab=$(printf '\t')
bad=0
patterns=0
places_found=

allowed() { # allowed FILE PATTERN
    while IFS=$tab read -r kind files allowed_pattern _why; do
        [ "$kind" = allow ] || continue
        [ "$allowed_pattern" = "$2" ] || [ "$allowed_pattern" = '*' ] || continue
        # shellcheck disable=SC2254 # files is a pattern
        case $1 in $files) return 0 ;; esac
    done <"$list"
    return 1
}

while IFS=$tab read -r kind pattern instead; do
    case $kind in
        docs) places="README.md docs man" ;;
        source) places="README.md docs man include src" ;;
        all) places="README.md HACKING.md docs man include src examples packaging bench tests" ;;
        '' | '#'* | allow) continue ;;
        *) echo "$list: unknown kind \"$kind\"; write docs, source, all or allow" >&2; exit 1 ;;
    esac
    patterns=$((patterns + 1))
    set --
    for place in $places; do
        [ ! -e "$place" ] || set -- "$@" "$place"
    done
    [ $# -gt 0 ] || continue
    places_found=yes
    # -w: the pattern is not a part of a longer word or of a name with underscores.
    # Patches in tests/mutants repeat lines of src.
    grep -rniEIw --exclude-dir=mutants --exclude-dir=node_modules --exclude-dir=__pycache__ \
        -e "$pattern" "$@" >"$hits" || continue
    while IFS= read -r hit; do
        file=${hit%%:*}
        allowed "$file" "$pattern" && continue
        echo "$hit" >&2
        echo "    write: $instead" >&2
        bad=1
    done <"$hits"
done <"$list"

[ -n "$places_found" ] || [ "$patterns" = 0 ] || { echo "there is nothing to check" >&2; exit 1; }
[ "$patterns" -gt 0 ] || { echo "$list lists no idiom" >&2; exit 1; }
exit "$bad"
