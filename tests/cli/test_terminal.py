#!/usr/bin/env python3
"""test_terminal.py SLUICE [--jobs N] [PATTERN...] - `sluice run` on a terminal, under an
interactive bash with job control."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import tap
from tap import Failure, Skip, alive, check, check_that, local, main, stat_of, stopped, test

INTERRUPTED, QUITTED, STOPPED = 130, 131, 148  # what the shell says of ^C, ^\ and ^Z


class Terminal:
    """A terminal with an interactive bash in it, whose prompt shows $?."""

    def __init__(self, t, *own):
        """own: a program to run in the place of bash."""
        self.seen = b""  # all that came
        self.at = 0  # how much of that was expected already
        if t.run("bash", "-c", "true").status != 0:
            raise Skip("there is no bash")
        os.makedirs(t.path("bin"), exist_ok=True)
        os.symlink(tap.program, t.path("bin/sluice"))
        env = t.environment({"PS1": "<$?> ", "HISTFILE": "/dev/null", "INPUTRC": "/dev/null",
                             "PATH": t.path("bin") + ":" + os.environ["PATH"]})
        args = own or ("bash", "--norc", "--noprofile", "--noediting", "-i")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(t.dir)
                os.execvpe(args[0], args, env)
            finally:
                os._exit(99)
        t.transcripts.append(lambda: self.seen.decode("utf-8", "backslashreplace"))
        self.resize(24, 80)
        if not own:
            check(self.prompt(), 0, "the first prompt")

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        self.type(text + "\n")

    def expect(self, pattern, seconds=tap.DEADLINE_S / 2):
        """Wait until what came since the last time matches; returns the match."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen[self.at:].decode("utf-8", "replace"))
            if found:
                text = self.seen[self.at:].decode("utf-8", "replace")
                self.at += len(text[:found.end()].encode())
                return found
            left = end - time.monotonic()
            if left <= 0:
                raise Failure("after %d s there is still no %r" % (seconds, pattern))
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    raise Failure("the terminal is closed, and there is no %r" % pattern)

    def look(self):
        """Take what has come; true."""
        while select.select([self.fd], [], [], 0)[0]:
            self.seen += os.read(self.fd, 65536)
        return True

    def prompt(self):
        """Wait for a prompt; returns the $? in it."""
        return int(self.expect(r"<(\d+)> ").group(1))

    def does(self, text):
        """Type a line, wait for the prompt; returns what was said, without the echo."""
        at = self.at
        self.line(text)
        self.prompt()
        said = self.seen[at:self.at].decode().replace("\r\n", "\n")
        return said.partition("\n")[2]

    def foreground(self):
        """The foreground process group."""
        return os.tcgetpgrp(self.fd)

    def is_the_shell_s(self):
        return self.foreground() == self.pid

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self):
        os.close(self.fd)


def sleeper(t):
    """A command that says its pid, and sleeps."""
    t.script("sleeper", "#!/bin/sh\necho command $$ up\nexec sleep 1000\n")
    return "./sleeper"


def ticker(t):
    """A command that does not touch the terminal, and shows that it runs in a file."""
    # Not a shell: while one starts a program (vfork) it cannot be stopped.
    t.script("ticker", "#!/usr/bin/env python3\nimport os, signal, time\n"
                       "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
                       "ticks = os.open('ticks', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
                       "os.write(1, b'command %d up\\n' % os.getpid())\n"
                       "while True:\n    os.write(ticks, b'.')\n    time.sleep(0.02)\n")
    return "./ticker"


def ticks(t):
    return len(t.read("ticks"))


def started(term):
    """The pid of the command that says it is up."""
    return int(term.expect(r"command (\d+) up\r\n").group(1))


def wrapper_of(pid):
    """With a server, the guard is between the two."""
    parent = stat_of(pid)[1]
    return stat_of(parent)[1] if tap.server_program else parent


# --- Waiting ------------------------------------------------------------------


@test
def ctrl_c_ends_one_that_waits(t):
    t.hold()
    term = Terminal(t)
    term.line("sluice run k -- echo r''an")
    t.until_waiting(1)
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)
    t.until_waiting(0)
    check_that(b"ran" not in term.seen, "the command did not run")


