#!/usr/bin/python3
"""test_client.py - the C client, on a live server.

    tests/client/test_client.py SERVER [--jobs N] [PATTERN...]

The library and the program `lockers` are those of the build of SERVER.
"""
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../server/lib"), HERE]

from lib_sluice import (ASKED, BROKEN, EXPIRED, FOREVER, STOLEN, UNREACHABLE, WITHDRAWN, Cancel, Service,  # noqa: E402
                        load, transaction)
from live import check, check_that, main, start, tap, test  # noqa: E402

LONG = 3600 * 1000  # ms


def build():
    return os.path.join(os.path.dirname(os.path.abspath(tap.program)), "../..")


def service(s, where=None, **options):
    got = Service(load(build()), where or "127.0.0.1:%d" % s.port, **options)
    check(got.opened, "OK", "sluice_open")
    return got


def lockers(*args):
    return subprocess.Popen([os.path.join(build(), "tests/client/lockers"), *map(str, args)], stdout=subprocess.PIPE,
                            text=True)


# Locks.


@test
def a_lock_is_acquired_checked_extended_and_released(t):
    s, c = t.server().with_clients(1)
    a = service(s)
    g = a.acquire("k", lease_ms=LONG, note="hello", value="v")
    check(c("READ", "k")[:2], [b"v", g.fence])
    check(a.check("k", g.fence), "OK")
    left = a.left("k", g.fence)
    check_that(0.8 * LONG < left < LONG, "sluice_left() is below the lease: %d" % left)
    check(a.extend("k", g.fence, 2 * LONG), "OK")
    check_that(a.left("k", g.fence) > LONG, "the lease was extended")
    check(a.acquire("k"), "FULL")
    check(a.release("k", g.fence), "OK")
    check(a.release("k", g.fence), "LOST")
    check(a.left("k", g.fence), -25)
    check(a.check("k", g.fence), "LOST")
    check(s.holders("k"), 0)


@test
def shared_and_counting_locks_have_their_capacity(t):
    a = service(t.server())
    check([a.acquire("pool", per=2, buckets=2, units=2).held for _ in range(2)], [2, 4])
    check(a.acquire("pool", per=2, buckets=2), "FULL")
    check(a.acquire("pool", per=5, units=7), "TOOBIG")
    check([a.acquire("data", shared=1).held for _ in range(3)], [1, 2, 3])
    check(a.acquire("data"), "FULL")


@test
def invalid_arguments_are_rejected_before_anything_is_sent(t):
    a = Service(load(build()), "127.0.0.1:1")
    check(a.opened, "OK")
    for wrong in (dict(keep_alive=1), dict(lease_ms=10, keep_alive=1, max_hold_ms=5), dict(lease_ms=10, margin_ms=10),
                  dict(margin_ms=5), dict(wait_ms=-2), dict(lease_ms=-1), dict(max_hold_ms=5), dict(shared=2)):
        check(a.acquire("k", **wrong), "INVALID", wrong)
    check(a.acquire("", lease_ms=5), "INVALID")
    check(a.acquire("k" * 256), "INVALID")
    check(a.acquire("k", note="n" * 256), "TOOBIG")
    check(a.extend("k", 1, 0), "INVALID")
    for where in ("", "host:", "host:0", "host:65536", "a,,b", "unix:", ",".join(["h"] * 17)):
        got = Service(load(build()), where)
        check(got.opened, "INVALID" if where else "OK", where)
    check(Service(load(build()), "h", name="two words").opened, "INVALID")
    check(Service(load(build()), "memory:", event_loop=1).opened, "INVALID")


