#!/usr/bin/env python3
"""test_canal.py SLUICE [--jobs N] [PATTERN...] - what `sluice canal` shows, and what it
does to segments."""
import json
import os
import re
import signal
import stat
import subprocess
import time

import tap
from tap import EXCLUSIVE, Skip, alive, check, check_that, main, test

KILL = signal.SIGKILL
NO_SEGMENT = {"SLUICE_SEGMENT": None}
# The home directory is unsuitable, so the default segment is in /dev/shm.
IN_DEV_SHM = {"SLUICE_SEGMENT": None, "XDG_STATE_HOME": "/nonexistent/state"}

# Keys that a terminal or a JSON parser could choke on.
CONTROL = "a\tb\nc\x1b[31md\x07e\x7ff"
QUOTES = "say \"it's\" \\n \\u0041"
UNICODE = "Schlüssel ключ 鍵 🔑"
C1 = "a\x9bb"  # the one-character form of ESC [
BROKEN = b"a\xff\xfe\xc3b\xe2\x82"
ALL = [k.encode() for k in (CONTROL, QUOTES, UNICODE, C1)] + [BROKEN]


def canal(t, *args, **more):
    return t.sluice("canal", *args, **more)


def refused(t, status, *args, **more):
    """It fails with a status and words, and writes nothing to stdout."""
    p = canal(t, *args, **more)
    check(p.status, status, "the status of canal " + " ".join(map(str, args)))
    check(p.out, "", "the output of canal " + " ".join(map(str, args)))
    check_that(p.err.startswith("sluice canal"), "it is said")
    return p


def clean(p):
    """The output is UTF-8, and has no control characters but newlines."""
    text = p.out_bytes().decode("utf-8", "strict")
    bad = [c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]
    check(bad, [], "control characters of " + " ".join(map(str, p.args[1:])))
    return text


def dead_holder(t, *options, key="k"):
    """A run that was killed with its command, and that nobody has taken notice of."""
    p = t.hold(*options, key=key)
    p.kill()
    check(p.status, -KILL)
    os.kill(p.command, KILL)
    t.until(lambda: not alive(p.command), "the command is gone")
    return p


# --- make ---------------------------------------------------------------------


@test
def make_makes_a_segment_of_the_sizes_asked_for(t):
    name = t.name()
    p = canal(t, "make", "--keys", "64", "--slots", "32", "--records", "512", name)
    check(p.status, 0)
    listed = [s for s in t.json("canal", "ls", "--json")["segments"] if s["name"] == name]
    check(len(listed), 1)
    check((listed[0]["keys"], listed[0]["slots"], listed[0]["records"]), (64, 32, 512))
    check(listed[0]["path"], "/dev/shm/sluice." + name)


@test
def make_takes_a_path(t):
    check(canal(t, "make", t.segment).status, 0)
    check_that(os.path.exists(t.segment), "it is there")
    check(t.sluice("run", "k", "--", "true").status, 0)


@test
def make_sets_the_requested_mode(t):
    for word, mode in ((None, 0o600), ("0660", 0o660)):
        path = t.segment + str(word)
        options = ("--mode", word) if word else ()
        check(canal(t, "make", *options, path, before=lambda: os.umask(0o077)).status, 0)
        check(stat.S_IMODE(os.stat(path).st_mode), mode)


@test
def make_does_not_harm_a_segment_that_is_there(t):
    holder = t.hold("-j", "3")
    canal(t, "make", "--keys", "8", t.segment)
    check_that(holder.running, "the holder runs")
    check(t.held(), 1)
    check_that(t.taken("-j", "1"), "its permit counts")


@test
def make_rejects_invalid_sizes(t):
    refused(t, 64, "make")
    refused(t, 64, "make", t.segment, t.segment + "2")
    for option in ("--keys", "--slots", "--records"):
        for word in ("x", "", "-1", "99999999999", "1.5"):
            refused(t, 64, "make", option, word, t.segment)
    refused(t, 64, "make", "--mode", "9", t.segment)
    refused(t, 64, "make", "--nosuch", t.segment)
    check_that(not os.path.exists(t.segment), "nothing is made")


