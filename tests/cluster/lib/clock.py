"""clock.py - the file that clock.c reads: setting the clocks of a process while it runs."""
import mmap
import os
import struct
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FORMAT = 1
CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)  # as in clock.c
SLOT = struct.Struct("=" + "qqd" * len(CLOCKS))
HEAD = struct.Struct("=QQ")


def build_clock(path):
    """Compile clock.c, for LD_PRELOAD."""
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", path,
                    os.path.join(HERE, "clock.c"), "-ldl"], check=True)


class Clock:
    """The clocks of one process, or of all that share the file."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)

    @staticmethod
    def create(path):
        """A file that says: true time."""
        with open(path, "wb") as f:
            f.write(HEAD.pack(FORMAT, 0))
            f.write(2 * SLOT.pack(*[0, 0, 1.0] * len(CLOCKS)))

    def now(self):
        """What its three clocks say, in ns."""
        return self.at([time.clock_gettime_ns(id) for id in CLOCKS])

    def at(self, true):
        values = self.values()
        return [value + (t - base) + int((t - base) * (rate - 1))
                for t, (base, value, rate) in zip(true, values)]

    def values(self):
        _, count = HEAD.unpack_from(self.map, 0)
        flat = SLOT.unpack_from(self.map, HEAD.size + (count % 2) * SLOT.size)
        return [flat[i:i + 3] for i in range(0, len(flat), 3)]

    def change(self, offset=0.0, rate=None, slept=0.0):
        """See Cluster.clock(). Each clock goes on from what it says now."""
        if rate is not None and not rate > 0:
            raise ValueError("a clock cannot stand still, or go back")
        steps = (offset + slept, 0.0, slept)
        true = [time.clock_gettime_ns(id) for id in CLOCKS]
        flat = []
        for t, now, step, (_, _, old) in zip(true, self.at(true), steps, self.values()):
            flat += [t, now + int(step * 1e9), old if rate is None else float(rate)]
        # The slot that nobody reads, then the count that says which one is read.
        _, count = HEAD.unpack_from(self.map, 0)
        SLOT.pack_into(self.map, HEAD.size + ((count + 1) % 2) * SLOT.size, *flat)
        struct.pack_into("=Q", self.map, 8, count + 1)
