#!/usr/bin/python3
"""cluster.py SLUICE [--jobs N] [PATTERN...] - tests tools/cluster, and tests/cluster/lib.

The tests start real nodes, and check that the tool starts, shows, breaks and removes a cluster.
Other suites test the locks of a cluster.
"""
import os
import re
import signal
import socket
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "../cli"), os.path.join(HERE, "../cluster/lib")]
import clock  # noqa: E402
import etcd  # noqa: E402
import net  # noqa: E402
import nodes  # noqa: E402
import tap  # noqa: E402
from tap import Failure, Skip, check, check_that, main, test  # noqa: E402

TOOL = os.path.join(ROOT, "tools/cluster")


class Tool:
    """tools/cluster with a directory of the test."""

    def __init__(self, t, name="cluster"):
        self.t = t
        self.dir = t.path(name)
        t.transcripts.append(self.logs)

    def logs(self):
        """The logs of its nodes, which are printed after a failure."""
        try:
            return "\n".join(nodes.Cluster.open(self.dir).logs())
        except nodes.Refused:
            return ""

    def start(self, *words):
        words = list(map(str, words))
        return self.t.start(TOOL, words[0], "--dir", self.dir, *words[1:])

    def fails(self, *words):
        """Run a command that must fail. Returns (status, standard error)."""
        p = self.start(*words)
        check_that(p.status != 0, "%r fails" % (words,))
        return p.status, p.err

    def __call__(self, *words):
        p = self.start(*words)
        if p.status != 0:
            raise Failure("%r: status %d: %s" % (words, p.status, p.err))
        return p.out

    def up(self, *words):
        said = self("up", "--server", tap.program, *words)
        self.ports = {int(i): int(port) for i, port in
                      re.findall(r"^node (\d+)  127\.0\.0\.1:(\d+)", said, re.M)}
        return said

    def down(self):
        self("down")
        nothing_is_left(self.t, self.dir)

    def cli(self, number, *words):
        return self("cli", number, *words).split("\n")[:-1]

    def acquire(self, number, key, lease_ms=5000):
        """Acquire a key; returns the fence. It retries, because after a fault the nodes must connect
        first, and earlier requests that failed may still hold votes."""
        def granted():
            said = self.cli(number, "ACQUIRE", key, "LEASE", lease_ms)
            return said[0] if len(said) == 5 else None
        return self.t.until(granted, "node %d grants %s" % (number, key))

    def status(self):
        said = self("status")
        self.t.processes.pop()  # status() is called repeatedly
        return said

    def states(self):
        return dict(re.findall(r"^node (\d+)  (\w+)", self.status(), re.M))

    def members(self):
        """{"etcd1": "up", ...}"""
        return dict(re.findall(r"^(etcd\d+)  (\w+)", self.status(), re.M))

    def leader(self):
        """The leader of etcd; None if no member is the leader."""
        found = re.search(r"^(etcd\d+)  up .*\n +leads", self.status(), re.M)
        return found.group(1) if found else None

    def sees(self, number):
        """The nodes that are up, according to a node."""
        said = re.search(r"^node %d .*\n +membership \d+: (.*)" % number, self.status(), re.M)
        return sorted(re.findall(r"(\d+) up", said.group(1))) if said else None

    def until_sees(self, number, others):
        self.t.until(lambda: self.sees(number) == others,
                     "node %d sees %r" % (number, others))


def up(t, *words):
    """Start a cluster."""
    c = Tool(t)
    c.up(*words)
    return c


def nothing_is_left(t, directory):
    check(nodes.processes_of(os.path.realpath(directory)), {}, "the processes that are left")
    check_that(not os.path.exists(directory), "the directory is gone")
    name = nodes.Cluster(1, dir=directory).name
    if net.missing() is None:
        check(net.run("ip", "netns", "list").count(name), 0, "namespaces that are left")
        check(net.run("ip", "-o", "link").count(name), 0, "links that are left")


def sweep(directory):
    """Remove the network namespaces, which stay if the processes of a test are killed."""
    if directory and os.path.exists(os.path.join(directory, nodes.STATE)):
        nodes.Cluster.open(directory).down()


# --- The tool -----------------------------------------------------------------------------


