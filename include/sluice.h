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
 *   - a lock service (sluice_open() and the functions after it): on a server, in a
 *     cluster, or inside one process, for its threads;
 *   - a connection to a Sluice server, for any command (sluice_wire_*).
 *
 * A canal is a counting lock. Each caller declares the lock's capacity on every call:
 * `per` units for each of `buckets` resources. Sluice grants a request if the units held
 * by all threads plus the units requested fit into the capacity that this caller
 * declares. So the capacity can grow and shrink while the lock is held, and callers
 * may declare different capacities at the same time.
 *
 * A thread holds its units until it releases them or exits, or until its process exits,
 * executes another program or is killed. This works at whatever instruction the process is
 * killed: no unit is lost or counted twice (docs/guarantees.md). Before a request fails
 * with SLUICE_EFULL, Sluice releases the units of dead threads.
 *
 * Limits of canals:
 *   - Canals are not fair: a release wakes all waiters, and any of them may be next.
 *   - Canals are not re-entrant: each call of acquire requests more units. If a thread
 *     requests units that only it could release, the request waits until the timeout.
 *   - No function of this header is async-signal-safe.
 *   - Canals have no fence (fencing token). They do not need one: a grant lasts as long as
 *     its holder lives, so a holder does not lose the lock while it is still working.
 *   - Only the thread that acquired units can release them.
 *   - Processes that share a segment must trust everyone who can write to its file. A
 *     damaged or malicious file does not crash or hang a process that opens it, but its
 *     locks protect nothing. If the file is truncated while a process uses it, the process
 *     receives SIGBUS. Set the file's permissions accordingly.
 *
 * Pointer arguments: "borrows" means that the function uses the argument only during the
 * call. "Copies" means that the function keeps a copy. If a function stores an object in
 * *out, the caller owns the object and must free it with the function that the comment
 * names.
 *
 * Results: SLUICE_OK is 0. Every failure is a negative enum sluice_status. A failed call
 * changes nothing, with one exception: if a call on a server or a connection fails
 * (sluice_release(), sluice_extend(), sluice_break(), sluice_transaction(),
 * sluice_wire_call(), sluice_wire_send()), the server may have executed the command. The
 * comment of each function lists the errors that the function can return, without the
 * prefix SLUICE_. */
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

/* An X-macro with all statuses: X(name, number, word, text). A number never changes its
 * meaning; add new statuses at the end. */
/* clang-format off */
#define SLUICE_STATUS_MAP(X)                                                                   \
    X(OK,           0, "OK",        "done")                                                    \
    X(EFULL,       -1, "FULL",      "not enough free capacity for this request") \
    X(ENOTHELD,    -2, "NOTHELD",   "this thread does not hold that many units of the key")    \
    X(ETOOBIG,     -3, "TOOBIG",    "the request is for more units than the declared capacity, or for more than a lock can count") \
    X(EINVAL,      -4, "INVALID",   "invalid argument, or argument out of range") \
    X(ENOMEM,      -5, "NOMEM",     "out of memory")                                           \
    X(ENOSPC,      -6, "NOSPACE",   "no space left for the segment's file") \
    X(EACCES,      -7, "NOACCESS",  "no permission to open or create the segment's file")      \
    X(EOWNER,      -8, "OWNER",     "the segment's file belongs to another user; to accept it, set group or other permission bits in the mode, but only if you trust everyone who can write to it") \
    X(EFOREIGN,    -9, "FOREIGN",   "the file is not a Sluice segment")                        \
    X(EVERSION,   -10, "VERSION",   "the segment was created by another version of Sluice") \
    X(ETRUNCATED, -11, "TRUNCATED", "the segment's file is too short; remove it when no process uses it") \
    X(ESMALLER,   -12, "SMALLER",   "the segment exists and has fewer keys, slots or records than requested; request smaller sizes, or remove it when no process uses it") \
    X(EKEYS,      -13, "NOKEYS",    "the key table is full, and every key in it is in use")    \
    X(ESLOTS,     -14, "NOSLOTS",   "the slot table is full: too many threads use this segment") \
    X(ERECORDS,   -15, "NORECORDS", "the record table is full: the threads of this segment use too many keys") \
    X(ETHREAD,    -16, "THREAD",    "the handle belongs to another thread; only the thread that acquired units can release them") \
    X(EFORKED,    -17, "FORKED",    "the handle was created before fork(); the child must create its own") \
    X(EBUSY,      -18, "BUSY",      "a process was suspended (SIGSTOP) while it was changing the key table or creating the segment; try again, or resume or kill that process") \
    X(ENOCAS,     -19, "NOCAS",     "this processor has no 16-byte compare-and-swap")          \
    X(EIO,        -20, "IO",        "the operating system reported an error in errno") \
    X(ENOENT,     -21, "NOENT",     "the segment or the key does not exist") \
    X(ESEGMENTS,  -22, "SEGMENTS",  "this thread uses too many segments at the same time")    \
    X(EDRAINED,   -23, "DRAINED",   "an operator has drained the key: the server grants no requests for it") \
    X(EDEADLOCK,  -24, "DEADLOCK",  "deadlock: the request would wait for a lock that its own session holds") \
    X(ELOST,      -25, "LOST",      "the grant is no longer held under this fence")           \
    X(ENOLEASE,   -26, "NOLEASE",   "the grant has no lease; it ends when its session ends") \
    X(EWAITERS,   -27, "WAITERS",   "too many waiters for this key") \
    X(EASKED,     -28, "ASKED",     "a waiter of higher priority needs this lock: release it; its lease cannot be extended") \
    X(EFENCES,    -29, "NOFENCES",  "no fence is available until the server has reserved more") \
    X(ERECOVERING,-30, "RECOVERING", "leases that the server does not know may still be valid: it grants no locks until they have expired") \
    X(EUNREACHABLE, -31, "UNREACHABLE", "the server cannot be reached") \
    X(ECLOSED,      -32, "CLOSED",     "the connection or the handle was closed") \
    X(EPROTOCOL,    -33, "PROTOCOL",   "the server sent an invalid or oversized reply") \
    X(EDENIED,      -34, "DENIED",     "the server requires a password, or the password is wrong") \
    X(ENOQUORUM,    -35, "NOQUORUM",   "no quorum: too few nodes are reachable") \
    X(EMAJORITY,    -36, "MAJORITY",   "not supported by a majority cluster, which has exclusive locks with LEASE only") \
    X(ENODES,       -37, "NODES",      "the membership was not changed") \
    X(ERESTART,     -38, "RESTART",    "deadlock between transactions; this transaction was aborted: retry from TX.BEGIN") \
    X(ESTALE,       -39, "STALE",      "another keeper has taken over: retry from TX.BEGIN") \
    X(EBARRED,      -40, "BARRED",     "the transaction was aborted: retry from TX.BEGIN") \
    X(ENOKEEPER,    -41, "NOKEEPER",   "no keeper is available at the moment") \
    X(ELOCKS,       -42, "LOCKS",      "the transaction has too many locks") \
    X(EWRITES,      -43, "WRITES",     "the transaction writes too much data") \
    X(EAGE,         -44, "AGE",        "the transaction took too long and was aborted") \
    X(ETRANSACTIONS,-45, "TRANSACTIONS", "too many transactions") \
    X(ENOTX,        -46, "NOTX",       "the command needs an open transaction and there is none, or TX.BEGIN was sent while a transaction was open") \
    X(EDAMAGED,     -47, "DAMAGED",    "the segment is damaged; remove it when no process uses it") \
    X(EENDED,       -48, "ENDED",      "the acquisition with this REQUEST id has ended or was cancelled; use a new id") \
    X(EMISMATCH,    -49, "MISMATCH",   "an earlier ACQUIRE with this REQUEST id had other options; use a new id for each acquisition") \
    X(EREQUESTS,    -50, "REQUESTS",   "the server remembers too many REQUEST ids (requests-max); retry later, or send ACQUIRE without REQUEST") \
    X(ECANCELLED,   -51, "CANCELLED",  "the call was cancelled with sluice_cancel()")
