/* world.h - simulates a cluster, its clients and its faults, in one thread and from one
 * seed.
 *
 *     world.c    the event loop; the orders of the nodes
 *     draw.c     what a seed draws
 *     machine.c  machines: their nodes start and are killed; clocks
 *     net.c      links and messages
 *     client.c   clients: they acquire, extend, release, change node
 *     repeats.c  clients that repeat or cancel a request whose outcome they do not know
 *     nemesis.c  injects faults; operators who change the membership
 *     heal.c     the phase after the faults, when the cluster must make progress
 *     contest.c  concurrent requests for a free key, of which one must be granted
 *     rolling.c  a rolling restart, which must not lose a lease
 *     audit.c    compares what nodes show with their journals
 *     trace.c    prints events
 *
 * The world has its own time, in microseconds. No node and no client can read it. */
#ifndef SL_SIM_WORLD_H
#define SL_SIM_WORLD_H

#include "base/random.h"
#include "sim/checker.h"
#include "sim/clock.h"
#include "sim/disk.h"
#include "sim/faults.h"
#include "sim/kind.h"
#include "sim/queue.h"
#include "sim/replay.h"

#define SIM_NEVER INT64_MAX
#define SIM_REQUESTS 4 /* Pending requests per client. */
#define SIM_OLD 4      /* Leases that a client remembers after their deadline. */

/* --- Machines --------------------------------------------------------------------- */

/* One end of a link. */
struct sim_link {
    bool up;
    int64_t cut_until_us; /* Until then, no message reaches the other end. */
    /* No message arrives from the other end since then; -1: they do. */
    int64_t broken_us;
    /* When the last message sent so far will arrive; used only if messages arrive in
     * order. */
    int64_t last_us;
};

/* An old copy of the data directory of a machine. */
struct sim_backup {
    bool is;
    struct sl_node_durable disk;
    struct sim_disk journal;
    struct sl_node_identity
        states; /* What a node with this copy states in the same life. */
};

/* The state of a node when it was killed, as bytes. In the same life, the next start must find
 * all of it. */
#define SIM_STATE_BYTES 2048
struct sim_remembered {
    bool is;
    struct sl_now now;
    struct {
        size_t bytes;
        char at[SIM_STATE_BYTES];
        sl_fence fence; /* What the node says about the key. */
        bool agreed, reserved;
        int32_t wanted;
    } keys[SIM_KEYS];
};

/* A request of another node that an acceptor may vote on. */
#define SIM_HEARD 32
struct sim_heard {
    sl_node_id from;
    uint64_t round;
    enum sl_message_type type;
    uint32_t key;
    sl_fence fence;
    bool final;
    sl_ms lease_ms;
    sl_ms at_ms; /* When it first arrived, on the clock of the machine. */
};

struct sim_machine {
    struct sl_node *node; /* NULL: the node is down. */
    uint64_t life; /* The number of this start; each start in the world has its own. */
    struct sim_clock clock;
    int64_t wall_off_us;
    struct sl_node_durable disk;  /* The file of the node, */
    struct sl_node_durable ahead; /* and the content that is being written. */
    bool writing;
    struct sim_disk journal;
    struct sim_replay written, durable; /* What it says. */
    bool
        lost_power; /* The machine has lost power, and its node has not started since. */
    int64_t power_us, emptied_us; /* When it last lost power, or its directory. */
    struct sim_heard heard[SIM_HEARD];
    uint32_t heard_next;
    uint64_t shown;           /* Orders that showed something. */
    bool mends;               /* An event to write a new journal is scheduled. */
    bool write_fails;         /* A write of the journal fails; the orders that follow it
                               * are lost, with their connections. */
    uint32_t cut_links;       /* Nodes to which messages were lost; bit 0 is node 1. */
    struct sim_backup backup; /* An old copy of both. */
    bool is_old;              /* It has an old copy, and must be rejected, */
    int64_t old_until_us;     /* until the operator empties the directory. */
    struct sim_remembered remembered;
    bool is_emptied; /* The machine has lost its data directory once. */
    uint32_t peers;  /* Bits of ids. */
    sl_ms due_ms;    /* The time for which a tick is scheduled. */
    int64_t tick_us;
    uint32_t idle_ticks; /* Consecutive ticks without an order, */
    int64_t idle_us;     /* and the time of the first of them. */
    /* Until when the machine pauses, its disk fails or its disk is slow. */
    int64_t paused_us, failing_us, slow_us;
    uint64_t settled; /* Calls of sim_machine_settle(). */
    struct sim_link links[SIM_NODES];
};

