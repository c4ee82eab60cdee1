/* undo.h - grants and extensions of a lock table that can still be undone. Pure.
 *
 * A server answers most requests before the records of their changes are written, and sends the
 * replies of a loop iteration when all of its records are (J1, journal/journal.h). It adds these
 * changes here. When the records are written, it forgets the changes. If the write fails, it undoes
 * them, and sends none of the replies. So nobody sees a lease that has no record.
 *
 *     struct sl_undo u = {0};    empty
 */
#ifndef SL_LOCKS_UNDO_H
#define SL_LOCKS_UNDO_H

#include "locks/table.h"

struct sl_undo {
    char *at;
    size_t n, size;
    size_t last; /* The offset of the last change. */
};

struct sl_undo_change {
    struct sl_bytes key;
    sl_fence fence;
    sl_ms before_ms;       /* The old expiry of an extended lease; 0: a new grant. */
    struct sl_bytes value; /* Its old value; at == NULL: it has not changed. */
};

/* Add a change that the table has just made. Copies it. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_undo_add(struct sl_undo *u, const struct sl_undo_change *c);

/* Forget all changes. */
void sl_undo_forget(struct sl_undo *u);

/* Undo all changes, the last one first, and forget them. Grants that have ended meanwhile stay
 * ended, and broken ones stay broken. The caller has undone all later extensions of the same
 * grants that are not in here. */
void sl_undo_all(struct sl_undo *u, struct sl_table *t, struct sl_now now);

void sl_undo_free(struct sl_undo *u);

#endif /* SL_LOCKS_UNDO_H */