/* clang-format on */

enum sluice_status {
#define SLUICE_X(name, number, word, text) SLUICE_##name = number,
    SLUICE_STATUS_MAP(SLUICE_X)
#undef SLUICE_X
};

/* Return the name of a status ("FULL"), or a message that describes it. The result is never
 * NULL. A positive number counts as OK; the name of an unknown number is "UNKNOWN". */
SLUICE_API const char *sluice_status_word(int64_t status);
SLUICE_API const char *sluice_status_text(int64_t status);

/* --- Canals: open and close ------------------------------------------------ */

struct sluice_canal; /* A handle of an open segment. Opaque. Any thread may use it. */
struct sluice_key;   /* A handle of a resolved key. Opaque. It belongs to one thread. */

/* A key is a string of 1 to SLUICE_KEY_BYTES_MAX bytes. */
#define SLUICE_KEY_BYTES_MAX 255u
#define SLUICE_CAPACITY_MAX UINT32_MAX     /* per * buckets, in one call */
#define SLUICE_UNITS_MAX ((1u << 30) - 1u) /* units, in one call */
#define SLUICE_KEYS_MAX (1u << 24)         /* keys of one segment */
#define SLUICE_SLOTS_MAX (1u << 16)        /* threads of one segment */
#define SLUICE_RECORDS_MAX (1u << 26)      /* records of one segment */

/* Maximum number of segments that one thread can use at the same time. When a thread dies,
 * the kernel marks at most 2048 robust mutexes; with more segments, units of a dead thread
 * would stay held. */
#define SLUICE_SEGMENTS_MAX 1024u

#define SLUICE_FOREVER ((int64_t)-1) /* wait without a timeout */

struct sluice_reply; /* A reply of a server; see below. */

/* Options of sluice_canal_open(). Zero means the default. The sizes apply only if the call
 * creates the segment. If the segment exists, it keeps its sizes; if they are smaller than
 * requested, the call returns SLUICE_ESMALLER. */
struct sluice_canal_options {
    uint32_t keys;    /* Maximum number of keys in use. Default 4096. */
    uint32_t slots;   /* Maximum number of threads. Default 1024. */
    uint32_t records; /* Maximum number of records. Default 16384. A thread needs one
                         * record for each key that it uses. It takes records in groups of
                         * eight and keeps them until it exits. Allow eight records per
                         * thread, or more if a thread uses more than eight keys at the
                         * same time. */
    uint32_t mode;    /* Permissions of a new file. Default 0600. If any group or other
                         * permission bits are set, the call also accepts a file that
                         * belongs to another user. Set them only if you trust everyone
                         * who can write to the file. */
    uint32_t anonymous; /* 1: create a segment without a file, for the threads of this
                         * process and the children that it forks. The name is ignored. */
    uint32_t existing;  /* 1: do not create the segment; if it does not exist, return
                         * SLUICE_ENOENT. */
};

/* Open a segment, which is a shared-memory file that contains canals. Create the segment if
 * it does not exist. The name is
 *   NULL                   the user's default segment: ~/.local/state/sluice/segment, or
 *                          $XDG_STATE_HOME/sluice/segment; if that directory cannot be
 *                          used or is not on a local file system, /dev/shm/sluice.<uid>,
 *                          or /dev/shm/sluice-<uid>.<digits> if another user owns that
 *                          file
 *   a name without a slash /dev/shm/sluice.<name>
 *   a path                 the file at this path
 * The default segment is never a file of another user, and its mode is 0600 in the home
 * directory. If the segment was created before the last reboot, the call replaces it with a
 * new, empty one. Copies name and options. Stores a handle in *out; close it with
 * sluice_canal_close().
 * Errors: EINVAL, ENOMEM, ENOSPC, EACCES, EOWNER, EFOREIGN, EVERSION, ETRUNCATED, ESMALLER,
 * EBUSY, ENOCAS, EIO, ENOENT. */
SLUICE_API int sluice_canal_open(const char *name,
                                 const struct sluice_canal_options *options,
                                 struct sluice_canal **out);

/* Release all units of the calling thread, unless they are tethered, and close the segment.
 * Other threads of the process keep their units until they exit. The library unmaps the
 * segment when the last of them has exited. After this call no thread may use c or a key
 * handle that was resolved from it, except to free the key handle. NULL is allowed. */
