#!/usr/bin/python3
"""test_threads.py - a hundred threads of a Redis client on one pool, and the tools of Redis.

    tests/server/test_threads.py SERVER [--long] [--jobs N] [PATTERN...]

--long makes ten times as many pairs.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import Skip, check, check_that, main, tap, test, threads

LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")
    tap.DEADLINE_S = 1200
PAIRS = 100000 if LONG else 10000
THREADS = 100
KEYS = 5


def needs(tool):
    if shutil.which(tool) is None:
        raise Skip("there is no %s here" % tool)


@test
def a_hundred_threads_on_one_pool(t):
    """Every release answers 1, fences rise on each key as seen under its lock, and there are
    never two holders. Leased: the pool gives a command any connection."""
    s = t.server()
    r = s.redis(max_connections=THREADS)
    # Written only under the lock of the key; no lock of Python's protects them.
    holder = [None] * KEYS
    last = [0] * KEYS
    count = [0] * KEYS
    wrong = []

    def pair(me, i):
        k = (me + i) % KEYS
        got = r.execute_command("ACQUIRE", "key:%d" % k, "WAIT", 1000000, "LEASE", 1000000)
        if got is None:
            raise AssertionError("the wait timed out")
        fence = got[0]
        if holder[k] is not None:
            raise AssertionError("%s holds, and %d as well" % (holder[k], me))
        holder[k] = me
        if fence <= last[k]:
            raise AssertionError("fence %d after %d" % (fence, last[k]))
        last[k] = fence
        count[k] += 1
        if holder[k] != me:
            raise AssertionError("%s came in" % holder[k])
        holder[k] = None
        released = r.execute_command("RELEASE", "key:%d" % k, fence)
        if released != 1:
            raise AssertionError("RELEASE answered %r" % released)

    def run(me):
        try:
            for i in range(PAIRS // THREADS):
                if wrong:
                    return
                pair(me, i)
        except Exception as e:
            wrong.append("thread %d: %r" % (me, e))

    with threads(run, range(THREADS)):
        pass
    check(wrong[:5], [], "what went wrong")
    check(sum(count), PAIRS, "pairs")
    info = s.info()
    check([int(info[n]) for n in ("grants", "releases", "expiries", "keys", "entries")],
          [PAIRS, PAIRS, 0, 0, 0])


@test
def redis_py_speaks_to_it(t):
    s = t.server("--password", "pw")
    r = s.redis(password="pw", client_name="tests", decode_responses=True)
    check(r.ping(), True)
    fence = r.execute_command("ACQUIRE", "k", "LEASE", 60000, "VALUE", "v")[0]
    check(r.execute_command("READ", "k")[:2], ["v", fence])
    check(r.execute_command("RELEASE", "k", fence), 1)
    check(r.info()["sluice_version"] != "", True)
    check(r.config_get("linger"), {"linger": "5000"})
    check(r.client_getname(), "tests")
    check_that(len(r.client_list()) >= 1, "CLIENT LIST is understood")
    check_that(r.client_id() > 0, "CLIENT ID is understood")
    check_that("acquire" in r.command(), "COMMAND is understood")
    check(r.echo("x"), "x")
    p = r.pipeline(transaction=False)
    for i in range(10):
        p.execute_command("ACQUIRE", "p%d" % i)
    check([got[1] for got in p.execute()], [1] * 10)


@test
def redis_py_listens_to_events(t):
    s = t.server()
    r = s.redis(decode_responses=True)
    sub = r.pubsub(ignore_subscribe_messages=True)
    sub.subscribe("lock:k")
    sub.psubscribe("lock:*")
    for _ in range(2):
        sub.get_message(timeout=30)
    fence = r.execute_command("ACQUIRE", "k", "LEASE", 60000)[0]
    check(r.execute_command("RELEASE", "k", fence), 1)
    got = []
    t.until(lambda: got.append(sub.get_message(timeout=0.1)) or len([m for m in got if m]) == 4,
            "four messages came")
    texts = [m["data"].split()[0] for m in got if m]
    check(sorted(texts), ["granted", "granted", "released", "released"])
    check(s.number("pubsub_clients"), 1)


# --- redis-cli and redis-benchmark ----------------------------------------------------------


def cli(s, *args, text=None):
    needs("redis-cli")
    p = subprocess.run(["redis-cli", "-p", str(s.port), *args], capture_output=True, text=True,
                       timeout=60, input=text or "")
    check(p.returncode, 0, "the status of redis-cli %r: %s%s" % (args, p.stdout, p.stderr))
    return p.stdout


@test
def redis_cli_speaks_to_it(t):
    s = t.server()
    check(cli(s, "PING").strip(), "PONG")
    lines = cli(s, "ACQUIRE", "k", "LEASE", "60000", "VALUE", "it's me").split()
    check(lines[1:], ["1", "60000", "0", "0"])
    check(cli(s, "ACQUIRE", "k").strip(), "")
    check(cli(s, "CHECK", "k", lines[0]).strip(), "1")
    check_that("it's me" in cli(s, "READ", "k"), "READ")
    check_that("it's me" in cli(s, "EXPLAIN", "k"), "EXPLAIN")
    check_that("sluice_version:" in cli(s, "INFO"), "INFO")
    check_that("unknown command" in cli(s, "NOSUCH"), "an unknown command")
    check(cli(s, "RELEASE", "k", lines[0]).strip(), "1")
    got = cli(s, text="ACQUIRE a\nACQUIRE b\nRELEASE a\nRELEASE a\n").split("\n")
    check([n for n in got if n in ("1", "0")][-2:], ["1", "0"])


@test
def redis_cli_in_RESP3(t):
    s = t.server()
    check(cli(s, "-3", "PING").strip(), "PONG")
    fence = cli(s, "-3", "ACQUIRE", "k", "LEASE", "60000").split()[0]
    check_that(re.search(r"holders_count.*1", cli(s, "-3", "EXPLAIN", "k"), re.S), "a map")
    check_that("linger" in cli(s, "-3", "CONFIG", "GET", "linger"), "CONFIG GET")
    check(cli(s, "-3", "RELEASE", "k", fence).strip(), "1")


@test
def redis_cli_with_a_password(t):
    s = t.server("--password", "pw")
    check(cli(s, "--no-auth-warning", "-a", "pw", "PING").strip(), "PONG")
    check_that("NOAUTH" in cli(s, "PING"), "without it")


def benchmark(s, *args):
    needs("redis-benchmark")
    p = subprocess.run(["redis-benchmark", "-p", str(s.port), *args], capture_output=True,
                       text=True, timeout=60, stdin=subprocess.DEVNULL)
    check(p.returncode, 0, "the status of redis-benchmark: %s%s" % (p.stdout, p.stderr))
    check_that("requests per second" in p.stdout, "it has a result: %s%s" % (p.stdout, p.stderr))
    check_that("rror" not in p.stdout + p.stderr, "no error: %s%s" % (p.stdout, p.stderr))


@test
def redis_benchmark_measures_it(t):
    s = t.server()
    benchmark(s, "-n", "2000", "-q", "-t", "ping_inline,ping_mbulk")
    benchmark(s, "-n", "2000", "-q", "-c", "20", "-P", "8", "PING")
    benchmark(s, "-n", "2000", "-q", "ACQUIRE", "k", "PER", "1000000", "LEASE", "60000")
    check(s.number("grants"), 2000)
    benchmark(s, "-n", "2000", "-q", "RELEASE", "k", "1")
    benchmark(s, "-n", "2000", "-q", "-r", "100000", "ACQUIRE", "key:__rand_int__", "LEASE", "60000")


main(__doc__)
