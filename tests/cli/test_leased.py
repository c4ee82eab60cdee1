#!/usr/bin/python3
"""test_leased.py SLUICE [PATTERN...] - `sluice run` with locks on a server: features that local locks do not have.

test_run.py, test_signals.py and test_terminal.py test both kinds. losses.py stops and kills its processes, and cuts
the network."""
import os
import re
import signal
import sys
import time

import tap
from tap import alive, check, check_that, main, stopped, test

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster/lib")]
from nodes import Cluster  # noqa: E402


def do(t, *words):
    p = t.sluice("do", "--json", *words)
    t.processes.pop()
    check(p.status, 0, " ".join(words) + ": " + p.err)
    return p.out.strip()


def fence_of(t, key="k"):
    return [h["fence"] for h in t.explain(key)["holders"]]


def variables(p):
    with open("/proc/%d/environ" % p.command, "rb") as f:
        pairs = (line.decode().partition("=") for line in f.read().split(b"\0"))
        return {name[12:]: value for name, _, value in pairs if name.startswith("SLUICE_LOCK_")}


def parts_of(p):
    """The renewer and the guard of a `sluice run`."""
    found = {}
    for pid in tap.descendants(p.pid):
        with open("/proc/%d/comm" % pid) as f:
            found[f.read().strip()] = pid
    return found["sluice-renewer"], found["sluice-guard"]


# Where the locks are.


@test
def a_server_that_cannot_be_reached_gives_69_and_no_local_lock_is_used(t):
    for address in ("127.0.0.1:1", "unix:" + t.path("nothing"), "127.0.0.1:1,127.0.0.1:2"):
        p = t.sluice("run", "--server", address, "k", "--", "echo", "ran")
        check((p.status, p.out), (69, ""))
        check_that("cannot connect to" in p.err, "the message says so: " + p.err)
    p = t.sluice("run", "k", "--", "echo", "ran", env={"SLUICE_SERVER": "127.0.0.1:1"})
    check((p.status, p.out), (69, ""))


@test
def a_limit_of_open_files_is_named_as_the_reason(t):
    for limit in range(4, 8):
        p = t.run("sh", "-c", 'ulimit -n %d; exec "$@"' % limit, "sh", tap.program, "run", "-n", "k", "--", "echo", "ran")
        check((p.status, p.out), (71, ""), limit)
        check_that(p.err.endswith(": Too many open files\n"), p.err)


@test
def a_lock_on_the_server_and_a_local_lock_do_not_exclude_each_other(t):
    t.hold()
    check(t.sluice("run", "--local", "-n", "k", "--", "echo", "ran").out, "ran\n")
    check(t.sluice("run", "-n", "k", "--", "echo", "ran").status, 1)


@test
def options_of_the_other_kind_of_lock_are_rejected(t):
    for options, words in ((("--segment", "x"), "--segment is for local locks only"),
                           (("-F",), "-F is for local locks only"),
                           (("--mode", "0660"), "--mode is for local locks only"),
                           (("--local", "--lease", "5s"), "--lease is for locks on a server"),
                           (("--local", "-k", "a", "-k", "b"), "several keys are for locks on a server"),
                           (("--local", "--server", "x"), "use either --server or --local"),
                           (("--lease", "2s", "--max-hold", "1s"), "--max-hold must not be shorter than --lease"),
                           (("--lease", "10ms"), "--lease"), (("-p", "high"), "priority")):
        p = t.sluice("run", *options, *(() if "-k" in options else ("k",)), "--", "echo", "ran")
        check((p.status, p.out), (64, ""), " ".join(options))
        check_that(words in p.err, "%s: %s" % (options, p.err))


@test
def a_password_comes_from_a_file_or_a_variable(t):
    server = t.start(tap.server_program, "--port", "0", "--socket", t.path("other"), "--password", "open sesame")
    server.until_err("ready: sluice")
    at = "--server", "unix:" + t.path("other")
    p = t.sluice("run", *at, "k", "--", "echo", "ran")
    check((p.status, p.out), (77, ""))
    check_that("the server requires a password" in p.err, p.err)
    path = t.write("password", "open sesame\n", 0o600)
    check(t.sluice("run", *at, "--password-file", path, "k", "--", "echo", "ran").out, "ran\n")
    p = t.sluice("run", *at, "k", "--", "sh", "-c", "echo $SLUICE_PASSWORD", env={"SLUICE_PASSWORD": "open sesame"})
    check((p.status, p.out), (0, "open sesame\n"))