SLUICE_API void sluice_canal_close(struct sluice_canal *c);

/* Return the absolute path of the segment's file, or NULL for an anonymous segment. The
 * string is valid until c is closed. */
SLUICE_API const char *sluice_canal_path(const struct sluice_canal *c);

/* Return 1 if the segment's file was removed, moved, replaced or truncated. A process that
 * opens the segment now gets a new segment, where the locks of this one have no effect.
 * Return 0 if the file is still there, or if the function cannot find out. Error: EINVAL. */
SLUICE_API int sluice_canal_removed(const struct sluice_canal *c);

/* Remove a segment's file. Processes that have the segment open continue to use it, but
 * processes that open the same name later get a new segment. Errors: EINVAL, ENOENT,
 * EACCES, EFOREIGN, EIO. */
SLUICE_API int sluice_canal_remove(const char *name);

/* --- Canals: acquire and release ------------------------------------------ */

/* The capacity of a lock, as the caller declares it: per * buckets units. If the capacity is
 * 0, the request returns SLUICE_EFULL. */
struct sluice_capacity {
    uint32_t per;
    uint32_t buckets;
};

/* Further options of a request. Zero means the default. Pass NULL to use all defaults. */
struct sluice_want {
    uint32_t units;          /* Default 1. The request acquires all of them or none. */
    uint32_t continues_wait; /* 1: the request continues a wait that has just timed out.
                              * sluice_canal_next_holder() then reports the start of the
                              * first wait. */
    int64_t wait_ms;         /* Default 0: do not wait. SLUICE_FOREVER: no timeout. */
};

/* Acquire units of a key. Borrows all arguments. If the request is granted, the call returns
 * the number of units that all threads now hold, which is positive (as in {acquired, N} of
 * the Erlang library canal_lock). This number may include units of dead threads that Sluice
 * has not released yet.
 * EFULL: the timeout has expired and the units still do not fit, even though Sluice has released
 * the units of dead threads.
 * EBUSY: the call could not look up or add the key, because another process was stopped
 * while it was changing the key table and did not continue within a second. This can happen
 * even if the request does not wait.
 * Other errors: ETOOBIG, EINVAL, ENOMEM, EKEYS, ESLOTS, ERECORDS, ESEGMENTS, EIO,
 * EDAMAGED. */
SLUICE_API int64_t sluice_canal_acquire(struct sluice_canal *c, const char *key,
                                        struct sluice_capacity capacity,
                                        const struct sluice_want *want);

/* Release units that the calling thread holds, and wake the waiters. Errors: ENOTHELD if the
 * thread holds fewer units, EINVAL if units is 0 or the key is invalid. */
SLUICE_API int sluice_canal_release(struct sluice_canal *c, const char *key,
                                    uint32_t units);

/* Return the number of units of a key that threads hold, or 0 if the key is not in use. The
 * number may include units of dead threads that Sluice has not released yet. The call is
 * cheap: one lookup and one load from memory. It does not use a slot. Errors: EINVAL, EBUSY,
 * EIO. */
SLUICE_API int64_t sluice_canal_count(struct sluice_canal *c, const char *key);

/* --- Canals: key handles, for speed --------------------------------------- */

/* Look up a key once, so that later calls with the handle are faster. As long as the handle
 * exists, the key keeps its entry in the key table. Stores the handle in *out. It belongs to
 * the calling thread; free it with sluice_key_free(). Errors: EINVAL, ENOMEM, EKEYS, ESLOTS,
 * ERECORDS, ESEGMENTS, EBUSY, EIO. */
SLUICE_API int sluice_key_resolve(struct sluice_canal *c, const char *key,
                                  struct sluice_key **out);

/* Free a key handle. The thread keeps its units, and can release them with
 * sluice_canal_release(). NULL is allowed, and so is a handle of a thread that has exited or
 * of the parent process. Error: ETHREAD if the handle belongs to another thread that is
 * alive; the handle is then not freed. */
SLUICE_API int sluice_key_free(struct sluice_key *k);

/* Do the same as sluice_canal_acquire(), sluice_canal_release() and sluice_canal_count(),
 * but with a key handle. They can also return ETHREAD and EFORKED. */
SLUICE_API int64_t sluice_key_acquire(struct sluice_key *k,
                                      struct sluice_capacity capacity,
                                      const struct sluice_want *want);
SLUICE_API int sluice_key_release(struct sluice_key *k, uint32_t units);
SLUICE_API int64_t sluice_key_count(const struct sluice_key *k);

/* --- Canals: maintain and inspect ------------------------------------------ */

/* Release the units of all dead threads of the segment. Return the number of units released.
 * Programs do not need to call this function: sluice_canal_acquire() releases the units of
 * dead threads of its key before it returns EFULL. Error: EINVAL. */
SLUICE_API int64_t sluice_canal_reap(struct sluice_canal *c);

/* Create a file descriptor, store it in *fd, and tie (tether) all present and future units
 * of the calling thread in this segment to it. Child processes inherit the descriptor
 * through fork() and exec(). When the thread dies, its units remain held until the last
 * process that has the descriptor open closes it or dies. Use this function in a program
 * that starts another program under a lock. The caller owns the descriptor. The tether ends
 * when all processes have closed it. When the program that you started has exited, first
 * close the descriptor and then call sluice_canal_close(). If another process still has the
 * descriptor open, the units remain held; otherwise they are released at once.
 * Errors: EBUSY if the thread already has a tether, EINVAL if an argument is invalid or the
 * segment is anonymous, ENOMEM, ESLOTS, ESEGMENTS, EIO. */
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
    uint32_t holders;                /* Number of threads that hold units. */
    uint32_t waiters;                /* Number of threads that wait for units. */
    struct sluice_capacity capacity; /* The largest capacity among the last requests of
                                      * the holders and waiters. */
    /* 1: holders and waiters declared different capacities. */
    uint32_t capacities_differ;
};

