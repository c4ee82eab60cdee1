"""cut.py - for tests of clients that lose their server: a proxy that can be cut, and processes that report lines."""
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time

PATIENCE_S = 60


class CutProxy:
    """Forwards connections to a server, until it is cut: then it is silent, and closes nothing."""

    def __init__(self, port, host="127.0.0.1"):
        self.up, self.is_cut = (host, port), False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            down, _ = self.listener.accept()
            try:
                up = socket.create_connection(self.up)
            except ConnectionRefusedError:
                down.close()
                continue
            for a, b in ((down, up), (up, down)):
                threading.Thread(target=self.forward, args=(a, b), daemon=True).start()

    def forward(self, source, target):
        try:
            while data := source.recv(65536):
                if not self.is_cut:
                    target.sendall(data)
        except OSError:
            pass
        if not self.is_cut:
            target.close()


class Process:
    def __init__(self, *args):
        self.popen = subprocess.Popen(args, stdout=subprocess.PIPE)
        self.lines, self.rest = [], b""
        os.set_blocking(self.popen.stdout.fileno(), False)

    def until(self, word, count=1):
        """Wait until `count` lines begin with a word; returns these lines, split."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = [line for line in self.lines if line[0] == word]
            if len(found) >= count:
                return found
            if not select.select([self.popen.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("no %d lines %r: %r" % (count, word, self.lines[-5:]))
            data = self.popen.stdout.read()
            if data == b"":
                raise EOFError("the process ended after %d of %d lines %r: %r" % (
                    len(found), count, word, self.lines[-5:]))
            *lines, self.rest = (self.rest + data).split(b"\n")
            self.lines += [line.decode().split() for line in lines]

    def signal(self, number):
        self.popen.send_signal(number)


def ask(port, *words):
    """The reply to a command, as it was received."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
        return s.recv(65536)


def start_server(server, data, port="auto", *options):
    """Start a server that forgets nothing when it is killed. Returns its process and its port."""
    process = subprocess.Popen([server, "--port", str(port), "--data", data, "--data-volatile", "--log-level", "info",
                                *options], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "listening on 127.0.0.1:" in line:
            port = int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1))
        if " ready: " in line:
            return process, port
    sys.exit("the server does not start")
