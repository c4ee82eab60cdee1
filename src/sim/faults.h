/* faults.h - sets of faults, and the kinds of faults in majority clusters. Each seed draws some of
 * them at random, because some faults hide others. The option --faults chooses them explicitly. */
#ifndef SL_SIM_FAULTS_H
#define SL_SIM_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An X-macro: FAULT(NAME, name in --faults, how many of 10,000 seeds have it,
 * description) */
/* clang-format off */
#define SIM_FAULT_MAP(FAULT) \
    FAULT(LOSS,    "loss",    5000, "messages are lost") \
    FAULT(DOUBLE,  "double",  4000, "messages are duplicated") \
    FAULT(DELAY,   "delay",   6000, "one message in twenty is delayed by up to two lease times") \
    FAULT(LATE,    "late",    3000, "messages arrive although their connection was closed, or a node has restarted") \
    FAULT(AGES,    "ages",    2500, "one message in fifty is delayed by many lease times") \
    FAULT(OVERTAKE,"overtake",7000, "messages overtake each other") \
    FAULT(CUT,     "cut",     4000, "links are cut, often in one direction only") \
    FAULT(PART,    "part",    4000, "the network is partitioned in two") \
    FAULT(STEADY,  "steady",  3000, "nodes do not close silent links") \
    FAULT(CRASH,   "crash",   5000, "nodes are killed and started again") \
    FAULT(OUTAGE,  "outage",  1500, "all nodes are killed at once") \
    FAULT(PAUSE,   "pause",   4000, "nodes and clients pause for a while") \
    FAULT(POWER,   "power",   4000, "machines that are killed also lose power, and writes that were not durable") \
    FAULT(DISK,    "disk",    3000, "disks are slow, and writes fail") \
    FAULT(DRIFT,   "drift",   5000, "clocks run at the fastest and slowest permitted speeds") \
    FAULT(WALL,    "wall",    5000, "wall clocks differ by up to an hour, and are set") \
    FAULT(NODES,   "nodes",   5000, "two operators add and remove nodes") \
    FAULT(EMPTY,   "empty",   2000, "nodes lose their data directory") \
    FAULT(COPY,    "copy",    1500, "nodes start with an old copy of their data directory") \
    FAULT(STEAL,   "steal",   5000, "clients have priorities, and steal locks") \
    FAULT(FORCE,   "force",   1500, "with steal: a stealing client is granted the lock after a while, even if it is still held") \
    FAULT(MOVE,    "move",    6000, "clients move to other nodes") \
    FAULT(STALE,   "stale",   5000, "clients extend leases that expired long ago") \
    FAULT(ROLLING, "rolling",  300, "nodes are restarted one by one; no lease may be lost")
/* clang-format on */

enum sim_fault {
#define FAULT(name, word, often, what) SIM_FAULT_##name,
    SIM_FAULT_MAP(FAULT)
#undef FAULT
        SIM_FAULT_COUNT
};

/* The faults of a kind of cluster. A set of faults has one bit for each row. */
struct sim_fault_list {
    const struct sim_fault_row {
        const char *word, *what;
        uint32_t often;
    } * rows;
    uint32_t count;
};

extern const struct sim_fault_list sim_faults_majority;

struct sl_random;

uint64_t sim_faults_draw(const struct sim_fault_list *l, struct sl_random *r);

/* Parse a list such as "loss,cut" into bits. On failure, returns false and sets *bad to
 * the first unknown name. */
bool sim_faults_parse(const struct sim_fault_list *l, const char *text, uint64_t *out,
                      const char **bad);
void sim_faults_print(const struct sim_fault_list *l, uint64_t faults, char *out,
                      size_t n);

#endif /* SL_SIM_FAULTS_H */
