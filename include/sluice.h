/* sluice.h - the public interface of Sluice.
 *
 *     struct sluice_canal *c;
 *     if (sluice_canal_open(NULL, NULL, &c) != SLUICE_OK) return 1;
 *     struct sluice_capacity capacity = {.per = 3, .buckets = 1}; // 3 units
 *     int64_t nth = sluice_canal_acquire(c, "db", capacity, NULL);
 *     if (nth > 0) {                                              // nth of 3
 *         talk_to_the_database();
 *         sluice_canal_release(c, "db", 1);
 *     }
 *     sluice_canal_close(c);
 *
 * This header has three parts:
 *   - canals: counting locks in shared memory, for the processes of one machine
 *     (sluice_canal_*, sluice_key_*);
 *   - a lock service inside one process, for its threads (sluice_open() and
 *     the functions after it);
 *   - a connection to a Sluice server (sluice_wire_*).
 *
 * A canal is a counting lock. Each caller declares the lock's capacity on every call:
 * `per` units for each of `buckets` resources. Sluice grants a request if the units held
 * by all threads plus the units requested fit into the capacity that this caller
 * declares. So the capacity can grow and shrink while the lock is held, and callers
 * may declare different capacities at the same time.
 *
 * A thread's units are released when the thread releases them, when it exits, and when
 * its process exits, executes another program or is killed, at any instruction. Sluice
 * releases the units of dead threads before it returns SLUICE_EFULL. The count is always
 * exact (docs/guarantees.md).
 *
 * Limits of canals:
 *   - They are not fair: a release wakes all waiters, and any of them may be next.
 *   - They are not re-entrant: each acquire requests more units. A thread that waits for
 *     units that it holds itself waits until its timeout.
 *   - No function of this header is async-signal-safe.
 *   - They have no fence (fencing token). A grant lasts as long as its holder lives, so no
 *     holder can act after it has lost the lock.
 *   - Only the thread that acquired units can release them.
 *   - Processes that share a segment must trust everyone who can write to its file. A
 *     damaged or crafted file does not crash or hang a process that opens it, but its
 *     locks protect nothing. A process that uses a file while it is truncated receives
 *     SIGBUS. Set the file's permissions accordingly.
 *
 * Ownership of pointer arguments: a function *borrows* an argument if it reads it during
 * the call only; it *copies* an argument if it keeps a copy; it *gives* a result if the
 * caller must free it with the function named.
 *
 * Results: SLUICE_OK is 0. Every failure is a negative enum sluice_status. A failed call
 * changes nothing. The comment of each function lists the statuses it can return, without
 * the prefix SLUICE_. */
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

/* All statuses: X(name, number, word, text). A number never changes its meaning; a new
 * status is added at the end. */
