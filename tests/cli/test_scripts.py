#!/usr/bin/python3
"""test_scripts.py SLUICE [--jobs N] [PATTERN...] - `sluice acquire`, `extend`, `release` and `hold`, in scripts of
several shells; against the server that was built next to SLUICE.

A script must never believe that it holds a lock that it does not hold."""
import errno
import json
import os
import re
import shutil
import signal
import sys

import tap
from tap import Skip, alive, check, check_that, main, test, test_of

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster/lib")]
from nodes import Cluster  # noqa: E402

SHELLS = {"sh": ["sh"], "dash": ["dash"], "bash": ["bash"], "posix_bash": ["bash", "--posix"],
          "zsh": ["zsh", "--emulate", "sh", "-f"]}
HOSTILE = {"quote": "it's", "quotes": "''\"'\"", "newline": "a\nb", "last_newline": "a\n", "command": "$(echo x >ran)",
           "backtick": "`echo x >ran`", "semicolon": "'; echo x >ran; '", "backslash": "\\'\\\\", "glob": "* ?[a]",
           "variable": "${HOME}$$", "minus": "-n", "brace": "} ; {", "umlaut": "ü", "bytes": b"\xff\xfe'\x01",
           "longest": "'" * 255}


class Scene:
    """A server, and scripts that use it."""

    def __init__(self, t, *options):
        self.t = t
        self.socket = t.path("server")
        self.options = ("--port", "0", "--socket", self.socket, "--data", t.path("data")) + options
        os.mkdir(t.path("bin"))
        os.mkdir(t.path("data"))
        os.symlink(tap.program, t.path("bin/sluice"))
        self.env = {"PATH": t.path("bin") + ":" + os.environ["PATH"], "SLUICE_SERVER": "unix:" + self.socket}
        self.start()

    def start(self):
        program = os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")
        self.server = self.t.start(program, *self.options)
        self.server.until_err("ready: sluice")

    def stop(self):
        self.server.kill()
        self.server.status

    def begin(self, *args, **more):
        more["env"] = dict(self.env, **more.get("env", {}))
        return self.t.begin(*args, **more)

    def sluice(self, *args, **more):
        p = self.begin(*args, **more)
        p.status  # waits
        return p

    def script(self, shell, text, **more):
        """Run a script."""
        p = self.begin_script(shell, text, **more)
        p.status  # waits
        return p

    def begin_script(self, shell, text, **more):
        words = SHELLS[shell]
        if shutil.which(words[0]) is None:
            raise Skip("there is no " + words[0])
        more["env"] = dict(self.env, **more.get("env", {}))
        return self.t.start(*words, self.t.write("script.%d" % self.t.started, text), **more)

    def explain(self, key="k"):
        p = self.sluice("do", "--json", "EXPLAIN", key)
        check(p.status, 0, "EXPLAIN: " + p.err)
        self.t.processes.pop()
        return json.loads(p.out)

    def held(self, key="k"):
        return self.explain(key)["held"]

    def waiters(self, key="k"):
        return len(self.explain(key)["waiters"])

    def take(self, key="k", lease="60s", *options):
        p = self.sluice("do", "-q", "ACQUIRE", key, "LEASE", lease, *options)
        check(p.status, 0, p.err)
        return int(p.out.split()[0])

    def until_free(self, key="k"):
        self.t.until(lambda: self.held(key) == 0, "the lock is free")


def variables(text):
    """The variables in the output of `env`."""
    return dict(line.split("=", 1) for line in text.splitlines() if line.startswith("SLUICE_LOCK_"))


# --- Failures ------------------------------------------------------------------


FAILURES = {  # the exit status, and the arguments
    "taken": (1, "-n k"),
    "timeout": (1, "-w 100ms k"),
    "no_server": (69, "--server unix:nowhere k"),
    "wrong_password": (77, "--password-file wrong k"),
    "no_password_file": (66, "--password-file nothing k"),
    "bad_address": (64, "--server http://h k"),
    "unknown_option": (64, "--nonsense k"),
    "bad_value": (64, "--lease 1x k"),
    "no_key": (64, ""),
    "empty_key": (64, "''"),
    "two_keys": (64, "k l"),
    "help": (64, "--help k"),
    "json": (64, "--json k"),
    "unit_limit": (64, "-j 4294967295 k"),
}

