/* sluice.h - the one public header of Sluice.
 *
 *     struct sluice_canal *c;
 *     if (sluice_canal_open(NULL, NULL, &c) != SLUICE_OK) return 1;
 *     struct sluice_room room = {.per = 3, .buckets = 1};     // room for 3 units
 *     int64_t nth = sluice_canal_acquire(c, "db", room, NULL);
 *     if (nth > 0) {                                          // we are the nth of 3
 *         talk_to_the_database();
 *         sluice_canal_release(c, "db", 1);
 *     }
 *     sluice_canal_close(c);
 *
 * A canal is a counting lock in shared memory. Each caller declares on every call
 * how much room the lock has, as it sees things at that moment: `per` units for each
 * of `buckets` things. The library refuses whoever would not fit into the room it
 * declares itself, so the room may grow and shrink while the lock is held, and
 * callers that disagree may mix freely.
 *
 * What a thread holds is given back when it releases it, when the thread exits, when
 * its process exits, executes another program or is killed at any instruction
 * whatever. Before anybody is told SLUICE_EFULL the permits of the dead are given
 * back. There is never one permit too many or too few. (docs/guarantees.md)
 *
 * What this part does not do:
 *   - It is not fair: of several waiters any one may be next.
 *   - It does not count re-entrance: each acquire asks for more units. A thread that
 *     waits for what it alone holds waits until its time is over.
 *   - It is not for signal handlers: no function here is async-signal-safe.
 *   - It has no fence: what one machine guards needs none, as nobody's permit ends
 *     while its holder lives.
 *   - A permit belongs to the thread that took it; no other may release it.
 *   - Sharing a segment means trusting everyone who can write to its file. A damaged or
 *     crafted file does not crash or hang a process that opens it, but its locks protect
 *     nothing. A process that uses a file while it is truncated receives SIGBUS. Set the
 *     file's permissions accordingly.
 *
 * Words used about pointers: *borrows* - read during the call only; *copies* - same,
 * and keeps its own; *gives* - the caller must free it with the function named.
 *
 * Results: SLUICE_OK is 0, every failure is a negative enum sluice_status, and a
 * failure means that nothing changed. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION "0.1.0"

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

/* --- Status --------------------------------------------------------------- */

/* Every status, once: name, number, word, what it means and what to do.
 * Numbers never change their meaning; new ones are added at the end. */