/* clang-format off */
#define SLUICE_STATUS_MAP(X)                                                                   \
    X(OK,           0, "OK",        "done")                                                    \
    X(EFULL,       -1, "FULL",      "not enough free capacity for this request") \
    X(ENOTHELD,    -2, "NOTHELD",   "this thread does not hold that many units of the key")    \
    X(ETOOBIG,     -3, "TOOBIG",    "more units than the declared capacity, or than a lock can count") \
    X(EINVAL,      -4, "INVALID",   "invalid argument, or argument out of range") \
    X(ENOMEM,      -5, "NOMEM",     "out of memory")                                           \
    X(ENOSPC,      -6, "NOSPACE",   "no space left for the segment's file") \
    X(EACCES,      -7, "NOACCESS",  "no permission to open or create the segment's file")      \
    X(EOWNER,      -8, "OWNER",     "the segment's file belongs to another user; if you share a segment, you trust everyone who can write to it") \
    X(EFOREIGN,    -9, "FOREIGN",   "the file is not a Sluice segment")                        \
    X(EVERSION,   -10, "VERSION",   "the segment was created by another version of Sluice") \
    X(ETRUNCATED, -11, "TRUNCATED", "the segment's file is too short; remove it when no process uses it") \
    X(ESMALLER,   -12, "SMALLER",   "the segment exists and has fewer keys, slots or records than requested") \
    X(EKEYS,      -13, "NOKEYS",    "the key table is full, and every key in it is in use")    \
    X(ESLOTS,     -14, "NOSLOTS",   "the slot table is full: too many threads use this segment") \
    X(ERECORDS,   -15, "NORECORDS", "the record table is full: too many pairs of thread and key are in use") \
    X(ETHREAD,    -16, "THREAD",    "the handle belongs to another thread; only the thread that acquired units can release them") \
    X(EFORKED,    -17, "FORKED",    "the handle was created before fork(); the child must create its own") \
    X(EBUSY,      -18, "BUSY",      "another process is stopped while it changes the key table or creates the segment") \
    X(ENOCAS,     -19, "NOCAS",     "this processor has no 16-byte compare-and-swap")          \
    X(EIO,        -20, "IO",        "the operating system reported an error in errno") \
    X(ENOENT,     -21, "NOENT",     "the segment or the key does not exist") \
    X(ESEGMENTS,  -22, "SEGMENTS",  "this thread uses too many segments at one time")         \
    X(EDRAINED,   -23, "DRAINED",   "the key is drained: no requests are granted") \
    X(EDEADLOCK,  -24, "DEADLOCK",  "deadlock: the request would wait for a lock that its own session holds") \
    X(ELOST,      -25, "LOST",      "the grant is no longer held under this fence")           \
    X(ENOLEASE,   -26, "NOLEASE",   "the grant has no lease; it ends with its session") \
    X(EWAITERS,   -27, "WAITERS",   "too many waiters for this key") \
    X(EASKED,     -28, "ASKED",     "a waiter of higher priority needs this lock: release it; its lease cannot be extended") \
    X(EFENCES,    -29, "NOFENCES",  "no fence available until the server has reserved more") \
    X(ERECOVERING,-30, "RECOVERING", "recovering after a crash: nothing is granted until the leases of the previous run have expired") \
    X(EUNREACHABLE, -31, "UNREACHABLE", "the server cannot be reached") \
    X(ECLOSED,      -32, "CLOSED",     "the connection or the handle was closed") \
    X(EPROTOCOL,    -33, "PROTOCOL",   "invalid or oversized reply from the server") \
    X(EDENIED,      -34, "DENIED",     "the server requires a password, or the password is wrong") \
    X(ENOQUORUM,    -35, "NOQUORUM",   "no quorum: too few nodes are reachable") \
    X(EMAJORITY,    -36, "MAJORITY",   "not supported by a majority cluster, which has exclusive locks with LEASE only") \
    X(ENODES,       -37, "NODES",      "the membership was not changed") \
    X(ERESTART,     -38, "RESTART",    "deadlock between transactions; this one was aborted: retry from TX.BEGIN") \
    X(ESTALE,       -39, "STALE",      "another keeper has taken over: retry from TX.BEGIN") \
    X(EBARRED,      -40, "BARRED",     "the transaction was aborted: retry from TX.BEGIN") \
    X(ENOKEEPER,    -41, "NOKEEPER",   "no keeper at the moment") \
    X(ELOCKS,       -42, "LOCKS",      "the transaction has too many locks") \
    X(EWRITES,      -43, "WRITES",     "the transaction writes too much data") \
    X(EAGE,         -44, "AGE",        "the transaction took too long and was aborted") \
    X(ETRANSACTIONS,-45, "TRANSACTIONS", "too many transactions") \
    X(ENOTX,        -46, "NOTX",       "no transaction is open, or one is open already") \
    X(EDAMAGED,     -47, "DAMAGED",    "the segment is damaged; remove it when no process uses it")
/* clang-format on */

enum sluice_status {
#define SLUICE_X(name, number, word, text) SLUICE_##name = number,
    SLUICE_STATUS_MAP(SLUICE_X)
#undef SLUICE_X
};

/* Return the name of a status ("FULL"), or its text. The result is never NULL. A positive
 * number counts as OK; the name of an unknown number is "UNKNOWN". */
SLUICE_API const char *sluice_status_word(int64_t status);
SLUICE_API const char *sluice_status_text(int64_t status);

/* --- Canals: open and close ------------------------------------------------ */

struct sluice_canal; /* An open segment. Opaque. Any thread may use it. */
struct sluice_key;   /* A resolved key. Opaque. It belongs to one thread. */

