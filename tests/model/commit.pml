/* commit.pml - what is committed is committed once, and nothing is lost.
 *
 * A keeper has its locks in its memory and nowhere else; the engine has what lasts: x,
 * which term is current, which requests were committed, which transactions are barred.
 * Clients add one to x, each under a request of its own that goes with every attempt.
 *
 *     client     lock x at a keeper, maybe an old one;  read x;  have x + 1 committed
 *     engine     committed before? then it is;  the term current?  not barred?  apply
 *     keeper     frees a lock when its commit is answered; when the connection of its
 *                owner is gone: bar it in the engine, then free the lock
 *
 * Commits are on their way for any time and overtake each other. A connection may be lost
 * at any moment, and with it the answer: the client then does not know, and tries again
 * with a keeper that it takes for the current one. Another keeper may be made current at
 * any moment, too; the old one goes on granting until the engine refuses it. The engine
 * may refuse a commit for a reason of its own, as a full disk.
 *
 * Shown when something is applied: it is the first of its request, and it was computed from
 * what is there. Shown when a client is told: committed is committed; refused was not
 * committed when the engine looked, and this attempt never is. (An earlier one that was
 * lost may still be on its way: who has lost one tries again until it is told.)
 *
 * Configurations: how many CLIENTS, ATTEMPTS of each, and TERMS; LOSSES of connections;
 * FULL for refusals.
 * Mutants, each of which must be found:
 *   TERMFIRST   the engine looks at the term before it looks for the request
 *   FORGETS     the engine forgets requests with their term
 *   NOTERM      it does not look at the term
 *   NOBAR       it does not look whether a transaction is barred
 *   FREEFIRST   a keeper frees the lock, and then bars its owner
 *   EARLYFREE   a keeper frees the lock when the commit is on its way
 *   SESSION     it frees what the lost connection's client has now, not what it had
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef TERMS
#define TERMS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef FULL
#define FULL 0
#endif

#define IDS (CLIENTS * ATTEMPTS)
#define NOBODY IDS
#define CLIENT_OF(id) ((id) / ATTEMPTS)

/* ---- the engine ----------------------------------------------------------------- */

byte x, term = 1;
bool known[CLIENTS];     /* Requests that were committed, as the engine remembers. */
bool barred[IDS];

/* ---- keepers, by term ----------------------------------------------------------- */

byte owner[TERMS + 1] = NOBODY;
bool stopped[TERMS + 1];

/* ---- the world ------------------------------------------------------------------ */

#define UNSENT  0
#define SENT    1
#define OKAY    2
#define REFUSED 3

byte fate[IDS];          /* Of a commit; SENT: it is on its way. */
byte at_term[IDS];       /* Of which keeper, */
byte value[IDS];         /* and what it writes. */
bool gone[IDS];          /* Its connection is lost, and its keeper does not know yet. */
bool applied[CLIENTS];   /* Really. */
bool refused[IDS];       /* Its client received that. */
byte losses = LOSSES, refusals = FULL;

#define DUPLICATE (known[CLIENT_OF(id)])
#ifdef NOTERM
#define STALE false
#else
#define STALE (at_term[id] != term)
#endif
#ifdef NOBAR
#define BARRED false
#else
#define BARRED (barred[id])
#endif

inline apply()
{
    assert(!applied[CLIENT_OF(id)]);
    assert(value[id] == x + 1);
    assert(!refused[id]);
    x = value[id]; applied[CLIENT_OF(id)] = true; known[CLIENT_OF(id)] = true;
    fate[id] = OKAY
}

inline refuse()
{
    assert(!applied[CLIENT_OF(id)]);
    fate[id] = REFUSED
}

/* A commit comes to the engine, before or after any other. */
proctype Commit(byte id)
{
end:
    atomic {
        fate[id] == SENT ->
        if
#ifdef TERMFIRST
        :: STALE -> refuse()
        :: !STALE && DUPLICATE -> fate[id] = OKAY
#else
        :: DUPLICATE -> fate[id] = OKAY
        :: !DUPLICATE && STALE -> refuse()
#endif
        :: !DUPLICATE && !STALE && BARRED -> refuse()
        :: !DUPLICATE && !STALE && !BARRED -> apply()
        :: !DUPLICATE && !STALE && !BARRED && refusals > 0 ->
           refusals--; refuse()
        fi;
        value[id] = 0
    }
}

/* Another keeper is made current. */
active proctype Claims()
{
    do
    :: atomic {
           term < TERMS ->
           term++;
#ifdef FORGETS
           known[0] = false; known[1] = false
#endif
       }
    :: break
    od
}

/* ---- keepers -------------------------------------------------------------------- */

/* The engine is told, in one step; it refuses one that is not current, which then stops. */
inline bar()
{
    if
    :: t == term -> barred[id] = true
    :: else -> stopped[t] = true
    fi
}

inline free()
{
#ifdef SESSION
    if
    :: owner[t] != NOBODY && CLIENT_OF(owner[t]) == CLIENT_OF(id) -> owner[t] = NOBODY
    :: else
    fi
#else
    if :: owner[t] == id -> owner[t] = NOBODY :: else fi
#endif
}

/* One for each transaction: what its keeper does when its commit is answered, or when its
 * connection is lost. */
proctype Keeper(byte id)
{
    byte t;

end:
    do
    :: atomic {
           fate[id] >= OKAY && owner[at_term[id]] == id ->
           owner[at_term[id]] = NOBODY
       }
#ifdef EARLYFREE
    :: atomic {
           fate[id] == SENT && owner[at_term[id]] == id ->
           owner[at_term[id]] = NOBODY
       }
#endif
    :: atomic { gone[id] -> gone[id] = false; t = at_term[id] };
#ifdef FREEFIRST
       atomic { free() };
       atomic { bar(); t = 0 }
#else
       atomic { bar() };
       atomic { free(); t = 0 }
#endif
    od
}

/* ---- clients -------------------------------------------------------------------- */

proctype Client(byte me)
{
    byte a, id, t, r;

    do
    :: a == ATTEMPTS -> break
    :: a < ATTEMPTS ->
       id = me * ATTEMPTS + a;
       a++;
       /* The current keeper, or one that it takes for it. */
       if :: t = term :: t = 1 fi;
       if
       :: atomic {
              owner[t] == NOBODY && !stopped[t] ->
              owner[t] = id; at_term[id] = t
          }
       :: stopped[t] -> goto again
       fi;
       r = x;
       if
       :: atomic { value[id] = r + 1; fate[id] = SENT }
       :: atomic { losses > 0 -> losses--; gone[id] = true }; goto again
       fi;
       if
       :: fate[id] == OKAY -> assert(applied[me]); break
       :: fate[id] == REFUSED ->
          refused[id] = true;
          /* It may be lost now as well, and its keeper learns that late. */
          if :: atomic { losses > 0 -> losses--; gone[id] = true } :: skip fi
       :: atomic { losses > 0 -> losses--; gone[id] = true }
       fi;
again: t = 0; r = 0
    od;
    a = 0; id = 0; t = 0; r = 0
}

init
{
    byte i;

    atomic {
        do
        :: i < IDS -> run Commit(i); run Keeper(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < CLIENTS -> run Client(i); i++
        :: else -> break
        od;
        i = 0
    }
}