/* clang-format off */
#define SLUICE_STATUS_MAP(X)                                                                   \
    X(OK,           0, "OK",        "done")                                                    \
    X(EFULL,       -1, "FULL",      "the lock has no room for this request")                   \
    X(ENOTHELD,    -2, "NOTHELD",   "this thread does not hold that many units of the key")    \
    X(ETOOBIG,     -3, "TOOBIG",    "more units than the declared room, or than a lock can count") \
    X(EINVAL,      -4, "INVALID",   "an argument is outside its allowed range")                \
    X(ENOMEM,      -5, "NOMEM",     "out of memory")                                           \
    X(ENOSPC,      -6, "NOSPACE",   "no space left for the segment where its file lies")       \
    X(EACCES,      -7, "NOACCESS",  "no permission to open or create the segment's file")      \
    X(EOWNER,      -8, "OWNER",     "the segment's file belongs to another user; using a shared segment means trusting everyone who can write to it") \
    X(EFOREIGN,    -9, "FOREIGN",   "the file is not a Sluice segment")                        \
    X(EVERSION,   -10, "VERSION",   "the segment was made by another version of Sluice")       \
    X(ETRUNCATED, -11, "TRUNCATED", "the segment's file is shorter than it says; remove it when nobody uses it") \
    X(ESMALLER,   -12, "SMALLER",   "the segment exists and has fewer keys, slots or records than asked for") \
    X(EKEYS,      -13, "NOKEYS",    "the key table is full, and every key in it is in use")    \
    X(ESLOTS,     -14, "NOSLOTS",   "the slot table is full: too many threads use this segment") \
    X(ERECORDS,   -15, "NORECORDS", "the record table is full: too many threads times keys in use") \
    X(ETHREAD,    -16, "THREAD",    "the handle belongs to another thread; a permit is given back by the thread that took it") \
    X(EFORKED,    -17, "FORKED",    "the handle was made before fork(); the child must make its own") \
    X(EBUSY,      -18, "BUSY",      "another process is stopped in the middle of changing the key table or making the segment") \
    X(ENOCAS,     -19, "NOCAS",     "this processor has no 16-byte compare-and-swap")          \
    X(EIO,        -20, "IO",        "the system refused; errno says why")                      \
    X(ENOENT,     -21, "NOENT",     "there is no such segment, or no such key in it")          \
    X(ESEGMENTS,  -22, "SEGMENTS",  "this thread uses too many segments at one time")         \
    X(EDRAINED,   -23, "DRAINED",   "nothing is granted on this key at present: it is drained") \
    X(EDEADLOCK,  -24, "DEADLOCK",  "the request would wait for what its own session holds")  \
    X(ELOST,      -25, "LOST",      "the grant is no longer held under this fence")           \
    X(ENOLEASE,   -26, "NOLEASE",   "the grant has no lease: it ends with its session")       \
    X(EWAITERS,   -27, "WAITERS",   "too many wait for this key") \
    X(EASKED,     -28, "ASKED",     "a higher priority waits for this grant: release it, or it ends with its lease") \
    X(EFENCES,    -29, "NOFENCES",  "there is no fence left to grant with, until more are written down") \
    X(ERECOVERING,-30, "RECOVERING", "the server has crashed: nothing is granted until the leases it gave have ended") \
    X(EUNREACHABLE, -31, "UNREACHABLE", "the server cannot be reached") \
    X(ECLOSED,      -32, "CLOSED",     "the connection to the server has ended or was given up, or the handle was closed") \
    X(EPROTOCOL,    -33, "PROTOCOL",   "what came is no reply of a server, or one that is too large") \
    X(EDENIED,      -34, "DENIED",     "the server wants a password, or another one") \
    X(ENOQUORUM,    -35, "NOQUORUM",   "too few nodes answer: nothing is granted without a majority") \
    X(EMAJORITY,    -36, "MAJORITY",   "a majority of nodes cannot do this: only exclusive locks with LEASE") \
    X(ENODES,       -37, "NODES",      "the list of nodes was not changed") \
    X(ERESTART,     -38, "RESTART",    "a cycle of transactions that wait for each other was broken here: begin again") \
    X(ESTALE,       -39, "STALE",      "another keeper is current: begin again") \
    X(EBARRED,      -40, "BARRED",     "this transaction was given up: begin again") \
    X(ENOKEEPER,    -41, "NOKEEPER",   "there is no keeper at present") \
    X(ELOCKS,       -42, "LOCKS",      "the transaction has too many locks") \
    X(EWRITES,      -43, "WRITES",     "the transaction writes too much") \
    X(EAGE,         -44, "AGE",        "the transaction took too long, and was aborted") \
    X(ETRANSACTIONS,-45, "TRANSACTIONS", "there are too many transactions") \
    X(ENOTX,        -46, "NOTX",       "there is no transaction here, or there is one already") \
    X(EDAMAGED,     -47, "DAMAGED",    "the segment is damaged; remove it when no process uses it")
/* clang-format on */

enum sluice_status {
#define SLUICE_X(name, number, word, text) SLUICE_##name = number,
    SLUICE_STATUS_MAP(SLUICE_X)
#undef SLUICE_X
};

/* The one word of a status ("FULL"), and its sentence. Never NULL; a positive number
 * counts as OK, an unknown one has the word "UNKNOWN". */
SLUICE_API const char *sluice_status_word(int64_t status);
SLUICE_API const char *sluice_status_text(int64_t status);

