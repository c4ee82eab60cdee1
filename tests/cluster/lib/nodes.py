"""nodes.py - a cluster of real nodes on this machine, and what can happen to it.

    with Cluster(3, server="build/plain/src/server/sluice-server") as c:
        r = c[1].connect()                       # redis-py, with timeouts
        fence = r.execute_command("ACQUIRE", "db", "LEASE", 5000)[0]
        c[1].kill()                              # kill -9
        c[2].connect().execute_command("EXTEND", "db", fence, 5000)
        c[1].start()
        c.cut(1, 2)                              # and heal()

`with` starts all nodes, waits until they are ready, and leaves nothing: no process, no
namespace, no directory, also after an exception. If the process that made the cluster is killed, a
guard, which is a process of its own, ends it instead. A cluster without `with` needs up()
and down(). tools/cluster is this file for people: it keeps a cluster between calls (keep=True,
Cluster.open).

Nodes have numbers from 1: c[1], c.nodes[1]; `for node in c`. Number 0 stands for everybody
outside, that is for clients.

Where nodes live, and how they can be cut:

    Cluster(3)                 on a loopback address of its own; they cannot be cut
    Cluster(3, proxied=True)   the same, with a proxy between node ports: cut, slow, delays
    Cluster(3, netns=True)     each in a network namespace (root): cut, lose; clients, too
    netns and proxied          both: cut and slow by the proxy, cut(0, 1) by the namespace

clock=True: each node has clocks that can be set, see clock().
etcd=3: the nodes run on this many members of etcd, c.etcd[1] or c["etcd1"], see etcd.py.

All calls may be made from several threads, but not two about one node at once. A fault that
cannot be made here raises Refused with the reason.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
if HERE not in sys.path:
    sys.path.insert(0, HERE)
import etcd as etcds  # noqa: E402
import net  # noqa: E402
from clock import Clock, build_clock  # noqa: E402
from node import Node, as_dict  # noqa: E402,F401
from processes import (MARK, PATIENCE_S, ROLE, Refused, end_processes,  # noqa: E402,F401
                       processes_of, state_of, until)

OUTSIDE = 0
STATE = "cluster.json"
PORTS_APART = etcds.PORTS_APART  # 5625, 5635, ...; etcd has ports between them, too
NODE_PORT, PROXY_PORT = 2, 3  # so far behind the port of clients


# --- The cluster ------------------------------------------------------------------------


class Cluster:
    """Nodes 1..n, and the net between them."""

    def __init__(self, n=3, server=None, netns=False, options=None, proxied=False,
                 clock=False, dir=None, seed=1, port_base=None, keep=False, host=None,
                 words=(), etcd=0, etcd_tls=None, etcd_user=None, etcd_words=(), keeper=True):
        """server: the program, sluice-server or sluice; by default that of build/plain.
        options: settings of all nodes, {"lease-max": "10s"}; None takes one away.
        words: further words of the command line, at each start of each node.
        seed: of all that the proxy leaves to chance.
        dir: a directory that is not there yet; by default one in /tmp.
        port_base: the port of node 1, on loopback; host: the address there.
        keep: it outlives this process. Without, it ends with it.
        etcd: how many members of etcd; etcd_...: see Etcd. keeper: up() waits for one.

        Nothing is started yet."""
        self.dir = os.path.realpath(dir) if dir else None
        self.command = command_of(server)
        self.options = dict(options or {})
        self.words = list(words)
        self.proxied, self.has_clocks, self.seed, self.keep = proxied, clock, seed, keep
        self.keeper = keeper
        self.port_base, self.loopback = port_base, host
        self.netns = net.Net() if netns else None
        self.password = secrets.token_hex(8) if netns else None
        self.first = list(range(1, n + 1))  # that begin together, with --bootstrap
        self.nodes = {}
        self.cuts = []  # [from, to, "drop" or "reset"], each one way
        self.etcd = etcds.Etcd(self, etcd, etcd_tls, etcd_user, etcd_words) if etcd else None
        self.guard = self.proxy_popen = None
        self.made = False  # the directory is ours
        self.spawning = threading.Lock()

    # As a container of nodes.

    def __getitem__(self, number):
        if isinstance(number, str) and number.startswith("etcd") and self.etcd:
            return self.etcd[int(number[4:]) if number[4:].isdigit() else number[4:]]
        if number not in self.nodes:
            raise Refused("node %s does not exist; this cluster has %s" % (
                number, ", ".join(map(str, sorted(self.nodes))) or "none"))
        return self.nodes[number]

    def __iter__(self):
        return iter([self.nodes[i] for i in sorted(self.nodes)])

    def __len__(self):
        return len(self.nodes)

    @property
    def running(self):
        """The nodes that are up, and not paused."""
        return [n for n in self if n.state == "up"]

    @property
    def parts(self):
        """Nodes and members of etcd."""
        return list(self) + list(self.etcd or ())

    @property
    def majority(self):
        return len(self) // 2 + 1

    # Up and down.

    def __enter__(self):
        try:
            return self.up()
        except BaseException:
            self.down()
            raise

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Make directory, net, proxy and nodes; start all; wait until they are ready."""
        if self.etcd and etcds.missing():
            raise Refused(etcds.missing())
        self.make_dir()
        if not self.keep:
            self.guard = Guard(self.dir)
        for name, text in (("secret", secrets.token_hex(16)), ("password", self.password)):
            if text:
                write_private(os.path.join(self.dir, name), text + "\n")
        shares = self.loopback is not None  # an address: then ports are taken when they listen
        with alone():
            self.choose_addresses()
            self.save()  # before the first thing that down() would have to end
            self.start_all()
            if shares:
                self.wait_ready()
        self.wait_ready()
        if self.etcd and self.first and self.keeper:
            self.wait_keeper()
        return self

    def start_all(self):
        if self.netns:
            self.netns.up()
        if self.has_clocks:
            build_clock(self.clock_library)
        if self.proxied:
            self.start_proxy()
        if self.etcd:
            self.etcd.up()
        for number in self.first:
            self.new_node(number)
        self.save()
        for node in self:
            self.make_place(node)
        for node in self:
            node.start(wait=False)
        for node in self:
            node.wait_ready()

    def down(self):
        """End everything and remove the directory. What is not there is no error."""
        if not self.made:
            return
        end_processes(self.dir)
        for popen in [n.popen for n in self] + [self.proxy_popen]:
            if popen is not None:
                popen.wait()
        if self.etcd:
            self.etcd.down()
        if self.netns:
            self.netns.down()
        shutil.rmtree(self.dir, ignore_errors=True)
        if self.guard is not None:
            self.guard.dismiss()
            self.guard = None

    def wait_ready(self, seconds=PATIENCE_S):
        """Until every node that runs answers clients and has found all others that run
        and are not cut from it."""
        end = time.monotonic() + seconds
        running = self.running
        for node in running:
            node.wait_ready(max(1.0, end - time.monotonic()))
        for node in running:
            others = [n.id for n in running if not self.is_cut(n.id, node.id) and
                      not self.is_cut(node.id, n.id)]
            until(lambda: node.hears(others), "%r is connected with %r" % (node, others),
                  max(1.0, end - time.monotonic()))

    def wait_keeper(self, seconds=PATIENCE_S):
        """Until every node that runs knows a keeper, and has a way to it."""
        import redis

        def known(node):
            try:
                said = node.keeper()
                return said["keeper_node"] != "0" and said["keeper_reachable"] != "0"
            except (redis.RedisError, OSError):
                return False

        until(lambda: all(map(known, self.running)), "all nodes know a keeper", seconds)

    def wait_granting(self, at=None, seconds=PATIENCE_S):
        """Until a lock is granted at a node, on a key of its own: nodes that were started
        again do not vote before the longest lease that they know of has ended. Returns
        after how many seconds that was."""
        import redis
        node = self[at] if at else self.any_running()
        start = time.monotonic()

        def granted():
            try:
                key = "wait-granting-%s" % secrets.token_hex(4)
                got = node.call("ACQUIRE", key, "LEASE", 1000)
                node.call("RELEASE", key, got[0])
                return True
            except (redis.RedisError, OSError):
                return False

        until(granted, "%r grants" % node, seconds)
        return time.monotonic() - start

    # Its directory.

    def make_dir(self):
        if self.dir is None:
            self.dir = os.path.realpath(tempfile.mkdtemp(prefix="sluice-cluster."))
            self.made = True
            return
        if os.path.exists(os.path.join(self.dir, STATE)):
            raise Refused("%s already contains a cluster" % self.dir)
        if os.path.isdir(self.dir) and os.listdir(self.dir):
            raise Refused("%s is not empty" % self.dir)
        os.makedirs(self.dir, exist_ok=True)
        self.made = True

    @property
    def name(self):
        """What namespaces and the bridge are called by: another for each directory."""
        return "sl" + hashlib.sha256(self.dir.encode()).hexdigest()[:6]

    @property
    def clock_library(self):
        return os.path.join(self.dir, "clock.so")

    def save(self):
        """For open(), and for the process that has to end it."""
        path = os.path.join(self.dir, STATE)
        with open(path + ".new", "w") as f:
            json.dump({"command": self.command, "options": self.options, "words": self.words,
                       "proxied": self.proxied, "clock": self.has_clocks, "seed": self.seed,
                       "port_base": self.port_base, "loopback": self.loopback,
                       "netns": self.netns.as_dict() if self.netns else None,
                       "password": self.password, "first": self.first, "cuts": self.cuts,
                       "etcd": self.etcd.as_dict() if self.etcd else None,
                       "nodes": {n.id: n.options for n in self}}, f, indent=1)
        os.chmod(path + ".new", 0o600)
        os.rename(path + ".new", path)

    @classmethod
    def open(cls, directory):
        """The cluster that is kept in a directory."""
        directory = os.path.realpath(directory)
        try:
            with open(os.path.join(directory, STATE)) as f:
                kept = json.load(f)
        except FileNotFoundError:
            raise Refused("%s contains no cluster; start one with \"up\"" % directory) from None
        c = cls(0, kept["command"], dir=directory, options=kept["options"],
                proxied=kept["proxied"], clock=kept["clock"], seed=kept["seed"],
                port_base=kept["port_base"], host=kept["loopback"], keep=True,
                words=kept["words"])
        c.made = True
        c.password, c.first, c.cuts = kept["password"], kept["first"], kept["cuts"]
        if kept["netns"]:
            c.netns = net.Net(kept["netns"])
        if kept["etcd"]:
            c.etcd = etcds.Etcd.of(c, kept["etcd"])
            c.etcd.choose(c.port_base)
        for number, options in kept["nodes"].items():
            c.new_node(int(number)).options = options
        return c

    # Addresses.

    @property
    def outside_host(self):
        """Where clients, and the proxy, are."""
        return self.netns.host(OUTSIDE) if self.netns else self.loopback

    def choose_addresses(self):
        if self.netns:
            self.netns.choose(self.name)
        else:
            self.choose_loopback()
        if self.etcd:
            self.etcd.choose(self.port_base)
            self.etcd.choose_memory()

    def choose_loopback(self):
        # Room for some that are added.
        most = max(max(self.first, default=0) + 2, self.etcd.count if self.etcd else 0)
        if self.loopback is None:  # one that no other cluster has
            self.port_base = self.port_base or 5625
            seed = hashlib.sha256(self.dir.encode()).digest()
            tries = ["127.%d.%d.1" % (1 + (seed[0] + i) % 254, seed[1]) for i in range(50)]
            self.loopback = next((h for h in tries if are_free(h, self.port_base, most)), None)
            if self.loopback is None:
                raise Refused("no loopback address is free")
            return
        bases = [self.port_base] if self.port_base else range(5625, 5625 + 50 * 100, 100)
        free = next((b for b in bases if are_free(self.loopback, b, most)), None)
        if free is None:
            raise Refused("the ports from %d are in use on %s" % (bases[0], self.loopback))
        self.port_base = free

    def new_node(self, number):
        """An entry here; nothing of it is made yet."""
        if self.netns:
            host, port = self.netns.host(number), 5625
            node = Node(self, number, host, port, port + NODE_PORT,
                        port + PROXY_PORT + PORTS_APART * number if self.proxied else None)
        else:
            port = self.port_base + PORTS_APART * (number - 1)
            node = Node(self, number, self.loopback, port, port + NODE_PORT,
                        port + PROXY_PORT if self.proxied else None)
        self.nodes[number] = node
        return node

    def make_place(self, node):
        """Its directory, its namespace, its route at the proxy."""
        node.make_directory()
        if self.netns:
            self.netns.add(node.id)
        if self.proxied:
            self.proxy({"do": "route", "node": node.id, "listen": node.peer,
                        "to": "%s:%d" % (node.host, node.node_port),
                        "caller": node.host if self.netns else None})

    def is_first(self, node):
        return node.id in self.first

    # Starting processes.

    def spawn(self, role, words, log, directory, namespace=None, clock=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        environment.update({MARK: self.dir, ROLE: role})
        if clock:
            environment.update(LD_PRELOAD=self.clock_library, CLOCK_FILE=clock)
        if self.netns and namespace:
            words = self.netns.inside(namespace) + words
        # One at a time: a child must not inherit what another's start has open.
        with self.spawning, open(log, "ab") as out:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    cwd=directory, env=environment, start_new_session=True)

    # The proxy.

    def start_proxy(self):
        path = os.path.join(self.dir, "proxy.sock")
        words = [os.path.join(HERE, "proxy"), "proxy.sock", "--seed", str(self.seed),
                 "--cluster", self.dir]
        log = os.path.join(self.dir, "proxy.log")
        self.proxy_popen = self.spawn("proxy", words, log, self.dir)
        until(lambda: os.path.exists(path), "the proxy listens")

    def proxy(self, order):
        """Tell the proxy something; its answer. See the header of ./proxy."""
        if not self.proxied:
            raise Refused("this cluster has no proxy between its nodes")
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE_S)
            # A path in /proc, since that of a socket may be no longer than 107 bytes.
            directory = os.open(self.dir, os.O_PATH)
            try:
                s.connect("/proc/self/fd/%d/proxy.sock" % directory)
            finally:
                os.close(directory)
            s.sendall(json.dumps(order).encode() + b"\n")
            answer = json.loads(s.makefile("rb").readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    # Faults between nodes.

    def cut(self, a, b, one_way=False, reset=False):
        """Nothing that a sends reaches b, silently; and nothing of b reaches a, unless
        one_way. reset: they receive a reset at once, instead of nothing. Both are numbers
        of nodes, or names of members of etcd."""
        a, b = (x if x == OUTSIDE else self[x].id for x in (a, b))
        for source, target in [(a, b)] if one_way else [(a, b), (b, a)]:
            self.cut_one_way(source, target, "reset" if reset else "drop")
        self.save()

    def cut_one_way(self, source, target, how):
        if source == target:
            raise Refused("%s cannot be cut off from itself" % self.part(source))
        outside, with_etcd = OUTSIDE in (source, target), max(source, target) >= etcds.FIRST
        if outside and with_etcd:
            raise Refused("clients do not connect to etcd")
        if self.netns and (not self.proxied or outside or with_etcd):
            if target == OUTSIDE:
                self.netns.block(source, OUTSIDE, how, port=self[source].port, outgoing=True)
            elif source == OUTSIDE:
                self.netns.block(target, OUTSIDE, how, port=self[target].port)
            else:
                self.netns.block(target, source, how)
        elif outside:
            raise Refused("clients can be cut off only in namespaces")
        elif self.proxied:
            self.proxy({"do": "set", "from": source, "to": target, "cut": how})
        else:
            raise Refused("on loopback, nodes cannot be cut off without a proxy (--direct)")
        self.cuts.append([source, target, how])

    def part(self, number):
        """By the number that is in `cuts`."""
        return self.etcd[number - etcds.FIRST + 1] if number >= etcds.FIRST else self[number]

    def isolate(self, number, reset=False):
        """Cut one node from all others; not from etcd."""
        for other in self:
            if other.id != number:
                self.cut(number, other.id, reset=reset)

    def partition(self, *groups):
        """Nodes that are in no group together are cut from each other. A node that is in
        two groups is a bridge; one that is in none is alone."""
        for a in self:
            for b in self:
                if a.id < b.id and not any(a.id in g and b.id in g for g in groups):
                    self.cut(a.id, b.id)

    def ring(self):
        """Each node reaches a majority, and no two the same: it is cut from all but its
        nearest. Of 3 nodes it is a chain."""
        order = [n.id for n in self]
        n = len(order)
        if n == 3:
            self.cut(order[0], order[2])
        for i in range(n):
            for j in range(i + 1, n):
                if min(j - i, n - j + i) > self.majority // 2:
                    self.cut(order[i], order[j])

    def heal(self):
        """No cut, no loss, no delay any more. Nodes that are dead or paused stay so."""
        if self.netns:
            for part in self.parts:
                self.netns.unblock(part.id)
        if self.proxied:
            self.proxy({"do": "heal"})
        self.cuts = []
        self.save()

    def is_cut(self, source, target):
        return any(c[:2] == [source, target] for c in self.cuts)

    def lose(self, a, b, chance):
        """So much of what a sends to b is lost, of 1. TCP sends it again, late."""
        if not self.netns or self.proxied:
            raise Refused("packets can be dropped only in namespaces without a proxy")
        self.netns.block(b, a, "drop", chance=chance)

    def slow(self, a=None, b=None, **how):
        """From now on the proxy treats what a sends to b so; None: of all.

            delay_ms=5, jitter_ms=2      each piece takes so long, and up to so much longer
            hold=0.01, hold_ms=300       with this chance a piece, and all behind it on its
                                         connection, is held back: others overtake it
            bytes_per_s=1000             slow drip
            chop=0.2                     with this chance a piece is cut in two

        What is not named goes on as it was; heal() ends all."""
        for source in self if a is None else [self[a]]:
            for target in self if b is None else [self[b]]:
                if source is not target:
                    self.proxy({"do": "set", "from": source.id, "to": target.id, **how})

    def hang_up(self, a=None, b=None, reset=True):
        """End the connections between two nodes (None: any), once."""
        self.proxy({"do": "end", "from": a, "to": b, "reset": reset})

    # Clocks.

    def clock(self, number, offset=0.0, rate=None, slept=0.0):
        """Change the clocks of a node, from this moment on.

        offset: step its wall clock (REALTIME) by this many seconds, either way.
        slept: as if its machine had slept: REALTIME and BOOTTIME go forward.
        rate: all its clocks run so much faster than true time; 1.0 is true again, without
        a step back. Threads that sleep and timers follow.
        Survives a restart of the node."""
        if not self.has_clocks:
            raise Refused("the nodes of this cluster use the clock of the machine")
        Clock(self[number].clock_path).change(offset, rate, slept)

    # Nodes that come and go.

    def add(self, number, at=None):
        """Start another node and have it added to the list, at node `at` or any that does
        it. If it is refused, it is ended again, and the refusal raised. If there was no
        answer it stays: it may have been added."""
        import redis
        if number in self.nodes:
            raise Refused("node %d already exists" % number)
        helpers = [self[at]] if at else self.running
        node = self.new_node(number)
        self.save()
        try:
            self.make_place(node)
            node.start()
            self.change_list(helpers, "ADD", number, node.peer)
        except (Refused, OSError, redis.ResponseError):
            self.discard(node)
            raise
        return node

    def remove(self, number, at=None):
        """Have a node removed from the list, at node `at` or another that does it; then
        end it."""
        node = self[number]
        helpers = [self[at]] if at else [n for n in self.running if n is not node]
        self.change_list(helpers, "REMOVE", number)
        self.discard(node)

    @staticmethod
    def change_list(helpers, *words):
        """NODES at one after the other, until one does it: who has just been started may
        have to refuse what others can do."""
        import redis
        why = Refused("no other node is running")
        for helper in helpers:
            try:
                helper.call("NODES", *words, timeout=PATIENCE_S)
                return
            except redis.ResponseError as e:
                why = e
        raise why

    def discard(self, node):
        """End a node, and remove what is of it on this machine."""
        if node.pid is not None:
            node.kill()
        del self.nodes[node.id]
        if self.proxied:
            self.proxy({"do": "unroute", "node": node.id})
        if self.netns:
            self.netns.remove(node.id)
        self.cuts = [c for c in self.cuts if node.id not in c[:2]]
        shutil.rmtree(node.dir, ignore_errors=True)
        self.save()

    def any_running(self, but=None):
        for node in self.running:
            if node.id != but:
                return node
        raise Refused("no other node is running")

    # After a failure.

    def logs(self):
        """What all nodes and members of etcd said, as lines with who it was before each."""
        lines = []
        for part in self.parts:
            who = part.title if part.id >= etcds.FIRST else part.id
            lines += ["%s| %s" % (who, line) for line in part.log.splitlines()]
        return lines


# --- Small things ------------------------------------------------------------------------


def command_of(server):
    """The words that start a server: of a path, or as they were kept."""
    if isinstance(server, list):
        return server
    if server is None:
        server = os.path.join(ROOT, os.environ.get("BUILD", "build"), "plain/src/cli/sluice")
    server = os.path.abspath(server)
    return [server, "serve"] if os.path.basename(server) == "sluice" else [server]


locked = set()  # directories that this process has a lock on for as long as it runs


@contextlib.contextmanager
def alone():
    """Who chooses addresses is alone on this machine until they are taken; the lock is on the
    directory for temporary files."""
    directory = os.path.realpath(tempfile.gettempdir())
    if directory in locked:  # a second lock would wait for the first
        yield
        return
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def write_private(path, text):
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(text)


def are_free(host, base, nodes):
    """Can all ports be listened on that this many nodes, and members of etcd, need?"""
    for i in range(nodes):
        for offset in (0, NODE_PORT, PROXY_PORT, *etcds.OFFSET, *etcds.PROXY_OFFSET):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    s.bind((host, base + PORTS_APART * i + offset))
                except (OSError, OverflowError):
                    return False
    return True


class Guard:
    """A process that ends the cluster when we are gone, however we went."""

    def __init__(self, directory):
        self.popen = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--guard", directory, str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)

    def dismiss(self):
        self.popen.kill()
        self.popen.wait()


def keep_guard(directory, pid):
    """Wait for the end of a process; then end what is left of its cluster."""
    try:
        fd = os.pidfd_open(pid)
        if os.getppid() == pid:
            select.select([fd], [], [])
    except ProcessLookupError:
        pass
    time.sleep(0.1)  # a child that was being started now has its environment
    try:
        Cluster.open(directory).down()
    except Refused:  # it had not come so far
        end_processes(directory)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__" and sys.argv[1:2] == ["--guard"]:
    keep_guard(sys.argv[2], int(sys.argv[3]))
