/* majority_stage.h - a stage for leases by majority: real nodes, and all that is between them
 * in the hands of the test.
 *
 *     struct stage *s = stage_new(3);          three nodes, met, with a first list
 *     uint64_t a = ASK(1, .lease_ms = 1000);   a client of node 1 asks
 *     sl_fence f = granted(s, a);              and has it
 *     stage_end(s);
 *
 * Messages flow at once and time stands still, until the test wishes otherwise: hold()
 * keeps messages in the bag, from where deliver(), again() and lose() take them one by one;
 * cut() loses them as they are sent; pass() lets time go by, each node's clock at its own
 * rate. A node has a disk, which may be slow (disk_stop()); it crashes, and restarts with
 * what was on it.
 *
 * The stage believes what clients believe: a grant counts from when it was asked for, as
 * docs/leases.md tells, until it is released. At every answer it checks that nobody else
 * believes (unless it was told that the grants overlap), and that fences rise. After every
 * call of a node, sl_node_check(). */
#ifndef SLUICE_TEST_MAJORITY_STAGE_H
#define SLUICE_TEST_MAJORITY_STAGE_H

#include "test.h"

#include "base/random.h"
#include "majority/node.h"
#include "sim/disk.h"

enum {
    STAGE_NODES = 9,
    STAGE_REQUESTS = 512,
    STAGE_EVENTS = 4096,
    STAGE_RULES = 64,
    STAGE_BYTES = 64, /* Of a key, a value, a note. */
};

/* On its way, or kept in the bag. */
struct parcel {
    sl_node_id from, to;
    struct sl_message m;
    char *bytes; /* Where its key, value and note are. */
};

/* A request of a client, and its answer. */
struct request {
    sl_node_id at;
    struct sl_node_request ask;
    char key[STAGE_BYTES];
    int64_t sent_us;
    bool answered, withdrawn;
    int asked; /* What sl_node_submit() said. */
    struct sl_node_answer answer;
    struct sl_node_copy copies[STAGE_NODES];
    char bytes[STAGE_NODES][3][STAGE_BYTES]; /* Values, notes and clients of these. */
    int64_t granted_us;
    int64_t end_us; /* Of a grant, as its client counts: it acts until then. */
    int client_ppm;
};

struct seen {
    sl_node_id at;
    enum sl_node_event_type type;
    char key[STAGE_BYTES];
    struct sl_node_event event; /* Without its bytes. */
};

struct actor {
    struct sl_node *node; /* NULL: it is down. */
    bool paused;
    uint64_t epoch;
    int64_t offset_us, wall_offset_us; /* Of its clocks against the stage's, */
    int ppm;                           /* and how much faster they run. */
    struct sl_node_durable disk,
        written; /* What is on it, and what is being written. */
    bool writes;
    struct sim_disk journal;
    bool disk_stopped, disk_fails;
    bool write_fails; /* The next write of its journal fails, */
    bool is_cut;      /* and what it says in that step is lost. */
    unsigned wrote;   /* How often. */
    char log[256];    /* What it last said. */
};

struct rule {
    sl_node_id from, to;       /* 0: any. */
    enum sl_message_type type; /* SL_MESSAGE_NONE: any. */
    bool lose;                 /* Else it is kept. */
};

struct stage {
    struct actor actor[STAGE_NODES + 1]; /* By id, from 1. */
    bool linked[STAGE_NODES + 1][STAGE_NODES + 1];
    bool barred[STAGE_NODES + 1][STAGE_NODES + 1];
    int64_t now_us; /* The time outside. */
    int client_ppm; /* How much faster the clocks of clients run who ask from now on. */
    struct sl_membership first; /* The list of the first start. */
    struct sl_node_limits limits;
    sl_ms volatile_ms; /* lease-volatile; 0: see restart(). */
    sl_ms longest_ms;  /* The longest lease that a client asked for. */
    uint64_t drawn;    /* Numbers that were "random". */
    struct parcel *bag;
    size_t bag_count, bag_size;
    struct rule rule[STAGE_RULES];
    uint32_t rules;
    struct request request[STAGE_REQUESTS];
    uint64_t requests; /* The tickets that were given: 1, 2, ... */
    struct seen seen[STAGE_EVENTS];
    uint32_t events;
    unsigned relinks;
    bool doubled;    /* Every message comes twice. */
    bool last_first; /* The newest is delivered before the others. */
    bool shuffled;   /* Messages arrive in random order: see shuffle(). */
    struct sl_random random;
    bool remembers; /* What was sent; for replay(). */
    struct parcel *sent;
    size_t sent_count, sent_size;
    bool may_overlap; /* What clients believe is not judged: the test does it. */
};

