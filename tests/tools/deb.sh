#!/bin/bash
# deb.sh [--short] - tests `make deb` and the packages: installs them below a directory with a
# separate dpkg database, uses them, and purges them.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh
export LC_ALL=C.UTF-8
[ -z "${JOBS-}" ] || export DEB_BUILD_OPTIONS="parallel=$JOBS"

# ---- the build ----

built=$PWD/build/deb
if [ "${BUILD:-build}" = build ]; then
    passes "make deb" make -s deb
else # a build directory that make does not use
    passes "packaging/build" packaging/build
    built=$(cd "$BUILD/deb" && pwd)
fi
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build)
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
deb() { echo "$built/${1}_$version-1_$arch.deb"; }
sluice=$(deb sluice) server=$(deb sluice-server) lib=$(deb libsluice0) dev=$(deb libsluice-dev)
same "there are four packages with the version of meson.build" \
    "$(ls "$built"/*.deb)" "$(printf '%s\n' "$dev" "$lib" "$server" "$sluice")"
if [ "$tap_failed" != 0 ]; then # no packages to test
    done_testing
    exit 1
fi

# The build must be reproducible: build again without git and root, in another directory, with
# other settings and newer files.
other=$work/other
mkdir "$other"
tar -c --exclude=./build --exclude=./.git . | tar -x -m -C "$other"
as_nobody=()
if [ "$(id -u)" = 0 ]; then
    chmod 711 "$work"
    chown -R 65534:65534 "$other"
    as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fi
date=$(dpkg-deb --fsys-tarfile "$sluice" |
    tar -xO ./usr/share/doc/sluice/changelog.Debian.gz | gzip -d |
    dpkg-parsechangelog -l - -S Timestamp)
again() {
    (
        umask 077
        cd "$other"
        env -u BUILD SOURCE_DATE_EPOCH="$date" CFLAGS=-O0 DESTDIR=/nowhere \
            TZ=Asia/Tokyo HOME=/nowhere "${as_nobody[@]}" make -s deb PREFIX=/nowhere
    )
}
# The second build takes long, so --short leaves it out.
if [ "${1-}" != --short ]; then
    passes "make deb without git and without root" again
    same "both builds give the same packages, byte for byte" \
        "$(cd "$other/build/deb" && sha256sum ./*.deb)" "$(cd "$built" && sha256sum ./*.deb)"
fi

# ---- contents ----

list() { # list DEB: all files of a package, without directories
    dpkg-deb --fsys-tarfile "$1" | tar -t | grep -v '/$' | sort
}
texts() { # texts PACKAGE: the files that every package has
    printf "./usr/share/doc/$1/%s\n" changelog.Debian.gz changelog.gz copyright
    echo "./usr/share/lintian/overrides/$1"
}
pages() { # pages DIRECTORY NAME...
    printf "./usr/share/man/$1/%s.gz\n" "${@:2}"
}
same "sluice: contains only the command, man pages and completions" "$(list "$sluice")" \
    "$({
        echo ./usr/bin/sluice
        echo ./usr/share/bash-completion/completions/sluice
        echo ./usr/share/zsh/vendor-completions/_sluice
        pages man1 sluice.1 sluice-run.1 sluice-canal.1 sluice-do.1 sluice-ops.1 sluice-acquire.1 sluice-extend.1 \
            sluice-release.1 sluice-hold.1 sluice-bench.1 sluice-top.1
        texts sluice
    } | sort)"
same "sluice-server: contains only the server, its service, man pages and completions" "$(list "$server")" \
    "$({
        echo ./etc/sluice/sluice.conf
        echo ./lib/systemd/system/sluice.service
        printf "./usr/bin/%s\n" sluice-offline sluice-server
        echo ./usr/share/bash-completion/completions/sluice-server
        echo ./usr/share/zsh/vendor-completions/_sluice-server
        pages man1 sluice-journal.1 sluice-serve.1 sluice-store.1
        pages man8 sluice-offline.8 sluice-server.8
        texts sluice-server
    } | sort)"