/* A thread that holds units of a key or waits for them. */
struct sluice_holder {
    int32_t pid;
    int32_t tid;
    char program[16]; /* The name that the kernel has for the thread. */
    uint32_t waits;   /* 0: the thread is a holder. 1: it is a waiter. */
    uint32_t dead;    /* 1: the thread is dead, and Sluice has not released its units
                         * yet. */
    uint32_t
        inherited;  /* 1: the thread is dead, and processes that inherited its tether
                         * hold its units. */
    uint32_t slot;  /* The thread's slot number. The thread's tether is a file lock on
                         * the byte at this offset of the segment's file. */
    uint64_t units; /* Units held or requested. */
    struct sluice_capacity capacity; /* As declared in the thread's last request. */
    /* Start of the grant or wait, in ms since 1970, accurate to 4 ms. */
    int64_t since_ms;
};

/* Iterate over the keys of a segment, or over the holders and then the waiters of a key. Set
 * *cursor to 0 before the first call. Each call stores one entry in *out and returns 1. It
 * returns 0 when there are no more entries, or a negative status. An entry that does not
 * change during the iteration is returned exactly once. Errors: EINVAL, and for
 * sluice_canal_next_holder() also EBUSY and EIO. */
SLUICE_API int sluice_canal_next_key(struct sluice_canal *c, uint64_t *cursor,
                                     struct sluice_key_info *out);
SLUICE_API int sluice_canal_next_holder(struct sluice_canal *c, const char *key,
                                        uint64_t *cursor, struct sluice_holder *out);

/* Format the number of units held in each bucket as text, as the Erlang library canal_lock does.
 * For example, 7 units held at the capacity {3, 3} give "[3,3,1]". If more units are held than the
 * capacity allows, the text has additional buckets. Write at most size bytes, including the
 * terminating NUL; a longer text is cut and ends in "...]". Return the number of bytes written, not
 * counting the NUL. */
SLUICE_API size_t sluice_canal_picture(uint64_t held, struct sluice_capacity capacity,
                                       char *out, size_t size);

/* --- A lock service --------------------------------------------------------- */

/* A lock service has exclusive, shared and counting locks, with fences, leases, priorities
 * and stealing: on a server, in a cluster, or for the threads of this process.
 *
 *     static void on_event(void *stop, const struct sluice_event *e)
 *     {
 *         if (e->type != SLUICE_EVENT_WITHDRAWN) atomic_store((atomic_bool *)stop, true);
 *     }
 *
 *     struct sluice *s;
 *     struct sluice_grant g;
 *     atomic_bool stop = false;
 *     if (sluice_open("db1:5625,db2:5625,db3:5625", NULL, &s) != SLUICE_OK) return 1;
 *     struct sluice_request r = {.wait_ms = 5000, .lease_ms = 10000, .keep_alive = 1,
 *                                .on_event = on_event, .arg = &stop};
 *     if (sluice_acquire(s, "printer", &r, &g) == SLUICE_OK) {
 *         while (!stop && sluice_left(s, "printer", g.fence) >= PAGE_MS &&
 *                print_a_page(g.fence)) {}
 *         sluice_release(s, "printer", g.fence);
 *     }
 *     sluice_close(s);
 *
 * Waiters queue by priority, higher priorities first, and by arrival within a priority. In a
 * majority cluster, the order between waiters of different nodes is random. A request with
 * `steal` asks holders of lower priority to release: Sluice calls their callbacks, they
 * release, and the request is granted with a higher fence. A holder that does not release
 * keeps the lock until its lease expires, and cannot extend the lease. A holder without a
 * lease keeps the lock until it releases it. The option `steal_early` takes the lock before
 * these holders have released it.
 *
 * A grant with a lease ends when it is released, or when the lease expires. Any thread can
 * extend and release it, and so can another program that knows the fence. With `keep_alive`
 * the library extends the lease until the grant is released. A grant without a lease ends when
 * it is released, and otherwise
 *   - on a server: when the connection to the server is lost, or the service is closed;
 *   - in one process: when the thread that acquired it exits, or the service is closed.
 * Locks are not re-entrant: each call of acquire requests more units.
 *
 * On a server, the library connects when it is first needed, and again after a failure: to the
 * next address, after a short random pause. All threads share two connections, one of them for
 * grants without a lease, and many threads can wait at the same time. If a reply is lost, the
 * library sends the command again, and the command takes effect once. If the program gives up
 * a request, the library cancels it at the server, so that no forgotten grant remains. It also
 * cancels a request that ends without a grant, if an earlier attempt had no reply.
 *
 * **When the holder must stop.** On a server, the library calls on_event before the lease
 * expires, so the holder can stop before another client is granted the lock. The call can come
 * too late if the program was suspended, or if the grant has ended early: by a forced steal,
 * BREAK ... NOW, a release by another client, or the loss of the connection of a grant without a
 * lease. So check sluice_left() before each step, and pass the fence to the resource
 * (docs/fencing.md). See docs/clients.md and docs/in-process.md. */

struct sluice; /* A lock service. Opaque. Any thread may use it. */

/* Options of a service. Zero means the default. */
struct sluice_options {
    /* In one process only. */
    uint32_t keys;    /* Number of keys with a holder or a waiter. Default 1048576. */
    uint32_t waiters; /* Number of waiters for one key. Default 65536. */
    /* Servers only. */
    const char *password; /* NULL: none. */
    const char *name; /* The name that EXPLAIN shows, without spaces, at most 63 bytes.
                           * Default: the name of the program. */
    int64_t retry_ms; /* If no server can answer a call, the library repeats it for this
                           * long, in addition to wait_ms. Default 10000. It should be longer
                           * than 5000: if a server does not reply to a command for 5000 ms, the
                           * library tries the next address. */
    int64_t connect_ms; /* Timeout of each attempt to connect. Default 1000. */
    uint32_t
        event_loop; /* 1: start no threads, except to resolve host names; the program
                          * calls sluice_step(). */
};

#define SLUICE_ADDRESSES_MAX 16u /* Maximum number of addresses of a service. */

