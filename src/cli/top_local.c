/* top_local.c - reads an update of `sluice top --local` from a segment. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/top_data.h"
#include "sluice.h"

/* Accept files of any owner: this command only reads, and the file's permissions decide who may
 * read. */
#define ANY_OWNER 0666u

int top_local_open(struct top_source *s, const char *segment)
{
    const struct sluice_canal_options options = {.existing = 1, .mode = ANY_OWNER};
    int status = sluice_canal_open(segment, &options, &s->canal);
    if (status == SLUICE_ENOENT && segment == NULL) {
        cli_message("no locks: the default segment is created when it is first used");
        return CLI_EXIT_NO_INPUT;
    }
    if (status != SLUICE_OK)
        return cli_status_error(segment != NULL ? segment : "default segment", status);
    const char *path = sluice_canal_path(s->canal);
    top_copy(s->source, sizeof s->source, path, strlen(path));
    return 0;
}

static void put_program(const struct sluice_holder *h, char *name, char *address)
{
    top_copy(name, TOP_NAME_SIZE, h->program, strlen(h->program));
    snprintf(address, TOP_NAME_SIZE, "pid %d", (int)h->pid);
}

/* Add what the holders and waiters of a key say about its lock. */
static void take_times(struct sluice_canal *c, struct top_lock *l, int64_t now_ms)
{
    struct sluice_holder h;
    for (uint64_t cursor = 0; sluice_canal_next_holder(c, l->key, &cursor, &h) == 1;) {
        int64_t ms = now_ms > h.since_ms ? now_ms - h.since_ms : 0;
        if (h.waits && ms > l->waited_ms) l->waited_ms = ms;
        if (h.waits || ms <= l->held_ms) continue;
        l->held_ms = ms;
        put_program(&h, l->name, l->address);
    }
}

static bool take_key(struct top_source *s, struct top_update *u,
                     const struct sluice_key_info *k)
{
    struct top_lock *l = top_add_lock(u, k->key, strlen(k->key));
    if (l == NULL) return false;
    l->held = k->held;
    l->holders = k->holders;
    l->waiters = k->waiters;
    l->explained = l->lease_known = true;
    l->capacity = (uint64_t)k->capacity.per * k->capacity.buckets;
    take_times(s->canal, l, cli_wall_ms());
    return true;
}

static bool read_detail(struct top_source *s, const struct top_want *want,
                        struct top_update *u)
{
    struct sluice_holder h;
    if (want->detail == NULL) return true;
    struct top_detail *d = top_add_detail(u, want->detail, want->detail_bytes);
    if (d == NULL) return false;
    int64_t now_ms = cli_wall_ms();
    for (uint64_t cursor = 0;
         sluice_canal_next_holder(s->canal, d->key, &cursor, &h) == 1;) {
        struct top_party *p = top_add_party(d);
        if (p == NULL) return false;
        p->waits = h.waits != 0;
        p->gone = h.dead != 0;
        p->units = h.units;
        p->since_ms = now_ms > h.since_ms ? now_ms - h.since_ms : 0;
        put_program(&h, p->name, p->address);
        snprintf(p->text, sizeof p->text, "%s",
                 h.inherited ? "inherited by other processes"
                 : h.dead    ? "dead"
                             : "");
        if (p->waits) d->waiters++;
        else d->holders++;
    }
    snprintf(d->summary[d->sentences++], TOP_REASON_SIZE,
             "%" PRIu64 " %s, %" PRIu64 " %s", d->holders,
             d->holders == 1 ? "holder" : "holders", d->waiters,
             d->waiters == 1 ? "waiter" : "waiters");
    return true;
}

bool top_local_read(struct top_source *s, const struct top_want *want,
                    struct top_update *u)
{
    struct sluice_key_info k;
    u->complete = true;
    if (sluice_canal_removed(s->canal) == 1) {
        u->status = CLI_EXIT_NO_INPUT;
        strcpy(u->trouble, "the segment was removed or truncated");
        return true;
    }
    for (uint64_t cursor = 0; sluice_canal_next_key(s->canal, &cursor, &k) == 1;) {
        bool idle = k.held == 0 && k.holders == 0 && k.waiters == 0;
        if (idle || strstr(k.key, want->filter) == NULL) continue;
        if (!take_key(s, u, &k)) return false;
    }
    top_sort(u, want->order, want->reversed);
    return read_detail(s, want, u);
}
