/* stop.c - stops the server: rejects requests, notifies holders, sends the last output. */
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward.h"
#include "server/net/conn.h"
#include "server/observe/events.h"
#include "server/observe/log.h"
#include "server/request.h"

#define KEYS_A_STEP 64
#define STOP_MS 1000 /* How long the server tries to send the last output. */

static void end_loop(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uv_stop(s->loop);
}

void sl_server_stop(struct server *s, const char *why)
{
    if (s->stopping || sl_forward_resigns_first(s, why)) return;
    s->stopping = true;
    sl_log(SL_LOG_INFO, "stopping; notifying holders", "reason", why, NULL);
    sl_server_stop_listening(s);
    sl_transactions_hurry(s);
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        if (c->proxy == NULL)
            /* The node of a proxy sends its requests to the next keeper. */
            sl_request_refuse_all(c);
    }
    sl_server_go_on(s);
}

static void tell_holders(struct server *s, struct sl_bytes key)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while (sl_table_each(s->table, s->now, key, &cursor, &v) && !v.waits) {
        const struct session *n = sl_server_session(s, v.session_id);
        /* The grant survives the restart. */
        if (v.leased && sl_state_keeps(s)) continue;
        /* The holder's node reports the grant to the next keeper. */
        if (n != NULL && n->guest != NULL) continue;
        sl_event_publish(s, &(struct sl_event){.type = SL_EVENT_BROKEN,
                                               .key = key,
                                               .fence = v.fence,
                                               .session = v.session_id,
                                               .why = "shutdown"});
    }
}

/* Whether all output of all connections has been sent. */
static bool all_sent(const struct server *s)
{
    for (const struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        const struct conn *c = sl_container_of(n, struct conn, all);
        if (c->out.n > 0 || c->sending != NULL) return false;
    }
    return true;
}

bool sl_stop_step(struct server *s)
{
    struct sl_lock_view locks[KEYS_A_STEP];
    /* Finish running commits first, so that their clients receive the outcome. When they have
     * finished, this function is called again. */
    if (sl_transactions_is_busy(s)) return true;
    size_t n = sl_table_scan(s->table, s->now, &s->stop_cursor, locks, KEYS_A_STEP);
    for (size_t i = 0; i < n; i++) tell_holders(s, locks[i].key);
    if (s->stop_cursor != 0) return false;
    s->stopped = true;
    for (struct sl_list *i = s->dirty.next, *next; i != &s->dirty; i = next) {
        next = i->next;
        sl_conn_flush(sl_container_of(i, struct conn, dirty));
    }
    uv_timer_start(&s->stop_timer, end_loop, all_sent(s) ? 0 : STOP_MS, 0);
    return true;
}