# What a script does with the text. None of them may print HELD.
USES = {
    "plain": 'eval "$(%s)"\nstatus=$?\necho "[$SLUICE_LOCK_HELD$SLUICE_LOCK_FENCE]"\nexit $status\n',
    "errexit": 'set -e\neval "$(%s)"\necho HELD\n',
    "or": 'eval "$(%s)" || exit\necho HELD\n',
    "if": 'if eval "$(%s)"; then echo HELD; else exit; fi\n',
    "two_lines": 'lock=$(%s) || exit\neval "$lock"\necho HELD\n',
    "errexit_two_lines": 'set -e\nlock=$(%s)\neval "$lock"\necho HELD\n',
    "in_a_function": 'f() { eval "$(%s)" || return; echo HELD; }\nf\n',
}


def fails(t, shell, name):
    """Each failure has a test of its own, because mutants need quick tests."""
    status, args = FAILURES[name]
    s = Scene(t, "--password", "right and long")
    t.write("wrong", "wrong and long\n", 0o600)
    s.env["SLUICE_PASSWORD"] = "right and long"
    s.take()
    outer = {"SLUICE_LOCK_HELD": "1", "SLUICE_LOCK_FENCE": "7", "SLUICE_LOCK_KEY": "outer"}
    for use, text in USES.items():
        for command in ("acquire --shell", "hold --shell --pid $$"):
            p = s.script(shell, text % ("sluice %s %s" % (command, args)), env=outer)
            check((p.status, p.out), (status, "[]\n" if use == "plain" else ""), "%s, %s: %s" % (command, use, p.err))
            if name != "help":
                check_that(p.err.startswith("sluice " + command.split()[0]), "there is a message: " + p.err)


for shell in SHELLS:
    for name in FAILURES:
        test_of("%s_is_a_failure_in_%s" % (name, shell), fails, shell, name)


def cut_text(t, shell):
    """Each part of the text fails and sets no variable."""
    s = Scene(t)
    for args, held in ((("-n", "it's"), True), (("-n", "it's"), False)):
        p = s.sluice("acquire", "--shell", *args)
        check(p.status, 0 if held else 1)
        text = p.out.rstrip("\n")
        check_that(len(text.encode()) < 4096, "a pipe takes it at once")
        t.write("text", text)
        script = ('text=$(cat text)\nn=1\nwhile [ $n -lt %d ]; do\n'
                  'part=$(printf "%%.${n}s" "$text")\n'
                  '(eval "$part"; [ $? = 0 ] && echo "passed: $part"; echo "${SLUICE_LOCK_HELD-}") 2>/dev/null\n'
                  'n=$((n + 1))\ndone\n' % len(text))
        p = s.script(shell, script)
        check((p.status, p.out.replace("\n", "")), (0, ""), "no part is taken for a lock")


for shell in SHELLS:
    test_of("a_text_that_is_cut_off_fails_in_" + shell, cut_text, shell)


@test
def a_missing_program_is_a_failure_with_exit_or_echo_false(t):
    s = Scene(t)
    os.unlink(t.path("bin/sluice"))
    for use in ("two_lines", "errexit_two_lines"):
        p = s.script("sh", USES[use] % "sluice acquire --shell k")
        check((p.status, p.out), (127, ""), use)
    p = s.script("sh", USES["or"] % "sluice acquire --shell k || echo false")
    check((p.status, p.out), (1, ""), "one line with echo false")


