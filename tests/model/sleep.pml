/* sleep.pml - no process sleeps while a unit is free.
 *
 * Who finds a key full sleeps on its wake word: a sequence, and a bit that says that
 * somebody may be asleep. The bit is a hint and not a count, for a count would drift
 * with every kill.
 *
 *     waiter     full?  set the bit;  still full?  sleep while the word is unchanged
 *     releaser   swap the count;  bit set?  next sequence without it;  wake all
 *
 * Waiter and releaser each write before they read what the other writes, as in
 * reclaim.pml. The sequence is for a waiter that was slow to fall asleep: the bit it
 * has set may be gone, and then set again by somebody else.
 *
 * Waiters ask for different units and declare different capacities, which is why all are
 * woken: the first in the queue may not be the one that fits.
 *
 * A kill between swap and wake loses the wake, and a killed holder's units are released
 * only when somebody reaps them; so every sleep ends after a while, and the sleeper
 * then reaps and tries again. That is a round here, and what is claimed is this:
 *
 *   without kills     there needs to be no round at all
 *   with kills        one round after the last of them is enough
 *
 * for nobody to sleep who would fit. It is looked at whenever nothing moves. Since a
 * process may hold what it has forever, that is at any moment of a longer run.
 *
 * The counter is one atomic step: counter.pml is about what is inside.
 *
 * Configurations: how many HOLDERS, WAITERS, PASSERS (who try once), KILLS, and EARLY
 * ends of a sleep; NOTIMEOUT for no round, which without kills is no mutant.
 * Mutants, each of which must be found:
 *   NOFLAGRECHECK  the waiter does not try again after setting the bit
 *   NOSEQ          the wake word is the bit alone
 *   WAKEONE        one sleeper is woken and not all
 *   READFIRST      the releaser looks at the wake word before it swaps the count
 *   NOTIMEOUT      a sleep has no end of its own, and somebody is killed
 *   COUNTHALF      sleepers wait on the count, next to a flag in a word of its own. A
 *                  releaser that was slow after its swap clears the flag of a waiter
 *                  that came since; the waiter finds the count as it was, sleeps, and
 *                  the next release sees no flag. (Nor would it help if the count had
 *                  moved and returned.)
 */

#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef HOLDERS
#define HOLDERS 1
#endif
#ifndef PASSERS
#define PASSERS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef EARLY
#define EARLY 0         /* Sleeps that end while others still move. */
#endif
#define PARTIES (WAITERS + HOLDERS + PASSERS)
#ifndef CAPACITY_MAX
#define CAPACITY_MAX 3
#endif

/* ---- shared memory -------------------------------------------------------------- */

byte count;
byte wake_seq;           /* The wake word is the sequence */
bool wake_bit;           /* and the bit. */

/* ---- the world ------------------------------------------------------------------ */

bool asleep[PARTIES], timed_out[PARTIES];
byte units[PARTIES];     /* Asked for by a waiter, */
byte capacity[PARTIES];      /* which declares this much capacity. */
byte holds[PARTIES];
byte orphans;            /* Units of the killed, not yet reaped. */
byte moving;             /* Parties that have neither ended nor sleep. */
byte kills = KILLS, early = EARLY;
bool quiet;              /* Nobody was killed since the last round began. */

#define FITS(i) (count < capacity[i] && units[i] <= capacity[i] - count)

/* ---- parties -------------------------------------------------------------------- */

#define TRY     0
#define WORD    1
#define SET     2
#define AGAIN   3
#define SLEEP   4
#define ASLEEP  5
#define REAP    6
#define HOLD    7
#define RELEASE 8
#define NOTE    9
#define NEXT    10
#define WAKE    11
#define END     12

inline take(otherwise)
{
    if
    :: FITS(me) ->
       count = count + units[me]; holds[me] = units[me];
       v = 0; at = HOLD;
       assert(count <= capacity[me])
    :: else -> at = otherwise
    fi
}

inline fall_asleep()
{
    asleep[me] = true; moving--; at = ASLEEP
}

/* Of a futex call that wakes all, or of a round. */
inline wake_all(by_round)
{
    i = 0;
    do
    :: i < PARTIES ->
       if
       :: asleep[i] ->
          asleep[i] = false; timed_out[i] = by_round; moving++;
#ifdef WAKEONE
          if :: by_round :: else -> i = PARTIES - 1 fi
#endif
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0
}

/* After units were freed: a reaper goes on with its own request, a releaser with
 * what it still holds. */
inline go_on()
{
    at = (reaps -> TRY : (holds[me] > 0 -> HOLD : END));
    v = 0; reaps = false
}

