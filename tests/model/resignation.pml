/* resignation.pml - a keeper resigns, and its successor does not wait.
 *
 * The model has keepers, one for each term; etcd, which has the term, the journal, and a mark
 * that the term is resigned; and one exclusive key with its grants. A grant has a lease, or it
 * has none and ends with the connection of its client. A keeper that resigns takes these steps:
 *
 *   wait   If it has not yet taken over, it waits until its own waits have ended. Otherwise its
 *          mark would say that its successor need not wait for them either.
 *   stop   From now on it grants nothing, extends nothing and answers no CHECK.
 *   write  It writes every lease to the journal, with the time left. It also writes the grants
 *          without a lease of clients of other nodes, as leases of AUTHORITY ticks: their nodes
 *          close the connections of these clients within that time after the next claim.
 *   end    It ends the grants without a lease of clients of its own node.
 *   mark   It marks its term as resigned; etcd compares the term.
 *   never  It never acts in that term again, even if etcd rejects the mark or does not answer.
 *          The mark may still arrive.
 *
 * A new keeper reads the mark and the journal with its claim or after it. If the last term is
 * resigned, the new keeper does not wait. Otherwise it waits until the authority of the last
 * keeper has ended and all leases that the journal does not have have expired. (takeover.pml
 * shows when it can skip that.) Another node may claim the next term at any moment. A keeper may
 * fail at any moment: then it takes no further step.
 *
 * A keeper answers CHECK only after its waits, and it answers "not held" only when the journal no
 * longer shows the lease. Otherwise the next keeper reads that the lease is held, and extends it.
 *
 * Time is a clock that ticks at any moment, as in takeover.pml. Grants are numbered by their
 * fences; each belongs to another client.
 *
 * Checked whenever a client learns of a grant or an extension: no other client has the lock, and
 * no client has learned of a higher fence. Checked at each answer to CHECK: it is "held" only if
 * no client has learned of a higher fence, and "not held" only if the client does not have the
 * lock.
 *
 * Configurations: how many GRANTS and TERMS; AUTHORITY in ticks.
 * Mutants, each of which must be found:
 *   RESIGNEARLY   a keeper resigns before its own waits have ended
 *   EXTENDS       a keeper that resigns still extends
 *   STILLGRANTS   it still grants
 *   CHECKS        it still answers CHECK
 *   MARKFIRST     it marks its term before the leases are written
 *   NOEND         it does not end the grants without a lease of its own clients
 *   NOLINGER      it does not write the grants without a lease of clients of other nodes
 *   ACTSAGAIN     it leads again if the mark is not answered
 *   NOTERM        etcd does not compare the term of the mark
 *   READFIRST     a new keeper reads the journal before its claim, and the mark with its claim
 *   CHECKEARLY    a new keeper answers CHECK before its waits have ended
 *   CHECKSHOWN    a keeper answers "not held" while the journal shows the lease
 */

#ifndef GRANTS
#define GRANTS 3
#endif
#ifndef TERMS
#define TERMS 3
#endif

#ifndef AUTHORITY
#define AUTHORITY 1
#endif
#define LEASE 2
#define KEEPERS (TERMS + 1)
#define DECREASE(x) if :: x > 0 -> x-- :: else fi

/* ---- etcd ----------------------------------------------------------------------- */

byte term = 1;
bool resigned;                   /* The current term is. */
byte journal[GRANTS];            /* The time left of each lease when it was written. */

/* ---- keepers, by term ----------------------------------------------------------- */

#define NONE    0
#define LEADS   1
#define STOPPED 2                /* It resigns: */
#define WROTE   3                /* the leases are in the journal, */
#define ENDED   4                /* and its own clients have no grants without a lease. */
#define DONE    5
byte stage[KEEPERS];
byte authority[KEEPERS];
byte wait[KEEPERS];
byte top[KEEPERS];               /* The last grant in its table, + 1, */
byte left[KEEPERS];              /* and for how long it is valid. */
bool marks[KEEPERS];             /* The mark is in flight. */

/* ---- grants ---------------------------------------------------------------------- */

#define LEASED 0
#define OWN    1                 /* Without a lease, of a client of the keeper's own node; */
#define OTHER  2                 /* of a client of another node. */
byte kind[GRANTS];
byte next;
byte held[GRANTS];               /* For how long the client has the lock. */
bool learned[GRANTS];            /* The client knows that it was granted. */
bool released[GRANTS];
byte of_term[GRANTS];            /* Of a grant without a lease. */

hidden byte n, f, g;

active proctype Clock()
{
end:
    do
    :: d_step {
           true ->
           n = 1;
           do
           :: n <= TERMS ->
              DECREASE(authority[n]); DECREASE(wait[n]);
              if
              :: top[n] > 0 && of_term[top[n] - 1] < term -> DECREASE(left[n])
              :: else
              fi;
              n++
           :: else -> break
           od;
           f = 0;
           do
           :: f < GRANTS ->
              /* A client without a lease is cut off within a tick after the next claim. */
              if
              :: kind[f] == LEASED -> DECREASE(held[f])
              :: kind[f] != LEASED && of_term[f] < term -> held[f] = 0
              :: else
              fi;
              f++
           :: else -> break
           od
       }
    od
}

inline learn(grant, time)
{
    g = 0;
    do
    :: g < GRANTS ->
       assert(g == grant || held[g] == 0);
       assert(g <= grant || !learned[g]);
       g++
    :: else -> break
    od;
    held[grant] = time; learned[grant] = true
}

