/* faults.h - what may go wrong. Each seed draws some of these, since together they hide each
 * other; --faults chooses by hand. */
#ifndef SL_SIM_FAULTS_H
#define SL_SIM_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FAULT(NAME, word, how many of 10,000 seeds have it, what it is) */
/* clang-format off */
#define SL_FAULT_MAP(FAULT) \
    FAULT(LOSS,    "loss",    5000, "messages are lost") \
    FAULT(DOUBLE,  "double",  4000, "messages come twice") \
    FAULT(DELAY,   "delay",   6000, "one message in twenty takes up to two leases") \
    FAULT(LATE,    "late",    3000, "messages outlive their connection, and either node") \
    FAULT(AGES,    "ages",    2500, "one message in fifty takes many leases") \
    FAULT(OVERTAKE,"overtake",7000, "messages overtake each other") \
    FAULT(CUT,     "cut",     4000, "links are cut, often one way only") \
    FAULT(PART,    "part",    4000, "the nodes fall apart into two parts") \
    FAULT(STEADY,  "steady",  3000, "silent links are not given up") \
    FAULT(CRASH,   "crash",   5000, "nodes are killed and started again") \
    FAULT(OUTAGE,  "outage",  1500, "all nodes at once are") \
    FAULT(PAUSE,   "pause",   4000, "nodes and clients stop for a while") \
    FAULT(DISK,    "disk",    3000, "disks are slow, and fail") \
    FAULT(DRIFT,   "drift",   5000, "clocks run as fast and as slow as is allowed") \
    FAULT(WALL,    "wall",    5000, "wall clocks are up to an hour apart, and step") \
    FAULT(NODES,   "nodes",   5000, "nodes are added and removed, by two operators") \
    FAULT(EMPTY,   "empty",   2000, "nodes lose their folder") \
    FAULT(STEAL,   "steal",   5000, "clients have priorities, and steal") \
    FAULT(FORCE,   "force",   1500, "and enter beside the holder after a while") \
    FAULT(MOVE,    "move",    6000, "clients go to other nodes") \
    FAULT(STALE,   "stale",   5000, "clients extend what they had long ago") \
    FAULT(ROLLING, "rolling",  300, "nodes are restarted one by one, and no lease may be lost")
/* clang-format on */

enum fault {
#define FAULT(name, word, often, what) FAULT_##name,
    SL_FAULT_MAP(FAULT)
#undef FAULT
        FAULT_COUNT
};

#define SL_FAULTS_ALL ((1u << FAULT_COUNT) - 1)

struct sl_random;

uint32_t sl_faults_draw(struct sl_random *r);

/* "loss,cut" as bits. False: *bad is the word that is none. */
bool sl_faults_parse(const char *text, uint32_t *out, const char **bad);
void sl_faults_text(uint32_t faults, char *out, size_t n);
const char *sl_fault_word(enum fault f);
const char *sl_fault_what(enum fault f);

#endif /* SL_SIM_FAULTS_H */
