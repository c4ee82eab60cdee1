#!/usr/bin/python3
"""test_serve.py - starting and stopping the server: settings, log, sockets, signals.

    tests/server/test_serve.py SERVER [--jobs N] [PATTERN...]

`sluice serve` is tried with the sluice that is in ../cli next to the server, or $SLUICE.
"""
import json
import os
import re
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (Client, Closed, check, check_error, check_that, encode, main, pairs,
                  sluice, stop, tap, test, test_of)

FOREVER = 10 ** 8
# What users have in their files: none of these may go. All there are: src/settings.def.
PROMISED = """port bind socket socket-mode data config password password-file log-format log-level
linger keep-alive idle-time auth-time connections-max key-bytes-max value-bytes-max args-max
argument-bytes-max command-bytes-max keys-max waiters-max output-bytes-max subscriptions-max
patterns-max drains-max lease-max""".split()
HERE = os.path.dirname(os.path.abspath(__file__))
with open(HERE + "/../../src/settings.def") as f:
    SETTINGS = re.findall(r'^SETTING\("([a-z-]+)"', f.read(), re.M)


def setting(s, name):
    return pairs(s.client()("CONFIG", "GET", name))[name].decode()


# --- Settings ------------------------------------------------------------------------


@test
def settings_by_options_in_both_forms(t):
    s = t.server("--linger=1234", "--keys-max", "55", "--lease-max", "2m", "--value-bytes-max=1k")
    check(setting(s, "linger"), "1234")
    check(setting(s, "keys-max"), "55")
    check(setting(s, "lease-max"), "120000")
    check(setting(s, "value-bytes-max"), "1024")


def check_unit(t, text, ms):
    check(setting(t.server("--linger", text), "linger"), str(ms))


for text, ms in (("0", 0), ("7", 7), ("500ms", 500), ("5s", 5000), ("2m", 120000), ("1h", 3600000)):
    test_of("a_time_may_be_%s" % text, check_unit, text, ms)


@test
def the_defaults_are_those_of_the_contract(t):
    s, c = t.server().with_clients(1)
    wanted = {"socket-mode": "0600", "log-format": "text", "log-level": "info", "linger": "5000",
              "idle-time": "0", "auth-time": "30000", "connections-max": "10000",
              "key-bytes-max": "1024", "value-bytes-max": "4096", "argument-bytes-max": "16384",
              "command-bytes-max": "65536", "keys-max": "20000000", "waiters-max": "131072",
              "output-bytes-max": "8388608", "subscriptions-max": "1000", "patterns-max": "100",
              "drains-max": "100", "lease-max": "86400000"}
    got = {k: v.decode() for k, v in pairs(c("CONFIG", "GET", "*")).items()}
    check({name: got.get(name) for name in wanted}, wanted)


@test
def settings_from_a_file(t):
    path = t.config("# a comment\n; another\n\nlinger = 3s\nkeys-max=44\nwaiters-max   =  9  \n"
                    "log-format = json\n")
    s = t.server("--config", path)
    check([setting(s, n) for n in ("linger", "keys-max", "waiters-max")], ["3000", "44", "9"])
    json.loads(s.log.splitlines()[0])


@test
def a_file_may_have_sections_comments_and_blanks(t):
    path = t.config("\ufefflinger = 3s ; a comment\r\n[limits]\n  keys-max : 44\n\t# blank\n"
                    "waiters-max=9\netcd-prefix = a;b = c#d;e ;f ;g\netcd-user =;h\netcd-ca = ;i\n"
                    "etcd-cert = /a#b # c ; d\netcd-key =#k\nlease-max\t=\t2m\t# a comment\n"
                    "majority-keys = # none\ntx-age = 3m #\n")
    s = t.server("--config", path)
    names = ("linger", "keys-max", "waiters-max", "etcd-prefix", "etcd-user", "etcd-ca", "etcd-cert",
             "etcd-key", "lease-max", "majority-keys", "tx-age")
    check([setting(s, n) for n in names],
          ["3000", "44", "9", "a;b = c#d;e", ";h", "", "/a#b", t.path("#k"), "120000", "", "180000"])