same "libsluice0: contains only the library" "$(list "$lib")" \
    "$({
        echo "./usr/lib/$multiarch/libsluice.so.0"
        echo "./usr/lib/$multiarch/libsluice.so.$version"
        texts libsluice0
    } | sort)"
same "libsluice-dev: contains only the header, libraries, pkg-config file and a man page for each function" \
    "$(list "$dev")" \
    "$({
        echo ./usr/include/sluice.h
        printf "./usr/lib/$multiarch/%s\n" libsluice.a libsluice.so pkgconfig/sluice.pc
        # shellcheck disable=SC2046
        pages man3 sluice.h.3 $(tools/api_names | sed 's/$/.3/')
        texts libsluice-dev
    } | sort)"

field() { dpkg-deb -f "$1" "$2"; }
for one in "$sluice" "$server" "$lib" "$dev"; do
    name=$(field "$one" Package)
    same "$name: root owns all files, and only root can write them" \
        "$(dpkg-deb -c "$one" | awk '$2 != "root/root" || (!/^l/ && substr($1, 6) ~ /w/)')" ""
    same "$name: version" "$(field "$one" Version)" "1:$version-1"
    control=$work/control.$name
    dpkg-deb -e "$one" "$control"
    if [ "$name" != sluice-server ]; then
        same "$name: has no maintainer scripts" \
            "$(cd "$control" && echo ./*inst ./*rm)" "./*inst ./*rm"
    fi
    same "$name: the copyright file has the text of LICENSE" \
        "$(dpkg-deb --fsys-tarfile "$one" | tar -xO "./usr/share/doc/$name/copyright" |
            sed '1,/^License:/d; s/^ //; s/^\.$//')" \
        "$(sed '1,/^All rights reserved/d' LICENSE | sed 1d)"
done
passes "sluice: the version is higher than that of Debian's unrelated package sluice" \
    dpkg --compare-versions "$(field "$sluice" Version)" gt 0.02.15-1
says "sluice-server: the configuration file is a conffile" '^/etc/sluice/sluice.conf$' \
    cat "$work/control.sluice-server/conffiles"
same "sluice-server: an upgrade does not restart the server" \
    "$(grep -c 'restart' "$work/control.sluice-server/postinst")" 0
same "sluice-server: only a removal stops the server" \
    "$(grep -B 1 'invoke stop' "$work"/control.sluice-server/p* | grep -c 'remove')" 1
says "libsluice0: triggers ldconfig" '^activate-noawait ldconfig$' \
    cat "$work/control.libsluice0/triggers"
says "libsluice0: programs depend on this version or a later one" \
    "^libsluice 0 libsluice0 (>= 1:$version)" cat "$work/control.libsluice0/shlibs"
says "libsluice-dev: depends on exactly this version of the library" "^libsluice0 (= 1:$version-1)" \
    field "$dev" Depends

# ---- installed ----

root=$work/root
admin=$root/var/lib/dpkg
mkdir -p "$admin/info" "$admin/updates" "$admin/triggers"
: >"$admin/available"
# Registers packages in the dpkg database, with the versions that are installed on this machine.
has() { # has PACKAGE...
    local package
    for package; do
        cat <<END_OF_STATUS
Package: $package
Status: install ok installed
Maintainer: nobody
Architecture: $arch
Multi-Arch: same
Version: $(dpkg-query -W -f='${Version}' "$package:$arch")
Description: a package of this machine

END_OF_STATUS
        echo /. >"$admin/info/$package:$arch.list"
    done
}
has libc6 >"$admin/status"
# The maintainer scripts call fake systemd tools, which record their arguments.
mkdir "$work/bin"
for tool in deb-systemd-helper deb-systemd-invoke systemctl; do
    printf '#!/bin/sh\necho "%s $*" >>"%s"\n' "$tool" "$work/calls" >"$work/bin/$tool"
    chmod +x "$work/bin/$tool"
