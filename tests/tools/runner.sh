#!/bin/bash
# runner.sh - tests/run counts right, and takes no silence for success.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

run() { SLUICE_TEST_TABLE=$work/table tests/run "$@"; }
suites() { # suites: a table on stdin
    { echo 'table() {'; cat; echo '}'; } >"$work/table"
}
last() { run "$@" 2>&1 | tail -n 1; }

script() { # script NAME: a program on stdin
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

suites <<END
suite test three tap 9 $work/three
suite test plain exit 9 true
END
same "tests are counted one by one, a plain command as one" "$(last)" "4 passed, 0 failed"
passes "all passed is exit status 0" run
suites <<END
suite test mixed tap 9 $work/mixed
END
same "what was skipped is neither passed nor failed" "$(last)" "2 passed, 1 failed"
fails "a failed test is exit status 1" 'mixed' run
suites <<END
suite test short tap 9 $work/short
END
same "tests that were planned and did not run have failed" "$(last)" "2 passed, 3 failed"
suites <<END
suite test crash tap 9 $work/crash
END
same "an exit status that no test explains is a failure" "$(last)" "2 passed, 1 failed"
suites <<END
suite test silent tap 9 $work/silent
END
same "a suite that ran no test has failed" "$(last)" "0 passed, 1 failed"
suites <<END
suite test skips tap 9 $work/skips
END
same "so has one that skipped everything" "$(last)" "0 passed, 1 failed"
suites <<END
suite test gone exit 9 $work/gone
END
same "so has one that is not there" "$(last)" "0 passed, 1 failed"
suites <<END
suite test loud exit 9 $work/loud
END
fails "what a failed suite said is shown" 'what went wrong' run
suites <<END
suite test slow exit 1 $work/slow
END
fails "a suite that takes too long is killed" 'longer than 1 s' run
gone() { # gone PID: or a zombie that nobody has buried yet
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        case $(cat "/proc/$1/stat" 2>/dev/null) in '' | *') Z '*) return 0 ;; esac
        sleep 0.1
    done
    return 1
}
passes "and its children with it" gone "$(cat "$work/slow.pid")"
suites <<END
suite test a/one exit 9 true
suite test a/two exit 9 true
suite soak a/long exit 9 true
suite both b exit 9 true
END
same "names choose suites" "$(last 'a/*')" "2 passed, 0 failed"
same "a name that no suite has is a failure" "$(last c)" "0 passed, 1 failed"
same "--soak runs the long forms" "$(last --soak)" "2 passed, 0 failed"
says "time is told for every suite" 'a/one .* 0\.. s' run

done_testing