@test
def without_shell_prints_the_fence_alone(t):
    s = Scene(t)
    p = s.sluice("acquire", "k")
    check((p.status, p.err), (0, ""))
    check(p.out, "%d\n" % s.explain()["holders"][0]["fence"])
    p = s.sluice("acquire", "-n", "k")
    check((p.status, p.out), (1, ""))
    p = s.sluice("acquire", "--json", "--lease", "5s", "it\"s")
    check(json.loads(p.out), {"key": "it\"s", "server": s.env["SLUICE_SERVER"], "lease_ms": 5000,
                              "fence": s.explain("it\"s")["holders"][0]["fence"]})


# --- Success --------------------------------------------------------------------


def hostile_keys(t, shell):
    s = Scene(t)
    for name, key in HOSTILE.items():
        key = key if isinstance(key, bytes) else key.encode()
        for command in ("acquire --shell", "hold --shell --pid $$"):
            text = ('lock=$(sluice %s -- "$KEY") || exit\neval "$lock" || exit 3\n'
                    '[ "$KEY" = "$SLUICE_LOCK_KEY" ] || exit 4\nenv >seen\nsluice release || exit 5\n')
            p = s.script(shell, text % command, env={"KEY": os.fsdecode(key)})
            check((p.status, p.err, t.read("ran")), (0, "", ""), "%s %s" % (command, name))
            t.processes.pop()


for shell in SHELLS:
    test_of("any_key_is_quoted_in_" + shell, hostile_keys, shell)


@test
def the_script_gets_the_variables_of_its_own_lock(t):
    s = Scene(t)
    outer = {"SLUICE_LOCK_" + name: "outer" for name in ("KEY", "SLOT", "SEGMENT", "NTH", "FD", "SESSION", "PID")}
    p = s.script("sh", 'eval "$(sluice acquire --shell --lease 20s k)"\nenv\n', env=outer)
    seen = variables(p.out)
    until = int(seen.pop("SLUICE_LOCK_UNTIL"))
    with open("/proc/uptime") as f:
        left = until - float(f.read().split()[0])
    check_that(0 < left <= 18, "it says until when to rely on the lease: %f" % left)
    check(seen, {"SLUICE_LOCK_KEY": "k", "SLUICE_LOCK_HELD": "1", "SLUICE_LOCK_WHERE": "server",
                 "SLUICE_LOCK_SERVER": s.env["SLUICE_SERVER"], "SLUICE_LOCK_LEASE": "20000ms",
                 "SLUICE_LOCK_FENCE": str(s.explain()["holders"][0]["fence"])})
    p = s.script("sh", 'eval "$(sluice hold --shell --pid $$ l)"\nenv\n', env=outer)
    check(sorted(variables(p.out)), sorted(["SLUICE_LOCK_PID", *seen]), "the lease is extended")


@test
def extend_and_release_use_the_server_that_granted_the_lock(t):
    s = Scene(t, "--password", "right and long")
    url = "redis://:right%20and%20long@"
    p = s.sluice("acquire", "--shell", "k", env={"SLUICE_PASSWORD": "right and long"})
    check(p.status, 0, p.err)
    t.write("lock", p.out)
    text = '. ./lock\nsluice extend && sluice release\n'
    p = s.script("sh", text, env={"SLUICE_PASSWORD": "right and long", "SLUICE_SERVER": "unix:nowhere"})
    check((p.status, p.err), (0, ""))
    check_that(url not in t.read("lock"), "no password is printed")


@test
def shared_and_counting_locks(t):
    s = Scene(t)
    for args, status in (("-s k", 0), ("-s k", 0), ("k", 1), ("-j 2 l", 0), ("-j 2 l", 0), ("-j 2 l", 1), ("l", 1)):
        check(s.sluice("acquire", "-n", "-q", *args.split()).status, status, args)


@test
def note_value_and_priority_reach_the_server(t):
    s = Scene(t)
    p = s.sluice("acquire", "k", "--note", "nightly", "--value", "here", "-p", "3")
    check(p.status, 0, p.err)
    holder = s.explain()["holders"][0]
    check((holder["note"], holder["priority"]), ("nightly", 3))
    check(s.sluice("do", "-q", "READ", "k").out.split()[0], "here")


