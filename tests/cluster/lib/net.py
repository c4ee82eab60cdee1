"""net.py - a network namespace for each node, joined by a bridge.

    the machine            10.X.Y.254   bridge NAME: clients, and the proxy
      | NAMEv1 -- eth0     10.X.Y.1     namespace NAME-1
      | NAMEv2 -- eth0     10.X.Y.2     namespace NAME-2

Needs root, and the commands ip and iptables. Rules are set inside the namespaces alone: the
machine's own are not touched. Everything has NAME in its name, and down() removes by name,
so that it also ends what a killed process began.
"""
import hashlib
import os
import subprocess

OUTSIDE = 254


class CannotRun(OSError):
    """A command failed, and what it said."""


def run(*words, check=True):
    environment = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    try:
        p = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env=environment)
    except FileNotFoundError:
        raise CannotRun("there is no command %s; tools/deps has it" % words[0]) from None
    text = p.stdout.decode("utf-8", "replace")
    if check and p.returncode != 0:
        raise CannotRun("%s: %s" % (" ".join(words), text.strip()))
    return text


def missing():
    """Why namespaces cannot be had here; None if they can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    for command in ("ip", "iptables"):
        try:
            run(command, "-V")
        except CannotRun as e:
            return str(e)
    return None


class Net:
    """The namespaces of one cluster."""

    def __init__(self, kept=None):
        kept = kept or {}
        self.name = kept.get("name")
        self.subnet = kept.get("subnet")  # "10.77.12"

    def as_dict(self):
        return {"name": self.name, "subnet": self.subnet}

    def choose(self, name):
        """Names and addresses; nothing is made yet."""
        self.name = name
        seed = hashlib.sha256(name.encode()).digest()
        taken = run("ip", "-o", "-4", "addr") + run("ip", "-4", "route")
        for i in range(200):
            self.subnet = "10.%d.%d" % (64 + seed[0] % 128, (seed[1] + i) % 256)
            if self.subnet + "." not in taken:
                return
        raise CannotRun("no subnet is free")

    def host(self, number):
        return "%s.%d" % (self.subnet, number or OUTSIDE)

    def namespace(self, number):
        return "%s-%d" % (self.name, number)

    def inside(self, number):
        """Words before a command that run it there; they execute it, and do not fork."""
        return ["ip", "netns", "exec", self.namespace(number)]

    # Making and removing.

    def up(self):
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "addr", "add", self.host(0) + "/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def add(self, number):
        space, here = self.namespace(number), "%sv%d" % (self.name, number)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", here, "master", self.name, "up")
        # One that is removed and added again must not look like another machine: others
        # remember for half a minute where an address was.
        mac = "02:00:%02x:%02x:%02x:%02x" % tuple(map(int, self.host(number).split(".")))
        for words in (("link", "set", "eth0", "address", mac),
                      ("addr", "add", self.host(number) + "/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            run("ip", "-n", space, *words)

    def remove(self, number):
        run("ip", "netns", "del", self.namespace(number), check=False)
        # The namespace goes when its last socket does; its link is not to wait for that.
        run("ip", "link", "del", "%sv%d" % (self.name, number), check=False)

    def down(self):
        if self.name is None:
            return
        for line in run("ip", "netns", "list").splitlines():
            word = line.split()[0] if line.split() else ""
            if word.startswith(self.name + "-"):
                self.remove(int(word.rpartition("-")[2]))
        run("ip", "link", "del", self.name, check=False)

    # Faults.

    def rule(self, number, *words):
        run(*self.inside(number), "iptables", "-w", *words)

    def block(self, number, other, how, outgoing=False, port=None, chance=None):
        """In the namespace of a node: drop what comes from another (outgoing: what goes
        there), or only what comes to a port (from it); "reset": and tell the sender."""
        words = ["-A", "OUTPUT", "-d"] if outgoing else ["-A", "INPUT", "-s"]
        words += [self.host(other), "-p", "tcp"]
        if port is not None:
            words += ["--sport" if outgoing else "--dport", str(port)]
        if chance is not None:
            words += ["-m", "statistic", "--mode", "random", "--probability", str(chance)]
        if how == "reset":
            words += ["-j", "REJECT", "--reject-with", "tcp-reset"]
        else:
            words += ["-j", "DROP"]
        self.rule(number, *words)

    def unblock(self, number):
        self.rule(number, "-F")
