/* takeover.pml - a new keeper takes over, and no lock has two holders.
 *
 * The model has nodes, one of which is the keeper of the current term; etcd, which has the term;
 * and one exclusive key with its leases. All leases are short: no journal has them. So when the
 * keeper fails, only the ledgers of other nodes have them. The rules:
 *
 *   authority  A keeper grants and extends for AUTHORITY ticks after it sent the last renewal
 *              that etcd confirmed. The next keeper waits that long, counted from the answer to
 *              its claim.
 *   record     A node records a lease of its client before the client receives the reply.
 *   witness    Another node records a lease of a client of the keeper's own node, also before the
 *              client receives the reply.
 *   promise    A node that has handed over its ledger to a term accepts no record of a lower
 *              term. After a restart, a node first asks etcd for the current term.
 *   complete   The ledger of a restarted node is empty. The node reports for how long that may
 *              matter: until all leases that were granted before its start have expired.
 *   export     A keeper that learns of a higher term copies its table to its ledger before it
 *              hands over its ledger. It does not know whether a client has learned of the last
 *              extension, so the next keeper does not extend the lease because of this record.
 *   fill       A keeper that has taken over sends its leases to a node that was restarted. Then
 *              the ledger of that node is complete.
 *   settled    A renewal says that the keeper has taken over, and that another node knows every
 *              lease that the keeper knows.
 *   skip       A new keeper also waits until all short leases have expired. It skips this second
 *              wait if all nodes but the previous keeper have handed over, their ledgers are
 *              complete, and the last term is settled.
 *   two times  A record has two times: until the first, the lease is certainly valid; at the
 *              second, it has certainly expired. They differ by the time that the message took. A
 *              keeper extends a lease before the first, and grants the lock to others after the
 *              second.
 *   extension  Until the authority of the previous keeper has ended, a new keeper extends a lease only
 *              if it is certainly valid until then. Otherwise the previous keeper may let it expire and
 *              grant the lock to another client.
 *   fence      If nodes report two leases, the one with the higher fence counts.
 *   gone       A keeper that ends a lease without its client's consent grants the lock to others
 *              after all nodes have confirmed that they have removed their records, or after the
 *              lease has expired. A new keeper reports no end before its waits have ended.
 *
 * Either of the rules "export" and "settled" can be left out (-DNOEXPORT, -DNOSETTLED), but not
 * both. Every lease that a client knows was in the table of its keeper and in the ledger of
 * another node. With the rule "export", both nodes keep it until it expires, or report an
 * incomplete ledger; and only one of them can be the previous keeper.
 *
 * Time is a clock that ticks at any moment, and timers that count down. So a node or a message is
 * slow if the clock ticks before its next step. A record contains the time left when it was sent.
 * A message that arrives after the lease has expired is ignored. Leases are numbered by their
 * fences; each belongs to another client.
 *
 * Checked whenever a client learns of a grant or an extension: no other client has a lease, and
 * no client has learned of a higher fence. Checked at each grant: no later term has granted, so
 * fences increase.
 *
 * Configurations: how many NODES, LEASES, TERMS and CRASHES; LEASE and AUTHORITY in ticks;
 * RELEASES, and BREAKS, which are leases that an operator ends; SLOW, if renewals take time.
 * Mutants, each of which must be found:
 *   NOAUTHORITY     a new keeper does not wait for the authority of the last one
 *   AUTHORITYLATE   (with SLOW) authority counts from the answer to a renewal
 *   CLAIMSENT       a new keeper counts its waits from the time when it sent its claim
 *   LATERECORD      a node passes on a reply, and then records the lease
 *   LATEWITNESS     a client of the keeper's node receives the reply, and then the witness is
 *                   told
 *   NOPROMISE       a node that hands over does not remember the term
 *   OLDTERM         a node does not compare the term of a record
 *   NOASK           a restarted node does not ask for the term
 *   NOCOMPLETE      a restarted node reports a complete ledger
 *   NOSETTLED       (with NOEXPORT) skip although the last term is not settled
 *   SETTLEDEARLY    (with NOEXPORT) settled before another node knows the leases of the keeper
 *   SETTLEDUNREADY  (with NOEXPORT) settled before the keeper has taken over
 *   MISSING         skip although a node has not handed over
 *   SHORTRECORD     a record may expire before its lease
 *   LONGRECORD      a keeper extends a lease that may have expired
 *   EXTENDEARLY     a new keeper extends a lease although the previous keeper may let it expire
 *   FILLEARLY       a keeper completes the ledger of a node before its waits have ended
 *   FILLEMPTY       a keeper says that a ledger is complete, and does not send the leases
 *   NOFENCE         of two leases, the one that is reported last counts
 *   BREAKEARLY      the lock is granted to others while a ledger may have the lease that was
 *                   broken
 *   GONEEARLY       a new keeper reports ends before its waits have ended
 */

