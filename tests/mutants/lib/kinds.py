"""kinds.py - the kinds of test that a `Test:` or `Soak:` line of a mutant can name.

    unit PROGRAM TEST         a test of tests/unit/test_PROGRAM fails, or an assertion in it
    sim SEEDS [FAULTS [EVENTS]]  the simulator fails with one of the first SEEDS seeds
    keeper SEEDS [FAULTS [EVENTS]]  the same, in clusters on etcd
    spec NAME                 the lock table does not satisfy tests/spec/NAME.spec
    live SUITE/NAME PATTERN   a test of tests/SUITE/test_NAME.py fails: SUITE is cli, client (for the
                              library), server or storage (for sluice-offline)
    kill PROGRAM ARGUMENT...  tests/kill/PROGRAM counts a wrong or inexact final state
    journal PROGRAM [PART]    tests/journal/PROGRAM, on a disk in memory, reports a failure
    damage ARGUMENT...        tests/damage/segment reports a failure
    tx ANOMALY                tests/tx/kills.py finds this anomaly
    fuzz NAME                 tests/fuzz/run finds an input within two minutes

TEST and PATTERN are shell patterns. The same test must pass with the correct program: that is the
control. Without it, a failure would not show that the test found the mutant.
"""
import os
import re

from patches import ROOT, Error

BOUNDED = os.path.join(ROOT, "tests", "tools", "bounded")


class Found(Exception):
    """The test found the mutant: it failed, as it should. The message names the failure."""


class Skipped(Exception):
    """The test cannot run on this machine."""


class Test:
    """One test. try_mutant() raises Found or returns the log; try_sound() raises an Error."""

    program = None  # the program of a build; None if the test builds its own
    waits = "never"  # "often" and "mostly" let more tests run at once than there are processors
    control = None  # tests with the same string share a control run; None: the line

    def __init__(self, *words):
        self.words = words

    def try_mutant(self, stage, program):
        raise NotImplementedError

    def try_sound(self, stage, program):
        raise NotImplementedError


class Unit(Test):
    seconds = 120  # of processor time, at most
    with_etcd = ("etcd_members", "storage", "storage_etcd", "storage_journal")

    def __init__(self, program, test):
        super().__init__(program, test)
        self.test = test
        self.waits = "often" if program in self.with_etcd else "never"
        self.program = "tests/unit/test_" + program

    def run(self, stage, program):
        # With STDOUT, cmocka prints the name of each test when it starts. An assertion that fails ends
        # the program, so the last name is that of the failed test.
        return stage.run([BOUNDED, str(self.seconds), *stage.fixed, program],
                         CMOCKA_MESSAGE_OUTPUT="STDOUT", SLUICE_UNIT_TEST=self.test,
                         TMPDIR=stage.memory, ASAN_OPTIONS="detect_leaks=0")

    def try_mutant(self, stage, program):
        status, log = self.run(stage, program)
        # Only a failed test or assertion counts: a crash or an endless loop may have another cause.
        if status == 134:
            found = re.findall(r"^\[ RUN +\] (\w+)$", log, re.M)[-1:]
        elif status in (0, 137, 139):
            found = []
        else:
            found = re.findall(r"^\[  (?:FAILED|ERROR) +\] (\w+)$", log, re.M)
        if found:
            raise Found(found[0])
        return log

    def try_sound(self, stage, program):
        status, log = self.run(stage, program)
        if status != 0:
            raise Error("it fails without a mutant\n" + log)
        if not re.search(r"^\[       OK \] ", log, re.M):
            raise Error("%s has no test %s\n%s" % (self.program, self.test, log))


class Sim(Test):
    program = "src/sim/sluice-sim"
    seconds = 200
    sound_seeds = 50  # The suites majority/sim and sim/keeper run more.
    cluster = []  # The option that selects the kind of cluster.

    def __init__(self, seeds, faults=None, events=None):
        super().__init__(seeds, faults, events)
        self.seeds = int(seeds)
        self.options = self.cluster + (["--faults", faults] if faults else [])
        self.options += ["--events", str(int(events))] if events else []
        self.control = " ".join(["sim", str(self.sound_seeds), *self.options])

    def run(self, stage, program, seeds):
        return stage.run([BOUNDED, str(self.seconds), program, "--seeds", str(seeds),
                          "--until-caught", *self.options])

    def try_mutant(self, stage, program):
        _, log = self.run(stage, program, self.seeds)
        # A crash counts: an invariant of the node was broken.
        found = re.search(r"^(?:WRONG|STUCK|CRASH) in seed (\d+) ", log, re.M)
        if found:
            raise Found("seed " + found[1])
        return log

    def try_sound(self, stage, program):
        status, log = self.run(stage, program, self.sound_seeds)
        if status != 0:
            raise Error("a seed fails without a mutant\n" + log)


class Keeper(Sim):
    cluster = ["--keeper"]


class Spec(Test):
    program = "tests/spec/over_table"

    def __init__(self, name):
        super().__init__(name)
        self.file = "tests/spec/%s.spec" % name

    def run(self, stage, program):
        # --unchecked turns the self-checks of the table off, so that only the spec can find the bug.
        return stage.run([BOUNDED, "100", program, "--unchecked", self.file])

    def try_mutant(self, stage, program):
        status, log = self.run(stage, program)
        if status in (1, 134):
            raise Found("a difference" if status == 1 else "an assert")
        return log

    def try_sound(self, stage, program):
        status, log = self.run(stage, program)
        if status != 0:
            raise Error("it fails without a mutant\n" + log)


