#!/usr/bin/python3
"""test_store.py SLUICE [--jobs N] [PATTERN...] - `sluice store check`, `dump` and `load`."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../cli"))
import tap  # noqa: E402
from tap import check, check_that, main, test  # noqa: E402

# Of each kind of record, with bytes of all kinds.
TEXT = r'''sluice store 1
term 3
revision 9
data "" "\x00\x00" 9 "\x00"
data "t" "" 1 ""
data "t" "a b" 2 "a \x22quoted\x22 \x5cword"
data "t" "k" 9 "\xff\xc3\xbc\x0a"
data "tt" "k" 4 "vvvvvvvv"
request "r1" 1 1000
request "\x00 r2" 4 1000
request "r3" 9 2000
barred 3 7
barred 3 18446744073709551615
end 10
'''


def directory(t, name="data"):
    os.mkdir(t.path(name))
    return t.path(name)


def load(t, text, name="data"):
    with open(t.write(name + ".txt", text)) as f:
        return t.sluice("store", "load", directory(t, name), stdin=f)


def dump(t, name="data"):
    p = t.sluice("store", "dump", t.path(name))
    check((p.status, p.err), (0, ""))
    return p.out


@test
def what_was_dumped_can_be_loaded_and_is_the_same(t):
    p = load(t, TEXT)
    check((p.status, p.out, p.err), (0, "", ""))
    check(dump(t), TEXT)
    check(load(t, dump(t), "other").status, 0)
    check(dump(t, "other"), TEXT)
    check(sorted(os.listdir(t.path("data"))), ["store", "store-lock"])
    check(os.stat(t.path("data/store")).st_mode & 0o777, 0o600)


@test
def a_check_counts(t):
    load(t, TEXT)
    p = t.sluice("store", "check", t.path("data"))
    check((p.status, p.err), (0, ""))
    check(p.out, "format 1\nterm 3\nrevision 9\ntables 3\nkeys 5\nvalue_bytes 29\n"
                 "requests 3\nbarred 2\n")


@test
def an_empty_store_can_be_dumped_and_loaded(t):
    text = "sluice store 1\nterm 0\nrevision 0\nend 0\n"
    check(load(t, text).status, 0)
    check(dump(t), text)


@test
def many_records_and_large_ones(t):
    lines = ['data "t" "%08d" 1 "%s"' % (i, "v" * (i % 50)) for i in range(20000)]
    lines.append('data "u" "large" 1 "%s"' % ("x" * 5000000))
    text = "sluice store 1\nterm 1\nrevision 1\n%s\nend %d\n" % ("\n".join(lines), len(lines))
    check(load(t, text).status, 0)
    check_that(dump(t) == text, "it is the same")


@test
def a_file_that_is_not_a_dump_is_rejected_and_leaves_nothing(t):
    cases = [("", "the input is incomplete"), ("hello\n", "line 1"), (TEXT.replace("store 1", "store 2"),
                                                             "another version"),
             (TEXT.replace("end 10\n", ""), "the input is incomplete"), (TEXT[:-4], "line 14"),
             (TEXT + "more\n", "line 15"), (TEXT.replace("end 10", "end 9"), "line 14"),
             (TEXT.replace("term 3\n", ""), "line 2"), (TEXT.replace('"a b"', '"a b'), "line 6"),
             (TEXT.replace("\\x5c", "\\x5g"), "line 6"), (TEXT.replace("\\x5c", "\\n"), "line 6"),
             (TEXT.replace(" 2 ", " two "), "line 6"), (TEXT.replace(" 2 ", " -2 "), "line 6"),
             (TEXT.replace(" 2 ", " 99999999999999999999 "), "line 6"),
             (TEXT.replace('"tt"', '"%s"' % ("t" * 509)), "line 8"),
             (TEXT.replace('"r1"', '""'), "line 9"),
             (TEXT.replace("barred 3 7", "barred 2 7"), 'database "barred": a record has the wrong term 2'),
             (TEXT.replace("revision 9", "revision 8"), "revision 9"),
             (TEXT.replace("r1\" 1 1000", "r1\" 1 3000"), "an earlier time than"),
             (TEXT.replace("r1\" 1 ", "r1\" 5 "), "line 10"),
             (TEXT.replace('"tt" "k" 4', '"t" "k" 4'), "twice"),
             (TEXT.replace("term 3", "term 3 "), "line 2")]
    for i, (text, words) in enumerate(cases):
        p = load(t, text, "d%d" % i)
        check(p.status, 65, "the status of case %d, %r" % (i, words))
        check_that(words in p.err and "nothing was loaded" in p.err,
                   "it says %r: %s" % (words, p.err))
        check(os.listdir(t.path("d%d" % i)), [], "what is left of case %d" % i)


@test
def a_store_that_is_there_is_not_replaced(t):
    load(t, TEXT)
    with open(t.write("other.txt", "sluice store 1\nterm 0\nrevision 0\nend 0\n")) as f:
        p = t.sluice("store", "load", t.path("data"), stdin=f)
    check(p.status, 73)
    check_that("already contains a store" in p.err, "it says so")
    check(dump(t), TEXT)


@test
def where_there_is_none_it_says_so(t):
    for command in ("check", "dump"):
        p = t.sluice("store", command, directory(t, command))
        check((p.status, p.out), (66, ""))
        check_that("does not exist" in p.err, "it says so")
        check(os.listdir(t.path(command)), [], "nothing is made")
    p = t.sluice("store", "load", t.path("none"))
    check(p.status, 66)
    check_that("does not exist" in p.err, "it says so")


@test
def a_wrong_command_line_is_reported(t):
    for words in ([], ["nonsense"], ["check"], ["check", "a", "b"], ["dump", "--fast", "a"],
                  ["check", ""]):
        check(t.sluice("store", *words).status, 64, " ".join(words))
    build = os.path.dirname(os.path.dirname(tap.program))
    own = os.path.join(build, "offline/sluice-offline")
    for words in ([], ["store"], ["nonsense", "check", "a"], ["store", "nonsense", "a"],
                  ["store", "check"], ["store", "check", ""], ["store", "check", "a", "b"],
                  ["store", "check", "-a"], ["check", "a"]):
        p = t.run(own, *words)
        check((p.status, p.out), (64, ""), "sluice-offline " + " ".join(words))
        check_that("usage" in p.err or "missing" in p.err or "unknown" in p.err, p.err)


@test
def sluice_offline_has_help_and_a_version(t):
    build = os.path.dirname(os.path.dirname(tap.program))
    own = os.path.join(build, "offline/sluice-offline")
    for words in (["--help"], ["-h"], ["store", "--help"], ["store", "check", "--help"]):
        p = t.run(own, *words)
        check((p.status, p.err), (0, ""), " ".join(words))
        for verb in ("check", "dump", "load"):
            check_that("sluice-offline store %s DIRECTORY" % verb in p.out, "it names " + verb)
        for text in ("data directory of a server", "store dump /var/lib/sluice >saved",
                     "Exit status", "man sluice-store"):
            check_that(text in p.out, "it has " + text)
    for option in ("--version", "-V"):
        p = t.run(own, option)
        check((p.status, p.err), (0, ""), option)
        check(p.out.replace("sluice-offline ", "sluice "), t.sluice("version").out)
    with open("/dev/full", "w") as full:
        check(t.run(own, "--help", stdout=full).status, 71)


@test
def foreign_truncated_and_damaged_files_are_reported(t):
    load(t, TEXT)
    path = t.path("data/store")
    with open(path, "rb") as f:
        good = f.read()
    changed = good.replace(b"vvvvvvvv", b"vvvvVvvv")
    check_that(changed != good, "the value is there")
    for name, data in (("text", b"hello\n" * 1000), ("empty", b""), ("cut", good[:12288]),
                       ("short", good[:5000]), ("changed", changed)):
        with open(path, "wb") as f:
            f.write(data)
        p = t.sluice("store", "check", t.path("data"))
        check((p.status, p.out), (65, ""), name)
        check_that(name != "changed" or "wrong checksum" in p.err, "it says what: " + p.err)
    p = t.sluice("store", "dump", t.path("data"))
    check(p.status, 65)
    check_that("skipped 1 damaged record\n" in p.err, "it says so")
    check(p.out, TEXT.replace('data "tt" "k" 4 "vvvvvvvv"\n', "").replace("end 10", "end 9"))
    check(load(t, p.out, "saved").status, 0)


@test
def a_damaged_page_is_reported_whatever_it_does_to_LMDB(t):
    """Where the head of a page says something else LMDB is led astray, or gives up."""
    lines = ['data "t" "%04d" 1 "%s"' % (i, "v" * 100) for i in range(600)]
    text = "sluice store 1\nterm 1\nrevision 1\n%s\nend 600\n" % "\n".join(lines)
    check(load(t, text).status, 0)
    path, page = t.path("data/store"), os.sysconf("SC_PAGESIZE")
    with open(path, "rb") as f:
        good = f.read()
    seen = set()
    for at in range(2 * page, len(good), page):
        for what in (b"\1\0", b"\2\0", b"\4\0"):  # A branch, a leaf, a large value.
            with open(path, "wb") as f:
                f.write(good[:at + 10] + what + good[at + 12:])
            for command in ("check", "dump"):
                p = t.sluice("store", command, t.path("data"))
                check_that(p.status in (0, 65), "%s, page %d: %d" % (command, at / page, p.status))
                check_that((p.status == 65) == ("damaged" in p.err or "is not a store" in p.err
                                                or "cannot be read" in p.err), "it says: " + p.err)
                check_that(p.status == 65 or p.out == text or command == "check", "it is whole")
                seen.add((command, "a page is invalid" in p.err))
                if "a page is invalid" in p.err:
                    check_that("restore a copy" in p.err, "it says what to do")
                    check_that("\nend " not in p.out, "what is not whole has no end")
    for command in ("check", "dump"):
        check_that((command, True) in seen, "some end who reads: " + command)


@test
def a_dump_through_a_pipe_needs_disk_space(t):
    load(t, TEXT)
    read, write = os.pipe()
    p = t.sluice("store", "dump", t.path("data"), stdout=write, env={"TMPDIR": t.path("none")})
    check(p.status, 73)
    check_that("TMPDIR" in p.err, "it says what to do: " + p.err)
    os.close(read)
    os.close(write)


@test
def a_store_in_use_can_be_checked_and_dumped(t):
    build = os.path.dirname(os.path.dirname(os.path.dirname(tap.program)))
    p = t.start(os.path.join(build, "tests/storage/committer"), directory(t))
    p.until_out("ok 1.10 ")
    for _ in range(10):
        check(t.sluice("store", "check", t.path("data")).status, 0)
        text = dump(t)
        check_that(p.running, "it goes on")
    check(load(t, text, "copy").status, 0)
    check(dump(t, "copy"), text)


@test
def unwritable_output_is_reported(t):
    load(t, TEXT)
    for command in ("check", "dump"):
        with open("/dev/full", "w") as full:
            p = t.sluice("store", command, t.path("data"), stdout=full)
        check(p.status, 71, command)


main(__doc__)
