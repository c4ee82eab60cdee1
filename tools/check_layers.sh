#!/bin/sh
# check_layers.sh [ROOT] - check that includes name lower layers only.
#
#     4  programs       server  offline  cli  sim
#     3  adapters       canal  client
#     2  pure           majority  tx  failover
#     1                 locks  resp  storage  journal
#     0  pure           base
#
# Inside server:
#
#     7  the server     main.c  server.c  stop.c  request.c  recorder*.c  settings*.c
#     6  decisions      arbiter  forward
#     5  commands       command
#     4  sockets        net
#     3  inspection     observe
#     2  interfaces     request.h  server.h  recorder.h  arbiter/arbiter.h  command/dispatch.h  forward/proxy.h
#                       net/conn.h  net/session.h
#     1  files          data
#     0                 settings.h  observe/log.h  observe/stats.h  observe/pubsub.h  net/input.h
#
# A file of src/ may include its own directory, directories of a lower layer, sluice.h and
# system headers. A file of server may also include files of its own layer in there. cli is the first
# user of the public library: it includes its own directory, base and sluice.h only. Includes are
# written from src/ ("canal/slot.h"), so grep shows the whole graph.
#
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "${1:-$(dirname "$0")/..}"

layer_of() {
    case $1 in
        base) echo 0 ;;
        locks | resp | storage | journal) echo 1 ;;
        majority | tx | failover) echo 2 ;;
        canal | client) echo 3 ;;
        server | offline | cli | sim) echo 4 ;;
        *) echo none ;;
    esac
}

server_layer_of() { # server_layer_of FILE: its path from src/server/
    case $1 in
        settings.h | observe/log.h | observe/stats.h | observe/pubsub.h | net/input.h) echo 0 ;;
        data/*) echo 1 ;;
        request.h | server.h | recorder.h | arbiter/arbiter.h | command/dispatch.h) echo 2 ;;
        forward/proxy.h | net/conn.h | net/session.h) echo 2 ;;
        observe/*) echo 3 ;;
        net/*) echo 4 ;;
        command/*) echo 5 ;;
        arbiter/* | forward/*) echo 6 ;;
        *) echo 7 ;;
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
        include/*) directory=include ;;
        src/*/*) directory=${path#src/}; directory=${directory%%/*} ;;
        *) say "$path: a file of src/ belongs in a directory"; continue ;;
    esac
    if [ "$directory" != include ] && [ "$(layer_of "$directory")" = none ]; then
        say "$path: directory $directory has no layer in tools/check_layers.sh"
        continue
    fi
    sed -n 's/^[ \t]*#[ \t]*include[ \t]*\([<"][^">]*\)[">].*/\1/p' "$path" >"$seen"
    while read -r name; do
        case $name in
            '<sluice.h' | '"sluice.h') [ "$directory" != include ] ||
                say "$path: sluice.h includes itself"
                continue ;;
            '<'*/*) [ ! -d "src/$(echo "$name" | sed 's,^<,,; s,/.*,,')" ] ||
                say "$path: $name>: write our own headers in quotes"
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
        [ "$directory" != include ] || { say "$path: the public header includes $name"; continue; }
        if [ "$directory $to" = "server server" ]; then
            from_layer=$(server_layer_of "${path#src/server/}")
            to_layer=$(server_layer_of "${name#server/}")
            [ "$to_layer" -le "$from_layer" ] ||
                say "$path (layer $from_layer of server) includes $name (layer $to_layer)"
        fi
        [ "$to" != "$directory" ] || continue
        [ "$directory" != cli ] || [ "$to" = base ] ||
            { say "$path: cli includes base and sluice.h only, not $name"; continue; }
        from_layer=$(layer_of "$directory")
        to_layer=$(layer_of "$to")
        if [ "$to_layer" = none ]; then
            say "$path: \"$name\": directory $to has no layer"
        elif [ "$to_layer" -ge "$from_layer" ]; then
            say "$path: $directory (layer $from_layer) includes $name (layer $to_layer)"
        fi
    done <"$seen"
done

[ "$files" -gt 0 ] || say "there is nothing to check"
exit "$bad"
