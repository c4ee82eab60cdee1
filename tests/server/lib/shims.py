"""shims.py - clocks that a test can step (step.c), disks that it can break (disk.c), and
mounts."""
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
    """Mount a file system in the private mount namespace of this test."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not getattr(t, "private_mounts", False):
        if os.getuid() != 0 or libc.unshare(0x00020000) != 0:
            raise Skip("mounting requires root")
        t.private_mounts = True
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    if subprocess.run(["mount", *args]).returncode != 0:
        raise Skip("mount does not work here")
    t.mounted.append(args[-1])


class Shims:
    """Steppable clocks and a breakable disk for the servers of a test."""

    def __init__(self, t):
        with open(tap.program, "rb") as f:
            if b"__asan_init" in f.read():
                raise Skip("LD_PRELOAD does not work with the address sanitizer")
        self.step, self.order = t.path("step"), t.path("order")
        self.clock(0)
        self.put(self.order, 0, 0, 0, 0, 0, 0, 0)
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
        """Set the result of fsync(). 0: success; -1: it blocks; otherwise it fails with this errno."""
        self.put(self.order, order)

    def boot(self, boot, machine="one"):
        """Set the boot id and the machine id for the next start."""
        for name, text in (("boot", boot), ("machine", machine)):
            with open(os.path.join(self.boot_path, name), "w") as f:
                f.write(text + "\n")

    def sync(self, order):
        """Like disk(), for syncs of the journal. -2: one sync succeeds, and later ones block."""
        self.put_at(24, order)

    def write(self, order):
        """Like disk(), for writes to the journal."""
        self.put_at(32, order)

    def blocked_writes(self):
        """Return how many writes to the journal have blocked."""
        with open(self.order, "rb") as f:
            return struct.unpack("7q", f.read())[6]

    def sync_ms(self, ms):
        """Set the duration of each sync of the journal."""
        self.put_at(40, ms)

    def store(self, order):
        """Like disk(), for syncs of the transaction store."""
        self.put_at(8, order)

    def store_end(self, order):
        """Like disk(), for the meta page that ends a commit. After an error, the outcome of the commit is
        unknown."""
        self.put_at(16, order)

    def put_at(self, offset, order):
        with open(self.order, "r+b") as f:
            f.seek(offset)
            f.write(struct.pack("q", order))
