/* keeper.h - simulates a cluster on etcd: its nodes, etcd, clients and faults, in one thread and
 * from one seed. The nodes run src/failover/ and src/locks/ unchanged; this code carries out their
 * orders, as src/server/ does.
 *
 *     keeper_world.c    the event loop; what a seed draws
 *     keeper_node.c     nodes: they start, receive messages, and carry out orders
 *     keeper_conn.c     connections to nodes, their requests, and the replies
 *     keeper_serve.c    the commands of clients, at the keeper and at other nodes
 *     keeper_requests.c  acquisitions with a REQUEST id, at the keeper
 *     keeper_tx.c       transactions at the keeper
 *     keeper_limits.c   the durable limits of a keeper, for fences and leases
 *     keeper_etcd*.c    a model of etcd
 *     keeper_net.c      links between nodes
 *     keeper_client.c   clients: they acquire, extend, release, change node
 *     keeper_repeats.c  clients that repeat and cancel acquisitions
 *     keeper_notify.c   clients that wait for several locks on one connection
 *     keeper_tx_client.c  clients that run transactions
 *     keeper_admin.c    BREAK and DRAIN at the keeper, and what they promise
 *     keeper_operator.c  operators: clients that send BREAK and DRAIN
 *     keeper_nemesis.c  injects faults
 *     keeper_pause.c    lets nodes and clients pause
 *     keeper_takeover.c  faults while a node takes over
 *     keeper_forge.c    lets nodes send messages that no correct node would send
 *     keeper_members.c  the membership, and operators that change it
 *     keeper_memory.c   lets nodes run out of memory
 *     keeper_heal.c     the phase after the faults, when the cluster must make progress
 *     keeper_audit.c    compares what keepers do with the rules of src/failover/README.md
 *     keeper_rules.c    more rules, about what nodes send, store and remember
 *     keeper_leases.c   rules about what nodes know of leases
 *     keeper_marks.c    rules about overlap marks
 *     keeper_records.c  rules about the grants in ledgers
 *     keeper_journal.c  rules about what keepers write to the journal
 *     keeper_export.c   rules about the ledger of a keeper that steps down
 *     keeper_trace.c    prints events
 *
 * The world has its own time, in microseconds. No node and no client can read it. */
#ifndef SL_SIM_KEEPER_H
#define SL_SIM_KEEPER_H

#include "base/durable.h"
#include "base/random.h"
#include "failover/failover.h"
#include "sim/clock.h"
#include "sim/keeper_checker.h"
#include "sim/keeper_etcd.h"
#include "sim/keeper_faults.h"
#include "sim/kind.h"
#include "sim/queue.h"
#include "tx/manager.h"

#define KSIM_REQUESTS 16384          /* Requests whose arrival the world remembers. */
#define KSIM_FAULT_MAX_US 15000000ll /* No fault lasts longer. */
#define KSIM_LATER \
    8u /* Grants that BREAK NOW has ended, and that are not durable yet. */
#define KSIM_ENDED 32u   /* Released grants that the world remembers for each keeper. */
#define KSIM_EXPORTS 32u /* Leases that a keeper has when it steps down. */
#define KSIM_OLD 4       /* Leases that a client remembers after their deadline. */

/* --- Commands -------------------------------------------------------------------------- */

enum ksim_verb {
    KSIM_ACQUIRE = 1,
    KSIM_EXTEND,
    KSIM_RELEASE,
    KSIM_READ,
    KSIM_RESET,
    KSIM_BREAK,
    KSIM_DRAIN,
    KSIM_CANCEL,
    KSIM_TX_BEGIN,
    KSIM_TX_GET,
    KSIM_TX_PUT,
    KSIM_TX_COMMIT,
    KSIM_TX_ABORT,
    KSIM_TX_OUTCOME,
};

/* A command of a client. Nodes forward it as bytes. */
struct ksim_command {
    uint64_t number; /* Of the request; the reply repeats it. */
    uint32_t verb, key;
    sl_fence fence;
    sl_ms lease_ms, wait_ms, force_ms;
    int32_t priority;
    uint32_t units, per;
    uint32_t shared, steal;
    uint32_t notify;  /* ACQUIRE. */
    uint32_t pattern; /* DRAIN. */
    uint32_t yes;     /* BREAK: NOW. DRAIN: ON. */
    uint32_t wrong;   /* RELEASE: the keeper must reject it. */
    uint32_t first;   /* The first command of a connection. */
    uint32_t settles; /* OUTCOME, in place of a COMMIT whose reply was lost. */
    char id[24];    /* ACQUIRE, CANCEL, BEGIN, OUTCOME: the REQUEST id; empty: none. */
    char value[64]; /* PUT. */
};

/* --- Nodes ----------------------------------------------------------------------------- */

/* Where the request of a connection waits. */
enum ksim_place {
    KSIM_NOWHERE,
    KSIM_UNREAD, /* Its connection is busy with an earlier command. */
    KSIM_IN_TABLE,
    KSIM_ON_ROUTE,
    KSIM_FOR_LIMITS, /* Until the limits of fences and leases are durable. */
    KSIM_FOR_JOURNAL, /* Its reply, or the command itself, until the journal is durable; */
    KSIM_FOR_WITNESS, /* or its reply until another node has recorded the lease. */
    KSIM_IN_TX,       /* In the transaction manager. */
};

/* A command of a connection, until its outcome is sent. A request with NOTIFY that was queued does not
 * keep its connection busy. */
struct ksim_request {
    struct sl_list of_conn; /* In conn.requests. */
    struct ksim_conn *c;
    bool over; /* It was answered, and is freed at the end of the loop iteration. */
    bool
        queued; /* With NOTIFY: it was answered with QUEUED, and its outcome follows. */
    struct ksim_command command;
    struct sl_route_request remote;
    enum ksim_place place;
    bool deferred;   /* It has waited for the limits, or for the journal. */
    uint64_t ticket; /* Of its entry in the table. */
    uint32_t length; /* IN_TABLE: the length of its lease is counted here, plus 1. */
    /* When it arrived at the node of the client, and at this node. */
    sl_ms arrived_ms, came_ms;
    struct {
        uint64_t position;
        sl_fence fence;
        bool fresh;  /* A new grant, */
        bool replay; /* or one that an earlier attempt with the same id acquired, */
        uint64_t moved_from; /* without a lease, in this session; 0: none; */
        bool overlapping;
        sl_ms left_ms;   /* REPLAY: the rest of the lease; */
        sl_ms end_ms;    /* when the lease expires; */
        sl_ms before_ms; /* when it expired before it was extended; */
        int64_t since_us;
        bool runs; /* The command runs again then. */
        char reply[160];
    } parked; /* FOR_JOURNAL, FOR_WITNESS. */
};

/* A connection to a node, and its session: of a client, or of a client of another node (a guest).
 * The session may outlive the connection. */
struct ksim_conn {
    struct sl_list all; /* In node.conns. */
    struct sl_session s;
    bool open;
    bool is_guest;
    struct sl_guest guest;
    struct sl_route_session route;
    struct sl_list requests; /* Its commands without an outcome, in order of arrival. */
    struct ksim_request *request; /* The one that keeps it busy; NULL: none. */
    sl_ms linger_ms;      /* When the session of a closed connection ends; SL_NEVER. */
    uint32_t client, way; /* Which client, and which of its connections. */
    uint64_t dial;        /* The number of the client's connection. */
    uint64_t tx_id;       /* Its transaction at this keeper; 0: none. */
    bool tx_lost;         /* Its transaction was lost with the keeper. */
    char rest[48];        /* A part of a reply that is sent later; empty: none. */
    sl_ms rest_ms;
};

