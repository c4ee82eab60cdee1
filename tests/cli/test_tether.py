#!/usr/bin/env python3
"""test_tether.py SLUICE [--jobs N] [PATTERN...] - who holds the permit of a `sluice run`
when its wrapper, its command or what is left of the command's tree is killed, and when
the segment itself is taken away."""
import os
import re
import signal
import time

from tap import alive, check, check_that, main, stopped, test, test_of

KILL = signal.SIGKILL


def tree(t, *options, script, key="k"):
    """Start a run whose command prints pids; returns it and them."""
    p = t.begin("run", *options, key, "--", "sh", "-c", script)
    words = p.until_out("\n").split()
    return p, [int(w) for w in words]


def ran(t, p):
    """A waiter is granted within the promised second, and its command runs."""
    t.soon(lambda: p.out != "", "the waiter's command runs")
    check(p.status, 0, "the waiter's status")


COMMAND = "echo $$; exec sleep 1000"
WITH_CHILD = "sleep 1000 & echo $$ $!; wait"
# A daemon: another session, not a child of anybody here, no terminal, other files.
DAEMON = ("(setsid sh -c 'echo $$ >daemon.new; mv daemon.new daemon; exec sleep 1000' "
          "</dev/null >/dev/null 2>&1 &) ; until [ -s daemon ]; do sleep 0.01; done; "
          "echo $$ $(cat daemon); ")


# --- The wrapper is killed ----------------------------------------------------


@test
def wrapper_killed_the_command_holds_until_it_is_gone(t):
    p, (command,) = tree(t, script=COMMAND)
    p.kill()
    check(p.status, -KILL)
    check_that(t.taken(), "it is held while the command lives")
    check_that(alive(command), "the command lives")
    os.kill(command, KILL)
    t.comes_back()


@test
def wrapper_killed_a_waiter_gets_the_permit_when_the_command_is_gone(t):
    p, (command,) = tree(t, script=COMMAND)
    waiter = t.wait_for(command=("echo", "ran"))
    p.kill()
    check(p.status, -KILL)
    waiter.until_err("\n")  # a second passes
    check(waiter.out, "", "what the waiter did while the command lives")
    os.kill(command, KILL)
    ran(t, waiter)


@test
def wrapper_killed_the_note_names_what_is_left(t):
    p, (command,) = tree(t, script=COMMAND)
    p.kill()
    check(p.status, -KILL)
    said = t.wait_for().until_err("\n")
    check_that("started by pid %d (sh), for " % p.pid in said, "the wrapper is named")
    check_that("held by pid %d (sleep), " % command in said, "and the command as it is now")


@test
def wrapper_killed_the_last_descendant_holds(t):
    p, (command, child) = tree(t, script=WITH_CHILD)
    p.kill()
    check(p.status, -KILL)
    os.kill(command, KILL)
    t.until(lambda: not alive(command), "the command is gone")
    check_that(t.taken(), "it is held while the child lives")
    os.kill(child, KILL)
    t.comes_back()


@test
def wrapper_killed_and_a_clean_end_of_the_command_releases_the_permit(t):
    p = t.hold()
    p.kill()
    check(p.status, -KILL)
    check_that(t.taken(), "it is held while the command lives")
    p.popen.stdin.close()
    t.until(lambda: not alive(p.command), "the command is gone")
    t.comes_back()


@test
def wrapper_killed_the_count_of_a_lock_is_kept(t):
    p, (command,) = tree(t, "-j", "2", script=COMMAND)
    p.kill()
    check(p.status, -KILL)
    t.hold("-j", "2")
    check_that(t.taken("-j", "2"), "the lock is full")
    os.kill(command, KILL)
    t.comes_back("-j", "2")
    check(t.held(), 1)


@test
def wrapper_killed_a_shared_command_keeps_exclusive_ones_out(t):
    p, (command,) = tree(t, "-s", script=COMMAND)
    p.kill()
    check(p.status, -KILL)
    check_that(t.taken("-x"), "-x is refused")
    check_that(not t.taken("-s"), "-s is granted")
    os.kill(command, KILL)
    t.comes_back("-x")


