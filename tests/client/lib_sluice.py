"""lib_sluice.py - libsluice.so for Python, for the tests of the C client."""
import ctypes
import os

INT, U32, I64, U64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
TEXT, POINTER = ctypes.c_char_p, ctypes.c_void_p
FOREVER = -1
ASKED, WITHDRAWN, STOLEN, EXPIRED, BROKEN, UNREACHABLE = range(1, 7)


class Event(ctypes.Structure):
    _fields_ = [("type", INT), ("priority", ctypes.c_int32), ("key", TEXT), ("fence", U64), ("left_ms", I64)]


class Cancel(ctypes.Structure):
    _fields_ = [("cancelled", U32)]


class Grant(ctypes.Structure):
    _fields_ = [("fence", U64), ("held", U64), ("lease_ms", I64), ("waited_ms", I64), ("overlapping", U32)]


ON_EVENT = ctypes.CFUNCTYPE(None, POINTER, ctypes.POINTER(Event))
ON_DONE = ctypes.CFUNCTYPE(None, POINTER, INT, ctypes.POINTER(Grant))


ON_TERM = ctypes.CFUNCTYPE(None, POINTER, U64, INT)


class Candidate(ctypes.Structure):
    _fields_ = [("lease_ms", I64), ("priority", ctypes.c_int32), ("value", TEXT), ("note", TEXT),
                ("on_elected", ON_TERM), ("on_ended", ON_TERM), ("arg", POINTER)]


class Options(ctypes.Structure):
    _fields_ = [("keys", U32), ("waiters", U32), ("password", TEXT), ("name", TEXT), ("retry_ms", I64),
                ("connect_ms", I64), ("event_loop", U32)]


class Request(ctypes.Structure):
    _fields_ = [("shared", U32), ("per", U32), ("buckets", U32), ("units", U32), ("priority", ctypes.c_int32),
                ("steal", U32), ("steal_early", ctypes.c_double), ("wait_ms", I64), ("lease_ms", I64), ("value", TEXT),
                ("note", TEXT), ("on_event", ON_EVENT), ("arg", POINTER), ("cancel", ctypes.POINTER(Cancel)),
                ("keep_alive", U32), ("max_hold_ms", I64), ("margin_ms", I64)]


class Capacity(ctypes.Structure):
    _fields_ = [("per", U32), ("buckets", U32)]


class View(ctypes.Structure):
    _fields_ = [("fence", U64), ("tid", ctypes.c_int32), ("priority", ctypes.c_int32), ("waits", U32), ("shared", U32),
                ("asked", U32), ("steals", U32), ("broken", U32), ("units", U32), ("capacity", Capacity),
                ("left_ms", I64), ("since_ms", I64), ("value", ctypes.c_char * 256), ("note", ctypes.c_char * 256),
                ("client", ctypes.c_char * 128), ("address", ctypes.c_char * 128)]


def load(build):
    """The library of a build directory."""
    lib = ctypes.CDLL(os.path.join(build, "src/libsluice.so"))
    for name, result, arguments in [
            ("sluice_open", INT, [TEXT, ctypes.POINTER(Options), ctypes.POINTER(POINTER)]),
            ("sluice_close", None, [POINTER]),
            ("sluice_acquire", INT, [POINTER, TEXT, ctypes.POINTER(Request), ctypes.POINTER(Grant)]),
            ("sluice_cancel", INT, [POINTER, ctypes.POINTER(Cancel)]),
            ("sluice_release", INT, [POINTER, TEXT, U64]),
            ("sluice_extend", INT, [POINTER, TEXT, U64, I64]),
            ("sluice_left", I64, [POINTER, TEXT, U64]),
            ("sluice_check", INT, [POINTER, TEXT, U64]),
            ("sluice_break", INT, [POINTER, TEXT, U64, U32]),
            ("sluice_inspect", I64, [POINTER, TEXT, ctypes.POINTER(View), ctypes.c_size_t]),
            ("sluice_error", None, [POINTER, TEXT, ctypes.c_size_t]),
            ("sluice_fd", INT, [POINTER]),
            ("sluice_timeout_ms", INT, [POINTER]),
            ("sluice_step", INT, [POINTER]),
            ("sluice_acquire_start", INT, [POINTER, TEXT, ctypes.POINTER(Request), ON_DONE, POINTER]),
            ("sluice_release_start", INT, [POINTER, TEXT, U64, ON_DONE, POINTER]),
            ("sluice_extend_start", INT, [POINTER, TEXT, U64, I64, ON_DONE, POINTER]),
            ("sluice_acquire_all", INT, [POINTER, ctypes.POINTER(TEXT), ctypes.c_size_t, ctypes.POINTER(Request),
                                         ctypes.POINTER(POINTER)]),
            ("sluice_release_all", INT, [POINTER]),
            ("sluice_elect", INT, [POINTER, TEXT, POINTER, POINTER]),
            ("sluice_resign", None, [POINTER]),
            ("sluice_status_word", TEXT, [I64])]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, arguments
    return lib