/* --- Canals: life --------------------------------------------------------- */

struct sluice_canal; /* An open segment. Opaque. Any thread may use it. */
struct sluice_key;   /* A resolved key. Opaque. It belongs to one thread. */

/* Limits. A key is a string of 1 to SLUICE_KEY_BYTES_MAX bytes. */
#define SLUICE_KEY_BYTES_MAX 255u
#define SLUICE_ROOM_MAX UINT32_MAX         /* per * buckets, of one call */
#define SLUICE_UNITS_MAX ((1u << 30) - 1u) /* units of one call */
#define SLUICE_KEYS_MAX (1u << 24)         /* keys of one segment */
#define SLUICE_SLOTS_MAX (1u << 16)        /* threads of one segment */
#define SLUICE_RECORDS_MAX (1u << 26)      /* threads x keys of one segment */
#define SLUICE_SEGMENTS_MAX \
    1024u                            /* segments of one thread; what the
                                            * dead had in more than 2048 is lost */
#define SLUICE_FOREVER ((int64_t)-1) /* a wait without end */

/* How a segment is made. Zero means the default. Sizes matter only to whoever
 * creates the segment; later openers get what is there, or SLUICE_ESMALLER. */
struct sluice_canal_options {
    uint32_t keys;      /* Keys in use at one time. Default 4096. */
    uint32_t slots;     /* Threads at one time. Default 1024. */
    uint32_t records;   /* Pairs of thread and key at one time. Default 16384. Given to
                         * threads by eight and kept by them until they exit: at least
                         * eight for each thread, and as many as it ever had keys. */
    uint32_t mode;      /* Permissions of a new file. Default 0600. With bits for group
                         * or others a file of another user is accepted too: set them
                         * only if you trust its owner. */
    uint32_t anonymous; /* 1: no file, for the threads of this process and children
                         * that it forks. The name is then not looked at. */
    uint32_t existing;  /* 1: do not create; SLUICE_ENOENT if there is none. */
};

/* Open a segment, and create it if need be. Name: NULL for the user's own,
 * /dev/shm/sluice.<uid>, or /dev/shm/sluice-<uid>.<digits> if another user has taken that
 * name; a name without a slash for /dev/shm/sluice.<name>; otherwise a path. The user's own
 * segment is never a file of another user. Copies name and options; gives *out, to be closed
 * by sluice_canal_close().
 * EINVAL, ENOMEM, ENOSPC, EACCES, EOWNER, EFOREIGN, EVERSION, ETRUNCATED, ESMALLER,
 * EBUSY, ENOCAS, EIO, ENOENT. */
SLUICE_API int sluice_canal_open(const char *name,
                                 const struct sluice_canal_options *options,
                                 struct sluice_canal **out);

/* Give back what the calling thread holds, unless it is tethered, and close. Other threads of the process
 * that used the segment keep what they hold until they exit; the memory is unmapped
 * after the last of them. No thread may use c after this, nor a handle made from it,
 * other than to free the handle. NULL is allowed. */
SLUICE_API void sluice_canal_close(struct sluice_canal *c);

/* The absolute path of the segment's file, until c is closed; NULL for an anonymous one. */
SLUICE_API const char *sluice_canal_path(const struct sluice_canal *c);

/* 1: the file was removed, moved, replaced or truncated. A process that opens the segment now
 * gets another one, where the locks that are held here have no effect.
 * 0: it is still there, or that cannot be told. EINVAL. */
SLUICE_API int sluice_canal_removed(const struct sluice_canal *c);

/* Remove a segment's file. Who has it open goes on with what is then a segment of
 * its own. EINVAL, ENOENT, EACCES, EFOREIGN, EIO. */
SLUICE_API int sluice_canal_remove(const char *name);

/* --- Canals: acquire and release ------------------------------------------ */