# --- Interrupted ------------------------------------------------------------------


def interrupted(t, command, number):
    """A process that is killed while it waits leaves no request behind."""
    s = Scene(t, "--linger", "1s")
    fence = s.take()
    args = ("acquire", "--shell", "k") if command == "acquire" else (
        "hold", "--shell", "--pid", str(os.getpid()), "k") if command == "background" else ("hold", "k")
    p = s.begin(*args)
    t.until(lambda: s.waiters() == 1, "it waits")
    p.kill(number)
    check(p.status, -number)
    if number != signal.SIGKILL and command != "hold":
        check_that("(exit %d)" % (128 + number) in p.out, "the text fails as well: " + p.out)
    t.until(lambda: s.waiters() == 0, "its request is cancelled")
    check(s.sluice("release", "k", str(fence)).status, 0)
    check(s.held(), 0, "it did not get the lock later")


for command in ("acquire", "hold", "background"):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
        test_of("%s_that_gets_%s_leaves_no_request" % (command, number.name), interrupted, command, number)


@test
def killed_between_the_grant_and_its_output_the_lease_expires(t):
    s = Scene(t)
    out, into = tap.full_pipe()
    p = s.begin("acquire", "--shell", "--lease", "2s", "k", stdout=into)
    t.until(lambda: s.held(), "it is granted")
    p.kill(signal.SIGKILL)
    check(p.status, -signal.SIGKILL)
    s.until_free()
    p = s.begin("acquire", "--shell", "--lease", "60s", "k", stdout=into)
    t.until(lambda: s.held(), "it is granted")
    os.read(out, 1)  # less than a pipe takes at once
    p.kill(signal.SIGTERM)
    t.until(lambda: not s.held(), "after SIGTERM it is released")
    os.set_blocking(out, False)
    while len(os.read(out, 65536)) == 65536:
        pass
    check(p.status, -signal.SIGTERM)


@test
def a_lease_that_expires_before_the_output_can_be_written_is_not_printed(t):
    s = Scene(t)
    out, into = tap.full_pipe()
    p = s.begin("acquire", "--shell", "--lease", "1s", "k", stdout=into)
    p.until_err("lost the lock")
    os.set_blocking(out, False)
    text = b""
    while p.running or text[-1:] != b"\n":
        try:
            text += os.read(out, 1 << 20)
        except BlockingIOError:
            pass
    check(p.status, 79)
    check_that(b"SLUICE_LOCK_HELD=1" not in text and b"(exit 79)" in text, "it is a failure")


def no_output(t, args):
    s = Scene(t)
    with open("/dev/full", "w") as full:
        p = s.sluice(*args, stdout=full)
    check(p.status, 71, p.err)
    check_that("cannot write to standard output" in p.err, p.err)
    check(s.held(), 0, "the lock is released")
    out, into = os.pipe()
    os.close(out)
    p = s.sluice(*args, stdout=into)
    check((p.status, s.held()), (71, 0), "nobody reads")
    p = s.sluice(*args, before=lambda: os.close(1))
    check((p.status, s.held()), (71, 0), "standard output is closed")


for name, args in {"acquire": ["acquire", "k"], "acquire_for_a_shell": ["acquire", "--shell", "k"],
                   "hold": ["hold", "k"], "hold_for_a_shell": ["hold", "--shell", "--pid", "1", "k"]}.items():
    test_of("%s_releases_the_lock_if_its_output_is_lost" % name, no_output, args)


# --- extend and release -----------------------------------------------------------


@test
def extend_and_release_report_a_lost_lock(t):
    s = Scene(t)
    fence = str(s.take(lease="5s"))
    check(s.sluice("extend", "k", fence, "--lease", "100s").status, 0)
    check_that(s.explain()["holders"][0]["lease_ms"] > 50000, "it is extended")
    check(s.sluice("do", "RELEASE", "k", fence).status, 0)
    for command in ("extend", "release"):
        p = s.sluice(command, "k", fence)
        check((p.status, p.out), (79, ""), command)
        check_that("no longer held under fence %s" % fence in p.err, p.err)


