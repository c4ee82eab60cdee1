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
 *   - Who may write to a segment's file may also destroy it, or truncate it under
 *     those who use it (SIGBUS). The file's permissions are the guard.
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
    X(EOWNER,      -8, "OWNER",     "the segment's file belongs to another user; open it as a shared one if that is meant") \
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
    X(EWAITERS,   -27, "WAITERS",   "too many wait for this key")
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
                         * or others a file of another user is accepted too. */
    uint32_t anonymous; /* 1: no file, for the threads of this process and children
                         * that it forks. The name is then not looked at. */
    uint32_t existing;  /* 1: do not create; SLUICE_ENOENT if there is none. */
};

/* Open a segment, and create it if need be. Name: NULL for the user's own,
 * /dev/shm/sluice.<uid>; a name without a slash for /dev/shm/sluice.<name>; otherwise
 * a path. Copies name and options; gives *out, to be closed by sluice_canal_close().
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

/* 1: the path leads to that file no more: it was removed, moved or replaced. Whoever
 * opens the segment now gets another one, and what is held here keeps nobody out there.
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
 * EKEYS, ESLOTS, ERECORDS, ESEGMENTS, EIO; EBUSY after a second, also without a wait, if
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

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_H */