/* Open a lock service. The argument where is
 *   "HOST:PORT[,HOST:PORT...]"  a server, or the nodes of a cluster. Without a port: 5625.
 *                               "unix:PATH" is a socket in the file system.
 *   "memory:"                   a new service inside this process
 *   NULL                        the environment variable SLUICE_SERVER; if it is not set,
 *                               SLUICE_SERVER_DEFAULT
 * The call does not connect to a server. It starts two threads, which block all signals;
 * the library resolves host names in a third one.
 * Copies its arguments and stores the service in *out; close it with sluice_close(). Errors:
 * EINVAL, ENOMEM, EIO if a thread cannot be started. */
SLUICE_API int sluice_open(const char *where, const struct sluice_options *options,
                           struct sluice **out);

/* Close a service. Its grants end, except those on a server that have a lease and no
 * keep_alive. Calls that wait for a lock return SLUICE_ECLOSED before this call returns. If a
 * server does not answer, its grants end when their leases expire; the call waits for replies
 * for at most a second. The call waits until a running callback has returned, unless you call
 * it from that callback. The service makes no further callbacks. Do not call any function on
 * s after this call has begun. NULL is allowed. In a child process after fork() the call
 * does nothing. */
SLUICE_API void sluice_close(struct sluice *s);

/* The events of a grant while it is held. */
enum sluice_event_type {
    SLUICE_EVENT_ASKED =
        1, /* A waiter of higher priority needs the lock: release it. */
    SLUICE_EVENT_WITHDRAWN, /* That waiter has given up: continue; extend works again. */
    SLUICE_EVENT_STOLEN,    /* That waiter was granted the lock, even though this holder
                             * has not released it. The waiter used steal_early. */
    SLUICE_EVENT_EXPIRED, /* In one process: the lease has expired. On a server: the lease
                             * expires in margin_ms; stop now. */
    SLUICE_EVENT_BROKEN, /* sluice_break(), or the server, has revoked the grant, or another
                             * client has released it: the grant has ended, or its lease can
                             * no longer be extended. */
    SLUICE_EVENT_UNREACHABLE, /* No server answers. A grant with a lease: as EXPIRED. A grant
                             * without a lease has ended with its connection. */
};

struct sluice_event {
    enum sluice_event_type type;
    int32_t
        priority;    /* ASKED, in one process: the waiter's priority. On a server: 0. */
    const char *key; /* Borrowed; valid until the callback returns. */
    uint64_t fence;  /* The fence of the grant. */
    int64_t left_ms; /* ASKED: remaining time of the lease; SLUICE_FOREVER: no lease. */
};

/* A token with which another thread can cancel sluice_acquire(). Initialize it with zeros, and
 * use it with one service. It stays cancelled. */
struct sluice_cancel {
    uint32_t cancelled; /* 1: cancelled. Only the library changes it. */
};

#define SLUICE_VALUE_BYTES_MAX 255u /* Maximum length of a value, and of a note. */
#define SLUICE_STEAL_AUTO (-1.0)

/* A request. Zero means the default. sluice_acquire() borrows it and copies its strings. */
struct sluice_request {
    uint32_t shared; /* 1: share the lock with other shared holders. per, buckets and
                      * units must then be 0. */
    uint32_t per; /* per and buckets are the capacity, as in struct sluice_capacity. */
    uint32_t buckets; /* Default 1 and 1: a mutex. */
    uint32_t units;   /* Default 1. The request acquires all of them or none. */
    int32_t priority; /* Requests of higher priority are granted first. Default 0. */
    uint32_t steal; /* 1: while the request waits, ask as many lower-priority holders as
                     * necessary to release. */
    double
        steal_early;  /* When to stop waiting for these holders, and take the lock while
                         * they still hold it. 0: never. Between 0 and 1: when this
                         * fraction of wait_ms is left. 1: at once. SLUICE_STEAL_AUTO: when
                         * they take longer than recent holders took to release; until
                         * 20 such releases have been measured, the same as 0. */
    int64_t wait_ms;  /* Default 0: do not wait. SLUICE_FOREVER: no timeout. */
    int64_t lease_ms; /* Default 0: no lease. */
    const char
        *value;       /* A string that other clients (in one process: other threads) can
                        * read; NULL: "". READ returns it. */
    const char *note; /* A note for operators: EXPLAIN shows it. NULL: "". */

    /* The callback for events of the grant; NULL: none. The service reports each event once;
     * ASKED can occur again after WITHDRAWN. A thread of the service makes one call at a
     * time and holds no internal lock meanwhile, so the callback may call any function whose
     * comment does not forbid it. Events are reported before results of calls that wait for
     * their callback, but after the result of the grant itself. When sluice_release() has
     * returned, the service no longer uses arg. */
    void (*on_event)(void *arg, const struct sluice_event *e);
    void *arg;

    struct sluice_cancel
        *cancel; /* NULL: the request cannot be cancelled. Borrowed until
                                   * the request has ended. */
    /* Servers only. */
    uint32_t
        keep_alive; /* 1: extend the lease after each third of it, until the grant is
                          * released or lost. Needs lease_ms. */
    int64_t
        max_hold_ms; /* With keep_alive: do not extend the lease beyond this time after
                          * the grant. Default 0: no limit. At least lease_ms. */
    int64_t margin_ms; /* How long before the lease expires the callback is called.
                          * Default: a tenth of the lease, at most 5000. Less than
                          * lease_ms. */
};

struct sluice_grant {
    uint64_t
        fence;     /* Higher than the fence of every earlier grant of the service. Below
                     * 2^53. */
    uint64_t held; /* Units that all holders now hold, including this grant. */
    int64_t lease_ms;
    int64_t waited_ms;
    uint32_t overlapping; /* 1: the lock was stolen from an earlier holder, or
                           * sluice_break() ended its grant, and this holder may not
                           * have noticed yet. */
};

