#!/usr/bin/python3
"""run.py - the abuse table: what each attack does to the server and to a bystander.

    tests/abuse/run.py SERVER ATTACK_PROGRAM [--seconds N] [--runs N] [--nice N] [--json FILE] [NAME...]
    tests/abuse/run.py SERVER ATTACK_PROGRAM --smoke

For each attack it prints what the server did, its memory before, at the peak and five seconds
after, its longest turn, and how long a pair of ACQUIRE and RELEASE took for a bystander on a
connection of its own (p50 and p99 in microseconds), next to the baseline.

Attackers and bystander share one CPU, servers the other one. In the baseline the same
attackers attack a second server while the bystander uses the first. The second server runs on
the servers' CPU too: so in both runs the attackers get the same answers at about the same
rate, compete with the bystander for the one CPU, and cause the same work on the other. What
differs is who divides the servers' CPU between the attackers and the bystander: the kernel's
scheduler in the baseline, the attacked server in the measurement. The factor says how much
worse the server does that than the kernel.

On a machine with other work, --nice -15 (as root) gives all processes of a run the same higher
priority. --runs N repeats and prints the run with the median factor.

--smoke makes short runs with few connections, without baseline, prints TAP, and checks only
that the server survives and answers. Machines and loads differ: nothing here fails for time.
"""
import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../server/lib"), os.path.join(HERE, "../lib")]
from live import Client, Closed, Failure  # noqa: E402
from report import Report  # noqa: E402

PASSWORD = "correct-horse-battery"
CLIENTS_CPU, SERVERS_CPU = 0, 1


class Attack:
    def __init__(self, title, mode, connections, few, options=(), authed=True, setup=None, extra=()):
        self.title, self.mode, self.options, self.authed = title, mode, options, authed
        self.connections, self.few = connections, few
        self.setup, self.extra = setup, extra


def fill_table(c):
    """A table that TX.SCAN answers with 7 MB."""
    for part in range(7):
        check_reply(c("TX.BEGIN"))
        for i in range(64):
            check_reply(c("TX.PUT", "flood", "k%d-%d" % (part, i), "v" * 16000))
        check_reply(c("TX.COMMIT"))


def add_patterns(c):
    for i in range(100):
        check_reply(c("DRAIN", "*a*a*a*b%d" % i, "ON"))
    c.subscribe(*["*a*a*a*c%d" % i for i in range(100)], command="PSUBSCRIBE")


def check_reply(reply):
    if isinstance(reply, Exception) or type(reply).__name__ == "Error":
        raise Failure("setup: %r" % reply)


SECRET = ("--password", PASSWORD)
LITTLE = ("--memory-max", "256m")  # of memory, so that the limit is reached
ATTACKS = {
    "ping": Attack("pipelined PING, 200 connections", "ping", 200, 20),
    "loris": Attack("a byte at a time, 3,000 connections", "loris", 3000, 50),
    "waiters": Attack("9,900 waiters close at once", "waiters", 9900, 100),
    "docs": Attack("COMMAND DOCS x 1,020 before AUTH, 200 connections", "docs", 200, 10, SECRET, False),
    "keys": Attack("1.1 GB of keys with value and note, 1 connection", "keys", 1, 1, LITTLE),
    "scan": Attack("TX.SCAN not read, 400 connections", "scan", 400, 10, ("--data", "DATA") + LITTLE, setup=fill_table),
    "partial-before": Attack("9,900 partial commands before AUTH", "partial", 9900, 50, SECRET + LITTLE, False),
    "partial-after": Attack("9,900 partial commands after AUTH", "partial", 9900, 50, SECRET + LITTLE),
    "patterns": Attack("100 DRAIN, 100 PSUBSCRIBE *a*a*a*b", "pattern", 20, 5, setup=add_patterns),
    "guess": Attack("password guessing, 20 connections", "guess", 20, 5, SECRET, False),
}


def memory_mb(pid, field):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(field + r":\s+(\d+) kB", f.read()).group(1)) / 1024


def knows(program, option):
    """Older servers, for comparison, do not have every setting."""
    return option in subprocess.run([program, "--help"], capture_output=True, text=True).stdout


class Server:
    """A server of one run, on the servers' CPU."""

    def __init__(self, program, attack, pin):
        self.directory = tempfile.mkdtemp(prefix="abuse-")
        self.log = open(os.path.join(self.directory, "log"), "w+")
        data = os.path.join(self.directory, "data")
        options = [data if o == "DATA" else o for o in attack.options]
        if LITTLE[0] in options and not knows(program, LITTLE[0]):
            at = options.index(LITTLE[0])
            del options[at:at + 2]
        if "--data" not in options:
            options += ["--data", "none"]
        argv = pin(SERVERS_CPU) + [program, "--port", "auto", *options]
        self.process = subprocess.Popen(argv, stderr=self.log, stdout=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.port = self.wait_for_port()
        self.password = PASSWORD if SECRET[0] in attack.options else ""
        self.kept = None
        if attack.setup:
            self.kept = self.client()
            attack.setup(self.kept)

    def wait_for_port(self):
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            self.log.seek(0)
            text = self.log.read()
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)\b", text)
            if found and "ready: sluice" in text:
                return int(found.group(1))
            time.sleep(0.02)
        raise Failure("the server did not start")

    def client(self):
        c = Client(("127.0.0.1", self.port))
        if self.password:
            c("AUTH", self.password)
        return c

    def answers(self):
        """Whether it runs and answers a new client, after some time if need be."""
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            try:
                c = self.client()
                good = c("PING") == "PONG"
                c.close()
                if good:
                    return True
            except (Closed, Failure, OSError):
                pass
            time.sleep(0.1)
        return False

    def info(self):
        c = self.client()
        text = c("INFO").decode()
        c.close()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def end(self):
        if self.kept:
            self.kept.close()
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory)


