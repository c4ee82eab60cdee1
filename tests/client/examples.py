#!/usr/bin/python3
"""examples.py - the programs of examples/ that use a server do what their comments say.

    tests/client/examples.py EXAMPLES SERVER [--jobs N] [PATTERN...]

EXAMPLES is the directory of the programs; they may be built with the thread sanitizer. The tests of `workers` run
worker.c, which has threads, and libuv.c, which has an event loop: both print the same lines.
"""
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server", "lib"))
from live import check, check_that, main, tap, test, test_of  # noqa: E402

if len(sys.argv) < 3:
    sys.exit(__doc__.strip())
EXAMPLES = os.path.abspath(sys.argv.pop(1))
MANY = "1000000"  # steps, more than any test waits for


def begin(t, s, name, *words):
    return t.start(os.path.join(EXAMPLES, name), *words, env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})


def run(t, s, name, *words, status=0):
    """Run an example to its end; returns its lines."""
    return ended(begin(t, s, name, *words), status)


def ended(p, status=0):
    check(p.status, status, "the exit status; it printed %r" % p.out)
    check(p.err, "", "its errors")
    return p.out.splitlines()


def steps_of(p):
    return [int(fence) for fence in re.findall(r"^step \d+, fence (\d+)$", p.out, re.M)]


def until_steps(t, p, above=0):
    """Wait until the worker does steps under a fence above this one; returns the fence."""
    found = t.until(lambda: [f for f in steps_of(p) if f > above], "it works under a fence above %d" % above)
    return found[0]


# ---- workers ----

def stopped(p):
    """The worker has stopped: after the callback, or before it because of sluice_left()."""
    check_that(" of %s steps done" % MANY in p.out, "it stopped its work; it printed %r" % p.out)
    check(p.err, "", "its errors")

def it_does_all_steps(t, name):
    s = t.server()
    lines = run(t, s, name, "k", "3")
    fences = {line.split()[-1] for line in lines[:3]}
    check(len(fences), 1, "fences")
    check(lines, ["step %d, fence %s" % (n, *fences) for n in (1, 2, 3)] + ["3 of 3 steps done", "OK"])
    check(s.holders("k"), 0, "holders")


def SIGTERM_ends_a_worker_and_the_next_one_works_under_a_higher_fence(t, name):
    s = t.server()
    first = begin(t, s, name, "k", MANY)
    fence = until_steps(t, first)
    second = begin(t, s, name, "k", "2")
    s.until_waiting("k", 1)
    first.kill(signal.SIGTERM)
    check(ended(first)[-1], "OK")
    ended(second)
    check_that(min(steps_of(second)) > fence, "the fence rises")


def SIGTERM_ends_a_worker_that_waits(t, name):
    s = t.server()
    holder = s.client()
    holder.acquire("k")
    p = begin(t, s, name, "k", "2")
    s.until_waiting("k", 1)
    p.kill(signal.SIGTERM)
    check([line.split(":")[0] for line in p.until_out("\n").splitlines()], ["CANCELLED"])
    check_that(p.status in (0, 1), "the worker ended")  # libuv.c always ends with 0.
    check(s.waiters("k"), 0, "waiters")


def a_worker_that_is_asked_to_release_does_so(t, name):
    s = t.server()
    p = begin(t, s, name, "k", MANY)
    fence = until_steps(t, p)
    thief = s.client()
    got = thief("ACQUIRE", "k", "LEASE", "60s", "WAIT", "60s", "PRIORITY", 1, "STEAL")
    check_that(got[0] > fence, "the fence rises")
    check(got[4] & 1, 0, "it does not overlap")
    check_that("asked to release" in ended(p), "it was asked")


def a_worker_that_was_suspended_past_its_lease_stops(t, name):
    s = t.server()
    p = begin(t, s, name, "k", MANY)
    fence = until_steps(t, p)
    p.kill(signal.SIGSTOP)
    t.until(lambda: tap.stopped(p.pid), "it is stopped")
    check_that(s.client().acquire("k", "WAIT", "60s") > fence, "the next holder has a higher fence")
    before = len(steps_of(p))
    p.kill(signal.SIGCONT)
    t.until(lambda: not p.running, "it ends")
    stopped(p)
    # It may have been stopped between the check and the step: therefore the fence.
    check_that(len(steps_of(p)) <= before + 1, "it does no other step")


def a_worker_whose_server_is_killed_stops(t, name):
    s = t.server()
    p = begin(t, s, name, "k", MANY)
    until_steps(t, p)
    s.kill()
    t.until(lambda: not p.running, "it ends")
    stopped(p)