@test
def wrapper_killed_its_slot_number_is_not_given_again_while_the_command_lives(t):
    slot = ("sh", "-c", "echo $SLUICE_LOCK_SLOT; exec sleep 1000")
    first = t.begin("run", "-j", "3", "k", "--", *slot)
    check(first.until_out("\n"), "1\n")
    first.kill()
    check(first.status, -KILL)
    second = t.begin("run", "-j", "3", "k", "--", *slot)
    check(second.until_out("\n"), "2\n")


@test
def wrapper_killed_while_it_waits_is_counted_no_more(t):
    t.hold()
    waiter = t.wait_for()
    waiter.kill()
    check(waiter.status, -KILL)
    t.until_waiting(0)


# --- The command is killed ----------------------------------------------------


@test
def command_killed_the_wrapper_exits_and_the_permit_is_back(t):
    for number in (signal.SIGKILL, signal.SIGTERM):
        p, (command,) = tree(t, script=COMMAND)
        os.kill(command, number)
        check(p.status, 128 + number)
        check_that(not t.taken(), "it is back when the wrapper has ended")


@test
def command_killed_a_waiter_gets_the_permit(t):
    p, (command,) = tree(t, script=COMMAND)
    waiter = t.wait_for(command=("echo", "ran"))
    os.kill(command, KILL)
    ran(t, waiter)
    check(p.status, 137)


@test
def command_killed_its_descendants_hold_until_they_are_gone(t):
    p, (command, child) = tree(t, script=WITH_CHILD)
    os.kill(command, KILL)
    check(p.status, 137, "the wrapper's status")
    check_that(alive(child), "the child lives")
    check_that(t.taken(), "it is held while the child lives")
    os.kill(child, KILL)
    t.comes_back()


@test
def command_ended_a_daemon_it_left_behind_holds_until_it_is_gone(t):
    p, (_, daemon) = tree(t, script=DAEMON + "exit 5")
    check(p.status, 5, "the wrapper's status")
    check_that(alive(daemon), "the daemon lives")
    check_that(t.taken(), "it is held while the daemon lives")
    waiter = t.wait_for(command=("echo", "ran"))
    os.kill(daemon, KILL)
    ran(t, waiter)


@test
def command_ended_and_a_daemon_holds_the_note_names_what_is_left(t):
    p, (_, daemon) = tree(t, script=DAEMON + "exit 0")
    check(p.status, 0)
    said = t.wait_for().until_err("\n")
    check_that("started by pid %d (sh), for " % p.pid in said, "the wrapper is named")
    check_that("held by pid %d (sleep), " % daemon in said, "and the daemon")


# --- Both, and neither --------------------------------------------------------


@test
def both_killed_the_permit_is_back(t):
    for first in ("wrapper", "command", "group"):
        p, (command,) = tree(t, script=COMMAND)
        if first == "wrapper":
            p.kill()
            os.kill(command, KILL)
        elif first == "command":
            p.kill(signal.SIGSTOP)
            os.kill(command, KILL)
            p.kill()
        else:
            os.killpg(os.getpgid(command), KILL)
            p.kill()
        t.comes_back()
        check_that(p.status in (-KILL, 137), "the wrapper was killed")


@test
def both_killed_a_waiter_gets_the_permit(t):
    p, (command,) = tree(t, script=COMMAND)
    waiter = t.wait_for(command=("echo", "ran"))
    p.kill()
    os.kill(command, KILL)
    ran(t, waiter)


@test
def wrapper_stopped_the_permit_is_held(t):
    p = t.hold()
    p.kill(signal.SIGSTOP)
    t.until(lambda: stopped(p.pid), "the wrapper is stopped")
    check_that(t.taken(), "it is held")
    p.popen.stdin.close()
    t.until(lambda: not alive(p.command), "the command has ended")
    check_that(t.taken(), "it is held as long as the wrapper is stopped")
    p.kill(signal.SIGCONT)
    check(p.status, 0)
    check_that(not t.taken(), "it is back")