#ifndef NODES
#define NODES 3
#endif
#ifndef LEASES
#define LEASES 2
#endif
#ifndef TERMS
#define TERMS 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LEASE
#define LEASE 2
#endif
#ifndef RELEASES
#define RELEASES 0
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef AUTHORITY
#define AUTHORITY 1
#endif
#define ALL ((1 << NODES) - 1)
#define BIT(i) (1 << (i))

/* ---- etcd ----------------------------------------------------------------------- */

byte term = 1;
byte keeper_of[TERMS + 1];
#ifdef CLAIMSENT
bool claims[NODES];              /* A claim is in flight, */
byte claim_wait[NODES];          /* and the waits began when it was sent. */
#endif
bool settled[TERMS + 1];

/* ---- nodes ---------------------------------------------------------------------- */

bool down[NODES];
byte seen[NODES] = 1;            /* The highest term that the node knows. */
byte incomplete[NODES];          /* For how long the ledger may lack leases. */
byte ledger[NODES * LEASES];     /* For how long each lease is valid at most, */
byte certain[NODES * LEASES];    /* and at least. */
#define LEDGER(n, f) ledger[(n) * LEASES + (f)]
#define CERTAIN(n, f) certain[(n) * LEASES + (f)]

/* A node as keeper. */
byte leads[NODES];               /* Its term; 0: it does not lead. */
byte authority[NODES];
byte wait[NODES];                /* The rest of both waits. */
bool ready[NODES];               /* It grants. */
byte handed[NODES];              /* The nodes that have handed over. */
byte missing[NODES];             /* For how long a ledger that was handed over may lack leases. */
byte top[NODES];                 /* The highest fence in its table, */
byte left[NODES];                /* for how long that lease is valid at most, */
byte sure[NODES];                /* and at least, */
bool unknown[NODES];             /* and whether other nodes may not know it. */
bool breaking[NODES];            /* An operator ends that lease. */

#define IDLE     0
#define SENT     1
#define APPLIED  2
#ifdef SLOW
byte renewal[NODES];             /* In flight, */
byte renewal_left[NODES];        /* for how long it gives authority, */
bool renewal_settled[NODES];     /* and its mark. */
#endif

/* ---- leases, with the message about each ------------------------------------------ */

#define NOTHING  0
#define RECORD   1               /* The keeper tells a node to record the lease. */
#define NOTED    2               /* The witness answers. */
byte message[LEASES];
byte message_from[LEASES];       /* The keeper, */
byte message_term[LEASES];
byte message_to[LEASES];         /* the node that records, */
bool message_own[LEASES];        /* the client is one of the keeper's own node, */
byte message_left[LEASES];       /* and for how long the lease is really valid. */

byte next;                       /* The next fence. */
byte held[LEASES];               /* For how long the client really has the lock. */
bool ended[LEASES];              /* The client has released it. */
bool learned[LEASES];            /* The client knows that it was granted. */
byte granted_in = 1;             /* The last term that granted. */
byte crashes = CRASHES, releases = RELEASES, breaks = BREAKS;

hidden byte n, f, g;

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define DECREASE(x) if :: x > 0 -> x-- :: else fi