def type_what_up_prints(t, *words):
    c = Tool(t)
    said = c.up(*words)
    check(sorted(c.ports), [1, 2, 3], "the nodes")
    lines = [line.strip() for line in said.splitlines() if line.startswith("    ")]
    fence = None
    for line in lines:
        words = line.replace("<fence>", fence or "").replace("tools/cluster", TOOL).split()
        p = t.run(*words)
        while p.out.startswith(("NOQUORUM", "NOKEEPER")):  # the machine is busy
            p = t.run(*words)
        check((p.status, p.err), (0, ""), line)
        if "pool" in words:
            check(p.out.split()[1], "2", line)
        elif "ACQUIRE" in words:
            fence = p.out.split()[0]
        elif "READ" in words:
            check(p.out.split()[:2], ["mine", fence], line)
        elif "EXTEND" in words:
            check_that(p.out.strip().isdigit() and int(p.out) > 50000,
                       "it was extended: %s" % p.out)
        elif "status" in words:
            check_that("1  dead" in p.out and fence in p.out, "it is shown: %s" % p.out)
    nothing_is_left(t, c.dir)


@test
def what_up_prints_can_be_typed(t):
    type_what_up_prints(t)


@test
def the_example_of_up_ends_with_down(t):
    c = up(t, "1")
    c.down()
    check(c.fails("down"), (1, "cluster: %s contains no cluster; start one with \"up\"\n" % c.dir))


@test
def two_of_three_dead_grant_nothing_until_one_is_back(t):
    c = up(t)
    fence = c.acquire(1, "a", 2000)
    c("kill", 1)
    c("kill", 2, "TERM")
    check(c.states(), {"1": "dead", "2": "dead", "3": "up"})
    check(c.cli(3, "ACQUIRE", "b", "LEASE", 1000)[0].split()[0], "NOQUORUM")
    check(c.fails("kill", 1), (1, "cluster: node 1 is not running\n"))
    c("start", 1)
    check(c.fails("start", 1), (1, "cluster: node 1 is already running\n"))
    check_that(int(c.acquire(3, "b")) > int(fence), "fences rise")
    c.down()


@test
def a_paused_node_is_shown_as_paused(t):
    c = up(t)
    c("pause", 2)
    check(c.states()["2"], "paused")
    c.until_sees(1, ["3"])
    c("resume", 2)
    c.until_sees(1, ["2", "3"])
    c.down()


@test
def a_cut_on_loopback_and_its_end(t):
    c = up(t)
    c("cut", 1)
    c.until_sees(1, [])
    check(c.cli(1, "ACQUIRE", "a", "LEASE", 1000)[0].split()[0], "NOQUORUM")
    c.acquire(2, "a")
    c("heal")
    c.until_sees(1, ["2", "3"])
    c("cut", 2, "from", 3, "--one-way", "--reset")
    c.until_sees(2, ["1"])
    check_that("what node 2 sends does not reach node 3; connections are reset" in c("status"),
               "the cut is shown")
    c.acquire(2, "b")
    c.down()


@test
def without_the_proxy_a_cut_is_rejected(t):
    c = up(t, "--direct")
    check(c.fails("cut", 1), (1, "cluster: on loopback, nodes cannot be cut off without a proxy "
                             "(--direct)\n"))
    c.down()


@test
def namespaces_and_a_cut_there(t):
    if net.missing():
        raise Skip(net.missing())
    c = Tool(t)
    try:
        c.up("--netns")
        c("cut", 1)
        c.until_sees(1, [])
        c.acquire(2, "a")
        c("heal")
        c.until_sees(1, ["2", "3"])
        c("down")
    finally:
        sweep(c.dir)
    nothing_is_left(t, c.dir)


@test
def a_node_more_and_a_node_less(t):
    c = up(t)
    c("add", 4)
    check(c.states(), dict.fromkeys("1234", "up"))
    c.until_sees(4, ["1", "2", "3"])
    check(c.fails("add", 4), (1, "cluster: node 4 already exists\n"))
    c.acquire(4, "a", 1000)
    # The next change must wait until all leases from before the first change have expired.
    t.until(lambda: c.start("remove", 2).status == 0, "node 2 is removed")
    check(c.states(), dict.fromkeys("134", "up"))
    c.until_sees(4, ["1", "3"])
    c.down()


