#!/usr/bin/env python3
"""test_do.py SLUICE [--jobs N] [PATTERN...] - `sluice do`: what it sends, prints and exits with;
against the server that was built next to SLUICE, and against false ones."""
import json
import os
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server/lib"))
import tap  # noqa: E402
from live import Server  # noqa: E402
from tap import check, check_that, main, test, test_of  # noqa: E402


def serve(t, *options, **more):
    """A server, and a function that runs `sluice do` with it."""
    program = os.path.join(os.path.dirname(os.path.dirname(tap.program)),
                           "server/sluice-server")
    s = Server(t, options, argv=[program], **more)

    def do(*words, **changes):
        env = {"SLUICE_SERVER": "127.0.0.1:%d" % s.port}
        env.update(changes.pop("env", {}))
        return t.sluice("do", *words, env=env, **changes)

    return s, do


def false_server(t, answer, hold=False):
    """A listener that sends these bytes to who connects, once it was sent something, and
    hangs up; hold: it does not. Its address; what it was sent is in the list."""
    sent = []
    listener = socket.create_server(("127.0.0.1", 0))

    def one():
        c, _ = listener.accept()
        sent.append(c.recv(65536))
        for piece in answer:
            c.sendall(piece)
            time.sleep(0.01)
        if hold:
            sent.append(c)
            return
        c.shutdown(socket.SHUT_WR)
        while c.recv(65536):  # what is not read would make it a reset
            pass

    def quietly():
        try:
            one()
        except OSError:  # the other side may be gone before we are done
            pass

    threading.Thread(target=quietly, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1], sent


HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"


# --- What is printed ----------------------------------------------------------


def without_times(text):
    """A reply without durations, which differ from call to call."""
    return re.sub(r'(?<=_ms")(\s+\d+\)|\s+=>) \(integer\) -?\d+', " TIME", text.replace("\r", ""))


@test
def prints_replies_as_redis_cli_does_on_a_terminal(t):
    s, do = serve(t)
    holder = s.client()
    holder("ACQUIRE", "leader", "VALUE", "a:1", "NOTE", 'say "hi"\n\\')
    other = s.client()
    other("ACQUIRE", "second", "LEASE", "60000")
    for option in ("-2", "-3"):
        for words in (["PING"], ["ECHO", "a \"b\" \\ \n \x01\t"], ["CHECK", "k", "1"],
                      ["READ", "k"], ["READ", "leader"], ["LOCKS"], ["CONFIG", "GET", "*"],
                      ["CONFIG", "GET", "nothing"], ["COMMAND", "INFO", "acquire", "none"],
                      ["PUBSUB", "NUMSUB", "a", "b"], ["INFO", "server"]):
            theirs = t.run("redis-cli", "--no-raw", option, "-p", str(s.port), *words).out
            ours = do(*([option] if option == "-2" else []), *words).out
            if words[0] in ("READ", "INFO"):  # times, which go on
                theirs, ours = theirs.split(":")[0], ours.split(":")[0]
            check(without_times(ours).rstrip(), without_times(theirs).rstrip(),
                  "%s %r" % (option, words))
    check(other("PING"), "PONG", "it is connected to the end")


@test
def a_tree_is_indented_as_redis_cli_does_it(t):
    s, do = serve(t)
    holder = s.client()
    holder("ACQUIRE", "db", "LEASE", "60000", "NOTE", "nightly")
    theirs = t.run("redis-cli", "--no-raw", "-3", "-p", str(s.port), "EXPLAIN", "db").out
    ours = do("EXPLAIN", "db").out
    check(re.sub("has held it for [^,]*", "", without_times(ours)),
          re.sub("has held it for [^,]*", "", without_times(theirs)))
    check(holder("PING"), "PONG", "it is connected to the end")