inline forget_message(which)
{
    message[which] = NOTHING; message_from[which] = 0; message_term[which] = 0;
    message_to[which] = 0; message_own[which] = false; message_left[which] = 0
}

/* ---- time ------------------------------------------------------------------------- */

active proctype Clock()
{
end:
    do
    :: d_step {
           true ->
           n = 0;
           do
           :: n < NODES ->
#ifdef CLAIMSENT
              DECREASE(claim_wait[n]);
#endif
              DECREASE(incomplete[n]); DECREASE(authority[n]); DECREASE(wait[n]);
              DECREASE(missing[n]); DECREASE(left[n]); DECREASE(sure[n]);
              if
              :: left[n] == 0 -> unknown[n] = false; breaking[n] = false
              :: else
              fi;
#ifdef SLOW
              DECREASE(renewal_left[n]);
              if
#ifndef AUTHORITYLATE
              :: renewal_left[n] == 0 && (renewal[n] == APPLIED || !renewal_settled[n]) ->
                 renewal[n] = IDLE; renewal_settled[n] = false
#endif
              :: else
              fi;
#endif
              f = 0;
              do
              :: f < LEASES -> DECREASE(LEDGER(n, f)); DECREASE(CERTAIN(n, f)); f++
              :: else -> break
              od;
              n++
           :: else -> break
           od;
           f = 0;
           do
           :: f < LEASES ->
              DECREASE(held[f]); DECREASE(message_left[f]);
              /* A record of a lease that may have expired is ignored, and so is the reply. */
              if
              :: message_left[f] == 0 -> forget_message(f)
              :: else
              fi;
              f++
           :: else -> break
           od
       }
    od
}

/* ---- what a client learns ----------------------------------------------------------- */

/* A reply reaches the client of the lease. A lease that has expired, or that the client has
 * released, is of no use to it. */
inline learn(which)
{
    if
    :: message_left[which] > 0 && !ended[which] ->
       g = 0;
       do
       :: g < LEASES ->
          assert(g == which || held[g] == 0);
          assert(g <= which || !learned[g]);
          g++
       :: else -> break
       od;
       held[which] = message_left[which]; learned[which] = true
    :: else
    fi
}

/* ---- a node -------------------------------------------------------------------------- */

inline clear_keeper(k)
{
    leads[k] = 0; authority[k] = 0; wait[k] = 0; ready[k] = false; handed[k] = 0;
    missing[k] = 0; top[k] = 0; left[k] = 0; sure[k] = 0; unknown[k] = false; breaking[k] = false;
#ifdef SLOW
    renewal[k] = IDLE; renewal_left[k] = 0; renewal_settled[k] = false;
#endif
}

/* Keeper k learns from the ledger of node m that a lease is valid. */
inline merge(k, m, lease)
{
    if
#ifdef NOFENCE
    :: LEDGER(m, lease) > 0 && top[k] != lease + 1 ->
#else
    :: LEDGER(m, lease) > 0 && lease + 1 > top[k] ->
#endif
       top[k] = lease + 1; left[k] = LEDGER(m, lease); sure[k] = CERTAIN(m, lease);
       unknown[k] = (m == k)
    :: LEDGER(m, lease) > 0 && lease + 1 == top[k] ->
       if
       :: LEDGER(m, lease) >= left[k] -> left[k] = LEDGER(m, lease); unknown[k] = (m == k)
       :: else
       fi;
       sure[k] = MAX(sure[k], CERTAIN(m, lease))
    :: else
    fi
}

#ifdef SHORTRECORD
#define TIME_LEFT (message_left[l] - (message_left[l] > 0 -> 1 : 0))
#else
#define TIME_LEFT LEASE
#endif
#ifdef LONGRECORD
#define EXTENDABLE(k) (left[k] > 0)
#else
#define EXTENDABLE(k) (sure[k] > 0)
#endif
#ifdef SETTLEDEARLY
#define SETTLED(k) true
#else
#ifdef SETTLEDUNREADY
#define SETTLED(k) (!unknown[k])
#else
#define SETTLED(k) (ready[k] && !unknown[k])
#endif
#endif
#ifdef OLDTERM
#define OUTDATED(m, t) false
#else
#define OUTDATED(m, t) (seen[m] > (t))
#endif

