/* keeper_journal.pml - the keeper's journal in etcd.
 *
 * The model has keepers, one for each term; etcd, which has the term and the journal; and one
 * exclusive key with its leases. A lease is *short* if it is not longer than SHORT ticks
 * (lease-volatile), otherwise it is *long*. The rules:
 *
 *   recorded  The record of a long lease is in etcd before the client receives the reply. Short
 *             leases are not recorded; a new keeper waits until they have expired.
 *   bound     A record has a bound: the lease is valid no longer than that. An extension beyond
 *             the bound is recorded before the reply. Other extensions are not recorded.
 *   end       When a long lease ends, the keeper records that, but nobody waits for it. However,
 *             until the end is in etcd, no client learns of another grant of the key, not even of
 *             a short lease. Otherwise the next keeper reads that the first lease is held, and a
 *             late EXTEND of it succeeds although the key had another holder.
 *   order     One write is in flight at a time, in the order of the changes. So the record that
 *             ends a lease precedes the record of the next lease.
 *   term      etcd compares the term. So no write of a keeper is applied after the next claim.
 *   position  etcd compares the position of the preceding write. If the answer to a write is
 *             lost, the keeper sends the write again. The first one may arrive later, and must
 *             not undo what has been written since.
 *   read      A new keeper reads the journal after its claim.
 *   from      If the bound is a time left, the new keeper counts it from the end of the last
 *             keeper's authority: until then that keeper may extend the lease without a record.
 *   break     For the same reason, a new keeper ends no lease without its client's consent before
 *             the previous keeper's authority has ended.
 *
 * A new keeper waits until the authority of the previous keeper has ended and short leases have
 * expired; takeover.pml shows that. It extends leases of the journal before that.
 *
 * Time is a clock that ticks at any moment, as in takeover.pml. With ABSOLUTE, the bound in a
 * record is a time that all keepers can read; it is a tick later than the expiry. Otherwise it is
 * the time left when the record was written. Leases are numbered by their fences; each belongs to
 * another client.
 *
 * Checked whenever a client learns of a grant or an extension: no other client has a lease, and
 * no client has learned of a higher fence. Checked at each claim: the journal shows at most one
 * lease.
 *
 * Configurations: how many LEASES, TERMS, EXTENDS, BREAKS (leases that an operator ends) and
 * LOSSES of answers; AUTHORITY in ticks; ABSOLUTE.
 * Mutants, each of which must be found:
 *   ACKFIRST     a client learns of a long lease before it is recorded
 *   EXTENDFIRST  a client learns of an extension beyond the bound before it is recorded
 *   NOEND        a grant does not wait until the preceding end is recorded
 *   OVERTAKE     the second write may arrive before the first one
 *   NOTERM       etcd does not compare the term
 *   NOPOSITION   etcd does not compare the position
 *   READFIRST    a new keeper reads the journal, and then claims its term
 *   FROMCLAIM    a new keeper counts a time left from its claim
 *   BREAKEARLY   a new keeper breaks a lease before the previous keeper's authority has ended
 */

#ifndef LEASES
#define LEASES 2
#endif
#ifndef TERMS
#define TERMS 2
#endif
#ifndef EXTENDS
#define EXTENDS 2
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#ifndef AUTHORITY
#define AUTHORITY 1
#endif
#define SHORT 1
#define LONG 2
#define LONGER 3
#ifdef ABSOLUTE
#define BOUND(time) ((time) + 1)
#define FROM_CLAIM(time) (time)
#define PASS(x) DECREASE(x)
#else
#define BOUND(time) (time)
#ifdef FROMCLAIM
#define FROM_CLAIM(time) (time)
#else
#define FROM_CLAIM(time) ((time) + AUTHORITY)
#endif
#define PASS(x) skip
#endif

#define DECREASE(x) if :: x > 0 -> x-- :: else fi
#define KEEPERS (TERMS + 1)

/* A write: nothing, that a grant has ended, or the record of a lease. */
#define NOTHING 0
#define END     1
#define PUT     2

/* ---- etcd ----------------------------------------------------------------------- */

