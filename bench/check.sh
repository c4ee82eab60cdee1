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
bench=${1:?usage: check.sh BUILD}/bench/bench

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
done_testing
