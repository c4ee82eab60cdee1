/* engine.c - engine.h for every kind of engine. */
#include "storage/kind.h"

static const struct sl_storage_kind *kind_of(const struct sl_storage *e)
{
    return ((const struct sl_storage_head *)(const void *)e)->kind;
}

void sl_storage_close(struct sl_storage *e)
{
    if (e != NULL) kind_of(e)->close(e);
}

void sl_storage_submit(struct sl_storage *e, struct sl_storage_op *op)
{
    kind_of(e)->submit(e, op);
}

int sl_storage_fd(const struct sl_storage *e)
{
    return kind_of(e)->fd(e);
}

bool sl_storage_work(struct sl_storage *e, size_t most)
{
    return kind_of(e)->work(e, most);
}

void sl_storage_hurry(struct sl_storage *e)
{
    kind_of(e)->hurry(e);
}

void sl_storage_watch(struct sl_storage *e,
                      void (*told)(void *owner, const struct sl_storage_term *reign),
                      void *owner)
{
    kind_of(e)->watch(e, told, owner);
}

const char *sl_storage_trouble(const struct sl_storage *e)
{
    return kind_of(e)->trouble(e);
}

void sl_storage_stats(struct sl_storage *e, struct sl_storage_stats *out)
{
    kind_of(e)->stats(e, out);
}
