/* kind.h - the functions that an implementation of storage.h provides, and helpers that
 * all implementations share. */
#ifndef SL_STORAGE_KIND_H
#define SL_STORAGE_KIND_H

#include "storage/storage.h"

/* The functions of an implementation. storage.h describes them. */
struct sl_storage_kind {
    void (*close)(struct sl_storage *s);
    void (*submit)(struct sl_storage *s, struct sl_storage_op *op);
    int (*fd)(const struct sl_storage *s);
    bool (*work)(struct sl_storage *s, size_t most);
    void (*hurry)(struct sl_storage *s);
    void (*stats)(struct sl_storage *s, struct sl_storage_stats *out);
    /* NULL: the storage has no journal. */
    void (*record_limits)(const struct sl_storage *s,
                          struct sl_storage_record_limits *out);
    void (*watch)(struct sl_storage *s,
                  void (*changed)(void *owner, const struct sl_storage_term *term),
                  void *owner);
    const char *(*trouble)(const struct sl_storage *s);
    void (*check)(struct sl_storage *s);
};

/* The base of every implementation, which embeds it as the first field of its own
 * struct. */
struct sl_storage {
    const struct sl_storage_kind *kind;
};

/* Return the operation after `op` in a list, or the first one if `op` is NULL. Returns
 * NULL at the end of the list. */
struct sl_storage_op *sl_storage_op_after(const struct sl_list *list,
                                          const struct sl_storage_op *op);

/* Move at most `most` operations from the head of one list to the end of another. */
void sl_storage_move_ops(struct sl_list *from, struct sl_list *to, size_t most);

/* Return whether all names of the operation have a valid length. If not, the caller
 * rejects the operation with ETOOBIG. */
bool sl_storage_names_fit(const struct sl_storage_op *op);

/* Return the number of operations in a list. */
size_t sl_storage_count_ops(const struct sl_list *list);

/* Call op->done(), then free the bytes of the result, which the implementation has
 * allocated. */
void sl_storage_deliver(struct sl_storage_op *op);

#endif /* SL_STORAGE_KIND_H */