done
told() { # told WORD: a maintainer script passed it to deb-systemd-helper
    grep -qx "deb-systemd-helper .*$1.* *sluice.service" "$work/calls"
}
# --path-include overrides a dpkg configuration of this machine that excludes files such as man pages.
private() {
    PATH=$work/bin:$PATH:/usr/sbin:/sbin dpkg --root="$root" --log="$work/dpkg.log" \
        --force-not-root --force-unsafe-io --force-script-chrootless --path-include='/*' "$@"
}
tree() { (cd "$root" && find . -path ./var -prune -o -print | sort); }
memory() {
    dpkg-query --admindir="$admin" -W -f='${Package} ${Version}\n'
    (cd "$admin/info" && find . -type f ! -name format | sort)
}
before=$(tree)
known=$(memory)

fails "dpkg rejects the server without its libraries" 'depends on libuv1' private -i "$server"
passes "the unconfigured server can be purged" private -P sluice-server
has libuv1 libssl3 liblmdb0 libcurl4 libjansson4 >>"$admin/status"
known=$(memory)
rm -f "$work/calls"

fails "dpkg rejects the development files without the library" 'depends on libsluice0' \
    private -i "$dev"
passes "the command installs without the other packages" private -i "$sluice"
passes "all four install" private -i "$sluice" "$server" "$lib" "$dev"
same "dpkg --verify finds no difference" "$(private --verify 2>&1)" ""
same "all four packages are configured" "$(dpkg-query --admindir="$admin" -W -f='${db:Status-Abbrev}' \
    sluice sluice-server libsluice0 libsluice-dev)" "ii ii ii ii "
passes "the service is enabled" told enable

usr=$root/usr
so=$usr/lib/$multiarch
installed() { "$usr/bin/sluice" "$@"; }
says "sluice --version" "$version" installed --version
says "sluice run runs a command that holds the key" '^it holds gate$' \
    installed run --segment "$work/segment" gate -- \
    sh -c 'echo "it holds $SLUICE_LOCK_KEY"'
status=0
installed run --segment "$work/segment" gate -- sh -c 'exit 7' || status=$?
same "sluice run exits with the status of the command" "$status" 7
nested() { # the outer command holds the key
    installed run --segment "$work/segment" gate -- \
        "$usr/bin/sluice" run --segment "$work/segment" -n -E 9 gate -- true
}
status=0
nested 2>/dev/null || status=$?
same "a second sluice run does not get the key" "$status" 9

# ---- the server ----

conf=$root/etc/sluice/sluice.conf unit=$root/lib/systemd/system/sluice.service
says "sluice serve finds the server" "$version" installed serve --version
passes "the server accepts the configuration file" "$usr/bin/sluice-server" --check --config "$conf"
says "the unit starts the server with the configuration file" \
    '^ExecStart=/usr/bin/sluice-server --config %d/sluice.conf$' cat "$unit"
says "systemd passes the configuration file to the server" '^LoadCredential=sluice.conf:/etc/sluice/sluice.conf$' cat "$unit"
same "only the owner can read the configuration file" "$(stat -c %a "$conf")" 600
"$usr/bin/sluice-server" --config "$conf" --port 0 --socket "$work/socket" \
    2>"$work/log" </dev/null &
pid=$!
answers() { # replies to PING within a minute; fails early if the server exits
    local turn
    for ((turn = 0; turn < 600; turn++)); do
        redis-cli -s "$work/socket" PING && return
        kill -0 "$pid" || break
        sleep 0.1
    done
    cat "$work/log"
    return 1
}
says "the server replies" '^PONG$' answers
kill -TERM "$pid" 2>/dev/null || true
status=0
wait "$pid" || status=$?
same "the server exits with status 0 after SIGTERM" "$status" 0

# systemd-analyze needs the path of the program, which is below $root here.
mkdir "$work/units"
sed "s|/usr/bin/|$usr/bin/|" "$unit" >"$work/units/sluice.service"
if command -v systemd-analyze >/dev/null 2>&1; then
    same "systemd-analyze verify reports no problem" \
        "$(systemd-analyze verify --man=no "$work/units/sluice.service" 2>&1)" ""
    says "systemd-analyze security rates the exposure below 3" 'sluice.service: [0-2]\.[0-9]' \
        systemd-analyze security --offline=true "$work/units/sluice.service"
