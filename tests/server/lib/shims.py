"""shims.py - clocks that a test can step, and disks that it can break (step.c, disk.c) or
mount."""
import ctypes
import os
import struct
import subprocess

import tap
from tap import Skip

HERE = os.path.dirname(os.path.abspath(__file__))


def build(t, name):
    library = t.path(name + ".so")
    if not os.path.exists(library):
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library,
                        "%s/%s.c" % (HERE, name), "-ldl"], check=True)
    return library


def build_program(t, name):
    program = t.path(name)
    if not os.path.exists(program):
        subprocess.run(["cc", "-O1", "-o", program, "%s/%s.c" % (HERE, name)], check=True)
    return program


def mount(t, *args):
    """Mount something, for the processes of this test alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not getattr(t, "private_mounts", False):
        if os.getuid() != 0 or libc.unshare(0x00020000) != 0:
            raise Skip("only root can mount something")
        t.private_mounts = True
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    if subprocess.run(["mount", *args]).returncode != 0:
        raise Skip("mount does not work here")
    t.mounted.append(args[-1])


class Shims:
    """Clocks to be stepped and a disk to be broken, for the servers of a test."""

    def __init__(self, t):
        with open(tap.program, "rb") as f:
            if b"__asan_init" in f.read():
                raise Skip("nothing can be loaded before the sanitizer")
        self.step, self.order = t.path("step"), t.path("order")
        self.clock(0)
        self.put(self.order, 0, 0, 0, 0, 0, 0)
        self.boot_path = t.path("boot-id")
        os.makedirs(self.boot_path, exist_ok=True)
        self.boot("first")
        self.env = {"LD_PRELOAD": build(t, "step") + ":" + build(t, "disk"),
                    "STEP_FILE": self.step, "DISK_FILE": self.order,
                    "DISK_BOOT": self.boot_path}

    @staticmethod
    def put(path, *numbers):
        with open(path, "r+b" if os.path.exists(path) else "wb") as f:
            f.write(struct.pack("%dq" % len(numbers), *numbers))

    def clock(self, wall_s, asleep_s=0):
        self.put(self.step, wall_s, asleep_s)

    def disk(self, order):
        """0: it is well; -1: it does not end; else the errno with which it fails."""
        self.put(self.order, order)

    def boot(self, boot, machine="one"):
        """The ids of this boot and of this machine, for the next start."""
        for name, text in (("boot", boot), ("machine", machine)):
            with open(os.path.join(self.boot_path, name), "w") as f:
                f.write(text + "\n")

    def sync(self, order):
        """As disk(), for syncs of the journal. -2: one of them ends, and no other."""
        self.put_at(24, order)

    def write(self, order):
        """As disk(), for writes to the journal."""
        self.put_at(32, order)

    def sync_ms(self, ms):
        """How long each sync of the journal takes."""
        self.put_at(40, ms)

    def store(self, order):
        """The same for what the store of transactions writes."""
        self.put_at(8, order)

    def store_end(self, order):
        """And for the end of its commits: whether they were written is not known then."""
        self.put_at(16, order)

    def put_at(self, offset, order):
        with open(self.order, "r+b") as f:
            f.seek(offset)
            f.write(struct.pack("q", order))
