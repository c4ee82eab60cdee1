#!/bin/sh
# check.sh BUILD - tests that the benchmarks run, print valid reports, and clean up.
# The numbers are not tested: measurements of a few milliseconds mean nothing.
set -eu
cd "$(dirname "$0")/.."

# In a private IPC namespace if possible, because other programs create semaphores too.
own="unshare --ipc --user --map-root-user"
if [ -z "${SLUICE_OWN_IPC-}" ] && $own true 2>/dev/null; then
    export SLUICE_OWN_IPC=yes
    exec $own bench/check.sh "$@"
fi
. tests/tools/tap.sh
build=${1:?usage: check.sh BUILD}
bench=$build/bench/bench

# The semaphores and segments that exist now.
left() {
    [ -z "${SLUICE_OWN_IPC-}" ] || ipcs -s | awk '$2 ~ /^[0-9]+$/ { print $2 }'
    find /dev/shm -maxdepth 1 -name 'sluice.bench.*'
}
before=$(left)

# docs/bench.md has the method of each program, with markup.
cat >"$work/method.py" <<'END'
import json, re, sys
report = json.load(open(sys.argv[1]))
page = open("docs/bench.md").read()
page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
page = re.sub(r"^- ", "", page, flags=re.M).replace("**", "").replace("`", "")
page = " ".join(page.split())
for text in (report["method"], report.get("method_locks", "")):
    assert text.removeprefix("Method: ") in page, text
print("same")
END
method_in_docs() { # method_in_docs NAME JSON
    says "docs/bench.md has the method of $1" '^same$' python3 "$work/method.py" "$2"
}
passes "the lock benchmark runs" sh -c "'$bench' --quick >'$work/text'"
says "the lock benchmark compares the results with its goals" 'reached\|missed' cat "$work/text"
says "the lock benchmark lists the cases in which Sluice is slower" '^---- Where Sluice is slower ----$' cat "$work/text"
passes "the lock benchmark writes JSON" sh -c "'$bench' --quick --json >'$work/json'"
says "the JSON of the lock benchmark is valid and complete" 'handle_to_cas16' python3 -c "
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
method_in_docs "bench" "$work/json"
says "with one CPU it skips the sections that need two" 'only one CPU' \
    taskset -c "$(taskset -cp $$ | sed 's/.*[: ,-]//')" "$bench" --quick
says "the lock benchmark has --help" '^usage:' "$bench" --help
fails "an unknown option is rejected" 'unknown option: --fast' "$bench" --fast

# Does the process handle SIGINT? This is the second bit of SigCgt.
catches() {
    case $(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status") in
        [2367abef]) ;;
        *) return 1 ;;
    esac
}

# Interrupt the run at three moments: while it opens the locks, measures and reaps.
for after in 0.05 0.4 1.2; do
    "$bench" >"$work/out" 2>&1 &
    pid=$!
    until catches "$pid"; do sleep 0.01; done
    sleep "$after"
    kill -INT "$pid" 2>/dev/null || true
    status=0
    wait "$pid" || status=$?
    same "the exit status is 130 if the run is interrupted after $after s" "$status" 130
done
same "no semaphores or segments are left behind" "$(left)" "$before"

# ---- the server benchmark ----

server=$build/bench/server
export TMPDIR="$work" # The parent of its servers' directories.

passes "the server benchmark runs every part" sh -c "'$server' --quick --json >'$work/json'"
says "the JSON of the server benchmark has every part, plausible numbers and the goals" '^good$' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
assert r['method'] and r['quick'] and r['rounds'] == 2
assert {t['part'] for t in r['tables']} == {'pairs', 'memory', 'keys', 'turns', 'waiters', 'notify', 'journal'}
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
assert 20 < cells['memory', 'bytes each of 1e+05', 'Sluice'] < 2000
assert cells['turns', 'waiters granted', 'one key subscribed'] > 0
assert cells['turns', 'events sent', 'all keys subscribed'] > \\
    cells['turns', 'events sent', 'one key subscribed'] > 0
ids = {g['id'] for g in r['goals']}
assert {'cpu_50_to_redis', 'cpu_50_by_32_to_redis', 'cpu_50_to_empty', 'memory_to_redis',
        'turn_ending', 'notify_to_connections', 'journal_50', 'journal_50_by_32', 'journal_rewrite_turn'} <= ids, ids
print('good')
" "$work/json"
method_in_docs "server" "$work/json"
passes "the server benchmark prints text" \
    sh -c "'$server' --quick --only pairs --rounds 1 >'$work/text'"
says "the server benchmark compares the results with its goals" 'met\|missed' cat "$work/text"
says "the server benchmark lists the cases in which Sluice is slower" '^---- Where Sluice is slower ----$' cat "$work/text"
says "the server benchmark runs without Redis" 'not installed' \
    "$server" --quick --only pairs --rounds 1 --redis /nonexistent