/* How much room the lock has, as the caller sees it now: per * buckets units. No room
 * (a zero) is allowed: the answer is then SLUICE_EFULL. */
struct sluice_room {
    uint32_t per;
    uint32_t buckets;
};

/* What else a caller may want. Zero means the default; NULL means all defaults. */
struct sluice_want {
    uint32_t units; /* Default 1. All of them or none. */
    uint32_t
        again; /* 1: goes on with a wait that has just ended, for who looks inside. */
    int64_t wait_ms; /* Default 0: do not wait. SLUICE_FOREVER: without end. */
};

/* Ask for units of a key. Borrows all arguments. Greater than 0: granted, and this is
 * the number of units now held by all, as canal lock's {acquired, N}. SLUICE_EFULL: no
 * room, also none that dead holders had left, and the time to wait is over. The number
 * counts the dead as long as nobody has needed their units. ETOOBIG, EINVAL, ENOMEM,
 * EKEYS, ESLOTS, ERECORDS, ESEGMENTS, EIO, EDAMAGED; EBUSY after a second, also without a wait, if
 * somebody is stopped in the middle of changing the key table and the name is new, or is
 * just being put back into its place after a death there. */
SLUICE_API int64_t sluice_canal_acquire(struct sluice_canal *c, const char *key,
                                        struct sluice_room room,
                                        const struct sluice_want *want);

/* Give units back that this thread holds. Waiters are woken. ENOTHELD if the thread
 * holds fewer; EINVAL if units is 0. */
SLUICE_API int sluice_canal_release(struct sluice_canal *c, const char *key,
                                    uint32_t units);

/* How many units of a key are held, those of the not yet noticed dead included. One
 * look-up and one load; takes no slot. 0 for a key that nobody uses. EINVAL, EBUSY,
 * EIO. */
SLUICE_API int64_t sluice_canal_count(struct sluice_canal *c, const char *key);

/* --- Canals: the same by handle, for speed -------------------------------- */

/* Look a key up once. While the handle lives, the key keeps its place in the table.
 * Gives *out to the calling thread, to be freed by sluice_key_free(). EINVAL, ENOMEM,
 * EKEYS, ESLOTS, ERECORDS, ESEGMENTS, EBUSY, EIO. */
SLUICE_API int sluice_key_resolve(struct sluice_canal *c, const char *key,
                                  struct sluice_key **out);

/* Free a handle. What is held stays held, and may be released by name. NULL is
 * allowed, and so is a handle whose thread is gone or that came over a fork. ETHREAD:
 * it is that of another, living thread, and was not freed. */
SLUICE_API int sluice_key_free(struct sluice_key *k);

/* As the functions by name. Besides their statuses ETHREAD and EFORKED. */
SLUICE_API int64_t sluice_key_acquire(struct sluice_key *k, struct sluice_room room,
                                      const struct sluice_want *want);
SLUICE_API int sluice_key_release(struct sluice_key *k, uint32_t units);
SLUICE_API int64_t sluice_key_count(const struct sluice_key *k);

/* --- Canals: tend and look inside ----------------------------------------- */

/* Give back what all dead threads of the segment held, without being asked for it.
 * Returns the number of units. Acquire does this by itself for the key it needs. */
SLUICE_API int64_t sluice_canal_reap(struct sluice_canal *c);

/* Make what the calling thread holds, now and later, last as long as any process that
 * has the file descriptor *fd: it is inherited by fork and kept over exec. When the
 * thread is dead its permits come back only after the last such process has closed it
 * or died. For wrappers that start a program under a lock. The descriptor is given;
 * close it to end the tether. So a wrapper whose program has ended closes the
 * descriptor and then the canal: what others have inherited stays held, the rest is
 * given back at once. ENOMEM, ESLOTS, ESEGMENTS, EBUSY (tethered already), EIO, EINVAL (also for an
 * anonymous segment). */
SLUICE_API int sluice_canal_tether(struct sluice_canal *c, int *fd);