/* A key is a string of 1 to SLUICE_KEY_BYTES_MAX bytes. */
#define SLUICE_KEY_BYTES_MAX 255u
#define SLUICE_CAPACITY_MAX UINT32_MAX     /* per * buckets, in one call */
#define SLUICE_UNITS_MAX ((1u << 30) - 1u) /* units, in one call */
#define SLUICE_KEYS_MAX (1u << 24)         /* keys of one segment */
#define SLUICE_SLOTS_MAX (1u << 16)        /* threads of one segment */
#define SLUICE_RECORDS_MAX (1u << 26)      /* pairs of thread and key of one segment */

/* Segments that one thread uses at a time. When a thread dies, the kernel marks at most
 * 2048 robust mutexes; the units in any further segment would be lost. */
#define SLUICE_SEGMENTS_MAX 1024u

#define SLUICE_FOREVER ((int64_t)-1) /* wait without a timeout */

/* Options of sluice_canal_open(). Zero means the default. The sizes apply only if the call
 * creates the segment. If the segment exists, it keeps its sizes; if they are smaller than
 * requested, the call returns SLUICE_ESMALLER. */
struct sluice_canal_options {
    uint32_t keys;      /* Keys in use at one time. Default 4096. */
    uint32_t slots;     /* Threads at one time. Default 1024. */
    uint32_t records;   /* Pairs of thread and key at one time. Default 16384. A thread
                         * takes records in groups of eight and keeps them until it exits.
                         * Allow for eight per thread, and for as many as the thread ever
                         * has keys at one time. */
    uint32_t mode;      /* Permissions of a new file. Default 0600. If bits for group or
                         * others are set, the call also accepts an existing file of
                         * another user: set them only if you trust its owner. */
    uint32_t anonymous; /* 1: no file. For the threads of this process and the children
                         * that it forks. The name is ignored. */
    uint32_t existing; /* 1: do not create the segment; return SLUICE_ENOENT instead. */
};

/* Open a segment; create it if it does not exist. The name is
 *   NULL                   the user's default segment: ~/.local/state/sluice/segment, or
 *                          $XDG_STATE_HOME/sluice/segment; if that directory cannot be
 *                          used or is not on a local file system, /dev/shm/sluice.<uid>,
 *                          or /dev/shm/sluice-<uid>.<digits> if another user owns that
 *                          file
 *   a name without a slash /dev/shm/sluice.<name>
 *   a path                 this file
 * The default segment is never a file of another user, and its mode is 0600 in the home
 * directory. A segment of an earlier boot is created again. Copies name and options; gives
 * *out, to be closed with sluice_canal_close().
 * EINVAL, ENOMEM, ENOSPC, EACCES, EOWNER, EFOREIGN, EVERSION, ETRUNCATED, ESMALLER,
 * EBUSY, ENOCAS, EIO, ENOENT. */
SLUICE_API int sluice_canal_open(const char *name,
                                 const struct sluice_canal_options *options,
                                 struct sluice_canal **out);

/* Release all units of the calling thread, unless they are tethered, and close the canal.
 * Other threads of the process keep their units until they exit; the segment is unmapped
 * after the last of them. After this call no thread may use c or a handle resolved from
 * it, except to free the handle. NULL is allowed. */
SLUICE_API void sluice_canal_close(struct sluice_canal *c);

/* Return the absolute path of the segment's file, or NULL for an anonymous segment. The
 * string is valid until c is closed. */
SLUICE_API const char *sluice_canal_path(const struct sluice_canal *c);

/* Return 1 if the file was removed, moved, replaced or truncated: a process that opens the
 * segment now gets another one, where the locks held here have no effect. Return 0 if the
 * file is still there or if this cannot be determined. EINVAL. */
SLUICE_API int sluice_canal_removed(const struct sluice_canal *c);

/* Remove a segment's file. Processes that have it open continue to use it, but processes
 * that open the name later get a new segment. EINVAL, ENOENT, EACCES, EFOREIGN, EIO. */
SLUICE_API int sluice_canal_remove(const char *name);

/* --- Canals: acquire and release ------------------------------------------ */

/* The capacity of a lock, as the caller declares it: per * buckets units. If one of them
 * is 0, the request returns SLUICE_EFULL. */
