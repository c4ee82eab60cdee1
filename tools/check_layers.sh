#!/bin/sh
# check_layers.sh [ROOT] - includes point down, never up and never sideways.
#
#     3  programs       server  store  cli  sim
#     2  adapters       canal  engine  client
#     1  pure folders   lease  keeper  resp
#     0                 core
#
# A file of src/ may include its own folder, folders of a lower layer, sluice.h and the
# system's headers. cli is the public library's first user: its own folder and sluice.h
# alone. Includes are written from src/ ("canal/slot.h"), so a grep is the whole graph.
set -eu
cd "${1:-$(dirname "$0")/..}"

layer_of() {
    case $1 in
        core) echo 0 ;;
        lease | keeper | resp) echo 1 ;;
        canal | engine | client) echo 2 ;;
        server | store | cli | sim) echo 3 ;;
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
        *) say "$path: a file of src/ belongs into a folder"; continue ;;
    esac
    if [ "$folder" != include ] && [ "$(layer_of "$folder")" = none ]; then
        say "$path: folder $folder has no layer in tools/check_layers.sh"
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
            *) say "$path: \"$name\": write includes from src/, with their folder"
                continue ;;
        esac
        [ "$folder" != include ] || { say "$path: the public header includes $name"; continue; }
        [ "$to" != "$folder" ] || continue
        [ "$folder" != cli ] || { say "$path: cli uses sluice.h alone, not $name"; continue; }
        from_layer=$(layer_of "$folder")
        to_layer=$(layer_of "$to")
        if [ "$to_layer" = none ]; then
            say "$path: \"$name\": folder $to has no layer"
        elif [ "$to_layer" -ge "$from_layer" ]; then
            say "$path: $folder (layer $from_layer) includes $name (layer $to_layer)"
        fi
    done <"$seen"
done

[ "$files" -gt 0 ] || say "there is nothing to check"
exit "$bad"
