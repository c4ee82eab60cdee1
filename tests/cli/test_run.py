#!/usr/bin/env python3
"""test_run.py SLUICE [--jobs N] [PATTERN...] - what `sluice run` promises about options,
capacities, waiting, exit statuses, messages, and what the command inherits."""
import os
import pwd
import re
import resource
import signal
import stat
import subprocess
import sys
import time

import tap
from tap import EXCLUSIVE, Skip, alive, check, check_that, local, main, signal_masks, test

NO_SEGMENT = {"SLUICE_SEGMENT": None}
# The home directory is unsuitable, so the default segment is in /dev/shm.
IN_DEV_SHM = {"SLUICE_SEGMENT": None, "XDG_STATE_HOME": "/nonexistent/state"}


def usage_error(t, *args, **more):
    """It is refused with 64 and words, and runs nothing."""
    p = t.sluice("run", *args, **more)
    check(p.status, 64, "the status of run " + " ".join(map(repr, args)))
    check_that(p.err.startswith("sluice run: "), "an error is said: %r" % p.err)
    check(p.out, "", "the output")
    return p


def cores():
    return len(os.sched_getaffinity(0))


def capacity_of(t, *options):
    """The capacity that a run with these options declares."""
    p = t.hold(*options)
    k = t.key()
    check(p.release(), 0, "the holder's status")
    return k["per"] * k["buckets"]


# --- How many at once ---------------------------------------------------------


@test
def of_three_with_j_2_two_run_and_the_third_waits(t):
    first, second = t.hold("-j", "2"), t.hold("-j", "2")
    third = t.wait_for("-j", "2", command=("echo", "ran"))
    check_that(alive(first.command) and alive(second.command), "the two run")
    check(third.out, "", "what the third has done")
    check(first.release(), 0)
    check(third.status, 0, "the third's status")
    check(third.out, "ran\n")
    check(second.release(), 0)


@test
def the_default_capacity_is_one(t):
    t.hold()
    check_that(t.taken(), "a second default is refused")


@test
def buckets_alone_are_the_capacity(t):
    for _ in range(3):
        check_that(not t.taken("--buckets", "3"), "the lock is not full")
        t.hold("--buckets", "3")
    check_that(t.taken("--buckets", "3"), "a fourth is refused")


@local
@test
def buckets_multiply_the_capacity_of_j(t):
    for _ in range(4):
        check_that(not t.taken("-j", "2", "--buckets", "2"), "the lock is not full")
        t.hold("-j", "2", "--buckets", "2")
    check_that(t.taken("-j", "2", "--buckets", "2"), "a fifth is refused")
    k = t.key()
    check((k["per"], k["buckets"], k["kind"]), (2, 2, "counting"))


@local
@test
def j_takes_a_number(t):
    check(capacity_of(t, "-j", "7"), 7)
    check(capacity_of(t, "-j7"), 7)
    check(capacity_of(t, "--per", "7"), 7)
    check(capacity_of(t, "--per=7"), 7)