struct sluice_capacity {
    uint32_t per;
    uint32_t buckets;
};

/* Further options of a request. Zero means the default; NULL means all defaults. */
struct sluice_want {
    uint32_t units;          /* Default 1. The request gets all of them or none. */
    uint32_t continues_wait; /* 1: the request continues a wait that has just timed out.
                              * sluice_canal_next_holder() then reports the start of the
                              * first wait. */
    int64_t wait_ms;         /* Default 0: do not wait. SLUICE_FOREVER: no timeout. */
};

/* Acquire units of a key. Borrows all arguments. If the result is positive, the request is
 * granted, and the result is the number of units that all threads now hold (as in canal
 * lock's {acquired, N}). This number includes units of dead threads that no request has
 * needed yet. SLUICE_EFULL: the units do not fit, even after the units of dead threads
 * have been released, and the wait timed out.
 * ETOOBIG, EINVAL, ENOMEM, EKEYS, ESLOTS, ERECORDS, ESEGMENTS, EIO, EDAMAGED.
 * EBUSY: the key is not in the key table, or its entry is being repaired, and for a second
 * another process has been stopped while it changes the table. This can happen even if
 * the request does not wait. */
SLUICE_API int64_t sluice_canal_acquire(struct sluice_canal *c, const char *key,
                                        struct sluice_capacity capacity,
                                        const struct sluice_want *want);

/* Release units that the calling thread holds, and wake the waiters. ENOTHELD: the thread
 * holds fewer units. EINVAL: units is 0, or the key is invalid. */
SLUICE_API int sluice_canal_release(struct sluice_canal *c, const char *key,
                                    uint32_t units);

/* Return the number of units held of a key, including units of dead threads that have not
 * been released yet; 0 for an unused key. This costs one lookup and one load, and takes no
 * slot. EINVAL, EBUSY, EIO. */
SLUICE_API int64_t sluice_canal_count(struct sluice_canal *c, const char *key);

/* --- Canals: the same by handle, for speed -------------------------------- */

/* Resolve a key once. As long as the handle exists, the key keeps its entry in the key
 * table. Gives *out to the calling thread, to be freed with sluice_key_free(). EINVAL,
 * ENOMEM, EKEYS, ESLOTS, ERECORDS, ESEGMENTS, EBUSY, EIO. */
SLUICE_API int sluice_key_resolve(struct sluice_canal *c, const char *key,
                                  struct sluice_key **out);

/* Free a handle. The thread's units remain held and can be released by name. NULL is
 * allowed, and so is a handle of an exited thread or of the parent process. ETHREAD: the
 * handle belongs to another living thread and was not freed. */
SLUICE_API int sluice_key_free(struct sluice_key *k);

/* These do the same as the functions by name. In addition to their statuses they return
 * ETHREAD and EFORKED. */
SLUICE_API int64_t sluice_key_acquire(struct sluice_key *k,
                                      struct sluice_capacity capacity,
                                      const struct sluice_want *want);
SLUICE_API int sluice_key_release(struct sluice_key *k, uint32_t units);
SLUICE_API int64_t sluice_key_count(const struct sluice_key *k);

/* --- Canals: maintain and inspect ------------------------------------------ */

/* Release the units of all dead threads of the segment. Return their number. Programs need
 * not call this: acquire does it for the key that it requests. EINVAL. */
SLUICE_API int64_t sluice_canal_reap(struct sluice_canal *c);

/* Tether the units of the calling thread, present and future ones, to a file descriptor.
 * fork() and exec() pass the descriptor on. After the thread has died, its units remain
 * held until the last process that has the descriptor closes it or dies. This is for
 * programs that start another program under a lock. Gives *fd; close it to end the tether.
 * When the started program has exited, close the descriptor first and then the canal:
 * units whose descriptor another process has inherited remain held, the rest is released
 * at once. ENOMEM, ESLOTS, ESEGMENTS, EIO. EBUSY: the thread is tethered already. EINVAL:
 * also for an anonymous segment. */
SLUICE_API int sluice_canal_tether(struct sluice_canal *c, int *fd);

