/* inspect.c - reads the holders and waiters of a key from a reply to EXPLAIN. */
#include <stdio.h>

#include "client/remote/remote.h"

static const struct sluice_reply *field(const struct sluice_reply *map,
                                        const char *name)
{
    static const struct sluice_reply nil = {.type = SLUICE_REPLY_NIL, .text = ""};
    for (size_t i = 0; i + 1 < map->count; i += 2)
        if (strcmp(map->items[i].text, name) == 0) return &map->items[i + 1];
    return &nil;
}

static int64_t number(const struct sluice_reply *map, const char *name)
{
    return field(map, name)->number;
}

static void copy_text(char *out, size_t size, const struct sluice_reply *map,
                      const char *name)
{
    snprintf(out, size, "%s", field(map, name)->text);
}

static void fill_view(const struct sluice_reply *map, bool waits, struct sluice_view *v)
{
    *v = (struct sluice_view){
        .fence = waits ? 0 : (uint64_t)number(map, "fence"),
        .priority = (int32_t)number(map, "priority"),
        .waits = waits,
        .shared = (uint32_t)number(map, "shared"),
        .asked = (uint32_t)number(map, "asked"),
        .steals = (uint32_t)number(map, "steals"),
        .broken = (uint32_t)number(map, "broken"),
        .units = (uint32_t)number(map, "units"),
        .capacity = {(uint32_t)number(map, "per"), (uint32_t)number(map, "buckets")},
        .left_ms = number(map, waits ? "left_ms" : "lease_ms"),
        .since_ms = number(map, waits ? "waited_ms" : "held_ms")};
    /* A wait without a timeout has a very long one at the server. */
    if (v->left_ms < 0 || v->left_ms > SL_ENGINE_WAIT_MS_MAX / 2)
        v->left_ms = SLUICE_FOREVER;
    copy_text(v->value, sizeof v->value, map, "value");
    copy_text(v->note, sizeof v->note, map, "note");
    copy_text(v->client, sizeof v->client, map, "name");
    copy_text(v->address, sizeof v->address, map, "address");
}

static void fill_views(const struct sluice_reply *list, bool waits,
                       struct sluice_view *out, size_t max, size_t *n)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].type == SLUICE_REPLY_MAP && *n < max)
            fill_view(&list->items[i], waits, &out[(*n)++]);
}

int64_t sl_remote_views(const struct sluice_reply *r, struct sluice_view *out,
                        size_t max)
{
    const struct sluice_reply *holders = field(r, "holders"),
                              *waiters = field(r, "waiters");
    size_t n = 0;
    if (r->type != SLUICE_REPLY_MAP || holders->type != SLUICE_REPLY_LIST ||
        waiters->type != SLUICE_REPLY_LIST)
        return SLUICE_EPROTOCOL;
    fill_views(holders, false, out, max, &n);
    fill_views(waiters, true, out, max, &n);
    return number(r, "holders_count") + number(r, "waiters_count");
}
