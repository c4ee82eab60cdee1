/* state_events.c - what waits until the journal is durable, but is not a request: events, and
 * extensions whose clients have left. */
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/local_internal.h"
#include "server/arbiter/state_internal.h"

static struct sl_bytes copy(char *to, struct sl_bytes from)
{
    if (from.n > 0) memcpy(to, from.at, from.n);
    return (struct sl_bytes){to, from.n};
}

/* --- Extensions whose clients have left ---------------------------------------------------- */

struct left {
    struct request entry; /* Only its place, position, outcome and change are used. */
    char bytes[];         /* Of its key and the old value. */
};

void sl_state_leave(struct request *r)
{
    struct left *l = malloc(sizeof *l + r->key.n + r->extra.n);
    if (l == NULL) return; /* The extension stays, even if the journal fails. */
    l->entry = (struct request){.s = r->s, .fence = r->fence};
    l->entry.position = r->position;
    l->entry.outcome = SL_PARKED_LEFT;
    l->entry.before_ms = r->before_ms;
    l->entry.end_ms = r->end_ms;
    l->entry.key = copy(l->bytes, r->key);
    if (r->extra.at != NULL) l->entry.extra = copy(l->bytes + r->key.n, r->extra);
    sl_list_append(&r->place, &l->entry.place); /* In place of the request. */
}

void sl_state_drop_left(struct request *r)
{
    sl_list_remove(&r->place);
    free(sl_container_of(r, struct left, entry));
}

/* --- Events ---------------------------------------------------------------------------------- */

/* On the lists of requests, so that replies and events leave in the order of the changes. */
struct parked_event {
    struct request entry; /* Only its server, place, position and outcome are used. */
    struct sl_event event;
    char bytes[]; /* Of its key and note. */
};

static struct parked_event *event_of(struct request *r)
{
    return sl_container_of(r, struct parked_event, entry);
}

static void publish(struct server *s, const struct sl_event *e)
{
    if (e->ends) sl_local_notify_gone(s, e->fence, true);
    sl_event_publish(s, e);
}

void sl_state_publish(struct server *s, const struct sl_event *e, uint64_t position)
{
    struct parked_event *p = NULL;
    if (position != 0) p = malloc(sizeof *p + e->key.n + e->note.n);
    if (position == 0) {
        publish(s, e);
        return;
    }
    if (p == NULL) { /* Out of memory: publish early, but do not report the end. */
        sl_event_publish(s, e);
        return;
    }
    p->entry = (struct request){.s = s};
    p->entry.position = position;
    p->entry.outcome = SL_PARKED_EVENT;
    p->event = *e;
    p->event.key = copy(p->bytes, e->key);
    p->event.note = copy(p->bytes + e->key.n, e->note);
    sl_list_append(&s->state->parked, &p->entry.place);
}

/* Whether an event is about what a waiter wants from a holder, not about a change. */
static bool is_about_waiter(const struct sl_event *e)
{
    return e->type == SL_EVENT_ASKED || e->type == SL_EVENT_WITHDRAWN ||
           e->type == SL_EVENT_WAITS;
}

void sl_state_deliver_event(struct server *s, struct request *r)
{
    struct parked_event *p = event_of(r);
    const struct sl_event *e = &p->event;
    sl_list_remove(&r->place);
    if (!is_about_waiter(e) || sl_table_holds(s->table, s->now, e->key, e->fence))
        publish(s, e);
    free(p);
}

bool sl_state_keeps_event(const struct request *r)
{
    if (r->outcome != SL_PARKED_EVENT) return false;
    return !is_about_waiter(
        &sl_container_of(r, const struct parked_event, entry)->event);
}

void sl_state_free_events(struct server *s)
{
    struct sl_list *lists[] = {&s->state->parked, &s->state->noting,
                               &s->state->resuming};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct sl_list *n = lists[i]->next, *next; n != lists[i]; n = next) {
            struct request *r = sl_container_of(n, struct request, place);
            next = n->next;
            if (r->outcome == SL_PARKED_LEFT) sl_state_drop_left(r);
            else if (r->outcome == SL_PARKED_EVENT) {
                sl_list_remove(n);
                free(event_of(r));
            }
        }
}
