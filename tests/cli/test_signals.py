#!/usr/bin/env python3
"""test_signals.py SLUICE [--jobs N] [PATTERN...] - what `sluice run` does with signals,
without a terminal."""
import os
import random
import signal
import subprocess
import time

import tap
from tap import Failure, alive, check, check_that, main, signal_masks, stopped, test, test_of

FORWARDED = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "TSTP", "CONT")

# The command and a child of it, in one group; both write which signals they get, and end
# when stdin of the first does.
LISTENER = """
import os, signal, sys
names = sys.argv[1:]
who = "parent"
def hear(number, frame):
    os.write(1, ("%s %s\\n" % (who, signal.Signals(number).name)).encode())
for name in names:
    signal.signal(getattr(signal, "SIG" + name), hear)
r, w = os.pipe()
if os.fork() == 0:
    who = "child"
    os.close(w)
    os.write(1, b"up\\n")
    while os.read(r, 1): pass
    os._exit(0)
os.write(1, b"up\\n")
os.read(0, 1)
os._exit(0)  # at once, while the signals are still heard
"""


def listener(t, *names, **more):
    path = t.write("listener.py", LISTENER)
    p = t.begin("run", "k", "--", "python3", path, *names, stdin=subprocess.PIPE, **more)
    t.until(lambda: p.out.count("up\n") == 2, "command and child are there")
    return p


def reaches_all(t, name):
    p = listener(t, name)
    p.kill(getattr(signal, "SIG" + name))
    t.until(lambda: p.out.count("SIG" + name) == 2, "both got it")
    check(sorted(p.out.split("\n")),
          sorted(["", "up", "up", "parent SIG" + name, "child SIG" + name]))
    check_that(p.running, "the wrapper lives")
    check(p.release(), 0)


for name in FORWARDED:
    test_of("%s_reaches_the_command_and_its_children" % name, reaches_all, name)


@test
def a_second_signal_arrives_as_the_first(t):
    p = listener(t, "TERM", "INT", "USR1")
    for n, name in enumerate(("TERM", "TERM", "INT", "USR1", "TERM")):
        p.kill(getattr(signal, "SIG" + name))
        t.until(lambda: p.out.count(" SIG") == 2 * (n + 1), "both got SIG" + name)
    check(p.release(), 0)


@test
def the_command_has_a_process_group_of_its_own_in_the_same_session(t):
    p = t.hold()
    check(os.getpgid(p.command), p.command)
    check_that(os.getpgid(p.pid) != p.command, "it is not the wrapper's")
    check(os.getsid(p.command), os.getsid(p.pid))


def ends_the_command(t, name, number):
    p = t.hold()
    p.kill(number)
    check(p.status, 128 + number)
    check_that(not alive(p.command), "the command is gone")
    check_that(not t.taken(), "the permit is back")


for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
    test_of("%s_to_the_wrapper_ends_a_command_that_does_not_mind" % name, ends_the_command,
            name, getattr(signal, "SIG" + name))


@test
def the_wrapper_does_not_end_before_the_command(t):
    p = t.begin("run", "k", "--", "sh", "-c",
                "trap 'echo got it; sleep 1; echo done; exit 5' TERM; echo up; "
                "while :; do sleep 0.02; done")
    p.until_out("up\n")
    p.kill(signal.SIGTERM)
    p.until_out("got it\n")
    check_that(p.running, "the wrapper lives")
    check_that(t.taken(), "the permit is held")
    check(p.status, 5)
    check(p.out, "up\ngot it\ndone\n", "what was written when the wrapper had ended")


@test
def a_command_that_ignores_TERM_goes_on_and_so_does_its_wrapper(t):
    p = t.begin("run", "k", "--", "sh", "-c", "trap '' TERM; echo up; read _; exit 4",
                stdin=subprocess.PIPE)
    p.until_out("up\n")
    for _ in range(3):
        p.kill(signal.SIGTERM)
    check_that(t.taken(), "the permit is held")
    check_that(p.running, "the wrapper lives")
    check(p.release(), 4)