@test
def a_value_may_be_in_quotes(t):
    path = t.config("linger = '3s'\nkeys-max=\"44\"  \netcd-prefix = \" a # b ; c = 'd' \" # a comment\n"
                    "etcd-user = 'say \"#\"' ; a comment\netcd-ca = \"\"\netcd-cert = /it's \"here\"\n"
                    "etcd-key = '/back\\slash\\' # no escapes\nbootstrap = \"no\"\n")
    s = t.server("--config", path)
    names = ("linger", "keys-max", "etcd-prefix", "etcd-user", "etcd-ca", "etcd-cert", "etcd-key")
    check([setting(s, n) for n in names],
          ["3000", "44", " a # b ; c = 'd' ", 'say "#"', "", "/it's \"here\"", "/back\\slash\\"])


@test
def a_file_is_relative_to_the_configuration_file(t):
    os.mkdir(t.path("etc"))
    t.write("etc/pw", "geheim\n")
    t.write("pw", "open sesame\n")
    path = t.write("etc/sluice.conf", "password-file = pw\n")
    s = t.server("--config", path)
    check(setting_with(s, "geheim", "password-file"), t.path("etc/pw"))
    s = t.server("--config", "etc/sluice.conf")
    check(setting_with(s, "geheim", "password-file"), "etc/pw")
    s = t.server("--config", path, "--password-file", "pw")
    check(setting_with(s, "open sesame", "password-file"), "pw")
    os.rename(path, t.path("sluice.conf"))
    s = t.server("--config", "sluice.conf")
    check(setting_with(s, "open sesame", "password-file"), "pw")


def setting_with(s, password, name):
    return pairs(s.client(password=password)("CONFIG", "GET", name))[name].decode()


def check_password(t, line, password):
    s = t.server("--config", t.config(line + "\n"))
    check(s.client(password=password)("PING"), "PONG")


PASSWORDS = (("a#b;c", "a#b;c"), ("'# a ; b'", "# a ; b"), ('"it\'s # "', "it's # "), ("it's", "it's"),
             ("'abc' # a comment", "abc"), ("'abc'", "abc"), ("  abc  ", "abc"))
for text, password in PASSWORDS:
    test_of("a_password_in_a_file: %s" % text, check_password, "password = " + text, password)


@test
def a_comment_behind_a_secret_without_quotes_is_an_error(t):
    for name in ("password", "secret", "etcd-password"):
        for value in ("geheim # or not", "geheim ;or not", "#geheim", "geheim #"):
            p = check_bad_line(t, "%s = %s" % (name, value), "put the value of %s in quotes" % name)
            check_that("geheim" not in p.err, "the secret is not shown: %r" % p.err)
    check_bad_line(t, "password = # none", "quotes")


@test
def a_line_of_a_file_may_have_4096_bytes(t):
    name = "etcd-prefix = "
    value = "p" * (4096 - len(name))
    s = t.server("--config", t.config(name + value + "\nlinger = 3s\n"))
    check([setting(s, n) for n in ("etcd-prefix", "linger")], [value, "3000"])
    check_bad_line(t, name + value + "p", "the line has 4097 bytes; the limit is 4096")
    hosts = ",".join("%d=sluice-%d.%s.example.com:5627" % (i, i, "department" * 4) for i in range(1, 6))
    path = t.config("node = 1\npeers = %s\nsecret = %s\ndata = %s\n" % (hosts, "s" * 20, t.path("d")))
    check(t.failing("--check", "--config", path).status, 0, "the status of --check with peers by name")


@test
def INFO_is_whole_with_long_paths(t):
    data = t.path("d")
    os.mkdir(data)
    data += "/." * 1990
    path = t.config("linger = 3s\n")
    path = os.path.dirname(path) + "/." * 1990 + "/" + os.path.basename(path)
    info = t.server("--config", path, "--data", data).info()
    check([info["config_file"], info["data"], int(info["loop_turns"]) > 0], [path, data, True])


