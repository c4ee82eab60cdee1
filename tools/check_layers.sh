#!/bin/sh
# check_layers.sh [ROOT] - includes point to lower layers only.
#
#     4  programs       server  offline  cli  sim
#     3  adapters       canal  client
#     2  pure           majority  tx  failover
#     1                 locks  resp  storage
#     0  pure           base
#
# A file of src/ may include its own directory, directories of a lower layer, sluice.h and
# system headers. cli is the first user of the public library: it includes its own directory
# and sluice.h only. Includes are written from src/ ("canal/slot.h"), so grep shows the whole
# graph.
#
set -eu
cd "${1:-$(dirname "$0")/..}"

layer_of() {
    case $1 in
        base) echo 0 ;;
        locks | resp | storage) echo 1 ;;
        majority | tx | failover) echo 2 ;;
        canal | client) echo 3 ;;
        server | offline | cli | sim) echo 4 ;;
        *) echo none ;;
    esac
}

seen=$(mktemp)
trap 'rm -f "$seen"' EXIT
bad=0
files=0
say() {
    echo "$1" >&2
    bad=1
}

for path in include/*.h src/*.[ch] src/*/*.[ch] src/*/*/*.[ch]; do
    [ -f "$path" ] || continue
    files=$((files + 1))
    case $path in
        include/*) folder=include ;;
        src/*/*) folder=${path#src/}; folder=${folder%%/*} ;;
        *) say "$path: a file of src/ belongs in a directory"; continue ;;
    esac
    if [ "$folder" != include ] && [ "$(layer_of "$folder")" = none ]; then
        say "$path: directory $folder has no layer in tools/check_layers.sh"
        continue
    fi
    sed -n 's/^[ \t]*#[ \t]*include[ \t]*\([<"][^">]*\)[">].*/\1/p' "$path" >"$seen"
    while read -r name; do
        case $name in
            '<sluice.h' | '"sluice.h') [ "$folder" != include ] ||
                say "$path: sluice.h includes itself"
                continue ;;
            '<'*) continue ;;
        esac
        name=${name#?}
        case $name in
            *../*) say "$path: \"$name\": write includes from src/"; continue ;;
            */*) to=${name%%/*} ;;
            *.def) continue ;;
            *) say "$path: \"$name\": write includes from src/, with their directory"
                continue ;;
        esac
        [ "$folder" != include ] || { say "$path: the public header includes $name"; continue; }
        [ "$to" != "$folder" ] || continue
        [ "$folder" != cli ] || { say "$path: cli includes sluice.h only, not $name"; continue; }
        from_layer=$(layer_of "$folder")
        to_layer=$(layer_of "$to")
        if [ "$to_layer" = none ]; then
            say "$path: \"$name\": directory $to has no layer"
        elif [ "$to_layer" -ge "$from_layer" ]; then
            say "$path: $folder (layer $from_layer) includes $name (layer $to_layer)"
        fi
    done <"$seen"
done

[ "$files" -gt 0 ] || say "there is nothing to check"
exit "$bad"