@test
def ctrl_backslash_ends_one_that_waits(t):
    t.hold()
    term = Terminal(t)
    term.line("sluice run k -- true")
    t.until_waiting(1)
    term.type("\x1c")
    check(term.prompt(), QUITTED)


@test
def ctrl_z_stops_a_waiting_run_and_fg_continues_it(t):
    holder = t.hold()
    term = Terminal(t)
    term.line("sluice run k -- echo r''an")
    t.until_waiting(1)
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    check_that("Stopped" in term.does("jobs"), "the job is stopped")
    term.line("fg")
    term.expect(r"sluice run k .*\r\n")
    # The shell says so before it does so; and to go on takes a stop away that came first.
    t.until(lambda: not term.is_the_shell_s() and
            [stopped(pid) for pid in t.waiting("k")] == [False],
            "it waits in the foreground again")
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    term.line("fg")
    term.expect(r"sluice run k .*\r\n")
    check(holder.release(), 0)
    term.expect("ran\r\n")
    check(term.prompt(), 0)


@test
def a_waiting_run_continues_in_the_background(t):
    holder = t.hold()
    term = Terminal(t)
    term.line("sluice run k -- " + ticker(t))
    t.until_waiting(1)
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    term.does("bg")
    check(holder.release(), 0)
    command = started(term)
    check_that(term.is_the_shell_s(), "the terminal is the shell's")
    check(term.does("echo he''re").count("here\n"), 1)
    term.line("fg")
    t.until(lambda: term.foreground() in (os.getpgid(command), os.getpgid(wrapper_of(command))),
            "it has the terminal")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)


@test
def one_that_is_stopped_while_it_waits_does_not_keep_others_out(t):
    holder = t.hold()
    term = Terminal(t)
    term.line("sluice run k -- echo r''an")
    t.until_waiting(1)
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    check(holder.release(), 0)
    t.until(lambda: not t.taken(), "another one is granted")
    term.line("fg")
    term.expect("ran\r\n")
    check(term.prompt(), 0)


# --- Ctrl-C and Ctrl-\ while the command runs ---------------------------------


def interrupt(t, key, status, *options):
    term = Terminal(t)
    term.line("sluice run %s k -- %s" % (" ".join(options), sleeper(t)))
    command = started(term)
    term.type(key)
    check(term.prompt(), status)
    check_that(not alive(command), "the command is gone")
    check_that(term.is_the_shell_s(), "the terminal is the shell's")
    t.comes_back()


@test
def ctrl_c_ends_the_command_and_the_shell_sees_130(t):
    interrupt(t, "\x03", INTERRUPTED)


@local
@test
def ctrl_c_ends_a_command_in_place_of_the_wrapper(t):
    interrupt(t, "\x03", INTERRUPTED, "-F")


@test
def ctrl_c_ends_a_command_with_o(t):
    interrupt(t, "\x03", INTERRUPTED, "-o")


@test
def ctrl_backslash_ends_the_command_and_the_shell_sees_131(t):
    interrupt(t, "\x1c", QUITTED)


@test
def ctrl_c_that_the_command_handles_gives_its_own_status(t):
    t.script("polite", "#!/bin/sh\ntrap 'echo po''lite; exit 4' INT\necho command $$ up\n"
                       "while :; do sleep 0.02; done\n")
    term = Terminal(t)
    term.line("sluice run k -- ./polite")
    started(term)
    term.type("\x03")
    term.expect("polite\r\n")
    check(term.prompt(), 4)


def one_ctrl_c_ends(t, shell, script):
    sleeper(t)
    t.script("loop", "#!/bin/%s\n%s" % (shell, script))
    term = Terminal(t)
    term.line("./loop")
    command = started(term)
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)
    # A script that has started a run and does not wait for it yet ends before it.
    t.until(lambda: not alive(command), "the command is gone")
    check(term.seen.count(b" up\r\n"), 1, "how many commands ran")
    check_that(b"at the end" not in term.seen, "the script did not go on")
    check_that(term.is_the_shell_s(), "the terminal is the shell's")


