"""load.py - clients of a cluster that do all kinds of things, and write down what they were
told. For faults.py; checker.py has the format of what they write.
"""
import fcntl
import json
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "lib"), os.path.join(HERE, "../server/lib")]
import checker  # noqa: E402
import live  # noqa: E402
from crowd import Book, Crowd, lines_of, now  # noqa: E402

MS = checker.MS
CONNECT_S = 0.4     # a node that is cut off says nothing at all
PATIENCE_MS = 1500  # for an answer, besides WAIT
EARLY = "early"   # the key of which thieves do not wait to the end


# --- What the lock guards -----------------------------------------------------------


class Resource:
    """A set, in a file: a line for each item, with the fence it came with and the item that
    its writer had read. It can look at fences (docs/fencing.md), or not."""

    def __init__(self, path, fenced):
        self.path, self.fenced = path, fenced

    def locked(self):
        f = open(self.path, "a+b", buffering=0)
        fcntl.flock(f, fcntl.LOCK_EX)  # until it is closed
        return f

    def arrive(self, fence):
        """False: a higher one was here."""
        if not self.fenced:
            return True
        try:
            with open(self.path + ".fence") as f:
                highest = int(f.read())
        except FileNotFoundError:
            highest = 0
        if fence > highest:
            with open(self.path + ".new", "w") as f:
                f.write(str(fence))
            os.rename(self.path + ".new", self.path + ".fence")
        return fence >= highest

    def read(self, fence):
        """(True, the last item); or (False, None): too late."""
        with self.locked() as f:
            if not self.arrive(fence):
                return False, None
            f.seek(max(f.seek(0, os.SEEK_END) - 512, 0))
            lines = f.read().splitlines()
            return True, json.loads(lines[-1])[1] if lines else None

    def write(self, fence, item, after):
        with self.locked() as f:
            if not self.arrive(fence):
                return False
            f.write(json.dumps([fence, item, after]).encode() + b"\n")
            return True

    def log(self):
        try:
            with open(self.path) as f:
                return [json.loads(line) for line in f]
        except FileNotFoundError:
            return []


# --- Writing down what happens --------------------------------------------------------


def gather(directory):
    """The records of all books."""
    return checker.parse(lines_of(directory))


def write_history(records, path):
    """As one file, in order of time; each record then knows its line."""
    with open(path, "w") as f:
        for number, r in enumerate(records, 1):
            r.line = number
            f.write(json.dumps(r.fields()) + "\n")


def finals(book, client, keys):
    """What is in the resources at the end."""
    for key in keys:
        for fenced in (True, False):
            kind, resource = client.resource(key, fenced)
            book.note("FINAL", key=key, resource=kind, log=resource.log())


# --- A client -----------------------------------------------------------------------


TROUBLE = (OSError, live.Closed, live.Failure)


def result_of(op, reply):
    """What a reply says, as fields of a record."""
    if isinstance(reply, live.Error):
        return {"result": reply.word, "text": str(reply)}
    if reply is None:
        return {"result": "nil"}
    if op == "ACQUIRE":
        return dict(zip(("fence", "held", "lease_ms", "waited_ms", "overlapping"), reply),
                    result="ok")
    if op == "READ":
        return {"result": "ok", "value": reply[0].decode(), "fence": reply[1],
                "lease_ms": reply[2]}
    if op == "EXTEND":
        return {"result": "ok", "lease_ms": reply}
    return {"result": "ok" if reply == 1 else "no"}  # RELEASE, CHECK


class Grant:
    def __init__(self, key, fence, end, lease_ms):
        self.key, self.fence, self.end, self.lease_ms = key, fence, end, lease_ms


