#!/usr/bin/env python3
"""test_completion.py SLUICE [--jobs N] [PATTERN...] - what TAB does, in a real bash and in
a real zsh.

The completions are those that were built next to SLUICE. A shell runs on a terminal of its
own; a line is typed, TAB is pressed, and a key that the shell binds for the test writes
the line as it is then into a file. So nothing depends on what a screen looks like.
"""
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import termios
import threading

import tap
from tap import Failure, Skip, check, check_that, main, test, test_of

# Keys that are hard to quote, each with a beginning that no other one has.
KEYS = ("plain", "two words", "co:lon", "co:lon:three", "it's", 'say"hi"', "a$HOME",
        "back\\slash", "bang!bang", "eq=al", "at@home", "glob*?[x]", "~tilde", "semi;colon",
        "par(en)", "tick`s", "pa/th/key", "umläut", "#hash", "three word key", "lt<gt>", "am&per|",
        "{br,ace}", "^caret", "percent%d")

CLEAR = "\x05\x15"  # ^E ^U: take the line away
TELL = "\x14"  # ^T: write the line to a file; bound by the shell's start-up file
SAID = "said() { printf '%s\\0' \"$@\" >$REPORT.new; mv $REPORT.new $REPORT; }"


def completion(name):
    """A completion that was built next to the program."""
    return os.path.join(os.path.dirname(tap.program), "completions", name)


def prepare(t, keys=()):
    """A PATH that has `sluice`, and a segment with some keys that are held."""
    os.mkdir(t.path("bin"))
    os.symlink(tap.program, t.path("bin/sluice"))
    os.environ["PATH"] = t.path("bin") + ":" + os.environ["PATH"]
    hold(t, t.segment, keys)


def hold(t, segment, keys):
    """Hold keys, all in one process each; they are there when this returns."""
    if not keys:
        return
    args = []
    for key in keys:
        args += [tap.program, "run", "-q", "-s", "--segment", segment, "--", key]
    p = t.start(*args, "sh", "-c", "echo up; read _", stdin=subprocess.PIPE)
    p.until_out("up\n")


# --- A shell on a terminal ----------------------------------------------------


class Shell:
    """An interactive shell, at its prompt."""

    def __init__(self, t, all_key, *args, env=None):
        """all_key: writes all that could stand there into the line."""
        self.t = t
        self.all_key = all_key
        self.report = t.path("report")
        self.screen = b""
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        env = dict(env or {}, REPORT=self.report, TERM="dumb", INPUTRC="/dev/null")
        self.process = t.start(*args, stdin=slave, stdout=slave, stderr=slave, env=env,
                               before=take_terminal)
        os.close(slave)
        t.transcripts.append(lambda: self.screen[-1500:].decode("utf-8", "replace"))
        threading.Thread(target=self.read_on, daemon=True).start()
        self.until_ready(lambda: b"READY>" in self.screen, "the shell is at its prompt")

    def read_on(self):
        while True:
            try:
                piece = os.read(self.master, 65536)
            except OSError:
                return
            self.screen += piece

    def reads_keys(self):
        """The line editor has the terminal: it gets each key, also ^U, as it is."""
        return not termios.tcgetattr(self.master)[3] & termios.ICANON

    def until_ready(self, condition, what):
        self.t.until(lambda: condition() and self.reads_keys() or not self.process.running,
                     what)
        check_that(self.process.running, "the shell lives")

    def press(self, text):
        data = text.encode()
        while data:
            data = data[os.write(self.master, data):]

    def all_of(self, text):
        """All that TAB could make of the last word of text."""
        line = self.line_after(text, self.all_key)
        check(line[:len(text.rpartition(" ")[0])], text.rpartition(" ")[0], "the beginning")
        return self.words_of("sluice " + line[len(text.rpartition(" ")[0]):])

    def stays(self, text):
        """TAB has nothing to say about text; zsh may begin an option."""
        check_that(self.line_after(text) in (text, text + "-"), "%r stays" % text)

    def line_after(self, text, keys="\t"):
        """The line after text was typed and keys were pressed. It is taken away again."""
        if os.path.exists(self.report):
            os.unlink(self.report)
        self.press(CLEAR + text + keys + TELL)
        self.until_ready(lambda: os.path.exists(self.report), "the line is told")
        with open(self.report) as f:
            return f.read()

    def words_of(self, line):
        """The words that a line gives to the program, without the program's name."""
        if os.path.exists(self.report):
            os.unlink(self.report)
        self.press(CLEAR + "said" + line[len("sluice"):] + "\r")
        self.until_ready(lambda: os.path.exists(self.report), "%r is executed" % line)
        with open(self.report) as f:
            return f.read().split("\0")[:-1]