@test
def options_for_the_server_reach_it(t):
    c = up(t, "1", "--", "--lease-max", "20s")
    check(c.cli(1, "ACQUIRE", "a", "LEASE", 60000)[0].split()[0], "TOOBIG")
    check_that("listening" in c("log", 1), "its log is shown")
    c.down()


@test
def two_clusters_side_by_side(t):
    one, other = Tool(t, "one"), Tool(t, "other")
    first = one.start("up", "1", "--server", tap.program)
    other.up("1")
    check(first.status, 0, "the status of the other up")
    status, said = one.fails("up", "--server", tap.program)
    check((status, "already contains a cluster" in said), (1, True), "up, where there is one")
    one.acquire(1, "a")
    one("down")
    other.acquire(1, "a")
    other("down")


@test
def a_cluster_next_to_other_temporary_files(t):
    """Two locks of one process are on one directory. (It is not that of the other tests, so ports
    that they choose are not chosen here.)"""
    c = Tool(t)
    up = t.start(TOOL, "up", "1", "--direct", "--port-base", "15625", "--dir", c.dir, "--server",
                 tap.program, env={"TMPDIR": os.path.dirname(c.dir)})
    check(up.status, 0, "the status of up")
    c.down()


@test
def a_server_that_does_not_start_says_why(t):
    c = Tool(t)
    status, said = c.fails("up", "--server", tap.program, "--", "--lease-max", "never")
    check(status, 1, "the status")
    check_that("lease-max" in said, "the reason is given: %s" % said)
    nothing_is_left(t, c.dir)
    status, said = c.fails("up", "--server", t.path("nothing"))
    check((status, "is not a program" in said), (1, True))


@test
def up_that_is_interrupted_leaves_nothing(t):
    c = Tool(t)
    hangs = t.script("sluice-server", "#!/bin/sh\nexec sleep 1000\n")
    p = c.start("up", "--server", hangs)
    t.until(lambda: len(nodes.processes_of(c.dir)) == 4, "three nodes and the proxy run")
    p.kill(signal.SIGTERM)
    check(p.status, 128 + signal.SIGTERM, "the status")
    nothing_is_left(t, c.dir)


@test
def what_is_not_understood(t):
    c = Tool(t)
    for words in (["frob"], ["up", "ten"], ["up", "3", "4"], ["kill"], ["cut", "1", "2"],
                  ["up", "--port-base"], ["status", "--", "x"], ["kill", "1", "FROB"],
                  ["up", "--netns", "--direct"], ["up", "--etcd", "0"], ["kill", "mongo1"],
                  ["add", "etcd4"], ["cli", "etcd1"], ["cut", "etcd1", "from"]):
        status, said = c.fails(*words)
        check((status, "--help" in said), (2, True), " ".join(words))
    p = t.run(TOOL, "--help")
    check((p.status, "tools/cluster up" in p.out), (0, True), "--help")


@test
def namespaces_need_root(t):
    words = t.as_nobody()
    p = t.run(*words, TOOL, "up", "--netns", "--dir", "/tmp/sluice-nobody-%d" % os.getpid())
    check((p.status, "need root" in p.err), (1, True), "up --netns: " + p.err)


# --- The tool, with etcd -----------------------------------------------------------------


def needs_etcd():
    if etcd.missing():
        raise Skip(etcd.missing())


@test
def nodes_on_etcd_come_up_and_go_down(t):
    needs_etcd()
    c = Tool(t)
    said = c.up("--etcd")
    check(sorted(c.ports), [1, 2, 3], "the nodes")
    check(re.findall(r"^(etcd\d) +127\.0\.0\.1:\d+ ", said, re.M),
          ["etcd1", "etcd2", "etcd3"], "the members")
    check(c.states(), dict.fromkeys("123", "up"))
    check(c.members(), dict.fromkeys(("etcd1", "etcd2", "etcd3"), "up"))
    check_that("3 nodes on 3 etcd members" in c("status"), "it is said")
    check(sorted(nodes.processes_of(c.dir).values()),
          ["1", "101", "102", "103", "2", "3", "proxy"], "the processes")
    for n in nodes.Cluster.open(c.dir):
        with open(n.config_path) as f:
            said = f.read()
        check_that("engine = etcd\n" in said, "%s runs on etcd: %s" % (n, said))
    c.down()


@test
def what_up_prints_with_etcd_can_be_typed_as_well(t):
    needs_etcd()
    type_what_up_prints(t, "--etcd")