/* --- Clients ---------------------------------------------------------------------- */

/* The clients that act after the faults. */
#define SIM_HOLDER (SIM_CLIENTS - SIM_KEYS)
#define SIM_STEALER (SIM_HOLDER + 1)

enum sim_role {
    SIM_ROLE_USER,
    SIM_ROLE_TRIES, /* After the faults: acquires a key. */
    /* Holds a key, extends the lease, and does not release when asked. */
    SIM_ROLE_HOLDER,
    SIM_ROLE_STEALER,
    SIM_ROLE_KEEPS, /* In a rolling restart: acquires a key and must never lose it. */
    SIM_ROLE_RIVAL, /* Requests a free key at the same time as others. */
};

struct sim_request {
    uint64_t number; /* 0: none. */
    enum sl_node_verb type;
    uint32_t key;
    sl_fence fence;
    int64_t sent_us;  /* On the client's clock. */
    int64_t until_us; /* When the client gives up. */
    uint64_t id;      /* The id of its acquisition; 0: none. */
};

struct sim_hold {
    bool is; /* There is a lease to extend or release. */
    uint32_t key;
    sl_fence fence;
    uint64_t id;      /* The id of its acquisition; 0: none. */
    uint64_t session; /* The session that acquired it. */
    sl_ms lease_ms;
    bool overlapping;
    int64_t until_us;   /* Its deadline, on the client's clock. */
    int64_t extend_us;  /* When the client plans to extend it, */
    int64_t release_us; /* and to release it. */
};

/* The last acquisition with a REQUEST id of a client. */
struct sim_acquisition {
    uint64_t id;  /* 0: none. */
    bool is_open; /* The client does not know the outcome. */
    bool cancels; /* The client has given up, and sends CANCEL. */
    bool is_over; /* CANCEL was answered, or RELEASE sent: the client ignores grants. */
    uint32_t key;
    struct sl_node_request ask;
};

struct sim_client {
    enum sim_role role;
    bool quiet; /* The client makes no new requests. */
    struct sim_clock clock;
    uint32_t node;
    uint64_t life; /* The node's life when the client connected; 0: not connected. */
    uint64_t session;
    /* The times of the last arrivals: a connection delivers in order. */
    int64_t out_us, in_us;
    int64_t paused_us;
    int32_t priority;
    bool ignores; /* The client does not release when asked. */
    bool retries; /* The last request failed, so the client tries the next node. */
    struct sim_hold hold;
    struct sim_hold old[SIM_OLD]; /* Leases that have expired on its own clock. */
    struct sim_request requests[SIM_REQUESTS];
    struct sim_acquisition acquisition;
    uint64_t wake;   /* The number of its last timer. */
    int64_t next_us; /* When the client makes its next request, on its own clock. */
};

/* --- The world -------------------------------------------------------------------- */

enum sim_heal_phase {
    SIM_HEAL_NOT,
    SIM_HEAL_WAIT,
    SIM_HEAL_KEYS,
    SIM_HEAL_CONTEST,
    SIM_HEAL_HOLD,
    SIM_HEAL_STEAL,
    SIM_HEAL_DONE
};

/* A contest: several requests for a free key at the same time. */
struct sim_contest {
    uint32_t count;             /* Contests that have ended. */
    bool runs;                  /* The requests of this contest have been sent. */
    int64_t start_us;           /* When the requests are or were sent. */
    sl_ms lease_ms, wait_ms;    /* Of each request. */
    uint32_t rivals;            /* Requests. */
    uint32_t memberships;       /* How many memberships there had been before. */
    uint32_t ok, taken, failed; /* Answers. */
    uint32_t barren;            /* Contests in a row without a grant. */
    uint64_t attempts;          /* Attempts that the nodes had made before. */
    int last_failure;           /* The last status that `failed` counts. */
};