@test
def inspection_shows_names_and_addresses(t):
    s = t.server()
    a, b = service(s, name="backup-7"), service(s)
    g = a.acquire("k", lease_ms=LONG, note="nightly", priority=3)
    threading.Thread(target=b.acquire, args=("k",), kwargs=dict(wait_ms=LONG, note="report"), daemon=True).start()
    s.until_waiting("k", 1)
    holder, waiter = a.inspect("k")
    check((holder.fence, holder.waits, holder.client, holder.note, holder.priority),
          (g.fence, 0, b"backup-7", b"nightly", 3))
    check_that(holder.address.startswith(b"127.0.0.1:"), "the address is %r" % holder.address)
    check((waiter.waits, waiter.note, waiter.fence), (1, b"report", 0))
    check_that(waiter.client.startswith(b"python"), "the name of the program: %r" % waiter.client)
    check(len(a.inspect("free")), 0)
    done = []
    check(a.start("k", done, wait_ms=FOREVER), "OK")
    s.until_waiting("k", 2)
    check([v.left_ms for v in a.inspect("k")][2], FOREVER)


@test
def a_hundred_waits_share_one_connection(t):
    s, c = t.server().with_clients(1)
    a, done = service(s), []
    for i in range(100):
        check(c("ACQUIRE", "k%d" % i)[0] > 0, True)
        check(a.start("k%d" % i, done, wait_ms=LONG, lease_ms=LONG), "OK")
    t.until(lambda: s.number("waiters", c) == 100, "100 requests wait")
    check(s.number("connected_clients", c), 2)
    for i in range(100):
        check(c("RELEASE", "k%d" % i), 1)
    t.until(lambda: len(done) == 100, "all are granted")
    check({status for status, _ in done}, {"OK"})


# Addresses and failures.


@test
def names_unix_sockets_and_the_environment_are_addresses(t):
    path = os.path.join(t.dir, "socket")
    s = t.server("--socket", path)
    check(service(s, "localhost:%d" % s.port).acquire("a", lease_ms=LONG).held, 1)
    check(service(s, "unix:" + path).acquire("c", lease_ms=LONG).held, 1)
    os.environ["SLUICE_SERVER"] = "127.0.0.1:%d" % s.port
    a = Service(load(build()), None)
    check(a.acquire("b", lease_ms=LONG).held, 1)


@test
def an_unreachable_server_is_reported_with_its_address(t):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        a = Service(load(build()), "127.0.0.1:%d" % taken.getsockname()[1], retry_ms=200)
        check(a.acquire("k"), "UNREACHABLE")
        check_that("127.0.0.1:%d: Connection refused" % taken.getsockname()[1] in a.error(), a.error())
        check(a.release("k", 5), "UNREACHABLE")
    a = Service(load(build()), "no.such.host.invalid:1", retry_ms=200)
    check(a.acquire("k"), "UNREACHABLE")
    check_that("no.such.host.invalid:1: " in a.error(), a.error())


@test
def the_password_is_sent_and_a_wrong_one_is_reported(t):
    s = t.server("--password", "secret")
    check(service(s, password="secret").acquire("k", lease_ms=LONG).held, 1)
    check(service(s, password="wrong").acquire("k"), "DENIED")
    a = service(s)
    check(a.acquire("k"), "DENIED")
    check_that("NOAUTH" in a.error(), a.error())


@test
def the_next_address_is_used(t):
    s = t.server()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        a = service(s, "127.0.0.1:%d,127.0.0.1:%d" % (taken.getsockname()[1], s.port))
        check(a.acquire("k", lease_ms=LONG).held, 1)


@test
def a_server_that_is_not_sluice_is_reported(t):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            while True:
                c, _ = listener.accept()
                c.recv(1000)
                c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        threading.Thread(target=serve, daemon=True).start()
        a = Service(load(build()), "127.0.0.1:%d" % listener.getsockname()[1], retry_ms=200)
        check(a.acquire("k"), "PROTOCOL")


@test
def leases_survive_a_restart_of_the_server(t):
    s = start(t)
    a, events = service(s, retry_ms=60000), []
    g = a.acquire("k", lease_ms=10000, keep_alive=1, events=events)
    s.kill()
    again = t.server("--data", "data", port=s.port)
    check(a.check("k", g.fence), "OK")
    check(a.extend("k", g.fence, 20000), "OK")
    check(a.release("k", g.fence), "OK")
    check(events, [])
    again.end()