@test
def a_member_is_killed_paused_and_started_as_a_node_is(t):
    needs_etcd()
    c = up(t, "1", "--etcd", "3", "--direct")
    first = t.until(c.leader, "a member leads")
    c("kill", first)
    check(c.members()[first], "dead")
    check(c.fails("kill", first), (1, "cluster: %s is not running\n" % first))
    second = t.until(c.leader, "another leads")
    check_that(second != first, "it has changed: %s" % second)
    c("start", first)
    check(c.fails("start", first), (1, "cluster: %s is already running\n" % first))
    c("pause", second)
    check(c.members()[second], "paused")
    t.until(lambda: c.leader() not in (None, second), "a third one leads")
    c("resume", second)
    check(c.members()[second], "up")
    check(c("log", first), nodes.Cluster.open(c.dir)[first].log, "its log")
    check(c.fails("kill", "etcd7"),
          (1, "cluster: etcd member etcd7 does not exist; this cluster has etcd1, etcd2, etcd3\n"))
    c.down()


@test
def members_are_cut_from_each_other_and_from_nodes(t):
    needs_etcd()
    c = up(t, "--etcd", *(["--netns"] if net.missing() is None else []))
    try:
        first = t.until(c.leader, "a member leads")
        c("cut", first, "from", "etcd")
        t.until(lambda: c.leader() not in (None, first), "another leads")
        said = c("status")
        check(said.count("what %s sends does not reach etcd" % first), 2, "cuts that are shown")
        check(said.count("what node"), 0, "cuts of nodes")
        c("heal")
        c("cut", 1, "from", "etcd", "--reset")
        check(len(re.findall(r"what node 1 sends does not reach etcd\d; connections are reset",
                             c("status"))), 3, "cuts that are shown")
        c.until_sees(1, ["2", "3"])
        c("heal")
        c("cut", 1)
        check(c("status").count("what node 1 sends"), 5, "two nodes, and three members")
        c("heal")
        check(c("status").count("cut:"), 0, "cuts that are left")
        c("down")
    finally:
        sweep(c.dir)
    nothing_is_left(t, c.dir)


@test
def the_proxy_stands_before_members_on_loopback(t):
    needs_etcd()
    with cluster(1, proxied=True, etcd=3) as c:
        first = c.etcd.leader()
        for m in c.etcd:
            if m is not first:
                c.cut(first.title, m.title)
        t.until(lambda: c.etcd.leader() is not first, "another leads")
        check_that(not first.answers(), "a member that is cut off has no leader")
        c.heal()
        c.etcd.wait_ready()
        check(c.etcd.urls.count(str(first.proxies[0])), 1, "its proxy in what nodes are told")


@test
def etcd_forgets_what_is_compacted(t):
    needs_etcd()
    c = up(t, "1", "--etcd", "1", "--direct")
    members = nodes.Cluster.open(c.dir).etcd
    for i in range(3):
        members.call("kv/put", key=etcd.text_of("a"), value=etcd.text_of(str(i)))
    before = members.revision
    revision = int(c("compact").split()[1])
    check_that(revision >= before, "the revision is the last: %d" % revision)
    try:
        members.call("kv/range", key=etcd.text_of("a"), revision=before - 1)
    except etcd.NotDone as e:
        check_that("compacted" in str(e), str(e))
    else:
        raise Failure("an old revision is still there")
    c.down()


@test
def without_etcd_it_is_reported_which_package_has_it(t):
    c = Tool(t)
    needs = t.start("/usr/bin/env", "PATH=" + t.path("nothing"), "/usr/bin/python3", TOOL, "up",
                    "--dir", c.dir, "--server", tap.program, "--etcd")
    check((needs.status, needs.err),
          (1, "cluster: the program etcd is missing; install the package etcd-server\n"))
    check_that(not os.path.exists(c.dir), "nothing was made")
    c.up("1")
    for words in (["compact"], ["cut", "1", "from", "etcd"]):
        check(c.fails(*words), (1, "cluster: this cluster does not use etcd\n"))
    check(c.fails("kill", "etcd1")[0], 1, "the status of kill etcd1")
    c.down()


