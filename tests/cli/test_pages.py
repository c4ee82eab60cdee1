#!/usr/bin/env python3
"""test_pages.py SLUICE [--jobs N] [PATTERN...] - what is made from the table of the command
line agrees: help, man pages, the completions of bash and zsh, and the program itself.

The files are those that were built next to SLUICE, and the templates those of this tree.
"""
import os
import re
import shutil

import tap
from tap import check, check_that, main, test, test_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = ("sluice.1", "sluice-run.1", "sluice-canal.1", "sluice-serve.1", "sluice-store.1",
         "sluice-journal.1", "sluice-do.1", "sluice-ops.1",
         "sluice-acquire.1", "sluice-bench.1", "sluice-top.1")
CFLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1")


def built(name):
    """A file that was built."""
    cli = os.path.dirname(tap.program)
    if name in PAGES:
        return os.path.join(os.path.dirname(os.path.dirname(cli)), "man", name)
    if name == "sluice.conf":
        return os.path.join(cli, name)
    return os.path.join(cli, "completions", name)


def server():
    """The server that was built next to the program."""
    return os.path.join(os.path.dirname(os.path.dirname(tap.program)), "server/sluice-server")


TEMPLATES = {name: "man/%s.in" % name for name in PAGES}
TEMPLATES.update({"sluice": "src/cli/completions/sluice.bash.in",
                  "_sluice": "src/cli/completions/sluice.zsh.in",
                  "sluice.conf": "packaging/sluice.conf.in"})


def text_of(path):
    with open(path) as f:
        return f.read()


# --- What each of them says of options -----------------------------------------
#
# {command: {name: takes a value}}, with all names of all options: "-j", "--per".


def commands_of(t, program=None):
    lines = t.run(program or tap.program, "help").out.splitlines()
    found = [line[2:16].strip() for line in lines if line.startswith("  ")]
    check_that("run" in found and "canal ls" in found, "help lists commands")
    return found


def of_help(t, program=None):
    """Help has the first letter and the first name of each."""
    table = {}
    for command in commands_of(t, program):
        table[command] = {}
        for line in t.run(program or tap.program, "help", *command.split()).out.splitlines():
            m = re.match(r"  (?:(-\w), |    )(--[\w-]+)( [^\s]+)?(?: |$)", line)
            if m:
                for name in filter(None, m.group(1, 2)):
                    table[command][name] = m.group(3) is not None
        check_that("--help" in table[command], "help of %s has options" % command)
    return table


def of_man(pages):
    """The option lists, by section: a list belongs to the command that is named there."""
    table = {}
    for page, text in pages.items():
        command = {"sluice.1": "help", "sluice-run.1": "run",
                   "sluice-serve.1": "serve", "sluice-do.1": "do",
                   "sluice-bench.1": "bench", "sluice-top.1": "top"}.get(page)
        for line in text.splitlines():
            if line.startswith((".Ss canal ", ".Ss store ", ".Ss journal ")) or (
                    page == "sluice-ops.1" and line.startswith(".Ss ")) or (
                    page == "sluice-acquire.1" and re.match(r"\.Ss \w+$", line)):
                command = line[4:]
            elif line.startswith(".It Fl ") and re.search(r" Fl Fl ", line):
                line, _, argument = line.partition(" Ar ")
                for item in line[len(".It "):].split(" , "):
                    name = item.replace("Fl Fl ", "--").replace("Fl ", "-")
                    table.setdefault(command, {})[name] = argument != ""
    table["version"] = table["help"]  # the page says "of help and version"
    return table


def of_bash(t, path, commands):
    script = ('source "$1"; _sluice_table "$2" && printf "%s\\n" "${options[@]}" "${others[@]}" '
              '&& echo / && printf "%s\\n" "${values[@]}"')
    table = {}
    for command in commands:
        p = t.run("bash", "-c", script, "bash", path, command)
        check((p.status, p.err), (0, ""), "bash's table of " + command)
        names, _, values = p.out.partition("/\n")
        valued = {v.partition("=")[0] for v in values.split()}
        table[command] = {name: name in valued for name in names.split()}
        check(valued - set(table[command]), set(), "values of no option of " + command)
    return table


