#!/usr/bin/python3
"""test_limits.py - what a peer can send or leave unread has a limit, with an error that
names the setting; past each of them the server goes on.

    tests/server/test_limits.py SERVER [--jobs N] [PATTERN...]
"""
import fcntl
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (tap, Client, Closed, Error, Failure, check, check_error, check_that, encode, main, pairs,
                  stop, test, test_of)

FOREVER = 10 ** 8
MB = 1 << 20


def last_words(c):
    """What the server said before it hung up; it may be lost if it did not read all of
    what we had sent."""
    return c.until_closed()


# --- What a client could learn of hashes ----------------------------------------------


def pages(c, *words):
    """All replies of a LOCKS, page by page, with their cursors."""
    got, cursor = [], b"0"
    for _ in range(10000):
        cursor, maps = c("LOCKS", *words, "CURSOR", cursor, "COUNT", 7)
        got.append((cursor, [(pairs(m).get("table"), pairs(m)["key"]) for m in maps]))
        if cursor == b"0":
            return got
    raise Failure("LOCKS does not end")


def listings(t, name):
    """What a new server shows after a fixed history."""
    s, c, d = t.server("--data", t.path(name)).with_clients(2)
    for n in range(300):
        c.acquire("key:%d" % (n * n))
    for n in range(0, 300, 3):
        check(c("RELEASE", "key:%d" % (n * n)), 1)
    c("TX.BEGIN")
    for n in range(100):
        check(c("TX.LOCK", "WRITE", "table", "item:%d" % n), "OK")
    for n in range(100):
        d("SUBSCRIBE", "channel:%d" % n)
    return pages(c), pages(c, "TX"), c("PUBSUB", "CHANNELS")


@test
def listings_do_not_depend_on_the_secret_key_of_the_hashes(t):
    """If cursors or the order of keys followed their hashes, a client could find keys that collide."""
    first, again = listings(t, "first"), listings(t, "again")
    check([len(x) > 10 for x in first], [True] * 3)
    for one, other in zip(first, again):
        check(other, one)


# --- Numbers of things --------------------------------------------------------------


def fill(s, count):
    """This many connections, and the one that is reserved for an administrator."""
    some = s.clients(count)
    check([c("PING") for c in some], ["PONG"] * count)
    reserved = s.client()
    check(reserved("PING"), "PONG")
    return some, reserved


@test
def connections_max(t):
    s = t.server("--connections-max", "3")
    (a, b, c), reserved = fill(s, 3)
    d = s.client()
    said = last_words(d)
    check_that(said.startswith(b"-LIMIT ") and b"(connections-max)" in said,
               "it is told: %r" % said)
    check([x("PING") for x in (a, b, c)], ["PONG"] * 3)
    check(s.info(a)["rejected_connections"], "1")
    check(s.info(a)["maxclients"], "3")
    a.acquire("k")
    a.close()
    reserved.close()

    def again():
        e = s.client()
        try:
            return e if not isinstance(e("ACQUIRE", "k"), Error) else None
        except (Closed, OSError):
            return None

    t.until(again, "there is space for another")


@test
def one_connection_is_reserved_for_an_administrator(t):
    s = t.server("--connections-max", "2", "--password", "open sesame")
    some = [s.client(password="open sesame") for _ in range(2)]
    fence = some[0].acquire("k", "LEASE", 60000)
    admin = s.client()
    check_error(admin("INFO"), "NOAUTH")
    check(admin("AUTH", "open sesame"), "OK")
    check(s.number("connected_clients", admin), 3)
    check_error(admin("ACQUIRE", "l"), "LIMIT", "connections-max")
    check_error(admin("SUBSCRIBE", "lock:k"), "LIMIT", "connections-max")
    check(admin("BREAK", "k", fence, "NOW"), 2)
    check(admin("DRAIN", "x*", "ON"), 1)
    last_words(s.client())
    check(admin("CLIENT", "KILL", "ID", some[1]("CLIENT", "ID")), 1)
    t.until(lambda: s.number("connected_clients", admin) == 2, "it is gone")
    admin.acquire("l")  # like any other, now that there is room


@test
def an_idle_connection_does_not_keep_the_administrator_out(t):
    """The flood itself takes the reserved place, and sends nothing more."""
    s = t.server("--connections-max", "3")
    some = s.clients(4)
    check([c("PING") for c in some], ["PONG"] * 4)
    last_words(s.client())
    time.sleep(1.1)
    admin = s.client()
    check(admin("PING"), "PONG")
    check(last_words(some[3]), b"")
    check([c("PING") for c in some[:3]], ["PONG"] * 3)
    check_error(admin("ACQUIRE", "l"), "LIMIT", "connections-max")


@test
def a_client_replaces_an_unauthenticated_one_not_the_administrator(t):
    s = t.server("--connections-max", "3", "--password", "open sesame", "--auth-time", "0")
    good = [s.client(password="open sesame") for _ in range(2)]
    silent = s.client()
    admin = s.client(password="open sesame")
    check(s.number("connected_clients", admin), 4)
    time.sleep(1.1)
    c = s.client(password="open sesame")
    c.acquire("k")
    check(last_words(silent), b"")
    check_error(admin("ACQUIRE", "l"), "LIMIT", "connections-max")


@test
def unauthenticated_clients_do_not_keep_others_out(t):
    """The oldest of them makes way when connections-max are open."""
    s = t.server("--connections-max", "5", "--password", "open sesame", "--auth-time", "0")
    good = s.client(password="open sesame")
    silent = s.clients(4)
    check_error(silent[3]("PING"), "NOAUTH")
    time.sleep(1.1)
    for _ in range(3):
        c = s.client(password="open sesame")
        c.acquire("k%d" % c("CLIENT", "ID"))
    check(last_words(silent[0]), b"")
    check_error(silent[3]("PING"), "NOAUTH")
    check(good("PING"), "PONG")


@test
def connections_max_with_many_clients(t):
    s = t.server("--connections-max", "5")
    kept, reserved = fill(s, 5)
    for _ in range(200):
        s.client().close()
    tried = s.clients(50)
    for d in tried:
        check_that(last_words(d).startswith(b"-LIMIT "), "it is told")
    check([c("PING") for c in kept], ["PONG"] * 5)
    t.until(lambda: s.number("connected_clients", kept[0]) == 6, "no more than that are there")
    check(reserved("PING"), "PONG")


@test
def keys_max(t):
    s, c, other = t.server("--keys-max", "3").with_clients(2)
    for i in range(3):
        c.acquire("k%d" % i)
    check_error(c("ACQUIRE", "k3"), "NOKEYS", "(keys-max)")
    check_error(other("AWAIT", "k3", "HELD", FOREVER), "NOKEYS", "(keys-max)")
    c.acquire("k0", "PER", 2)  # a key that is there
    check(c("RELEASE", "k1"), 1)
    c.acquire("k3")
    check_error(c("ACQUIRE", "k4"), "NOKEYS")
    s.still_well()