@test
def letters_are_shown_and_what_moves_a_cursor_is_not(t):
    s, do = serve(t)
    check(do("ECHO", "Schl\u00fcssel \u4e16").out, '"Schl\u00fcssel \u4e16"\n')
    check(do("ECHO", b"\x1b[2J\x9b\xff").out, '"\\x1b[2J\\x9b\\xff"\n')
    address, _ = false_server(t, [HELLO, b"+\x1b[2J\r\n"])
    check(do("PING", env={"SLUICE_SERVER": address}).out, "\\x1b[2J\n")
    address, _ = false_server(t, [HELLO, b"-ERR \x1b[2J\r\n"])
    check(do("PING", env={"SLUICE_SERVER": address}).err, "sluice do: ERR \\x1b[2J\n")


@test
def values_alone_are_for_shells(t):
    s, do = serve(t)
    lines = do("-q", "ACQUIRE", "db", "LEASE", "60000").out.splitlines()
    check((len(lines), lines[1:]), (5, ["1", "60000", "0", "0"]))
    check(do("-q", "CHECK", "db", lines[0]).out, "1\n")
    p = do("-q", "ACQUIRE", "db", "LEASE", "60000")
    check((p.status, p.out, p.err), (1, "", ""), "nil")
    check(do("-q", "ECHO", "a b\nc").out, "a b\\x0ac\n")
    check(do("-q", "RELEASE", "db", lines[0]).out, "1\n")


@test
def json_has_the_same_shape(t):
    s, do = serve(t)
    got = json.loads(do("--json", "ACQUIRE", "db", "LEASE", "60000").out)
    check((len(got), got[1:]), (5, [1, 60000, 0, 0]))
    p = do("--json", "ACQUIRE", "db", "LEASE", "60000")
    check((p.status, p.out), (1, "null\n"))
    explained = json.loads(do("--json", "EXPLAIN", "db").out)
    check((explained["key"], explained["holders"][0]["fence"]), ("db", got[0]))
    flat = json.loads(do("--json", "-2", "EXPLAIN", "db").out)
    check(flat[flat.index("key") + 1], "db", "RESP2 has no maps")
    p = do("--json", "EXTEND", "db", "5", "1000")
    check((p.status, list(json.loads(p.out)), p.err), (79, ["error"], ""))
    check_that(json.loads(p.out)["error"].startswith("LOST "), "it begins with its word")
    check(json.loads(do("--json", "ECHO", 'a"\\\n\x01\u00fc').out), 'a"\\\n\x01\u00fc')
    check(json.loads(do("--json", "ECHO", b"\xff").out), "\ufffd")
    answer = (b"*7\r\n,1.5\r\n,inf\r\n#t\r\n_\r\n(12345678901234567890123\r\n$3\r\na\x00b\r\n"
              b"%1\r\n:1\r\n:2\r\n")
    address, _ = false_server(t, [HELLO, answer])
    check(json.loads(do("--json", "X", env={"SLUICE_SERVER": address}).out),
          [1.5, "inf", True, None, 12345678901234567890123, "a\x00b", [1, 2]])


@test
def acquire_without_lease_is_rejected(t):
    s, do = serve(t)
    for words in (["ACQUIRE", "db"], ["acquire", "db", "WAIT", "5"],
                  ["ACQUIRE", "db", "SHARED", "note", "LEASE"], ["ACQUIRE", "LEASE"],
                  ["ACQUIRE", "db", "VALUE", "LEASE", "NOTE", "lease"], ["ACQUIRE", "db", ""],
                  *(["ACQUIRE", "db", option, "LEASE"] for option in
                    ("PER", "BUCKETS", "UNITS", "WAIT", "PRIORITY", "value", "NOTE"))):
        p = do(*words)
        check((p.status, p.out), (64, ""), repr(words))
        check_that("ACQUIRE needs LEASE" in p.err and "--session-lock" in p.err,
                   "the message names LEASE and the option")
    check(s.number("grants"), 0, "the server received no such command")
    for words in (["ACQUIRE", "a", "LEASE", "60000"], ["acquire", "b", "lease", "60000"],
                  ["ACQUIRE", "c", "VALUE", "LEASE", "LEASE", "60000"],
                  ["ACQUIRE", "d", "SHARED", "LEASE", "60000"],
                  ["ACQUIRE", "e", "STEAL", "LEASE", "60000"]):
        p = do("-q", *words)
        check((p.status, p.err), (0, ""), repr(words))
    t.until(lambda: [s.holders(k) for k in "abcde"] == [1] * 5, "they are held")


