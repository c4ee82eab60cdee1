/* kind.h - what an engine has to do: engine.h, as a table of functions. */
#ifndef SL_STORAGE_KIND_H
#define SL_STORAGE_KIND_H

#include "storage/storage.h"

struct sl_storage_kind {
    void (*close)(struct sl_storage *e);
    void (*submit)(struct sl_storage *e, struct sl_storage_op *op);
    int (*fd)(const struct sl_storage *e);
    bool (*work)(struct sl_storage *e, size_t most);
    void (*hurry)(struct sl_storage *e);
    void (*stats)(struct sl_storage *e, struct sl_storage_stats *out);
    void (*watch)(struct sl_storage *e,
                  void (*told)(void *owner, const struct sl_storage_term *reign),
                  void *owner);
    const char *(*trouble)(const struct sl_storage *e);
};

/* The beginning of every engine's struct. */
struct sl_storage_head {
    const struct sl_storage_kind *kind;
};

#endif /* SL_STORAGE_KIND_H */
