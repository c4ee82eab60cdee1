#!/usr/bin/env python3
"""test_serve.py SLUICE [--jobs N] [PATTERN...] - `sluice serve`: which server it becomes, and
that nothing is lost on the way. The server is a script here, which tells what it was
given."""
import os
import signal

import tap
from tap import Skip, check, check_that, main, test

SERVER = """#!/bin/sh
echo "%s"
for word; do printf '%%s\\n' "<$word>"; done
"""


def server(t, place, body=None):
    """A server at a place below the test's directory."""
    os.makedirs(os.path.dirname(t.path(place)), exist_ok=True)
    return t.script(place, body or SERVER % place)


def sluice(t, place):
    """A copy of the program, which does not find the server that was built with it."""
    os.makedirs(os.path.dirname(t.path(place)), exist_ok=True)
    os.rename(t.copy_of_program(), t.path(place))
    return t.path(place)


def not_installed():
    """Some tests want that there is no server anywhere."""
    for directory in ["/usr/local/bin"] + os.environ["PATH"].split(":"):
        if os.path.exists(os.path.join(directory, "sluice-server")):
            raise Skip("there is a sluice-server in " + directory)


@test
def the_server_in_the_same_directory_comes_first(t):
    program = sluice(t, "a/cli/sluice")
    server(t, "a/cli/sluice-server")
    server(t, "a/server/sluice-server")
    server(t, "path/sluice-server")
    p = t.run(program, "serve", env={"PATH": t.path("path") + ":" + os.environ["PATH"]})
    check((p.status, p.out), (0, "a/cli/sluice-server\n"))


@test
def then_the_one_that_was_built_with_it(t):
    program = sluice(t, "a/cli/sluice")
    server(t, "a/server/sluice-server")
    server(t, "path/sluice-server")
    p = t.run(program, "serve", env={"PATH": t.path("path") + ":" + os.environ["PATH"]})
    check((p.status, p.out), (0, "a/server/sluice-server\n"))


@test
def at_last_the_one_in_the_path(t):
    not_installed()
    program = sluice(t, "a/cli/sluice")
    server(t, "path/sluice-server")
    p = t.run(program, "serve", env={"PATH": t.path("path") + ":" + os.environ["PATH"]})
    check((p.status, p.out), (0, "path/sluice-server\n"))


@test
def a_link_to_it_is_followed(t):
    sluice(t, "a/sluice")
    server(t, "a/sluice-server")
    os.mkdir(t.path("b"))
    os.symlink("../a/sluice", t.path("b/sluice"))
    check(t.run(t.path("b/sluice"), "serve").out, "a/sluice-server\n")


@test
def the_server_gets_the_same_arguments(t):
    program = sluice(t, "a/sluice")
    server(t, "a/sluice-server")
    for words in (["--port", "7000"], ["--port=7000"], ["--nonsense", "x y", "", "-z"],
                  ["--check"], ["--version"], ["-V"], ["--", "--port"], ["--password", "--help"],
                  ["--password", "-h", "--port", "--help"], ["--"]):
        p = t.run(program, "serve", *words)
        check((p.status, p.err), (0, ""), str(words))
        check(p.out.splitlines()[1:], ["<%s>" % w for w in words], str(words))


@test
def help_needs_no_server(t):
    program = sluice(t, "a/sluice")
    wanted = t.run(program, "help", "serve")
    check((wanted.status, wanted.err), (0, ""))
    check_that("--connections-max N" in wanted.out, "the settings are listed")
    for words in (["--help"], ["-h"], ["--port", "7000", "--help"], ["--check", "-h"],
                  ["--port=1", "--help", "--nonsense"]):
        p = t.run(program, "serve", *words)
        check((p.status, p.out, p.err), (0, wanted.out, ""), str(words))


@test
def where_there_is_no_server_it_says_which_package_has_it(t):
    not_installed()
    program = sluice(t, "a/sluice")
    p = t.run(program, "serve", "--port", "0")
    check((p.status, p.out), (69, ""))
    check(p.err, "sluice serve: the program sluice-server is not installed; "
          "install the package sluice-server\n")


@test
def a_directory_of_the_path_that_cannot_be_searched_is_no_server(t):
    not_installed()
    words = t.as_nobody()
    program = sluice(t, "a/sluice")
    os.chmod(t.path("a"), 0o755)
    os.mkdir(t.path("closed"), 0o700)
    p = t.run(*words, "env", "PATH=" + t.path("closed"), program, "serve")
    check(p.status, 69)


@test
def a_server_that_cannot_be_executed_is_named(t):
    program = sluice(t, "a/sluice")
    os.chmod(server(t, "a/sluice-server"), 0o644)
    p = t.run(program, "serve")
    check((p.status, p.err), (126, "sluice serve: cannot execute sluice-server: "
                                   "Permission denied\n"))


@test
def status_and_signals_are_those_of_the_server(t):
    program = sluice(t, "a/sluice")
    server(t, "a/sluice-server", "#!/bin/sh\necho $$\n[ $# = 0 ] || exit $1\nread _\n")
    check(t.run(program, "serve", "2").status, 2)
    r, w = os.pipe()
    p = t.start(program, "serve", stdin=r)
    p.until_out("\n")
    check(int(p.out), p.pid, "the pid")
    p.kill(signal.SIGTERM)
    check(p.status, -signal.SIGTERM)
    os.close(w)


@test
def the_server_inherits_nothing_else(t):
    program = sluice(t, "a/sluice")
    server(t, "a/sluice-server", "#!/bin/sh\nls /proc/self/fd | wc -l\nls -l /proc/self/fd\n")
    direct = t.run(t.path("a/sluice-server")).out.splitlines()[0]
    check(t.run(program, "serve").out.splitlines()[0], direct, "its descriptors")


@test
def the_server_that_was_built_is_found(t):
    there = os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")
    check_that(os.path.exists(there), "there is " + there)
    p = t.sluice("serve", "--version")
    check((p.status, p.err), (0, ""))
    check(p.out, t.run(there, "--version").out)


main(__doc__)
