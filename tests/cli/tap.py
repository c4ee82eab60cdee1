"""tap.py - for live tests of the program `sluice`, in Python: what they share.

    #!/usr/bin/env python3
    from tap import check, main, test

    @test
    def status_7_of_the_command_is_the_status(t):
        check(t.sluice("run", "k", "--", "sh", "-c", "exit 7").status, 7)

    main(__doc__)

A test is a function with a sentence for a name. main() runs those of its file, several
at a time, and prints TAP; after a failure it prints what all processes of the test said.
Call it so: test_run.py SLUICE [--jobs N] [PATTERN...], PATTERN as the shell's.

Each test runs in a process of its own, in a session without a terminal. It has a directory
t.dir, a segment t.segment that $SLUICE_SEGMENT names, and a deadline. Whatever it
started, daemons too, becomes its own child at last (it is a "subreaper") and is killed at
its end; also if the test is killed by its deadline, or together with main().

Machines stall. So a test waits for what it can see, with t.until(), and no number of
seconds is expected of anything, but of what is promised "within a second": t.soon().
"""
import ctypes
import fnmatch
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

DEADLINE_S = int(os.environ.get("SLUICE_TEST_DEADLINE_S", "60"))
JOBS = 4
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXCLUSIVE = (1 << 30) - 1  # the units of an exclusive permit

program = None  # the path of sluice
tests = []


class Failure(Exception):
    """What a test expected is not so."""


class Skip(Exception):
    """The test cannot be made on this machine."""


def test(f):
    """Register a test: it is named as the function."""
    tests.append((f.__name__, f))
    return f


def test_of(name, f, *args):
    """Register f(t, *args) under a name, for one of several of a kind."""
    tests.append((name, lambda t: f(t, *args)))


def check(got, wanted, what="it"):
    if got != wanted:
        raise Failure("%s: got %r, wanted %r" % (what, got, wanted))


def check_that(condition, what):
    if not condition:
        raise Failure("it is not so that " + what)


def prctl(option, value):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# --- Looking at processes -----------------------------------------------------


def stat_of(pid):
    """(state, parent, group, terminal's foreground group), or None if there is no such."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[5])


def alive(pid):
    """Is there such a process? One that nobody has waited for yet is gone."""
    s = stat_of(pid)
    return s is not None and s[0] not in "ZX"


def stopped(pid):
    s = stat_of(pid)
    return s is not None and s[0] == "T"


def descendants(top):
    """The pids below a process, the dead that nobody has waited for included."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            s = stat_of(int(name))
            if s is not None:
                children.setdefault(s[1], []).append(int(name))
    found, todo = [], [top]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def signal_masks(pid):
    """What a process blocks, ignores and catches, as sets of signal numbers."""
    sets = {}
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                bits = int(value, 16)
                sets[name] = {n for n in range(1, 65) if bits >> (n - 1) & 1}
    return sets