@test
def an_option_wins_over_the_file(t):
    path = t.config("linger = 3s\nkeys-max = 44\nport = 1\n")
    for args in (("--linger", "7", "--config", path), ("--config", path, "--linger", "7")):
        s = t.server(*args)
        check([setting(s, n) for n in ("linger", "keys-max")], ["7", "44"])


@test
def a_yes_or_no_setting_takes_its_value_in_each_form(t):
    path = t.config("data-volatile = yes\n")
    for args, wanted in (((), "yes"), (("--data-volatile",), "yes"), (("--data-volatile", "yes"), "yes"),
                         (("--data-volatile", "no"), "no"), (("--data-volatile=no",), "no"),
                         (("--data-volatile", "--linger", "7"), "yes")):
        check(setting(t.server("--config", path, *args), "data-volatile"), wanted, args)
    check(t.failing("--data-volatile", "maybe").status, 2)


BAD_LINES = (("nosuch = 1", "nosuch"), ("linger = soon", "linger"), ("linger = -1", "linger"),
             ("linger = 5 s x", "linger"), ("keys-max = 0", "keys-max"), ("keys-max = 1e3", "keys-max"),
             ("keys-max = ", "keys-max"), ("log-format = xml", "log-format"),
             ("log-level = loud", "log-level"), ("port = http", "port"),
             ("socket-mode = 999", "socket-mode"), ("this is no setting", 'expected "name = value"'),
             ("linger = '3s", "the closing quote is missing"), ('linger = "3s', "the closing quote is missing"),
             ("linger = '3s\"", "the closing quote is missing"), ("linger = '", "the closing quote is missing"),
             ("linger = '3s'x", "only a comment"), ("linger = '3s' x", "only a comment"),
             ("linger = '3s'# x", "only a comment"), ("etcd-prefix = 'it''s'", "only a comment"),
             ("linger = # 3s", 'got ""'), ("linger = ''", 'got ""'), ("linger = 5S", 'got "5S"'),
             ("linger = 5 s", 'from 0 to 24h, such as 500ms, 30s, 5m or 1h, or a number of milliseconds (got "5 s")'),
             ("linger = 25h", "from 0 to 24h"), ("lease-max = 1e3", 'got "1e3"'), ("lease-max = -5s", 'got "-5s"'),
             ("auth-time = 0.5", 'got "0.5"'), ("auth-args-max = 9", 'duplicate setting "auth-args-max"'),
             ("prot = 1", 'unknown setting "prot"; did you mean "port"?'), ("lease_max = 1h", '"lease-max"?'),
             ("help = 1", 'unknown setting "help"; sluice serve --help'),
             ("output-bytes-max = 1t", "a size from 1024 to 1099511627776 bytes, such as"),
             ("memory-max = lots", "auto or a size"), ("port = 65536", "a port from 1 to 65535, 0 or auto"),
             ("bootstrap = maybe", 'yes or no (got "maybe")'), ("keys-max = 5.0", "an integer from 1 to 2000000000"),
             ("lease-max = 99999999999999999999", "lease-max"), ("config = other.conf", "config"))


def check_bad_line(t, line, name):
    path = t.config("# first\nauth-args-max = 9\n%s\nlog-level = info\n" % line)
    for more in ((), ("--check",)):
        p = t.failing("--config", path, *more, port=None)
        check(p.status, 2, "the status")
        check_that("%s:3:" % path in p.err, "it says where: %r" % p.err)
        check_that(name in p.err, "it names the setting: %r" % p.err)
    return p


for line, name in BAD_LINES:
    test_of("a_bad_line_is_told_with_file_and_number: %s" % line, check_bad_line, line, name)


BAD_OPTIONS = (("--nosuch", "1"), ("--nosuch",), ("nosuch",), ("--linger",), ("--linger", "x"),
               ("--linger=",), ("-p", "5"), ("--keys-max", "0"), ("--keys-max", "-5"),
               ("--port", "70000"), ("--port", "-1"), ("--port", "0"), ("--log-format", "xml"),
               ("--config", "/nonexistent/file"), ("--password-file", "/nonexistent/file"),
               ("--output-bytes-max", "9999999999999999999g"), ("--linger", "9999999999h"),
               ("--socket-mode", "rwx"))


