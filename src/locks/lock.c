/* lock.c - one lock: its holders, its wait queues, and which waiter is next. */
#include "locks/lock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

/* --- The array of holders ---------------------------------------------------------- */

/* Reserve twice as many slots as holders. Then a sweep that removes all holes is
 * followed by at least as many grants as there are holders, so the cost of a grant
 * does not depend on the number of holders. */
int sl_holders_reserve(struct sl_holders *h, uint32_t holders)
{
    if (holders > UINT32_MAX / 4) return SLUICE_ENOMEM;
    uint32_t want = 2 * holders;
    if (want <= h->size) return SLUICE_OK;
    uint32_t size = h->size < 2 ? 4 : h->size + h->size / 2;
    if (size < want) size = want;
    struct sl_holder_slot *items = realloc(h->items, size * sizeof *items);
    if (items == NULL) return SLUICE_ENOMEM;
    h->items = items;
    h->size = size;
    return SLUICE_OK;
}

static void sweep(struct sl_holders *h)
{
    uint32_t kept = 0;
    for (uint32_t i = h->first; i < h->count; i++)
        if (h->items[i].entry != NULL) h->items[kept++] = h->items[i];
    h->count = kept;
    h->first = 0;
}

void sl_holders_append(struct sl_holders *h, struct sl_entry *e)
{
    if (h->count == h->size) sweep(h);
    assert(h->count < h->size);
    assert(h->count == 0 || h->items[h->count - 1].fence < e->fence);
    h->items[h->count++] = (struct sl_holder_slot){.fence = e->fence, .entry = e};
    h->live++;
}

/* Returns the first slot whose fence is not below this one, or the end. */
static uint32_t place_of(const struct sl_holders *h, sl_fence fence)
{
    uint32_t from = h->first, to = h->count;
    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (h->items[mid].fence < fence) from = mid + 1;
        else to = mid;
    }
    return from;
}

static struct sl_holder_slot *find(const struct sl_holders *h, sl_fence fence)
{
    uint32_t at = place_of(h, fence);
    return at < h->count && h->items[at].fence == fence ? &h->items[at] : NULL;
}

void sl_holders_insert(struct sl_holders *h, struct sl_entry *e)
{
    if (h->count == h->size) sweep(h);
    assert(h->count < h->size);
    uint32_t at = place_of(h, e->fence);
    bool was_here = at < h->count && h->items[at].fence == e->fence;
    if (was_here) assert(h->items[at].entry == NULL);
    else if (at == h->first && at > 0) at = --h->first;
    else {
        memmove(&h->items[at + 1], &h->items[at], (h->count - at) * sizeof *h->items);
        h->count++;
    }
    h->items[at] = (struct sl_holder_slot){.fence = e->fence, .entry = e};
    h->live++;
}

struct sl_entry *sl_holders_find(const struct sl_holders *h, sl_fence fence)
{
    const struct sl_holder_slot *item = find(h, fence);
    return item == NULL ? NULL : item->entry;
}

void sl_holders_remove(struct sl_holders *h, sl_fence fence)
{
    struct sl_holder_slot *item = find(h, fence);
    assert(item != NULL && item->entry != NULL);
    item->entry = NULL;
    h->live--;
    while (h->count > h->first && h->items[h->count - 1].entry == NULL) h->count--;
    while (h->first < h->count && h->items[h->first].entry == NULL) h->first++;
    if (h->live == 0) h->first = h->count = 0;
    if (h->count - h->first > 2 * h->live + 16) sweep(h);
}

/* --- Holders by session and by rank -------------------------------------------- */

static struct sl_entry *of_session(const struct sl_tree_node *n)
{
    return sl_container_of(n, struct sl_entry, by_session);
}

static struct sl_entry *of_rank(const struct sl_tree_node *n)
{
    return n == NULL ? NULL : sl_container_of(n, struct sl_entry, by_rank);
}

static bool session_before(const struct sl_tree_node *x, const struct sl_tree_node *y)
{
    const struct sl_entry *a = of_session(x), *b = of_session(y);
    if (a->session_id != b->session_id) return a->session_id < b->session_id;
    return a->fence < b->fence;
}

static bool rank_before(const struct sl_tree_node *x, const struct sl_tree_node *y)
{
    const struct sl_entry *a = of_rank(x), *b = of_rank(y);
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->fence > b->fence;
}

static uint64_t session_number(const struct sl_tree_node *n)
{
    return of_session(n)->fence;
}