inline check_answer(t)
{
    if
    :: left[t] > 0 ->
       g = top[t];
       do
       :: g < GRANTS -> assert(!learned[g]); g++
       :: else -> break
       od
    :: else -> assert(held[top[t] - 1] == 0)
    fi
}

/* The keeper has a grant that the journal must have before the mark. */
#ifdef NOLINGER
#define WRITE(t) (left[t] > 0 && kind[top[t] - 1] == LEASED)
#else
#define WRITE(t) (left[t] > 0 && kind[top[t] - 1] != OWN)
#endif
#ifdef EXTENDS
#define MAY_EXTEND(t) (stage[t] != NONE)
#else
#define MAY_EXTEND(t) (stage[t] == LEADS)
#endif
#ifdef STILLGRANTS
#define MAY_GRANT(t) (stage[t] != NONE)
#else
#define MAY_GRANT(t) (stage[t] == LEADS)
#endif
#ifdef CHECKS
#define MAY_CHECK(t) (stage[t] != NONE)
#else
#define MAY_CHECK(t) (stage[t] == LEADS)
#endif

/* The table begins with the journal. The highest fence counts. */
inline read_journal(t)
{
    f = 0;
    do
    :: f < GRANTS ->
       if :: journal[f] > 0 -> top[t] = f + 1; left[t] = journal[f] :: else fi;
       f++
    :: else -> break
    od;
    f = 0
}

inline claim(t)
{
    term = t; authority[t] = AUTHORITY; stage[t] = LEADS;
    if
    :: resigned -> wait[t] = 0
    :: else -> wait[t] = AUTHORITY + LEASE
    fi;
    resigned = false
}

proctype Keeper(byte t)
{
    if
    :: t == 1
    :: else ->
#ifdef READFIRST
       d_step { term == t - 1 -> read_journal(t) };
       d_step { term == t - 1 -> claim(t) }
#else
       d_step { term == t - 1 -> claim(t); read_journal(t) }
#endif
    fi;

end:
    do
    :: d_step {
           term == t && stage[t] != NONE && authority[t] < AUTHORITY ->
           authority[t] = AUTHORITY
       }

    /* Grant. The journal does not show an earlier grant any more (keeper_journal.pml). */
    :: atomic {
           MAY_GRANT(t) && authority[t] > 0 && wait[t] == 0 && left[t] == 0 && next < GRANTS &&
           (top[t] == 0 || journal[top[t] - 1] == 0) ->
           if
           :: kind[next] = LEASED
           :: kind[next] = OWN
           :: kind[next] = OTHER
           fi;
           d_step {
               top[t] = next + 1; left[t] = LEASE; learn(top[t] - 1, LEASE);
               if :: kind[next] != LEASED -> of_term[next] = t :: else fi;
               next++
           }
       }
    :: d_step {
           term == t && stage[t] == LEADS && top[t] > 0 && left[t] == 0 &&
           journal[top[t] - 1] > 0 ->
           journal[top[t] - 1] = 0
       }
    /* Extend a lease, maybe late. */
    :: d_step {
           MAY_EXTEND(t) && authority[t] > 0 && left[t] > 0 && left[t] < LEASE &&
           kind[top[t] - 1] == LEASED && !released[top[t] - 1] ->
           left[t] = LEASE; learn(top[t] - 1, LEASE)
       }
    /* Answer CHECK. */
    :: d_step {
           MAY_CHECK(t) && authority[t] > 0 && top[t] > 0 &&
#ifndef CHECKEARLY
           wait[t] == 0 &&
#endif
#ifndef CHECKSHOWN
           (left[t] > 0 || journal[top[t] - 1] == 0) &&
#endif
           true -> check_answer(t)
       }
    /* A client of another node, or of this one, releases. */
    :: d_step {
           stage[t] == LEADS && left[t] > 0 && held[top[t] - 1] > 0 ->
           held[top[t] - 1] = 0; released[top[t] - 1] = true; left[t] = 0
       }

    /* Resign. */
#ifdef RESIGNEARLY
    :: d_step { stage[t] == LEADS -> stage[t] = STOPPED }
#else
    :: d_step { stage[t] == LEADS && wait[t] == 0 -> stage[t] = STOPPED }
#endif
    :: d_step {
           stage[t] == STOPPED ->
           if
           :: !WRITE(t) -> stage[t] = WROTE
           :: WRITE(t) && term == t ->
              f = top[t] - 1;
              journal[f] = (kind[f] == LEASED -> left[t] : AUTHORITY);
              stage[t] = WROTE
           :: else -> stage[t] = DONE
           fi
       }
    :: d_step {
           stage[t] == WROTE ->
           stage[t] = ENDED;
#ifndef NOEND
           if
           :: left[t] > 0 && kind[top[t] - 1] == OWN -> held[top[t] - 1] = 0; left[t] = 0
           :: else
           fi
#endif
       }
    :: d_step {
#ifdef MARKFIRST
           stage[t] >= STOPPED && stage[t] <= ENDED ->
#else
           stage[t] == ENDED ->
#endif
           stage[t] = DONE; marks[t] = true
       }
#ifdef ACTSAGAIN
    :: d_step { stage[t] == DONE -> stage[t] = LEADS }
#endif
    /* The mark arrives. */
    :: d_step {
           marks[t] ->
           marks[t] = false;
#ifdef NOTERM
           resigned = true
#else
           if :: term == t -> resigned = true :: else fi
#endif
       }
    od
}

init
{
    byte i;

    atomic {
        stage[1] = LEADS; authority[1] = AUTHORITY;
        i = 1;
        do
        :: i <= TERMS -> run Keeper(i); i++
        :: else -> break
        od;
        i = 0
    }
}
