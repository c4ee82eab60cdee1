/* reclaim.pml - names come and go, and no permit is counted on a wrong one.
 *
 * A segment has a fixed number of keys. A name has one of them while somebody uses
 * it; an idle key is given to another name by a reclaimer under the segment's
 * mutex, while binders look names up and use what they found under no lock at all.
 *
 *     binder      record.key := (key, gen);  set its bit;  is it still READY(gen)?
 *     reclaimer   state := CLOSING(gen);  no bit set, count 0?  then FREE(gen + 1)
 *
 * Each writes before it reads what the other writes, so at least one of them sees
 * the other: a binder not seen finds the key closing and starts over, one that was
 * seen keeps its key. The word W is that of counter.pml and is never reset: a tag
 * of the old name's time is overwritten like any other.
 *
 * Slots, reapers, deaths and steps are those of counter.pml. The exclusive reaper
 * clears the bit of the record's key once the record is at rest, and then frees the
 * slot. The process that takes the segment's mutex from a killed reclaimer reopens what that
 * one was closing.
 *
 * Configurations: -DNAMES -DCLOSERS -DROAM -DHEIRS -DHEIRS_CLOSER, see init.
 * Variants, in which nothing must be found:
 *   REOPEN       a binder that finds its key closing reopens it, so that a stopped
 *                reclaimer holds up nobody; the reclaimer then frees with a swap
 *   SEQLATE      a record's key is changed before its seq is raised: each operation
 *                raises the seq anyway, and a record at rest is not acted upon
 * Mutants, each of which must be found:
 *   NOVERIFY     the binder does not look at the state after setting its bit
 *   BITFIRST     the bit is set before the record names the key
 *   NAMEFIRST    the look-up reads the name and then the generation
 *   BITSFIRST    the reclaimer reads the bits and then announces the closing
 *   BLINDFREE    with REOPEN, the reclaimer frees with a plain store
 *   HELPERCLEARS a helping reaper clears the bit, too
 *   NOGEN        a helping reaper does not validate the slot's generation
 *   NORECHECK    the drain does not read the record again after reading W
 */

#ifndef KEYS
#define KEYS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1        /* Names that the first binder uses one after the other. */
#endif
#define ANY 255
#ifndef FIRST_WANTS
#define FIRST_WANTS ANY
#endif
#ifndef OTHER_WANTS
#define OTHER_WANTS ANY
#endif
#define CAP 1

#define SLOTS  2
#define NOBODY SLOTS    /* In W before the first operation. */
#define NO_KEY KEYS     /* In a record before the first binding. */

#define NONE  0
#define ACQ   1
#define REL   2
#define DRAIN 3

#define READY   0
#define CLOSING 1
#define FREE    2

/* Processes. The first two own the slots of their numbers; the heir has slot 0
 * after the first. */
#define FIRST      0
#define OTHER      1
#define HEIR       2
#define REAPER1    3
#define REAPER2    4
#define RECLAIMER1 5
#define RECLAIMER2 6
#define UNLOCKED   7

/* ---- shared memory -------------------------------------------------------------- */

byte state[KEYS], key_gen[KEYS];                           /* One word. */
byte name[KEYS];
byte count[KEYS], tag_rec[KEYS], tag_seq[KEYS];            /* W */
bool bits[KEYS * SLOTS];
byte segment = UNLOCKED;                                   /* Its mutex. */

byte held[SLOTS], kind[SLOTS], seq[SLOTS], mark[SLOTS];
byte rec_key[SLOTS], rec_gen[SLOTS];                       /* One word. */
byte mutex[SLOTS], gen[SLOTS] = 1, dying[SLOTS];

#define BIT(k, r) bits[(k) * SLOTS + (r)]

/* ---- what really happened, which no process reads ------------------------------- */

bool dead[7];
byte holds[3], hold_key[3], hold_name[3];                  /* By owner. */
bool bound[3];           /* Its key was verified, and not let go of since. */
byte busy;               /* Processes that have not ended. */

#define OWNER(r, g) ((r) > 0 || (g) == 1 -> (r) : HEIR)

#define APPLIED(r)                                                                 \
    ((tag_rec[rec_key[r]] == r && tag_seq[rec_key[r]] == seq[r]) || mark[r] >= seq[r])
#define EFFECT(r, k)                                                               \
    (rec_key[r] != k -> 0 :                                                        \
    (kind[r] == NONE || !APPLIED(r) -> held[r] :                                   \
    (kind[r] == ACQ -> held[r] + 1 :                                               \
    (kind[r] == REL -> held[r] - 1 : 0))))