/* What a segment has room for and how much of that is in use. */
struct sluice_canal_info {
    uint32_t keys, keys_used;
    uint32_t slots, slots_used;
    uint32_t records, records_used;
    uint64_t bytes; /* Of the whole segment. */
};
SLUICE_API int sluice_canal_info(struct sluice_canal *c, struct sluice_canal_info *out);

struct sluice_key_info {
    char key[SLUICE_KEY_BYTES_MAX + 1];
    uint64_t held;           /* Units, of the living and of the not yet noticed dead. */
    uint32_t holders;        /* Threads that hold some. */
    uint32_t waiters;        /* Threads that wait. */
    struct sluice_room room; /* The largest that a holder or waiter declared last. */
    uint32_t rooms_differ;   /* 1: holders or waiters declare different rooms. */
};

/* A thread that holds a key or waits for it. */
struct sluice_holder {
    int32_t pid;
    int32_t tid;
    char program[16]; /* As the kernel names the thread's program. */
    uint32_t waits;   /* 0: holds. 1: waits. */
    uint32_t dead;    /* 1: it has died; its units are about to come back. */
    uint32_t left;    /* 1: it has died; its units are those of processes that
                              * have inherited its tether. */
    uint32_t slot;    /* Its slot. A tether is a lock on the byte of the segment's
                              * file that has this number. */
    uint64_t units;   /* Held, or wanted. */
    struct sluice_room room; /* What it declared last. */
    int64_t since_ms;        /* Since when, in ms since 1970; to about 4 ms. */
};

/* Iterate. Set *cursor to 0 first; 1: *out is filled, 0: that was all, or a negative
 * status. What changes meanwhile may be seen or not; what stays is seen once. */
SLUICE_API int sluice_canal_next_key(struct sluice_canal *c, uint64_t *cursor,
                                     struct sluice_key_info *out);
SLUICE_API int sluice_canal_next_holder(struct sluice_canal *c, const char *key,
                                        uint64_t *cursor, struct sluice_holder *out);

/* The picture of a lock that canal lock's users know: held 7 of {3, 3} is "[3,3,1]".
 * What exceeds the declared room stands in further buckets. Writes at most size bytes
 * with a closing NUL, ending in "...]" if it must; returns what was written. */
SLUICE_API size_t sluice_canal_picture(uint64_t held, struct sluice_room room,
                                       char *out, size_t size);

/* --- Locks of a service ---------------------------------------------------- */

/* The locks of a server, for the threads of one process, without a server: exclusive,
 * shared and counting ones, with fences, leases, priorities and stealing.
 *
 *     static void lost(void *stop, const struct sluice_event *e)
 *     {
 *         if (e->what != SLUICE_WITHDRAWN) atomic_store((atomic_bool *)stop, true);
 *     }
 *
 *     struct sluice *s;
 *     struct sluice_grant g;
 *     atomic_bool stop = false;
 *     if (sluice_open("memory:", NULL, &s) != SLUICE_OK) return 1;
 *     struct sluice_request r = {.wait_ms = 5000, .lost = lost, .arg = &stop};
 *     if (sluice_acquire(s, "printer", &r, &g) == SLUICE_OK) {
 *         while (!stop && print_a_page(g.fence)) {}      // until one of more priority asks
 *         sluice_release(s, "printer", g.fence);
 *     }
 *     sluice_close(s);
 *
 * Who waits stands in line: larger priority first, then who came first. One who steals asks
 * holders of less priority to go: their callback is called, they release, and the thief has
 * the lock, with a higher fence. One that does not answer keeps it to the end of its lease,
 * and cannot extend it; without a lease, for as long as it likes.
 *
 * A grant without a lease belongs to the thread that took it and ends with that thread. One
 * with a lease may be extended and released by any thread, and outlives its own.
 * There is no re-entrance: each acquire asks for more units. (docs/in-process.md) */

