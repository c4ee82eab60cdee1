/* etcd_lease.c - leases of etcd's for what is forgotten after a while: requests, and numbers
 * of groups. Nobody renews them: all keys of one period are on one lease, that outlives the
 * last of them by what they are kept. */
#include "storage/etcd/etcd.h"

#include <inttypes.h>
#include <stdio.h>

#define PERIODS 6      /* Of what is kept: so many leases at a time, or more: */
#define KEYS_MAX 10000 /* etcd deletes all keys of one at once. */
#define PERIOD_MIN_MS 1000

static sl_ms period(const struct sl_storage *e)
{
    sl_ms p = e->settings.dedup_keep_ms / PERIODS;
    return p > PERIOD_MIN_MS ? p : PERIOD_MIN_MS;
}

static void ask_for_one(struct sl_storage *e)
{
    struct sl_etcd_task *a = &e->lease.ask;
    char words[64];
    sl_ms ms = e->settings.dedup_keep_ms + period(e);
    if (a->busy) return;
    snprintf(words, sizeof words, "{\"TTL\":\"%" PRId64 "\"}", ms / 1000 + 1);
    sl_etcd_task_begin(a);
    sl_etcd_text_clear(&a->body);
    sl_etcd_text_add(&a->body, words);
    if (!a->body.failed) {
        sl_etcd_task_send(a);
        return;
    }
    sl_etcd_task_end(a);
    sl_etcd_groups_refuse(e, SLUICE_ENOMEM);
}

static void on_lease(struct sl_etcd_call *call)
{
    struct sl_storage *e = call->owner;
    struct sl_etcd_lease *l = &e->lease;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome verdict = sl_etcd_outcome_of(&l->ask, &status);
    int64_t id = 0;
    if (verdict == SL_ETCD_OUTCOME_ANSWER) {
        json_t *answer = sl_etcd_json_of(call->answer);
        id = (int64_t)sl_etcd_json_number(answer, "ID");
        json_decref(answer);
    }
    if (id > 0) {
        l->id = id;
        l->since = l->ask.since;
        l->keys = 0;
        sl_etcd_task_end(&l->ask);
    } else if (verdict == SL_ETCD_OUTCOME_REFUSED) {
        sl_etcd_task_end(&l->ask);
        sl_etcd_groups_refuse(e, status);
    } else sl_etcd_task_later(&l->ask); /* One that nobody knows of ends by itself. */
}

int64_t sl_etcd_lease_take(struct sl_storage *e, uint64_t keys)
{
    struct sl_etcd_lease *l = &e->lease;
    sl_ms age = sl_etcd_now() - l->since, all = period(e);
    bool good = l->id != 0 && age < all && (l->keys == 0 || l->keys + keys < KEYS_MAX);
    if (!good || age > all / 4 * 3 || l->keys > KEYS_MAX / 4 * 3) ask_for_one(e);
    if (!good) return 0;
    l->keys += keys;
    return l->id;
}

void sl_etcd_lease_drop(struct sl_storage *e, int64_t id)
{
    if (e->lease.id == id) e->lease.id = 0;
}

void sl_etcd_lease_init(struct sl_storage *e)
{
    sl_etcd_task_init(e, &e->lease.ask, "/v3/lease/grant", on_lease, e);
    e->lease.ask.writes = true;
}

void sl_etcd_lease_pump(struct sl_storage *e, sl_ms now)
{
    if (!sl_etcd_task_is_due(&e->lease.ask, now)) return;
    e->lease.ask.since = now; /* It begins to run out when it is granted, not before. */
    sl_etcd_task_send(&e->lease.ask);
}
