#!/usr/bin/python3
"""test_journal.py SLUICE [--jobs N] [PATTERN...] - `sluice journal show`, `check` and `forget`. SLUICE may
also be sluice-offline.

The journals are written by make_journal, which uses the code of the server, and in the last tests by
the server itself."""
import fcntl
import itertools
import json
import os
import pty
import shutil
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../cli"))
import tap  # noqa: E402
from tap import check, check_that, main, test  # noqa: E402

# Relative to the directory in which the suite was started. A test has another one.
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "../../build")))
HEADER_BYTES = 4096
SERVER_MARK = "This is the data directory of a Sluice server.\n"
NODE_MARK = "This is the data directory of a Sluice node.\n"


def build():
    """The directory of the other programs."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(tap.program)))
    if os.path.exists(os.path.join(own, "tests/storage/make_journal")):
        return own
    return os.path.join(BUILD, "plain")


def hexed(text):
    data = text if isinstance(text, bytes) else text.encode()
    return data.hex() or "-"


def grant(key, fence, ms, kind="long", units=1, capacity=1, name="", address="", note="", flags="-"):
    return "grant %s %d %d %s %d %d %s %s %s %s" % (hexed(key), fence, ms, kind, units, capacity,
                                                    hexed(name), hexed(address), hexed(note), flags)


START = ["life - 0", "volatile 60001", "fences 2000", "drain " + hexed("jobs/*"), "sync"]
LEASES = [grant("a", 1001, 3600000, name="web1", address="10.0.0.7:51152", note="nightly"),
          grant("b", 1002, 3600000, "short", 2, 10), "sync",
          grant("b", 1003, 3600000, "short", 3, 10, flags="o"), "mark " + hexed("m") + " 3600000", "frame"]


def make(t, lines, name="data", mark=SERVER_MARK, use="server"):
    """Write a journal. Returns the path of its directory."""
    path = t.path(name)
    os.makedirs(path)
    os.chmod(path, 0o700)
    t.write(name + "/lock", mark, 0o600)
    t.write(name + "/store", "not touched", 0o600)
    with open(t.write(name + ".txt", "\n".join(lines) + "\n")) as f:
        p = t.run(os.path.join(build(), "tests/storage/make_journal"), path, use, stdin=f)
    check((p.status, p.err), (0, ""), "make_journal")
    return path


def journal(t, *args, **more):
    return t.sluice("journal", *args, **more)


def show(t, path):
    """The journal as JSON, which must be in order."""
    p = journal(t, "show", "--json", path)
    check((p.status, p.err), (0, ""), "show")
    return json.loads(p.out)


def keys_of(shown):
    return [(lease["key"], lease["fence"]) for lease in shown["leases"]]


def counts(t, path):
    p = journal(t, "check", path)
    check((p.status, p.err), (0, ""), "check")
    return dict(line.split(" ", 1) for line in p.out.splitlines())


def change(path, offset, data):
    with open(os.path.join(path, "journal"), "r+b") as f:
        f.seek(offset)
        f.write(data)


def frames(path):
    """(offset, bytes) of all frames."""
    with open(os.path.join(path, "journal"), "rb") as f:
        data = f.read()
    found, at = [], HEADER_BYTES
    mark = data[at:at + 4]
    while data[at:at + 4] == mark and len(found) < 100:
        found.append((at, struct.unpack_from("<I", data, at + 4)[0]))
        at += found[-1][1]
    return found


def damage(path, which):
    """Change a byte of a record in the frame with this index. Returns the frame's offset."""
    at, size = frames(path)[which]
    change(path, at + size - 1, b"\xaa")
    return at


def content(path):
    with open(os.path.join(path, "journal"), "rb") as f:
        return f.read()


# --- show -----------------------------------------------------------------------


