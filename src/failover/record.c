/* record.c - writes and reads a grant in a message. */
#include "failover/record.h"

#include "base/number.h"
#include "locks/requests.h"

static bool read_number(struct sl_bytes b, uint64_t *out)
{
    return sl_parse_u64(b, SL_FENCE_MAX, out);
}

void sl_record_write(struct sl_resp_writer *w, struct sl_bytes key,
                     const struct sl_grant_view *v)
{
    sl_resp_bulk(w, key);
    sl_resp_decimal(w, (int64_t)v->fence);
    sl_resp_decimal(w, (int64_t)v->origin);
    sl_resp_decimal(w, v->shared ? 1 : 0);
    sl_resp_decimal(w, v->units);
    sl_resp_decimal(w, v->per);
    sl_resp_decimal(w, v->buckets);
    sl_resp_decimal(w, v->priority);
    sl_resp_decimal(w, v->leased ? v->left_ms : -1);
    sl_resp_decimal(w, !v->leased                  ? 0
                       : v->unsure_ms < v->left_ms ? v->unsure_ms
                                                   : v->left_ms);
    sl_resp_bulk(w, v->value);
    sl_resp_bulk(w, v->note);
    sl_resp_bulk(w, v->request);
    sl_resp_decimal(w, (int64_t)v->digest);
}

bool sl_record_read(const struct sl_bytes *at, struct sl_grant_view *v,
                    struct sl_bytes *key)
{
    uint64_t fence, origin, shared, units, per, buckets, digest;
    int64_t priority, lease, unsure;
    if (!read_number(at[1], &fence) || !read_number(at[2], &origin) ||
        !read_number(at[3], &shared) || !read_number(at[4], &units) ||
        !read_number(at[5], &per) || !read_number(at[6], &buckets) ||
        !sl_parse_number(at[7], INT32_MIN, INT32_MAX, &priority) ||
        !sl_parse_number(at[8], -1, (int64_t)SL_FENCE_MAX, &lease) ||
        !sl_parse_number(at[9], 0, (int64_t)SL_FENCE_MAX, &unsure) || shared > 1 ||
        units > UINT32_MAX || per > UINT32_MAX || buckets > UINT32_MAX ||
        !read_number(at[13], &digest))
        return false;
    if (at[12].n != 0 && (at[12].n < SL_REQUEST_ID_MIN || at[12].n > SL_REQUEST_ID_MAX))
        return false;
    *key = at[0];
    *v = (struct sl_grant_view){.fence = fence,
                                .origin = origin,
                                .shared = shared == 1,
                                .units = (uint32_t)units,
                                .per = (uint32_t)per,
                                .buckets = (uint32_t)buckets,
                                .priority = (int32_t)priority,
                                .leased = lease >= 0,
                                .left_ms = lease >= 0 ? lease : SL_NEVER,
                                .unsure_ms = unsure,
                                .value = at[10],
                                .note = at[11],
                                .request = at[12],
                                .digest = digest};
    return true;
}