/* Set while a node is called: for tests that take its memory away. */
extern bool stage_in_node;

/* --- Life ------------------------------------------------------------------- */

/* A test with a new cluster of this many nodes: s. */
#define STAGE_TEST(name, nodes)                   \
    static void name##_on_stage(struct stage *s); \
    TEST(name)                                    \
    {                                             \
        struct stage *s = stage_new(nodes);       \
        name##_on_stage(s);                       \
        stage_end(s);                             \
    }                                             \
    static void name##_on_stage(struct stage *s)

/* Nodes 1 to n of a new cluster; more may be added. */
struct stage *stage_new(uint32_t n);
struct stage *stage_with(uint32_t n, const struct sl_node_limits *limits);
/* One whose longer leases must be durable. */
struct stage *stage_durable(uint32_t n, sl_ms volatile_ms);
extern const struct sl_node_limits stage_limits;
/* Before anybody has asked them for anything. */
struct stage *stage_cold(uint32_t n, const struct sl_node_limits *limits);
/* A node's disk has fences for some time, so that its requests need not wait for that. */
void warm_up(struct stage *s, sl_node_id id);
void stage_end(struct stage *s);

/* One that is on no list and has an empty data directory. */
void start(struct stage *s, sl_node_id id);
/* The machine loses power. What was being written is on the disk (or is not), and what was not
 * synced is lost. */
void crash(struct stage *s, sl_node_id id);
void crash_written(struct stage *s, sl_node_id id);
/* As after kill -9: what was written to the journal is there, and it is the same life. */
void kill_node(struct stage *s, sl_node_id id);
/* It loses power, if it runs, and is back with what is on its disk. Unless the stage has a
 * lease-volatile, no lease was durable, and the wait is that of the longest one. */
void restart(struct stage *s, sl_node_id id);
/* It is killed, and back in the same life. */
void restart_killed(struct stage *s, sl_node_id id);
/* Its data directory is lost, too. */
void restart_empty(struct stage *s, sl_node_id id);
/* It does nothing for a while; its clock goes on. */
void stop(struct stage *s, sl_node_id id);
void go(struct stage *s, sl_node_id id);
/* There is no connection between two; or may be one again. */
void unlink_nodes(struct stage *s, sl_node_id a, sl_node_id b);
void link_nodes(struct stage *s, sl_node_id a, sl_node_id b);
void relink(struct stage *s);

/* Writes take until disk_go(); or end as they are told to. */
void disk_stop(struct stage *s, sl_node_id id);
void disk_go(struct stage *s, sl_node_id id);
void disk_done(struct stage *s, sl_node_id id, bool ok);

/* --- Time ------------------------------------------------------------------- */

/* Millisecond by millisecond, with all that is due. */
void pass(struct stage *s, sl_ms ms);
/* Less than a millisecond: clocks are rounded down. */
void pass_us(struct stage *s, int64_t us);
/* At once, as after the suspension of all machines. */
void jump(struct stage *s, sl_ms ms);
/* From now on its clock is faster by this many millionths. */
void run_at(struct stage *s, sl_node_id id, int ppm);
struct sl_now clock_of(const struct stage *s, sl_node_id id);
sl_ms now_ms(const struct stage *s);

/* --- Messages --------------------------------------------------------------- */

/* From, to, type; 0 is any. */
void hold(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type);
void cut(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type);
/* Both ways between a node and all others. */
void isolate(struct stage *s, sl_node_id id);
/* No rule holds any more; what was held flows. */
void flow(struct stage *s);
/* No rule holds any more; what was held stays where it is. */
void open_all(struct stage *s);
/* All that is not held is delivered, and what follows from it. */
void settle(struct stage *s);

/* From now on messages arrive in an order that is drawn from this seed. */
void shuffle(struct stage *s, uint64_t seed);

/* One message, that is not held; false: there is none. */
bool settle_one(struct stage *s);

/* Of those kept: the oldest such; it is an error if there is none. */
void deliver(struct stage *s, sl_node_id from, sl_node_id to,
             enum sl_message_type type);
void deliver_newest(struct stage *s, sl_node_id from, sl_node_id to,
                    enum sl_message_type type);