@test
def show_prints_leases_limits_drains_and_marks(t):
    path = make(t, START + LEASES)
    p = journal(t, "show", path)
    check((p.status, p.err), (0, ""))
    for part in ("of a server, not in use", "(this boot)", "not cleanly", "2000", "lease-volatile  1m",
                 "jobs/*", "start           holds 3 leases, and grants locks at once"):
        check_that(part in p.out, "it prints %r: %s" % (part, p.out))
    rows = [line.split() for line in p.out.splitlines() if line.startswith(("a ", "b "))]
    check(rows[0][:2] + rows[0][3:], ["a", "1001", "long", "1", "web1", "10.0.0.7:51152", "-", "nightly"])
    check(rows[1][:2] + rows[1][3:], ["b", "1002", "short", "2", "of", "10", "-", "-", "-"])
    check(rows[2][:2] + rows[2][3:], ["b", "1003", "short", "3", "of", "10", "-", "overlapping", "-"])


@test
def show_as_json(t):
    shown = show(t, make(t, START + LEASES))
    check(shown["start"], {"same_life": True, "reason": None, "held": 3, "ignored": 0, "wait_ms": 0})
    check((shown["owner"], shown["in_use"], shown["clean"], shown["damaged_at"]),
          ("server", False, False, None))
    check((shown["fence_limit"], shown["lease_volatile_ms"], shown["drained"]), (2000, 60000, ["jobs/*"]))
    check([m["key"] for m in shown["overlaps"]], ["m"])
    lease = shown["leases"][0]
    check_that(0 < lease.pop("remaining_ms") <= 3600000, "the time that remains")
    check(lease, {"key": "a", "fence": 1001, "held": True, "long": True, "shared": False, "units": 1,
                  "capacity": 1, "priority": 0, "client": "web1", "address": "10.0.0.7:51152",
                  "note": "nightly", "broken": False, "overlapping": False, "stolen": False})
    check(shown["leases"][2]["overlapping"], True)
    check((shown["leases"][2]["units"], shown["leases"][2]["capacity"]), (3, 10))


@test
def text_of_clients_is_escaped(t):
    path = make(t, START + [grant(b"k\n\x1b[2J", 1, 3600000, name="n\r", address="\u202e",
                                  note=b"\xff\\\"\xc3\xbc"), "frame"])
    p = journal(t, "show", path)
    check_that("k\\x0a\\x1b[2J" in p.out and "n\\x0d" in p.out and "\\xe2\\x80\\xae" in p.out
               and "\\xff\\x5c\"\u00fc" in p.out, "it is escaped: " + p.out)
    check_that("\x1b" not in p.out, "no control characters")
    lease = show(t, path)["leases"][0]
    check((lease["key"], lease["client"]), ("k\n\x1b[2J", "n\r"))
    check((lease["note"], lease["note_hex"]), ("\ufffd\\\"\u00fc", "ff5c22c3bc"))
    p = journal(t, "forget", "--yes", path, "no\x1bsuch")
    check_that(p.status == 1 and "no\\x1bsuch" in p.err, p.err)


@test
def in_another_life_short_leases_are_ignored_and_new_grants_wait(t):
    path = make(t, ["life another-boot 0"] + START[1:] + LEASES)
    shown = show(t, path)
    start = shown["start"]
    check((start["same_life"], start["reason"], start["held"], start["ignored"]),
          (False, "the machine has been booted since", 1, 2))
    check([lease["held"] for lease in shown["leases"]], [True, False, False])
    check(shown["leases"][1]["remaining_ms"], None)
    p = journal(t, "show", path)
    check_that("the machine has been booted since: holds 1 lease, "
               "ignores 2 short leases" in p.out, p.out)
    check_that("ignored" in p.out.splitlines()[-1], p.out)
    c = counts(t, path)
    # The mark is short, too.
    check((c["life"], c["held"], c["ignored"]),
          ("other: the machine has been booted since", "2", "3"))


@test
def a_copied_journal_is_another_life_and_waits(t):
    path = make(t, START + LEASES)
    shutil.copytree(path, t.path("copy"))
    shown = show(t, t.path("copy"))
    check(shown["start"]["reason"], "the file has been copied or moved")
    check_that(50000 < shown["start"]["wait_ms"] <= 60001, "it waits lease-volatile from the start")