class Client:
    """Asks, of any node, and writes it down."""

    # After these answers it goes on at another node.
    elsewhere = None, "NOQUORUM", "RECOVERING"

    def __init__(self, name, nodes, password, directory, seed):
        self.name, self.nodes, self.password, self.directory = name, nodes, password, directory
        self.rng = random.Random("%s %s" % (seed, name))
        self.book = Book(directory, name)
        self.links = {}
        self.node = self.rng.choice(sorted(nodes))
        self.granted = lambda key: None  # is told of each grant

    # Nodes.

    def other(self):
        others = [n for n in sorted(self.nodes) if n != self.node]
        return self.rng.choice(others or [self.node])

    def change_node(self):
        self.node = self.other()

    def link(self, node):
        if node not in self.links:
            self.links[node] = live.Client(self.nodes[node], connect_s=CONNECT_S,
                                           patience_s=CONNECT_S, password=self.password)
        return self.links[node]

    def drop(self, node):
        link = self.links.pop(node, None)
        if link:
            link.close()

    # One request.

    def send(self, node, op, key, *words, **more):
        """Asks; (node, its number in the book, when), or None if nobody is there."""
        try:
            link = self.link(node)
        except TROUBLE:
            return None
        inv = now()
        n = self.book.begin(op, inv, key=key, node=node, **more)
        try:
            link.send(op, key, *words)
        except TROUBLE:
            self.drop(node)  # it may have arrived all the same: unknown
            return None
        return node, n, inv, op

    def receive(self, sent, wait_ms=0):
        """The answer as fields; an empty one if there is none, or nothing was asked."""
        if sent is None:
            return {}
        node, n, inv, op = sent
        try:
            reply = self.link(node).reply((wait_ms + PATIENCE_MS) / 1000)
        except TROUBLE:
            self.drop(node)
            return {}
        ret = now()
        fields = result_of(op, reply)
        self.book.add(n, ret=ret, **fields)
        return dict(fields, inv=inv, ret=ret)

    def ask(self, op, key, *words, node=None, wait_ms=0, **more):
        node = node or self.node
        got = self.receive(self.send(node, op, key, *words, **more), wait_ms)
        if node == self.node and got.get("result") in self.elsewhere:
            self.change_node()
            time.sleep(0.02)
        return got

    def poke(self, *words):
        """Asks, and does not write it down."""
        try:
            self.link(self.node).send(*words).reply(PATIENCE_MS / 1000)
        except TROUBLE:
            self.drop(self.node)

    # Commands.

    def acquire(self, key, lease_ms, wait_ms=0, priority=0, steal=False, early=None):
        """A grant that is still held when it is known, or None."""
        value = "%s/%d" % (self.name, self.book.n + 1)
        words = ["LEASE", lease_ms, "VALUE", value]
        words += ["WAIT", wait_ms] if wait_ms else []
        words += ["PRIORITY", priority] if priority else []
        words += ["STEAL"] if steal else []
        words += [early] if steal and early is not None else []
        got = self.ask("ACQUIRE", key, *words, wait_ms=wait_ms, value=value,
                       asked_ms=lease_ms, wait_asked_ms=wait_ms, priority=priority,
                       steal=steal, early=early if steal else None)
        if got.get("result") != "ok":
            return None
        self.granted(key)
        end = got["inv"] + int(checker.GAMMA * (got["waited_ms"] + got["lease_ms"]) * MS)
        return Grant(key, got["fence"], end, lease_ms)

    def extended(self, grant, got):
        """Takes an answer to EXTEND into account; its word."""
        word = got.get("result", "unknown")
        if word == "ok":
            grant.end = max(grant.end, got["inv"] + int(checker.GAMMA * got["lease_ms"] * MS))
        return word

    def extend(self, grant, node=None):
        ms = self.rng.choice((grant.lease_ms, grant.lease_ms, grant.lease_ms // 4))
        return self.extended(grant, self.ask("EXTEND", grant.key, grant.fence, ms, node=node,
                                             fence=grant.fence, asked_ms=ms))

    def extend_twice(self, grant):
        """Through two nodes at once."""
        sent = [self.send(node, "EXTEND", grant.key, grant.fence, grant.lease_ms,
                          fence=grant.fence, asked_ms=grant.lease_ms)
                for node in (self.node, self.other())]
        words = [self.extended(grant, self.receive(s)) for s in sent]
        return next((w for w in ("LOST", "ASKED", "ok") if w in words), words[0])

    def release(self, grant, node=None):
        return self.ask("RELEASE", grant.key, grant.fence, node=node,
                        fence=grant.fence).get("result")

    def check(self, key, fence, node=None):
        return self.ask("CHECK", key, fence, node=node, fence=fence).get("result")

    def read(self, key, majority=False, node=None):
        words = ["MAJORITY"] if majority else []
        return self.ask("READ", key, *words, node=node, majority=majority).get("result")

    # What the lock guards.

    def resource(self, key, fenced):
        kind = "fenced" if fenced else "plain"
        return kind, Resource(os.path.join(self.directory, "%s.%s" % (key, kind)), fenced)

    def look(self, grant, fenced):
        """The first half of an update: read."""
        kind, resource = self.resource(grant.key, fenced)
        there, after = resource.read(grant.fence)
        return kind, resource, there, after

    def change(self, grant, kind, resource, there, after):
        """The second half: write."""
        item = "%s/%d" % (self.name, self.book.n + 1)
        n = self.book.begin("UPDATE", key=grant.key, resource=kind, fence=grant.fence,
                            item=item, after=after)
        ok = there and resource.write(grant.fence, item, after)
        self.book.add(n, ret=now(), result="ok" if ok else "refused")
        return ok


# --- The load -------------------------------------------------------------------------


class Load(Client):
    """A client that does all kinds of things, forever."""

    def __init__(self, *args, keys):
        super().__init__(*args)
        self.keys = keys
        self.polite = self.rng.random() < 0.6  # releases when it is asked to
        self.past = []  # grants that should be over

    def run(self):
        while True:
            try:
                self.round()
            except TROUBLE:
                pass
            time.sleep(self.rng.uniform(0.002, 0.04))

    def round(self):
        rng = self.rng
        if rng.random() < 0.2:
            self.change_node()
        if rng.random() < 0.35:
            self.look_around()
        key = rng.choice(sorted(self.keys))
        lease_ms = rng.randint(*self.keys[key])
        wait_ms = rng.choice((0, 0, rng.randint(50, 500), rng.randint(500, 2500)))
        priority = rng.choice((0, 0, 0, rng.randint(1, 5)))
        grant = self.acquire(key, lease_ms, wait_ms, priority,
                             steal=priority > 0 and wait_ms > 0 and rng.random() < 0.6,
                             early=rng.choice((0.1, 0.5)) if key == EARLY else None)
        if grant is not None:
            self.hold(grant)

    def look_around(self):
        key = self.rng.choice(sorted(self.keys))
        what = self.rng.random()
        if what < 0.4:
            self.read(key, node=self.rng.choice(sorted(self.nodes)))
        elif what < 0.7:
            self.read(key, majority=True)
        elif what < 0.9 and self.past:
            grant = self.rng.choice(self.past)
            self.check(grant.key, grant.fence)
        else:  # what has no place in a history, but might end a node
            self.poke(*self.rng.choice((("EXPLAIN", key), ("LOCKS",), ("NODES",), ("INFO",),
                                        ("AWAIT", key, "FREE", 30))))

    def hold(self, grant):
        rng = self.rng
        style = rng.choices(("brief", "update", "extend", "sit", "abandon"),
                            (5, 4, 1.5, 1, 0.5))[0]
        if style == "brief":
            time.sleep(rng.uniform(0, 0.02))
        elif style == "update":
            self.update(grant)
        elif style == "sit":  # to the last moment
            time.sleep(max(0, (grant.end - now()) / 1e9 - rng.uniform(0.02, 0.1)))
            self.update(grant)
        elif style == "extend" and not self.keep_extending(grant):
            self.remember(grant)
            return
        if style != "abandon" and rng.random() < 0.9:
            self.release(grant, node=rng.choice((self.node, self.node, self.other())))
        self.remember(grant)
        if rng.random() < 0.1:
            self.look_again(grant)

    def remember(self, grant):
        self.past = (self.past + [grant])[-5:]

    def update(self, grant):
        """Read, think, and write, in two sets: one looks at fences, the other does not."""
        for fenced in (True, False):
            half = self.look(grant, fenced)
            time.sleep(self.rng.uniform(0, 0.02))
            if now() < grant.end:
                self.change(grant, *half)

    def keep_extending(self, grant):
        """False: it is over already."""
        rng = self.rng
        for _ in range(rng.randint(1, 5)):
            time.sleep(grant.lease_ms / 1000 * rng.uniform(0.1, 0.6))
            late = now() >= grant.end
            if late and rng.random() < 0.5:
                return True  # it forgot; it says RELEASE, though it holds nothing
            how = rng.random()
            if how < 0.2:
                word = self.extend_twice(grant)
            else:
                word = self.extend(grant, node=self.other() if how < 0.5 else None)
            if word == "LOST":
                return False
            if word == "ASKED":
                return self.polite
            if word == "ok" and rng.random() < 0.3:
                self.check(grant.key, grant.fence, node=self.other())
            if now() < grant.end and rng.random() < 0.3:
                self.update(grant)
        return True

    def look_again(self, grant):
        """At what is over: it must not be held again."""
        if self.rng.random() < 0.5:
            self.extend(grant, node=self.other())
        else:
            self.check(grant.key, grant.fence, node=self.other())


class Lockers(Crowd):
    """The processes of the load. Each notes when it was last granted which key."""

    def __init__(self, count, make, keys):
        self.make, self.keys = make, sorted(keys)
        super().__init__(count, len(self.keys))

    def work(self, i, name):
        client = self.make(name)
        client.granted = lambda key: key in self.keys and self.set(i, now(), self.keys.index(key))
        client.run()

    def last(self, key):
        """When a key was last granted to anybody."""
        return max(self.get(i, self.keys.index(key)) for i in range(self.count))
