/* state_changes.c - what must be durable before a change of the table is acknowledged: in the journal of
 * a single server, or in the journal of the keeper. */
#include "server/arbiter/state_internal.h"
#include "server/recorder.h"

/* Return the rules of the journal; NULL: there is none, or this node is not the keeper. */
static struct sl_journal *rules(const struct server *s)
{
    const struct sl_state *st = s->state;
    if (st->journal != NULL) return sl_recorder_journal(s->recorder);
    return st->keeper != NULL ? st->keeper->rules : NULL;
}

bool sl_state_journals(const struct server *s)
{
    return s->state->journal != NULL;
}

void sl_state_change(struct server *s)
{
    struct sl_state *st = s->state;
    st->need = 0;
    if (st->keeper != NULL) sl_keeper_journal_change(st->keeper, s->now.ms);
}

uint64_t sl_state_need(const struct server *s)
{
    const struct sl_state *st = s->state;
    return st->keeper != NULL ? st->keeper->need : st->need;
}

uint64_t sl_state_need_all(struct server *s, struct sl_bytes key)
{
    struct sl_journal *j = rules(s);
    if (j == NULL) return 0;
    if (s->state->journal != NULL) sl_recorder_flush(s);
    if (sl_state_has_failed(s) || sl_journal_failed(j)) return SL_STATE_FAILED;
    uint64_t position = sl_journal_last(j);
    if (position <= sl_journal_durable(j)) return 0;
    if (key.n > 0) return sl_journal_await_key(j, key, position);
    s->state->all_position = position;
    sl_journal_await(j, position);
    return position;
}

uint64_t sl_state_pending(const struct server *s, struct sl_bytes key)
{
    const struct sl_journal *j = rules(s);
    if (j == NULL) return 0;
    if (key.n == 0) return sl_journal_pending_any(j);
    if (sl_journal_failed(j)) return 0;
    uint64_t position = sl_journal_pending(j, key), all = s->state->all_position;
    return all > sl_journal_durable(j) && all > position ? all : position;
}

bool sl_state_has_failed(const struct server *s)
{
    return s->state->is_lost;
}