def of_zsh(t, path, commands):
    # What follows the functions is the call that completes.
    script = ('source =(sed \'$d\' "$1"); specs=(); _sluice_table "$2" && print -rl -- $specs')
    table = {}
    for command in commands:
        p = t.run("zsh", "-f", "-c", script, "zsh", path, command)
        check((p.status, p.err), (0, ""), "zsh's table of " + command)
        table[command] = {}
        for line in p.out.splitlines():
            m = re.match(r"(?:\([^)]*\))?(--?[\w-]+)([+=]?)\[", line)
            if m:
                table[command][m.group(1)] = m.group(2) != ""
    return table


def same_tables(got, wanted, what):
    check(sorted(got), sorted(wanted), "the commands of " + what)
    for command in wanted:
        check(got[command], wanted[command], "%s: the options of %s" % (what, command))


def within(less, more, what):
    for command in less:
        for name, takes in less[command].items():
            check((name, more[command].get(name)), (name, takes), "%s: %s" % (what, command))


# --- The built files ----------------------------------------------------------


@test
def help_man_pages_and_completions_have_the_same_options(t):
    commands = commands_of(t)
    man = of_man({page: text_of(built(page)) for page in PAGES})
    same_tables(of_bash(t, built("sluice"), commands), man, "bash and the man pages")
    same_tables(of_zsh(t, built("_sluice"), commands), man, "zsh and the man pages")
    within(of_help(t), man, "help and the man pages")


@test
def the_program_takes_each_option_that_the_man_pages_name(t):
    for command, options in of_man({page: text_of(built(page)) for page in PAGES}).items():
        for name, takes in options.items():
            p = t.sluice(*command.split(), name, *(["1"] if takes else []), "--help")
            if name == "--shell":  # nothing that a shell takes for a lock
                check((p.status, "usage: sluice" in p.err), (64, True), "%s %s" % (command, name))
            else:
                check((p.status, p.err), (0, ""), "%s %s" % (command, name))
            check_only = ["--check"] if command == "serve" else []  # no server is to start
            p = t.sluice(*command.split(), *check_only, name, env={"SLUICE_SERVER": "unix:" + t.path("nobody")})
            if (command, name) == ("do", "-h"):
                check_that("usage: sluice do" in p.out, "-h without a host shows help")
                continue
            check("needs a value" in p.err, takes, "%s %s wants a value" % (command, name))


@test
def the_first_man_page_has_the_options_of_sluice_itself(t):
    page = text_of(built("sluice.1"))
    for name, item in (("-h", "Fl h"), ("--help", "Fl Fl help"), ("-V", "Fl V"),
                       ("--version", "Fl Fl version")):
        check(t.sluice(name).status, 0, name)
        check_that(re.search(r"^\.Fl.* \| %s( |$)|^\.%s( |$)" % (item, item), page, re.M),
                   "sluice(1) has " + name)


@test
def man_pages_name_every_command_and_what_it_does(t):
    page = re.sub(r"\s+", " ", text_of(built("sluice.1")))
    for line in t.sluice("help").out.splitlines():
        if line.startswith("  "):
            name, summary = line[2:16].strip(), line[17:]
            item = ".It Cm %s %s." % (name, summary[0].upper() + summary[1:])
            check_that(item in page, "sluice(1) has " + item)
    for command in commands_of(t):
        if " " in command:
            group = text_of(built("sluice-%s.1" % command.split()[0]))
            check_that("\n.Nm sluice %s\n" % command in group, "the synopsis has " + command)
            check_that("\n.Ss %s\n" % command in group, "there is a section on " + command)


