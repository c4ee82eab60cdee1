"""node.py - one node of a cluster: its process, its files, its clients."""
import os
import shutil
import signal
import socket

from clock import Clock
from processes import PATIENCE_S, Refused, processes_of, state_of, until


class Node:
    """A node of a cluster. It need not run."""

    def __init__(self, cluster, number, host, port, node_port, proxy_port):
        self.cluster = cluster
        self.id = number
        self.host, self.port, self.node_port = host, port, node_port
        self.proxy_port = proxy_port
        self.dir = os.path.join(cluster.dir, "node%d" % number)
        self.options = {}  # settings of this node alone; they count from its next start
        self.popen = None

    def __repr__(self):
        return "node %d" % self.id

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
    def pid(self):
        """Of its process, or None."""
        if self.popen is not None:
            if self.popen.poll() is None:
                return self.popen.pid
            self.popen = None
        for pid, role in processes_of(self.cluster.dir).items():
            if role == str(self.id) and state_of(pid) not in ("", "Z", "X"):
                return pid
        return None

    @property
    def state(self):
        """up, paused or dead."""
        pid = self.pid
        if pid is None:
            return "dead"
        return "paused" if state_of(pid) == "T" else "up"

    @property
    def config_path(self):
        return os.path.join(self.dir, "sluice.conf")

    @property
    def log_path(self):
        return os.path.join(self.dir, "log")

    @property
    def log(self):
        """All that it ever said, over all its starts."""
        try:
            with open(self.log_path, errors="backslashreplace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    @property
    def was_started(self):
        """Was it ever ready? Only a first start is one with --bootstrap."""
        return os.path.exists(os.path.join(self.dir, "started"))

    # Its process.

    def start(self, *args, wait=True):
        """Start it; args are further words for the server. wait: until it is ready to be
        asked, which does not mean that it has found the others."""
        if self.pid is not None:
            raise Refused("node %d runs already" % self.id)
        self.write_config()
        words = self.cluster.command + ["--config", "sluice.conf",
                                        *self.cluster.words, *args]
        if not self.was_started and self.cluster.is_first(self):
            words.append("--bootstrap")
        self.log_from = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        self.popen = self.cluster.spawn(str(self.id), words, self.log_path, self.dir,
                                        namespace=self.id, clock=self.clock_path)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=PATIENCE_S):
        """Until it answers clients. What it said is in the exception if it has ended."""

        def ready():
            if self.pid is None:
                raise Refused("node %d has ended; its log:\n%s" % (self.id, self.since_start()))
            return self.answers()

        until(ready, "node %d answers" % self.id, seconds)
        with open(os.path.join(self.dir, "started"), "w"):
            pass

    def since_start(self):
        """What it said since it was last started."""
        return self.log.encode()[getattr(self, "log_from", 0):].decode("utf-8", "replace")

    def answers(self, seconds=1.0):
        """Does it answer PING?"""
        try:
            with socket.create_connection(self.address, seconds) as s:
                s.sendall(b"PING\r\n")
                return s.recv(100) != b""  # also "you need a password"
        except OSError:
            return False

    def kill(self, number=signal.SIGKILL):
        """Send a signal. After one that ends it, it is dead when this returns."""
        pid = self.pid
        if pid is None:
            raise Refused("node %d does not run" % self.id)
        if number == signal.SIGSTOP:
            return self.pause()
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            if number != signal.SIGKILL and state_of(pid) == "T":
                return None  # it will see the signal when it goes on
            until(lambda: self.pid is None, "node %d is dead" % self.id)
        return None

    def stop(self):
        """SIGTERM: as an operator does it."""
        self.kill(signal.SIGTERM)

    def restart(self, number=signal.SIGKILL, **more):
        if self.pid is not None:
            self.kill(number)
        return self.start(**more)

    def pause(self):
        """SIGSTOP; it has stopped when this returns."""
        pid = self.pid
        if pid is None:
            raise Refused("node %d does not run" % self.id)
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) in ("T", ""), "node %d is paused" % self.id)

    def resume(self):
        pid = self.pid
        if pid is None:
            raise Refused("node %d does not run" % self.id)
        os.kill(pid, signal.SIGCONT)

    def wipe(self):
        """Lose the folder of a dead node, as a new disk would. It is not a first start of
        the cluster when it comes again."""
        if self.pid is not None:
            raise Refused("node %d runs" % self.id)
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

    def make_folder(self):
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
        values.update(c.options)
        values.update(self.options)
        return values

    def write_config(self):
        self.make_folder()
        with open(self.config_path, "w") as f:
            f.write("# node %d of %s; written anew at each start\n" % (
                self.id, self.cluster.dir))
            for name, value in self.settings().items():
                if value is not None:
                    f.write("%s = %s\n" % (name, value))


def as_dict(flat):
    """A map of RESP2."""
    flat = [x.decode() if isinstance(x, bytes) else x for x in flat]
    return dict(zip(flat[::2], flat[1::2]))
