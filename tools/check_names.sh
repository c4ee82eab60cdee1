#!/bin/sh
# check_names.sh [ROOT] - check that no two modules define the same name.
#
# A module is a directory of src/. The names are those of types, enumerators and functions; static
# functions do not count, because only their own file can use their names. Prints each name that two
# modules define, with the file and line of each definition.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "${1:-$(dirname "$0")/..}"

list=$(mktemp)
trap 'rm -f "$list"' EXIT

find src -name '*.[ch]' | sort | while read -r file; do
    module=${file#src/}
    module=${module%%/*}
    awk -v file="$file" -v module="$module" '
        function found(kind, name) { print kind " " name "\t" module "\t" file ":" FNR }
        /^(struct|enum|union) [a-z_0-9]+ \{/ { found("type", $2) }
        /^typedef .*[ *][a-z_0-9]+(\(.*)?;$/ { next }
        /^enum .*\{/ { inside = 1 }
        inside && match($0, /^    [A-Z][A-Z0-9_]+/) {
            found("enumerator", substr($0, 5, RLENGTH - 4))
        }
        /^\}/ { inside = 0 }
        # The definition of a function: it is not static, and its brace comes alone.
        /^[a-z].*\(/ && !/^(static|typedef|extern|struct [a-z_0-9]+ \{|enum|else|return)/ && !/;$/ {
            line = $0
            sub(/\(.*/, "", line)
            n = split(line, word, /[ *]+/)
            name = word[n]
            number = FNR
        }
        /^\{/ && name != "" { print "function " name "\t" module "\t" file ":" number }
        /^\{/ || /;$/ { name = "" }
    ' "$file"
done | sort >"$list"

[ -s "$list" ] || { echo "there is nothing to check" >&2; exit 1; }
awk -F '\t' '
    $1 == "function main" { next }
    $1 == name && $2 != module { if (!said) print name ": " place " and " $3; said = bad = 1 }
    $1 != name { name = $1; module = $2; place = $3; said = 0 }
    END { exit bad }
' "$list" >&2
