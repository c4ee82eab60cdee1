/* books.h - the checker. It sees the world from outside, and keeps its own books of who was
 * told what when; it never asks a node who holds a key.
 *
 *     a client believes it holds     from the answer's arrival, until its own deadline, its
 *                                    release, or the news that it lost
 *     never two of them of a key     unless the later one was told that it is beside another
 *     fences rise                    from grant to grant, and never change over extensions
 *     an extension is of the last    nobody else was granted the key since
 *     who holds is not told that it does not
 *     a request is answered once, an event is told once
 *     a version is one list          on all nodes; each differs from the last by one node;
 *                                    no node goes back */
#ifndef SL_SIM_BOOKS_H
#define SL_SIM_BOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "majority/node.h"
#include "sim/clock.h"

#define SL_SIM_KEYS 4
#define SL_SIM_CLIENTS 12 /* The last ones are there to try, when all is healed. */
#define SL_SIM_NODES 7

struct grant_row {
    sl_fence fence;
    int64_t asked_us, granted_us;
    bool overlapping;
    bool released; /* Its holder has said that it goes. */
};

struct key_book {
    struct grant_row *grants; /* In the order in which they were given. */
    uint32_t count, size;
    bool forced;           /* Somebody was allowed to enter beside another. */
    sl_fence highest;      /* Of all. */
    sl_fence robbed_below; /* The highest that was granted beside another: who has less,
                              may be beside it. */
};

struct belief {
    bool is; /* Unless the deadline is over. */
    uint32_t key;
    sl_fence fence;
    bool overlapping;
    int64_t since_us; /* Without a break. */
    int64_t until_us; /* On its own clock. */
    const struct clock *clock;
};

enum request_state { REQUEST_SENT, REQUEST_ASKED, REQUEST_DONE };

struct request_row {
    enum request_state state;
    uint32_t node, client;
    enum sl_node_verb type;
    uint32_t key;
    sl_fence fence;
    bool steal, force;
    int64_t sent_us;
    uint64_t life; /* Of the node. */
    int64_t asked_us;
};

/* What a node has told to those who listen. */
struct told_row {
    enum sl_node_event_type type;
    uint32_t key;
    sl_fence fence;
};

#define SL_TOLD_ROWS 32

struct list_row {
    uint64_t version;
    uint32_t members; /* A bit for each id. */
};

struct books {
    struct key_book keys[SL_SIM_KEYS];
    struct belief beliefs[SL_SIM_CLIENTS];
    struct request_row *requests; /* By number. */
    uint64_t request_count, request_size;
    struct list_row *lists; /* In the order in which they were first seen. */
    uint32_t list_count, list_size;
    uint64_t version_seen[SL_SIM_NODES];              /* By each node. */
    struct told_row told[SL_SIM_NODES][SL_TOLD_ROWS]; /* In this life, lately. */
    uint32_t told_count[SL_SIM_NODES];
    char wrong[400]; /* What is; empty: nothing. */
    bool is_stuck;   /* It is not wrong, but does not go on. */
};

void sl_books_clear(struct books *b);
void sl_books_free(struct books *b);

/* Something is wrong; the first is kept. */
void sl_books_wrong(struct books *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sl_books_stuck(struct books *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A request is sent, comes to a node, and is withdrawn or answered. The one who sends it
 * fills client, type, key, fence and sent_us. */
uint64_t sl_books_request(struct books *b, const struct request_row *row);
void sl_books_asked(struct books *b, uint64_t request, uint32_t node, uint64_t life,
                    int64_t now_us);
bool sl_books_withdraw(struct books *b, uint64_t request); /* False: it is over. */

/* A node answers. Returns the request, or NULL if that was wrong. */
const struct request_row *sl_books_answered(struct books *b, uint64_t request,
                                            uint32_t node, uint64_t life,
                                            const struct sl_node_answer *a,
                                            int64_t now_us);

/* A client sends a release. What of its extensions is still under way means nothing. */
void sl_books_released(struct books *b, uint32_t key, sl_fence fence);

/* A client believes, from now on and on its own clock until then; or no more. */
void sl_books_believe(struct books *b, uint32_t client, const struct belief *belief,
                      int64_t now_us);
void sl_books_doubt(struct books *b, uint32_t client);
bool sl_books_believes(const struct books *b, uint32_t client, int64_t now_us);

/* A node starts; it tells that a key was granted, released, or that its lease ran out. */
void sl_books_started(struct books *b, uint32_t node);
void sl_books_told(struct books *b, uint32_t node, const struct told_row *row);

/* A node goes by this list. */
void sl_books_list(struct books *b, uint32_t node, const struct sl_membership *m);

/* The newest list that any node went by, as bits of ids. */
uint32_t sl_books_newest(const struct books *b);

/* A request that a node, living under this number (0: it does not), has not answered; 0. */
uint64_t sl_books_open(const struct books *b, const uint64_t lives[SL_SIM_NODES]);

#endif /* SL_SIM_BOOKS_H */
