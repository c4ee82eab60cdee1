#include "majority/key_record.h"

#include <assert.h>
#include <string.h>

#define HEAD_BYTES 56u
#define HEAD_BYTES_1 40u /* In format 1. */
#define RESERVATION_BYTES 32u
#define REPORT_BYTES 16u
#define LEASE_BYTES 96u
#define LEASE_BYTES_1 88u /* In format 1. */

enum { HAS_LEASE = 1, HAS_OVERLAPPED = 2, HAS_LEARNED = 4, HAS_RESERVATION = 8 };
enum { IS_GRANTED = 1, IS_OVER = 2 };
enum {
    IS_LIVE = 1,
    IS_AGREED = 2,
    IS_OVERLAPPING = 4,
    IS_STOLEN = 8,
    IS_COPIED = 16,
    IS_ADOPTED = 32
};

/* --- Numbers ---------------------------------------------------------------------- */

static char *put32(char *at, uint32_t x)
{
    for (int i = 0; i < 4; i++) at[i] = (char)(x >> 8 * i);
    return at + 4;
}

static char *put64(char *at, uint64_t x)
{
    for (int i = 0; i < 8; i++) at[i] = (char)(x >> 8 * i);
    return at + 8;
}

static char *put_text(char *at, const struct sl_node_text *t)
{
    struct sl_bytes b = sl_node_text_bytes(t);
    if (b.n > 0) memcpy(at, b.at, b.n);
    return at + b.n;
}

static uint64_t get(const char *at, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return x;
}

/* --- Writing ---------------------------------------------------------------------- */

static size_t lease_bytes(const struct sl_node_lease *l)
{
    return LEASE_BYTES + sl_node_text_bytes(l->value).n +
           sl_node_text_bytes(l->note).n + sl_node_text_bytes(l->client).n +
           sl_node_text_bytes(l->request).n;
}

static size_t report_count(const struct sl_node_key *k)
{
    return k->report_next < SL_ACCEPTOR_REPORTS ? k->report_next : SL_ACCEPTOR_REPORTS;
}

size_t sl_key_record_bytes(const struct sl_node_key *k)
{
    size_t bytes = HEAD_BYTES + report_count(k) * REPORT_BYTES;
    if (k->reserved.live) bytes += RESERVATION_BYTES;
    if (k->lease.live) bytes += lease_bytes(&k->lease);
    if (k->overlapped != NULL) bytes += lease_bytes(k->overlapped);
    if (k->learned != NULL) bytes += lease_bytes(k->learned);
    return bytes;
}

static char *put_reservation(char *at, const struct sl_acceptor_reservation *r)
{
    at = put64(at, r->owner.epoch);
    at = put64(at, r->owner.number);
    at = put64(at, (uint64_t)r->end_ms);
    at = put32(at, (uint32_t)r->priority);
    return put32(at, 0);
}

/* The oldest report is overwritten first, so the order matters. */
static char *put_reports(char *at, const struct sl_node_key *k)
{
    uint32_t first = k->report_next < SL_ACCEPTOR_REPORTS ? 0 : k->report_next;
    for (uint32_t i = 0; i < report_count(k); i++) {
        const struct sl_acceptor_report *t =
            &k->reports[(first + i) % SL_ACCEPTOR_REPORTS];
        uint32_t flags = (t->granted ? IS_GRANTED : 0u) | (t->over ? IS_OVER : 0u);
        at = put64(at, t->fence);
        at = put64(at, flags | (uint32_t)t->how << 8);
    }
    return at;
}

static char *put_lease(char *at, const struct sl_node_lease *l)
{
    uint32_t flags = (l->live ? IS_LIVE : 0u) | (l->agreed ? IS_AGREED : 0u) |
                     (l->overlapping ? IS_OVERLAPPING : 0u) |
                     (l->stolen ? IS_STOLEN : 0u) | (l->copied ? IS_COPIED : 0u) |
                     (l->adopted ? IS_ADOPTED : 0u);
    at = put64(at, l->owner.epoch);
    at = put64(at, l->owner.number);
    at = put64(at, l->fence);
    at = put64(at, (uint64_t)l->end_ms);
    at = put64(at, (uint64_t)l->lease_ms);
    at = put64(at, l->stamp);
    at = put64(at, (uint64_t)l->sure_ms);
    at = put64(at, (uint64_t)l->asked_ms);
    at = put32(at, (uint32_t)l->priority);
    at = put32(at, flags);
    at = put32(at, (uint32_t)sl_node_text_bytes(l->value).n);
    at = put32(at, (uint32_t)sl_node_text_bytes(l->note).n);
    at = put32(at, (uint32_t)sl_node_text_bytes(l->client).n);
    at = put32(at, (uint32_t)sl_node_text_bytes(l->request).n);
    at = put64(at, l->digest);
    at = put_text(at, l->value);
    at = put_text(at, l->note);
    at = put_text(at, l->client);
    return put_text(at, l->request);
}