struct
    sluice; /* A lock service: here memory of this process. Opaque. Any thread may use it. */

/* Bounds. Zero means the default. */
struct sluice_options {
    uint32_t keys;    /* Held or waited for at one time. Default 1048576. */
    uint32_t waiters; /* Of one key. Default 65536. */
};

/* Open a service. Where: "memory:", and nothing else yet; each call makes another one, which
 * has locks of its own. It has two threads; they take no signals. Copies all; gives *out, to
 * be closed by sluice_close(). EINVAL, ENOMEM, EIO (a thread cannot be started). */
SLUICE_API int sluice_open(const char *where, const struct sluice_options *options,
                           struct sluice **out);

/* Close it. Who waits in it is told SLUICE_ECLOSED, and has left when this returns; a
 * callback that runs has returned, unless this is called in it, and no other one follows. No
 * call may begin after this has. All grants are gone. NULL is allowed; in the child of a fork
 * it does nothing. */
SLUICE_API void sluice_close(struct sluice *s);

/* What happens to a grant without its holder's doing. */
enum sluice_news {
    SLUICE_ASKED = 1, /* One of more priority waits for it: release it soon. */
    SLUICE_WITHDRAWN, /* That one waits no more: go on, and extend again. */
    SLUICE_STOLEN,  /* That one has entered beside it, as it had said (steal_early). */
    SLUICE_EXPIRED, /* Its lease has ended: it is not held any more. */
    SLUICE_BROKEN,  /* sluice_break(): it is gone, or its lease is its last. */
};

struct sluice_event {
    enum sluice_news what;
    int32_t priority; /* Of ASKED: that of who waits. */
    const char *key;  /* Borrowed; until the callback returns. */
    uint64_t fence;   /* Of the grant that this is about. */
    int64_t left_ms;  /* Of ASKED: of its lease; SLUICE_FOREVER: it has none. */
};

#define SLUICE_VALUE_BYTES_MAX 255u /* Of a value, and of a note. */
#define SLUICE_STEAL_AUTO (-1.0)

/* What is asked for. Zero means the default. Borrowed, and its texts copied. */
struct sluice_request {
    uint32_t shared; /* 1: with others who share. It has then no room and no units. */
    uint32_t per,
        buckets;      /* The room, as struct sluice_room. Default 1 and 1: a mutex. */
    uint32_t units;   /* Default 1. All of them or none. */
    int32_t priority; /* Larger ones first. */
    uint32_t steal;   /* 1: while it waits, holders of less priority are asked to go. */
    double
        steal_early;  /* 0: it enters when they are out, never before. Else beside them,
                            * when this fraction of wait_ms is still left; 1: at once.
                            * SLUICE_STEAL_AUTO: when they take longer than such answers took
                            * lately, once there have been 20. */
    int64_t wait_ms;  /* Default 0: do not wait. SLUICE_FOREVER: without end. */
    int64_t lease_ms; /* Default 0: none. */
    const char *value; /* For others to read; NULL: "". So is the note. */
    const char *note;
    /* Called when something happens to the grant; NULL: nothing. Each thing once, asked again
     * after withdrawn; one call at a time for a whole service, on a thread of its own, without
     * any lock of ours: all functions may be called in it. See sluice_release() for how
     * long arg is used. */
    void (*lost)(void *arg, const struct sluice_event *e);
    void *arg;
};

struct sluice_grant {
    uint64_t fence; /* Rises with every grant of a service. Below 2^53. */
    uint64_t held;  /* Units now held by all: this is the how-manieth. */
    int64_t lease_ms;
    int64_t waited_ms;
    uint32_t overlapping; /* 1: one who was robbed or broken may not know of it yet. */
};

/* Ask for a lock; NULL for a request of all defaults. Borrows key and request, fills *out.
 * EFULL: it is taken, and the time to wait is over. EDEADLOCK: the thread would wait for what
 * it alone holds, without a lease. ETOOBIG (more units than the room; a long text), EINVAL,
 * EKEYS, EWAITERS, ECLOSED, EFORKED, ENOMEM. A wait is no cancellation point. */