@test
def a_wait_survives_a_restart_of_the_server(t):
    s = start(t)
    a, b, got = service(s), service(s, retry_ms=60000), []
    g = a.acquire("k", lease_ms=LONG)
    thread = threading.Thread(target=lambda: got.append(b.acquire("k", wait_ms=LONG, lease_ms=LONG)))
    thread.start()
    s.until_waiting("k", 1)
    s.kill()
    again = t.server("--data", "data", port=s.port)
    check(a.release("k", g.fence), "OK")
    thread.join()
    check(got[0].held, 1)
    again.end()


# Cancelling and closing.


@test
def another_thread_can_cancel_a_wait(t):
    s, c = t.server().with_clients(1)
    c("ACQUIRE", "k")
    a, token, got = service(s), Cancel(), []
    thread = threading.Thread(target=lambda: got.append(a.acquire("k", wait_ms=FOREVER, lease_ms=LONG, cancel=token_at(token))))
    thread.start()
    s.until_waiting("k", 1)
    check(a.cancel(token), "OK")
    thread.join()
    check(got, ["CANCELLED"])
    t.until(lambda: s.waiters("k", c) == 0, "the request is withdrawn at the server")
    check(a.acquire("other", lease_ms=LONG, cancel=token_at(token)), "CANCELLED", "the token stays cancelled")


def token_at(token):
    import ctypes
    return ctypes.pointer(token)


@test
def close_ends_waits_and_releases_grants_with_keep_alive(t):
    s, c = t.server().with_clients(1)
    c("ACQUIRE", "taken")
    a, got = service(s), []
    a.acquire("kept", lease_ms=LONG, keep_alive=1)
    a.acquire("session")
    plain = a.acquire("plain", lease_ms=LONG)
    thread = threading.Thread(target=lambda: got.append(a.acquire("taken", wait_ms=FOREVER, lease_ms=LONG)))
    thread.start()
    s.until_waiting("taken", 1)
    a.close()
    thread.join()
    check(got, ["CLOSED"])
    check([s.holders(k, c) for k in ("kept", "session", "plain")], [0, 0, 1])
    check(s.waiters("taken", c), 0)
    check(service(s).release("plain", plain.fence), "OK", "another program can release it")


@test
def close_does_not_wait_long_for_a_server_that_is_stopped(t):
    s = t.server()
    a = service(s)
    a.acquire("k", lease_ms=LONG, keep_alive=1)
    s.signal(signal.SIGSTOP)
    begin = time.monotonic()
    a.close()
    check_that(time.monotonic() - begin < 20, "close returns")
    s.signal(signal.SIGCONT)


@test
def a_child_process_cannot_use_the_service(t):
    s = t.server()
    a = service(s)
    g = a.acquire("k", lease_ms=LONG, keep_alive=1)
    pid = os.fork()
    if pid == 0:
        ok = a.elect("leader") == "FORKED" and a.acquire("l") == "FORKED" and a.release("k", g.fence) == "FORKED" and a.left("k", g.fence) == -17
        a.close()
        os._exit(0 if ok else 1)
    check(os.waitpid(pid, 0)[1], 0, "the status of the child")
    check(a.check("k", g.fence), "OK")


# Events.


@test
def a_holder_is_asked_and_the_thief_gets_the_lock(t):
    s, c = t.server().with_clients(1)
    a, events = service(s), []
    g = a.acquire("k", lease_ms=LONG, keep_alive=1, events=events)
    c.send("ACQUIRE", "k", "LEASE", LONG, "WAIT", LONG, "PRIORITY", 5, "STEAL")
    t.until(lambda: events, "the holder is asked")
    check(events, [(ASKED, g.fence)])
    check(a.check("k", g.fence), "ASKED")
    check_that(a.left("k", g.fence) > 0, "it still holds the lock")
    check(a.release("k", g.fence), "OK")
    check(c.reply()[0] > g.fence, True)


