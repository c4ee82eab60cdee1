/* keeper_faults.h - the kinds of faults in keeper clusters. */
#ifndef SL_SIM_KEEPER_FAULTS_H
#define SL_SIM_KEEPER_FAULTS_H

#include "sim/faults.h"

/* clang-format off */
#define KSIM_FAULT_MAP(FAULT) \
    FAULT(DELAY,   "delay",   5000, "one message in twenty is delayed by up to 0.4 s, with all that follow it") \
    FAULT(CUT,     "cut",     4000, "links are cut, often in one direction only") \
    FAULT(RESET,   "reset",   4000, "connections between nodes are reset") \
    FAULT(PART,    "part",    3000, "the network between the nodes is partitioned in two") \
    FAULT(ALONE,   "alone",   4000, "a node reaches neither other nodes nor etcd") \
    FAULT(CRASH,   "crash",   6000, "nodes are killed and started again") \
    FAULT(RESIGN,  "resign",  5000, "keepers resign") \
    FAULT(POWER,   "power",   3000, "a machine loses power, with all its nodes") \
    FAULT(OUTAGE,  "outage",  1500, "all nodes are killed at once") \
    FAULT(PAUSE,   "pause",   4000, "nodes and clients pause for a while") \
    FAULT(STOP,    "stop",     400, "with pause: clocks stop while their node pauses; leases are not checked then") \
    FAULT(DRIFT,   "drift",   5000, "clocks run at the fastest and slowest permitted speeds") \
    FAULT(WALL,    "wall",    4000, "wall clocks differ by up to an hour, and are set") \
    FAULT(SLOW,    "slow",    4000, "etcd is slow at times") \
    FAULT(LOST,    "lost",    4000, "answers of etcd are lost") \
    FAULT(DOWN,    "down",    3000, "etcd is unavailable for a while") \
    FAULT(AWAY,    "away",    3000, "a node cannot reach etcd for a while") \
    FAULT(WATCH,   "watch",   3000, "watches of etcd skip changes, because etcd was compacted") \
    FAULT(FULL,    "full",    2000, "links have space for few bytes") \
    FAULT(BUSY,    "busy",    3000, "nodes do little work in each loop iteration") \
    FAULT(STEAL,   "steal",   5000, "clients have priorities, and steal locks") \
    FAULT(FORCE,   "force",   1500, "with steal: a stealing client is granted the lock after a while, even if it is still held") \
    FAULT(MOVE,    "move",    5000, "clients move to other nodes") \
    FAULT(SIDE,    "side",    6000, "clients extend and release leases through other nodes") \
    FAULT(STALE,   "stale",   5000, "clients extend leases that expired long ago") \
    FAULT(REUSE,   "reuse",      0, "with stale: clients extend leases that they have released; finds a known gap, so no seed draws it") \
    FAULT(LOOSE,   "loose",   5000, "clients lock without a lease") \
    FAULT(TX,      "tx",      4000, "some clients run transactions, and repeat those whose outcome they do not know") \
    FAULT(SEVERAL, "several", 4000, "clients hold several leases at a time") \
    FAULT(CLOSE,   "close",   3000, "nodes close connections of clients, and of clients of other nodes") \
    FAULT(OPERATE, "operate", 3000, "operators break grants, and drain keys for a while") \
    FAULT(HANGUP,  "hangup",  4000, "clients close their connections during a request") \
    FAULT(MEMBERS, "members", 2500, "operators add and remove nodes") \
    FAULT(MEMORY,  "memory",  1000, "nodes have no memory for a record or a note") \
    FAULT(LARGE,   "large",    600, "leases have values of 64 KiB") \
    FAULT(FORGE,   "forge",   1500, "nodes send messages that no correct node would send") \
    FAULT(NEWER,   "newer",    300, "the journal has an entry of a newer version for a while, which no keeper can read") \
    FAULT(REPEAT,  "repeat",  5000, "clients use REQUEST ids, and repeat or cancel acquisitions whose outcome they do not know") \
    FAULT(NOTIFY,  "notify",  3000, "some clients wait for several locks on one connection (NOTIFY)") \
    FAULT(AGAIN,   "again",   4000, "with repeat or notify: clients request a lease that they hold again when the keeper has changed") \
    FAULT(WRITES,  "writes",  2000, "keepers are killed while a reply waits for the journal") \
    FAULT(RETURN,  "return",  3000, "with away: a keeper that was cut off becomes the keeper again, and reads its ledger slowly") \
    FAULT(EVEN,    "even",    1500, "all leases last as long as lease-volatile, some of them an hour") \
    FAULT(EARLY,   "early",   3000, "connections and links are closed before the reply to an acquisition with a REQUEST id")
/* clang-format on */

enum ksim_fault {
#define FAULT(name, word, often, what) KSIM_FAULT_##name,
    KSIM_FAULT_MAP(FAULT)
#undef FAULT
        KSIM_FAULT_COUNT
};

extern const struct sim_fault_list ksim_faults;

#endif /* SL_SIM_KEEPER_FAULTS_H */
