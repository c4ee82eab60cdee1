"""builds.py - relinks a program of a build with some of its source files changed.

The ninja file of the build has the compile command and the dependencies of each object, and the
link command of the program. Only objects that depend on a changed file are compiled again; all
other objects are those of the build.
"""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading

from patches import ROOT, SOURCES, Error, run_patch


class Build:
    """One build directory, for example build/plain."""

    def __init__(self, directory):
        self.directory = os.path.abspath(directory)
        self.lock = threading.Lock()
        self.commands = {}  # program: (compile commands, archives, link command)
        self.made_of = None  # object: the files of this repository that it depends on
        if not os.path.exists(os.path.join(self.directory, "build.ninja")):
            raise Error("there is no build in %s; make one with `tools/build --tests %s all "
                        "test-programs`" % (directory, os.path.basename(self.directory)))

    def has(self, program):
        return os.path.exists(os.path.join(self.directory, program))

    def ninja(self, *args):
        done = subprocess.run(("ninja", "-C", self.directory, "-t") + args, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Error("ninja -t %s: %s" % (" ".join(args), done.stderr.strip()))
        return done.stdout

    def read_deps(self):
        found, name = {}, None
        for line in self.ninja("deps").splitlines():
            if line and not line[0].isspace():
                name = line.split(":")[0]
                found[name] = set()
            elif line.strip():
                path = os.path.normpath(os.path.join(self.directory, line.strip()))
                if path.startswith(ROOT + os.sep):
                    found[name].add(os.path.relpath(path, ROOT))
        return found

    def steps(self, program):
        """Returns {object: compile command}, {archive: objects}, link command of a program."""
        # A library is a link to a file whose name has a version.
        program = os.path.relpath(os.path.realpath(os.path.join(self.directory, program)),
                                  os.path.realpath(self.directory))
        with self.lock:
            if self.made_of is None:
                self.made_of = self.read_deps()
            if program not in self.commands:
                compiles, archives, link = {}, {}, None
                for command in self.ninja("commands", program).splitlines():
                    words = shlex.split(command)
                    if "-c" in words:
                        compiles[words[words.index("-o") + 1]] = words
                    elif "&&" in words:  # rm -f ARCHIVE && ar FLAGS ARCHIVE OBJECT...
                        words = words[words.index("&&") + 1:]
                        archives[words[2]] = words[3:]
                    else:
                        link = words
                if link is None or link[link.index("-o") + 1] != program:
                    raise Error("ninja does not know how to link %s" % program)
                self.commands[program] = compiles, archives, link
            return self.commands[program]

    def link(self, program, tree, out, extra=()):
        """Links a program to the file `out`, using the changed files of a source tree."""
        compiles, archives, link = self.steps(program)
        link = list(link)
        objects = {name: tree.compiled(self, name, words) for name, words in compiles.items()
                   if not self.made_of.get(name, set()).isdisjoint(tree.changed)}
        if tree.changed and not objects:
            raise Error("%s depends on none of %s" % (program, ", ".join(tree.changed)))
        with tempfile.TemporaryDirectory(prefix="mutant.") as directory:
            for name, members in archives.items():
                if not objects.keys().isdisjoint(members) and name in link:
                    copy = os.path.join(directory, "%d.a" % link.index(name))
                    self.call(["ar", "crsT", copy] + [
                        objects.get(m, os.path.join(self.directory, m)) for m in members])
                    link[link.index(name)] = copy
            link = [objects.get(word, word) for word in link]
            at = link.index("-o") + 1
            link[at:at + 1] = [os.path.abspath(out), *extra]
            self.call(link)

    def compile_words(self, words, tree, out):
        """A compile command that reads the sources of a tree and writes no dependency file."""
        kept, skip = [], 0
        for word in words:
            if skip:
                skip -= 1
            elif word in ("-MF", "-MQ", "-o"):
                skip = 1
            elif word != "-MD":
                kept.append(self.moved(word, tree))
        return kept + ["-o", out, "-w", "-O1", "-g0"]

    def moved(self, word, tree):
        flag, path = re.match(r"(-I|-iquote|)(.*)", word).groups()
        if flag or path.endswith(".c"):
            inside = os.path.relpath(os.path.join(self.directory, path), ROOT)
            if inside.split(os.sep)[0] in SOURCES:
                return flag + os.path.join(tree, inside)
        return word

    def call(self, words):
        done = subprocess.run(words, cwd=self.directory, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise Error("%s\nexit status %d of: %s" % (
                done.stdout, done.returncode, shlex.join(words)))


class Tree:
    """A copy of the repository in which a patch is applied. A directory without a changed file is
    a link to the original, and so is each unchanged file next to a changed one."""

    def __init__(self, directory, patch=None):
        self.directory = directory
        self.changed = [path for path, _ in patch.files] if patch else []
        self.objects = {}  # Compiled once for all programs of a build.
        self.link("", [name for name in os.listdir(ROOT) if not name.startswith(".")])
        for path in self.changed:
            if not os.path.exists(os.path.join(ROOT, path)):
                raise Error("%s changes %s, which does not exist. If the file was renamed, try:\n"
                            "    tools/mutant refresh %s" % (patch.path, path, patch.name))
            parents = path.split(os.sep)[:-1]
            for depth in range(len(parents)):
                self.copy_directory(os.path.join(*parents[:depth + 1]))
            copy = os.path.join(directory, path)
            os.remove(copy)
            shutil.copyfile(os.path.join(ROOT, path), copy)
        if patch:
            run_patch(patch, directory)

    def link(self, inside, names):
        """Creates a directory of links to files and directories of the repository."""
        os.makedirs(os.path.join(self.directory, inside))
        for name in names:
            os.symlink(os.path.join(ROOT, inside, name), os.path.join(self.directory, inside, name))

    def copy_directory(self, inside):
        """Replaces the link to a directory with a directory of links."""
        path = os.path.join(self.directory, inside)
        if os.path.islink(path):
            os.remove(path)
            self.link(inside, os.listdir(os.path.join(ROOT, inside)))

    def compiled(self, build, name, words):
        """Returns an object of a build, compiled from the sources of this tree."""
        if (build, name) not in self.objects:
            path = os.path.join(self.directory, "%d.o" % len(self.objects))
            build.call(build.compile_words(words, self.directory, path))
            self.objects[build, name] = path
        return self.objects[build, name]
