/* world.h - a cluster, its clients and all that goes wrong, in one thread and from one seed.
 *
 *     world.c    the loop; machines: what a node orders is done, its disk, its clock
 *     net.c      links: what is sent arrives, or not
 *     client.c   clients: they acquire, extend, release, change node
 *     nemesis.c  what breaks; operators who change the list of nodes
 *     heal.c     nothing breaks any more: now it has to go on
 *     rolling.c  nodes are restarted one by one, and no lease may be lost
 *     trace.c    what happened, to read
 *
 * Time is that of the world, in microseconds; nobody in it knows that time. */
#ifndef SL_SIM_WORLD_H
#define SL_SIM_WORLD_H

#include "base/random.h"
#include "sim/books.h"
#include "sim/clock.h"
#include "sim/faults.h"
#include "sim/queue.h"

#define SL_SIM_NEVER INT64_MAX
#define SL_SIM_REQUESTS 4 /* Of one client, under way at one time. */
#define SL_SIM_OLD 4

/* What a run is made of. Everything else is drawn from the seed. */
struct sim_setup {
    uint64_t seed;
    uint64_t events;
    uint32_t faults;
    bool faults_given; /* Else they are drawn. */
    uint32_t clients;  /* 0: drawn. */
    uint64_t until;    /* Stop after that many events; 0: do not. */
    bool trace;
};

struct sim_counts {
    uint64_t seeds, events, grants, extends, steals, crashes, changes, healed;
    uint64_t wrong, stuck, twice;
};

/* --- Machines --------------------------------------------------------------------- */

/* What one end of a link was told. */
struct sim_link {
    bool up;
    int64_t cut_until_us; /* Nothing passes to the other end until then. */
    int64_t broken_us;    /* Since when nothing has come from it; -1. */
    int64_t last_us;      /* When the last one arrives, if they come in order. */
};

struct machine {
    struct sl_node *node; /* NULL: it does not run. */
    uint64_t life;        /* Which start this is, of all. */
    struct clock clock;
    int64_t wall_off_us;
    struct sl_node_durable disk;  /* What a start would find; */
    struct sl_node_durable ahead; /* what is being written. */
    bool writing;
    bool is_emptied; /* It lost its folder once. */
    uint32_t peers;  /* Bits of ids. */
    sl_ms due_ms;    /* For which a tick is on its way. */
    int64_t tick_us;
    uint32_t idle_ticks; /* One after the other, without anything done, */
    int64_t idle_us;     /* since then. */
    int64_t paused_us, failing_us, slow_us; /* Until then. */
    uint64_t settled;                       /* How often. */
    struct sim_link links[SL_SIM_NODES];
};

/* --- Clients ---------------------------------------------------------------------- */

enum role {
    ROLE_USER,
    ROLE_TRIES,  /* After all is healed: gets a key. */
    ROLE_VICTIM, /* Holds it, extends, and does not go when asked. */
    ROLE_THIEF,
    ROLE_KEEPS, /* In a rolling restart: takes a key, and must never lose it. */
    ROLE_RIVAL, /* Asks for a free key in the same moment as others. */
};

struct sim_request {
    uint64_t number; /* 0: none. */
    enum sl_node_verb type;
    uint32_t key;
    sl_fence fence;
    int64_t sent_us;  /* On the client's clock, */
    int64_t until_us; /* and its patience. */
};

struct hold {
    bool is; /* There is something to extend or release. */
    uint32_t key;
    sl_fence fence;
    uint64_t session; /* By which it was taken. */
    sl_ms lease_ms;
    bool overlapping;
    bool told_to_go;
    int64_t until_us;   /* Its deadline, on the client's clock. */
    int64_t extend_us;  /* When it means to extend, */
    int64_t release_us; /* and to release. */
};