# What the command and others see.


@test
def the_environment_of_the_command_has_the_fence_and_the_server(t):
    p = t.hold("-j", "3")
    found = variables(p)
    check(found, {"KEY": "k", "HELD": "1", "WHERE": "server", "SERVER": t.address, "FENCE": str(fence_of(t)[0]),
                  "SESSION": str(p.pid), "SLOT": "1"})
    p.release()


OUTER = {"SLUICE_LOCK_" + name: "7" for name in ("KEY", "FENCE", "SERVER", "HELD", "WHERE", "LEASE", "UNTIL", "PID",
                                                 "SEGMENT", "SESSION", "NTH", "SLOT", "FD")}


@test
def variables_of_an_outer_lock_are_removed(t):
    server = {"KEY", "FENCE", "SERVER", "HELD", "WHERE", "SESSION"}
    local = {"KEY", "HELD", "WHERE", "SESSION", "SEGMENT", "NTH"}
    for options, wanted in ((["-s"], server), (["-j", "3"], server | {"SLOT"}), (["--local"], local | {"SLOT", "FD"}),
                            (["--local", "-s", "-o"], local)):
        p = t.sluice("run", *options, "k", "--", "env", env=OUTER)
        check(p.status, 0, p.err)
        found = dict(line.split("=", 1) for line in p.out.splitlines() if line.startswith("SLUICE_LOCK_"))
        check({name[12:] for name in found}, wanted, options)
        check_that("7" not in found.values(), found)


@test
def a_run_without_a_free_slot_number_prints_a_message(t):
    for i in (1, 2):
        do(t, "ACQUIRE", "k#%d" % i, "LEASE", "600s")
    command = "--lease", "3s", "-j", "2", "k", "--", "sh", "-c", "echo [$SLUICE_LOCK_SLOT]"
    p = t.sluice("run", *command)
    check((p.status, p.out), (0, "[]\n"))
    check(p.err, 'sluice run: "k": other clients hold all slot numbers; SLUICE_LOCK_SLOT is not set\n')
    p = t.sluice("run", "-q", *command)
    check((p.status, p.out, p.err), (0, "[]\n", ""))


@test
def a_key_that_is_too_long_for_slot_numbers_runs_without_one(t):
    # With a lease of an hour, the test would fail by its deadline if the run waited for a slot.
    p = t.sluice("run", "--lease", "1h", "-j", "2", "k" * 255, "--", "sh", "-c", "echo [$SLUICE_LOCK_SLOT]")
    check((p.status, p.out), (0, "[]\n"))
    check_that(": the key is too long for slot numbers; SLUICE_LOCK_SLOT is not set\n" in p.err, p.err)


@test
def with_several_keys_a_key_with_a_line_feed_is_rejected(t):
    for keys in (("-k", "a\nb", "-k", "c"), ("-k", "c", "-k", "a\n")):
        p = t.sluice("run", *keys, "--", "echo", "ran")
        check((p.status, p.out), (64, ""))
        check_that("sluice run: -k: with several keys, a key must not contain a line feed" in p.err, p.err)
    check(t.sluice("run", "-k", "a\nb", "--", "sh", "-c", 'echo "$SLUICE_LOCK_KEY"').out, "a\nb\n")


@test
def a_note_or_a_value_that_is_too_long_is_named(t):
    for option in ("--note", "--value"):
        p = t.sluice("run", option, "x" * 256, "k", "--", "echo", "ran")
        check((p.status, p.out), (64, ""))
        check_that("sluice run: %s is too long: 256 bytes (maximum 255)\n" % option in p.err, p.err)
        check(t.sluice("run", option, "x" * 255, "k", "--", "echo", "ran").out, "ran\n")


@test
def the_examples_of_a_duration_are_in_its_range(t):
    p = t.sluice("run", "--lease", "10ms", "k", "--", "echo", "ran")
    check_that("--lease must be a duration from 1s to 100 years, such as 30s, 5m or 1h, or" in p.err, p.err)
    p = t.sluice("run", "-w", "x", "k", "--", "echo", "ran")
    check_that(", such as 500ms, 30s, 5m or 1h, or" in p.err, p.err)