LOOP = "for i in 1 2 3; do sluice run k -- ./sleeper; done\necho at the end\n"


@test
def one_ctrl_c_ends_a_bash_script_that_loops_over_runs(t):
    one_ctrl_c_ends(t, "bash", LOOP)


@test
def one_ctrl_c_ends_a_sh_script_that_loops_over_runs(t):
    one_ctrl_c_ends(t, "sh", LOOP)


@test
def one_ctrl_c_ends_a_script_whose_runs_read_from_a_file(t):
    one_ctrl_c_ends(t, "bash", LOOP.replace("./sleeper", "./sleeper </dev/null"))


@test
def one_ctrl_c_ends_a_script_whose_runs_write_to_a_file(t):
    sleeper(t)
    t.script("loop", "#!/bin/bash\n" + LOOP.replace("./sleeper", "./sleeper >>said"))
    term = Terminal(t)
    term.line("./loop")
    t.until(lambda: "up" in t.read("said"), "the command runs")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)
    check(t.read("said").count("up"), 1, "how many commands ran")


@test
def one_ctrl_c_reaches_all_runs_of_a_job(t):
    # As under make -j2. Commands that catch it end by an exit, and nobody dies of it.
    t.script("catcher", "#!/bin/sh\ntrap 'echo $1 caught; exit 130' INT\necho $1 is up\n"
                        "while :; do sleep 0.02; done\n")
    t.script("both", "#!/usr/bin/env python3\nimport signal, subprocess\n"
                     "runs = [subprocess.Popen(['sluice', 'run', k, '--', './catcher', k]) for k in 'ab']\n"
                     "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                     "print('the parent is up', flush=True)\n"
                     "print([r.wait() for r in runs])\n")
    term = Terminal(t)
    term.line("./both")
    t.until(lambda: term.look() and all(b"%s is up" % k in term.seen
                                        for k in (b"a", b"b", b"the parent")), "all are up")
    term.type("\x03")
    term.expect(r"\[130, 130\]\r\n")
    check(term.prompt(), 0)
    check_that(all(b"%s caught" % k in term.seen for k in (b"a", b"b")), "both were told")


@test
def a_command_that_kills_itself_by_INT_does_not_end_the_script_around_it(t):
    t.script("script", "#!/bin/bash\nsluice run k -- sh -c 'kill -INT $$'\necho $? goes on\n")
    term = Terminal(t)
    term.line("./script")
    term.expect("130 goes on\r\n")
    check(term.prompt(), 0)


@test
def a_STOP_of_one_command_does_not_stop_the_job_around_it(t):
    t.script("script", "#!/bin/bash\nsluice run a -- sh -c 'echo command $$ up; exec sleep 1000' &\n"
                       "while [ ! -e go ]; do sleep 0.02; done\nsluice run b -- echo script goes on\n")
    term = Terminal(t)
    term.line("./script")
    command = started(term)
    os.kill(command, signal.SIGSTOP)
    t.until(lambda: stopped(command), "it is stopped")
    t.write("go", "")
    term.expect("script goes on\r\n")
    check(term.prompt(), 0)
    os.kill(command, signal.SIGKILL)


@test
def one_ctrl_c_ends_a_loop_of_the_interactive_shell(t):
    sleeper(t)
    term = Terminal(t)
    for more in ("", " </dev/null"):
        at = len(term.seen)
        term.line("for i in 1 2 3; do sluice run k -- ./sleeper%s; done" % more)
        started(term)
        term.type("\x03")
        check(term.prompt(), INTERRUPTED)
        check(term.seen[at:].count(b" up\r\n"), 1, "how many commands ran")


@test
def one_ctrl_c_ends_a_script_that_runs_in_a_script(t):
    t.script("inner", "#!/bin/bash\nsluice run k -- ./sleeper\necho at the end\n")
    one_ctrl_c_ends(t, "bash", "./inner\necho at the end\n")