@test
def man_pages_have_every_exit_status_of_help(t):
    every = exits_of_page("sluice.1")
    for command, page in (("run", "sluice-run.1"), ("do", "sluice-do.1"),
                          ("bench", "sluice-bench.1"), ("top", "sluice-top.1"),
                          ("store check", "sluice-store.1"),
                          ("journal show", "sluice-journal.1")):
        statuses = re.findall(r"^ +(\d+)(?:\+n)?  \S", t.sluice("help", *command.split()).out, re.M)
        check_that(len(statuses) > 5, "help of %s has exit statuses" % command)
        # Help repeats a status that has several reasons; the man page has one item for it.
        check(exits_of_page(page), list(dict.fromkeys(statuses)))
        check_that(set(statuses) <= set(every), "sluice(1) has those of " + command)
    of_operators = set()  # The commands on this page share its list.
    for command in re.findall(r"^\.Ss (\w+)$", text_of(built("sluice-ops.1")), re.M):
        of_operators |= set(re.findall(r"^ +(\d+)  \S", t.sluice("help", command).out, re.M))
    check(set(exits_of_page("sluice-ops.1")), of_operators, "the statuses of sluice-ops(1)")
    check_that(of_operators <= set(every), "sluice(1) has them")


def exits_of_page(page):
    return re.findall(r"^\.It (\d+)(?: \+ Ar n)?$", text_of(built(page)), re.M)


@test
def man_page_has_the_variables_that_a_command_sees_and_no_others(t):
    text = text_of(built("sluice-run.1"))
    given = text[text.index("The command gets these variables:"):]
    named = re.findall(r"^\.It Ev (\w+)$", given[:given.index("\n.El")], re.M)
    s = t.start(server(), "--port", "0", "--socket", t.path("socket"))
    s.until_err("ready: sluice")
    seen = set()
    for place in ("--local",), ("--server", "unix:" + t.path("socket")):
        p = t.sluice("run", *place, "-j", "3", "k", "--", "env")
        seen |= {line.partition("=")[0] for line in p.out.splitlines()
                 if line.startswith("SLUICE_LOCK_")}
    check(sorted(named), sorted(seen))


@test
def tables_in_the_man_page_match_the_program(t):
    page = text_of(built("sluice-canal.1"))
    shown = [t.sluice("canal", "ls").out.splitlines()[0]]
    holder = t.hold("-j", "3")
    shown.append(t.sluice("canal", "show").out.splitlines()[0])
    shown.append(t.sluice("canal", "show", t.segment, "k").out.splitlines()[1])
    for line in shown:
        check_that("\n%s\n" % line in page, "the page has the line " + line)
    check(holder.release(), 0)


def examples(page):
    """The lines of the blocks in EXAMPLES, as a reader sees them. A script is one item."""
    text = text_of(built(page))
    text = text[text.index("\n.Sh EXAMPLES\n"):]
    lines = []
    for block in re.findall(r"\n\.Bd -literal.*?\n(.*?)\n\.Ed\n", text, re.S):
        for code, sign in (("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ha", "^"),
                           ("\\(ti", "~"), ("\\&", ""), ("\\e", "\\")):
            block = block.replace(code, sign)
        lines += [block] if block.startswith("#!") else block.splitlines()
    return lines


def make_journal(t):
    """A journal with a lease of the key "backup"."""
    build = os.path.dirname(os.path.dirname(os.path.dirname(tap.program)))
    text = "life - 0\ngrant %s 7 7200000 long 1 1 - - - -\nsync\n" % b"backup".hex()
    t.write("old/lock", "")
    with open(t.write("journal", text)) as f:
        p = t.run(os.path.join(build, "tests/storage/make_journal"), t.path("old"), "server", stdin=f)
    check((p.status, p.err), (0, ""), "a journal")