def bash(t, *more, env=None, sourced=True):
    """bash, as a user has it who sources the file. more: lines that come after that."""
    source = "source '%s'; source '%s'" % (completion("sluice"), completion("sluice-server")) if sourced else ""
    rc = t.write("bashrc", "\n".join((source,) + more + (
        "PS1='READY>'",
        "unset HISTFILE",
        "bind 'set enable-bracketed-paste off' 'set bell-style none' 2>/dev/null",
        "bind 'set completion-query-items 0' 2>/dev/null",
        "bind 'set page-completions off' 2>/dev/null",
        # Written under another name first: it is complete when it is there.
        "tell() { printf %s \"$READLINE_LINE\" >$REPORT.new; mv $REPORT.new $REPORT; }",
        SAID,
        "bind -x '\"\\C-t\": tell'")) + "\n")
    return Shell(t, "\x1b*", "bash", "--noprofile", "--rcfile", rc, "-i", env=env)


def zsh(t, *more, env=None):
    """The same of zsh."""
    if shutil.which("zsh") is None:
        raise Failure("there is no zsh")
    os.mkdir(t.path("zdot"))
    os.mkdir(t.path("functions"))
    for name in ("_sluice", "_sluice-server"):
        os.symlink(completion(name), t.path("functions/" + name))
    t.write("zdot/.zshrc", "\n".join((
        "PS1='READY>'",
        "bindkey -e; unsetopt beep",
        "fpath=(%s $fpath)" % t.path("functions"),
        "autoload -U compinit; compinit -u -D",
        "tell() { print -rn -- \"$BUFFER\" >$REPORT.new; mv $REPORT.new $REPORT }",
        SAID,
        "zle -N tell; bindkey '^T' tell",
        # ^O writes all matches into the line.
        "zle -C all-matches complete-word _generic; bindkey '^O' all-matches",
        "zstyle ':completion:all-matches:*' completer _all_matches _complete",
        "zstyle ':completion:all-matches:*' insert true",
        "LISTMAX=10000", "setopt no_list_ambiguous no_auto_menu") + more) + "\n")
    # -o noglobalrcs: nothing of this machine.
    return Shell(t, "\x0f", "zsh", "-o", "noglobalrcs", "-i",
                 env=dict(env or {}, ZDOTDIR=t.path("zdot")))


# --- Keys, as they are typed --------------------------------------------------


def bare(text):
    safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZä0123456789:=@%/+-_."
    return "".join(c if c in safe else "\\" + c for c in text)


def single(text):
    return "'" + text.replace("'", "'\\''")


def double(text):
    quoted = "".join("\\" + c if c in '\\"$`' else c for c in text)
    return '"' + quoted.replace("!", "\"'!'\"")


# How one may begin to type a word.
STYLES = {"bare": bare, "in_single_quotes": single, "in_double_quotes": double}


def beginnings(key):
    """Beginnings of a key that no other key has: the shortest, a longer one, and all."""
    shared = max(len(os.path.commonprefix([key, k])) for k in KEYS if k != key)
    return sorted({key[:shared + 1], key[:shared + 2], key})


def keys_complete(t, start, before, style):
    prepare(t, KEYS)
    sh = start(t)
    for key in KEYS:
        if any(k != key and k.startswith(key) for k in KEYS):
            continue
        for begun in beginnings(key):
            typed = STYLES[style](begun)
            # zsh does not complete words where a quote was closed and opened again.
            if start == zsh and style != "bare" and typed.count(typed[0]) > 1:
                continue
            typed = "sluice run " + before + typed
            line = sh.line_after(typed)
            check(sh.words_of(line)[1:], before.split() + [key],
                  "%r and TAB give %r, which" % (typed, line))
            check(line[-1:], " ", "the last character of %r" % line)


