"""processes.py - waiting, and the processes of a cluster.

A cluster has no file with process numbers: that may be old, and its numbers others' by now.
What belongs to it has its directory in the environment, and is found by that.
"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from waiting import PATIENCE_S, state_of, until  # noqa: E402,F401

MARK = "SLUICE_CLUSTER"  # in the environment of each process: the directory of its cluster
ROLE = "SLUICE_CLUSTER_NODE"  # the number of a node, or "proxy"


class Refused(Exception):
    """It cannot be done here, and why."""


def processes_of(directory):
    """{pid: role} of all that lives of the cluster in this directory."""
    mark = ("%s=%s" % (MARK, directory)).encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if mark in words:
            role = [w.split(b"=", 1)[1].decode() for w in words
                    if w.startswith(ROLE.encode() + b"=")]
            found[int(name)] = role[0] if role else ""
    return found


def end_processes(directory):
    """SIGKILL to all of them, and wait until none is left."""

    def none_left():
        there = processes_of(directory)
        for pid in there:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not there

    until(none_left, "the processes of %s are gone" % directory)