@test
def slots_of_a_counting_lock_differ_and_are_free_again(t):
    holders = [t.hold("-j", "3") for _ in range(3)]
    check(sorted(variables(p)["SLOT"] for p in holders), ["1", "2", "3"])
    holders[1].release()
    check(variables(t.hold("-j", "3"))["SLOT"], "2")


@test
def the_server_shows_name_note_and_value(t):
    p = t.hold("--note", "nightly\x1b[2J", "--value", "10.0.0.7")
    h = t.explain()["holders"][0]
    check((h["note"], h["value"]), ("nightly\x1b[2J", "10.0.0.7"))
    check_that(re.fullmatch(r"sh\[%d\]@\S+" % p.pid, h["name"]), h["name"])
    waiter = t.wait_for()
    said = waiter.until_err("waiting for")
    waiter.until_err("in the queue\n")
    check_that("\x1b" not in said, "control characters of the note are not printed")
    check_that(re.search(r'waiting for "k": held by sh\[%d\]@\S+ \(.*, "nightly.*"\) for \d+ s, since \d\d:\d\d:\d\d; '
                         r"position 1 of 1 in the queue\n" % p.pid, waiter.err), waiter.err)
    waiter.kill(signal.SIGTERM)


@test
def a_waiter_sees_its_own_position_and_several_holders(t):
    holders = [t.hold("-j", "5") for _ in range(5)]
    first = t.wait_for("-j", "5")
    second = t.wait_for("-j", "5")
    second.until_err("position 2 of 2 in the queue")
    check_that("and 2 more" in second.err, second.err)
    check(second.err.count("held by"), 1)
    for p in (first, second):
        p.kill(signal.SIGTERM)
    for p in holders:
        p.release()


@test
def waiters_are_granted_by_priority_and_then_by_arrival(t):
    holder, log = t.hold(), t.path("log")
    for name, priority in (("first", 0), ("second", 0), ("urgent", 5)):
        t.wait_for("-p", str(priority), command=("sh", "-c", "echo %s >>%s" % (name, log)))
    holder.release()
    t.until(lambda: t.read("log").split() == ["urgent", "first", "second"], "the order is that of the queue")


@test
def a_waiter_that_is_interrupted_leaves_the_queue_at_once(t):
    holder = t.hold("--lease", "1h")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        waiter = t.wait_for("--lease", "1h")
        waiter.kill(number)
        check(waiter.status, -number)
        check(t.waiting(), [], "the queue when the waiter has ended")
    holder.release()
    check(t.try_it(), 0, "nothing is left behind")


@test
def a_waiter_that_is_stopped_does_not_keep_the_lock_and_runs_later(t):
    holder = t.hold()
    waiter = t.wait_for(command=("echo", "ran"))
    waiter.kill(signal.SIGSTOP)
    t.until(lambda: stopped(waiter.pid), "it is stopped")
    holder.release()
    t.until(lambda: not t.taken(), "another client is granted the lock")
    waiter.kill(signal.SIGCONT)
    check((waiter.status, waiter.out), (0, "ran\n"))


@test
def a_waiter_that_is_killed_leaves_nothing_behind(t):
    holder = t.hold("--lease", "1h")
    waiter = t.wait_for("--lease", "1h")
    waiter.kill()
    t.until(lambda: t.waiting() == [], "the queue is empty")
    holder.release()
    check(t.try_it(), 0)


@test
def steal_asks_the_holder_and_on_asked_runs(t):
    asked = t.path("asked")
    holder = t.hold("--lease", "3s", "--grace", "0", "--on-asked", "echo asked >>" + asked)
    thief = t.begin("run", "-p", "5", "--steal", "k", "--", "echo", "mine")
    t.until(lambda: t.read("asked") == "asked\n", "the command of --on-asked ran")
    check_that('a client with a higher priority needs "k"' in holder.until_err("needs"), holder.err)
    check((holder.status, thief.status), (79, 0))
    check_that("lost the lock" in holder.err, holder.err)


# Several keys.


