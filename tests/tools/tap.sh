# shellcheck shell=sh
# tap.sh - functions for tests that are shell scripts. Source it and end with `done_testing`.
#
#     passes SENTENCE COMMAND...         the command's exit status is 0
#     fails  SENTENCE PATTERN COMMAND... the exit status is not 0, and the output matches PATTERN
#     says   SENTENCE PATTERN COMMAND... the exit status is 0, and the output matches PATTERN
#     same   SENTENCE GOT WANTED         the two strings are equal
#
# PATTERN is a basic regular expression. After a failure the output of the command is printed.
# $work is a temporary directory of the test, which is removed at the end.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tap_count=0
tap_failed=0

tap_result() { # tap_result OK SENTENCE
    tap_count=$((tap_count + 1))
    if [ "$1" = yes ]; then
        echo "ok $tap_count - $2"
    else
        echo "not ok $tap_count - $2"
        sed 's/^/#   /' "$work/said"
        tap_failed=$((tap_failed + 1))
    fi
}

passes() {
    tap_sentence=$1
    shift
    tap_ok=no
    if "$@" >"$work/said" 2>&1 </dev/null; then tap_ok=yes; fi
    tap_result "$tap_ok" "$tap_sentence"
}

fails() {
    tap_sentence=$1 tap_pattern=$2
    shift 2
    tap_ok=no
    if "$@" >"$work/said" 2>&1 </dev/null; then
        echo "the command succeeded; expected it to fail" >>"$work/said"
    elif grep -q -e "$tap_pattern" "$work/said"; then
        tap_ok=yes
    fi
    tap_result "$tap_ok" "$tap_sentence"
}

says() {
    tap_sentence=$1 tap_pattern=$2
    shift 2
    tap_ok=no
    if "$@" >"$work/said" 2>&1 </dev/null && grep -q -e "$tap_pattern" "$work/said"; then
        tap_ok=yes
    fi
    tap_result "$tap_ok" "$tap_sentence"
}

same() {
    tap_ok=no
    if [ "$2" = "$3" ]; then tap_ok=yes; fi
    printf 'got:    %s\nwanted: %s\n' "$2" "$3" >"$work/said"
    tap_result "$tap_ok" "$1"
}

done_testing() {
    echo "1..$tap_count"
    [ "$tap_failed" = 0 ]
}