/* The limits of a keeper that the storage knows, as src/server/arbiter/state.c. */
struct ksim_limits {
    bool current, writing, failed;
    sl_fence fence, next_fence;
    sl_ms longest_ms, next_longest_ms;
    sl_ms inherited_ms, wanted_ms;
    struct sl_longest given;
    uint32_t waiting[SL_LENGTHS];
    uint64_t all_position; /* Of the journal: requests about any key wait for it. */
};

/* One end of a link. */
struct ksim_link {
    bool up;
    uint64_t number;      /* The connection. */
    int64_t cut_until_us; /* Until then, no message reaches the other end. */
    int64_t broken_us;    /* No message arrives from the other end since then; -1. */
    int64_t last_us;      /* When the last message sent so far will arrive. */
    size_t unsent;        /* Bytes that were sent and have not arrived. */
    int64_t down_us;      /* When this end was last seen without a link. */
    /* When this node last heard the other one, had not heard it for long, and saw that it was closed. */
    int64_t heard_us, silent_us, closed_us;
    bool sees_closed; /* It takes the other node for closed since then. */
    int64_t call_us;  /* Since when it tries to connect; 0: it does not. */
};

struct ksim_node {
    bool up;
    bool
        had_records; /* When it stepped down, its ledger had records of an earlier term. */
    struct {
        sl_fence fence;
        sl_ms end_ms;
    } exports[KSIM_EXPORTS]; /* The leases that it had then. */
    uint32_t export_count;
    uint64_t life; /* The number of this start; each start in the world has its own. */
    uint32_t machine;
    struct sim_clock clock;
    int64_t wall_off_us;
    struct sl_failover f;
    struct sl_table *table;
    struct sl_list conns;
    uint32_t over_count;   /* Requests that were answered and are not freed yet. */
    uint32_t unread_count; /* Requests that are KSIM_UNREAD. */
    uint64_t last_id;
    struct ksim_limits limits;
    struct sl_list managers; /* Of transactions. */
    struct ksim_link links[KSIM_NODES];
    bool quiet;       /* As a new keeper, it waits for the leases of earlier keepers. */
    bool reclaims;    /* As a new keeper, it still moves its ledger to its table. */
    bool successor;   /* The previous keeper resigned. */
    sl_ms longest_ms; /* The longest short lease of the last term. */
    int64_t waits_us; /* A successor: since when it waits without a reason. */
    sl_ms
        quiet_until_ms; /* Until then, short leases may be valid that no node knows. */
    int64_t killed_us;  /* When it was last killed; */
    int64_t started_us; /* and started. */
    int64_t guest_us;   /* When a guest could last be its witness. */
    int64_t alone_us;   /* When it last had a guest, or could not reach etcd. */
    int64_t failed_us;  /* When one of its operations of etcd last failed. */
    int64_t unwell_us;  /* When it last was not able to be the keeper. */
    uint64_t resigns_term; /* The last term in which it began to resign. */
    int64_t paused_from_us, paused_us;
    bool stopped;         /* Its clock has stopped during the pause; */
    int64_t stopped_ppm;  /* its rate before that. */
    int64_t away_us;      /* Until then, it cannot reach etcd; */
    int64_t straggles_us; /* or an operation of etcd takes long. */
    bool watch_missed;    /* It missed a change of the term. */
    int64_t watch_us;     /* When the last report of the watch arrives. */
    uint64_t heartbeat;   /* The last heartbeat that its storage client knows. */
    uint64_t sent_route;  /* The route on which it last sent a request, */
    uint64_t sent_number; /* and the newest request that it has sent on it. */
    int64_t tick_us;      /* When a tick is scheduled. */
    uint64_t tick_number; /* Earlier ticks do not count. */
    uint64_t told_term;   /* The highest term that it knows. */
    sl_ms lead_ms;        /* When it became the keeper, by its clock; */
    uint32_t lead_linked; /* nodes that were linked then and since, as bits of ids. */
    sl_fence urgent;      /* The last grant whose end it must report at once, */
    uint32_t urgent_to;   /* to these nodes. */
    struct {
        uint64_t position;
        sl_fence fence;
    } later[KSIM_LATER]; /* Ends that it must report when this position is durable. */
    uint32_t later_count;
    uint64_t later_term;
    /* As the keeper of this term: the last grants that were released, */
    uint64_t ended_term;
    sl_fence ended[KSIM_ENDED];
    uint32_t ended_count;
    int64_t ready_us[KSIM_NODES]; /* when each node has handed over its ledger, */
    /* since when that ledger has been complete, by the clock of this node; SL_NEVER: it has not
     * reported. (0 is an ordinary time: that node may start when the clock of this one begins.) */
    sl_ms complete_ms[KSIM_NODES];
    /* when the last request of each node on its route arrived there; INT64_MIN: none. */
    sl_ms asked_ms[KSIM_NODES];
    uint32_t members;          /* The membership that it knows, as bits of ids; */
    uint32_t peers;            /* the nodes to which it may have links. */
    uint32_t last_keeper;      /* As the keeper: the last one, */
    uint32_t last_ledgers;     /* the nodes that it has named, */
    sl_ms open_ms[KSIM_NODES]; /* and when each node last had a route; 0: never. */
    sl_ms
        lost_ms; /* When its ledger lost a record for lack of memory; 0: it has all. */
    int64_t lost_us, ready_sent_us; /* When that was, and when it last sent READY. */
    uint64_t
        invalid_term; /* As the keeper of this term, it has read an invalid entry. */
    bool subscribed;  /* Its clients subscribe to events. */
    bool reports_subscribed; /* They did when it sent its last COME. */
    uint32_t quiet_to;       /* The node to which it must send QUIET now; 0: none. */
    uint32_t
        not_to; /* Nodes to which it must send NOT now, because their routes have ended, as bits. */
    uint32_t routes; /* As the keeper: nodes that have a route, as bits. */
    int64_t
        confirmed_us; /* When the keeper last confirmed its route, or it was the keeper. */
    int64_t stalls_us; /* Until then, it does not hand over records; */
    int64_t reads_us;  /* as a new keeper, it does not read those of its own ledger. */
    bool settling;
    bool has_more; /* Work is left for the next loop iteration. */
};

/* --- Clients --------------------------------------------------------------------------- */

/* A connection of a client. Each client has its own, and one through another node. */
struct ksim_way {
    uint64_t dial; /* 0: not connected. */
    uint32_t node;
    uint64_t life;         /* The life of the node when the client connected. */
    int64_t out_us, in_us; /* The last arrivals: a connection delivers in order. */
    bool used;             /* A request was sent. */
    bool busy;
    bool cancelled; /* CANCEL was confirmed, so the client ignores the reply. */
    bool closing;   /* Its session has ended, and the client will notice. */
    struct ksim_command command;
    int64_t sent_us;             /* On the client's clock. */
    int64_t give_up_us;          /* In real time. */
    sl_fence floor, floor_alone; /* Of the checker, when the request was sent. */
    char part[48];               /* The first part of a reply. */
};