def check_bad_options(t, *options):
    p = t.failing(*options, port=None)
    check(p.status, 2, "the status")
    name = options[0].split("=")[0].strip("-")
    check_that(name in p.err or options[-1] in p.err or "socket" in p.err,
               "it says what is wrong: %r" % p.err)
    check(p.out, "")


for options in BAD_OPTIONS:
    test_of("bad_options_are_refused: " + " ".join(options), check_bad_options, *options)


@test
def an_unknown_option_gets_a_suggestion(t):
    for option, best in (("--prot", "--port"), ("--lease-mx=5s", "--lease-max"), ("--pasword=geheim", "--password"),
                         ("--hepl", "--help"), ("--chek", "--check"), ("--store-bytes", "--store-bytes-max")):
        p = t.failing(option, "1", port=None)
        check([p.status, p.err, p.out], [2, 'sluice-server: unknown option "%s"; did you mean "%s"?\n' %
                                         (option.split("=")[0], best), ""])
    p = t.failing("--quux", "1", port=None)
    check(p.err, 'sluice-server: unknown option "--quux"; sluice serve --help lists all settings\n')


@test
def check_says_whether_settings_are_good(t):
    path = t.config("linger = 3s\n")
    p = t.failing("--check", "--config", path)
    check([p.status, p.err], [0, ""])
    check_that(p.out, "it says so")
    path = t.config("linger = 3s\nnosuch = 1\nkeys-max = x\n")
    p = t.failing("--config", path, "--check")
    check(p.status, 2)
    check_that(":2:" in p.err and ":3:" in p.err, "it tells of both lines: %r" % p.err)
    check(os.path.exists(t.path("data")), False)


@test
def check_does_not_start_anything(t):
    s = t.server()
    p = t.failing("--check", "--data", t.path("d"), port=str(s.port))
    check(p.status, 0, "the port is in use, and that does not matter")


@test
def help_lists_every_setting_and_its_default(t):
    p = t.failing("--help", port=None)
    check([p.status, p.err], [0, ""])
    check(sorted(set(PROMISED) - set(SETTINGS)), [], "settings that are gone")
    for name in SETTINGS + ["check", "help", "version"]:
        check_that(re.search(r"^\s+--%s\b" % name, p.out, re.M), "--%s is listed" % name)
    check_that("5625" in p.out and "10000" in p.out, "defaults are told")
    listed = re.findall(r"^\s+--([a-z-]+)", p.out, re.M)
    check(sorted(listed), sorted(SETTINGS + ["check", "help", "version"]), "all that is listed")
    check_that(max(map(len, p.out.splitlines())) <= 100, "lines are not too long")


@test
def CONFIG_GET_knows_every_setting_of_help(t):
    got = pairs(t.server().client()("CONFIG", "GET", "*"))
    check(sorted(got), sorted(SETTINGS))


@test
def version_is_one_line(t):
    p = t.failing("--version", port=None)
    check([p.status, p.err, len(p.out.splitlines())], [0, "", 1])
    version = re.search(r"(\d+\.\d+\.\d+)", p.out).group(1)
    check(t.server().info()["sluice_version"], version)


# --- The log ---------------------------------------------------------------------------


def make_noise(s):
    c = s.client()
    c.send_raw(b"*1\r\n!\r\n")
    c.until_closed()
    s.still_well()
    s.end()


@test
def a_text_log_has_time_level_and_message(t):
    s = t.server("--log-level", "debug")
    make_noise(s)
    lines = s.log.splitlines()
    check_that(len(lines) >= 3, "there are lines")
    for line in lines:
        check_that(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warn|error) \S", line),
                   "%r is a line of a log" % line)
    check_that(re.search(r" info listening on 127\.0\.0\.1:\d+$", s.log, re.M), "it says where")
    check_that(re.search(r" info listening on \S+\n\S+ info ready: ", s.log), "then it says that it is ready")


