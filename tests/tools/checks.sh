#!/bin/bash
# checks.sh BUILD - tests that each check of tools/ accepts a good sample and rejects bad ones.
#
# Every sample is a small source tree.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
build=${1:-build/plain}
case $build in /*) ;; *) build=$root/$build ;; esac
. tests/tools/tap.sh

tree=$work/tree
fresh() {
    rm -rf "$tree"
    mkdir -p "$tree"
}
put() { # put FILE: write stdin to a file of the tree
    mkdir -p "$tree/$(dirname "$1")"
    cat >"$tree/$1"
}

# ---- check_layers.sh ----

layers() { tools/check_layers.sh "$tree"; }
good_layers() {
    fresh
    echo '#include <stdint.h>' | put include/sluice.h
    echo '#include "sluice.h"' | put src/locks/table.c
    printf '#include "canal/slot.h"\n#include "locks/table.h"\n#include <errno.h>\n' |
        put src/canal/slot.c
    echo '#include "canal/slot.h"' | put src/server/main.c
    echo '#include "base/suggest.h"' | put src/cli/find.c
    printf '#include "server/request.h"\n#include "server/data/directory.h"\n' |
        put src/server/command/lock.c
    echo '#include "server/forward/forward.h"' | put src/server/arbiter/remote.c
}
good_layers
passes "layers: includes of lower layers are accepted" layers
good_layers; echo '#include "canal/slot.h"' | put src/locks/bad.c
fails "layers: locks may not include canal" 'locks (layer 1) includes canal/slot.h' layers
good_layers; echo ' #  include "server/loop.h"' | put src/canal/bad.h
fails "layers: canal may not include server" 'includes server/loop.h' layers
good_layers; echo '#include "client/client.h"' | put src/canal/bad.c
fails "layers: canal may not include client, which is in the same layer" 'client/client.h' layers
good_layers; echo '#include "locks/table.h"' | put src/cli/bad.c
fails "layers: cli may include base and sluice.h only" 'cli includes base and sluice.h only' layers
good_layers; echo '#include <locks/table.h>' | put src/base/bad.c
fails "layers: an internal header in angle brackets is rejected" 'in quotes' layers
good_layers; echo '#include "slot.h"' | put src/canal/bad.c
fails "layers: an include without its directory is rejected" 'with their directory' layers
good_layers; echo '#include "../core/table.h"' | put src/canal/bad.c
fails "layers: an include with .. is rejected" 'from src/' layers
good_layers; echo '#include "canal/slot.h"' | put include/sluice.h
fails "layers: the public header may not include an internal header" 'public header' layers
good_layers; echo 'int x;' | put src/utils/bad.c
fails "layers: a directory without a layer is rejected" 'no layer' layers
good_layers; echo '#include "server/arbiter/majority.h"' | put src/server/command/bad.c
fails "layers: a command may not include an arbiter" \
    'command/bad.c (layer 5 of server) includes server/arbiter/majority.h (layer 6)' layers
good_layers; echo '#include "server/net/links.h"' | put src/server/observe/bad.c
fails "layers: observe may not include links" 'includes server/net/links.h' layers
good_layers; echo '#include "server/server.h"' | put src/server/data/bad.h
fails "layers: data may not include the server" 'includes server/server.h' layers
fresh
fails "layers: an empty tree is rejected" 'nothing to check' layers

# ---- check_pure.sh ----

pure() { tools/check_pure.sh "$tree"; }
object() { # object NAME: C on stdin
    mkdir -p "$tree/lib.p"
    "${CC:-cc}" -O2 -c -x c - -o "$tree/lib.p/$1.c.o"
}
good_pure() {
    fresh
    object locks_table <<'END'
#include <stdlib.h>
#include <string.h>
char *copy(const char *s) { char *c = calloc(1, strlen(s) + 1); return c ? strcpy(c, s) : c; }
END
    object majority_proposer <<'END'
char *copy(const char *s);
char *twice(const char *s) { return copy(copy(s)); }
END
    object canal_slot <<'END'
#include <time.h>
long now(void) { return time(0); }
END
}
good_pure
passes "pure: memory, strings and other pure modules are accepted; canal is not checked" pure
good_pure; object locks_clock <<'END'
#include <time.h>
long now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec; }
END
fails "pure: locks may not read a clock" 'locks_clock.c.o uses clock_gettime' pure
good_pure; object resp_log <<'END'
#include <stdio.h>
void say(int x) { printf("%d", x); }
END
fails "pure: resp may not print" 'resp_log.c.o uses printf' pure
good_pure; object tx_dice <<'END'
#include <stdlib.h>
int dice(void) { return rand(); }
END
fails "pure: tx may not use random numbers" 'uses rand' pure
fresh
fails "pure: a directory without objects is rejected" 'no object' pure

# ---- check_symbols.sh ----

library() { # library [LINKER ARGUMENT...]: C on stdin
    "${CC:-cc}" -shared -fPIC -x c - -x none "$@" -o "$tree/lib.so"
}
symbols() { SLUICE_LIB=$tree/lib.so SLUICE_HEADER=$tree/api.h tools/check_symbols.sh "$tree"; }
fresh
printf 'SLUICE_API int sluice_a(void);\nSLUICE_API const char *sluice_b(int x,\n    int y);\n' |
    put api.h
echo 'int sluice_a(void){return 0;} int sluice_b(void){return 0;}' | library
passes "symbols: a library that exports exactly the declared functions is accepted" symbols
echo 'int sluice_a(void){return 0;}' | library
fails "symbols: a declared function that is not exported is rejected" 'not exported: sluice_b' symbols
echo 'int sluice_a(void){return 0;} int sluice_b(void){return 0;} int leak;' | library
fails "symbols: an exported symbol that is not declared is rejected" 'not declared: leak' symbols
echo 'int sluice_a(void){return 0;} int sluice_b(void){return 0;}' |
    library -Wl,--no-as-needed -lm
fails "symbols: a dependency other than libc is rejected" 'needs: libm' symbols

# ---- check_hardening.sh ----

# main() copies its argument into an array with a libc function that can be fortified.
sample() { # sample FLAG...: a program with all protections except those that the flags disable
    local cet=-fcf-protection
    [ "$(uname -m)" = x86_64 ] || cet=-mbranch-protection=standard
    fresh
    "${CC:-cc}" -O2 -fPIE -pie -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 \
        $cet -Wl,-z,relro,-z,now,-z,noexecstack "$@" -x c - -o "$tree/program" <<'END'
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    char text[64];
    snprintf(text, (size_t)argc * 8, "%s", argv[0]);
    return puts(text) < 0;
}
END
}
hardening() { tools/check_hardening.sh "$tree/program"; }
sample
passes "hardening: a program with all protections is accepted" hardening
sample -no-pie -fno-pie
fails "hardening: no PIE" 'no PIE' hardening
sample -Wl,-z,norelro
fails "hardening: no RELRO" 'no RELRO' hardening
sample -Wl,-z,lazy
fails "hardening: no BIND_NOW" 'no BIND_NOW' hardening
sample -Wl,-z,execstack
fails "hardening: an executable stack" 'the stack is executable' hardening
sample -fno-stack-protector
fails "hardening: no stack protector" 'no stack protector' hardening
sample -U_FORTIFY_SOURCE
fails "hardening: no fortified function" 'no fortified function' hardening
if [ "$(uname -m)" = x86_64 ]; then sample -fcf-protection=none; else sample -mbranch-protection=none; fi
fails "hardening: no landing pads" 'no CET\|no BTI' hardening
echo text | put program
fails "hardening: a text file is rejected" 'not a program or library' hardening

# ---- check_words.sh ----

cat >"$work/words.txt" <<'END'
# kind	pattern	what to write instead
all	frobs?	widget
docs	who waits	waiter
source	in line	queue
allow	docs/history.md	frobs?	a quotation
allow	docs/old.md	*	not rewritten yet
END
words() { SLUICE_WORDS=$work/words.txt tools/check_words.sh "$tree"; }
fresh
echo '/* A fencing token, a TTL, a semaphore: the waiter has a lease. */' | put src/locks/a.c
passes "words: common terms are accepted" words
echo 'The server answers who waits.' | put docs/a.md
fails "words: an idiom of kind docs in a document is rejected" 'write: waiter' words
rm "$tree/docs/a.md"
echo '/* The server answers who waits. */' | put src/locks/b.c
passes "words: an idiom of kind docs in a source file is accepted" words
echo '/* A client waits in line. */' | put src/locks/b.c
fails "words: an idiom of kind source in a source file is rejected" 'write: queue' words
rm "$tree/src/locks/b.c"
echo 'A client waits in line.' | put tests/a.py
passes "words: an idiom of kind source in a test is accepted" words
echo '# Two frobs at once.' | put tests/a.py
fails "words: an idiom of kind all in a test is rejected" 'write: widget' words
rm "$tree/tests/a.py"
echo 'int frob_count = 3;' | put src/locks/a.c
passes "words: an idiom inside a longer name is accepted" words
echo 'A frob.' | put docs/history.md
echo 'A frob, who waits.' | put docs/old.md
passes "words: an allowed idiom in its file is accepted" words
echo 'A frob.' | put docs/other.md
fails "words: the same idiom in another file is rejected" 'docs/other.md' words
fresh
fails "words: an empty tree is rejected" 'nothing to check' words
printf 'no\tfrobs?\twidget\n' >"$work/words.txt"
fails "words: an unknown kind is rejected" 'unknown kind "no"' words
printf 'allow\tdocs/a.md\tfrobs?\ta quotation\n' >"$work/words.txt"
fails "words: a list without an idiom is rejected" 'lists no idiom' words