@test
def waiters_max(t):
    s, holder, a, b, c = t.server("--waiters-max", "2").with_clients(4)
    holder.acquire("k")
    s.waits(a, "ACQUIRE", "k", "WAIT", FOREVER)
    s.waits(b, "ACQUIRE", "k", "WAIT", FOREVER, count=2)
    check_error(c("ACQUIRE", "k", "WAIT", FOREVER), "WAITERS", "(waiters-max)")
    check_error(c("AWAIT", "k", "FREE", FOREVER), "WAITERS", "(waiters-max)")
    check(c("ACQUIRE", "k"), None, "without WAIT")
    a.close()
    s.until_waiting("k", 1)
    s.waits(c, "ACQUIRE", "k", "WAIT", FOREVER, count=2)


@test
def subscriptions_max(t):
    s, c = t.server("--subscriptions-max", "3").with_clients(1, 3)
    c.subscribe("a", "b")
    c.subscribe("p*", command="PSUBSCRIBE")
    check_error(c("SUBSCRIBE", "c"), "LIMIT", "(subscriptions-max)")
    check_error(c("PSUBSCRIBE", "q*"), "LIMIT", "(subscriptions-max)")
    c.subscribe("b")  # it has that one
    c.send("UNSUBSCRIBE", "a")
    check(c.push(), [b"unsubscribe", b"a", 2])
    c.subscribe("c")
    s.client(3).subscribe("x", "y", "z")  # each connection has its own number


@test
def patterns_max(t):
    s = t.server("--patterns-max", "2")
    a, b = s.client(3), s.client(3)
    a.subscribe("p*", "q*", command="PSUBSCRIBE")
    check_error(b("PSUBSCRIBE", "r*"), "LIMIT", "(patterns-max)")
    b.subscribe("p*", command="PSUBSCRIBE")  # it is there already
    b.subscribe("channels", "are", "not", "patterns")
    a.close()
    t.until(lambda: s.client()("PUBSUB", "NUMPAT") == 1, "a's are gone")
    b.subscribe("r*", command="PSUBSCRIBE")


@test
def drains_max(t):
    c = t.server("--drains-max", "2").client()
    check([c("DRAIN", "a*", "ON"), c("DRAIN", "b*", "ON")], [1, 1])
    got = c("DRAIN", "c*", "ON")
    check_that(isinstance(got, Error) and "(drains-max)" in got, "it is refused: %r" % (got,))
    check(c("DRAIN", "a*", "ON"), 0, "one that is there")
    check(c("DRAIN", "a*", "OFF"), 1)
    check(c("DRAIN", "c*", "ON"), 1)


@test
def lease_max(t):
    c = t.server("--lease-max", "60s").client()
    for got in (c("ACQUIRE", "k", "LEASE", 60001), c("ACQUIRE", "k", "LEASE", FOREVER)):
        check_error(got, "TOOBIG", "LEASE must be a duration from 1ms to 1m (lease-max),", "(got")
    check_error(c("ACQUIRE", "k", "LEASE", "soon"), "ERR", "1m (lease-max)", '"soon"')
    fence = c.acquire("k", "LEASE", 60000)
    got = c("EXTEND", "k", fence, 60001)
    check_error(got, "TOOBIG", "from 1ms to 1m (lease-max),", '(got "60001")')
    check(c("CHECK", "k", fence), 1)
    check(c("EXTEND", "k", fence, 60000), 60000)


# --- Numbers of bytes ------------------------------------------------------------------


@test
def key_bytes_max(t):
    s, c = t.server("--key-bytes-max", "10").with_clients(1)
    long = "k" * 11
    text = Error("TOOBIG the key has 11 bytes; the limit is 10 (key-bytes-max)")
    check(c("ACQUIRE", long), text)
    check(c("AWAIT", long, "HELD", FOREVER), text)
    for command in (("RELEASE", long), ("CHECK", long, 5), ("READ", long), ("BREAK", long, 5),
                    ("EXTEND", long, 5, 1000), ("EXPLAIN", long), ("RELEASE", long, 5)):
        got = c(*command)
        check_that(got == text or got in (0, None) or isinstance(got, (Error, list)),
                   "%r does no harm: %r" % (command, got))
    fence = c.acquire("k" * 10)
    check(c("RELEASE", "k" * 10, fence), 1)


@test
def pattern_bytes_max(t):
    c = t.server("--pattern-bytes-max", "10").client(3)
    long, short = "p" * 11, "p" * 10
    for command in (("PSUBSCRIBE", long), ("DRAIN", long, "ON"), ("LOCKS", "MATCH", long)):
        check_error(c(*command), "TOOBIG", "(pattern-bytes-max)")
    check(c("LOCKS", "MATCH", short), [b"0", []])
    check(c("DRAIN", short, "ON"), 1)
    c.subscribe(short, command="PSUBSCRIBE")


@test
def a_broken_stream_does_not_affect_other_clients(t):
    """The reader of a client that broke off is not reused by another."""
    s = t.server()
    for bad in (b"*9999999\r\n", b"*1\r\n$x\r\n", b"*1\r\n$99999999\r\n", b'"\r\n'):
        c = s.client()
        c.send_raw(bad)
        c.reply()
        check(s.client()("PING"), "PONG", "after %r" % bad)


@test
def what_belongs_to_MULTI_is_not_done(t):
    s, c = t.server().with_clients(1)
    for words in (("MULTI",), ("ACQUIRE", "k"), ("EXEC",)):
        c.send(*words)
    check([c.reply().word for _ in range(3)], ["ERR", "ERR", "EXECABORT"])
    check(s.holders("k"), 0)
    check_that(c("ACQUIRE", "k") is not None, "and then it goes on")


