/* withdrawn.h - grants that no client knows of, and that a keeper therefore must not hold.
 *
 * A node does not learn the outcome of an ACQUIRE if its client leaves, or if the route ends, before
 * the reply has arrived. A keeper may have granted the lease. The node *withdraws* the request: it
 * tells each keeper to release any such grant. An entry names the origin of the client and the
 * highest fence that the client knew. After a withdrawal the client gets another origin. A request with an
 * id is never withdrawn, so no entry matches its grant. So an entry matches at most one grant, and never one
 * that the client knows of. */
#ifndef SL_FAILOVER_WITHDRAWN_H
#define SL_FAILOVER_WITHDRAWN_H

#include "base/index.h"
#include "locks/table.h"

#define SL_WITHDRAWN_MAX 65536u /* Maximum entries. */

struct sl_withdrawal {
    struct sl_list all;
    uint64_t origin;
    sl_fence fence; /* The grant has a higher fence. */
    sl_ms until_ms; /* By then, its lease has expired. */
    uint64_t route; /* The route on which the node last sent this entry. */
    uint32_t key_bytes;
    char key[];
};

struct sl_withdrawn {
    struct sl_index by_origin;
    struct sl_list all;
};

void sl_withdrawn_init(struct sl_withdrawn *w, struct sl_hash_key key);
void sl_withdrawn_free(struct sl_withdrawn *w);
void sl_withdrawn_clear(struct sl_withdrawn *w);

/* Add an entry at the front, unless the origin has one. Copies the key. Returns false if there is
 * no memory, or if there are too many entries: then the lease is not released before it expires. */
bool sl_withdrawn_add(struct sl_withdrawn *w, uint64_t origin, struct sl_bytes key,
                      sl_fence fence, sl_ms until_ms);

/* Whether there is an entry that matches a grant of this key. */
bool sl_withdrawn_has(const struct sl_withdrawn *w, struct sl_bytes key,
                      const struct sl_grant_view *v);

/* Drop the entries whose time has passed. */
void sl_withdrawn_sweep(struct sl_withdrawn *w, sl_ms now_ms);

/* Whether a grant is one that a withdrawal with this origin and fence means. */
static inline bool sl_withdrawal_matches(uint64_t origin, sl_fence fence,
                                         const struct sl_grant_view *v)
{
    return v->leased && origin != 0 && v->origin == origin && v->fence > fence &&
           v->request.n == 0;
}

#endif /* SL_FAILOVER_WITHDRAWN_H */