byte term = 1;
bool shown[LEASES];              /* The journal has a record of the lease, */
byte bound[LEASES];              /* and its bound. */

/* ---- keepers, by term ----------------------------------------------------------- */

bool leads[KEEPERS];
byte authority[KEEPERS];
byte wait[KEEPERS];              /* Before it ends, the keeper grants nothing. */
byte top[KEEPERS];               /* The last lease in its table, + 1; */
byte left[KEEPERS];              /* for how long it is valid; */
bool recorded[KEEPERS];          /* the journal has it, or will have it; */
byte durable[KEEPERS];           /* the bound that the journal has for it. */
bool pending[KEEPERS];           /* A reply about it waits, */
byte pending_left[KEEPERS];      /* and this is for how long the lease is really valid. */

/* Writes: the one in flight, and two that wait for it. */
#define QUEUE 3
byte op[KEEPERS * QUEUE], op_lease[KEEPERS * QUEUE], op_bound[KEEPERS * QUEUE];
#define OP(t, k) op[(t) * QUEUE + (k)]
#define OP_LEASE(t, k) op_lease[(t) * QUEUE + (k)]
#define OP_BOUND(t, k) op_bound[(t) * QUEUE + (k)]
#define WRITTEN(t) (OP(t, 0) == NOTHING && OP(t, 1) == NOTHING)

#define IDLE    0
#define SENT    1
#define APPLIED 2
byte flight[KEEPERS];            /* The state of the write in flight. */
#ifdef OVERTAKE
bool second[KEEPERS];            /* It is the second one. */
#endif

/* The write whose answer was lost. */
byte late, late_term, late_lease, late_bound;
bool late_old;                   /* etcd has applied this write or another one since. */

/* ---- leases ---------------------------------------------------------------------- */

byte next;
byte held[LEASES];               /* For how long the client really has the lock. */
bool ended[LEASES];              /* The client has released it. */
bool learned[LEASES];            /* The client knows that it was granted. */
byte extends = EXTENDS, breaks = BREAKS, losses = LOSSES;

hidden byte n, k, f, g;

active proctype Clock()
{
end:
    do
    :: d_step {
           true ->
           n = 1;
           do
           :: n <= TERMS ->
              DECREASE(authority[n]); DECREASE(wait[n]); DECREASE(left[n]);
              PASS(durable[n]);
              DECREASE(pending_left[n]);
              if :: pending_left[n] == 0 -> pending[n] = false :: else fi;
              k = 0;
              do
              :: k < QUEUE -> PASS(OP_BOUND(n, k)); k++
              :: else -> break
              od;
              n++
           :: else -> break
           od;
           f = 0;
           do
           :: f < LEASES -> DECREASE(held[f]); PASS(bound[f]); f++
           :: else -> break
           od;
           PASS(late_bound)
       }
    od
}

/* ---- a keeper --------------------------------------------------------------------- */

/* Add a write to the queue. */
inline append(t, what, lease, until)
{
    k = 0;
    do
    :: OP(t, k) == NOTHING -> break
    :: else -> k++
    od;
    assert(k < QUEUE);
    OP(t, k) = what; OP_LEASE(t, k) = lease; OP_BOUND(t, k) = until
}

inline remove(t, k0)
{
    k = k0;
    do
    :: k + 1 < QUEUE ->
       OP(t, k) = OP(t, k + 1); OP_LEASE(t, k) = OP_LEASE(t, k + 1);
       OP_BOUND(t, k) = OP_BOUND(t, k + 1);
       k++
    :: else -> break
    od;
    OP(t, k) = NOTHING; OP_LEASE(t, k) = 0; OP_BOUND(t, k) = 0
}

/* The lease has ended; the journal may still show it. */
inline end_lease(t)
{
    if
    :: recorded[t] -> append(t, END, top[t] - 1, 0)
    :: else
    fi;
    recorded[t] = false; durable[t] = 0; left[t] = 0
}

/* A reply reaches the client. A lease that has expired, or that the client has released, is of no
 * use to it. */