SLUICE_API int sluice_acquire(struct sluice *s, const char *key,
                              const struct sluice_request *request,
                              struct sluice_grant *out);

/* Give a grant back; with fence 0 the newest of the key that this thread took. When this
 * returns no callback of the grant runs, nor follows, whatever the result; only in the
 * callback itself it does not wait for that. So do not call it with a mutex locked that the
 * callback needs. ELOST: there is no such grant any more; ENOTHELD: the same with fence 0;
 * ETHREAD: it has no lease, and is another thread's; EINVAL, EFORKED, ENOMEM, ECLOSED. */
SLUICE_API int sluice_release(struct sluice *s, const char *key, uint64_t fence);

/* Let a lease end lease_ms from now, if that is later than it would. EASKED: one of more
 * priority waits for it; ELOST: it is not held any more, or broken; ENOLEASE; EINVAL,
 * EFORKED, ENOMEM, ECLOSED. */
SLUICE_API int sluice_extend(struct sluice *s, const char *key, uint64_t fence,
                             int64_t lease_ms);

/* SLUICE_OK: the grant is held now. EASKED: it is, and is asked to go, or was robbed. ELOST:
 * it is not held. EINVAL, EFORKED, ECLOSED. */
SLUICE_API int sluice_check(struct sluice *s, const char *key, uint64_t fence);

/* Take a grant away from whoever has it: at once if it has no lease or at_once is 1, and the
 * next grant of the key is then marked as overlapping; else it is only not extended any more.
 * 2: it is gone. 1: its lease is its last. ELOST: there is none. EINVAL, EFORKED, ECLOSED. */
SLUICE_API int sluice_break(struct sluice *s, const char *key, uint64_t fence,
                            uint32_t at_once);

/* One who holds a key or waits for it. */
struct sluice_view {
    uint64_t fence; /* Of a holder. */
    int32_t tid;    /* The kernel's number of the thread that asked. */
    int32_t priority;
    uint32_t waits;  /* 0: holds. 1: waits. */
    uint32_t shared; /* As all below: 1 if it is so. */
    uint32_t asked;  /* It holds, and is asked to go, or was robbed. */
    uint32_t steals; /* It waits, and steals. */
    uint32_t broken; /* Its lease is its last. */
    uint32_t units;
    struct sluice_room room; /* What it declared. */
    int64_t left_ms;         /* Of its lease, or of its wait; SLUICE_FOREVER: no end. */
    int64_t since_ms;        /* For how long it has held or waited. */
    char value[SLUICE_VALUE_BYTES_MAX + 1];
    char note[SLUICE_VALUE_BYTES_MAX + 1];
};

/* Who holds a key, by fence, and then who waits, in the order of the line, all at one moment.
 * Returns how many they are and fills in the first of them, at most max. EINVAL, EFORKED,
 * ECLOSED. */
SLUICE_API int64_t sluice_look(struct sluice *s, const char *key,
                               struct sluice_view *out, size_t max);

/* --- A server, command by command ------------------------------------------ */

/* For any command of a server (docs/commands/): words go out, a reply comes in.
 *
 *     struct sluice_wire *w;
 *     struct sluice_reply *r;
 *     const char *words[] = {"ACQUIRE", "db", "LEASE", "30000"};
 *     if (sluice_wire_open("db7:5625", NULL, &w) != SLUICE_OK) return 1;
 *     if (sluice_wire_call(w, words, NULL, 4, &r) == SLUICE_OK) {
 *         if (r->type == SLUICE_REPLY_LIST) use(r->items[0].number);   // the fence
 *         sluice_reply_free(r);
 *     }
 *     sluice_wire_close(w);
 *
 * A wire is used by one thread at a time. Signals do not end a wait. */