/* Acquire a lock. Borrows key and request, and fills *out. If request is NULL, all options
 * have their defaults. The wait is not a cancellation point.
 * After an error the caller does not hold the lock. EFULL: others hold the lock, and the timeout
 * has expired. EDEADLOCK: in one process: the thread would wait for a lock that only this thread
 * holds, without a lease. On a server, such a request waits until its timeout. ETOOBIG: the
 * request has more units than the capacity, or value or note is too long. ECANCELLED:
 * sluice_cancel() was called. Other errors: EINVAL, EKEYS, EWAITERS, ECLOSED, EFORKED, ENOMEM.
 * On a server also: EUNREACHABLE, EDENIED, EDRAINED, EPROTOCOL, and errors of the server that
 * lasted for retry_ms: ERECOVERING, ENOKEEPER, ENOQUORUM, EIO, EFENCES, EREQUESTS. EMAJORITY: the
 * address is a majority cluster, which supports only exclusive locks with a lease. sluice_error()
 * returns the message of the error. */
SLUICE_API int sluice_acquire(struct sluice *s, const char *key,
                              const struct sluice_request *request,
                              struct sluice_grant *out);

/* Cancel the calls of sluice_acquire() and sluice_acquire_start() that use this token: they
 * return SLUICE_ECANCELLED, and so does every later call with the token. A call that was granted
 * the lock at the same moment may still return SLUICE_OK. Errors: EINVAL, EFORKED, ECLOSED. */
SLUICE_API int sluice_cancel(struct sluice *s, struct sluice_cancel *token);

/* Release a grant. Fence 0 means the newest grant of this key that the calling thread
 * acquired. When this call returns, whatever its result, no callback of this grant is
 * running and none will follow. The exception is a call from the callback itself, which does
 * not wait. Do not call this function while you hold a mutex that the callback needs.
 * ELOST: the grant had already ended. ENOTHELD: fence is 0 and the thread has no grant of the key.
 * ETHREAD: the grant has no lease and belongs to another thread (in one process only). Other
 * errors: EINVAL, EFORKED, ENOMEM, ECLOSED. On a server also EUNREACHABLE and the errors of
 * sluice_acquire(): the server may not have executed the command; then the grant ends when its
 * lease expires or the connection is lost. */
SLUICE_API int sluice_release(struct sluice *s, const char *key, uint64_t fence);

/* Extend a lease, so that it expires lease_ms milliseconds from now or later. The call never
 * shortens a lease. EASKED: a waiter of higher priority needs the lock. ELOST: the grant has
 * ended or was revoked by sluice_break(). ENOLEASE: the grant has no lease. Other errors:
 * EINVAL, EFORKED, ENOMEM, ECLOSED; on a server also EUNREACHABLE and the errors of
 * sluice_acquire(): the lease may or may not be extended, so rely on sluice_left(). */
SLUICE_API int sluice_extend(struct sluice *s, const char *key, uint64_t fence,
                             int64_t lease_ms);

/* Return how long the holder may still rely on the grant, in milliseconds: on a server, until
 * margin_ms before the lease expires. SLUICE_FOREVER: the grant has no lease. The call is
 * cheap, and sends nothing. Call it before each step of the work. ELOST: the grant has ended,
 * will end in less than margin_ms, or was acquired through another service. Other errors: EINVAL,
 * EFORKED, ECLOSED. */
SLUICE_API int64_t sluice_left(struct sluice *s, const char *key, uint64_t fence);

/* Return SLUICE_OK if the grant is held now. On a server, the call asks the server. EASKED: the
 * grant is held, but its holder was asked to release it or the lock was stolen. ELOST: the grant
 * is not held. Other errors: EINVAL, EFORKED, ECLOSED; on a server also ENOMEM, EUNREACHABLE and
 * the errors of sluice_acquire(). */
SLUICE_API int sluice_check(struct sluice *s, const char *key, uint64_t fence);

/* Revoke a grant. If the grant has no lease or at_once is 1, the grant ends now, the next
 * grant of the key is marked as overlapping, and the call returns 2. Otherwise the grant
 * ends when its lease expires, the lease can no longer be extended, and the call returns 1.
 * ELOST: no such grant exists. Other errors: EINVAL, EFORKED, ECLOSED. */
SLUICE_API int sluice_break(struct sluice *s, const char *key, uint64_t fence,
                            uint32_t at_once);

/* Copy the message of the last failure of a connection or of a command, or "". It ends with a
 * NUL, and is cut to fit into size bytes. For logs; a service in one process has no messages. */
SLUICE_API void sluice_error(struct sluice *s, char *out, size_t size);

#define SLUICE_CLIENT_BYTES_MAX 127u /* Maximum length of a name and of an address. */

/* A holder or a waiter of a key. */
struct sluice_view {
    uint64_t fence; /* The fence of a holder. */
    int32_t tid; /* In one process: the kernel's thread id of the thread that made the
                     * request. On a server: 0. */
    int32_t priority;
    uint32_t waits;  /* 0: the entry is a holder. 1: it is a waiter. */
    uint32_t shared; /* 1: a shared lock. */
    /* 1: the holder was asked to release, or the lock was stolen from it. */
    uint32_t asked;
    uint32_t steals; /* 1: the waiter uses `steal`. */
    uint32_t broken; /* 1: sluice_break() has revoked the grant. */
    uint32_t units;
    struct sluice_capacity capacity; /* As declared in the request. */
    int64_t left_ms;  /* Remaining time of the lease or of the wait; SLUICE_FOREVER: no
                      * limit. */
    int64_t since_ms; /* How long the holder has held or the waiter has waited. */
    char value[SLUICE_VALUE_BYTES_MAX + 1];
    char note[SLUICE_VALUE_BYTES_MAX + 1];
    /* On a server: the name and the address of the client; otherwise "". */
    char client[SLUICE_CLIENT_BYTES_MAX + 1];
    char address[SLUICE_CLIENT_BYTES_MAX + 1];
};

/* List the holders of a key, ordered by fence, and then its waiters, in the order of the
 * queue. All entries are from the same moment. Store the first max entries in out, and
 * return the number of all holders and waiters. A server lists at most 100 of each. Errors:
 * EINVAL, EFORKED, ECLOSED; on a server also ENOMEM and the errors of sluice_check(). */
SLUICE_API int64_t sluice_inspect(struct sluice *s, const char *key,
                                  struct sluice_view *out, size_t max);

/* --- A lock service in an event loop ------------------------------------------- */