struct sim_world {
    struct sim_setup setup;
    struct sl_random random;
    struct sl_random copies; /* For the replacement of journals, */
    bool replaces;           /* which happens in some seeds. */
    struct sl_random ids;    /* For REQUEST ids, */
    bool repeats;            /* which clients use in some seeds. */
    bool breaks, drains;     /* Operators send BREAK, and DRAIN. */
    struct sim_queue queue;
    struct sim_checker checker;
    struct sim_counts counts;
    uint64_t hash; /* Hash of all orders. */
    int64_t now_us;
    uint64_t steps;

    /* Drawn from the seed once. */
    uint64_t faults;
    struct sl_node_limits limits;
    sl_ms lease_min_ms, lease_max_ms; /* The range of leases that clients request. */
    sl_ms volatile_ms;                /* Longer leases must be durable. */
    uint32_t node_count, key_count, client_count, operator_count;
    uint32_t loss, doubles; /* Per 10,000 messages. */
    int64_t short_us, tail_us, ages_us;
    int64_t nemesis_us, operator_us; /* Average intervals. */
    sl_ms think_ms;                  /* Between two requests of a client. */
    uint32_t slack_us;               /* How late ticks may be. */
    /* The type of message that is very late; NONE: all types. */
    enum sl_message_type aged;
    bool long_leases;
    uint32_t alone;       /* A node that is isolated from all others, */
    uint32_t alone_until; /* until there are this many memberships; 0: no node is. */
    bool growing;         /* Operators add nodes rather than remove them. */
    uint32_t rolled;      /* Rolling restart: nodes restarted so far, */
    int64_t cut_off_us;   /* and until when a node is cut off. */
    uint64_t heal_at;     /* Faults end after this many events; 0: never. */

    struct sim_machine machines[SIM_NODES];
    struct sim_client clients[SIM_CLIENTS];
    uint64_t lives, sessions;
    uint64_t connections; /* Connections between nodes so far; each has a number. */
    uint64_t connection[SIM_NODES][SIM_NODES];
    struct {
        uint64_t number;
        int64_t until_us;
        uint32_t node; /* The node that the operator uses. */
    } operators[2];

    enum sim_heal_phase heal;
    int64_t heal_us; /* When this phase began. */
    uint32_t had;    /* Keys that were granted since then, as bits. */
    uint32_t rounds; /* Rounds of stealing so far. */
    struct sim_contest contest;
    int last_status;      /* Status of the last acquire. */
    bool heal_loses;      /* A few messages are lost while stealing is tried. */
    sl_ms steal_ms;       /* The lease of the holder. */
    uint32_t memberships; /* How many memberships there were when stealing began. */
    bool over;
};

static inline bool sim_has_fault(const struct sim_world *w, enum sim_fault f)
{
    return (w->faults & 1ull << f) != 0 && w->heal == SIM_HEAL_NOT;
}

static inline sl_node_id sim_node_id(uint32_t machine)
{
    return machine + 1;
}

/* --- world.c ---------------------------------------------------------------------- */

/* Run one seed. *w must be zero before the first run, and may be reused. The checker in
 * *w then contains the violation, if any. */
void sim_world_run(struct sim_world *w, const struct sim_setup *setup);
void sim_world_free(struct sim_world *w);

/* Add an event to the queue, with this delay. Takes ownership of its packet. */
void sim_schedule(struct sim_world *w, int64_t delay_us, struct sim_event h);

/* Execute the orders of a node, check its invariants, and set its timer. Call this
 * after each call to a function of a node. */
void sim_machine_settle(struct sim_world *w, uint32_t m);

/* --- draw.c ----------------------------------------------------------------------- */

void sim_draw(struct sim_world *w);
struct sim_clock sim_draw_clock(struct sim_world *w);