@test
def command_stopped_the_permit_is_held(t):
    p = t.hold()
    os.kill(p.command, signal.SIGSTOP)
    t.until(lambda: stopped(p.command), "the command is stopped")
    check_that(t.taken(), "it is held")
    os.kill(p.command, signal.SIGCONT)
    p.popen.stdin.close()

    def ended():  # the wrapper may have stopped with its command; a shell would continue it
        p.kill(signal.SIGCONT)
        return not p.running

    t.until(ended, "it ends")
    check(p.status, 0)


# --- With -o ------------------------------------------------------------------


@test
def with_o_wrapper_killed_the_permit_is_back_though_the_command_lives(t):
    p, (command,) = tree(t, "-o", script=COMMAND)
    check_that(t.taken(), "it is held before")
    p.kill()
    check(p.status, -KILL)
    t.comes_back()
    check_that(alive(command), "the command lives")


@test
def with_o_wrapper_killed_a_waiter_gets_the_permit(t):
    p, (command,) = tree(t, "-o", script=COMMAND)
    waiter = t.wait_for(command=("echo", "ran"))
    p.kill()
    ran(t, waiter)
    check_that(alive(command), "the command lives")


@test
def with_o_command_ended_the_permit_is_back_whatever_descendants_do(t):
    p, (_, daemon) = tree(t, "-o", script=DAEMON + "exit 5")
    check(p.status, 5)
    check_that(not t.taken(), "it is back")
    check_that(alive(daemon), "the daemon lives")


@test
def with_o_command_killed_the_permit_is_back_whatever_descendants_do(t):
    p, (command, child) = tree(t, "-o", script=WITH_CHILD)
    os.kill(command, KILL)
    check(p.status, 137)
    check_that(not t.taken(), "it is back")
    check_that(alive(child), "the child lives")


# --- With -F ------------------------------------------------------------------


@test
def with_F_command_killed_the_permit_is_back(t):
    p, (command,) = tree(t, "-F", script=COMMAND)
    check_that(t.taken(), "it is held")
    os.kill(command, KILL)
    check(p.status, -KILL)
    t.comes_back()


@test
def with_F_command_ended_a_daemon_holds_until_it_is_gone(t):
    p, (_, daemon) = tree(t, "-F", script=DAEMON + "exit 5")
    check(p.status, 5)
    check_that(t.taken(), "it is held while the daemon lives")
    os.kill(daemon, KILL)
    t.comes_back()


@test
def with_F_a_waiter_gets_the_permit_when_the_command_ends(t):
    holder = t.hold("-F")
    waiter = t.wait_for(command=("echo", "ran"))
    check(holder.release(), 0)
    ran(t, waiter)


@test
def with_F_command_stopped_the_permit_is_held(t):
    p = t.hold("-F")
    p.kill(signal.SIGSTOP)
    t.until(lambda: stopped(p.pid), "it is stopped")
    check_that(t.taken(), "it is held")


# --- Descriptors that are closed ----------------------------------------------

CLOSE_ALL = ("import os, sys, time; pid = os.fork() if 'fork' in sys.argv else 0; "
             "pid and os._exit(0); os.closerange(0, 4096); "
             "os.close(os.open('closed.%d' % os.getpid(), os.O_CREAT)); time.sleep(1000)")


def closer(t):
    """The pid of the process that has closed all its descriptors."""
    return t.until(lambda: [int(n[7:]) for n in os.listdir(t.dir) if n.startswith("closed.")],
                   "the descriptors are closed")[0]


@test
def a_command_that_closes_all_descriptors_is_held_for_by_its_wrapper(t):
    p = t.begin("run", "k", "--", "python3", "-c", CLOSE_ALL)
    command = closer(t)
    check_that(t.taken(), "the wrapper holds it")
    os.kill(command, signal.SIGTERM)
    check(p.status, 143)
    check_that(not t.taken(), "it is back")