@test
def a_script_continues_after_a_ctrl_c_that_the_command_handled(t):
    t.script("polite", "#!/bin/sh\ntrap 'exit 0' INT\necho command $$ up\n"
                       "while :; do sleep 0.02; done\n")
    t.script("steps", "#!/bin/bash\nsluice run k -- ./polite\necho at the end $?\n")
    term = Terminal(t)
    term.line("./steps")
    script = wrapper_of(wrapper_of(started(term)))
    # A shell that does not wait for its command yet dies of a Ctrl-C, whatever that does.
    t.until(lambda: stat_of(script)[0] == "S", "the script waits")
    term.type("\x03")
    term.expect("at the end 0\r\n")
    check(term.prompt(), 0)


# --- Ctrl-Z, fg and bg while the command runs ---------------------------------


def stop_and_go(t, *options):
    term = Terminal(t)
    term.line("sluice run %s k -- %s" % (" ".join(options), ticker(t)))
    command = started(term)
    for _ in range(2):
        term.type("\x1a")
        check(term.prompt(), STOPPED)
        check_that(stopped(command), "the command is stopped")
        check_that(term.is_the_shell_s(), "the terminal is the shell's")
        check_that("Stopped" in term.does("jobs"), "the job is stopped")
        check_that(t.taken(), "the permit is held")
        before = ticks(t)
        term.line("bg")
        t.until(lambda: ticks(t) > before + 1, "it runs in the background")
        term.prompt()
        check_that(term.is_the_shell_s(), "the terminal is the shell's")
        check_that("Running" in term.does("jobs"), "the job runs")
        term.line("fg")
        t.until(lambda: not term.is_the_shell_s(), "the terminal is not the shell's")
        before = ticks(t)
        t.until(lambda: ticks(t) > before + 1, "it runs in the foreground")
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    term.line("fg")
    t.until(lambda: not term.is_the_shell_s(), "the terminal is not the shell's")
    before = ticks(t)
    t.until(lambda: ticks(t) > before + 1, "it runs in the foreground")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)
    check_that(not alive(command), "the command is gone")
    t.comes_back()


@test
def ctrl_z_stops_the_command_and_fg_and_bg_continue_it(t):
    stop_and_go(t)


@test
def ctrl_z_stops_the_command_and_the_wrapper_takes_the_terminal_back(t):
    # bash takes the terminal itself, whichever process has it. This one looks first.
    t.script("shell", """#!/usr/bin/env python3
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(job, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), "its own", os.tcgetpgrp(0) == job, flush=True)
os.tcsetpgrp(0, job)
os.killpg(job, signal.SIGCONT)
_, status = os.waitpid(job, 0)
print("ended by", os.WTERMSIG(status), "its own", os.tcgetpgrp(0) == job, flush=True)
""")
    term = Terminal(t, "./shell", tap.program, "run", "k", "--", ticker(t))
    command = started(term)
    term.type("\x1a")
    term.expect("stopped True its own True\r\n")
    before = ticks(t)
    t.until(lambda: ticks(t) > before + 1 and term.foreground() == command, "it goes on")
    term.type("\x03")
    term.expect("ended by 2 its own True\r\n")


@local
@test
def ctrl_z_fg_and_bg_work_without_a_fork(t):
    stop_and_go(t, "-F")


@test
def ctrl_z_fg_and_bg_work_with_output_to_a_file(t):
    term = Terminal(t)
    term.line("sluice run k -- %s >said" % ticker(t))
    t.until(lambda: "up" in t.read("said"), "the command runs")
    command = int(t.read("said").split()[1])
    for go_on in ("fg", "bg; fg"):
        term.type("\x1a")
        check(term.prompt(), STOPPED)
        check_that(stopped(command), "the command is stopped")
        before = ticks(t)
        term.line(go_on)
        t.until(lambda: ticks(t) > before + 1 and not term.is_the_shell_s(), "it goes on")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)