/* --- machine.c -------------------------------------------------------------------- */

void sim_machine_start(struct sim_world *w, uint32_t m);
/* Kill the process. With `power`, the machine loses power as well. */
void sim_machine_kill(struct sim_world *w, uint32_t m, bool power);
bool sim_machine_runs(const struct sim_world *w, uint32_t m);
struct sl_now sim_machine_now(const struct sim_world *w, uint32_t m);
/* Update the set of nodes that a node wants to be connected to. */
void sim_machine_update_peers(struct sim_world *w, uint32_t m);

/* --- net.c ------------------------------------------------------------------------ */

void sim_net_send(struct sim_world *w, uint32_t from, sl_node_id to,
                  const struct sl_message *m);
void sim_net_deliver(struct sim_world *w, const struct sim_event *h);
void sim_net_update(struct sim_world *w); /* Updates all links. */
/* Node m closes its links to other nodes, given as bits. */
void sim_net_cut(struct sim_world *w, uint32_t m, uint32_t others);
void sim_net_drop(struct sim_world *w, uint32_t m);
int64_t sim_net_delay(struct sim_world *w);

/* --- client.c --------------------------------------------------------------------- */

void sim_client_init(struct sim_world *w, uint32_t c, enum sim_role role);
void sim_client_act(struct sim_world *w, uint32_t c);
void sim_client_answered(struct sim_world *w, uint32_t c, const struct sim_event *h);
void sim_client_notified(struct sim_world *w, uint32_t c, const struct sim_event *h);
void sim_client_hang_up(struct sim_world *w, uint32_t c);
/* A node closes the connection that should carry the answer to this request. Returns false if no
 * client waits for it. */
bool sim_client_cut(struct sim_world *w, uint64_t number);
bool sim_client_connect(struct sim_world *w, uint32_t c); /* False: no node is up. */
/* Connect to the node `start`, or to the next one that is up. */
bool sim_client_connect_from(struct sim_world *w, uint32_t c, uint32_t start);
bool sim_client_is_busy(const struct sim_client *c);

/* Send a request, after filling in its session and note. Returns its number. */
uint64_t sim_client_ask(struct sim_world *w, uint32_t c,
                        const struct sl_node_request *ask, uint32_t key,
                        int64_t patience_ms);

/* Wake the client when its own clock shows this time. */
void sim_client_wake(struct sim_world *w, uint32_t c, int64_t shows_us);
int64_t sim_client_clock(const struct sim_world *w, uint32_t c);
/* Return when a client stops acting as holder, as docs/leases.md defines it. */
int64_t sim_client_deadline(int64_t sent_us, sl_ms ms);
void sim_client_release(struct sim_world *w, uint32_t c);
void sim_client_extend(struct sim_world *w, uint32_t c, sl_ms lease_ms);

/* Deliver the answer of a node to a request, or an event that it publishes. */
void sim_client_answer(struct sim_world *w, uint32_t m, uint64_t request,
                       const struct sl_node_answer *a);
void sim_client_event(struct sim_world *w, uint32_t m, const struct sl_node_event *e);
struct sl_bytes sim_key_bytes(uint32_t key);

/* --- repeats.c -------------------------------------------------------------------- */

/* Draw whether this request gets an id, or uses an old one. */
void sim_repeats_draw(struct sim_world *w, uint32_t c, uint32_t key,
                      struct sl_node_request *ask);
/* If the client does not know the outcome of its last request, repeat or cancel it. Returns
 * false if the client has nothing to repeat. */
bool sim_repeats_act(struct sim_world *w, uint32_t c);
/* An ACQUIRE or CANCEL with an id was answered. Returns false if the client has given up,
 * and ignores the answer. */
bool sim_repeats_answered(struct sim_world *w, uint32_t c, const struct sim_request *r,
                          int status);
/* A node has granted a lease to a client that has left. */
void sim_repeats_came_too_late(struct sim_world *w, uint32_t m,
                               const struct sim_request_record *r,
                               const struct sl_grant *g);