class Live(Test):
    waits = "mostly"
    programs = {"cli": "src/cli/sluice", "client": "src/libsluice.so", "server": "src/server/sluice-server",
                "storage": "src/offline/sluice-offline"}
    slow = ("server/keeper",)  # Each test starts a cluster.

    def __init__(self, suite, pattern):
        super().__init__(suite, pattern)
        directory, _, name = suite.partition("/")
        if directory not in self.programs:
            raise Error("no suite of live tests is called \"%s\"" % suite)
        self.suite, self.pattern = suite, pattern
        self.file = "tests/%s/test_%s.py" % (directory, name)
        self.program = self.programs[directory]

    def run(self, stage, program, seconds):
        if self.program == self.programs["client"]:  # The test finds the library next to the server.
            program = os.path.join(os.path.dirname(program), "server/sluice-server")
        status, log = stage.run([self.file, program, self.pattern], timeout=900,
                                SLUICE_TEST_DEADLINE_S=str(seconds))
        if re.search(r"^ok .*# skip", log, re.M | re.I):
            raise Skipped()
        return status, log

    def try_mutant(self, stage, program):
        # The deadline is shorter than for the control, because a mutant often sends no reply.
        status, log = self.run(stage, program, 20 if self.suite in self.slow else 8)
        found = re.search(r"^not ok \d+ (?:- )?(\S+)", log, re.M)
        if status == 1 and found:
            raise Found(found[1])
        return log

    def try_sound(self, stage, program):
        status, log = self.run(stage, program, 60)
        if status != 0 or not re.search(r"^ok ", log, re.M):
            raise Error("it fails without a mutant, or there is no such test\n" + log)


class Counted(Test):
    """Tests of the library in shared memory, which print the number of failures."""

    waits = "often"
    sound, mutant, wrong = [], [], r"^not ok "

    def run(self, stage, program, more):
        status, log = stage.run([program, *self.words[1:], *more], timeout=900)
        if re.search(r"^ok .*# skip", log, re.M | re.I):
            raise Skipped()
        return status, log

    def try_mutant(self, stage, program):
        status, log = self.run(stage, program, self.mutant)
        found = re.findall(self.wrong, log, re.M)
        if status == 1 and found:
            raise Found(found[0] if found[0].strip()[0].isdigit() else "%d wrong" % len(found))
        return log

    def try_sound(self, stage, program):
        status, log = self.run(stage, program, self.sound)
        if status != 0 or not re.search(r"^ok ", log, re.M):
            raise Error("it fails without a mutant\n" + log)


class Kill(Counted):
    # A mutant stops after ten failures. The control stops after 300 ms, but not before the minimum
    # number of points of the program; the suites kill/step and kill/stop run all points.
    mutant, sound = ["--enough", "10"], ["--limit-ms", "300"]
    wrong = r"^not ok .*[ ,]([1-9]\d* (?:inexact|wrong))"

    def __init__(self, program, *words):
        super().__init__(program, *words)
        self.program = "tests/kill/" + program


class Journal(Counted):
    wrong = r"^not ok \d+ - (.*)"

    def __init__(self, program, *part):
        super().__init__(program, *(["--only", *part] if part else []))
        self.program = "tests/journal/" + program
        if program == "power":  # The suite journal/power runs more.
            self.mutant, self.sound = ["--seed", "1"], ["--seed", "1", "--failures", "300"]

    def try_mutant(self, stage, program):
        status, log = self.run(stage, program, self.mutant)
        found = re.search(self.wrong, log, re.M)
        if status == 1 and found:
            raise Found(found[1])
        return log


class Damage(Counted):
    program = "tests/damage/segment"
    mutant = sound = ["--deadline", "10"]

    def __init__(self, *words):
        super().__init__("segment", *words)


class Tx(Test):
    program = "src/server/sluice-server"

    def __init__(self, *anomaly):
        super().__init__(*anomaly)
        self.anomaly = " ".join(anomaly)

    def try_mutant(self, stage, program):
        status, log = stage.run(["tests/tx/kills.py", program, "--keep", program + ".history"],
                                timeout=900)
        if status == 1 and re.search(r"^# \d+ anomalies.*, %s \d" % re.escape(self.anomaly), log,
                                     re.M):
            raise Found(self.anomaly)
        return log

    def try_sound(self, stage, program):
        """The suite tx/kills is the control."""


class Fuzz(Test):
    def __init__(self, name):
        super().__init__(name)
        self.name = name

    def try_mutant(self, stage, program):
        """`program` is a source tree: the fuzzer is built with another compiler."""
        status, log = stage.run([os.path.join(program, "tests/fuzz/run"), "--until-found",
                                 self.name], timeout=900, BUILD=program + ".build")
        found = re.search(r"^ok .*?: (found .*)", log, re.M)
        if status == 0 and found:
            raise Found(found[1])
        return log

    def try_sound(self, stage, program):
        """The suite fuzz is the control."""


KINDS = {"unit": Unit, "sim": Sim, "keeper": Keeper, "spec": Spec, "live": Live, "kill": Kill, "journal": Journal,
         "damage": Damage, "tx": Tx, "fuzz": Fuzz}


def test_of(line):
    """The test that a `Test:` line names."""
    kind, *words = line.split()
    if kind not in KINDS:
        raise Error("unknown kind of test \"%s\" (expected one of: %s)" % (kind, ", ".join(KINDS)))
    try:
        test = KINDS[kind](*words)
        test.control = test.control or line
        return test
    except (TypeError, ValueError):
        raise Error("invalid test \"%s\"; tests/mutants/lib/kinds.py says what each kind needs"
                    % line)