fails "the error for a missing server names its path" 'no server at' "$server" --server /nonexistent
fails "a server that is not Sluice is rejected" 'Sluice:' \
    "$server" --quick --server "$build/bench/empty_server"
fails "an unknown part is rejected" 'invalid value: speed' "$server" --only speed
fails "an invalid number of rounds is rejected" 'invalid value: 0' "$server" --rounds 0
says "the server benchmark has --help" '^usage:' "$server" --help
passes "bench/run runs parts of both benchmarks" sh -c "bench/run '$build' --quick --json --rounds 1 \
    --only canal --only pairs >'$work/both'"
says "bench/run writes one JSON document" '^canal server$' python3 -c "
import json, sys
print(*sorted(json.load(open(sys.argv[1]))))" "$work/both"

# The empty server must count commands that arrive in pieces.
says "the empty server replies once to each command, however the stream is split" '^counted$' \
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
    same "the exit status is 130 if the server benchmark is interrupted after $after s" "$status" 130
done

# ---- transactions ----

tx=$build/bench/tx
passes "the transaction benchmark runs both parts" sh -c "'$tx' --quick --json >'$work/json'"
says "the JSON of the transaction benchmark has both parts, plausible numbers and groups of 1" '^good$' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
cells = {(t['id'], c['row'], c['column']): c.get('median') for t in r['tables']
         for c in t['results']}
for name in 'Sluice', 'Sluice, group of 1', 'SQLite':
    for shape in '1 client', '64 clients':
        assert cells['tx_rate', shape, name] > 1, (shape, name)
        assert cells['tx_median', shape, name] <= cells['tx_p99', shape, name]
assert cells['tx_group', '64 clients', 'Sluice, group of 1'] == 1
assert cells['tx_group', '64 clients', 'Sluice'] > 1
assert cells['tx_rate', '64 clients, no mutex', 'SQLite'] > 0
assert cells['tx_disk', '4 KiB and fdatasync', 'median of a round'] > 0
assert cells['txlocks_rate', '64 clients, by 32', 'Sluice'] > 0
assert {'tx_rate_1_to_sqlite', 'tx_rate_64_to_sqlite', 'tx_rate_64_to_alone'} <= \\
    {g['id'] for g in r['goals'] if g['measured']}
print('good')
" "$work/json"
method_in_docs "tx" "$work/json"
fails "a server that does not start is an error of the transaction benchmark" 'Sluice: it died' \
    "$tx" --quick --only txlocks --rounds 1 --server /bin/false
fails "the transaction benchmark rejects a part of another program" 'invalid value: pairs' "$tx" --only pairs
"$tx" --only commits >"$work/out" 2>&1 &
pid=$!
until catches "$pid"; do sleep 0.01; done
sleep 0.5
kill -INT "$pid" 2>/dev/null || true
status=0
wait "$pid" || status=$?
same "the exit status is 130 if the transaction benchmark is interrupted" "$status" 130

# ---- three nodes ----

cluster=$build/bench/cluster

