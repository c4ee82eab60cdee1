#!/usr/bin/python3
"""test_kills.py SLUICE [--long] [--seed N] [--jobs N] [PATTERN...] - the store of a storage
whose process is killed, and whose disk is full: what was answered is there, nothing is there
twice, and what was not answered is there as a whole or not at all.

SLUICE is that of a build; `committer` of the same build does the work. --long: 500 kills.
"""
import os
import random
import resource
import subprocess
import sys
import time

LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")
    os.environ.setdefault("SLUICE_TEST_DEADLINE_S", "600")
SEED = random.randrange(1 << 32)
if "--seed" in sys.argv:
    at = sys.argv.index("--seed")
    SEED = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../cli"), os.path.join(HERE, "../server/lib")]
import shims  # noqa: E402
import tap  # noqa: E402
from tap import check, check_that, main, test  # noqa: E402

KILLS = 500 if LONG else 30


def committer():
    build = os.path.dirname(os.path.dirname(os.path.dirname(tap.program)))
    return os.path.join(build, "tests/storage/committer")


def start(t, *args, **more):
    return t.start(committer(), *(str(a) for a in args), **more)


# --- What it said, and what is there --------------------------------------------------------


class Said:
    """What a committer has said."""

    def __init__(self, p):
        self.term, self.sent, self.ok, self.no, self.reads = None, [], {}, {}, []
        for line in p.out.split("\n")[:-1]:  # the last may not be whole
            words = line.split()
            if words[0] == "term":
                self.term = int(words[1])
            elif words[0] == "sent":
                self.sent.append(words[1])
            elif words[0] == "ok":
                check_that(words[1] not in self.ok, "%s is answered once" % words[1])
                self.ok[words[1]] = int(words[2])
            elif words[0] == "no":
                self.no[words[1]] = words[2]
            elif words[0] == "read":
                self.reads.append(words[1])

    @property
    def open(self):
        """What was sent, and not answered."""
        return [r for r in self.sent if r not in self.ok and r not in self.no]


class Store:
    """What a dump has."""

    def __init__(self, t, directory):
        p = t.sluice("store", "check", directory)
        check((p.status, p.err), (0, ""), "the check")
        p = t.sluice("store", "dump", directory)
        check((p.status, p.err), (0, ""), "the dump")
        del t.processes[-2:]
        self.text = p.out
        lines = p.out.splitlines()
        check(lines[0], "sluice store 1")
        self.term, self.revision = int(lines[1].split()[1]), int(lines[2].split()[1])
        self.log, self.last, self.requests = {}, {}, {}
        for line in lines[3:-1]:
            words = [w.strip('"') for w in line.split()]
            if words[:2] == ["data", "log"]:
                self.log[words[2]] = int(words[3])
            elif words[:2] == ["data", "last"]:
                self.last[words[2]] = (int(words[3]), words[4])
            elif words[0] == "request":
                self.requests[words[1]] = int(words[2])
        check(lines[-1], "end %d" % (len(lines) - 4))


def compare(store, all_said, answered_before):
    """all_said: of every run so far."""
    check(store.log, store.requests, "each commit has its record and its request, or neither")
    revisions = sorted(store.log.values())
    check(revisions, list(range(1, store.revision + 1)), "revisions, each once")
    sent = set()
    for said in all_said:
        sent.update(said.sent)
        for request, revision in said.ok.items():
            check(store.log.get(request), revision, "what was answered of " + request)
        for request in said.no:
            check_that(request not in store.log, "%s was refused, and is not there" % request)
        if said.term is not None:
            check_that(store.term >= said.term, "the term has not fallen")
    check_that(set(store.log) <= sent, "nothing is there that was not sent")
    check_that(store.revision >= answered_before, "the revision has not fallen")
    newest = {}  # of each key of "last"
    for request, revision in store.log.items():
        n = request.split(".")[1]
        key = str(int(n) % 7)
        newest[key] = max(newest.get(key, (0, "")), (revision, n))
    check(store.last, newest, "the last writer of each key")


# --- Kills ------------------------------------------------------------------------------------


def again(t, directory, term, requests, store):
    """What was not answered is sent once more, under the old term: it is known, or stale."""
    p = start(t, directory, "--again", term, *requests)
    check(p.status, 0)
    said = Said(p)
    check(said.ok, {r: store.log[r] for r in requests if r in store.log})
    check(sorted(said.no), sorted(r for r in requests if r not in store.log))
    check(set(said.no.values()) <= {"STALE"}, True, "all others are stale")
    t.processes.pop()