/* A program with an event loop opens a service with the option event_loop. The service then
 * starts no threads, and makes its callbacks only during sluice_step().
 *
 *     struct pollfd p = {.fd = sluice_fd(s), .events = POLLIN};
 *     sluice_acquire_start(s, "printer", &r, on_done, NULL);
 *     while (running) {
 *         poll(&p, 1, sluice_timeout_ms(s));
 *         sluice_step(s);
 *     }
 *
 * All calls belong to one thread. The functions above that wait for a server return
 * SLUICE_EINVAL. A callback may call any function except sluice_step(), sluice_close(),
 * sluice_release_all() and sluice_resign(). */

/* Return a descriptor that is readable when sluice_step() has work to do. It belongs to the
 * service: do not read from it, write to it, or close it. Error: EINVAL if the service was not
 * opened with event_loop. */
SLUICE_API int sluice_fd(struct sluice *s);

/* Return the number of milliseconds until sluice_step() must be called, even if the descriptor
 * is not readable. -1: no limit. At most INT32_MAX. */
SLUICE_API int sluice_timeout_ms(struct sluice *s);

/* Send, receive, do what is due, and make at most 16 callbacks. Does not wait. Return the number
 * of callbacks. If more are due, sluice_timeout_ms() returns 0. Error: EINVAL. */
SLUICE_API int sluice_step(struct sluice *s);

/* The callback for the result of a call. The grant is NULL unless status is SLUICE_OK and the call
 * was sluice_acquire_start(). */
typedef void sluice_done_fn(void *arg, int status, const struct sluice_grant *grant);

/* Start a call and return at once. If the result is SLUICE_OK, on_done is called exactly once,
 * later, with the status that sluice_acquire(), sluice_release() or sluice_extend() would
 * return. Otherwise it is never called. Borrow key and request. on_done may be NULL. These
 * functions also work without event_loop; then a thread of the library makes the callback. Not
 * for "memory:". Errors: EINVAL, ENOMEM, ETOOBIG, ENOTHELD, ENOLEASE, ECANCELLED, ECLOSED,
 * EFORKED. */
SLUICE_API int sluice_acquire_start(struct sluice *s, const char *key,
                                    const struct sluice_request *request,
                                    sluice_done_fn *on_done, void *arg);
SLUICE_API int sluice_release_start(struct sluice *s, const char *key, uint64_t fence,
                                    sluice_done_fn *on_done, void *arg);
SLUICE_API int sluice_extend_start(struct sluice *s, const char *key, uint64_t fence,
                                   int64_t lease_ms, sluice_done_fn *on_done,
                                   void *arg);

/* --- Several locks, elections, transactions --------------------------------------- */

#define SLUICE_KEYS_AT_ONCE_MAX \
    256u /* Maximum number of keys of sluice_acquire_all(). */

struct sluice_locks; /* Several grants that were acquired together. Opaque. */

/* Acquire several locks, all or none. All keys have the options of the one request; its wait_ms
 * is the timeout for all of them together. The library acquires the keys in the order of their
 * bytes, so programs that use this function cannot deadlock with each other. On a server, a
 * request with a lease needs keep_alive. If a grant is lost, the library calls on_event once, with
 * the key of the lost grant, and releases the others when on_event has returned. So on_event must
 * not return before the work has stopped. If a holder is asked to release a lock before the other
 * locks are acquired, on_event is called when they are. Copies the keys. Stores the grants in *out; end them
 * with sluice_release_all().
 * EINVAL: n is 0 or too large, or two keys are equal. Other errors: those of sluice_acquire(). */
SLUICE_API int sluice_acquire_all(struct sluice *s, const char *const *keys, size_t n,
                                  const struct sluice_request *request,
                                  struct sluice_locks **out);

/* Return the fence of the grant of keys[i], or 0 if i is too large. */
SLUICE_API uint64_t sluice_locks_fence(const struct sluice_locks *locks, size_t i);

/* Return the smallest sluice_left() of the grants, or SLUICE_ELOST if one is lost. */
SLUICE_API int64_t sluice_locks_left(const struct sluice_locks *locks);

/* Release all grants, whatever the results, free `locks`, and return the first error of
 * sluice_release(), or SLUICE_OK. When the call returns, on_event is not running, and will not be
 * called. NULL is allowed. Do not call this function from a callback. */
SLUICE_API int sluice_release_all(struct sluice_locks *locks);

struct sluice_election; /* A candidate. Opaque. */

/* A candidate of an election. Zero means the default. */
struct sluice_candidate {
    int64_t lease_ms; /* Default 10000. */
    int32_t priority; /* Default 0. */
    const char
        *value; /* For example the candidate's address; READ shows the leader's. */
    const char *note;
    /* The program has been elected: it leads from now on, under this fence. */
    void (*on_elected)(void *arg, uint64_t fence);
    /* The program must stop leading. The library calls this before the lease expires, or when
     * the leadership is revoked. The function must not return before the work has stopped. The
     * library then stands for election again. */
    void (*on_ended)(void *arg, uint64_t fence, enum sluice_event_type why);
    void *arg;
};

/* Stand for election until sluice_resign(). Borrows key and candidate, and copies their strings.
 * Stores the candidate in *out; free it with sluice_resign(), before the service is closed. Not
 * for "memory:". Errors: EINVAL, ENOMEM, ECLOSED, EFORKED. */
SLUICE_API int sluice_elect(struct sluice *s, const char *key,
                            const struct sluice_candidate *candidate,
                            struct sluice_election **out);

/* Stop standing for election, wait until no callback of the candidate is running, and then release
 * the leadership: stop the work of the leader first. When the call returns, no callback of the candidate is running, and none will follow. on_ended is not
 * called. NULL is allowed. Do not call this function from a callback, or while you hold a mutex
 * that a callback needs. */
SLUICE_API void sluice_resign(struct sluice_election *election);

struct
    sluice_tx; /* A transaction. Opaque. Valid only during the function that runs it. */