void sl_key_record_write(const struct sl_node_key *k, char *out)
{
    uint32_t has = (k->lease.live ? HAS_LEASE : 0u) |
                   (k->overlapped != NULL ? HAS_OVERLAPPED : 0u) |
                   (k->learned != NULL ? HAS_LEARNED : 0u) |
                   (k->reserved.live ? HAS_RESERVATION : 0u);
    char *at = put64(out,
                     SL_KEY_RECORD_FORMAT | has << 8 | (uint32_t)report_count(k) << 16);
    at = put64(at, k->seen_fence);
    at = put64(at, k->past_fence);
    at = put64(at, k->released_fence);
    at = put64(at, k->lapsed_fence);
    at = put64(at, k->broken_fence);
    at = put64(at, (uint64_t)k->overlaps_until_ms);
    if (k->reserved.live) at = put_reservation(at, &k->reserved);
    at = put_reports(at, k);
    if (k->lease.live) at = put_lease(at, &k->lease);
    if (k->overlapped != NULL) at = put_lease(at, k->overlapped);
    if (k->learned != NULL) at = put_lease(at, k->learned);
    assert((size_t)(at - out) == sl_key_record_bytes(k));
}

/* --- Reading ---------------------------------------------------------------------- */

/* Take bytes from the front of the rest. Returns NULL if there are fewer. */
static const char *take(struct sl_bytes *rest, size_t n)
{
    const char *at = rest->at;
    if (rest->n < n) return NULL;
    *rest = (struct sl_bytes){at + n, rest->n - n};
    return at;
}

static bool take_reservation(struct sl_node_key *k, struct sl_bytes *rest,
                             sl_ms shift_ms)
{
    const char *at = take(rest, RESERVATION_BYTES);
    if (at == NULL) return false;
    k->reserved = (struct sl_acceptor_reservation){
        .live = true,
        .owner = {get(at, 8), get(at + 8, 8)},
        .end_ms = (sl_ms)get(at + 16, 8) + shift_ms,
        .priority = (int32_t)(uint32_t)get(at + 24, 4)};
    return true;
}

static bool take_reports(struct sl_node_key *k, struct sl_bytes *rest, uint32_t count)
{
    if (count > SL_ACCEPTOR_REPORTS) return false;
    for (uint32_t i = 0; i < count; i++) {
        const char *at = take(rest, REPORT_BYTES);
        if (at == NULL) return false;
        k->reports[i] = (struct sl_acceptor_report){
            .fence = get(at, 8),
            .granted = (get(at + 8, 1) & IS_GRANTED) != 0,
            .over = (get(at + 8, 1) & IS_OVER) != 0,
            .how = (enum sl_node_event_type)get(at + 9, 1)};
    }
    k->report_next = count;
    return true;
}

/* Take the texts of a lease. In format 1, the fourth is empty. */
static int take_texts(struct sl_node *n, struct sl_node_lease *l, const char *sizes,
                      struct sl_bytes *rest)
{
    struct sl_node_text **texts[] = {&l->value, &l->note, &l->client, &l->request};
    for (int i = 0; i < 4; i++) {
        size_t bytes = (size_t)get(sizes + 4 * i, 4);
        const char *at = take(rest, bytes);
        if (at == NULL) return SLUICE_EINVAL;
        *texts[i] = sl_node_text_new(n, (struct sl_bytes){at, bytes});
        if (bytes > 0 && *texts[i] == NULL) return SLUICE_ENOMEM;
    }
    return SLUICE_OK;
}

static int take_lease(struct sl_node *n, struct sl_node_lease *l, struct sl_bytes *rest,
                      sl_ms shift_ms, uint32_t format)
{
    const char *at = take(rest, format == 1 ? LEASE_BYTES_1 : LEASE_BYTES);
    if (at == NULL) return SLUICE_EINVAL;
    uint32_t flags = (uint32_t)get(at + 68, 4);
    sl_ms sure_ms = (sl_ms)get(at + 48, 8), asked_ms = (sl_ms)get(at + 56, 8);
    *l = (struct sl_node_lease){
        .live = (flags & IS_LIVE) != 0,
        .agreed = (flags & IS_AGREED) != 0,
        .overlapping = (flags & IS_OVERLAPPING) != 0,
        .stolen = (flags & IS_STOLEN) != 0,
        .copied = (flags & IS_COPIED) != 0,
        .adopted = (flags & IS_ADOPTED) != 0,
        .digest = format == 1 ? 0 : get(at + 88, 8),
        .owner = {get(at, 8), get(at + 8, 8)},
        .fence = get(at + 16, 8),
        .priority = (int32_t)(uint32_t)get(at + 64, 4),
        .end_ms = (sl_ms)get(at + 24, 8) + shift_ms,
        .lease_ms = (sl_ms)get(at + 32, 8),
        .stamp = get(at + 40, 8),
        .sure_ms = n->same_life ? sure_ms : 0,
        .asked_ms = asked_ms < 0 ? -1 : sl_node_max_ms(asked_ms + shift_ms, 0)};
    if (l->fence == 0 || l->fence > SL_FENCE_MAX || l->lease_ms < 0)
        return SLUICE_EINVAL;
    return take_texts(n, l, at + 72, rest);
}

