#!/usr/bin/python3
"""test_damage.py - a server with a damaged store serves locks, reports the damage and never crashes.

    tests/server/test_damage.py SERVER [--long] [--seed N] [--only I] [--jobs N] [PATTERN...]

Each trial changes the file of a good store at random and starts a server on it. The server
either serves transactions, and then reads and rewrites everything, or it serves locks alone and
reports the damage. --long: 1000 trials instead of 60. A failure names its seed and trial.
"""
import os
import random
import shutil
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
from live import Failure, Server, check, check_error, check_that, main, test, test_of  # noqa: E402

PAGE = os.sysconf("SC_PAGESIZE")
PARTS = 4  # tests, which run at the same time


def option(name, default):
    """A word of the command line that only this program knows."""
    if name not in sys.argv:
        return default
    i = sys.argv.index(name)
    words = sys.argv[i:i + (1 if isinstance(default, bool) else 2)]
    del sys.argv[i:i + len(words)]
    return True if len(words) == 1 else int(words[1])


LONG = option("--long", False)
SEED = option("--seed", 20261116)
ONLY = option("--only", -1)
TRIALS = 1000 if LONG else 60


def transact(c, *commands):
    check_that(isinstance(c("TX.BEGIN"), list), "TX.BEGIN is answered")
    for words in commands:
        check(c(*words), "OK", "%r" % (words[:3],))
    got = c("TX.COMMIT")
    check_that(isinstance(got, int), "it is committed: %r" % (got,))


def value(r):
    """Some fill several pages."""
    return r.randbytes(r.choice((0, 5, 40, 300, 1500, 5000, 15000)))


def ended(s, number=signal.SIGTERM):
    s.signal(number)
    check(s.status, 0, "exit status")


def store(t, seed=1):
    """A store with tables, large values, requests, and pages that are free again."""
    r = random.Random(seed)
    data = t.path("good")
    s = Server(t, ("--data", data))
    c = s.client()
    for i in range(12):
        transact(c, *[("TX.PUT", "t%d" % (i % 3), "k%d" % r.randrange(60), value(r)) for _ in range(10)])
    for i in range(20):
        check_that(isinstance(c("TX.BEGIN", "REQUEST", "r%d" % i), list), "TX.BEGIN is answered")
        check(c("TX.DEL", "t1", "k%d" % i), "OK")
        check_that(isinstance(c("TX.COMMIT"), int), "it is committed")
    ended(s)
    return data


# --- Damage -------------------------------------------------------------------------------------


def flip(r, b):
    i = r.randrange(len(b))
    b[i] ^= 1 << r.randrange(8)
    return "bit at %d" % i


def scribble(r, b):
    n, i = r.choice((1, 2, 4, 8, 64)), r.randrange(len(b))
    b[i:i + n] = r.randbytes(n)[:len(b) - i]
    return "%d bytes at %d" % (n, i)


