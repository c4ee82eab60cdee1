#!/usr/bin/python3
"""test_secrets.py - other users of the machine cannot read the secrets of a server, write into its
data directory, or redirect its writes.

    tests/server/test_secrets.py SERVER [--jobs N] [PATTERN...]
"""
import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
from live import Skip, check, check_error, check_that, main, sluice, tap, test, test_of  # noqa: E402

SECRET = "correct horse battery staple"
OTHER = 65534  # nobody


def directory(t, mode=0o700):
    path = t.path("data")
    os.mkdir(path)
    os.chmod(path, mode)
    return path


def refused(t, path, *parts):
    p = t.failing("--data", path)
    check(p.status, 1)
    for part in parts:
        check_that(part in p.err, "it says %r: %s" % (part, p.err))
    return p


# --- The data directory ------------------------------------------------------------------


def others_can_write(t, mode):
    path = directory(t, mode)
    refused(t, path, "other users can write to this directory", "chmod go-w", "%04o" % mode)
    check(os.listdir(path), [], "nothing was written")
    os.chmod(path, 0o755)
    t.server("--data", path)


for _mode in (0o702, 0o720, 0o777, 0o1777):
    test_of("a_directory_of_mode_%04o_is_rejected" % _mode, others_can_write, _mode)


@test
def a_directory_of_another_user_is_rejected(t):
    if os.geteuid() != 0:
        raise Skip("only root can give a directory away")
    path = directory(t)
    os.chown(path, OTHER, OTHER)
    refused(t, path, "belongs to another user", "chown", "uid %d" % OTHER)
    check(os.listdir(path), [])


@test
def a_node_of_a_cluster_checks_its_directory_too(t):
    path = directory(t, 0o777)
    p = t.failing("--data", path, "--node", "1", "--peers", "1=127.0.0.1:1", "--node-port", "auto",
                  "--secret", "0123456789abcdef", "--bootstrap")
    check(p.status, 1)
    check_that("other users can write to this directory" in p.err, p.err)


@test
def no_write_follows_a_symbolic_link(t):
    """A new file is created, even if a link has its name."""
    path = directory(t)
    target = t.write("precious", "precious")
    s = t.server("--data", path)
    s.client().acquire("k", "LEASE", 60000)
    for name in ("journal.next", "journal-error", "store-new", "store-new-lock"):
        os.symlink(target, os.path.join(path, name))
    s.end()
    check(open(target).read(), "precious")
    check_that(not os.path.islink(os.path.join(path, "journal")), "the journal is a file")
    os.unlink(os.path.join(path, "store"))
    t.server("--data", path)  # The store is created again, where links lead elsewhere.
    check(open(target).read(), "precious")


@test
def no_node_file_follows_a_symbolic_link(t):
    path = directory(t)
    target = t.write("precious", "precious")
    os.symlink(target, os.path.join(path, "node.new"))
    t.server("--data", path, "--node", "1", "--peers", "1=127.0.0.1:1", "--node-port", "auto",
             "--secret", "0123456789abcdef", "--bootstrap")
    check(open(target).read(), "precious")
    check_that(not os.path.islink(os.path.join(path, "node")), "it is a file")


def a_link_is_rejected(t, name):
    path = directory(t)
    s = t.server("--data", path)
    s.end()
    real = os.path.join(t.dir, "elsewhere")
    os.rename(os.path.join(path, name), real)
    os.symlink(real, os.path.join(path, name))
    before = open(real, "rb").read()
    p = t.failing("--data", path)
    check(p.status, 1)
    check_that("symbolic link" in p.err, p.err)
    if not name.startswith("store"):
        check_that("a file in the directory is a symbolic link" in p.err, p.err)
    check(open(real, "rb").read(), before)


for _name in ("lock", "journal", "store", "store-lock"):
    test_of("a_link_in_the_place_of_%s_is_rejected" % _name.replace("-", "_"), a_link_is_rejected, _name)


@test
def a_journal_that_is_no_regular_file_is_rejected(t):
    for make in (os.mkfifo, os.mkdir):
        path = directory(t)
        make(os.path.join(path, "journal"))
        p = t.failing("--data", path)
        check(p.status, 1)
        check_that('the file "journal" is not a regular file' in p.err.replace("\\", ""), p.err)
        shutil.rmtree(path)


# --- The service of systemd --------------------------------------------------------------


