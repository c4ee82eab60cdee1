#!/usr/bin/python3
"""contention - counts how often transactions run per commit when they contend for few keys.

    tests/tx/contention.py SERVER [--rounds N] [--jobs N] [PATTERN...]

Two loads, each with all clients at once: 100 clients that read one key and then write it, and 32
clients that do so with two keys, half of them in the opposite order. A client runs a
transaction again after RESTART. The test checks the number of runs (TX.BEGIN) per commit against
RUNS_MAX and prints it; time does not matter. Every increment must be there at the end. Prints TAP.
"""
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../server/lib"))
from live import Error, Failure, check, check_that, main, test, threads  # noqa: E402

RUNS_MAX = 2.5  # per commit
ROUNDS = int(os.environ.get("SLUICE_CONTENTION_ROUNDS", "4"))  # transactions of each client


def increment(client, keys):
    """One transaction, from its first TX.BEGIN to its commit; how often it ran."""
    runs = 0
    while True:
        runs += 1
        client("TX.BEGIN")
        commands = [(name, key) for key in keys for name in ("TX.GET", "TX.PUT")] + [("TX.COMMIT", None)]
        for name, key in commands:
            words = [name] if key is None else [name, "t", key]
            got = client(*words, int(got or 0) + 1) if name == "TX.PUT" else client(*words)
            if isinstance(got, Error):
                break
        else:
            return runs
        if got.word != "RESTART":
            raise Failure("%r: %r" % (words, got))


def load(connect, clients, rounds, keys_of):
    """Runs per commit."""
    runs = []
    together = threading.Barrier(clients)

    def work(number):
        try:
            c = connect(number)
            together.wait()
            for i in range(rounds):
                runs.append(increment(c, keys_of(number + i)))
            c.close()
        except BaseException:
            together.abort()  # so that no other waits for this one
            raise

    with threads(work, range(clients)):
        pass
    check(len(runs), clients * rounds, "commits")
    return sum(runs) / len(runs)


def measure(t, clients, rounds, keys):
    s = t.server("--data", t.path("data"))
    got = load(lambda i: s.client(), clients, rounds, lambda i: keys if i % 2 else keys[::-1])
    c = s.client(3)
    c("TX.BEGIN")
    check(c("TX.SCAN", "t"), {k.encode(): b"%d" % (clients * rounds) for k in keys})
    c("TX.COMMIT")
    check(s.number("transaction_locks"), 0)
    check(s.number("transactions"), 0)
    print("# %d clients, %d keys: %.2f runs per commit" % (clients, len(keys), got), flush=True)
    check_that(got < RUNS_MAX, "%.2f runs per commit are fewer than %.1f" % (got, RUNS_MAX))


@test
def a_hundred_transactions_that_read_and_then_write_one_key(t):
    measure(t, 100, 1, ["x"])


@test
def a_hundred_clients_that_read_and_then_write_one_key_again_and_again(t):
    measure(t, 100, ROUNDS, ["x"])


@test
def thirty_two_clients_on_two_keys_in_opposite_orders(t):
    measure(t, 32, ROUNDS, ["x", "y"])


if __name__ == "__main__":
    main(__doc__)
