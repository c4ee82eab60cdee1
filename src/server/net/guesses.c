#include "server/net/guesses.h"

#include <string.h>

#define FREE 3u     /* Number of failures without a delay. */
#define FIRST_MS 25 /* The first delay, after FREE + 1 failures. */

static struct sl_guess *set_of(struct sl_guesses *g,
                               const struct sl_guess_address *address)
{
    return g->table[sl_hash(g->key, address, sizeof *address) % SL_GUESS_SETS];
}

static bool is_same(const struct sl_guess_address *a, const struct sl_guess_address *b)
{
    return a->kind == b->kind && memcmp(a->at, b->at, sizeof a->at) == 0;
}

static struct sl_guess *find(struct sl_guesses *g,
                             const struct sl_guess_address *address)
{
    struct sl_guess *set = set_of(g, address);
    for (unsigned i = 0; i < SL_GUESS_WAYS; i++)
        if (is_same(&set[i].address, address)) return &set[i];
    return NULL;
}

static void forgive(const struct sl_guesses *g, struct sl_guess *e, sl_ms now_ms)
{
    sl_ms times = (now_ms - e->last_ms) / g->max_ms;
    if (times <= 0) return;
    e->failures = times < e->failures ? (uint8_t)(e->failures - times) : 0;
    e->last_ms = now_ms;
}

static sl_ms delay_of(const struct sl_guesses *g, const struct sl_guess *e)
{
    if (e->failures <= FREE) return 0;
    sl_ms ms = (sl_ms)FIRST_MS << (e->failures - FREE - 1);
    return ms < g->max_ms ? ms : g->max_ms;
}

sl_ms sl_guesses_delay(struct sl_guesses *g, const struct sl_guess_address *address,
                       sl_ms now_ms, struct sl_guess **out)
{
    *out = g->max_ms == 0 ? NULL : find(g, address);
    if (*out == NULL) return 0;
    forgive(g, *out, now_ms);
    return delay_of(g, *out);
}

/* Return a free entry, or the entry with the fewest failures. Returns NULL if all entries have
 * delayed commands. */
static struct sl_guess *replace(struct sl_guesses *g,
                                const struct sl_guess_address *address, sl_ms now_ms)
{
    struct sl_guess *set = set_of(g, address), *least = NULL;
    for (unsigned i = 0; i < SL_GUESS_WAYS; i++) {
        if (set[i].waiting > 0) continue;
        if (set[i].address.kind != 0) forgive(g, &set[i], now_ms);
        if (least == NULL || set[i].failures < least->failures) least = &set[i];
    }
    if (least != NULL)
        *least = (struct sl_guess){.address = *address, .last_ms = now_ms};
    return least;
}

void sl_guesses_failed(struct sl_guesses *g, const struct sl_guess_address *address,
                       sl_ms now_ms)
{
    if (g->max_ms == 0) return;
    struct sl_guess *e = find(g, address);
    if (e == NULL) e = replace(g, address, now_ms);
    if (e == NULL) return;
    forgive(g, e, now_ms);
    /* Stop counting when the delay has reached its maximum. */
    if (delay_of(g, e) < g->max_ms) e->failures++;
    e->last_ms = now_ms;
}