@test
def a_thief_can_give_up(t):
    s, c = t.server().with_clients(1)
    a, b, events, token = service(s), service(s), [], Cancel()
    g = a.acquire("k", lease_ms=LONG, keep_alive=1, events=events)
    thread = threading.Thread(target=b.acquire, args=("k",), kwargs=dict(
        wait_ms=FOREVER, lease_ms=LONG, priority=1, steal=1, cancel=token_at(token)))
    thread.start()
    t.until(lambda: events, "the holder is asked")
    b.cancel(token)
    thread.join()
    t.until(lambda: len(events) == 2, "the holder learns that the thief has given up")
    check(events, [(ASKED, g.fence), (WITHDRAWN, g.fence)])


@test
def a_lock_can_be_stolen_early(t):
    s = t.server()
    a, b, events = service(s), service(s), []
    g = a.acquire("k", lease_ms=LONG, keep_alive=1, events=events)
    stolen = b.acquire("k", wait_ms=LONG, lease_ms=LONG, priority=1, steal=1, steal_early=1.0)
    check((stolen.overlapping, stolen.fence > g.fence), (1, True))
    t.until(lambda: (STOLEN, g.fence) in events, "the victim learns it")
    check(a.left("k", g.fence), -25)


@test
def a_holder_whose_grant_is_broken_learns_it(t):
    s = t.server()
    a, b, events = service(s), service(s), []
    g = a.acquire("k", lease_ms=LONG, keep_alive=1, events=events)
    check(b.break_("k", g.fence), 1)
    t.until(lambda: events, "the holder learns it")
    check(events, [(BROKEN, g.fence)])
    check(b.break_("k", g.fence, 1), 2)
    check(b.break_("k", g.fence, 1), "LOST")


@test
def a_lease_without_keep_alive_is_reported_before_it_expires(t):
    s, c = t.server().with_clients(1)
    a, events, order = service(s), [], []

    def on_event(event):
        order.append(c("CHECK", "k", event[1]))
        events.append(event)
    g = a.acquire("k", lease_ms=3000, margin_ms=2500, events=on_event)
    t.until(lambda: events, "the loss is reported")
    check((events, order), ([(EXPIRED, g.fence)], [1]))
    check(a.left("k", g.fence), -25)


@test
def max_hold_ends_a_hold_that_is_kept_alive(t):
    a, events = service(t.server()), []
    g = a.acquire("k", lease_ms=600, keep_alive=1, max_hold_ms=2000, events=events)
    begin = time.monotonic()
    t.until(lambda: events, "the loss is reported")
    check(events, [(EXPIRED, g.fence)])
    check_that(time.monotonic() - begin > 1.2, "it was held for longer than its lease")


@test
def a_lock_without_a_lease_is_lost_with_its_connection(t):
    s, c = t.server().with_clients(1)
    a, events = service(s), []
    g = a.acquire("k", events=events)
    check(a.left("k", g.fence), FOREVER)
    check(c("CLIENT", "KILL", "ID", a_client(c)), 1)
    t.until(lambda: events, "the loss is reported")
    check(events, [(UNREACHABLE, g.fence)])
    check(a.left("k", g.fence), -25)


def a_client(c):
    """The number of another connection."""
    me = c("CLIENT", "ID")
    lines = c("CLIENT", "LIST").decode().split("\n")
    return next(n for n in (int(line.split("id=")[1].split()[0]) for line in lines if "id=" in line) if n != me)


@test
def release_waits_for_a_running_callback(t):
    s = t.server()
    a, b, running, ended = service(s), service(s), threading.Event(), []

    def on_event(event):
        running.set()
        time.sleep(0.3)
        ended.append(event)
    g = a.acquire("k", lease_ms=LONG, keep_alive=1, events=on_event)
    check(b.break_("k", g.fence, 1), 2)
    running.wait()
    check(a.release("k", g.fence), "LOST")
    check(len(ended), 1, "the callback has returned")


def blocked(a):
    """Block the thread of the callbacks. Returns an event that ends this, and the list of callbacks after it."""
    entered, go, order = threading.Event(), threading.Event(), []

    class First(list):
        def append(self, _):
            entered.set()
            go.wait()
    check(a.start("first", First(), lease_ms=LONG), "OK")
    entered.wait()
    return go, order


