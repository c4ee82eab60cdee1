#!/usr/bin/python3
"""test_links.py - links between nodes: only who knows the secret is talked to, one link for
two nodes, and a client of the port for nodes cannot do harm.

    tests/server/test_links.py SERVER [--jobs N] [PATTERN...]

A Peer is a node in Python: it calls a real one, or is called by it, and says what it likes.
"""
import hashlib
import hmac
import os
import random
import re
import secrets
import select
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (Client, Closed, Failure, Server, check, check_that, encode, main, pairs,
                  stop, test, test_of)

SECRET = "the nodes' secret, of 33 bytes: \x7e"
PORT = 5627
NAME = b"sluice-node"
PROTOCOL = 6


# --- Nodes and peers --------------------------------------------------------------------


def host(n):
    """The address of node n of this test: a loopback address that no other test has."""
    pid = os.getpid()
    return "127.%d.%d.%d" % (64 + (pid >> 7 & 0x7f), 1 + (pid & 0x7f), n)


def peers(count, where=host):
    return ",".join("%d=%s:%d" % (n, where(n), PORT) for n in range(1, count + 1))


def node(t, n=1, count=3, secret=SECRET, options=(), wait=True, **more):
    """A real node; its client port is on 127.0.0.1."""
    return Server(t, ("--node", str(n), "--peers", more.pop("peers", peers(count)),
                      "--node-bind", host(n), "--secret", secret, "--data", t.path("d%d" % n),
                      "--bootstrap") + tuple(options), wait=wait, **more)


def proof(role, caller, callee, nonces, secret=SECRET):
    text = "sluice-node %d %s %d %d %s %s" % (PROTOCOL, role, caller, callee, nonces[0], nonces[1])
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def nonce():
    return secrets.token_hex(32)


def states(s, client=None):
    """{id: "up"} as a node sees the others."""
    c = client or s.client()
    nodes = pairs(c("NODES"))["nodes"]
    if client is None:
        c.close()
    return {int(n["id"]): n["state"].decode() for n in map(pairs, nodes)}


def until_up(t, s, *ids):
    c = s.client()
    t.until(lambda: all(states(s, c)[n] == "up" for n in ids), "%r are up" % (ids,))
    c.close()


class Peer(Client):
    """One end of a link that is ours."""

    def __init__(self, address=None, sock=None, id=2):
        if sock is None:
            Client.__init__(self, address)
        else:
            self.socket, self.buffer, self.pushes, self.protocol = sock, b"", [], 2
        self.number = id
        self.nonces = [None, None]

    @classmethod
    def of(cls, node=1, id=2):
        return cls((host(node), PORT), id=id)

    # As the caller.

    def challenged(self):
        got = self.reply()
        check(got[:3] + [len(got)], [b"NONCE", NAME, b"%d" % PROTOCOL, 4], "what a caller is told first")
        self.nonces = [nonce(), got[3].decode()]
        return self

    def hello(self, id=None, to=1, name=NAME, protocol=PROTOCOL, proof_=None, **more):
        self.challenged()
        self.to = to
        self.number = self.number if id is None else id
        self.send("HELLO", name, protocol, self.number, to, self.nonces[0],
                  proof("caller", self.number, to, self.nonces, **more) if proof_ is None else proof_)
        return self

    def welcomed(self):
        check(self.reply(), [b"WELCOME", b"%d" % PROTOCOL, b"%d" % self.to,
                             proof("callee", self.number, self.to, self.nonces).encode()], "the answer to HELLO")
        return self

    def settings(self, birth=7, lines="lease-max=1ms\n"):
        return self.send("SETTINGS", birth, "%d:0:0" % birth, lines)

    def linked(self, to=1, birth=7):
        """The whole of it: the link is up."""
        self.hello(to=to).welcomed().settings(birth)
        check(self.reply()[0], b"SETTINGS", "the last word of a meeting")
        return self

    # As the callee.

    def challenge(self):
        self.nonces[1] = nonce()
        return self.send("NONCE", NAME, PROTOCOL, self.nonces[1])

    def called(self, by=1):
        self.challenge()
        got = self.reply()
        check(got[:3] + [len(got)], [b"HELLO", NAME, b"%d" % PROTOCOL, 7], "the first words")
        check(got[3:5], [b"%d" % by, b"%d" % self.number], "who calls whom")
        self.by = by
        self.nonces[0] = got[5].decode()
        check(got[6].decode(), proof("caller", by, self.number, self.nonces), "the caller's proof")
        return self

    def welcome(self, id=None, secret=SECRET):
        return self.send("WELCOME", PROTOCOL, self.number if id is None else id,
                         proof("callee", self.by, self.number, self.nonces, secret))

    def shown(self):
        check(self.reply()[0], b"SETTINGS")
        return self

    # When it is up.

    def beat(self):
        return self.send("BEAT", 0, 1, 99, int(time.monotonic() * 1000), 0, 0, 0, 0, 0, 0, 0)

    def keep_up(self, seconds=0.0):
        """Say that we are here, for so long; and read what comes."""
        end = time.monotonic() + seconds
        while True:
            self.beat()
            while select.select([self.socket], [], [], 0)[0]:
                self.fill(end + 10)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def keep_beating(self):
        """The same in the background, without reading, until the link ends."""
        def beat():
            try:
                while True:
                    self.beat()
                    time.sleep(0.05)
            except OSError:
                pass

        threading.Thread(target=beat, daemon=True).start()
        return self

    def refused(self, *words):
        """It says why, and hangs up."""
        try:
            got = self.reply()
        except Closed as e:
            raise Failure("it closed the connection without a message: %s" % e)
        check(got[0], b"REFUSED", "the answer, %r" % got)
        for word in words:
            check_that(word in got[1].decode(), "%r says %r" % (got[1], word))
        check(self.until_closed(), b"")
        return self


