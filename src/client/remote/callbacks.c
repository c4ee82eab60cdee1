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

static void run_done(struct sl_remote *s)
{
    struct sl_remote_call *c = sl_container_of(s->callbacks.next, struct sl_remote_call,
                                               node);
    bool granted = c->acquires && c->ticket.status == SLUICE_OK;
    sl_list_remove(&c->node);
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
    const struct sluice_event e = sl_client_watch_next_event(w, sl_remote_now());
    pthread_mutex_unlock(&s->mutex);
    w->on_event(w->arg, &e);
    pthread_mutex_lock(&s->mutex);
    sl_engine_reported(&s->engine, w);
    called_back(s);
    return true;
}

int sl_remote_run_callbacks(struct sl_remote *s)
{
    int count = 0;
    while (sl_remote_has_callbacks(s)) {
        if (!sl_list_empty(&s->callbacks)) run_done(s);
        else if (!run_event(s)) continue;
        count++;
    }
    return count;
}

void *sl_remote_callback_thread(void *arg)
{
    struct sl_remote *s = arg;
    pthread_mutex_lock(&s->mutex);
    while (!s->stops || sl_remote_has_callbacks(s)) {
        if (sl_remote_run_callbacks(s) == 0 && !s->stops)
            pthread_cond_wait(&s->callback_ready, &s->mutex);
    }
    bool mine = s->closed_in_callback;
    pthread_mutex_unlock(&s->mutex);
    if (mine) sl_remote_free(s);
    return NULL;
}