@test
def make_without_permission_exits_with_77(t):
    nobody = t.as_nobody()
    p = t.run(*nobody, t.copy_of_program(), "canal", "make", t.segment)
    check(p.status, 77)
    check_that(p.err.startswith("sluice canal"), "it is said")


# --- ls -----------------------------------------------------------------------


@test
def ls_lists_segments_with_their_sizes(t):
    name = t.name()
    t.hold("--segment", name)
    p = canal(t, "ls")
    check(p.status, 0)
    lines = clean(p).splitlines()
    for word in ("NAME", "OWNER", "KEYS", "SLOTS", "RECORDS", "SIZE", "STATE"):
        check_that(word in lines[0].split(), "there is a column " + word)
    mine = [line for line in lines if name in line.split()]
    check(len(mine), 1)
    check_that("ok" in mine[0].lower().split(), "its state is ok")
    check_that(re.search(r"\b1/\d+", mine[0]), "one key is in use")


@test
def ls_as_json_has_every_field(t):
    name = t.name()
    t.hold("--segment", name)
    document = t.json("canal", "ls", "--json")
    check(set(document), {"segments"})
    mine = [s for s in document["segments"] if s["name"] == name][0]
    check(set(mine), {"name", "path", "owner", "keys", "keys_used", "slots", "slots_used",
                      "records", "records_used", "bytes", "status"})
    check(mine["path"], "/dev/shm/sluice." + name)
    check((mine["keys_used"], mine["slots_used"]), (1, 1))
    check_that(mine["records_used"] >= 1, "records are in use")
    check(mine["bytes"], os.path.getsize(mine["path"]))
    check(mine["status"].lower(), "ok")
    for field in ("keys", "keys_used", "slots", "slots_used", "records", "records_used", "bytes"):
        check_that(isinstance(mine[field], int), field + " is a number")


@test
def ls_quiet_prints_names_that_show_accepts(t):
    names = {t.name(suffix) for suffix in ("a", "b")}
    for name in names:
        check(canal(t, "make", name).status, 0)
    p = canal(t, "ls", "-q")
    check(p.status, 0)
    check_that(names <= set(p.out.splitlines()), "they are there, and nothing next to them")
    for name in names:
        check(canal(t, "show", name).status, 0)


@test
def ls_of_an_empty_directory_is_empty_and_no_error(t):
    private = t.private()
    p = t.run(*private, tap.program, "canal", "ls", "--json")
    check((p.status, json.loads(p.out)), (0, {"segments": []}))
    p = t.run(*private, tap.program, "canal", "ls", "-q")
    check((p.status, p.out), (0, ""))
    check(t.run(*private, tap.program, "canal", "ls").status, 0)


@test
def ls_shows_the_state_of_a_segment_that_was_cut(t):
    name = t.name()
    check(canal(t, "make", name).status, 0)
    os.truncate("/dev/shm/sluice." + name, 8192)
    document = t.json("canal", "ls", "--json")
    check([s["status"] for s in document["segments"] if s["name"] == name], ["TRUNCATED"])
    line = [x for x in canal(t, "ls").out.splitlines() if name in x.split()][0]
    check_that("TRUNCATED" in line.split(), "its state is there")


@test
def watching_a_truncated_segment_reports_it_and_does_not_crash(t):
    check(canal(t, "make", t.segment).status, 0)
    p = t.begin("canal", "watch", "--interval", "0.05", t.segment)
    p.until_out("KEY")
    os.truncate(t.segment, 4096)
    check_that(p.status in (65, 66), "it has ended by itself, with %d" % p.status)
    check_that("truncated" in p.err, "it is said: " + p.err)


@test
def ls_is_not_kept_from_the_rest_by_what_is_not_a_segment(t):
    good = t.name("good")
    check(canal(t, "make", good).status, 0)
    for n in range(3):
        with open("/dev/shm/sluice." + t.name("bad%d" % n), "w") as f:
            f.write("not a segment\n" * 1000 * n)
    check_that(good in [s["name"] for s in t.json("canal", "ls", "--json")["segments"]],
               "the good one is there")


