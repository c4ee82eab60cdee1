#include "sim/keeper_map.h"

#include <stdlib.h>
#include <string.h>

static int compare(struct sl_bytes a, struct sl_bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n == 0 ? 0 : memcmp(a.at, b.at, n);
    return order != 0 ? order : a.n < b.n ? -1 : a.n > b.n;
}

static struct sl_bytes copy(struct sl_bytes b)
{
    char *at = malloc(b.n + 1);
    if (at == NULL) abort();
    if (b.n > 0) memcpy(at, b.at, b.n);
    return (struct sl_bytes){at, b.n};
}

static void release(struct sl_bytes b)
{
    free((char *)(uintptr_t)b.at);
}

void ksim_map_free(struct ksim_map *m)
{
    for (size_t i = 0; i < m->count; i++) {
        release(m->items[i].key);
        release(m->items[i].value);
    }
    free(m->items);
    *m = (struct ksim_map){0};
}

size_t ksim_map_find(const struct ksim_map *m, struct sl_bytes key, bool *found)
{
    size_t low = 0, high = m->count;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(m->items[middle].key, key);
        if (order == 0) *found = true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

void ksim_map_put(struct ksim_map *m, struct sl_bytes key, struct sl_bytes value,
                  uint64_t revision)
{
    bool found;
    size_t i = ksim_map_find(m, key, &found);
    if (value.at == NULL) {
        if (!found) return;
        release(m->items[i].key);
        release(m->items[i].value);
        m->count--;
        memmove(m->items + i, m->items + i + 1, (m->count - i) * sizeof *m->items);
        return;
    }
    if (!found) {
        if (m->count == m->size) {
            m->size = m->size == 0 ? 16 : 2 * m->size;
            m->items = realloc(m->items, m->size * sizeof *m->items);
            if (m->items == NULL) abort();
        }
        memmove(m->items + i + 1, m->items + i, (m->count - i) * sizeof *m->items);
        m->count++;
        m->items[i] = (struct ksim_item){.key = copy(key)};
    } else release(m->items[i].value);
    m->items[i].value = copy(value);
    m->items[i].revision = revision;
}
