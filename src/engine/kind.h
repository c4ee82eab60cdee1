/* kind.h - what an engine has to do: engine.h, as a table of functions. */
#ifndef SL_ENGINE_KIND_H
#define SL_ENGINE_KIND_H

#include "engine/engine.h"

struct sl_engine_kind {
    void (*close)(struct sl_engine *e);
    void (*submit)(struct sl_engine *e, struct sl_engine_op *op);
    int (*fd)(const struct sl_engine *e);
    bool (*work)(struct sl_engine *e, size_t most);
    void (*hurry)(struct sl_engine *e);
    void (*stats)(struct sl_engine *e, struct sl_engine_stats *out);
    void (*watch)(struct sl_engine *e,
                  void (*told)(void *owner, const struct sl_reign *reign), void *owner);
    const char *(*trouble)(const struct sl_engine *e);
};

/* The beginning of every engine's struct. */
struct sl_engine_head {
    const struct sl_engine_kind *kind;
};

#endif /* SL_ENGINE_KIND_H */