/* It is delivered, and stays. */
void again(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type);
void deliver_all(struct stage *s, sl_node_id from, sl_node_id to,
                 enum sl_message_type type);
void lose(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type);
uint32_t kept(const struct stage *s, sl_node_id from, sl_node_id to,
              enum sl_message_type type);
/* All that was sent since `remembers` was set comes once more. */
void replay(struct stage *s);
const struct sl_message *newest(const struct stage *s, sl_node_id from, sl_node_id to,
                                enum sl_message_type type);

/* A message as `from` would send it now, but for what it is about; and giving it to `to`.
 * probe() also takes the vote that is the answer out of the bag: type SL_MESSAGE_NONE, if there
 * is none. */
struct sl_message forged(const struct stage *s, sl_node_id from, sl_node_id to,
                         enum sl_message_type type);
void give(struct stage *s, sl_node_id from, sl_node_id to, const struct sl_message *m);
struct sl_message probe(struct stage *s, sl_node_id from, sl_node_id to,
                        const struct sl_message *m);

/* What an acceptor has of "k", whichever node is asked: its fence, 0: nothing. */
sl_fence acceptor_has(struct stage *s, sl_node_id at);

/* --- Requests --------------------------------------------------------------- */

/* Of "k", if no key is named; with a lease of 1000 ms, if none is. What can follow at once
 * has followed. */
uint64_t stage_ask(struct stage *s, sl_node_id at, struct sl_node_request ask);
#define REQUEST(kind, at, ...) \
    stage_ask(s, at, (struct sl_node_request){.type = SL_NODE_##kind, __VA_ARGS__})
#define ASK(at, ...) REQUEST(ACQUIRE, at, __VA_ARGS__)

/* A thief that waits for so long and never enters early; and one that does. */
#define THIEF_FOR(ms) .wait_ms = ms, .steal = true, .force_ms = SL_NEVER
#define THIEF THIEF_FOR(10000)
#define FORCE(ms) .wait_ms = 10000, .steal = true, .force_ms = ms

void withdraw(struct stage *s, uint64_t request);
bool answered(const struct stage *s, uint64_t request);
const struct sl_node_answer *answer_to(struct stage *s, uint64_t request);
/* Time passes until it is answered; it is an error if that takes a minute. */
int outcome(struct stage *s, uint64_t request);
/* It is answered in time, and so: */
sl_fence granted(struct stage *s, uint64_t request);
void refused(struct stage *s, uint64_t request, int status);
/* It is answered, and not with a grant, whatever the reason is. */
void not_granted(struct stage *s, uint64_t request);
void waits(struct stage *s, uint64_t request);
/* Whether its client acts now. */
bool believes(const struct stage *s, uint64_t request);

/* All at once, with the time that it takes. */
sl_fence take(struct stage *s, sl_node_id at, sl_ms lease_ms);
int extend(struct stage *s, sl_node_id at, sl_fence fence, sl_ms lease_ms);
int release(struct stage *s, sl_node_id at, sl_fence fence); /* 1, 0 or a status. */
int check(struct stage *s, sl_node_id at, sl_fence fence);   /* The same. */
/* By majority: its fence, 0: free. */
sl_fence read_key(struct stage *s, sl_node_id at);
/* The copy of one node: its fence, 0: it knows of none. */
sl_fence copy_at(struct stage *s, sl_node_id at);
sl_ms silence_of(const struct stage *s, sl_node_id at);
/* Until no node is silent any more. */
void end_silence(struct stage *s);

/* --- Lists of nodes ----------------------------------------------------------- */

uint64_t add_node(struct stage *s, sl_node_id at, sl_node_id node);
uint64_t remove_node(struct stage *s, sl_node_id at, sl_node_id node);
/* "2: 1 2 3 4", of the list that a node goes by. */
const char *list_at(const struct stage *s, sl_node_id at);
/* Of each version there is one list, as far as nodes go by it or have stored it. */
void one_list(const struct stage *s);
#define LIST(at, text) assert_string_equal(list_at(s, at), text)

/* --- Events ------------------------------------------------------------------- */

/* Of one type, about one fence (0: any), seen at one node (0: any). */
uint32_t events(const struct stage *s, sl_node_id at, enum sl_node_event_type type,
                sl_fence fence);
const struct sl_node_event *last_event(const struct stage *s, sl_node_id at,
                                       enum sl_node_event_type type);
void forget_events(struct stage *s);

#endif /* SLUICE_TEST_MAJORITY_STAGE_H */