@test
def ls_escapes_what_is_in_a_name(t):
    private = t.private()
    script = ("touch /dev/shm/sluice.$(printf 'a\\033[31mb') && "
              "mkdir /dev/shm/sluice.directory && \"$@\"")
    p = t.run(*private, "sh", "-c", script, "sh", tap.program, "canal", "ls")
    check(p.status, 0)
    clean(p)
    p = t.run(*private, "sh", "-c", script, "sh", tap.program, "canal", "ls", "--json")
    json.loads(p.out)


# --- show ---------------------------------------------------------------------


@test
def show_has_a_line_for_each_key(t):
    t.hold("-j", "3", "--buckets", "2", key="counts")
    t.hold(key="alone")
    p = canal(t, "show", t.segment)
    check(p.status, 0)
    lines = clean(p).splitlines()
    head = [i for i, line in enumerate(lines) if line.split()[:1] == ["KEY"]]
    check(len(head), 1, "lines that begin with KEY")
    check(lines[head[0]].split(), ["KEY", "HELD", "CAPACITY", "HOLDERS", "WAITERS"])
    body = {line.split()[0]: line.split() for line in lines[head[0] + 1:]}
    check(set(body), {"counts", "alone"})
    check(body["counts"][1], "1")
    check(body["counts"][-2:], ["1", "0"], "holders and waiters")


@test
def show_as_json_has_every_field(t):
    t.hold("-j", "3", "--buckets", "2")
    document = t.show()
    check(set(document), {"segment", "keys"})
    check(document["segment"], t.segment)
    check(document["keys"], [{"key": "k", "held": 1, "per": 3, "buckets": 2,
                              "kind": "counting", "capacities_differ": False, "holders": 1,
                              "waiters": 0}])


@test
def show_tells_the_kinds_apart(t):
    t.hold("-x", key="x")
    t.hold("-s", key="s")
    t.hold("-s", key="s")
    t.hold("-j", "2", key="j")
    kinds = {k["key"]: (k["kind"], k["held"], k["holders"]) for k in t.show()["keys"]}
    check(kinds, {"x": ("exclusive", EXCLUSIVE, 1), "s": ("shared", 2, 2),
                  "j": ("counting", 1, 1)})


@test
def show_tells_when_capacities_differ(t):
    t.hold("-j", "2")
    t.hold("-j", "3")
    k = t.key()
    check((k["capacities_differ"], k["per"], k["held"]), (True, 3, 2))


@test
def show_counts_waiters(t):
    t.hold()
    for n in (1, 2):
        t.wait_for()
        t.until(lambda: t.key()["waiters"] == n, "%d wait" % n)


@test
def show_quiet_prints_key_names_only(t):
    t.hold(key="a")
    t.hold(key="b")
    p = canal(t, "show", "-q", t.segment)
    check(p.status, 0)
    check(sorted(p.out.splitlines()), ["a", "b"])


@test
def show_of_a_key_names_holders_and_waiters(t):
    before = time.time() * 1000
    holder = t.hold("-j", "1")
    waiter = t.wait_for("-j", "1", command=("sleep", "0"))
    t.until_waiting(1)
    document = t.show("k")
    check(set(document), {"segment", "key", "held", "per", "buckets", "kind", "picture",
                          "held_by", "pending"})
    check((document["segment"], document["key"], document["held"], document["per"],
           document["buckets"], document["kind"], document["picture"]),
          (t.segment, "k", 1, 1, 1, "counting", "[1]"))
    check((len(document["held_by"]), len(document["pending"])), (1, 1))
    for who, p, program, state in ((document["held_by"][0], holder, "sh", "holds"),
                                   (document["pending"][0], waiter, "sleep", "waits")):
        check(set(who), {"pid", "tid", "program", "units", "per", "buckets", "since_ms",
                         "state", "inherited_by"})
        check((who["pid"], who["tid"], who["program"], who["units"], who["per"],
               who["buckets"], who["state"], who["inherited_by"]),
              (p.pid, p.pid, program, 1, 1, 1, state, []))
        check_that(before - 1000 <= who["since_ms"] <= time.time() * 1000 + 1000,
                   "since_ms is right")
    text = clean(canal(t, "show", t.segment, "k"))
    for word in (str(holder.pid), str(waiter.pid), "holds", "waits", "sh", "sleep", "[1]"):
        check_that(word in text, "the text says " + word)