#define HOLDS(p, k) (hold_key[p] == k -> holds[p] : 0)

/* A permit is on the name that it was asked for, and the key is that name's. */
#define RIGHTLY(p)                                                                 \
    (holds[p] == 0 || (name[hold_key[p]] == hold_name[p] && state[hold_key[p]] != FREE))

inline check_key(k)
{
    assert(count[k] == EFFECT(0, k) + EFFECT(1, k));
    assert(count[k] == HOLDS(FIRST, k) + HOLDS(OTHER, k) + HOLDS(HEIR, k));
    assert(count[k] <= CAP);
    assert(!BIT(k, 0) || rec_key[0] == k);
    assert(!BIT(k, 1) || rec_key[1] == k)
}

inline check()
{
    check_key(0);
#if KEYS > 1
    check_key(1);
#endif
    assert(RIGHTLY(FIRST) && RIGHTLY(OTHER) && RIGHTLY(HEIR))
}

/* ---- steps that binders and reapers share --------------------------------------- */

#define ASK      0
#define FIND     1
#define NAME     2
#define EARLY    3
#define REBIND   4
#define BIND     5
#define SET      6
#define VERIFY   7
#define CLEAR    8
#define BEGIN    9
#define ANNOUNCE 10
#define READ     11
#define WITNESS  12
#define RAISE    13
#define SWAP     14
#define COMPLETE 15
#define HOLD     16
#define LET_GO   17
#define LOCK     18
#define REPAIR   19
#define PICK     20
#define CLOSE    21
#define BITS     22
#define COUNT    23
#define OPEN     24
#define GIVE     25
#define RENAME   26
#define OFFER    27
#define SCAN     28
#define LOOK     29
#define VALIDATE 30
#define SETTLE   31
#define KEY      32
#define MARK     33
#define RECHECK  34
#define RETIRE   35
#define UNLOCK   36
#define END      37

#define UNSWAPPED (count[k] == c && tag_rec[k] == o && tag_seq[k] == t)
#define FOREIGN   (o != NOBODY && o != r)

inline raise_mark(then)
{
    if
    :: mark[o] == m -> mark[o] = t; at = then; check()
    :: else -> at = WITNESS
    fi;
    m = 0
}

inline read_mark(then)
{
    if
    :: mark[o] >= t -> at = then
    :: else -> m = mark[o]; at = RAISE
    fi
}

/* ---- binders -------------------------------------------------------------------- */

inline ask(wanted)
{
    want = wanted; rounds--; at = FIND
}

inline forget()
{
    want = 0; k = 0; g = 0; acquires = false; at = ASK
}

inline find_next()
{
    k++;
    if :: k == KEYS -> forget() :: else -> at = FIND fi
}

/* What the look-up found. A record is bound again only if it named something else. */
inline found()
{
#ifdef BITFIRST
    at = EARLY
#else
    at = (rec_key[r] == k && rec_gen[r] == g -> SET : REBIND)
#endif
}

inline decide()
{
    at = (acquires && c >= CAP -> COMPLETE : (FOREIGN -> WITNESS : SWAP))
}

