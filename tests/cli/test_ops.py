#!/usr/bin/python3
"""test_ops.py SLUICE [--jobs N] [PATTERN...] - the commands for operators: ls, explain, watch,
break, drain, nodes and ready; against the server that was built next to SLUICE, against clusters,
and against false servers."""
import fcntl
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import termios
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../server/lib"), os.path.join(HERE, "../cluster/lib")]
import tap  # noqa: E402
from live import Client, Server  # noqa: E402
from tap import Failure, Skip, check, check_that, main, test, test_of  # noqa: E402
import etcd as etcds  # noqa: E402
from nodes import Cluster  # noqa: E402

REMOTE = (["ls"], ["explain", "k"], ["watch", "--count", "1"], ["break", "k", "--yes"], ["drain"],
          ["nodes"], ["ready"])
HOSTILE = "x\x1b[2J\n\u202e\x00y\x9b"
LEASE = 600000


def server_program():
    return os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")


def serve(t, *options, **more):
    """A server, and a function that runs sluice with it."""
    s = Server(t, options, argv=[server_program()], **more)

    def sluice(*words, **changes):
        env = {"SLUICE_SERVER": "127.0.0.1:%d" % s.port}
        env.update(changes.pop("env", {}))
        return t.sluice(*words, env=env, **changes)

    return s, sluice


def ok(p):
    """The output of a command that succeeds and prints no message."""
    check((p.status, p.err), (0, ""), " ".join(map(str, p.args[1:])))
    return p.out


def named(s, name):
    c = s.client()
    check(c("CLIENT", "SETNAME", name), "OK")
    return c


def wait(s, client, key, *words):
    """Send an ACQUIRE that has to wait, and wait until the server knows it."""
    before = s.waiters(key)
    client.send("ACQUIRE", key, "WAIT", LEASE, *words)
    s.stage.until(lambda: s.waiters(key) == before + 1, "it waits")


# --- ls -----------------------------------------------------------------------


def rows(text):
    """The cells of a table, by the first cell of each row."""
    lines = text.splitlines()
    return {cells[0]: cells[1:] for cells in (re.split(r"  +", line.strip()) for line in lines)}


@test
def ls_shows_locks_with_waiters_first(t):
    s, sluice = serve(t)
    holder = named(s, "backup-7")
    for key in ("a", "m", "z", "drained:x"):
        holder.acquire(key, "LEASE", LEASE)
    waiters = s.clients(3)
    wait(s, waiters[0], "m")
    wait(s, waiters[1], "z")
    wait(s, waiters[2], "z")
    counted = s.clients(2)
    for c in counted:
        c.acquire("many", "PER", 4)
    holder.acquire("read", "SHARED")
    check(holder("DRAIN", "drained:*", "ON"), 1)
    out = ok(sluice("ls"))
    lines = out.splitlines()
    check(lines[0].split()[:3], ["KEY", "HELD", "HOLDER"])
    check([line.split()[0] for line in lines[1:]], ["z", "m", "a", "drained:x", "many", "read"])
    got = rows(out)
    check(got["z"][0], "1/1")
    check_that(re.match(r"backup-7 \(127\.0\.0\.1:\d+\)$", got["z"][1]), "the holder is named")
    check_that(re.match(r"9 min$", got["z"][3]), "the rest of the lease: %r" % got["z"])
    check(got["z"][4], "2", "the waiters")
    check_that(re.match(r"\d+ (ms|s)$", got["z"][5]), "the longest wait")
    check(got["a"][4:], ["0", "-"])
    check_that(got["many"][0] == "2/4" and got["many"][1].endswith(" and 1 more"), "several holders")
    check(got["many"][3], "-", "no lease")
    check(got["read"][0], "1 shared")
    check(got["drained:x"][6], "drained")


@test
def locks_of_sluice_run_are_exclusive_shared_or_counted(t):
    s, sluice = serve(t)
    address = "127.0.0.1:%d" % s.port
    for key, options in (("alone", ()), ("together", ("-s",)), ("counted", ("-j", "4"))):
        t.hold("--server", address, *options, key=key)
    t.hold("--server", address, "-s", key="together")
    got = rows(ok(sluice("ls")))
    check([got[key][0] for key in ("alone", "together", "counted")], ["exclusive", "2 shared", "1/4"])
    waiter = t.begin("run", "-q", "--server", address, "alone", "--", "true")
    t.until(lambda: s.waiters("alone") == 1 or not waiter.running, "it waits")
    lines = ok(sluice("explain", "alone")).splitlines()
    check(lines[0], "alone: held, exclusive, 1 holder, 1 waiter")
    check([len(line.split("  exclusive  ")) for line in lines if "  exclusive  " in line], [2, 2],
          "holder and waiter")


@test
def ls_lists_only_keys_that_match_a_pattern(t):
    s, sluice = serve(t)
    c = s.client()
    for key in ("db:a", "db:b", "web"):
        c.acquire(key)
    check(sorted(ok(sluice("ls", "-q", "db:*")).split()), ["db:a", "db:b"])
    check([line.split()[0] for line in ok(sluice("ls", "db:*")).splitlines()], ["KEY", "db:a", "db:b"])
    check(len(ok(sluice("ls", "nothing")).splitlines()), 1, "only the titles")