@test
def wrapper_killed_a_command_that_closed_all_descriptors_does_not_hold(t):
    p = t.begin("run", "k", "--", "python3", "-c", CLOSE_ALL)
    command = closer(t)
    check_that(t.taken(), "the wrapper holds it")
    p.kill()
    check(p.status, -KILL)
    t.comes_back()
    check_that(alive(command), "the command lives")


@test
def wrapper_killed_a_script_that_uses_descriptors_by_number_holds(t):
    t.script("numbers", "#!/bin/bash\nexec 9>nine 10>ten 100>hundred 200>two-hundred 255>last\n"
                        "flock -n 200\necho up\nsleep 1000\n")
    p = t.begin("run", "k", "--", "./numbers")
    p.until_out("up\n")
    p.kill()
    check(p.status, -KILL)
    time.sleep(0.3)
    check_that(t.taken(), "the script holds it")


@test
def a_daemon_that_closed_all_descriptors_does_not_hold(t):
    p = t.begin("run", "k", "--", "python3", "-c", CLOSE_ALL, "fork")
    check(p.status, 0)
    daemon = closer(t)
    t.comes_back()
    check_that(alive(daemon), "the daemon lives")


# --- The segment is taken away ------------------------------------------------


def lost(t, p):
    check(p.status, 79, "the wrapper's status")
    check_that(re.search(r'sluice run: lost the lock "k": its segment %s was removed; '
                         r'stopping the command\n' % re.escape(t.segment), p.err),
               "it is said: " + p.err)


def remove_by_canal(t):
    check(t.sluice("canal", "rm", "--force", t.segment).status, 0)


def remove_by_unlink(t):
    os.unlink(t.segment)


@test
def when_the_segment_is_truncated_the_command_is_stopped(t):
    for size in (0, 100, 4096):
        p = t.hold()
        os.truncate(t.segment, size)
        check(p.status, 79, "the wrapper's status")
        check_that(re.search(r'lost the lock "k": its segment %s was truncated; stopping the command'
                             % re.escape(t.segment), p.err), "it is said: " + p.err)
        os.unlink(t.segment)


def remove_by_another(t):
    check(t.sluice("canal", "make", t.segment + ".new").status, 0)
    os.rename(t.segment + ".new", t.segment)


def loses_its_lock(t, remove, *options):
    p, (command,) = tree(t, *options, script=COMMAND)
    remove(t)
    lost(t, p)
    check_that(not alive(command), "the command is gone")


test_of("a_segment_removed_by_canal_stops_the_command_and_gives_79", loses_its_lock, remove_by_canal)
test_of("a_segment_that_was_unlinked_stops_the_command_and_gives_79", loses_its_lock, remove_by_unlink)
test_of("a_segment_that_another_file_replaced_stops_the_command_and_gives_79", loses_its_lock,
        remove_by_another)
test_of("lock_lost_with_o_stops_the_command_too", loses_its_lock, remove_by_unlink, "-o")


@test
def lock_lost_the_command_gets_TERM_and_may_tidy_up(t):
    p = t.begin("run", "--grace", "50s", "k", "--", "sh", "-c",
                "trap 'echo tidied; exit 3' TERM; echo up; while :; do sleep 0.02; done")
    p.until_out("up\n")
    remove_by_unlink(t)
    lost(t, p)
    check(p.out, "up\ntidied\n")


@test
def lock_lost_all_of_the_command_s_group_gets_TERM_and_may_tidy_up(t):
    child = "trap 'echo tidied >child; exit' TERM; echo up; while :; do sleep 0.02; done"
    p = t.begin("run", "--grace", "50s", "k", "--", "sh", "-c",
                'sh -c "$0" & exec sleep 1000', child)
    p.until_out("up\n")
    remove_by_unlink(t)
    lost(t, p)
    check(t.read("child"), "tidied\n")


@test
def lock_lost_and_the_command_ignores_TERM_is_killed_after_the_grace(t):
    p, (command,) = tree(t, "--grace", "2500ms",
                         script="trap '' TERM; echo $$; while :; do sleep 0.02; done")
    removed = time.monotonic()
    remove_by_unlink(t)
    lost(t, p)
    check_that(time.monotonic() - removed >= 2.5, "it had its time")
    check_that(not alive(command), "the command is gone")


