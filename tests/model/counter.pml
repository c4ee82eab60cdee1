/* counter.pml - the detectable counter: exact, whichever process is killed and whenever.
 *
 * One key. Its word W = (count, tag) changes only by a swap that installs a new
 * tag (record, seq), so the tag tells which operation was the last to succeed.
 * Before anybody overwrites the tag of another record it raises that record's mark
 * to the tag's seq. So for a dead owner it can be decided whether the operation it
 * had announced took place: its tag is in W, or the mark has reached it.
 *
 * Slot r owns record r. Its robust mutex is held for life by the owner, after the
 * owner's death by one reaper, the slot's exclusive one; others may help it. Nobody
 * can tell a killed process from a slow one but by the mutex, so a death needs no
 * separate step: a process that sees "owner died" in the mutex kills its holder in that
 * same step. A holder killed earlier is one that no longer moved. A process stopped
 * forever is one that the others outlive: hence the asserts at the end of each
 * reaper, and not only at the end of the run.
 *
 * A process is a loop of steps. Each is one access to shared memory, the smallest
 * thing that can be interrupted or killed, and names the step to go on with.
 *
 * Configurations: -DREAP -DTAKE -DPAIR -DCROWD -DTRIO, see init.
 * Mutants, each of which must be found:
 *   NOHELP       a tag is overwritten without raising the mark
 *   MARKFIRST    the reaper reads the mark and then W
 *   NORECHECK    the drain does not read the record again after reading W
 *   NOGEN        a helper does not validate the slot's generation
 *   GENFIRST     a helper validates the generation before it reads the record
 *   TORNTAG      the torn guess is believed for the tag of another record, too
 *   NODYING      who finds the mutex busy does not help
 *   NOSIGNATURE  who finds it busy helps only after the death was published
 *   NORAISE      a new owner signs without raising the generation
 *   SIGNLATE     a new owner raises the generation and then signs
 */

#ifndef OPS
#define OPS 2           /* Operations of an owner; which ones is left open. */
#endif
#ifndef OTHER_OPS
#define OTHER_OPS OPS
#endif
#define CAP 3

#define RECORDS 3
#define NOBODY  RECORDS /* In W before the first operation. */

/* What a record may have pending. */
#define NONE  0
#define ACQ   1
#define REL   2
#define DRAIN 3

/* Processes. The first three own the slots of their numbers; the taker has slot 0
 * after the first. */
#define FIRST    0
#define OTHER    1
#define THIRD    2
#define TAKER    3
#define REAPER1  4
#define REAPER2  5
#define UNLOCKED 6

/* ---- shared memory -------------------------------------------------------------- */

byte count, tag_rec = NOBODY, tag_seq;                     /* W */
byte held[RECORDS], kind[RECORDS], units[RECORDS];         /* One word, and with */
byte seq[RECORDS];                                         /* this one a pair. */
byte mark[RECORDS];
byte mutex[RECORDS];
byte signature[RECORDS]; /* Who owns the slot, or did. */
byte gen[RECORDS] = 1;   /* Raised when the slot is freed, and when it is signed. */
byte dying[RECORDS];     /* The generation whose owner is dead, while it is reaped. */

/* ---- what really happened, which no process reads ------------------------------- */

bool dead[6];
byte holds[4];           /* By owner, changed by the swap that changes the count. */
byte busy;               /* Processes that have not ended. */

#define OWNER(r, g) ((r) > 0 || (g) == 1 -> (r) : TAKER)

#define APPLIED(r) ((tag_rec == r && tag_seq == seq[r]) || mark[r] >= seq[r])
#define EFFECT(r)                                                                  \
    (kind[r] == NONE || !APPLIED(r) -> held[r] :                                   \
    (kind[r] == ACQ -> held[r] + units[r] :                                        \
    (kind[r] == REL -> held[r] - units[r] : 0)))

/* True between any two steps: the invariant of the proof. */
inline check()
{
    assert(count == EFFECT(0) + EFFECT(1) + EFFECT(2));
    assert(count == holds[FIRST] + holds[OTHER] + holds[THIRD] + holds[TAKER]);
    assert(count <= CAP)
}

/* ---- steps that owners and reapers share ---------------------------------------- */

#define START     0
#define ANNOUNCE  1
#define GUESS     2
#define GUESS_SEQ 3
#define GUESS_REC 4
#define READ      5
#define WITNESS   6
#define RAISE     7
#define SWAP      8
#define COMPLETE  9
#define LOCK      10
#define SIGN      11
#define RENEW     12
#define TRYLOCK   13
#define PUBLISH   14
#define NOTICE    15
#define ASK       16
#define WORD      17
#define COMPARE   18
#define LOOK      19
#define VALIDATE  20
#define SETTLE    21
#define MARK      22
#define RECHECK   23
#define FREE      24
#define CALM      25
#define UNLOCK    26
#define END       27