@test
def ctrl_z_where_no_shell_could_continue_it_does_not_freeze_the_command(t):
    path = ticker(t)
    term = Terminal(t, tap.program, "run", "k", "--", path)
    command = started(term)
    term.type("\x1a")
    term.expect(r"\^Z")
    before = ticks(t)
    t.until(lambda: ticks(t) > before + 3, "the command goes on")
    check_that(alive(command), "the command lives")
    term.type("\x03")
    t.until(lambda: not alive(command) and not alive(term.pid), "both are gone")


@test
def ctrl_c_ends_a_run_that_the_terminal_was_opened_for(t):
    term = Terminal(t, tap.program, "run", "k", "--", sleeper(t))
    command = started(term)
    term.type("\x03")
    t.until(lambda: not alive(command) and not alive(term.pid), "both are gone")
    t.comes_back()


@test
def ctrl_z_stops_the_wrapper_too(t):
    term = Terminal(t)
    term.line("sluice run k -- " + sleeper(t))
    command = started(term)
    wrapper = wrapper_of(command)
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    check_that(stopped(command) and stopped(wrapper), "both are stopped")
    term.line("kill %1; fg")
    check(term.prompt(), 143)
    check_that(not alive(command) and not alive(wrapper), "both are gone")


@test
def after_fg_the_command_reads_from_the_terminal(t):
    term = Terminal(t)
    term.line("sluice run k -- cat")
    term.line("one")
    term.expect("one\r\none\r\n")
    for word in ("two", "three"):
        term.type("\x1a")
        check(term.prompt(), STOPPED)
        term.line("fg")
        term.expect("cat\r\n")
        term.line(word)
        term.expect("%s\r\n%s\r\n" % (word, word))
    term.type("\x04")
    check(term.prompt(), 0)


@test
def ctrl_z_stops_a_script_around_the_run_and_fg_continues_it(t):
    ticker(t)
    t.script("around", "#!/bin/bash\nsluice run k -- ./ticker\necho at the end $?\n")
    term = Terminal(t)
    term.line("./around")
    command = started(term)
    wrapper = wrapper_of(command)
    script = stat_of(wrapper)[1]
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    t.until(lambda: all(map(stopped, (command, wrapper, script))), "all three are stopped")
    term.line("fg")
    t.until(lambda: not stopped(command) and not stopped(script), "both go on")
    before = ticks(t)
    t.until(lambda: ticks(t) > before + 1, "it runs")
    os.kill(command, signal.SIGTERM)
    term.expect("at the end 143\r\n")
    check(term.prompt(), 0)


@test
def a_command_that_ends_in_the_background_is_reported_as_done(t):
    os.mkfifo(t.path("gate"))
    t.script("short", "#!/bin/sh\necho command $$ up\nread _ <gate\nexit 5\n")
    term = Terminal(t)
    term.line("sluice run k -- ./short")
    started(term)
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    term.does("bg")
    t.write("gate", "enough\n")
    check(term.does("wait %1; echo st''atus $?").count("status 5\n"), 1)
    check_that(not t.taken(), "the permit is back")


# --- Reading from the terminal ------------------------------------------------


@test
def the_command_reads_from_the_terminal(t):
    term = Terminal(t)
    term.line("sluice run k -- cat")
    term.line("a line")
    term.expect("a line\r\na line\r\n")
    term.type("\x04")
    check(term.prompt(), 0)
    check_that(term.is_the_shell_s(), "the terminal is the shell's")


@test
def a_command_in_a_pipeline_reads_from_the_terminal_when_it_asks(t):
    term = Terminal(t)
    term.line("sluice run k -- sh -c 'echo f''irst; read l </dev/tty; echo g''ot $l' | cat")
    term.expect("first\r\n")
    term.line("a line")
    term.expect("got a line\r\n")
    check(term.prompt(), 0)
    check_that(term.is_the_shell_s(), "the terminal is the shell's")


@test
def a_command_at_the_end_of_a_pipeline_reads_from_the_terminal_when_it_asks(t):
    term = Terminal(t)
    term.line("echo f''irst | sluice run k -- sh -c 'cat; read l </dev/tty; echo g''ot $l'")
    term.expect("first\r\n")
    term.line("a line")
    term.expect("got a line\r\n")
    check(term.prompt(), 0)