def examples_work(t, page):
    """All programs in them are replaced by one that does nothing."""
    os.mkdir(t.path("bin"))
    for name in ("rsync", "pg-dump", "upload", "make-report", "nightly-backup", "encode",
                 "publish", "rebuild", "train", "start-web", "webd", "sleep", "ps", "install",
                 "redis-cli"):
        t.script("bin/" + name, '#!/bin/sh\necho "%s $*" >>"$HOME/ran"\n' % name)
    shutil.copy(tap.program, t.path("bin/sluice"))
    # The server next to it does not serve, but has something to say about its options.
    t.script("bin/sluice-server", '#!/bin/sh\necho "server $*" >>"$HOME/ran"\n'
             'exec "%s" --check "$@"\n' % server())
    t.script("bin/sluice-offline", '#!/bin/sh\necho "offline $*" >>"$HOME/ran"\n'
             'exec "%s" "$@"\n' % server().replace("server", "offline"))
    for directory in ("old", "new"):
        os.mkdir(t.path(directory))
    with open(t.write("empty", "sluice store 1\nterm 0\nrevision 0\nend 0\n")) as f:
        check(t.sluice("store", "load", t.path("old"), stdin=f).status, 0, "a store")
    make_journal(t)
    t.write("sluice.conf", "port = 0\nsocket = here\n")
    t.write("password", "long enough\n", 0o600)
    t.write("secret", "known to the nodes alone\n", 0o600)
    t.write("node.conf", "node = 1\npeers = 1=127.0.0.1:5627\nsecret-file = %s\n"
            % t.path("secret"))
    path = t.path("bin") + ":" + os.environ["PATH"]
    variables = {"PATH": path, "SHELL": "/bin/sh"}
    if page in ("sluice-do.1", "sluice-ops.1", "sluice-run.1", "sluice-acquire.1",
                "sluice-bench.1", "sluice-top.1"):
        if page != "sluice-run.1":
            variables["SLUICE_SERVER"] = "unix:" + t.path("socket")
        s = t.start(server(), "--port", "0", "--socket", t.path("socket"))
        s.until_err("ready: sluice")
    lines = examples(page)
    check_that(len(lines) > 1, "there are examples")
    for line in lines:
        line = re.sub(r"^([*/\d]+ +){5}", "", line)  # of a crontab
        for directory in ("/var/lib/builders", "/etc/sluice"):
            line = line.replace(directory, t.dir)
        line = line.replace("/var/lib/sluice", t.path("old"))
        line = line.replace("db1:5625,db2:5625,db3:5625", "unix:" + t.path("socket"))
        line = line.replace("/var/lib/restored", t.path("new"))
        if "canal show" in line and "backup" in line:  # there must be a holder
            line = "sluice run backup -c '%s'" % line
        if line.endswith('"$0" "$@"'):
            line = "%s %s" % (t.script("guarded", "#!/bin/sh\n%s\necho ran \"$@\" >>$HOME/ran\n"
                                       % line), "twice")
        before = t.read("ran")
        p = t.run("sh", "-c", line, env=variables)
        check((p.status, p.err), (0, ""), line)
        check_that(any(word in line for word in ("echo", "canal", "sluice do", "fence=$("))
                   or page in ("sluice-ops.1", "sluice-bench.1", "sluice-top.1")
                   or t.read("ran") != before, "it ran something: " + line)


for page in PAGES:
    test_of("examples_of_%s_work" % re.sub(r"\W", "_", page), examples_work, page)


@test
def the_completion_for_bash_has_no_fault_that_shellcheck_knows(t):
    p = t.run("shellcheck", "-s", "bash", built("sluice"))
    check((p.status, p.out), (0, ""))


@test
def the_completion_for_zsh_begins_as_it_must(t):
    check(text_of(built("_sluice")).split("\n")[0], "#compdef sluice")
    check(t.run("zsh", "-f", "-n", built("_sluice")).status, 0)


# --- The program that makes them ----------------------------------------------


def sources(t):
    """A copy of the sources, to be changed."""
    copy = t.path("tree")
    for directory in ("src/cli", "man", "include", "packaging"):
        shutil.copytree(os.path.join(ROOT, directory), os.path.join(copy, directory))
    os.symlink(os.path.join(ROOT, "src/base"), os.path.join(copy, "src/base"))
    for name in ("commands.def", "settings.def"):
        shutil.copy(os.path.join(ROOT, "src", name), os.path.join(copy, "src"))
    return copy