@test
def after_a_clean_stop_nothing_is_ignored(t):
    path = make(t, ["life another-boot 0"] + START[1:] + LEASES + ["clean", "sync"])
    shown = show(t, path)
    check((shown["clean"], shown["start"]["held"], shown["start"]["wait_ms"]), (True, 3, 0))
    check_that("stopped         cleanly" in journal(t, "show", path).out, "it prints that")


@test
def ended_leases_are_not_shown_and_expired_ones_are_marked(t):
    path = make(t, START + LEASES + ["end %s 1002" % hexed("b"), grant("old", 7, 0, "short"), "frame"])
    check(keys_of(show(t, path)), [("a", 1001), ("b", 1003), ("old", 7)])
    check(show(t, path)["start"]["held"], 2)
    check_that("expired" in journal(t, "show", path).out.splitlines()[-1], "it is marked")


@test
def the_journal_of_a_node_shows_its_keys(t):
    path = make(t, START + ["key %s 3600000 40" % hexed("x"), "frame"], mark=NODE_MARK, use="node")
    shown = show(t, path)
    check((shown["owner"], shown["leases"]), ("node", []))
    check([(k["key"], k["bytes"], k["held"]) for k in shown["keys"]], [("x", 40, True)])
    p = journal(t, "show", path)
    check_that("of a node" in p.out and "holds 1 key, and votes at once" in p.out, p.out)
    check(p.out.splitlines()[-1].split()[0::3], ["x", "40"])


@test
def a_node_that_was_a_server_waits_for_the_leases_of_the_server(t):
    """How long it does not vote is in its file, not in its journal."""
    path = make(t, START, mark=NODE_MARK, use="node")
    t.write("data/node", "sluice node 2\nid 1\nbirth 0123456789abcdef\nfence_limit 2000\n"
            "lease_longest_ms 240000\n", 0o600)
    check(show(t, path)["start"]["wait_ms"], 240000)
    check(counts(t, path)["wait_ms"], "240000")
    p = journal(t, "show", path)
    check_that("holds 0 keys, and waits 4m before it votes" in p.out, p.out)


# --- A running server ------------------------------------------------------------


def in_use(path):
    """Lock the directory as a server does."""
    f = open(os.path.join(path, "lock"))
    fcntl.flock(f, fcntl.LOCK_EX)
    return f


@test
def show_and_check_work_while_a_server_runs_and_forget_does_not(t):
    path = make(t, START + LEASES)
    before = content(path)
    lock = in_use(path)
    check(show(t, path)["in_use"], True)
    check_that("in use by a running server" in journal(t, "show", path).out, "it says so")
    check(counts(t, path)["in_use"], "yes")
    p = journal(t, "forget", "--yes", path)
    check((p.status, p.out), (69, ""))
    check_that("a server uses" in p.err and "BREAK" in p.err, p.err)
    check_that(content(path) == before, "nothing was changed")
    lock.close()
    check(show(t, path)["in_use"], False)
    check(journal(t, "forget", "--yes", path).status, 0)


@test
def damage_is_reported_while_a_server_runs(t):
    path = make(t, START + LEASES)
    at = damage(path, 1)
    lock = in_use(path)
    p = journal(t, "check", path)
    check(p.status, 65)
    check_that("offset %d" % at in p.err, p.err)
    lock.close()


# --- check ------------------------------------------------------------------------


@test
def check_counts_frames_records_and_items(t):
    path = make(t, START + LEASES)
    end = sum(frames(path)[-1])
    c = counts(t, path)
    check(c, {"format": "2", "owner": "server", "in_use": "no", "frames": "3", "records": "8",
              "items": "5", "bytes": str(end), "incomplete_bytes": "0", "position": "2",
              "durable_position": c["durable_position"], "clean": "no", "life": "same", "held": "5",
              "ignored": "0", "wait_ms": "0"})
    # The last frame was written after the sync of the one before it.
    check(c["durable_position"], "1")


