"""crowd.py - client processes that are killed and started again, and the histories they write.
What tx/kills.py and cluster/load.py have in common.
"""
import collections
import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time

from waiting import state_of, until

PR_SET_PDEATHSIG = 1


def now():
    return time.monotonic_ns()


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Book:
    """The history of one client. A line is written at once, since its writer may be killed."""

    def __init__(self, directory, client):
        self.client, self.n = client, 0
        self.fd = os.open(os.path.join(directory, client + ".jsonl"),
                          os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def add(self, n, **more):
        os.write(self.fd, json.dumps(dict(client=self.client, n=n, **more)).encode() + b"\n")

    def begin(self, op, inv=None, **more):
        self.n += 1
        self.add(self.n, op=op, inv=inv or now(), **more)
        return self.n

    def note(self, op, inv=None, **more):
        """Something that is known at once."""
        at = now()
        self.begin(op, inv or at, ret=at, **more)

    def close(self):
        os.close(self.fd)


def lines_of(directory, client=""):
    """The lines of all books in a directory, or of the clients whose names begin so."""
    lines = []
    for name in sorted(os.listdir(directory)):
        if name.startswith(client) and name.endswith(".jsonl"):
            with open(os.path.join(directory, name)) as f:
                lines += f.readlines()
    return lines


def again(options):
    """The command that repeats this run."""
    return "again: " + " ".join(sys.argv + (
        [] if "--seed" in sys.argv else ["--seed", str(options.seed)]))


class Crowd:
    """Client processes. Each has some numbers in memory that all share.

    work(i, name): what client i does, in its process; it must not return."""

    def __init__(self, count, numbers=1):
        self.count, self.numbers = count, numbers
        self.slots = mmap.mmap(-1, 8 * count * numbers)
        self.pids, self.names, self.lives = {}, {}, collections.Counter()
        for i in range(count):
            self.start(i)

    def start(self, i):
        self.lives[i] += 1
        self.names[i] = "c%d.%d" % (i, self.lives[i])
        parent, pid = os.getpid(), os.fork()
        if pid:
            self.pids[i] = pid
            return
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            die_with_parent()
            if os.getppid() == parent:
                self.work(i, self.names[i])
        except BaseException as e:  # a client that ends by itself is a failure
            os.write(2, ("# client %s: %r\n" % (self.names[i], e)).encode())
        finally:
            os._exit(1)

    def work(self, i, name):
        raise NotImplementedError

    def get(self, i, which=0):
        return struct.unpack_from("=q", self.slots, 8 * (i * self.numbers + which))[0]

    def set(self, i, value, which=0):
        struct.pack_into("=q", self.slots, 8 * (i * self.numbers + which), value)

    def kill(self, i):
        os.kill(self.pids[i], signal.SIGKILL)
        os.waitpid(self.pids[i], 0)

    def signal(self, i, number):
        """After SIGSTOP it has stopped when this returns."""
        os.kill(self.pids[i], number)
        if number == signal.SIGSTOP:
            until(lambda: state_of(self.pids[i]) in "TZ", "client %d is stopped" % i)

    def ended(self):
        """Those that ended by themselves."""
        return [i for i, pid in self.pids.items() if state_of(pid) in ("", "Z", "X")]

    def alive(self):
        return self.count - len(self.ended())

    def end(self):
        for i in self.pids:
            try:
                self.kill(i)
            except (ProcessLookupError, ChildProcessError):
                pass