@test
def several_keys_are_acquired_all_or_none(t):
    other = t.hold(key="b")
    p = t.sluice("run", "-n", "-k", "c", "-k", "a", "-k", "b", "--", "echo", "ran")
    check((p.status, p.out), (1, ""))
    check([bool(t.held(key)) for key in "abc"], [False, True, False])
    waiter = t.begin("run", "-k", "c", "-k", "a", "-k", "b", "--", "sh", "-c",
                     'echo "$SLUICE_LOCK_KEY"; echo "$SLUICE_LOCK_FENCE"; read _; exit 0', stdin=tap.subprocess.PIPE)
    t.until(lambda: t.waiting("b") == [waiter.pid], "it waits")
    other.release()
    waiter.until_out("c\na\nb\n")
    t.until(lambda: len(waiter.out.split()) == 6, "the fences are printed")
    check([int(n) for n in waiter.out.split()[3:]], [fence_of(t, key)[0] for key in "cab"])
    check([t.taken(key=key) for key in "abc"], [True] * 3)
    waiter.popen.stdin.close()
    check(waiter.status, 0)
    check([t.held(key) for key in "abc"], [0, 0, 0])


@test
def if_one_of_several_keys_is_lost_all_are_released_after_the_command(t):
    p = t.begin("run", "--grace", "0", "-k", "a", "-k", "b", "--", "sh", "-c",
                "trap '' TERM; echo up; sleep 1000 & wait; wait")
    p.until_out("up")
    do(t, "BREAK", "a", str(fence_of(t, "a")[0]), "NOW")
    check(p.status, 79)
    check([t.held(key) for key in "ab"], [0, 0])
    check_that("an operator has revoked it" in p.err, p.err)


@test
def equal_keys_and_too_many_keys_are_rejected(t):
    check(t.sluice("run", "-k", "a", "-k", "a", "--", "true").status, 64)
    check(t.sluice("run", *["-k%d" % i for i in range(257)], "--", "true").status, 64)


# Losing the lock.


@test
def after_break_the_command_is_stopped_and_on_lost_runs(t):
    for more in ((), ("-j", "2"), ("-s",)):
        p = t.hold("--lease", "1h", "--grace", "0", "--on-lost", "echo lost >>" + t.path("lost"), *more)
        command = p.command
        do(t, "BREAK", "k", str(fence_of(t)[0]), "NOW")
        check(p.status, 79)
        check_that(not alive(command), "the command has ended")
    t.until(lambda: t.read("lost") == "lost\n" * 3, "the command of --on-lost ran each time")


@test
def max_hold_ends_the_command_and_gives_79(t):
    begin = time.monotonic()
    p = t.sluice("run", "--lease", "1s", "--max-hold", "2s", "k", "--", "sleep", "1000")
    check(p.status, 79)
    check_that("--max-hold has passed" in p.err, p.err)
    check_that(time.monotonic() - begin > 1, "it was held for longer than a lease")
    t.until(lambda: t.held() == 0, "the lock is free")


@test
def a_command_that_ends_at_SIGTERM_is_not_killed(t):
    p = t.begin("run", "--lease", "4s", "k", "--", "sh", "-c",
                "trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.01; done")
    p.until_out("up")
    do(t, "BREAK", "k", str(fence_of(t)[0]), "NOW")
    check((p.status, p.out), (79, "up\nstopped\n"))


@test
def the_lease_is_extended_while_the_job_is_stopped(t):
    p = t.hold("--lease", "4s")
    fence = fence_of(t)
    p.kill(signal.SIGSTOP)
    os.kill(p.command, signal.SIGSTOP)
    t.until(lambda: stopped(p.pid) and stopped(p.command), "both are stopped")
    end = time.monotonic() + 6  # longer than the lease
    while time.monotonic() < end:
        check(fence_of(t), fence)
        time.sleep(0.1)
    os.kill(p.command, signal.SIGCONT)
    p.kill(signal.SIGCONT)
    check(p.release(), 0)


@test
def descendants_keep_the_lock_after_the_command_and_with_o_they_do_not(t):
    script = "setsid sleep 1000 & echo $!"
    p = t.sluice("run", "--lease", "4s", "k", "--", "sh", "-c", script)
    check(p.status, 0)
    end = time.monotonic() + 6  # longer than the lease
    while time.monotonic() < end:
        check(t.held() > 0, True, "the lock is held")
        time.sleep(0.1)
    tap.kill_quietly(int(p.out))
    t.until(lambda: t.held() == 0, "the lock is free")
    p = t.sluice("run", "-o", "k", "--", "sh", "-c", script)
    check((p.status, t.held()), (0, 0))
    check_that(alive(int(p.out)), "the process still runs")


