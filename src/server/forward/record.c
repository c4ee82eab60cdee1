/* record.c - writes and reads a grant in a frame. */
#include "server/forward/record.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/number.h"

void sl_frame_number(struct sl_resp_writer *w, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    sl_resp_text(w, text);
}

void sl_frame_signed(struct sl_resp_writer *w, int64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, n);
    sl_resp_text(w, text);
}

bool sl_frame_read(struct sl_bytes b, uint64_t *out)
{
    return sl_parse_u64(b, SL_FENCE_MAX, out);
}

void sl_record_write(struct sl_resp_writer *w, struct sl_bytes key,
                     const struct sl_grant_view *v)
{
    sl_resp_bulk(w, key);
    sl_frame_number(w, v->fence);
    sl_frame_number(w, v->shared ? 1 : 0);
    sl_frame_number(w, v->units);
    sl_frame_number(w, v->per);
    sl_frame_number(w, v->buckets);
    sl_frame_signed(w, v->priority);
    sl_frame_signed(w, v->leased ? v->left_ms : -1);
    sl_resp_bulk(w, v->value);
    sl_resp_bulk(w, v->note);
}

bool sl_record_read(const struct sl_bytes *at, struct sl_grant_view *v,
                    struct sl_bytes *key)
{
    uint64_t fence, shared, units, per, buckets;
    int64_t priority, lease;
    if (!sl_frame_read(at[1], &fence) || !sl_frame_read(at[2], &shared) ||
        !sl_frame_read(at[3], &units) || !sl_frame_read(at[4], &per) ||
        !sl_frame_read(at[5], &buckets) ||
        !sl_parse_number(at[6], INT32_MIN, INT32_MAX, &priority) ||
        !sl_parse_number(at[7], -1, (int64_t)SL_FENCE_MAX, &lease) || shared > 1 ||
        units > UINT32_MAX || per > UINT32_MAX || buckets > UINT32_MAX)
        return false;
    *key = at[0];
    *v = (struct sl_grant_view){.fence = fence,
                                .shared = shared == 1,
                                .units = (uint32_t)units,
                                .per = (uint32_t)per,
                                .buckets = (uint32_t)buckets,
                                .priority = (int32_t)priority,
                                .leased = lease >= 0,
                                .left_ms = lease >= 0 ? lease : SL_NEVER,
                                .value = at[8],
                                .note = at[9]};
    return true;
}