static uint64_t rank_number(const struct sl_tree_node *n)
{
    return of_rank(n)->fence;
}

static const struct sl_tree_kind by_session = {session_before, session_number};
static const struct sl_tree_kind by_rank = {rank_before, rank_number};

struct sl_entry *sl_roster_newest(const struct sl_roster *r, uint64_t session_id)
{
    struct sl_entry *found = NULL;
    for (struct sl_tree_node *n = r->by_session; n != NULL;) {
        struct sl_entry *e = of_session(n);
        if (e->session_id == session_id) found = e;
        n = e->session_id <= session_id ? n->right : n->left;
    }
    return found;
}

bool sl_roster_is_only_of(const struct sl_roster *r, uint64_t session_id)
{
    if (r->by_session == NULL || r->leased > 0) return false;
    return of_session(sl_tree_first(r->by_session))->session_id == session_id &&
           of_session(sl_tree_last(r->by_session))->session_id == session_id;
}

struct sl_entry *sl_roster_first_rank(const struct sl_roster *r)
{
    return of_rank(sl_tree_first(r->by_rank));
}

struct sl_entry *sl_roster_next_rank(const struct sl_roster *r,
                                     const struct sl_entry *e)
{
    return of_rank(sl_tree_after(r->by_rank, &e->by_rank, &by_rank));
}

/* --- The roster -------------------------------------------------- */

static void timer_moved(void *owner, uint32_t place)
{
    ((struct sl_entry *)owner)->roster_timer = place;
}

struct sl_roster *sl_roster_new(struct sl_lock *l)
{
    struct sl_roster *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->lock = l;
    bool sits = l->fence != 0 && (l->flags & SL_INLINE_EXPIRED) == 0;
    r->held = sits ? 1 : 0;
    sl_list_init(&r->queues);
    sl_list_init(&r->watching[false]);
    sl_list_init(&r->watching[true]);
    sl_list_init(&r->expired);
    for (int i = 0; i < SL_VICTIM_STATES; i++) sl_list_init(&r->victims[i]);
    sl_heap_init(&r->ends, timer_moved);
    sl_list_init(&r->recheck);
    sl_list_init(&r->awaited);
    return r;
}

void sl_roster_free(struct sl_roster *r)
{
    assert(!sl_roster_in_use(r));
    sl_list_remove(&r->recheck);
    sl_list_remove(&r->awaited);
    free(r->holders.items);
    sl_heap_free(&r->ends);
    free(r);
}

int sl_roster_reserve_end(struct sl_roster *r)
{
    return sl_heap_reserve(&r->ends, r->waiters + 1);
}

void sl_roster_set_victim(struct sl_roster *r, struct sl_entry *e, enum sl_victim v)
{
    sl_list_remove(&e->asked);
    e->victim = (uint8_t)v;
    if (v != SL_VICTIM_NONE) sl_list_append(&r->victims[v], &e->asked);
}

void sl_roster_add_holder(struct sl_roster *r, struct sl_entry *e, uint64_t seed)
{
    assert(e->state == SL_HOLDING && e->fence != 0 && !e->expired);
    r->counted++;
    r->holders_changed = true;
    r->held += e->units;
    if (e->shared) r->shared++;
    if (e->lease_ms > 0) r->leased++;
    sl_tree_put(&r->by_session, &e->by_session, &by_session, seed);
    sl_tree_put(&r->by_rank, &e->by_rank, &by_rank, seed);
}

void sl_roster_expire_holder(struct sl_roster *r, struct sl_entry *e, uint64_t seed)
{
    assert(!e->expired && r->counted > 0 && r->held >= e->units);
    r->counted--;
    r->held -= e->units;
    if (e->shared) r->shared--;
    if (e->lease_ms > 0) r->leased--;
    sl_tree_remove(&r->by_session, &e->by_session, &by_session, seed);
    sl_tree_remove(&r->by_rank, &e->by_rank, &by_rank, seed);
    if (e->roster_timer != SL_HEAP_NONE) sl_heap_remove(&r->ends, e->roster_timer);
    /* If a victim with one unit leaves, the rest of the plan is still the shortest. */
    if (e->plan != r->plan || e->units > 1 || r->stolen > 0) r->holders_changed = true;
    if (e->stolen) r->stolen--;
    if (e->reclaimed) r->reclaimed--;
    if (e->victim != SL_VICTIM_ASKED) e->victim_ms = -1;
    sl_roster_set_victim(r, e, SL_VICTIM_NONE);
    sl_holders_remove(&r->holders, e->fence);
    e->expired = true;
    sl_list_append(&r->expired, &e->in_list);
}