# ---- messages ----

messages() { tools/messages --kind "$1" "$tree"; }
fresh
: | put include/sluice.h
put src/server/command/a.c <<'END'
/* "a comment is not a message" */
void f(struct call *call)
{
    sl_say(call, "ERR", "the key is too "
                        "long");
    sl_log(SL_LOG_WARN, "the disk is full", NULL);
    must(a > 0, "an assertion is not a message");
    snprintf(text, sizeof text, "%" PRId64 " bytes", n);
}
END
says "messages: the parts of a string are joined" 'a.c:4.reply.the key is too long$' messages reply
says "messages: a log line is listed" 'a.c:6.log.the disk is full$' messages log
says "messages: a format macro is listed as %d" 'a.c:8.reply.%d bytes$' messages reply
same "messages: comments and assertions are not listed" "$(messages reply | wc -l)" 2
same "messages: --kind selects one kind" "$(messages log | wc -l)" 1
fails "messages: a kind without messages is an error" 'no messages of this kind' messages cli
says "messages: the messages of the server are listed" 'reply.unknown command' tools/messages --kind reply

# ---- check_docs.sh ----

docs() { tools/check_docs.sh "$tree"; }
good_docs() {
    fresh
    put include/sluice.h <<'END'
#define SLUICE_A_MAX 3
#define SLUICE_STATUS_MAP(X)    \
    X(OK,      0, "OK",   "done") \
    X(EFULL,  -1, "FULL", "full")
struct sluice_thing;
SLUICE_API int sluice_do(int x);
END
    put man/sluice.h.3 <<'END'
.Ss sluice_do
A struct sluice_thing, SLUICE_STATUS_MAP, at most SLUICE_A_MAX.
.It Dv SLUICE_OK Pq 0 , OK
.It Dv SLUICE_EFULL Pq \-1 , FULL
END
    printf 'all:\ntest:\n' | put Makefile
    printf 'Run `make test`; see `docs/guarantees.md` and [it](docs/guarantees.md).\n' |
        put README.md
    printf 'exec make test\n' | put .ci/run
    printf 'Pro%s. K2, `nobody_is_lost` and `tests/unit/test_a.c:nobody_is_lost`.\n' ved |
        put docs/guarantees.md
    printf 'void nobody_is_lost(void); /* K2 */\n' | put tests/unit/test_a.c
    put src/commands.def <<'END'
/*     COMMAND(NAME, function, min, max, flags, key, group, syntax, summary) */
COMMAND(TAKE, take, 2, 0, WRITE | BLOCK, 1, "lock",
    "TAKE key [SHARED | PER n] [WAIT ms]",
    "Take it, or wait")
COMMAND(LOOK, look, 1, 1, READ, 0, "look", "LOOK", "See it")
END
    put docs/commands/take.md <<'END'
# TAKE

```redis
> TAKE db
OK
```

## Syntax

    TAKE key [SHARED | PER n]
         [WAIT ms]

With `SHARED` together; `LOST` comes later. See `LOOK`.
END
    printf '# LOOK\n\n```redis\nA> LOOK\n```\n\n## Syntax\n\n    LOOK\n' |
        put docs/commands/look.md
    printf '| [TAKE](take.md) | Take it, or wait |\n| [LOOK](look.md) | See it |\n' |
        put docs/commands/README.md
    put src/settings.def <<'END'
/*     SETTING(name, kind, field, given, min, max, arg, help) */
SETTING("port", PORT, port, "5625", 0, 65535, "N", "a port")
SETTING("socket", PATH, socket, "", 0, 0, "PATH", "a socket")
END
    echo '@options serve@' | put man/sluice-serve.1.in
    echo '#include "settings.def"' | put src/cli/table.c
    put docs/server.md <<'END'
| setting | default | |
|---|---|---|
| `port` | `5625` | a port |
| `socket` | | a socket |

| error | |
|---|---|
| `LOST` | gone |
END
}
good_docs
passes "docs: a small tree with complete documents is accepted" docs
good_docs; echo 'SLUICE_API int sluice_new(void);' >>"$tree/include/sluice.h"
fails "docs: a function without its section" 'no section for sluice_new' docs
good_docs; printf 'SLUICE_API int sluice_open(void);\nSLUICE_API int sluice_go(int x);\n' >>"$tree/include/sluice.h"
printf '.Ss sluice_open\n.Ss sluice_go\n' >>"$tree/man/sluice.h.3"
mkdir -p "$tree/examples"; echo 'int main(void) { return sluice_open(); }' >"$tree/examples/a.c"
fails "docs: a function that no example calls" 'no program calls sluice_go' docs
echo 'int f(void) { return sluice_go(1); }' >>"$tree/examples/a.c"
passes "docs: functions that examples call" docs
rm -r "$tree/examples"
good_docs; sed -i '/EFULL/d' "$tree/man/sluice.h.3"
fails "docs: a status without its item" 'no item .*SLUICE_EFULL' docs
good_docs; sed -i 's/-1 , FULL/-2 , FULL/' "$tree/man/sluice.h.3"
fails "docs: a status with the wrong number" 'no item .*SLUICE_EFULL' docs
good_docs; sed -i 's/sluice_thing/thing/' "$tree/man/sluice.h.3"
fails "docs: a struct that the man page does not mention" 'nothing about sluice_thing' docs
good_docs; echo 'Run `make serve`.' >>"$tree/README.md"
fails "docs: a make target that does not exist" 'no `make serve`' docs
good_docs; printf '    $ make fly\n' >>"$tree/README.md"
fails "docs: a make target in an example" 'no `make fly`' docs
good_docs; echo 'See `tools/nothing.sh`.' | put HACKING.md
fails "docs: a file that does not exist" 'no tools/nothing.sh' docs
good_docs; echo 'See [that](docs/nothing.md).' | put HACKING.md
fails "docs: a link to a file that does not exist" 'no docs/nothing.md' docs
good_docs; echo 'See [syntax](docs/commands/take.md#syntax).' | put HACKING.md
passes "docs: a link to a heading is accepted" docs
good_docs; echo 'See [syntax](docs/commands/take.md#reply).' | put HACKING.md
fails "docs: a link to a heading that does not exist" 'no heading for .*take.md#reply' docs
good_docs; echo '`everybody_is_lost`' >>"$tree/docs/guarantees.md"
fails "docs: a guarantee with a test that does not exist" 'everybody_is_lost' docs
good_docs; echo '`tests/unit/test_a.c:another`' >>"$tree/docs/guarantees.md"
fails "docs: a guarantee with a test that is not in that file" 'has no another' docs
good_docs; echo 'K3' >>"$tree/docs/guarantees.md"
fails "docs: a guarantee with a case that no test mentions" 'speaks of K3' docs
good_docs; echo 'We promise.' >"$tree/docs/guarantees.md"
fails "docs: guarantees without a test" 'names no test' docs
good_docs; printf 'It is pro%s.\n' ved >>"$tree/README.md"
fails "docs: a claim of proof outside of guarantees.md" 'may use this word' docs
good_docs; echo 'make check' >"$tree/.ci/run"
fails "docs: a .ci/run that runs something else" '.ci/run does not' docs