struct ksim_hold {
    bool is;
    uint32_t key;
    sl_fence fence;
    sl_ms lease_ms;            /* 0: no lease. */
    uint64_t dial;             /* The connection that acquired it. */
    int64_t until_us;          /* Its deadline, on the client's clock. */
    int64_t extend_us;         /* When the client plans to extend it, */
    int64_t release_us;        /* and to release it, on its clock. */
    char id[24];               /* The REQUEST id of its acquisition; empty: none. */
    struct ksim_command asked; /* The command that has acquired it. */
    bool asks_again;           /* The client sends it again. */
    bool
        moves; /* Without a lease: it may belong to another connection of the client. */
};

/* An acquisition with a REQUEST id whose outcome a client does not know (keeper_repeats.c). */
struct ksim_repeat {
    struct ksim_command command; /* verb 0: none. */
    sl_fence floor;              /* Of the checker, when it was first sent. */
    bool gives_up;               /* The client sends CANCEL. */
};

/* An acquisition of a client that waits with NOTIFY (keeper_notify.c). */
#define KSIM_WAITS 5u
struct ksim_wait {
    struct ksim_command command; /* verb 0: none. */
    sl_fence floor;              /* Of the checker, when it was first sent. */
    struct {                     /* The attempt that waits on each connection: */
        uint64_t dial;           /* 0: none. */
        uint64_t number;
        int64_t sent_us;    /* On the client's clock. */
        int64_t give_up_us; /* In real time. */
    } queued[2];
    struct ksim_hold hold;
    bool gives_up;        /* The client sends CANCEL. */
    bool cancelled;       /* CANCEL was confirmed, so the client ignores grants. */
    bool asked, repeated; /* The client has sent ACQUIRE; it has sent it again. */
    bool over;            /* The client wants nothing more of this acquisition. */
};

#define KSIM_ROWS 3u
#define KSIM_TXS 16384u

/* A transaction of a client (keeper_tx_client.c). */
struct ksim_tx {
    uint64_t number; /* 0: none yet. */
    uint32_t phase;
    char id[24];
    uint32_t rows[2];
    uint64_t read[2]; /* The numbers of the transactions that wrote the rows. */
    bool both;        /* It writes both rows. */
    bool repeats;     /* It is sent again from BEGIN. */
    bool asks;        /* The client first asks for the outcome. */
    bool uncertain;   /* A reply to COMMIT was lost. */
    bool nested;      /* It sends BEGIN again, which the keeper must reject. */
};

/* The patterns that operators drain. Each pattern belongs to one operator. */
#define KSIM_OPERATORS 2u
#define KSIM_PATTERNS 6u

struct ksim_drain {
    uint64_t last;      /* The last request about it that a keeper has executed, */
    bool is_on, is_off; /* The pattern is certainly on, or off, */
    uint64_t term;      /* since this term */
    int64_t acked_us;   /* and this time. */
};

/* A grant that operators break. */
#define KSIM_BROKEN 256u
struct ksim_broken {
    sl_fence fence;
    uint32_t key;
    bool now;          /* An operator has sent BREAK ... NOW. */
    uint64_t life;     /* The life of the keeper that has executed BREAK; 0: none; */
    uint64_t in_term;  /* in this term. */
    uint64_t last;     /* The last request that has ended the grant, */
    uint64_t at_count; /* after so many grants of the key, */
    uint64_t ended_life, ended_term; /* by a keeper of this life, in this term. */
    uint64_t term; /* Of the keeper that acknowledged BREAK; 0: none. */
};

/* The next grant of a key overlaps this one. */
struct ksim_mark {
    sl_fence fence; /* 0: none. */
    uint64_t term;
};

struct ksim_admin {
    struct ksim_drain drains[KSIM_PATTERNS];
    struct ksim_broken broken[KSIM_BROKEN]; /* By fence. */
    struct ksim_mark marks[KSIM_KEYS];
    uint64_t granted[KSIM_KEYS]; /* How often keepers have granted each key. */
};

/* What an operator does (keeper_operator.c). */
struct ksim_operator {
    bool is;
    uint32_t slot;
    struct ksim_command job; /* verb 0: none. */
    bool on[KSIM_PATTERNS];  /* It may have turned the pattern on. */
    bool off[KSIM_PATTERNS]; /* After the faults: the pattern is off. */
};

enum ksim_role {
    KSIM_ROLE_USER,
    KSIM_ROLE_QUIET, /* It makes no new requests. */
    KSIM_ROLE_TRIES, /* After the faults: acquires its key until it succeeds. */
    KSIM_ROLE_DONE,  /* It has acquired its key. */
};

struct ksim_client {
    enum ksim_role role;
    struct sim_clock clock;
    struct ksim_way ways[2];
    struct ksim_hold hold, old[KSIM_OLD];
    struct ksim_hold extra; /* Another lease that it holds meanwhile. */
    struct ksim_repeat repeat;
    bool notifies;                      /* It waits for several locks at a time, */
    struct ksim_wait waits[KSIM_WAITS]; /* these. */
    int32_t priority;
    bool ignores; /* It does not release when it is asked to. */
    int64_t paused_us;
    int64_t next_us; /* When it makes its next request, on its clock. */
    uint64_t wake;   /* The number of its last timer. */
    uint32_t key;    /* TRIES: its key. */
    bool runs_tx;    /* It runs transactions, and uses no locks. */
    struct ksim_tx tx;
    struct ksim_operator operator;
};

/* A grant that a keeper made for a client of another node. */
#define KSIM_MADE 512u
struct ksim_made {
    sl_fence fence;
    uint64_t term;   /* The term of the keeper. */
    uint64_t number; /* The request, */
    uint32_t node;   /* the node of its client, */
    uint64_t life;   /* and the life of that node. */
    bool acked;      /* A keeper has replied that the lock was granted. */
    /* Without a lease: how often an attempt has taken it, the node of the last one, and the session there. */
    uint32_t taken, taker_node;
    uint64_t taker_id;
    uint32_t noted;        /* Nodes that may report it all the same, as bits. */
    bool delivered;        /* That node has passed the reply to the client. */
    bool replayed;         /* A later keeper has repeated the reply. */
    int64_t unknown_us;    /* Since when no client can know of it; 0: one may. */
    uint64_t unknown_term; /* In which term. */
};

/* A lease that a keeper has granted or extended, in real time. */
#define KSIM_LEASES 2048u
struct ksim_lease {
    sl_fence fence;
    uint64_t term;          /* The term in which it was last granted or extended; */
    uint64_t reported_term; /* in which a node has last reported it; 0: none. */
    int64_t end_us;         /* Its last expiry in the table of a keeper. */
    /* The keeper that granted or extended it has recorded it in the journal. So the next one may extend it
     * until the bound in the journal: no other client was granted the lock before the entry was deleted. */
    bool recorded;
    /* A later keeper has recorded it. Journal time stands still between two keepers, so the lease may be
     * extended for longer. This is safe if it has not expired before the authority of its keeper ended. */
    bool passed_on;
    int64_t passed_us;  /* When that was, in real time, */
    sl_ms passed_ms;    /* and in journal time. */
    bool alone;         /* It was acknowledged although only the keeper knew it. */
    int64_t noted_us;   /* The last expiry that a node has recorded in its ledger. */
    int64_t durable_us; /* The expiry that its entry in the journal covers; 0: none. */
};

/* An id that a client has cancelled, by number. */
#define KSIM_CANCELLED 1024u
struct ksim_cancelled {
    uint64_t id;
    uint64_t life, term; /* Of the keeper. */
    int64_t at_us;
};

/* Something that is left of a grant that has ended. */
#define KSIM_LEFT 512u
struct ksim_left {
    sl_fence fence;
    uint64_t owner;
    int64_t since_us, last_us;
};