void sl_roster_rebind(struct sl_roster *r, struct sl_entry *e, uint64_t session_id,
                      uint64_t seed)
{
    sl_tree_remove(&r->by_session, &e->by_session, &by_session, seed);
    e->session_id = session_id;
    sl_tree_put(&r->by_session, &e->by_session, &by_session, seed);
    r->holders_changed = true;
}

static struct sl_wait_queue *queue_of(const struct sl_list *node)
{
    return sl_container_of(node, struct sl_wait_queue, in_roster);
}

static struct sl_entry *head_of(const struct sl_wait_queue *queue)
{
    return sl_container_of(queue->entries.next, struct sl_entry, in_list);
}

struct sl_wait_queue *sl_roster_queue(struct sl_roster *r, int32_t priority,
                                      bool shared, uint64_t capacity)
{
    struct sl_list *at = r->queues.next;
    for (; at != &r->queues && queue_of(at)->priority >= priority; at = at->next) {
        struct sl_wait_queue *l = queue_of(at);
        if (l->priority == priority && l->shared == shared && l->capacity == capacity)
            return l;
    }
    struct sl_wait_queue *l = malloc(sizeof *l);
    if (l == NULL) return NULL;
    *l = (struct sl_wait_queue){
        .capacity = capacity, .priority = priority, .shared = shared};
    sl_list_init(&l->entries);
    sl_list_append(at, &l->in_roster); /* Before queues of lower priority. */
    return l;
}

static bool came_before(const struct sl_entry *a, const struct sl_entry *b)
{
    if (a->wait.since_ms != b->wait.since_ms)
        return a->wait.since_ms < b->wait.since_ms;
    return a->wait.number < b->wait.number;
}

/* After a waiter has become the head of a queue: move the queue before the queues of the same
 * priority whose heads arrived later. */
static void move_forward(struct sl_roster *r, struct sl_wait_queue *queue)
{
    struct sl_list *at = queue->in_roster.prev;
    while (at != &r->queues && queue_of(at)->priority == queue->priority &&
           came_before(head_of(queue), head_of(queue_of(at))))
        at = at->prev;
    sl_list_remove(&queue->in_roster);
    sl_list_append(at->next, &queue->in_roster); /* Inserts after `at`. */
}

static struct sl_entry *waiter_of(const struct sl_list *node)
{
    return sl_container_of(node, struct sl_entry, in_list);
}

/* Returns the list node after which a waiter belongs. Most waiters are the last to arrive. When the
 * keeper of a cluster has changed, each node sends its waiters in the order of their arrival, so
 * begin where the last waiter was inserted. */
static struct sl_list *position_of(const struct sl_wait_queue *queue,
                                   const struct sl_entry *e)
{
    const struct sl_list *all = &queue->entries;
    struct sl_list *at = all->prev;
    if (at == all || came_before(waiter_of(at), e)) return at;
    if (queue->last_inserted != NULL) at = queue->last_inserted;
    while (at != all && came_before(e, waiter_of(at))) at = at->prev;
    while (at->next != all && came_before(waiter_of(at->next), e)) at = at->next;
    return at;
}

bool sl_roster_enqueue(struct sl_roster *r, struct sl_wait_queue *queue,
                       struct sl_entry *e)
{
    struct sl_list *at = position_of(queue, e);
    bool overtakes = at->next != &queue->entries;
    if (overtakes) queue->last_inserted = &e->in_list;
    e->queue = queue;
    sl_list_append(at->next, &e->in_list); /* Inserts after `at`. */
    r->waiters++;
    if (head_of(queue) == e) {
        const struct sl_list *before = queue->in_roster.prev;
        move_forward(r, queue);
        overtakes |= queue->in_roster.prev != before;
    }
    if (overtakes) r->plan_is_old = true;
    return overtakes;
}

/* After the head of a queue has left: move the queue behind the queues of the same
 * priority whose heads arrived earlier. */
static void move_back(struct sl_roster *r, struct sl_wait_queue *queue)
{
    struct sl_list *at = queue->in_roster.next;
    while (at != &r->queues && queue_of(at)->priority == queue->priority &&
           came_before(head_of(queue_of(at)), head_of(queue)))
        at = at->next;
    sl_list_remove(&queue->in_roster);
    sl_list_append(at, &queue->in_roster); /* Inserts before `at`. */
}