@test
def ctrl_c_ends_a_pipeline(t):
    term = Terminal(t)
    sleeper(t)
    # $? is that of the last one, which may see the end of its input before the signal.
    for line, last in (("./sleeper | sluice run k -- cat", (0, INTERRUPTED)),
                       ("sluice run k -- ./sleeper | cat", (INTERRUPTED,)),
                       ("sluice run a -- ./sleeper | sluice run b -- cat", (0, INTERRUPTED))):
        term.line(line)
        command = started(term)
        term.type("\x03")
        check_that(term.prompt() in last, "$? is right after " + line)
        t.until(lambda: not alive(command), "the command is gone")
        check_that(term.is_the_shell_s(), "the terminal is the shell's")
        t.comes_back()


@test
def ctrl_c_ends_a_pipeline_of_two_runs_that_reads_from_the_terminal(t):
    term = Terminal(t)
    term.line("sluice run a -- cat | sluice run b -- cat")
    term.line("a line")
    term.expect("a line\r\na line\r\n")
    term.type("\x03")
    check_that(term.prompt() in (0, INTERRUPTED), "$? is that of the last cat")
    t.comes_back(key="a")
    t.comes_back(key="b")


@test
def ctrl_z_stops_a_pipeline_and_fg_continues_it(t):
    term = Terminal(t)
    term.line("sluice run k -- %s | cat" % ticker(t))
    command = started(term)
    for _ in range(2):
        term.type("\x1a")
        check(term.prompt(), STOPPED)
        t.until(lambda: stopped(command), "the command is stopped")
        term.line("fg")
        before = ticks(t)
        t.until(lambda: ticks(t) > before + 1, "it goes on")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)


@test
def a_command_in_the_background_that_reads_is_stopped_and_fg_lets_it_read(t):
    term = Terminal(t)
    term.line("sluice run k -- cat &")
    term.prompt()
    t.until(lambda: "Stopped" in term.does("jobs"), "the job is stopped")
    check_that(t.taken(), "the permit is held")
    check_that(term.is_the_shell_s(), "the terminal is the shell's")
    term.line("fg")
    term.expect("cat\r\n")
    term.line("a line")
    term.expect("a line\r\na line\r\n")
    term.type("\x04")
    check(term.prompt(), 0)


@test
def a_command_in_the_background_does_not_take_the_terminal(t):
    term = Terminal(t)
    term.line("sluice run k -- %s &" % ticker(t))
    command = started(term)
    before = ticks(t)
    t.until(lambda: ticks(t) > before + 1, "it runs")
    check_that(term.is_the_shell_s(), "the terminal is the shell's")
    check(term.does("echo he''re").count("here\n"), 1)
    term.does("kill %1; wait")
    check_that(not alive(command), "the command is gone")


@test
def a_command_without_job_control_does_not_hang_when_it_reads_the_terminal(t):
    # The subshell ends, and so its group has no parent any more. The kernel would not stop
    # anybody in it, and let such a read fail.
    term = Terminal(t)
    t.script("asks", "#!/bin/sh\necho >up\nwhile [ ! -e go ]; do sleep 0.02; done\n"
                     "read _ </dev/tty\necho $? >asked\n")
    term.does("(sluice run k -- ./asks &)")  # The prompt is back: the subshell has ended.
    t.until(lambda: os.path.exists(t.path("up")), "it has begun")
    t.write("go", "")
    t.until(lambda: not t.taken(), "it ends, and the permit is back")
    check_that(term.is_the_shell_s(), "the terminal is the shell's")


@test
def with_tostop_a_command_in_the_background_that_writes_is_stopped(t):
    term = Terminal(t)
    term.does("stty tostop")
    term.line("sluice run k -- sh -c 'echo ou''tput' &")
    term.prompt()
    t.until(lambda: "Stopped" in term.does("jobs"), "the job is stopped")
    check_that(b"output" not in term.seen, "nothing is written")
    term.line("fg")
    term.expect("output\r\n")
    check(term.prompt(), 0)


# --- The terminal itself ------------------------------------------------------