inline learn(t)
{
    f = top[t] - 1;
    if
    :: pending_left[t] > 0 && !ended[f] ->
       g = 0;
       do
       :: g < LEASES ->
          assert(g == f || held[g] == 0);
          assert(g <= f || !learned[g]);
          g++
       :: else -> break
       od;
       held[f] = pending_left[t]; learned[f] = true
    :: else
    fi;
    pending[t] = false; pending_left[t] = 0
}

/* The lease in the table is now valid for `time`; a reply waits. */
inline promise(t, time)
{
    left[t] = time; pending[t] = true; pending_left[t] = time
}

inline put(t, time)
{
    append(t, PUT, top[t] - 1, BOUND(time));
    recorded[t] = true
}

inline apply(what, lease, until)
{
    if
    :: what == PUT -> shown[lease] = true; bound[lease] = until
    :: what == END -> shown[lease] = false; bound[lease] = 0
    fi
}

inline clear(t)
{
    leads[t] = false; authority[t] = 0; wait[t] = 0; top[t] = 0; left[t] = 0;
    recorded[t] = false; durable[t] = 0; pending[t] = false; pending_left[t] = 0;
    flight[t] = IDLE;
    remove(t, 0); remove(t, 0); remove(t, 0)
}

#ifdef NOTERM
#define CURRENT(t) true
#else
#define CURRENT(t) ((t) == term)
#endif
#ifdef NOPOSITION
#define OLD false
#else
#define OLD late_old
#endif

/* The table begins with the journal. */
inline read_journal(t)
{
    f = 0;
    do
    :: f < LEASES ->
       if
       :: shown[f] ->
#if !defined(OVERTAKE) && !defined(NOTERM) && !defined(NOPOSITION)
          assert(!recorded[t]);
#endif
          end_lease(t);
          top[t] = f + 1; left[t] = FROM_CLAIM(bound[f]); recorded[t] = true; durable[t] = bound[f]
       :: else
       fi;
       f++
    :: else -> break
    od
}

