#!/bin/bash
# install.sh BUILD - tests `make install`, and compiles the example of README.md with the result.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh

dest=$work/dest
if [ "${BUILD:-build}" = build ]; then
    passes "make install" make -s install DESTDIR="$dest" PREFIX=/usr/local
else # a build directory that make does not use
    passes "meson install" env DESTDIR="$dest" meson install -C "${1:?}" --no-rebuild
fi
prefix=$dest/usr/local
pc=$(find "$dest" -name sluice.pc)
lib=$(dirname "$(dirname "$pc")")

same "the library is where the loader and pkg-config look" "$lib" "$prefix/lib"
passes "the header" test -f "$prefix/include/sluice.h"
passes "the shared library and its soname" test -e "$lib/libsluice.so.0"
passes "the static library" test -f "$lib/libsluice.a"
passes "the man page" test -f "$prefix/share/man/man3/sluice.h.3"
same "a man page for each function" \
    "$(cd "$prefix/share/man/man3" && for f in sluice_*.3; do echo "${f%.3}"; done | sort)" \
    "$(tools/api_names)"
says "the man page of a function shows sluice.h(3)" 'sluice_canal_acquire' \
    sh -c "cd '$prefix/share/man' && mandoc -T ascii man3/sluice_key_free.3"
for page in sluice sluice-run sluice-canal sluice-serve sluice-store sluice-journal sluice-do sluice-ops sluice-acquire sluice-extend sluice-release sluice-hold sluice-bench sluice-top; do
    passes "the man page $page(1)" test -f "$prefix/share/man/man1/$page.1"
done
says "sluice-server(8) shows sluice-serve(1)" '^SLUICE-SERVE' \
    sh -c "cd '$prefix/share/man' && mandoc -T ascii man8/sluice-server.8"
passes "the command" test -x "$prefix/bin/sluice"
passes "the server" test -x "$prefix/bin/sluice-server"
says "sluice serve finds the server" . "$prefix/bin/sluice" serve --version
passes "the program for the files of a stopped server" test -x "$prefix/bin/sluice-offline"
says "sluice store finds sluice-offline" 'does not exist' \
    sh -c "'$prefix/bin/sluice' store check '$prefix' 2>&1 || true"
says "sluice-offline(8) shows sluice-store(1)" '^SLUICE-STORE' \
    sh -c "cd '$prefix/share/man' && mandoc -T ascii man8/sluice-offline.8"
same "the command needs no library other than libc" \
    "$(ldd "$prefix/bin/sluice" | grep -cE 'lmdb|curl|jansson|uv')" 0
says "the completion for bash" '^complete -F _sluice sluice$' \
    cat "$prefix/share/bash-completion/completions/sluice"
says "the completion for zsh" '^#compdef sluice$' \
    head -n 1 "$prefix/share/zsh/site-functions/_sluice"
says "the completion of the server for bash" '^complete -F _sluice_settings sluice-server$' \
    cat "$prefix/share/bash-completion/completions/sluice-server"
says "the completion of the server for zsh" '^#compdef sluice-server$' \
    head -n 1 "$prefix/share/zsh/site-functions/_sluice-server"
same "no other files are installed" \
    "$(cd "$prefix" && find bin share ! -path 'share/man/man3/*' -type f | sort)" \
    "bin/sluice
bin/sluice-offline
bin/sluice-server
share/bash-completion/completions/sluice
share/bash-completion/completions/sluice-server
share/man/man1/sluice-acquire.1
share/man/man1/sluice-bench.1
share/man/man1/sluice-canal.1
share/man/man1/sluice-do.1
share/man/man1/sluice-extend.1
share/man/man1/sluice-hold.1
share/man/man1/sluice-journal.1
share/man/man1/sluice-ops.1
share/man/man1/sluice-release.1
share/man/man1/sluice-run.1
share/man/man1/sluice-serve.1
share/man/man1/sluice-store.1
share/man/man1/sluice-top.1
share/man/man1/sluice.1
share/man/man8/sluice-offline.8
share/man/man8/sluice-server.8
share/zsh/site-functions/_sluice
share/zsh/site-functions/_sluice-server"

# The service: its unit has the paths of the installed files, and a second installation does not
# overwrite the configuration file.
conf=$prefix/etc/sluice/sluice.conf
says "the unit starts the installed server with the configuration file" \
    '^ExecStart=/usr/local/bin/sluice-server --config %d/sluice.conf$' \
    cat "$prefix/lib/systemd/system/sluice.service"
says "systemd passes the configuration file to the server" '^LoadCredential=sluice.conf:/usr/local/etc/sluice/sluice.conf$' \
    cat "$prefix/lib/systemd/system/sluice.service"
same "only the owner can read the configuration file" "$(stat -c %a "$conf")" 600
passes "the server accepts the configuration file" \
    "$prefix/bin/sluice-server" --check --config "$conf"
echo 'port = 7000' >"$conf"
passes "a second installation succeeds" env DESTDIR="$dest" meson install -C "${1:?}" --no-rebuild
same "a second installation keeps the configuration file" "$(cat "$conf")" 'port = 7000'

same "the version" "$(sed -n 's/^Version: //p' "$pc")" \
    "$(sed -n 's/^#define SLUICE_VERSION "\(.*\)"/\1/p' include/sluice.h)"

# The program of README.md, with a segment in $work instead of the default segment.
sed -n '/^```c$/,/^```$/p' README.md |
    sed "/^\`\`\`/d; s|canal_open(NULL,|canal_open(\"$work/segment\",|" >"$work/gate.c"
passes "README.md has a program" grep -q 'int main' "$work/gate.c"
passes "the program opens the segment of this test" grep -q "$work/segment" "$work/gate.c"
same "the program has at most 20 lines" \
    "$([ "$(grep -c . "$work/gate.c")" -le 20 ] && echo short)" short

export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dest
flags() { pkg-config "$@" sluice; }
compile() { # compile OUT [STATIC]: as in README.md
    # shellcheck disable=SC2046
    "${CC:-cc}" -Wall -Werror "$work/gate.c" $(flags --cflags) -o "$1" "${@:2}"
}
# shellcheck disable=SC2046
passes "the program compiles with pkg-config" compile "$work/gate" $(flags --libs)
says "the program acquires a permit and releases it" 'granted' \
    env LD_LIBRARY_PATH="$lib" "$work/gate"
# shellcheck disable=SC2046
passes "the program compiles with the static library" compile "$work/static" "$lib/libsluice.a" -pthread
says "the static program runs without the shared library" 'granted' "$work/static"

done_testing