good_docs; rm "$tree/docs/commands/take.md"
fails "docs: a command without its page" 'no page for TAKE' docs
good_docs; echo 'COMMAND(GO, go, 1, 1, READ, 0, "look", "GO", "Go")' >>"$tree/src/commands.def"
fails "docs: a new command without a page" 'no page for GO' docs
good_docs; sed -i 's/LOOK/PEEK/' "$tree/src/commands.def"
fails "docs: a page without a command" 'look.md: unknown command LOOK' docs
good_docs; sed -i 's/WAIT ms/WAIT s/' "$tree/docs/commands/take.md"
fails "docs: a page with a different syntax" 'should stand: TAKE key \[SHARED' docs
good_docs; sed -i 's/^```redis/```/' "$tree/docs/commands/take.md"
fails "docs: a page that does not begin with an example" 'no example before' docs
good_docs; sed -i 's/A> LOOK/A> TAKE db/' "$tree/docs/commands/look.md"
fails "docs: a page whose example shows another command" 'no example of LOOK' docs
good_docs; sed -i 's/^# LOOK/# Look/' "$tree/docs/commands/look.md"
fails "docs: a page with the wrong title" 'should begin with' docs
good_docs; sed -i '/LOOK/d' "$tree/docs/commands/README.md"
fails "docs: a command that is not in the list" 'no line .*LOOK' docs
good_docs; sed -i 's/See it/Inspect it/' "$tree/docs/commands/README.md"
fails "docs: a command with the wrong summary in the list" 'no line .*See it' docs
good_docs; sed -i '/`socket`/d' "$tree/docs/server.md"
fails "docs: a setting that is not in the table" 'no row .*socket' docs
good_docs; sed -i 's/`5625`/`6379`/' "$tree/docs/server.md"
fails "docs: a setting with the wrong default" 'no row .*5625' docs
good_docs; sed -i '/`port`/a | `speed` | `9` | how fast |' "$tree/docs/server.md"
fails "docs: a setting that does not exist" 'no setting speed' docs
good_docs; echo 'nothing' | put man/sluice-serve.1.in
fails "docs: a man page without the settings" 'sluice-serve.1.in: no line' docs
good_docs; echo 'int x;' | put src/cli/table.c
fails "docs: a man page that is not generated from settings.def" 'should include settings.def' docs
good_docs; echo 'See also `STEAL key`.' >>"$tree/docs/commands/take.md"
fails "docs: a page that mentions a command that does not exist" 'unknown command or option STEAL' docs
good_docs; printf '```redis\nB> STEAL db\n```\n' >>"$tree/README.md"
fails "docs: an example of a command that does not exist" 'unknown command STEAL in' docs
good_docs; : >"$tree/src/commands.def"
fails "docs: a table without commands" 'lists no command' docs
good_docs; : >"$tree/src/settings.def"
fails "docs: a table without settings" 'lists no setting' docs

