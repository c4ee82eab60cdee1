#!/usr/bin/python3
"""test_top.py SLUICE [--jobs N] [PATTERN...] - `sluice top`: what it shows on a terminal and
elsewhere, its keys, and that it restores the terminal; against the server that was built next to
SLUICE."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../server/lib"), os.path.join(HERE, "../cluster/lib"),
                os.path.join(HERE, "../lib")]
import tap  # noqa: E402
from live import Server, fence_of  # noqa: E402
from screen import Screen  # noqa: E402
from tap import Failure, Skip, check, check_that, main, test, test_of  # noqa: E402

UP, DOWN, PAGE_DOWN, HOME, END = "\033[A", "\033OB", "\033[6~", "\033[H", "\033[F"
INTERVAL = ("--interval", "0.1")


def server_program():
    return os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")


def serve(t, *options, **more):
    return Server(t, options, argv=[server_program()], **more)


def at(s):
    return "127.0.0.1:%d" % s.port


class Top:
    """A program on a terminal, and what the terminal shows."""

    def __init__(self, t, *args, rows=24, columns=80, env=None, program=None):
        self.t = t
        self.screen = Screen(rows, columns)
        self.popen, self.returncode = self, None  # t.bury() expects these, and poll()
        self.open = True
        env = t.environment(dict({"TERM": "xterm", "NO_COLOR": ""}, **(env or {})))
        argv = [program or tap.program, *args]
        ready, go = os.pipe()  # it starts when the terminal has its size
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.close(go)
                os.read(ready, 1)
                os.chdir(t.dir)
                os.execvpe(argv[0], argv, env)
            finally:
                os._exit(99)
        t.children[self.pid] = self
        os.close(ready)
        self.before = termios.tcgetattr(self.fd)
        self.set_size(rows, columns)
        os.close(go)
        t.transcripts.append(lambda: self.screen.text)

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        self.set_size(rows, columns)

    def set_size(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """Draw the output that is there; true."""
        while self.open and select.select([self.fd], [], [], 0)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # no process has the terminal any more
                data = b""
            self.open = data != b""
            self.screen.feed(data)
        return True

    def until(self, condition, what):
        """Wait until the condition is so of the lines of the screen; returns them."""
        def holds():
            return self.read() and condition(self.screen.lines)
        holding = []
        self.t.until(lambda: holding.append(holds()) or holding[-1] or self.has_ended(), what)
        check_that(holding[-1] or holds(), what + ", before the end")
        return self.screen.lines

    def expect(self, pattern):
        """Wait until the screen matches."""
        self.until(lambda _: re.search(pattern, self.screen.text, re.M), repr(pattern))

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def has_ended(self):
        return self.poll() is not None

    def end(self):
        """Wait for its end; returns the exit status, or -n if signal n killed it."""
        self.t.until(lambda: self.read() and self.has_ended(), "it ends")
        self.read()
        return self.returncode

    def check_restored(self):
        s = self.screen
        check((s.alternate, s.cursor_visible, s.wraps), (False, True, True), "the screen")
        # There is no process on the terminal, so its settings stay as they were left.
        check(termios.tcgetattr(self.fd), self.before, "the settings of the terminal")

    def quit(self):
        self.type("q")
        check(self.end(), 0, "the exit status")
        self.check_restored()


def rows_of(top):
    """The table, as lists of words."""
    lines = top.screen.lines
    first = [i for i, line in enumerate(lines) if line.startswith("KEY ")]
    return [line.split() for line in lines[first[0] + 1:-1] if line] if first else []


def keys_of(top):
    return [row[0] for row in rows_of(top)]


def until_keys(top, *keys):
    top.until(lambda _: keys_of(top) == list(keys), "the keys are %r" % (keys,))


def top_of(t, s, *args, **more):
    return Top(t, "top", "--server", at(s), *INTERVAL, *args, **more)


# --- The page --------------------------------------------------------------------


@test
def a_page_shows_the_server_and_its_locks(t):
    s, a, b, c = serve(t).with_clients(3)
    a("CLIENT", "SETNAME", "backup-7")
    a("ACQUIRE", "db", "LEASE", "50m")
    s.waits(b, "ACQUIRE", "db", "WAIT", "1h")
    c("ACQUIRE", "jobs", "PER", "4", "UNITS", "3")
    c("ACQUIRE", "data", "SHARED")
    top = top_of(t, s)
    top.expect(r"^127\.0\.0\.1:%d  Sluice \S+  single server  up \d+ s  READY$" % s.port)
    top.expect(r"^clients 4  locks 3  holders 3  waiters 1$")
    top.expect(r"^per second: grants 0\.0  releases 0\.0  expiries 0\.0$")
    top.expect(r"^KEY +HELD/CAP WAITERS +WAIT HOLDER +HELD +LEASE$")
    top.expect(r"^db +1/1 +1 +\d+ (ms|s) backup-7 +\d+ (ms|s) +(49|50) min$")
    top.expect(r"^jobs +3/4 +0 +- 127\.0\.0\.1:\d+ +\d+ (ms|s) +-$")
    top.expect(r"^data +1 shared +0 +- 127\.0\.0\.1:\d+ +\d+ (ms|s) +-$")
    check(top.screen.alternate, True)
    check(termios.tcgetattr(top.fd)[3] & (termios.ECHO | termios.ICANON), 0, "line editing")
    top.quit()


@test
def rates_are_those_between_two_updates(t):
    s = serve(t)
    p = t.begin("bench", "--server", at(s), "--duration", "1h", "--clients", "2")
    top = top_of(t, s)
    top.expect(r"^per second: grants [1-9]\d+  releases [1-9]\d+  expiries 0\.0$")
    p.kill(signal.SIGINT)
    check(p.status, 0)
    top.expect(r"^per second: grants 0\.0  releases 0\.0  expiries 0\.0$")
    top.quit()


def fits(t, rows, columns):
    s, a, b = serve(t).with_clients(2)
    for i in range(60):
        a("ACQUIRE", "日本語-%02d-%s" % (i, "é" * i), "LEASE", "1h")
    s.waits(b, "ACQUIRE", "日本語-00-", "WAIT", "1h")
    # The emulator fails if a line is longer than the terminal, or the cursor leaves it.
    top = top_of(t, s, rows=rows, columns=columns)
    top.until(lambda lines: any(lines), "something is drawn")
    for keys in ("k", END, PAGE_DOWN, "\r", DOWN, "\033", "?", "?", "/x", "\033", "r", " ", " "):
        top.type(keys)
        top.read()
    if rows >= 10 and columns >= 40:
        top.until(lambda _: len(keys_of(top)) >= 3 and all(
            k.startswith("日本語-") for k in keys_of(top)), "there is a table")
    top.resize(24, 80)
    top.expect(r"^KEY +HELD/CAP WAITERS +WAIT HOLDER +HELD +LEASE$")
    top.quit()


for size in ((24, 80), (50, 200), (10, 40), (5, 20), (1, 1), (3, 500), (100, 8)):
    test_of("a_page_fits_%d_rows_of_%d_columns" % size, fits, *size)


@test
def a_change_of_the_size_is_noticed_at_once(t):
    s, a = serve(t).with_clients(1)
    a("ACQUIRE", "db")
    top = Top(t, "top", "--server", at(s), "--interval", "1h")
    top.expect(r"^db +1/1")
    for rows, columns in ((50, 200), (10, 40), (24, 80)):
        top.resize(rows, columns)
        top.until(lambda lines: lines[-1].startswith("q quit"), "the last row is at the bottom")
        check(keys_of(top), ["db"])
    top.quit()


@test
def keys_sort_the_locks(t):
    s, a, b = serve(t).with_clients(2)
    a("ACQUIRE", "m")
    a("ACQUIRE", "z", "LEASE", "1h")
    waiters = s.clients(3)
    s.waits(waiters[0], "ACQUIRE", "z", "WAIT", "1h")
    looks = s.client(3)
    t.until(lambda: looks("EXPLAIN", "z")[b"waiters"][0][b"waited_ms"] >= 5, "the next waits less")
    b("ACQUIRE", "a")
    for i, c in enumerate(waiters[1:]):
        s.waits(c, "ACQUIRE", "a", "WAIT", "1h", count=i + 1)
    top = top_of(t, s)
    until_keys(top, "z", "a", "m")  # by the longest wait
    for keys, wanted in (("w", "azm"), ("r", "mza"), ("r", "azm"), ("k", "amz"), ("r", "zma"),
                         ("r", "amz"), ("h", "mza"), ("t", "zam")):
        top.type(keys)
        until_keys(top, *wanted)
    top.quit()


@test
def a_filter_keeps_the_keys_that_contain_a_text(t):
    s, a = serve(t).with_clients(1)
    for key in ("db:shop", "db:mail", "web:shop", "s*op", "über"):
        a("ACQUIRE", key)
    top = top_of(t, s)
    top.type("k/shop\r")
    until_keys(top, "db:shop", "web:shop")
    top.expect(r'^2 locks  by key  filter "shop"$')
    top.type("/\x7f\x7f\x7f\x7f*\r")
    until_keys(top, "s*op")
    top.type("/\x7füx\x7f\r")
    until_keys(top, "über")
    top.type("/\x7fq")
    top.expect(r"^filter: q$")  # q is text here
    top.type("\033")
    top.expect(r"^q quit")
    until_keys(top, "über")
    top.type("/\x7f\r")
    top.expect(r"^5 locks  by key$")
    top.quit()


@test
def the_page_scrolls_and_explains_what_it_shows(t):
    s, a = serve(t).with_clients(1)
    for i in range(300):
        a("ACQUIRE", "key%03d" % i, "PER", "7")
    top = Top(t, "top", "--server", at(s), "--interval", "1h")
    top.type("k")

    def explained(first):
        top.until(lambda _: rows_of(top) and rows_of(top)[0][0] == first and
                  all(row[1] == "1/7" for row in rows_of(top)), "%s is the first" % first)
        return len(rows_of(top))
    n = explained("key000")
    top.type(END)
    explained("key%03d" % (300 - n))
    top.type(HOME)
    explained("key000")
    top.type(PAGE_DOWN + DOWN)
    explained("key002")
    top.type(UP * 50)
    explained("key000")
    top.quit()


@test
def enter_shows_the_holders_and_waiters_of_a_lock(t):
    s, a, b, c = serve(t).with_clients(3)
    a("CLIENT", "SETNAME", "backup-7")
    fence = fence_of(a("ACQUIRE", "db", "LEASE", "50m", "NOTE", "nightly backup"))
    b("CLIENT", "SETNAME", "report-1")
    s.waits(b, "ACQUIRE", "db", "WAIT", "50m", "PRIORITY", "5")
    c("ACQUIRE", "aa")
    top = top_of(t, s, columns=200)
    top.type("k")
    until_keys(top, "aa", "db")
    top.type(DOWN + "\r")
    top.expect(r"\Adb\n")
    top.expect(r"backup-7 \(127\.0\.0\.1:\d+\) has held it for")
    top.expect(r"^holds backup-7 \(127\.0\.0\.1:\d+\)  \d+ s, left (49|50) min  fence %d  nightly" % fence)
    top.expect(r"^waits report-1 \(127\.0\.0\.1:\d+\)  \d+ s, left (49|50) min  priority 5  full: 1 o")
    a("RELEASE", "db", str(fence))
    top.expect(r"^holds report-1")
    top.type("?")
    top.expect(r"^w t h k     sort")
    top.type("\033")
    top.expect(r"^holds report-1")
    top.type("\033")
    until_keys(top, "aa", "db")
    top.quit()


@test
def a_wait_without_a_timeout_shows_no_remaining_time(t):
    s, a = serve(t).with_clients(1)
    a("ACQUIRE", "db")
    p = t.begin("run", "--server", at(s), "db", "--", "true")
    s.until_waiting("db", 1)
    top = top_of(t, s, columns=200)
    top.expect(r"^db +1/1 +1 ")
    top.type("\r")
    top.expect(r"^waits true\[\d+\]@\S+ \(127\.0\.0\.1:\d+\)  \d+ s  full:")
    top.quit()
    p.kill(signal.SIGTERM)


@test
def the_detail_of_a_lock_with_many_waiters_scrolls(t):
    s, a = serve(t).with_clients(1)
    a("ACQUIRE", "db", "LEASE", "1h")
    for i in range(110):
        c = s.client()
        c("CLIENT", "SETNAME", "waiter-%03d" % i)
        c.send("ACQUIRE", "db", "WAIT", "1h")
        s.until_waiting("db", i + 1)
        t.transcripts.append(lambda kept=c: "")
    top = top_of(t, s, "--interval", "1h")
    top.expect(r"^db ")
    top.type("\r")
    top.expect("waiter-000")
    top.type(PAGE_DOWN * 20)
    top.expect(r"waiter-099(.*\n)+1 holders and 110 waiters in all$")
    top.type(UP * 200)
    top.expect("waiter-000")
    top.quit()


@test
def space_pauses(t):
    s, a = serve(t).with_clients(1)
    top = top_of(t, s)
    top.expect(r"^0 locks ")
    top.type(" ")
    top.expect("^PAUSED ")
    commands = s.number("total_commands_processed", a)
    a("ACQUIRE", "db")
    t.until(lambda: s.number("uptime_in_seconds", a) >= 2 and top.read(), "time passes")
    check(keys_of(top), [])
    top.type(" ")
    until_keys(top, "db")
    check_that(s.number("total_commands_processed", a) > commands, "it reads again")
    top.quit()


@test
def help_lists_the_keys(t):
    top = top_of(t, serve(t))
    top.expect(r"^0 locks ")
    top.type("?")
    top.expect(r"^w t h k     sort by waiters, wait time, time held, key$")
    top.type("?")
    top.expect(r"^0 locks ")
    top.quit()


@test
def a_server_that_is_not_ready_says_why(t):
    s, a = serve(t).with_clients(1)
    top = top_of(t, s)
    top.expect("  READY$")
    a("DRAIN", "*", "ON")
    top.expect("  NOT READY$")
    top.expect("^NOTREADY .*drain")
    a("DRAIN", "*", "OFF")
    top.expect("  READY$")
    top.quit()


# --- The terminal -----------------------------------------------------------------


def restores(t, number, wanted):
    s, a = serve(t).with_clients(1)
    a("ACQUIRE", "db")
    top = top_of(t, s)
    top.expect(r"^db +1/1")
    check(top.screen.cursor_visible, False)
    os.kill(top.pid, number)
    check(top.end(), wanted)
    top.check_restored()


for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV,
            signal.SIGABRT):
    test_of("signal_%s_ends_it_and_restores_the_terminal" % sig.name, restores, sig, -sig)


@test
def a_truncated_segment_restores_the_terminal(t):
    t.hold()
    top = Top(t, "top", "--local", *INTERVAL)
    top.expect("^k +exclusive ")
    os.kill(top.pid, signal.SIGBUS)
    check(top.end(), 65)
    top.check_restored()
    top.expect("the segment was truncated while in use")


@test
def ctrl_c_on_the_terminal_ends_it(t):
    top = top_of(t, serve(t))
    top.expect(r"^0 locks ")
    top.type("\x03")
    check(top.end(), -signal.SIGINT)
    top.check_restored()


@test
def ctrl_z_gives_the_terminal_back_and_fg_takes_it(t):
    s, a = serve(t).with_clients(1)
    if t.run("bash", "-c", "true").status != 0:
        raise Skip("there is no bash")
    shell = Top(t, "--norc", "--noprofile", "--noediting", "-i", program="bash",
                env={"PS1": "<$?> ", "HISTFILE": "/dev/null", "INPUTRC": "/dev/null"})
    shell.expect("^<0>")
    settings = termios.tcgetattr(shell.fd)
    shell.type("%s top --server %s --interval 0.1\n" % (tap.program, at(s)))
    shell.expect(r"^0 locks ")
    for key in ("one", "two"):
        shell.type("\x1a")
        shell.until(lambda _: not shell.screen.alternate, "the terminal is back")
        shell.expect("Stopped")
        t.until(lambda: termios.tcgetattr(shell.fd) == settings, "the settings are back")
        check((shell.screen.cursor_visible, shell.screen.wraps), (True, True))
        a("ACQUIRE", key)
        shell.type("fg\n")
        shell.until(lambda _: shell.screen.alternate and key in keys_of(shell), "it goes on")
    shell.type("q")
    shell.until(lambda _: not shell.screen.alternate, "it has ended")
    t.until(lambda: termios.tcgetattr(shell.fd) == settings, "the settings are back")
    shell.type("exit 7\n")
    check(shell.end(), 7)


@test
def a_stop_in_the_background_ends_on_sigterm(t):
    """The terminal belongs to the shell then."""
    s = serve(t)
    shell = Top(t, "--norc", "--noprofile", "--noediting", "-i", program="bash",
                env={"PS1": "<$?> ", "HISTFILE": "/dev/null", "INPUTRC": "/dev/null"})
    shell.expect("^<0>")
    shell.type("%s top --server %s --interval 0.1\n" % (tap.program, at(s)))
    shell.expect(r"^0 locks ")
    shell.type("\x1a")
    shell.expect("Stopped")
    settings = termios.tcgetattr(shell.fd)
    pid = [p for p in tap.descendants(shell.pid) if tap.stopped(p)][0]
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGCONT)
    shell.until(lambda _: not tap.alive(pid), "it ends")
    typed_at = 0

    def is_reported(_):
        nonlocal typed_at  # The shell reports it before a prompt, but only if it has noticed it.
        if time.monotonic() - typed_at > 0.5:
            shell.type("\n")
            typed_at = time.monotonic()
        return "Terminated" in shell.screen.text
    shell.until(is_reported, "the shell reports it")
    check((shell.screen.alternate, termios.tcgetattr(shell.fd)), (False, settings))


@test
def colours_are_for_terminals_without_no_color(t):
    s, a, b = serve(t).with_clients(2)
    a("ACQUIRE", "db")
    s.waits(b, "ACQUIRE", "db", "WAIT", "1h")
    a("ACQUIRE", "aa")
    for no, coloured in (("", True), ("1", False)):
        top = top_of(t, s, env={"NO_COLOR": no})
        top.type("k")
        until_keys(top, "aa", "db")
        top.type("\r\033" + DOWN + UP)
        top.expect("^db ")
        check(bool(top.screen.colours), coloured, "colours with NO_COLOR=" + no)
        top.quit()


@test
def a_dumb_terminal_gets_plain_text(t):
    top = top_of(t, serve(t), "--count", "2", env={"TERM": "dumb"})
    check(top.end(), 0)
    top.expect(r"(?s)^clients 1  locks 0.*^clients 1  locks 0")
    check(top.screen.colours, set())


# --- A server that goes away ---------------------------------------------------------


@test
def it_connects_again_when_the_server_is_back(t):
    s, a = serve(t).with_clients(1)
    a("ACQUIRE", "db")
    port = s.port
    top = top_of(t, s)
    until_keys(top, "db")
    s.kill()
    top.expect("^NOT CONNECTED: ")
    top.expect("^AS OF .* AGO  1 locks")
    check(keys_of(top), ["db"], "the last known locks")
    s = serve(t, port=port)
    s.client()("ACQUIRE", "new", "LEASE", "1h")
    until_keys(top, "new")
    top.expect("  READY$")
    top.quit()


@test
def a_server_that_does_not_reply_does_not_stop_the_keys(t):
    s = serve(t)
    top = top_of(t, s)
    top.expect(r"^0 locks ")
    os.kill(s.pid, signal.SIGSTOP)
    top.expect(r"^NO REPLY for \d+ s")
    top.type("?")
    top.expect(r"^w t h k     sort")
    top.quit()


@test
def json_reports_a_connection_that_is_lost_between_updates(t):
    s = serve(t)
    p = t.begin("top", "--server", at(s), "--json", *INTERVAL, "--count", "1000000")
    p.until_out("\n")
    s.kill()
    p.until_out('"error":')
    p.kill()
    check(json.loads(p.out.splitlines()[0])["ready"], True)


# --- Text of others ------------------------------------------------------------------


@test
def keys_and_notes_cannot_control_the_terminal(t):
    s, a = serve(t).with_clients(1)
    evil = b"\033[2J\033]0;title\007\r\n\x9b1A\xc2\x9b\xff\0x"
    a("ACQUIRE", evil, "LEASE", "1h", "NOTE", evil)
    a("ACQUIRE", "b" * 200, "LEASE", "1h")
    top = top_of(t, s, columns=200)  # the emulator fails on what it does not know
    top.expect(r"^\\x1b\[2J\\x1b\]0;title\\x07\\x0d\\x0a\\x9b1A\\xc2\\x9b\\xff\\x00x +1/1")
    top.expect("^b+[+] ")
    top.type("\r")
    top.expect(r"^holds .*\\x1b\[2J")
    top.quit()
    p = t.sluice("top", "--server", at(s), "--once")
    check_that("\033" not in p.out and "\\x1b[2J" in p.out, "plain text is safe")
    p = t.sluice("top", "--server", at(s), "--once", "--json")
    check_that("\033" not in p.out, "JSON is safe")
    check(len(json.loads(p.out)["keys"]), 2)


@test
def columns_stay_in_place_after_wide_characters(t):
    s, a = serve(t).with_clients(1)
    for key in ("日本語", "e\u0301e\u0301", "plain", "日" * 100, "👍👍"):
        a("ACQUIRE", key, "PER", "2")
    top = top_of(t, s)
    lines = top.until(lambda _: len(keys_of(top)) == 5 and all(
        " 1/2 " in line for line in top.screen.lines[5:10]), "all are there")[5:10]
    # A wide character takes two cells, and the second one is empty in the text.
    ends = {top.screen.cells[i].index("/") for i in range(5, 10)}
    check(len(ends), 1, "the columns of %r" % lines)
    top.quit()


# --- Without a terminal -----------------------------------------------------------------


@test
def plain_text_is_for_scripts(t):
    s, a, b = serve(t).with_clients(2)
    a("ACQUIRE", "a" * 70, "LEASE", "1h")
    s.waits(b, "ACQUIRE", "a" * 70, "WAIT", "1h")
    p = t.sluice("top", "--server", at(s), "--once")
    check((p.status, p.err), (0, ""))
    check_that(re.search(r"^a{70} +1/1 +1 +\d+ ms 127", p.out, re.M), "keys are not cut: " + p.out)
    check_that("per second: grants -  releases -" in p.out, "there are no rates yet")
    p = t.sluice("top", "--server", at(s), *INTERVAL, "--count", "3")
    check((p.status, len(re.findall("^KEY ", p.out, re.M))), (0, 3))
    check_that("per second: grants 0.0" in p.out, "rates need two updates")


@test
def json_has_all_fields(t):
    s, a, b = serve(t).with_clients(2)
    fence = fence_of(a("ACQUIRE", "db", "PER", "3", "LEASE", "1h"))
    b("ACQUIRE", "x")
    p = t.sluice("top", "--server", at(s), *INTERVAL, "--count", "2", "--json")
    first, second = [json.loads(line) for line in p.out.splitlines()]
    check((first["grants_per_second"], second["grants_per_second"]), (None, 0.0))
    check({k: second[k] for k in ("server", "deployment", "ready", "clients", "locks", "waiters",
                                  "node", "complete")},
          {"server": at(s), "deployment": "single", "ready": True, "clients": 3, "locks": 2,
           "waiters": 0, "node": 0, "complete": True})
    lock = [k for k in second["keys"] if k["key"] == "db"][0]
    check((lock["held"], lock["capacity"], lock["holder"]["fence"]), (1, 3, fence))
    check_that(3500000 < lock["holder"]["lease_ms"] <= 3600000, "the lease is known: %r" % lock)


@test
def an_update_costs_few_commands_however_many_locks_there_are(t):
    s, a, b = serve(t).with_clients(2)
    a.send_raw(b"".join(b"ACQUIRE k%d LEASE 1h\r\n" % i for i in range(12000)))
    for _ in range(12000):
        a.reply()
    first, cursor, looks = set(), b"0", s.client(3)
    for _ in range(5):
        cursor, page = looks("LOCKS", "CURSOR", cursor, "COUNT", "1000")
        first |= {lock[b"key"] for lock in page}
    waited = next(k for k in (b"k%d" % i for i in range(12000)) if k not in first).decode()
    s.waits(b, "ACQUIRE", waited, "WAIT", "1h")
    before = s.number("total_commands_processed", a)
    p = t.sluice("top", "--server", at(s), "--once", "--json")
    got = json.loads(p.out)
    commands = s.number("total_commands_processed", a) - before
    # HELLO, CLIENT, INFO, READY, 5 and 1 LOCKS, 100 EXPLAIN, and our INFO.
    check_that(commands <= 2 + 2 + 6 + 100 + 1, "there were %d commands" % commands)
    check((got["complete"], got["keys"][0]["key"]), (False, waited), "waiters come first")
    check(len({k["key"] for k in got["keys"]}), len(got["keys"]), "no lock is there twice")
    p = t.sluice("top", "--server", at(s), "--once")
    check_that("and more; this list has at most 100" in p.out, "the text says so")


@test
def local_shows_a_segment(t):
    t.hold(key="two")
    t.hold("-j", "3", key="jobs")
    p = t.wait_for(key="two")
    t.until_waiting(1, key="two")
    q = t.sluice("top", "--local", "--once", "--json")
    got = json.loads(q.out)
    check((q.status, got["segment"]), (0, t.segment))
    check({k["key"]: (k["holders"], k["waiters"]) for k in got["keys"]},
          {"two": (1, 1), "jobs": (1, 0)})
    top = Top(t, "top", "--segment", t.segment, *INTERVAL)
    top.expect(r"^two +exclusive +1 +\d+ (ms|s) \w+ +\d+ (ms|s) +-$")
    top.expect(r"^jobs +1/3 +0 +- \w+")
    top.type("\r")
    top.expect(r"^holds \w+ \(pid \d+\)")
    top.expect(r"^waits \w+ \(pid %d\)" % p.pid)
    top.type("\033")
    os.unlink(t.segment)
    top.expect("^NO DATA: the segment was removed")
    top.quit()
    check(t.sluice("top", "--local", "--once").status, 66)


@test
def the_command_line_is_checked(t):
    for options, said in ((("--interval", "10ms"), "--interval must be a duration from 100ms"),
                          (("--count", "0"), "--count must be a number of at least 1"),
                          (("--segment", ""), "--segment: the name must not be empty"),
                          (("--local", "--server", "x"), "exclude --server"),
                          (("x",), "too many arguments; usage: sluice top [options]")):
        p = t.sluice("top", *options)
        check((p.status, said in p.err), (64, True), repr((options, p.err)))


@test
def a_server_that_cannot_be_used_is_an_error_at_the_start(t):
    p = t.sluice("top", "--server", "unix:" + t.path("none"))
    check((p.status, p.out), (69, ""))
    t.write("secret", "correct horse\n", 0o600)
    s = serve(t, "--password-file", t.path("secret"))
    check(t.sluice("top", "--server", at(s), "--once").status, 77)
    p = t.sluice("top", "--server", at(s), "--once", "--password-file", t.path("secret"))
    check((p.status, p.err), (0, ""))


@test
def a_server_that_sends_only_push_messages_does_not_delay_it_without_end(t):
    listener = socket.create_server(("127.0.0.1", 0))

    def flood():
        c, _ = listener.accept()
        try:
            c.recv(65536)
            c.sendall(b"%1\r\n$5\r\nproto\r\n:3\r\n")
            while True:
                c.sendall(b">3\r\n$7\r\nmessage\r\n$6\r\nlock:k\r\n$1\r\nx\r\n" * 100)
                time.sleep(0.01)
        except OSError:
            pass

    threading.Thread(target=flood, daemon=True).start()
    p = t.sluice("top", "--once", "--server", "127.0.0.1:%d" % listener.getsockname()[1])
    check(p.status, 69)
    check_that("the server did not answer in time" in p.out, p.out)


# --- Clusters ---------------------------------------------------------------------------


def cluster_shows(t, etcd, deployment):
    try:
        import redis  # noqa: F401 - a node uses it
        from nodes import Cluster, etcds
    except ImportError as e:
        raise Skip(str(e))
    if etcd and etcds.missing():
        raise Skip(etcds.missing())
    with Cluster(3, server_program(), etcd=etcd) as cluster:
        address = "%s:%d" % (cluster[2].host, cluster[2].port)
        p = t.sluice("top", "--server", address, "--once", "--json")
        check((p.status, p.err), (0, ""))
        got = json.loads(p.out)
        check((got["deployment"], got["node"], got["nodes"]), (deployment, 2, 3))
        check(got["keeper_node"] > 0, etcd > 0, "there is a keeper")
        p = t.sluice("top", "--server", address, "--once")
        pattern = (r"^node 2 of 3 \(\d others up\)  keeper: node \d  term \d+$" if etcd
                   else r"^node 2 of 3 \(\d others up\)$")
        check_that(re.search(pattern, p.out, re.M), "the text has it: " + p.out)
        env = {"SLUICE_SERVER": address}
        fence = t.sluice("do", "-q", "ACQUIRE", "free", "LEASE", "10s", env=env).out.split()[0]
        check(t.sluice("do", "RELEASE", "free", fence, env=env).status, 0)
        check(t.sluice("ls", "-q", env=env).out, "", "no lock is in use")
        p = t.sluice("top", "--once", env=env)
        check_that(re.search(r"^clients \d+  locks 0  holders 0  waiters 0$", p.out, re.M), p.out)
        check(json.loads(t.sluice("top", "--once", "--json", env=env).out)["locks"], 0)
        for key in ("one", "two"):
            t.sluice("do", "ACQUIRE", key, "LEASE", "10s", env=env)
        top = Top(t, "top", "--server", address, *INTERVAL)
        top.expect(r"^two +1/1 .* \d+ s$")
        os.kill(cluster[2].pid, signal.SIGKILL)
        top.expect("^NOT CONNECTED")
        top.quit()


test_of("a_majority_cluster_shows_its_nodes", cluster_shows, 0, "majority")
test_of("a_cluster_on_etcd_shows_its_keeper", cluster_shows, 1, "etcd")

main(__doc__)
