/* engine.c - engine.h for every kind of engine. */
#include "engine/kind.h"

static const struct sl_engine_kind *kind_of(const struct sl_engine *e)
{
    return ((const struct sl_engine_head *)(const void *)e)->kind;
}

void sl_engine_close(struct sl_engine *e)
{
    if (e != NULL) kind_of(e)->close(e);
}

void sl_engine_submit(struct sl_engine *e, struct sl_engine_op *op)
{
    kind_of(e)->submit(e, op);
}

int sl_engine_fd(const struct sl_engine *e)
{
    return kind_of(e)->fd(e);
}

bool sl_engine_work(struct sl_engine *e, size_t most)
{
    return kind_of(e)->work(e, most);
}

void sl_engine_hurry(struct sl_engine *e)
{
    kind_of(e)->hurry(e);
}

void sl_engine_watch(struct sl_engine *e,
                     void (*told)(void *owner, const struct sl_reign *reign),
                     void *owner)
{
    kind_of(e)->watch(e, told, owner);
}

const char *sl_engine_trouble(const struct sl_engine *e)
{
    return kind_of(e)->trouble(e);
}

void sl_engine_stats(struct sl_engine *e, struct sl_engine_stats *out)
{
    kind_of(e)->stats(e, out);
}