proctype Node(byte i)
{
end:
    do
    /* Crash, and start again with an empty ledger. */
    :: d_step {
           crashes > 0 && !down[i] ->
           crashes--; down[i] = true; seen[i] = 0; incomplete[i] = 0;
           clear_keeper(i);
           f = 0;
           do
           :: f < LEASES -> LEDGER(i, f) = 0; CERTAIN(i, f) = 0; f++
           :: else -> break
           od
       }
    :: d_step {
           down[i] ->
           down[i] = false;
#ifndef NOASK
           seen[i] = term;
#endif
#ifndef NOCOMPLETE
           incomplete[i] = LEASE
#endif
       }

    /* Claim the next term. The table begins with the node's own ledger. All nodes but the first
     * are alike at the start, so one of them need not claim the second term. */
    :: d_step {
           !down[i] && leads[i] == 0 && term < TERMS && (term > 1 || i < 2) &&
#ifdef CLAIMSENT
           claims[i] &&
#endif
           true ->
           term++; keeper_of[term] = i; seen[i] = term;
           leads[i] = term; authority[i] = AUTHORITY; handed[i] = BIT(i);
#ifdef NOAUTHORITY
           wait[i] = LEASE;
#else
           wait[i] = AUTHORITY + LEASE;
#endif
#ifdef CLAIMSENT
           wait[i] = claim_wait[i]; claim_wait[i] = 0; claims[i] = false;
#endif
           missing[i] = incomplete[i];
           f = 0;
           do
           :: f < LEASES -> merge(i, i, f); LEDGER(i, f) = 0; CERTAIN(i, f) = 0; f++
           :: else -> break
           od
       }

#ifdef CLAIMSENT
    :: d_step {
           !down[i] && leads[i] == 0 && term < TERMS && !claims[i] ->
           claims[i] = true; claim_wait[i] = AUTHORITY + LEASE
       }
#endif

    /* Learn that the term is over, and copy the table to the ledger. */
    :: d_step {
           leads[i] != 0 && leads[i] < term ->
#ifndef NOEXPORT
           if
           :: left[i] > 0 ->
              LEDGER(i, top[i] - 1) = left[i]
           :: else
           fi;
#endif
           clear_keeper(i)
       }

#ifdef SLOW
    /* A renewal is sent, applied by etcd, and answered. */
    :: d_step {
           leads[i] != 0 && renewal[i] == IDLE &&
           (authority[i] < AUTHORITY || !settled[leads[i]]) ->
           renewal[i] = SENT; renewal_left[i] = AUTHORITY;
           renewal_settled[i] = !settled[leads[i]] && SETTLED(i)
       }
    :: d_step {
           renewal[i] == SENT ->
           if
           :: leads[i] == term ->
              renewal[i] = APPLIED;
              if :: renewal_settled[i] -> settled[term] = true :: else fi
           :: else -> renewal[i] = IDLE; renewal_left[i] = 0
           fi;
           renewal_settled[i] = false
       }
    :: d_step {
           renewal[i] == APPLIED ->
           renewal[i] = IDLE;
#ifdef AUTHORITYLATE
           authority[i] = AUTHORITY;
#else
           authority[i] = MAX(authority[i], renewal_left[i]);
#endif
           renewal_left[i] = 0
       }
#else
    /* A renewal. If it takes longer, the keeper has the same authority, from a later moment on. */
    :: d_step {
           leads[i] == term && (authority[i] < AUTHORITY || (!settled[term] && SETTLED(i))) ->
           authority[i] = AUTHORITY;
           if :: SETTLED(i) -> settled[term] = true :: else fi
       }
#endif

    /* The waits end. */
    :: d_step {
           leads[i] != 0 && !ready[i] && wait[i] <= LEASE &&
           (wait[i] == 0 || (true
#ifndef MISSING
            && (handed[i] | BIT(keeper_of[leads[i] - 1])) == ALL
#endif
#ifndef NOSETTLED
            && settled[leads[i] - 1]
#endif
            && missing[i] == 0)) ->
           ready[i] = true; wait[i] = 0; handed[i] = 0; missing[i] = 0
       }

    /* Grant the lock, through a node that is not this one, or to a client of this node. */
    :: d_step {
           leads[i] != 0 && ready[i] && authority[i] > 0 && left[i] == 0 && next < LEASES ->
           assert(leads[i] >= granted_in);
           granted_in = leads[i];
           f = next; next++;
           top[i] = f + 1; left[i] = LEASE; sure[i] = LEASE; unknown[i] = false;
           message[f] = RECORD; message_from[f] = i; message_term[f] = leads[i];
           message_to[f] = NODES; message_left[f] = LEASE
       }
    /* Extend it, maybe late. */
    :: d_step {
           leads[i] != 0 && authority[i] > 0 && EXTENDABLE(i) && sure[i] < LEASE &&
#ifndef EXTENDEARLY
           (wait[i] <= LEASE || sure[i] > wait[i] - LEASE) &&
#endif
           learned[top[i] - 1] && !ended[top[i] - 1] ->
           f = top[i] - 1; forget_message(f);
           left[i] = LEASE; sure[i] = LEASE;
           message[f] = RECORD; message_from[f] = i; message_term[f] = leads[i];
           message_to[f] = NODES; message_left[f] = LEASE
       }
#if RELEASES > 0
    :: d_step {
           releases > 0 && leads[i] != 0 && left[i] > 0 && held[top[i] - 1] > 0 ->
           releases--; held[top[i] - 1] = 0; ended[top[i] - 1] = true; left[i] = 0;
           unknown[i] = false
       }
#endif
#if BREAKS > 0
    /* An operator breaks the lock. It is free when the other nodes have removed their records. */
    :: d_step {
           breaks > 0 && leads[i] != 0 && ready[i] && authority[i] > 0 && left[i] > 0 &&
           message[top[i] - 1] == NOTHING ->
           breaks--; breaking[i] = true; sure[i] = 0; held[top[i] - 1] = 0
       }
    :: d_step {
           leads[i] != 0 && breaking[i] && left[i] > 0 ->
           n = 0;
           f = 1;
           do
           :: n < NODES ->
              if
              :: n != i && (down[n] || LEDGER(n, top[i] - 1) > 0 || seen[n] != leads[i]) -> f = 0
              :: else
              fi;
              n++
           :: else -> break
           od;
#ifdef BREAKEARLY
           f = 1;
#endif
           if
           :: f == 1 -> left[i] = 0; unknown[i] = false; breaking[i] = false
           :: else
           fi
       }
#endif
    od
}