def a_worker_whose_grant_is_revoked_stops(t, name):
    s = t.server()
    p = begin(t, s, name, "k", MANY)
    fence = until_steps(t, p)
    check([line.split(",")[:2] for line in run(t, s, "holders", "k")],
          [["holder %s" % name, " fence %d" % fence]])
    run(t, s, "holders", "k", str(fence))
    t.until(lambda: not p.running, "it ends")
    stopped(p)
    check(run(t, s, "holders", "k", str(fence), status=1), ["LOST"])


for f in (it_does_all_steps,
          SIGTERM_ends_a_worker_and_the_next_one_works_under_a_higher_fence,
          SIGTERM_ends_a_worker_that_waits,
          a_worker_that_is_asked_to_release_does_so,
          a_worker_that_was_suspended_past_its_lease_stops,
          a_worker_whose_server_is_killed_stops,
          a_worker_whose_grant_is_revoked_stops):
    for name in ("worker", "libuv"):
        test_of("%s_%s" % (name, f.__name__), f, name)


@test
def the_program_in_docs_clients_works(t):
    s = t.server()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    with open(os.path.join(root, "docs/clients.md"), encoding="utf-8") as page:
        text = re.search(r"^```c\n(.*?)^```$", page.read(), re.S | re.M)[1]
    library = os.path.join(os.path.dirname(tap.program), "..")
    p = t.run(os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", t.write("print.c", text), "-o",
              t.path("print"), "-I", os.path.join(root, "include"), "-L", library, "-lsluice",
              "-Wl,-rpath," + library)
    check((p.status, p.err), (0, ""), "the compiler")
    p = t.run(t.path("print"), env={"SLUICE_SERVER": "127.0.0.1:%d" % s.port})
    check([line.split(",")[0] for line in ended(p)], ["page 1", "page 2", "page 3", "OK"])
    check(s.holders("printer"), 0, "holders")


# ---- other locks ----

@test
def four_programs_of_a_pool_work_and_two_wait(t):
    s = t.server()
    all_ = [begin(t, s, "pool", "k", MANY) for _ in range(6)]
    s.until_waiting("k", 2)
    working = lambda: [p for p in all_ if "granted" in p.out and p.running]
    t.until(lambda: len(working()) == 4, "four work")
    check(sorted(p.out for p in working()), ["granted, %d of 4\n" % n for n in (1, 2, 3, 4)])
    check([line.split(",")[0] for line in run(t, s, "holders", "k")], ["holder pool"] * 4 + ["waiter pool"] * 2)
    working()[0].kill()
    s.until_waiting("k", 1)
    t.until(lambda: len(working()) == 4, "four work again")


@test
def a_pool_without_a_server_stops(t):
    s = t.server()
    p = begin(t, s, "pool", "k", MANY)
    p.until_out("granted, 1 of 4\n")
    s.kill()
    t.until(lambda: not p.running, "it ends")


@test
def a_lock_passes_to_another_program(t):
    s = t.server()
    lines = run(t, s, "handoff", "k")
    check(lines[0], "the grant is held")
    check([line.split(",")[0] for line in lines[1:]], ["step 1", "step 2", "step 3", "OK"])
    check(s.holders("k"), 0, "holders")
    check(run(t, s, "handoff", "k", "12345", status=1), ["the grant is not held", "LOST"])


@test
def an_event_loop_waits_for_many_locks(t):
    s = t.server()
    holder = s.client()
    fence = holder.acquire("b")
    p = begin(t, s, "poll", "a", "b", "c")
    p.until_out("a: released: OK\n")
    p.until_out("c: released: OK\n")
    s.until_waiting("b", 1)
    check(holder("RELEASE", "b", fence), 1)
    lines = ended(p)
    for key in "abc":
        mine = [line for line in lines if line[0] == key]
        check_that(re.fullmatch(r".: granted, fence \d+", mine[0]), mine[0])
        check(mine[1:], [key + ": extended: OK", key + ": released: OK"])
        check(s.holders(key), 0, "holders")


@test
def several_locks_in_different_orders_do_not_deadlock(t):
    s = t.server()
    all_ = [begin(t, s, "several", "1", *keys) for keys in ("xyz", "zyx", "yxz", "zxy")]
    for p in all_:
        check(ended(p)[-1], "OK")
    for key in "xyz":
        check(s.holders(key), 0, "holders")