@test
def a_session_lock_is_released_at_exit(t):
    s, do = serve(t)
    p = do("--session-lock", "ACQUIRE", "db")
    check((p.status, p.err), (0, ""))
    t.until(lambda: s.holders("db") == 0, "it is released")


@test
def AWAIT_and_CHECK_exit_with_1_if_the_answer_is_no(t):
    s, do = serve(t)
    c = s.client()
    fence = c.acquire("k", "LEASE", "60000")
    for args, status in ((("AWAIT", "k", "FREE", "10ms"), 1), (("await", "k", "HELD", "10ms"), 0),
                         (("CHECK", "k", str(fence)), 0), (("CHECK", "k", "5"), 1),
                         (("RELEASE", "other", "5"), 0)):
        check(do(*args).status, status, " ".join(args))


def script_of_the_man_page(t):
    """The script in EXAMPLES, and what its job writes down."""
    page = os.path.join(os.path.dirname(tap.program), "../../man/sluice-do.1")
    with open(page) as f:
        block = f.read().split(".Bd -literal -offset indent\n#!")[1].split("\n.Ed")[0]
    text = "#!" + block.replace("\\-", "-").replace("\\(aq", "'")
    check_that("sluice do -q ACQUIRE" in text, "it acquires a lock")
    os.mkdir(t.path("bin"))
    os.symlink(tap.program, t.path("bin/sluice"))
    t.script("bin/make-report", '#!/bin/sh\necho "$1" >>"$HOME/ran"\nexit 3\n')
    # Shorter times, so that the test does not take a minute.
    t.write("script", text.replace("WAIT 10s", "WAIT 100ms"))
    return t.path("script")


def run_script(t, s, script):
    return t.run("sh", script, env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port,
                                    "PATH": t.path("bin") + ":" + os.environ["PATH"]})


@test
def the_script_of_the_man_page_runs_its_job_only_under_the_lock(t):
    s, do = serve(t)
    script = script_of_the_man_page(t)
    p = run_script(t, s, script)
    check((p.status, p.out, p.err), (3, "", ""), "the status of the job")
    check_that(int(t.read("ran")) > 0, "the job got the fence")
    check(s.holders("report"), 0, "the lock is released")
    before = t.read("ran")
    s.client().acquire("report", "LEASE", "60000")
    p = run_script(t, s, script)
    check((p.status, t.read("ran")), (1, before), "another client holds the lock")
    s.process.kill(signal.SIGKILL)
    check(s.process.status, -signal.SIGKILL)
    p = run_script(t, s, script)
    check((p.status, t.read("ran")), (69, before), "there is no server")


@test
def the_script_of_the_man_page_stops_its_job_before_the_lease_expires(t):
    script = script_of_the_man_page(t)
    text = t.read("script")
    lease = int(text.split("LEASE ")[1].split("s)")[0])
    kill, stop = int(text.split("timeout -k ")[1].split()[0]), int(text.split("%.*} + ")[1].split(")")[0])
    check_that(stop + kill < lease, "SIGKILL arrives before the lease expires")
    check_that(text.index("end=") < text.index("ACQUIRE"), "the time counts from before the request")
    late = text.replace("+ %d))" % stop, "- 1))")
    t.write("script", text.replace('timeout -k 5 "$left"', "timeout -k 1 0.2"))
    t.script("bin/make-report", '#!/bin/sh\ntrap "" TERM\nsleep 600 &\nwhile :; do wait; done\n')
    s, do = serve(t)
    p = run_script(t, s, script)
    check_that(p.status in (124, 137), "timeout stopped it: %d" % p.status)
    check(s.holders("report"), 0, "the lock is released")
    t.write("script", late)
    check(run_script(t, s, script).status, 75, "the reply was too late to run the job")
    check(s.holders("report"), 0, "the lock is released, too")


# --- How it ends --------------------------------------------------------------


def exits_with(t, status, word):
    address, _ = false_server(t, [HELLO, b"-%s why\r\n" % word.encode()])
    p = t.sluice("do", "--server", address, "PING")
    check((p.status, p.out, p.err), (status, "", "sluice do: %s why\n" % word))