def head(r, b):
    """The head of a page, and its pointers."""
    i = r.randrange(len(b) // PAGE) * PAGE + r.randrange(48)
    b[i] = r.randrange(256)
    return "head at %d" % i


def node(r, b):
    """What a pointer of a page points to: lengths, flags, numbers of pages."""
    page = r.randrange(2, len(b) // PAGE) * PAGE
    lower = int.from_bytes(b[page + 12:page + 14], "little")
    count = max(1, min(lower - 16, PAGE - 16) // 2)
    at = page + 16 + 2 * r.randrange(count)
    i = page + int.from_bytes(b[at:at + 2], "little") % (PAGE - 16) + r.randrange(16)
    b[i] = r.randrange(256)
    return "node at %d" % i


def meta(r, b):
    i = r.randrange(2) * PAGE + r.randrange(160)
    b[i] = r.choice((0, 1, 0xff, r.randrange(256)))
    return "meta at %d" % i


def swap(r, b):
    x, y = (r.randrange(len(b) // PAGE) * PAGE for _ in range(2))
    b[x:x + PAGE] = b[y:y + PAGE]
    return "page at %d over %d" % (y, x)


def clear(r, b):
    i = r.randrange(len(b) // PAGE) * PAGE
    b[i:i + PAGE] = bytes(PAGE)
    return "no page at %d" % i


def cut(r, b):
    n = r.randrange(len(b))
    del b[n:]
    return "cut at %d" % n


KINDS = (flip, scribble, head, head, node, node, meta, swap, clear, cut)


# --- Trials ---------------------------------------------------------------------------------------


def use_all(c, r):
    """Read every table, and write so much that every page is read, freed and used again."""
    for i in range(3):
        check_that(isinstance(c("TX.BEGIN"), list), "TX.BEGIN is answered")
        rows = c("TX.SCAN", "t%d" % i)
        check_that(isinstance(rows, (list, dict)), "a table is read: %r" % (rows,))
        check_that(isinstance(c("TX.COMMIT"), int), "it is committed")
    for i in range(4):
        keys = r.sample(range(60), 30)
        transact(c, *[("TX.PUT", "t%d" % (i % 3), "k%d" % k, value(r)) if k % 3 else
                      ("TX.DEL", "t%d" % (i % 3), "k%d" % k) for k in keys])


def trial(t, good, number):
    """What became of it: "whole", "damaged" or "refused"."""
    r = random.Random("%d.%d" % (SEED, number))
    data = t.path("data%d" % number)
    shutil.copytree(good, data)
    with open(data + "/store", "rb") as f:
        b = bytearray(f.read())
    what = r.choice(KINDS)(r, b)
    with open(data + "/store", "wb") as f:
        f.write(b)
    try:
        outcome = serve(t, data, r)
    except Exception as e:
        raise Failure("seed %d, trial %d (%s): %s; again: --seed %d --only %d" % (SEED, number, what, e, SEED, number))
    shutil.rmtree(data)
    return outcome


def serve(t, data, r):
    try:
        s = Server(t, ("--data", data))
    except Failure:
        # A format number or a mark of LMDB's that is another is told from damage only as far as possible.
        p = t.failing("--data", data)
        check(p.status, 1, "exit status")
        check_that("another version" in p.err or "no store of" in p.err, "it says why: " + p.err)
        return "refused"
    c = s.client()
    check_that(isinstance(c("ACQUIRE", "k"), list), "locks are granted")
    if "the store is damaged" in s.log:
        for words in (("TX.BEGIN",), ("TX.OUTCOME", "r1"), ("EXPLAIN", "TX", "t"), ("LOCKS", "TX")):
            check_error(c(*words), "NOKEEPER", "store")
        info = s.info(c)
        check([info["engine"], info["keeper"]], ["lmdb", "damaged"])
        check_that("/store" in info["engine_trouble"], "INFO says why: %r" % info["engine_trouble"])
        outcome = "damaged"
    else:
        use_all(c, r)
        outcome = "whole"
    ended(s)
    return outcome


def some(t, part):
    good, outcomes = store(t), []
    for i in range(part, TRIALS, PARTS):
        if ONLY in (-1, i):
            outcomes.append(trial(t, good, i))
    print("# seed %d: %s" % (SEED, ", ".join("%d %s" % (outcomes.count(x), x) for x in sorted(set(outcomes)))), flush=True)


for _part in range(PARTS):
    test_of("a_damaged_store_never_crashes_the_server_%d" % (_part + 1), some, _part)


@test
def a_good_store_is_whole_after_kill_9(t):
    good = store(t)
    s = Server(t, ("--data", good))
    use_all(s.client(), random.Random(5))
    s.signal(signal.SIGKILL)
    s.status
    check(serve(t, good, random.Random(6)), "whole")


@test
def a_check_that_takes_too_long_is_given_up(t):
    data = t.path("large")
    s = Server(t, ("--data", data, "--tx-value-bytes-max", "8m", "--tx-bytes-max", "16m",
                   "--argument-bytes-max", "8m", "--command-bytes-max", "16m"))
    c = s.client()
    for i in range(12):
        transact(c, ("TX.PUT", "t", "k%d" % i, bytes(8000000)))
    ended(s)
    for _ in range(20):  # The check may be done before a slow machine notices that its time is over.
        s = Server(t, ("--data", data, "--store-check-time", "1ms"))
        got = s.client()("TX.BEGIN")
        if not isinstance(got, list):
            break
        ended(s)
    check_error(got, "NOKEEPER", "could not be checked in time", "store-check-time")
    check_that(isinstance(s.client()("ACQUIRE", "k"), list), "locks are granted")
    ended(s)
    s = Server(t, ("--data", data))
    check_that(isinstance(s.client()("TX.BEGIN"), list), "with more time it is used")
    ended(s)


main(__doc__)