def etcd_has(t, **more):
    """Start a member of etcd without nodes. The test checks which requests the member accepts."""
    needs_etcd()
    with nodes.Cluster(0, etcd=1, **more) as c:
        m, directory, memory = c.etcd[1], c.dir, c.etcd.memory
        key = etcd.text_of(etcd.PREFIX + "a")
        c.etcd.call("kv/put", key=key, value=etcd.text_of("1"))
        check(c.etcd.values(), {b"sluice/a": b"1"}, "the rows")
        m.restart()
        check(c.etcd.values(), {b"sluice/a": b"1"}, "the rows after kill -9")
        yield c, m, key
    check((nodes.processes_of(directory), os.path.exists(directory)), ({}, False),
          "processes and files that are left")
    check_that(memory is None or not os.path.exists(memory), "nothing is left in memory")


@test
def a_member_with_certificates_accepts_a_client_with_one(t):
    for c, m, _ in etcd_has(t, etcd_tls="certs"):
        check(c.etcd.urls[:8], "https://", "the address")
        c.etcd.tls = "tls"  # without ours
        check_that(not m.answers(), "a stranger is not answered")
        c.etcd.tls = "certs"
        check(sorted(k for k in c.etcd.settings() if k.startswith("etcd-")),
              ["etcd-ca", "etcd-cert", "etcd-key", "etcd-prefix"], "settings of nodes")


@test
def a_member_with_users_rejects_unknown_clients(t):
    for c, m, key in etcd_has(t, etcd_user=("sluice", "secret")):
        for token, wanted in ((None, "user name is empty"), ("none", "invalid auth token")):
            try:
                m.request("POST", "/v3/kv/range", '{"key": "%s"}' % key, 5, token)
            except etcd.NotDone as e:
                check_that(wanted in str(e), str(e))
            else:
                raise Failure("a stranger was answered")
        ours = m.call("auth/authenticate", name="sluice", password="secret")["token"]
        check(m.request("POST", "/v3/kv/range", '{"key": "%s"}' % key, 5, ours)["count"], "1")
        try:
            m.request("POST", "/v3/kv/range", '{"key": "%s"}' % etcd.text_of("b"), 5, ours)
        except etcd.NotDone as e:
            check_that("permission denied" in str(e), str(e))
        else:
            raise Failure("it may read other keys")


@test
def a_command_next_to_etcd(t):
    needs_etcd()
    tool = os.path.join(ROOT, "tests/cluster/lib/etcd.py")
    p = t.run(tool, "2", "--tls", "sh", "-c", "echo $ETCD_URLS $ETCD_CA; exit 7")
    check((p.status, p.out.count("https://"), p.out.count("ca.pem")), (7, 2, 1))


# --- The library ---------------------------------------------------------------------------


def cluster(n=3, **more):
    return nodes.Cluster(n, server=tap.program, **more)


def acquire(t, node, key, *options):
    """Also if the machine stalls, so that too few nodes answer in time."""
    import redis

    def granted():
        try:
            return node.call("ACQUIRE", key, "LEASE", 60000, *options)
        except redis.ResponseError:
            return None

    return t.until(granted, "%s is granted" % key)[0]


def info(node):
    with socket.create_connection(node.address, 10) as s:
        s.sendall(b"INFO\r\nQUIT\r\n")
        return b"".join(iter(lambda: s.recv(65536), b""))


@test
def a_cluster_stops_with_the_process_that_started_it(t):
    """Also with kill -9, and while another process that it forked goes on."""
    script = t.script("holder.py", """
import os, sys, time
sys.path.insert(0, %r)
from nodes import Cluster
with Cluster(3, server=%r, netns=%r, proxied=True, dir="cluster") as c:
    if os.fork() == 0:
        time.sleep(1000)
    print("up", flush=True)
    time.sleep(1000)
""" % (os.path.join(ROOT, "tests/cluster/lib"), tap.program, net.missing() is None))
    directory = t.path("cluster")
    try:
        p = t.start("/usr/bin/python3", script)
        p.until_out("up")
        check(len(nodes.processes_of(directory)), 4, "processes of the cluster")
        p.kill()
        t.until(lambda: not os.path.exists(directory), "the guard has removed the directory")
    finally:
        sweep(directory)
    nothing_is_left(t, directory)


@test
def a_test_that_fails_leaves_nothing(t):
    try:
        with cluster() as c:
            directory = c.dir
            c[2].pause()
            raise Failure("as expected")
    except Failure:
        pass
    nothing_is_left(t, directory)


