"""patches.py - reads, writes, applies and merges the files tests/mutants/NAME.patch.

A mutant is a deliberate bug that a test must find. Its file starts with a header, one field per
line; after an empty line follows a diff against src/ or include/ that breaks the rule:

    Rule: A waiter whose connection closes leaves the queue.
    Test: live server/sessions a_waiter_that_leaves_by_reset*

    diff --git a/src/server/net/conn.c b/src/server/net/conn.c
    index 0f3a5c1d2e4b..9d8c7b6a5f4e 100644
    --- a/src/server/net/conn.c
    ...

`Rule:` is one sentence: what the correct code guarantees. Each `Test:` names a test that must
fail; `Soak:` is the same for a test that is too long for `make test`. kinds.py lists the kinds
of test. The `index` line records the version of the file that the diff was made against, as git
does; refresh needs it for a three-way merge.
"""
import difflib
import glob
import hashlib
import os
import re
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
DIRECTORY = os.path.join("tests", "mutants")
SOURCES = ("src", "include")
FIELDS = ("Rule", "Test", "Soak")


class Error(Exception):
    """An error message for the user."""


class Patch:
    """One mutant: its name, its header, and its diff."""

    def __init__(self, name, rule, tests, soaks, diff):
        self.name, self.rule, self.tests, self.soaks, self.diff = name, rule, tests, soaks, diff

    @property
    def path(self):
        return path_of(self.name)

    @property
    def files(self):
        """[(path, blob)]: each file that the patch changes, and the version that it was made against."""
        found = []
        for section in re.split(r"^(?=diff --git )", self.diff, flags=re.M)[1:]:
            path = re.match(r"diff --git a/(\S+) b/(\S+)\n", section)
            blob = re.search(r"^index ([0-9a-f]+)\.\.", section, re.M)
            if path is None or path[1] != path[2] or blob is None:
                raise Error("%s: expected `diff --git a/FILE b/FILE` and `index OLD..NEW`"
                            % self.path)
            found.append((path[1], blob[1]))
        return found

    def text(self):
        lines = ["Rule: " + self.rule]
        lines += ["Test: " + t for t in self.tests] + ["Soak: " + t for t in self.soaks]
        return "\n".join(lines) + "\n\n" + self.diff

    def write(self):
        with open(os.path.join(ROOT, self.path), "w", encoding="utf-8") as f:
            f.write(self.text())


def path_of(name):
    return os.path.join(DIRECTORY, name + ".patch")


def names():
    return sorted(os.path.basename(p)[:-len(".patch")]
                  for p in glob.glob(os.path.join(ROOT, DIRECTORY, "*.patch")))


def read(name):
    path = path_of(name)
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
    except FileNotFoundError:
        raise Error("there is no mutant %s (%s); `tools/mutant list` shows all" % (name, path))
    head, _, diff = text.partition("\n\n")
    values = {field: [] for field in FIELDS}
    for line in head.splitlines():
        field, colon, value = line.partition(": ")
        if field not in values or not colon or not value.strip():
            raise Error("%s: invalid header line \"%s\" (expected `Rule: `, `Test: ` or `Soak: `)"
                        % (path, line))
        values[field].append(value.strip())
    if len(values["Rule"]) != 1 or not values["Rule"][0].endswith("."):
        raise Error("%s: expected one line `Rule: ` with a sentence that ends with a full stop"
                    % path)
    if not values["Test"] and not values["Soak"]:
        raise Error("%s: expected a `Test: ` or `Soak: ` line that names the test that must find it" % path)
    patch = Patch(name, values["Rule"][0], values["Test"], values["Soak"], diff)
    if not patch.files:
        raise Error("%s: the diff is missing" % path)
    for file, _ in patch.files:
        if file.split("/")[0] not in SOURCES:
            raise Error("%s: the diff changes %s; a mutant can only change files of src/ and include/"
                        % (path, file))
    return patch


# ---- applying ----

def run_patch(patch, tree):
    """Applies the patch to a tree, without fuzz: the lines may have moved, but not changed."""
    done = subprocess.run(
        ("patch", "--fuzz=0", "--strip=1", "--batch", "--forward", "--no-backup-if-mismatch",
         "--reject-file=-", "--silent", "--directory", tree),
        input=patch.diff, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Error("%s does not apply: a line that it needs has changed. Try:\n"
                    "    tools/mutant refresh %s\n%s" % (patch.path, patch.name, done.stdout))


def mutated(patch, source_of):
    """Applies the patch to the texts that source_of(path) returns. Returns {path: new text}."""
    with tempfile.TemporaryDirectory(prefix="mutant.") as tree:
        for path, _ in patch.files:
            os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(tree, path), "w", encoding="utf-8") as f:
                f.write(source_of(path))
        run_patch(patch, tree)
        return {path: read_text(os.path.join(tree, path)) for path, _ in patch.files}


def working(path):
    """The text of a file of the working tree."""
    try:
        return read_text(os.path.join(ROOT, path))
    except FileNotFoundError:
        raise Error("there is no file %s" % path)


def read_text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ---- making diffs ----