def kill_quietly(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_all_below():
    """Kill what this process has below it, and wait until nothing is left."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        for pid in descendants(os.getpid()):
            kill_quietly(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)
    raise Failure("processes that cannot be killed: %r" % descendants(os.getpid()))


# --- What a test works with ---------------------------------------------------


def full_pipe():
    """A full pipe that no process reads: the read end, and the write end."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    try:
        while True:
            os.write(into, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(into, True)
    return out, into


class Process:
    """A process that a test started. Its output goes to files, and can be read while it
    runs."""

    def __init__(self, stage, args, stdin=subprocess.DEVNULL, env=None, before=None,
                 session=True, **more):
        """before() is called in the child just before it executes args. session: it has a
        session of its own; if not, only a process group, and its parent can stop it."""
        self.stage = stage
        self.args = args
        stage.started += 1
        base = os.path.join(stage.dir, ".said.%d" % stage.started)
        self.out_path, self.err_path = base + ".out", base + ".err"
        self.command = None  # the pid of the command, as a holder told

        def in_child():
            if session:
                os.setsid()
            else:
                os.setpgid(0, 0)
            if before:
                before()

        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            more.setdefault("stdout", out)
            more.setdefault("stderr", err)
            self.popen = subprocess.Popen(args, stdin=stdin, preexec_fn=in_child,
                                          env=stage.environment(env), cwd=stage.dir, **more)
        self.pid = self.popen.pid
        stage.processes.append(self)
        stage.children[self.pid] = self

    def out_bytes(self):
        with open(self.out_path, "rb") as f:
            return f.read()

    def err_bytes(self):
        with open(self.err_path, "rb") as f:
            return f.read()

    @property
    def out(self):
        return self.out_bytes().decode("utf-8", "backslashreplace")

    @property
    def err(self):
        return self.err_bytes().decode("utf-8", "backslashreplace")

    @property
    def running(self):
        return self.popen.poll() is None

    @property
    def status(self):
        """The exit status; -n if signal n killed it. Waits."""
        while self.popen.poll() is None:
            self.stage.bury()
            time.sleep(0.002)
        return self.popen.returncode

    def until_out(self, text):
        """Wait until it has written text; returns its output."""
        self.stage.until(lambda: text in self.out or not self.running,
                         "%r is written" % text)
        check_that(text in self.out, "%r was written before the end" % text)
        return self.out

    def until_err(self, text):
        self.stage.until(lambda: text in self.err or not self.running,
                         "%r is said" % text)
        check_that(text in self.err, "%r was said before the end" % text)
        return self.err

    def kill(self, number=signal.SIGKILL):
        self.popen.send_signal(number)

    def release(self):
        """End a holder that t.hold() started, in peace; returns its status."""
        self.popen.stdin.close()
        return self.status


server_program = None


def local(f):
    """A test of locks in shared memory only."""
    def skip(_t):
        raise Skip("this is about locks in shared memory")
    if "--server" in sys.argv:
        tests[-1] = f.__name__, skip
    return f


class Stage:
    """One test's directory, segment, environment and processes."""

    def __init__(self, name):
        self.dir = tempfile.mkdtemp(prefix="sluice-test.")
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.memory = tempfile.mkdtemp(prefix="sluice-test.", dir=memory)
        self.segment = os.path.join(self.memory, "segment")
        self.unique = "test-%d-%s" % (os.getpid(), self.memory[-8:])
        self.started = 0  # how many processes
        self.processes = []  # of which a failure is to tell
        self.children = {}  # all of them, by pid
        self.transcripts = []  # functions that give what was said elsewhere
        self.names = []  # segments with names, to be removed
        self.lock_server = None  # of the locks, with --server
        self.address = "unix:" + os.path.join(self.dir, "server")
        if server_program:
            self.start_server()
        os.environ["PWD"] = self.dir

    def of_server(self):
        return [self.lock_server.pid] if self.lock_server is not None else []

    def start_server(self):
        self.lock_server = subprocess.Popen(
            [server_program, "--port", "0", "--socket", self.address[len("unix:"):], "--log-level", "info"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.lock_server.stderr:
            if " ready: " in line:
                break

    def tidy(self):
        if self.lock_server is not None:
            self.lock_server.kill()
            self.lock_server.wait()
        for name in self.names:
            try:
                os.unlink("/dev/shm/sluice." + name)
            except FileNotFoundError:
                pass
        for directory in (self.memory, self.dir):
            shutil.rmtree(directory, ignore_errors=True)

    def name(self, suffix=""):
        """The name of a segment in /dev/shm that nobody else has."""
        self.names.append(self.unique + suffix)
        return self.names[-1]

    def said(self):
        lines = []
        for p in self.processes:
            state = p.popen.poll()
            lines.append("$ %s    -> %s" % (
                " ".join(a if isinstance(a, str) else repr(a) for a in p.args)[:300],
                "runs" if state is None else state))
            for text in (p.out, p.err):
                lines += ["    " + line for line in text[:4000].splitlines()]
        for transcript in self.transcripts:
            lines += ["    | " + line for line in transcript().splitlines()]
        return lines

    # Files.

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def script(self, name, text):
        return self.write(name, text, 0o755)

    def read(self, name):
        """A file's text; empty if there is none yet."""
        try:
            with open(self.path(name)) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    # Time.

    def bury(self):
        """Wait for the dead whose parents have died, as init would: until then they are
        members of their groups."""
        try:
            while True:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if dead is None:
                    return
                p = self.children.get(dead.si_pid)
                if p and p.popen.returncode is None:
                    p.popen.poll()
                else:
                    os.waitpid(dead.si_pid, 0)
        except ChildProcessError:
            pass

    def until(self, condition, what, seconds=DEADLINE_S / 2):
        """Wait for a condition; what it is true of is returned."""
        end = time.monotonic() + seconds
        while True:
            self.bury()
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Failure("after %d s it is still not so that %s" % (seconds, what))
            time.sleep(0.005)

    def soon(self, condition, what, seconds=1.0):
        """Wait for what is promised within a second, by a clock that does not count when
        the machine stalls: a look counts for 50 ms at most."""
        spent = 0.0
        while True:
            self.bury()
            start = time.monotonic()
            value = condition()
            if value:
                return value
            if spent > seconds:
                raise Failure("within %.1f s it is not so that %s" % (seconds, what))
            time.sleep(0.005)
            spent += min(time.monotonic() - start, 0.05)

    # Processes.

    def environment(self, changes=None):
        """What every process gets: nothing of Sluice but the segment. A change to None
        takes a variable away."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("SLUICE_") and k not in ("SHELL", "PS1", "PS2", "BASH_ENV",
                                                            "ENV", "LANGUAGE", "TZ",
                                                            "XDG_STATE_HOME")}
        if self.lock_server is not None:
            env["SLUICE_SERVER"] = self.address
        env.update(SLUICE_SEGMENT=self.segment, LC_ALL="C.UTF-8", HOME=self.dir,
                   TERM="dumb")
        for name, value in (changes or {}).items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        return env

    def start(self, *args, **more):
        return Process(self, args, **more)

    def run(self, *args, **more):
        """Start, and wait for the end."""
        p = self.start(*args, **more)
        p.status  # waits
        return p

    def begin(self, *args, **more):
        """Start sluice."""
        return self.start(program, *args, **more)

    def sluice(self, *args, **more):
        """Run sluice to its end."""
        return self.run(program, *args, **more)

    def hold(self, *options, key="k", then="exit 0", **more):
        """Start a `sluice run` whose command holds the key until p.release(). p.command is
        its pid. then: what the command's shell does after it was told to end."""
        script = "echo up $$; read _; " + then
        p = self.begin("run", *options, key, "--", "sh", "-c", script,
                       stdin=subprocess.PIPE, **more)
        self.until(lambda: "\n" in p.out or not p.running, "the holder runs")
        check(p.out[:3], "up ", "the holder's first word")
        p.command = int(p.out.split()[1])
        return p

    def wait_for(self, *options, key="k", command=("true",), **more):
        """Start a `sluice run` that has to wait, and wait until it waits."""
        p = self.begin("run", *options, key, "--", *command, **more)
        self.until(lambda: p.pid in self.waiting(key) or not p.running, "it waits")
        check_that(p.running, "it waits, and has not ended")
        return p

    def try_it(self, *options, key="k"):
        """The status of `sluice run -n -q`."""
        p = self.sluice("run", "-n", "-q", *options, key, "--", "true")
        self.processes.pop()  # there are many of these, and they say nothing
        if p.status not in (0, 1):
            raise Failure("run -n: status %d: %s" % (p.status, p.err))
        return p.status

    def taken(self, *options, key="k"):
        return self.try_it(*options, key=key) == 1

    def comes_back(self, *options, key="k"):
        """What is promised of a permit whose holder died."""
        self.soon(lambda: not self.taken(*options, key=key), "the permit is back")

    # Looking inside.

    def json(self, *args, **more):
        p = self.sluice(*args, **more)
        check(p.status, 0, "the status of " + " ".join(map(str, args)))
        return json.loads(p.out_bytes())

    def show(self, key=None):
        """`canal show --json`, of the segment or of one key; None if there is no such."""
        p = self.sluice("canal", "show", "--json", "--segment", self.segment,
                        *([key] if key is not None else []))
        self.processes.pop()
        if p.status == 66:
            return None
        check(p.status, 0, "the status of canal show: " + p.err)
        return json.loads(p.out_bytes())

    def key(self, key="k"):
        """The line of `canal show --json` about a key; None if there is none."""
        shown = self.show()
        for k in shown["keys"] if shown else []:
            if k["key"] == key:
                return k
        return None

    def explain(self, key="k"):
        """EXPLAIN, of the server."""
        p = self.sluice("do", "--json", "EXPLAIN", key)
        self.processes.pop()
        check(p.status, 0, "the status of EXPLAIN: " + p.err)
        return json.loads(p.out_bytes())

    def held(self, key="k"):
        if self.lock_server is not None:
            return self.explain(key)["held"]
        k = self.key(key)
        return k["held"] if k else 0

    def waiting(self, key="k"):
        """The pids of the waiters. One that waits is missing for a moment now and then,
        when it looks around; so wait for what is expected."""
        if self.lock_server is not None:
            return [int(re.search(r"\[(\d+)\]@", w["name"]).group(1)) for w in self.explain(key)["waiters"]]
        shown = self.show(key)
        return [w["pid"] for w in shown["pending"]] if shown else []

    def until_waiting(self, count, key="k"):
        return self.until(lambda: len(self.waiting(key)) == count, "%d wait" % count)

    # Isolation.

    def private(self):
        """Words before a command that give it a /dev/shm of its own."""
        if not os.path.isdir("/dev/shm"):
            raise Skip("there is no /dev/shm")
        words = ["unshare", "-m" if os.getuid() == 0 else "-rm", "sh", "-c",
                 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
        if self.run(*words, "true").status != 0:
            raise Skip("a private mount namespace is not allowed here")
        return words

    def private_uid(self):
        """The user id behind private()."""
        return int(self.run(*self.private(), "id", "-u").out)

    def as_nobody(self):
        """Words before a command that run it as a user who may do nothing. The program
        is then t.copy_of_program()."""
        if os.getuid() != 0:
            raise Skip("only root can become another user")
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if self.run(*words, "true").status != 0:
            raise Skip("there is no setpriv that works")
        os.chmod(self.dir, 0o755)
        return words

    def copy_of_program(self):
        path = self.path("sluice")
        shutil.copy(program, path)
        os.chmod(path, 0o755)
        return path


# --- Running the tests --------------------------------------------------------


class Overdue(BaseException):
    """The deadline has passed, or the process that runs the tests is gone."""


def on_signal(number, _frame):
    for n in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(n, signal.SIG_IGN)  # cleaning up is not to be disturbed
    raise Overdue("killed after %d s" % DEADLINE_S if number == signal.SIGALRM
                  else "the process that ran the test is gone")


def perform(name, f):
    """In a process of its own: run a test; returns (result, reason, lines)."""
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGALRM, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The parent process may have ignored some; a test begins with the defaults.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN and number != signal.SIGPIPE:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    stage = Stage(name)
    result, reason, lines = "ok", "", []
    try:
        signal.alarm(DEADLINE_S)
        f(stage)
    except Skip as e:
        result, reason = "skip", str(e)
    except (Exception, Overdue) as e:
        result, reason = "not ok", str(e) or repr(e)
        where = [x for x in traceback.extract_tb(e.__traceback__) if x.filename != __file__]
        lines = ["%s:%d: %s" % (os.path.basename(x.filename), x.lineno, x.line)
                 for x in where]
        if not isinstance(e, (Failure, Overdue)):
            lines += traceback.format_exc().splitlines()
        lines += stage.said()
    finally:
        signal.alarm(0)
        try:
            kill_all_below()
        except Failure as e:
            result, reason = "not ok", str(e)
        stage.tidy()
    return result, reason, lines


def fork_test(name, f):
    """Start one test; returns (pid, file of its result)."""
    file = tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        try:
            pickle.dump(perform(name, f), file)
            file.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid, file


def main(usage):
    global program, server_program
    args = sys.argv[1:]
    if "--server" in args:  # The locks are on a server, which each test has for itself.
        at = args.index("--server")
        server_program = os.path.abspath(args[at + 1])
        del args[at:at + 2]
    jobs = JOBS
    if "--jobs" in args:
        at = args.index("--jobs")
        jobs = int(args[at + 1])
        del args[at:at + 2]
    if not args or args[0].startswith("-"):
        sys.exit(usage.strip())
    program, patterns = os.path.abspath(args[0]), args[1:]
    chosen = [(name, f) for name, f in tests
              if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]
    names = [name for name, _ in tests]
    if len(set(names)) != len(names):
        sys.exit("two tests have one name: %r" % {n for n in names if names.count(n) > 1})
    if not os.access(program, os.X_OK):
        print("Bail out! There is no program " + program)
        sys.exit(1)

    def end(number, _frame):
        for pid in list(running):
            kill_quietly(pid, signal.SIGTERM)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)

    print("1..%d" % len(chosen), flush=True)
    running = {}  # pid: number of the test, file
    results = {}  # number: what became of it
    started = printed = failed = 0
    while printed < len(chosen):
        while started < len(chosen) and len(running) < jobs:
            sys.stdout.flush()
            pid, file = fork_test(*chosen[started])
            running[pid] = started, file
            started += 1
        pid, _ = os.wait()
        number, file = running.pop(pid)
        file.seek(0)
        try:
            results[number] = pickle.load(file)
        except EOFError:
            results[number] = "not ok", "the test's own process died", []
        file.close()
        while printed in results:
            result, reason, lines = results.pop(printed)
            name = chosen[printed][0]
            printed += 1
            if result == "ok":
                print("ok %d - %s" % (printed, name))
            elif result == "skip":
                print("ok %d - %s # SKIP %s" % (printed, name, reason))
            else:
                failed += 1
                print("not ok %d - %s" % (printed, name))
                for line in [reason] + lines:
                    print("#   " + "".join(c if c.isprintable() else repr(c)[1:-1]
                                           for c in line))
            sys.stdout.flush()
    sys.exit(1 if failed or not chosen else 0)
