#!/usr/bin/python3
"""etcd.py - the members of an etcd that a cluster runs on, as plain processes.

    with Cluster(3, etcd=3) as c:          # three nodes on three members
        c.etcd[1].kill()                   # kill -9; also pause, resume, stop, start, restart
        c.etcd.leader().pause()
        c.cut("etcd1", "etcd2")            # and c.cut(1, "etcd2"): a node from a member
        c.etcd.compact()
    with Cluster(0, etcd=1) as c:          # etcd alone
        c.etcd.urls

    tests/cluster/lib/etcd.py [N] [--tls | --certs] [--user NAME:PASSWORD] COMMAND...

runs a command with N members (1), with $ETCD_URLS in its environment; with --tls, $ETCD_CA,
with --certs also $ETCD_CERT and $ETCD_KEY. Its exit status is that of the command.

A member is called etcd1, etcd2, ... It has a directory of its own, and in namespaces one of its
own, numbered from 101, so that it can be cut from nodes and from other members alike. On
loopback the proxy of the cluster, if there is one, stands before both of its ports.

What it keeps is in memory (/dev/shm) where there is room: then nothing waits for a disk, and a
member that is killed still finds all that it wrote. Its settings are for tests: an election
takes half a second.
"""
import base64
import http.client
import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)
from part import Part  # noqa: E402
from processes import PATIENCE_S, Refused, until  # noqa: E402

FIRST = 101  # the number of etcd1, among those of nodes
CLIENT_PORT, PEER_PORT = 2379, 2380  # in namespaces
PORTS_APART = 10  # on loopback, as nodes
# On loopback: so far behind the port of the node with the same number; those of the proxy.
OFFSET, PROXY_OFFSET = (4, 5), (6, 7)
MEMORY = "/dev/shm"
MEMORY_BYTES_MIN = 1 << 30  # a member takes 64 MB from the start, and more later
HEARTBEAT_MS, ELECTION_MS = 50, 500
PREFIX = "sluice/"
TROUBLE = (OSError, http.client.HTTPException, ValueError)


def missing():
    """Why there can be no members here; None if they can be."""
    if shutil.which("etcd") is None:
        return "the program etcd is missing; install the package etcd-server"
    return None


def text_of(data):
    """As the gateway of etcd wants it: in base64."""
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


class NotDone(Refused):
    """etcd has answered with an error."""


class Member(Part):
    """One member. It need not run."""

    def __init__(self, etcd, number, host, ports, proxies):
        super().__init__(etcd.cluster, "etcd%d" % number, str(FIRST - 1 + number),
                         "etcd%d" % number)
        self.etcd, self.number, self.id = etcd, number, FIRST - 1 + number
        self.host, self.ports = host, ports  # for clients, for members
        self.proxies = proxies or ports

    # Where it is.

    def url(self, which, ports):
        return "%s://%s:%d" % (self.etcd.scheme if which == 0 else "http", self.host,
                               ports[which])

    @property
    def address(self):
        return self.host, self.ports[0]

    @property
    def listens(self):
        """For clients that nothing stands before."""
        return self.url(0, self.ports)

    @property
    def client_url(self):
        """For nodes: it, or the proxy before it."""
        return self.url(0, self.proxies)

    @property
    def peer_url(self):
        """For other members."""
        return self.url(1, self.proxies)

    @property
    def data(self):
        return os.path.join(self.etcd.memory or self.dir, "data-" + self.title)

    # Its process.

    def start(self, wait=True):
        """Start it. wait: until it knows a leader, for which most others have to run."""
        os.makedirs(self.dir, exist_ok=True)
        self.launch(self.command())
        if wait:
            self.wait_ready()
        return self

    def command(self):
        e = self.etcd
        words = ["etcd", "--name", self.title, "--data-dir", self.data,
                 "--listen-client-urls", self.url(0, self.ports),
                 "--advertise-client-urls", self.client_url,
                 "--listen-peer-urls", self.url(1, self.ports),
                 "--initial-advertise-peer-urls", self.peer_url,
                 "--initial-cluster", ",".join("%s=%s" % (m.title, m.peer_url) for m in e),
                 "--initial-cluster-token", self.cluster.name,
                 "--heartbeat-interval", str(HEARTBEAT_MS),
                 "--election-timeout", str(ELECTION_MS),
                 "--pre-vote", "--snapshot-count", "10000", "--max-wals", "2",
                 "--max-snapshots", "2", "--bcrypt-cost", "4", "--logger", "zap",
                 "--log-outputs", "stderr", "--log-level", "warn"]
        if e.tls:
            words += ["--cert-file", e.path("server.pem"), "--key-file", e.path("server.key")]
        if e.tls == "certs":
            words += ["--client-cert-auth", "--trusted-ca-file", e.path("ca.pem")]
        return words + e.words

    def answers(self, seconds=1.0):
        """Does it say that it is well?"""
        try:
            return self.request("GET", "/health", None, seconds).get("health") == "true"
        except TROUBLE:
            return False

    # Requests.

    def request(self, method, path, body, seconds, token=None):
        where = dict(host=self.host, port=self.ports[0], timeout=seconds)
        c = (http.client.HTTPSConnection(context=self.etcd.context(), **where)
             if self.etcd.tls else http.client.HTTPConnection(**where))
        try:
            c.request(method, path, body, {"Authorization": token} if token else {})
            answer = json.loads(c.getresponse().read())
        finally:
            c.close()
        if "error" in answer:
            raise NotDone("%s: %s" % (self, answer["error"]))
        return answer

    def call(self, what, seconds=5.0, **body):
        """A request of the v3 API, "kv/put" for instance; its answer."""
        return self.request("POST", "/v3/" + what, json.dumps(body), seconds,
                            self.etcd.token(self, what))

    def status(self):
        """{"leader": bool, "term", "revision", "bytes", "version"}; None if it is silent."""
        try:
            said = self.call("maintenance/status", seconds=1.0)
        except TROUBLE + (NotDone,):
            return None
        header = said["header"]
        return {"leader": said.get("leader") == header["member_id"],
                "term": int(said.get("raftTerm", 0)), "revision": int(header.get("revision", 0)),
                "bytes": int(said.get("dbSize", 0)), "version": said["version"]}