void sl_roster_dequeue(struct sl_roster *r, struct sl_entry *e)
{
    struct sl_wait_queue *queue = e->queue;
    assert(e->state == SL_WAITING && queue != NULL && r->waiters > 0);
    bool first = head_of(queue) == e;
    if (queue->last_inserted == &e->in_list) queue->last_inserted = NULL;
    sl_list_remove(&e->in_list);
    e->queue = NULL;
    r->waiters--;
    r->plan_is_old = true;
    if (r->thief == e) r->thief = NULL;
    if (r->informed_thief == e) r->informed_thief = NULL;
    if (r->planned_for == e) {
        r->planned_for = NULL;
        r->holders_changed = true;
    }
    if (sl_list_empty(&queue->entries)) {
        sl_list_remove(&queue->in_roster);
        free(queue);
    } else if (first) move_back(r, queue);
}

/* --- Which request fits, and which waiter is next ---------------------------- */

uint64_t sl_lock_held(const struct sl_lock *l)
{
    if (l->roster != NULL) return l->roster->held;
    return l->fence != 0 && (l->flags & SL_INLINE_EXPIRED) == 0;
}

bool sl_lock_fits(const struct sl_lock *l, bool shared, uint64_t capacity,
                  uint32_t units)
{
    uint64_t held = sl_lock_held(l);
    if (shared) return held == 0;
    if (l->roster != NULL && l->roster->shared > 0) return false;
    return held <= capacity && units <= capacity - held;
}

/* Rule 2 in README.md: a waiter blocks later requests that have a lower priority. It
 * also blocks later requests of the same priority, unless they declare a higher
 * capacity. A shared request declares no capacity: it overtakes no waiter, and no
 * later request of its priority overtakes it. */
static bool queue_holds_back(const struct sl_wait_queue *queue, bool shared,
                             uint64_t capacity, int32_t priority)
{
    if (queue->priority != priority) return queue->priority > priority;
    return queue->shared || shared || capacity <= queue->capacity;
}

/* Rule 7 in README.md: while a thief has reserved the lock, freed capacity goes to
 * the thief. No other request of the same or a lower priority gets it, whatever
 * capacity that request declares. */
static bool is_reserved(const struct sl_roster *r, int32_t priority)
{
    return r->thief != NULL && priority <= r->thief->priority;
}

bool sl_lock_holds_back(const struct sl_lock *l, bool shared, uint64_t capacity,
                        int32_t priority)
{
    if (l->roster == NULL) return false;
    if (is_reserved(l->roster, priority)) return true;
    for (const struct sl_list *n = l->roster->queues.next; n != &l->roster->queues;
         n = n->next) {
        const struct sl_wait_queue *queue = queue_of(n);
        if (queue->priority < priority) return false;
        if (queue_holds_back(queue, shared, capacity, priority)) return true;
    }
    return false;
}

/* Returns the first waiter of the highest priority that no earlier waiter blocks and
 * for which wanted() is true. All waiters that arrived before it declare less
 * capacity. */
static struct sl_entry *first_of(const struct sl_lock *l,
                                 bool (*wanted)(const struct sl_lock *l,
                                                const struct sl_entry *e))
{
    const struct sl_roster *r = l->roster;
    if (r == NULL || sl_list_empty(&r->queues)) return NULL;
    const struct sl_wait_queue *first = queue_of(r->queues.next);
    uint64_t capacity = 0; /* The highest capacity of earlier waiters. */
    for (const struct sl_list *n = r->queues.next; n != &r->queues; n = n->next) {
        const struct sl_wait_queue *queue = queue_of(n);
        if (queue->priority != first->priority) return NULL;
        struct sl_entry *e = head_of(queue);
        bool held_back = queue != first &&
                         (queue->shared || queue->capacity <= capacity);
        if (!held_back && wanted(l, e)) return e;
        if (queue->shared) return NULL; /* No waiter overtakes a shared request. */
        if (queue->capacity > capacity) capacity = queue->capacity;
    }
    return NULL;
}

static bool fits(const struct sl_lock *l, const struct sl_entry *e)
{
    if (e != l->roster->thief && is_reserved(l->roster, e->priority)) return false;
    return sl_lock_fits(l, e->shared, e->queue->capacity, e->units);
}

static bool steals(const struct sl_lock *l, const struct sl_entry *e)
{
    (void)l;
    return e->steals;
}

struct sl_entry *sl_lock_next(const struct sl_lock *l)
{
    return first_of(l, fits);
}

struct sl_entry *sl_lock_thief(const struct sl_lock *l)
{
    return first_of(l, steals);
}