def fields(line):
    return dict(part.split("=", 1) for part in line.split() if "=" in part)


class Run:
    """One attack on `target` while a bystander uses `used`."""

    def __init__(self, options, attack, used, target):
        self.options = options
        self.attack = attack
        seconds = options.seconds
        bystander = self.start("bystander", str(used.port), str(seconds + options.tail), used.password)
        bystander.stdout.readline()
        more = ["--connections", str(attack.few if options.smoke else attack.connections), *attack.extra]
        if target.password and attack.authed:
            more += ["--password", PASSWORD]
        attacker = self.start(attack.mode, str(target.port), str(seconds), *more)
        said, _ = attacker.communicate()
        measured, _ = bystander.communicate()
        self.bystander = fields(measured)
        self.complaint = "failed" in measured
        lines = said.strip().split("\n")
        self.attacker = fields(lines[-1])
        self.waves = next((fields(line).get("waves") for line in lines if line.startswith("waves")), None)
        self.problem = lines[-1].partition("problem=")[2]

    def start(self, *args):
        argv = self.options.pin(CLIENTS_CPU) + [self.options.attack_program, *args]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def p(self, name):
        return float(self.bystander[name]) if name in self.bystander else float("nan")


def what_it_did(run, info):
    """The server's side of it, in a few words."""
    a, parts = run.attacker, []
    megabytes = int(a.get("received", 0)) / 1e6
    if run.waves:
        parts.append("%s waves" % run.waves)
    if int(a.get("sent", 0)):
        parts.append("%.0f MB came, %.0f MB went" % (int(a["sent"]) / 1e6, megabytes))
    if int(a.get("closed", 0)):
        parts.append("hung up %s times" % a["closed"])
    if int(a.get("failed", 0)):
        parts.append("%s connects failed" % a["failed"])
    if int(info.get("output_limit_closes", 0)):
        parts.append("%s closed for unread output" % info["output_limit_closes"])
    if int(info.get("memory_closes", 0)):
        parts.append("%s closed at memory-max" % info["memory_closes"])
    if int(info.get("memory_rejections", 0)):
        parts.append("%s commands rejected at memory-max" % info["memory_rejections"])
    if int(info.get("auth_failures", 0)):
        parts.append("%s wrong passwords" % info["auth_failures"])
    if run.problem:
        parts.append("error: %s" % run.problem[:70])
    return "; ".join(parts) or "served"


def measure(options, name):
    attack = ATTACKS[name]
    other = Server(options.server, attack, options.pin)
    quiet = Server(options.server, attack, options.pin)
    try:
        base = Run(options, attack, quiet, other)
    finally:
        quiet.end()
        other.end()
    target = Server(options.server, attack, options.pin)
    try:
        row = {"name": name, "attack": attack.title, "before_mb": memory_mb(target.pid, "VmRSS")}
        run = Run(options, attack, target, target)
        time.sleep(5)
        row["survived"] = target.answers()
        if row["survived"]:
            info = target.info()
            row.update(peak_mb=memory_mb(target.pid, "VmHWM"), after_mb=memory_mb(target.pid, "VmRSS"),
                       did=what_it_did(run, info), turn_ms=int(info["loop_cpu_us_max"]) / 1000)
        else:
            row.update(peak_mb=float("nan"), after_mb=float("nan"), turn_ms=float("nan"), did="DID NOT SURVIVE")
    finally:
        target.end()
    row.update(p50_us=run.p("p50"), p99_us=run.p("p99"), max_us=run.p("max"), pairs=run.p("pairs"),
               base_p50_us=base.p("p50"), base_p99_us=base.p("p99"))
    if run.complaint:
        row["did"] += "; BYSTANDER FAILED"
    row["factor"] = row["p99_us"] / row["base_p99_us"]
    return row


HEADER = ("| attack | what the server did | memory before / peak / after, MB | longest turn, ms "
          "| p50 base, us | p50 | p99 base, us | p99 | factor |")


def table_line(r):
    return ("| %(attack)s | %(did)s | %(before_mb).0f / %(peak_mb).0f / %(after_mb).0f | %(turn_ms).1f "
            "| %(base_p50_us).0f | %(p50_us).0f | %(base_p99_us).0f | %(p99_us).0f | %(factor).1f |" % r)


def median_row(rows):
    """That of the middle factor: runs on a shared machine differ."""
    return sorted(rows, key=lambda r: r["factor"])[len(rows) // 2]


def smoke(options, names):
    report = Report()
    for name in names:
        attack = ATTACKS[name]
        target = Server(options.server, attack, options.pin)
        try:
            run = Run(options, attack, target, target)
            good = target.answers() and not run.complaint
        finally:
            target.end()
        report.test(good, "the server survives and answers: " + attack.title)
    return report.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("attack_program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_intermixed_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, 65536), max(hard, 65536)))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    two = not options.smoke and len(os.sched_getaffinity(0)) >= 2
    options.pin = (lambda cpu: ["taskset", "-c", str(cpu)]) if two else (lambda cpu: [])
    if options.nice:
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)
    options.tail = 1.0  # The bystander sees the connections being closed, too.
    names = options.names or list(ATTACKS)
    if options.smoke:
        options.seconds, options.tail = 0.3, 0.2
        return smoke(options, names)
    print(HEADER)
    print("|" + "---|" * 9, flush=True)
    rows = []
    for name in names:
        rows.append(median_row([measure(options, name) for _ in range(options.runs)]))
        print(table_line(rows[-1]), flush=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