@test
def after_kill_9_each_confirmed_commit_is_stored_once(t):
    directory = t.path("data")
    os.mkdir(directory)
    r = random.Random(SEED)
    print("# seed %d, %d kills" % (SEED, KILLS), flush=True)
    all_said, revision, answered, unknown, applied = [], 0, 0, 0, 0
    for _ in range(KILLS):
        if revision > 20000:  # a store that does not take forever to dump
            for name in os.listdir(directory):
                os.unlink(os.path.join(directory, name))
            all_said, revision = [], 0
        p = start(t, directory, 1 << 30, r.choice((10, 40, 3000)), r.choice((1, 4, 16, 64)))
        if r.random() < 0.8:
            t.until(lambda: "ok" in p.out or not p.running, "it commits")
        time.sleep(r.random() ** 2 * 0.1)
        p.kill()
        check(p.status, -9)
        said = Said(p)
        t.processes.pop()
        all_said.append(said)
        if not os.path.exists(os.path.join(directory, "store")):
            check(said.sent, [])
            continue
        store = Store(t, directory)
        compare(store, all_said, revision)
        revision = store.revision
        answered += len(said.ok)
        unknown += len(said.open)
        applied += sum(x in store.log for x in said.open)
        if said.term is not None and r.random() < 0.3:
            again(t, directory, said.term, said.open, store)
            check(Store(t, directory).revision, revision, "nothing was applied twice")
    print("# answered %d, not answered %d, of them committed %d" % (answered, unknown, applied),
          flush=True)
    check_that(answered > KILLS, "there was something to lose")
    check_that(unknown > 0, "some were not answered")


@test
def a_clean_exit_has_answered_everything(t):
    directory = t.path("data")
    os.mkdir(directory)
    p = start(t, directory)
    p.until_out("ok 1.100 ")
    p.kill(15)
    check(p.status, 0)
    said = Said(p)
    check(said.open, [])
    compare(Store(t, directory), [said], 0)


# --- A full disk ----------------------------------------------------------------------------------


def mount(t, *args):
    t.mounted = getattr(t, "mounted", [])
    shims.mount(t, *args)


def full_and_free_again(t, directory, p, free):
    """It commits until there is no space; it reads; there is space, and it commits."""
    t.until(lambda: "NOSPACE" in p.out or not p.running, "the disk is full", 20)
    before = len(Said(p).reads)
    t.until(lambda: len(Said(p).reads) > before + 1, "reads go on")
    said = Said(p)
    check(set(said.no.values()), {"NOSPACE"}, "what is said of a full disk")
    check(set(said.reads), {"OK"}, "the reads")
    free()
    n = max(said.ok.values())
    t.until(lambda: max(Said(p).ok.values()) > n + 50, "it commits again")
    p.kill(15)
    check(p.status, 0)
    said = Said(p)
    check(said.open, [])
    compare(Store(t, directory), [said], n)


@test
def a_full_disk_is_reported_and_nothing_is_lost(t):
    directory = t.path("data")
    os.mkdir(directory)
    mount(t, "-t", "tmpfs", "-o", "size=3m", "none", directory)
    try:
        p = start(t, directory, 1 << 30, 1000)
        full_and_free_again(t, directory, p,
                            lambda: mount(t, "-o", "remount,size=64m", directory))
    finally:
        subprocess.run(["umount", "--lazy", directory], stderr=subprocess.DEVNULL)


@test
def a_full_disk_at_the_start_is_reported(t):
    directory = t.path("data")
    os.mkdir(directory)
    mount(t, "-t", "tmpfs", "-o", "size=64k", "none", directory)
    try:
        with open(os.path.join(directory, "ballast"), "wb") as f:
            f.write(b"x" * 56 * 1024)
        p = start(t, directory)
        check(p.status, 1)
        check_that("full" in p.err, "it says so")
        check(os.listdir(directory), ["ballast"], "what is left")
    finally:
        subprocess.run(["umount", "--lazy", directory], stderr=subprocess.DEVNULL)


@test
def a_file_size_limit_is_reported_and_nothing_is_lost(t):
    directory = t.path("data")
    os.mkdir(directory)
    # A MiB, in blocks of 512. What it says goes to a pipe: that is no file.
    p = t.start("sh", "-c", 'ulimit -S -f 2048; "$0" "$@" | cat', committer(), directory,
                str(1 << 30), "1000")

    def own():
        return [c for c in tap.descendants(p.pid)
                if os.readlink("/proc/%d/exe" % c).endswith("/committer")][0]

    t.until(lambda: "NOSPACE" in p.out or not p.running, "the limit is met", 20)
    said = Said(p)
    resource.prlimit(own(), resource.RLIMIT_FSIZE,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    n = max(said.ok.values())
    t.until(lambda: max(Said(p).ok.values()) > n + 50, "it commits again")
    os.kill(own(), 15)
    check(p.status, 0)
    said = Said(p)
    check((said.open, set(said.no.values()), set(said.reads)), ([], {"NOSPACE"}, {"OK"}))
    compare(Store(t, directory), [said], n)


@test
def a_full_store_reports_it_and_reads_continue(t):
    directory = t.path("data")
    os.mkdir(directory)
    p = start(t, directory, 2 << 20, 1000)
    t.until(lambda: "NOSPACE" in p.out or not p.running, "the store is full", 20)
    before = len(Said(p).reads)
    t.until(lambda: len(Said(p).reads) > before + 1, "reads go on")
    p.kill()
    p.status
    compare(Store(t, directory), [Said(p)], 0)
    check_that(os.path.getsize(os.path.join(directory, "store")) <= 2 << 20, "it has not grown")
    p = start(t, directory, 8 << 20, 1000)
    p.until_out("ok 2.50 ")


main(__doc__)