proctype Binder(byte me, r, rounds, choice)
{
    byte at = ASK, want, k, g, x, c, o, t, m;
    bool acquires, done;

    {
        if
        :: me != HEIR
        :: me == HEIR ->
           if
           :: d_step {
                  mutex[r] == UNLOCKED ->
                  mutex[r] = me;
                  assert(held[r] == 0 && kind[r] == NONE && !BIT(0, r))
              }
           :: busy == 1 -> rounds = 0
           fi
        fi;
        do
        :: d_step { at == ASK && rounds > 0 && choice != ANY -> ask(choice) }
        :: d_step { at == ASK && rounds > 0 && choice == ANY -> ask(0) }
        :: d_step { at == ASK && rounds > 0 && choice == ANY -> ask(1) }
#if KEYS > 1
        :: d_step { at == ASK && rounds > 0 && choice == ANY -> ask(2) }
#endif
        :: at == ASK && rounds == 0 -> break

        /* The look-up: the generation before the name. The name of a generation
         * never changes, so a name that came later comes with a generation that the
         * verification refuses. */
#ifdef NAMEFIRST
        :: d_step { at == FIND -> x = name[k]; at = NAME }
        :: d_step {
               at == NAME ->
               g = key_gen[k];
               if :: state[k] != FREE && x == want -> found() :: else -> find_next() fi;
               x = 0
           }
#else
        :: d_step {
               at == FIND ->
               g = key_gen[k];
               if :: state[k] != FREE -> at = NAME :: else -> find_next() fi
           }
        :: d_step {
               at == NAME ->
               if :: name[k] == want -> found() :: else -> find_next() fi
           }
#endif

        /* The record names the key before the bit is set: else a reaper would not
         * know which bit to clear. */
#ifdef BITFIRST
        :: d_step {
               at == EARLY ->
               BIT(k, r) = true;
               at = (rec_key[r] == k && rec_gen[r] == g -> VERIFY : REBIND)
           }
#endif
#ifdef SEQLATE
        :: d_step { at == REBIND -> rec_key[r] = k; rec_gen[r] = g; at = BIND; check() }
        :: d_step { at == BIND -> seq[r]++; at = SET }
#else
        :: d_step { at == REBIND -> seq[r]++; at = BIND }
        :: d_step { at == BIND -> rec_key[r] = k; rec_gen[r] = g; at = SET; check() }
#endif
        :: d_step { at == SET -> BIT(k, r) = true; at = VERIFY; check() }
        :: d_step {
               at == VERIFY ->
               if
#ifdef NOVERIFY
               :: true -> bound[me] = true; at = BEGIN
#else
               :: state[k] == READY && key_gen[k] == g -> bound[me] = true; at = BEGIN
#ifdef REOPEN
               :: state[k] == CLOSING && key_gen[k] == g ->
                  state[k] = READY; bound[me] = true; at = BEGIN
#endif
               :: else -> at = CLEAR
#endif
               fi
           }
        :: d_step { at == CLEAR -> BIT(k, r) = false; k = 0; g = 0; at = FIND }

        /* Acquire, and release or hold on. */
        :: d_step {
               at == BEGIN || at == HOLD ->
               acquires = !acquires; seq[r]++; at = ANNOUNCE
           }
        :: d_step {
               at == ANNOUNCE ->
               kind[r] = (acquires -> ACQ : REL); at = READ; check()
           }
        :: d_step {
               at == READ ->
               c = count[k]; o = tag_rec[k]; t = tag_seq[k]; decide()
           }
        :: d_step { at == WITNESS -> read_mark(SWAP) }
        :: d_step { at == RAISE -> raise_mark(SWAP) }
        :: d_step {
               at == SWAP ->
               if
               :: UNSWAPPED ->
                  if
                  :: acquires ->
                     count[k] = c + 1; holds[me] = 1;
                     hold_key[me] = k; hold_name[me] = want
                  :: else ->
                     assert(holds[me] == 1 && hold_key[me] == k);
                     count[k] = c - 1; holds[me] = 0;
                     hold_key[me] = 0; hold_name[me] = 0
                  fi;
                  tag_rec[k] = r; tag_seq[k] = seq[r];
                  done = true; at = COMPLETE; check()
               :: else -> c = count[k]; o = tag_rec[k]; t = tag_seq[k]; decide()
               fi
           }
        :: d_step {
               at == COMPLETE ->
               if :: done -> held[r] = (acquires -> 1 : 0) :: else fi;
               kind[r] = NONE; check();
               assert(held[r] == holds[me]);
               at = (done && acquires -> HOLD : LET_GO);
               done = false; c = 0; o = 0; t = 0
           }
        :: at == HOLD && rounds == 0 -> break
        :: d_step { at == LET_GO -> BIT(k, r) = false; bound[me] = false; forget() }
        od
    } unless { dead[me] };
    atomic {
        at = 0; want = 0; k = 0; g = 0; x = 0; c = 0; o = 0; t = 0; m = 0;
        rounds = 0; choice = 0; acquires = false; done = false; busy--
    }
}

/* ---- reclaimers ----------------------------------------------------------------- */

/* The one name that no key has. */
#if KEYS > 1
#define UNUSED (3 - name[0] - name[1])
#else
#define UNUSED (1 - name[0])
#endif

/* A key found free has lost its last reclaimer before it got its new name. */
inline pick(picked)
{
    k = picked; g = key_gen[k];
    at = (state[k] == FREE -> RENAME : CLOSE)
}