@test
def ls_lists_all_pages(t):
    s, sluice = serve(t)
    c = s.client()
    keys = ["k%04d" % i for i in range(2500)]
    c.pipeline(*(("ACQUIRE", key) for key in keys))
    check(sorted(ok(sluice("ls", "-q")).split()), keys)
    check([line.split()[0] for line in ok(sluice("ls")).splitlines()[1:]], keys)
    document = json.loads(ok(sluice("ls", "--json")))
    check([k["key"] for k in document["locks"]], keys)
    check(document["complete"], True)


@test
def ls_json_is_one_document_in_the_same_order(t):
    s, sluice = serve(t)
    holder, waiter = s.clients(2)
    fence = holder.acquire("b", "LEASE", LEASE)
    holder.acquire("a")
    wait(s, waiter, "b")
    document = json.loads(ok(sluice("ls", "--json")))
    check(document["server"], "127.0.0.1:%d" % s.port)
    check([k["key"] for k in document["locks"]], ["b", "a"])
    first = document["locks"][0]
    check((first["waiters"], first["holder"]["fence"], first["holder"]["per"]), (1, fence, 1))
    check(json.loads(ok(sluice("ls", "--json", "nothing")))["locks"], [])


# --- explain ------------------------------------------------------------------


@test
def explain_shows_holders_and_waiters_and_why_the_first_one_waits(t):
    s, sluice = serve(t)
    holder, first, second = named(s, "backup-7"), named(s, "report"), s.client()
    fence = holder.acquire("db", "LEASE", LEASE, "NOTE", "nightly backup")
    wait(s, first, "db", "NOTE", "a report")
    wait(s, second, "db", "PRIORITY", -3)
    out = ok(sluice("explain", "db"))
    lines = out.splitlines()
    check(lines[0], "db: held, 1/1, 1 holder, 2 waiters")
    check_that(lines[1].startswith("  backup-7 ("), "the server's summary follows")
    held = next(line for line in lines if line.startswith("backup-7 ("))
    for part in ("1/1", "ago", "9 min", str(fence), "nightly backup"):
        check_that(part in held, "%r is in %r" % (part, held))
    queue = [line.split()[:2] for line in lines if re.match(r" +\d+  ", line)]
    check(queue, [["1", "report"], ["2", "client"]])
    check_that("a report" in out, "the note of a waiter")
    check_that(re.match(r"Why report \(127\.0\.0\.1:\d+\) waits: full: 1 of 1 units held, 1 requested$",
                        lines[-1]), "the reason comes last, not %r" % lines[-1])


@test
def explain_marks_grants_that_are_asked_or_broken_and_clients_that_steal(t):
    s, sluice = serve(t)
    holder, thief = named(s, "held"), named(s, "thief")
    fence = holder.acquire("db", "LEASE", LEASE)
    wait(s, thief, "db", "PRIORITY", 10, "STEAL")
    t.until(lambda: "asked" in ok(sluice("explain", "db")), "the holder was asked")
    check_that("steals" in ok(sluice("explain", "db")), "the waiter steals")
    check(thief.close(), None)
    check(s.client()("BREAK", "db", fence), 1)
    holder.close()
    t.until(lambda: "disconnected, broken" in ok(sluice("explain", "db")), "it is broken")
    check(s.client()("DRAIN", "*", "ON"), 1)
    check_that(", drained\n" in ok(sluice("explain", "db")), "the key is drained")


@test
def explain_of_a_free_key_says_so(t):
    _s, sluice = serve(t)
    out = ok(sluice("explain", "db"))
    check(out, "db: free\n  free: no client holds it or waits for it\n")


@test
def explain_json_is_the_reply(t):
    s, sluice = serve(t)
    fence = s.client().acquire("db", "LEASE", LEASE)
    document = json.loads(ok(sluice("explain", "db", "--json")))
    check((document["key"], document["holders"][0]["fence"]), ("db", fence))


@test
def more_holders_than_the_server_lists_are_counted(t):
    s, sluice = serve(t)
    for c in s.clients(103):
        c.acquire("db", "PER", 200)
        t.keep = getattr(t, "keep", []) + [c]
    out = ok(sluice("explain", "db"))
    check_that("\nand 3 more holders\n" in out, "the others are counted")
    check(out.splitlines()[0], "db: held, 103/200, 103 holders")


# --- Untrusted text -----------------------------------------------------------


