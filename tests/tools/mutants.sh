# shellcheck shell=bash
# mutants.sh - that live tests find the bugs they are there for; sourced, with these set:
#
#     table     NAME  WHAT IS BROKEN |SUITE |TEST, a pattern   in each line
#     program   the program of a build that they test: src/cli/sluice
#     sources   the folder that knows the mutants: src/cli
#     suites    their programs but for `SUITE.py`: tests/cli/test_
#     slow      suites whose tests take longer, if there are any: keeper
#     $1        the build, build/plain; further words choose mutants
#
# A mutant is the program with one of its rules broken: see tests/tools/mutant. For each the
# named test must go red; without it the same test must be green. Prints TAP.
: "${table:?}" "${program:?}" "${sources:?}" "${suites:?}"
build=${1:?"usage: mutants BUILD [MUTANT...]"}
shift
wanted=" $* "

# They mostly wait.
at_once=5

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

number=0
failed=0
say() { # say ok|'not ok' SENTENCE [LOG]
    number=$((number + 1))
    echo "$1 $number - $2"
    [ "$1" != ok ] || return 0
    failed=$((failed + 1))
    [ -z "${3-}" ] || sed 's/^/# /' "$dir/$3"
}

rows() { # the rows that were asked for: NAME|WHAT|SUITE|TEST
    awk -v wanted="$wanted" '
        NF && (wanted == "  " || index(wanted, " " $1 " ")) {
            sub(/ +/, "|")
            gsub(/ *\| */, "|")
            print
        }' <<<"$table"
}

# Runs tests of a suite; its status is 2 if it did not run what it was asked for.
try() { # try LOG SECONDS PROGRAM SUITE PATTERN...
    timeout -s KILL 900 env "SLUICE_TEST_DEADLINE_S=$2" "$suites$4.py" "$3" "${@:5}" \
        >"$dir/$1.log" 2>&1 </dev/null
    local status=$?
    grep -qE '^(not )?ok ' "$dir/$1.log" || return 2
    return "$status"
}

# The sound program passes them all. Each pattern must name a test.
try_sound() { # try_sound SUITE
    local patterns
    mapfile -t patterns < <(rows | awk -F'|' -v suite="$1" '$3 == suite {print $4}' | sort -u)
    try "sound.$1" 60 "$build/$program" "$1" "${patterns[@]}" &&
        [ "$(grep -c '^ok ' "$dir/sound.$1.log")" -ge ${#patterns[@]} ] &&
        : >"$dir/sound.$1.green"
}

# What is broken need not be waited for as long as what is slow.
try_mutant() { # try_mutant NAME SUITE PATTERN
    local status=0 seconds=8
    case " ${slow-} " in *" $2 "*) seconds=20 ;; esac
    if tests/tools/mutant "$build" "$program" "$1" "$dir/$1" >"$dir/$1.log" 2>&1; then
        try "$1" "$seconds" "$dir/$1" "$2" "$3" || status=$?
    else
        status=unbuilt
    fi
    echo "$status" >"$dir/$1.status"
}

begin() { # begin FUNCTION ARGUMENTS...: in the background
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
    "$@" &
}

known() { awk 'NF {print $1}' <<<"$table" | sort; }
there() { grep -rohw 'MUT_[A-Z]*' "$sources" --include='*.[ch]' | sed 's/MUT_//' | sort -u; }

if [ $# = 0 ]; then
    if diff <(known) <(there) >"$dir/names"; then
        say ok "the table names every mutant of $sources, and no other"
    else
        say 'not ok' "the table (<) and $sources (>) name different mutants" names
    fi
fi
mapfile -t tried < <(rows | cut -d '|' -f 3 | sort -u)
for suite in "${tried[@]}"; do begin try_sound "$suite"; done
while IFS='|' read -r name _ suite pattern; do
    begin try_mutant "$name" "$suite" "$pattern"
done < <(rows)
wait
for suite in "${tried[@]}"; do
    if [ -f "$dir/sound.$suite.green" ]; then
        say ok "without a mutant those tests of $suite are green"
    else
        say 'not ok' "without a mutant tests of $suite are red, or one is not there" "sound.$suite.log"
    fi
done
while IFS='|' read -r name what suite pattern; do
    case $(cat "$dir/$name.status") in
        1) say ok "MUT_$name ($what) is found by $suite $pattern" ;;
        unbuilt) say 'not ok' "MUT_$name does not build" "$name.log" ;;
        *) say 'not ok' "MUT_$name ($what) was not found by $suite $pattern" "$name.log" ;;
    esac
done < <(rows)
echo "1..$number"
[ "$failed" = 0 ] && [ "$number" != 0 ]