/* The last false report of a grant. */
struct ksim_forged {
    sl_fence fence;
    uint32_t key;
    uint64_t holder; /* The session at the keeper that holds it; 0: none. */
};

/* What ksim_rules_received() needs to know from before the message. */
struct ksim_before {
    bool open, closed, known;
    bool loses;     /* The keeper rejects a grant without a lease; */
    bool has_route; /* The node has a route, */
    bool recorded;  /* and a record of the grant; */
    bool asks;      /* the session of the message has a request; */
    bool named;     /* The record has the client of the grant. */
    uint64_t tx;    /* The session has this transaction, */
    char tx_id[24]; /* with this REQUEST id; */
    sl_ms sure_ms;  /* the lease is certainly valid until then. */
};

/* --- The world ------------------------------------------------------------------------- */

struct ksim_world {
    struct sim_setup setup;
    struct sl_random random;
    struct sim_queue queue;
    struct ksim_checker checker;
    struct sim_counts counts;
    struct sl_resp_reader *reader;
    uint64_t hash;
    int64_t now_us;
    uint64_t steps;

    /* Drawn from the seed once. */
    uint64_t faults;
    uint32_t node_count, machine_count, key_count, client_count;
    sl_ms lease_min_ms, lease_max_ms, linger_ms, keeper_wait_ms;
    sl_ms wait_max_ms, think_ms;
    sl_ms volatile_ms;         /* lease-volatile */
    int64_t short_us, etcd_us; /* Delays of messages, and of etcd. */
    int64_t nemesis_us;
    uint32_t slack_us;  /* How late ticks may be. */
    bool resigns_often; /* Keepers resign when they have waited for earlier leases. */
    bool rates_change;  /* The rates of clocks change. */
    bool breaks;        /* Operators break leases while keepers fail. */
    bool lazy;          /* With `busy`: new keepers read their ledgers very slowly. */
    size_t space;       /* Bytes that a link takes. */
    uint64_t heal_at;   /* Faults end after this many events; 0: never. */

    struct ksim_node nodes[KSIM_NODES];
    struct ksim_client clients[KSIM_CLIENTS];
    struct ksim_etcd etcd;
    uint64_t lives, links, dials, requests, tickets, ids;
    uint32_t members; /* The current membership, as bits of ids. */
    uint32_t mistake; /* The operator has just removed this node by mistake; 0: none. */

    /* When each request arrived at the node of its client, and the life of that node, by number. */
    int64_t arrived_us[KSIM_REQUESTS];
    uint64_t arrived_life[KSIM_REQUESTS];
    uint8_t attempts
        [KSIM_REQUESTS]; /* How many ACQUIRE a client has sent, by id; at most 2. */

    /* Transactions of clients, by number: whether they were committed, and at which revision; whether
     * their client has received an error that says that they never will be. */
    bool committed[KSIM_TXS], refused[KSIM_TXS];
    uint64_t committed_at[KSIM_TXS], tx_count;

    struct ksim_made made[KSIM_MADE];      /* By fence. */
    struct ksim_lease leases[KSIM_LEASES]; /* By fence. */
    /* Until then, leases are valid that no node but the keeper of this term knows. */
    int64_t alone_us;
    uint64_t alone_term;
    /* A withdrawn grant in the record that a new keeper moves to its table; 0: none. */
    sl_fence withdrawn;
    uint32_t withdrawn_key;
    sl_fence
        unacked; /* The grant in that record, if the table does not have it; 0: none. */
    uint32_t unacked_key;
    sl_fence reclaimed; /* The grant in that record. */
    struct ksim_left left_records[KSIM_LEFT], left_entries[KSIM_LEFT];
    struct ksim_cancelled cancelled[KSIM_CANCELLED];
    struct ksim_admin admin;
    struct ksim_forged forged;

    /* Until then, operators are in a hurry, and often break this grant. */
    int64_t hurry_us;
    sl_fence hurry_fence;
    uint32_t hurry_node; /* They wait until this node hands over its ledger; 0: none; */
    bool hurry_now;      /* and then end the grant at once. */
    int64_t flaps_us;    /* Until then, links of the keeper are reset all the time. */
    uint32_t
        returns; /* This node was cut off, and becomes the keeper again; 0: none; */
    int64_t returns_us; /* until then. */
    bool healed;
    int64_t healed_us;
    bool calm;  /* Nothing fails but processes and machines. */
    bool tries; /* Clients have begun to try all keys. */
    int64_t tries_us;
    bool over;
};

/* Return the place of a fence in an array that is indexed by fence. */
static inline size_t ksim_slot(sl_fence fence, size_t size)
{
    return (size_t)(fence * 0x9E3779B97F4A7C15ull >> 32) % size;
}

static inline bool ksim_has_fault(const struct ksim_world *w, enum ksim_fault f)
{
    return (w->faults & 1ull << f) != 0 && !w->healed;
}

/* Report a violation or a lack of progress. */
#define KSIM_WRONG(w, ...) ksim_checker_wrong(&(w)->checker, __VA_ARGS__)

/* --- keeper_world.c -------------------------------------------------------------------- */

void ksim_schedule(struct ksim_world *w, int64_t delay_us, struct sim_event e);
void ksim_mix(struct ksim_world *w, uint64_t x);
struct sim_clock ksim_clock(struct ksim_world *w, int64_t began_us);

/* --- keeper_node.c --------------------------------------------------------------------- */

struct sl_now ksim_node_now(const struct ksim_world *w, uint32_t i);
bool ksim_node_runs(const struct ksim_world *w, uint32_t i);
void ksim_node_start(struct ksim_world *w, uint32_t i);
void ksim_node_kill(struct ksim_world *w, uint32_t i);
void ksim_node_resign(struct ksim_world *w, uint32_t i);
/* The clock of a node that was paused runs again. */
void ksim_node_start_clock(struct ksim_world *w, uint32_t i);
void ksim_node_free(struct ksim_node *n);
void ksim_node_receive(struct ksim_world *w, uint32_t i, uint32_t from,
                       struct sl_bytes bytes);
/* Carry out the orders of a node, check its invariants, and set its timer. Call this after each
 * call to a function of a node. */
void ksim_node_settle(struct ksim_world *w, uint32_t i);
/* Carry out the orders of the guests; those of the guests and of the route. */
void ksim_node_guest_orders(struct ksim_world *w, uint32_t i);
void ksim_node_orders(struct ksim_world *w, uint32_t i);
/* Return the nodes to which a node has a link, as bits of their ids. */
uint32_t ksim_node_linked(const struct ksim_world *w, uint32_t i);
/* An operation of the storage has ended. */
void ksim_node_storage(struct ksim_world *w, uint32_t i, const struct ksim_op *op);
void ksim_node_term_changed(struct ksim_world *w, uint32_t i,
                            const struct sl_storage_term *term);

/* --- keeper_conn.c --------------------------------------------------------------------- */

struct ksim_conn *ksim_conn_new(struct ksim_world *w, uint32_t i);
struct ksim_conn *ksim_conn_find(const struct ksim_world *w, uint32_t i, uint64_t dial);
struct ksim_conn *ksim_conn_of_session(const struct ksim_world *w, uint32_t i,
                                       uint64_t id);
