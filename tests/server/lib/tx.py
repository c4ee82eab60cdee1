"""tx.py - transaction commands for tests of a single server and of a cluster."""
from live import check, check_that


def begin(c, *request):
    """Begin a transaction; returns (term, number)."""
    got = c("TX.BEGIN", *request)
    check_that(isinstance(got, list) and len(got) == 2, "TX.BEGIN is answered: %r" % (got,))
    return tuple(got)


def ok(c, *words):
    check(c(*words), "OK", "%r" % (words,))


def commit(c):
    got = c("TX.COMMIT")
    check_that(isinstance(got, int), "TX.COMMIT is answered with a revision: %r" % (got,))
    return got