/* The sizes of a segment, and how much of each is in use. */
struct sluice_canal_info {
    uint32_t keys, keys_used;
    uint32_t slots, slots_used;
    uint32_t records, records_used;
    uint64_t bytes; /* Size of the whole segment. */
};
SLUICE_API int sluice_canal_info(struct sluice_canal *c, struct sluice_canal_info *out);

struct sluice_key_info {
    char key[SLUICE_KEY_BYTES_MAX + 1];
    uint64_t held;                   /* Units held, including those of dead threads. */
    uint32_t holders;                /* Threads that hold units. */
    uint32_t waiters;                /* Threads that wait. */
    struct sluice_capacity capacity; /* The largest one that a holder or waiter declared
                                      * in its last request. */
    uint32_t capacities_differ;      /* 1: they declared different capacities. */
};

/* A thread that holds units of a key or waits for them. */
struct sluice_holder {
    int32_t pid;
    int32_t tid;
    char program[16];   /* The thread's name in the kernel. */
    uint32_t waits;     /* 0: a holder. 1: a waiter. */
    uint32_t dead;      /* 1: the thread is dead; its units are about to be released. */
    uint32_t inherited; /* 1: the thread is dead; processes that inherited its tether
                         * hold its units. */
    uint32_t slot;      /* The thread's slot. Its tether is a lock on the byte of the
                         * segment's file that has this number. */
    uint64_t units;     /* Units held or requested. */
    struct sluice_capacity capacity; /* As declared in the thread's last request. */
    int64_t since_ms; /* Start of the grant or wait, in ms since 1970, to about 4 ms. */
};

/* Iterate over keys, or over the holders and then the waiters of a key. Set *cursor to 0
 * before the first call. Return 1 if *out is filled, 0 at the end, or a negative status.
 * An entry that does not change during the iteration is returned exactly once. EINVAL;
 * sluice_canal_next_holder() also EBUSY, EIO. */
SLUICE_API int sluice_canal_next_key(struct sluice_canal *c, uint64_t *cursor,
                                     struct sluice_key_info *out);
SLUICE_API int sluice_canal_next_holder(struct sluice_canal *c, const char *key,
                                        uint64_t *cursor, struct sluice_holder *out);

/* Write the picture of a lock that users of canal lock know: 7 units held at capacity
 * {3, 3} are "[3,3,1]". Units beyond the capacity appear in further buckets. Write at most
 * size bytes with the closing NUL; a longer picture ends in "...]". Return the number of
 * bytes written, without the NUL. */
SLUICE_API size_t sluice_canal_picture(uint64_t held, struct sluice_capacity capacity,
                                       char *out, size_t size);

/* --- A lock service inside one process -------------------------------------- */

/* The threads of one process get the locks of a server without a server: exclusive, shared
 * and counting locks, with fences, leases, priorities and stealing.
 *
 *     static void on_event(void *stop, const struct sluice_event *e)
 *     {
 *         if (e->type != SLUICE_EVENT_WITHDRAWN) atomic_store((atomic_bool *)stop, true);
 *     }
 *
 *     struct sluice *s;
 *     struct sluice_grant g;
 *     atomic_bool stop = false;
 *     if (sluice_open("memory:", NULL, &s) != SLUICE_OK) return 1;
 *     struct sluice_request r = {.wait_ms = 5000, .on_event = on_event, .arg = &stop};
 *     if (sluice_acquire(s, "printer", &r, &g) == SLUICE_OK) {
 *         while (!stop && print_a_page(g.fence)) {}
 *         sluice_release(s, "printer", g.fence);
 *     }
 *     sluice_close(s);
 *
 * Waiters queue by priority, higher priorities first, and by arrival within a priority. A
 * request with `steal` asks holders of lower priority to release: Sluice calls their
 * callback, they release, and the thief gets the lock with a higher fence. A holder that
 * does not release keeps the lock until its lease expires, and cannot extend the lease. A
 * holder without a lease keeps the lock as long as it wants.
 *
 * A grant without a lease belongs to the thread that acquired it and ends with that
 * thread. A grant with a lease can be extended and released by any thread, and outlives
 * the thread that acquired it. Locks are not re-entrant: each acquire requests more units.
 * docs/in-process.md has more. */

struct sluice; /* A lock service. Opaque. Any thread may use it. */

