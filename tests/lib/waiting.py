"""waiting.py - waiting for what can be seen, with a deadline."""
import time

PATIENCE_S = 30.0  # for whatever must come at last on a machine that stalls


def until(condition, what, seconds=PATIENCE_S):
    """Wait for a condition; what it is true of is returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError("after %d s it is still not so that %s" % (seconds, what))
        time.sleep(0.005)


def state_of(pid):
    """The letter that the kernel has for a process; "" if there is none."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return f.read().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""