@test
def a_json_log_has_time_level_and_message(t):
    s = t.server("--log-level", "debug", "--log-format", "json")
    make_noise(s)
    for line in s.log.splitlines():
        got = json.loads(line)
        for name in ("time", "level", "message"):
            check_that(isinstance(got[name], str) and got[name], "%s is in %r" % (name, line))
        check_that(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", got["time"]), "a time")
        check_that(got["level"] in ("debug", "info", "warn", "error"), "a level")


@test
def the_level_of_the_log(t):
    path = t.path("sock")
    s = t.server("--log-level", "error", "--socket", path, port=0, wait=False)
    t.until(lambda: os.path.exists(path), "it listens")
    c = t.until(lambda: connect(path), "it answers")
    check(c("PING"), "PONG")
    s.end()
    check(s.log, "", "the log")


def connect(path):
    try:
        return Client(path)
    except OSError:
        return None


@test
def standard_output_stays_empty(t):
    s = t.server()
    make_noise(s)
    check(s.process.out, "")


# --- What is in the way -----------------------------------------------------------------


@test
def a_port_in_use_is_reported(t):
    s = t.server()
    p = t.failing(port=str(s.port))
    check(p.status, 1)
    check_that(str(s.port) in p.err, "it names the port: %r" % p.err)
    check_that("--port" in p.err, "it says what to do: %r" % p.err)
    s.still_well()


@test
def a_port_can_be_used_again_at_once(t):
    for _ in range(3):  # somebody else may have been given it meanwhile
        s = t.server()
        kept = s.clients(5)
        check(kept[4]("PING"), "PONG")
        s.end()
        again = t.server(port=s.port, wait=False)
        t.until(lambda: "ready: sluice" in again.log or not again.process.running, "it has begun")
        if again.process.running:
            return
    check_that(False, "it listens on the same port again")


@test
def an_address_of_another_machine_is_reported(t):
    p = t.failing("--bind", "192.0.2.1", "--password", "long enough")
    check(p.status, 1)
    check_that("192.0.2.1" in p.err, "it names the address: %r" % p.err)
    p = t.failing("--bind", "no.address.at.all")
    check_that(p.status in (1, 2), "the status %d" % p.status)
    check_that("no.address.at.all" in p.err, "it names it: %r" % p.err)


@test
def a_socket_in_use_is_left_alone(t):
    path = t.path("sock")
    s = t.server("--socket", path)
    before = os.stat(path).st_ino
    p = t.failing("--socket", path)
    check(p.status, 1)
    check_that(path in p.err, "it names the path: %r" % p.err)
    check(os.stat(path).st_ino, before, "the socket")
    check(Client(path)("PING"), "PONG")
    s.still_well()


@test
def a_socket_left_over_is_replaced(t):
    path = t.path("sock")
    s = t.server("--socket", path)
    s.signal(signal.SIGKILL)
    s.status
    check_that(os.path.exists(path), "it is left over")
    t.server("--socket", path)
    check(Client(path)("PING"), "PONG")


@test
def a_socket_is_gone_after_a_good_end(t):
    path = t.path("sock")
    s = t.server("--socket", path)
    s.end()
    check(os.path.exists(path), False, "the socket is there")


@test
def what_is_not_a_socket_is_not_removed(t):
    path = t.write("precious", "data")
    p = t.failing("--socket", path)
    check(p.status, 1)
    check_that(path in p.err, "it names the path: %r" % p.err)
    check(t.read("precious"), "data")
    os.symlink(path, t.path("link"))
    check(t.failing("--socket", t.path("link")).status, 1)
    check(t.read("precious"), "data")
    os.mkdir(t.path("directory"))
    check(t.failing("--socket", t.path("directory")).status, 1)
    check(t.failing("--socket", t.path("no/such/directory/s")).status, 1)
    check(t.failing("--socket", "/tmp/" + "x" * 200).status in (1, 2), True, "a long path")


@test
def a_data_directory_is_of_one_server(t):
    path = t.path("data")
    s = t.server("--data", path)
    p = t.failing("--data", path)
    check(p.status, 1)
    check_that(path in p.err and "--data" in p.err, "it says what to do: %r" % p.err)
    s.signal(signal.SIGKILL)
    s.status
    again = t.server("--data", path)
    again.still_well()
    check(t.failing("--data", t.write("file", "x")).status, 1)
    check(t.read("file"), "x")


@test
def a_data_directory_that_is_not_configured_is_not_used(t):
    before = sorted(os.listdir(t.dir))
    s = t.server()
    s.client().acquire("k")
    s.end()
    check([f for f in sorted(os.listdir(t.dir)) if not f.startswith(".said")],
          [f for f in before if not f.startswith(".said")], "files")


# --- Ready ------------------------------------------------------------------------------


def check_notified(t, address, told):
    n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    n.bind(address)
    n.settimeout(30)
    s = t.server(env={"NOTIFY_SOCKET": told}, wait=False)
    check(n.recv(1000).split(b"\n")[0], b"READY=1")
    s.until_ready()
    check(s.client()("PING"), "PONG")


@test
def ready_is_sent_to_NOTIFY_SOCKET(t):
    check_notified(t, t.path("notify"), t.path("notify"))


@test
def ready_is_sent_to_an_abstract_NOTIFY_SOCKET(t):
    check_notified(t, "\0" + t.unique, "@" + t.unique)


@test
def a_NOTIFY_SOCKET_that_is_not_there_does_no_harm(t):
    t.server(env={"NOTIFY_SOCKET": "/nonexistent/socket"}).still_well()


# --- Leaving ------------------------------------------------------------------------------


def check_leaves(t, leave):
    """S3: holders and waiters are told, and the server ends with status 0."""
    s, sub, waiter, watcher, two = t.server().with_clients(4)
    three, admin = s.client(3), s.client()
    sub.subscribe("lock:k", "lock:l", "lock:x")
    fence = three.acquire("k")
    leased = three.acquire("l", "LEASE", 600000)
    plain = two.acquire("x")
    waiter.send("ACQUIRE", "k", "WAIT", FOREVER)
    watcher.send("AWAIT", "k", "FREE", FOREVER)
    t.until(lambda: s.number("blocked_clients", admin) == 2, "they wait")
    leave(s, admin)
    check_error(waiter.reply(), "SHUTDOWN")
    check_error(watcher.reply(), "SHUTDOWN")
    pushes = [three.push() for _ in range(2)]
    check(sorted((p[1], p[2], int(p[3])) for p in pushes),
          [(b"k", b"broken", fence), (b"l", b"broken", leased)])
    told = [m for m in (sub.message() for _ in range(6))]
    check(sorted(m for m in told if m[1].startswith("broken")),
          [("lock:k", "broken %d why=shutdown" % fence), ("lock:l", "broken %d why=shutdown" % leased),
           ("lock:x", "broken %d why=shutdown" % plain)])
    for c in (waiter, watcher, two, three, sub):
        check(c.until_closed(), b"", "what came after it")
    check(s.status, 0, "the status")


test_of("SIGTERM_tells_everybody_and_ends", check_leaves, lambda s, c: s.signal(signal.SIGTERM))
test_of("SIGINT_tells_everybody_and_ends", check_leaves, lambda s, c: s.signal(signal.SIGINT))
test_of("SHUTDOWN_tells_everybody_and_ends", check_leaves, lambda s, c: c.send("SHUTDOWN"))


def deaf(s):
    """A connection with replies that it does not read, more than the sockets hold."""
    c = s.client()
    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.socket.setblocking(False)
    block = encode(["ECHO", "x" * 4000]) * 50
    sent, stuck_since = 0, time.monotonic()
    while time.monotonic() - stuck_since < 0.2:
        try:
            sent += c.socket.send(block[sent % len(block):])
            stuck_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.005)
    return c