proctype Party(byte me; bool waits)
{
    byte at, v, i, n;
    bool reaps;

    at = (holds[me] > 0 -> HOLD : TRY);
end_asleep:
    do
    /* A request. */
    :: d_step { at == TRY -> take((waits -> WORD : END)) }
#ifdef COUNTHALF
    :: d_step { at == WORD -> wake_bit = true; at = AGAIN }
    :: d_step { at == AGAIN -> v = count; take(SLEEP) }
    :: d_step {
           at == SLEEP ->
           if :: count == v -> fall_asleep() :: else -> at = TRY fi;
           v = 0
       }
#else
    :: d_step { at == WORD -> v = wake_seq; at = (wake_bit -> AGAIN : SET) }
    :: d_step {
           at == SET ->
           if
           :: wake_seq == v && !wake_bit -> wake_bit = true; at = AGAIN
           :: else -> v = 0; at = TRY
           fi
       }
    :: d_step {
           at == AGAIN ->
#ifdef NOFLAGRECHECK
           at = SLEEP
#else
           take(SLEEP)
#endif
       }
    :: d_step {
           at == SLEEP ->
           if :: wake_seq == v && wake_bit -> fall_asleep() :: else -> at = TRY fi;
           v = 0
       }
#endif
    :: d_step {
           at == ASLEEP && !asleep[me] ->
           at = (timed_out[me] -> REAP : TRY); timed_out[me] = false
       }
    :: d_step {
           at == ASLEEP && asleep[me] && early > 0 ->
           early--; asleep[me] = false; moving++; at = REAP
       }

    /* Units are released: by the dead, or from this holder, in part or in all. */
    :: d_step {
           at == REAP ->
           if
           :: orphans > 0 ->
              count = count - orphans; orphans = 0; reaps = true; at = NOTE
           :: else -> at = TRY
           fi
       }
#ifdef READFIRST
    :: d_step { at == HOLD -> n = wake_bit; v = wake_seq; at = RELEASE }
    :: d_step {
           at == RELEASE ->
           count = count - holds[me]; holds[me] = 0;
           if :: n == 1 -> n = 0; at = NEXT :: else -> go_on() fi
       }
#else
    :: d_step { at == HOLD -> count--; holds[me]--; at = NOTE }
    :: d_step {
           at == HOLD && holds[me] > 1 ->
           count = count - holds[me]; holds[me] = 0; at = NOTE
       }
#endif
    :: at == HOLD -> at = END

    /* A failed swap of the wake word leaves the wake to the process that came first: what
     * was freed here is seen by all who set the bit after that. */
    :: d_step {
           at == NOTE ->
           v = wake_seq;
           if :: wake_bit -> at = NEXT :: else -> go_on() fi
       }
    :: d_step {
           at == NEXT ->
           if
           :: wake_seq == v && wake_bit ->
              wake_bit = false;
#if !defined(NOSEQ) && !defined(COUNTHALF)
              wake_seq++;
#endif
              at = WAKE
           :: else -> go_on()
           fi
       }
    :: d_step { at == WAKE -> wake_all(false); go_on() }

    :: d_step {
           kills > 0 && at != END ->
           kills--; quiet = false;
           orphans = orphans + holds[me]; holds[me] = 0;
           if :: asleep[me] -> asleep[me] = false; moving++ :: else fi;
           timed_out[me] = false; at = END
       }
    :: at == END -> break
    od;
    atomic {
        at = 0; v = 0; n = 0; reaps = false;
        units[me] = 0; capacity[me] = 0; moving--
    }
}

/* ---- configurations ------------------------------------------------------------- */

/* Of waiters that differ only in their numbers one order is enough. */
inline add_waiter()
{
    if
    :: sort <= 1 -> sort = 1; units[i] = 1; capacity[i] = 1
    :: sort <= 2 -> sort = 2; units[i] = 1; capacity[i] = 2
    :: sort <= 3 -> sort = 3; units[i] = 2; capacity[i] = 2
#if CAPACITY_MAX > 2
    :: sort <= 4 -> sort = 4; units[i] = 1; capacity[i] = 3
    :: sort <= 5 -> sort = 5; units[i] = 2; capacity[i] = 3
#endif
    fi;
    run Party(i, true); i++
}

/* Something is left for each of those to come. */
#define TO_SPARE (CAPACITY_MAX - count - (HOLDERS - 1 - i))

inline add_holder()
{
    if
    :: TO_SPARE >= 1 -> holds[i] = 1
    :: TO_SPARE >= 2 -> holds[i] = 2
    :: TO_SPARE >= 3 -> holds[i] = 3
    fi;
    count = count + holds[i];
    run Party(i, false); i++
}

inline add_passer()
{
    units[i] = 1; capacity[i] = CAPACITY_MAX;
    run Party(i, false); i++
}

init
{
    byte i, sort;

    atomic {
        moving = PARTIES;
        do
        :: i < HOLDERS                                -> add_holder()
        :: i >= HOLDERS && i < HOLDERS + WAITERS      -> add_waiter()
        :: i >= HOLDERS + WAITERS && i < PARTIES      -> add_passer()
        :: i == PARTIES                               -> break
        od;
        i = 0; sort = 0
    };

    do
    :: d_step {
           moving == 0 && !quiet ->
           quiet = true;
#ifndef NOTIMEOUT
           wake_all(true)
#endif
       }
    :: d_step { moving == 0 && quiet -> skip }; break
    od;

    do
    :: i < PARTIES -> assert(!asleep[i] || (orphans == 0 && !FITS(i))); i++
    :: else -> break
    od
}
