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
AHEAD_NS = 20_000_000


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
        # The slot that nobody reads, then the count that says which one is read. The change takes
        # effect a little later. If this process did not get to the count in time, it tries again.
        _, count = HEAD.unpack_from(self.map, 0)
        while True:
            start = [time.clock_gettime_ns(id) + AHEAD_NS for id in CLOCKS]
            flat = []
            for t, then, step, (_, _, old) in zip(start, self.at(start), steps, self.values()):
                flat += [t, then + int(step * 1e9), old if rate is None else float(rate)]
            SLOT.pack_into(self.map, HEAD.size + ((count + 1) % 2) * SLOT.size, *flat)
            left = min(t - time.clock_gettime_ns(id) for t, id in zip(start, CLOCKS))
            if left > AHEAD_NS // 2:
                struct.pack_into("=Q", self.map, 8, count + 1)
                break
        # Until it has taken effect on every clock, the other slot is in use.
        for t, id in zip(start, CLOCKS):
            while time.clock_gettime_ns(id) < t:
                time.sleep(0.001)
