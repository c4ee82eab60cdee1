"""long.py - the options --long and --seed N of a test program. Import it before live.py."""
import os
import random
import sys


def take(deadline_s):
    """Returns (is_long, seed) and removes both options from sys.argv. With --long the deadline of a
    test is deadline_s."""
    is_long, seed = "--long" in sys.argv, random.randrange(1 << 32)
    if is_long:
        sys.argv.remove("--long")
        os.environ.setdefault("SLUICE_TEST_DEADLINE_S", str(deadline_s))
    if "--seed" in sys.argv:
        at = sys.argv.index("--seed")
        seed = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    return is_long, seed