#define UNSWAPPED (count == c && tag_rec == o && tag_seq == t)

#ifdef NOHELP
#define FOREIGN false
#else
#define FOREIGN (o != NOBODY && o != r)
#endif

/* The mark is raised whatever the state of its record: to look at that would cost a
 * cache miss, and a mark that was not needed is still true. */
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

/* ---- owners --------------------------------------------------------------------- */

#ifdef TORNTAG
#define OWN true
#else
#define OWN (o == r)
#endif
#define FULL (acquires && (c >= cap || n > cap - c))

inline begin(is_acquire, wanted)
{
    acquires = is_acquire; n = wanted; ops--;
    seq[r]++; at = ANNOUNCE
}

inline decide()
{
    at = (FULL -> COMPLETE : (FOREIGN -> WITNESS : SWAP))
}

proctype Owner(byte me, r, cap, ops)
{
    byte at, n, c, o, t, m;
    bool acquires, done;

    {
        at = (me == TAKER -> LOCK : START);
        do
        /* The slot, for one that comes later: it is signed, and only then are there
         * permits under the new generation. */
        :: d_step {
               at == LOCK && mutex[r] == UNLOCKED ->
               mutex[r] = me; at = SIGN;
               assert(held[r] == 0 && kind[r] == NONE)
           }
        :: at == LOCK && busy == 1 -> break /* It was never freed. */
#ifdef SIGNLATE
        :: d_step { at == SIGN -> gen[r]++; at = RENEW }
        :: d_step { at == RENEW -> signature[r] = me; at = START }
#else
        :: d_step { at == SIGN -> signature[r] = me; at = RENEW }
#ifdef NORAISE
        :: d_step { at == RENEW -> at = START }
#else
        :: d_step { at == RENEW -> gen[r]++; at = START }
#endif
#endif

        :: d_step { at == START && ops > 0 -> begin(true, 1) }
        :: d_step { at == START && ops > 0 -> begin(true, 2) }
        :: d_step { at == START && ops > 0 && held[r] >= 1 -> begin(false, 1) }
        :: d_step { at == START && ops > 0 && held[r] >= 2 -> begin(false, 2) }
        :: at == START && ops == 0 -> break

        :: d_step {
               at == ANNOUNCE ->
               kind[r] = (acquires -> ACQ : REL); units[r] = n;
               at = GUESS; check()
           }

        /* The first guess is two plain loads, in whichever order the machine likes. If
         * one shows our own record no witness is due, whatever the other shows, and
         * the swap validates both. Else a torn tag might be witnessed, so W is read
         * again in one piece. */
        :: d_step {
               at == GUESS ->
               c = count; o = tag_rec; at = (OWN -> GUESS_SEQ : READ)
           }
        :: d_step { at == GUESS_SEQ -> t = tag_seq; decide() }
        :: d_step { at == GUESS -> t = tag_seq; at = GUESS_REC }
        :: d_step {
               at == GUESS_REC ->
               c = count; o = tag_rec;
               if :: OWN -> decide() :: else -> t = 0; at = READ fi
           }
        :: d_step { at == READ -> c = count; o = tag_rec; t = tag_seq; decide() }

        :: d_step { at == WITNESS -> read_mark(SWAP) }
        :: d_step { at == RAISE -> raise_mark(SWAP) }
        :: d_step {
               at == SWAP ->
               if
               :: UNSWAPPED ->
                  if
                  :: acquires ->
                     count = c + n; holds[me] = holds[me] + n;
                     assert(count <= cap)
                  :: else ->
                     assert(c >= n && holds[me] >= n);
                     count = c - n; holds[me] = holds[me] - n
                  fi;
                  tag_rec = r; tag_seq = seq[r];
                  done = true; at = COMPLETE; check()
               :: else -> c = count; o = tag_rec; t = tag_seq; decide()
               fi
           }
        :: d_step {
               at == COMPLETE ->
               if
               :: done && acquires  -> held[r] = held[r] + n
               :: done && !acquires -> held[r] = held[r] - n
               :: else
               fi;
               kind[r] = NONE; units[r] = 0;
               n = 0; c = 0; o = 0; t = 0; acquires = false; done = false;
               at = START; check();
               assert(held[r] == holds[me])
           }
        od
    } unless { dead[me] };
    atomic {
        at = 0; n = 0; c = 0; o = 0; t = 0; m = 0; ops = 0;
        acquires = false; done = false; busy--
    }
}