@test
def an_incomplete_last_frame_is_not_damage(t):
    path = make(t, START + LEASES)
    at, size = frames(path)[-1]
    change(path, at + size - 30, bytes(30))
    c = counts(t, path)
    check((c["frames"], c["bytes"], c["items"]), ("2", str(at), "3"))
    check_that(0 < int(c["incomplete_bytes"]) <= size - 30, "it counts the rest")
    os.truncate(os.path.join(path, "journal"), at + 10)
    check_that(0 < int(counts(t, path)["incomplete_bytes"]) <= 10, "it counts the rest")


@test
def damage_in_the_middle_is_reported_with_its_offset(t):
    path = make(t, START + LEASES)
    at = damage(path, 1)
    p = journal(t, "check", path)
    check(p.status, 65)
    check_that("damaged at offset %d" % at in p.err and "journal forget" in p.err, p.err)
    check_that("\nframes 1\n" in p.out and "wait_ms" not in p.out, p.out)
    p = journal(t, "show", path)
    check(p.status, 65)
    check_that("jobs/*" in p.out and "impossible" in p.out and "\na " not in p.out, p.out)
    p = journal(t, "show", "--json", path)
    shown = json.loads(p.out)
    check((p.status, shown["damaged_at"], shown["start"], shown["drained"]), (65, at, None, ["jobs/*"]))


@test
def bad_input_is_reported(t):
    path = make(t, START + LEASES)
    os.mkdir(t.path("empty"))
    header = content(path)[:HEADER_BYTES]
    for name, data in (("text", b"hello\n"), ("nothing", b""), ("newer", header[:16] + b"\x03" + header[17:]),
                       ("header", header[:50] + b"\x01" + header[51:])):
        os.mkdir(t.path(name))
        with open(t.path(name + "/journal"), "wb") as f:
            f.write(data)
    os.mkdir(t.path("fifo"))
    os.mkfifo(t.path("fifo/journal"))
    os.mkdir(t.path("link"))
    os.symlink(os.path.join(path, "journal"), t.path("link/journal"))
    for verb in ("show", "check"):
        for name, status, words in (("none", 66, "does not exist"), ("empty", 66, "no journal"),
                                    ("data.txt", 66, "Not a directory"),
                                    ("text", 65, "header"), ("nothing", 65, "header"),
                                    ("header", 65, "header"),
                                    ("newer", 65, "format 3"), ("fifo", 65, "not a regular file"),
                                    ("link", 65, "not a regular file")):
            p = journal(t, verb, t.path(name))
            check((p.status, p.out), (status, ""), verb + " " + name)
            check_that(words in p.err, "it says %r: %s" % (words, p.err))
    for name, status, words in (("none", 66, "does not exist"), ("empty", 66, "no journal"),
                                ("newer", 65, "format 3"), ("fifo", 65, "not a regular file")):
        p = journal(t, "forget", "--yes", t.path(name))
        check((p.status, p.out), (status, ""), "forget " + name)
        check_that(words in p.err, "it says %r: %s" % (words, p.err))
    check(os.listdir(t.path("empty")), [], "nothing is made")


@test
def without_permission_the_status_is_77(t):
    nobody = t.as_nobody()
    path = make(t, START + LEASES)
    program = t.copy_of_program()
    shutil.copy(os.path.join(build(), "src/offline/sluice-offline"),
                os.path.join(os.path.dirname(program), "sluice-offline"))
    for words in (["show"], ["check"], ["forget", "--yes"]):
        p = t.run(*nobody, program, "journal", *words, path)
        check((p.status, p.out), (77, ""), words[0])
        check_that("Permission denied" in p.err, p.err)


@test
def a_wrong_command_line_is_reported(t):
    for words in ([], ["nonsense"], ["show"], ["show", "a", "b"], ["check", "--json", "a"],
                  ["check", ""], ["forget"], ["forget", "a", "b", "c"], ["show", "--yes", "a"]):
        p = journal(t, *words)
        check((p.status, p.out), (64, ""), " ".join(words))
    own = os.path.join(build(), "src/offline/sluice-offline")
    for words in (["show"], ["show", "a", "b"], ["show", "--yes", "a"], ["forget", "--json", "a"],
                  ["forget", "a", "b", "c"], ["check", "--", ""]):
        p = t.run(own, "journal", *words)
        check((p.status, p.out), (64, ""), "sluice-offline journal " + " ".join(words))
        check_that("usage" in p.err or "unknown option" in p.err, p.err)