class Door:
    """Where a real node calls us."""

    def __init__(self, n=2):
        self.id = n
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((host(n), PORT))
        self.socket.listen(16)
        self.socket.settimeout(30)

    def accept(self):
        sock, _ = self.socket.accept()
        sock.settimeout(30)
        return Peer(sock=sock, id=self.id)


class Recorder:
    """Between two nodes: hands on what they say, and keeps it."""

    def __init__(self, at, to):
        self.to = to
        self.streams = []  # [caller's bytes, callee's bytes] of each connection
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(at)
        self.socket.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            a, _ = self.socket.accept()
            b = socket.socket()
            try:
                b.connect(self.to)
            except OSError:
                a.close()
                b.close()
                continue
            stream = [bytearray(), bytearray()]
            self.streams.append(stream)
            for side, (x, y) in enumerate([(a, b), (b, a)]):
                threading.Thread(target=self.hand_on, args=(x, y, stream[side]),
                                 daemon=True).start()

    @staticmethod
    def hand_on(x, y, kept):
        try:
            while True:
                data = x.recv(65536)
                kept += data
                if not data:
                    break
                y.sendall(data)
            y.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def closed_after(c, *words):
    """The node hangs up, whatever it says before."""
    said = c.until_closed()
    for word in words:
        check_that(word in said, "%r has %r" % (said, word))


def connections(n):
    """How many established connections node n has at its port."""
    def text(address):
        return "".join("%02X" % int(x) for x in reversed(address.split(".")))

    here = text(host(n)) + ":%04X" % PORT
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    return sum(1 for r in rows if r[1] == here and r[3] == "01")


# --- Real nodes -------------------------------------------------------------------------


@test
def three_nodes_find_each_other_and_have_one_link_for_two(t):
    nodes = [node(t, n, wait=False) for n in (1, 2, 3)]
    for s in nodes:
        s.until_ready()
    for n, s in enumerate(nodes, 1):
        until_up(t, s, *({1, 2, 3} - {n}))
    c = nodes[0].client()
    fence = c.acquire("db", "LEASE", 20000, "VALUE", "v")
    t.until(lambda: nodes[2].client()("READ", "db"), "another node knows of it")
    check(nodes[1].client()("RELEASE", "db", fence), 1)
    t.until(lambda: sum(map(connections, (1, 2, 3))) == 3, "there are three links")
    for n, s in enumerate(nodes, 1):
        for other in {1, 2, 3} - {n}:
            s.until_log('connected to a node node="%d"' % other)