/* Run a transaction. fn reads and writes with sluice_tx_*(), and returns SLUICE_OK to commit it, or
 * another status to abort it. If the server restarts the transaction, or the connection is lost, fn
 * runs again; its writes are applied once. Do not use anything that fn has read before this function
 * returns SLUICE_OK. The calling thread waits, also in a service with event_loop. Not for
 * "memory:".
 * EUNREACHABLE: connections were lost, or no server answered, for retry_ms; the transaction may or
 * may not have been committed. EPROTOCOL: a reply was invalid or too large (docs/clients.md).
 * After all other errors, nothing was committed: the status that fn returned, EINVAL, ENOMEM, EDENIED,
 * ENOKEEPER, EAGE, ELOCKS, EWRITES, ETRANSACTIONS, ENOSPC, EIO, EPROTOCOL. */
SLUICE_API int sluice_transaction(struct sluice *s,
                                  int (*fn)(struct sluice_tx *tx, void *arg),
                                  void *arg);

/* Read a value. *value is valid until the next call on tx, and ends with a NUL that *bytes does not
 * count; NULL: the key does not exist. bytes may be NULL. If a function on tx fails, fn should
 * return the status: the library tries again, if that is possible. */
SLUICE_API int sluice_tx_get(struct sluice_tx *tx, const char *table, const char *key,
                             const char **value, size_t *bytes);
SLUICE_API int sluice_tx_put(struct sluice_tx *tx, const char *table, const char *key,
                             const char *value, size_t bytes);
SLUICE_API int sluice_tx_del(struct sluice_tx *tx, const char *table, const char *key);

/* Send any command of a transaction, such as TX.SCAN or TX.LOCK, as sluice_wire_call() does. The
 * reply is valid until the next call on tx. */
SLUICE_API int sluice_tx_call(struct sluice_tx *tx, const char *const *args,
                              const size_t *lengths, size_t n,
                              const struct sluice_reply **out);

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
 * Only one thread at a time may use a connection. Signals do not interrupt a call. */

#define SLUICE_SERVER_PORT "5625"
#define SLUICE_SERVER_DEFAULT "127.0.0.1:" SLUICE_SERVER_PORT

struct sluice_wire; /* A connection to a server. Opaque. */

/* Options of sluice_wire_open(). Zero means the default. */
struct sluice_wire_options {
    const char *password; /* NULL: none. */
    int64_t
        connect_ms;    /* Timeout for connecting and for the handshake (HELLO and AUTH).
                           * Resolving the host name is not included. Default 5000. */
    int64_t reply_ms;  /* Timeout of each later call. Default SLUICE_FOREVER. */
    int resp;          /* Version of the Redis protocol, 2 or 3. Default 3. With version
                           * 3 the server also sends push messages. */
    char *error;       /* A buffer for the error message of sluice_wire_open(); NULL:
                           * none. */
    size_t error_size; /* The size of this buffer. */
};

enum sluice_reply_type {
    SLUICE_REPLY_NIL,
    SLUICE_REPLY_STATUS,  /* text: "OK". */
    SLUICE_REPLY_ERROR,   /* text: "LOST the grant is ...". */
    SLUICE_REPLY_TEXT,    /* text: any bytes. */
    SLUICE_REPLY_LINES,   /* text: several lines, to show to a person. */
    SLUICE_REPLY_NUMBER,  /* number; text is the number as received. */
    SLUICE_REPLY_BOOL,    /* number: 1 or 0. */
    SLUICE_REPLY_DECIMAL, /* text: a number with a fraction, or a very large number. */
    SLUICE_REPLY_LIST,    /* items. */
    SLUICE_REPLY_MAP,     /* items: names and values alternate. */
    SLUICE_REPLY_SET,     /* items. */
    SLUICE_REPLY_PUSH, /* items: a message that the server sends without a request. */
};

/* A reply, as a tree. Fields that the type does not use are 0; an unused text is "". */
struct sluice_reply {
    enum sluice_reply_type type;
    int64_t number;
    const char *text; /* Followed by a NUL that text_bytes does not count. */
    size_t text_bytes;
    struct sluice_reply *items;
    size_t count; /* Number of items; for a map, of names and values. */
};

/* Connect to "host", "host:port", "[::1]:port" or "unix:/path"; NULL means
 * SLUICE_SERVER_DEFAULT. Borrows address and options. Stores the connection in *out; close
 * it with sluice_wire_close(). EINVAL: an argument, such as the address, is invalid.
 * EPROTOCOL: the server does not use the Redis protocol. Other errors: ENOMEM, EUNREACHABLE,
 * EDENIED. */
SLUICE_API int sluice_wire_open(const char *address,
                                const struct sluice_wire_options *options,
                                struct sluice_wire **out);

/* Send a command of n arguments and wait for its reply. Borrows args and lengths; lengths
 * may be NULL if each argument ends with a NUL. Stores the reply in *out; free it with
 * sluice_reply_free(). The call also succeeds if the server replies with an error: the error
 * is in the reply. If push messages arrive before the reply, the library keeps up to 1024 of
 * them for sluice_wire_next().
 * Errors: EINVAL, ENOMEM, EPROTOCOL, and ECLOSED if the connection was closed or the call
 * timed out. After EINVAL, or ENOMEM before the command was sent, the connection can still
 * be used. After any other error it cannot be used any more, and the server may or may not
 * have executed the command. */
SLUICE_API int sluice_wire_call(struct sluice_wire *w, const char *const *args,
                                const size_t *lengths, size_t n,
                                struct sluice_reply **out);

/* Send a command without waiting for the reply; wait for the next reply or push message. Use
 * these functions for SUBSCRIBE, which has many replies, and to receive push messages while
 * a command waits. */
SLUICE_API int sluice_wire_send(struct sluice_wire *w, const char *const *args,
                                const size_t *lengths, size_t n);
SLUICE_API int sluice_wire_next(struct sluice_wire *w, struct sluice_reply **out);

/* Return the error message of the first failure of the connection, or "". The string is
 * valid until w is closed. */
SLUICE_API const char *sluice_wire_error(const struct sluice_wire *w);

/* Close a connection. The server then releases the connection's grants that have no lease.
 * NULL is allowed. */
SLUICE_API void sluice_wire_close(struct sluice_wire *w);

/* Free a reply. NULL is allowed. */
SLUICE_API void sluice_reply_free(struct sluice_reply *reply);

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_H */