class Service:
    """A service. Statuses are words, such as "OK" and "FULL"."""

    def __init__(self, lib, where, **options):
        self.lib, self.kept = lib, []
        o, self.s = Options(), POINTER()
        for name, value in options.items():
            setattr(o, name, value.encode() if isinstance(value, str) else value)
        self.opened = self.word(lib.sluice_open(where.encode() if where is not None else None, ctypes.byref(o),
                                                ctypes.byref(self.s)))

    def word(self, status):
        return self.lib.sluice_status_word(status).decode() if status <= 0 else status

    def close(self):
        self.lib.sluice_close(self.s)
        self.s = None

    def request(self, events=None, **more):
        """events: a list that receives (type, fence) of each event, or a function."""
        r = Request()
        for name, value in more.items():
            setattr(r, name, value.encode() if isinstance(value, str) else value)
        if events is not None:
            def on_event(_, e):
                event = e.contents
                (events.append if isinstance(events, list) else events)((event.type, event.fence))
            r.on_event = ON_EVENT(on_event)
        self.kept.append(r)
        return r

    def acquire(self, key, **more):
        """The grant, or the status."""
        g, r = Grant(), self.request(**more)
        status = self.lib.sluice_acquire(self.s, key.encode(), ctypes.byref(r), ctypes.byref(g))
        return g if status == 0 else self.word(status)

    def start(self, key, done, **more):
        """done: a list that receives (status, fence) when the call has ended."""
        def on_done(_, status, g):
            done.append((self.word(status), g.contents.fence if g else None))
        r, f = self.request(**more), ON_DONE(on_done)
        self.kept.append(f)
        return self.word(self.lib.sluice_acquire_start(self.s, key.encode(), ctypes.byref(r), f, None))

    def cancel(self, token):
        return self.word(self.lib.sluice_cancel(self.s, ctypes.byref(token)))

    def release(self, key, fence=0):
        return self.word(self.lib.sluice_release(self.s, key.encode(), fence))

    def extend(self, key, fence, ms):
        return self.word(self.lib.sluice_extend(self.s, key.encode(), fence, ms))

    def left(self, key, fence):
        return self.lib.sluice_left(self.s, key.encode(), fence)

    def check(self, key, fence):
        return self.word(self.lib.sluice_check(self.s, key.encode(), fence))

    def break_(self, key, fence, now=0):
        return self.word(self.lib.sluice_break(self.s, key.encode(), fence, now))

    def inspect(self, key, count=10):
        views = (View * count)()
        n = self.lib.sluice_inspect(self.s, key.encode(), views, count)
        return list(views[:n]) if n >= 0 else self.word(n)

    def error(self):
        text = ctypes.create_string_buffer(400)
        self.lib.sluice_error(self.s, text, len(text))
        return text.value.decode()


    def acquire_all(self, keys, **more):
        """The locks, or the status."""
        locks, r = POINTER(), self.request(**more)
        texts = (TEXT * len(keys))(*[key.encode() for key in keys])
        status = self.lib.sluice_acquire_all(self.s, texts, ctypes.c_size_t(len(keys)), ctypes.byref(r),
                                             ctypes.byref(locks))
        return locks if status == 0 else self.word(status)

    def release_all(self, locks):
        return self.word(self.lib.sluice_release_all(locks))

    def elect(self, key, on_elected=lambda *_: None, on_ended=lambda *_: None):
        """The election, or the status."""
        candidate, election = Candidate(on_elected=ON_TERM(on_elected), on_ended=ON_TERM(on_ended)), POINTER()
        self.kept.append(candidate)
        status = self.lib.sluice_elect(self.s, key.encode(), ctypes.byref(candidate), ctypes.byref(election))
        return election if status == 0 else self.word(status)

    def resign(self, election):
        self.lib.sluice_resign(election)


ON_TX = ctypes.CFUNCTYPE(INT, POINTER, POINTER)


def transaction(service, fn):
    """Run a transaction. fn receives get(table, key) and put(table, key, value), and returns a status."""
    lib = service.lib
    lib.sluice_tx_get.argtypes = [POINTER, TEXT, TEXT, ctypes.POINTER(TEXT), POINTER]
    lib.sluice_tx_put.argtypes = [POINTER, TEXT, TEXT, TEXT, ctypes.c_size_t]
    lib.sluice_transaction.argtypes = [POINTER, ON_TX, POINTER]

    def on_tx(tx, _):
        failed = []

        def get(table, key):
            value = TEXT()
            failed.append(lib.sluice_tx_get(tx, table.encode(), key.encode(), ctypes.byref(value), None))
            return value.value

        def put(table, key, value):
            failed.append(lib.sluice_tx_put(tx, table.encode(), key.encode(), value.encode(), len(value)))
        status = fn(get, put)
        return next((f for f in failed if f != 0), status)
    return service.word(lib.sluice_transaction(service.s, ON_TX(on_tx), None))