/* Limits of a service. Zero means the default. */
struct sluice_options {
    uint32_t keys;    /* Keys held or waited for at one time. Default 1048576. */
    uint32_t waiters; /* Waiters of one key. Default 65536. */
};

/* Open a lock service. The only address is "memory:". Each call creates a new service with
 * its own locks and two threads, which block all signals. Copies its arguments; gives
 * *out, to be closed with sluice_close(). EINVAL, ENOMEM. EIO: a thread could not be
 * started. */
SLUICE_API int sluice_open(const char *where, const struct sluice_options *options,
                           struct sluice **out);

/* Close a service. All grants end. Waiters return SLUICE_ECLOSED before this call returns.
 * This call waits for a running callback, unless it is made from that callback; no other
 * callback follows. No call on s may begin after this one has begun. NULL is allowed. In
 * the child of a fork this does nothing. */
SLUICE_API void sluice_close(struct sluice *s);

/* What can happen to a grant while it is held. */
enum sluice_event_type {
    SLUICE_EVENT_ASKED =
        1, /* A waiter of higher priority needs the lock: release it. */
    SLUICE_EVENT_WITHDRAWN, /* That waiter has given up: continue; extend works again. */
    SLUICE_EVENT_STOLEN,    /* That waiter was granted the lock although this holder has
                             * not released it, as its steal_early requested. */
    SLUICE_EVENT_EXPIRED,   /* The lease has expired; the grant has ended. */
    SLUICE_EVENT_BROKEN,    /* sluice_break() ended the grant, or its lease cannot be
                             * extended any more. */
};

struct sluice_event {
    enum sluice_event_type type;
    int32_t priority; /* ASKED: the waiter's priority. */
    const char *key;  /* Borrowed; valid until the callback returns. */
    uint64_t fence;   /* The grant that the event is about. */
    int64_t left_ms;  /* ASKED: time left of the lease; SLUICE_FOREVER: it has none. */
};

#define SLUICE_VALUE_BYTES_MAX 255u /* Of a value, and of a note. */
#define SLUICE_STEAL_AUTO (-1.0)

/* A request. Zero means the default. sluice_acquire() borrows it and copies its strings. */
struct sluice_request {
    uint32_t shared; /* 1: share the lock with other shared holders. per, buckets and
                      * units must then be 0. */
    uint32_t per; /* per and buckets are the capacity, as in struct sluice_capacity. */
    uint32_t buckets; /* Default 1 and 1: a mutex. */
    uint32_t units;   /* Default 1. The request gets all of them or none. */
    int32_t priority; /* Higher priorities are granted first. */
    uint32_t steal;   /* 1: while waiting, ask holders of lower priority to release. */
    double
        steal_early;   /* 0: wait until they have released. From 0 to 1: do not wait for
                         * them any longer when this fraction of wait_ms is left; 1: do
                         * not wait for them at all. SLUICE_STEAL_AUTO: stop waiting when
                         * they take longer than holders recently took, once there are 20
                         * measurements. */
    int64_t wait_ms;   /* Default 0: do not wait. SLUICE_FOREVER: no timeout. */
    int64_t lease_ms;  /* Default 0: no lease. */
    const char *value; /* For other clients to read; NULL: "". */
    const char *note;  /* The same. */

    /* Called for each event of the grant; NULL: none. An event is reported once; ASKED can
     * follow again after WITHDRAWN. A service makes one call at a time, on a thread of its
     * own and without a lock, so the callback may call any function. sluice_release() says
     * until when arg is used. */
    void (*on_event)(void *arg, const struct sluice_event *e);
    void *arg;
};

struct sluice_grant {
    uint64_t fence; /* Each grant of a service has a higher one. Below 2^53. */
    uint64_t held;  /* Units that all holders now hold, including these. */
    int64_t lease_ms;
    int64_t waited_ms;
    uint32_t
        overlapping; /* 1: a holder from whom the lock was stolen, or whose grant was
                           * broken, may not have noticed yet. */
};

