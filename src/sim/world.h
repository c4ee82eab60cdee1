/* world.h - a cluster, its clients and its faults, in one thread and from one seed.
 *
 *     world.c    the loop; machines: they carry out what a node orders; disks and clocks
 *     net.c      links and messages
 *     client.c   clients: they acquire, extend, release, change node
 *     nemesis.c  injects faults; operators who change the membership
 *     heal.c     no more faults: from then on there must be progress
 *     contest.c  several requests for a free key at once, of which one must be granted
 *     rolling.c  a rolling restart, which must not lose a lease
 *     trace.c    prints what happens
 *
 * The world has its own time, in microseconds. No node and no client knows it. */
#ifndef SL_SIM_WORLD_H
#define SL_SIM_WORLD_H

#include "base/random.h"
#include "sim/checker.h"
#include "sim/clock.h"
#include "sim/faults.h"
#include "sim/queue.h"

#define SIM_NEVER INT64_MAX
#define SIM_REQUESTS 4 /* Of one client at a time. */
#define SIM_OLD 4      /* Leases that a client remembers after their deadline. */

/* The options of a run. Everything else is drawn from the seed. */
struct sim_setup {
    uint64_t seed;
    uint64_t events;
    uint32_t faults;
    bool faults_given; /* Else they are drawn. */
    uint32_t clients;  /* 0: drawn. */
    uint64_t until;    /* Stop after this many events; 0: do not. */
    bool trace;
};

struct sim_counts {
    uint64_t seeds, events, grants, extends, steals, crashes, changes, healed;
    uint64_t wrong, stuck, twice;
};

/* --- Machines --------------------------------------------------------------------- */

/* One end of a link. */
struct sim_link {
    bool up;
    int64_t cut_until_us; /* Nothing reaches the other end until then. */
    int64_t broken_us;    /* Since when nothing arrives from it; -1. */
    int64_t last_us;      /* When the last message arrives, if they arrive in order. */
};

struct sim_machine {
    struct sl_node *node; /* NULL: it is down. */
    uint64_t life;        /* The number of this start, of all starts. */
    struct sim_clock clock;
    int64_t wall_off_us;
    struct sl_node_durable disk;  /* What a start finds, */
    struct sl_node_durable ahead; /* and what is being written. */
    bool writing;
    bool is_emptied; /* It lost its data directory once. */
    uint32_t peers;  /* Bits of ids. */
    sl_ms due_ms;    /* The time for which a tick is scheduled. */
    int64_t tick_us;
    uint32_t idle_ticks;                    /* Ticks in a row without any order, */
    int64_t idle_us;                        /* since then. */
    int64_t paused_us, failing_us, slow_us; /* Until then. */
    uint64_t settled;                       /* Calls of sim_machine_settle(). */
    struct sim_link links[SIM_NODES];
};

/* --- Clients ---------------------------------------------------------------------- */

/* The clients that act after the faults. */
#define SIM_HOLDER (SIM_CLIENTS - SIM_KEYS)
#define SIM_STEALER (SIM_HOLDER + 1)

enum sim_role {
    SIM_ROLE_USER,
    SIM_ROLE_TRIES,  /* After the faults: acquires a key. */
    SIM_ROLE_HOLDER, /* Holds it, extends, and does not release when asked. */
    SIM_ROLE_STEALER,
    SIM_ROLE_KEEPS, /* In a rolling restart: acquires a key, and must never lose it. */
    SIM_ROLE_RIVAL, /* Requests a free key at the same time as others. */
};

struct sim_request {
    uint64_t number; /* 0: none. */
    enum sl_node_verb type;
    uint32_t key;
    sl_fence fence;
    int64_t sent_us;  /* On the client's clock. */
    int64_t until_us; /* Then the client gives up. */
};

struct sim_hold {
    bool is; /* There is a lease to extend or release. */
    uint32_t key;
    sl_fence fence;
    uint64_t session; /* That acquired it. */
    sl_ms lease_ms;
    bool overlapping;
    int64_t until_us;   /* Its deadline, on the client's clock. */
    int64_t extend_us;  /* When the client plans to extend, */
    int64_t release_us; /* and to release. */
};