class Told(list):
    """A list of results or events that also notes their order."""

    def __init__(self, order, name):
        self.order, self.name = order, name

    def append(self, what):
        self.order.append(self.name)
        list.append(self, what)


@test
def a_loss_is_reported_before_results_that_wait(t):
    s, c = t.server().with_clients(1)
    a = service(s)
    go, order = blocked(a)
    g = a.acquire("k", lease_ms=LONG, keep_alive=1, events=Told(order, "lost"))
    for i in range(20):
        check(a.start("k%d" % i, Told(order, "done"), lease_ms=LONG), "OK")
    check(a.check("k", g.fence), "OK")  # So the earlier replies on the connection have arrived.
    check(c("BREAK", "k", g.fence, "NOW"), 2)
    t.until(lambda: a.left("k", g.fence) == -25, "the library notices the loss")
    go.set()
    t.until(lambda: len(order) == 21, "all callbacks have been made")
    check(order, ["lost"] + ["done"] * 20)


@test
def a_grant_is_reported_before_its_loss_and_before_other_results(t):
    s, c = t.server().with_clients(1)
    a = service(s)
    go, order = blocked(a)
    for i in range(20):
        check(a.start("k%d" % i, Told(order, "done"), lease_ms=LONG), "OK")
    check(a.start("k", Told(order, "granted"), lease_ms=LONG, events=Told(order, "lost")), "OK")
    check(a.check("k", 1), "LOST")  # So the earlier replies have arrived.
    fence = c("READ", "k")[1]
    check(c("BREAK", "k", fence, "NOW"), 2)
    t.until(lambda: a.left("k", fence) == -25, "the library notices the loss")
    go.set()
    t.until(lambda: len(order) == 22, "all callbacks have been made")
    check(order, ["granted", "lost"] + ["done"] * 20)


# Event loops.


@test
def an_event_loop_needs_no_thread(t):
    s, c = t.server().with_clients(1)
    threads = len(os.listdir("/proc/self/task"))
    a, done, events = service(s, event_loop=1), [], []
    check(a.acquire("k"), "INVALID", "a blocking call")
    check(c("ACQUIRE", "k")[0] > 0, True)
    check(a.start("k", done, wait_ms=FOREVER, lease_ms=2000, keep_alive=1, events=events), "OK")
    fd = a.lib.sluice_fd(a.s)

    def loop(condition):
        def turn():
            ms = a.lib.sluice_timeout_ms(a.s)
            select.select([fd], [], [], 0.2 if ms < 0 else min(0.2, ms / 1000))
            a.lib.sluice_step(a.s)
            return condition()
        t.until(turn, "the event loop goes on")
    loop(lambda: s.waiters("k") == 1)
    check(c("RELEASE", "k"), 1)
    loop(lambda: done)
    check(done[0][0], "OK")
    begin = time.monotonic()
    loop(lambda: time.monotonic() - begin > 3)
    check((s.holders("k", c), events), (1, []), "the lease is kept alive")
    check(c("BREAK", "k", done[0][1], "NOW"), 2)
    loop(lambda: events)
    check(events, [(BROKEN, done[0][1])])
    check(len(os.listdir("/proc/self/task")), threads)
    a.close()


@test
def a_step_of_an_event_loop_makes_few_callbacks(t):
    s, c = t.server().with_clients(1)
    a, done = service(s, event_loop=1), []
    for i in range(100):
        check(a.start("k%d" % i, done, lease_ms=LONG), "OK")
    fd, most = a.lib.sluice_fd(a.s), 0
    while len(done) < 100:
        ms = a.lib.sluice_timeout_ms(a.s)
        select.select([fd], [], [], None if ms < 0 else ms / 1000)
        before = len(done)
        check(a.lib.sluice_step(a.s), len(done) - before)
        most = max(most, len(done) - before)
    check_that(most <= 16, "a step makes few callbacks: %d" % most)
    a.close()