def resize(t, line):
    # Not a shell: while one runs a trap it may lose the next signal.
    t.script("sized", "#!/usr/bin/env python3\nimport os, signal\n"
                      "tty = os.open('/dev/tty', os.O_RDONLY)\n"
                      "def say(number, frame):\n"
                      "    columns, rows = os.get_terminal_size(tty)\n"
                      "    os.write(1, b'size %d %d\\n' % (rows, columns))\n"
                      "signal.signal(signal.SIGWINCH, say)\n"
                      "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
                      "os.write(1, b'command %d up\\n' % os.getpid())\n"
                      "while True:\n    signal.pause()\n")
    term = Terminal(t)
    term.line(line)
    started(term)
    term.resize(50, 132)
    term.expect("size 50 132\r\n")
    term.resize(20, 40)
    term.expect("size 20 40\r\n")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)


@test
def WINCH_reaches_the_command_when_the_terminal_is_resized(t):
    resize(t, "sluice run k -- ./sized")


@test
def WINCH_reaches_a_command_that_does_not_have_the_terminal(t):
    resize(t, "sluice run k -- ./sized | cat")


def hang_up(t, line):
    term = Terminal(t)
    term.line(line)
    command = started(term)
    wrapper = wrapper_of(command)
    term.close()
    t.until(lambda: not alive(command), "the command is gone")
    t.until(lambda: not alive(wrapper), "the wrapper is gone")
    t.comes_back()


@test
def a_terminal_that_is_closed_ends_the_command(t):
    sleeper(t)
    hang_up(t, "sluice run k -- ./sleeper")


@test
def a_terminal_that_is_closed_ends_a_command_in_a_pipeline(t):
    sleeper(t)
    hang_up(t, "sluice run k -- ./sleeper | cat")


@test
def a_terminal_that_is_closed_ends_a_command_in_the_background(t):
    sleeper(t)
    hang_up(t, "sluice run k -- ./sleeper &")


@test
def a_terminal_that_is_closed_ends_one_that_waits(t):
    t.hold()
    term = Terminal(t)
    term.line("sluice run k -- true")
    t.until_waiting(1)
    waiter = t.until(t.waiting, "it waits")[0]
    term.close()
    t.until(lambda: not alive(waiter), "the waiter is gone")
    t.until_waiting(0)


@test
def under_nohup_the_command_survives_its_terminal(t):
    term = Terminal(t)
    term.line("nohup sluice run k -- %s >nohup.said" % ticker(t))
    t.until(lambda: "up" in t.read("nohup.said"), "the command runs")
    command = int(t.read("nohup.said").split()[1])
    term.close()
    t.until(lambda: not alive(term.pid), "the shell is gone")
    before = ticks(t)
    t.until(lambda: ticks(t) > before + 3, "the command runs on")
    check_that(t.taken(), "the permit is held")
    check_that(alive(command), "the command lives")


@test
def the_terminal_is_the_shell_s_afterwards_as_it_was_before(t):
    term = Terminal(t)
    before = termios.tcgetattr(term.fd)
    for line, status in (("true", 0), ("sh -c 'exit 3'", 3), ("sh -c 'kill -9 $$'", 137),
                         ("nosuch", 127), ("stty -a >/dev/null", 0)):
        term.line("sluice run k -- " + line)
        check(term.prompt(), status, "$? of " + line)
        check_that(term.is_the_shell_s(), "the terminal is the shell's after " + line)
        check(termios.tcgetattr(term.fd), before, "its attributes after " + line)


@test
def the_terminal_is_the_shell_s_after_the_wrapper_was_killed(t):
    term = Terminal(t)
    term.line("sluice run k -- " + sleeper(t))
    command = started(term)
    os.kill(wrapper_of(command), signal.SIGKILL)
    check(term.prompt(), 137)
    check_that(term.is_the_shell_s(), "the terminal is the shell's")
    check(term.does("echo he''re").count("here\n"), 1)
    check_that(t.taken(), "the command holds the permit")


