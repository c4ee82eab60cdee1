#!/bin/bash
# mutant.sh - tests tools/mutant and tests/mutants/run in a small project.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

# ---- the project: one source file, one unit test, one build ----

project=$work/project
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x \
    GIT_COMMITTER_EMAIL=x BUILD=$project/build
mkdir -p "$project"/{src/base,include,build/plain,tests/{unit,tools,mutants},tools}
cp -r tests/mutants/{run,lib} "$project/tests/mutants"
cp tests/tools/bounded "$project/tests/tools"
cp tools/mutant "$project/tools"
cd "$project"
printf 'build/\n__pycache__/\n' >.gitignore
printf '#!/bin/sh\nexec ninja -C build/plain >/dev/null\n' >tools/build
chmod +x tools/build
cat >src/base/limit.h <<'EOF'
/* The largest number that is accepted. */
#define LIMIT 10
int is_accepted(int n);
EOF
cat >src/base/limit.c <<'EOF'
#include "base/limit.h"

int is_accepted(int n)
{
    if (n < 0) return 0;
    return n <= LIMIT;
}
EOF
cat >tests/unit/test_limit.c <<'EOF'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/limit.h"
static void large_numbers_are_rejected(void **state)
{
    (void)state;
    assert_false(is_accepted(11));
}
static void negative_numbers_are_rejected(void **state)
{
    (void)state;
    assert_false(is_accepted(-1));
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_numbers_are_rejected),
                                       cmocka_unit_test(negative_numbers_are_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
EOF
ninja_file() { # ninja_file SOURCE
    cat >build/plain/build.ninja <<EOF
rule cc
  command = cc -I../../src -MD -MQ \$out -MF \$out.d -o \$out -c \$in
  deps = gcc
  depfile = \$out.d
rule ar
  command = rm -f \$out && ar csrDT \$out \$in
rule link
  command = cc -o \$out \$in -lcmocka
build src/limit.o: cc ../../$1
build src/liblimit.a: ar src/limit.o
build tests/unit/test_limit.o: cc ../../tests/unit/test_limit.c
build tests/unit/test_limit: link tests/unit/test_limit.o src/liblimit.a
EOF
    tools/build
}
ninja_file src/base/limit.c
git init -q .
commit() { git add -A && git commit -qm "$1"; }
commit first

edit() { sed -i "$2" "$1"; } # edit FILE EXPRESSION
mutant() { tools/mutant "$@"; }
blob() { git hash-object "$1" | cut -c1-12; }
patch_of() { cat "tests/mutants/$1.patch"; }
clean() { [ -z "$(git status --porcelain -- src)" ]; }

# ---- new ----

large='unit limit large_numbers_are_rejected'
fails "new fails without an edited file" "no file of src or include differs" \
    mutant new base-no-limit --rule 'Large numbers are rejected.' --test "$large"
edit src/base/limit.c 's/n <= LIMIT/n <= LIMIT + 1/'
fails "new fails without a rule and a test" "needs --rule and --test" mutant new base-no-limit
fails "a rule must be a sentence" "full stop" mutant new base-no-limit --rule Limit --test "$large"
fails "a test of an unknown kind is rejected" 'unknown kind of test "foo"' \
    mutant new base-no-limit --rule 'Large numbers are rejected.' --test 'foo bar'
fails "a name must start with a directory" "lower-case words" \
    mutant new limit --rule 'Large numbers are rejected.' --test "$large"
passes "new makes a patch of an edited file" \
    mutant new base-no-limit --rule 'Large numbers are rejected.' --test "$large"
passes "new restores the file" clean
says "the patch records the version that it was made against" "^index $(blob src/base/limit.c)\.\." \
    patch_of base-no-limit
says "list shows the rule" "Large numbers are rejected" mutant list 'base-*'
says "show shows the patch" "^+    return n <= LIMIT + 1;" mutant show base-no-limit
edit src/base/limit.h 's/LIMIT 10/LIMIT 11/'
passes "a header can be mutated" \
    mutant new base-large-limit --rule 'The limit is 10.' --test "$large" src/base/limit.h
commit 'two mutants'

# ---- run ----

says "a mutant is found by its test" "^ok 2 - base-no-limit is found by $large" \
    mutant run base-no-limit
says "a mutant in a header is found" "^ok 2 - base-large-limit is found" mutant run base-large-limit
negative='unit limit negative_numbers_are_rejected'
edit src/base/limit.c 's/n <= LIMIT/n <= LIMIT + 1/'
mutant new base-not-found --rule 'Large numbers are rejected.' --test "$negative" >/dev/null
fails "a mutant that its test does not find is a failure" "^not ok .*base-not-found is not found" \
    mutant run base-not-found
edit src/base/limit.c 's/n <= LIMIT/n <= LIMIT + 1/'
mutant new base-not-found --test 'unit limit nothing' >/dev/null
fails "a test that does not exist is a failure" "has no test nothing" mutant run base-not-found
rm tests/mutants/base-not-found.patch
edit tests/unit/test_limit.c 's/is_accepted(11)/is_accepted(1)/'
fails "a test that fails without the mutant is a failure" "^not ok 1 - without a mutant $large" \
    mutant run base-no-limit
git checkout -q tests
tools/build
fails "a name that no mutant has is a failure" "there is no mutant base-x" \
    tests/mutants/run ./build/plain base-x
passes "build links a program with the bug" mutant build base-no-limit tests/unit/test_limit out
fails "the program with the bug fails its test" "large_numbers_are_rejected" ./out
rm out
passes "the original build is not changed" build/plain/tests/unit/test_limit

# ---- refresh ----

edit src/base/limit.c 's/(int n)/(const int n)/'
fails "a patch whose lines have changed does not apply" "tools/mutant refresh base-no-limit" \
    mutant run base-no-limit
says "refresh merges a change nearby" "base-no-limit.patch: merged$" mutant refresh base-no-limit
says "the refreshed patch applies, and the mutant is found" "^ok 2 - base-no-limit is found" \
    mutant run base-no-limit
commit nearby
edit src/base/limit.c 's/n <= LIMIT/n <= LARGEST/'
edit src/base/limit.h 's/LIMIT/LARGEST/'
says "refresh merges a renamed constant word by word" "base-no-limit.patch: merged word by word" \
    mutant refresh
says "the merged patch keeps the bug" "^+    return n <= LARGEST + 1;" patch_of base-no-limit
commit renamed
git mv src/base/limit.c src/base/bound.c
says "refresh follows a renamed file" "merged" mutant refresh base-no-limit
says "the refreshed patch has the new file name" "^+++ b/src/base/bound.c" patch_of base-no-limit
commit moved
ninja_file src/base/bound.c
says "the mutant is found in the renamed file" "^ok 2 - base-no-limit is found" mutant run base-no-limit
same "refresh does not change patches that are up to date" "$(mutant refresh)" ""

edit tests/mutants/base-no-limit.patch 's/^index [0-9a-f]*/index 0123456789ab/'
says "a patch of a lost version is made against the current one" "merged" mutant refresh base-no-limit
passes "the patch is as before" git diff --exit-code tests/mutants
edit tests/mutants/base-no-limit.patch 's/^index [0-9a-f]*/index 0123456789ab/; s/^ {/ [/'
fails "a patch of a lost version that does not apply is not refreshed" "version 0123456789ab" \
    mutant refresh base-no-limit
git checkout -q tests

edit src/base/bound.c 's/n <= LARGEST/n < LARGEST - 1/'
fails "refresh reports a conflict" "^<<<<<<< src/base/bound.c" mutant refresh base-no-limit
passes "a conflict does not change the patch" git diff --exit-code tests/mutants
commit conflict
says "apply writes the conflict to the file" "has a conflict" mutant apply base-no-limit
fails "new rejects an unresolved conflict" "not resolved" mutant new base-no-limit
git checkout -q src
edit src/base/bound.c 's/n < LARGEST - 1/n < LARGEST + 2/'
passes "new replaces a mutant and keeps its rule" mutant new base-no-limit
says "the replaced mutant keeps its test" "^Test: $large" patch_of base-no-limit
says "the replaced mutant is found" "^ok 2 - base-no-limit is found" mutant run base-no-limit

# ---- the mutants of this repository ----

cd "$OLDPWD"
unset BUILD
suites=$(tests/run --list 'mutants/*' | grep -o '[a-z0-9]*-[*]' | sort -u)
prefixes=$(find tests/mutants -name '*.patch' -printf '%f\n' | sed 's/-.*/-*/' | sort -u)
same "tests/run runs the mutants of each directory" "$prefixes" "$suites"
done_testing