@test
def show_of_a_key_draws_its_picture(t):
    for _ in range(3):
        t.hold("-j", "2", "--buckets", "2")
    check(t.show("k")["picture"], "[2,1]")
    check_that("[2,1]" in canal(t, "show", t.segment, "k").out, "it is in the text")


@test
def show_of_an_exclusive_key_is_not_a_page_of_numbers(t):
    t.hold()
    check_that(len(canal(t, "show", t.segment, "k").out) < 2000, "it is short")


@test
def show_names_what_is_left_of_a_command(t):
    p = t.hold()
    p.kill()
    check(p.status, -KILL)
    who = t.show("k")["held_by"]
    check([(w["pid"], w["state"], w["inherited_by"]) for w in who], [(p.pid, "inherited", [p.command])])
    text = clean(canal(t, "show", t.segment, "k"))
    check_that(re.search(r"\binherited\b", text) and str(p.command) in text, "the text says so")


@test
def show_names_the_dead(t):
    p = dead_holder(t)
    who = t.show("k")["held_by"]
    check([(w["pid"], w["state"], w["inherited_by"]) for w in who], [(p.pid, "dead", [])])
    check(t.held(), EXCLUSIVE)
    check_that(re.search(r"\bdead\b", clean(canal(t, "show", t.segment, "k"))),
               "the text says so")


@test
def show_of_a_command_in_place_of_its_wrapper_names_it(t):
    p = t.hold("-F")
    who = t.show("k")["held_by"]
    check([(w["pid"], w["inherited_by"]) for w in who], [(p.pid, [p.pid])])


@test
def show_without_a_segment_shows_the_default_segment(t):
    for env, path in ((NO_SEGMENT, t.path(".local/state/sluice/segment")),
                      (IN_DEV_SHM, "/dev/shm/sluice.%d" % t.private_uid())):
        p = t.run(*t.private(), "sh", "-c", '"$0" run -j 2 k -- "$0" canal show --json',
                  tap.program, env=env)
        check(p.status, 0)
        document = json.loads(p.out)
        check(document["segment"], path)
        check([k["key"] for k in document["keys"]], ["k"])


@test
def show_of_a_key_shows_it_in_the_default_segment(t):
    t.hold()
    p = canal(t, "show", "k")
    check((p.status, p.err), (0, ""))
    check(p.out.split("\n")[0], "k: exclusive")
    p = t.run(tap.program, "run", "-n", "mine", "--", tap.program, "canal", "show", "--json", "mine",
              env=NO_SEGMENT)
    check(json.loads(p.out)["segment"], t.path(".local/state/sluice/segment"))


@test
def show_prefers_a_key_and_otherwise_shows_a_segment_of_that_name(t):
    name = t.name()
    check(canal(t, "make", name).status, 0)
    check(t.json("canal", "show", "--json", name)["segment"], "/dev/shm/sluice." + name)
    t.hold(key=name)
    check(t.json("canal", "show", "--json", name)["key"], name)
    check(t.json("canal", "show", "--json", "--segment", name)["keys"], [])
    p = refused(t, 66, "show", "nosuch")
    check(p.err, "sluice canal show: no process holds or waits for \"nosuch\" in %s, and no "
                 "segment has this name\n" % t.segment)
    p = refused(t, 66, "show", "--segment", name, "nosuch")
    check(p.err, "sluice canal show: no process holds or waits for \"nosuch\" in "
                 "/dev/shm/sluice.%s\n" % name)
    refused(t, 64, "show", "--segment", name, "k", "k")
    refused(t, 64, "show", "--segment", "", "k")