@test
def a_command_that_handles_a_signal_keeps_its_own_status(t):
    p = t.begin("run", "k", "--", "sh", "-c",
                "trap 'exit 0' INT; echo up; while :; do sleep 0.02; done")
    p.until_out("up\n")
    p.kill(signal.SIGINT)
    check(p.status, 0)


# --- Ignored at the start -----------------------------------------------------


@test
def under_nohup_HUP_ends_neither_wrapper_nor_command(t):
    p = t.start("nohup", tap.program, "run", "k", "--", "sh", "-c", "echo up $$; read _; exit 4",
                stdin=subprocess.PIPE)
    p.until_out("\n")
    command = int(p.out.split()[1])
    check_that(signal.SIGHUP in signal_masks(command)["SigIgn"], "the command ignores it")
    os.kill(p.pid, signal.SIGHUP)
    os.kill(command, signal.SIGHUP)
    check_that(t.taken(), "the permit is held")
    check_that(p.running and alive(command), "both live")
    check(p.release(), 4)


@test
def under_nohup_HUP_does_not_end_one_that_waits(t):
    holder = t.hold()
    p = t.start("nohup", tap.program, "run", "k", "--", "echo", "ran")
    t.until_waiting(1)
    os.kill(p.pid, signal.SIGHUP)
    p.until_err("waiting for")  # a second at most
    check(holder.release(), 0)
    check(p.status, 0)
    check(p.out, "ran\n")


def ignored_stays_ignored(t, name, number):
    def ignore():
        signal.signal(number, signal.SIG_IGN)

    p = t.hold(before=ignore)
    check_that(number in signal_masks(p.command)["SigIgn"], "the command ignores it")
    p.kill(number)
    os.kill(p.command, number)
    check_that(t.taken(), "the permit is held")
    check_that(p.running and alive(p.command), "both live")
    check(p.release(), 0)


for name in ("HUP", "INT", "QUIT", "TERM", "USR1"):
    test_of("%s_ignored_at_the_start_stays_ignored_in_both" % name, ignored_stays_ignored,
            name, getattr(signal, "SIG" + name))


