#!/bin/sh
# check.sh BUILD - that the bench runs, says what it should, and leaves nothing behind.
# Not what it measures: numbers of a few milliseconds mean nothing.
set -eu
cd "$(dirname "$0")/.."

# In a world of its own, if the system lets us: semaphores of others come and go.
own="unshare --ipc --user --map-root-user"
if [ -z "${SLUICE_OWN_IPC-}" ] && $own true 2>/dev/null; then
    export SLUICE_OWN_IPC=yes
    exec $own bench/check.sh "$@"
fi
. tests/tools/tap.sh
build=${1:?usage: check.sh BUILD}
bench=$build/bench/bench

# Semaphores and segments that are there now.
left() {
    [ -z "${SLUICE_OWN_IPC-}" ] || ipcs -s | awk '$2 ~ /^[0-9]+$/ { print $2 }'
    find /dev/shm -maxdepth 1 -name 'sluice.bench.*'
}
before=$(left)

says "it measures, and compares itself with its goals" 'reached\|missed' "$bench" --quick
says "it says where we lose" '^---- Where we lose ----$' "$bench" --quick
passes "it writes JSON" sh -c "'$bench' --quick --json >'$work/json'"
says "which others can read" 'handle_to_cas16' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
locks = {l['id'] for l in r['locks']}
for s in r['sections']:
    assert 'skipped' in s or s['results'], s['id']
    for c in s['results']:
        assert c['lock'] in locks
        assert 'skipped' in c or 0 <= c['min'] <= c['median'], c
for q in r['ratios']: print(q['id'])
assert r['where_we_lose'] and all(l['why'] for l in r['where_we_lose'])
" "$work/json"
says "with one CPU it leaves out what needs two" 'only one CPU' \
    taskset -c "$(taskset -cp $$ | sed 's/.*[: ,-]//')" "$bench" --quick
says "it explains itself" '^usage:' "$bench" --help
fails "an unknown option is refused" 'no such option: --fast' "$bench" --fast

# Whether a process has a handler for SIGINT, the second bit of this mask.
catches() {
    case $(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status") in
        [2367abef]) ;;
        *) return 1 ;;
    esac
}

# Three moments of an interrupted run: while it opens, measures, reaps.
for after in 0.05 0.4 1.2; do
    "$bench" >"$work/out" 2>&1 &
    pid=$!
    until catches "$pid"; do sleep 0.01; done
    sleep "$after"
    kill -INT "$pid" 2>/dev/null || true
    status=0
    wait "$pid" || status=$?
    same "interrupted after $after s it says so with its exit status" "$status" 130
done
same "nothing is left behind" "$(left)" "$before"

# ---- the server's bench ----

server=$build/bench/server
export TMPDIR="$work" # Where its servers have their folders.

passes "the server's bench measures every part" sh -c "'$server' --quick --json >'$work/json'"
says "and its JSON has every part, plausible numbers, and its goals" '^good$' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
assert r['method'] and r['quick'] and r['rounds'] == 2
assert {t['part'] for t in r['tables']} == {'pairs', 'memory', 'keys', 'turns', 'waiters'}
cells = {}
for t in r['tables']:
    assert t['results'], t['id']
    for c in t['results']:
        if 'skipped' in c: continue
        assert 0 <= c['min'] <= c['median'] <= c['max'], c
        cells[t['id'], c['row'], c['column']] = c['median']
for name in 'Sluice', 'empty server':
    for shape in '1 connection', '50 connections', '1, pipelined by 32':
        assert 0.01 < cells['cpu', shape, name] < 10000, (shape, name)
        assert cells['median', shape, name] <= cells['p99', shape, name]
assert 20 < cells['memory', 'bytes of one of 1e+05', 'Sluice'] < 2000
assert cells['turns', 'waiters granted', 'one key listened to'] > 0
assert cells['turns', 'events told', 'all keys listened to'] > \\
    cells['turns', 'events told', 'one key listened to'] > 0
ids = {g['id'] for g in r['goals']}
assert {'cpu_50_to_redis', 'cpu_50_by_32_to_redis', 'cpu_50_to_empty', 'memory_to_redis',
        'turn_ending'} <= ids, ids
print('good')
" "$work/json"
says "as text it compares itself with its goals" 'met\|missed' \
    "$server" --quick --only pairs --rounds 1
says "and says where we lose" '^---- Where we lose ----$' \
    "$server" --quick --only pairs --rounds 1
says "without Redis it goes on" 'not on this machine' \
    "$server" --quick --only pairs --rounds 1 --redis /nonexistent
fails "a server that is not there is named" 'no server at' "$server" --server /nonexistent
fails "one that is not ours is not measured" 'Sluice:' \
    "$server" --quick --server "$build/bench/empty_server"
fails "an unknown part is refused" 'no such value: speed' "$server" --only speed
fails "a number of rounds that is none is refused" 'no such value: 0' "$server" --rounds 0
says "the server's bench explains itself" '^usage:' "$server" --help
passes "both are one run" sh -c "bench/run '$build' --quick --json --rounds 1 \
    --only canal --only pairs >'$work/both'"
says "and one document" '^canal server$' python3 -c "
import json, sys
print(*sorted(json.load(open(sys.argv[1]))))" "$work/both"

# The empty server must count what is cut anywhere.
says "the empty server answers each command once, however they are cut" '^counted$' \
    python3 -c "
import random, re, socket, subprocess, sys
p = subprocess.Popen([sys.argv[1]], stderr=subprocess.PIPE, text=True)
try:
    port = int(re.search(r':([0-9]+)$', p.stderr.readline().strip())[1])
    draw = random.Random(7)
    words = lambda: [b'x' * draw.choice([0, 1, 9, 10, 300]) for _ in range(draw.randint(1, 12))]
    sent, wanted = b'', 2000
    for _ in range(wanted):
        w = words()
        sent += b'*%d\\r\\n' % len(w) + b''.join(b'\$%d\\r\\n%s\\r\\n' % (len(x), x) for x in w)
    c = socket.create_connection(('127.0.0.1', port), 60)
    c.settimeout(60)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got = b''
    while sent:
        n = draw.choice([1, 2, 7, 100, 70000])
        c.sendall(sent[:n])
        sent = sent[n:]
    while len(got) < 5 * wanted: got += c.recv(65536)
    assert got == b'+OK\\r\\n' * wanted
    c.sendall(b'*1\\r\\nbroken')
    assert c.recv(10) == b'', 'more replies than commands, or no end'
    print('counted')
finally:
    p.kill()
" "$build/bench/empty_server"

for after in 0.05 0.5; do
    "$server" --only pairs >"$work/out" 2>&1 &
    pid=$!
    until catches "$pid"; do sleep 0.01; done
    sleep "$after"
    kill -INT "$pid" 2>/dev/null || true
    status=0
    wait "$pid" || status=$?
    same "the server's bench, interrupted after $after s, says so" "$status" 130
done
same "no folder of a server is left behind" \
    "$(find "$work" -maxdepth 1 -name 'sluice.bench.*')" ""
done_testing
