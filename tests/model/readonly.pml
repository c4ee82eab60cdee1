/* readonly.pml - a transaction that only reads sees one moment.
 *
 * A reader reads x and then y, under read locks of its keeper; writers write both, under
 * write locks, in one commit. The reader then asks the engine whether what it saw is good:
 *
 *     engine     the term current?  not barred?  then it is
 *     keeper     when the reader's connection is gone, or seems so: bar it in the engine,
 *                then free its locks
 *
 * It needs both answers. Its locks keep writers of its own keeper away for as long as it
 * has them, and it may have lost them without knowing: then it is barred. They do not
 * keep away writers of the next keeper: then its term is over.
 *
 * Another keeper may be made current at any moment, the reader may seem gone at any moment
 * though it is not, and its question may be on its way for any time.
 *
 * Shown when the engine says that it is good: x and y are what it saw. So it took effect at
 * that moment, which is between its beginning and its answer.
 *
 * Configurations: how many WRITERS, each with one commit; READERS; TERMS.
 * Mutants, each of which must be found:
 *   NOASK       the engine is not asked
 *   NOBAR       it does not look whether the reader is barred
 *   NOTERM      it does not look at the term
 *   FREEFIRST   the keeper frees the locks, and then bars
 *   SHORTLOCKS  the reader gives each lock back when it has read
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef READERS
#define READERS 1
#endif
#ifndef TERMS
#define TERMS 2
#endif

/* ---- the engine ----------------------------------------------------------------- */

byte x, y, term = 1;
bool barred[READERS];

/* ---- keepers, by term: x and y are one item, as both are locked the same way ------ */

byte readers[TERMS + 1];          /* Who has it for reading, a bit each; */
bool written[TERMS + 1];          /* or one has it for writing. */

#define BIT(i) (1 << (i))

/* ---- readers -------------------------------------------------------------------- */

#ifdef NOTERM
#define CURRENT true
#else
#define CURRENT (term == t)
#endif
#ifdef NOBAR
#define BARRED false
#else
#define BARRED (barred[me])
#endif

bool with[READERS];               /* It has, or had, locks of this keeper: */
byte at_term[READERS];

proctype Reader(byte me)
{
    byte a, b, t;

    if :: t = term :: t = 1 fi;
    atomic {
        !written[t] ->
        readers[t] = readers[t] | BIT(me); at_term[me] = t; with[me] = true
    };
    a = x;
#ifdef SHORTLOCKS
    readers[t] = readers[t] & (255 - BIT(me));
    atomic { !written[t] -> readers[t] = readers[t] | BIT(me) };
#endif
    b = y;
    atomic {
        if
#ifdef NOASK
        :: true -> assert(a == b)
#else
        :: CURRENT && !BARRED -> assert(a == x && b == y)
        :: else
#endif
        fi
    };
    atomic {
        readers[t] = readers[t] & (255 - BIT(me));
        with[me] = false; a = 0; b = 0; t = 0
    }
}

/* It seems that the reader is gone. */
proctype Suspicion(byte me)
{
    byte t;

    if
    :: skip
    :: atomic { with[me] -> t = at_term[me] };
#ifdef FREEFIRST
       readers[t] = readers[t] & (255 - BIT(me));
       if :: atomic { t == term -> barred[me] = true } :: t != term fi
#else
       if :: atomic { t == term -> barred[me] = true } :: t != term fi;
       readers[t] = readers[t] & (255 - BIT(me))
#endif
    fi;
    t = 0
}

/* ---- writers -------------------------------------------------------------------- */

proctype Writer()
{
    byte t, v;

    if :: t = term :: t = 1 fi;
    atomic { readers[t] == 0 && !written[t] -> written[t] = true };
    v = x + 1;
    atomic {
        if
        :: t == term -> x = v; y = v
        :: else
        fi
    };
    atomic { written[t] = false; t = 0; v = 0 }
}

/* Another keeper is made current. */
active proctype Claims()
{
    do
    :: term < TERMS -> term++
    :: break
    od
}

init
{
    byte i;

    atomic {
        do
        :: i < READERS -> run Reader(i); run Suspicion(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < WRITERS -> run Writer(); i++
        :: else -> break
        od;
        i = 0
    }
}