@test
def a_node_that_is_killed_or_stopped_is_lost_and_found_again(t):
    a, b = node(t, 1, 2), node(t, 2, 2)
    a.until_log('connected to a node node="2"')
    before = a.log.count("connection refused")
    stop(t, b.pid)
    a.until_log('lost the connection to a node node="2"')
    check_that("nothing was received for half a second" in a.log, "it is said why")
    os.kill(b.pid, signal.SIGCONT)
    until_up(t, a, 2)
    b.signal(signal.SIGKILL)
    b.status
    t.until(lambda: a.log.count('lost the connection to a node node="2"') == 2, "it is lost again")
    t.until(lambda: a.log.count("connection refused") > before, "it is said why")
    b = node(t, 2, 2)
    until_up(t, a, 2)
    until_up(t, b, 1)
    check(a.log.count("connection refused"), before + 1, "how often that was said")
    t.until(lambda: a.number("links_reconnected") == 2, "INFO counts it")


@test
def host_names_are_resolved(t):
    where = peers(3, lambda n: "localhost" if n == 2 else host(n))
    a = node(t, 1, peers=where.replace(":%d" % PORT, ":%d" % (20000 + os.getpid() % 30000)))
    a.until_log('node="2" address="localhost:')
    check_that("connection refused" in a.log, "the name was found, and nobody is there")
    b = node(t, 3, 2, peers="3=%s:1,2=no-such-host.invalid:1" % host(3))
    t.until(lambda: re.search(r'no-such-host\.invalid:1" reason="', b.log), "it is said")


@test
def nodes_with_other_secrets_do_not_talk_and_both_say_why(t):
    a, b = node(t, 1, 2), node(t, 2, 2, secret=SECRET + "x")
    for s in (a, b):
        s.until_log("the secrets differ")
        s.still_well()
    check([states(a)[2], states(b)[1]], ["down", "down"])


@test
def settings_that_differ_are_named_on_both_sides(t):
    a = node(t, 1, 2, options=("--lease-max", "1h", "--value-bytes-max", "100"))
    b = node(t, 2, 2, options=("--lease-min", "60ms"))
    until_up(t, a, 2)
    until_up(t, b, 1)
    for s, here, there in ((a, 0, 1), (b, 1, 0)):
        for name, values in (("lease-max", ("3600000ms", "86400000ms")),
                             ("lease-min", ("50ms", "60ms")),
                             ("value-bytes-max", ("100", "4096"))):
            s.until_log('a setting differs between nodes setting="%s" node="%d" here="%s" there="%s"'
                        % (name, there + 1, values[here], values[there]))
        check_that("key-bytes-max" not in s.log, "what is equal is not named")


@test
def the_secret_is_not_on_the_wire_and_a_record_is_of_no_use(t):
    # The list names two recorders, and behind each is a node.
    nodes = {}
    recorders = [Recorder((host(n + 10), PORT), (host(n), PORT)) for n in (1, 2)]
    for n in (1, 2):
        nodes[n] = node(t, n, 2, peers=peers(2, lambda i: host(i + 10)), wait=False)
    for n in (1, 2):
        nodes[n].until_ready()
        until_up(t, nodes[n], 3 - n)
    nodes[1].client().acquire("k", "LEASE", 20000)
    met = [s for r in recorders for s in r.streams if b"HELLO" in s[0] and b"WELCOME" in s[1]]
    check_that(met, "a meeting was recorded")
    everything = b"".join(bytes(side) for r in recorders for s in r.streams for side in s)
    raw = SECRET.encode()
    for form in (raw, raw[:12], raw[-12:], raw.hex().encode(), raw.hex().upper().encode(),
                 hashlib.sha256(raw).hexdigest().encode()):
        check_that(form not in everything, "%r is not on the wire" % form)
    for n, r in zip((1, 2), recorders):
        for caller, _ in r.streams:
            c = Peer.of(n).challenged()
            c.send_raw(bytes(caller[:caller.index(b"SETTINGS") + 100]))
            c.refused("the secrets differ")
    check(SECRET in nodes[1].log, False, "the secret is in the log")
    check(nodes[1].client()("CONFIG", "GET", "secret")[1], b"(set)")


# --- A peer that shows who it is ------------------------------------------------------------


@test
def a_peer_with_the_secret_is_accepted(t):
    s = node(t)
    p = Peer.of().linked().keep_beating()
    until_up(t, s, 2)
    s.until_log('connected to a node node="2"')
    check(p.reply()[0], b"BEAT", "what a node says that has nothing to say")
    p.close()
    s.until_log('lost the connection to a node node="2"')
    check_that("the other side closed the connection" in s.log, "it is said why")


