/* parts_table.c - the lock table alone. Without sockets, the number of waiters has
 * no limit. It is linked statically, as in the server. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "load.h"
#include "locks/table.h"
#include "parts.h"

/* A table and its sessions. */
struct world {
    struct sl_table *table;
    struct sl_session *sessions;
    struct sl_now now;
};

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool world_open(struct world *w, uint64_t sessions)
{
    struct sl_table_limits limits = {.keys_max = 20000000,
                                     .waiters_max = 131072,
                                     .key_bytes_max = 1024,
                                     .value_bytes_max = 4096,
                                     .drains_max = 100};
    *w = (struct world){.now = {.ms = 1000, .wall_us = 1700000000000000}};
    w->table = sl_table_new(&limits, (struct sl_hash_key){0x5115ce, 0});
    w->sessions = calloc(sessions, sizeof *w->sessions);
    if (w->table == NULL || w->sessions == NULL) return false;
    for (uint64_t i = 0; i < sessions; i++) sl_session_begin(&w->sessions[i], i + 1, 0);
    return true;
}

static void world_close(struct world *w)
{
    sl_table_free(w->table);
    free(w->sessions);
}

static int ask(struct world *w, uint64_t session, uint64_t key, sl_ms wait_ms,
               sl_ms lease_ms, struct sl_grant *out)
{
    char name[LOAD_KEY_BYTES + 1];
    load_key(name, key);
    struct sl_want want = {.key = {name, LOAD_KEY_BYTES},
                           .per = 1,
                           .buckets = 1,
                           .units = 1,
                           .wait_ms = wait_ms,
                           .lease_ms = lease_ms,
                           .value = {"holder-000000000000000", LOAD_VALUE_BYTES}};
    return sl_table_acquire(w->table, w->now, &w->sessions[session], &want, out);
}

/* Session 0 holds every key, each with a lease; each of the others waits for one. */
static const char *ends_prepare(struct world *w, uint64_t leases, uint64_t waiters)
{
    struct sl_grant g;
    for (uint64_t i = 0; i < leases; i++)
        if (ask(w, 0, i, 0, 60000, &g) != SLUICE_OK) return "the table rejected a lock";
    for (uint64_t i = 0; i < waiters; i++)
        if (ask(w, i + 1, i * (leases / waiters), 600000, 600000, &g) != SL_WAITS)
            return "the table rejected a waiter";
    return NULL;
}

/* All leases have expired: process the effects until there are none. */
static void ends_measure(struct world *w, struct table_ends *out)
{
    struct sl_effect e;
    uint64_t effects = 0;
    int64_t first = cpu_ns(), before = first;
    bool more = true;
    w->now.ms += 70000;
    while (more) {
        for (uint32_t i = 0; i < TABLE_STRETCH; i++) {
            if (!(more = sl_table_next(w->table, w->now, &e))) break;
            effects++;
            out->grants += e.type == SL_EFFECT_GRANTED;
        }
        int64_t now = cpu_ns();
        double us = (double)(now - before) / 1e3;
        if (us > out->longest_us) out->longest_us = us;
        before = now;
    }
    out->ns_per_effect = (double)(before - first) / (double)effects;
}

const char *table_leases_end(uint64_t leases, uint64_t waiters, struct table_ends *out)
{
    struct world w;
    *out = (struct table_ends){.leases = leases, .waiters = waiters};
    const char *wrong = world_open(&w, waiters + 1) ? NULL : "no memory";
    if (wrong == NULL) wrong = ends_prepare(&w, leases, waiters);
    if (wrong == NULL) ends_measure(&w, out);
    if (wrong == NULL && out->grants != waiters) wrong = "the table forgot a waiter";
    world_close(&w);
    return wrong;
}

/* The holder releases, the next waiter gets the lock, and the holder joins the queue again. */
static const char *hand_over(struct world *w, uint64_t *holder, sl_fence *fence)
{
    char name[LOAD_KEY_BYTES + 1];
    struct sl_ended past;
    struct sl_grant g;
    struct sl_effect e;
    uint64_t old = *holder;
    load_key(name, 1);
    struct sl_bytes key = {name, LOAD_KEY_BYTES};
    if (sl_table_release(w->table, w->now, &w->sessions[old], key, *fence, &past) != 1)
        return "the table lost a grant";
    if (!sl_table_next(w->table, w->now, &e) || e.type != SL_EFFECT_GRANTED)
        return "the table granted nothing";
    *holder = (uint64_t)(e.session - w->sessions);
    *fence = e.grant.fence;
    return ask(w, old, 1, 600000, 30000, &g) == SL_WAITS ? NULL
                                                         : "a request did not wait";
}

const char *table_grants(uint64_t waiters, uint64_t grants, double *ns_per_grant)
{
    struct world w;
    struct sl_grant g = {0};
    uint64_t holder = 0;
    const char *wrong = world_open(&w, waiters + 1) ? NULL : "no memory";
    if (wrong == NULL && ask(&w, 0, 1, 0, 30000, &g) != SLUICE_OK) wrong = "no grant";
    for (uint64_t i = 1; i <= waiters && wrong == NULL; i++) {
        struct sl_grant none;
        if (ask(&w, i, 1, 600000, 30000, &none) != SL_WAITS)
            wrong = "a request did not wait";
    }
    for (uint64_t i = 0; i < grants / 10 && wrong == NULL; i++)
        wrong = hand_over(&w, &holder, &g.fence);
    int64_t before = cpu_ns();
    for (uint64_t i = 0; i < grants && wrong == NULL; i++)
        wrong = hand_over(&w, &holder, &g.fence);
    *ns_per_grant = (double)(cpu_ns() - before) / (double)grants;
    world_close(&w);
    return wrong;
}