proctype Keeper(byte t)
{
    if
    :: t == 1
    :: else ->
#ifdef READFIRST
       d_step { term == t - 1 -> read_journal(t) };
       d_step {
           term == t - 1 ->
           term = t; leads[t] = true; authority[t] = AUTHORITY; wait[t] = AUTHORITY + SHORT
       }
#else
       d_step {
           term == t - 1 ->
           term = t; authority[t] = AUTHORITY; wait[t] = AUTHORITY + SHORT
       };
       d_step { read_journal(t); leads[t] = true }
#endif
    fi;

end:
    do
    :: d_step { leads[t] && term == t && authority[t] < AUTHORITY -> authority[t] = AUTHORITY }

    /* Grant. The record that ends the last lease comes first. */
    :: d_step {
           leads[t] && authority[t] > 0 && wait[t] == 0 && left[t] == 0 && !pending[t] &&
           next < LEASES && OP(t, 1) == NOTHING ->
           end_lease(t);
           top[t] = next + 1; next++;
           promise(t, SHORT)
       }
    :: d_step {
           leads[t] && authority[t] > 0 && wait[t] == 0 && left[t] == 0 && !pending[t] &&
           next < LEASES && OP(t, 1) == NOTHING ->
           end_lease(t);
           top[t] = next + 1; next++;
           promise(t, LONG); put(t, LONG);
#ifdef ACKFIRST
           learn(t)
#endif
       }
    /* Extend, maybe late. */
    :: d_step {
           extends > 0 && leads[t] && authority[t] > 0 && left[t] > 0 && left[t] < LONGER &&
           !pending[t] && learned[top[t] - 1] && !ended[top[t] - 1] && OP(t, 2) == NOTHING ->
           extends--;
           promise(t, LONGER);
           if
           :: LONGER > durable[t] ->
              put(t, LONGER);
#ifdef EXTENDFIRST
              learn(t)
#endif
           :: else -> learn(t)
           fi
       }
    :: d_step {
           extends > 0 && leads[t] && authority[t] > 0 && left[t] > 0 && left[t] < LONG &&
           !pending[t] && learned[top[t] - 1] && !ended[top[t] - 1] && OP(t, 2) == NOTHING ->
           extends--;
           promise(t, LONG);
           if
           :: LONG > durable[t] ->
              put(t, LONG);
#ifdef EXTENDFIRST
              learn(t)
#endif
           :: else -> learn(t)
           fi
       }
    /* Reply, if the journal allows it. */
    :: d_step {
           pending[t] &&
#ifdef NOEND
           (WRITTEN(t) || (!recorded[t] && OP(t, 0) != PUT && OP(t, 1) != PUT)) ->
#else
#ifdef OVERTAKE
           (WRITTEN(t) || (recorded[t] && OP(t, 0) != PUT && OP(t, 1) != PUT)) ->
#else
           WRITTEN(t) ->
#endif
#endif
           learn(t)
       }
    /* The lease has expired, its client releases it, or an operator breaks it. */
    :: d_step { leads[t] && left[t] == 0 && recorded[t] && OP(t, 2) == NOTHING -> end_lease(t) }
    :: d_step {
           leads[t] && left[t] > 0 && !pending[t] && held[top[t] - 1] > 0 && OP(t, 2) == NOTHING ->
           held[top[t] - 1] = 0; ended[top[t] - 1] = true; end_lease(t)
       }
#if BREAKS > 0
    :: d_step {
           breaks > 0 && leads[t] && authority[t] > 0 && left[t] > 0 && !pending[t] &&
#ifndef BREAKEARLY
           wait[t] <= SHORT &&
#endif
           OP(t, 2) == NOTHING ->
           breaks--; held[top[t] - 1] = 0;
           /* A reply of an earlier keeper that is still to come does not count either. */
           n = 1;
           do
           :: n < t ->
              if :: top[n] == top[t] -> pending[n] = false; pending_left[n] = 0 :: else fi;
              n++
           :: else -> break
           od;
           end_lease(t)
       }
#endif

    /* A write is sent, applied or rejected by etcd, and answered. */
    :: d_step { leads[t] && flight[t] == IDLE && OP(t, 0) != NOTHING -> flight[t] = SENT }
#ifdef OVERTAKE
    :: d_step {
           leads[t] && flight[t] == IDLE && OP(t, 1) != NOTHING ->
           flight[t] = SENT; second[t] = true
       }
#endif
    :: d_step {
           flight[t] == SENT ->
           if
           :: CURRENT(t) ->
#ifdef OVERTAKE
              k = second[t];
#else
              k = 0;
#endif
              apply(OP(t, k), OP_LEASE(t, k), OP_BOUND(t, k));
              flight[t] = APPLIED;
              if :: late != NOTHING -> late_old = true :: else fi
           :: else -> clear(t)
           fi
       }
    :: d_step {
           flight[t] == APPLIED ->
           flight[t] = IDLE;
#ifdef OVERTAKE
           n = second[t]; second[t] = false;
#else
           n = 0;
#endif
           if
           :: OP(t, n) == PUT && OP_LEASE(t, n) + 1 == top[t] && recorded[t] ->
              durable[t] = OP_BOUND(t, n)
           :: else
           fi;
           remove(t, n)
       }
    /* The answer is lost, or late: the keeper sends the write again. */
    :: d_step {
           losses > 0 && flight[t] == SENT ->
           losses--;
           late = OP(t, 0); late_term = t; late_lease = OP_LEASE(t, 0); late_bound = OP_BOUND(t, 0)
       }
    od
}

/* A write whose answer was lost arrives. */
active proctype Late()
{
end:
    do
    :: d_step {
           late != NOTHING ->
           if
           :: CURRENT(late_term) && !OLD ->
              apply(late, late_lease, late_bound);
              /* The write was sent again. etcd answers that it is there. */
              if
              :: !late_old && flight[late_term] == SENT -> flight[late_term] = APPLIED
              :: else
              fi
           :: else
           fi;
           late = NOTHING; late_term = 0; late_lease = 0; late_bound = 0; late_old = false
       }
    od
}

init
{
    byte i;

    atomic {
        leads[1] = true; authority[1] = AUTHORITY;
        i = 1;
        do
        :: i <= TERMS -> run Keeper(i); i++
        :: else -> break
        od;
        i = 0
    }
}
