/* callbacks.c - calls the program back: results of calls, and events of grants. */
#include <stdlib.h>

#include "client/remote/remote.h"

bool sl_remote_has_callbacks(const struct sl_remote *s)
{
    return !sl_list_empty(&s->callbacks) ||
           (!s->closing && !sl_list_empty(&s->engine.events));
}

static void called_back(struct sl_remote *s)
{
    s->callbacks_done++;
    pthread_cond_broadcast(&s->callback_done);
}

static void run_done(struct sl_remote *s, struct sl_remote_call *c)
{
    bool granted = c->acquires && c->ticket.status == SLUICE_OK;
    sl_list_remove(&c->node);
    sl_ticket_reported(&c->ticket);
    pthread_mutex_unlock(&s->mutex);
    if (c->on_done != NULL)
        c->on_done(c->arg, c->ticket.status, granted ? &c->ticket.grant : NULL);
    free(c);
    pthread_mutex_lock(&s->mutex);
    called_back(s);
}

static bool run_event(struct sl_remote *s)
{
    struct sl_client_watch *w = sl_engine_next_event(&s->engine);
    if (w == NULL) return false;
    if (w->ticket != NULL)
        run_done(s, sl_container_of(w->ticket, struct sl_remote_call, ticket));
    /* That callback may have released the grant, or closed the service. */
    if (!s->closing && sl_client_watch_has_event(w)) {
        const struct sluice_event e = sl_client_watch_next_event(w, sl_remote_now());
        pthread_mutex_unlock(&s->mutex);
        w->on_event(w->arg, &e);
        pthread_mutex_lock(&s->mutex);
    }
    sl_engine_reported(&s->engine, w);
    called_back(s);
    return true;
}

/* A holder must learn of a loss in time, so events do not wait for results. */
static bool run_one(struct sl_remote *s)
{
    if (!s->closing && run_event(s)) return true;
    if (sl_list_empty(&s->callbacks)) return false;
    run_done(s, sl_container_of(s->callbacks.next, struct sl_remote_call, node));
    return true;
}

int sl_remote_run_callbacks(struct sl_remote *s, int most)
{
    int count = 0;
    while (count < most && run_one(s)) count++;
    return count;
}

void *sl_remote_callback_thread(void *arg)
{
    struct sl_remote *s = arg;
    pthread_mutex_lock(&s->mutex);
    while (!s->stops || sl_remote_has_callbacks(s)) {
        if (!run_one(s) && !s->stops) pthread_cond_wait(&s->callback_ready, &s->mutex);
    }
    bool mine = s->closed_in_callback;
    pthread_mutex_unlock(&s->mutex);
    if (mine) sl_remote_free(s);
    return NULL;
}