for word, status in (("LOST", 79), ("ASKED", 1), ("NOAUTH", 77), ("WRONGPASS", 77),
                     ("DRAINED", 69), ("RECOVERING", 69), ("NOFENCES", 69), ("SHUTDOWN", 69),
                     ("LIMIT", 69), ("NOKEYS", 69), ("WAITERS", 69), ("NOMEM", 69),
                     ("NOKEEPER", 69), ("NOQUORUM", 69), ("STALE", 69), ("CLOSED", 69),
                     ("IO", 69), ("NOSPACE", 69), ("TRANSACTIONS", 69), ("NOKEEPERS", 64),
                     ("ERR", 64), ("TOOBIG", 64), ("DEADLOCK", 64), ("LOSTLY", 64)):
    test_of("an_error_%s_is_status_%d" % (word, status), exits_with, status, word)


@test
def help_and_man_page_list_the_errors_of_each_status(t):
    with open(os.path.join(os.path.dirname(tap.program), "../../man/sluice-do.1")) as f:
        page = f.read().split(".Sh EXIT STATUS")[1]
    help = t.sluice("do", "--help").out
    for word in ("ASKED", "NOKEEPER", "NOQUORUM", "RECOVERING", "NOMEM", "NOAUTH", "LOST"):
        check_that(".Ql %s " % word in page, "the page has " + word)
        check_that(word in help, "help has " + word)


@test
def a_server_that_cannot_be_reached_is_69_and_the_message_says_why(t):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # and does not listen
        address = "127.0.0.1:%d" % s.getsockname()[1]
        p = t.sluice("do", "--server", address, "PING")
    check((p.status, p.out), (69, ""))
    check(p.err, 'sluice do: cannot connect to %s: Connection refused; start a server with '
          '"sluice serve", or set SLUICE_SERVER to the address of one\n' % address)
    p = t.sluice("do", "--server", "unix:" + t.path("nothing"), "PING")
    check((p.status, "No such file" in p.err, "sluice serve" in p.err), (69, True, True))
    p = t.sluice("do", "--server", "unix:/" + "x" * 200, "PING")
    check((p.status, "too long" in p.err, "sluice serve" in p.err), (69, True, False),
          "a path that no socket has")


@test
def a_peer_that_accepts_and_sends_nothing_is_dropped(t):
    with socket.create_server(("127.0.0.1", 0)) as s:
        began = time.monotonic()
        p = t.sluice("do", "--server", "127.0.0.1:%d" % s.getsockname()[1], "PING")
    check((p.status, "in time" in p.err), (69, True))
    check_that(time.monotonic() - began > 4.9, "it had five seconds")


@test
def a_server_of_another_protocol_exits_with_69(t):
    for answer in (b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\0", b"*" * 70000,
                   b"$-5\r\n", b"*1\r\n" * 17):
        address, _ = false_server(t, [answer], hold=True)
        if answer.startswith(b"\0"):  # which has no end of line
            address, _ = false_server(t, [answer])
        p = t.sluice("do", "--server", address, "PING")
        check((p.status, p.out), (69, ""), repr(answer[:20]))
    p = t.sluice("do", "--server", false_server(t, [HELLO, b"*2\r\n:1\r\n"])[0], "PING")
    check((p.status, p.err), (69, "sluice do: connection lost: the server closed the connection\n"))


@test
def an_invalid_address_is_64(t):
    for address in ("", ":7000", "a:b", "a:99999", "[::1", "unix:", "http://a:1", "x" * 600):
        p = t.sluice("do", "--server", address, "PING")
        check((p.status, "invalid address" in p.err), (64, True), address)