# --- forget -----------------------------------------------------------------------


@test
def forget_ends_all_leases_and_keeps_everything_else(t):
    path = make(t, START + LEASES)
    p = journal(t, "forget", "--yes", path)
    check((p.status, p.out, p.err), (0, "ended 3 leases\n", ""))
    shown = show(t, path)
    check((shown["leases"], shown["drained"], shown["fence_limit"], shown["lease_volatile_ms"]),
          ([], ["jobs/*"], 2000, 60000))
    check([m["key"] for m in shown["overlaps"]], ["m"])
    check((shown["start"]["same_life"], shown["start"]["wait_ms"]), (True, 0))
    check(sorted(os.listdir(path)), ["journal", "lock", "store"])
    check(t.read("data/store"), "not touched")
    check(os.stat(path + "/journal").st_mode & 0o777, 0o600)
    check(int(counts(t, path)["position"]), 2, "positions continue")
    check(journal(t, "forget", "--yes", path).out, "the journal has no leases, and new grants do not wait\n")


@test
def forget_of_a_key_ends_its_leases_alone(t):
    path = make(t, START + LEASES)
    check(journal(t, "forget", "--yes", path, "b").out, "ended 2 leases\n")
    shown = show(t, path)
    check(keys_of(shown), [("a", 1001)])
    check_that(3500000 < shown["leases"][0]["remaining_ms"] <= 3600000, "with its expiry")
    check(shown["leases"][0]["note"], "nightly")
    before = content(path)
    p = journal(t, "forget", "--yes", path, "b")
    check((p.status, p.out), (1, ""))
    check_that('the key "b" has no lease' in p.err, p.err)
    check_that(content(path) == before, "nothing was changed")


@test
def a_key_may_begin_with_a_dash(t):
    path = make(t, START + [grant("--yes", 5, 3600000), "frame"])
    check(journal(t, "forget", "--yes", path, "--", "--yes").out, "ended 1 lease\n")


@test
def forget_of_a_key_keeps_the_wait_and_forget_of_all_ends_it(t):
    path = make(t, ["life - 500000"] + START[1:] + LEASES)
    check(journal(t, "forget", "--yes", path, "b").status, 0)
    check_that(400000 < show(t, path)["start"]["wait_ms"] <= 500000, "it still waits")
    # Even if the machine loses power before the server starts.
    shutil.copytree(path, t.path("copy"))
    check_that(400000 < show(t, t.path("copy"))["start"]["wait_ms"] <= 500000, "it still waits")
    check(journal(t, "forget", "--yes", path).status, 0)
    check(show(t, path)["start"]["wait_ms"], 0)
    shutil.rmtree(t.path("copy"))
    shutil.copytree(path, t.path("copy"))
    check(show(t, t.path("copy"))["start"]["wait_ms"], 0)


@test
def forget_in_another_life_keeps_the_leases_that_a_start_would_hold(t):
    path = make(t, ["life another-boot 0"] + START[1:] + LEASES + [grant("c", 1004, 400000), "sync"])
    check(journal(t, "forget", "--yes", path, "a").out, "ended 1 lease\n")
    shown = show(t, path)
    check((keys_of(shown), shown["start"]["same_life"]), ([("c", 1004)], True))
    check_that(300000 < shown["leases"][0]["remaining_ms"] <= 400000, "with the rest of its time")


@test
def without_a_terminal_forget_needs_yes(t):
    path = make(t, START + LEASES)
    before = content(path)
    p = journal(t, "forget", path)
    check((p.status, p.out), (64, ""))
    check_that("This ends 3 leases at once. A client that still holds one of them is not protected "
               "any more: another client can be granted the same lock." in p.err, p.err)
    check_that("--yes" in p.err, p.err)
    check_that(content(path) == before, "nothing was changed")