@test
def show_before_the_first_lock_says_that_there_are_none(t):
    p = t.run(*t.private(), tap.program, "canal", "show", env=IN_DEV_SHM)
    check((p.status, p.out), (66, ""))
    check(p.err, "sluice canal show: no locks: the default segment is created when it is first "
                 "used\n")


@test
def ls_lists_the_default_segment(t):
    check(t.sluice("run", "k", "--", "true", env=NO_SEGMENT).status, 0)
    path = t.path(".local/state/sluice/segment")
    check_that(path in canal(t, "ls", "-q", env=NO_SEGMENT).out.splitlines(), "it is listed")
    check(t.json("canal", "show", "--json", path)["segment"], path)


@test
def show_takes_no_slot_and_makes_no_segment(t):
    check(canal(t, "make", "--slots", "1", t.segment).status, 0)
    t.hold()
    check(t.held(), EXCLUSIVE)
    refused(t, 66, "show", t.segment + "2")
    check_that(not os.path.exists(t.segment + "2"), "nothing is made")


# --- What is not there --------------------------------------------------------


@test
def a_missing_segment_exits_with_66(t):
    for args in (("show",), ("show", "--json"), ("show", "-q"), ("reap",), ("reap", "--json"),
                 ("rm",), ("rm", "--force"), ("watch", "--count", "1"),
                 ("watch", "--json", "--count", "1")):
        refused(t, 66, *args, t.segment)
    refused(t, 66, "show", t.segment, "k")
    refused(t, 66, "show", t.unique)


@test
def a_missing_key_exits_with_66(t):
    t.hold()
    refused(t, 66, "show", t.segment, "another")
    refused(t, 66, "show", "--json", t.segment, "another")


@test
def a_file_that_is_not_a_segment_exits_with_65(t):
    path = t.write("foreign", "not a segment\n" * 1000)
    for args in (("show",), ("reap",), ("rm",), ("watch", "--count", "1")):
        refused(t, 65, *args, path)
    check_that(os.path.exists(path), "it is still there")


@test
def a_segment_without_permission_exits_with_77(t):
    nobody = t.as_nobody()
    sluice = t.copy_of_program()
    check(canal(t, "make", t.segment).status, 0)
    os.chmod(t.memory, 0o755)
    for args in (("show",), ("reap",), ("rm",), ("watch", "--count", "1")):
        p = t.run(*nobody, sluice, "canal", *args, t.segment)
        check(p.status, 77, "the status of canal " + " ".join(args))
    check_that(os.path.exists(t.segment), "it is still there")


@test
def invalid_arguments_exit_with_64(t):
    for args in ((), ("nosuch",), ("show", "a", "b", "c"), ("ls", "extra"), ("rm",),
                 ("reap", "a", "b"), ("show", "--nosuch"), ("watch", "--count", "x"),
                 ("watch", "--interval", "x"), ("watch", "a", "b", "c"), ("rm", "--nosuch", "a")):
        p = canal(t, *args)
        check(p.status, 64, "the status of canal " + " ".join(args))
        check(p.out, "")
        check_that(p.err.startswith("sluice"), "it is said")


# --- Names that nobody expects ------------------------------------------------


@test
def keys_are_escaped_in_text(t):
    for key in ALL:
        t.hold("-j", "2", key=key)
    text = clean(canal(t, "show", t.segment))
    check_that("Schlüssel ключ" in text, "what can be shown is shown as it is")
    names = clean(canal(t, "show", "-q", t.segment)).splitlines()
    check(len(names), len(ALL), "the number of names, one a line")
    check(len(set(names)), len(ALL), "the number of different names")
    for key in ALL:
        clean(canal(t, "show", t.segment, key))


@test
def keys_are_escaped_in_json(t):
    for key in ALL:
        t.hold("-j", "2", key=key)
    p = canal(t, "show", "--json", t.segment)
    shown = [k["key"] for k in json.loads(p.out_bytes().decode("utf-8", "strict"))["keys"]]
    for key in ALL[:-1]:
        check_that(key.decode() in shown, "%r is there as it is" % key)
    check(len(set(shown)), len(ALL), "the number of different keys")
    for key in ALL:
        p = canal(t, "show", "--json", t.segment, key)
        check(p.status, 0)
        document = json.loads(p.out_bytes().decode("utf-8", "strict"))
        check(document["held"], 1)
    check(p.out_bytes().count(b"\n"), 1, "the lines of a document")