@test
def the_error_for_an_invalid_address_does_not_repeat_the_password(t):
    for address, shown in (
            ("http://:secret@h", '"http://***@h"'), ("http://ann:secret@h:1/x", '"http://***@h:1/x"'),
            (" redis://:secret@h", '" redis://***@h"'), ("redis:://:se@cret@h", '"redis:://***@h"'),
            ("redis:/:secret@h:7", '"***@h:7"'), ("redis//:secret@h", '"***@h"'), (":secret@h", '"***@h"'),
            ("ann:secret@h:1", '"***@h:1"'), ("secret@h", '"***@h"'), ("secret" * 100 + "://:x@h", '"***@h"'),
            ("http://:" + "secret" * 100 + "@h", '"http://***@h"'),
            ("redis://:secret@h:x", "the port"), ("redis://:secret", "the port"),
            ("redis://default:secret", "the port"), ("redis://:secret%40h:1:", "in brackets"),
            ("redis://:se/cret@h", "database 0"), ("redis://h:0", "the port"), ("redis://h:65536", "the port")):
        for p in (t.sluice("do", "--server", address, "PING"),
                  t.sluice("do", "PING", env={"SLUICE_SERVER": address})):
            check((p.status, shown in p.err, "cret" in p.err), (64, True, False), address + " " + p.err)
    for host in ("redis://:secret@h", ":secret@h", "secret@h"):
        p = t.sluice("do", "-h", host, "PING")
        check((p.status, "***@h" in p.err, "secret" in p.err), (64, True, False), p.err)
    p = t.sluice("do", "--server", "unix:/none/a@b", "PING")
    check((p.status, "unix:/none/a@b" in p.err), (69, True), "a path is not a password: " + p.err)


@test
def a_wrong_command_line_exits_with_64(t):
    for words in ([], ["--json"], ["--nonsense", "PING"], ["--json", "-q", "PING"]):
        p = t.sluice("do", *words)
        check((p.status, p.out, "Try: sluice help do" in p.err), (64, "", True), repr(words))