/* ---- reapers -------------------------------------------------------------------- */

/* Who may be killed: owners but the other ones, which outlive all, and the first
 * reaper. The word of the mutex then says so, until somebody takes it. */
#ifdef TAKERDIES
#define TAKER_MORTAL (mutex[r] == TAKER)
#else
#define TAKER_MORTAL false
#endif
#define MORTAL                                                                     \
    (mutex[r] == FIRST || TAKER_MORTAL || (mutex[r] == REAPER1 && me == REAPER2))
#define DEAD       (mutex[r] != UNLOCKED && dead[mutex[r]])
#define OWNER_DIED (mutex[r] != UNLOCKED && (dead[mutex[r]] || MORTAL))

#define UNCHANGED (held[r] == h && kind[r] == k && units[r] == u && seq[r] == s)

/* A record at rest is the last word about its dead owner. */
inline judge()
{
    if
    :: h == 0 && k == NONE ->
       assert(gen[r] != g || holds[OWNER(r, g)] == 0);
       at = (exclusive -> FREE : END)
    :: else -> at = SETTLE
    fi
}

inline look_again()
{
    h = 0; k = 0; u = 0; s = 0; c = 0; o = 0; t = 0; a = false;
#ifdef GENFIRST
    at = (exclusive -> LOOK : VALIDATE)
#else
    at = LOOK
#endif
}

/* A process that returns because a reaper has the mutex trusts it with permits that are
 * lost while it is stopped. Not so if it was killed, which the next one sees. */
inline trust()
{
    trusted = (dead[OWNER(r, gen[r])] -> gen[r] : 0)
}

inline leave()
{
    assert(trusted == 0 || trusted != gen[r] || DEAD || holds[OWNER(r, trusted)] == 0);
    trusted = 0; g = 0; at = END
}

