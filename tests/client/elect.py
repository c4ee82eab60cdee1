#!/usr/bin/python3
"""elect.py - candidates that use sluice_elect(), on a cluster whose nodes and leaders are killed: there are never two
leaders.

    tests/client/elect.py SERVER LOCKERS [--kills N] [--etcd] [--lease MS] [--seed N]

Three candidates stand for election, each with the addresses of all three nodes. Again and again, the script kills the
leader (and starts another candidate), kills a node (and starts it again), or stops the leader for longer than its lease. A
candidate leads from on_elected until on_ended, its resignation, or its death, by its own clock (CLOCK_BOOTTIME, which the
processes of one machine share). While a leader is stopped, it does nothing; its on_ended comes when it continues.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../cluster/lib"), os.path.join(HERE, "../lib")]
from nodes import Cluster  # noqa: E402
from report import Report  # noqa: E402
from waiting import until  # noqa: E402

PATIENCE_S = 90
CANDIDATES = 3


def now_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Candidate:
    def __init__(self, lockers, addresses, lease_ms):
        self.popen = subprocess.Popen([lockers, "elect", addresses, "leader", str(lease_ms)], stdout=subprocess.PIPE,
                                      text=True)
        self.lines, self.died_us, self.stops = [], None, []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.popen.stdout:
            self.lines.append(line.split())

    @property
    def leads(self):
        last = [line for line in list(self.lines) if line[0] in ("lead", "end", "resigns")]
        return bool(last) and last[-1][0] == "lead"

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.died_us = now_us()
        self.reader.join()

    def pause(self, seconds):
        """Stop the process for some seconds. The pause counts from when the process has stopped."""
        self.popen.send_signal(signal.SIGSTOP)
        until(lambda: open("/proc/%d/stat" % self.popen.pid).read().rpartition(")")[2].split()[0] == "T", "it stops")
        begin = now_us()
        time.sleep(seconds)
        self.stops.append((begin, now_us()))
        self.popen.send_signal(signal.SIGCONT)

    def terms(self):
        """Returns (fence, from, to) of each term in which the candidate led."""
        begun = None
        for line in self.lines:
            if line[0] == "lead":
                begun = int(line[1]), int(line[2])
            elif line[0] in ("end", "resigns") and begun:
                end = int(line[2] if line[0] == "end" else line[1])
                for stop, go in self.stops:  # It did nothing from `stop` until on_ended, which came first.
                    if begun[1] <= stop <= end:
                        end = min(end, stop) if end >= go - 1000 else end
                yield begun[0], begun[1], end
                begun = None
        if begun:
            yield begun[0], begun[1], self.died_us


class Play:
    def __init__(self, args, cluster):
        self.args, self.cluster, self.rng = args, cluster, random.Random(args.seed)
        self.all, self.alive = [], []
        for _ in range(CANDIDATES):
            self.start()

    def start(self):
        addresses = ["%s:%d" % (n.host, n.port) for n in self.cluster]
        self.rng.shuffle(addresses)
        self.alive.append(Candidate(self.args.lockers, ",".join(addresses), self.args.lease))
        self.all.append(self.alive[-1])

    def leader(self):
        return until(lambda: next((c for c in self.alive if c.leads), None), "there is a leader", PATIENCE_S)

    def kill_leader(self):
        leader = self.leader()
        leader.kill()
        self.alive.remove(leader)
        self.start()

    def kill_node(self):
        self.leader()
        node = self.rng.choice(list(self.cluster))
        node.kill()
        self.leader()
        node.start()
        self.cluster.wait_ready()

    def stop_leader(self):
        leader = self.leader()
        leader.pause(1.5 * self.args.lease / 1000)
        until(lambda: not leader.leads, "the leader that was stopped learns that it is over", PATIENCE_S)

    def run(self):
        for i in range(self.args.kills):
            [self.kill_leader, self.kill_node, self.stop_leader][i % 3 if i < 3 else self.rng.randrange(3)]()
        self.leader()
        for c in self.alive:
            c.popen.terminate()
        for c in self.alive:
            c.popen.wait(PATIENCE_S)
            c.reader.join()

    def judge(self):
        """Returns what is wrong, and the times without a leader, in seconds."""
        terms = sorted((begin, end, fence) for c in self.all for fence, begin, end in c.terms())
        wrong, gaps = [], []
        for (_, end, fence), (begin, _, later) in zip(terms, terms[1:]):
            if end > begin:
                wrong.append("two leaders for %d us: %d and %d" % (end - begin, fence, later))
            if later <= fence:
                wrong.append("the fence does not rise: %d, %d" % (fence, later))
            gaps.append((begin - end) / 1e6)
        return wrong, gaps, len(terms)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("server")
    parser.add_argument("lockers")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--etcd", action="store_true")
    parser.add_argument("--lease", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10 ** 6))
    args = parser.parse_args()
    report = Report()
    report.say("--seed %d" % args.seed)
    with Cluster(3, args.server, etcd=1 if args.etcd else 0, seed=args.seed) as cluster:
        play = Play(args, cluster)
        try:
            play.run()
        finally:
            for c in play.all:
                c.popen.kill()
        wrong, gaps, terms = play.judge()
        for c in play.all if wrong else ():
            report.say("pid %d died %s stops %s: %s" % (c.popen.pid, c.died_us, c.stops, c.lines))
        gaps.sort()
        report.test(not wrong and terms > args.kills / 3, "there are never two leaders", wrong[:5] + [
            "%d faults, %d terms of a leader; without a leader: median %.2f s, at most %.2f s" % (
                args.kills, terms, gaps[len(gaps) // 2] if gaps else 0, gaps[-1] if gaps else 0)])
    sys.exit(report.end())


main()
