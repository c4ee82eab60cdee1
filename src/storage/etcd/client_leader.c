/* client_leader.c - finds the member that leads etcd, and makes it the current member. A member that does
 * not lead passes each write on to the leader, so a write through the leader is faster. */
#include <jansson.h>
#include <string.h>

#include "storage/etcd/client_internal.h"

#define STATUS_PATH "/v3/maintenance/status"
#define STATUS_BYTES_MAX 16384u
#define FIRST_MS 300  /* From the creation of the client to the first search. */
#define AGAIN_MS 5000 /* From one search to the next: etcd may elect another leader. */

/* Whether the answer is that of the leader. */
static bool leads(const struct sl_etcd_slot *s)
{
    json_t *all = json_loadb(s->answer, s->answer_bytes, 0, NULL);
    const char *leader = json_string_value(json_object_get(all, "leader"));
    const char *member = json_string_value(
        json_object_get(json_object_get(all, "header"), "member_id"));
    bool yes = leader != NULL && member != NULL && strcmp(leader, member) == 0;
    json_decref(all);
    return yes;
}

/* A member answers without the others, so it may not know yet that it has lost them. So do not choose
 * a member that has failed. */
static void on_status(struct sl_etcd_slot *s)
{
    struct sl_etcd_client *c = s->c;
    struct sl_etcd_leader *l = &c->leader;
    sl_ms now = sl_etcd_now();
    bool found = s->fate == SL_ETCD_ANSWERED && s->code == 0 && !s->too_big && leads(s);
    if (found && c->members[s->member].passed_until_ms <= now) c->current = s->member;
    l->asked++;
    l->next_ms = now;
    if (!found && l->asked < c->member_count) return;
    l->asked = 0;
    l->next_ms = now + AGAIN_MS;
}

void sl_etcd_leader_init(struct sl_etcd_client *c)
{
    c->leader.slot.c = c;
    c->leader.next_ms = sl_etcd_now() + FIRST_MS;
}

sl_ms sl_etcd_leader_due(const struct sl_etcd_client *c)
{
    if (c->member_count < 2) return SL_NEVER;
    return c->leader.slot.state == SL_ETCD_SLOT_FREE
               ? c->leader.next_ms
               : sl_etcd_slot_due(&c->leader.slot);
}

void sl_etcd_leader_work(struct sl_etcd_client *c)
{
    struct sl_etcd_slot *s = &c->leader.slot;
    if (s->state != SL_ETCD_SLOT_FREE || sl_etcd_leader_due(c) > sl_etcd_now()) return;
    /* Begin with the current member, which is the leader most of the time. */
    if (c->leader.asked == 0) c->leader.first = c->current;
    s->member = (c->leader.first + c->leader.asked) % c->member_count;
    s->path = STATUS_PATH;
    s->body = (struct sl_bytes){"{}", 2};
    s->bytes_max = STATUS_BYTES_MAX;
    s->repeatable = s->pinned = s->aside = s->without_token = true;
    s->was_sent = s->asked_again = false;
    s->over = on_status;
    sl_etcd_slot_start(s);
}

void sl_etcd_leader_close(struct sl_etcd_client *c)
{
    sl_etcd_slot_stop(&c->leader.slot);
    sl_etcd_http_close_slot(&c->leader.slot);
}
