/* table_drain.c - drained patterns: the table grants no request for a matching key. */
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "locks/table_internal.h"

struct drain {
    struct sl_list in_table;
    struct sl_glob *compiled;
    size_t n;
    char glob[];
};

bool sl_table_drained(const struct sl_table *t, struct sl_bytes key)
{
    for (const struct sl_list *n = t->drains.next; n != &t->drains; n = n->next) {
        const struct drain *d = sl_container_of(n, struct drain, in_table);
        if (sl_glob_matches(d->compiled, key)) return true;
    }
    return false;
}

static void drop_drain(struct drain *d)
{
    sl_list_remove(&d->in_table);
    sl_glob_free(d->compiled);
    free(d);
}

void sl_table_free_drains(struct sl_table *t)
{
    while (!sl_list_empty(&t->drains))
        drop_drain(sl_container_of(t->drains.next, struct drain, in_table));
    t->drain_count = 0;
}

bool sl_table_drains(const struct sl_table *t, uint32_t i, struct sl_bytes *out)
{
    const struct sl_list *n = t->drains.next;
    for (; n != &t->drains && i > 0; n = n->next) i--;
    if (n == &t->drains) return false;
    const struct drain *d = sl_container_of(n, struct drain, in_table);
    *out = (struct sl_bytes){d->glob, d->n};
    return true;
}

static struct drain *find_drain(const struct sl_table *t, struct sl_bytes glob)
{
    for (struct sl_list *n = t->drains.next; n != &t->drains; n = n->next) {
        struct drain *d = sl_container_of(n, struct drain, in_table);
        if (d->n == glob.n && memcmp(d->glob, glob.at, glob.n) == 0) return d;
    }
    return NULL;
}

static int add_drain(struct sl_table *t, struct sl_bytes glob)
{
    struct drain *d = malloc(sizeof *d + glob.n);
    if (d == NULL) return SLUICE_ENOMEM;
    d->compiled = sl_glob_new(glob);
    if (d->compiled == NULL) {
        free(d);
        return SLUICE_ENOMEM;
    }
    d->n = glob.n;
    memcpy(d->glob, glob.at, glob.n);
    sl_list_append(&t->drains, &d->in_table);
    t->drain_count++;
    return SLUICE_OK;
}

static int check_drain(const struct sl_table *t, struct sl_bytes glob)
{
    if (glob.n == 0) return SLUICE_EINVAL;
    if (glob.n > t->limits.key_bytes_max) return SLUICE_ETOOBIG;
    return t->drain_count >= t->limits.drains_max ? SLUICE_EFULL : SLUICE_OK;
}

int sl_table_restore_drain(struct sl_table *t, struct sl_bytes glob)
{
    if (glob.n == 0 || glob.n > UINT16_MAX) return SLUICE_EINVAL;
    if (find_drain(t, glob) != NULL) return SLUICE_OK;
    int status = add_drain(t, glob);
    /* A new keeper may have waiters already, when it reads its journal. */
    if (status == SLUICE_OK) t->recheck_left = t->awaited_count;
    return status;
}

int sl_table_drain(struct sl_table *t, struct sl_bytes glob, bool on)
{
    sl_table_free_retired(t);
    struct drain *d = find_drain(t, glob);
    if (on == (d != NULL)) return SLUICE_ENOENT;
    if (!on && t->recorder != NULL) t->recorder->drain(t->recorder->arg, glob, false);
    if (on) {
        int status = check_drain(t, glob);
        if (status == SLUICE_OK) status = add_drain(t, glob);
        if (status != SLUICE_OK) return status;
        if (t->recorder != NULL) t->recorder->drain(t->recorder->arg, glob, true);
    } else {
        drop_drain(d);
        t->drain_count--;
    }
    /* sl_table_next() rechecks all waiters, a few in each call. */
    t->recheck_left = t->awaited_count;
    return SLUICE_OK;
}
