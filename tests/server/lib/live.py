"""live.py - the functions that live tests of the server share.

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
    from live import check, main, test

    @test
    def ping_is_answered(t):
        check(t.server().client()("PING"), "PONG")

    main(__doc__)

Tests, deadlines, processes and TAP are those of tests/cli/tap.py: each test runs in a separate
process, and its child processes are killed when it ends. In addition a test has

    s = t.server("--linger", "1h")    a server on a port that the system chose
    c = s.client()                    a connection; s.client(3): in RESP3
    c("PING", "x")                    one command and its reply
    c.send(...); c.reply()            the same in two steps
    c.pushes, c.push()                RESP3 push messages

Replies are Python values: +OK is a str, a bulk string is bytes, an error is an Error, a
map is a dict, null is None. A missing reply is a failure, and so is a connection that is closed
where a reply is expected (Closed).
"""
import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../cli"))
import tap  # noqa: E402
from tap import Failure, Skip, check, check_that, main, test, test_of  # noqa: E402,F401

PATIENCE_S = tap.DEADLINE_S / 2


class Closed(Exception):
    """The connection is closed."""


class Error(str):
    """An error reply: -WORD text."""

    @property
    def word(self):
        return self.split(" ", 1)[0]

    def __repr__(self):
        return "Error(%s)" % str.__repr__(self)

    def __eq__(self, other):
        return isinstance(other, Error) and str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


class Push(list):
    """A RESP3 push message."""


def check_error(got, word, *parts):
    """Fail unless the reply is an error with this word, whose text contains these parts."""
    if not isinstance(got, Error) or got.word != word:
        raise Failure("got %r, wanted an error %s" % (got, word))
    for part in parts:
        if part not in got:
            raise Failure("got %r, which does not say %r" % (got, part))


def as_bytes(arg):
    if isinstance(arg, bytes):
        return arg
    return str(arg).encode()


