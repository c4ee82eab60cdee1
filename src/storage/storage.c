/* storage.c - checks the arguments of callers and calls the functions of the
 * implementation. This file also contains the helpers that the implementations
 * share. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/kind.h"

/* --- For implementations ----------------------------------------------------- */

struct sl_storage_op *sl_storage_op_after(const struct sl_list *list,
                                          const struct sl_storage_op *op)
{
    struct sl_list *next = op != NULL ? op->place.next : list->next;
    return next != list ? sl_container_of(next, struct sl_storage_op, place) : NULL;
}

void sl_storage_move_ops(struct sl_list *from, struct sl_list *to, size_t most)
{
    assert(from != to);
    while (most-- > 0 && !sl_list_empty(from)) {
        struct sl_list *first = from->next;
        sl_list_remove(first);
        sl_list_append(to, first);
    }
}

static bool name_fits(struct sl_bytes table, struct sl_bytes key)
{
    return table.n <= SL_STORAGE_NAME_BYTES_MAX &&
           key.n <= SL_STORAGE_NAME_BYTES_MAX - table.n;
}

size_t sl_storage_count_ops(const struct sl_list *list)
{
    size_t n = 0;
    for (const struct sl_storage_op *op = NULL;
         (op = sl_storage_op_after(list, op)) != NULL;)
        n++;
    return n;
}

bool sl_storage_names_fit(const struct sl_storage_op *op)
{
    switch (op->type) {
        case SL_STORAGE_COMMIT:
            for (uint32_t i = 0; i < op->write_count; i++)
                if (!name_fits(op->writes[i].table, op->writes[i].key)) return false;
            return op->request.n <= SL_STORAGE_REQUEST_BYTES_MAX;
        case SL_STORAGE_OUTCOME: return op->request.n <= SL_STORAGE_REQUEST_BYTES_MAX;
        case SL_STORAGE_READ:
        case SL_STORAGE_SCAN: return name_fits(op->table, op->key);
        case SL_STORAGE_RECORD:
            for (uint32_t i = 0; i < op->write_count; i++)
                if (op->writes[i].key.n > SL_STORAGE_JOURNAL_KEY_BYTES_MAX)
                    return false;
            return true;
        case SL_STORAGE_JOURNAL: return op->key.n <= SL_STORAGE_JOURNAL_KEY_BYTES_MAX;
        case SL_STORAGE_CLAIM:
        case SL_STORAGE_READ_TERM:
        case SL_STORAGE_RENEW:
        case SL_STORAGE_RESIGN:
        case SL_STORAGE_BAR: break;
    }
    return true;
}

void sl_storage_deliver(struct sl_storage_op *op)
{
    void *value = (void *)op->result.value.at, *rows = (void *)op->result.rows;
    op->done(op); /* The owner may free the operation in this call. */
    free(value);
    free(rows);
}

/* --- For callers ------------------------------------------------------------- */

/* Check that the caller has set all required fields, and that no bytes with a length
 * are NULL. */
static void check_op(const struct sl_storage_op *op)
{
    assert(op->done != NULL);
    assert(op->type <= SL_STORAGE_JOURNAL);
    if (op->type == SL_STORAGE_COMMIT || op->type == SL_STORAGE_RECORD) {
        assert(op->write_count == 0 || op->writes != NULL);
        for (uint32_t i = 0; i < op->write_count; i++)
            assert(op->writes[i].key.n == 0 || op->writes[i].key.at != NULL);
    }
    if (op->type == SL_STORAGE_COMMIT || op->type == SL_STORAGE_OUTCOME)
        assert(op->request.n == 0 || op->request.at != NULL);
    if (op->type == SL_STORAGE_READ || op->type == SL_STORAGE_SCAN)
        assert(op->table.n == 0 || op->table.at != NULL);
    if (op->type == SL_STORAGE_READ || op->type == SL_STORAGE_JOURNAL)
        assert(op->key.n == 0 || op->key.at != NULL);
    if (op->type == SL_STORAGE_JOURNAL) assert(op->rows_max > 0);
    if (op->type == SL_STORAGE_RECORD)
        for (uint32_t i = 0; i < op->write_count; i++) assert(op->writes[i].key.n > 0);
}

void sl_storage_close(struct sl_storage *s)
{
    if (s != NULL) s->kind->close(s);
}

void sl_storage_submit(struct sl_storage *s, struct sl_storage_op *op)
{
    check_op(op);
    s->kind->submit(s, op);
}

int sl_storage_fd(const struct sl_storage *s)
{
    return s->kind->fd(s);
}

bool sl_storage_work(struct sl_storage *s, size_t most)
{
    assert(most > 0);
    return s->kind->work(s, most);
}

void sl_storage_hurry(struct sl_storage *s)
{
    s->kind->hurry(s);
}

void sl_storage_watch(struct sl_storage *s,
                      void (*changed)(void *owner, const struct sl_storage_term *term),
                      void *owner)
{
    assert(changed != NULL);
    s->kind->watch(s, changed, owner);
}

const char *sl_storage_trouble(const struct sl_storage *s)
{
    return s->kind->trouble(s);
}

void sl_storage_stats(struct sl_storage *s, struct sl_storage_stats *out)
{
    s->kind->stats(s, out);
}

void sl_storage_record_limits(const struct sl_storage *s,
                              struct sl_storage_record_limits *out)
{
    memset(out, 0, sizeof *out);
    if (s->kind->record_limits != NULL) s->kind->record_limits(s, out);
}

void sl_storage_check(struct sl_storage *s)
{
    s->kind->check(s);
}