fi

for page in "$usr"/share/man/man[138]/*.gz; do
    passes "man page $(basename "$page" .gz)" \
        sh -c "cd '$usr/share/man' && gzip -dc '$page' | mandoc -T lint -W error >/dev/null"
done
passes "the bash completion has no syntax error" bash -n "$usr/share/bash-completion/completions/sluice"
says "the zsh completion starts with #compdef" '^#compdef .*sluice' \
    head -n 1 "$usr/share/zsh/vendor-completions/_sluice"

# ---- hardening ----

for file in "$usr/bin/sluice" "$usr/bin/sluice-server" "$so/libsluice.so.$version"; do
    name=$(basename "$file")
    says "$name: is position-independent" 'Type: *DYN' readelf -hW "$file"
    says "$name: has BIND_NOW" 'BIND_NOW' readelf -dW "$file"
    says "$name: has RELRO" 'GNU_RELRO' readelf -lW "$file"
    says "$name: has no executable stack" 'GNU_STACK.* RW  *0x' readelf -lW "$file"
    says "$name: has a stack protector" '__stack_chk_fail' readelf --dyn-syms -W "$file"
    says "$name: has fortified functions" '_chk@' readelf --dyn-syms -W "$file"
    same "$name: is stripped" "$(readelf -SW "$file" | grep -c '\.debug_info')" 0
done

# ---- a program that uses the library ----

cat >"$work/gate.c" <<END_OF_PROGRAM
#include <sluice.h>
#include <stdio.h>

int main(void)
{
    struct sluice_canal *c;
    struct sluice_capacity capacity = {.per = 3, .buckets = 1};
    if (sluice_canal_open("$work/segment", NULL, &c) != SLUICE_OK) return 1;
    printf("%d of 3\n", (int)sluice_canal_acquire(c, "program", capacity, NULL));
    sluice_canal_close(c);
    return 0;
}
END_OF_PROGRAM
export PKG_CONFIG_LIBDIR=$so/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
same "pkg-config reports the version" "$(pkg-config --modversion sluice)" "$version"
compile() { # compile OUT LIBRARY...
    # shellcheck disable=SC2046
    "${CC:-cc}" -Wall -Werror "$work/gate.c" $(pkg-config --cflags sluice) -o "$@"
}
# shellcheck disable=SC2046
passes "a program compiles" compile "$work/gate" $(pkg-config --libs sluice)
says "the program uses the shared library" 'libsluice\.so\.0' readelf -d "$work/gate"
says "the program runs" '^1 of 3$' env LD_LIBRARY_PATH="$so" "$work/gate"
passes "the program compiles with the static library" \
    compile "$work/static" "$so/libsluice.a" -pthread
says "the static program runs without the shared library" '^1 of 3$' "$work/static"

# ---- removal ----

fails "dpkg does not remove the library while another package depends on it" 'depends on libsluice0' \
    private -r libsluice0
all=(sluice sluice-server libsluice0 libsluice-dev)
echo 'port = 7000' >>"$conf"
passes "all four are removed" private -r "${all[@]}"
same "removal keeps only the configuration file" \
    "$(tree | grep -v -e '^\./etc$' -e '^\./etc/sluice$')" "$(printf '%s\n' "$before" \
        ./etc/sluice/sluice.conf | sort)"
passes "the removed packages install again" private -i "$sluice" "$server" "$lib" "$dev"
says "the new installation keeps the configuration file" '^port = 7000$' cat "$conf"
passes "all four packages are purged" private -P "${all[@]}"
same "a purge removes all files" "$(tree)" "$before"
same "a purge removes all entries of the dpkg database" "$(memory)" "$known"

# ---- lintian ----

same "lintian reports no problem" \
    "$(lintian --no-cfg --allow-root --tag-display-limit 0 \
        "$sluice" "$server" "$lib" "$dev" 2>&1)" ""

done_testing