def odd_bash(t):
    """With settings that break careless code."""
    return bash(t, "set -u", "shopt -s nullglob failglob nocasematch",
                "COMP_WORDBREAKS=${COMP_WORDBREAKS//[:=]/}", "IFS=:")


for style in STYLES:
    test_of("bash_completes_keys_" + style, keys_complete, bash, "", style)
    test_of("bash_of_odd_settings_completes_keys_" + style, keys_complete, odd_bash, "", style)
    test_of("zsh_completes_keys_" + style, keys_complete, zsh, "", style)
for start in (bash, zsh):
    test_of(start.__name__ + "_completes_keys_behind_options", keys_complete, start,
            "-n -w 5 ", "bare")


# --- The same for both --------------------------------------------------------


def both(f):
    """Register a test for bash and for zsh."""
    test_of("bash_" + f.__name__, f, bash)
    test_of("zsh_" + f.__name__, f, zsh)
    return f


def commands_of_help(t):
    """The commands that `sluice help` lists: "canal ls"."""
    lines = t.sluice("help").out.splitlines()
    return [line[2:16].strip() for line in lines if line.startswith("  ")]


def options_of_help(t, command):
    """Of `sluice help COMMAND`: a list of (names, argument or None, help)."""
    found = []
    for line in t.sluice("help", *command.split()).out.splitlines():
        if line.startswith("  -") or line.startswith("      --"):
            left, text = line[2:30], line[30:]
            if len(line) > 29 and line[29] != " ":  # the text is on the next line
                left, text = line[2:], ""
            names = [w for w in left.replace(", ", " ").split() if w.startswith("-")]
            rest = [w for w in left.split() if not w.startswith("-")]
            found.append((names, rest[0] if rest else None, text))
        elif line.startswith(" " * 30):  # more of the same
            names, rest, text = found.pop()
            found.append((names, rest, (text + " " + line[30:]).strip()))
        elif found:
            break
    check_that(found, "help of %s names options" % command)
    return found


@both
def completes_commands(t, start):
    prepare(t)
    sh = start(t)
    commands = commands_of_help(t)
    firsts = sorted({c.split()[0] for c in commands})
    seconds = sorted(c.split()[1] for c in commands if c.startswith("canal "))
    others = sorted(c.split()[1] for c in commands if c.startswith("store "))
    check_that("ls" in seconds and "check" in others and "run" in firsts, "there are commands")
    check(sorted(sh.all_of("sluice ")), firsts)
    check(sorted(sh.all_of("sluice canal ")), seconds)
    check(sorted(sh.all_of("sluice store ")), others)
    check(sorted(sh.all_of("sluice help ")), firsts)
    check(sorted(sh.all_of("sluice help canal ")), seconds)
    check(sh.line_after("sluice ru"), "sluice run ")
    check(sh.line_after("sluice canal wa"), "sluice canal watch ")
    sh.stays("sluice help run ")
    sh.stays("sluice help canal ls ")
    sh.stays("sluice canal ls ")
    sh.stays("sluice version ")
    sh.stays("sluice nonsense ")
    sh.stays("sluice canal nonsense ")


@both
def completes_the_options_of_each_command_and_no_others(t, start):
    prepare(t)
    sh = start(t)
    for command in commands_of_help(t):
        wanted = {}
        for names, arg, _ in options_of_help(t, command):
            wanted.update((name, arg) for name in names)
        offered = set(sh.all_of("sluice %s -" % command))
        check(set(wanted) - offered, set(), "what is missing of " + command)
        # zsh offers other names of the same too. The program must know them.
        for name in offered - set(wanted):
            known = [t.sluice(*command.split(), name, *value, "--help").status == 0
                     for value in ([], ["1"])]
            check(any(known), True, "%s %s is known" % (command, name))