def unit_settings(name):
    """The values of a setting in the unit of this build."""
    path = os.path.join(os.path.dirname(tap.program), "../cli/sluice.service")
    with open(path) as f:
        return [line.rstrip("\n").split("=", 1)[1] for line in f if line.startswith(name + "=")]


def write(path, content, mode):
    with open(path, "w") as f:
        f.write(content)
    os.chmod(path, mode)


def pass_credentials(etc, path):
    """Do what systemd does for the service, with a directory `etc`: LoadCredential= and SetCredential=."""
    os.mkdir(path)
    defaults = dict(value.split(":", 1) for value in unit_settings("SetCredential"))
    for value in unit_settings("LoadCredential"):
        name, source = value.split(":")
        source = os.path.join(etc, os.path.basename(source))
        if os.path.exists(source):
            content = open(source).read()
        else:  # systemd does not start the service without a file that has no default.
            content = defaults[name].encode().decode("unicode_escape")
        write(os.path.join(path, name), content, 0o400)


@contextlib.contextmanager
def service(t, files):
    """The command line of the unit for user nobody, and its environment. Only root can read the files."""
    base = tempfile.mkdtemp(prefix="sluice-test.", dir="/tmp")  # nobody may not reach $TMPDIR
    try:
        etc, path, state = (os.path.join(base, name) for name in ("etc", "credentials", "state"))
        program, *options = unit_settings("ExecStart")[0].replace("%d", path).split()
        check(os.path.basename(program), "sluice-server")
        program = os.path.join(base, "sluice-server")
        shutil.copy(tap.program, program)
        os.mkdir(etc)
        os.mkdir(state, 0o700)
        for name, content in files.items():
            write(os.path.join(etc, name), content, 0o600)
        pass_credentials(etc, path)
        user = []
        if os.geteuid() == 0:
            os.chmod(base, 0o711)
            for name in [path, state] + [os.path.join(path, name) for name in os.listdir(path)]:
                os.chown(name, OTHER, OTHER)
            user = ["setpriv", "--reuid", str(OTHER), "--regid", str(OTHER), "--clear-groups"]
            p = t.run(*user, "cat", os.path.join(etc, "sluice.conf"))
            check_that("Permission denied" in p.err, "nobody cannot read the files of root: %s" % p.err)
        yield user + [program] + options, {"CREDENTIALS_DIRECTORY": path, "STATE_DIRECTORY": state}
    finally:
        shutil.rmtree(base)


@test
def the_service_reads_its_secrets_as_credentials(t):
    with service(t, {
            "sluice.conf": "node = 1\npeers = 1=127.0.0.1:1\nnode-port = auto\nbootstrap = yes\n"
                           "secret-file = secret\npassword-file = password # of the clients\n",
            "secret": "0123456789abcdef\n", "password": SECRET + "\n"}) as (argv, variables):
        s = t.server(argv=argv, env=variables)
        c = s.client(password=SECRET)
        check(c("CONFIG", "GET", "secret-file")[1].decode(),
              os.path.join(variables["CREDENTIALS_DIRECTORY"], "secret"))
        check(c("CONFIG", "GET", "secret")[1], b"(set)")
        check_error(s.client()("ACQUIRE", "k"), "NOAUTH")
        if os.geteuid() == 0:
            with open("/proc/%d/status" % s.pid) as f:
                check_that("\nUid:\t%d\t" % OTHER in f.read(), "it runs as nobody")
        s.end()


@test
def the_service_needs_no_secrets(t):
    with service(t, {"sluice.conf": "# no settings\n"}) as (argv, variables):
        s = t.server(argv=argv, env=variables)
        check(s.client()("CONFIG", "GET", "password")[1], b"")
        s.end()


@test
def a_secret_that_the_service_was_not_given_is_an_error(t):
    with service(t, {"sluice.conf": "password-file = password\n"}) as (argv, variables):
        p = t.run(*argv, env=variables)
        check([p.status, p.err], [2, "sluice-server: password-file: the first line of %s/password is empty; it must "
                                  "contain the password\n" % variables["CREDENTIALS_DIRECTORY"]])


@test
def a_zero_byte_in_a_secret_file_is_an_error(t):
    """The rest of the line would be ignored."""
    path = t.path("password")
    with open(path, "wb") as f:
        f.write(b"abc\0def1234\n")
    p = t.run(tap.program, "--port", "auto", "--password-file", path)
    check([p.status, "contains a zero byte" in p.err, "abc" in p.err], [2, True, False], p.err)


