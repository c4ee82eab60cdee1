/* lease.c - etcd leases for keys that expire: requests, bars, and group numbers. The
 * storage never renews these leases. All keys that are written in one period share a
 * lease, which outlives the period by the time that the keys must be kept. */
#include <inttypes.h>
#include <stdio.h>

#include "storage/etcd/etcd_internal.h"

#define PERIODS 6      /* Per dedup_keep_ms; about as many leases exist at a time. */
#define KEYS_MAX 10000 /* On one lease, because etcd deletes all of them at once. */
#define PERIOD_MIN_MS 1000

static sl_ms period(const struct sl_etcd *e)
{
    sl_ms p = e->settings.dedup_keep_ms / PERIODS;
    return p > PERIOD_MIN_MS ? p : PERIOD_MIN_MS;
}

static void request_lease(struct sl_etcd *e)
{
    struct sl_etcd_task *a = &e->lease.task;
    char body[64];
    sl_ms ms = e->settings.dedup_keep_ms + period(e);
    if (a->busy) return;
    snprintf(body, sizeof body, "{\"TTL\":\"%" PRId64 "\"}", ms / 1000 + 1);
    sl_etcd_task_begin(a);
    sl_etcd_text_clear(&a->body);
    sl_etcd_text_add(&a->body, body);
    if (!a->body.failed) {
        sl_etcd_task_send(a);
        return;
    }
    sl_etcd_task_end(a);
    sl_etcd_groups_refuse(e, SLUICE_ENOMEM);
}

static void on_lease(struct sl_etcd_call *call)
{
    struct sl_etcd *e = call->owner;
    struct sl_etcd_lease *l = &e->lease;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome outcome = sl_etcd_outcome_of(&l->task, &status);
    int64_t id = 0;
    if (outcome == SL_ETCD_OUTCOME_ANSWER) {
        json_t *answer = sl_etcd_json_of(call->answer);
        id = (int64_t)sl_etcd_json_number(answer, "ID");
        json_decref(answer);
    }
    if (id > 0) {
        l->id = id;
        l->since_ms = l->task.since_ms;
        l->keys = 0;
        sl_etcd_task_end(&l->task);
    } else if (outcome == SL_ETCD_OUTCOME_REFUSED) {
        sl_etcd_task_end(&l->task);
        sl_etcd_groups_refuse(e, status);
        /* If the answer was lost, that lease expires unused. */
    } else sl_etcd_task_later(&l->task);
}

int64_t sl_etcd_lease_take(struct sl_etcd *e, uint64_t keys)
{
    struct sl_etcd_lease *l = &e->lease;
    sl_ms age = sl_etcd_now() - l->since_ms, all = period(e);
    bool good = l->id != 0 && age < all && (l->keys == 0 || l->keys + keys < KEYS_MAX);
    if (!good || age > all / 4 * 3 || l->keys > KEYS_MAX / 4 * 3) request_lease(e);
    if (!good) return 0;
    l->keys += keys;
    return l->id;
}

void sl_etcd_lease_drop(struct sl_etcd *e, int64_t id)
{
    if (e->lease.id == id) e->lease.id = 0;
}

void sl_etcd_lease_init(struct sl_etcd *e)
{
    sl_etcd_task_init(e, &e->lease.task, "/v3/lease/grant", on_lease, e);
    e->lease.task.writes = true;
}

void sl_etcd_lease_pump(struct sl_etcd *e, sl_ms now)
{
    if (!sl_etcd_task_is_due(&e->lease.task, now)) return;
    e->lease.task.since_ms = now; /* etcd cannot have granted the lease earlier. */
    sl_etcd_task_send(&e->lease.task);
}