def on_terminal(t, answer, *words):
    """Run a command on a terminal. Returns its status and what it printed."""
    ours, its = pty.openpty()
    p = t.start(tap.program, "journal", *words, stdin=its)
    p.until_err("Type yes to continue: ")
    os.write(ours, answer)
    status = p.status
    os.close(ours)
    os.close(its)
    return status, p.out + p.err


@test
def forget_asks_on_a_terminal(t):
    path = make(t, START + LEASES)
    for answer in (b"no\n", b"y\n", b"yesterday\n", b"\n", b"\x04"):
        status, text = on_terminal(t, answer, "forget", path)
        check(status, 1, repr(answer))
        check_that("nothing was changed" in text, text)
        check(len(show(t, path)["leases"]), 3)
    status, text = on_terminal(t, b"yes\n", "forget", path)
    check_that(status == 0 and "ended 3 leases" in text, text)
    check(show(t, path)["leases"], [])


@test
def a_damaged_journal_is_kept_and_replaced(t):
    path = make(t, START + LEASES + ["fences 9000000000000000", "volatile 400001", "sync", "frame"])
    damage(path, 1)
    broken = content(path)
    check(journal(t, "forget", "--yes", path, "a").status, 65, "not for one key")
    p = journal(t, "forget", path)
    check_that(p.status == 64 and "including those that cannot be read" in p.err and
               "Drained patterns that cannot be read are lost" in p.err, p.err)
    check_that(content(path) == broken, "nothing was changed")
    p = journal(t, "forget", "--yes", path)
    check((p.status, p.err), (0, ""))
    check_that("journal.damaged" in p.out and "waits 6m40s" in p.out, p.out)
    with open(path + "/journal.damaged", "rb") as f:
        check_that(f.read() == broken, "it is the damaged file")
    shown = show(t, path)
    check((shown["leases"], shown["drained"], shown["lease_volatile_ms"]), ([], ["jobs/*"], 400000))
    check_that(shown["fence_limit"] >= 9000000000000000, "the limit after the damage is found")
    check_that(300000 < shown["start"]["wait_ms"] <= 400001, "the next start waits")
    damage(path, 0)
    change(path, 100, b"damaged")
    check(journal(t, "forget", "--yes", path).status, 0)
    check(sorted(os.listdir(path)), ["journal", "journal.damaged", "journal.damaged.2", "lock", "store"])


@test
def a_journal_that_cannot_be_read_at_all_is_replaced(t):
    path = make(t, START + LEASES)
    with open(path + "/journal", "wb") as f:
        f.write(bytes(8192))
    p = journal(t, "forget", "--yes", path)
    check((p.status, p.err), (0, ""))
    check_that("above the clock" in p.out and "default" in p.out, p.out)
    shown = show(t, path)
    now_us = int(os.stat(path + "/journal").st_mtime * 1000000)
    check_that(shown["fence_limit"] > now_us, "fences continue above the clock")
    check_that(0 < shown["start"]["wait_ms"] <= 60001, "the next start waits")


@test
def the_journal_of_a_node_is_not_changed(t):
    for i, (mark, use) in enumerate(((NODE_MARK, "node"), ("", "node"), (NODE_MARK, "server"))):
        path = make(t, START + LEASES, "d%d" % i, mark, use)
        p = journal(t, "forget", "--yes", path)
        check((p.status, p.out), (65, ""))
        check_that("node of a majority cluster" in p.err, p.err)
        check(len(show(t, path)["leases"]), 3)


@test
def a_full_disk_leaves_the_journal_in_place(t):
    path = make(t, START + LEASES)
    before = content(path)
    p = t.run("bash", "-c", 'ulimit -f 1; exec "$@"', "bash", tap.program, "journal", "forget", "--yes", path)
    check(p.status, 71, p.err)
    check_that("still in place" in p.err, p.err)
    check_that(content(path) == before, "it is the old one")
    check(sorted(os.listdir(path)), ["journal", "lock", "store"])