@test
def a_program_that_loses_one_of_several_locks_releases_the_others(t):
    s = t.server()
    p = begin(t, s, "several", MANY, "x", "y", "z")
    p.until_out("step, ")
    fence = int(re.search(r"^y: fence (\d+)$", p.out, re.M)[1])
    check(s.client()("BREAK", "y", fence, "NOW"), 2)
    check(ended(p, 1)[-1], "LOST")
    for key in "xyz":
        check(s.holders(key), 0, "holders")


@test
def the_events_of_a_lock_are_printed(t):
    s = t.server()
    p = t.start(os.path.join(EXAMPLES, "events"), "k", "127.0.0.1:%d" % s.port)
    p.until_out("subscribe ")
    run(t, s, "worker", "k", "1")
    p.until_out("message released ")
    check([line.split()[1] for line in p.out.splitlines()[1:]], ["granted", "released"])
    s.kill()
    check(p.status, 1, "its exit status")
    check_that("CLOSED: " in p.out, "it says why")


# ---- elections ----

def leads(p, above=0):
    return [int(f) for f in re.findall(r"^\S+ lead (\d+) until \S+$", p.out, re.M) if int(f) > above]


def until_one_leads(t, candidates, above=0):
    """Wait for a candidate that acts under a fence above this one; returns the candidate and its fence."""

    def look():
        for p in candidates:
            for fence in leads(p, above):
                if " act %d\n" % fence in p.out:
                    return p, fence
        return None

    return t.until(look, "one leads under a fence above %d" % above)


def judge(candidates):
    """No candidate acts after the next one was elected, and none acts without leading."""
    acts = []
    for p in candidates:
        check(p.err, "", "its errors")
        fence = None
        for line in p.out[:p.out.rfind("\n") + 1].splitlines():
            at, word, *rest = line.replace(",", "").split()
            if word == "lead":
                fence = int(rest[0])
            elif word == "follow":
                fence = None
            else:
                check(int(rest[0]), fence, "the fence of %r" % line)
                acts.append((float(at), fence))
    acts.sort()
    check([fence for _, fence in acts], sorted(fence for _, fence in acts), "the fences of all acts")


@test
def a_leader_that_receives_SIGTERM_resigns(t):
    s = t.server()
    candidates = [begin(t, s, "leader", "k", "127.0.0.1:%d" % s.port) for _ in range(3)]
    first, fence = until_one_leads(t, candidates)
    check_that(s.client()("READ", "k")[0].decode().endswith(":%d" % first.pid), "READ shows the leader")
    first.kill(signal.SIGTERM)
    ended(first)
    second, _ = until_one_leads(t, candidates, fence)
    judge(candidates)
    for p in candidates:
        if p.running:
            p.kill(signal.SIGTERM)
            ended(p)


@test
def a_leader_that_was_suspended_past_its_lease_follows(t):
    s = t.server()
    candidates = [begin(t, s, "leader", "k", "127.0.0.1:%d" % s.port) for _ in range(2)]
    first, fence = until_one_leads(t, candidates)
    first.kill(signal.SIGSTOP)
    second, above = until_one_leads(t, candidates, fence)
    first.kill(signal.SIGCONT)
    first.until_out(" follow %d, " % fence)
    second.kill(signal.SIGKILL)
    check(until_one_leads(t, candidates, above)[0], first, "the next leader")
    judge(candidates)


# ---- transactions ----

@test
def transfers_at_the_same_time_lose_no_money(t):
    s = t.server("--data", t.path("data"))
    check(run(t, s, "transfer", "bank", "ann", "100"), ["ann 100", "bank -100"])
    all_ = [begin(t, s, "transfer", *pair, "1") for pair in [("bank", "ann"), ("ann", "ben"), ("ben", "bank")] * 4]
    for p in all_:
        lines = p.status in (0, 1) and p.out.splitlines()
        check_that(lines == ["ben has too little money"] or
                   sum(int(line.split()[1]) for line in lines) == 0, "%r is balanced" % p.out)
    lines = run(t, s, "transfer", "ann", "ben", "50")
    check(sum(int(line.split()[1]) for line in lines), 0, "the sum")
    ann = next(int(line.split()[1]) for line in lines if line.startswith("ann "))
    check(run(t, s, "transfer", "ann", "bank", str(ann + 1), status=1), ["ann has too little money"])
    check_that(not any(line.startswith("ann ") for line in run(t, s, "transfer", "ann", "bank", str(ann))),
               "an empty account is deleted")


@test
def a_transfer_waits_for_a_server_that_starts(t):
    s = t.server("--data", t.path("data"))
    port = s.port
    s.end()
    p = begin(t, s, "transfer", "bank", "ann", "100")
    t.server("--data", t.path("data"), port=port)
    check(ended(p), ["ann 100", "bank -100"])


main(__doc__)