# ---- fmt, check_shell.sh, check_man.sh ----

fmt() { SLUICE_ROOT=$tree tools/fmt --check; }
fresh
cp .clang-format "$tree"
printf 'int f(void)\n{\n    return 0;\n}\n' | put src/a.c
passes "fmt: a formatted file is accepted" fmt
printf 'int f(void){return 0;}\n' | put src/a.c
fails "fmt: a file that clang-format would change is rejected" 'clang-format' fmt

shell() { tools/check_shell.sh "$tree"; }
fresh
printf '#!/bin/sh\necho "$1"\n' | put tools/a
passes "shell: a correct script is accepted" shell
printf '#!/bin/sh\necho $1\n' | put tools/a
fails "shell: a variable without quotes is rejected" 'SC2086' shell
fresh
fails "shell: a tree without scripts is rejected" 'no script' shell

man() { tools/check_man.sh "$tree"; }
fresh
cp man/sluice.h.3 "$work/page"
put man/a.3 <"$work/page"
passes "man: a correct page is accepted" man
printf '.Dd\n.Xx nonsense\n' | put man/a.3
fails "man: a page with mandoc errors is rejected" 'a.3' man
built_man() { tools/check_man.sh "$tree" "$tree/build"; }
put man/a.3 <"$work/page"
put man/b.3.in <"$work/page"
fails "man: a template without a build directory is rejected" 'b.3.in: the page was not built' man
fails "man: a template whose page was not built is rejected" 'b.3.in: the page was not built in' built_man
put build/man/b.3 <"$work/page"
passes "man: a page in the build directory is accepted" built_man
printf '.Dd\n.Xx nonsense\n' | put build/man/b.3
fails "man: a built page with mandoc errors is rejected" 'b.3' built_man

# ---- --help ----

for tool in tools/*; do
    if [ -f "$tool" ] && [ -x "$tool" ]; then
        says "help: $tool" "^$(basename "$tool")\\b.* - " "$tool" --help
    fi
done

# ---- the library of this build ----

same "symbols: the header declares functions" \
    "$([ "$(tools/api_names | wc -l)" -ge 18 ] && echo many)" many
passes "symbols: the library of this build is accepted" tools/check_symbols.sh "$build"

done_testing
