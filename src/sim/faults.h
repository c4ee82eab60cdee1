/* faults.h - the kinds of faults. Each seed draws some of them at random, because some
 * faults hide others. The option --faults chooses them explicitly. */
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
    FAULT(DELAY,   "delay",   6000, "one message in twenty takes up to two leases") \
    FAULT(LATE,    "late",    3000, "messages outlive their connection, and either node") \
    FAULT(AGES,    "ages",    2500, "one message in fifty takes many leases") \
    FAULT(OVERTAKE,"overtake",7000, "messages overtake each other") \
    FAULT(CUT,     "cut",     4000, "links are cut, often one way only") \
    FAULT(PART,    "part",    4000, "the network is partitioned in two") \
    FAULT(STEADY,  "steady",  3000, "silent links are not given up") \
    FAULT(CRASH,   "crash",   5000, "nodes are killed and started again") \
    FAULT(OUTAGE,  "outage",  1500, "all nodes at once are killed") \
    FAULT(PAUSE,   "pause",   4000, "nodes and clients pause for a while") \
    FAULT(DISK,    "disk",    3000, "disks are slow, and fail") \
    FAULT(DRIFT,   "drift",   5000, "clocks run as fast and as slow as is allowed") \
    FAULT(WALL,    "wall",    5000, "wall clocks are up to an hour apart, and step") \
    FAULT(NODES,   "nodes",   5000, "nodes are added and removed, by two operators") \
    FAULT(EMPTY,   "empty",   2000, "nodes lose their data directory") \
    FAULT(STEAL,   "steal",   5000, "clients have priorities, and steal") \
    FAULT(FORCE,   "force",   1500, "and overlap the holder after a while") \
    FAULT(MOVE,    "move",    6000, "clients go to other nodes") \
    FAULT(STALE,   "stale",   5000, "clients extend what they had long ago") \
    FAULT(ROLLING, "rolling",  300, "nodes are restarted one by one, and no lease may be lost")
/* clang-format on */

enum sim_fault {
#define FAULT(name, word, often, what) SIM_FAULT_##name,
    SIM_FAULT_MAP(FAULT)
#undef FAULT
        SIM_FAULT_COUNT
};

#define SIM_FAULTS_ALL ((1u << SIM_FAULT_COUNT) - 1)

struct sl_random;

uint32_t sim_faults_draw(struct sl_random *r);

/* Parse a list such as "loss,cut" into bits. On failure, returns false and sets *bad to
 * the first unknown name. */
bool sim_faults_parse(const char *text, uint32_t *out, const char **bad);
void sim_faults_print(uint32_t faults, char *out, size_t n);
const char *sim_fault_name(enum sim_fault f);
const char *sim_fault_text(enum sim_fault f);

#endif /* SL_SIM_FAULTS_H */