proctype Reclaimer(byte me)
{
    byte at = LOCK, k, g, r;

    {
        do
        :: d_step { at == LOCK && segment == UNLOCKED -> segment = me; at = PICK }
        :: d_step {
               at == LOCK && segment == RECLAIMER1 && me == RECLAIMER2 ->
               dead[segment] = true; segment = me; at = REPAIR
           }
        :: d_step {
               at == REPAIR ->
               if :: state[k] == CLOSING -> state[k] = READY :: else fi;
               k++; check();
               if :: k == KEYS -> k = 0; at = PICK :: else fi
           }
        :: d_step { at == PICK -> pick(0) }
#if KEYS > 1
        :: d_step { at == PICK -> pick(1) }
#endif

        /* Closing is seen before the bits are read. */
#ifdef BITSFIRST
        :: d_step {
               at == CLOSE ->
               at = (BIT(k, r) -> UNLOCK : (r == 0 -> CLOSE : COUNT)); r = 1
           }
        :: d_step {
               at == COUNT ->
               state[k] = CLOSING;
               at = (count[k] > 0 -> OPEN : GIVE)
           }
#else
        :: d_step { at == CLOSE -> state[k] = CLOSING; at = BITS }
        :: d_step {
               at == BITS ->
               at = (BIT(k, r) -> OPEN : (r == 0 -> BITS : COUNT)); r = 1
           }
        :: d_step { at == COUNT -> at = (count[k] > 0 -> OPEN : GIVE) }
#endif
        :: d_step {
               at == OPEN ->
               if :: state[k] == CLOSING -> state[k] = READY :: else fi;
               at = UNLOCK; check()
           }
        :: d_step {
               at == GIVE ->
               if
#if defined(REOPEN) && !defined(BLINDFREE)
               :: state[k] != CLOSING -> at = UNLOCK /* A binder reopened it. */
#endif
               :: else -> state[k] = FREE; key_gen[k] = g + 1; at = RENAME; check()
               fi
           }
        :: d_step { at == RENAME -> name[k] = UNUSED; at = OFFER; check() }
        :: d_step { at == OFFER -> state[k] = READY; at = UNLOCK; check() }
        :: d_step { at == UNLOCK -> segment = UNLOCKED; at = END }
        :: at == END -> break
        od
    } unless { dead[me] };
    atomic { at = 0; k = 0; g = 0; r = 0; busy-- }
}

/* ---- reapers, as in counter.pml ------------------------------------------------- */

#define MORTAL (mutex[r] == FIRST || (mutex[r] == REAPER1 && me == REAPER2))

#define UNCHANGED (held[r] == h && kind[r] == p && seq[r] == s)

inline judge()
{
    if
    :: h == 0 && p == NONE ->
       assert(gen[r] != g || holds[OWNER(r, g)] == 0);
#ifdef HELPERCLEARS
       at = KEY
#else
       at = (exclusive -> KEY : END)
#endif
    :: else -> at = (p == NONE -> SETTLE : KEY)
    fi
}

inline look_again()
{
    h = 0; p = 0; s = 0; k = 0; c = 0; o = 0; t = 0; a = false; at = LOOK
}

/* Scan, publication of the death and trylock are one step here: counter.pml takes
 * them apart. */