def completes_settings(t, start):
    os.mkdir(t.path("etc"))
    t.write("etc/sluice.conf", "")
    sh = start(t)
    wanted = {name for names, _, _ in options_of_help(t, "serve") for name in names}
    check(wanted - set(sh.all_of("sluice-server -")), set(), "options that are missing")
    check(sh.line_after("sluice-server --lease-ma").rstrip("= "), "sluice-server --lease-max")
    check(sh.line_after("sluice-server --port 0 --boots"), "sluice-server --port 0 --bootstrap ")
    check(sh.line_after("sluice-server --bootstrap --no-such"), "sluice-server --bootstrap --no-such")
    check(sh.line_after("sluice-server --engine l"), "sluice-server --engine lmdb ")
    check(sh.line_after("sluice-server --engine=e"), "sluice-server --engine=etcd ")
    check(sorted(sh.all_of("sluice-server --log-level ")), ["debug", "error", "info", "warn"])
    check(sh.line_after("sluice-server --config et"), "sluice-server --config etc/")
    check(sh.line_after("sluice-server --config=etc/sl"), "sluice-server --config=etc/sluice.conf ")
    sh.stays("sluice-server --port ")


test_of("bash_completes_the_settings_of_the_server", completes_settings, bash)
test_of("bash_of_odd_settings_completes_the_settings_of_the_server", completes_settings, odd_bash)
test_of("zsh_completes_the_settings_of_the_server", completes_settings, zsh)


@both
def completes_other_names_of_options(t, start):
    prepare(t)
    sh = start(t)
    check(sh.line_after("sluice run --timeo").rstrip("= "), "sluice run --timeout")
    check(sh.line_after("sluice run --nonblocki"), "sluice run --nonblocking ")
    check(sh.line_after("sluice run --exc"), "sluice run --exclusive ")
    check(sh.line_after("sluice --vers"), "sluice --version ")


@both
def asks_the_segment_that_the_line_names(t, start):
    prepare(t, ["own-key"])
    os.mkdir(t.path("di r"))
    other = t.path("di r/seg:ment")
    hold(t, other, ["other-key"])
    name = t.name()
    hold(t, name, ["named-key"])
    sh = start(t)
    quoted = bare(other)
    for words, key in (("", "own-key"), ("-n ", "own-key"), ("-w5 ", "own-key"),
                       ("-nqw 5 ", "own-key"), ("--wait=5 ", "own-key"),
                       ("-E 3 --local ", "own-key"), ("-- ", "own-key"),
                       ("--segment %s " % quoted, "other-key"),
                       ("--segment=%s -n " % quoted, "other-key"),
                       ("-n --segment '%s' -j 3 " % other, "other-key"),
                       ('-n --segment "%s" -j 3 ' % other, "other-key"),
                       ("--segment ~/di\\ r/seg:ment ", "other-key"),
                       ('--segment "$HOME/di r/seg:ment" ', "other-key"),
                       ("--segment=${HOME}/di\\ r/seg:ment ", "other-key"),
                       ("--segment %s " % name, "named-key"),
                       ("--segment=%s " % name, "named-key")):
        check(sh.all_of("sluice run " + words), [key], words)
    for segment, key in ((t.segment, "own-key"), (quoted, "other-key"), (name, "named-key")):
        check(sh.all_of("sluice canal show --segment %s " % segment), [key])
        check(sh.all_of("sluice canal show --json --segment %s " % segment), [key])
        check(sh.all_of("sluice canal show --segment %s -q " % segment), [key])
    check(sh.all_of("sluice canal show "), ["own-key"])
    sh.stays("sluice canal show own-key ")


@both
def without_a_segment_says_nothing_and_makes_nothing(t, start):
    prepare(t)
    sh = start(t)
    sh.stays("sluice run ")
    sh.stays("sluice run --segment nosuch-%s " % t.unique)
    sh.stays("sluice run --segment %s/nosuch/file " % t.dir)
    check(os.path.exists(t.segment), False, "the segment exists")
    check_that(b"such" not in sh.screen.replace(b"nosuch", b""), "no message was shown")


def with_server(t, name, *keys):
    """A server with some keys that are held; returns its address."""
    program = os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")
    s = t.start(program, "--port", "0", "--socket", t.path(name))
    s.until_err("ready: sluice")
    for key in keys:
        check(t.sluice("do", "--server", "unix:" + t.path(name), "ACQUIRE", key, "LEASE", "1h").status, 0)
    return "unix:" + t.path(name)


