#!/bin/bash
# checks.sh BUILD - each check of tools/ is fed a bad sample, and must refuse it.
#
# A check that cannot fail is worse than none. Every sample is a small tree of its own.
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
put() { # put FILE: what comes on stdin
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
passes "layers: includes that point down are fine" layers
good_layers; echo '#include "canal/slot.h"' | put src/locks/bad.c
fails "layers: locks may not include canal" 'locks (layer 1) includes canal/slot.h' layers
good_layers; echo ' #  include "server/loop.h"' | put src/canal/bad.h
fails "layers: canal may not include server" 'includes server/loop.h' layers
good_layers; echo '#include "client/client.h"' | put src/canal/bad.c
fails "layers: canal may not include client, which is in the same layer" 'client/client.h' layers
good_layers; echo '#include "locks/table.h"' | put src/cli/bad.c
fails "layers: cli may include base and sluice.h only" 'cli includes base and sluice.h only' layers
good_layers; echo '#include <locks/table.h>' | put src/base/bad.c
fails "layers: a header of ours in angle brackets is found" 'in quotes' layers
good_layers; echo '#include "slot.h"' | put src/canal/bad.c
fails "layers: an include without its directory is refused" 'with their directory' layers
good_layers; echo '#include "../core/table.h"' | put src/canal/bad.c
fails "layers: an include with .. is refused" 'from src/' layers
good_layers; echo '#include "canal/slot.h"' | put include/sluice.h
fails "layers: the public header may not include ours" 'public header' layers
good_layers; echo 'int x;' | put src/utils/bad.c
fails "layers: a directory without a layer is refused" 'no layer' layers
good_layers; echo '#include "server/arbiter/majority.h"' | put src/server/command/bad.c
fails "layers: a command may not include an arbiter" \
    'command/bad.c (layer 5 of server) includes server/arbiter/majority.h (layer 6)' layers
good_layers; echo '#include "server/net/links.h"' | put src/server/observe/bad.c
fails "layers: observe may not include links" 'includes server/net/links.h' layers
good_layers; echo '#include "server/server.h"' | put src/server/data/bad.h
fails "layers: a file on disk does not know the server" 'includes server/server.h' layers
fresh
fails "layers: an empty tree is not a clean one" 'nothing to check' layers

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
passes "pure: memory, strings and each other are fine; canal is not looked at" pure
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
fails "pure: tx may not draw random numbers" 'uses rand' pure
fresh
fails "pure: no object is not a pure one" 'no object' pure

# ---- check_symbols.sh ----

library() { # library [LINKER ARGUMENT...]: C on stdin
    "${CC:-cc}" -shared -fPIC -x c - -x none "$@" -o "$tree/lib.so"
}
symbols() { SLUICE_LIB=$tree/lib.so SLUICE_HEADER=$tree/api.h tools/check_symbols.sh "$tree"; }
fresh
printf 'SLUICE_API int sluice_a(void);\nSLUICE_API const char *sluice_b(int x,\n    int y);\n' |
    put api.h
echo 'int sluice_a(void){return 0;} int sluice_b(void){return 0;}' | library
passes "symbols: what is declared and no more is fine" symbols
echo 'int sluice_a(void){return 0;}' | library
fails "symbols: a function that is not exported" 'not exported: sluice_b' symbols
echo 'int sluice_a(void){return 0;} int sluice_b(void){return 0;} int leak;' | library
fails "symbols: a symbol that leaks" 'not declared: leak' symbols
echo 'int sluice_a(void){return 0;} int sluice_b(void){return 0;}' |
    library -Wl,--no-as-needed -lm
fails "symbols: a second library" 'needs: libm' symbols

# ---- check_hardening.sh ----

# main() copies what it is given into an array, by a function of libc that can be fortified.
sample() { # sample FLAG...: a program with all protections, but for what the flags undo
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
passes "hardening: a program with all of it is fine" hardening
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
fails "hardening: nothing is fortified" 'no fortified function' hardening
if [ "$(uname -m)" = x86_64 ]; then sample -fcf-protection=none; else sample -mbranch-protection=none; fi
fails "hardening: no landing pads" 'no CET\|no BTI' hardening
echo text | put program
fails "hardening: a text is no program" 'not a program or library' hardening

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
passes "words: the words of other systems are fine" words
echo 'The server answers who waits.' | put docs/a.md
fails "words: an idiom in a document" 'write: waiter' words
rm "$tree/docs/a.md"
echo '/* The server answers who waits. */' | put src/locks/b.c
passes "words: an idiom in documents only, in a source" words
echo '/* A client waits in line. */' | put src/locks/b.c
fails "words: an idiom in sources" 'write: queue' words
rm "$tree/src/locks/b.c"
echo 'A client waits in line.' | put tests/a.py
passes "words: an idiom in sources, in a test" words
echo '# Two frobs at once.' | put tests/a.py
fails "words: an idiom everywhere, in a test" 'write: widget' words
rm "$tree/tests/a.py"
echo 'int frob_count = 3;' | put src/locks/a.c
passes "words: a part of a name is another word" words
echo 'A frob.' | put docs/history.md
echo 'A frob, who waits.' | put docs/old.md
passes "words: what is allowed in one file" words
echo 'A frob.' | put docs/other.md
fails "words: is not allowed in another" 'docs/other.md' words
fresh
fails "words: an empty tree is not a clean one" 'nothing to check' words
printf 'no\tfrobs?\twidget\n' >"$work/words.txt"
fails "words: a kind that there is not" 'unknown kind "no"' words
printf 'allow\tdocs/a.md\tfrobs?\ta quotation\n' >"$work/words.txt"
fails "words: a list without an idiom" 'lists no idiom' words

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
says "messages: an error reply, joined" 'a.c:4.reply.the key is too long$' messages reply
says "messages: a log line" 'a.c:6.log.the disk is full$' messages log
says "messages: a number" 'a.c:8.reply.%d bytes$' messages reply
same "messages: neither comments nor assertions" "$(messages reply | wc -l)" 2
same "messages: of one kind" "$(messages log | wc -l)" 1
fails "messages: a kind without messages" 'no messages of this kind' messages cli
says "messages: those of the server" 'reply.unknown command' tools/messages --kind reply

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
passes "docs: a small tree with all that is needed" docs
good_docs; echo 'SLUICE_API int sluice_new(void);' >>"$tree/include/sluice.h"
fails "docs: a function without its section" 'no section for sluice_new' docs
good_docs; sed -i '/EFULL/d' "$tree/man/sluice.h.3"
fails "docs: a status without its item" 'no item .*SLUICE_EFULL' docs
good_docs; sed -i 's/-1 , FULL/-2 , FULL/' "$tree/man/sluice.h.3"
fails "docs: a status with another number" 'no item .*SLUICE_EFULL' docs
good_docs; sed -i 's/sluice_thing/thing/' "$tree/man/sluice.h.3"
fails "docs: a struct that is not mentioned" 'nothing about sluice_thing' docs
good_docs; echo 'Run `make serve`.' >>"$tree/README.md"
fails "docs: a make target that does not exist" 'no `make serve`' docs
good_docs; printf '    $ make fly\n' >>"$tree/README.md"
fails "docs: a make target in an example" 'no `make fly`' docs
good_docs; echo 'See `tools/nothing.sh`.' | put HACKING.md
fails "docs: a file that does not exist" 'no tools/nothing.sh' docs
good_docs; echo 'See [that](docs/nothing.md).' | put HACKING.md
fails "docs: a link to nothing" 'no docs/nothing.md' docs
good_docs; echo 'See [syntax](docs/commands/take.md#syntax).' | put HACKING.md
passes "docs: a link to a heading" docs
good_docs; echo 'See [syntax](docs/commands/take.md#reply).' | put HACKING.md
fails "docs: a link to a heading that does not exist" 'no heading for .*take.md#reply' docs
good_docs; echo '`everybody_is_lost`' >>"$tree/docs/guarantees.md"
fails "docs: a promise with a test that does not exist" 'everybody_is_lost' docs
good_docs; echo '`tests/unit/test_a.c:another`' >>"$tree/docs/guarantees.md"
fails "docs: a promise with a test that is not in that file" 'has no another' docs
good_docs; echo 'K3' >>"$tree/docs/guarantees.md"
fails "docs: a promise with a case that no test speaks of" 'speaks of K3' docs
good_docs; echo 'We promise.' >"$tree/docs/guarantees.md"
fails "docs: promises without a test" 'names no test' docs
good_docs; printf 'It is pro%s.\n' ved >>"$tree/README.md"
fails "docs: certainty outside of guarantees.md" 'may use this word' docs
good_docs; echo 'make check' >"$tree/.ci/run"
fails "docs: a .ci/run that runs something else" '.ci/run does not' docs

good_docs; rm "$tree/docs/commands/take.md"
fails "docs: a command without its page" 'no page for TAKE' docs
good_docs; echo 'COMMAND(GO, go, 1, 1, READ, 0, "look", "GO", "Go")' >>"$tree/src/commands.def"
fails "docs: a new command without a page" 'no page for GO' docs
good_docs; sed -i 's/LOOK/PEEK/' "$tree/src/commands.def"
fails "docs: a page without a command" 'look.md: unknown command LOOK' docs
good_docs; sed -i 's/WAIT ms/WAIT s/' "$tree/docs/commands/take.md"
fails "docs: a page with another syntax" 'should stand: TAKE key \[SHARED' docs
good_docs; sed -i 's/^```redis/```/' "$tree/docs/commands/take.md"
fails "docs: a page that does not begin with an example" 'no example before' docs
good_docs; sed -i 's/A> LOOK/A> TAKE db/' "$tree/docs/commands/look.md"
fails "docs: a page whose example is of another command" 'no example of LOOK' docs
good_docs; sed -i 's/^# LOOK/# Look/' "$tree/docs/commands/look.md"
fails "docs: a page with another title" 'should begin with' docs
good_docs; sed -i '/LOOK/d' "$tree/docs/commands/README.md"
fails "docs: a command that the list does not have" 'no line .*LOOK' docs
good_docs; sed -i 's/See it/Inspect it/' "$tree/docs/commands/README.md"
fails "docs: a command with another summary in the list" 'no line .*See it' docs
good_docs; sed -i '/`socket`/d' "$tree/docs/server.md"
fails "docs: a setting that is not in the table" 'no row .*socket' docs
good_docs; sed -i 's/`5625`/`6379`/' "$tree/docs/server.md"
fails "docs: a setting with another default" 'no row .*5625' docs
good_docs; sed -i '/`port`/a | `speed` | `9` | how fast |' "$tree/docs/server.md"
fails "docs: a setting that does not exist" 'no setting speed' docs
good_docs; echo 'nothing' | put man/sluice-serve.1.in
fails "docs: a man page without the settings" 'sluice-serve.1.in: no line' docs
good_docs; echo 'int x;' | put src/cli/table.c
fails "docs: a man page from another table" 'should include settings.def' docs
good_docs; echo 'See also `STEAL key`.' >>"$tree/docs/commands/take.md"
fails "docs: a page that speaks of a command that does not exist" 'unknown command or option STEAL' docs
good_docs; printf '```redis\nB> STEAL db\n```\n' >>"$tree/README.md"
fails "docs: an example of a command that does not exist" 'unknown command STEAL in' docs
good_docs; : >"$tree/src/commands.def"
fails "docs: no command at all" 'lists no command' docs
good_docs; : >"$tree/src/settings.def"
fails "docs: no setting at all" 'lists no setting' docs

# ---- fmt, check_shell.sh, check_man.sh ----

fmt() { SLUICE_ROOT=$tree tools/fmt --check; }
fresh
cp .clang-format "$tree"
printf 'int f(void)\n{\n    return 0;\n}\n' | put src/a.c
passes "fmt: a file as it should be" fmt
printf 'int f(void){return 0;}\n' | put src/a.c
fails "fmt: a file that would change" 'clang-format' fmt

shell() { tools/check_shell.sh "$tree"; }
fresh
printf '#!/bin/sh\necho "$1"\n' | put tools/a
passes "shell: a good script" shell
printf '#!/bin/sh\necho $1\n' | put tools/a
fails "shell: a script without quotes" 'SC2086' shell
fresh
fails "shell: no script is not a good one" 'no script' shell

man() { tools/check_man.sh "$tree"; }
fresh
cp man/sluice.h.3 "$work/page"
put man/a.3 <"$work/page"
passes "man: our page" man
printf '.Dd\n.Xx nonsense\n' | put man/a.3
fails "man: a page that mandoc does not understand" 'a.3' man
built_man() { tools/check_man.sh "$tree" "$tree/build"; }
put man/a.3 <"$work/page"
put man/b.3.in <"$work/page"
fails "man: a template whose page is nowhere" 'b.3.in: the page was not built' man
fails "man: a template whose page was not built" 'b.3.in: the page was not built in' built_man
put build/man/b.3 <"$work/page"
passes "man: a page that was built" built_man
printf '.Dd\n.Xx nonsense\n' | put build/man/b.3
fails "man: a page that was built, and that mandoc does not understand" 'b.3' built_man

# ---- --help ----

for tool in tools/*; do
    if [ -f "$tool" ] && [ -x "$tool" ]; then
        says "help: $tool" "^$(basename "$tool")\\b.* - " "$tool" --help
    fi
done

# ---- and the real library ----

same "symbols: the header declares functions" \
    "$([ "$(tools/api_names | wc -l)" -ge 18 ] && echo many)" many
passes "symbols: the library that was built" tools/check_symbols.sh "$build"

done_testing