proctype Reaper(byte me, r)
{
    byte at = SCAN, g, h, p, s, k, c, o, t, m;
    bool a, exclusive;

    {
        do
        :: d_step {
               at == SCAN && mutex[r] != UNLOCKED && (dead[mutex[r]] || MORTAL) ->
               dead[mutex[r]] = true; mutex[r] = me; exclusive = true;
               g = gen[r]; dying[r] = g; at = LOOK
           }
        :: d_step {
               at == SCAN && mutex[r] != UNLOCKED && !dead[mutex[r]] ->
               g = gen[r]; at = (dying[r] == g -> LOOK : END)
           }
        :: d_step { at == SCAN && mutex[r] == UNLOCKED -> at = END }

        :: d_step {
               at == LOOK ->
               h = held[r]; p = kind[r]; s = seq[r];
#ifdef NOGEN
               judge()
#else
               if :: exclusive -> judge() :: else -> at = VALIDATE fi
#endif
           }
        :: d_step {
               at == VALIDATE ->
               if :: gen[r] != g -> at = END :: else -> judge() fi
           }
        :: d_step {
               at == SETTLE && p == NONE ->
               if :: UNCHANGED -> kind[r] = DRAIN; seq[r] = s + 1; check() :: else fi;
               look_again()
           }

        /* The key after the state: what is then found on W is believed only if the
         * state is still the same. */
        :: d_step {
               at == KEY ->
               k = rec_key[r];
               at = (h == 0 && p == NONE -> (k == NO_KEY -> RETIRE : CLEAR) : SETTLE)
           }
        :: d_step {
               at == SETTLE && p != NONE ->
               c = count[k]; o = tag_rec[k]; t = tag_seq[k]; a = (o == r && t == s);
               at = (a -> COMPLETE : MARK)
           }
        :: d_step {
               at == MARK ->
               a = (mark[r] >= s);
               at = (a || p != DRAIN -> COMPLETE : (FOREIGN -> WITNESS : RECHECK))
           }
        :: d_step {
               at == COMPLETE ->
               if
               :: UNCHANGED ->
                  if
                  :: a && p == ACQ -> held[r] = 1
                  :: a && p != ACQ -> held[r] = 0
                  :: else
                  fi;
                  kind[r] = NONE; check();
                  assert(held[r] == holds[OWNER(r, g)])
               :: else
               fi;
               look_again()
           }
        :: d_step { at == WITNESS -> read_mark(RECHECK) }
        :: d_step { at == RAISE -> raise_mark(RECHECK) }
        :: d_step {
               at == RECHECK ->
#ifdef NORECHECK
               at = SWAP
#else
               if :: UNCHANGED -> at = SWAP :: else -> look_again() fi
#endif
           }
        :: d_step {
               at == SWAP ->
               if
               :: UNSWAPPED ->
                  assert(c >= h);
                  assert(holds[OWNER(r, g)] == h && hold_key[OWNER(r, g)] == k);
                  count[k] = c - h; holds[OWNER(r, g)] = 0;
                  hold_key[OWNER(r, g)] = 0; hold_name[OWNER(r, g)] = 0;
                  tag_rec[k] = r; tag_seq[k] = s; check()
               :: else
               fi;
               look_again()
           }

        /* The bit last, and only by the exclusive reaper: a late helper would clear
         * the bit of the slot's next owner. */
        :: d_step {
               at == CLEAR ->
               BIT(k, r) = false; assert(!bound[HEIR]); at = RETIRE
           }
        :: d_step {
               at == RETIRE ->
               if
               :: exclusive ->
                  gen[r] = g + 1; at = UNLOCK;
                  assert(!BIT(0, r));
#if KEYS > 1
                  assert(!BIT(1, r))
#endif
               :: else -> at = END
               fi
           }
        :: d_step { at == UNLOCK -> mutex[r] = UNLOCKED; at = END }
        :: at == END -> break
        od
    } unless { dead[me] };
    atomic {
        at = 0; g = 0; h = 0; p = 0; s = 0; k = 0; c = 0; o = 0; t = 0; m = 0;
        a = false; exclusive = false; busy--
    }
}

/* ---- configurations ------------------------------------------------------------- */

init
{
    atomic {
        tag_rec[0] = NOBODY; name[0] = 0;
#if KEYS > 1
        tag_rec[1] = NOBODY; name[1] = 1;
#endif
        rec_key[0] = NO_KEY; rec_key[1] = NO_KEY;
        mutex[0] = FIRST; mutex[1] = OTHER;
        busy = 3;
        run Binder(FIRST, 0, ROUNDS, FIRST_WANTS);
        run Reaper(REAPER1, 0);
#ifdef NAMES            /* Two want one key for whatever name, one is killed. */
        busy++;
        run Binder(OTHER, 1, 1, OTHER_WANTS); run Reclaimer(RECLAIMER1)
#endif
#ifdef CLOSERS          /* One reclaimer is killed, another succeeds it. */
        busy++;
        run Reclaimer(RECLAIMER1); run Reclaimer(RECLAIMER2)
#endif
#ifdef ROAM             /* A record goes from key to key, the keys from name to name. */
        run Reclaimer(RECLAIMER1)
#endif
#ifdef HEIRS            /* The record goes to another owner, while a reaper sleeps. */
        busy++;
        run Reaper(REAPER2, 0); run Binder(HEIR, 0, 1, OTHER_WANTS)
#endif
#ifdef HEIRS_CLOSER     /* The same, and the key may go to another name. */
        busy = busy + 2;
        run Reaper(REAPER2, 0); run Binder(HEIR, 0, 1, OTHER_WANTS);
        run Reclaimer(RECLAIMER1)
#endif
    };
    busy == 0;
    check();
    assert(held[0] == holds[FIRST] + holds[HEIR] && kind[0] == NONE);
    assert(held[1] == holds[OTHER] && kind[1] == NONE);
    assert(!dead[FIRST] || holds[FIRST] == 0)
}