@both
def completes_keys_and_drained_patterns_of_a_server(t, start):
    prepare(t, ["local-key"])
    own = with_server(t, "own", *("own-" + key for key in KEYS))
    other = with_server(t, "oth er", "other:key")
    for address, pattern in ((own, "db:*"), (other, "we[bc]")):
        check(t.sluice("drain", "--server", address, pattern, "on").status, 0)
    sh = start(t, env={"SLUICE_SERVER": own})
    for command in ("explain", "break", "run", "explain --json", "run -n -w 5", "acquire", "release", "hold -n"):
        check(sorted(sh.all_of("sluice %s own-p" % command)),
              ["own-pa/th/key", "own-par(en)", "own-percent%d", "own-plain"], command)
        line = sh.line_after("sluice %s own-two" % command)
        check(sh.words_of(line)[-1], "own-two words", line)
        for words in ("--server %s " % bare(other), "--server=%s " % bare(other), "--server '%s' " % other):
            check(sh.all_of("sluice %s %s" % (command, words)), ["other:key"], words)
        sh.stays("sluice %s --server unix:%s " % (command, t.path("nobody")))
    for command in ("explain", "run"):
        check(sh.all_of("sluice %s --local " % command), ["local-key"])
        check(sh.all_of("sluice %s --local --segment %s " % (command, t.segment)), ["local-key"])
    check(sh.all_of("sluice canal show "), ["local-key"])
    check(sh.all_of("sluice drain "), ["db:*"])
    check(sh.all_of("sluice drain --server %s " % bare(other)), ["we[bc]"])
    check(sorted(sh.all_of("sluice drain x ")), ["off", "on"])
    sh.stays("sluice drain x on ")
    sh.stays("sluice ls own-")
    check(t.sluice("drain", "--server", own, "db:*", "off").status, 0)


@both
def a_server_that_does_not_reply_completes_nothing(t, start):
    prepare(t, ["local-key"])
    listener = socket.create_server(("127.0.0.1", 0))  # It accepts, and says nothing.
    sh = start(t, env={"SLUICE_SERVER": "127.0.0.1:%d" % listener.getsockname()[1]})
    for words in ("explain ", "break ", "run ", "drain "):
        sh.stays("sluice " + words)
    check_that(b"reply" not in sh.screen and b"cannot" not in sh.screen, "no message was shown")
    sh = start(t) if start == bash else None  # The name of no server: the default one may not run.
    if sh is not None:
        check(sh.all_of("sluice run "), ["local-key"])


@both
def a_server_with_a_password_is_asked_with_the_password_file(t, start):
    prepare(t)
    program = os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")
    s = t.start(program, "--port", "0", "--socket", t.path("socket"), "--password", "secret word")
    s.until_err("ready: sluice")
    file = t.write("password", "secret word\n", 0o600)
    address = "unix:" + t.path("socket")
    check(t.sluice("do", "--server", address, "--password-file", file, "ACQUIRE", "kept", "LEASE", "1h").status, 0)
    sh = start(t, env={"SLUICE_SERVER": address})
    sh.stays("sluice explain ")
    check(sh.all_of("sluice explain --password-file %s " % file), ["kept"])


@both
def runs_nothing_that_is_typed(t, start):
    prepare(t, ["key"])
    sh = start(t)
    for trap in ("$(touch evil)", "`touch evil`", '"$(touch evil)"', "'$(touch evil)'",
                 "~/x(e:touch\\ evil:)", "${x:=$(touch evil)}"):
        sh.line_after("sluice run --segment %s " % trap)
        sh.line_after("sluice run --segment=%s " % trap)
        sh.line_after("sluice explain --server %s " % trap)
        sh.line_after("sluice drain --password-file=%s " % trap)
        if start == bash:  # zsh itself expands the word that TAB is pressed in
            sh.line_after("sluice run " + trap)
        sh.line_after("sluice run -w %s k" % trap)
        sh.line_after("sluice canal show %s " % trap)
    check(sh.words_of("sluice done"), ["done"])
    check(os.path.exists(t.path("evil")), False, "something was run")


