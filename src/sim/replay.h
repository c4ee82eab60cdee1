/* replay.h - what the journal of a simulated machine says about each key, up to some offset of its
 * file. It reads the frames as a start would, and continues where it stopped. It shares no code
 * with majority/: it reads the states of keys as key_record.h draws them. */
#ifndef SL_SIM_REPLAY_H
#define SL_SIM_REPLAY_H

#include "sim/checker.h"
#include "sim/disk.h"

struct sim_replayed_lease {
    sl_fence fence; /* 0: there is none. */
    sl_ms end_ms;
};

/* The state of a key. */
struct sim_replayed {
    bool is;
    bool is_long; /* The item is held after a power failure, until bound_ms. */
    sl_ms bound_ms;
    sl_fence past_fence;
    /* The lease, the one that it overlaps, and one that waits for an attempt to be given up. */
    struct sim_replayed_lease leases[3];
    size_t at, bytes; /* Where its bytes are in the file. */
};

struct sim_replay {
    uint64_t inode; /* Of the file; 0: none was read. */
    size_t bytes;   /* Read up to here. */
    struct sl_chain chain;
    struct sim_replayed keys[SIM_KEYS];
};

/* Read all intact frames within the first `bytes` of the file. If the file was truncated or
 * replaced in place since the last call, set *r to zero first. */
void sim_replay_to(struct sim_replay *r, const struct sim_disk *d, size_t bytes);

/* Returns the time until which the state has the lease with this fence, or -1. With `power`, after
 * a power failure: then only long items are held, and their lease until the bound. */
sl_ms sim_replayed_end(const struct sim_replayed *k, sl_fence fence, bool power);

#endif /* SL_SIM_REPLAY_H */
