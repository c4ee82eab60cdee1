/* top_data.h - what `sluice top` shows: one update of a server or of a segment. */
#ifndef SL_CLI_TOP_DATA_H
#define SL_CLI_TOP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

/* Limits of one update. They bound its cost for the server. */
#define TOP_PAGE 1000u   /* Locks that the server visits for one LOCKS command. */
#define TOP_PAGES_MAX 5u /* LOCKS commands, and one more for the locks with waiters. */
#define TOP_EXPLAINS_MAX 100u /* EXPLAIN commands: one for each visible lock. */

#define TOP_NAME_SIZE 128
#define TOP_TEXT_SIZE 256 /* A longer note is cut. */
#define TOP_REASON_SIZE 512
#define TOP_SUMMARY_MAX 8 /* Sentences of EXPLAIN. */
#define TOP_FILTER_SIZE 64

enum top_order { TOP_BY_WAIT, TOP_BY_WAITERS, TOP_BY_HELD, TOP_BY_KEY };

/* What an update is to contain. */
struct top_want {
    enum top_order order;
    bool reversed;
    char filter[TOP_FILTER_SIZE]; /* Only keys that contain this text; "": all. */
    size_t first, rows;           /* The locks to explain: the visible ones. */
    char *detail; /* The key of the lock to show in detail; NULL: none. */
    size_t detail_bytes;
};

struct top_lock {
    char *key; /* Followed by a NUL that key_bytes does not count. */
    size_t key_bytes;
    uint64_t held, holders, waiters;
    int64_t waited_ms; /* Of the oldest waiter; -1: no waiter. */
    int64_t held_ms;   /* Of the oldest holder; -1: no holder. */
    uint64_t fence;    /* Of the oldest holder. */
    bool shared, drained;
    char name[TOP_NAME_SIZE], address[TOP_NAME_SIZE]; /* Of the oldest holder. */

    bool explained;    /* The next two are known. */
    uint64_t capacity; /* As the oldest holder or waiter has declared it. */
    bool
        lease_known; /* Not if another holder followed before the lock was explained. */
    int64_t lease_ms; /* Of the oldest holder; -1: no lease. */
};

/* A holder or a waiter of the lock that is shown in detail. */
struct top_party {
    bool waits, shared, gone; /* gone: its connection or its thread has ended. */
    char name[TOP_NAME_SIZE], address[TOP_NAME_SIZE];
    uint64_t units, fence;
    int64_t since_ms, left_ms; /* left_ms: of the lease or of the wait; -1: no limit. */
    int64_t priority;
    char
        text[TOP_TEXT_SIZE]; /* Why a waiter waits. For a holder: its state and note. */
};

struct top_detail {
    char *key;
    size_t key_bytes;
    char summary[TOP_SUMMARY_MAX][TOP_REASON_SIZE];
    size_t sentences;
    struct top_party *parties; /* The holders, and then the waiters. */
    size_t count;
    uint64_t holders, waiters; /* All of them; a server lists at most 100 of each. */
};

/* The state of a server. */
struct top_info {
    char version[32];
    const char *deployment; /* "single", "majority" or "etcd". */
    int64_t uptime_s, clients, locks, waiters;
    int64_t grants, releases, expiries; /* Since the start of the server. */
    int64_t node, nodes, nodes_up;      /* 0: not a cluster. */
    int64_t keeper_node, term;
    char keeper[32]; /* "leader", "watching" ...; "none" without a keeper. */
    bool ready;
    char unready[TOP_REASON_SIZE]; /* Why it is not ready. */
};

struct top_update {
    int64_t at_ms, wall_ms;       /* When it was made; monotonic, and since 1970. */
    bool local;                   /* It shows a segment; `info` is not used. */
    char source[TOP_REASON_SIZE]; /* The address of the server, or the path. */

    /* Why the data could not be read; "": it is current. The rest is then empty. */
    char trouble[TOP_REASON_SIZE];
    int status; /* The exit status for it. */

    struct top_info info;
    double grants_s, releases_s, expiries_s; /* Per second; below 0: not known yet. */
    struct top_lock *locks;                  /* In the order that was wanted. */
    size_t count;
    bool complete;    /* All locks that match the filter are in `locks`. */
    int64_t locks_ms; /* When `locks` was read, monotonic. */
    struct top_detail *detail;
};

/* Reads updates. It belongs to one thread at a time. */
struct top_source {
    const struct cli_server *server; /* NULL: a segment. */
    struct sluice_wire *wire;        /* NULL: not connected. */
    struct sluice_canal *canal;
    char source[TOP_REASON_SIZE];
    struct top_info before; /* Of the last update, for the rates. */
    int64_t before_ms;      /* 0: there is none. */
};

/* Connect, or open the segment (NULL: the default segment). Borrows its arguments until the
 * source is closed. Returns 0; or prints a message and returns an exit status. */
int top_server_open(struct top_source *s, const struct cli_server *server);
int top_local_open(struct top_source *s, const char *segment);

/* Make an update. Borrows `want`. Returns NULL if there is no memory; free the update with
 * top_update_free(). If the server cannot be reached, the update says so, and the next call
 * connects again. */
struct top_update *top_read(struct top_source *s, const struct top_want *want);

/* Its two forms, which fill in an update that is empty except for `source` and the times. They
 * return false if there is no memory. */
bool top_server_read(struct top_source *s, const struct top_want *want,
                     struct top_update *u);
bool top_local_read(struct top_source *s, const struct top_want *want,
                    struct top_update *u);

void top_source_close(struct top_source *s);
void top_update_free(struct top_update *u); /* NULL is allowed. */

/* Append an empty lock. Returns NULL if there is no memory. Copies the key. */
struct top_lock *top_add_lock(struct top_update *u, const char *key, size_t bytes);

/* Append a holder or a waiter. Returns NULL if there is no memory. */
struct top_party *top_add_party(struct top_detail *d);

/* Create the detail of a lock. Returns NULL if there is no memory. Copies the key. */
struct top_detail *top_add_detail(struct top_update *u, const char *key, size_t bytes);

/* Remove locks that are listed twice, and sort. Ties are in the order of the keys. */
void top_unite(struct top_update *u);
void top_sort(struct top_update *u, enum top_order order, bool reversed);

/* Move the locks of an earlier update to one that has none because of trouble. */
void top_keep_locks(struct top_update *u, struct top_update *earlier);

/* Copy text that a peer chose, and cut it if it is too long. */
void top_copy(char *out, size_t size, const char *text, size_t bytes);

#endif /* SL_CLI_TOP_DATA_H */