struct client {
    enum role role;
    bool quiet; /* It asks for nothing new. */
    struct clock clock;
    uint32_t node;
    uint64_t life; /* Of that node, when it connected; 0: it is not connected. */
    uint64_t session;
    int64_t out_us, in_us; /* What is sent over one connection arrives in order. */
    int64_t paused_us;
    int32_t priority;
    bool ignores; /* That it is asked to go. */
    bool retries; /* Its last request failed: it goes to the next node. */
    struct hold hold;
    struct hold old[SL_SIM_OLD]; /* Lost by time alone. */
    struct sim_request requests[SL_SIM_REQUESTS];
    uint64_t wake;   /* Its newest alarm. */
    int64_t next_us; /* When it wants something again, on its own clock. */
};

/* --- The world -------------------------------------------------------------------- */

enum heal_phase {
    HEAL_NOT,
    HEAL_WAIT,
    HEAL_KEYS,
    HEAL_CONTEST,
    HEAL_HOLD,
    HEAL_STEAL,
    HEAL_DONE
};

/* Requests for one free key, all of one moment. */
struct contest {
    uint32_t count;             /* Contests that are over. */
    bool runs;                  /* The requests have been sent. */
    int64_t start_us;           /* When they are, or were. */
    sl_ms lease_ms, wait_ms;    /* Of each. */
    uint32_t rivals, lists;     /* Requests; lists of nodes that there were before. */
    uint32_t ok, taken, failed; /* Answers. */
    uint64_t attempts;          /* That the nodes had made before. */
    int last_failure;           /* Of `failed`. */
};

struct world {
    struct sim_setup setup;
    struct sl_random random;
    struct queue queue;
    struct books books;
    struct sim_counts counts;
    uint64_t hash; /* Over all orders. */
    int64_t now_us;
    uint64_t steps;

    /* Drawn once. */
    uint32_t faults;
    struct sl_node_limits limits;
    sl_ms lease_min_ms, lease_max_ms; /* That clients ask for. */
    uint32_t node_count, key_count, client_count, operator_count;
    uint32_t loss, doubles; /* Of 10,000 messages. */
    int64_t short_us, tail_us, ages_us;
    int64_t nemesis_us, operator_us; /* How often. */
    sl_ms think_ms;                  /* Between two wishes of a client. */
    uint32_t slack_us;               /* How late ticks come. */
    enum sl_message_type aged;       /* The kind that takes ages; NONE: all. */
    bool long_leases;
    uint32_t alone;       /* A node that is parted from all others, */
    uint32_t alone_until; /* until there have been so many lists; 0: none is. */
    bool growing;         /* What operators mean to do to the list. */
    uint32_t rolled;      /* Nodes that were restarted, in a rolling restart, */
    int64_t cut_off_us;   /* and until when one is cut off. */
    uint64_t heal_at;     /* After so many events; 0: never. */

    struct machine machines[SL_SIM_NODES];
    struct client clients[SL_SIM_CLIENTS];
    uint64_t lives, sessions;
    uint64_t connections; /* Between nodes: each has a number. */
    uint64_t connection[SL_SIM_NODES][SL_SIM_NODES];
    struct {
        uint64_t number;
        int64_t until_us;
        uint32_t node; /* Where it asks. */
    } operators[2];

    enum heal_phase heal;
    int64_t heal_us; /* Since when this phase. */
    uint32_t had;    /* Keys that were had since. */
    uint32_t rounds; /* Of stealing. */
    struct contest contest;
    int last_status; /* Of what was tried. */
    bool heal_loses; /* A few messages, while stealing is tried. */
    sl_ms steal_ms;  /* The lease of the victim. */
    uint32_t lists;  /* That there were when stealing began. */
    bool over;
};

static inline bool sl_has_fault(const struct world *w, enum fault f)
{
    return (w->faults & 1u << f) != 0 && w->heal == HEAL_NOT;
}

static inline sl_node_id sl_id_of(uint32_t machine)
{
    return machine + 1;
}

/* --- world.c ---------------------------------------------------------------------- */

/* Runs one seed. w is zero at first, and may be used again. What is wrong is in its books. */
void sl_world_run(struct world *w, const struct sim_setup *setup);
void sl_world_free(struct world *w);

/* Puts something into the queue, so much later. Takes the parcel. */
void sl_later(struct world *w, int64_t delay_us, struct happening h);