def shell_forms(t, shell):
    s = Scene(t)
    text = ('set -u\neval "$(sluice acquire --shell --lease 20s k)" || exit\nfirst=$SLUICE_LOCK_UNTIL\n'
            'eval "$(sluice extend --shell --lease 90s)" || exit\n'
            '[ $SLUICE_LOCK_UNTIL -gt $((first + 30)) ] && [ $SLUICE_LOCK_LEASE = 90000ms ] || exit 3\n'
            'cp /dev/null marked\nenv >before\n'
            'eval "$(sluice release --shell)" || exit\necho ${SLUICE_LOCK_HELD-none} ${SLUICE_LOCK_FENCE-none}\n')
    p = s.script(shell, text)
    check((p.status, p.out, p.err), (0, "none none\n", ""))
    check(s.held(), 0)
    # The lock is lost.
    text = ('eval "$(sluice acquire --shell k)" || exit\n'
            'sluice do -q BREAK k $SLUICE_LOCK_FENCE NOW >/dev/null || exit 3\n'
            'eval "$(sluice %s --shell)"; echo $? "[${SLUICE_LOCK_HELD-}]"\n'
            'if eval "$(sluice %s --shell)"; then echo HELD; fi\n')
    for command in ("extend", "release"):
        p = s.script(shell, text % (command, command))
        check((p.status, p.out), (0, "79 []\n"), command + ": " + p.err)
    # The server is gone: the lock may still be held.
    text = ('eval "$(sluice acquire --shell k)" || exit\nkill -9 %d\n'
            'eval "$(sluice %s --shell)"; echo $? "[${SLUICE_LOCK_HELD-}]"\n')
    for command in ("extend", "release"):
        p = s.script(shell, text % (s.server.pid, command))
        check((p.status, p.out), (0, "69 [1]\n"), command + ": " + p.err)
        check_that("may be held until its lease expires; rely on it for " in p.err, p.err)
        s.server.status
        shutil.rmtree(t.path("data"))
        os.mkdir(t.path("data"))
        s.start()


for shell in ("sh", "bash", "zsh"):
    test_of("extend_and_release_change_the_variables_in_" + shell, shell_forms, shell)


@test
def a_wrong_grant_in_the_environment_is_64(t):
    s = Scene(t)
    for env in ({}, {"SLUICE_LOCK_KEY": "k"}, {"SLUICE_LOCK_KEY": "k", "SLUICE_LOCK_FENCE": "1\n2"},
                {"SLUICE_LOCK_KEY": "", "SLUICE_LOCK_FENCE": "1"},
                {"SLUICE_LOCK_KEY": "k", "SLUICE_LOCK_FENCE": "1", "SLUICE_LOCK_LEASE": "x"}):
        check(s.sluice("extend", env=env).status, 64, env)
    for args in (["k"], ["k", "x"], ["k", "1", "2"], ["", "1"], ["k", "0"]):
        check(s.sluice("release", *args).status, 64, args)


@test
def a_lack_of_descriptors_is_reported_with_its_reason(t):
    s = Scene(t)
    p = s.script("sh", "ulimit -n 4\nexec sluice extend k 1\n")
    check((p.status, p.err), (71, "sluice extend: cannot connect to unix:%s: %s\n"
                              % (s.socket, os.strerror(errno.EMFILE))))


@test
def an_error_names_the_address_once(t):
    s = Scene(t)
    p = s.script("sh", "sluice extend --server 127.0.0.1:1 k 1\n")
    check((p.status, p.err.count("127.0.0.1:1")), (69, 1), p.err)


@test
def an_asked_holder_cannot_extend(t):
    s = Scene(t)
    fence = str(s.take())
    p = s.begin("acquire", "-p", "5", "--steal", "k")
    t.until(lambda: s.waiters() == 1, "it waits")
    p2 = s.sluice("extend", "k", fence)
    check(p2.status, 1, p2.err)
    check_that("a client with a higher priority" in p2.err, p2.err)
    check(s.sluice("release", "k", fence).status, 0)
    check(p.status, 0)