/* Acquire a lock. Borrows key and request, and fills *out. NULL for the request means all
 * defaults. EFULL: the lock is taken, and the wait timed out. EDEADLOCK: the thread would
 * wait for a lock that only it holds, without a lease. ETOOBIG: more units than the
 * capacity, or value or note is too long. EINVAL, EKEYS, EWAITERS, ECLOSED, EFORKED,
 * ENOMEM. The wait is not a cancellation point. */
SLUICE_API int sluice_acquire(struct sluice *s, const char *key,
                              const struct sluice_request *request,
                              struct sluice_grant *out);

/* Release a grant. Fence 0 means the newest grant of this key that the calling thread
 * acquired. When this call returns, whatever its result, no callback of the grant is
 * running and none will follow. So do not call it while you hold a mutex that the callback
 * needs. If the callback itself makes the call, it does not wait.
 * ELOST: the grant has ended. ENOTHELD: fence is 0 and there is none. ETHREAD: the grant
 * has no lease and belongs to another thread. EINVAL, EFORKED, ENOMEM, ECLOSED. */
SLUICE_API int sluice_release(struct sluice *s, const char *key, uint64_t fence);

/* Extend a lease: let it expire lease_ms from now, unless it expires later anyway. EASKED:
 * a waiter of higher priority needs the lock. ELOST: the grant has ended or is broken.
 * ENOLEASE: it has no lease. EINVAL, EFORKED, ENOMEM, ECLOSED. */
SLUICE_API int sluice_extend(struct sluice *s, const char *key, uint64_t fence,
                             int64_t lease_ms);

/* Return SLUICE_OK if the grant is held now. EASKED: it is held, but its holder was asked
 * to release it or the lock was stolen. ELOST: it is not held. EINVAL, EFORKED, ECLOSED. */
SLUICE_API int sluice_check(struct sluice *s, const char *key, uint64_t fence);

/* Take a grant away from its holder. If the grant has no lease or at_once is 1, it ends
 * now, and the next grant of the key is marked as overlapping: the result is 2. Otherwise
 * its lease can only expire, not be extended: the result is 1. ELOST: there is no such
 * grant. EINVAL, EFORKED, ECLOSED. */
SLUICE_API int sluice_break(struct sluice *s, const char *key, uint64_t fence,
                            uint32_t at_once);

/* A holder or a waiter of a key. */
struct sluice_view {
    uint64_t fence; /* Of a holder. */
    int32_t tid;    /* The kernel's id of the thread that made the request. */
    int32_t priority;
    uint32_t waits;  /* 0: a holder. 1: a waiter. */
    uint32_t shared; /* This and the next three are 1 if they are true. */
    uint32_t asked;  /* A holder: it was asked to release, or the lock was stolen. */
    uint32_t steals; /* A waiter: its request steals. */
    uint32_t broken; /* A holder: its lease cannot be extended. */
    uint32_t units;
    struct sluice_capacity capacity; /* As declared in the request. */
    int64_t
        left_ms; /* Time left of the lease or of the wait; SLUICE_FOREVER: no end. */
    int64_t since_ms; /* How long it has held or waited. */
    char value[SLUICE_VALUE_BYTES_MAX + 1];
    char note[SLUICE_VALUE_BYTES_MAX + 1];
};

/* Inspect a key: its holders, ordered by fence, then its waiters, in the order of the
 * queue, all at one moment. Return their number and fill the first max of them. EINVAL,
 * EFORKED, ECLOSED. */
SLUICE_API int64_t sluice_inspect(struct sluice *s, const char *key,
                                  struct sluice_view *out, size_t max);

/* --- A connection to a server ----------------------------------------------- */

/* These functions send any command of a server (docs/commands/) and read its reply.
 *
 *     struct sluice_wire *w;
 *     struct sluice_reply *r;
 *     const char *args[] = {"ACQUIRE", "db", "LEASE", "30000"};
 *     if (sluice_wire_open("db7:5625", NULL, &w) != SLUICE_OK) return 1;
 *     if (sluice_wire_call(w, args, NULL, 4, &r) == SLUICE_OK) {
 *         if (r->type == SLUICE_REPLY_LIST) use(r->items[0].number);   // the fence
 *         sluice_reply_free(r);
 *     }
 *     sluice_wire_close(w);
 *
 * One thread at a time may use a connection. Signals do not interrupt a call. */