@local
@test
def j_takes_a_share_of_the_cores(t):
    check(capacity_of(t, "-j", "100%"), cores())
    check(capacity_of(t, "-j", "300%"), 3 * cores())
    check_that(capacity_of(t, "-j", "50%") in (max(1, cores() // 2), (cores() + 1) // 2),
               "50% is half of the cores")


@local
@test
def the_smallest_share_of_the_cores_is_one(t):
    check(capacity_of(t, "-j", "1%"), 1)


@local
@test
def j_takes_the_cores_plus_a_number(t):
    check(capacity_of(t, "-j", "+3"), cores() + 3)


@local
@test
def j_takes_the_cores_less_a_number_and_at_least_1(t):
    check(capacity_of(t, "-j", "-1"), max(1, cores() - 1))
    check(capacity_of(t, "--per=-1"), max(1, cores() - 1))
    check(capacity_of(t, "-j", "-100000"), 1)


@test
def j_0_is_rejected(t):
    usage_error(t, "-j", "0", "k", "--", "echo", "ran")
    usage_error(t, "--per", "0", "k", "--", "echo", "ran")


@test
def j_with_anything_but_a_number_is_rejected(t):
    for word in ("", "x", "2x", "1.5", "+", "-", "%", "++1", "99999999999", "1e3", "0x2", " 2"):
        usage_error(t, "-j", word, "k", "--", "echo", "ran")


@test
def buckets_0_and_anything_but_a_number_are_rejected(t):
    for word in ("0", "", "x", "-1", "1.5", "99999999999"):
        usage_error(t, "--buckets", word, "k", "--", "echo", "ran")


@test
def a_capacity_that_cannot_be_counted_is_rejected(t):
    usage_error(t, "-j", "4294967295", "--buckets", "4294967295", "k", "--", "echo", "ran")


# --- Exclusive and shared -----------------------------------------------------


@local
@test
def exclusive_is_the_default_and_excludes_another_one(t):
    t.hold()
    for option in ("-x", "-e", "--exclusive"):
        check_that(t.taken(option), "%s is refused" % option)
    check(t.key()["kind"], "exclusive")
    check(t.held(), EXCLUSIVE)


@test
def exclusive_excludes_shared(t):
    t.hold()
    check_that(t.taken("-s"), "-s is refused")


@test
def exclusive_excludes_every_j(t):
    t.hold()
    for per in ("1", "4", "100000"):
        check_that(t.taken("-j", per), "-j %s is refused" % per)
    check_that(t.taken("--buckets", "9"), "--buckets is refused")


@test
def a_j_excludes_exclusive(t):
    t.hold("-j", "5")
    check_that(t.taken(), "the default is refused")
    check_that(t.taken("-x"), "-x is refused")


@local
@test
def shared_holders_share(t):
    for _ in range(3):
        t.hold("-s")
    check_that(not t.taken("-s"), "a fourth is granted")
    check(t.key()["kind"], "shared")
    check(t.key()["holders"], 3)


@test
def shared_keeps_exclusive_out(t):
    p = t.hold("-s")
    check_that(t.taken("-x"), "-x is refused")
    check(p.release(), 0)
    check_that(not t.taken("-x"), "-x is granted after that")


@test
def exclusive_keeps_shared_out(t):
    p = t.hold("-x")
    check_that(t.taken("-s"), "-s is refused")
    check(p.release(), 0)
    check_that(not t.taken("-s"), "-s is granted after that")


@test
def an_exclusive_one_waits_for_all_shared_ones(t):
    readers = [t.hold("-s") for _ in range(3)]
    writer = t.wait_for("-x", command=("echo", "ran"))
    for p in readers[:2]:
        check(p.release(), 0)
    check_that(writer.running and writer.out == "", "it waits for the last one")
    check(readers[2].release(), 0)
    check(writer.status, 0)


@local
@test
def shared_and_j_meet_in_the_count_alone(t):
    t.hold("-s")
    check_that(t.taken("-j", "1"), "-j 1 finds one unit held")
    t.hold("-j", "2")
    check_that(t.taken("-j", "2"), "-j 2 finds two units held")
    check_that(not t.taken("-s"), "-s is granted")


@test
def of_s_and_x_the_last_wins(t):
    t.hold("-x", "-s")
    check_that(not t.taken("--exclusive", "--shared"), "it is a shared one")
    check_that(t.taken("-s", "-x"), "it is an exclusive one")


@test
def s_and_x_together_with_a_capacity_are_rejected(t):
    for mode in ("-s", "-x"):
        for capacity in (("-j", "2"), ("--buckets", "2")):
            usage_error(t, mode, *capacity, "k", "--", "echo", "ran")
            usage_error(t, *capacity, mode, "k", "--", "echo", "ran")


@test
def other_keys_are_other_locks(t):
    t.hold(key="a")
    check_that(not t.taken(key="b"), "b is free")
    check_that(t.taken(key="a"), "a is not")


# --- Waiting, and not ---------------------------------------------------------


@test
def n_exits_with_1_and_runs_nothing(t):
    t.hold()
    p = t.sluice("run", "-n", "k", "--", "echo", "ran")
    check(p.status, 1)
    check(p.out, "")
    check(p.err, 'sluice run: "k" is taken\n')


@test
def n_with_E_75_gives_75(t):
    t.hold()
    check(t.sluice("run", "-n", "-E", "75", "k", "--", "true").status, 75)
    check(t.sluice("run", "-E", "75", "-n", "k", "--", "true").status, 75)
    check(t.sluice("run", "-nE75", "k", "--", "true").status, 75)
    check(t.sluice("run", "-n", "-E", "0", "k", "--", "true").status, 0)
    check(t.sluice("run", "-n", "-E", "255", "k", "--", "true").status, 255)


@test
def E_is_not_the_status_of_what_was_granted(t):
    check(t.sluice("run", "-n", "-E", "75", "k", "--", "sh", "-c", "exit 3").status, 3)


@test
def E_beyond_a_status_is_refused(t):
    for word in ("256", "-1", "x", "", "1.5", "4294967296"):
        usage_error(t, "-E", word, "k", "--", "echo", "ran")


@test
def w_exits_with_1_after_its_timeout(t):
    t.hold()
    start = time.monotonic()
    p = t.sluice("run", "-w", "0.3", "k", "--", "echo", "ran")
    took = time.monotonic() - start
    check(p.status, 1)
    check(p.out, "")
    check_that(took >= 0.29, "it waited for 0.3 s, and not %.3f s" % took)
    check(p.err, 'sluice run: timed out after 0.3 s: "k" is still taken\n')


@test
def w_in_milliseconds_is_waited_for(t):
    t.hold()
    start = time.monotonic()
    check(t.sluice("run", "-w", "500ms", "-E", "9", "k", "--", "true").status, 9)
    took = time.monotonic() - start
    check_that(0.49 <= took < 20, "it waited for 500 ms, and not %.3f s" % took)


@test
def w_that_is_long_enough_is_granted(t):
    holder = t.hold()
    p = t.wait_for("-w", "50", command=("echo", "ran"))
    check(holder.release(), 0)
    check(p.status, 0)
    check(p.out, "ran\n")


@test
def w_0_is_n(t):
    t.hold()
    for word in ("0", "0s", "0.0", "0ms"):
        p = t.sluice("run", "-w", word, "k", "--", "true")
        check(p.status, 1)
        check(p.err, 'sluice run: "k" is taken\n')


@test
def n_wins_over_w(t):
    t.hold()
    for options in (("-n", "-w", "1h"), ("-w", "1h", "-n")):
        p = t.sluice("run", *options, "k", "--", "true")
        check(p.status, 1)
        check(p.err, 'sluice run: "k" is taken\n')


@test
def every_form_of_a_duration_is_understood(t):
    for word in ("5", "0.5", ".5", "500ms", "30s", "1.5m", "2m", "1h"):
        p = t.sluice("run", "-w", word, "--grace", word, "k", "--", "echo", "ran")
        check(p.status, 0, "the status with " + word)
        check(p.out, "ran\n")


@test
def two_minutes_are_longer_than_a_second(t):
    holder = t.hold()
    waiters = [t.wait_for("-w", word) for word in ("2m", "1h", "999h")]
    t.wait_for().until_err("waiting for")  # that takes a second
    check_that(all(p.running for p in waiters), "they wait")
    check(holder.release(), 0)
    for p in waiters:
        check(p.status, 0)


@test
def an_invalid_duration_is_rejected(t):
    for word in ("", "x", "-1", "5x", "s", "ms", "nan", "inf", "5mm", "0x10", "1..5", "1 s",
                 "--", "1m30", "5S", "1e3", "-5s", "0.5ms", "99999999999999999999h"):
        usage_error(t, "-w", word, "k", "--", "echo", "ran")
        usage_error(t, "--grace", word, "k", "--", "echo", "ran")


# --- What becomes of the command ----------------------------------------------


@test
def the_status_of_the_command_is_the_status(t):
    for n in (0, 1, 7, 64, 79, 127, 255):
        check(t.sluice("run", "k", "--", "sh", "-c", "exit %d" % n).status, n)


@test
def a_command_killed_by_a_signal_exits_with_128_plus_its_number(t):
    for n in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV, 40):
        check(t.sluice("run", "k", "--", "sh", "-c", "kill -%d $$" % n).status, 128 + n)


@local
@test
def a_command_that_is_not_there_exits_with_127(t):
    for more in ((), ("-F",), ("-o",)):
        p = t.sluice("run", *more, "k", "--", "nosuch", "argument")
        check(p.status, 127)
        check(p.err, "sluice run: cannot execute nosuch: No such file or directory\n")
        check(t.sluice("run", *more, "k", "--", "./nosuch").status, 127)
        check(t.sluice("run", *more, "k", "--", "").status, 127)
        check_that(not t.taken(), "the permit is back")


@local
@test
def a_command_that_is_not_executable_exits_with_126(t):
    t.write("text", "echo ran\n")
    for more in ((), ("-F",), ("-o",)):
        p = t.sluice("run", *more, "k", "--", "./text")
        check(p.status, 126)
        check(p.err, "sluice run: cannot execute ./text: Permission denied\n")
        check(p.out, "")
        check_that(not t.taken(), "the permit is back")


@local
@test
def a_command_that_is_a_directory_exits_with_126(t):
    os.mkdir(t.path("directory"))
    for more in ((), ("-F",)):
        p = t.sluice("run", *more, "k", "--", "./directory")
        check(p.status, 126)
        check_that(p.err.startswith("sluice run: cannot execute ./directory: "), "it is said")


@local
@test
def a_script_without_an_interpreter_line_is_run_by_sh(t):
    t.script("plain", "echo ran $1 $#\nexit 3\n")
    path = t.dir + ":" + os.environ["PATH"]
    for more in ((), ("-F",)):
        for name in ("./plain", "plain"):
            p = t.sluice("run", *more, "k", "--", name, "a", "b", env={"PATH": path})
            check((p.status, p.out), (3, "ran a 2\n"))


@test
def c_before_the_key_is_run_by_a_shell(t):
    p = t.sluice("run", "-c", 'echo "$0" $((1 + 1)); exit 5', "k")
    check(p.status, 5)
    check(p.out, "/bin/sh 2\n")
    check(t.sluice("run", "--command", "exit 6", "k").status, 6)
    check(t.sluice("run", "--command=exit 6", "-n", "k").status, 6)


@test
def c_after_the_key_is_run_by_a_shell(t):
    p = t.sluice("run", "k", "-c", "echo $((1 + 1)); exit 5")
    check(p.status, 5)
    check(p.out, "2\n")
    check(t.sluice("run", "-n", "k", "-c", "exit 6").status, 6)


@test
def c_uses_the_shell_of_SHELL(t):
    shell = t.script("shell", '#!/bin/sh\necho "shell $# $1 $2"\n')
    for args in (("-c", "some words", "k"), ("k", "-c", "some words")):
        p = t.sluice("run", *args, env={"SHELL": shell})
        check(p.out, "shell 2 -c some words\n")
    p = t.sluice("run", "k", "-c", 'echo "$0"', env={"SHELL": ""})
    check(p.out, "/bin/sh\n", "with an empty $SHELL")


@test
def c_with_extra_or_missing_arguments_is_rejected(t):
    usage_error(t, "k", "-c", "echo ran", "more")
    usage_error(t, "-c", "echo ran", "k", "echo", "more")
    usage_error(t, "k", "-c")
    usage_error(t, "-c", "echo ran")


@test
def two_dashes_end_the_options(t):
    check(t.sluice("run", "k", "--", "echo", "a", "--", "-n").out, "a -- -n\n")
    check(t.sluice("run", "--", "k", "echo", "a").out, "a\n")
    check(t.sluice("run", "--", "-k", "--", "echo", "a").out, "a\n")
    p = t.sluice("run", "k", "--", "--help")
    check(p.status, 127)


@test
def two_dashes_before_the_command_may_be_left_out(t):
    check(t.sluice("run", "k", "echo", "a").out, "a\n")
    check(t.sluice("run", "-n", "-j", "2", "k", "echo", "-n", "--shared", "-c").out,
          "--shared -c")


@test
def options_after_the_key_are_rejected_with_their_place(t):
    for word in ("-n", "--nb", "-j2", "-w", "--help"):
        p = usage_error(t, "k", word, "--", "echo", "ran")
        check_that("before KEY" in p.err, "their place is named: " + p.err)


@test
def an_unknown_option_is_rejected(t):
    for word in ("-Z", "--nosuch", "-u", "--shared=1"):
        usage_error(t, word, "k", "--", "echo", "ran")


@test
def an_option_without_its_argument_is_rejected(t):
    for word in ("-j", "-w", "-E", "-c", "--segment", "--mode", "--grace", "--buckets"):
        usage_error(t, word)


@test
def a_missing_key_or_command_is_rejected(t):
    usage_error(t)
    usage_error(t, "-n")
    usage_error(t, "k")
    usage_error(t, "k", "--")
    usage_error(t, "--", "k")


@test
def a_key_has_1_to_255_bytes(t):
    usage_error(t, "", "--", "echo", "ran")
    usage_error(t, "k" * 256, "--", "echo", "ran")
    usage_error(t, "é" * 128, "--", "echo", "ran")
    for key in ("k" * 255, "/a/path", "two words", "a\nb", b"\xff\xfe", "é" * 127):
        check(t.sluice("run", key, "--", "true").status, 0, "the status with %r" % key)


@local
@test
def every_long_name_of_flock_is_known(t):
    t.hold("--shared")
    for option in ("--nb", "--nonblock", "--nonblocking"):
        p = t.sluice("run", "--exclusive", option, "--conflict-exit-code", "9", "k", "true")
        check(p.status, 9, "the status with " + option)
    for option in ("--wait", "--timeout"):
        p = t.sluice("run", option, "0.1", "--conflict-exit-code=9", "k", "true")
        check(p.status, 9, "the status with " + option)
        check(t.sluice("run", option + "=0.1", "k", "true").status, 1)
    check(t.sluice("run", "--shared", "--close", "k", "true").status, 0)
    check(t.sluice("run", "--shared", "--no-fork", "k", "true").status, 0)
    check(t.sluice("run", "--shared", "--verbose", "k", "true").status, 0)
    check(t.sluice("run", "--shared", "--command", "exit 4", "k").status, 4)
    check(t.sluice("run", "--help").status, 0)


@test
def help_is_on_stdout(t):
    for args in (("run", "--help"), ("run", "-h"), ("--help",), ("help",), ("help", "run"),
                 ("help", "canal"), ("canal", "--help")):
        p = t.sluice(*args)
        check(p.status, 0, "the status of " + " ".join(args))
        check_that("sluice" in p.out, "help is on stdout")
        check(p.err, "", "what is on stderr")


@test
def the_version_is_reported(t):
    p = t.sluice("--version")
    check(p.status, 0)
    check_that(re.search(r"\d+\.\d+\.\d+", p.out), "a version is said")


@test
def an_unknown_command_gets_64_and_a_suggestion(t):
    for word, meant in (("rnu", "run"), ("canl", "canal")):
        p = t.sluice(word, "k", "--", "echo", "ran")
        check((p.status, p.out), (64, ""))
        check_that(re.search(r"\b%s\b" % meant, p.err), "%s is suggested" % meant)
    check(t.sluice().status, 64, "the status without a command")


# --- What is said -------------------------------------------------------------


@test
def verbose_says_how_long_it_took_and_what_is_executed(t):
    p = t.sluice("run", "--verbose", "k", "--", "sleep", "0")
    check(p.status, 0)
    check_that(re.fullmatch(r"sluice run: acquiring the lock took \d+\.\d+ seconds\n"
                            r"sluice run: executing sleep\n", p.err), "it is said: " + p.err)


@test
def nothing_is_reported_when_all_is_well(t):
    p = t.sluice("run", "k", "--", "true")
    check((p.status, p.out, p.err), (0, "", ""))


@test
def q_silences_what_was_not_granted(t):
    t.hold()
    for option in ("-q", "--quiet"):
        for wait in (("-n",), ("-w", "0.1")):
            p = t.sluice("run", option, *wait, "k", "--", "true")
            check((p.status, p.out, p.err), (1, "", ""))


@test
def q_does_not_silence_errors(t):
    check_that("cannot execute nosuch" in t.sluice("run", "-q", "k", "--", "nosuch").err,
               "it is said")
    usage_error(t, "-q", "-j", "0", "k", "--", "true")


@local
@test
def a_run_that_gets_its_lock_prints_nothing(t):
    private = t.private()
    for options, env in (((), NO_SEGMENT), ((), IN_DEV_SHM), (("--local",), NO_SEGMENT),
                         (("-q",), NO_SEGMENT), (("--segment", "name"), NO_SEGMENT),
                         (("--segment", t.path("segment")), NO_SEGMENT),
                         ((), {"SLUICE_SEGMENT": "name"})):
        p = t.run(*private, tap.program, "run", *options, "k", "--", "true", env=env)
        check((p.status, p.err), (0, ""), "run " + " ".join(options))


NOTE = (r'sluice run: waiting for "k": held by pid (\d+) \(sh\) for (\d+) s, '
        r'since (\d\d):(\d\d):(\d\d); (\d+) waiters?\n')


@local
@test
def a_run_that_waits_a_second_names_the_holder_and_since_when(t):
    before = time.time()
    holder = t.hold()
    after = time.time()
    waiter = t.wait_for()
    said = re.fullmatch(NOTE, waiter.until_err("\n"))
    check_that(said, "the note is as promised")
    pid, seconds, h, m, s, count = map(int, said.groups())
    check(pid, holder.pid, "the pid of the holder")
    check(count, 1, "how many wait")
    check_that(0 <= seconds <= time.time() - before + 1, "the seconds are right")
    clock = [time.strftime("%H:%M:%S", time.localtime(at))
             for at in range(int(before) - 1, int(after) + 2)]
    check_that("%02d:%02d:%02d" % (h, m, s) in clock, "the time is right")


@local
@test
def the_notice_counts_all_waiters_and_appears_once(t):
    t.hold()
    waiters = [t.wait_for(), t.wait_for()]

    def counted():
        said = waiters[-1].until_err("\n")
        if said.endswith("; %d waiters\n" % len(waiters)):
            return True
        # Another one was just looking around and did not count; that is no miscount.
        waiters.append(t.wait_for())
        return False

    t.until(counted, "the note counts all")
    check_that(len(waiters) < 6, "it does so nearly always")
    t.wait_for().until_err("\n")  # a second later
    for p in waiters:
        check(p.err.count("\n"), 1, "the lines of one that waits longer")


@test
def the_note_comes_after_a_second_and_not_before(t):
    holder = t.hold()
    start = time.monotonic()
    waiter = t.wait_for()
    waiter.until_err("waiting for")
    check_that(time.monotonic() - start >= 0.95, "a second has passed")
    check(holder.release(), 0)
    check(waiter.status, 0)


@test
def q_silences_the_note(t):
    holder = t.hold()
    quiet = t.wait_for("-q")
    t.wait_for().until_err("waiting for")
    check(holder.release(), 0)
    check(quiet.status, 0)
    check(quiet.err, "")


@local
@test
def of_several_holders_the_note_names_three_and_counts_the_rest(t):
    holders = [t.hold("-j", "5") for _ in range(5)]
    said = t.wait_for("-j", "5").until_err("\n")
    pids = [int(pid) for pid in re.findall(r"pid (\d+) \(sh\)", said)]
    check(len(set(pids)), 3, "how many are named")
    check_that(set(pids) <= {p.pid for p in holders}, "they are the holders")
    check_that("and 2 more" in said, "the rest is counted")


@local
@test
def the_note_names_the_command_by_its_first_15_bytes(t):
    name = "a-name-of-many-letters"
    t.script(name, "#!/bin/sh\necho up\nread _\n")
    p = t.begin("run", "k", "--", "./" + name, stdin=subprocess.PIPE)
    p.until_out("up")
    said = t.wait_for().until_err("\n")
    shown = re.search(r"\((.*?)\) for", said).group(1)
    check_that(shown in (name[:15], ("./" + name)[:15]), "its name is there: " + said)


@test
def a_key_in_a_message_has_no_control_characters(t):
    key = 'a\x1b[31m\n"b'
    p = t.hold(key=key)
    said = t.sluice("run", "-n", key, "--", "true").err
    check_that(said.count("\n") == 1 and "\x1b" not in said, "they are escaped")
    p.kill()


@test
def a_nested_run_of_one_key_says_that_it_waits_for_itself(t):
    p = t.sluice("run", "k", "--", tap.program, "run", "-w", "1.5", "-E", "9", "k", "--", "true")
    check(p.status, 9)
    check_that(re.search(r"; it is waiting for this command: deadlock;", p.err), "it is said")


@test
def a_nested_run_of_another_key_is_granted(t):
    p = t.sluice("run", "k", "--", tap.program, "run", "-n", "l", "--", "echo", "ran")
    check((p.status, p.out, p.err), (0, "ran\n", ""))


# --- What the command finds: its environment ----------------------------------


def env_of(pid):
    with open("/proc/%d/environ" % pid, "rb") as f:
        pairs = [v.partition(b"=") for v in f.read().split(b"\0") if v]
    return {name.decode(): value.decode() for name, _, value in pairs}


def lock_of(pid):
    """SLUICE_LOCK_X=value as {X: value}."""
    return {k[12:]: v for k, v in env_of(pid).items() if k.startswith("SLUICE_LOCK_")}


@local
@test
def the_environment_of_the_command_tells_of_the_lock(t):
    p = t.hold("-j", "3", key="a key")
    wanted = {"KEY": "a key", "HELD": "1", "WHERE": "local", "SEGMENT": t.segment,
              "SESSION": str(p.pid), "NTH": "1", "SLOT": "1"}
    lock = lock_of(p.command)
    check({name: lock.get(name) for name in wanted}, wanted)


@local
@test
def the_environment_of_an_exclusive_command_says_nth_1(t):
    lock = lock_of(t.hold().command)
    check((lock["KEY"], lock["HELD"], lock["NTH"]), ("k", "1", "1"))


@local
@test
def the_nth_holder_gets_its_ordinal(t):
    for nth in range(1, 4):
        check(lock_of(t.hold("-j", "3").command)["NTH"], str(nth))
    for nth in range(1, 3):
        check(lock_of(t.hold("-s", key="s").command)["NTH"], str(nth))


@local
@test
def the_session_is_the_pid_of_the_command_itself_without_a_fork(t):
    p = t.hold("-F")
    check(lock_of(p.command)["SESSION"], str(p.pid))


@test
def five_at_j_5_have_five_slots_and_the_next_has_the_free_one(t):
    holders = [t.hold("-j", "5") for _ in range(5)]
    slots = [lock_of(p.command)["SLOT"] for p in holders]
    check(sorted(slots), ["1", "2", "3", "4", "5"])
    for at in (3, 0):
        check(holders[at].release(), 0)
        check(lock_of(t.hold("-j", "5").command)["SLOT"], slots[at])


@test
def slots_of_simultaneous_runs_differ(t):
    command = ("run", "-j", "8", "k", "--", "sh", "-c", "echo $SLUICE_LOCK_SLOT; read _")
    started = [t.begin(*command, stdin=subprocess.PIPE) for _ in range(8)]
    slots = [p.until_out("\n") for p in started]
    check(sorted(slots), ["%d\n" % n for n in range(1, 9)])


@test
def slots_are_each_key_s_own(t):
    for key in ("a", "b"):
        check(lock_of(t.hold("-j", "4", key=key).command)["SLOT"], "1")


@test
def there_is_no_slot_for_a_shared_one_or_a_large_capacity(t):
    old = {"SLUICE_LOCK_SLOT": "9"}
    check_that("SLOT" not in lock_of(t.hold("-s", key="a", env=old).command), "-s has none")
    check_that("SLOT" not in lock_of(t.hold("-j", "4097", key="b", env=old).command),
               "-j 4097 has none")
    check(lock_of(t.hold("-j", "4096", key="c", env=old).command)["SLOT"], "1")


@local
@test
def a_fence_and_all_else_of_an_outer_lock_is_not_passed_on(t):
    old = {"SLUICE_LOCK_FENCE": "7", "SLUICE_LOCK_KEY": "old", "SLUICE_LOCK_NTH": "99",
           "SLUICE_LOCK_SESSION": "1", "SLUICE_LOCK_WHERE": "there", "OTHER": "stays"}
    p = t.hold(env=old)
    lock = lock_of(p.command)
    check_that("FENCE" not in lock, "there is no fence")
    check((lock["KEY"], lock["NTH"], lock["SESSION"], lock["WHERE"]),
          ("k", "1", str(p.pid), "local"))
    check(env_of(p.command)["OTHER"], "stays")


@test
def each_variable_is_there_once(t):
    p = t.hold(env={"SLUICE_LOCK_KEY": "old", "SLUICE_LOCK_HELD": "old"})
    with open("/proc/%d/environ" % p.command, "rb") as f:
        names = [v.partition(b"=")[0] for v in f.read().split(b"\0") if v]
    check(len(names), len(set(names)))


# --- What the command finds: descriptors, signals, limits ---------------------


def descriptors(pid):
    directory = "/proc/%d/fd" % pid
    return {int(n): os.readlink(os.path.join(directory, n)) for n in os.listdir(directory)}


@local
@test
def F_executes_the_command_in_place_of_the_wrapper(t):
    p = t.hold("-F")
    check(p.command, p.pid)
    check_that(t.taken(), "the key is held")
    check(p.release(), 0)
    check_that(not t.taken(), "and then it is not")


@local
@test
def with_F_the_permit_is_held_until_command_and_descendants_are_gone(t):
    p = t.begin("run", "-F", "k", "--", "sh", "-c", "sleep 1000 & echo $!; exec sleep 1000")
    child = int(p.until_out("\n"))
    p.kill()
    check(p.status, -signal.SIGKILL)
    check_that(t.taken(), "the child holds it")
    os.kill(child, signal.SIGKILL)
    t.comes_back()


@test
def F_with_o_is_refused(t):
    usage_error(t, "-F", "-o", "k", "--", "echo", "ran")
    usage_error(t, "--close", "--no-fork", "k", "--", "echo", "ran")


@local
@test
def F_gives_the_status_of_the_command_itself(t):
    check(t.sluice("run", "-F", "k", "--", "sh", "-c", "exit 7").status, 7)
    check(t.sluice("run", "-F", "k", "--", "sh", "-c", "kill -TERM $$").status,
          -signal.SIGTERM)


@test
def stdin_is_the_command_s(t):
    with open(t.write("input", "one\ntwo\n")) as f:
        p = t.sluice("run", "k", "--", "cat", stdin=f)
        check((p.status, p.out), (0, "one\ntwo\n"))


@local
@test
def other_descriptors_are_inherited(t):
    with open(t.write("input", "one\n")) as f:
        os.dup2(f.fileno(), 9)
        for more in ((), ("-F",), ("-o",)):
            os.lseek(9, 0, os.SEEK_SET)
            p = t.sluice("run", *more, "k", "--", "sh", "-c", "cat <&9", pass_fds=(9,))
            check((p.status, p.out), (0, "one\n"))


@local
@test
def the_command_has_one_descriptor_more_and_that_is_the_tether(t):
    for more in ((), ("-F",)):
        p = t.hold(*more)
        fds = descriptors(p.command)
        check(len(fds), 4, "the number of descriptors in %r" % fds)
        check(set(fds) & {0, 1, 2}, {0, 1, 2})
        tether = max(fds)
        check(fds[tether], t.segment)
        check(p.release(), 0)


@test
def with_o_the_command_has_no_descriptor_more(t):
    p = t.hold("-o")
    check(set(descriptors(p.command)), {0, 1, 2})


@test
def the_working_directory_and_the_umask_are_the_command_s(t):
    p = t.sluice("run", "k", "--", "sh", "-c", "umask; pwd", before=lambda: os.umask(0o037))
    check(p.out, "0037\n%s\n" % os.path.realpath(t.dir))


@local
@test
def nothing_is_left_in_the_segment_after_the_end(t):
    for options in (("-x",), ("-s",), ("-j", "3"), ("-o",), ("-F",)):
        check(t.sluice("run", *options, "k", "--", "true").status, 0)
        check(t.sluice("run", *options, "l", "--", "nosuch").status, 127)
    t.sluice("canal", "reap", t.segment)  # -F leaves its permit to others to take
    for k in t.show()["keys"]:
        check((k["held"], k["holders"], k["waiters"]), (0, 0, 0), "of key " + k["key"])


@test
def a_run_that_forks_leaves_nothing_to_reap(t):
    for options in (("-x",), ("-s",), ("-j", "3"), ("-o",)):
        check(t.sluice("run", *options, "k", "--", "true").status, 0)
        check(t.held(), 0)
        check(t.sluice("run", *options, "k", "--", "nosuch").status, 127)
        check(t.held(), 0)


@test
def more_capacity_than_an_exclusive_run_takes_is_rejected(t):
    t.hold("-x")
    for capacity in (("-j", "1073741824"), ("-j", "4294967295"), ("-j", "2000000", "--buckets", "2000")):
        check(t.sluice("run", "-n", *capacity, "k", "--", "true").status, 64)
    check(t.sluice("run", "-n", "-j", "1073741823", "k", "--", "true").status, 1)


@local
@test
def a_waiting_run_is_called_sluice_by_ps_and_pkill(t):
    t.hold()
    p = t.wait_for(command=("sleep", "0"))
    check(open("/proc/%d/comm" % p.pid).read(), "sluice\n")
    check([w["program"] for w in t.show("k")["pending"]], ["sleep"])


@local
@test
def a_long_wait_is_shown_from_its_beginning(t):
    t.hold()
    p = t.wait_for("-q")

    def since():
        return [w["since_ms"] for w in t.show("k")["pending"] if w["pid"] == p.pid]

    first = t.until(since, "it is shown")
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        check_that(since() in ([], first), "it has waited since then")
        time.sleep(0.05)


CLOSED = {"stdin": {0}, "stdout": {1}, "stderr": {2}, "all_three": {0, 1, 2}}


def closed_at_the_start(t, which):
    def close():
        for fd in which:
            os.close(fd)

    # The command says by a directory that it runs. Before that, the dynamic loader opens files, and
    # they get the numbers of the closed descriptors.
    p = t.begin("run", "k", "--", sys.executable, "-c",
                "import os, time; os.mkdir('runs.%d' % os.getpid()); time.sleep(1000)", before=close)
    pid = t.until(lambda: [int(n[5:]) for n in os.listdir(t.dir) if n.startswith("runs.")],
                  "the command runs")[0]
    check_that(t.held() > 0, "it holds the key")
    fds = descriptors(pid)
    check_that(not which & set(fds), "what was closed is closed")
    for fd in (0, 1, 2):
        check_that(t.segment not in fds.get(fd, ""), "%d is not the segment" % fd)
    check(t.segment in fds.values(), t.lock_server is None, "there is a tether")
    os.kill(pid, signal.SIGTERM)
    check(p.status, 143)
    check_that(not t.taken(), "the permit is back")
    check(t.sluice("run", "k", "--", "sh", "-c", "exit 7", before=close).status, 7)
    t.hold()
    check(t.sluice("run", "-w", "1.2", "k", "--", "true", before=close).status, 1)


for name, which in CLOSED.items():
    tap.test_of("a_closed_%s_at_the_start_does_no_harm" % name, closed_at_the_start, which)


def with_signals(ignored=(), blocked=()):
    def before():
        for n in range(1, 65):
            if n in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                continue
            signal.signal(n, signal.SIG_IGN if n in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return before


def dispositions(t, ignored, blocked):
    before = with_signals(ignored, blocked)
    for more in ((), ("-o",), ("-F",))[:2 if t.lock_server else 3]:
        p = t.begin("run", *more, "k", "--", "sleep", "1000", before=before,
                    restore_signals=False)
        pid = t.until(lambda: [pid for pid in [p.pid] + tap.descendants(p.pid) if b"sleep" in
                               open("/proc/%d/cmdline" % pid, "rb").read().split(b"\0")[:1]],
                      "the command runs")[0]
        masks = signal_masks(pid)
        # 32 and 33 are the C library's: nobody can change them, so they are as we were started.
        check(masks["SigIgn"] - {32, 33}, set(ignored), "what is ignored")
        check(masks["SigBlk"], set(blocked), "what is blocked")
        check(masks["SigCgt"], set(), "what is caught")
        os.kill(pid, signal.SIGKILL)
        check(p.status, -9 if more and more[0] == "-F" else 137)


@test
def default_signals_are_default_in_the_command(t):
    dispositions(t, (), ())


@test
def ignored_signals_are_ignored_in_the_command(t):
    dispositions(t, (signal.SIGPIPE,), ())
    dispositions(t, (signal.SIGINT, signal.SIGQUIT), ())
    dispositions(t, (signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN,
                     signal.SIGTTOU, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2,
                     signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM, signal.SIGXFSZ, 40), ())


@test
def blocked_signals_are_blocked_in_the_command(t):
    dispositions(t, (), (signal.SIGUSR1, signal.SIGTERM, signal.SIGPIPE, 40))
    dispositions(t, (), (signal.SIGCHLD, signal.SIGCONT, signal.SIGINT, signal.SIGTTOU))


@test
def with_SIGCHLD_ignored_at_the_start_the_status_is_still_the_command_s(t):
    for more in ((), ("-o",)):
        p = t.sluice("run", *more, "k", "--", "sh", "-c", "exit 7",
                     before=with_signals((signal.SIGCHLD,)))
        check(p.status, 7)


@test
def with_SIGCHLD_blocked_at_the_start_the_end_of_the_command_is_seen(t):
    p = t.sluice("run", "k", "--", "sh", "-c", "exit 7",
                 before=with_signals((), (signal.SIGCHLD,)))
    check(p.status, 7)


@local
@test
def few_descriptors_are_enough_or_the_lack_is_reported(t):
    for limit in range(3, 16):
        p = t.sluice("run", "k", "--", "echo", "ran",
                     before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        if p.out == "ran\n":
            check(p.status, 0)
        elif limit > 3:  # with three the program cannot even load its libraries
            check((p.status, p.out), (71, ""), "with %d descriptors" % limit)
            check_that(p.err.startswith("sluice run: "), "it is said")
        check_that(limit < 10 or p.out == "ran\n", "ten are enough")
    check_that(not t.taken(), "nothing is left of them")


@test
def the_limit_of_descriptors_is_the_command_s(t):
    p = t.sluice("run", "k", "--", "sh", "-c", "ulimit -n; ulimit -Hn",
                 before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99)))
    check(p.out, "77\n99\n")


@test
def an_argument_of_100_kB_arrives(t):
    long = "x" * 100000
    check(t.sluice("run", "k", "--", "sh", "-c", "echo ${#1}", "sh", long).out, "100000\n")
    check(t.sluice("run", "k", "-c", "echo %s | wc -c" % long).out, "100001\n")


@test
def many_arguments_arrive(t):
    many = ["x"] * 20000
    check(t.sluice("run", "k", "--", "sh", "-c", "echo $#", "sh", *many).out, "20000\n")


@local
@test
def a_failed_fork_exits_with_71_and_releases_the_permit(t):
    nobody = t.as_nobody()
    sluice = t.copy_of_program()
    os.chmod(t.memory, 0o777)
    few = (*nobody, "prlimit", "--nproc=0:0")
    if t.run(*few, "true").status != 0 or t.run(*few, "sh", "-c", "(exit 0); exit").status == 0:
        raise Skip("the number of processes cannot be limited here")
    p = t.run(*few, sluice, "run", "k", "--", "echo", "ran")
    check((p.status, p.out), (71, ""))
    check_that("cannot fork" in p.err, "it is said")
    check(t.run(*nobody, sluice, "run", "-n", "k", "--", "true").status, 0)


# --- Which segment ------------------------------------------------------------


@test
def with_local_SLUICE_SERVER_does_not_matter(t):
    p = t.sluice("run", "--local", "k", "--", "echo", "ran", env={"SLUICE_SERVER": "lock.example:7419"})
    check((p.status, p.out, p.err), (0, "ran\n", ""))


@local
@test
def the_segment_is_that_of_SLUICE_SEGMENT(t):
    other = os.path.join(t.memory, "other")
    check(t.sluice("run", "k", "--", "true", env={"SLUICE_SEGMENT": other}).status, 0)
    check_that(os.path.exists(other), "it is made there")
    check_that(not os.path.exists(t.segment), "and not elsewhere")


@local
@test
def segment_wins_over_SLUICE_SEGMENT(t):
    other = os.path.join(t.memory, "other")
    p = t.hold("--segment", other)
    check(lock_of(p.command)["SEGMENT"], other)
    check_that(not os.path.exists(t.segment), "there is no other one")
    check_that(not t.taken(), "another segment's key is another lock")
    check_that(t.taken("--segment", other), "the same is the same")


@local
@test
def a_name_without_a_slash_is_in_dev_shm(t):
    if not os.path.isdir("/dev/shm"):
        raise Skip("there is no /dev/shm")
    name = t.name()
    p = t.hold("--segment", name)
    check(lock_of(p.command)["SEGMENT"], "/dev/shm/sluice." + name)
    check_that(os.path.exists("/dev/shm/sluice." + name), "it is there")
    check_that(t.taken("--segment", "/dev/shm/sluice." + name), "the path names the same")


WHERE = "echo $SLUICE_LOCK_SEGMENT"


def where(t, **env):
    """The default segment of a run."""
    p = t.sluice("run", "k", "-c", WHERE, env=dict(NO_SEGMENT, **env))
    check((p.status, p.err), (0, ""))
    return p.out.rstrip("\n")


@local
@test
def the_default_segment_is_in_the_home_directory(t):
    path = t.path(".local/state/sluice/segment")
    check(where(t), path)
    check(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
    check(os.stat(path).st_mode & 0o777, 0o600)
    p = t.start(tap.program, "run", "--mode", "0666", "k", "--", "cat", env=NO_SEGMENT, stdin=-1)
    t.until(lambda: t.run(tap.program, "run", "-n", "k", "--", "true", env=NO_SEGMENT).status == 1,
            "the lock is held")
    check(os.stat(path).st_mode & 0o777, 0o600)
    p.release()


@local
@test
def XDG_STATE_HOME_replaces_the_state_directory_of_the_home_directory(t):
    check(where(t, XDG_STATE_HOME=t.path("state")), t.path("state/sluice/segment"))
    check(where(t, XDG_STATE_HOME=t.path("slash") + "//"), t.path("slash/sluice/segment"))
    check(os.stat(t.path("state")).st_mode & 0o777, 0o700)
    check(where(t, XDG_STATE_HOME="relative"), t.path(".local/state/sluice/segment"))
    check(where(t, XDG_STATE_HOME=""), t.path(".local/state/sluice/segment"))


def in_a_world(t, script):
    """Run a script as root with a /dev/shm of its own and an empty home directory in tmpfs, both
    as HOME and in the password database. $1 is sluice. `run` prints its segment."""
    nobody, sluice = t.as_nobody(), t.copy_of_program()
    home = pwd.getpwuid(0).pw_dir
    return t.run(*t.private(), "sh", "-c",
                 'chmod 1777 /dev/shm; h=$2; mount -t tmpfs none "$h" || exit 99\n'
                 "nobody() { %s \"$@\"; }\nrun() { $1 run k -c 'echo $SLUICE_LOCK_SEGMENT'; }\n"
                 % " ".join(nobody) + 'where() { sluice=$1; shift; env "$@" $sluice run k -c '
                 "'echo $SLUICE_LOCK_SEGMENT'; }\n" + script,
                 "sh", sluice, home, env=dict(NO_SEGMENT, HOME=home))


@local
@test
def without_a_HOME_of_the_user_the_password_database_names_the_home_directory(t):
    p = in_a_world(t, """
        mkdir $h/other; chown 65534 $h/other
        for home in HOME=$h HOME= HOME=relative HOME=/nonexistent HOME=$h/other -uHOME; do
            where $1 $home
        done | sort | uniq -c | sed 's/^ *//'
        ls $h/other /dev/shm""")
    home = pwd.getpwuid(0).pw_dir
    check(p.out, "6 %s/.local/state/sluice/segment\n/dev/shm:\n\n%s/other:\n" % (home, home))


@local
@test
def an_unsuitable_home_directory_leads_to_dev_shm(t):
    for spoil in ("mount -t ramfs none $h",  # not known to be local
                  "mount -o remount,ro $h",
                  "mkdir -p $h/.local/state/sluice; chown 65534 $h/.local/state/sluice",
                  "mkdir -p $h/.local/state $h/x; ln -s $h/x $h/.local/state/sluice",
                  "touch $h/.local",
                  "mkdir -p $h/.local; mount -t ramfs none $h/.local",
                  "mkdir -p $h/.local/state/sluice; mount -t ramfs none $h/.local/state/sluice"):
        p = in_a_world(t, spoil + "\nrun $1\nfind $h -name segment\nls /dev/shm")
        check((p.out, p.err), ("/dev/shm/sluice.0\nsluice.0\n", ""), spoil)


@local
@test
def an_error_that_may_pass_does_not_lead_to_dev_shm(t):
    for spoil, status in (("mount -t tmpfs -o size=64k none $h", 71),
                          ("mount -t tmpfs -o nr_inodes=2 none $h", 71),
                          ("run $1 >/dev/null; mount -o remount,ro $h", 77)):
        p = in_a_world(t, spoil + "\nrun $1; echo $?; ls /dev/shm")
        check(p.out, "%d\n" % status, spoil)
        check_that(p.err.startswith("sluice run: "), "the error is reported: " + p.err)


@local
@test
def a_file_that_is_not_a_segment_is_left_alone(t):
    p = in_a_world(t, """
        mkdir -p $h/.local/state/sluice
        echo something >$h/.local/state/sluice/segment
        run $1; echo $?; cat $h/.local/state/sluice/segment; ls /dev/shm""")
    check(p.out, "65\nsomething\n")


@local
@test
def a_directory_that_others_can_write_to_is_closed_to_them(t):
    p = in_a_world(t, """
        mkdir -p $h/.local/state/sluice; chmod 0777 $h/.local/state/sluice
        run $1; stat -c %a $h/.local/state/sluice""")
    check(p.out, "%s/.local/state/sluice/segment\n700\n" % pwd.getpwuid(0).pw_dir)


@local
@test
def a_hard_link_is_not_used_as_the_default_segment(t):
    p = in_a_world(t, """
        $1 canal make $h/team >/dev/null; mkdir -p $h/.local/state/sluice
        ln $h/team $h/.local/state/sluice/segment
        run $1; echo $?""")
    check(p.out, "77\n")


BOOT_AT = 16  # the offset of the boot id in the header


def spoil_file(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


@local
@test
def after_a_reboot_the_default_segment_is_empty(t):
    path = where(t)
    holder = t.start(tap.program, "run", "k", "--", "cat", env=NO_SEGMENT, stdin=-1)
    taken = lambda: t.sluice("run", "-n", "k", "--", "true", env=NO_SEGMENT).status == 1
    t.until(taken, "the lock is held")
    image = open(path, "rb").read()
    holder.release()
    for spoil in (lambda: spoil_file(path, 0, image[:BOOT_AT] + b"an earlier boot." +
                                     image[BOOT_AT + 16:]),
                  lambda: spoil_file(path, 0, bytes(len(image)))):  # after a power failure
        spoil()
        started = [t.start(tap.program, "run", "-j", "1", "k", "--", "sh", "-c",
                           "mkdir busy && rmdir busy && echo ran", env=NO_SEGMENT)
                   for _ in range(8)]
        for p in started:
            check((p.status, p.out, p.err), (0, "ran\n", ""))
        check(t.json("canal", "show", "--json", env=NO_SEGMENT)["keys"], [])


@local
@test
def a_file_of_zeros_elsewhere_is_not_a_segment(t):
    with open(t.path("image"), "wb") as f:
        f.write(bytes(8192))
    check(t.sluice("run", "--segment", t.path("image"), "k", "--", "true").status, 65)


@local
@test
def locks_are_per_user_unless_the_users_share_a_segment(t):
    p = in_a_world(t, """
        chmod 1777 $h; mkdir $h/nobody; chown 65534 $h/nobody; mkfifo $h/end; touch $h/out
        nobody env HOME=$h/nobody $1 run job -- \
            sh -c "echo ready; cat" <$h/end >$h/out &
        exec 9>$h/end
        until grep -q ready $h/out; do sleep 0.01; done
        $1 run -n job -- echo not excluded
        exec 9>&-
        wait
        $1 canal make --mode 0666 /dev/shm/sluice.team >/dev/null
        nobody env HOME=$h/nobody $1 run --segment team --mode 0666 job -- \
            sh -c "echo shared; cat" <$h/end >$h/out &
        exec 9>$h/end
        until grep -q shared $h/out; do sleep 0.01; done
        $1 run --segment team --mode 0666 -n job -- echo two at once
        echo $?
        exec 9>&-
        wait""")
    check(p.out, "not excluded\n1\n")


@local
@test
def the_default_segment_in_dev_shm_has_the_user_s_number(t):
    p = t.run(*t.private(), tap.program, "run", "k", "--", "sh", "-c",
              WHERE + "; ls /dev/shm", env=IN_DEV_SHM)
    uid = t.private_uid()
    check(p.out, "/dev/shm/sluice.%d\nsluice.%d\n" % (uid, uid))


# A script that has a /dev/shm of its own, in which everybody may create files, and two users:
# $1 is root's sluice, $2 that of the user nobody, behind setpriv's words.
def with_two_users(t, script):
    nobody, sluice = t.as_nobody(), t.copy_of_program()
    return t.run(*t.private(), "sh", "-c",
                 'chmod 1777 /dev/shm; u=/dev/shm/sluice.0; '
                 'nobody() { %s "$@"; }\n%s' % (" ".join(nobody), script),
                 "sh", sluice, env=IN_DEV_SHM)


@local
@test
def a_name_taken_by_another_user_does_not_block_ones_own_segment(t):
    for thing in ("touch $u", "$1 canal make --mode 0666 $u", "mkdir $u", "ln -s /etc/passwd $u"):
        p = with_two_users(t, """
            nobody %s >/dev/null || exit 99
            $1 run k -- sh -c 'echo $SLUICE_LOCK_SEGMENT
                "$0" run -n k -- echo two at once
                env -i XDG_STATE_HOME=/nonexistent/state "$0" run -q -n k -- echo two at once
                "$0" canal show | tail -n 1 | cut -c 1-34' "$1"
            $1 run -n k -- echo again
            ls /dev/shm | wc -l""" % thing)
        check_that(re.fullmatch(r"/dev/shm/sluice-0\.[0-9a-f]{16}\nk                        exclusive\nagain\n2\n", p.out),
                   "another one is used, and by all: " + p.out + p.err)


@test
def a_name_that_is_given_up_again_does_not_split_the_users_of_the_segment(t):
    p = with_two_users(t, """
        nobody touch $u
        $1 run k -- sh -c 'rm $0; $1 run -n k -- echo two at once' $u $1
        test -e $u || echo not made""")
    check(p.out, "not made\n")
    check_that(p.err.count("is taken") == 1, "it is taken")


@local
@test
def a_file_of_another_user_is_no_second_name(t):
    p = with_two_users(t, """
        nobody touch $u
        for n in 0 8 f; do nobody touch /dev/shm/sluice-0.000000000000000$n; done
        nobody $1 canal make --mode 0666 /dev/shm/sluice-0.0000000000000001 >/dev/null
        touch /dev/shm/sluice-0.notdigits
        $1 run k -- sh -c 'stat -c %u:%a $SLUICE_LOCK_SEGMENT'""")
    check(p.out, "0:600\n")


@local
@test
def of_many_first_users_at_a_time_one_makes_the_segment(t):
    p = with_two_users(t, """
        for round in 1 2 3; do
            rm -rf /dev/shm/*
            [ $round = 3 ] || nobody touch $u
            for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
                $1 run -j 1 -w 100 k -c 'echo $SLUICE_LOCK_SEGMENT' &
            done >/dev/shm/out
            wait
            sort -u /dev/shm/out | wc -l
            wc -l </dev/shm/out
            rm /dev/shm/out
            ls /dev/shm | grep -c sluice
        done""")
    check(p.out, "1\n12\n2\n" * 2 + "1\n12\n1\n")


@local
@test
def the_segment_of_an_earlier_version_is_used_on(t):
    p = with_two_users(t, """
        $1 canal make --keys 77 $u >/dev/null
        $1 run k -c 'echo $SLUICE_LOCK_SEGMENT'; ls /dev/shm""")
    check(p.out, "/dev/shm/sluice.0\nsluice.0\n")


@local
@test
def the_message_about_another_users_segment_says_whom_one_would_trust(t):
    nobody = t.as_nobody()
    sluice = t.copy_of_program()
    os.chmod(t.memory, 0o755)
    check(t.sluice("run", "--mode", "0666", "k", "--", "true").status, 0)
    p = t.run(*nobody, sluice, "run", "k", "--", "true")
    check(p.status, 77)
    check_that("belongs to another user" in p.err and "trust" in p.err, "it says so: " + p.err)
    check_that("--mode" not in p.err and "06" not in p.err, "and suggests nothing: " + p.err)


@local
@test
def a_file_that_is_not_a_segment_exits_with_65_and_is_left_unchanged(t):
    text = "not a segment\n" * 1000
    path = t.write("foreign", text)
    p = t.sluice("run", "--segment", path, "k", "--", "echo", "ran")
    check((p.status, p.out), (65, ""))
    check_that(p.err.startswith("sluice run: ") and path in p.err, "it is said")
    check(t.read("foreign"), text)


@local
@test
def a_truncated_segment_exits_with_65(t):
    check(t.sluice("run", "k", "--", "true").status, 0)
    os.truncate(t.segment, os.path.getsize(t.segment) // 2)
    p = t.sluice("run", "k", "--", "echo", "ran")
    check((p.status, p.out), (65, ""))


@local
@test
def a_directory_without_permission_exits_with_77(t):
    nobody = t.as_nobody()
    sluice = t.copy_of_program()
    p = t.run(*nobody, sluice, "run", "k", "--", "echo", "ran")  # t.memory is root's alone
    check((p.status, p.out), (77, ""))
    check_that(p.err.startswith("sluice run: "), "it is said")
    os.chmod(t.memory, 0o755)  # now it can be entered, and not written to
    p = t.run(*nobody, sluice, "run", "k", "--", "echo", "ran")
    check((p.status, p.out), (77, ""))


@local
@test
def a_segment_of_another_user_is_used_only_with_a_mode_that_shares(t):
    nobody = t.as_nobody()
    sluice = t.copy_of_program()
    os.chmod(t.memory, 0o755)
    check(t.sluice("run", "--mode", "0666", "k", "--", "true").status, 0)
    check(t.run(*nobody, sluice, "run", "k", "--", "true").status, 77)
    p = t.run(*nobody, sluice, "run", "--mode", "0666", "k", "--", "echo", "ran")
    check((p.status, p.out), (0, "ran\n"))


@local
@test
def mode_is_that_of_a_segment_which_is_created(t):
    for word, mode in ((None, 0o600), ("0640", 0o640), ("666", 0o666)):
        path = os.path.join(t.memory, "of-mode-%s" % word)
        options = ("--mode", word) if word else ()
        p = t.sluice("run", *options, "--segment", path, "k", "--", "true",
                     before=lambda: os.umask(0o077))
        check(p.status, 0)
        check(stat.S_IMODE(os.stat(path).st_mode), mode)


@test
def an_invalid_mode_is_rejected(t):
    for word in ("", "9", "x", "u+r", "0o600", "-1", "17777777"):
        usage_error(t, "--mode", word, "k", "--", "echo", "ran")


@local
@test
def a_full_table_of_slots_exits_with_69(t):
    check(t.sluice("canal", "make", "--slots", "2", t.segment).status, 0)
    holders = [t.hold("-j", "5") for _ in range(2)]
    p = t.sluice("run", "-j", "5", "k", "--", "echo", "ran")
    check((p.status, p.out), (69, ""))
    check_that(p.err.startswith("sluice run: "), "it is said")
    check(holders[0].release(), 0)
    check(t.sluice("run", "-j", "5", "k", "--", "true").status, 0)


@local
@test
def a_full_table_of_keys_exits_with_69(t):
    check(t.sluice("canal", "make", "--keys", "1", t.segment).status, 0)
    t.hold()
    p = t.sluice("run", "another", "--", "echo", "ran")
    check((p.status, p.out), (69, ""))
    check_that(p.err.startswith("sluice run: "), "it is said")


@local
@test
def a_segment_in_a_missing_directory_is_an_error(t):
    path = t.path("missing/locks")
    p = t.sluice("run", "--segment", path, "k", "--", "true")
    check((p.status, p.err), (66, "sluice run: %s: the directory does not exist; create it first\n" % path))


@test
def an_empty_segment_name_is_rejected(t):
    usage_error(t, "--segment", "", "k", "--", "echo", "ran")


main(__doc__)
