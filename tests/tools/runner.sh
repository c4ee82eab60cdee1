#!/bin/bash
# runner.sh - tests that tests/run counts correctly, does not report missing output as success,
# and runs only suites marked `parallel` together.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

export SLUICE_TEST_PATIENCE=1
run() { SLUICE_TEST_TABLE=$work/table tests/run "$@"; }
suites() { # suites LINE...: write a table with these suites
    { echo 'table() {'; printf 'suite %s\n' "$@"; echo '}'; } >"$work/table"
}
last() { run "$@" 2>&1 | tail -n 1; }

script() { # script NAME: make a program from stdin
    { echo '#!/bin/sh'; cat; } >"$work/$1"
    chmod +x "$work/$1"
}
script three <<'END'
printf '1..3\nok 1 - a\n# noise\nok 2 - b\nok 3\n'
END
script mixed <<'END'
printf '1..4\nok 1 - a\nnot ok 2 - b\nok 3\nnot ok 4 # SKIP cmocka says it so\n'
exit 1
END
script short <<'END'
printf '1..5\nok 1\nok 2\n'
END
script crash <<'END'
printf '1..2\nok 1\nok 2\n'
exit 7
END
script silent </dev/null
script skips <<'END'
printf '1..1\nok 1 # SKIP no reason\n'
END
script slow <<'END'
echo "still alive"
sleep 60 &
echo $! >"$0.pid"
sleep 60
END
script loud <<'END'
echo "what went wrong"
exit 1
END

suites "test three tap 9 $work/three" 'test plain exit 9 true'
same "each TAP test is counted, and a plain command counts as one test" "$(last)" "4 passed, 0 failed"
passes "the exit status is 0 if all tests pass" run
suites "test mixed tap 9 $work/mixed"
same "a skipped test is neither passed nor failed" "$(last)" "2 passed, 1 failed"
fails "the exit status is nonzero if a test fails" 'mixed' run
suites "test short tap 9 $work/short"
same "planned tests that did not run count as failed" "$(last)" "2 passed, 3 failed"
suites "test crash tap 9 $work/crash"
same "a nonzero exit status without a failed test is a failure" "$(last)" "2 passed, 1 failed"
suites "test silent tap 9 $work/silent"
same "a suite that runs no test fails" "$(last)" "0 passed, 1 failed"
suites "test skips tap 9 $work/skips"
same "a suite that skips all tests fails" "$(last)" "0 passed, 1 failed"
suites "test gone exit 9 $work/gone"
same "a suite whose command does not exist fails" "$(last)" "0 passed, 1 failed"
suites "test loud exit 9 $work/loud"
fails "the output of a failed suite is printed" 'what went wrong' run
suites "test slow exit 1 $work/slow"
fails "a suite that takes too long is killed" 'longer than 1 s' run
fails "SLUICE_TEST_PATIENCE multiplies the time limit" 'longer than 2 s' \
    env SLUICE_TEST_PATIENCE=2 SLUICE_TEST_TABLE="$work/table" tests/run
gone() { # gone PID: the process has ended; it may be a zombie
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        case $(cat "/proc/$1/stat" 2>/dev/null) in '' | *') Z '*) return 0 ;; esac
        sleep 0.1
    done
    return 1
}
passes "the children of a killed suite are killed too" gone "$(cat "$work/slow.pid")"
suites 'test a/one exit 9 true' \
    'test a/two exit 9 true' \
    'soak a/long exit 9 true' \
    'both b exit 9 true'
same "a pattern selects suites" "$(last 'a/*')" "2 passed, 0 failed"
same "a pattern that matches no suite is a failure" "$(last c)" "0 passed, 1 failed"
same "--soak runs the long forms" "$(last --soak)" "2 passed, 0 failed"
says "the duration of every suite is printed" 'a/one .* 0\.. s' run

# ---- lanes ----

two() { run --lanes 2; }
script meet <<'END' # meet MINE OTHER: fails unless both run at the same time
: >"$0.$1"
for _ in $(seq 3000); do [ ! -e "$0.$2" ] || exit 0; sleep 0.02; done
echo "$2 did not come"
exit 1
END
script apart <<'END' # fails if another one runs at the same time
mkdir "$0.d" || exit 1
sleep 0.2
rmdir "$0.d"
END
suites "test a exit 60 $work/meet a b" "test b exit,parallel 60 $work/meet b a"
passes "a parallel suite runs together with a suite that is not parallel" two
rm -f "$work"/meet.?
suites "test a exit,parallel 60 $work/meet a b" "test b exit,parallel 60 $work/meet b a"
passes "two parallel suites run together" two
suites "test a exit 60 $work/apart" "test b exit 60 $work/apart" "test c exit 60 $work/apart"
passes "suites that are not parallel run one at a time" two
suites "test a exit,parallel 60 $work/apart" "test b exit,parallel 60 $work/apart"
passes "with one lane parallel suites run one at a time" run --lanes 1
suites "soak a exit,parallel 60 $work/apart" "soak b exit,parallel 60 $work/apart"
passes "with --soak parallel suites run one at a time" run --soak

script late <<'END'
for _ in $(seq 3000); do [ ! -e "$0.go" ] || break; sleep 0.02; done
echo "late one"
echo "late two"
exit 1
END
script early <<'END'
echo "early one"
: >"${0%/*}/late.go"
echo "early two"
exit 1
END
suites "test late exit 60 $work/late" \
    "test early exit,parallel 60 $work/early" \
    'test last exit,parallel 60 true'
same "results are printed in the order of the table, and the output of each suite in one piece" \
    "$(two | grep -o -e '^[a-z]* [a-z]*$' -e '^[a-z]* .*[0-9] s' | sed 's/  .*//')" \
    "$(printf '%s\n' late 'late one' 'late two' early 'early one' 'early two' last)"

script jobs <<'END'
echo "it has $JOBS of $(nproc)"
exit 1
END
suites "test a exit 60 $work/jobs"
fails "the only suite of a run gets all processors" "it has $(nproc) of" two
suites "test a exit 60 $work/jobs" "test b exit,parallel 60 $work/jobs"
same "each of two suites gets one processor" "$(two | grep -c 'it has 1 of')" 2

suites "test needs exit 60 $work/none/plain/program" 'test other exit 60 true'
broken() { BUILD=$work/none CC=false two; }
fails "a suite whose build fails is not run" '^needs .*not run: there is no build/plain  FAILED' broken
same "other suites still run" "$(broken | tail -n 1)" "1 passed, 2 failed"

suites "test one exit 60 $work/slow" "test two exit,parallel 60 $work/slow2"
cp "$work/slow" "$work/slow2"
rm -f "$work/slow.pid"
SLUICE_TEST_TABLE=$work/table tests/run --lanes 2 >"$work/stopped" 2>&1 &
pid=$!
for _ in $(seq 300); do
    [ ! -s "$work/slow.pid" ] || [ ! -s "$work/slow2.pid" ] || break
    sleep 0.02
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
same "the exit status is 143 after SIGTERM" "$status" 143
same "a stopped run prints the names of the running suites" "$(sort "$work/stopped")" "$(printf 'stopped: %s\n' one two)"
passes "the processes of the first suite are killed" gone "$(cat "$work/slow.pid")"
passes "the processes of the second suite are killed" gone "$(cat "$work/slow2.pid")"

done_testing