# --- With the server -----------------------------------------------------------------


def serve(t, path):
    """Start a server in this directory. Returns it and the words of `sluice do`."""
    s = t.start(os.path.join(build(), "src/server/sluice-server"), "--port", "0", "--socket",
                t.path("socket"), "--data", path)
    s.until_err("ready: sluice")
    return s, (os.path.join(build(), "src/cli/sluice"), "do", "-q", "--server", "unix:" + t.path("socket"))


@test
def a_server_forgets_what_was_forgotten(t):
    path = t.path("data")
    s, do = serve(t, path)
    for key in ("kept", "gone"):
        check(t.run(*do, "ACQUIRE", key, "LEASE", "600000").status, 0)
    check(sorted(k for k, _ in keys_of(show(t, path))), ["gone", "kept"])
    check(show(t, path)["in_use"], True)
    check(show(t, path)["lease_volatile_ms"], 60000, "the default of the setting")
    check(journal(t, "forget", "--yes", path, "gone").status, 69)
    s.kill()
    check(s.status, -9)
    check(journal(t, "forget", "--yes", path, "gone").out, "ended 1 lease\n")
    s, do = serve(t, path)
    check(t.run(*do, "ACQUIRE", "kept", "LEASE", "600000").status, 1, "it is still held")
    check(t.run(*do, "ACQUIRE", "gone", "LEASE", "600000").status, 0, "it is free")
    s.kill()
    check(s.status, -9)
    check(journal(t, "forget", "--yes", path).out, "ended 2 leases\n")
    s, do = serve(t, path)
    check(t.run(*do, "ACQUIRE", "kept", "LEASE", "600000").status, 0, "it is free")


@test
def a_server_starts_after_its_damaged_journal_was_forgotten(t):
    path = t.path("data")
    s, do = serve(t, path)
    fence = int(t.run(*do, "ACQUIRE", "k", "LEASE", "600000").out.split()[0])
    check(t.run(*do, "ACQUIRE", "l", "LEASE", "600000").status, 0)
    s.kill()
    check(s.status, -9)
    damage(path, 1)
    s = t.run(os.path.join(build(), "src/server/sluice-server"), "--port", "0", "--socket",
              t.path("socket"), "--data", path)
    check_that(s.status == 1 and "journal" in s.err and "damaged" in s.err, s.err)
    check(journal(t, "check", path).status, 65)
    check(journal(t, "forget", "--yes", path).status, 0)
    check_that(show(t, path)["fence_limit"] > fence, "fences continue")
    s, do = serve(t, path)
    p = t.run(*do, "ACQUIRE", "k", "LEASE", "600000")
    check_that(p.status == 69 and "RECOVERING" in p.err, "it waits: " + p.err)
    s.kill()
    check(s.status, -9)
    check(journal(t, "forget", "--yes", path).out, "ended 0 leases\n")
    s, do = serve(t, path)
    p = t.run(*do, "ACQUIRE", "k", "LEASE", "600000")
    check(p.status, 0, "the wait has ended: " + p.err)
    check_that(int(p.out.split()[0]) > fence, "the fence is higher")


def words_of(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


@test
def the_journal_of_a_busy_server_is_intact(t):
    """Frames are written while the command reads, and the file is replaced."""
    path = t.path("data")
    _, _ = serve(t, path)
    if os.fork() == 0:  # Ends with the test.
        c = socket.socket(socket.AF_UNIX)
        c.connect(t.path("socket"))
        for i in itertools.count():
            c.sendall(b"".join(words_of(b"ACQUIRE", b"k%d" % (20 * i + j), b"LEASE", b"100")
                               for j in range(20)))
            c.recv(65536)
    inode = os.stat(path + "/journal").st_ino
    t.until(lambda: os.stat(path + "/journal").st_size > 2000000 or
            os.stat(path + "/journal").st_ino != inode, "the journal grows")
    for _ in range(20):
        check(counts(t, path)["life"], "same")
        show(t, path)


main(__doc__)