/* Whether the client has closed this connection, or the node of the client is gone. */
bool ksim_conn_hung_up(const struct ksim_world *w, const struct ksim_conn *c);
void ksim_conn_close(struct ksim_world *w, uint32_t i, struct ksim_conn *c, bool cut);
/* RESET: the connection gets a new session. */
void ksim_conn_reset(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* The session of a closed connection has ended: free the connection. */
void ksim_conn_over(struct ksim_world *w, uint32_t i, struct ksim_conn *c);
void ksim_conn_free(struct ksim_node *n, struct ksim_conn *c);
/* Begin a command. If the connection is busy, the command is KSIM_UNREAD. */
struct ksim_request *ksim_request_new(struct ksim_node *n, struct ksim_conn *c,
                                      const struct ksim_command *command,
                                      sl_ms arrived_ms, sl_ms came_ms);
/* Return the next request of a connection, or of a node, that has no outcome, or NULL; q is NULL: the first
 * one. */
struct ksim_request *ksim_conn_next(const struct ksim_conn *c,
                                    const struct ksim_request *q);
struct ksim_request *ksim_request_next(const struct ksim_node *n,
                                       const struct ksim_request *q);
/* Return a command of a node that is KSIM_UNREAD, and that its connection can run now; or NULL. */
struct ksim_request *ksim_request_read(struct ksim_node *n);
/* Free the requests of a node that were answered. */
void ksim_request_sweep(struct ksim_node *n);
/* Return the request of a connection that waits with NOTIFY and this id, or NULL. */
struct ksim_request *ksim_request_find(const struct ksim_conn *c, struct sl_bytes key,
                                       struct sl_bytes id);
/* A keeper lets a request wait: reply QUEUED to one with NOTIFY. */
void ksim_request_wait(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                       enum ksim_place place);
/* Reply QUEUED, unless that was done. */
void ksim_request_queue(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* End a request without a reply. */
void ksim_request_drop(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* Reply to a request: with these bytes; or with the error of a status, or with nil. */
void ksim_reply(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                struct sl_bytes reply);
void ksim_reply_text(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                     const char *text);
void ksim_reply_status(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                       int status);
/* Send a reply of which the node of the client receives the first part earlier; send the other parts. */
void ksim_reply_in_parts(struct ksim_world *w, uint32_t i, struct ksim_request *q);
void ksim_reply_rests(struct ksim_world *w, uint32_t i);
/* Write a push, or a part of a reply, to the client of a connection. */
void ksim_push(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
               struct sl_bytes bytes, bool more);

/* --- keeper_serve.c -------------------------------------------------------------------- */

/* Run a command. */
void ksim_serve(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* The client of a request has left. */
void ksim_serve_withdraw(struct ksim_world *w, uint32_t i, struct ksim_request *q);
void ksim_serve_resume_deferred(struct ksim_world *w, uint32_t i);
/* More of the journal is durable: send the replies that wait for it. */
void ksim_serve_durable(struct ksim_world *w, uint32_t i);
/* Send the replies that have waited for the witness. */
void ksim_serve_noted(struct ksim_world *w, uint32_t i);
/* This node is no longer the keeper: forward a request whose reply waits for the journal. */
void ksim_serve_requeue(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* Handle the effects of the table. */
void ksim_serve_effects(struct ksim_world *w, uint32_t i);
/* Ask for the outcome of a commit instead of sending the commit again. */
void ksim_serve_settle(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                       struct sl_bytes id);
/* Pass a request to the route. */
void ksim_serve_forward(struct ksim_world *w, uint32_t i, struct ksim_request *q);
struct sl_bytes ksim_key(uint32_t key);
uint32_t ksim_key_of(struct sl_bytes key);

/* Reply to a command when the journal has this position; 0: now. */
void ksim_serve_acknowledge(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                            uint64_t need, const char *text);
/* If a change of a key is not durable yet, run the command again when it is, and return true. */
bool ksim_serve_waits_for_others(struct ksim_world *w, uint32_t i,
                                 struct ksim_request *q);

/* --- keeper_requests.c ----------------------------------------------------------------- */

#define KSIM_KEEP_MS 120000 /* request-keep */

/* Return the REQUEST id of a command, or no bytes. */
struct sl_bytes ksim_id_of(const struct ksim_command *m);
/* Return the digest of the options that all attempts must have. */
uint64_t ksim_digest_of(const struct ksim_command *m);
void ksim_requests_cancel(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* A CANCEL has succeeded. If its connection waits for this acquisition, the reply to CANCEL is the outcome. */
void ksim_requests_cancelled(struct ksim_world *w, uint32_t i,
                             const struct ksim_request *cancel);
/* A keeper grants an acquisition, or repeats its grant. */
void ksim_requests_granted(struct ksim_world *w, uint32_t i,
                           const struct ksim_command *m);
/* A grant without a lease now belongs to another session: its old node drops its record. */
void ksim_requests_moved(struct ksim_world *w, uint32_t i, uint64_t session,
                         sl_fence fence);

/* --- keeper_admin.c -------------------------------------------------------------------- */

struct sl_bytes ksim_pattern(uint32_t pattern);
void ksim_admin_init(struct ksim_world *w);
/* BREAK and DRAIN, at the keeper. */
/* All positions of the journal up to this one are durable. */
void ksim_admin_durable(struct ksim_world *w, uint32_t i, uint64_t durable);
void ksim_admin_break(struct ksim_world *w, uint32_t i, struct ksim_request *q);
void ksim_admin_drain(struct ksim_world *w, uint32_t i, struct ksim_request *q);
/* A client sends BREAK; an operator receives the number in the reply of a keeper. */
void ksim_admin_asked(struct ksim_world *w, const struct ksim_command *m);
void ksim_admin_acked(struct ksim_world *w, const struct ksim_command *m, int number,
                      uint64_t term);
/* A keeper grants a lock; or extends a lease (g is NULL). */
void ksim_admin_granted(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence,
                        const struct sl_grant *g);
/* A client receives DRAINED. */
void ksim_admin_refused(struct ksim_world *w, const struct ksim_command *m,
                        uint64_t term);
/* Call this every second. */
void ksim_admin_second(struct ksim_world *w, uint32_t i);
/* A node hands over a grant. */
/* Nodes have reported grants to the keeper; a new keeper has waited for earlier leases. */
void ksim_admin_reported(struct ksim_world *w, uint32_t i);
void ksim_admin_wait_ended(struct ksim_world *w, uint32_t i);

/* --- keeper_operator.c ----------------------------------------------------------------- */

void ksim_operator_init(struct ksim_world *w, uint32_t c);
void ksim_operator_act(struct ksim_world *w, uint32_t c);
void ksim_operator_answered(struct ksim_world *w, uint32_t c, const char *text);
/* Its connection is closed. */
void ksim_operator_cut(struct ksim_world *w, uint32_t c);

/* --- keeper_tx.c ---------------------------------------------------------------------- */

/* Whether a command belongs to the transaction of its connection. */
bool ksim_is_tx(const struct ksim_command *m);
void ksim_tx_free(struct ksim_node *n);
void ksim_tx_lead(struct ksim_world *w, uint32_t i, uint64_t term);
void ksim_tx_depose(struct ksim_world *w, uint32_t i, uint64_t term);
void ksim_tx_serve(struct ksim_world *w, uint32_t i, struct ksim_request *q);
void ksim_tx_leave(struct ksim_world *w, uint32_t i, struct ksim_conn *c);
/* The transaction was lost with its keeper; reply that, if it was. */
void ksim_tx_lost(struct ksim_conn *c);
bool ksim_tx_answers_lost(struct ksim_world *w, uint32_t i, struct ksim_request *q);
void ksim_tx_pump(struct ksim_world *w, uint32_t i);
sl_ms ksim_tx_due(const struct ksim_node *n);
void ksim_tx_done(struct ksim_world *w, uint32_t i, const struct ksim_op *op);

/* --- keeper_limits.c ------------------------------------------------------------------- */

void ksim_limits_begin(struct ksim_world *w, uint32_t i, sl_fence fence,
                       sl_ms longest_ms);
void ksim_limits_end(struct ksim_world *w, uint32_t i);
void ksim_limits_written(struct ksim_world *w, uint32_t i, bool ok);
void ksim_limits_second(struct ksim_world *w, uint32_t i);
void ksim_limits_ahead(struct ksim_world *w, uint32_t i);
bool ksim_limits_know(const struct ksim_node *n, sl_ms lease_ms);
void ksim_limits_want(struct ksim_world *w, uint32_t i, sl_ms lease_ms);
void ksim_limits_given(struct ksim_node *n, sl_ms now_ms, sl_ms lease_ms);
void ksim_limits_count(struct ksim_node *n, struct ksim_request *q, sl_ms lease_ms);
void ksim_limits_uncount(struct ksim_node *n, struct ksim_request *q);

/* --- keeper_net.c ---------------------------------------------------------------------- */

void ksim_net_send(struct ksim_world *w, uint32_t from, uint32_t to_id,
                   const struct sl_failover_message *m);
/* Send a message that no correct node would send, to the node with this index. */
void ksim_net_forge(struct ksim_world *w, uint32_t from, uint32_t to,
                    const struct sl_failover_message *m);
void ksim_net_deliver(struct ksim_world *w, const struct sim_event *e);
void ksim_net_update(struct ksim_world *w);
void ksim_net_reset(struct ksim_world *w, uint32_t a, uint32_t b);
/* A node continues after a pause. */
void ksim_net_resume(struct ksim_world *w, uint32_t i);
bool ksim_net_has_space(const struct ksim_world *w, uint32_t i, uint32_t to_id);
int64_t ksim_net_delay(struct ksim_world *w);

/* --- keeper_client.c ------------------------------------------------------------------- */

void ksim_client_init(struct ksim_world *w, uint32_t c);
void ksim_client_act(struct ksim_world *w, uint32_t c);
void ksim_client_wake(struct ksim_world *w, uint32_t c, int64_t delay_us);
/* Bytes of a node arrive; the connection is closed. */
void ksim_client_received(struct ksim_world *w, const struct sim_event *e);
void ksim_client_closed(struct ksim_world *w, const struct sim_event *e);
/* A request arrives at a node; or the end of a connection. */
void ksim_client_request(struct ksim_world *w, const struct sim_event *e);
void ksim_client_hung_up(struct ksim_world *w, const struct sim_event *e);
/* Send bytes to the client of a connection, or tell it that the connection is closed. */
void ksim_client_send(struct ksim_world *w, const struct ksim_conn *c,
                      struct sl_bytes bytes, bool more);
void ksim_client_cut(struct ksim_world *w, uint32_t client, uint32_t way,
                     uint64_t dial);
int64_t ksim_client_clock(const struct ksim_world *w, uint32_t c);
bool ksim_client_is_busy(const struct ksim_client *c);
void ksim_client_hang_up(struct ksim_world *w, uint32_t c, uint32_t way, bool cut);

void ksim_client_ask(struct ksim_world *w, uint32_t c, uint32_t way,
                     const struct ksim_command *command);

bool ksim_client_dial(struct ksim_world *w, uint32_t c, uint32_t way);

/* The options of a new acquisition. */
struct ksim_command ksim_client_draw(struct ksim_world *w, uint32_t c);
/* Return how long a client waits before its next request. */
int64_t ksim_client_think_us(struct ksim_world *w, const struct ksim_client *x);
/* Read a grant in the reply to this attempt, which the client sent at this time on its clock. Returns false
 * if it is not one. */
bool ksim_client_read(struct ksim_world *w, uint32_t c, uint32_t way,
                      const struct ksim_command *m, int64_t sent_us, const char *text,
                      struct ksim_grant *g);
/* A client begins to hold a grant; acts as its holder: extends it, releases it, or stops. */
void ksim_client_hold(struct ksim_world *w, uint32_t c, uint32_t way,
                      struct ksim_hold *h, const struct ksim_grant *g,
                      const struct ksim_command *m, sl_fence floor);
void ksim_client_use(struct ksim_world *w, uint32_t c, struct ksim_hold *h);
/* A node closes a connection: the client will notice that its grants without a lease have ended. */
void ksim_client_closing(struct ksim_world *w, uint32_t c, uint64_t dial);

/* --- keeper_repeats.c ------------------------------------------------------------------ */

/* A client begins an acquisition. Some get an id. */
void ksim_repeats_begin(struct ksim_world *w, uint32_t c, struct ksim_command *m);
/* Repeat or cancel the acquisition whose outcome the client does not know. */
void ksim_repeats_act(struct ksim_world *w, uint32_t c);
/* The keeper has changed, or the connection of the client was closed. */
void ksim_repeats_doubt(struct ksim_world *w, uint32_t c, int64_t most_us);
/* Request the lease again that the client holds. Returns false if it does not do so now. */
bool ksim_repeats_again(struct ksim_world *w, uint32_t c);
/* While an attempt waits, some clients send another one through another node. */
void ksim_repeats_hurry(struct ksim_world *w, uint32_t c);
/* A client receives a reply without a grant to ACQUIRE or CANCEL. */
void ksim_repeats_failed(struct ksim_world *w, uint32_t c, const struct ksim_command *m,
                         const char *text);
void ksim_repeats_cancelled(struct ksim_world *w, uint32_t c, uint32_t way,
                            const char *text);
/* A client receives a grant. Returns false if it does not use the grant as a new one. */
bool ksim_repeats_granted(struct ksim_world *w, uint32_t c, uint32_t way,
                          const struct ksim_grant *g);

/* --- keeper_notify.c ------------------------------------------------------------------- */

/* Return the acquisition with this id, or NULL. */
struct ksim_wait *ksim_notify_find(struct ksim_client *x, const char *id);
/* Return the grant with this fence that the client holds, or NULL. */
struct ksim_hold *ksim_notify_hold(struct ksim_client *x, sl_fence fence);
/* Whether the client waits for an outcome. */
bool ksim_notify_waits(const struct ksim_client *x);
void ksim_notify_act(struct ksim_world *w, uint32_t c);
/* Return when the client has something to do next, if that is before due_us. */
int64_t ksim_notify_due_us(const struct ksim_client *x, int64_t due_us);
/* The client receives the reply to ACQUIRE, or to CANCEL; or an outcome. */
void ksim_notify_answered(struct ksim_world *w, uint32_t c, uint32_t way,
                          const char *text);
void ksim_notify_cancelled(struct ksim_world *w, uint32_t c, uint32_t way,
                           const char *text);
void ksim_notify_outcome(struct ksim_world *w, uint32_t c, uint32_t way,
                         const char *text);
/* The client does not use this connection any more; its session was reset. */
void ksim_notify_cut(struct ksim_world *w, uint32_t c, uint32_t way);

/* --- keeper_tx_client.c ---------------------------------------------------------------- */

void ksim_tx_client_act(struct ksim_world *w, uint32_t c);
void ksim_tx_client_answered(struct ksim_world *w, uint32_t c, const char *text);
void ksim_tx_client_cut(struct ksim_world *w, uint32_t c);

/* --- keeper_nemesis.c, keeper_heal.c --------------------------------------------------- */

void ksim_nemesis_act(struct ksim_world *w);
void ksim_nemesis_crash(struct ksim_world *w, uint32_t i);
/* Call this when links are updated. */
void ksim_nemesis_flap(struct ksim_world *w);
/* No entry of the journal is of a newer version any more. */
void ksim_nemesis_delete_newer(struct ksim_world *w);
/* Kill the keeper at a critical moment, sometimes together with its witness. */
void ksim_nemesis_crash_keeper(struct ksim_world *w, uint32_t i);
void ksim_nemesis_close_guest(struct ksim_world *w, uint32_t i, uint32_t from,
                              uint64_t session);
/* A node has received a grant, and will receive the reply to the client's request. */
void ksim_nemesis_held(struct ksim_world *w, uint32_t i, uint32_t from,
                       uint64_t session);
void ksim_heal_begin(struct ksim_world *w);
void ksim_heal_step(struct ksim_world *w);
void ksim_heal_unanswered(struct ksim_world *w, uint32_t c,
                          const struct ksim_command *m);

/* --- keeper_pause.c --------------------------------------------------------------------- */

void ksim_pause_node(struct ksim_world *w, uint32_t i, int64_t us);
void ksim_pause_client(struct ksim_world *w, uint32_t c, int64_t us);
/* A node pauses while it, or other nodes, have a reason to doubt the keeper. */
void ksim_pause_doubting(struct ksim_world *w);
void ksim_pause_event(struct ksim_world *w, const struct sim_event *e);

/* --- keeper_takeover.c ------------------------------------------------------------------ */

/* A node becomes the keeper; another one begins to hand over its ledger. */
void ksim_takeover_begin(struct ksim_world *w, uint32_t i);
/* A keeper was cut off from etcd. */
void ksim_takeover_cut_off(struct ksim_world *w, uint32_t i);
void ksim_takeover_stall(struct ksim_world *w, uint32_t i);
/* Whether operators break leases, because the keeper has failed; and how they break this grant. */
bool ksim_takeover_hurries(const struct ksim_world *w);
enum { KSIM_BREAK_NONE, KSIM_BREAK_ANY, KSIM_BREAK_NOW, KSIM_BREAK_LATER };
uint32_t ksim_takeover_breaks(const struct ksim_world *w, sl_fence *fence);

/* --- keeper_forge.c --------------------------------------------------------------------- */

/* Call this before a node closes a link; and when it has sent a message. */
void ksim_forge_come(struct ksim_world *w, uint32_t from, uint32_t to);
void ksim_forge_after(struct ksim_world *w, uint32_t from, uint32_t to,
                      const struct sl_failover_message *m);
/* A node is about to receive a forged message, unless this returns false; has received it. */
bool ksim_forge_receive(struct ksim_world *w, uint32_t i, uint32_t type);
void ksim_forge_received(struct ksim_world *w, uint32_t i);
/* Whether this message answers a forged one. Its node does not expect the answer. */
bool ksim_forge_is_answer(const struct ksim_world *w, uint32_t i,
                          const struct sl_failover_message *m);

/* --- keeper_memory.c -------------------------------------------------------------------- */

/* Until ksim_memory_end(), allocations may fail. That function returns whether one has failed. */
void ksim_memory_begin(struct ksim_world *w);
bool ksim_memory_end(void);

/* --- keeper_members.c ------------------------------------------------------------------- */

bool ksim_is_member(const struct ksim_world *w, uint32_t i);
void ksim_members_begin(struct ksim_world *w);
/* A node starts: it knows the membership. */
void ksim_members_start(struct ksim_world *w, uint32_t i);
/* An operator changes the membership; a node learns of it; it closes links to former members. */
void ksim_members_event(struct ksim_world *w, const struct sim_event *e);
void ksim_members_heal(struct ksim_world *w);
/* Whether the two nodes accept a link between them. */
bool ksim_members_link(const struct ksim_world *w, uint32_t a, uint32_t b);

/* --- keeper_audit.c -------------------------------------------------------------------- */

/* A keeper grants a lock, or extends a lease (g is NULL). */
void ksim_audit_grant(struct ksim_world *w, uint32_t i, const struct ksim_request *q,
                      sl_fence fence, const struct sl_grant *g);
/* A new keeper has waited for the leases of earlier keepers. */
void ksim_audit_wait_ended(struct ksim_world *w, uint32_t i);
/* The node `from`, or the keeper itself, has handed over its ledger to the keeper. */
void ksim_audit_reported(struct ksim_world *w, uint32_t i, uint32_t from);
/* All nodes to which a new keeper has a link have handed over their ledgers. */
void ksim_audit_all_reported(struct ksim_world *w, uint32_t i);
/* A node becomes the keeper, so other nodes report their grants to it. */
void ksim_audit_leads(struct ksim_world *w, uint32_t i);
/* A node hands over a grant. */
void ksim_audit_reclaim(struct ksim_world *w, uint32_t from, sl_fence fence);
/* Note which nodes are able to be the keeper; a node claims the next term. */
void ksim_audit_health(struct ksim_world *w);
void ksim_audit_claim(struct ksim_world *w, uint32_t i);

/* Call this every second: a keeper keeps no lease that no client knows of. */
void ksim_audit_unknown(struct ksim_world *w, uint32_t i);
/* A node passes a grant to its client. */
/* A keeper repeats the reply of an acquisition. */
void ksim_audit_replayed(struct ksim_world *w, uint32_t i, sl_fence fence);
void ksim_audit_delivered(struct ksim_world *w, sl_fence fence);
/* A node tells the keeper to release a grant, because its client has left. */
/* Etcd is about to execute a commit. */
void ksim_audit_commit(struct ksim_world *w, const struct ksim_op *op);

/* --- keeper_rules.c -------------------------------------------------------------------- */

/* After a loop iteration of a node. */
void ksim_rules_settled(struct ksim_world *w, uint32_t i,
                        const struct sl_table_stats *stats);
/* Call this every second. */
void ksim_rules_second(struct ksim_world *w, uint32_t i);
/* Call this when links are updated. */
void ksim_rules_health(struct ksim_world *w);
/* A keeper takes a grant away, and must tell all nodes at once. */
void ksim_rules_urgent(struct ksim_world *w, uint32_t i, sl_fence fence);
/* A node learns of a term; becomes the keeper; stops; begins to resign. */
void ksim_rules_told(struct ksim_world *w, uint32_t i, uint64_t term);
void ksim_rules_lead(struct ksim_world *w, uint32_t i, uint64_t term, bool waits);
void ksim_rules_stop(struct ksim_world *w, uint32_t i, uint64_t term);
void ksim_rules_resign(struct ksim_world *w, uint32_t i);
/* Etcd is about to execute a claim; it has executed a claim or a renewal. */
void ksim_rules_claim(struct ksim_world *w, const struct ksim_op *x);
void ksim_rules_renewed(struct ksim_world *w, const struct ksim_op *x);
/* A keeper replies that a lock was granted, or a lease extended, or (lease_ms is SL_NEVER) broken. */
void ksim_rules_acked(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence,
                      sl_ms lease_ms, bool fresh);
/* A keeper releases a grant, because no client knows of it. */
void ksim_rules_withdrawn(struct ksim_world *w, uint32_t i, sl_fence fence);
/* A keeper grants or extends a lease; does not find a grant; has waited for earlier leases. */
void ksim_rules_grant(struct ksim_world *w, uint32_t i, sl_fence fence, sl_ms lease_ms);
void ksim_rules_not_held(struct ksim_world *w, uint32_t i);
/* A keeper runs a request of another node. */
void ksim_rules_asked(struct ksim_world *w, uint32_t i, const struct sl_guest *g);
/* The session of a client has left the route of its node. */
void ksim_rules_left(struct ksim_world *w, uint32_t i, const struct ksim_conn *c);
/* A node answers a request with NOKEEPER. */
void ksim_rules_gave_up(struct ksim_world *w, uint32_t i, const struct ksim_request *q);
/* A node closes the connection of a client without a lease, because it has no route. */
void ksim_rules_cut_off(struct ksim_world *w, uint32_t i);
void ksim_rules_wait_ended(struct ksim_world *w, uint32_t i);
/* A node sends a message; is about to handle a message; has handled it. */
void ksim_rules_sent(struct ksim_world *w, uint32_t from, uint32_t to,
                     const struct sl_failover_message *m);
void ksim_rules_receive(struct ksim_world *w, uint32_t i, uint32_t from,
                        const struct sl_failover_message *m, struct ksim_before *b);
void ksim_rules_received(struct ksim_world *w, uint32_t i, uint32_t from,
                         const struct sl_failover_message *m,
                         const struct ksim_before *b);

/* Return the fence of an entry of the journal; 0: it is not that of a grant. */
sl_fence ksim_fence_of(const struct ksim_item *x);

/* --- keeper_leases.c ------------------------------------------------------------------- */

/* Return what the world knows about a lease; NULL: nothing. */
struct ksim_lease *ksim_leases_find(struct ksim_world *w, sl_fence fence);
/* A keeper has granted (`fresh`) or extended a lease in its table. */
void ksim_leases_granted(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence,
                         bool fresh);
/* A keeper is about to tell the node of the client of a lease that it was granted or extended. */
void ksim_leases_shown(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence);
/* A keeper has extended a lease: this was the grant before. */
void ksim_leases_extended(struct ksim_world *w, uint32_t i, struct sl_bytes key,
                          const struct sl_grant_view *before);
/* Call this before each event: note which nodes have a route. */
void ksim_leases_routes(struct ksim_world *w);
/* A keeper has read a part of the journal, or has waited for earlier leases. */
void ksim_leases_restored(struct ksim_world *w, uint32_t i);
/* Call this every second, for a keeper. */
void ksim_leases_second(struct ksim_world *w, uint32_t i);
/* A new keeper is about to move a record of its own ledger to its table; has moved it. */
void ksim_leases_reclaims_own(struct ksim_world *w, uint32_t i);
void ksim_leases_reclaimed_own(struct ksim_world *w, uint32_t i);
/* A node has no memory for a record. */
void ksim_leases_lost(struct ksim_world *w, uint32_t i);
/* A keeper acknowledges a lease of a client of its own node. */
void ksim_leases_acked(struct ksim_world *w, uint32_t i, const struct ksim_request *q);
/* Whether a lease was acknowledged although only the keeper knew it. */
bool ksim_leases_is_alone(struct ksim_world *w, sl_fence fence);
/* Etcd has written an entry of the journal. */
void ksim_leases_recorded(struct ksim_world *w, const struct ksim_item *entry);
/* A keeper sends a renewal with these ledgers; etcd has executed a renewal. */
void ksim_leases_renews(struct ksim_world *w, uint32_t i, uint32_t ledgers);
void ksim_leases_renewed(struct ksim_world *w);
/* A keeper resigns, and names these nodes. */
void ksim_leases_resigns(struct ksim_world *w, uint32_t i, uint32_t ledgers);
/* A node sends a message; is about to handle a message; has handled it. */
void ksim_leases_sent(struct ksim_world *w, uint32_t from, uint32_t to,
                      const struct sl_failover_message *m);
void ksim_leases_receive(struct ksim_world *w, uint32_t i,
                         const struct sl_failover_message *m, struct ksim_before *b);
void ksim_leases_received(struct ksim_world *w, uint32_t i, uint32_t from,
                          const struct sl_failover_message *m,
                          const struct ksim_before *b);
/* A keeper has released a grant; the request of a client that left is no longer in the queue. */
void ksim_leases_ended(struct ksim_world *w, uint32_t i, sl_fence fence);
void ksim_leases_left(struct ksim_world *w, uint32_t i, const struct ksim_request *q);
/* A new keeper has waited for earlier leases. */
void ksim_leases_waited(struct ksim_world *w, uint32_t i);
/* After a loop iteration of a node. */
void ksim_leases_settled(struct ksim_world *w, uint32_t i,
                         const struct sl_table_stats *stats);

/* --- keeper_marks.c -------------------------------------------------------------------- */

/* The node `from`, or the keeper itself, has handed over its ledger to the keeper. */
void ksim_marks_reported(struct ksim_world *w, uint32_t i, uint32_t from);

/* --- keeper_records.c ------------------------------------------------------------------ */

/* A keeper replies that a lock was granted; it has reported the grant to a witness, or a keeper that has stepped
 * down has it in its ledger. */
void ksim_records_acked(struct ksim_world *w, sl_fence fence);
void ksim_records_noted(struct ksim_world *w, uint32_t i, sl_fence fence);
/* A grant without a lease now belongs to this attempt. */
void ksim_records_taken(struct ksim_world *w, uint32_t i, const struct ksim_request *q);
/* A node reports a grant; a new keeper is about to move a record of its own ledger to its table, and has moved
 * it. */
void ksim_records_reported(struct ksim_world *w, uint32_t i, sl_fence fence);
void ksim_records_reclaims_own(struct ksim_world *w, uint32_t i,
                               const struct sl_record *r);
void ksim_records_reclaimed_own(struct ksim_world *w, uint32_t i);
/* A node passes the reply of the keeper to its client. */
void ksim_records_passed(struct ksim_world *w, uint32_t i, const struct ksim_request *q,
                         struct sl_bytes reply);
/* A node has taken back a grant of the client that had this origin. */
void ksim_records_taken_back(struct ksim_world *w, uint32_t i, uint64_t origin,
                             const struct ksim_request *q, sl_fence fence);
/* Call this every second. */
void ksim_records_second(struct ksim_world *w, uint32_t i);

/* --- keeper_journal.c ------------------------------------------------------------------ */

/* Etcd is about to write an entry of the journal, or to delete it. */
void ksim_journal_writes(struct ksim_world *w, const struct ksim_item *entry);
/* A node has reported a grant to the keeper. */
void ksim_journal_reported(struct ksim_world *w, uint32_t i, struct sl_bytes key,
                           sl_fence fence);

/* --- keeper_export.c ------------------------------------------------------------------- */

/* A keeper steps down; it has copied its table to its ledger. */
void ksim_export_begin(struct ksim_world *w, uint32_t i);
void ksim_export_end(struct ksim_world *w, uint32_t i);

/* --- keeper_trace.c -------------------------------------------------------------------- */

#define KSIM_TRACE(w, ...)                                \
    do {                                                  \
        if ((w)->setup.trace) ksim_trace(w, __VA_ARGS__); \
    } while (0)

void ksim_trace(const struct ksim_world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ksim_trace_setup(const struct ksim_world *w);
void ksim_trace_message(const struct ksim_world *w, const char *verb, uint32_t from,
                        uint32_t to, const struct sl_failover_message *m);
void ksim_trace_command(const struct ksim_world *w, uint32_t c, uint32_t node,
                        const struct ksim_command *m);

#endif /* SL_SIM_KEEPER_H */
