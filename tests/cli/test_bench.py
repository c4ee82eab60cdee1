#!/usr/bin/env python3
"""test_bench.py SLUICE [--jobs N] [PATTERN...] - `sluice bench`: what it counts and prints, and
that it leaves no lock behind; against the server that was built next to SLUICE."""
import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server/lib"))
import tap  # noqa: E402
from live import Server  # noqa: E402
from tap import check, check_that, main, test  # noqa: E402


def serve(t, *options, **more):
    """A server, and the environment of a command that uses it."""
    program = os.path.join(os.path.dirname(os.path.dirname(tap.program)),
                           "server/sluice-server")
    s = Server(t, options, argv=[program], **more)
    return s, {"SLUICE_SERVER": "127.0.0.1:%d" % s.port}


def bench(t, env, *options):
    return t.sluice("bench", *options, env=env)


def results(p):
    check(p.err, "")
    return json.loads(p.out)


def left(s):
    """The number of locks that are held or waited for."""
    c = s.client(3)
    return len(c("LOCKS", "COUNT", "1000")[1])


@test
def each_grant_is_released_and_the_server_agrees(t):
    s, env = serve(t)
    p = bench(t, env, "--duration", "0.3", "--clients", "4", "--json")
    r = results(p)
    check((p.status, r["errors"], r["expired"], left(s)), (0, {}, 0, 0))
    check_that(r["released"] > 0, "locks were granted")
    check(r["granted"], r["released"])
    info = s.client()("INFO", "stats").decode()
    counted = {name: int(re.search(r"^%s:(\d+)" % name, info, re.M).group(1))
               for name in ("grants", "releases", "refusals")}
    check(counted, {"grants": r["granted"], "releases": r["released"], "refusals": r["taken"]})
    check(r["acquire_us"]["count"], r["granted"])
    check(r["release_us"]["count"], r["released"])


@test
def percentiles_rise_up_to_the_maximum(t):
    s, env = serve(t)
    r = results(bench(t, env, "--duration", "0.3", "--clients", "20", "--keys", "2", "-w", "30s",
                      "--json"))
    for name in ("acquire_us", "release_us", "wait_us"):
        times = [r[name][p] for p in ("p50", "p90", "p99", "p99.9", "max")]
        check(times, sorted(times), name)
    check_that(r["acquire_us"]["p50"] > 0, "a reply takes time")
    check_that(r["wait_us"]["max"] <= r["acquire_us"]["max"] + 1000,
               "no request waited longer than its client: %r" % r)
    check((r["taken"], left(s)), (0, 0))


@test
def the_text_has_the_rate_and_the_percentiles(t):
    _, env = serve(t)
    p = bench(t, env, "--duration", "0.2", "--clients", "2")
    check((p.status, p.err), (0, ""))
    check_that(re.match(r"[1-9]\d*\.\d pairs per second, with 2 clients and 10000 keys in ", p.out),
               "the first line is the rate: %r" % p.out)
    check_that(re.search(r"^ms +p50 +p90 +p99 +p99\.9 +max$", p.out, re.M), "there are percentiles")
    check_that(re.search(r"^acquire( +\d+\.\d{3}){5}$", p.out, re.M), "acquire has five of them")
    check_that(re.search(r"^release( +\d+\.\d{3}){5}$", p.out, re.M), "release has five of them")
    check("wait" in p.out, False)


@test
def a_pipeline_keeps_several_commands_in_flight(t):
    s, env = serve(t)
    r = results(bench(t, env, "--duration", "0.3", "--clients", "2", "--pipeline", "100", "--json"))
    check((r["granted"], r["errors"], left(s)), (r["released"], {}, 0))
    check_that(r["released"] >= 100, "each slot of the pipeline works")