@test
def a_node_connects_and_learns_the_membership(t):
    door = Door()
    s = node(t)
    p = door.accept().called().welcome().shown().settings()
    p.beat()
    s.until_log('connected to a node node="2"')


@test
def a_stranger_learns_nothing_that_depends_on_the_secret(t):
    """Nor the number of the node: it hears a nonce, and a refusal."""
    nodes = node(t, 1), node(t, 3, secret="another secret of a node")
    said = []
    for n in (1, 3):
        heard = []
        for words in ((), ("HELLO",), ("HELLO", NAME, PROTOCOL, 2, n, "0" * 64, "0" * 64), ("HELLO", NAME, PROTOCOL, n, n, "0" * 64, "0" * 64),
                      ("HELLO", NAME, PROTOCOL, 2, 9, "0" * 64, "0" * 64), ("HELLO", NAME, 1, 2, n, "0" * 64),
                      ("WELCOME", PROTOCOL, 2, "0" * 64), ("NONCE", NAME, PROTOCOL, "0" * 64), ("SETTINGS", 7, ""), ("PING",)):
            p = Peer.of(n)
            if words:
                p.send(*words)
            else:
                p.socket.shutdown(socket.SHUT_WR)
            whole = p.until_closed()
            fresh = re.match(rb"\*4\r\n\$5\r\nNONCE\r\n\$11\r\nsluice-node\r\n\$1\r\n%d\r\n\$64\r\n([0-9a-f]{64})\r\n" % PROTOCOL, whole)
            check_that(fresh, "%r is answered with a nonce first: %r" % (words, whole))
            check_that(len(whole) < 300, "%d bytes are said to a stranger" % len(whole))
            heard.append(whole[fresh.end():])
        said.append(heard)
    check(said[0], said[1], "what two nodes with other secrets and numbers say")
    check_that(b"the secrets differ" in said[0][2], "a wrong proof gets the reason")
    for s in nodes:
        s.still_well()


@test
def a_wrong_proof_is_rejected(t):
    s = node(t)
    Peer.of().hello(secret=SECRET[:-1]).refused("the secrets differ")
    s.until_log('a connection to node-port ended before the handshake was complete address="127.0.0.1:')
    check_that('claims_node="2" reason="the secrets differ"' in s.log, "the log says why")
    for wrong in ("", "0" * 64, "x" * 64, "0" * 63, "0" * 65):
        Peer.of().hello(proof_=wrong).refused("the secrets differ")
    Peer.of().challenged().settings().refused()
    Peer.of().challenged().send("BEAT", 0, 1, 99, 1, 0, 0, 0, 0, 0, 0, 0).refused()
    p = Peer.of().challenged()
    right = proof("caller", 2, 1, p.nonces)
    p.send("HELLO", NAME, PROTOCOL, 2, 1, p.nonces[0], right.upper()).refused()
    check([states(s)[2], s.number("links_rejected")], ["down", 9])


@test
def a_reflected_proof_is_rejected(t):
    door = Door()
    s = node(t)
    # The callee's proof, as the caller's.
    p = Peer.of().challenged()
    p.send("HELLO", NAME, PROTOCOL, 2, 1, p.nonces[0], proof("callee", 2, 1, p.nonces)).refused("the secrets differ")
    # It calls us: its own proof is not ours.
    called = door.accept().called()
    called.send("WELCOME", PROTOCOL, 2, proof("caller", 1, 2, called.nonces)).refused("the secrets differ")
    # It calls us with the nonce that it has sent us: then it would believe itself.
    mine, called = Peer.of().challenged(), door.accept()
    called.send("NONCE", NAME, PROTOCOL, mine.nonces[1])
    got = called.reply()
    mine.send("HELLO", NAME, PROTOCOL, 2, 1, got[5], got[6]).refused("the secrets differ")
    mine = Peer.of().challenged()
    mine.send("HELLO", NAME, PROTOCOL, 1, 2, got[5], got[6]).refused("the secrets differ")
    # And as one that has its own number.
    Peer.of().hello(id=1).refused("two nodes have the id 1")
    check(states(s)[2], "down")


@test
def a_recorded_handshake_cannot_be_replayed(t):
    node(t)
    p = Peer.of().linked()
    again = Peer.of()
    fresh = again.reply()[3].decode()
    check_that(fresh != p.nonces[1], "it draws another number each time")
    again.send("HELLO", NAME, PROTOCOL, 2, 1, p.nonces[0], proof("caller", 2, 1, p.nonces)).refused("the secrets differ")