def compile(t, tree, out, files, *libraries):
    p = t.run(os.environ.get("CC", "cc"), *CFLAGS, "-I" + tree + "/include", "-I" + tree + "/src",
              *files, "-o", t.path(out), *libraries)
    check(p.status, 0, "the compiler's status")
    return t.path(out)


GENERATOR = ("pages.c", "pages_completion.c", "table.c")


def make_pages(t, tree):
    """What is made from a tree: {name: text}."""
    pages = compile(t, tree, "pages", [tree + "/src/cli/" + name for name in GENERATOR])
    made = {}
    for name, template in TEMPLATES.items():
        p = t.run(pages, os.path.join(tree, template))
        check((p.status, p.err), (0, ""), "pages " + template)
        made[name] = p.out
    return made


@test
def what_was_built_is_what_these_sources_make(t):
    for name, text in make_pages(t, ROOT).items():
        check_that(text == text_of(built(name)), "%s is not older than its sources"
                   % built(name))


@test
def an_option_that_is_added_to_the_table_is_everywhere(t):
    tree = sources(t)
    table = tree + "/src/cli/table.c"
    text = text_of(table)
    row = ('    {CLI_OPT_FORCE, "Zz", "zebra zoo", "STRIPES", CLI_ARG_KEY, '
           '"it\'s [black]: or \\"white\\"", NULL},\n')
    changed = text.replace("static const struct cli_option run_options[] = {\n",
                           "static const struct cli_option run_options[] = {\n" + row)
    changed = changed.replace("static const struct cli_option reap_options[] = {\n",
                              "static const struct cli_option reap_options[] = {\n    {CLI_OPT_FORCE, "
                              '"", "dust", NULL, CLI_ARG_NONE, "sweep", NULL},\n')
    check(changed.count("\n") - text.count("\n"), 2, "the lines that were added")
    with open(table, "w") as f:
        f.write(changed)
    made = make_pages(t, tree)
    for name in ("sluice-run.1", "sluice-canal.1", "sluice", "_sluice"):
        check_that(made[name] != text_of(built(name)), "%s has changed" % name)

    cli = [os.path.join(tree, "src/cli", f) for f in os.listdir(tree + "/src/cli")
           if f.endswith(".c") and not f.startswith("pages")]
    libraries = [os.path.join(os.path.dirname(os.path.dirname(tap.program)), name)
                 for name in ("libsluice.a", "libsuggest.a")]
    program = compile(t, tree, "sluice", cli, *libraries, "-pthread", "-lm")
    for name in ("sluice", "_sluice"):
        t.write("new." + name, made[name])
    commands = commands_of(t, program)
    man = of_man({page: made[page] for page in PAGES})
    for name in ("-Z", "-z", "--zebra", "--zoo"):
        check(man["run"].get(name), True, "the man page has " + name)
    check(man["canal reap"].get("--dust"), False, "the man page has --dust")
    help = of_help(t, program)
    check((help["run"].get("-Z"), help["run"].get("--zebra")), (True, True), "help has it")
    check(help["canal reap"].get("--dust"), False, "help has --dust")
    same_tables(of_bash(t, t.path("new.sluice"), commands), man, "bash and the man pages")
    same_tables(of_zsh(t, t.path("new._sluice"), commands), man, "zsh and the man pages")
    within(help, man, "help and the man pages")


@test
def a_setting_that_is_added_is_everywhere(t):
    tree = sources(t)
    settings = tree + "/src/settings.def"
    text = text_of(settings)
    with open(settings, "w") as f:
        f.write(text + 'SETTING("zebra-max", NUMBER, zebra_max, "7", 3, 11, "N", '
                       '"zebras; more are \\"lions\\"")\n'
                       'SETTING("zoo", LEVEL, zoo, "", 0, 0, "open|shut", "it\'s a zoo")\n')
    made = make_pages(t, tree)
    page, conf = made["sluice-serve.1"], made["sluice.conf"]
    check_that('\n.It Fl Fl zebra-max Ar N\nZebras; more are "lions".\nThe default is\n.Cm 7 .\n'
               'It can be from 3 to 11.\n' in page, "the man page has it")
    check_that('\n# zebras; more are "lions"\n#zebra-max = 7\n' in conf, "the config file has it")
    check_that("\n# it's a zoo\n#zoo = open|shut\n" in conf, "and one without a default")
    for name in ("sluice", "_sluice"):
        t.write("new." + name, made[name])
    for table in (of_bash(t, t.path("new.sluice"), ["serve"]),
                  of_zsh(t, t.path("new._sluice"), ["serve"])):
        check((table["serve"]["--zebra-max"], table["serve"]["--zoo"]), (True, True))


