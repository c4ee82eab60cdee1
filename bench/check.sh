#!/bin/sh
# check.sh BUILD - that the bench runs, says what it should, and leaves nothing behind.
# Not what it measures: numbers of a few milliseconds mean nothing.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/tap.sh
bench=${1:?usage: check.sh BUILD}/bench/bench

# Semaphores and segments that are there now.
left() {
    ipcs -s | awk '$2 ~ /^[0-9]+$/ { print $2 }'
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

# Three moments of an interrupted run: while it opens, measures, reaps.
for after in 0.05 0.4 1.2; do
    "$bench" >"$work/out" 2>&1 &
    pid=$!
    sleep "$after"
    kill -INT "$pid" 2>/dev/null || true
    status=0
    wait "$pid" || status=$?
    same "interrupted after $after s it says so with its exit status" "$status" 130
done
same "nothing is left behind" "$(left)" "$before"
done_testing