@test
def descendants_of_an_ended_command_are_killed_if_the_lock_is_lost(t):
    p = t.sluice("run", "--grace", "0", "k", "--", "sh", "-c", "(trap '' TERM; setsid sleep 1000) & echo $!")
    check(p.status, 0)
    do(t, "BREAK", "k", str(fence_of(t)[0]), "NOW")
    t.until(lambda: not alive(int(p.out)), "it was killed")


@test
def a_process_of_another_user_keeps_the_lock_and_is_reported(t):
    nobody, root = t.as_nobody(), t.path("setpriv-as-root")
    tap.shutil.copy(tap.shutil.which("setpriv"), root)
    os.chmod(root, 0o4755)
    sleep = root + " --reuid=0 --clear-groups sleep"
    os.chmod(t.address[5:], 0o777)
    program = t.copy_of_program()
    p = t.start(*nobody, program, "run", "--lease", "2s", "--grace", "0", "k", "--", "sh", "-c",
                sleep + " 1000 & echo $!; read _", stdin=tap.subprocess.PIPE)
    t.until(lambda: "\n" in p.out or not p.running, "it runs")
    other = int(p.out)
    t.until(lambda: open("/proc/%d/comm" % other).read() == "sleep\n" or not alive(other), "it sleeps")
    if not alive(other):
        raise tap.Skip("set-user-id programs have no effect here")
    do(t, "BREAK", "k", str(fence_of(t)[0]), "NOW")
    p.until_err("cannot stop process %d: it runs as another user" % other)
    check(p.status, 79)
    tap.kill_quietly(other)
    p = t.start(*nobody, program, "run", "--lease", "4s", "k", "--", "sh", "-c", sleep + " 1000 & echo $!")
    check(p.status, 0)
    end = time.monotonic() + 6  # longer than the lease
    while time.monotonic() < end:
        check(t.held() > 0, True, "the lock is held")
        time.sleep(0.1)
    tap.kill_quietly(int(p.out))
    t.until(lambda: t.held() == 0, "the lock is free")


FAMILY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "family.c")


def family(t):
    """A program with descendants that are hard to find."""
    p = t.run("cc", "-o", t.path("family"), FAMILY, "-pthread")
    check(p.status, 0, p.err)
    return t.path("family")


def member(t, path="pid"):
    """The process that has written its id to this file."""
    return int(t.until(lambda: os.path.exists(t.path(path)) and t.read(path).endswith("\n") and t.read(path), "it runs"))


@test
def a_daemon_that_is_being_forked_when_the_command_ends_keeps_the_lock(t):
    program = family(t)
    for i in range(30):
        path = t.path("pid%d" % i)
        check(t.sluice("run", "k%d" % i, "--", program, "daemon", "300", path).status, 0)
        pid = member(t, "pid%d" % i)
        check_that(t.held("k%d" % i) > 0, "run %d: the lock is held" % i)
        tap.kill_quietly(pid)


@test
def a_process_whose_first_thread_has_ended_is_stopped_and_keeps_the_lock(t):
    program = family(t)
    # It ends at SIGTERM, long before it would be killed.
    p = t.begin("run", "--lease", "1h", "--grace", "600s", "k", "--", program, "thread", t.path("pid"))
    pid = member(t)
    t.until(lambda: open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] == "Z", "its first thread has ended")
    do(t, "BREAK", "k", str(fence_of(t)[0]), "NOW")
    check(p.status, 79)
    check_that(not alive(pid), "it has ended")
    os.unlink(t.path("pid"))
    check(t.sluice("run", "k", "--", "sh", "-c", '"$0" thread "$1" &', program, t.path("pid")).status, 0)
    pid = member(t)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        check(t.held() > 0, True, "the lock is held")
        time.sleep(0.1)
    tap.kill_quietly(pid)
    t.until(lambda: t.held() == 0, "the lock is free")


@test
def a_full_pipe_for_messages_does_not_delay_the_guard(t):
    reader, writer = tap.full_pipe()
    p = t.begin("run", "--lease", "1h", "--grace", "0", "k", "--", "sh", "-c", "trap '' TERM; echo up $$; sleep 1000 & wait; wait",
                stderr=writer)
    command = int(p.until_out("up ").split()[1])
    guard = parts_of(p)[1]
    p.kill()  # The wrapper is no help.
    do(t, "BREAK", "k", str(fence_of(t)[0]), "NOW")
    t.until(lambda: not alive(command), "the command was killed")
    t.until(lambda: not alive(guard), "the guard has ended")
    os.close(writer)
    os.close(reader)


