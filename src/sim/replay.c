#include "sim/replay.h"

#include <string.h>

#define HEAD_BYTES 56u
#define RESERVATION_BYTES 32u
#define REPORT_BYTES 16u
#define LEASE_BYTES 96u
#define HAS_RESERVATION 8u

static uint64_t get(const char *at, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return x;
}

/* Read the leases of a state. Returns false if the bytes are too few. */
static bool read_leases(struct sim_replayed *out, struct sl_bytes value)
{
    if (value.n < HEAD_BYTES) return false;
    uint32_t has = (uint32_t)get(value.at + 1, 1);
    size_t at = HEAD_BYTES + REPORT_BYTES * get(value.at + 2, 1);
    out->past_fence = get(value.at + 16, 8);
    if ((has & HAS_RESERVATION) != 0) at += RESERVATION_BYTES;
    for (int i = 0; i < 3; i++) {
        if ((has & 1u << i) == 0) continue;
        if (value.n < at + LEASE_BYTES) return false;
        const char *lease = value.at + at;
        out->leases[i].fence = get(lease + 16, 8);
        out->leases[i].end_ms = (sl_ms)get(lease + 24, 8);
        at += LEASE_BYTES + get(lease + 72, 4) + get(lease + 76, 4) +
              get(lease + 80, 4) + get(lease + 84, 4);
    }
    return value.n == at;
}

static void apply(struct sim_replay *r, const struct sim_disk *d,
                  const struct sl_item *item, bool is_end)
{
    if (item->kind != SL_ITEM_KEY || item->key.n != 2) return;
    uint32_t k = (uint32_t)(item->key.at[1] - '0');
    if (k >= SIM_KEYS) return;
    struct sim_replayed *key = &r->keys[k];
    *key = (struct sim_replayed){0};
    if (is_end) return;
    key->is_long = item->is_long;
    key->bound_ms = item->bound_ms;
    key->at = (size_t)(item->value.at - d->file);
    key->bytes = item->value.n;
    key->is = read_leases(key, item->value);
}

void sim_replay_to(struct sim_replay *r, const struct sim_disk *d, size_t bytes)
{
    const struct sl_bytes file = {d->file, bytes};
    struct sl_frame frame;
    struct sl_item item;
    if (r->inode != d->inode || bytes < r->bytes) {
        struct sl_header header;
        *r = (struct sim_replay){.inode = d->inode};
        if (bytes < SL_HEADER_BYTES || sl_header_read(file, &header) != SLUICE_OK) {
            r->inode = 0;
            return;
        }
        r->chain = header.chain;
        r->bytes = SL_HEADER_BYTES;
    }
    while (r->bytes < bytes && sl_frame_next(file, r->bytes, &r->chain, &frame)) {
        int type;
        for (size_t at = 0; (type = sl_record_next(frame.records, &at, &item)) > 0;)
            apply(r, d, &item, type == 2);
        r->bytes = frame.at + frame.bytes;
    }
}

sl_ms sim_replayed_end(const struct sim_replayed *k, sl_fence fence, bool power)
{
    if (!k->is || fence == 0 || (power && !k->is_long)) return -1;
    for (int i = 0; i < 3; i++) {
        const struct sim_replayed_lease *l = &k->leases[i];
        if (l->fence != fence) continue;
        return power && i == 0 && k->bound_ms > l->end_ms ? k->bound_ms : l->end_ms;
    }
    return -1;
}