def blob_of(text):
    """The abbreviated git object name of this text."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()[:12]


def diff_of(path, before, after):
    """The section of a patch for one file."""
    with tempfile.TemporaryDirectory(prefix="mutant.") as directory:
        sides = [os.path.join(directory, side) for side in ("a", "b")]
        write_text(sides[0], before)
        write_text(sides[1], after)
        done = subprocess.run(("diff", "-U3", "-p", "--label", "a/" + path, "--label", "b/" + path)
                              + tuple(sides), stdout=subprocess.PIPE, text=True)
    if done.returncode != 1:
        raise Error("%s: the mutant changes nothing" % path)
    return "diff --git a/%s b/%s\nindex %s..%s 100644\n%s" % (
        path, path, blob_of(before), blob_of(after), done.stdout)


# ---- refreshing a patch ----

def git(*args, data=None, good=(0,)):
    done = subprocess.run(("git", "-C", ROOT) + args, input=data, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if good is not None and done.returncode not in good:
        raise Error("git %s: %s" % (args[0], done.stderr.strip()))
    return done


def renamed(path):
    """The new path of a file that was renamed, from the git history."""
    for _ in range(20):
        if os.path.exists(os.path.join(ROOT, path)):
            return path
        moves = git("diff", "-M", "--name-status", "--diff-filter=R", "HEAD").stdout
        commit = git("log", "-1", "--format=%H", "--diff-filter=DR", "--", path).stdout.strip()
        if commit:
            moves += git("show", "-M", "--name-status", "--diff-filter=R", "--format=",
                         commit).stdout
        to = [m[2] for m in (line.split("\t") for line in moves.splitlines()) if m[1] == path]
        if not to:
            break
        path = to[0]
    raise Error("there is no file %s, and git finds no file that it was renamed to" % path)


def merge_file(ours, base, theirs, labels):
    """(text, number of conflicts) of a three-way merge."""
    with tempfile.TemporaryDirectory(prefix="mutant.") as directory:
        paths = []
        for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            paths.append(os.path.join(directory, name))
            write_text(paths[-1], text)
        args = [word for label in labels for word in ("-L", label)]
        done = git("merge-file", "-p", "--diff3", *args, *paths, good=None)
        if done.returncode < 0 or done.returncode > 127:
            raise Error("git merge-file: " + done.stderr.strip())
        return done.stdout, done.returncode


CONFLICT = re.compile(
    r"^<{7} [^\n]*\n(.*?)^\|{7} [^\n]*\n(.*?)^={7}\n(.*?)^>{7} [^\n]*\n", re.M | re.S)
WORD = re.compile(r"\s|\w+|\W")


def merge_words(ours, base, theirs):
    """A word-by-word merge, which can handle a renamed function; None if edits overlap."""
    words = WORD.findall(base)
    edits = set()
    for side in (ours, theirs):
        other = WORD.findall(side)
        for kind, a, b, c, d in difflib.SequenceMatcher(None, words, other, False).get_opcodes():
            if kind != "equal":
                edits.add((a, b, tuple(other[c:d])))
    merged, at, seen = [], 0, set()
    for a, b, new in sorted(edits):
        if a < at or (a, b) in seen:
            return None
        seen.add((a, b))
        merged += words[at:a] + list(new)
        at = b
    return "".join(merged + words[at:])


def resolve(merged):
    """A merged text with its conflicts resolved word by word, as far as that is possible."""
    def one(conflict):
        text = merge_words(*conflict.groups())
        return conflict[0] if text is None else text

    return CONFLICT.sub(one, merged)


class Conflict(Error):
    """A merge that must be done by hand. `texts` has the files with conflict markers."""

    def __init__(self, message, texts):
        super().__init__(message)
        self.texts = texts


def refresh(patch):
    """Returns the patch for the current files, and `unchanged`, `merged` or `by words`.

    Raises Conflict if the mutant and a later change edit the same words.
    """
    bases, missing = {}, None
    for path, blob in patch.files:
        found = git("cat-file", "blob", blob, good=None)
        if found.returncode != 0:
            missing = missing or (patch.path, blob, path)
        bases[path] = found.stdout if found.returncode == 0 else working(path)
    try:
        broken = mutated(patch, lambda path: bases[path])
    except Error as e:
        if missing is None:
            raise
        raise Error("%s was made against version %s of %s, which this repository does not have, and "
                    "does not apply to the current version. If this is a shallow clone, run "
                    "`git fetch --unshallow`; otherwise edit the source and run "
                    "`tools/mutant new`.\n%s" % (missing + (e,)))
    how, sections, conflicts = "unchanged", [], {}
    for path, blob in patch.files:
        now = renamed(path)
        ours = working(now)
        if now != path or blob_of(ours)[:len(blob)] != blob[:12]:
            how = "merged" if how == "unchanged" else how
        merged, number = merge_file(ours, bases[path], broken[path],
                                    (now, "version %s" % blob, "mutant " + patch.name))
        if number:
            merged, how = resolve(merged), "by words"
            if CONFLICT.search(merged):
                conflicts[now] = merged
                continue
        if merged != ours:
            sections.append(diff_of(now, ours, merged))
        else:
            raise Error("%s: after the change to %s the mutant changes nothing there" % (
                patch.path, now))
    if conflicts:
        raise Conflict("%s: the mutant and a later change edit the same lines:\n\n%s" % (
            patch.path, "\n".join("in %s\n%s" % (p, marks(t)) for p, t in conflicts.items())),
            conflicts)
    return Patch(patch.name, patch.rule, patch.tests, patch.soaks, "".join(sections)), how


def marks(text):
    """The conflicts of a merged text."""
    return "\n".join(conflict[0] for conflict in CONFLICT.finditer(text))