@test
def different_broken_keys_stay_different(t):
    for key in (b"\xff", b"\xfe", "\ufffd", "\\xff"):
        t.hold("-j", "2", key=key)
    keys = t.show()["keys"]
    check(sorted(k.get("key_hex", "") for k in keys), ["", "", "fe", "ff"], "those not UTF-8")
    check(len(set(canal(t, "show", "-q", t.segment).out.splitlines())), 4,
          "different keys in text")


@test
def names_of_programs_are_escaped(t):
    name = "p\x1b[1m\n\"\\"
    t.script(name, "#!/bin/sh\necho up\nread _\n")
    p = t.begin("run", "k", "--", "./" + name, stdin=subprocess.PIPE)
    p.until_out("up")
    clean(canal(t, "show", t.segment, "k"))
    check(t.show("k")["held_by"][0]["program"], name)
    waiter = t.wait_for()
    said = waiter.until_err("\n")
    check_that("\x1b" not in said and said.count("\n") == 1, "also in the note")


@test
def a_segment_s_path_is_escaped(t):
    path = os.path.join(t.memory, 'a"b\x1b[1m\\')
    t.hold("--segment", path)
    clean(canal(t, "show", path))
    check(t.json("canal", "show", "--json", path)["segment"], path)


# --- reap ---------------------------------------------------------------------


@test
def reap_releases_the_permits_of_the_dead(t):
    for _ in range(3):
        dead_holder(t, "-j", "3")
    check(t.held(), 3)
    p = canal(t, "reap", t.segment)
    check((p.status, p.out), (0, "released 3 units\n"))
    check(t.held(), 0)


@test
def reap_as_json_counts_units(t):
    dead_holder(t, "-j", "3")
    check(t.json("canal", "reap", "--json", t.segment), {"reaped": 1})
    check(t.json("canal", "reap", "--json", t.segment), {"reaped": 0})
    dead_holder(t)
    check(t.json("canal", "reap", "--json", t.segment), {"reaped": EXCLUSIVE})


@test
def reap_leaves_the_living_and_what_is_left_alone(t):
    t.hold("-j", "5")
    t.hold("-j", "5", "-F")
    left = t.hold("-j", "5")
    left.kill()
    check(left.status, -KILL)
    dead_holder(t, "-j", "5")
    check(t.json("canal", "reap", "--json", t.segment), {"reaped": 1})
    check(t.held(), 3)


# --- rm -----------------------------------------------------------------------


@test
def rm_removes_segments(t):
    paths = [t.segment + n for n in "abc"]
    for path in paths:
        check(canal(t, "make", path).status, 0)
    check(canal(t, "rm", *paths).status, 0)
    check([os.path.exists(path) for path in paths], [False] * 3)


@test
def rm_takes_a_name(t):
    name = t.name()
    check(canal(t, "make", name).status, 0)
    check(canal(t, "rm", name).status, 0)
    check_that(not os.path.exists("/dev/shm/sluice." + name), "it is gone")


@test
def rm_rejects_a_segment_in_use_and_removes_it_by_force(t):
    holder = t.hold("-o")
    refused(t, 1, "rm", t.segment)
    check_that(os.path.exists(t.segment), "it is there")
    check(canal(t, "rm", "--force", t.segment).status, 0)
    check_that(not os.path.exists(t.segment), "it is gone")
    check(holder.status, 79)


@test
def rm_of_a_segment_of_dead_users_is_allowed(t):
    dead_holder(t)
    check(canal(t, "rm", t.segment).status, 0)


@test
def rm_of_several_fails_if_one_of_them_fails(t):
    check(canal(t, "make", t.segment).status, 0)
    p = canal(t, "rm", t.segment + "2", t.segment)
    check(p.status, 66)