@test
def a_client_that_does_not_read_does_not_keep_it(t):
    s = t.server()
    unread = deaf(s)
    s.still_well()
    s.end()
    unread.close()


@test
def nothing_is_granted_when_it_leaves(t):
    """A client that does not read keeps it for a moment."""
    s = t.server()
    unread, c = deaf(s), s.client()
    check(c("PING"), "PONG")
    s.signal(signal.SIGTERM)
    s.until_log("stopping")
    for old in (c, None):
        try:
            got = (old or s.client())("ACQUIRE", "k")
            check_error(got, "SHUTDOWN")
        except (Closed, OSError):
            pass  # it has left, or nobody listens
    check(s.status, 0)
    unread.close()


@test
def a_second_signal_ends_it_at_once(t):
    """Also if the first one is still being worked on."""
    s, c = t.server().with_clients(1)
    c.acquire("k")
    stop(t, s.pid)
    s.signal(signal.SIGTERM)
    s.signal(signal.SIGINT)
    s.signal(signal.SIGCONT)
    check_that(s.status in (0, 1), "it ended by itself: %d" % s.status)


@test
def a_hundred_thousand_holders_are_notified(t):
    s = t.server()
    c, sub = s.client(), s.client()
    n = 100000
    for start in range(0, n, 5000):
        c.send_raw(b"".join(encode(["ACQUIRE", "k%d" % i]) for i in range(start, start + 5000)))
        for _ in range(5000):
            c.reply()
    sub.subscribe("lock:*", command="PSUBSCRIBE")
    s.signal(signal.SIGTERM)
    data = read_all(sub)
    check(data.count(b"why=shutdown"), n)
    check(s.status, 0)


