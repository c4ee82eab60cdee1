#!/usr/bin/python3
"""losses.py - `sluice run --server` kills all descendants of its command before another client is granted the lock.

    tests/cli/losses.py SLUICE SERVER LOCKERS FAMILY [--runs N] [--lease MS] [--only FAULT]

Many `sluice run` hold one lock each. Their commands ignore SIGTERM, and have daemons, stopped processes and processes
in other sessions as descendants (family.c). Another process waits for all locks. Then the test causes a fault. For each
lock (a run), all descendants must have ended when the next client is granted the lock, and the fences must rise. Each
descendant writes a heartbeat every 3 ms. The margin is the time from the last heartbeat to the next grant.

--runs is the number of runs of all faults together.
"""
import argparse
import contextlib
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for name in ("lib", "client"):
    sys.path.insert(0, os.path.join(HERE, "..", name))
from cut import PATIENCE_S, CutProxy, Process, ask, start_server  # noqa: E402
from report import Report  # noqa: E402

KEYS = 10  # at once
MEMBERS = 7
STOPPED = 4  # this member gives no sign of life

# What happens to which process: the server, the network, or a process of `sluice run`.
FAULTS = {
    "server stopped": [("server", signal.SIGSTOP)],
    "server killed": [("server", signal.SIGKILL)],
    "network cut": [("network", None)],
    "network cut, wrapper stopped": [("wrapper", signal.SIGSTOP), ("network", None)],
    "network cut, wrapper killed": [("wrapper", signal.SIGKILL), ("network", None)],
    "renewer stopped": [("renewer", signal.SIGSTOP)],
    "renewer killed": [("renewer", signal.SIGKILL)],
    "wrapper killed, then renewer": [("wrapper", signal.SIGKILL), ("renewer", signal.SIGKILL)],
    "guard killed": [("guard", signal.SIGKILL)],
    "guard stopped, network cut": [("guard", signal.SIGSTOP), ("network", None)],
}


def processes_of(parent):
    """The name and the process id of each child."""
    with open("/proc/%d/task/%d/children" % (parent, parent)) as f:
        children = [int(pid) for pid in f.read().split()]
    names = {}
    for pid in children:
        with open("/proc/%d/comm" % pid) as f:
            names[f.read().strip()] = pid
    return names


class Scene:
    """One fault, with KEYS locks."""

    def __init__(self, args, directory, fault):
        self.args, self.fault = args, fault
        self.board = os.path.join(directory, "board")
        with open(self.board, "wb") as f:
            f.truncate(1 << 20)
        with open(self.board, "rb") as f:
            self.map = mmap.mmap(f.fileno(), 1 << 20, prot=mmap.PROT_READ)
        self.data = os.path.join(directory, "data")

    def members(self, i):
        return [struct.unpack_from("qq", self.map, 16 * (i * MEMBERS + j)) for j in range(MEMBERS)]

    def play(self):
        a = self.args
        server, port = start_server(a.server, self.data)
        proxy = CutProxy(port)
        runs, waiter = [], None
        try:
            for i in range(KEYS):
                runs.append(subprocess.Popen(
                    [a.sluice, "run", "--server", "127.0.0.1:%d" % proxy.port, "--lease", "%dms" % a.lease,
                     "--grace", random.choice(("0", "5s")), "k%d" % i, a.family, self.board, str(i)],
                    stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            self.until(lambda: all(m[0] for i in range(KEYS) for m in self.members(i)), "all commands run")
            pids = [dict(processes_of(run.pid), wrapper=run.pid) for run in runs]
            fences = [int(line.split(b"=")[1]) for i in range(KEYS)
                      for line in self.environment(i) if line.startswith(b"SLUICE_LOCK_FENCE=")]
            waiter = Process(a.lockers, "wait", "127.0.0.1:%d" % port, str(KEYS), str(5 * PATIENCE_S * 1000))
            waiter.until("waiting")
            time.sleep(random.random() * a.lease / 1000)  # any moment between two extensions
            for who, number in FAULTS[self.fault]:
                if who == "network":
                    proxy.is_cut = True
                elif who == "server":
                    server.send_signal(number)
                    time.sleep(1.2 * a.lease / 1000)
                    if number == signal.SIGKILL:
                        server.wait()
                        server, _ = start_server(a.server, self.data, port)
                    else:
                        server.send_signal(signal.SIGCONT)
                else:
                    for each in pids:
                        os.kill(each["sluice-" + who if who != "wrapper" else who], number)
            granted = {line[1]: (int(line[2]), int(line[3])) for line in waiter.until("granted", KEYS)}
            return self.judge(granted, fences, runs)
        except (TimeoutError, EOFError):
            print("# %s\n# %r" % (self.fault, ask(port, "EXPLAIN", "k0")))
            raise
        finally:
            for run in runs:
                run.kill()
            for i in range(KEYS):
                for pid, _ in self.members(i):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid or 1 << 30, signal.SIGKILL)
            if waiter is not None:
                waiter.popen.kill()
                waiter.popen.wait()
            for run in runs:
                run.communicate()
            server.kill()
            server.wait()
            proxy.listener.close()

    def environment(self, i):
        with open("/proc/%d/environ" % self.members(i)[0][0], "rb") as f:
            return f.read().split(b"\0")

    def runs(self, pid, i):
        """Whether this is still a process of the family of this lock: its id can be used again."""
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                return f.read().split(b"\0")[1:3] == [self.board.encode(), b"%d" % i]
        except (FileNotFoundError, ProcessLookupError):
            return False

    @staticmethod
    def until(condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(what)
            time.sleep(0.005)

    def judge(self, granted, fences, runs):
        """Returns what is wrong, and the margins."""
        wrong, margins = [], []
        for i in range(KEYS):
            fence, at_us = granted["k%d" % i]
            if fence <= fences[i]:
                wrong.append("the fence of k%d does not rise" % i)
            for j, (pid, beat_us) in enumerate(self.members(i)):
                if self.runs(pid, i):
                    wrong.append("process %d of k%d runs after the next grant" % (j, i))
                if j != STOPPED:
                    margins.append(at_us - beat_us)
                if beat_us >= at_us:
                    wrong.append("process %d of k%d was alive %d us after the next grant" % (j, i, beat_us - at_us))
        if not any(who in ("wrapper",) for who, _ in FAULTS[self.fault]):
            for i, run in enumerate(runs):
                run.wait(PATIENCE_S)
                if run.returncode != 79:
                    wrong.append("the exit status of k%d is %d" % (i, run.returncode))
        return wrong, margins


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("sluice", "server", "lockers", "family"):
        parser.add_argument(name)
    parser.add_argument("--runs", type=int, default=len(FAULTS) * KEYS)
    parser.add_argument("--lease", type=int, default=2000)
    parser.add_argument("--only", choices=FAULTS)
    args = parser.parse_args()
    report, faults = Report(), [args.only] if args.only else list(FAULTS)
    for fault in faults:
        wrong, margins, runs = [], [], 0
        while runs < args.runs / len(faults):
            with tempfile.TemporaryDirectory(prefix="sluice-test.") as directory:
                new, some = Scene(args, directory, fault).play()
            wrong += new
            margins += some
            runs += KEYS
        report.test(not wrong, "%s: no descendant is left when the next client is granted the lock" % fault,
                    wrong[:5] + ["%d runs, smallest margin %.1f ms" % (runs, min(margins) / 1000)])
    sys.exit(report.end())


main()