# Several locks, and transactions.


def asked_early(t, a, thief, **more):
    """The holder of several locks is asked to release one before it has acquired all."""
    events, got = [], []
    taken = a.acquire("b", lease_ms=LONG, **more)
    thread = threading.Thread(target=lambda: got.append(a.acquire_all(
        ["b", "a"], wait_ms=FOREVER, lease_ms=LONG, events=events, **more)))
    thread.start()
    t.until(lambda: len(a.inspect("b")) == 2, "it waits for b")
    fence = a.inspect("a")[0].fence
    threading.Thread(target=thief.acquire, args=("a",), kwargs=dict(
        wait_ms=FOREVER, lease_ms=LONG, priority=5, steal=1), daemon=True).start()
    t.until(lambda: a.check("a", fence) == "ASKED", "it is asked to release a")
    barrier = []  # The event of this grant is reported after that of a.
    g = a.acquire("barrier", lease_ms=LONG, events=barrier, **more)
    check(a.break_("barrier", g.fence, 1), 2)
    t.until(lambda: barrier, "the thread of the callbacks has reported earlier events")
    check(a.release("b", taken.fence), "OK")
    thread.join()
    t.until(lambda: events, "the event is reported")
    check(events, [(ASKED, fence)])
    check(a.release_all(got[0]), "OK")


@test
def a_holder_of_several_locks_is_asked_before_it_has_all(t):
    s = t.server()
    asked_early(t, service(s), service(s), keep_alive=1)


@test
def a_holder_of_several_locks_in_one_process_is_asked_before_it_has_all(t):
    a = Service(load(build()), "memory:")
    asked_early(t, a, a)


@test
def resign_releases_the_lock_after_the_callback(t):
    s, b, c = t.server().with_clients(2)
    a, elected, resigns, seen = service(s), threading.Event(), threading.Event(), []

    def on_elected(*_):
        elected.set()
        resigns.wait()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:  # Meanwhile sluice_resign() has begun.
            seen.append(s.holders("leader", b))
        seen.append("returned")
    election = a.elect("leader", on_elected)
    elected.wait()
    resigns.set()
    a.resign(election)
    check(seen[-1], "returned")
    check_that(set(seen[:-1]) <= {1}, "the lock is held meanwhile")
    check(s.holders("leader", c), 0)


@test
def processes_that_acquire_several_locks_never_deadlock(t):
    s = t.server()
    path = os.path.join(t.dir, "owners")
    all_ = [lockers("all", "127.0.0.1:%d" % s.port, path, t_rounds(), seed) for seed in range(1, 9)]
    for p in all_:
        out = p.communicate()[0]
        check_that("wrong=0" in out, out)
    check([s.holders(key) for key in ("red", "green", "blue", "a", "b", "c")], [0] * 6)


def t_rounds():
    return int(os.environ.get("SLUICE_ROUNDS", "60"))


@test
def transactions_are_applied_once_although_the_server_is_killed(t):
    s = start(t)
    workers = [lockers("transfer", "127.0.0.1:%d" % s.port, 60, seed) for seed in range(1, 5)]
    for _ in range(4):
        time.sleep(0.3)
        s.kill()
        s = t.server("--data", "data", port=s.port)
    for p in workers:
        out = p.communicate()[0]
        check_that("counted=60" in out, out)
    c = s.client()
    c("TX.BEGIN")
    check([int(c("TX.GET", "counts", str(seed))) for seed in range(1, 5)], [60] * 4)
    check(sum(int(c("TX.GET", "accounts", "k%d" % i) or 0) for i in range(5)), 0, "the sum of all accounts")
    s.end()


@test
def a_transaction_whose_commit_was_late_is_not_reported_as_rejected(t):
    s = start(t)
    late = LateCommit(s.port)
    a, runs = service(s, "127.0.0.1:%d" % late.port), []

    def fn(get, put):
        runs.append(get("t", "k"))
        if runs[-1] is not None:
            return -1  # It has read the writes of its own first run, and aborts.
        put("t", "k", "v")
        return 0
    check(transaction(a, fn), "OK")
    check(runs, [None, b"v"])
    s.end()