# A fake etcd that replies what the benchmark expects; WRONG replaces its reply to a lock.
cat >"$work/etcd" <<'END'
#!/usr/bin/python3
import base64, http.server, json, os, sys, urllib.parse
class Member(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"header": {"member_id": me, "revision": "2"}}
        if self.path == "/v3/maintenance/status": answer["leader"] = "m2"
        elif self.path == "/v3/lease/grant": answer.update(ID="4660", TTL=str(asked["TTL"]))
        elif self.path == "/v3/lock/lock" and int(asked["lease"]) == 4660:
            name = base64.b64decode(asked["name"]) + b"/1234"
            answer["key"] = os.environ.get("WRONG") or base64.b64encode(name).decode()
        elif self.path == "/v3/lock/unlock": assert base64.b64decode(asked["key"])[-5:] == b"/1234"
        else: self.send_error(404)
        body = json.dumps(answer, separators=(",", ":")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
me = words["--name"]
port = urllib.parse.urlparse(words["--listen-client-urls"]).port
http.server.ThreadingHTTPServer(("127.0.0.1", port), Member).serve_forever()
END
chmod +x "$work/etcd"

passes "the cluster benchmark runs both parts" \
    sh -c "'$cluster' --quick --json --rounds 1 --etcd '$work/etcd' >'$work/json'"
says "the JSON of the cluster benchmark has both parts, plausible numbers and the goals" '^good$' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
cells = {(t['id'], c['row'], c['column']): c['median'] for t in r['tables'] for c in t['results']}
for name in 'Sluice', 'etcd':
    for shape in '1 client', '32 clients, own keys', '32 clients, one key':
        assert cells['majority_rate', shape, name] > 1 and cells['majority_cpu', shape, name] > 1
        assert cells['majority_acquire', shape, name] <= cells['majority_p99', shape, name]
# A proxy with a delay of 5 ms each way makes no round trip shorter than 10 ms.
for row in 'one round trip', 'ACQUIRE, 1 client', 'ACQUIRE, 32 clients':
    assert cells['apart', row, 'Sluice'] > 9.9, row
ids = {g['id'] for g in r['goals'] if g['measured']}
assert {'majority_rate_1_to_etcd', 'majority_rate_32_to_etcd', 'apart_1_to_round_trip'} <= ids, ids
print('good')
" "$work/json"
method_in_docs "cluster" "$work/json"
says "the cluster benchmark runs without etcd" 'not installed' \
    "$cluster" --quick --only majority --rounds 1 --etcd /nonexistent
fails "a lock that etcd does not grant is not counted" 'etcd: the reply to an acquire was' \
    env WRONG=no "$cluster" --quick --only majority --rounds 1 --etcd "$work/etcd"
fails "a node that does not start is an error of the cluster benchmark" 'Sluice: it died' \
    "$cluster" --quick --only apart --rounds 1 --server /bin/false
fails "the cluster benchmark rejects an unknown part" 'invalid value: pairs' "$cluster" --only pairs
"$cluster" --only apart >"$work/out" 2>&1 &
pid=$!
until catches "$pid"; do sleep 0.01; done
sleep 0.3
kill -INT "$pid" 2>/dev/null || true
status=0
wait "$pid" || status=$?
same "the exit status is 130 if the cluster benchmark is interrupted" "$status" 130

# ---- three nodes on etcd ----

keeper=$build/bench/keeper
if command -v etcd >/dev/null; then
    passes "the keeper benchmark runs every part" \
        sh -c "'$keeper' --quick --json --rounds 1 >'$work/json'"
    says "the JSON of the keeper benchmark has every part, plausible numbers and the goals" '^good$' python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
cells = {(t['id'], c['row'], c['column']): c for t in r['tables'] for c in t['results']}
median = {k: c['median'] for k, c in cells.items()}
for name in 'Sluice, keeper', 'Sluice, other node', 'etcd':
    for shape in '1 client', '32 clients, own keys', '32 clients, one key', \\
            '1 client, long', '32, own keys, long', '32, one key, long':
        assert median['keeperlocks_rate', shape, name] > 1, (shape, name)
        assert median['keeperlocks_acquire', shape, name] <= \\
            median['keeperlocks_p99', shape, name], (shape, name)
for shape in '1 client', '64 clients', '256 clients':
    for name in 'Sluice, keeper', 'Sluice, other node', 'keeper, group of 1':
        assert median['keepercommits_rate', shape, name] > 1, (shape, name)
    assert median['keepercommits_group', shape, 'keeper, group of 1'] == 1, shape
assert median['keepercommits_group', '256 clients', 'Sluice, keeper'] > 1
assert len(cells['failover', 'all kills', 'Sluice']['runs']) == 2
assert median['failover', 'longest', 'Sluice'] == cells['failover', 'all kills', 'Sluice']['max']
ids = {g['id'] for g in r['goals'] if g['measured']}
assert {'keeperlocks_rate_1_to_etcd', 'keeperlocks_far_32_to_etcd',
        'keeperlocks_rate_1_long_to_etcd', 'keeperlocks_far_32_long_to_etcd',
        'keeperlocks_far_32_to_keeper', 'keepercommits_rate_256_to_alone',
        'keepercommits_far_256_to_keeper', 'failover_longest'} <= ids, ids
print('good')
" "$work/json"
    fails "nodes that do not start are an error of the keeper benchmark" 'Sluice: it died' \
        "$keeper" --quick --only failover --rounds 1 --server /bin/false
    "$keeper" --only keepercommits >"$work/out" 2>&1 &
    pid=$!
    until catches "$pid"; do sleep 0.01; done
    sleep 2
    kill -INT "$pid" 2>/dev/null || true
    status=0
    wait "$pid" || status=$?
    same "the exit status is 130 if the keeper benchmark is interrupted" "$status" 130
fi
says "without etcd the keeper benchmark reports that etcd is not installed" 'not installed' \
    "$keeper" --quick --rounds 1 --etcd /nonexistent
"$keeper" --quick --json --rounds 1 --etcd /nonexistent >"$work/json"
method_in_docs "keeper" "$work/json"
fails "the keeper benchmark rejects a part of another program" 'invalid value: majority' \
    "$keeper" --only majority
says "writeback measures pairs while another process writes to the disk" \
    "^$work  *writing  *[0-9]* *[1-9][0-9]* .* [0-9]* *[0-9]*$" \
    "$build/bench/writeback" 0.2 "$work"
fails "writeback rejects an invalid time" '^usage:' "$build/bench/writeback" 0
says "append compares writes with a mapped file" '^mapped, zeros *100 ' \
    "$build/bench/append" 1 1 "$work"
fails "append rejects an invalid size" '^usage:' "$build/bench/append" 0
same "no process of a benchmark is left behind" "$(pgrep -f "$work/sluice.bench." || true)" ""
same "no directory of a server is left behind" \
    "$(find "$work" -maxdepth 1 -name 'sluice.bench.*')" ""

done_testing