struct sim_client {
    enum sim_role role;
    bool quiet; /* It makes no new requests. */
    struct sim_clock clock;
    uint32_t node;
    uint64_t life; /* Of that node, when it connected; 0: it is not connected. */
    uint64_t session;
    int64_t out_us, in_us; /* The last arrivals: a connection keeps its order. */
    int64_t paused_us;
    int32_t priority;
    bool ignores; /* It does not release when asked. */
    bool retries; /* Its last request failed, so it tries the next node. */
    struct sim_hold hold;
    struct sim_hold old[SIM_OLD]; /* Expired, as far as it knows. */
    struct sim_request requests[SIM_REQUESTS];
    uint64_t wake;   /* The number of its last alarm. */
    int64_t next_us; /* When it makes its next request, on its own clock. */
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

/* Several requests for a free key at the same time. */
struct sim_contest {
    uint32_t count;             /* Contests that have ended. */
    bool runs;                  /* The requests have been sent. */
    int64_t start_us;           /* When they are sent, or were. */
    sl_ms lease_ms, wait_ms;    /* Of each. */
    uint32_t rivals;            /* Requests. */
    uint32_t memberships;       /* How many there had been before. */
    uint32_t ok, taken, failed; /* Answers. */
    uint64_t attempts;          /* That the nodes had made before. */
    int last_failure;           /* Of `failed`. */
};

struct sim_world {
    struct sim_setup setup;
    struct sl_random random;
    struct sim_queue queue;
    struct sim_checker checker;
    struct sim_counts counts;
    uint64_t hash; /* Of all orders. */
    int64_t now_us;
    uint64_t steps;

    /* Drawn once. */
    uint32_t faults;
    struct sl_node_limits limits;
    sl_ms lease_min_ms, lease_max_ms; /* That clients request. */
    uint32_t node_count, key_count, client_count, operator_count;
    uint32_t loss, doubles; /* Of 10,000 messages. */
    int64_t short_us, tail_us, ages_us;
    int64_t nemesis_us, operator_us; /* How often. */
    sl_ms think_ms;                  /* Between two requests of a client. */
    uint32_t slack_us;               /* How late ticks are. */
    enum sl_message_type aged;       /* The type that takes ages; NONE: all. */
    bool long_leases;
    uint32_t alone;       /* A node that is partitioned from all others, */
    uint32_t alone_until; /* until there were this many memberships; 0: none is. */
    bool growing;         /* Operators add nodes rather than remove them. */
    uint32_t rolled;      /* Rolling restart: nodes restarted so far, */
    int64_t cut_off_us;   /* and until when a node is cut off. */
    uint64_t heal_at;     /* Faults end after this many events; 0: never. */

    struct sim_machine machines[SIM_NODES];
    struct sim_client clients[SIM_CLIENTS];
    uint64_t lives, sessions;
    uint64_t connections; /* Between nodes; each has a number. */
    uint64_t connection[SIM_NODES][SIM_NODES];
    struct {
        uint64_t number;
        int64_t until_us;
        uint32_t node; /* That it asks. */
    } operators[2];