@both
def completes_segments_by_name_and_by_path(t, start):
    prepare(t)
    one, two = t.name("-one"), t.name("-two")
    for name in (one, two):
        check(t.sluice("canal", "make", name).status, 0)
    os.mkdir(t.path("directory"))
    check(t.sluice("canal", "make", t.path("directory/inside")).status, 0)
    sh = start(t)
    both_names = sorted([one, two])
    for words in ("run --segment ", "canal show --segment ", "canal watch ", "canal reap ",
                  "canal rm ", "canal rm a b c ", "canal make --keys 5 "):
        check(sorted(sh.all_of("sluice %s%s" % (words, t.unique))), both_names, words)
        check(sh.line_after("sluice %s%s-o" % (words, t.unique)),
              "sluice %s%s " % (words, one))
        check(sh.line_after("sluice %s./directory/in" % words),
              "sluice %s./directory/inside " % words)
    check(sh.line_after("sluice run --segment=%s-o" % t.unique),
          "sluice run --segment=%s " % one)
    check(sh.line_after("sluice run --segment=./directory/in"),
          "sluice run --segment=./directory/inside ")
    check(sh.line_after("sluice canal watch ~/directory/in"), "sluice canal watch ~/directory/inside ")


@both
def has_no_guess_for_numbers_and_times(t, start):
    prepare(t, ["key"])
    t.write("file", "")
    sh = start(t)
    for words in ("-j", "--per", "-w", "--timeout", "-E", "--mode", "--grace", "-nw", "-c"):
        sh.stays("sluice run %s " % words)
    for words in ("--wait=", "-j4"):
        sh.stays("sluice run " + words)
    sh.stays("sluice canal make --keys ")
    sh.stays("sluice canal watch --interval ")


@both
def completes_what_the_settings_of_the_server_are(t, start):
    prepare(t)
    t.write("settings.conf", "")
    sh = start(t)
    check(sh.line_after("sluice serve --conf").rstrip("= "), "sluice serve --config")
    check(sh.line_after("sluice serve --config setti"), "sluice serve --config settings.conf ")
    check(sh.line_after("sluice serve --config=setti"), "sluice serve --config=settings.conf ")
    check(sorted(sh.all_of("sluice serve --log-level ")), ["debug", "error", "info", "warn"])
    check(sh.line_after("sluice serve --port 0 --log-format=j"),
          "sluice serve --port 0 --log-format=json ")
    for words in ("--port ", "--bind=", "", "--check ", "--log-level info "):
        sh.stays("sluice serve " + words)


@both
def completes_commands_of_the_server_and_their_options(t, start):
    prepare(t)
    sh = start(t)
    with open(os.path.join(os.path.dirname(__file__), "../../src/commands.def")) as f:
        names = re.findall(r"^COMMAND\(([\w.]+),", f.read(), re.M)
    check_that("ACQUIRE" in names and "TX.BEGIN" in names, "commands.def lists commands")
    check(sorted(sh.all_of("sluice do ")), sorted(names))
    check(sh.line_after("sluice do -q ACQ"), "sluice do -q ACQUIRE ")
    check(sh.line_after("sluice do acq"), "sluice do acquire ", "as it was begun")
    check(sh.line_after("sluice do -p 1 ACQUIRE key LEA"), "sluice do -p 1 ACQUIRE key LEASE ")
    check(sh.line_after("sluice do acquire key lea"), "sluice do acquire key lease ")
    check(sorted(sh.all_of("sluice do AWAIT key ")), ["FREE", "HELD"])
    check(sorted(sh.all_of("sluice do NODES ")), ["ADD", "REMOVE", "RESIGN"])
    for line in ("sluice do ACQUIRE ", "sluice do ACQUIRE L", "sluice do EXTEND key 1 V",
                 "sluice do PING X", "sluice do NONSENSE x"):
        sh.stays(line)
    check(sh.line_after("sluice do EXTEND key 1 2 V"), "sluice do EXTEND key 1 2 VALUE ")


PROGRAM = "frobnicate"


def with_program(t, start, *more):
    """A shell that has a program of its own to complete, and what is like one."""
    prepare(t, ["k", "co:lon"])
    t.script("bin/" + PROGRAM, "#!/bin/sh\n")
    t.script("bin/frob-echo", "#!/bin/sh\n")
    t.write("some file", "")
    return start(t, "frob_function() { :; }", "alias frobalias=true", *more)