class Etcd:
    """All members of a cluster."""

    def __init__(self, cluster, count, tls=None, user=None, words=()):
        """tls: None; "tls": members have certificates; "certs": clients need one, too.
        user: (name, password): who may use the keys of PREFIX, and nobody else.
        words: further words for each member."""
        self.cluster, self.count = cluster, count
        self.tls, self.user, self.words = tls, tuple(user) if user else None, list(words)
        self.root = secrets.token_hex(8) if user else None  # the password of root
        self.secured = False
        self.memory = None  # the directory in /dev/shm
        self.members = {}

    # As a container of members.

    def __getitem__(self, number):
        if number not in self.members:
            raise Refused("etcd member etcd%s does not exist; this cluster has %s" % (
                number, ", ".join(map(str, self)) or "none"))
        return self.members[number]

    def __iter__(self):
        return iter([self.members[i] for i in sorted(self.members)])

    def __len__(self):
        return len(self.members)

    def __bool__(self):
        return True  # also before its members have addresses

    @property
    def running(self):
        return [m for m in self if m.state == "up"]

    @property
    def scheme(self):
        return "https" if self.tls else "http"

    @property
    def urls(self):
        """What nodes are told."""
        return ",".join(m.client_url for m in self)

    def path(self, name):
        return os.path.join(self.cluster.dir, "tls", name)

    def settings(self):
        """Of a node that runs on it."""
        values = {"engine": "etcd", "etcd": self.urls, "etcd-prefix": PREFIX}
        if self.user:
            values["etcd-user"] = self.user[0]
            values["etcd-password-file"] = "../etcd-password"
        if self.tls:
            values["etcd-ca"] = "../tls/ca.pem"
        if self.tls == "certs":
            values.update({"etcd-cert": "../tls/client.pem", "etcd-key": "../tls/client.key"})
        return values

    # Up and down.

    def choose(self, base=None):
        """Addresses; nothing is made yet. base: the first port on loopback."""
        net = self.cluster.netns
        for i in range(1, self.count + 1):
            if net:
                self.members[i] = Member(self, i, net.host(FIRST - 1 + i),
                                         (CLIENT_PORT, PEER_PORT), None)
                continue
            ports = [tuple(base + PORTS_APART * (i - 1) + o for o in offsets)
                     for offsets in (OFFSET, PROXY_OFFSET)]
            self.members[i] = Member(self, i, self.cluster.loopback, ports[0],
                                     ports[1] if self.cluster.proxied else None)

    def choose_memory(self):
        room = shutil.disk_usage(MEMORY).free if os.path.isdir(MEMORY) else 0
        if room > MEMORY_BYTES_MIN and not self.cluster.keep:
            self.memory = os.path.join(MEMORY, "%s-etcd" % self.cluster.name)

    def up(self):
        """Start all; wait until they have a leader."""
        if self.memory:
            os.makedirs(self.memory, mode=0o700, exist_ok=True)
        if self.tls:
            self.make_certificates()
        for m in self:
            self.make_place(m)
        for m in self:
            m.start(wait=False)
        for m in self:
            m.wait_ready()
        if self.user:
            self.secure()

    def make_place(self, member):
        if self.cluster.netns:
            self.cluster.netns.add(member.id)
        elif self.cluster.proxied:
            for port, proxy in zip(member.ports, member.proxies):
                self.cluster.proxy({"do": "route", "node": member.id,
                                    "listen": "%s:%d" % (member.host, proxy),
                                    "to": "%s:%d" % (member.host, port)})

    def down(self):
        """What is not in the directory of the cluster; processes have ended by now."""
        for m in self:
            if m.popen is not None:
                m.popen.wait()
        if self.memory:
            shutil.rmtree(self.memory, ignore_errors=True)

    def as_dict(self):
        return {"count": self.count, "tls": self.tls, "user": self.user, "words": self.words,
                "root": self.root, "secured": self.secured, "memory": self.memory}

    @classmethod
    def of(cls, cluster, kept):
        e = cls(cluster, kept["count"], kept["tls"], kept["user"], kept["words"])
        e.root, e.secured, e.memory = kept["root"], kept["secured"], kept["memory"]
        return e

    # Certificates.

    def make_certificates(self):
        """One that signs, one for all members, one for all nodes."""
        os.makedirs(self.path(""), exist_ok=True)
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-days", "30", "-subj", "/CN=etcd of a test",
                     "-keyout", "ca.key", "-out", "ca.pem")
        hosts = sorted({m.host for m in self} | {"127.0.0.1"})
        for name, more in (("server", "subjectAltName=" + ",".join("IP:" + h for h in hosts)),
                           ("client", "subjectAltName=DNS:sluice")):
            # What etcd passes on to itself, it signs as a client.
            with open(self.path(name + ".ext"), "w") as f:
                f.write("extendedKeyUsage=serverAuth,clientAuth\n%s\n" % more)
            self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                         "-subj", "/CN=sluice" if name == "client" else "/CN=etcd",
                         "-keyout", name + ".key", "-out", name + ".csr")
            self.openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey",
                         "ca.key", "-CAcreateserial", "-days", "30", "-extfile", name + ".ext",
                         "-out", name + ".pem")

    def openssl(self, *words):
        try:
            p = subprocess.run(("openssl",) + words, cwd=self.path(""), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        except FileNotFoundError:
            raise Refused("the program openssl is missing; install the package openssl") from None
        if p.returncode != 0:
            raise Refused("openssl %s: %s" % (words[0], p.stdout.strip()))

    def context(self):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if self.tls == "certs":
            context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return context

    # Who may.

    def secure(self):
        """Only `user` may use the keys of PREFIX, and it no others."""
        name, password = self.user
        with os.fdopen(os.open(os.path.join(self.cluster.dir, "etcd-password"),
                               os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(password + "\n")
        for who, word in (("root", self.root), (name, password)):
            self.call("auth/user/add", name=who, password=word)
            self.call("auth/role/add", name=who)
            self.call("auth/user/grant", user=who, role=who)
        self.call("auth/role/grant", name=name, perm={
            "permType": "READWRITE", "key": text_of(PREFIX),
            "range_end": text_of(PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1))})
        self.call("auth/enable")
        self.secured = True
        self.cluster.save()

    def token(self, member, what):
        """root's, for a request of ours."""
        if not self.secured or what == "auth/authenticate":
            return None
        return member.call("auth/authenticate", name="root", password=self.root)["token"]

    # Looking, and compacting.

    def call(self, what, **body):
        """A request to any member that runs; to the next if one is silent. What a silent one
        was asked may have been done."""
        for m in self.running:
            try:
                return m.call(what, **body)
            except TROUBLE:
                continue
        raise Refused("no etcd member answers")

    def leader(self, seconds=PATIENCE_S):
        """The member that leads, as far as those know that are up and have the latest term."""

        def found():
            said = [(s["term"], s["leader"], m) for m in self.running
                    for s in [m.status()] if s]
            if not said:
                return None
            term = max(s[0] for s in said)
            return next((m for t, leads, m in said if leads and t == term), None)

        return until(found, "etcd has a leader", seconds)

    @property
    def revision(self):
        return int(self.call("kv/range", key=text_of("\0"))["header"]["revision"])

    def compact(self, revision=None):
        """Forget all revisions before one; by default before the latest. Returns it."""
        revision = revision or self.revision
        self.call("kv/compaction", revision=revision, physical=True)
        return revision

    def values(self, prefix=PREFIX):
        """{key: value} of all keys that begin so, as bytes."""
        last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        got = self.call("kv/range", key=text_of(prefix), range_end=text_of(last))
        return {base64.b64decode(kv["key"]): base64.b64decode(kv.get("value", ""))
                for kv in got.get("kvs", ())}

    def wait_ready(self, seconds=PATIENCE_S):
        for m in self.running:
            m.wait_ready(seconds)


# --- As a command ---------------------------------------------------------------------------


def main(words):
    from nodes import Cluster
    tls, user, count = None, None, 1
    while words and (words[0].isdigit() or words[0].startswith("--")):
        word = words.pop(0)
        if word.isdigit():
            count = int(word)
        elif word in ("--tls", "--certs"):
            tls = word[2:]
        elif word == "--user" and words:
            user = words.pop(0).partition(":")[::2]
        elif word != "--":
            break
    if not words:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if missing():
        print("etcd.py: " + missing(), file=sys.stderr)
        return 1
    with Cluster(0, etcd=count, etcd_tls=tls, etcd_user=user) as c:
        environment = dict(os.environ, ETCD_URLS=c.etcd.urls)
        if tls:
            environment["ETCD_CA"] = c.etcd.path("ca.pem")
        if tls == "certs":
            environment.update(ETCD_CERT=c.etcd.path("client.pem"),
                               ETCD_KEY=c.etcd.path("client.key"))
        return subprocess.run(words, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