@test
def a_node_with_the_wrong_identity_is_rejected(t):
    door = Door()
    s = node(t)
    Peer.of().hello(to=3).refused("this is node 1")
    Peer.of().hello(protocol=1).refused("protocol version 1,")
    Peer.of().hello(id=0).refused()
    Peer.of().hello(id=16).refused()
    Peer.of().hello(name="sluice").refused()
    called = door.accept()
    called.send("NONCE", NAME, PROTOCOL + 1, nonce()).refused("another protocol")
    called = door.accept().called()
    called.welcome(id=3).refused("another node answers at this address")
    s.until_log("another node answers at this address")
    # What it calls is what has to be shown: a proof for another pair is none.
    called = door.accept().called()
    called.send("WELCOME", PROTOCOL, 2, proof("callee", 1, 3, called.nonces)).refused("the secrets differ")


@test
def a_changed_node_is_rejected_with_the_reason(t):
    s = node(t)
    p = Peer.of().linked(birth=7)
    p.beat()
    s.until_log("connected to a node")
    p.close()
    s.until_log("lost the connection to a node")
    q = Peer.of().hello().welcomed().settings(birth=8)
    said = q.reply()
    check(said[0], b"REFUSED")
    check(q.until_closed(), b"")
    s.until_log(said[1].decode())
    p = Peer.of().linked(birth=7)