#define SLUICE_SERVER_PORT "5625"
#define SLUICE_SERVER_DEFAULT "127.0.0.1:" SLUICE_SERVER_PORT

struct sluice_wire; /* A connection to a server. Opaque. */

/* Options of sluice_wire_open(). Zero means the default. */
struct sluice_wire_options {
    const char *password; /* NULL: none. */
    int64_t
        connect_ms;   /* Timeout for connecting and greeting, not for resolving the host
                         * name. Default 5000. */
    int64_t reply_ms; /* Timeout of each call. Default SLUICE_FOREVER. */
    int resp;         /* Version of the Redis protocol, 2 or 3. Default 3. With version
                         * 3 the server also sends push messages. */
    char *error;      /* Where a failed sluice_wire_open() writes its error message;
                         * NULL: nowhere. */
    size_t error_size;
};

enum sluice_reply_type {
    SLUICE_REPLY_NIL,
    SLUICE_REPLY_STATUS,  /* text: "OK". */
    SLUICE_REPLY_ERROR,   /* text: "LOST the grant is ...". */
    SLUICE_REPLY_TEXT,    /* text: any bytes. */
    SLUICE_REPLY_LINES,   /* text: several lines, to be shown to a person. */
    SLUICE_REPLY_NUMBER,  /* number; text is the number as received. */
    SLUICE_REPLY_BOOL,    /* number: 1 or 0. */
    SLUICE_REPLY_DECIMAL, /* text: a number with a fraction, or a very large one. */
    SLUICE_REPLY_LIST,    /* items. */
    SLUICE_REPLY_MAP,     /* items: a name, its value, the next name... */
    SLUICE_REPLY_SET,     /* items. */
    SLUICE_REPLY_PUSH,    /* items: not a reply, but a message sent by the server. */
};

/* A reply, as a tree. Fields that its type does not use are 0, and text is then "". */
struct sluice_reply {
    enum sluice_reply_type type;
    int64_t number;
    const char *text; /* Followed by a NUL that text_bytes does not count. */
    size_t text_bytes;
    struct sluice_reply *items;
    size_t count; /* Number of items; for a map, of names and values. */
};

/* Connect to "host", "host:port", "[::1]:port" or "unix:/path"; NULL means
 * SLUICE_SERVER_DEFAULT. Borrows address and options; gives *out, to be closed with
 * sluice_wire_close(). EINVAL (also for an invalid address), ENOMEM, EUNREACHABLE, EDENIED.
 * EPROTOCOL: the server does not speak the Redis protocol. */
SLUICE_API int sluice_wire_open(const char *address,
                                const struct sluice_wire_options *options,
                                struct sluice_wire **out);

/* Send a command of n arguments and wait for its reply. Borrows args and lengths; lengths
 * may be NULL if each argument ends with a NUL. Gives *out, to be freed with
 * sluice_reply_free(). An error that the server returns is a reply too. Push messages that
 * arrive before the reply are kept for sluice_wire_next(), at most 1024. EINVAL, ENOMEM,
 * EPROTOCOL. ECLOSED: the connection was closed, or the call timed out. After a failure
 * other than EINVAL, or ENOMEM before the command was sent, the connection cannot be used
 * any more, and the command may or may not have been executed. */
SLUICE_API int sluice_wire_call(struct sluice_wire *w, const char *const *args,
                                const size_t *lengths, size_t n,
                                struct sluice_reply **out);

/* The same in two steps, for SUBSCRIBE, which has many replies, and to receive push
 * messages while a command waits. sluice_wire_next() returns the next reply or push
 * message. */
SLUICE_API int sluice_wire_send(struct sluice_wire *w, const char *const *args,
                                const size_t *lengths, size_t n);
SLUICE_API int sluice_wire_next(struct sluice_wire *w, struct sluice_reply **out);

/* Return the error message of the first failure, or "". It is valid until w is closed. */
SLUICE_API const char *sluice_wire_error(const struct sluice_wire *w);

/* Close a connection; the server then releases its grants without a lease. Free a reply.
 * NULL is allowed in both. */
SLUICE_API void sluice_wire_close(struct sluice_wire *w);
SLUICE_API void sluice_reply_free(struct sluice_reply *reply);

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_H */