@test
def requests_have_the_capacity_the_lease_and_the_prefix_of_the_options(t):
    s, env = serve(t, "--lease-max", "1h")
    c = s.client()
    c("ACQUIRE", "mine:0", "PER", "3", "LEASE", "1h")
    r = results(bench(t, env, "--duration", "0.2", "--clients", "1", "--keys", "1", "-j", "3",
                      "--prefix", "mine:", "--json"))
    check((r["taken"], r["prefix"]), (0, "mine:"))
    p = bench(t, env, "--duration", "0.2", "--clients", "1", "--keys", "1", "--prefix", "mine:",
              "--json")
    r = results(p)
    check((p.status, r["granted"], r["taken"] > 0), (1, 0, True))
    p = bench(t, env, "--duration", "0.2", "--clients", "1", "--lease", "2h", "--json")
    check((p.status, list(json.loads(p.out)["errors"])), (69, ["TOOBIG"]))
    c("ACQUIRE", "share:0", "SHARED", "LEASE", "1h")
    r = results(bench(t, env, "--duration", "0.2", "--clients", "3", "--keys", "1", "-s",
                      "--prefix", "share:", "--json"))
    check((r["taken"], r["granted"] > 0), (0, True))


@test
def locks_without_a_lease_are_released_too(t):
    s, env = serve(t)
    r = results(bench(t, env, "--duration", "0.2", "--clients", "3", "--lease", "0", "--json"))
    check((r["granted"], left(s)), (r["released"], 0))


@test
def ctrl_c_ends_it_with_results_and_releases_all_locks(t):
    for number in (signal.SIGINT, signal.SIGTERM):
        s, env = serve(t)
        c = s.client()
        p = t.begin("bench", "--duration", "1h", "--clients", "30", "--keys", "3", "--lease", "1h",
                    "--wait", "1h", "--json", env=env)
        t.until(lambda: b"\ngrants_after_wait:0\r" not in c("INFO", "stats"), "clients wait")
        p.kill(number)
        r = json.loads((p.status, p.out)[1])
        check((p.status, p.err, r["granted"], r["unfinished_clients"]), (0, "", r["released"], 0))
        check(left(s), 0)


@test
def a_client_that_waits_too_long_does_not_delay_the_end(t):
    s, env = serve(t)
    s.client()("ACQUIRE", "mine:0", "LEASE", "1h")
    p = bench(t, env, "--duration", "0.1", "--clients", "2", "--keys", "1", "--wait", "1h",
              "--prefix", "mine:")
    check_that("2 of 2 clients still waited" in p.err, "it says so: %r" % p.err)
    check(p.status, 69)
    c = s.client(3)
    t.until(lambda: c("EXPLAIN", "mine:0")[b"waiters_count"] == 0, "the server withdraws the waits")


@test
def a_lost_server_ends_it_early(t):
    s, env = serve(t)
    c = s.client()
    p = t.begin("bench", "--duration", "1h", "--clients", "3", env=env)
    t.until(lambda: b"\ngrants:0\r" not in c("INFO", "stats"), "locks are granted")
    s.process.kill()
    check(p.status, 69)
    check_that("3 of 3 clients lost their connections" in p.err, "it says so: %r" % p.err)
    check_that(re.search(r"^CLOSED +3$", p.out, re.M), "they are counted: %r" % p.out)


@test
def the_command_line_is_checked(t):
    for options, said in ((("--clients", "0"), "--clients must be a number from 1 to 1000"),
                          (("--keys", "x"), "--keys must be a number from 1 to 100000000"),
                          (("--pipeline", "1001"), "--pipeline must be a number from 1 to 1000"),
                          (("--pipeline", "2", "--wait", "1s"), "--wait excludes --pipeline"),
                          (("-s", "-j", "2"), "-s excludes -j"),
                          (("--prefix", "x" * 201), "--prefix must have at most 200 bytes"),
                          (("key",), "too many arguments; usage: sluice bench [options]")):
        p = t.sluice("bench", *options)
        check((p.status, said in p.err), (64, True), repr((options, p.err)))


@test
def a_server_that_cannot_be_used_is_an_error(t):
    p = bench(t, {"SLUICE_SERVER": "unix:" + t.path("none")}, "--duration", "0.1")
    check((p.status, p.out), (69, ""))
    t.write("secret", "correct horse\n", 0o600)
    _, env = serve(t, "--password-file", t.path("secret"))
    p = bench(t, env, "--duration", "0.1")
    check((p.status, p.out), (77, ""))
    p = bench(t, env, "--duration", "0.1", "--clients", "1", "--password-file", t.path("secret"))
    check((p.status, p.err), (0, ""))


main(__doc__)