@test
def what_is_not_a_message_is_dropped_and_the_link_stays(t):
    s = node(t)
    p = Peer.of().linked().keep_beating()
    for words in (("PING",), ("BEAT",), ("BEAT", 0, 1, 2, 3, 4, -1, 6, 7, 8, 9, 10), ("BEAT", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
                  ("STORE", 0, 1, 2, 3, 4, 5, 6, "1:9:0:0:0:2=a:1,1=b:1"), ("HELLO", NAME, PROTOCOL, 2, 1, nonce(), nonce()),
                  ("ACQUIRE", "db"), (b"\0\xff" * 500,), ("",) * 60):
        p.send(*words)
    p.beat()
    s.until_log("a node sent an invalid message")
    t.until(lambda: s.number("links_invalid") == 9, "they are counted")
    p.keep_up(0.7)
    check(states(s)[2], "up")
    check(connections(1), 1, "links")


# --- Two at once --------------------------------------------------------------------------


@test
def of_two_links_that_of_the_smaller_caller_stays(t):
    door = Door()
    s = node(t, 1)
    mine = Peer.of().linked()  # 2 calls 1 ...
    theirs = door.accept().called().welcome().shown().settings()  # ... and 1 calls 2.
    mine.until_closed()
    theirs.keep_up(0.7)
    check(states(s)[2], "up")


@test
def the_larger_node_drops_its_own_connection(t):
    door = Door(1)
    s = node(t, 2)
    theirs = door.accept().called(by=2).welcome().shown()
    mine = Peer.of(2, id=1).linked(to=2)
    theirs.settings()
    keep = threading.Thread(target=mine.keep_up, args=(1.5,))
    keep.start()
    theirs.until_closed()
    keep.join()
    check(states(s)[1], "up")
    check_that("lost the connection to a node" not in s.log and "cannot connect to a node; this node keeps retrying "
               'node="1"' not in s.log, "that is nothing to speak of")


@test
def a_newer_link_of_the_same_caller_takes_the_place_of_the_old(t):
    s = node(t)
    old = Peer.of().linked()
    old.beat()
    new = Peer.of().linked().keep_beating()
    old.until_closed()
    new.keep_up(0.7)
    check(states(s)[2], "up")


# --- Peers that are silent, slow, or broken --------------------------------------------------


@test
def a_silent_peer_is_given_up_in_half_a_second(t):
    s = node(t)
    p = Peer.of().linked()
    began = time.monotonic()
    p.keep_up(1.0)
    check(states(s)[2], "up")
    spoke = time.monotonic()
    p.beat()
    p.until_closed()
    took = time.monotonic() - spoke
    check_that(0.45 < took < 5, "it took %.3f s" % took)
    s.until_log("nothing was received for half a second")
    check_that(spoke - began >= 1.0, "who beats is not given up")


@test
def a_stranger_has_two_seconds(t):
    s = node(t)
    began = time.monotonic()
    silent, half, slow = Peer.of(), Peer.of().send_raw(b"*7\r\n$5\r\nHEL"), Peer.of().hello()
    slow.welcomed()  # And then nothing.
    for c in (silent, half, slow):
        c.until_closed()
    took = time.monotonic() - began
    check_that(1.9 < took < 15, "it took %.3f s" % took)
    s.until_log("the node did not answer in time")


@test
def one_that_calls_us_back_and_says_nothing_is_called_again(t):
    door = Door()
    s = node(t)
    first, second = door.accept(), None
    first.called()
    first.until_closed()
    second = door.accept().called().welcome().shown().settings()
    second.beat()
    s.until_log("connected to a node")


def garbage(t, data):
    s = node(t)
    for up in (False, True):
        p = Peer.of().linked() if up else Peer.of()
        p.send_raw(data)
        p.until_closed()
    s.still_well()


for name, data in (("a_line", b"PING\r\n"), ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                   ("a_reply", b"+OK\r\n"), ("tls", b"\x16\x03\x01\x02\x00\x01\x00"),
                   ("no_length", b"*1\r\n$-1\r\n"), ("no_end", b"*1\r\n$1\r\nabc\r\n"),
                   ("many_words", b"*65\r\n"), ("a_billion_words", b"*1000000000\r\n"),
                   ("a_giant_word", b"*1\r\n$65537\r\n"), ("too_giant", b"*1\r\n$" + b"9" * 30 + b"\r\n")):
    test_of("garbage_is_hung_up_on_" + name, garbage, data)


@test
def random_bytes_do_no_harm(t):
    seed = random.randrange(1 << 30)
    print("# seed %d" % seed)
    r = random.Random(seed)
    s = node(t)
    whole = encode(("HELLO", NAME, PROTOCOL, 2, 1, nonce(), nonce()))
    for _ in range(150):
        p = Peer.of()
        data = bytearray(whole)
        for _ in range(r.randrange(1, 4)):
            data[r.randrange(len(data))] = r.randrange(256)
        p.send_raw(bytes(data[:r.randrange(len(data) + 1)]))
        p.reset() if r.randrange(2) else p.close()
    p = Peer.of().linked()
    for _ in range(50):
        m = encode([["ACQUIRE", "VOTE", "STORE", "TEACH", "PROMISE"][r.randrange(5)]] +
                   [str(r.randrange(1 << r.randrange(1, 65))) for _ in range(r.randrange(18))])
        p.send_raw(m)
    p.keep_up(0.3)
    s.still_well()
    check(states(s)[2], "up")


@test
def a_stranger_may_send_a_kilobyte(t):
    s = node(t)
    p = Peer.of()
    p.send_raw(b"*2\r\n$60000\r\n" + b"x" * 1100)
    closed_after(p)
    s.until_log("the other side sent too much before it authenticated")
    p = Peer.of()
    try:
        for _ in range(2000):
            p.send_raw(b"*0\r\n\n")
    except OSError:
        pass
    closed_after(p)
    s.still_well()


@test
def a_great_many_strangers_keep_no_node_out(t):
    s = node(t)
    before, rss = s.descriptors(), s.rss_bytes()
    crowd = [Peer.of() for _ in range(300)]
    for c in crowd[:100]:
        try:
            c.send_raw(b"*7\r\n$5\r\nHELLO\r\n")
        except OSError:
            pass
    p = Peer.of().linked().keep_beating()
    s.until_log("too many connections to node-port have not authenticated")
    t.until(lambda: s.descriptors() <= before + 34, "all but 32 are turned away")
    until_up(t, s, 2)
    check_that(s.rss_bytes() - rss < 8 << 20, "they cost little")
    t.until(lambda: s.descriptors() <= before + 2, "and soon all of them")
    check(states(s)[2], "up")


@test
def frames_of_the_greatest_length_are_read(t):
    s = node(t)
    p = Peer.of().linked()
    rss = s.rss_bytes()
    word = b"v" * 65535
    for _ in range(20):
        p.send("ACQUIRE", 0, 1, 99, 1, 0, 0, 0, 1, b"k" * 65535, 5, 6, 1, 1000, 0, 0, word, word)
    p.keep_up(0.2)
    check(states(s)[2], "up")
    check_that(s.rss_bytes() - rss < 16 << 20, "that costs little")
    p.send("ACQUIRE", *[word] * 7)
    p.until_closed()


@test
def a_client_that_does_not_read_is_disconnected(t):
    s = node(t, 1, options=("--value-bytes-max", "65535", "--argument-bytes-max", "70k",
                            "--command-bytes-max", "200k", "--output-bytes-max", "1k"))
    other = node(t, 3, options=("--value-bytes-max", "65535"))
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(30)
    sock.connect((host(1), PORT))
    Peer(sock=sock).linked().keep_beating()
    until_up(t, s, 2, 3)
    until_up(t, other, 1)
    rss = s.rss_bytes()
    c = s.client()
    value = b"v" * 60000
    for _ in range(2000):
        fence = c.acquire("key", "LEASE", 5000, "WAIT", 5000, "VALUE", value)
        check(c("RELEASE", "key", fence), 1)
        if "the node does not read its input" in s.log:
            break
    s.until_log("the node does not read its input")
    check_that(s.rss_bytes() - rss < 24 << 20, "it was not kept for it")
    c.acquire("key", "LEASE", 5000)


@test
def calls_are_made_again_with_pauses(t):
    door = Door()
    node(t)
    calls, end = [], time.monotonic() + 2.5
    while time.monotonic() < end:
        if select.select([door.socket], [], [], 0.05)[0]:
            door.accept().close()
            calls.append(time.monotonic())
    check_that(5 <= len(calls) <= 14, "%d calls in 2.5 s" % len(calls))


# --- Settings -----------------------------------------------------------------------------


@test
def what_is_wrong_with_a_node_is_reported(t):
    good = ["--node", "1", "--peers", "1=a:1,2=b:1", "--secret", SECRET, "--data", t.path("d")]
    check(t.failing("--check", *good).status, 0)

    def without(name, *instead):
        i = good.index(name)
        return good[:i] + list(instead) + good[i + 2:]

    for options, words in (
            (without("--peers"), "node requires peers"),
            (without("--peers", "--peers", "1=a:1,2"), 'peers: "2": each node must be given as ID=HOST:PORT'),
            (without("--peers", "--peers", "1=a:1,2=b"), 'peers: "2=b": the address must be host:port'),
            (without("--peers", "--peers", "1=a:1,1=b:1"), "twice"),
            (without("--peers", "--peers", "2=a:1,3=b:1"), "peers must contain this node, 1"),
            (without("--secret"), "node requires a secret of at least 16 bytes"),
            (without("--secret", "--secret", "0123456789abcde"), "at least 16 bytes (got 15)"),
            (without("--secret", "--secret-file", t.path("nothing")), "cannot read"),
            (without("--node"), "peers requires node"),
            (without("--node", "--node", "16"), "from 0 to 15 (got"),
            (without("--data", "--data", "none"), "node requires a data directory"),
            (good + ["--node-port", "0"], "node requires node-port"),
            (good + ["--node-bind", "here"], "node-bind: invalid address"),
            (good + ["--lease-max", "40ms"], "lease-max must be at least lease-min"),
            (good + ["--bootstrap=perhaps"], "yes or no"),
            (["--bootstrap"], "bootstrap requires node")):
        p = t.failing("--check", *options)
        check(p.status, 2, " ".join(options))
        check_that(words in p.err, "%r says %r" % (p.err, words))
        check_that(SECRET not in p.err, "the secret is not said")


@test
def a_secret_may_stand_in_a_file_and_a_node_in_a_config(t):
    secret = t.write("secret", SECRET + "\n")
    config = t.config("node = 1\npeers = %s\npeers = 3=c:1, 4=d:1\nnode-bind = 0.0.0.0\nnode-port = auto\n"
                      "secret-file = %s\nbootstrap = yes\ndata = %s\n"
                      % (peers(2), secret, t.path("d")))
    s = t.server("--config", config)
    found = re.search(r"listening for nodes on 0\.0\.0\.0:(\d+)", s.log)
    p = Peer(("127.0.0.1", int(found.group(1))))
    p.linked()
    got = pairs(s.client()("CONFIG", "GET", "*"))
    check([got["secret"], got["bootstrap"], got["node"]], [b"(set)", b"yes", b"1"])
    check(sorted(states(s)), [1, 2, 3, 4], "the nodes of both lines")


main(__doc__)