@test
def the_directory_is_locked_before_anybody_can_connect(t):
    """Neither the port nor the directory is free. The server reports the one that it needs first."""
    path = directory(t)
    t.server("--data", path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        p = t.failing("--data", path, port=str(s.getsockname()[1]))
    check(p.status, 1)
    check_that("another server uses this directory" in p.err, p.err)
    check_that("the port is in use" not in p.err, "it did not listen: " + p.err)


# --- Secrets -----------------------------------------------------------------------------


def command_line(pid):
    with open("/proc/%d/cmdline" % pid, "rb") as f:
        return f.read()


def hidden(t, start, *options):
    s = start(t, *options)
    shown = command_line(s.pid)
    check_that(SECRET.encode() not in shown, "ps does not show it: %r" % shown)
    check_that(b"--port" in shown, "it shows the rest: %r" % shown)
    return s


def by_itself(t, *options):
    return t.server(*options)


def by_sluice(t, *options):
    return t.server(*options, argv=[sluice(), "serve"])


for _how in (by_itself, by_sluice):
    for _options in (["--password", SECRET], ["--password=" + SECRET]):
        def _f(t, how=_how, options=_options):
            s = hidden(t, how, *options)
            check_error(s.client()("PING"), "NOAUTH")
            c = s.client()
            check(c("AUTH", SECRET), "OK", "it holds all the same")
        test_of("the_password_is_not_in_the_process_list_%s_%s" %
                (_how.__name__, "with_equals" if len(_options) == 1 else "as_a_word"), _f)


@test
def secrets_of_a_cluster_are_not_in_the_process_list(t):
    hidden(t, by_itself, "--data", t.path("data"), "--node", "1", "--peers", "1=127.0.0.1:1", "--node-port", "auto",
           "--secret", SECRET, "--bootstrap")


def warned(t, mode, expected, *options):
    """Of the file that the last option names."""
    path = options[-1]
    os.chmod(path, mode)
    p = subprocess.run([tap.program, "--check", *options], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                       universal_newlines=True, timeout=60)
    check(p.returncode, 0, p.stderr)
    told = "every user can read or write this file" in p.stderr and path in p.stderr and "chmod o-rwx" in p.stderr
    check(told, expected, "%04o: %r" % (mode, p.stderr))


@test
def a_secret_file_that_others_can_read_is_warned_of(t):
    path = t.write("password", SECRET + "\n")
    for mode, expected in ((0o600, False), (0o640, False), (0o644, True), (0o602, True)):
        warned(t, mode, expected, "--password-file", path)
    warned(t, 0o644, True, "--node", "1", "--peers", "1=127.0.0.1:1", "--data", "x", "--secret-file", path)
    etcd = ("--node", "1", "--peers", "1=127.0.0.1:1", "--data", "x", "--secret", SECRET, "--etcd",
            "https://127.0.0.1:1", "--etcd-user", "u")
    warned(t, 0o644, True, *etcd, "--etcd-password-file", path)
    warned(t, 0o644, True, *etcd, "--etcd-password", "x", "--etcd-cert", path, "--etcd-key", path)


@test
def a_config_file_is_warned_of_if_it_has_a_secret_in_it(t):
    warned(t, 0o644, False, "--config", t.write("a.conf", "port = 5000\npassword =\n"))
    path = t.write("b.conf", "password = %s\n" % SECRET)
    warned(t, 0o644, True, "--config", path)
    warned(t, 0o640, False, "--config", path)


# --- Core files --------------------------------------------------------------------------


def core_limits(pid):
    """(the soft limit of a core file, the hard one, what memory goes into one)"""
    with open("/proc/%d/limits" % pid) as f:
        line = [x for x in f if x.startswith("Max core file size")][0].split()
    with open("/proc/%d/coredump_filter" % pid) as f:
        return line[4], line[5], int(f.read(), 16)


@test
def a_crash_leaves_no_core_with_secrets(t):
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    mine = core_limits(os.getpid())
    s = t.server("--password", SECRET)
    check(core_limits(s.pid), ("0", "0", 0))
    other = t.server("--core-dumps")
    check(core_limits(other.pid), mine, "for debugging")
    s.signal(signal.SIGABRT)
    check(s.status, -signal.SIGABRT)


main(__doc__)