@test
def lock_lost_what_else_is_in_the_command_s_group_is_killed_after_the_grace(t):
    child = "trap '' TERM; echo child $$; while :; do sleep 0.02; done"
    p = t.begin("run", "--grace", "1s", "k", "--", "sh", "-c", 'sh -c "$0" & exec sleep 1000', child)
    p.until_out("\n")
    remove_by_unlink(t)
    lost(t, p)
    pid = int(p.out.split()[1])
    t.until(lambda: not alive(pid), "the child is gone")


@test
def lock_lost_a_command_that_is_stopped_may_tidy_up_too(t):
    p = t.begin("run", "--grace", "50s", "k", "--", "sh", "-c",
                "trap 'echo tidied; exit' TERM; echo up $$; while :; do sleep 0.02; done")
    p.until_out("\n")
    os.kill(int(p.out.split()[1]), signal.SIGSTOP)
    remove_by_unlink(t)
    lost(t, p)
    check_that(p.out.endswith("tidied\n"), "it could tidy up")


@test
def lock_lost_without_a_terminal_stops_the_command_too(t):
    reader, writer = os.pipe()
    os.close(reader)
    p = t.begin("run", "k", "--", "sh", "-c", "echo up $$; exec sleep 1000",
                before=lambda: (os.dup2(writer, 2), signal.signal(signal.SIGPIPE, signal.SIG_DFL)))
    p.until_out("\n")
    remove_by_unlink(t)
    check(p.status, 79)
    check_that(not alive(int(p.out.split()[1])), "the command is gone")
    os.close(writer)


@test
def lock_lost_just_before_the_command_ends_exits_with_79(t):
    p = t.sluice("run", "k", "--", "sh", "-c", 'rm "$SLUICE_LOCK_SEGMENT"; exit 0')
    check(p.status, 79)
    check_that("the command has already ended" in p.err, "it is said: " + p.err)


@test
def a_waiter_on_a_removed_segment_moves_to_the_new_one(t):
    t.hold("--grace", "1h")
    waiter = t.wait_for(command=("sh", "-c", "echo ran $SLUICE_LOCK_SEGMENT"))
    remove_by_unlink(t)
    check(waiter.status, 0)
    check(waiter.out, "ran %s\n" % t.segment)
    check_that(os.path.exists(t.segment), "there is a new one")


@test
def a_waiter_on_a_removed_segment_never_overlaps_a_new_run(t):
    # The holder takes no notice of its loss, so that the waiter has nothing to wake it.
    old = t.begin("run", "--grace", "1h", "k", "--", "sh", "-c",
                  "trap '' TERM; echo up; while :; do sleep 0.05; done")
    old.until_out("up")
    waiter = t.wait_for("-q", command=("echo", "ran"))
    waiter.kill(signal.SIGSTOP)
    t.until(lambda: stopped(waiter.pid), "the waiter is stopped")
    remove_by_unlink(t)
    newcomer = t.hold()
    waiter.kill(signal.SIGCONT)
    t.until(lambda: waiter.pid in t.waiting() or not waiter.running,
            "it waits at the new one")
    check(waiter.out, "", "what it has done")
    check(newcomer.release(), 0)
    check(waiter.status, 0)
    check(waiter.out, "ran\n")


@test
def a_grant_on_a_removed_segment_does_not_overlap_a_new_run(t):
    old, (command,) = tree(t, script=COMMAND)
    waiter = t.wait_for("-q", command=("echo", "ran"))
    waiter.kill(signal.SIGSTOP)
    t.until(lambda: stopped(waiter.pid), "the waiter is stopped")
    remove_by_unlink(t)
    newcomer = t.hold()
    # Now the permit of the old segment is released, and the waiter may take that.
    old.kill()
    os.kill(command, KILL)
    check_that(old.status in (-KILL, 137, 79), "the old one has ended")
    waiter.kill(signal.SIGCONT)
    t.until(lambda: waiter.pid in t.waiting() or not waiter.running,
            "it waits at the new one")
    check(waiter.out, "", "what it has done")
    check(newcomer.release(), 0)
    check(waiter.status, 0)
    check(waiter.out, "ran\n")