@test
def the_config_file_has_every_setting_and_the_server_takes_it(t):
    text = text_of(built("sluice.conf"))
    names = re.findall(r"^#([a-z-]+) = \S", text, re.M)
    options = {name[2:] for name in of_help(t)["serve"] if name.startswith("--")}
    check(sorted(names), sorted(options - {"config", "check", "help", "version"}))
    check([line for line in text.splitlines() if line and not line.startswith("#")], [],
          "what is not a comment")
    check(t.run(server(), "--check", "--config", built("sluice.conf")).status, 0, "as it is")
    # Without the marks; what has no default has a word there that only shows what it is.
    plain = re.sub(r"^#([a-z-]+ = )", r"\1", text, flags=re.M)
    plain = re.sub(r"^(socket|data|password|password-file|peers|secret|secret-file|etcd|majority-keys"
                   r"|etcd-(user|password|password-file|ca|cert|key)) = .*\n", "", plain, flags=re.M)
    p = t.run(server(), "--check", "--config", t.write("all.conf", plain))
    check((p.status, p.err), (0, ""), "all defaults")


@test
def a_status_and_a_variable_that_are_added_are_in_the_man_pages(t):
    tree = sources(t)
    table = tree + "/src/cli/table.c"
    text = text_of(table)
    changed = text.replace("cli_exits[] = {\n", 'cli_exits[] = {\n    {42, "run", "all is -well", NULL},\n')
    changed = changed.replace("cli_given[] = {\n", 'cli_given[] = {\n    {"SLUICE_LOCK_COLOUR", '
                              '"blue. Or \'green\'"},\n')
    check(changed.count("\n") - text.count("\n"), 2, "the lines that were added")
    with open(table, "w") as f:
        f.write(changed)
    page = make_pages(t, tree)["sluice-run.1"]
    check_that("\n.It 42\nAll is \\-well.\n" in page, "it has the status")
    check_that("\n.It Ev SLUICE_LOCK_COLOUR\nBlue.\nOr 'green'.\n" in page,
               "it has the variable")


@test
def a_template_that_asks_for_what_there_is_not_makes_no_page(t):
    pages = compile(t, ROOT, "pages", [ROOT + "/src/cli/" + name for name in GENERATOR])
    for text, message in (("@nonsense@\n", 'no marker "nonsense"'),
                          ("@options fly@\n", 'no command "fly"'),
                          ("@options@\n", 'no command ""'),
                          ("@synopsis canal@\n", 'no command "canal"'),
                          ("@exits fly@\n", 'no command "fly"'),
                          ("no end", "has no end"), ("x" * 5000 + "\n", "too long")):
        p = t.run(pages, t.write("template", text))
        check(p.status, 1, repr(text[:20]))
        check_that(message in p.err, "%r is said, not %r" % (message, p.err))
    check(t.run(pages, t.path("nothing")).status, 1, "a template that is not there")
    check(t.run(pages).status, 1, "no template")
    with open("/dev/full", "w") as full:
        p = t.run(pages, t.write("template", "text\n"), stdout=full)
    check(p.status, 1, "a full disk")
    p = t.run(pages, t.write("template", "@ not a marker\nnor @exits@\n@@\n"))
    check((p.status, p.out), (0, "@ not a marker\nnor @exits@\n@@\n"), "what is no marker")


main(__doc__)