def encode(args):
    words = [as_bytes(a) for a in args]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Client:
    """A connection with its own implementation of RESP."""

    patience_s = PATIENCE_S

    def __init__(self, address, protocol=2, connect_s=PATIENCE_S, patience_s=PATIENCE_S,
                 password=None, receive_bytes=None):
        """address: (host, port), or the path of a socket. connect_s, patience_s: the timeouts for
        the connection and for a reply. receive_bytes: the size of the receive buffer."""
        family = socket.AF_UNIX if isinstance(address, str) else (
            socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(connect_s)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect(address)
        self.socket.settimeout(patience_s)
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.pushes = []
        self.protocol, self.patience_s = protocol, patience_s
        if password:
            check(self("AUTH", password), "OK", "the answer to AUTH")
        if protocol == 3:
            check(self("HELLO", 3)[b"proto"], 3, "the protocol")

    # Sending.

    def send(self, *args):
        self.socket.sendall(encode(args))
        return self

    def send_raw(self, data):
        self.socket.sendall(data)
        return self

    def __call__(self, *args):
        self.send(*args)
        return self.reply()

    # Receiving.

    def fill(self, end):
        left = end - time.monotonic()
        if left <= 0 or not select.select([self.socket], [], [], left)[0]:
            raise Failure("no reply came; so far: %r" % self.buffer[:200])
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed("the connection has ended; so far: %r" % self.buffer[:200])
        self.buffer += data

    def line(self, end):
        while b"\r\n" not in self.buffer:
            self.fill(end)
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def exactly(self, n, end=None):
        """Read exactly this many bytes."""
        end = end or time.monotonic() + self.patience_s
        if len(self.buffer) >= n:
            data, self.buffer = self.buffer[:n], self.buffer[n:]
            return data
        chunks, have = [self.buffer], len(self.buffer)
        self.buffer = b""
        while have < n:
            self.fill(end)
            chunks.append(self.buffer)
            have += len(self.buffer)
            self.buffer = b""
        data = b"".join(chunks)
        self.buffer = data[n:]
        return data[:n]

    # The Python types of replies; make_map receives a list of pairs.
    make_status, make_error, make_set, make_verbatim = str, Error, list, bytes

    @staticmethod
    def make_map(pairs):
        check(len(dict(pairs)), len(pairs), "the names in a map")
        return dict(pairs)

    def value(self, end):
        line = self.line(end)
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return self.make_status(rest.decode())
        if kind == b"-":
            return self.make_error(rest.decode("utf-8", "backslashreplace"))
        if kind in b":(":
            return int(rest)
        if kind == b"_":
            check(rest, b"", "the null")
            return None
        if kind == b"#":
            return {b"t": True, b"f": False}[rest]
        if kind == b",":
            return float(rest)
        if kind in b"$=!":
            if rest == b"-1":
                return None
            data = self.exactly(int(rest) + 2, end)
            check(data[-2:], b"\r\n", "the end of a string")
            data = data[:-2]
            return (self.make_error(data.decode()) if kind == b"!"
                    else self.make_verbatim(data) if kind == b"=" else data)
        if kind in b"*~>":
            if rest == b"-1":
                return None
            items = [self.value(end) for _ in range(int(rest))]
            return Push(items) if kind == b">" else self.make_set(items) if kind == b"~" else items
        if kind == b"%":
            return self.make_map([(self.value(end), self.value(end)) for _ in range(int(rest))])
        raise Failure("a reply that begins with %r" % line[:100])

    def reply(self, seconds=None):
        """The next reply. Pushes that arrive before it are kept in self.pushes."""
        end = time.monotonic() + (seconds or self.patience_s)
        while True:
            value = self.value(end)
            if not isinstance(value, Push):
                return value
            self.pushes.append(value)

    def push(self, seconds=None):
        """The next push. Fails if something else arrives before it."""
        if self.pushes:
            return self.pushes.pop(0)
        value = self.value(time.monotonic() + (seconds or self.patience_s))
        if not isinstance(value, Push):
            raise Failure("%r came, not a push" % (value,))
        return value

    def message(self):
        """The next message of a subscription, as (channel, text)."""
        value = self.push() if self.protocol == 3 else self.reply()
        kind = value[0]
        if kind == b"pmessage":
            return value[2].decode("utf-8", "backslashreplace"), value[3].decode()
        check(kind, b"message", "the kind of %r" % (value,))
        return value[1].decode("utf-8", "backslashreplace"), value[2].decode()

    def messages(self, count):
        """This many messages of a subscription."""
        got = []
        try:
            while len(got) < count:
                got.append(self.message())
        except Failure:
            raise Failure("only these events came: %r" % got)
        return got

    def subscribe(self, *channels, command="SUBSCRIBE"):
        self.send(command, *channels)
        for i, channel in enumerate(channels):
            value = self.push() if self.protocol == 3 else self.reply()
            check(value[:2], [command.lower().encode(), as_bytes(channel)], "the answer")
        return self

    def quiet(self):
        """Nothing can be read. Call it only when all earlier data has certainly arrived: after
        another reply on this connection, or when the server is idle."""
        return not self.pushes and not self.ready()

    def ready(self, seconds=0):
        """Data can be read now or within this many seconds."""
        return bool(self.buffer or select.select([self.socket], [], [], seconds)[0])

    def until_closed(self):
        """Read until the connection is closed; returns the data."""
        end = time.monotonic() + self.patience_s
        try:
            while True:
                self.fill(end)
        except Closed:
            data, self.buffer = self.buffer, b""
            return data

    # Closing.

    def close(self):
        self.socket.close()

    def reset(self):
        """Close the connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # Frequent commands.

    def acquire(self, key, *options):
        """Send an ACQUIRE that must be granted; returns the fence."""
        return fence_of(self("ACQUIRE", key, *options), "ACQUIRE %s %r" % (key, options))

    def pipeline(self, *commands):
        """Send all commands, then read the replies; returns the replies."""
        for words in commands:
            self.send(*words)
        return [self.reply() for _ in commands]

    @property
    def id(self):
        return self("CLIENT", "ID")


def fence_of(reply, what="ACQUIRE"):
    """The fence of a reply that must be a grant."""
    if not isinstance(reply, list):
        raise Failure("%s: got %r" % (what, reply))
    return reply[0]


def pairs(value):
    """A map in either protocol, as a dict with str names."""
    if isinstance(value, list):
        check(len(value) % 2, 0, "the length of a flat map")
        value = dict(zip(value[::2], value[1::2]))
    return {(k.decode() if isinstance(k, bytes) else k): v for k, v in value.items()}


class Server:
    """A server process of a test."""

    def __init__(self, stage, options, port="auto", wait=True, argv=None, **more):
        self.stage = stage
        self.port = None
        self.again = dict(options=options, port=port, argv=argv, **more)
        args = list(argv) if argv else [tap.program]
        if port is not None:
            args += ["--port", str(port)]
        self.process = stage.start(*args, *options, **more)
        self.pid = self.process.pid
        if wait:
            self.until_ready()

    @property
    def log(self):
        return self.process.err

    def until_ready(self):
        self.stage.until(lambda: "ready: sluice" in self.log or not self.process.running,
                         "the server is ready")
        if not self.process.running:
            raise Failure("the server ended with status %d" % self.process.status)
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)\b", self.log)
        self.port = int(found.group(1)) if found else None

    @property
    def address(self):
        return "127.0.0.1", self.port

    def client(self, protocol=2, address=None, **more):
        return Client(address or self.address, protocol, **more)

    def deaf(self):
        """A connection with a small receive buffer, which is soon full."""
        return self.client(receive_bytes=4096)

    def clients(self, count, protocol=2):
        return [self.client(protocol) for _ in range(count)]

    def with_clients(self, count, protocol=2):
        """s, a, b = t.server().with_clients(2)"""
        return [self] + self.clients(count, protocol)

    def redis(self, **more):
        import redis
        return redis.Redis(port=self.port, socket_timeout=PATIENCE_S, **more)

    def info(self, client=None):
        """All fields of INFO, as a dict."""
        c = client or self.client()
        text = c("INFO")
        if client is None:
            c.close()
        if isinstance(text, Error):
            raise Failure("INFO: %r" % text)
        lines = [line for line in text.decode().split("\r\n") if ":" in line]
        return dict(line.split(":", 1) for line in lines)

    def number(self, name, client=None):
        return int(self.info(client)[name])

    def rss_bytes(self):
        with open("/proc/%d/status" % self.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024

    def cpu_s(self):
        """The CPU time of the server."""
        with open("/proc/%d/stat" % self.pid) as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def explain(self, key, client=None):
        c = client or self.client()
        got = pairs(c("EXPLAIN", key))
        if client is None:
            c.close()
        return got

    def waiters(self, key, client=None):
        return self.explain(key, client)["waiters_count"]

    def holders(self, key, client=None):
        return self.explain(key, client)["holders_count"]

    def until_waiting(self, key, count, client=None):
        c = client or self.client()
        self.stage.until(lambda: self.waiters(key, c) == count, "%d wait for %s" % (count, key))
        if client is None:
            c.close()

    def waits(self, client, command, key, *words, count=1, by=None):
        """Send a command that waits for a key, and wait until the key has `count` waiters. by: the
        connection for EXPLAIN."""
        client.send(command, key, *words)
        self.until_waiting(key, count, by)

    def until_log(self, *texts):
        self.stage.until(lambda: all(text in self.log for text in texts),
                         "%r is in the log" % (texts,))

    def until_number(self, name, value):
        """Wait until a field of INFO has this value."""
        c = self.client()
        self.stage.until(lambda: self.number(name, c) == value, "%s is %d" % (name, value))
        c.close()

    def signal(self, number):
        os.kill(self.pid, number)

    def end(self, number=None):
        """Stop the server with SIGTERM; its exit status must be 0."""
        self.signal(number or signal.SIGTERM)
        check(self.status, 0, "the exit status")

    def kill(self):
        self.signal(signal.SIGKILL)
        check(self.status, -signal.SIGKILL, "the exit status")

    def restart(self):
        """Stop the server, and start a new one with the same options."""
        self.end()
        return Server(self.stage, **self.again)

    def crash(self):
        """Kill the server, and start a new one with the same options."""
        self.kill()
        return Server(self.stage, **self.again)

    @property
    def status(self):
        return self.process.status

    def still_well(self):
        """Fail unless the server runs and replies on a new connection."""
        check_that(self.process.running, "the server still runs")
        c = self.client()
        check(c("PING"), "PONG", "the answer to PING")
        c.close()


class Child:
    """A process that runs f(say), without the open files of the test. say(text) sends a line to
    the test. After f the process waits until it is killed, so its connections stay open."""

    def __init__(self, stage, f):
        self.stage = stage
        ours, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.alarm(0)
                os.dup2(theirs, 3)
                os.closerange(4, 65536)
                f(lambda text: os.write(3, b"%s\n" % as_bytes(text)))
                while True:
                    signal.pause()
            except BaseException as e:
                os.write(3, b"failed: %s\n" % repr(e).encode())
            finally:
                os._exit(1)
        os.close(theirs)
        self.pipe = ours
        self.said = b""

    def line(self):
        """The next line of the child."""
        while b"\n" not in self.said:
            if not select.select([self.pipe], [], [], PATIENCE_S)[0]:
                raise Failure("the child sends nothing")
            data = os.read(self.pipe, 4096)
            if not data:
                raise Failure("the child has ended")
            self.said += data
        line, _, self.said = self.said.partition(b"\n")
        if line.startswith(b"failed: "):
            raise Failure("the child " + line.decode())
        return line.decode()

    def kill(self):
        """Send SIGKILL, and wait until the child is dead."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def stop(self):
        stop(self.stage, self.pid)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)