@test
def a_signal_ignored_at_the_start_is_not_forwarded(t):
    p = listener(t, "HUP", "USR1", before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    p.kill(signal.SIGHUP)
    p.kill(signal.SIGUSR1)
    t.until(lambda: p.out.count("SIGUSR1") == 2, "the other one arrives")
    check_that("SIGHUP" not in p.out, "this one does not")
    check(p.release(), 0)


# --- Stopped and continued ----------------------------------------------------


@test
def a_wrapper_that_is_stopped_and_continued_ends_normally(t):
    p = t.hold(then="exit 6")
    p.kill(signal.SIGSTOP)
    t.until(lambda: stopped(p.pid), "the wrapper is stopped")
    check_that(not stopped(p.command), "the command is not")
    p.kill(signal.SIGCONT)
    t.until(lambda: not stopped(p.pid), "the wrapper goes on")
    check(p.release(), 6)


@test
def a_command_that_ended_while_the_wrapper_was_stopped_is_found(t):
    p = t.hold(then="exit 6")
    p.kill(signal.SIGSTOP)
    t.until(lambda: stopped(p.pid), "the wrapper is stopped")
    p.popen.stdin.close()
    t.until(lambda: not alive(p.command), "the command has ended")
    p.kill(signal.SIGCONT)
    check(p.status, 6)


@test
def TSTP_stops_the_command_and_CONT_continues_it(t):
    p = t.hold(session=False)
    p.kill(signal.SIGTSTP)
    t.until(lambda: stopped(p.command), "the command is stopped")
    check_that(t.taken(), "the permit is held")

    def goes_on():  # the wrapper may stop after its command; a shell would have seen that
        os.killpg(p.pid, signal.SIGCONT)
        return not stopped(p.command) and not stopped(p.pid)

    t.until(goes_on, "both go on")
    check(p.release(), 0)


@test
def a_command_that_stops_itself_is_continued_by_CONT_to_the_wrapper(t):
    p = t.begin("run", "k", "--", "sh", "-c", "echo $$; kill -TSTP $$; echo on; exit 3",
                session=False)
    command = int(p.until_out("\n"))
    t.until(lambda: stopped(command), "the command is stopped")

    def goes_on():
        p.kill(signal.SIGCONT)
        return not p.running

    t.until(goes_on, "it goes on")
    check(p.status, 3)
    check(p.out, "%d\non\n" % command)


@test
def TSTP_and_CONT_do_no_harm_where_nobody_does_job_control(t):
    p = t.hold(then="exit 6")  # in a session of its own: nobody could continue it
    p.kill(signal.SIGTSTP)
    p.kill(signal.SIGCONT)
    check(p.release(), 6)


@test
def a_wrapper_that_is_stopped_while_it_waits_keeps_waiting(t):
    holder = t.hold()
    p = t.wait_for(command=("echo", "ran"))
    p.kill(signal.SIGSTOP)
    t.until(lambda: stopped(p.pid), "it is stopped")
    p.kill(signal.SIGCONT)
    t.until_waiting(1)
    check(holder.release(), 0)
    check(p.status, 0)
    check(p.out, "ran\n")


@test
def a_waiter_that_is_stopped_does_not_keep_others_out(t):
    holder = t.hold()
    p = t.wait_for(command=("echo", "ran"))
    p.kill(signal.SIGSTOP)
    t.until(lambda: stopped(p.pid), "it is stopped")
    check(holder.release(), 0)
    t.until(lambda: not t.taken(), "another one is granted")
    p.kill(signal.SIGCONT)
    check(p.status, 0)


# --- While it waits -----------------------------------------------------------


def ends_one_that_waits(t, name, number):
    t.hold()
    p = t.wait_for(command=("echo", "ran"))
    p.kill(number)
    check(p.status, -number, "it is killed by that signal")
    check(p.out, "")
    t.until_waiting(0)


for name in ("INT", "TERM", "HUP", "QUIT"):
    test_of("%s_ends_one_that_waits_at_once" % name, ends_one_that_waits,
            name, getattr(signal, "SIG" + name))


@test
def a_session_that_ends_while_waiting_leaves_the_others_waiting(t):
    holder = t.hold()
    first, second = t.wait_for(), t.wait_for()
    first.kill(signal.SIGTERM)
    check(first.status, -signal.SIGTERM)
    t.until_waiting(1)
    check(holder.release(), 0)
    check(second.status, 0)


# --- At any moment ------------------------------------------------------------


def at_any_moment(t, name, number):
    seed = int.from_bytes(os.urandom(4), "big")
    dice = random.Random(seed)
    for _ in range(25):
        p = t.begin("run", "-q", "k", "--", "sleep", "1000")
        time.sleep(dice.uniform(0, 0.012))
        p.kill(number)
        if p.status not in (-number, 128 + number):
            raise Failure("status %d (seed %d)" % (p.status, seed))
        left = [pid for pid in tap.descendants(os.getpid()) if alive(pid) and pid not in t.of_server()]
        check(left, [], "what is left when the wrapper has ended (seed %d)" % seed)
        check_that(not t.taken(), "the permit is back (seed %d)" % seed)


for name in ("TERM", "INT"):
    test_of("%s_at_any_moment_of_the_start_ends_wrapper_and_command" % name, at_any_moment,
            name, getattr(signal, "SIG" + name))


@test
def signals_in_a_hail_do_no_harm(t):
    p = listener(t, "USR1", "USR2", "WINCH", "INT", "TERM", "HUP")
    for _ in range(200):
        for name in ("USR1", "USR2", "WINCH", "INT", "TERM", "HUP"):
            p.kill(getattr(signal, "SIG" + name))
    check_that(p.running, "the wrapper lives")
    check(p.release(), 0)


main(__doc__)
