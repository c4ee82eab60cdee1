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
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from report import Report  # noqa: E402

KEYS = 20  # at once
PATIENCE_S = 60


class CutProxy:
    """Forwards connections to a server, until it is cut: then it is silent, and closes nothing."""

    def __init__(self, port):
        self.up_port, self.is_cut = port, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            down, _ = self.listener.accept()
            up = socket.create_connection(("127.0.0.1", self.up_port))
            for a, b in ((down, up), (up, down)):
                threading.Thread(target=self.forward, args=(a, b), daemon=True).start()

    def forward(self, source, target):
        try:
            while data := source.recv(65536):
                if not self.is_cut:
                    target.sendall(data)
        except OSError:
            pass
        if not self.is_cut:
            target.close()


class Process:
    def __init__(self, *args):
        self.popen = subprocess.Popen(args, stdout=subprocess.PIPE)
        self.lines, self.rest = [], b""
        os.set_blocking(self.popen.stdout.fileno(), False)

    def until(self, word, count=1):
        """Wait until `count` lines begin with a word; returns these lines, split."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = [line for line in self.lines if line[0] == word]
            if len(found) >= count:
                return found
            if not select.select([self.popen.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("no %d lines %r: %r" % (count, word, self.lines[-5:]))
            data = self.popen.stdout.read()
            if data == b"":
                raise EOFError("the process ended after %d of %d lines %r: %r" % (
                    len(found), count, word, self.lines[-5:]))
            *lines, self.rest = (self.rest + data).split(b"\n")
            self.lines += [line.decode().split() for line in lines]

    def signal(self, number):
        self.popen.send_signal(number)


def ask(port, *words):
    """The reply to a command, as it was received."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
        return s.recv(65536)


def start_server(server, directory):
    process = subprocess.Popen([server, "--port", "auto", "--data", os.path.join(directory, "data"), "--data-volatile",
                                "--log-level", "info"], stderr=subprocess.PIPE, text=True)
    port = None
    for line in process.stderr:
        if "listening on 127.0.0.1:" in line:
            port = int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1))
        if " ready: " in line:
            return process, port
    sys.exit("the server does not start")


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
        w.server, w.port = start_server(args.server, directory)
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
