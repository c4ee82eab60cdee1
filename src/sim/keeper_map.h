/* keeper_map.h - a sorted map from bytes to bytes, for the model of etcd. */
#ifndef SL_SIM_KEEPER_MAP_H
#define SL_SIM_KEEPER_MAP_H

#include "base/types.h"

struct ksim_map {
    struct ksim_item {
        struct sl_bytes key, value; /* Owned. */
        uint64_t revision;          /* When it was last written. */
    } * items;
    size_t count, size;
};

void ksim_map_free(struct ksim_map *m);

/* Return the position of a key, or of the first one after it. */
size_t ksim_map_find(const struct ksim_map *m, struct sl_bytes key, bool *found);

/* Copies key and value. If value.at is NULL, removes the key. */
void ksim_map_put(struct ksim_map *m, struct sl_bytes key, struct sl_bytes value,
                  uint64_t revision);

#endif /* SL_SIM_KEEPER_MAP_H */