/* Write the id into the packet of a request. */
void sim_repeats_write(struct sim_packet *p, uint64_t id);

/* --- nemesis.c -------------------------------------------------------------------- */

void sim_nemesis_act(struct sim_world *w);
/* Draw whether a machine that is killed also loses power. */
bool sim_nemesis_takes_power(struct sim_world *w);
/* Empty the directories that are old copies since long enough. */
void sim_nemesis_end_old_copies(struct sim_world *w, int64_t now_us);
void sim_nemesis_crash(struct sim_world *w, uint32_t m);
void sim_nemesis_part(struct sim_world *w, uint32_t side, int64_t length_us);
void sim_operator_act(struct sim_world *w, uint32_t operator);

/* --- heal.c ----------------------------------------------------------------------- */

void sim_heal_begin(struct sim_world *w);
void sim_heal_step(struct sim_world *w); /* Call this after each event. */
void sim_heal_enter(struct sim_world *w, enum sim_heal_phase phase);
sl_ms sim_heal_passed_ms(const struct sim_world *w); /* Time since this phase began. */
/* Return the time within which every key must be granted again. */
sl_ms sim_heal_bound_ms(const struct sim_world *w);
void sim_heal_begin_client(struct sim_world *w, uint32_t c, enum sim_role role);
void sim_heal_begin_holding(struct sim_world *w);
/* Return whether none of these clients holds a lease or has a pending request. */
bool sim_heal_is_quiet(const struct sim_world *w, uint32_t first, uint32_t count);
/* Return whether all members are up, linked, and none of them is silent. With `may_be_down`,
 * members that were killed may be down. */
bool sim_heal_is_settled(const struct sim_world *w, bool may_be_down);
/* Return a request that no node has answered, or 0. */
uint64_t sim_heal_open_request(const struct sim_world *w);
void sim_heal_client_act(struct sim_world *w, uint32_t c);
void sim_heal_answered(struct sim_world *w, uint32_t c, const struct sim_request *r,
                       const struct sim_packet *p);

/* --- contest.c ------------------------------------------------------------------------ */

void sim_contest_begin(struct sim_world *w);
void sim_contest_step(struct sim_world *w);
void sim_contest_answered(struct sim_world *w, int status);
void sim_contest_client_act(struct sim_world *w, uint32_t c);

/* --- rolling.c --------------------------------------------------------------------- */

void sim_rolling_draw(struct sim_world *w);
void sim_rolling_act(struct sim_world *w);
void sim_rolling_client_act(struct sim_world *w, uint32_t c);
void sim_rolling_answered(struct sim_world *w, uint32_t c, const struct sim_request *r,
                          const struct sim_packet *p);

/* --- audit.c ----------------------------------------------------------------------- */

/* An answer to a request leaves; a node has started. */
void sim_audit_acknowledged(struct sim_world *w, uint32_t m, uint32_t c,
                            const struct sim_request *r,
                            const struct sl_node_answer *a);
void sim_audit_started(struct sim_world *w, uint32_t m);
/* A message arrives; an order is carried out. */
void sim_audit_received(struct sim_world *w, uint32_t m, sl_node_id from,
                        const struct sl_message *msg);
void sim_audit_order(struct sim_world *w, uint32_t m, const struct sl_node_order *o);

/* --- trace.c ---------------------------------------------------------------------- */

void sim_trace(const struct sim_world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_trace_setup(const struct sim_world *w);
void sim_trace_message(const struct sim_world *w, const char *verb, uint32_t from,
                       uint32_t to, const struct sl_message *m);
void sim_trace_ask(const struct sim_world *w, uint32_t c, uint32_t m, uint64_t number,
                   const struct sl_node_request *ask);
void sim_trace_write(const struct sim_world *w, uint32_t m,
                     const struct sl_node_durable *d);
const char *sim_verb_name(enum sl_node_verb type);

#define SIM_TRACE(w, ...)                                  \
    do {                                                   \
        if ((w)->setup.trace) sim_trace((w), __VA_ARGS__); \
    } while (0)

#endif /* SL_SIM_WORLD_H */