# --- hold ---------------------------------------------------------------------------


HOLD = 'lock=$(sluice hold --shell --pid $$ %s k) || exit\neval "$lock"\necho $SLUICE_LOCK_PID $SLUICE_LOCK_FENCE\n'


def holding(s, shell="sh", options="--lease 2s", then="read _", **more):
    """A script that holds the lock; also the process that extends the lease, and the fence."""
    out, into = os.pipe()
    p = s.begin_script(shell, HOLD % options + then + "\n", stdin=out, **more)
    os.close(out)
    p.until_out("\n")
    holder, fence = map(int, p.out.split()[:2])
    return p, into, holder, fence


def is_extended(s, lease_s=2):
    """Wait for longer than a lease, by the clock of the server."""
    from_ms = s.explain()["holders"][0]["held_ms"]
    s.t.until(lambda: s.explain()["holders"][0]["held_ms"] > from_ms + 1.5 * lease_s * 1000, "a lease has passed")


def follows(t, shell):
    s = Scene(t)
    p, into, holder, fence = holding(s, shell)
    is_extended(s)
    check(s.explain()["holders"][0]["fence"], fence)
    check(s.sluice("acquire", "-n", "k").status, 1)
    check(sorted(os.readlink("/proc/%d/fd/%d" % (holder, n)) for n in (0, 1)), ["/dev/null"] * 2)
    p.kill(signal.SIGKILL)
    s.until_free()
    t.until(lambda: not alive(holder), "the holder has ended")
    p, into, holder, fence = holding(s, shell)
    os.close(into)
    check((p.status, p.err), (1, ""), "read has failed")
    s.until_free()


for shell in SHELLS:
    test_of("hold_follows_the_script_in_" + shell, follows, shell)


@test
def hold_releases_the_lock_of_a_script_that_is_killed(t):
    s = Scene(t)
    p, into, holder, fence = holding(s, options="--lease 60s")
    p.kill(signal.SIGKILL)
    s.until_free()


@test
def hold_follows_the_script_not_the_subshell(t):
    s = Scene(t)
    text = 'lock=$(true; sluice hold --shell --pid $$ --lease 2s k || echo false; true) || exit\neval "$lock"\necho up\nread _\n'
    out, into = os.pipe()
    p = s.begin_script("bash", text, stdin=out)
    p.until_out("up")
    is_extended(s)
    p.kill(signal.SIGKILL)
    s.until_free()


@test
def release_ends_the_holder(t):
    s = Scene(t)
    p, into, holder, fence = holding(s, then="sluice release\necho status $?\nread _")
    p.until_out("status 0\n")
    check(s.held(), 0)
    t.until(lambda: not alive(holder), "the holder has ended")
    check(p.err, "", "no loss is reported")


@test
def release_kills_no_other_process(t):
    s = Scene(t)
    fence = s.take()
    victim = t.start("sleep", "60")
    env = {"SLUICE_LOCK_KEY": "k", "SLUICE_LOCK_FENCE": str(fence), "SLUICE_LOCK_PID": str(victim.pid)}
    check(s.sluice("release", env=env).status, 0)
    check_that(victim.running, "it lives")


@test
def a_holder_that_gets_SIGTERM_releases_the_lock(t):
    s = Scene(t)
    p, into, holder, fence = holding(s, options="")
    os.kill(holder, signal.SIGTERM)
    s.until_free()
    check_that(p.running, "the script lives")


@test
def a_restart_of_the_server_changes_nothing(t):
    s = Scene(t)
    p, into, holder, fence = holding(s, options="--lease 20s --kill")
    s.stop()
    s.start()
    check(s.explain()["holders"][0]["fence"], fence)
    t.until(lambda: s.explain()["holders"][0]["lease_ms"] > 12000, "it is held")
    left = s.explain()["holders"][0]["lease_ms"]
    t.until(lambda: s.explain()["holders"][0]["lease_ms"] > left, "it is extended")
    os.close(into)
    p.status
    s.until_free()
    check(p.err, "")