@test
def a_full_disk_is_71(t):
    s, do = serve(t)
    with open("/dev/full", "w") as full:
        check(do("PING", stdout=full).status, 71)
        c, p = s.client(), t.begin("do", "SUBSCRIBE", "lock:db", stdout=full,
                                   env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
        p.until_err("subscribed")
        c.acquire("db")
        check(p.status, 71, "of a subscriber")


# --- Where and who ------------------------------------------------------------


@test
def finds_the_server_by_option_variable_and_default(t):
    s, do = serve(t, "--socket", t.path("socket"))
    check(do("PING", env={"SLUICE_SERVER": "unix:" + t.path("socket")}).out, "PONG\n")
    check(t.sluice("do", "--server", "localhost:%d" % s.port, "PING").out, "PONG\n")
    check(do("--server", "unix:" + t.path("none"), "PING").status, 69, "the option wins")
    for env in ({}, {"SLUICE_SERVER": ""}):
        p = t.sluice("do", "ECHO", "x", env=env)
        check_that(p.out == '"x"\n' or "to 127.0.0.1:5625:" in p.err, "the default is meant")


@test
def takes_host_and_port_as_redis_cli_does(t):
    s, do = serve(t)
    port = str(s.port)
    for words in (["-p", port], ["-h", "localhost", "-p", port], ["-hlocalhost", "-p" + port],
                  ["--host", "127.0.0.1", "--port=" + port]):
        p = t.sluice("do", *words, "PING", env={"SLUICE_SERVER": "unix:/nowhere"})
        check((p.status, p.out), (0, "PONG\n"), repr(words))
    p = t.sluice("do", "-h", "::1", "-p", "1", "PING")
    check_that("cannot connect to [::1]:1: " in p.err, "IPv6 gets brackets: " + p.err)
    p = t.sluice("do", "-h")
    check((p.status, "usage: sluice do" in p.out), (0, True), "-h alone is help")
    for words, message in ((["-p", "0"], "PORT must be an integer from 1 to 65535"),
                           (["-p", "5625x"], 'got "5625x"'), (["-h", "a:1"], "HOST must be"),
                           (["-h", ""], "HOST must be"), (["-h", "redis://a"], "HOST must be"),
                           (["-h", "a", "--server", "b"], "--server excludes -h and -p"),
                           (["-a", "secret"], "SLUICE_PASSWORD"), (["-u", "x"], "redis://"),
                           (["--prot", "1"], 'did you mean "--port"?')):
        p = t.sluice("do", *words, "PING")
        check((p.status, p.out, message in p.err), (64, "", True), "%r %s" % (words, p.err))


@test
def takes_redis_urls(t):
    s, do = serve(t, "--password", "p@ss/w%rd")
    for url in ("redis://:p%%40ss%%2fw%%25rd@127.0.0.1:%d", "redis://:p%%40ss%%2Fw%%25rd@:%d/0",
                "REDIS://default:p%%40ss%%2fw%%25rd@localhost:%d/",
                "redis://p%%40ss%%2fw%%25rd@localhost:%d"):
        p = do("PING", env={"SLUICE_SERVER": url % s.port})
        check((p.status, p.out, p.err), (0, "PONG\n", ""), url)
    env = {"SLUICE_SERVER": "redis://:wrong@127.0.0.1:%d" % s.port}
    check(do("PING", env=env).status, 77)
    check(do("PING", env={"SLUICE_SERVER": "redis://127.0.0.1:%d" % s.port}).status, 77)
    path = t.write("password", "p@ss/w%rd\n")
    check(do("--password-file", path, "PING", env=env).out, "PONG\n", "the file precedes the URL")
    for url, message in (("rediss://a:1", "TLS is not supported"), ("redis://a/1", "database 0"),
                         ("redis://ann:secret@a", "no user names"), ("redis://a:x", "the port"),
                         ("redis://::1:7", "in brackets"),
                         ("redis://:secret%zz@a", "special characters"),
                         ("redis://:secret%0@a", "special characters")):
        p = t.sluice("do", "--server", url, "PING")
        check((p.status, message in p.err, "secret" in p.err), (64, True, False), p.err)


@test
def arguments_are_sent_unchanged(t):
    s, do = serve(t)
    address, sent = false_server(t, [HELLO, b"+OK\r\n"])
    do("-2", "SET", "", "--json", "-q", "a b\r\n", env={"SLUICE_SERVER": address})
    check(sent[0], b"*5\r\n$3\r\nSET\r\n$0\r\n\r\n$6\r\n--json\r\n$2\r\n-q\r\n$5\r\na b\r\n\r\n")


@test
def the_password_comes_from_a_variable_or_a_file(t):
    s, do = serve(t, "--password", "open sesame")
    p = do("PING")
    check((p.status, "SLUICE_PASSWORD or --password-file" in p.err), (77, True), "without")
    for option in ([], ["-2"]):
        check(do(*option, "PING", env={"SLUICE_PASSWORD": "open sesame"}).out, "PONG\n")
        p = do(*option, "PING", env={"SLUICE_PASSWORD": "shut"})
        check((p.status, "rejects the password" in p.err), (77, True), "a wrong one")
        path = t.write("password", "open sesame\nmore\n")
        check(do(*option, "--password-file", path, "PING",
                 env={"SLUICE_PASSWORD": "shut"}).out, "PONG\n", "the file wins")
    check(do("-2", "PING").status, 77, "RESP2 without one: the command is refused")
    check(do("--password-file", t.path("none"), "PING").status, 66)
    check(do("--password-file", t.write("empty", "\n"), "PING").status, 66)


@test
def no_process_shows_the_password(t):
    address, sent = false_server(t, [b"-WRONGPASS no\r\n"], hold=True)
    p = t.begin("do", "--server", address, "PING", env={"SLUICE_PASSWORD": "sesame"})
    with open("/proc/%d/cmdline" % p.pid, "rb") as f:
        check_that(b"sesame" not in f.read(), "the command line does not have it")
    check(p.status, 77)
    check_that(b"sesame" in sent[0], "it was sent")


# --- Waiting and listening ----------------------------------------------------


@test
def a_command_that_waits_is_waited_for(t):
    s, do = serve(t)
    holder = s.client()
    fence = holder.acquire("db")
    p = t.begin("do", "-q", "ACQUIRE", "db", "WAIT", "60000", "LEASE", "60000",
                env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
    s.until_waiting("db", 1)
    check(p.out, "", "nothing is printed yet")
    holder("RELEASE", "db")
    check(p.status, 0)
    check_that(int(p.out.split()[0]) > fence, "its fence is higher")


@test
def interrupted_it_is_gone_and_so_is_the_request(t):
    s, do = serve(t)
    s.client().acquire("db", "LEASE", "60000")
    p = t.begin("do", "--session-lock", "ACQUIRE", "db", "WAIT", "60000",
                env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
    s.until_waiting("db", 1)
    p.kill(signal.SIGINT)
    check(p.status, -signal.SIGINT)
    s.until_waiting("db", 0)


@test
def a_subscription_prints_a_line_for_each_message_until_it_is_interrupted(t):
    s, do = serve(t)
    env = {"SLUICE_SERVER": "127.0.0.1:%d" % s.port}
    listeners = [t.begin("do", *words, env=env) for words in (
        ["SUBSCRIBE", "lock:db", "lock:other"], ["-2", "PSUBSCRIBE", "lock:*"],
        ["-q", "SUBSCRIBE", "lock:db"], ["--json", "SUBSCRIBE", "lock:db"])]
    listeners[0].until_err("subscribed to lock:other\n")
    listeners[1].until_err("subscribed to lock:*\n")
    t.until(lambda: s.number("pubsub_clients") == 4, "all listen")
    c = s.client()
    fence = c.acquire("db", "LEASE", "60000")
    c("RELEASE", "db", fence)
    for p in listeners:
        p.until_out("released %d" % fence)
        p.kill(signal.SIGINT)
        check(p.status, -signal.SIGINT)
    plain = ("lock:db granted %d held=1 lease_ms=60000 waited_ms=0\nlock:db released %d\n"
             % (fence, fence))
    for p in listeners[:3]:
        check(p.out, plain)
    check(listeners[2].err, "")
    last = [json.loads(line) for line in listeners[3].out.splitlines()]
    check((last[0], last[-1]), (["subscribe", "lock:db", 1],
                                ["message", "lock:db", "released %d" % fence]))


@test
def a_subscription_ends_with_the_server(t):
    s, do = serve(t)
    p = t.begin("do", "SUBSCRIBE", "lock:db", env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
    p.until_err("subscribed")
    s.process.kill(signal.SIGTERM)
    check(p.status, 69)
    check_that("connection lost" in p.err, "the message says so")


@test
def other_commands_about_channels_end(t):
    s, do = serve(t)
    check(do("UNSUBSCRIBE", "a", "b").err, "sluice do: unsubscribed from a\nsluice do: unsubscribed from b\n")
    check(do("UNSUBSCRIBE").status, 0)
    check(do("SUBSCRIBE").status, 64, "an error ends it")


@test
def pushes_during_a_command_go_to_standard_error(t):
    news = b">4\r\n$4\r\nlock\r\n$2\r\ndb\r\n$5\r\nasked\r\n:7\r\n"
    address, _ = false_server(t, [HELLO, news[:9], news[9:], news, b":1\r\n"])
    p = t.sluice("do", "-q", "--server", address, "ACQUIRE", "db", "LEASE", "9", "WAIT", "1000")
    check((p.status, p.out), (0, "1\n"))
    check(p.err, "lock\ndb\nasked\n7\n" * 2)


@test
def shutdown_is_answered_by_the_end(t):
    s, do = serve(t)
    check((do("SHUTDOWN").status, s.process.status), (0, 0))


@test
def a_large_reply_comes_whole(t):
    s, do = serve(t, "--value-bytes-max", "16k")
    c = s.client()
    for i in range(300):
        c("ACQUIRE", "key%03d" % i, "LEASE", "600000")
    got = json.loads(do("--json", "LOCKS", "COUNT", "1000").out)
    check(len({lock["key"] for lock in got[1]}), 300)
    big = b"$%d\r\n%s\r\n" % (5 << 20, b"x" * (5 << 20))
    address, _ = false_server(t, [HELLO, big])
    check(len(do("-q", "X", env={"SLUICE_SERVER": address}).out), (5 << 20) + 1)


@test
def a_connection_above_the_limit_gets_the_reason(t):
    s, do = serve(t, "--connections-max", "2")
    kept = s.clients(3)  # one is reserved for an administrator
    check([c("PING") for c in kept], ["PONG"] * 3)
    p = do("PING")
    check((p.status, "LIMIT" in p.err), (69, True))
    check(len(kept), 3)


main(__doc__)