@test
def waiters_on_a_removed_segment_exclude_each_other_on_the_new_one(t):
    t.hold("--grace", "1h")
    inside = "mkdir inside || echo TWICE; sleep 0.05; rmdir inside; echo ran"
    waiters = [t.wait_for("-q", command=("sh", "-c", inside)) for _ in range(5)]
    remove_by_unlink(t)
    for p in waiters:
        check(p.status, 0)
        check(p.out, "ran\n")


@test
def a_timed_wait_ends_in_time_though_the_segment_was_removed(t):
    t.hold("--grace", "1h")
    waiter = t.wait_for("-q", "-w", "3", "-E", "9")
    waiter.kill(signal.SIGSTOP)
    remove_by_unlink(t)
    t.hold()
    waiter.kill(signal.SIGCONT)
    check(waiter.status, 9)


@test
def canal_rm_rejects_a_segment_that_another_version_may_use(t):
    p = t.hold()
    with open(t.segment, "r+b") as f:
        f.seek(8)
        f.write(b"\x63")
    refused = t.sluice("canal", "rm", t.segment)
    check(refused.status, 1)
    check_that("--force" in refused.err, "it says what would do it")
    check_that(os.path.exists(t.segment) and p.running, "nothing has changed")


@test
def canal_rm_rejects_a_segment_in_use_by_a_holder(t):
    p = t.hold()
    rm = t.sluice("canal", "rm", t.segment)
    check(rm.status, 1)
    check_that(rm.err.startswith("sluice canal"), "it is said: " + rm.err)
    check_that(os.path.exists(t.segment), "it is there")
    check(p.release(), 0)
    check(t.sluice("canal", "rm", t.segment).status, 0)
    check_that(not os.path.exists(t.segment), "now it is gone")


@test
def canal_rm_rejects_a_segment_in_use_by_a_surviving_child(t):
    p, (command,) = tree(t, script=COMMAND)
    p.kill()
    check(p.status, -KILL)
    check(t.sluice("canal", "rm", t.segment).status, 1)
    check_that(os.path.exists(t.segment), "it is there")
    os.kill(command, KILL)
    t.soon(lambda: t.sluice("canal", "rm", t.segment).status == 0, "it can be removed")


@test
def canal_rm_rejects_a_segment_in_use_by_an_executed_command(t):
    p = t.hold("-F")
    check(t.sluice("canal", "rm", t.segment).status, 1)
    check(p.release(), 0)
    t.soon(lambda: t.sluice("canal", "rm", t.segment).status == 0, "it can be removed")


# --- Many ---------------------------------------------------------------------


@test
def no_permit_stays_taken_when_many_holders_are_killed_in_any_order(t):
    pids = []
    for n in range(12):
        options = (("-s",), ("-s", "-o"), ("-s", "-F"))[n % 3]
        p, commands = tree(t, *options, script=COMMAND)
        pids += [p.pid] + commands
    check_that(t.taken("-x"), "it is held")
    for n in range(len(pids)):
        try:
            os.kill(pids[n * 7 % len(pids)], KILL)
        except ProcessLookupError:
            pass
    t.comes_back("-x")
    check(t.held(), 0)


@test
def a_chain_of_waiters_passes_the_permit_on_through_kills(t):
    log = t.path("log")
    command = ("sh", "-c", "mkdir inside || echo TWICE >>log; echo $$ >>log; "
                           "sleep 0.02; rmdir inside; kill -9 $$")
    first = t.hold()
    waiters = [t.wait_for("-q", command=command) for _ in range(6)]
    first.kill()
    os.kill(first.command, KILL)
    for p in waiters:
        check(p.status, 137)
    with open(log) as f:
        lines = f.read().split()
    check(len(set(lines)), 6)
    check_that("TWICE" not in lines, "one at a time")


main(__doc__)
