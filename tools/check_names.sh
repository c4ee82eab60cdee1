#!/bin/sh
# check_names.sh [ROOT] - no two modules define a type, an enumerator or a function of one name.
#
# A module is a directory of src/. Static functions are not compared: their names end with their
# file. Prints each name that two modules define, with the places.
set -eu
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