def stop(stage, pid):
    """Send SIGSTOP, and wait until the process has stopped."""
    os.kill(pid, signal.SIGSTOP)
    stage.until(lambda: tap.stopped(pid), "process %d is stopped" % pid)


class LiveStage(tap.Stage):
    """The directory, the processes and the servers of a test."""

    def __init__(self, name):
        super().__init__(name)
        self.mounted = []  # mount points, which are unmounted before the directory is removed

    def tidy(self):
        for path in reversed(self.mounted):
            subprocess.run(["umount", "--lazy", path], stderr=subprocess.DEVNULL)
        super().tidy()

    def server(self, *options, **more):
        return Server(self, options, **more)

    def child(self, f):
        return Child(self, f)

    def failing(self, *options, port="auto"):
        """Run a server that must not start; returns the finished process."""
        args = [] if port is None else ["--port", port]
        p = self.run(tap.program, *args, *options)
        return p

    def config(self, text, name="sluice.conf"):
        return self.write(name, text)


tap.Stage = LiveStage


def start(t, *options, directory="data", **more):
    """A server with a data directory, so that it can be restarted. It has --data-volatile, because the
    directory of the test may be on tmpfs or overlayfs."""
    return t.server("--data", t.path(directory), "--data-volatile", *options, **more)


def both_protocols(f):
    """Register a test f(t, protocol) for each protocol."""
    for protocol in (2, 3):
        test_of("%s_RESP%d" % (f.__name__, protocol), f, protocol)
    return f


@contextlib.contextmanager
def threads(f, arguments):
    """Run f(x) for each argument in a thread while the block runs, then join the threads. Raises the
    first exception of a thread."""
    failed = []

    def run(x):
        try:
            f(x)
        except BaseException as e:
            failed.append(e)

    started = [threading.Thread(target=run, args=(x,), daemon=True) for x in arguments]
    for thread in started:
        thread.start()
    yield
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]


def sluice():
    """The path of the sluice command that was built with the server; skips the test if there is none."""
    here = os.path.dirname(tap.program)
    for path in (os.environ.get("SLUICE"), here + "/../cli/sluice", here + "/sluice"):
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Skip("there is no sluice next to the server")