def read_all(c):
    chunks = []
    while True:
        try:
            data = c.socket.recv(1 << 20)
        except ConnectionResetError:
            break
        if not data:
            break
        chunks.append(data)
    return b"".join(chunks)


# --- sluice serve -----------------------------------------------------------------------------


@test
def sluice_serve_becomes_the_server(t):
    s = t.server("--linger", "7", argv=(sluice(), "serve"))
    check(s.info()["process_id"], str(s.pid), "the pid")
    with open("/proc/%d/comm" % s.pid) as f:
        check(f.read().strip(), "sluice-server")
    check(setting(s, "linger"), "7")
    s.end()


@test
def sluice_serve_forwards_status_and_messages(t):
    p = t.run(sluice(), "serve", "--nosuch", "1")
    check(p.status, 2)
    check_that("nosuch" in p.err, "it says what is wrong: %r" % p.err)
    check(t.run(sluice(), "serve", "--check").status, 0)
    p = t.run(sluice(), "serve", "--help")
    check(p.status, 0)
    check_that("--linger" in p.out, "help: %r" % p.out[:200])


# --- Leaks ---------------------------------------------------------------------------------------


@test
def a_thousand_connections_leave_nothing_behind(t):
    s, ask = t.server("--linger", "0").with_clients(1)

    def some(n):
        for i in range(n):
            c = s.client(2 + i % 2)
            if i % 5 == 0:
                c.acquire("k%d" % i)
            elif i % 5 == 1:
                c.subscribe("lock:k%d" % i)
            elif i % 5 == 2:
                c.send("ACQUIRE", "busy", "WAIT", FOREVER)
            elif i % 5 == 3:
                c.send_raw(b"*2\r\n$5\r\nAB")
            (c.close if i % 3 else c.reset)()
        t.until(lambda: s.number("connected_clients", ask) == 1, "all are gone")

    ask.acquire("busy")
    some(200)
    descriptors, memory = s.descriptors(), s.rss_bytes()
    some(1000)
    check(s.descriptors(), descriptors, "descriptors")
    check_that(s.rss_bytes() - memory < 2 << 20, "memory grew by %d" % (s.rss_bytes() - memory))
    t.until(lambda: s.number("entries", ask) == 1, "one is held")


@test
def descriptors_of_the_starter_are_not_needed(t):
    """It runs with standard input, output and error closed or at /dev/null."""
    path = t.path("sock")
    for words in ('exec "$@" <&- >&-', 'exec "$@" </dev/null >/dev/null 2>&1'):
        p = t.start("sh", "-c", words, "sh", tap.program, "--port", "0", "--socket", path)
        c = t.until(lambda: connect(path), "it answers")
        check(c("PING"), "PONG")
        c.close()
        p.kill(signal.SIGTERM)
        check(p.status, 0)


main(__doc__)