# --- watch --------------------------------------------------------------------


@test
def watch_shows_as_often_as_asked(t):
    t.hold("-j", "2", key="watched")
    p = canal(t, "watch", "--interval", "50ms", "--count", "3", t.segment)
    check(p.status, 0)
    check(clean(p).count("watched"), 3)


@test
def watch_as_json_is_one_document_a_line(t):
    t.hold("-j", "2")
    p = canal(t, "watch", "--json", "--interval", "0.05", "--count", "3", t.segment)
    check(p.status, 0)
    lines = p.out.splitlines()
    check(len(lines), 3)
    for line in lines:
        check(json.loads(line)["keys"][0]["key"], "k")


@test
def watch_shows_what_changes_and_ends_by_a_signal(t):
    check(canal(t, "make", t.segment).status, 0)
    p = t.begin("canal", "watch", "--json", "--interval", "50ms", t.segment)
    p.until_out("\n")  # it is not kept in a buffer
    t.hold(key="newcomer")
    p.until_out("newcomer")
    p.kill(signal.SIGINT)
    check_that(p.status in (0, -signal.SIGINT, 128 + signal.SIGINT), "it ends")


@test
def watch_waits_for_a_second_between_two_outputs(t):
    check(canal(t, "make", t.segment).status, 0)
    start = time.monotonic()
    check(canal(t, "watch", "--json", "--count", "2", t.segment).status, 0)
    check_that(time.monotonic() - start >= 0.95, "a second has passed")


# --- Output -------------------------------------------------------------------

SHOWS = (("ls",), ("ls", "--json"), ("show", "SEGMENT"), ("show", "--json", "SEGMENT"),
         ("show", "-q", "SEGMENT"), ("show", "SEGMENT", "k"), ("show", "--json", "SEGMENT", "k"),
         ("reap", "SEGMENT"), ("reap", "--json", "SEGMENT"), ("watch", "--count", "1", "SEGMENT"),
         ("watch", "--json", "--count", "1", "SEGMENT"))


def each(t):
    for args in SHOWS:
        yield [t.segment if a == "SEGMENT" else a for a in args]


@test
def there_are_no_escapes_when_stdout_is_not_a_terminal(t):
    t.hold()
    for args in each(t):
        p = canal(t, *args, env={"TERM": "xterm-256color", "COLORTERM": "truecolor"})
        check(p.status, 0)
        clean(p)


@test
def a_full_disk_is_an_error(t):
    if not os.path.exists("/dev/full"):
        raise Skip("there is no /dev/full")
    t.hold()
    with open("/dev/full", "w") as full:
        for args in each(t):
            p = canal(t, *args, stdout=full)
            check_that(p.status > 0, "canal %s fails, and not with %d" % (args, p.status))
            check_that("No space left" in p.err, "it is said")
        for args in (("--help",), ("--version",), ("help", "run"), ("run", "--help")):
            p = t.sluice(*args, stdout=full)
            check_that(p.status > 0 and p.err != "", "sluice %s fails" % (args,))


@test
def a_closed_stdout_is_an_error(t):
    t.hold()
    for args in each(t):
        p = canal(t, *args, before=lambda: os.close(1))
        check_that(p.status > 0, "canal %s fails, and not with %d" % (args, p.status))
        check_that(p.err != "", "it is said")
    check(t.held(), EXCLUSIVE, "the units that are held, if nothing was written to the segment")


@test
def a_closed_reader_ends_watch(t):
    check(canal(t, "make", t.segment).status, 0)
    r, w = os.pipe()
    os.close(r)
    p = t.begin("canal", "watch", "--interval", "50ms", t.segment, stdout=w)
    os.close(w)
    check_that(p.status != 0, "it ends")


@test
def json_is_the_same_in_every_locale(t):
    t.hold("-j", "2", key=UNICODE)
    for locale in ("C", "POSIX", "C.UTF-8"):
        p = canal(t, "show", "--json", t.segment, env={"LC_ALL": locale})
        check(json.loads(p.out_bytes().decode())["keys"][0]["key"], UNICODE)


main(__doc__)
