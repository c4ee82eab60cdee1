#!/bin/sh
# check_docs.sh [ROOT] - what the documents say exists, and what exists is documented.
#
# 1. man/sluice.h.3 has a section for each function of sluice.h, an item for each
#    status, and mentions each struct and each constant.
# 2. Files, `make` targets and links that README.md, HACKING.md, the other READMEs and
#    docs/ name exist.
# 3. Each test that docs/guarantees.md names is in tests/, and it names some.
# 4. Claims of certainty stand in docs/guarantees.md alone.
# 5. The test command of README.md is what .ci/run runs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
say() {
    echo "$1" >&2
    bad=1
}

# ---- 1. the man page ----

page=man/sluice.h.3
header=include/sluice.h
if [ ! -f "$page" ]; then
    say "there is no $page"
else
    "$here/api_names" "$header" >"$work/functions"
    [ -s "$work/functions" ] || say "$header declares no function"
    while read -r name; do
        grep -qx "\.Ss $name" "$page" || say "$page: no section for $name()"
    done <"$work/functions"

    sed -n 's/^ *X(\([A-Z]*\), *\(-\{0,1\}[0-9]*\), *"\([A-Z]*\)".*/\1 \2 \3/p' "$header" \
        >"$work/statuses"
    [ -s "$work/statuses" ] || say "$header: no status in SLUICE_STATUS_MAP"
    while read -r name number word; do
        item=".It Dv SLUICE_$name Pq $(echo "$number" | sed 's/^-/\\-/') , $word"
        grep -qxF -e "$item" "$page" || say "$page: no item \"$item\""
    done <"$work/statuses"

    {
        sed -n 's/^#define \(SLUICE_[A-Z_]*\) .*/\1/p' "$header" | grep -v '^SLUICE_API$'
        sed -n 's/^struct \(sluice_[a-z_]*\).*/\1/p' "$header"
    } | sort -u | while read -r name; do
        grep -qw "$name" "$page" || echo "$page: nothing about $name"
    done >"$work/wrong"
    [ ! -s "$work/wrong" ] || say "$(cat "$work/wrong")"
fi

# ---- 2. what documents point at ----

for doc in *.md docs/*.md src/*.md src/*/*.md tests/*.md tests/*/*.md tools/*.md \
    bench/*.md; do
    [ -f "$doc" ] || continue
    folder=$(dirname "$doc")

    # What stands in `backquotes`, and the lines of indented or fenced examples that
    # begin with make.
    {
        grep -o '`[^`]*`' "$doc" | tr -d '`'
        sed -n 's/^[ \t$]*\(make .*\)/\1/p' "$doc"
    } >"$work/quoted" || true

    while read -r first second _; do
        case $first in
            make)
                second=${second%%[!a-z0-9]*}
                [ -n "$second" ] || continue
                grep -q "^$second:" Makefile || say "$doc: there is no \`make $second\`"
                continue
                ;;
        esac
        first=${first%%:*}
        # Only what begins with a folder of ours, or looks like a document, is a path.
        case $first in
            *[\<\>\$\{\}…]* | /* | *.h.[1-9]) continue ;;
            src/* | tests/* | tools/* | docs/* | man/* | bench/* | include/* | examples/*) ;;
            .ci/*) ;;
            *.md) ;;
            *) continue ;;
        esac
        found=false
        for path in $first $folder/$first; do
            [ ! -e "$path" ] || found=true
        done
        $found || say "$doc: there is no $first"
    done <"$work/quoted"

    grep -o '](\([^)]*\))' "$doc" | sed 's/^](//; s/)$//; s/#.*//' >"$work/links" || true
    while read -r link; do
        case $link in
            '' | http://* | https://*) continue ;;
        esac
        [ -e "$folder/$link" ] || say "$doc: there is no $link to link to"
    done <"$work/links"
done

# ---- 3. the tests behind the promises ----

promises=docs/guarantees.md
if [ ! -f "$promises" ]; then
    say "there is no $promises"
else
    named=0
    grep -o '`[^`]*`' "$promises" | tr -d '`' | sort -u >"$work/quoted" || true
    while read -r name; do
        case $name in
            tests/*:*) # a test in a file
                named=$((named + 1))
                grep -qw -e "${name#*:}" "${name%%:*}" 2>/dev/null ||
                    say "$promises: ${name%%:*} has no ${name#*:}"
                ;;
            tests/*) named=$((named + 1)) ;; # rule 2 has seen to it
            sluice_* | SLUICE_* | *[!a-z0-9_]*) ;;
            *_*) # a test by its name
                named=$((named + 1))
                grep -rqw -e "$name" tests || say "$promises: no test has the name $name"
                ;;
        esac
    done <"$work/quoted"
    # Cases of the catalogue: C1, K15.
    grep -owE 'C[1-8]|K([1-9]|1[0-5])' "$promises" | sort -u >"$work/cases" || true
    while read -r name; do
        named=$((named + 1))
        grep -rqwiE -e "(test_)?$name(_[a-z0-9_]*)?" tests ||
            say "$promises: no test speaks of $name"
    done <"$work/cases"
    [ "$named" -gt 0 ] || say "$promises names no test"
fi

# ---- 4. who may be certain ----

for place in README.md HACKING.md CHANGELOG.md docs man include src tests tools bench \
    examples; do
    [ -e "$place" ] || continue
    grep -rniwEI 'prove[dn]' "$place" | grep -v '^docs/guarantees\.md:' |
        grep -v '^tools/check_docs\.sh:' || true
done >"$work/certain"
if [ -s "$work/certain" ]; then
    cat "$work/certain" >&2
    say "that word belongs into $promises alone, beside its evidence and limits"
fi

# ---- 5. the test command ----

if [ -f .ci/run ]; then
    grep -qx 'exec make test' .ci/run || say ".ci/run does not run make test"
    grep -q 'make test' README.md || say "README.md does not tell how to test"
fi

exit "$bad"