/* Between two nodes. */
proctype Link(byte i; byte m)
{
end:
    do
    /* Node m hands over to keeper i. A keeper that grants already accepts only what it knows. */
    :: d_step {
           leads[i] != 0 && !down[m] && leads[m] == 0 && seen[m] <= leads[i] &&
           !ready[i] && !(handed[i] & BIT(m)) ->
#ifndef NOPROMISE
           seen[m] = leads[i];
#endif
           handed[i] = handed[i] | BIT(m);
           missing[i] = MAX(missing[i], incomplete[m]);
           f = 0;
           do
           :: f < LEASES -> merge(i, m, f); f++
           :: else -> break
           od
       }
    :: d_step {
           leads[i] != 0 && !down[m] && leads[m] == 0 && seen[m] < leads[i] && ready[i] ->
           seen[m] = leads[i];
           f = 0;
           do
           :: f < LEASES ->
              if :: f + 1 != top[i] -> LEDGER(m, f) = 0; CERTAIN(m, f) = 0 :: else fi;
              f++
           :: else -> break
           od
       }
    /* Keeper i completes the ledger of a node that was restarted. */
    :: d_step {
           leads[i] != 0 && !down[m] && leads[m] == 0 && !OUTDATED(m, leads[i]) &&
#ifndef FILLEARLY
           ready[i] &&
#endif
           incomplete[m] > 0 ->
           seen[m] = MAX(seen[m], leads[i]); incomplete[m] = 0;
#ifndef FILLEMPTY
           if
           :: left[i] > 0 ->
              LEDGER(m, top[i] - 1) = MAX(LEDGER(m, top[i] - 1), left[i]);
              CERTAIN(m, top[i] - 1) = MAX(CERTAIN(m, top[i] - 1), sure[i])
           :: else
           fi
#endif
       }
    /* Keeper i reports a lease that other nodes may not know. */
    :: d_step {
           leads[i] != 0 && !down[m] && leads[m] == 0 && !OUTDATED(m, leads[i]) && unknown[i] ->
           seen[m] = MAX(seen[m], leads[i]);
           LEDGER(m, top[i] - 1) = MAX(LEDGER(m, top[i] - 1), left[i]);
           CERTAIN(m, top[i] - 1) = MAX(CERTAIN(m, top[i] - 1), sure[i]);
           unknown[i] = false
       }
#if RELEASES > 0 || BREAKS > 0
    /* Keeper i reports that a lease has ended. */
    :: d_step {
           leads[i] != 0 && !down[m] && leads[m] == 0 && seen[m] <= leads[i] && top[i] > 0 &&
           (breaking[i] || left[i] == 0) && message[top[i] - 1] == NOTHING &&
#ifndef GONEEARLY
           ready[i] &&
#endif
           (LEDGER(m, top[i] - 1) > 0 || seen[m] < leads[i]) ->
           seen[m] = leads[i]; LEDGER(m, top[i] - 1) = 0; CERTAIN(m, top[i] - 1) = 0
       }
#endif
    od
}