void sl_machine_start(struct world *w, uint32_t m);
void sl_machine_kill(struct world *w, uint32_t m);
bool sl_machine_runs(const struct world *w, uint32_t m);
struct sl_now sl_machine_now(const struct world *w, uint32_t m);

/* Does what a node orders, and sets its alarm: after each call of it. */
void sl_machine_settle(struct world *w, uint32_t m);

/* --- net.c ------------------------------------------------------------------------ */

void sl_net_send(struct world *w, uint32_t from, sl_node_id to,
                 const struct sl_message *m);
void sl_net_arrives(struct world *w, const struct happening *h);
void sl_net_look(struct world *w); /* At all links. */
void sl_net_killed(struct world *w, uint32_t m);
int64_t sl_net_delay(struct world *w);

/* --- client.c --------------------------------------------------------------------- */

void sl_client_init(struct world *w, uint32_t c, enum role role);
void sl_client_acts(struct world *w, uint32_t c);
void sl_client_answered(struct world *w, uint32_t c, const struct happening *h);
void sl_client_hears(struct world *w, uint32_t c, const struct happening *h);
void sl_client_hang_up(struct world *w, uint32_t c);
bool sl_client_connect(struct world *w, uint32_t c); /* False: there is no node. */
/* To this one, or the next one that runs. */
bool sl_client_connect_from(struct world *w, uint32_t c, uint32_t start);
bool sl_client_is_busy(const struct client *c);

/* Sends a request; `ask` is filled but for session and note. Returns its number. */
uint64_t sl_client_ask(struct world *w, uint32_t c, const struct sl_node_request *ask,
                       uint32_t key, int64_t patience_ms);

/* Wakes it when its own clock shows that much. */
void sl_client_wake(struct world *w, uint32_t c, int64_t shows_us);
int64_t sl_client_clock(const struct world *w, uint32_t c);
void sl_client_release(struct world *w, uint32_t c);
void sl_client_extend(struct world *w, uint32_t c, sl_ms lease_ms);

/* An order of a node to answer this request. */
void sl_client_answer(struct world *w, uint32_t m, uint64_t request,
                      const struct sl_node_answer *a);
void sl_client_event(struct world *w, uint32_t m, const struct sl_node_event *e);
struct sl_bytes sl_key_bytes(uint32_t key);

/* --- nemesis.c -------------------------------------------------------------------- */

void sl_nemesis_acts(struct world *w);
void sl_nemesis_crash(struct world *w, uint32_t m);
void sl_nemesis_part(struct world *w, uint32_t side, int64_t length_us);
void sl_operator_acts(struct world *w, uint32_t operator);

/* --- heal.c ----------------------------------------------------------------------- */

void sl_heal_begin(struct world *w);
void sl_heal_goes_on(struct world *w); /* After each event. */
void sl_heal_client_acts(struct world *w, uint32_t c);
void sl_heal_answered(struct world *w, uint32_t c, const struct sim_request *r,
                      const struct parcel *p);

/* --- rolling.c --------------------------------------------------------------------- */

void sl_rolling_draw(struct world *w);
void sl_rolling_acts(struct world *w);
void sl_rolling_client_acts(struct world *w, uint32_t c);
void sl_rolling_answered(struct world *w, uint32_t c, const struct sim_request *r,
                         const struct parcel *p);

/* --- trace.c ---------------------------------------------------------------------- */

void sl_trace(const struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sl_trace_setup(const struct world *w);
void sl_trace_message(const struct world *w, const char *verb, uint32_t from,
                      uint32_t to, const struct sl_message *m);
void sl_trace_ask(const struct world *w, uint32_t c, uint32_t m, uint64_t number,
                  const struct sl_node_request *ask);
void sl_trace_write(const struct world *w, uint32_t m, const struct sl_node_durable *d);
const char *sl_ask_word(enum sl_node_verb type);

#define TRACE(w, ...)                                     \
    do {                                                  \
        if ((w)->setup.trace) sl_trace((w), __VA_ARGS__); \
    } while (0)

#endif /* SL_SIM_WORLD_H */
