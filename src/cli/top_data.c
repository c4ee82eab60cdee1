#include "cli/top_data.h"

#include <stdlib.h>
#include <string.h>

#include "cli/clock.h"

void top_copy(char *out, size_t size, const char *text, size_t bytes)
{
    if (bytes >= size) bytes = size - 1;
    memcpy(out, text, bytes);
    out[bytes] = '\0';
}

static char *copy_bytes(const char *text, size_t bytes)
{
    char *out = malloc(bytes + 1);
    if (out == NULL) return NULL;
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return out;
}

/* Allocate space for one more entry: the size of an array is the power of two above its count.
 * Returns the array, which may have moved; NULL: no memory, and it has not changed. */
static void *grow(void *array, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0) return array;
    return realloc(array, (count > 0 ? 2 * count : 1) * size);
}

struct top_lock *top_add_lock(struct top_update *u, const char *key, size_t bytes)
{
    struct top_lock *locks = grow(u->locks, u->count, sizeof *locks);
    if (locks == NULL) return NULL;
    u->locks = locks;
    struct top_lock *l = &locks[u->count];
    *l = (struct top_lock){.key = copy_bytes(key, bytes),
                           .key_bytes = bytes,
                           .waited_ms = -1,
                           .held_ms = -1,
                           .lease_ms = -1};
    if (l->key == NULL) return NULL;
    u->count++;
    return l;
}

struct top_party *top_add_party(struct top_detail *d)
{
    struct top_party *parties = grow(d->parties, d->count, sizeof *parties);
    if (parties == NULL) return NULL;
    d->parties = parties;
    parties[d->count] = (struct top_party){.left_ms = -1};
    return &parties[d->count++];
}

struct top_detail *top_add_detail(struct top_update *u, const char *key, size_t bytes)
{
    u->detail = calloc(1, sizeof *u->detail);
    if (u->detail == NULL) return NULL;
    u->detail->key = copy_bytes(key, bytes);
    u->detail->key_bytes = bytes;
    return u->detail->key != NULL ? u->detail : NULL;
}

void top_update_free(struct top_update *u)
{
    if (u == NULL) return;
    for (size_t i = 0; i < u->count; i++) free(u->locks[i].key);
    free(u->locks);
    if (u->detail != NULL) {
        free(u->detail->key);
        free(u->detail->parties);
        free(u->detail);
    }
    free(u);
}

/* --- Order ------------------------------------------------------------------- */

static int by_key(const void *x, const void *y)
{
    const struct top_lock *a = x, *b = y;
    size_t n = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    int order = memcmp(a->key, b->key, n);
    if (order != 0) return order;
    return (a->key_bytes > b->key_bytes) - (a->key_bytes < b->key_bytes);
}

/* Return the order of two numbers, the larger first. */
static int larger(int64_t a, int64_t b)
{
    return (a < b) - (a > b);
}

static int by_wait(const void *x, const void *y)
{
    const struct top_lock *a = x, *b = y;
    int order = larger(a->waited_ms, b->waited_ms);
    return order != 0 ? order : by_key(x, y);
}

static int by_waiters(const void *x, const void *y)
{
    const struct top_lock *a = x, *b = y;
    int order = larger((int64_t)a->waiters, (int64_t)b->waiters);
    return order != 0 ? order : by_key(x, y);
}

static int by_held(const void *x, const void *y)
{
    const struct top_lock *a = x, *b = y;
    int order = larger(a->held_ms, b->held_ms);
    return order != 0 ? order : by_key(x, y);
}

void top_sort(struct top_update *u, enum top_order order, bool reversed)
{
    static int (*const orders[])(const void *,
                                 const void *) = {[TOP_BY_WAIT] = by_wait,
                                                  [TOP_BY_WAITERS] = by_waiters,
                                                  [TOP_BY_HELD] = by_held,
                                                  [TOP_BY_KEY] = by_key};
    if (u->count == 0) return;
    qsort(u->locks, u->count, sizeof *u->locks, orders[order]);
    for (size_t i = 0, n = u->count; reversed && i < n / 2; i++) {
        struct top_lock l = u->locks[i];
        u->locks[i] = u->locks[n - 1 - i];
        u->locks[n - 1 - i] = l;
    }
}

void top_unite(struct top_update *u)
{
    size_t n = 0;
    top_sort(u, TOP_BY_KEY, false);
    for (size_t i = 0; i < u->count; i++) {
        if (n > 0 && by_key(&u->locks[n - 1], &u->locks[i]) == 0) free(u->locks[i].key);
        else u->locks[n++] = u->locks[i];
    }
    u->count = n;
}

void top_keep_locks(struct top_update *u, struct top_update *earlier)
{
    for (size_t i = 0; i < u->count; i++) free(u->locks[i].key);
    free(u->locks);
    u->locks = earlier->locks;
    u->count = earlier->count;
    u->complete = earlier->complete;
    u->locks_ms = earlier->locks_ms;
    earlier->locks = NULL;
    earlier->count = 0;
}

/* --- Sources ------------------------------------------------------------------ */

/* Compute what happened per second since the last update of the same server. */
static void set_rates(struct top_source *s, struct top_update *u)
{
    const struct top_info *a = &s->before, *b = &u->info;
    double seconds = (double)(u->at_ms - s->before_ms) / 1000;
    u->grants_s = u->releases_s = u->expiries_s = -1;
    /* After a restart the counters begin again. */
    if (s->before_ms != 0 && seconds > 0 && b->grants >= a->grants &&
        b->releases >= a->releases && b->expiries >= a->expiries) {
        u->grants_s = (double)(b->grants - a->grants) / seconds;
        u->releases_s = (double)(b->releases - a->releases) / seconds;
        u->expiries_s = (double)(b->expiries - a->expiries) / seconds;
    }
    s->before = *b;
    s->before_ms = u->at_ms;
}

struct top_update *top_read(struct top_source *s, const struct top_want *want)
{
    struct top_update *u = calloc(1, sizeof *u);
    if (u == NULL) return NULL;
    u->local = s->server == NULL;
    bool done = u->local ? top_local_read(s, want, u) : top_server_read(s, want, u);
    if (!done) {
        top_update_free(u);
        return NULL;
    }
    u->at_ms = u->locks_ms = cli_now_ms();
    u->wall_ms = cli_wall_ms();
    memcpy(u->source, s->source, sizeof u->source);
    if (u->trouble[0] != '\0') s->before_ms = 0;
    else if (!u->local) set_rates(s, u);
    return u;
}

void top_source_close(struct top_source *s)
{
    sluice_wire_close(s->wire);
    sluice_canal_close(s->canal);
    s->wire = NULL;
    s->canal = NULL;
}