proctype Reaper(byte me, r)
{
    byte at, g, trusted, h, k, u, s, c, o, t, m;
    bool a, exclusive;

    {
        do
        /* The slot. Its owner is dead if the mutex says so; or if a reaper that has
         * the mutex says so; or if it is locked by another than the one that signed:
         * a reaper that has not come so far as to say so, and may be stopped there. A
         * new owner that has not yet signed looks the same. That is harmless, since
         * it signs and raises the generation before it holds anything, in this order;
         * hence the generation is read before the rest. */
        :: d_step { at == START && OWNER_DIED -> dead[mutex[r]] = true; at = TRYLOCK }
        :: d_step { at == START && !DEAD -> trust(); at = NOTICE }
        :: d_step {
               at == TRYLOCK && OWNER_DIED ->
               dead[mutex[r]] = true; mutex[r] = me; exclusive = true;
               g = gen[r]; at = PUBLISH
           }
        :: d_step { at == TRYLOCK && !DEAD -> trust(); at = NOTICE }
        :: d_step { at == PUBLISH -> dying[r] = g; look_again() }

        :: d_step { at == NOTICE -> g = gen[r]; at = ASK }
        :: d_step {
               at == ASK ->
#ifdef NODYING
               leave()
#else
               if
               :: dying[r] != 0 -> g = dying[r]; trusted = 0; look_again()
               :: else -> at = WORD
               fi
#endif
           }
        :: d_step {
               at == WORD ->
#ifdef NOSIGNATURE
               leave()
#else
               if
               :: mutex[r] == UNLOCKED || DEAD -> leave()
               :: else -> u = mutex[r]; at = COMPARE
               fi
#endif
           }
        :: d_step {
               at == COMPARE ->
               if
               :: signature[r] != u -> trusted = 0; look_again()
               :: else -> u = 0; leave()
               fi
           }

        /* The record. A helper validates the generation after the read: what was
         * read then belongs to the dead owner or to nobody, and no later state of
         * the record is equal to it. */
        :: d_step {
               at == LOOK ->
               h = held[r]; k = kind[r]; u = units[r]; s = seq[r];
#if defined(NOGEN) || defined(GENFIRST)
               judge()
#else
               if :: exclusive -> judge() :: else -> at = VALIDATE fi
#endif
           }
        :: d_step {
               at == VALIDATE ->
               if
               :: gen[r] != g -> at = END
               :: else ->
#ifdef GENFIRST
                  at = LOOK
#else
                  judge()
#endif
               fi
           }
        :: d_step {
               at == SETTLE && k == NONE ->
               if :: UNCHANGED -> kind[r] = DRAIN; seq[r] = s + 1; check() :: else fi;
               look_again()
           }

        /* Was it applied? W before the mark: if the tag was gone when W was read
         * then the mark was there. */
#ifdef MARKFIRST
        :: d_step { at == SETTLE && k != NONE -> a = (mark[r] >= s); at = MARK }
        :: d_step {
               at == MARK ->
               c = count; o = tag_rec; t = tag_seq; a = a || (o == r && t == s);
               at = (a || k != DRAIN -> COMPLETE : (FOREIGN -> WITNESS : RECHECK))
           }
#else
        :: d_step {
               at == SETTLE && k != NONE ->
               c = count; o = tag_rec; t = tag_seq; a = (o == r && t == s);
               at = (a -> COMPLETE : MARK)
           }
        :: d_step {
               at == MARK ->
               a = (mark[r] >= s);
               at = (a || k != DRAIN -> COMPLETE : (FOREIGN -> WITNESS : RECHECK))
           }
#endif
        :: d_step {
               at == COMPLETE ->
               if
               :: UNCHANGED ->
                  if
                  :: a && k == ACQ   -> held[r] = h + u
                  :: a && k == REL   -> held[r] = h - u
                  :: a && k == DRAIN -> held[r] = 0
                  :: else
                  fi;
                  kind[r] = NONE; units[r] = 0; check();
                  assert(held[r] == holds[OWNER(r, g)])
               :: else
               fi;
               look_again()
           }

        /* The drain, of all the units at once. Still pending after W was read, so
         * by then it had not been applied, completed, and painted over without a
         * witness by the record's next owner. */
        :: d_step {
               at == WITNESS ->
#ifdef NORECHECK
               read_mark(SWAP)
#else
               read_mark(RECHECK)
#endif
           }
        :: d_step {
               at == RAISE ->
#ifdef NORECHECK
               raise_mark(SWAP)
#else
               raise_mark(RECHECK)
#endif
           }
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
                  assert(c >= h && holds[OWNER(r, g)] == h);
                  count = c - h; holds[OWNER(r, g)] = 0;
                  tag_rec = r; tag_seq = s; check()
               :: else
               fi;
               look_again()
           }

        :: d_step { at == FREE -> gen[r] = g + 1; at = CALM }
        :: d_step { at == CALM -> dying[r] = 0; at = UNLOCK }
        :: d_step { at == UNLOCK -> mutex[r] = UNLOCKED; at = END }
        :: at == END -> break
        od
    } unless { dead[me] };
    atomic {
        at = 0; g = 0; trusted = 0; h = 0; k = 0; u = 0; s = 0;
        c = 0; o = 0; t = 0; m = 0; a = false; exclusive = false; busy--
    }
}

/* ---- configurations ------------------------------------------------------------- */

init
{
    atomic {
        mutex[0] = FIRST; mutex[1] = OTHER; mutex[2] = THIRD;
        signature[0] = FIRST; signature[1] = OTHER; signature[2] = THIRD;
        busy = 3;
        run Owner(FIRST, 0, CAP, OPS);
        run Reaper(REAPER1, 0);
#ifdef REAP             /* One owner, killed anywhere, and two reapers. */
        run Reaper(REAPER2, 0)
#endif
#ifdef TAKE             /* The slot is taken over while a reaper still sleeps. */
        busy++;
        run Reaper(REAPER2, 0); run Owner(TAKER, 0, CAP, OTHER_OPS)
#endif
#ifdef PAIR             /* Another owner, with less capacity, overwrites the tags. */
        run Owner(OTHER, 1, CAP - 1, OTHER_OPS)
#endif
#ifdef CROWD            /* The same with two reapers. */
        busy++;
        run Reaper(REAPER2, 0); run Owner(OTHER, 1, CAP - 1, OTHER_OPS)
#endif
#ifdef TRIO             /* Two others: only now can a torn tag be a lie. The key is
                         * not new: the first has used it, the third another one. */
        tag_rec = 0; tag_seq = 1; seq[0] = 1; seq[2] = 4;
        busy++;
        run Owner(OTHER, 1, CAP - 1, OTHER_OPS); run Owner(THIRD, 2, CAP, OTHER_OPS)
#endif
    };
    busy == 0;
    check();
    assert(held[0] == holds[FIRST] + holds[TAKER] && kind[0] == NONE);
    assert(held[1] == holds[OTHER] && kind[1] == NONE);
    assert(held[2] == holds[THIRD] && kind[2] == NONE);
    assert(!dead[FIRST] || holds[FIRST] == 0)
}
