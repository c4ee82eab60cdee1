#!/usr/bin/python3
"""loss.py - a holder that cannot extend its leases stops before another client is granted the locks.

    tests/client/loss.py SERVER LOCKERS [--runs N] [--lease MS]

One process holds locks with leases of a second and keep_alive, and works: before each step it calls sluice_left().
Another process waits for the same locks. Then the holder is stopped (SIGSTOP), or the server is, or the network
between the two is cut. For each lock (a run):

  - no step of the work began after the next client had been granted the lock;
  - the callback ran before that moment, unless the holder was stopped then. If the machine is so busy that the holder's
    own thread paused for longer than half of the margin, a late callback proves nothing.

--runs is the number of runs of all scenes together.
"""
import argparse
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cut import PATIENCE_S, CutProxy, Process, ask, start_server  # noqa: E402
from report import Report  # noqa: E402

KEYS = 20  # at once


class Scene:
    """One fault, with KEYS locks."""

    def __init__(self, world, fault):
        self.world, self.fault = world, fault
        self.stopped = (0, 0)  # when the holder was stopped, in us

    def play(self):
        w, now_us = self.world, lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        proxy = CutProxy(w.port)
        holder = Process(w.lockers, "hold", "127.0.0.1:%d" % proxy.port, str(KEYS), str(w.lease_ms))
        waiter = None
        try:
            holder.until("held")
            waiter = Process(w.lockers, "wait", "127.0.0.1:%d" % w.port, str(KEYS), str(5 * PATIENCE_S * 1000))
            waiter.until("waiting")
            time.sleep(random.random() * w.lease_ms / 1000)  # any moment between two extensions
            if self.fault == "holder":
                holder.signal(signal.SIGSTOP)
                begin = now_us()
                granted = waiter.until("granted", KEYS)
                self.stopped = (begin, now_us())
                holder.signal(signal.SIGCONT)
            elif self.fault == "server":
                w.server.send_signal(signal.SIGSTOP)
                time.sleep(1.6 * w.lease_ms / 1000)
                w.server.send_signal(signal.SIGCONT)
                granted = waiter.until("granted", KEYS)
            else:
                proxy.is_cut = True
                granted = waiter.until("granted", KEYS)
            holder.until("done")
            return self.judge(holder, {line[1]: (int(line[2]), int(line[3])) for line in granted})
        except (TimeoutError, EOFError):
            print("# %s\n# the holder: %r" % (ask(w.port, "EXPLAIN", "k0"), holder.lines[-5:]))
            raise
        finally:
            for p in (holder, waiter):
                if p is not None:
                    p.popen.kill()
                    p.popen.wait()
            proxy.listener.close()

    def judge(self, holder, granted):
        """Returns what is wrong, and the margins."""
        wrong, late = [], 0
        margins = {"callback": [], "step": []}
        lost = {line[1]: (int(line[2]), int(line[3])) for line in holder.until("lost", KEYS)}
        stepped = {line[1]: int(line[3]) for line in holder.until("stepped", KEYS)}
        paused_us = int(holder.until("paused")[0][1])
        for key, (fence, at_us) in granted.items():
            if fence <= lost[key][0]:
                wrong.append("the fence of %s does not rise" % key)
            margins["step"].append(at_us - stepped[key])
            if stepped[key] >= at_us:
                wrong.append("%s: a step began %d us after the next grant" % (key, stepped[key] - at_us))
            if self.stopped[0] <= at_us <= self.stopped[1]:
                continue  # the callback could not run
            margins["callback"].append(at_us - lost[key][1])
            if lost[key][1] < at_us:
                continue
            if paused_us > self.world.lease_ms * 1000 / 20:
                late += 1
            else:
                wrong.append("%s: the callback ran %d us after the next grant" % (key, lost[key][1] - at_us))
        return wrong, margins, late


class World:
    pass


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("server")
    parser.add_argument("lockers")
    parser.add_argument("--runs", type=int, default=6 * KEYS)
    parser.add_argument("--lease", type=int, default=1000)
    args = parser.parse_args()
    report, w = Report(), World()
    w.lockers, w.lease_ms = args.lockers, args.lease
    sentences = {"holder": "a holder that is stopped takes no step after the next grant",
                 "server": "a holder stops before a server that was stopped grants the lock again",
                 "network": "a holder that is cut off stops before the next grant"}
    with tempfile.TemporaryDirectory(prefix="sluice-test.") as directory:
        w.server, w.port = start_server(args.server, os.path.join(directory, "data"))
        try:
            for fault, sentence in sentences.items():
                wrong, steps, callbacks, late, runs = [], [], [], 0, 0
                while runs < args.runs // len(sentences):
                    new, margins, slow = Scene(w, fault).play()
                    wrong += new
                    steps += margins["step"]
                    callbacks += margins["callback"]
                    late += slow
                    runs += KEYS
                text = "smallest margin of a step %.1f ms" % (min(steps) / 1000)
                if callbacks:
                    text += ", of a callback %.1f ms" % (min(callbacks) / 1000)
                report.test(not wrong, sentence, wrong[:5] + ["%d runs, %s; %d callbacks were late on a busy machine" % (
                    runs, text, late)])
        finally:
            w.server.send_signal(signal.SIGCONT)
            w.server.kill()
    sys.exit(report.end())


main()
