"""node.py - one node of a cluster: its process, its files, its clients."""
import os
import shutil
import socket

from clock import Clock
from part import Part
from processes import PATIENCE_S, Refused


class Node(Part):
    """A node of a cluster. It need not run."""

    def __init__(self, cluster, number, host, port, node_port, proxy_port):
        super().__init__(cluster, "node %d" % number, str(number), "node%d" % number)
        self.id = number
        self.host, self.port, self.node_port = host, port, node_port
        self.proxy_port = proxy_port
        self.options = {}  # settings of this node alone; they count from its next start

    # What it is.

    @property
    def address(self):
        """(host, port) for clients."""
        return self.host, self.port

    @property
    def peer(self):
        """host:port that the other nodes call: its node port, or the proxy before it."""
        if self.proxy_port:
            return "%s:%d" % (self.cluster.outside_host, self.proxy_port)
        return "%s:%d" % (self.host, self.node_port)

    @property
    def config_path(self):
        return os.path.join(self.dir, "sluice.conf")

    @property
    def was_started(self):
        """Was it ever ready? Only a first start is one with --bootstrap."""
        return os.path.exists(os.path.join(self.dir, "started"))

    # Its process.

    def start(self, *args, wait=True):
        """Start it; args are further words for the server. wait: until it is ready to be
        asked, which does not mean that it has found the others."""
        self.write_config()
        words = self.cluster.command + ["--config", "sluice.conf",
                                        *self.cluster.words, *args]
        if not self.was_started and self.cluster.is_first(self):
            words.append("--bootstrap")
        self.launch(words, clock=self.clock_path)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=PATIENCE_S):
        """Until it answers clients."""
        super().wait_ready(seconds)
        with open(os.path.join(self.dir, "started"), "w"):
            pass

    def answers(self, seconds=1.0):
        """Is it ready, by its own word too (another may be at its port), and answers PING?"""
        if "ready: sluice" not in self.since_start():
            return False
        try:
            with socket.create_connection(self.address, seconds) as s:
                s.sendall(b"PING\r\n")
                return s.recv(100) != b""  # also "you need a password"
        except OSError:
            return False

    def wipe(self):
        """Lose the directory of a dead node, as a new disk would. It is not a first start of
        the cluster when it comes again."""
        if self.pid is not None:
            raise Refused("node %d is running" % self.id)
        shutil.rmtree(os.path.join(self.dir, "data"), ignore_errors=True)

    # Clients.

    def connect(self, timeout=5.0, **more):
        """A redis-py client with one connection of its own: it does not try again by
        itself, and gives up after `timeout` seconds of silence (give more than WAIT)."""
        import redis
        settings = dict(host=self.host, port=self.port, password=self.cluster.password,
                        socket_timeout=timeout, socket_connect_timeout=min(timeout, 5.0),
                        single_connection_client=True, retry_on_timeout=False)
        settings.update(more)
        return redis.Redis(**settings)

    def call(self, *words, timeout=5.0):
        """One command on a connection of its own; an error of the server is raised."""
        r = self.connect(timeout)
        try:
            return r.execute_command(*words)
        finally:
            r.close()

    def nodes(self):
        """What it says of the cluster: {"node": 1, "version": 1, "changing": 0, "nodes":
        {1: {"id": 1, "address": ..., "state": "self", "rtt_ms": 0, "version": 1}, ...}}."""
        said = as_dict(self.call("NODES"))
        said["nodes"] = {n["id"]: n for n in map(as_dict, said["nodes"])}
        return said

    def keeper(self):
        """What it says of the keeper: {"keeper_node": "1", "term": "3", ...}."""
        lines = self.call("INFO", "keeper", timeout=2.0)
        if isinstance(lines, dict):  # redis-py has read it
            return {k: str(v) for k, v in lines.items()}
        return dict(line.split(":", 1) for line in lines.decode().splitlines() if ":" in line)

    def hears(self, numbers):
        """Is it connected with these others, as far as it is on a list with them?"""
        import redis
        try:
            listed = self.nodes()["nodes"]
        except (redis.RedisError, OSError):
            return False
        return all(listed[i]["state"] in ("up", "self") for i in numbers if i in listed)

    # Its files.

    @property
    def clock_path(self):
        return os.path.join(self.dir, "clock") if self.cluster.has_clocks else None

    def make_directory(self):
        os.makedirs(self.dir, exist_ok=True)
        if self.clock_path and not os.path.exists(self.clock_path):
            Clock.create(self.clock_path)

    def settings(self):
        c = self.cluster
        values = {
            "node": self.id,
            "peers": ",".join("%d=%s" % (n.id, n.peer) for n in c),
            "secret-file": "../secret",
            "data": "data",
            "bind": self.host,
            "port": self.port,
            "node-bind": self.host,
            "node-port": self.node_port,
        }
        if c.password:
            values["password-file"] = "../password"
        if c.etcd:
            values.update(c.etcd.settings())
        values.update(c.options)
        values.update(self.options)
        return values

    def write_config(self):
        self.make_directory()
        with open(self.config_path, "w") as f:
            f.write("# node %d of %s; written again at each start\n" % (
                self.id, self.cluster.dir))
            for name, value in self.settings().items():
                if value is not None:
                    f.write("%s = %s\n" % (name, value))


def as_dict(flat):
    """A map of RESP2."""
    flat = [x.decode() if isinstance(x, bytes) else x for x in flat]
    return dict(zip(flat[::2], flat[1::2]))