@both
def completes_programs_behind_the_key(t, start):
    sh = with_program(t, start)
    for words in ("k ", "-n k ", "co:lon ", "k -- ", "-- k ", "-j 3 -- k -- "):
        check(sh.line_after("sluice run %sfrobn" % words),
              "sluice run %s%s " % (words, PROGRAM))
        check(sorted(set(sh.all_of("sluice run %sfrob" % words))), ["frob-echo", PROGRAM],
              "programs behind " + words)
    check(sorted(sh.all_of("sluice run k -")), ["--", "--command", "-c"])
    check(sh.line_after("sluice run k ./bin/frobn"), "sluice run k ./bin/%s " % PROGRAM)
    check(sh.line_after("sluice run k -- ./bin/frobn"), "sluice run k -- ./bin/%s " % PROGRAM)
    sh.stays("sluice run k -c ")
    sh.stays("sluice run k -c 'frobn")
    check_that("echo" in sh.all_of("sluice run k ech"), "echo, which is a program too")
    check_that("cd" not in sh.all_of("sluice run k c"), "cd, which is none")


@both
def completes_files_for_a_program_that_has_no_completion(t, start):
    sh = with_program(t, start)
    for words in ("k ", "k -- "):
        line = "sluice run %s%s" % (words, PROGRAM)
        check(sh.line_after(line + " some"), line + " some\\ file ")
        check(sh.line_after(line + " -v 'some"), line + " -v 'some file' ")


@test
def bash_continues_with_the_completion_of_the_program(t):
    sh = with_program(
        t, bash, "complete -W 'alpha beta gamma' " + PROGRAM,
        '_echo() { COMPREPLY=("at$COMP_CWORD-${#COMP_WORDS[@]}-$1-$2-$3"); }',
        "complete -o nospace -F _echo frob-echo")
    for words in ("k ", "co:lon ", "k -- ", "'k' -- ", "-w 3 'co:lon' -- ", "-- co:lon "):
        line = "sluice run " + words
        check(sh.line_after(line + PROGRAM + " al"), line + PROGRAM + " alpha ")
        check(sh.all_of(line + PROGRAM + " "), ["alpha", "beta", "gamma"])
        check(sh.line_after(line + "frob-echo x y"),
              line + "frob-echo x at2-3-frob-echo-y-x")
    check(sh.line_after("sluice run k ./bin/frobnicate al"),
          "sluice run k ./bin/frobnicate alpha ")


@test
def bash_loads_the_completion_of_the_program(t):
    sh = with_program(
        t, bash, "_load() { complete -W loaded-for-$1 $1; return 124; }",
        "complete -D -F _load")
    check(sh.line_after("sluice run co:lon -- frobnicate lo"),
          "sluice run co:lon -- frobnicate loaded-for-frobnicate ")


@test
def zsh_continues_with_the_completion_of_the_program(t):
    sh = with_program(
        t, zsh, "_echo() { compadd -S '' -- at$CURRENT-$#words-$words[1]-$words[2] }",
        "_words() { compadd -- alpha beta gamma }", "compdef _words " + PROGRAM,
        "compdef _echo frob-echo")
    for words in ("k ", "co:lon ", "k -- ", "'k' -- ", "-w 3 'co:lon' -- ", "-- co:lon "):
        line = "sluice run " + words
        check(sh.line_after(line + PROGRAM + " al"), line + PROGRAM + " alpha ")
        check(sh.all_of(line + PROGRAM + " "), ["alpha", "beta", "gamma"])
        check(sh.line_after(line + "frob-echo x a"), line + "frob-echo x at3-3-frob-echo-x")
    check(sh.line_after("sluice run k ./bin/frobnicate al"),
          "sluice run k ./bin/frobnicate alpha ")


@both
def completes_a_run_inside_of_a_run(t, start):
    prepare(t, ["in:side", "outside"])
    sh = start(t)
    check(sh.line_after("sluice run outside -- sluice ru"), "sluice run outside -- sluice run ")
    check(sh.line_after("sluice run in:side sluice run -n in:s"),
          "sluice run in:side sluice run -n in:side ")
    check(sorted(sh.all_of("sluice run in:side -- sluice canal r")), ["reap", "rm"])