@test
def a_log_that_nobody_reads_delays_nobody(t):
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 2)
        os.execv(tap.program, [tap.program, "--port", str(port)])
    try:
        def listens():
            with socket.socket() as c:
                return c.connect_ex(("127.0.0.1", port)) == 0
        t.until(listens, "it listens")
        flags = fcntl.fcntl(write, fcntl.F_GETFL)
        fcntl.fcntl(write, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            while True:
                os.write(write, b"x" * 512)
        except BlockingIOError:
            pass
        fcntl.fcntl(write, fcntl.F_SETFL, flags)
        for _ in range(3):  # lines that a peer causes
            with socket.create_connection(("127.0.0.1", port)) as c:
                c.sendall(b"*x\r\n")
                c.settimeout(20)
                check_that(c.recv(100).startswith(b"-ERR"), "it is answered")
            time.sleep(1.1)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


@test
def patterns_that_are_hard_to_match_cost_little(t):
    """A pattern of many stars, and a name that almost matches."""
    s = t.server("--pattern-bytes-max", "1k", "--linger", "1h")
    c, sub = s.client(), s.client()
    name, hard = "a" * 1000, "*a" * 60 + "b"
    for i in range(20):
        c.acquire(name[i:])
    sub.subscribe(hard, command="PSUBSCRIBE")
    before = s.cpu_s()
    cursor = b"0"
    while True:  # as many calls as it takes: one may not compare for long
        cursor, found = c("LOCKS", "MATCH", hard, "COUNT", 1000, "CURSOR", cursor)
        check(found, [])
        if cursor == b"0":
            break
    check(c("DRAIN", hard, "ON"), 1)
    check(c("RELEASE", name), 1)
    c.acquire(name)
    check(c("PUBSUB", "CHANNELS", hard), [])
    check_that(s.cpu_s() - before < 0.5, "it took %.2f s of the processor" % (s.cpu_s() - before))


@test
def the_key_limit_that_is_set_by_itself(t):
    c = t.server().client()
    check(c("ACQUIRE", "k" * 1025), Error("TOOBIG the key has 1025 bytes; the limit is 1024 (key-bytes-max)"))
    c.acquire("k" * 1024)


@test
def value_bytes_max(t):
    c = t.server("--value-bytes-max", "10").client()
    for option in ("VALUE", "NOTE"):
        check_error(c("ACQUIRE", "k", option, "v" * 11), "TOOBIG", "10", "(value-bytes-max)")
    check(c("READ", "k"), None)
    fence = c.acquire("k", "VALUE", "v" * 10, "NOTE", "n" * 10, "LEASE", 60000)
    check_error(c("EXTEND", "k", fence, 60000, "VALUE", "v" * 11), "TOOBIG", "(value-bytes-max)")
    check(c("READ", "k")[0], b"v" * 10)


def check_too_big(t, option, value, good, bad, words=()):
    s, c = t.server(option, value, *words).with_clients(1)
    check_that(not isinstance(c(*good), Error), "what is just within %s is taken" % option)
    c.send(*bad)
    got = c.reply()
    check_error(got, "TOOBIG", option[2:])
    last_words(c)
    s.still_well()


test_of("argument_bytes_max", check_too_big, "--argument-bytes-max", "100",
        ("PING", "x" * 100), ("PING", "x" * 101))
test_of("args_max", check_too_big, "--args-max", "8",
        ("COMMAND", "INFO") + ("c",) * 6, ("COMMAND", "INFO") + ("c",) * 7)
test_of("command_bytes_max", check_too_big, "--command-bytes-max", "200",
        ("ECHO", "y" * 100), ("COMMAND", "a" * 100, "b" * 100), ("--argument-bytes-max", "100"))


@test
def a_line_that_never_ends_is_cut_off(t):
    s, c = t.server("--command-bytes-max", "1000", "--argument-bytes-max", "1000").with_clients(1)
    c.send_raw(b"PING " + b"x" * 900 + b"\r\n")
    check(c.reply(), b"x" * 900)
    c.send_raw(b"y" * 1100)
    said = last_words(c)
    check_that(b"" == said or b"protocol error" in said, "it is told: %r" % said)
    s.still_well()


# --- What is not read ------------------------------------------------------------------


@test
def output_bytes_max_of_a_subscriber_that_does_not_read(t):
    s = t.server("--output-bytes-max", "256k", "--linger", "0")
    sub, c, ask = s.deaf(), s.client(), s.client()
    sub.subscribe("lock:*", command="PSUBSCRIBE")
    before = s.rss_bytes()
    key = "k" * 1000
    pair = encode(["ACQUIRE", key]) + encode(["RELEASE", key])
    sent = 0
    while s.number("output_limit_closes", ask) == 0:
        check_that(sent < 400 * MB, "after %d MB of events it is disconnected" % (sent // MB))
        c.send_raw(pair * 50)
        for _ in range(50):
            c.reply(), c.reply()
        sent += 50 * 2 * 1100
    check(s.number("output_limit_closes", ask), 1)
    s.until_log("output-bytes-max")
    check_that(s.rss_bytes() - before < 16 * MB, "memory stays small")
    check(s.number("pubsub_clients", ask), 0)
    sub.until_closed()
    check(c("PING"), "PONG")


@test
def a_reply_above_output_bytes_max_closes_its_connection(t):
    s, c, d = t.server("--output-bytes-max", "64k").with_clients(2)
    for i in range(200):
        c.acquire("%0999d" % i)
    c.send("LOCKS", "COUNT", 1000)
    c.until_closed()
    check(s.number("output_limit_closes", d), 1)
    check(s.number("connected_clients", d), 1)


@test
def a_client_that_pipelines_and_does_not_read_is_waited_for(t):
    """It is not read from meanwhile, so what it makes us keep is bounded."""
    s = t.server()
    c, ask = s.deaf(), s.client()
    before = s.rss_bytes()
    ping = encode(["ECHO", "x" * 1000])
    block = ping * 100
    c.socket.setblocking(False)
    sent, stuck_since = 0, time.monotonic()
    while sent < 256 * MB:
        try:
            n = c.socket.send(block[sent % len(ping):])
            sent += n
            stuck_since = time.monotonic()
        except BlockingIOError:
            if time.monotonic() - stuck_since > 0.5:
                break
            time.sleep(0.01)
    check_that(sent < 256 * MB, "the server stops reading")
    check(ask("PING"), "PONG", "another is answered")
    check_that(s.rss_bytes() - before < 24 * MB, "memory stays small: %d" % s.rss_bytes())
    whole = sent // len(ping)
    c.socket.setblocking(True)
    c.socket.settimeout(30)
    reply = b"$1000\r\n" + b"x" * 1000 + b"\r\n"
    for _ in range(whole):
        check_that(c.exactly(len(reply)) == reply, "the replies are whole and in order")
    s.still_well()


# --- Memory -----------------------------------------------------------------------------


def fill_with_locks(c, limit=200000):
    """Locks with values, until it is rejected; the reply, and how many there are."""
    value, batch, count = "v" * 3500, 50, 0
    while count < limit:
        c.send_raw(b"".join(encode(["ACQUIRE", "k%d" % (count + j), "LEASE", 3600000, "VALUE", value, "NOTE", value])
                            for j in range(batch)))
        bad = [got for got in [c.reply() for _ in range(batch)] if isinstance(got, Error)]
        count += batch - len(bad)
        if bad and batch == 1:
            return bad[0], count
        if bad:
            batch = 1  # the buffers of a batch were counted, too
    raise Failure("nothing was rejected")


@test
def memory_max_of_locks(t):
    s, c, other = t.server("--memory-max", "32m").with_clients(2)
    sub = s.client()
    fence = c.acquire("first", "LEASE", 60000, "VALUE", "x")
    before = s.rss_bytes()
    error, count = fill_with_locks(c)
    check_error(error, "LIMIT", "33554432 bytes", "(memory-max)")
    check_that(count > 1000, "%d locks fit" % count)
    check_that(s.rss_bytes() - before < 64 * MB, "32 MB of locks take %d MB" % ((s.rss_bytes() - before) // MB))
    check_error(other("ACQUIRE", "new"), "LIMIT", "(memory-max)")
    check_error(other("AWAIT", "new", "HELD", FOREVER), "LIMIT", "(memory-max)")
    check_error(sub("SUBSCRIBE", "lock:new"), "LIMIT", "(memory-max)")
    check_error(c("EXTEND", "first", fence, 60000, "VALUE", "y" * 100), "LIMIT", "(memory-max)")
    check(c("EXTEND", "first", fence, 60000), 60000, "EXTEND")
    check(other("READ", "first")[0], b"x")
    check(other("DRAIN", "z*", "ON"), 1)
    check(s.info(other)["maxmemory"], str(32 * MB))
    check_that(s.number("memory_rejections", other) > 3, "rejections are counted")
    for i in range(count // 2):
        check(other("RELEASE", "k%d" % i, other("READ", "k%d" % i)[1]), 1)
    t.until(lambda: not isinstance(other("ACQUIRE", "new", "PER", 1000), Error), "what is free can be used")


@test
def memory_is_returned_after_a_flood(t):
    s, pairs = t.server("--linger", "0").with_clients(1)
    before = s.rss_bytes()
    pairs.acquire("mine")
    c = s.client()
    kept = []
    value = "v" * 3500
    for i in range(0, 12000, 50):
        c.send_raw(b"".join(encode(["ACQUIRE", "k%d" % (i + j), "VALUE", value, "NOTE", value]) for j in range(50)))
        check_that(all(c.reply() for _ in range(50)), "granted")
        if i % 1000 == 0:
            kept.append(pairs.acquire("kept%d" % i, "LEASE", 3600000))  # between the others, in memory
    peak = s.rss_bytes()
    check_that(peak - before > 64 * MB, "the flood takes %d MB" % ((peak - before) // MB))
    c.close()
    t.until(lambda: s.rss_bytes() - before < (peak - before) // 4, "the memory is returned")
    check(pairs("RELEASE", "mine"), 1)


def check_grants_without(t, some, ask):
    """When these have gone, another is granted a lock."""
    for c in some:
        c.close()
    t.until(lambda: not isinstance(ask("ACQUIRE", "k", "PER", 1000), Error), "when they are gone it grants")


def deaf_in_transactions(s, count):
    """Connections that take little, each in a transaction."""
    some = [s.deaf() for _ in range(count)]
    for c in some:
        c("TX.BEGIN")
    return some


@test
def memory_max_of_output_that_is_not_read(t):
    """The connection with the most of it is closed; one with less is not."""
    s, ask = t.server("--memory-max", "24m", "--data", t.path("data"), "--linger", "0").with_clients(1)
    fill_table(ask, 450)
    some = []
    for i in range(20):
        c = s.deaf()
        some.append(c)
        c.send("TX.BEGIN")
        c.reply()
        c.send("TX.SCAN", "flood")
        t.until(lambda: s.number("client_bytes", ask) > (i + 1) * MB or s.number("memory_closes", ask) > 0,
                "its reply is kept")
        if s.number("memory_closes", ask) > 0:
            break
    check_that(s.number("memory_closes", ask) > 0, "one is closed")
    s.until_log("memory-max")
    t.until(lambda: s.number("client_bytes", ask) <= 24 * MB * 17 // 16, "it is within the limit")
    check_grants_without(t, some, ask)


def fill_table(client, rows):
    """A table of this many rows of 16 KB each."""
    check_that(not isinstance(client("TX.BEGIN"), Error), "a transaction")
    for i in range(rows):
        check(client("TX.PUT", "flood", "k%d" % i, "v" * 16000), "OK")
    check_that(client("TX.COMMIT") > 0, "committed")


def peak_bytes(s):
    with open("/proc/%d/status" % s.pid) as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


@test
def memory_max_of_scans_at_once(t):
    """The store reads faster than the loop sends: it is asked for a few scans at a time."""
    s, ask = t.server("--memory-max", "24m", "--data", t.path("data"), "--linger", "0").with_clients(1)
    fill_table(ask, 450)
    some = deaf_in_transactions(s, 80)
    for c in some:
        c.send("TX.SCAN", "flood")
    t.until(lambda: s.number("memory_closes", ask) + s.number("memory_rejections", ask) > 60,
            "most of them are closed or rejected")
    check_that(peak_bytes(s) < 160 * MB, "%d bytes of memory at most" % peak_bytes(s))
    check_grants_without(t, some, ask)


@test
def memory_that_is_kept_for_a_reply_is_what_is_not_sent(t):
    """The system takes the larger part of each reply, and the client reads nothing."""
    s, ask = t.server("--memory-max", "64m", "--data", t.path("data"), "--linger", "0").with_clients(1)
    fill_table(ask, 200)
    some = deaf_in_transactions(s, 100)
    for c in some:
        c.send("TX.SCAN", "flood")
    t.until(lambda: s.number("transaction_locks", ask) >= 100 or s.number("memory_closes", ask) > 0, "all are sent")
    t.until(lambda: s.number("blocked_clients", ask) == 0, "all are answered")
    kept, counted = s.rss_bytes(), s.number("client_bytes", ask)
    check_that(kept < 2 * counted + 64 * MB, "%d bytes of memory for %d that are counted" % (kept, counted))
    for c in some:
        c.close()


@test
def memory_max_of_partial_commands(t):
    s, ask = t.server("--memory-max", "8m").with_clients(1)
    some = s.clients(400)
    part = encode(["ECHO"] + ["x" * 16000] * 3)[:-100]
    for c in some:
        try:
            c.send_raw(part)
        except OSError:
            pass
    t.until(lambda: s.number("memory_closes", ask) > 100, "most of them are closed")
    t.until(lambda: s.number("client_bytes", ask) <= 8 * MB * 17 // 16, "it is within the limit")
    s.until_log("memory-max")
    check_grants_without(t, some, ask)


@test
def before_AUTH_partial_commands_take_little_memory(t):
    s = t.server("--password", "open sesame")
    some = s.clients(1000)
    ask = s.client(password="open sesame")
    before = s.rss_bytes()
    part = encode(["AUTH", "x" * 900])[:-50]
    for c in some:
        c.send_raw(part)
    t.until(lambda: s.number("client_bytes", ask) > 1000 * 1000, "they are read")
    used = s.rss_bytes() - before
    check_that(used < 4 * MB, "a thousand partial commands take %d bytes" % used)
    some[0].send_raw(b"y" * 60 + b"\r\n")
    got = some[0].reply()
    check_that(isinstance(got, Error), "it goes on: %r" % got)


@test
def memory_max_0_is_no_limit(t):
    s, c = t.server("--memory-max", "0").with_clients(1)
    c.acquire("k")
    check(s.info(c)["maxmemory"], "0")


@test
def memory_max_by_itself_is_a_share_of_the_machine(t):
    s = t.server()
    with open("/proc/meminfo") as f:
        total = int(f.readline().split()[1]) * 1024
    got = int(s.info()["maxmemory"])
    check_that(0 < got <= total // 4, "%d of %d" % (got, total))


# --- Time ---------------------------------------------------------------------------------


def in_time(s, f):
    """A connection that said f(c) before its time was over, and what came of it. If the
    machine stalls, another one."""
    for _ in range(5):
        c = s.client()
        try:
            return c, f(c)
        except (Closed, OSError):
            pass
    raise Failure("no connection lives long enough to be used")


@test
def idle_time_spares_holders_waiters_and_subscribers(t):
    """A13: we do not hang up for idleness on a holder without a lease."""
    s = t.server("--idle-time", "1s", "--linger", "0")
    start = time.monotonic()
    holder, fence = in_time(s, lambda c: c.acquire("k"))
    waiter, _ = in_time(s, lambda c: c.send("ACQUIRE", "k", "WAIT", FOREVER))
    listener, _ = in_time(s, lambda c: c.subscribe("lock:x"))
    leased, lease = in_time(s, lambda c: c.acquire("l", "LEASE", 600000, "PER", 10))
    idle, _ = in_time(s, lambda c: c("PING"))
    check(last_words(idle), b"")
    check_that(time.monotonic() - start >= 1.0, "not before its time")
    last_words(leased)
    s.until_log("idle-time")
    time.sleep(2.5)  # the others had their time, twice
    c = s.client()
    check(c("CHECK", "k", fence), 1)
    check(c("CHECK", "l", lease), 1, "a lease outlives its connection")
    check(holder("RELEASE", "k"), 1)
    waiter.reply()
    check(listener("PING"), [b"pong", b""])


@test
def a_connection_that_speaks_is_not_idle(t):
    s, c = t.server("--idle-time", "1500ms").with_clients(1)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        asked = time.monotonic()
        try:
            check(c("PING"), "PONG")
        except Closed:
            if time.monotonic() - asked < 1:
                raise
            return  # the machine stalled
        time.sleep(0.1)


@test
def auth_time(t):
    s = t.server("--password", "pw", "--auth-time", "1s")
    good, _ = in_time(s, lambda c: check(c("AUTH", "pw"), "OK"))
    start = time.monotonic()
    silent = s.client()
    talker, _ = in_time(s, lambda c: check_error(c("PING"), "NOAUTH"))
    last_words(silent)
    check_that(time.monotonic() - start >= 1.0, "not before its time")
    last_words(talker)
    time.sleep(0.5)
    check(good("PING"), "PONG")


@test
def a_byte_now_and_then_does_not_stretch_auth_time(t):
    """Slow loris."""
    s, c = t.server("--password", "pw", "--auth-time", "1s").with_clients(1)
    give_up = time.monotonic() + 25
    try:
        for b in encode(["PING", "x" * 2000]):
            c.send_raw(bytes([b]))
            if select.select([c.socket], [], [], 0.1)[0] and not c.socket.recv(100):
                break
            check_that(time.monotonic() < give_up, "it is disconnected")
    except (BrokenPipeError, ConnectionResetError):
        pass
    check_that(s.process.running, "the server runs")


@test
def RESET_does_not_stretch_auth_time(t):
    s, c = t.server("--password", "open sesame", "--auth-time", "1s").with_clients(1)
    give_up = time.monotonic() + 25
    try:
        while c("RESET") == "RESET":
            check_that(time.monotonic() < give_up, "it is disconnected")
            time.sleep(0.05)
    except (Closed, OSError):
        pass
    s.until_log("auth-time")


@test
def RESET_after_AUTH_begins_auth_time_anew(t):
    s = t.server("--password", "open sesame", "--auth-time", "2s")
    c, _ = in_time(s, lambda c: check(c("AUTH", "open sesame"), "OK"))
    time.sleep(2.5)
    check(c("RESET"), "RESET")
    check(c("AUTH", "open sesame"), "OK")


@test
def a_hundred_slow_senders_delay_nobody(t):
    """Slow loris."""
    s = t.server()
    slow = s.clients(100)
    stream = encode(["ECHO", "hello"])
    c = s.client()
    for b in range(len(stream)):
        for x in slow:
            x.send_raw(stream[b:b + 1])
        check(c("PING"), "PONG")
    check({x.reply() for x in slow}, {b"hello"})


# --- Passwords ---------------------------------------------------------------------------


@test
def before_AUTH_nothing_else_is_answered(t):
    s, c = t.server("--password", "open sesame").with_clients(1)
    for words in (("PING",), ("ACQUIRE", "k"), ("INFO",), ("SUBSCRIBE", "lock:k"), ("SHUTDOWN",),
                  ("CLIENT", "LIST"), ("CONFIG", "GET", "*"), ("LOCKS",), ("DRAIN", "*", "ON"),
                  ("NOSUCH",), ("HELLO", "3")):
        check_error(c(*words), "NOAUTH")
    check(c("AUTH", "open sesame"), "OK")
    check(c("PING"), "PONG")
    c.acquire("k")
    check(s.info(c)["grants"], "1")
    check(c("DRAIN"), [])


def check_before_auth(t, words, setting):
    """The limit holds before AUTH, and no more after it, also within one packet."""
    s, c = t.server("--password", "open sesame").with_clients(1)
    c.send(*words)
    check_error(c.reply(), "TOOBIG", "(%s)" % setting)
    last_words(c)
    c = s.client()
    c.send_raw(encode(["AUTH", "open sesame"]) + encode(words))
    check(c.reply(), "OK")
    got = c.reply()
    check_that(not isinstance(got, Error) or got.word != "TOOBIG", "after AUTH: %r" % (got,))
    check(c("RESET"), "RESET")
    c.send(*words)
    check_error(c.reply(), "TOOBIG", "(%s)" % setting)
    s.client().close()


test_of("auth_args_max", check_before_auth, ("COMMAND", "DOCS") + ("acquire",) * 100, "auth-args-max")
test_of("auth_bytes_max_of_an_argument", check_before_auth, ("PING", "x" * 2000), "auth-bytes-max")
test_of("auth_bytes_max_of_a_command", check_before_auth, ("ECHO", "x" * 600, "y" * 600), "auth-bytes-max")


@test
def before_AUTH_a_pipeline_of_small_commands_is_read(t):
    """More than a connection may keep before AUTH, but nothing of it is too large."""
    s, c = t.server("--password", "open sesame").with_clients(1)
    c.send_raw(encode(["PING", "x" * 800]) * 20 + encode(["AUTH", "open sesame"]) + encode(["ECHO", "y" * 9000]))
    for _ in range(20):
        check_error(c.reply(), "NOAUTH")
    check(c.reply(), "OK")
    check(c.reply(), b"y" * 9000)


@test
def before_AUTH_there_is_no_COMMAND(t):
    """Its answer is a thousand times as long as the question."""
    c = t.server("--password", "open sesame").client()
    check_error(c("COMMAND"), "NOAUTH")
    check_error(c("COMMAND", "DOCS"), "NOAUTH")
    check(c("AUTH", "open sesame"), "OK")
    check_that(len(c("COMMAND")) > 10, "after it there is")


@test
def a_password_that_AUTH_cannot_carry_is_rejected(t):
    p = t.failing("--password", "x" * 600)
    check_that("auth-bytes-max" in p.err, "it says why: %r" % p.err)


@test
def AUTH_right_and_wrong(t):
    s = t.server("--password", "secret", "--auth-delay", "0")
    for words in (("secre",), ("secretx",), ("",), ("s",), ("SECRET",), ("secret\0",), ("secret ",),
                  (b"\xff" * 500,), ("somebody", "secret"), ("default", "wrong"), ("secret", "")):
        c = s.client()
        check_error(c("AUTH", *words), "WRONGPASS")
        check_error(c("PING"), "NOAUTH")
        c.close()
    for words in (("AUTH", "secret"), ("AUTH", "default", "secret"), ("auth", "secret")):
        c = s.client()
        check(c(*words), "OK")
        check(c("PING"), "PONG")
        check(c("RESET"), "RESET")
        check_error(c("PING"), "NOAUTH")
    c = s.client()
    check_error(c("HELLO", "3", "AUTH", "default", "secre"), "WRONGPASS")
    check_error(c("PING"), "NOAUTH")
    check(c("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "n")[b"proto"], 3)
    check(c("CLIENT", "GETNAME"), b"n")
    check_error(c("AUTH", "wrong"), "WRONGPASS")


@test
def a_password_from_a_file(t):
    path = t.write("password", "from file\n", 0o600)
    s, c = t.server("--password-file", path).with_clients(1)
    check_error(c("AUTH", "from file\n"), "WRONGPASS")
    check(c("AUTH", "from file"), "OK")
    check(c("PING"), "PONG")


def guess(s, count):
    """This many wrong passwords, each from a new connection."""
    for i in range(count):
        c = s.client()
        check_error(c("AUTH", "guess%d" % i), "WRONGPASS")
        c.close()


@test
def guessing_passwords_takes_longer_each_time(t):
    s, good = t.server("--password", "open sesame", "--auth-delay", "20s").with_clients(1)
    check(good("AUTH", "open sesame"), "OK")
    start = time.monotonic()
    guess(s, 8)  # four are free; then 25, 50, 100 and 200 ms
    check_that(time.monotonic() - start >= 0.375, "eight guesses took %.3f s" % (time.monotonic() - start))
    check(s.number("auth_delays", good), 4)
    check(s.number("auth_failures", good), 8)
    c = s.client()
    start = time.monotonic()
    c.send("AUTH", "open sesame")
    check(good("PING"), "PONG", "who has authenticated is not delayed")
    check(c.reply(), "OK", "a right password is taken after the same delay")
    check_that(time.monotonic() - start >= 0.2, "it waited as long as a wrong one")
    check(c("PING"), "PONG")


@test
def a_HELLO_with_a_password_is_delayed_as_well(t):
    s = t.server("--password", "open sesame", "--auth-delay", "20s")
    for _ in range(6):
        c = s.client()
        check_error(c("HELLO", "3", "AUTH", "default", "guess"), "WRONGPASS")
    check(c("HELLO", "3", "AUTH", "default", "open sesame")[b"proto"], 3)
    check(s.number("auth_delays", c), 3)


@test
def a_pipeline_behind_a_delayed_AUTH_keeps_its_order(t):
    s = t.server("--password", "open sesame", "--auth-delay", "20s")
    guess(s, 6)
    c = s.client()
    c.send_raw(encode(["AUTH", "guess"]) + encode(["PING"]) + encode(["AUTH", "open sesame"]) + encode(["ECHO", "x"]))
    check_error(c.reply(), "WRONGPASS")
    check_error(c.reply(), "NOAUTH")
    check(c.reply(), "OK")
    check(c.reply(), b"x")


@test
def another_address_is_not_delayed(t):
    s = t.server("--password", "open sesame", "--auth-delay", "20s")
    guess(s, 7)
    c = Client.__new__(Client)
    c.socket = socket.create_connection(s.address, source_address=("127.0.0.2", 0), timeout=30)
    c.buffer, c.pushes, c.protocol = b"", [], 2
    check(c("AUTH", "open sesame"), "OK")
    check(s.number("auth_delays", c), 3)


@test
def auth_waiting_max(t):
    """More guesses of one address at a time are rejected, and not compared with the password."""
    s = t.server("--password", "open sesame", "--auth-delay", "20s", "--auth-waiting-max", "4")
    good = s.client(password="open sesame")
    guess(s, 9)
    some = s.clients(10)
    stop(t, s.pid)
    for c in some:
        c.send("AUTH", "open sesame")
    s.signal(signal.SIGCONT)
    got = [c.reply() for c in some]
    check(got.count("OK"), 4, "four of them wait, and are let in")
    for error in [g for g in got if isinstance(g, Error)]:
        check_error(error, "LIMIT", "4 AUTH commands", "(auth-waiting-max)")
    check(s.number("blocked_clients", good), 0)


@test
def a_client_that_leaves_during_a_delayed_AUTH_is_forgotten(t):
    s = t.server("--password", "open sesame", "--auth-delay", "20s", "--auth-waiting-max", "4")
    good = s.client(password="open sesame")
    guess(s, 9)
    for _ in range(3):
        some = s.clients(4)
        for c in some:
            c.send("AUTH", "guess")
        t.until(lambda: s.number("blocked_clients", good) > 0, "they wait")
        for c in some:
            c.close()
        t.until(lambda: s.number("blocked_clients", good) == 0, "they are gone")
    check(s.client()("AUTH", "open sesame"), "OK")


@test
def a_short_password_is_not_for_addresses_beyond_this_machine(t):
    p = t.failing("--bind", "0.0.0.0", "--password", "1234567")
    check_that("at least 8 bytes" in p.err, "it says why: %r" % p.err)
    t.server("--bind", "0.0.0.0", "--password", "12345678")
    t.server("--bind", "127.0.0.1", "--password", "1")


BEYOND = ("0.0.0.0", "::", "127.0.0.1,0.0.0.0", "192.0.2.1", "::1,::")


def check_refused(t, bind):
    p = t.failing("--bind", bind)
    check_that(p.status in (1, 2), "it does not start: %d" % p.status)
    check_that("password" in p.err, "it says what to do: %r" % p.err)
    check_that("ready: sluice" not in p.err, "it was not ready")


for bind in BEYOND:
    test_of("beyond_this_machine_only_with_a_password_%s" % bind, check_refused, bind)


@test
def with_a_password_it_listens_beyond_this_machine(t):
    s = t.server("--bind", "127.0.0.1,127.0.0.2", "--password", "pw")
    check(s.client()("AUTH", "pw"), "OK")
    t.server("--bind", "0.0.0.0", "--password", "long enough")  # is ready


@test
def other_loopback_addresses_need_no_password(t):
    s = t.server("--bind", "127.0.0.1,127.0.0.5")
    check(s.client()("PING"), "PONG")


# --- Garbage ------------------------------------------------------------------------------


HUGE = (b"*1000000000\r\n", b"*99999999999999999999\r\n", b"*2147483647\r\n$1\r\n",
        b"*1\r\n$1000000000\r\n", b"*1\r\n$99999999999999999999\r\n", b"*1\r\n$-5\r\n",
        b"*1\r\n$x\r\n", b"*x\r\n", b"*1\r\n:5\r\n", b"*1\r\n$4\r\nPINGxx", b"*1\r\n*1\r\n",
        b"*1\r\n$18446744073709551615\r\n", b"*" + b"1" * 100, b"*1\r\n$" + b"0" * 100)


@test
def a_broken_stream_gets_an_error_and_is_closed(t):
    s = t.server()
    for data in HUGE:
        c = s.client()
        c.send_raw(data)
        said = last_words(c)
        check_that(said.startswith((b"-ERR protocol error", b"-TOOBIG ")) and said.endswith(b"\r\n"),
                   "%r is answered with %r" % (data[:40], said))
    s.still_well()


@test
def announced_lengths_take_no_memory(t):
    s = t.server()
    kept = s.clients(300)
    kept[0]("PING")
    before = s.rss_bytes()
    for c in kept:
        c.send_raw(b"*1000\r\n$16384\r\nx")
    ask = s.client()
    t.until(lambda: s.number("total_commands_processed", ask) > 0, "it answers")
    check(ask("PING"), "PONG")
    used = s.rss_bytes() - before
    check_that(used < 16 * MB, "300 announcements take %d bytes" % used)


@test
def half_a_command_is_waited_for_and_given_up_with_its_connection(t):
    s, c, ask = t.server().with_clients(2)
    whole = encode(["ACQUIRE", "k", "WAIT", "100"])
    for cut in range(1, len(whole)):
        d = s.client()
        d.send_raw(whole[:cut])
        d.close()
    t.until(lambda: s.number("connected_clients", ask) == 2, "they are gone")
    check(s.number("grants", ask), 0)
    c.send_raw(whole[:10])
    check(ask("PING"), "PONG")
    c.send_raw(whole[10:])
    check(c.reply()[1], 1)


@test
def garbage_does_no_harm(t):
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    s = t.server("--linger", "0")
    words = [b"*3\r\n", b"$7\r\nACQUIRE\r\n", b"$1\r\nk\r\n", b"$-1\r\n", b"\r\n", b"PING\r\n",
             b"*0\r\n", b"\0", b"\xff" * 9, b"$4\r\nWAIT\r\n", b"'", b'"', b"*1\r\n", b"+OK\r\n",
             b"SUBSCRIBE a\r\n", b"HELLO 3\r\n", b"RESET\r\n", b"LOCKS\r\n", b"EXPLAIN k\r\n",
             b"ACQUIRE k\r\n", b"RELEASE k\r\n", b":1\r\n", b">1\r\n", b"DRAIN * OFF\r\n"]
    for i in range(300):
        c = s.client()
        data = b"".join(draw.choice(words) if draw.random() < 0.8 else draw.randbytes(draw.randrange(40))
                        for _ in range(draw.randrange(1, 40)))
        try:
            c.send_raw(data)
        except OSError:
            pass
        if draw.random() < 0.5:
            c.close()
        else:
            c.reset()
        check_that(s.process.running, "seed %d, round %d: the server runs" % (seed, i))
    s.still_well()
    ask = s.client()
    t.until(lambda: s.number("connected_clients", ask) == 1, "they are gone (seed %d)" % seed)
    t.until(lambda: s.number("keys", ask) == 0, "nothing is held (seed %d)" % seed)


@test
def a_browser_is_disconnected(t):
    """A page must not be able to send commands in the body of a form."""
    s = t.server()
    for data in (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nACQUIRE k\r\n",
                 b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nACQUIRE k\r\n",
                 b"Host: x\r\nACQUIRE k\r\n", b"post /\r\nACQUIRE k\r\n"):
        c = s.client()
        c.send_raw(data)
        last_words(c)
    check(s.number("grants"), 0, "grants")
    s.still_well()


@test
def a_name_in_a_log_line_is_harmless(t):
    s, c = t.server("--log-level", "debug", "--log-format", "json").with_clients(1)
    c("CLIENT", "SETNAME", "x")
    c.send_raw(b"*1\r\n!\"\\\n\x1b[31m\xff\r\n")
    last_words(c)
    s.still_well()
    for line in s.log.splitlines():
        json.loads(line)


# --- Many -----------------------------------------------------------------------------------


@test
def five_thousand_idle_connections(t):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(5000, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    s = t.server(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)))
    ask = s.client()
    before, used = s.rss_bytes(), s.number("used_memory", ask)
    kept = []
    for i in range(count):
        c = socket.socket()
        c.connect(s.address)
        kept.append(c)
    t.until(lambda: s.number("connected_clients", ask) == count + 1, "all are there")
    each = (s.rss_bytes() - before) / count
    print("# %d idle connections: %d bytes each (resident), %d by used_memory"
          % (count, each, (s.number("used_memory", ask) - used) / count), flush=True)
    check_that(each < 4096, "an idle connection takes %d bytes" % each)
    for c in kept[::50]:
        c.sendall(b"PING\r\n")
    for c in kept[::50]:
        c.settimeout(30)
        check(c.recv(100), b"+PONG\r\n")
    for c in kept:
        c.close()
    t.until(lambda: s.number("connected_clients", ask) == 1, "all are gone")


@test
def few_files_are_few_connections(t):
    """It says so at the start, and turns away instead of standing still."""
    s = t.server(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
    check_that("connections-max" in s.log, "it says so: %r" % s.log)
    kept = [s.client() for _ in range(150)]
    served = 0
    for c in kept:
        try:
            got = c("PING")
            served += got == "PONG"
            check_that(got == "PONG" or got.word == "LIMIT", "it is served or told: %r" % (got,))
        except (Closed, OSError):
            pass
    check_that(10 <= served < 100, "%d were served" % served)
    for c in kept:
        c.close()
    t.until(lambda: s.number("connected_clients") == 1, "they are gone")


def asked_while_stopped(t, s, ask, attackers, data, pings=0):
    """What INFO says to a client that asks, after this many PING, when others have sent data, all
    of it while the server is stopped: so the server finds everything at once. That client has
    sent nothing before: epoll may list a connection that was readable a moment ago first."""
    last, connected = s.client(), len(attackers) + 2
    t.until(lambda: s.number("connected_clients", ask) == connected, "all are connected")
    stop(t, s.pid)
    for c in attackers:
        c.send_raw(data)
    last.send_raw(encode(["PING"]) * pings + encode(["INFO"]))
    s.signal(signal.SIGCONT)
    for _ in range(pings):
        check(last.reply(), "PONG")
    lines = [line for line in last.reply().decode().split("\r\n") if ":" in line]
    return dict(line.split(":", 1) for line in lines)


def commands_before(t, pings):
    s = t.server()
    ask, *pipeliners = s.clients(101)
    before = s.number("total_commands_processed", ask)
    info = asked_while_stopped(t, s, ask, pipeliners, encode(["PING"]) * 3000, pings)
    first = int(info["total_commands_processed"]) - before
    # The speed of the machine does not matter for a number of commands.
    check_that(first < 45000, "%d of 300,000 commands were run before its own" % first)
    for c in pipeliners:
        check(c.exactly(7 * 3000), b"+PONG\r\n" * 3000, "the replies")


@test
def a_client_with_one_command_does_not_wait_for_long_pipelines(t):
    commands_before(t, 0)


@test
def a_client_with_a_short_pipeline_does_not_wait_for_long_ones(t):
    commands_before(t, 100)


@test
def a_command_is_charged_by_what_it_reads_and_writes(t):
    """So that a client whose commands have long replies runs fewer of them at a time."""
    s = t.server()
    ask, *pipeliners = s.clients(41)
    ask.acquire("k", "VALUE", "v" * 4096)
    before = s.number("total_commands_processed", ask)
    info = asked_while_stopped(t, s, ask, pipeliners, encode(["READ", "k"]) * 100)
    first = int(info["total_commands_processed"]) - before
    check_that(first < 700, "%d of 4,000 commands were run before its own" % first)


@test
def a_client_with_one_command_does_not_wait_for_many_partial_commands(t):
    """Counted in reads before its own. Clients that have sent two parts of a command that is
    not complete yet come later."""
    s = t.server()
    ask, *slow = s.clients(401)
    reads = s.number("total_reads_processed", ask)
    for part in (b"*2\r\n$4\r\nEC", b"HO\r\n"):
        for c in slow:
            c.send_raw(part)
        reads += len(slow)
        t.until(lambda: s.number("total_reads_processed", ask) >= reads, "all parts were read")
    before = s.number("total_reads_processed", ask)
    info = asked_while_stopped(t, s, ask, slow, b"$1")
    first = int(info["total_reads_processed"]) - before
    check_that(first < 200, "%d of 400 parts were read before its command" % first)
    for c in slow:
        c.send_raw(b"\r\nx\r\n")
        check(c.reply(), b"x", "the reply to a command in parts")


@test
def many_connections_are_closed_some_in_each_turn(t):
    s = t.server("--password", "a password", "--auth-time", "1s")
    ask, *mute = s.clients(301)
    check(ask("AUTH", "a password"), "OK")
    before = s.number("loop_turns", ask)
    for c in mute:
        c.until_closed()
    turns = s.number("loop_turns", ask) - before
    check_that(turns >= 30, "300 connections were closed in %d turns" % turns)


@test
def waiting_and_unread_clients_cost_no_time(t):
    """No state of a connection makes the loop spin."""
    s, ask, holder = t.server("--linger", "1h", "--auth-time", "0").with_clients(2)
    holder.acquire("busy")
    waiter, killed = s.clients(2)
    killed.acquire("x")
    killed.reset()
    s.waits(waiter, "ACQUIRE", "busy", "WAIT", FOREVER)
    listener, pipeliner = s.deaf(), s.deaf()
    listener.subscribe("lock:*", command="PSUBSCRIBE")
    for c, data in ((waiter, encode(["PING"]) * 1000), (pipeliner, encode(["ECHO", "x" * 900]) * 100)):
        c.socket.setblocking(False)
        sent, since = 0, time.monotonic()
        while time.monotonic() - since < 0.1:
            try:
                sent += c.socket.send(data[sent % len(data):])
                since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.005)
    for i in range(2000):
        ask.acquire("%0900d" % (i % 50), "PER", 10000, "LEASE", 600000)
    half = s.client()
    half.send_raw(b"*2\r\n$4\r\nEC")
    # Time of the processor, so that a busy machine changes nothing.
    before = s.cpu_s()
    time.sleep(1.5)
    used = s.cpu_s() - before
    check_that(used < 0.5, "it used %.2f s of the processor in 1.5 s" % used)
    s.still_well()


@test
def a_reset_of_a_waiter_with_much_to_say_lets_its_grants_linger(t):
    """A13: also when it is not read from, since it has said more than is kept."""
    s, a, b, w = t.server("--linger", "3s").with_clients(3)
    b.acquire("busy")
    a.acquire("k")
    s.waits(a, "ACQUIRE", "busy", "WAIT", FOREVER)
    a.socket.setblocking(False)
    try:
        while True:
            a.socket.send(encode(["PING"]) * 1000)
    except BlockingIOError:
        pass
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER)
    start = time.monotonic()
    a.reset()
    s.until_waiting("busy", 0)
    w.reply()
    check_that(time.monotonic() - start >= 3.0, "its grant stayed for --linger")


main(__doc__)