static int take_other(struct sl_node *n, struct sl_node_lease **l,
                      struct sl_bytes *rest, sl_ms shift_ms, uint32_t format)
{
    *l = sl_node_block_new(n, sizeof **l);
    return *l == NULL ? SLUICE_ENOMEM : take_lease(n, *l, rest, shift_ms, format);
}

static int take_all(struct sl_node *n, struct sl_node_key *k, struct sl_bytes rest,
                    sl_ms shift_ms)
{
    int status = SLUICE_OK;
    uint32_t format = rest.n == 0 ? 0 : (uint32_t)get(rest.at, 1);
    if (format < 1 || format > SL_KEY_RECORD_FORMAT) return SLUICE_EINVAL;
    const char *at = take(&rest, format == 1 ? HEAD_BYTES_1 : HEAD_BYTES);
    if (at == NULL) return SLUICE_EINVAL;
    uint32_t has = (uint32_t)get(at + 1, 1), reports = (uint32_t)get(at + 2, 1);
    k->seen_fence = get(at + 8, 8);
    k->past_fence = get(at + 16, 8);
    k->released_fence = get(at + 24, 8);
    k->lapsed_fence = get(at + 32, 8);
    if (format > 1) k->broken_fence = get(at + 40, 8);
    sl_ms overlaps_ms = format > 1 ? (sl_ms)get(at + 48, 8) : 0;
    k->overlaps_until_ms = overlaps_ms > 0 ? sl_node_max_ms(overlaps_ms + shift_ms, 0)
                                           : 0;
    if (k->seen_fence > SL_FENCE_MAX || k->past_fence > SL_FENCE_MAX ||
        k->released_fence > SL_FENCE_MAX || k->lapsed_fence > SL_FENCE_MAX ||
        k->broken_fence > SL_FENCE_MAX)
        return SLUICE_EINVAL;
    if (((has & HAS_RESERVATION) != 0 && !take_reservation(k, &rest, shift_ms)) ||
        !take_reports(k, &rest, reports))
        return SLUICE_EINVAL;
    if ((has & HAS_LEASE) != 0)
        status = take_lease(n, &k->lease, &rest, shift_ms, format);
    if (status == SLUICE_OK && (has & HAS_OVERLAPPED) != 0)
        status = take_other(n, &k->overlapped, &rest, shift_ms, format);
    if (status == SLUICE_OK && (has & HAS_LEARNED) != 0)
        status = take_other(n, &k->learned, &rest, shift_ms, format);
    if (status != SLUICE_OK) return status;
    bool good = rest.n == 0 && k->lease.live == ((has & HAS_LEASE) != 0) &&
                (k->overlapped == NULL || (k->overlapped->live && k->lease.live)) &&
                (k->learned == NULL || !k->learned->live);
    return good ? SLUICE_OK : SLUICE_EINVAL;
}

int sl_key_record_read(struct sl_node *n, struct sl_node_key *k, struct sl_bytes value,
                       sl_ms shift_ms)
{
    int status = take_all(n, k, value, shift_ms);
    if (status == SLUICE_OK) return status;
    sl_node_lease_clear(n, &k->lease);
    sl_node_lease_free(n, &k->overlapped);
    sl_node_lease_free(n, &k->learned);
    memset(k->reports, 0, sizeof k->reports);
    k->reserved = (struct sl_acceptor_reservation){0};
    k->report_next = 0;
    k->seen_fence = k->past_fence = k->released_fence = k->lapsed_fence = 0;
    k->broken_fence = 0;
    k->overlaps_until_ms = 0;
    return status;
}

/* --- What the record is about ------------------------------------------------------ */

sl_ms sl_key_record_end(const struct sl_node_key *k)
{
    sl_ms end = 0;
    if (k->lease.live) end = k->lease.end_ms;
    if (k->reserved.live) end = sl_node_max_ms(end, k->reserved.end_ms);
    if (k->overlapped != NULL) end = sl_node_max_ms(end, k->overlapped->end_ms);
    if (k->learned != NULL) end = sl_node_max_ms(end, k->learned->end_ms);
    end = sl_node_max_ms(end, k->overlaps_until_ms);
    return end;
}

uint64_t sl_key_record_core(const struct sl_node *n, const struct sl_node_key *k)
{
    const uint64_t core[] = {k->lease.live ? k->lease.fence : 0,
                             k->lease.live && k->lease.stolen,
                             k->lease.live && k->lease.adopted,
                             k->overlapped != NULL ? k->overlapped->fence : 0,
                             k->overlapped != NULL && k->overlapped->stolen,
                             k->learned != NULL ? k->learned->fence : 0,
                             k->reserved.live ? k->reserved.owner.epoch : 0,
                             k->reserved.live ? k->reserved.owner.number : 0,
                             k->past_fence,
                             k->released_fence,
                             k->broken_fence};
    return sl_hash(n->keys.key, (const char *)core, sizeof core);
}