@test
def what_the_command_sets_at_the_terminal_stays_set(t):
    term = Terminal(t)
    term.line("sluice run k -- stty -echo")
    term.expect(r"stty -echo\r\n")
    check(term.prompt(), 0)
    term.line("echo o''ne")
    check_that("echo" not in term.expect(r"(?s)(.*)one\r\n").group(1), "nothing is echoed")


@test
def a_script_reads_from_the_terminal_after_a_run(t):
    t.script("reads", "#!/bin/sh\nsluice run k -- true\nread l\necho g''ot $l\n"
                      "sluice run k -- nosuch 2>/dev/null\nread l\necho g''ot $l\n")
    term = Terminal(t)
    term.line("./reads")
    for word in ("one", "two"):
        term.line(word)
        term.expect("got %s\r\n" % word)
    check(term.prompt(), 0)


@test
def a_script_reads_from_the_terminal_after_its_command_was_killed(t):
    if tap.server_program is None:
        raise Skip("--max-hold is for locks on a server")
    t.script("reads", "#!/bin/sh\nsluice run --lease 1s --max-hold 1s --grace 0 k -- sh -c 'trap \"\" TERM; read l'\n"
                      "echo st''atus $?\nread l\necho g''ot $l\n")
    term = Terminal(t)
    term.line("./reads")
    term.expect("status 79\r\n")
    term.line("one")
    term.expect("got one\r\n")
    check(term.prompt(), 0)


@test
def an_interactive_shell_runs_under_a_run(t):
    term = Terminal(t)
    term.line("sluice run k -- bash --norc --noprofile --noediting -i")
    check(term.prompt(), 0)
    check_that(re.search(r"^k$", term.does("echo $SLUICE_LOCK_KEY"), re.M), "it is the inner one")
    term.line("sleep 1000")
    t.until(lambda: term.foreground() not in (term.pid,), "it is not the outer shell's")
    t.until(lambda: b"sleep" in open("/proc/%d/cmdline" % term.foreground(), "rb").read()[:6],
            "sleep has the terminal")
    term.type("\x1a")
    check(term.prompt(), STOPPED)
    term.line("fg")
    term.expect("sleep 1000\r\n")
    t.until(lambda: b"sleep" in open("/proc/%d/cmdline" % term.foreground(), "rb").read()[:6],
            "sleep has the terminal")
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)
    term.line("exit 3")
    check(term.prompt(), 3)
    check_that(term.is_the_shell_s(), "the terminal is the outer shell's")
    check_that("SLUICE" not in term.does("echo ${SLUICE_LOCK_KEY-none}"), "it is the outer one")


@test
def a_run_in_a_run_has_the_terminal(t):
    term = Terminal(t)
    term.line("sluice run a -- sluice run b -- cat")
    term.line("one")
    term.expect("one\r\none\r\n")
    for word in ("two", "three"):
        term.type("\x1a")
        check(term.prompt(), STOPPED)
        check_that(t.taken(key="a") and t.taken(key="b"), "the permits are held")
        term.line("fg")
        term.expect("cat\r\n")
        term.line(word)
        term.expect("%s\r\n%s\r\n" % (word, word))
    term.type("\x03")
    check(term.prompt(), INTERRUPTED)
    check_that(term.is_the_shell_s(), "the terminal is the shell's")
    t.comes_back(key="a")
    t.comes_back(key="b")


@test
def a_run_after_a_wait_on_the_terminal_has_it(t):
    holder = t.hold()
    term = Terminal(t)
    term.line("sluice run k -- cat")
    t.until_waiting(1)
    check(holder.release(), 0)
    term.line("a line")
    term.expect("a line\r\na line\r\n")
    term.type("\x04")
    check(term.prompt(), 0)


@test
def a_shell_without_job_control_around_the_run_gets_the_terminal_back(t):
    term = Terminal(t)
    term.line("sh -c 'sluice run k -- cat; read l; echo g''ot $l'")
    term.line("one")
    term.expect("one\r\none\r\n")
    term.type("\x04")
    term.line("two")
    term.expect("got two\r\n")
    check(term.prompt(), 0)


main(__doc__)