@test
def a_lost_lock_is_reported(t):
    s = Scene(t)
    p, into, holder, fence = holding(s, options="--lease 1s")
    s.server.kill(signal.SIGSTOP)
    p.until_err('sluice hold: lost the lock "k": no server answers')
    t.until(lambda: not alive(holder), "the holder has ended")
    check_that(p.running, "the script lives")
    s.server.kill(signal.SIGCONT)


@test
def with_kill_a_lost_lock_ends_the_script(t):
    s = Scene(t)
    p, into, holder, fence = holding(s, options="--lease 1s --kill")
    s.server.kill(signal.SIGSTOP)
    check(p.status, -signal.SIGTERM)
    s.server.kill(signal.SIGCONT)


@test
def with_kill_a_lost_lock_ends_the_script_although_its_pipe_for_messages_is_full(t):
    s = Scene(t)
    writer = tap.full_pipe()[1]
    p, into, holder, fence = holding(s, options="--lease 1s --kill", stderr=writer)
    s.server.kill(signal.SIGSTOP)
    check(p.status, -signal.SIGTERM)
    s.server.kill(signal.SIGCONT)


@test
def hold_in_the_foreground(t):
    s = Scene(t)
    text = 'sluice hold --lease 2s k &\necho $! >pid\nread _\n'
    out, into = os.pipe()
    p = s.begin_script("sh", text, stdin=out)
    fence = int(p.until_out("\n"))
    is_extended(s)
    check(s.explain()["holders"][0]["fence"], fence)
    p.kill(signal.SIGKILL)
    s.until_free()
    p = s.begin("hold", "--json", "k")
    check(json.loads(p.until_out("\n"))["fence"], s.explain()["holders"][0]["fence"])
    p.kill(signal.SIGTERM)
    check((p.status, p.err, s.held()), (0, "", 0), "SIGTERM releases the lock")
    p = s.begin("hold", "--lease", "1s", "k")
    p.until_out("\n")
    check(s.sluice("do", "BREAK", "k", p.out.strip(), "NOW").status, 0)
    check(p.status, 79)
    check_that("an operator has revoked it" in p.err, p.err)


@test
def hold_says_that_a_client_with_a_higher_priority_needs_the_lock(t):
    s = Scene(t)
    p = s.begin("hold", "k")
    p.until_out("\n")
    s.begin("acquire", "-p", "5", "--steal", "k")
    p.until_err('sluice hold: a client with a higher priority needs "k"; the lease cannot be extended, and expires in ')
    p.kill(signal.SIGTERM)
    check(p.status, 0, "it releases the lock")


@test
def hold_says_that_a_release_has_failed(t):
    s = Scene(t)
    p = s.begin("hold", "--lease", "20s", "k")
    p.until_out("\n")
    s.stop()
    p.kill(signal.SIGTERM)
    p.until_err("; it may be held until its lease expires")
    check_that(p.err.startswith('sluice hold: cannot release "k": unix:%s: ' % s.socket), p.err)
    check(p.status, 69)


@test
def a_note_or_a_value_that_is_too_long_is_named(t):
    s = Scene(t)
    for command in ("acquire", "hold"):
        for option in ("--note", "--value"):
            p = s.sluice(command, option, "x" * 256, "k")
            check((p.status, p.out, s.held()), (64, "", 0))
            check_that("sluice %s: %s is too long: 256 bytes (maximum 255)\n" % (command, option) in p.err, p.err)


@test
def an_output_that_cannot_be_written_is_reported_once(t):
    s = Scene(t)
    for command in (("acquire", "--shell"), ("hold", "--shell", "--pid", str(os.getpid()))):
        with open("/dev/full", "wb") as full:
            p = s.begin(*command, "k", stdout=full)
            check(p.status, 71)
        check(p.err, "sluice %s: cannot write to standard output: No space left on device\n" % command[0])
        s.until_free()