@test
def a_waiter_with_a_full_pipe_for_messages_runs_the_command(t):
    holder = t.hold()
    reader, writer = tap.full_pipe()
    p = t.begin("run", "k", "--", "echo", "ran", stderr=writer)
    t.until(lambda: t.waiting() == [p.pid], "it waits")
    time.sleep(1.5)  # It tries to print the holder.
    holder.release()
    check((p.status, p.out), (0, "ran\n"))
    os.close(writer)
    os.close(reader)


@test
def without_proc_the_command_is_not_started(t):
    if t.run("unshare", "-m", "true").status != 0:
        raise tap.Skip("mount namespaces need root")
    p = t.run("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", tap.program, "run", "k", "--",
              "echo", "ran")
    check((p.status, p.out), (71, ""))
    check_that("cannot read /proc" in p.err, p.err)
    check(t.held(), 0)


@test
def the_wrapper_kills_the_command_when_the_guard_is_killed(t):
    p = t.begin("run", "--lease", "1s", "k", "--", "sh", "-c", "setsid sleep 1000 & echo $! $$; wait")
    t.until(lambda: len(p.out.split()) == 2, "it runs")
    os.kill(parts_of(p)[1], signal.SIGKILL)
    check(p.status, 79)
    check_that(not any(alive(int(pid)) for pid in p.out.split()), "command and descendant have ended")
    t.until(lambda: t.held() == 0, "the lease has expired")


@test
def if_wrapper_and_guard_are_killed_the_lease_is_not_released(t):
    p = t.begin("run", "--lease", "1h", "k", "--", "sh", "-c", "setsid sleep 1000 & echo $!; wait")
    t.until(lambda: "\n" in p.out, "it runs")
    guard = parts_of(p)[1]
    renewer = parts_of(p)[0]
    p.kill(signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    p.kill()
    t.until(lambda: not alive(renewer), "the renewer has ended")
    check_that(alive(int(p.out)), "the descendant still runs")
    check(t.held() > 0, True, "the lock is held until the lease expires")


@test
def the_processes_that_hold_the_lock_for_a_daemon_close_the_callers_pipe(t):
    p = t.sluice("run", "--lease", "1h", "k", "--", "sh", "-c",
                 "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!")
    daemon = int(p.out)
    p = t.run("sh", "-c", '"$1" run --lease 1h two -- sh -c "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo" 2>&1 | cat',
              "sh", tap.program)
    check((p.status, alive(daemon), t.held() > 0, t.held("two") > 0), (0, True, True, True))


# Clusters.


def survives(t, etcd, lose):
    with Cluster(3, tap.server_program, etcd=etcd) as cluster:
        addresses = ",".join("%s:%d" % (n.host, n.port) for n in cluster)
        p = t.hold("--server", addresses, "--lease", "3s")
        fence = variables(p)["FENCE"]
        for _ in range(2):
            lose(cluster)
            end = time.monotonic() + 4  # longer than the lease
            while time.monotonic() < end:
                check_that(alive(p.command), "the command runs: " + p.err)
                time.sleep(0.05)
            cluster.wait_granting()
            for n in cluster.running:
                p2 = t.sluice("run", "-n", "-q", "--server", "%s:%d" % (n.host, n.port), "k", "--", "true")
                check(p2.status, 1, "the lock is taken: " + p2.err)
            check(t.sluice("do", "-q", "--server", addresses, "CHECK", "k", fence).out, "1\n")
        check((p.release(), p.err), (0, ""))


def kill_and_restart(node):
    node.kill()
    node.start()


@test
def a_keeper_change_does_not_disturb_the_command(t):
    def lose(c):
        c.wait_keeper()
        kill_and_restart(next(n for n in c if n.keeper()["keeper_node"] == str(n.id)))
    survives(t, 1, lose)


@test
def the_loss_of_a_node_does_not_disturb_the_command(t):
    lost = []

    def lose(c):
        if lost:
            lost[0].start()
            c.wait_ready()
        lost.insert(0, c[3 - len(lost)])
        lost[0].kill()
    survives(t, 0, lose)


if "--server" not in sys.argv:
    build = os.environ.get("BUILD", "build")
    sys.argv[2:2] = ["--server", os.path.join(build, "plain/src/server/sluice-server")]
main(__doc__)