    enum sim_heal_phase heal;
    int64_t heal_us; /* When this phase began. */
    uint32_t had;    /* Keys that were granted since, as bits. */
    uint32_t rounds; /* Of stealing. */
    struct sim_contest contest;
    int last_status;      /* Of the last acquire. */
    bool heal_loses;      /* A few messages are lost while stealing is tried. */
    sl_ms steal_ms;       /* The lease of the holder. */
    uint32_t memberships; /* How many there were when stealing began. */
    bool over;
};

static inline bool sim_has_fault(const struct sim_world *w, enum sim_fault f)
{
    return (w->faults & 1u << f) != 0 && w->heal == SIM_HEAL_NOT;
}

static inline sl_node_id sim_node_id(uint32_t machine)
{
    return machine + 1;
}

/* --- world.c ---------------------------------------------------------------------- */

/* Run one seed. w is zero at first, and may be used again. Violations are in its checker. */
void sim_world_run(struct sim_world *w, const struct sim_setup *setup);
void sim_world_free(struct sim_world *w);

/* Put an event into the queue, with this delay. Takes its packet. */
void sim_schedule(struct sim_world *w, int64_t delay_us, struct sim_event h);

void sim_machine_start(struct sim_world *w, uint32_t m);
void sim_machine_kill(struct sim_world *w, uint32_t m);
bool sim_machine_runs(const struct sim_world *w, uint32_t m);
struct sl_now sim_machine_now(const struct sim_world *w, uint32_t m);

/* After each call of a node: carry out its orders, check it, and set its alarm. */
void sim_machine_settle(struct sim_world *w, uint32_t m);

/* --- net.c ------------------------------------------------------------------------ */

void sim_net_send(struct sim_world *w, uint32_t from, sl_node_id to,
                  const struct sl_message *m);
void sim_net_deliver(struct sim_world *w, const struct sim_event *h);
void sim_net_update(struct sim_world *w); /* All links. */
void sim_net_drop(struct sim_world *w, uint32_t m);
int64_t sim_net_delay(struct sim_world *w);

/* --- client.c --------------------------------------------------------------------- */

void sim_client_init(struct sim_world *w, uint32_t c, enum sim_role role);
void sim_client_act(struct sim_world *w, uint32_t c);
void sim_client_answered(struct sim_world *w, uint32_t c, const struct sim_event *h);
void sim_client_notified(struct sim_world *w, uint32_t c, const struct sim_event *h);
void sim_client_hang_up(struct sim_world *w, uint32_t c);
bool sim_client_connect(struct sim_world *w, uint32_t c); /* False: no node is up. */
/* To this node, or the next one that is up. */
bool sim_client_connect_from(struct sim_world *w, uint32_t c, uint32_t start);
bool sim_client_is_busy(const struct sim_client *c);

/* Send a request, with session and note filled in. Returns its number. */
uint64_t sim_client_ask(struct sim_world *w, uint32_t c,
                        const struct sl_node_request *ask, uint32_t key,
                        int64_t patience_ms);

/* Wake it when its own clock shows that much. */
void sim_client_wake(struct sim_world *w, uint32_t c, int64_t shows_us);
int64_t sim_client_clock(const struct sim_world *w, uint32_t c);
void sim_client_release(struct sim_world *w, uint32_t c);
void sim_client_extend(struct sim_world *w, uint32_t c, sl_ms lease_ms);

/* A node answers a request, or publishes an event. */
void sim_client_answer(struct sim_world *w, uint32_t m, uint64_t request,
                       const struct sl_node_answer *a);
void sim_client_event(struct sim_world *w, uint32_t m, const struct sl_node_event *e);
struct sl_bytes sim_key_bytes(uint32_t key);

/* --- nemesis.c -------------------------------------------------------------------- */

void sim_nemesis_act(struct sim_world *w);
void sim_nemesis_crash(struct sim_world *w, uint32_t m);
void sim_nemesis_part(struct sim_world *w, uint32_t side, int64_t length_us);
void sim_operator_act(struct sim_world *w, uint32_t operator);

/* --- heal.c ----------------------------------------------------------------------- */

void sim_heal_begin(struct sim_world *w);
void sim_heal_step(struct sim_world *w); /* After each event. */
void sim_heal_enter(struct sim_world *w, enum sim_heal_phase phase);
sl_ms sim_heal_passed_ms(const struct sim_world *w); /* Since this phase began. */
/* Every key must be granted again within this time. */
sl_ms sim_heal_bound_ms(const struct sim_world *w);
void sim_heal_begin_client(struct sim_world *w, uint32_t c, enum sim_role role);
void sim_heal_begin_holding(struct sim_world *w);
/* Whether none of these clients holds a lease or has a request. */
bool sim_heal_is_quiet(const struct sim_world *w, uint32_t first, uint32_t count);
/* Whether no member is silent, and all are up, or only some that were killed are not. */
bool sim_heal_is_settled(const struct sim_world *w, bool may_be_down);
/* A request that no node has answered; 0: none. */
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