class FalseServer:
    """A false server. It answers HELLO, and other commands as answer(words) says: with bytes, or None to close the
    connection."""

    def __init__(self, answer):
        self.answer, self.seen = answer, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            c, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        with c, c.makefile("rb") as f:
            while line := f.readline():
                words = []
                for _ in range(int(line[1:])):
                    words.append(f.read(int(f.readline()[1:])).decode())
                    f.readline()
                self.seen.append(words[0])
                reply = b"%1\r\n+proto\r\n:3\r\n" if words[0] == "HELLO" else self.answer(words)
                if reply is None:
                    return
                c.sendall(reply)


def answers(**replies):
    """The replies to commands; those to others are as in an empty table."""
    replies = {"TX_GET": b"_\r\n", **replies}
    return lambda words: replies.get(words[0].replace(".", "_"), b"+OK\r\n")


def get_and_commit(get, _):
    get("t", "k")
    return 0


def outcome(t, a, fn):
    """The status of a transaction, which must end."""
    got = []
    threading.Thread(target=lambda: got.append(transaction(a, fn)), daemon=True).start()
    t.until(lambda: got, "the transaction ends")
    return got[0]


@test
def a_transaction_with_an_invalid_reply_fails_at_once(t):
    for reply in b"$99999999\r\n", b"*1048577\r\n", b"nonsense\r\n", b"-WHAT is this\r\n", b":1\r\n":
        server = FalseServer(answers(TX_GET=reply))
        a = Service(load(build()), "127.0.0.1:%d" % server.port, retry_ms=LONG)
        check(outcome(t, a, get_and_commit), "PROTOCOL", reply)
        check(server.seen.count("TX.BEGIN"), 1)


@test
def a_transaction_whose_connection_is_always_lost_fails(t):
    for lost in dict(TX_BEGIN=None), dict(TX_GET=None), dict(TX_COMMIT=None, TX_OUTCOME=b"_\r\n"), dict(
            TX_COMMIT=b"nonsense\r\n", TX_OUTCOME=b"_\r\n"), dict(TX_COMMIT=None, TX_OUTCOME=None):
        server = FalseServer(answers(**lost))
        a = Service(load(build()), "127.0.0.1:%d" % server.port, retry_ms=300)
        check(outcome(t, a, get_and_commit), "UNREACHABLE", lost)
        check_that(2 < len(server.seen) < 100, "it pauses between attempts: %d commands" % len(server.seen))


@test
def a_call_into_a_silent_server_has_time_for_the_next_address(t):
    silent = FalseServer(lambda words: b"")
    s = t.server()
    a = service(s, "127.0.0.1:%d,127.0.0.1:%d" % (silent.port, s.port))
    check(a.acquire("k", lease_ms=LONG).held, 1)


class LateCommit:
    """A proxy that closes the client's connection when the first TX.COMMIT arrives, and delivers TX.COMMIT to the server
    when the client has asked for the outcome."""

    def __init__(self, port):
        self.up_port, self.asked, self.first = port, threading.Event(), True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            down, _ = self.listener.accept()
            up = socket.create_connection(("127.0.0.1", self.up_port))
            threading.Thread(target=self.forward_up, args=(down, up), daemon=True).start()
            threading.Thread(target=self.forward_down, args=(down, up), daemon=True).start()

    def forward_up(self, down, up):
        while data := down.recv(65536):
            if b"TX.COMMIT" in data and self.first:
                self.first = False
                down.shutdown(socket.SHUT_RDWR)
                self.asked.wait()
                up.sendall(data)
                return
            up.sendall(data)

    def forward_down(self, down, up):
        while data := up.recv(65536):
            try:
                down.sendall(data)
            except OSError:
                return
            if not self.first and data == b"_\r\n":  # TX.OUTCOME: nil
                self.asked.set()


main(__doc__)