@test
def hostile_text_reaches_no_terminal(t):
    s, sluice = serve(t)
    holder, waiter = s.clients(2)
    holder("CLIENT", "SETNAME", "name\u202e")
    key = HOSTILE.encode()
    holder.acquire(key, "LEASE", LEASE, "NOTE", "note" + HOSTILE, "VALUE", HOSTILE)
    wait(s, waiter, key, "NOTE", HOSTILE)
    # An argument of a program cannot contain a NUL, so the second lock has a key without one.
    plain = HOSTILE.replace("\x00", "")
    fence = holder.acquire(plain.encode(), "LEASE", LEASE, "NOTE", HOSTILE)
    watcher = t.begin("watch", "--count", "1", env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
    t.until(lambda: s.number("pubsub_clients") == 1, "it watches")
    holder("EXTEND", plain.encode(), fence, LEASE)
    check(watcher.status, 0)
    check(holder("DRAIN", plain.encode(), "ON"), 1)
    said = [watcher, sluice("ls"), sluice("ls", "-q"), sluice("explain", plain),
            sluice("break", plain), sluice("drain"), sluice("break", plain, "--yes"),
            sluice("drain", plain, "off"), sluice("nodes", plain), sluice("ls", "--local", "--segment", plain)]
    for p in said:
        for text in (p.out, p.err):
            bad = [c for c in text if (ord(c) < 32 and c != "\n") or 0x7f <= ord(c) < 0xa0 or c == "\u202e"]
            check(bad, [], "%r of %r" % (text, p.args[1:]))
    check_that("x\\x1b[2J\\x0a" in said[1].out and "\\x00y" in said[1].out, "it is escaped")
    check(len(said[2].out.splitlines()), 2, "a line for each key")
    for p in (sluice("ls", "--json"), sluice("explain", plain, "--json")):
        check_that(HOSTILE.replace("\x9b", "") [:3] in json.dumps(json.loads(p.out), ensure_ascii=False)
                   .replace("\\u001b", "\x1b"), "JSON has it")
        check_that("\x1b" not in p.out and "\x00" not in p.out, "JSON escapes it")


# --- The terminal -------------------------------------------------------------


def on_terminal(t, s, *words, columns=80, answer=None, env=None):
    """Run sluice on a terminal; returns its status and all that it printed."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    changes = {"SLUICE_SERVER": "127.0.0.1:%d" % s.port, "TERM": "xterm"}
    changes.update(env or {})
    p = t.begin(*words, stdin=slave, stdout=slave, stderr=slave, env=changes)
    os.close(slave)
    if answer is not None:
        os.write(master, answer.encode())
    seen = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    t.transcripts.append(lambda: repr(seen))
    return p.status, seen.decode().replace("\r\n", "\n")


def plain(text):
    return re.sub(r"\x1b\[\d+m", "", text)


@test
def colours_appear_on_a_terminal_only_and_never_with_NO_COLOR_or_a_dumb_one(t):
    s, sluice = serve(t)
    holder, waiter = s.clients(2)
    holder.acquire("db")
    wait(s, waiter, "db")
    for words in (["ls"], ["explain", "db"]):
        coloured = on_terminal(t, s, *words)
        check_that("\x1b[1m" in coloured[1], "titles are bold")
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": None}):
            status, out = on_terminal(t, s, *words, env=env)
            check_that(status == 0 and "\x1b" not in out and "db" in out, "no colours with %r" % env)
        check_that("\x1b" not in ok(sluice(*words, env={"TERM": "xterm"})), "no colours in a pipe")
        check_that("\x1b[1m" in on_terminal(t, s, *words, env={"NO_COLOR": ""})[1],
                   "an empty NO_COLOR is the same as none")


@test
def lines_fit_on_the_terminal(t):
    s, sluice = serve(t)
    c = named(s, "n" * 60)
    c.acquire("k" * 500, "NOTE", "o" * 300)
    c.acquire("\u4e16" * 100)
    for columns in (80, 120, 300):
        status, out = on_terminal(t, s, "ls", columns=columns)
        check(status, 0)
        widths = [sum(2 if ord(ch) > 0x1100 else 1 for ch in plain(line)) for line in out.splitlines()]
        check_that(max(widths) <= columns, "%r fit into %d" % (widths, columns))
        check_that("..." in out, "what does not fit is cut")
    check_that("k" * 500 in ok(sluice("ls")), "nothing is cut in a pipe")


# --- Local --------------------------------------------------------------------


@test
def local_shows_the_locks_of_this_machine(t):
    holder = t.hold("-j", "3", key="db:k")
    other = t.hold(key="web")
    for more in ([], ["--segment", t.segment]):
        check(ok(t.sluice("ls", "--local", *more)), ok(t.sluice("canal", "show")))
        check(ok(t.sluice("ls", "--local", "-q", *more, "db:*")), "db:k\n")
        check([k["key"] for k in json.loads(ok(t.sluice("ls", "--local", "--json", *more, "w*")))["keys"]],
              ["web"])
        check(ok(t.sluice("explain", "--local", *more, "db:k")).splitlines()[:2],
              ok(t.sluice("canal", "show", "db:k")).splitlines()[:2])
        check(json.loads(ok(t.sluice("explain", "--local", "--json", *more, "db:k")))["held_by"][0]["pid"],
              holder.pid)
        out = ok(t.sluice("watch", "--local", "--count", "1", *more, "db:*"))
        check([line.split()[0] for line in out.splitlines()[1:]], ["KEY", "db:k"])
    check(t.sluice("explain", "--local", "nothing").status, 66)
    check(t.sluice("ls", "--local", "--segment", t.path("none")).status, 66)
    check((holder.release(), other.release()), (0, 0))


# --- The command line ---------------------------------------------------------


@test
def mistakes_are_reported_before_anything_is_sent(t):
    env = {"SLUICE_SERVER": "unix:" + t.path("nobody")}
    for words, message in ((["explain"], "missing argument"), (["break"], "missing argument"),
                           (["ls", "a", "b"], "too many arguments"), (["ready", "x"], "too many arguments"),
                           (["ls", "--jsn"], 'did you mean "--json"?'),
                           (["break", "k", "--fense", "1"], 'did you mean "--fence"?'),
                           (["ls", "--json", "-q"], "--json excludes -q"),
                           (["ls", "--segment", "s"], "--segment needs --local"),
                           (["explain", "--local", "--server", "h", "k"], "--local excludes --server"),
                           (["watch", "--count", "0"], "--count must be a number from 1"),
                           (["break", "k", "--fence", "x"], "--fence must be a number from 1"),
                           (["ready", "--timeout", "soon"], "--timeout must be a duration"),
                           (["ready", "--timeout", "0"], "--timeout must be a duration"),
                           (["drain", "x"], "on or off"), (["drain", "x", "of"], "must be on or off"),
                           (["nodes", "resing"], "must be resign"),
                           (["ls", "--server", "host:99999"], "invalid address")):
        p = t.sluice(*words, env=env)
        check((p.status, message in p.err), (64, True), "%r says %r" % (words, p.err))


@test
def an_unreachable_server_is_reported(t):
    path = "unix:" + t.path("nobody")
    for words in REMOTE:
        p = t.sluice(*words, "--server", path)
        check(p.status, 69, words)
        check_that("cannot connect to " + path in p.err and "sluice serve" in p.err, p.err)
        check(p.out, "", "nothing else is printed")


@test
def passwords_and_several_addresses_work_as_with_sluice_do(t):
    s, sluice = serve(t, "--password", "secret word")
    address = "127.0.0.1:%d" % s.port
    file = t.write("password", "secret word\n", 0o600)
    client = s.client(password="secret word")
    client.acquire("db", "LEASE", LEASE)
    for words in (["ls"], ["explain", "db"], ["drain"], ["ready"], ["break", "db", "--yes"]):
        p = sluice(*words)
        check(p.status, 77, words)
        check_that("--password-file" in p.err, p.err)
        ok(sluice(*words, "--password-file", file))
        ok(sluice(*words, env={"SLUICE_PASSWORD": "secret word"}))
        ok(sluice(*words, "--server", "unix:%s,%s" % (t.path("nobody"), address), "--password-file", file))
    check(sluice("ready", "-q").status, 77)


@test
def output_that_cannot_be_written_is_an_error(t):
    s, sluice = serve(t)
    s.client().acquire("db", "LEASE", LEASE)
    for words in (["ls"], ["ls", "-q"], ["ls", "--json"], ["explain", "db"], ["ready"], ["drain", "x", "on"]):
        with open("/dev/full", "w") as full:
            check(sluice(*words, stdout=full).status, 71, words)


# --- False servers ------------------------------------------------------------

HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"


def false_server(t, answer, hello=HELLO):
    """A server that replies to HELLO, and calls answer(connection, command) for each other command."""
    listener = socket.create_server(("127.0.0.1", 0))

    def one(c):
        try:
            c.recv(65536)
            c.sendall(hello)
            for command in iter(lambda: c.recv(65536), b""):
                answer(c, command)
        except OSError:
            pass

    def accept():
        while True:
            c, _ = listener.accept()
            threading.Thread(target=one, args=(c,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1]


def says(*pieces):
    def answer(c, _command):
        for piece in pieces:
            c.sendall(piece)
    return answer


def trickles(c, _command):
    c.sendall(b"$100000\r\n")
    while True:
        c.sendall(b"x")
        time.sleep(0.02)


WRONG = {"silence": lambda c, _: None, "a trickle": trickles, "garbage": says(b"\x1b]0;x\x07\r\n\x00\xff" * 50),
         "a huge length": says(b"$99999999999999\r\n"), "a huge list": says(b"*1000000000\r\n"),
         "a deep list": says(b"*1\r\n" * 1000), "a map that is cut": says(b"%3\r\n$3\r\nkey\r\n"),
         "a number": says(b":7\r\n"), "a word": says(b"+\x1b[2J\r\n"), "nil": says(b"_\r\n"),
         "an empty list": says(b"*0\r\n"), "an empty map": says(b"%0\r\n"),
         "a list of lists": says(b"*2\r\n$1\r\n0\r\n*2\r\n*0\r\n:1\r\n"),
         "an error": says(b"-ERR \x1b[2J\r\n"), "an end": lambda c, _: c.close()}


def survives(t, name):
    address = false_server(t, WRONG[name])
    for words in REMOTE:
        if words[0] == "watch" and name != "an error":
            continue  # It waits for events, and connects again, without end.
        for more in ([], ["--json"]):
            p = t.sluice(*words, *more, "--server", address, "--timeout", "300ms")
            check_that(p.status in (0, 1, 64, 69), "%r ends with %r" % (words, p.status))
            harmless = words[0] in ("drain", "explain", "break") and p.status in (0, 1)
            check_that(p.status != 0 or harmless or name in ("an empty list", "a list of lists"),
                       "%r of %s is not a success: %r" % (words, name, p.out))
            check_that("\x1b" not in p.out + p.err, "%r prints %r" % (words, p.out + p.err))


for each in WRONG:
    test_of("commands_survive_a_server_that_sends_" + re.sub(r"\W", "_", each), survives, each)


NAMES = ("key", "held", "holders", "waiters", "waited_ms", "shared", "drained", "holder", "fence", "client", "name",
         "address", "connected", "held_ms", "per", "buckets", "lease_ms", "summary", "holders_count", "units", "asked",
         "waiters_count", "broken", "note", "reason", "left_ms", "priority", "nodes", "node", "version", "id", "state")


def random_reply(r, depth=0):
    """A reply with the names of real fields, whose types and values are random."""
    def bulk(text):
        return b"$%d\r\n%s\r\n" % (len(text), text)

    kind = r.choice(":::$$$$+_#,*%%%") if depth < 4 else r.choice(":$_")
    if kind == ":":
        return b":%d\r\n" % r.choice((0, 1, -1, 2, 9, 10 ** 6, 2 ** 63 - 1, -2 ** 63, r.getrandbits(40)))
    if kind == "$":
        return bulk(r.choice((b"", b"0", b"7", b"\x1b[2J", b"\x00", b"\xff\xfe", b"x" * 3000, b"db:shop", b"a=b c=",
                              "\u4e16\u202e".encode(), b"node:1\r\nengine:etcd\r\nterm:x\r\n")))
    if kind in "*%":
        count = r.randrange(6)
        pairs = (bulk(r.choice(NAMES).encode()) + random_reply(r, depth + 1) for _ in range(count))
        return b"%%%d\r\n" % count + b"".join(pairs) if kind == "%" else (
            b"*%d\r\n" % count + b"".join(random_reply(r, depth + 1) for _ in range(count)))
    return {"+": b"+OK\r\n", "_": b"_\r\n", "#": b"#t\r\n", ",": b",1.5\r\n"}[kind]


@test
def commands_survive_random_replies(t):
    seed = random.SystemRandom().getrandbits(32)
    t.transcripts.append(lambda: "seed %d" % seed)
    r = random.Random(seed)

    def answer(c, command):
        if b"LOCKS" in command and r.random() < 0.8:
            entries = [b"%2\r\n$3\r\nkey\r\n$1\r\nk\r\n$6\r\nholder\r\n" + random_reply(r) for _ in range(3)]
            c.sendall(b"*2\r\n$1\r\n0\r\n*3\r\n" + b"".join(entries))
        elif b"EXPLAIN" in command or b"NODES" in command:
            c.sendall(b"%4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(x), x) + random_reply(r, d) for x, d in (
                (b"key", 9), (b"holders", 0), (b"waiters", 0), (b"nodes", 0))))
        else:
            c.sendall(random_reply(r))

    address = false_server(t, answer)
    for _ in range(15):
        for words in REMOTE:
            if words[0] == "watch":
                continue
            for more in ([], ["--json"]):
                p = t.sluice(*words, *more, "--server", address, "--timeout", "10s")
                check_that(p.status in (0, 1, 64, 69), "%r ends with %r" % (words, p.status))
                check_that("\x1b" not in p.out + p.err and "\u202e" not in p.err, "%r prints %r" % (words, p.out + p.err))
                if more and p.status == 0:
                    json.loads(p.out)


@test
def a_list_that_never_ends_is_cut(t):
    entry = b"%1\r\n$3\r\nkey\r\n$1\r\nk\r\n"
    page = b"*2\r\n$1\r\n7\r\n*5000\r\n" + entry * 5000
    address = false_server(t, says(page))
    p = t.sluice("ls", "--server", address)
    check(p.status, 0)
    check_that("listed 200000 locks, but there are more" in p.err, p.err)
    check(len(p.out.splitlines()), 200001)
    p = t.sluice("ls", "--json", "--server", address)
    check(json.loads(p.out)["complete"], False)


@test
def a_server_that_accepts_and_does_not_reply_causes_a_timeout(t):
    listener = socket.create_server(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % listener.getsockname()[1]
    for words in REMOTE:
        p = t.sluice(*words, "--server", address, "--timeout", "300ms")
        check(p.status, 69, words)
        check_that(p.err != "", "it says why")


@test
def a_server_without_resp3_is_rejected_at_once(t):
    for reply in (b":1\r\n", b"+OK\r\n", b"$-1\r\n"):
        address = false_server(t, says(reply), hello=reply)
        for words in (*REMOTE, ["acquire", "k"], ["run", "-n", "k", "--", "true"], ["top", "--once"]):
            p = t.sluice(words[0], "--server", address, *words[1:])
            check((p.status, p.out), (69, ""), words)
            check(p.err, "sluice %s: cannot connect to %s: the server does not support version 3 of the Redis protocol\n" %
                  (words[0], address))


@test
def watch_rejects_a_wrong_reply_to_its_subscription(t):
    for name in ("a number", "a word", "nil"):
        address = false_server(t, WRONG[name])
        for words in (["watch"], ["watch", "--json", "k"]):
            p = t.sluice(*words, "--server", address)
            command = "SUBSCRIBE" if "k" in words else "PSUBSCRIBE"
            check((p.status, p.out), (69, ""))
            check(p.err, "sluice watch: %s: the reply to %s is not that of a Sluice server; check the address\n" %
                  (address, command))


@test
def json_of_a_server_that_cannot_be_reached_is_empty_except_for_ready(t):
    for words in REMOTE:
        p = t.sluice(*words, "--json", "--server", "127.0.0.1:1")
        check(p.status, 69)
        if words[0] == "ready":
            check(json.loads(p.out)["ready"], False)
        else:
            check(p.out, "")
            check_that("cannot connect to 127.0.0.1:1" in p.err, p.err)


# --- ready --------------------------------------------------------------------


@test
def ready_is_a_health_check(t):
    s, sluice = serve(t)
    check(ok(sluice("ready")), "ready\n")
    check(ok(sluice("ready", "-q")), "")
    check(json.loads(ok(sluice("ready", "--json"))), {"server": "127.0.0.1:%d" % s.port, "ready": True})
    check(s.client()("DRAIN", "*", "ON"), 1)
    p = sluice("ready")
    check((p.status, p.out), (69, ""))
    check_that("is not ready: NOTREADY" in p.err and "drain" in p.err, p.err)
    p = sluice("ready", "-q")
    check((p.status, p.out, p.err), (69, "", ""))
    p = sluice("ready", "--json")
    check((p.status, json.loads(p.out)["ready"], p.err), (69, False, ""))
    check_that("drain" in json.loads(p.out)["reason"], p.out)
    s.kill()
    p = sluice("ready", "-q")
    check((p.status, p.out, p.err), (69, "", ""))
    p = sluice("ready", "--json")
    check((p.status, json.loads(p.out)["ready"], p.err), (69, False, ""))


@test
def ready_gives_up_when_the_server_is_stopped(t):
    s, sluice = serve(t)
    s.signal(signal.SIGSTOP)
    for more in ([], ["-q"], ["--json"]):
        check(sluice("ready", "--timeout", "200ms", *more).status, 69)
    s.signal(signal.SIGCONT)
    ok(sluice("ready"))


# --- watch --------------------------------------------------------------------


def watch(t, s, *words, **more):
    """A watcher that has subscribed."""
    before = s.number("pubsub_clients")
    p = t.begin("watch", *words, env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port}, **more)
    t.until(lambda: s.number("pubsub_clients") == before + 1, "it watches")
    return p


def events(p):
    """Each line without its time."""
    lines = p.out.splitlines()
    for line in lines:
        check_that(re.match(r"\d\d:\d\d:\d\d\.\d{3}  \S", line), "%r begins with a time" % line)
    return [re.split(r"  +", line)[1:] for line in lines]


@test
def watch_prints_each_event_with_its_time(t):
    s, _ = serve(t)
    every, some, one = watch(t, s, "--count", "4"), watch(t, s, "--count", "2", "db:*"), watch(t, s, "--count", "2", "web")
    c = s.client()
    fence = c.acquire("db:a", "LEASE", LEASE)
    web = c.acquire("web")
    check(c("RELEASE", "web", web), 1)
    check(c("BREAK", "db:a", fence), 1)
    check([every.status, some.status, one.status], [0, 0, 0])
    check([e[:2] for e in events(every)],
          [["granted", "db:a"], ["granted", "web"], ["released", "web"], ["broken", "db:a"]])
    check([e[:2] for e in events(some)], [["granted", "db:a"], ["broken", "db:a"]])
    check([e[:2] for e in events(one)], [["granted", "web"], ["released", "web"]])
    check(events(every)[3][2], "%d why=last-lease" % fence)


@test
def watch_json_is_a_document_for_each_event(t):
    s, _ = serve(t)
    p = watch(t, s, "--json", "--count", "2")
    c = s.client()
    fence = c.acquire("db", "LEASE", LEASE)
    check(c("BREAK", "db", fence, "NOW"), 2)
    check(p.status, 0)
    first, second = map(json.loads, p.out.splitlines())
    check_that(abs(first.pop("at_ms") / 1000 - time.time()) < 3600, "the time")
    check(first, {"event": "granted", "key": "db", "fence": fence, "held": 1, "lease_ms": LEASE, "waited_ms": 0})
    check((second["event"], second["fence"]), ("broken", fence))


@test
def watch_reconnects_and_reports_it(t):
    path = t.path("socket")
    s, _ = serve(t, "--socket", path)
    p = t.begin("watch", "--count", "2", "--server", "unix:" + path)
    t.until(lambda: s.number("pubsub_clients") == 1, "it watches")
    c = s.client()
    c.acquire("before")
    p.until_out("before")
    s.kill()
    p.until_out("disconnected")
    s, _ = serve(t, "--socket", path)
    p.until_out("reconnected")
    t.until(lambda: s.number("pubsub_clients") == 1, "it watches again")
    s.client().acquire("after")
    check(p.status, 0)
    check([e[0] for e in events(p)][:3], ["granted", "disconnected", "reconnected"])
    check(events(p)[3][:2], ["granted", "after"], "and the next event")


@test
def watch_stops_by_itself_if_the_password_has_changed(t):
    path = t.path("socket")
    s, _ = serve(t, "--socket", path)
    p = t.begin("watch", "--server", "unix:" + path)
    t.until(lambda: s.number("pubsub_clients") == 1, "it watches")
    s.kill()
    p.until_out("disconnected")
    serve(t, "--socket", path, "--password", "secret word")
    check(p.status, 77)
    check_that("--password-file" in p.err, p.err)


@test
def an_interrupt_ends_watch_as_it_ends_other_programs(t):
    s, _ = serve(t)
    p = watch(t, s)
    p.kill(signal.SIGINT)
    check(p.status, -signal.SIGINT)


@test
def watch_reports_a_pattern_that_the_server_rejects(t):
    s, sluice = serve(t)
    p = sluice("watch", "x*" * 200)
    check(p.status, 64)
    check_that("TOOBIG" in p.err, p.err)


# --- break --------------------------------------------------------------------


@test
def break_ends_the_grant_with_the_lease_or_at_once(t):
    s, sluice = serve(t)
    c = s.client()
    fence = c.acquire("db", "LEASE", LEASE)
    p = sluice("break", "db", "--yes")
    check(p.status, 0)
    check_that("keeps db until its lease expires" in p.out, p.out)
    check(s.explain("db")["held"], 1, "it is still held")
    p = sluice("break", "db", "--yes", "--now")
    check((p.status, "is revoked" in p.out, s.explain("db")["held"]), (0, True, 0))
    p = sluice("break", "db", "--yes")
    check((p.status, p.err), (1, "sluice break: no client holds db\n"))
    p = sluice("break", "db", "--yes", "--fence", str(fence))
    check((p.status, p.err), (1, "sluice break: no client holds db with fence %d\n" % fence))
    fence = c.acquire("db", "LEASE", LEASE)
    check(json.loads(ok(sluice("break", "db", "--yes", "--json"))),
          {"key": "db", "fence": fence, "result": "last-lease"})


@test
def break_needs_a_fence_if_several_clients_hold_the_lock(t):
    s, sluice = serve(t)
    clients = s.clients(2)
    fences = [c.acquire("db", "PER", 3) for c in clients]
    p = sluice("break", "db", "--yes")
    check(p.status, 64)
    for fence in fences:
        check_that("--fence %d" % fence in p.err, p.err)
    check(s.explain("db")["held"], 2, "both are held")
    ok(sluice("break", "db", "--yes", "--fence", str(fences[1])))
    check([h[b"fence"] if b"fence" in h else h["fence"] for h in map(dict_of, s.explain("db")["holders"])],
          [fences[0]])


def dict_of(value):
    return dict(zip(value[::2], value[1::2])) if isinstance(value, list) else value


@test
def break_asks_on_a_terminal_and_needs_yes_elsewhere(t):
    s, sluice = serve(t)
    named(s, "backup-7").acquire("db", "LEASE", LEASE)
    p = sluice("break", "db")
    check(p.status, 64)
    check_that("--yes" in p.err and "backup-7" in p.err and "Nothing was changed" in p.err, p.err)
    for answer in ("no\n", "\n", "y\n", "\x04"):
        status, out = on_terminal(t, s, "break", "db", answer=answer)
        check((status, "nothing was changed" in out), (1, True), answer)
    check(dict_of(s.explain("db")["holders"][0])[b"broken"], 0)
    status, out = on_terminal(t, s, "break", "db", answer="yes\n")
    check(status, 0)
    check_that("keeps the lock until its lease expires" in out, out)
    check(dict_of(s.explain("db")["holders"][0])[b"broken"], 1)


@test
def the_time_for_the_answer_does_not_count_for_the_timeout(t):
    s, _ = serve(t)
    s.client().acquire("db", "LEASE", LEASE)
    master, slave = os.openpty()
    p = t.begin("break", "db", "--timeout", "100ms", stdin=slave, env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
    p.until_err("Type yes")
    time.sleep(1.5)  # longer than the deadline
    os.write(master, b"yes\n")
    check(p.status, 0)


# --- drain --------------------------------------------------------------------


@test
def drain_turns_patterns_on_and_off_and_lists_them(t):
    s, sluice = serve(t)
    check(ok(sluice("drain")), "")
    check(ok(sluice("drain", "db:*", "on")), "db:* is now drained\n")
    check(ok(sluice("drain", "db:*", "ON")), "db:* is already drained\n")
    check(ok(sluice("drain", "-q", "web", "on")), "")
    check(sorted(ok(sluice("drain")).split()), ["db:*", "web"])
    check(sorted(json.loads(ok(sluice("drain", "--json")))["patterns"]), ["db:*", "web"])
    check(s.client()("ACQUIRE", "db:x").word, "DRAINED")
    check(ok(sluice("drain", "db:*", "off")), "db:* is no longer drained\n")
    check(ok(sluice("drain", "db:*", "off")), "db:* was not drained\n")
    check(json.loads(ok(sluice("drain", "web", "off", "--json"))), {"pattern": "web", "on": False, "changed": True})
    check_that(isinstance(s.client()("ACQUIRE", "db:x"), list), "it is granted again")
    status, out = on_terminal(t, s, "drain")
    check((status, out), (0, "no keys are drained\n"))


# --- nodes --------------------------------------------------------------------


@test
def nodes_of_a_server_without_a_cluster_is_an_error(t):
    _s, sluice = serve(t)
    p = sluice("nodes")
    check((p.status, p.out), (64, ""))
    check_that("not a node of a cluster" in p.err, p.err)


def claims(node, version, keeper):
    """A false node of a cluster on etcd, that knows this membership and this keeper."""
    def bulk(text):
        return b"$%d\r\n%s\r\n" % (len(text), text.encode())

    def answer(c, command):
        if b"READY" in command:
            c.sendall(b"+READY\r\n")
        elif b"NODES" in command:
            c.sendall(b"%3\r\n" + bulk("node") + b":%d\r\n" % node + bulk("version") + b":%d\r\n" % version
                      + bulk("nodes") + b"*0\r\n")
        elif b"keeper" in command:
            c.sendall(bulk("# Keeper\r\nengine:etcd\r\nterm:7\r\nkeeper_node:%d\r\n" % keeper))
        else:
            c.sendall(bulk("# Cluster\r\nnode:%d\r\nmembership_version:%d\r\n" % (node, version)))
    return answer


@test
def nodes_says_if_the_servers_do_not_agree(t):
    first = false_server(t, claims(1, 3, 2))
    for second, agreed in ((claims(2, 3, 2), True), (claims(2, 4, 2), False), (claims(2, 3, 1), False)):
        servers = "%s,%s" % (first, false_server(t, second))
        out = ok(t.sluice("nodes", "--server", servers))
        check("the servers report different memberships or keepers\n" not in out, agreed, out)
        check(json.loads(ok(t.sluice("nodes", "--json", "--server", servers)))["agree"], agreed)
        check(rows(out)[first], ["1", "3", "2", "7", "ready"])
    servers = "%s,unix:%s" % (first, t.path("nobody"))
    check_that("report different" not in ok(t.sluice("nodes", "--server", servers)), "one that is down claims nothing")


def address_of(node):
    return "%s:%d" % node.address


@test
def nodes_and_ready_of_a_majority_cluster(t):
    with Cluster(3, server=server_program()) as c:
        every = ",".join(address_of(c[i]) for i in (1, 2, 3))
        t.until(lambda: t.sluice("ready", "--server", address_of(c[1])).status == 0, "node 1 is ready")
        t.until(lambda: " down " not in ok(t.sluice("nodes", "--server", address_of(c[1]))), "all are up")
        out = ok(t.sluice("nodes", "--server", address_of(c[1])))
        check(out.splitlines()[0], "node 1 reports: membership version 1")
        got = rows(out)
        check([got[i][1] for i in "123"], ["self", "up", "up"])
        check_that("keeper" not in out, "there is no keeper")
        Client(c[2].address)("ACQUIRE", "db", "LEASE", LEASE)
        t.until(lambda: "db " in ok(t.sluice("ls", "--server", address_of(c[1]))), "node 1 knows the lock")
        check_that("node 3 has a lease" in ok(t.sluice("explain", "db", "--server", address_of(c[3]))), "the votes")
        c[3].kill()
        t.until(lambda: rows(ok(t.sluice("nodes", "--server", address_of(c[1])))).get("3", [0, 0])[1] == "down",
                "node 3 is down")
        p = t.sluice("nodes", "--server", every)
        check(p.status, 0)
        servers = p.out.split("SERVER", 1)[1].splitlines()[1:]
        check([line.split()[1] for line in servers], ["1", "2", "-"])
        check(["ready" in line for line in servers], [True, True, False])
        check([line.split()[2:5] for line in servers], [["1", "-", "-"], ["1", "-", "-"], ["-", "-", "-"]])
        document = json.loads(ok(t.sluice("nodes", "--json", "--server", every)))
        check([n["state"] for n in document["membership"]["nodes"]], ["self", "up", "down"])
        check([x["ready"] for x in document["servers"]], [True, True, False])
        check(document["keeper"], None)
        ok(t.sluice("ready", "--server", ",".join(address_of(c[i]) for i in (3, 1))))
        c[2].kill()
        t.until(lambda: t.sluice("ready", "--server", address_of(c[1])).status == 69, "node 1 is not ready")
        p = t.sluice("nodes", "resign", "--server", address_of(c[1]))
        check((p.status, "NODES" in p.err), (64, True))


@test
def nodes_ready_and_watch_of_a_cluster_on_etcd(t):
    if etcds.missing():
        raise Skip(etcds.missing())
    with Cluster(3, server=server_program(), etcd=1) as c:
        every = ",".join(address_of(c[i]) for i in (1, 2, 3))

        def keeper():
            document = json.loads(ok(t.sluice("nodes", "--json", "--server", every)))
            return document["keeper"]["node"] if all(x["ready"] for x in document["servers"]) else 0

        first = t.until(keeper, "all nodes are ready")
        out = ok(t.sluice("nodes", "--server", every))
        term = int(re.search(r"keeper: node %d, term (\d+)$" % first, out, re.M).group(1))
        check([line.split()[0] for line in out.splitlines() if line.endswith("  keeper")], [str(first)])
        other = next(i for i in (1, 2, 3) if i != first)
        p = t.sluice("nodes", "resign", "--server", address_of(c[other]))
        check((p.status, "not the keeper" in p.err), (64, True), p.err)
        w = t.begin("watch", "--count", "1", "--server", address_of(c[other]))
        t.until(lambda: Client(c[other].address)("INFO", "clients").decode().count("pubsub_clients:1"), "it watches")
        t.until(lambda: t.sluice("nodes", "resign", "--server", address_of(c[first])).status == 0, "it resigns")
        t.until(lambda: keeper() not in (0, first), "another node is the keeper")
        check(w.status, 0)
        check(events(w)[0][0], "keeper-changed")
        check_that(int(re.search(r"term (\d+)", ok(t.sluice("nodes", "--server", every))).group(1)) > term,
                   "the term has risen")
        check(ok(t.sluice("ls", "--majority", "--server", every)).count("\n"), 1, "only titles")


main(__doc__)