#define SLUICE_SERVER_PORT "5625"
#define SLUICE_SERVER_DEFAULT "127.0.0.1:" SLUICE_SERVER_PORT

struct sluice_wire; /* A connection to a server. Opaque. */

/* How to connect. Zero means the default. */
struct sluice_wire_options {
    const char *password; /* NULL: none. */
    int64_t connect_ms;   /* To connect and be greeted, not to look a name up. 5000. */
    int64_t reply_ms;     /* For each call. SLUICE_FOREVER: a command may wait. */
    int resp;             /* The protocol, 2 or 3. 3: the server also tells news. */
    char *why; /* Where open writes why it failed, in words; NULL: nowhere. */
    size_t why_size;
};

enum sluice_reply_type {
    SLUICE_REPLY_NIL,
    SLUICE_REPLY_STATUS,  /* text: "OK". */
    SLUICE_REPLY_ERROR,   /* text: "LOST the grant is ...". */
    SLUICE_REPLY_TEXT,    /* text: any bytes. */
    SLUICE_REPLY_LINES,   /* text: for people, in lines. */
    SLUICE_REPLY_NUMBER,  /* number; text has it as it came. */
    SLUICE_REPLY_BOOL,    /* number: 1 or 0. */
    SLUICE_REPLY_DECIMAL, /* text: a number with a fraction, or a very large one. */
    SLUICE_REPLY_LIST,    /* items. */
    SLUICE_REPLY_MAP,     /* items: a name, its value, the next name... */
    SLUICE_REPLY_SET,     /* items. */
    SLUICE_REPLY_PUSH,    /* items: not a reply, but news that came by itself. */
};

/* A reply, a tree. What its type does not speak of is 0, and text then "". */
struct sluice_reply {
    enum sluice_reply_type type;
    int64_t number;
    const char *text; /* With a closing NUL that is not counted. */
    size_t text_bytes;
    struct sluice_reply *items;
    size_t count; /* Of items; of a map, names and values. */
};

/* Connect to "host", "host:port", "[::1]:port" or "unix:/path"; NULL for
 * SLUICE_SERVER_DEFAULT. Borrows address and options; gives *out, to be closed by
 * sluice_wire_close(). EINVAL (also if the address is none), ENOMEM, EUNREACHABLE, EDENIED,
 * EPROTOCOL: it is a server of something else. */
SLUICE_API int sluice_wire_open(const char *address,
                                const struct sluice_wire_options *options,
                                struct sluice_wire **out);

/* Send a command of n words and wait for its reply. Borrows words and lengths; NULL for
 * these if each word ends with a NUL. Gives *out. An error of the server is a reply too.
 * News that come before it are kept for sluice_wire_next(), at most 1024. EINVAL, ENOMEM,
 * ECLOSED (also if time is over), EPROTOCOL; after each of these but EINVAL, and ENOMEM
 * before it was sent, the wire is of no more use, and whether the command was done is not
 * known. */
SLUICE_API int sluice_wire_call(struct sluice_wire *w, const char *const *words,
                                const size_t *lengths, size_t n,
                                struct sluice_reply **out);

/* The same in two steps, for SUBSCRIBE, whose replies have no end, and to see news while
 * a command waits: next gives what comes next, be it news or a reply. */
SLUICE_API int sluice_wire_send(struct sluice_wire *w, const char *const *words,
                                const size_t *lengths, size_t n);
SLUICE_API int sluice_wire_next(struct sluice_wire *w, struct sluice_reply **out);

/* What was wrong, in words, until w is closed; "" if nothing was. */
SLUICE_API const char *sluice_wire_why(const struct sluice_wire *w);

/* NULL is allowed in both. What the connection held without a lease is given back. */
SLUICE_API void sluice_wire_close(struct sluice_wire *w);
SLUICE_API void sluice_reply_free(struct sluice_reply *reply);

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_H */