@both
def completes_in_the_middle_of_a_line(t, start):
    prepare(t, ["co:lon", "plain"])
    sh = start(t)
    left = "\x1b[D"
    line = sh.line_after("sluice run co:l -- true", 8 * left + "\t")
    check(line.split(), "sluice run co:lon -- true".split())
    check(sh.line_after("true; sluice run pl", "\t"), "true; sluice run plain ")
    check(sh.line_after("X=1 sluice run pl", "\t"), "X=1 sluice run plain ")


@both
def knows_the_program_by_its_path(t, start):
    prepare(t, ["plain"])
    sh = start(t)
    check(sh.line_after("./bin/sluice run pl"), "./bin/sluice run plain ")
    check(sh.line_after("~/bin/sluice run pl"), "~/bin/sluice run plain ")


# --- Of one shell alone -------------------------------------------------------


@test
def zsh_shows_the_help_of_each_option(t):
    prepare(t)
    sh = zsh(t)
    for command in commands_of_help(t):
        options = options_of_help(t, command)
        sh.screen = b""
        sh.line_after("sluice %s -" % command, "\x04")  # ^D: list
        for names, _, text in options:
            if command == "serve":  # zsh leaves out defaults, and what is too long
                text = re.sub(r" \([^)]*\)$", "", text)[:60]
            t.until(lambda: text.encode() in sh.screen, "%s: %r is shown" % (names, text))


@test
def zsh_shows_what_commands_do(t):
    prepare(t)
    sh = zsh(t)
    sh.line_after("sluice ", "\x04")
    sh.line_after("sluice canal ", "\x04")
    sh.line_after("sluice store ", "\x04")
    sh.line_after("sluice journal ", "\x04")
    for line in t.sluice("help").out.splitlines():
        if line.startswith("  "):
            text = line[17:].encode()
            t.until(lambda: text in sh.screen, "%r is shown" % text)


def with_package(t, *more):
    """bash with the package bash-completion, which finds our file by itself."""
    package = "/usr/share/bash-completion/bash_completion"
    if not os.path.exists(package):
        raise Skip("there is no package bash-completion")
    os.makedirs(t.path("user/completions"))
    os.symlink(completion("sluice"), t.path("user/completions/sluice"))
    return bash(t, "source " + package, *more, sourced=False,
                env={"BASH_COMPLETION_USER_DIR": t.path("user")})


@test
def bash_with_the_package_bash_completion_finds_it(t):
    prepare(t, ["co:lon", "two words"])
    sh = with_package(t)
    check(sh.line_after("sluice ru"), "sluice run ")
    check(sh.line_after("sluice run co:l"), "sluice run co:lon ")
    check(sh.line_after("sluice run tw"), "sluice run two\\ words ")


@test
def bash_with_the_package_bash_completion_loads_that_of_the_program(t):
    sh = with_program(t, with_package)
    t.write("user/completions/" + PROGRAM,
            "_frobnicate() { local cur; _get_comp_words_by_ref -n : cur\n"
            "COMPREPLY=($(compgen -W 'alpha beta' -- \"$cur\")); } && "
            "complete -F _frobnicate frobnicate\n")
    for words in ("k ", "co:lon -- "):
        check(sh.line_after("sluice run %sfrobnicate x al" % words),
              "sluice run %sfrobnicate x alpha " % words)


DRIVER = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$(($# - 2))
COMP_LINE="${*:2}"
COMP_POINT=${#COMP_LINE}
_sluice sluice "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@test
def bash_can_be_asked_without_a_terminal(t):
    prepare(t, ["plain", "two words"])

    def ask(*words):
        p = t.run("bash", "-c", DRIVER, "bash", completion("sluice"), *words)
        check((p.status, p.err), (0, ""), "what asking says")
        return p.out.split("\n")[:-1]

    check(ask("sluice", "ca"), ["canal"])
    check(ask("sluice", "canal", "r"), ["reap", "rm"])
    check(ask("sluice", "run", ""), ["plain", "two\\ words"])
    check(ask("sluice", "run", "'tw"), ["two words"])
    check(ask("sluice", "run", "-n", "pl"), ["plain"])
    check(ask("sluice", "run", "--seg"), ["--segment"])
    check(ask("sluice", "run", "-j", ""), [""])


main(__doc__)
