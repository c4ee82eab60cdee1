#!/bin/sh
# check_docs.sh [ROOT] - check that everything that the documents name exists, and that
# everything public is documented.
#
# 1. man/sluice.h.3 has a section for each function of sluice.h, an item for each
#    status, and mentions each struct and each constant.
# 2. Files, `make` targets and links that README.md, HACKING.md, the other READMEs and
#    docs/ name exist, with the headings to which links point.
# 3. docs/guarantees.md names tests, and each of them is in tests/.
# 4. Only docs/guarantees.md claims that something is certain.
# 5. .ci/run runs `make test`, the test command in README.md.
# 6. Each command of src/commands.def has a page in docs/commands/ with the same syntax
#    and an example, and the list there has a line with its summary. No other page is there.
# 7. Each setting of src/settings.def is in the table of docs/server.md with its default,
#    and in the man page of sluice serve. The table has no other rows.
# 8. A word in capital letters that these pages show in `BACKQUOTES` or in a transcript is a
#    command, an option of a command, or the first word of an error.
# 9. Each function of sluice.h from sluice_open() on is called in a program of examples/.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
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

# The names under which links reach the headings of a document.
headings() { # headings DOCUMENT
    sed -n 's/^##* //p' "$1" | sed 's/](.*)//' | tr '[:upper:]' '[:lower:]' |
        sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for doc in *.md docs/*.md docs/*/*.md src/*.md src/*/*.md tests/*.md tests/*/*.md tools/*.md \
    bench/*.md; do
    [ -f "$doc" ] || continue
    directory=$(dirname "$doc")

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
        # Only what begins with a directory of ours, or looks like a document, is a path.
        case $first in
            *[\<\>\$\{\}…]* | /* | *.h.[1-9]) continue ;;
            src/* | tests/* | tools/* | docs/* | man/* | bench/* | include/* | examples/*) ;;
            .ci/*) ;;
            *.md) ;;
            *) continue ;;
        esac
        found=false
        for path in $first $directory/$first; do
            [ ! -e "$path" ] || found=true
        done
        $found || say "$doc: there is no $first"
    done <"$work/quoted"

    grep -o '](\([^)]*\))' "$doc" | sed 's/^](//; s/)$//' >"$work/links" || true
    while IFS= read -r link; do
        case $link in
            '' | http://* | https://*) continue ;;
        esac
        target=$directory/${link%%#*}
        [ -n "${link%%#*}" ] || target=$doc
        if [ ! -e "$target" ]; then
            say "$doc: there is no $link to link to"
            continue
        fi
        case $link in
            *.md\#* | \#*) headings "$target" | grep -qxF -e "${link#*#}" ||
                say "$doc: there is no heading for the link $link" ;;
        esac
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
    say "only $promises may use this word, next to its evidence and limits"
fi

# ---- 5. the test command ----

if [ -f .ci/run ]; then
    grep -qx 'exec make test' .ci/run || say ".ci/run does not run make test"
    grep -q 'make test' README.md || say "README.md does not tell how to test"
fi

# ---- 6. the commands of the server ----

# lines NAME, tab, SYNTAX, tab, SUMMARY
tab=$(printf '\t')
{ tr '\n' ' ' <src/commands.def && echo; } | sed 's/COMMAND(/\n&/g' |
    sed -n "s/^COMMAND(\([A-Z.]*\),[^\"]*\"[^\"]*\", *\"\([^\"]*\)\", *\"\([^\"]*\)\".*/\1$tab\2$tab\3/p" \
        >"$work/commands" || true
[ -s "$work/commands" ] || say "src/commands.def lists no command"
list=docs/commands/README.md
[ -f "$list" ] || say "there is no $list"

# The indented lines below "## Syntax", as one.
syntax_of() { # syntax_of PAGE
    sed -n '/^## Syntax$/,/^[^ ].*/{/^## Syntax$/d;/^    /p;}' "$1" | tr -s ' \n' ' ' |
        sed 's/^ //; s/ $//'
}

while IFS=$tab read -r name syntax summary; do
    file=$(echo "$name" | tr '[:upper:]' '[:lower:]').md
    page=docs/commands/$file
    if [ ! -f "$page" ]; then
        say "$page: there is no page for $name"
        continue
    fi
    [ "$(head -n 1 "$page")" = "# $name" ] || say "$page: it should begin with \"# $name\""
    [ "$(syntax_of "$page")" = "$syntax" ] ||
        say "$page: below \"## Syntax\" should stand: $syntax"
    # The example comes first: users read it and no more.
    awk '/^```redis/ { good = 1; exit } /^## / { exit } END { exit !good }' "$page" ||
        say "$page: no example before its first section"
    grep -qE "^[A-Z0-9]?> $name\b" "$page" || say "$page: no example of $name"
    grep -qxF "| [$name]($file) | $summary |" "$list" 2>/dev/null ||
        say "$list: no line \"| [$name]($file) | $summary |\""
done <"$work/commands"
for page in docs/commands/*.md; do
    name=$(basename "$page" .md | tr '[:lower:]' '[:upper:]')
    [ "$name" != README ] || continue
    grep -q "^$name$tab" "$work/commands" || say "$page: unknown command $name"
done

# ---- 7. the settings of the server ----

page=docs/server.md
sed -n 's/^SETTING("\([^"]*\)", [A-Z]*, [a-z_]*, "\([^"]*\)".*/\1\t\2/p' src/settings.def \
    >"$work/settings" || true
[ -s "$work/settings" ] || say "src/settings.def lists no setting"
while IFS=$tab read -r name given; do
    row="| \`$name\` | "
    [ -z "$given" ] || row="| \`$name\` | \`$given\` | "
    grep -qF -e "$row" "$page" 2>/dev/null || say "$page: no row \"$row\""
done <"$work/settings"
sed -n 's/^| `\([a-z-]*\)` | \(`[^`]*`\)\{0,1\} *| .*/\1/p' "$page" 2>/dev/null |
    while read -r name; do
        grep -q "^$name$tab" "$work/settings" || echo "$page: there is no setting $name"
    done >"$work/wrong"
[ ! -s "$work/wrong" ] || say "$(cat "$work/wrong")"
# The man page is made from the same rows, by src/cli/pages.c.
grep -qx '@options serve@' man/sluice-serve.1.in 2>/dev/null ||
    say "man/sluice-serve.1.in: no line \"@options serve@\""
grep -q '^#include "settings.def"' src/cli/table.c 2>/dev/null ||
    say "src/cli/table.c: it should include settings.def"

# ---- 8. no command that is not there ----

# Words of a syntax, and of errors: rows "| `LOST` | what it means".
cut -f 2 "$work/commands" | tr -c 'A-Z-' '\n' | sort -u >"$work/words"
sed -n 's/^| `\([A-Z]*\)` | .*/\1/p' docs/server.md >>"$work/words" 2>/dev/null || true
echo QUEUED >>"$work/words" # a reply
for page in README.md docs/server.md docs/leases.md docs/cluster.md docs/commands/*.md; do
    [ -f "$page" ] || continue
    sed -n '/^```redis/,/^```$/s/^[A-Z0-9]\{0,1\}> \([A-Za-z.]*\).*/\1/p' "$page" |
        tr '[:lower:]' '[:upper:]' | sort -u |
        while read -r name; do
            grep -q "^$name$tab" "$work/commands" ||
                echo "$page: unknown command $name in an example"
        done
    [ "$page" != README.md ] || continue # It speaks of C too.
    grep -o '`[A-Z][A-Z]\{2,\}[` ]' "$page" | tr -d '` ' | sort -u |
        while read -r name; do
            grep -qx -e "$name" "$work/words" || echo "$page: unknown command or option $name"
        done
done >"$work/wrong"
[ ! -s "$work/wrong" ] || say "$(cat "$work/wrong")"

# ---- 9. examples of the functions ----

sed -n '/^SLUICE_API.* \**sluice_open(/,$p' "$header" 2>/dev/null >"$work/rest.h"
"$here/api_names" "$work/rest.h" | while read -r name; do
    grep -q "\b$name(" examples/*.c 2>/dev/null || echo "examples: no program calls $name()"
done >"$work/wrong"
[ ! -s "$work/wrong" ] || say "$(cat "$work/wrong")"

exit "$bad"