@test
def a_delay_is_as_long_as_it_says(t):
    with cluster(proxied=True) as c:
        def took_s(key):
            start = time.monotonic()
            acquire(t, c[1], key)
            return time.monotonic() - start

        c.slow(delay_ms=100)
        took = took_s("a")
        check_that(took >= 0.2, "there and back takes 200 ms: %.3f" % took)
        c.heal()
        t.until(lambda: took_s("b%d" % time.monotonic_ns()) < 0.2, "it is over")


@test
def pieces_that_are_chopped_held_back_and_dripped_arrive_whole(t):
    with cluster(proxied=True, seed=7) as c:
        c.slow(jitter_ms=3, hold=0.1, hold_ms=20, chop=0.9, bytes_per_s=20000)
        for i in range(30):
            acquire(t, c[1], "k%d" % i, "VALUE", "v" * 100)
        for node in c:
            check_that(b"links_invalid:0\r\n" in info(node), "%r has understood all" % node)
        passed = sum(sum(x["bytes"]) for x in c.proxy({"do": "show"})["connections"])
        check_that(passed > 30 * 2 * 100, "it went by the proxy: %d bytes" % passed)


@test
def a_ring_of_five_and_two_halves_with_a_bridge(t):
    with cluster(5, proxied=True) as c:
        def sees():
            return {n.id: {i for i, v in n.nodes()["nodes"].items() if v["state"] == "up"}
                    for n in c}

        c.ring()
        wanted = {1: {2, 5}, 2: {1, 3}, 3: {2, 4}, 4: {3, 5}, 5: {4, 1}}
        t.until(lambda: sees() == wanted, "each sees its neighbours")
        c.heal()
        c.wait_ready()
        c.partition([1, 2, 3], [3, 4, 5])
        wanted = {1: {2, 3}, 2: {1, 3}, 3: {1, 2, 4, 5}, 4: {3, 5}, 5: {3, 4}}
        t.until(lambda: sees() == wanted, "each sees its half")


@test
def the_clocks_of_a_node(t):
    with cluster(1, clock=True) as c:
        r = c[1].connect(timeout=30)

        def ahead_s(key):  # fences come from the wall clock
            return r.execute_command("ACQUIRE", key, "LEASE", 600000)[0] / 1e6 - time.time()

        check_that(abs(ahead_s("a")) < 20, "at first they are true")
        c.clock(1, offset=3600)
        check_that(abs(ahead_s("b") - 3600) < 20, "an hour ahead")
        start = time.monotonic()
        c.clock(1, rate=400)
        check(r.execute_command("AWAIT", "b", "FREE", 3600000), 1, "AWAIT")
        took = time.monotonic() - start
        check_that(1.4 < took, "600 s at 400 times the speed: %.3f" % took)
        c.clock(1, rate=1.0)
        r.execute_command("ACQUIRE", "c", "LEASE", 600000)
        c.clock(1, slept=601)
        check(r.execute_command("AWAIT", "c", "FREE", 3600000), 1, "AWAIT, after a sleep")


@test
def a_sleeping_process_uses_these_clocks(t):
    """A timer that was set an hour ahead, a wait, a sleep; the clocks change meanwhile."""
    library, file = t.path("clock.so"), t.path("clock")
    clock.build_clock(library)
    clock.Clock.create(file)
    script = t.script("sleeper.py", """
import ctypes, select, time
libc = ctypes.CDLL(None)
fd = libc.timerfd_create(time.CLOCK_BOOTTIME, 0)
libc.timerfd_settime(fd, 0, (ctypes.c_long * 4)(0, 0, 3600, 0), None)
waits = select.epoll()
waits.register(fd)
print("set", flush=True)
print("rang", waits.poll(), flush=True)
print("waited", select.epoll().poll(3600), flush=True)
time.sleep(3600)
print("slept", flush=True)
""")
    p = t.start("/usr/bin/python3", script, env={"LD_PRELOAD": library, "CLOCK_FILE": file})
    p.until_out("set")
    clock.Clock(file).change(slept=3601)
    p.until_out("rang")
    clock.Clock(file).change(rate=10000)
    p.until_out("waited []")
    p.until_out("slept")


if not os.access(TOOL, os.X_OK):
    sys.exit("there is no " + TOOL)
main(__doc__)