/* The messages about one lease. */
proctype Lease(byte l)
{
end:
    do
    /* The keeper sends the record: to the node of the client, or to a witness. */
    :: atomic {
           message[l] == RECORD && message_to[l] == NODES ->
           if
           :: message_from[l] != 0 -> message_to[l] = 0
           :: message_from[l] != 1 -> message_to[l] = 1
           :: message_from[l] != 2 -> message_to[l] = 2
#if NODES > 3
           :: message_from[l] != 3 -> message_to[l] = 3
#endif
           fi;
           if
           :: message_own[l] = true
           :: skip
           fi;
#ifdef LATEWITNESS
           d_step { if :: message_own[l] -> learn(l) :: else fi };
#endif
#ifdef LATERECORD
           d_step { if :: !message_own[l] -> learn(l) :: else fi };
#endif
       }
    :: d_step {
           message[l] == RECORD && message_to[l] != NODES && !down[message_to[l]] &&
           leads[message_to[l]] == 0 ->
           if
           :: OUTDATED(message_to[l], message_term[l]) -> forget_message(l)
           :: else ->
              seen[message_to[l]] = MAX(seen[message_to[l]], message_term[l]);
              if
              :: TIME_LEFT > LEDGER(message_to[l], l) -> LEDGER(message_to[l], l) = TIME_LEFT
              :: else
              fi;
              CERTAIN(message_to[l], l) = MAX(CERTAIN(message_to[l], l), message_left[l]);
              if
              :: message_own[l] -> message[l] = NOTED; message_to[l] = 0
              :: else -> learn(l); forget_message(l)
              fi
           fi
       }
    :: d_step {
           message[l] == NOTED ->
           if
           :: leads[message_from[l]] == message_term[l] -> learn(l)
           :: else
           fi;
           forget_message(l)
       }
    od
}

init
{
    byte i, m;

    atomic {
        leads[0] = 1; ready[0] = true; authority[0] = AUTHORITY; settled[1] = true;
        do
        :: i < NODES ->
           run Node(i);
           m = 0;
           do
           :: m < NODES -> if :: m != i -> run Link(i, m) :: else fi; m++
           :: else -> break
           od;
           i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < LEASES -> run Lease(i); i++
        :: else -> break
        od;
        i = 0; m = 0
    }
}