@test
def a_script_that_ends_while_hold_waits_leaves_no_request(t):
    s = Scene(t)
    s.take()
    for text in ("sluice hold k &\nread _\n", "(sluice hold --shell --pid $$ k) &\nread _\n"):
        out, into = os.pipe()
        p = s.begin_script("sh", text, stdin=out)
        t.until(lambda: s.waiters() == 1, "it waits")
        p.kill(signal.SIGKILL)
        t.until(lambda: s.waiters() == 0, "it has left the queue")
        os.close(into)
        os.close(out)


@test
def a_wrong_command_line_of_hold_is_64(t):
    s = Scene(t)
    dead = t.run("true").pid
    check_that("usage: sluice hold [options] KEY" in s.sluice("hold", "k", "l").err, "too many arguments")
    for args in (["--shell"], ["--kill"], ["--pid", "x"], ["--pid", "0"], ["--pid", str(dead)], ["-s", "-j", "2"]):
        check(s.sluice("hold", *args, "k").status, 64, args)
        check(s.held(), 0)


# --- A cluster -------------------------------------------------------------------------


@test
def a_majority_cluster_has_exclusive_locks(t):
    with Cluster(3, server=os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")) as c:
        c.wait_ready()
        c.wait_granting()
        env = {"SLUICE_SERVER": ",".join("%s:%d" % (n.host, n.port) for n in c)}
        p = t.sluice("acquire", "--lease", "20s", "k", env=env)
        check(p.status, 0, p.err)
        fence = p.out.strip()
        check(t.sluice("acquire", "-n", "k", env=env).status, 1, "it is taken")
        check(t.sluice("acquire", "-n", "-s", "l", env=env).status, 64, "there are no shared locks")
        c[1].kill()
        check(t.sluice("extend", "k", fence, env=env).status, 0, "without a node")
        check(t.sluice("release", "k", fence, env=env).status, 0)
        check(t.sluice("release", "k", fence, env=env).status, 79)


# --- The scripts of the man page -------------------------------------------------------


def scripts_of_the_man_page():
    with open(os.path.join(os.path.dirname(tap.program), "../../man/sluice-acquire.1")) as f:
        page = f.read()
    scripts = []
    for block in re.findall(r"\n\.Bd -literal.*?\n(#!.*?)\n\.Ed\n", page, re.S):
        for code, sign in (("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ti", "~"), ("\\e", "\\")):
            block = block.replace(code, sign)
        scripts.append(block + "\n")
    return scripts


def man_page(t, shell):
    """Its scripts run their programs only under the lock."""
    scripts = scripts_of_the_man_page()
    check_that(len(scripts) >= 2, "there are scripts")
    s = Scene(t)
    for name in ("rsync", "make-report", "publish"):
        t.script("bin/" + name, '#!/bin/sh\nsluice acquire -n -q "$SLUICE_LOCK_KEY"\necho %s $? >>"$HOME/ran"\n' % name)
    for text in scripts:
        key = re.search(r"\b(\w+)\) \|\| exit", text).group(1)
        if os.path.exists(t.path("ran")):
            os.unlink(t.path("ran"))
        p = s.script(shell, text)
        check((p.status, p.err), (0, ""), text)
        ran = t.read("ran").split("\n")[:-1]
        check_that(len(ran) >= 2 and all(line.endswith(" 1") for line in ran), "the lock was held: %r" % ran)
        s.until_free(key)
        os.unlink(t.path("ran"))
        fence = s.take(key)
        p = s.script(shell, text.replace("-w 10s", "-w 100ms"))
        check((p.status, t.read("ran")), (1, ""), "it is taken")
        check(s.sluice("release", key, str(fence)).status, 0)
    s.stop()
    for text in scripts:
        p = s.script(shell, text)
        check((p.status, t.read("ran")), (69, ""), "there is no server")


for shell in SHELLS:
    test_of("scripts_of_the_man_page_work_in_" + shell, man_page, shell)


main(__doc__)
