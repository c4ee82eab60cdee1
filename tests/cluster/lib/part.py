"""part.py - a process of a cluster that can be killed, stopped and started again: what a node
(node.py) and a member of etcd (etcd.py) have in common."""
import os
import signal

from processes import PATIENCE_S, Refused, processes_of, state_of, until


class Part:
    """It need not run. Who derives from it has start() and answers()."""

    def __init__(self, cluster, title, role, directory):
        """title: what people call it. role: what its process is found by, and the number of
        its namespace, as text. directory: its name in that of the cluster."""
        self.cluster, self.title, self.role = cluster, title, role
        self.dir = os.path.join(cluster.dir, directory)
        self.log_from = 0  # where its log was when it was last started
        self.popen = None

    def __repr__(self):
        return self.title

    # What it is.

    @property
    def pid(self):
        """Of its process, or None."""
        if self.popen is not None:
            if self.popen.poll() is None:
                return self.popen.pid
            self.popen = None
        for pid, role in processes_of(self.cluster.dir).items():
            if role == self.role and state_of(pid) not in ("", "Z", "X"):
                return pid
        return None

    @property
    def state(self):
        """up, paused or dead."""
        pid = self.pid
        if pid is None:
            return "dead"
        return "paused" if state_of(pid) == "T" else "up"

    # What it said.

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

    def since_start(self):
        """What it said since it was last started."""
        return self.log.encode()[self.log_from:].decode("utf-8", "replace")

    # Its process.

    def launch(self, words, **more):
        """Start its process, with a log that goes on."""
        if self.pid is not None:
            raise Refused("%s is already running" % self)
        self.log_from = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        self.popen = self.cluster.spawn(self.role, words, self.log_path, self.dir,
                                        namespace=int(self.role), **more)

    def wait_ready(self, seconds=PATIENCE_S):
        """Until it answers. What it said is in the exception if it has ended."""

        def ready():
            if self.pid is None:
                raise Refused("%s has exited; its log:\n%s" % (self, self.since_start()))
            return self.answers()

        until(ready, "%s answers" % self, seconds)

    def running_pid(self):
        pid = self.pid
        if pid is None:
            raise Refused("%s is not running" % self)
        return pid

    def kill(self, number=signal.SIGKILL):
        """Send a signal. After one that ends it, it is dead when this returns."""
        pid = self.running_pid()
        if number == signal.SIGSTOP:
            return self.pause()
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            if number != signal.SIGKILL and state_of(pid) == "T":
                return None  # it will see the signal when it goes on
            self.wait_dead()
        return None

    def wait_dead(self):
        until(lambda: self.pid is None, "%s is dead" % self)

    def stop(self):
        """SIGTERM: as an operator does it."""
        self.kill(signal.SIGTERM)

    def restart(self, number=signal.SIGKILL, **more):
        if self.pid is not None:
            self.kill(number)
        return self.start(**more)

    def pause(self):
        """SIGSTOP; it has stopped when this returns."""
        pid = self.running_pid()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) in ("T", ""), "%s is paused" % self)

    def resume(self):
        os.kill(self.running_pid(), signal.SIGCONT)
