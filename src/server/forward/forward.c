/* relay.c - a node's side: commands on their way to the keeper, and what comes back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/cluster.h"
#include "server/arbiter/state.h"
#include "server/arbiter/tx.h"
#include "server/forward/forward_internal.h"
#include "server/observe/log.h"

#define AGAIN_MS 20
#define SWEPT_A_SECOND 4096u

/* --- Frames --------------------------------------------------------------------------- */

struct sl_resp_writer *sl_frame(struct server *s, sl_node_id to, const char *name,
                                size_t words)
{
    struct sl_resp_writer *w = sl_links_frame(s, to);
    if (w == NULL) return NULL;
    sl_resp_array(w, words + 1);
    sl_resp_text(w, name);
    return w;
}

/* --- Whose it is ------------------------------------------------------------------------ */

bool sl_by_majority(const struct server *s, struct sl_bytes key)
{
    if (s->cluster == NULL) return false;
    if (s->relay == NULL) return true;
    for (size_t i = 0; i < s->relay->majority_count; i++)
        if (sl_glob_matches(s->relay->majority[i], key)) return true;
    return false;
}

int sl_forward_read_majority_keys(struct server *s)
{
    const char *text = s->settings->majority_keys;
    struct sl_forward *r = s->relay;
    size_t max = 1;
    for (const char *at = text; *at != '\0'; at++) max += *at == ',';
    r->majority = calloc(max, sizeof *r->majority);
    if (r->majority == NULL) return SLUICE_ENOMEM;
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, ",");
        struct sl_glob *g = sl_glob_new((struct sl_bytes){at, n});
        if (g == NULL) return SLUICE_ENOMEM;
        r->majority[r->majority_count++] = g;
        at += at[n] == ',' ? n + 1 : n;
    }
    return SLUICE_OK;
}

/* A command about a key that a majority decides about, or about such keys. */
static bool is_majoritys(const struct call *call, const struct command *command)
{
    bool of_key = command->key != 0 && call->n > command->key;
    if (sl_word_is(call->at[0], "EXPLAIN") && call->n > 2) of_key = false; /* TX. */
    if (sl_word_is(call->at[0], "LOCKS"))
        return call->n > 1 && sl_word_is(call->at[1], "MAJORITY");
    return of_key && sl_by_majority(call->s, call->at[command->key]);
}

static enum sl_forward_kind kind_of(const struct call *call)
{
    struct sl_bytes name = call->at[0];
    if (sl_word_is(name, "ACQUIRE")) return SL_ACQUIRES;
    if (sl_word_is(name, "RELEASE")) return SL_RELEASES;
    if (name.n < 3 || !sl_word_is((struct sl_bytes){name.at, 3}, "TX."))
        return SL_ASKS_AGAIN;
    if (sl_word_is(name, "TX.OUTCOME")) return SL_ASKS_AGAIN;
    if (sl_word_is(name, "TX.BEGIN")) return SL_BEGINS;
    if (sl_word_is(name, "TX.COMMIT")) return SL_COMMITS;
    return sl_word_is(name, "TX.ABORT") ? SL_ABORTS : SL_IN_IT;
}

/* By its options it may wait for long. */
static bool may_wait(const struct call *call, enum sl_forward_kind kind)
{
    if (sl_word_is(call->at[0], "AWAIT")) return true;
#ifdef MUT_RELAYOPTION
    for (size_t i = 2; kind == SL_ACQUIRES && i < call->n; i++)
        if (sl_word_is(call->at[i], "WAIT")) return true;
#endif
    return kind == SL_ACQUIRES && sl_acquire_wait_ms(call) > 0;
}

/* --- A command and its place ------------------------------------------------------------- */

struct sl_forwarded *sl_forwarded_new(struct conn *c, const struct sl_bytes *at,
                                      size_t n)
{
    struct sl_resp_writer w;
    sl_resp_writer_init(&w, SIZE_MAX / 2);
    sl_resp_array(&w, n);
    for (size_t i = 0; i < n; i++) sl_resp_bulk(&w, at[i]);
    struct sl_forwarded *q = w.spilt ? NULL : malloc(sizeof *q + w.n);
    if (q != NULL) {
        *q = (struct sl_forwarded){.c = c, .since_ms = c->server->now.ms, .n = w.n};
        memcpy(q->bytes, w.buffer, w.n);
        sl_list_init(&q->place);
        c->server->buffer_bytes += q->n;
    }
    sl_resp_writer_free(&w);
    return q;
}

static void free_relayed(struct server *s, struct sl_forwarded *q)
{
    s->buffer_bytes -= q->n;
    free(q);
}

static void unlist(struct sl_forward *r, struct sl_forwarded *q)
{
    if (sl_list_empty(&q->place)) return;
    sl_list_remove(&q->place);
    if (q->sent) r->sent_count--;
    else r->queued_count--;
    q->sent = false;
}

static void enqueue(struct sl_forward *r, struct sl_forwarded *q)
{
    unlist(r, q);
    sl_list_append(&r->queued, &q->place);
    r->queued_count++;
}

/* In the order in which they came. */
static void enqueue_by_age(struct sl_forward *r, struct sl_forwarded *q)
{
    struct sl_list *at = r->queued.prev;
    unlist(r, q);
    while (at != &r->queued &&
           sl_container_of(at, struct sl_forwarded, place)->since_ms > q->since_ms)
        at = at->prev;
    sl_list_append(at->next, &q->place);
    r->queued_count++;
}

void sl_forward_forget(struct conn *c)
{
    if (c->relayed == NULL) return;
    unlist(c->server->relay, c->relayed);
    free_relayed(c->server, c->relayed);
    c->relayed = NULL;
}

/* It waited, and is answered: with what stands in its output. */
static void answered(struct conn *c)
{
    sl_forward_forget(c);
    if (c->blocked == SL_IN_RELAY) sl_conn_unblock(c);
    if (c->ended) sl_conn_work(c);
}

static void answer_problem(struct conn *c, const char *word, const char *text)
{
    sl_resp_problem(sl_conn_out(c), word, text);
    answered(c);
}

/* --- Out ----------------------------------------------------------------------------------- */

static bool has_room(struct server *s)
{
    return sl_links_unsent(s, s->relay->keeper) < SL_FORWARD_HIGH;
}

/* A release that is on its way counts as done: it is not reclaimed. */
static void note_release(struct sl_forwarded *q)
{
    struct server *s = q->c->server;
    struct sl_record *r = q->c->releases == 0
                              ? NULL
                              : sl_ledger_find(&s->relay->ledger, q->c->releases);
    if (r == NULL) return;
    q->had = true;
#ifndef MUT_RELAYRELEASE
    sl_ledger_drop(&s->relay->ledger, r);
#endif
}

static void send_one(struct server *s, struct sl_forwarded *q)
{
    struct sl_forward *r = s->relay;
    unlist(r, q);
    if (q->kind == SL_RELEASES) note_release(q);
    for (size_t at = 0; at < q->n; at += SL_FORWARD_PIECE) {
        size_t left = q->n - at, n = left < SL_FORWARD_PIECE ? left : SL_FORWARD_PIECE;
        struct sl_resp_writer *w = sl_frame(s, r->keeper, "R.DO", 5);
        if (w == NULL) break; /* The way is about to end. */
        sl_frame_number(w, sl_conn_id(q->c));
        sl_frame_number(w, (uint64_t)(s->now.ms - q->since_ms));
        sl_frame_number(w, q->c->out.resp3 ? 1 : 0);
        sl_frame_number(w, at + n == q->n ? 1 : 0);
        sl_resp_bulk(w, (struct sl_bytes){q->bytes + at, n});
    }
    q->c->far_way = r->way;
    q->sent_ms = s->now.ms;
    q->sent = true;
    sl_list_append(&r->sent, &q->place);
    r->sent_count++;
    r->counts.forwarded++;
}

static void send_queued(struct server *s)
{
    struct sl_forward *r = s->relay;
    while (r->open && !sl_list_empty(&r->queued) && has_room(s))
        send_one(s, sl_container_of(r->queued.next, struct sl_forwarded, place));
}

/* The keeper knows this connection now, and is to be told of its end. */
static void note_way(struct server *s, uint64_t session)
{
    const struct session *n = session == 0 ? NULL : sl_server_session(s, session);
    if (n != NULL && n->conn != NULL) n->conn->far_way = s->relay->way;
}

static void drop_unwanted(struct server *s, struct sl_record *x)
{
    struct sl_resp_writer *w = sl_frame(s, s->relay->keeper, "R.DROP", 3);
    if (w != NULL) {
        sl_frame_number(w, x->session);
        sl_resp_bulk(w, x->key);
        sl_frame_number(w, x->fence);
    }
    sl_ledger_drop(&s->relay->ledger, x);
}

static void write_reclaim(struct server *s, const struct sl_record *x)
{
    struct sl_resp_writer *w = sl_frame(s, s->relay->keeper, "R.RECLAIM",
                                        1 + SL_RECORD_WORDS);
    if (w == NULL) return; /* The way is about to end. */
    const struct sl_grant_view v = sl_record_view(x, s->now.ms);
    sl_frame_number(w, x->session);
    sl_record_write(w, x->key, &v);
}

/* What has been handed over stands behind what has not. */
static void hand_over_one(struct server *s, struct sl_record *x)
{
    struct sl_forward *r = s->relay;
    x->told = r->way;
    note_way(s, x->session);
    sl_list_remove(&x->all);
    sl_list_append(&r->ledger.all, &x->all);
    if (x->unwanted) drop_unwanted(s, x);
    else if (x->end_ms > s->now.ms) write_reclaim(s, x);
}

static struct sl_record *first_record(const struct sl_ledger *l)
{
    return sl_list_empty(&l->all) ? NULL
                                  : sl_container_of(l->all.next, struct sl_record, all);
}

bool sl_forward_hand_over(struct server *s)
{
    struct sl_forward *r = s->relay;
    while (r->handing && has_room(s)) {
        struct sl_record *x = first_record(&r->ledger);
        if (x == NULL || x->told == r->way) {
            sl_frame(s, r->keeper, "R.READY", 0);
            r->handing = false;
            r->open = true;
            break;
        }
        if (s->effects_left == 0) return false;
        s->effects_left--;
        hand_over_one(s, x);
    }
    send_queued(s);
    return true;
}

static void tell_listening(struct server *s)
{
    struct sl_forward *r = s->relay;
    bool listens = !sl_pubsub_silent(&s->pubsub);
    if (!r->open || listens == r->listens) return;
    struct sl_resp_writer *w = sl_frame(s, r->keeper, "R.LISTEN", 1);
    if (w == NULL) return;
    sl_frame_number(w, listens ? 1 : 0);
    r->listens = listens;
}

void sl_forward_begin_way(struct server *s)
{
    struct sl_forward *r = s->relay;
    struct sl_resp_writer *w;
    r->again_ms = SL_NEVER;
    if (r->leads || r->exporting || r->keeper == 0 ||
        (w = sl_frame(s, r->keeper, "R.COME", 1)) == NULL)
        return;
    sl_frame_number(w, r->keeper_term);
}

/* By which the keeper can tell us when a lease ends. */
static void tell_clock(struct server *s)
{
    struct sl_resp_writer *w = sl_frame(s, s->relay->keeper, "R.CLOCK", 1);
    if (w != NULL) sl_frame_number(w, (uint64_t)s->now.ms);
}

static void take_here(struct server *s, const struct sl_args *a)
{
    struct sl_forward *r = s->relay;
    uint64_t term;
    if (!sl_frame_read(a->at[1], &term) || term != r->keeper_term || r->open ||
        r->handing)
        return;
    r->without_since_ms = r->again_ms = SL_NEVER;
    r->handing = true;
    tell_clock(s);
    sl_server_go_on(s); /* It is handed over some at a time. */
}

/* --- Another way --------------------------------------------------------------------------- */

/* Its transaction at the keeper has ended. */
static void note_ended(struct conn *c)
{
    free(c->begun);
    c->begun = NULL;
}

/* The keeper says with each reply which transaction the connection has there. If it is
 * another one, this TX.BEGIN has begun it, and is kept: a rejected one changes nothing. */
static void note_transaction(struct conn *c, uint64_t tx)
{
    struct sl_forwarded *q = c->relayed;
#ifdef MUT_RELAYENDED
    if (tx == 0) return;
#endif
#ifdef MUT_RELAYBEGUN
    if (q->kind == SL_BEGINS) note_ended(c);
#endif
    if (tx == (c->begun == NULL ? 0 : c->begun->tx)) return;
    note_ended(c);
    if (tx == 0 || q->kind != SL_BEGINS) return;
    unlist(c->server->relay, q);
    c->relayed = NULL;
    c->begun = q;
    q->tx = tx;
}

/* The id that its TX.BEGIN has with REQUEST: the last argument. */
static struct sl_bytes request_of(const struct conn *c)
{
    const struct sl_forwarded *q = c->begun;
    return (struct sl_bytes){q->bytes + q->n - 2 - q->request_n, q->request_n};
}

/* The keeper was lost, and with it the transaction of a connection. */
static void lose_transaction(struct conn *c)
{
    if (c->tx == 0 && c->begun == NULL) return;
    c->tx = 0;
    note_ended(c);
#ifndef MUT_RELAYSTALE
    c->tx_lost = true;
#endif
}

/* A commit that was sent: what became of it can be asked, if it has a name. */
static void settle_commit(struct server *s, struct conn *c)
{
    struct sl_bytes request = request_of(c);
    const struct sl_bytes ask[] = {{"TX.OUTCOME", 10}, request};
    struct sl_forwarded *q = request.n == 0 ? NULL : sl_forwarded_new(c, ask, 2);
    sl_ms since = c->relayed->since_ms;
    note_ended(c);
    if (q == NULL) {
        answer_problem(c, sluice_status_word(SLUICE_ECLOSED),
                       "the keeper was lost while it committed: nobody knows whether "
                       "it did; with TX.BEGIN REQUEST id, TX.OUTCOME id tells");
        return;
    }
    sl_forward_forget(c);
    q->kind = SL_COMMITS;
    q->settles = true;
    q->since_ms = since;
    c->relayed = q;
    enqueue_by_age(s->relay, q);
}

/* It was granted, and the answer was lost: it asks again, so nobody has that grant. */
static void forget_untold(struct server *s, struct conn *c)
{
    struct sl_record *x = c->untold == 0 ? NULL
                                         : sl_ledger_find(&s->relay->ledger, c->untold);
    c->untold = 0;
    if (x == NULL) return;
    if (x->leased) x->unwanted = true; /* The keeper may be the same. */
    else sl_ledger_drop(&s->relay->ledger, x);
}

/* What was sent on the old way: it is settled, or will be sent again. */
static void turn_one(struct server *s, struct sl_forwarded *q)
{
    struct conn *c = q->c;
    bool commits = q->kind == SL_COMMITS && !q->settles;
#ifdef MUT_RELAYSETTLE
    commits = false;
#endif
    if (commits && c->begun != NULL) settle_commit(s, c);
    else {
        if (q->kind == SL_ACQUIRES) forget_untold(s, c);
#ifdef MUT_RELAYWAITED
        q->since_ms = s->now.ms;
#endif
        enqueue_by_age(s->relay, q);
    }
}

/* The transaction that a connection had on the old way has ended. */
static void leave_old_way(struct conn *c)
{
    struct sl_forwarded *q = c->relayed;
    enum sl_forward_kind kind = q == NULL ? SL_ASKS_AGAIN : q->kind;
    if (c->begun == NULL) return;
    switch (kind) {
        case SL_ASKS_AGAIN:
        case SL_ACQUIRES:
        case SL_RELEASES: lose_transaction(c); break;
        case SL_BEGINS: note_ended(c); break;
        case SL_ABORTS:
            note_ended(c);
            sl_resp_simple(sl_conn_out(c), "OK"); /* It went with its keeper. */
            answered(c);
            break;
        case SL_COMMITS:
        case SL_IN_IT:
            note_ended(c);
            answer_problem(c, sluice_status_word(SLUICE_ESTALE), SL_LOST_TX);
            break;
    }
}

static void lose_way(struct server *s)
{
    struct sl_forward *r = s->relay;
    struct sl_election_view v;
    sl_election_view(r->office, &v);
    r->without_since_ms = r->poke_ms = r->certain_ms = s->now.ms;
    r->lost = v.reign;
}

/* What follows the half of a reply would be taken for its rest. */
static void hang_up_on_half(struct server *s)
{
    struct sl_list *next;
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        next = n->next;
        if (c->half) sl_conn_close(c, SL_WAS_CUT);
    }
}

void sl_forward_end_way(struct server *s)
{
    struct sl_forward *r = s->relay;
    struct sl_list old, *next;
    r->way++;
    r->open = r->handing = r->listens = false;
    if (r->without_since_ms == SL_NEVER) lose_way(s);
    hang_up_on_half(s);
    sl_list_init(&old);
    while (!sl_list_empty(&r->sent)) {
        struct sl_forwarded *q = sl_container_of(r->sent.next, struct sl_forwarded,
                                                 place);
        unlist(r, q);
        sl_list_append(&old, &q->place);
    }
    while (!sl_list_empty(&old)) {
        struct sl_forwarded *q = sl_container_of(old.next, struct sl_forwarded, place);
        sl_list_remove(&q->place);
        turn_one(s, q);
    }
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        next = n->next;
        leave_old_way(sl_container_of(n, struct conn, all));
    }
}

void sl_forward_turn(struct server *s)
{
    sl_forward_end_way(s);
    sl_forward_begin_way(s);
}

/* --- This node becomes the keeper, or is it no more ------------------------------------------- */

/* Its words, from the bytes that were kept. */
static void do_here(struct server *s, struct sl_forwarded *q)
{
    struct conn *c = q->c;
    const struct sl_resp_limits limits = {.args_max = SIZE_MAX / 64,
                                          .bulk_bytes_max = SIZE_MAX / 4,
                                          .command_bytes_max = SIZE_MAX / 4,
                                          .inline_bytes_max = 64};
    struct sl_resp_reader *reader = sl_resp_reader_new(&limits);
    struct sl_args args;
    char *at;
    for (size_t n, done = 0; reader != NULL && done < q->n; done += n) {
        n = sl_resp_room(reader, &at);
        if (n == 0) break;
        if (n > q->n - done) n = q->n - done;
        memcpy(at, q->bytes + done, n);
        sl_resp_filled(reader, n);
    }
    sl_ms since = q->since_ms;
    unlist(s->relay, q);
    c->relayed = NULL;
    c->settling = q->settles;
    if (c->blocked == SL_IN_RELAY) sl_conn_unblock(c);
    if (reader != NULL && sl_resp_next(reader, &args) == 1) {
        s->stats.commands--; /* It is still the same one. */
        if (c->deferred_since_ms == 0 && since < s->now.ms)
            c->deferred_since_ms = since;
        sl_dispatch(c, &args);
        if (c->deferred == NULL) c->deferred_since_ms = 0;
    } else
        sl_resp_problem(sl_conn_out(c), sluice_status_word(SLUICE_ENOMEM),
                        "out of memory");
    sl_resp_reader_free(reader);
    free_relayed(s, q);
    if (c->ended) sl_conn_work(c);
}

bool sl_forward_reclaim_own(struct server *s)
{
    struct sl_ledger *l = &s->relay->ledger;
    struct sl_record *x;
    while ((x = first_record(l)) != NULL) {
        struct session *n = x->session == 0 ? NULL : sl_server_session(s, x->session);
        const struct sl_grant_view v = sl_record_view(x, s->now.ms);
        if (s->effects_left == 0) return false;
        s->effects_left--;
        if (x->end_ms > s->now.ms && !x->unwanted &&
            (x->leased || (n != NULL && n->conn != NULL)))
            sl_reclaim(s, n, &v, x->key);
        sl_ledger_drop(l, x);
    }
    return true;
}

void sl_forward_come_home(struct server *s)
{
    s->relay->without_since_ms = SL_NEVER;
    sl_forward_gathered(s); /* What has to wait for others waits on. */
    sl_server_go_on(s);
}

void sl_forward_gathered(struct server *s)
{
    struct sl_forward *r = s->relay;
    struct sl_list waiting;
    sl_list_init(&waiting);
    while (!sl_list_empty(&r->queued)) {
        struct sl_forwarded *q = sl_container_of(r->queued.next, struct sl_forwarded,
                                                 place);
        unlist(r, q);
        sl_list_append(&waiting, &q->place);
    }
    while (!sl_list_empty(&waiting)) {
        struct sl_forwarded *q = sl_container_of(waiting.next, struct sl_forwarded,
                                                 place);
        sl_list_remove(&q->place);
        do_here(s, q);
    }
}

void sl_forward_go_out(struct server *s)
{
    struct sl_forward *r = s->relay;
    lose_way(s);
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        if (c->far != NULL) continue;
        if (c->blocked != SL_IN_TX) lose_transaction(c);
        if (c->relayed == NULL || c->blocked == SL_IN_RELAY) continue;
        if (c->blocked == SL_IN_ACQUIRE || c->blocked == SL_IN_AWAIT) {
            sl_table_withdraw(s->table, &c->session->s);
            sl_state_waited(c);
            c->blocked = SL_IN_RELAY;
            enqueue_by_age(r, c->relayed);
        } else sl_forward_forget(c);
    }
}

/* --- Commands ----------------------------------------------------------------------------- */

/* For a bare RELEASE: which grant it is about. */
static sl_fence released(const struct call *call)
{
    uint64_t fence;
    if (call->n > 2) return sl_frame_read(call->at[2], &fence) ? fence : 0;
    struct sl_record *x = sl_ledger_newest(&call->c->held, call->at[1]);
    return x == NULL ? 0 : x->fence;
}

/* The connection waits, with its words. False: out of memory, and it was told. */
static bool wait_with_words(struct call *call, enum sl_forward_kind kind)
{
    struct sl_forwarded *q = sl_forwarded_new(call->c, call->at, call->n);
    if (q == NULL) {
        sl_say_status(call, SLUICE_ENOMEM);
        return false;
    }
    q->kind = kind;
    q->waits = may_wait(call, kind);
    if (kind == SL_BEGINS && call->n == 3) q->request_n = call->at[2].n;
    if (call->c->deferred_since_ms != 0) q->since_ms = call->c->deferred_since_ms;
    call->c->relayed = q;
    call->c->blocked = SL_IN_RELAY;
    call->s->blocked_count++;
    enqueue(call->s->relay, q);
    return true;
}

/* About a grant that another node may be about to reclaim. */
static bool is_too_early(const struct call *call, enum sl_forward_kind kind)
{
#ifdef MUT_RELAYGATHER
    return false;
#endif
    return call->s->relay->gather_ms != 0 &&
           (kind == SL_ASKS_AGAIN || kind == SL_RELEASES) &&
           !sl_word_is(call->at[0], "TX.OUTCOME");
}

static void forward(struct call *call, enum sl_forward_kind kind)
{
    struct server *s = call->s;
    struct sl_forward *r = s->relay;
    if (r->without_since_ms != SL_NEVER) sl_election_read_soon(r->office, s->now.ms);
    if (r->without_since_ms != SL_NEVER &&
        s->now.ms - r->without_since_ms >= s->settings->keeper_wait_ms) {
        sl_say(call, sluice_status_word(SLUICE_ENOKEEPER), sl_forward_why_not(s));
        return;
    }
    call->c->releases = kind == SL_RELEASES && call->n > 1 ? released(call) : 0;
    if (wait_with_words(call, kind)) send_queued(s);
}

bool sl_forward_here(struct call *call, const struct command *command)
{
    struct sl_forward *r = call->s->relay;
    struct conn *c = call->c;
    bool keepers = (command->flags & SL_KEEPER) != 0;
    if (r == NULL) return true;
    if (c->far != NULL && !keepers) { /* Its node does that itself. */
        c->far->ran = true;
        sl_say(call, "ERR", "this is no command for the keeper");
        return false;
    }
    if (!keepers || is_majoritys(call, command)) return true;
    enum sl_forward_kind kind = kind_of(call);
    if (r->leads && is_too_early(call, kind)) {
        wait_with_words(call, kind);
        return false;
    }
    if (c->far != NULL) return true; /* It was asked because it is the keeper. */
    if (c->tx_lost && (kind == SL_IN_IT || kind == SL_COMMITS)) {
        c->tx_lost = false;
        sl_say(call, sluice_status_word(SLUICE_ESTALE), SL_LOST_TX);
        return false;
    }
    if (kind == SL_BEGINS || kind == SL_ABORTS) c->tx_lost = false;
    if (r->leads) return true;
    forward(call, kind);
    return false;
}

void sl_forward_ran(struct call *call, const struct command *command)
{
    struct conn *c = call->c;
    struct sl_forward *r = call->s->relay;
    if (r == NULL || (command->flags & SL_KEEPER) == 0) return;
    if (c->far != NULL) {
        c->far->ran = true;
        return;
    }
    if (c->blocked != SL_IN_ACQUIRE && c->blocked != SL_IN_AWAIT) return;
    sl_forward_forget(c);
    c->relayed = sl_forwarded_new(c, call->at, call->n); /* NULL: it will be refused. */
    if (c->relayed != NULL) {
        c->relayed->kind = kind_of(call);
        c->relayed->waits = true;
        if (c->deferred_since_ms != 0) c->relayed->since_ms = c->deferred_since_ms;
    }
}

void sl_forward_leave(struct conn *c, enum sl_parting how)
{
    struct server *s = c->server;
    struct sl_forward *r = s->relay;
    struct sl_resp_writer *w;
    if (r == NULL) return;
    sl_forward_forget(c);
    sl_ledger_leave(&r->ledger, &c->held);
#ifndef MUT_RELAYRESET
    note_ended(c);
#endif
    c->tx_lost = false;
    if (c->far != NULL || c->far_way == 0 || r->leads || (!r->open && !r->handing))
        return;
#ifdef MUT_RELAYEND
    return;
#endif
    w = sl_frame(s, r->keeper, "R.END", 2);
    if (w == NULL) return;
    sl_frame_number(w, sl_conn_id(c));
    sl_frame_number(w, how == SL_WAS_CUT ? 1 : 0);
}

void sl_forward_failed(struct conn *c, const char *name)
{
    struct sl_forward *r = c->server->relay;
    struct sl_resp_writer *w;
    if (c->far_way != r->way || !r->open) return; /* Its transaction is over. */
#ifdef MUT_RELAYFAIL
    return;
#endif
    w = sl_frame(c->server, r->keeper, "R.FAIL", 2);
    if (w == NULL) return;
    sl_frame_number(w, sl_conn_id(c));
    sl_resp_text(w, name);
}

bool sl_forward_is_brief(const struct conn *c)
{
    return c->blocked == SL_IN_RELAY && c->relayed != NULL && !c->relayed->waits;
}

/* --- In ---------------------------------------------------------------------------------------- */

static struct conn *conn_of(struct server *s, struct sl_bytes number)
{
    uint64_t id;
    struct session *n = sl_frame_read(number, &id) ? sl_server_session(s, id) : NULL;
    return n == NULL || n->conn == NULL || n->conn->far != NULL ? NULL : n->conn;
}

/* Granted to one who has hung up, though we have not come to read it. */
static bool came_too_late(struct server *s, struct conn *c, struct sl_bytes reply)
{
    enum sl_parting how;
    if (reply.n < 2 || memcmp(reply.at, "*5", 2) != 0) return false;
    how = sl_conn_hung_up(c);
    if (how == SL_STAYS) return false;
    struct sl_record *x = c->untold == 0 ? NULL
                                         : sl_ledger_find(&s->relay->ledger, c->untold);
    if (x != NULL && x->leased) drop_unwanted(s, x);
    sl_conn_close(c, how);
    return true;
}

/* The reply to TX.OUTCOME, as the one to the COMMIT that it is asked for. */
static void reply_settled(struct conn *c, struct sl_bytes reply)
{
    if (reply.n > 0 && reply.at[0] == ':')
        sl_resp_raw(sl_conn_out(c), reply.at, reply.n);
    else if (reply.n > 0 && reply.at[0] == '-')
        sl_resp_problem(sl_conn_out(c), sluice_status_word(SLUICE_ECLOSED),
                        "the keeper was lost while it committed, and the next one "
                        "could not be asked: TX.OUTCOME id tells");
    else sl_resp_problem(sl_conn_out(c), sluice_status_word(SLUICE_ESTALE), SL_LOST_TX);
}

static void say(struct server *s, struct conn *c, bool last, uint64_t tx,
                struct sl_bytes reply)
{
    struct sl_forwarded *q = c->relayed;
    if (q == NULL || !last) {
        sl_resp_raw(sl_conn_out(c), reply.at, reply.n); /* A push, or a piece. */
        return;
    }
    if (q->waits && q->kind == SL_ACQUIRES && came_too_late(s, c, reply)) return;
    c->untold = 0;
    if (q->settles) reply_settled(c, reply);
    else if (q->had && reply.n == 4 && memcmp(reply.at, ":0\r\n", 4) == 0)
        sl_resp_integer(sl_conn_out(c), 1); /* It went with its keeper. */
    else sl_resp_raw(sl_conn_out(c), reply.at, reply.n);
    if (c->relayed != q) return;
    note_transaction(c, tx);
    answered(c);
}

static void take_say(struct server *s, const struct sl_args *a)
{
    struct conn *c = conn_of(s, a->at[1]);
    uint64_t what, tx;
    if (c == NULL || !sl_frame_read(a->at[2], &what) || !sl_frame_read(a->at[3], &tx))
        return; /* It has left. */
    c->half = what == SL_SAY_MORE;
    say(s, c, what == SL_SAY_LAST, tx, a->at[4]);
}

/* The lease ends here when it does for the keeper, or before: it is counted from when the
 * command was sent, by clocks that may differ by 1 in 500. (From when this is read, which may
 * be late, it could outlive the lease, and be reclaimed beside its successor.) */
static sl_ms end_after(sl_ms since_ms, sl_ms age_ms, sl_ms left_ms)
{
    sl_ms ms = sl_ms_after(age_ms, left_ms);
    return ms == SL_NEVER ? SL_NEVER : since_ms + ms - ms / 500 - 1;
}

/* For each that comes two are looked at: so there are never many that have ended. (But not
 * while it is handed over: then their order counts.) */
static void put_record(struct sl_forward *r, sl_ms now_ms, const struct sl_record *x,
                       struct sl_list *of_conn)
{
    sl_ledger_put(&r->ledger, x, of_conn);
    if (!r->handing) sl_ledger_sweep(&r->ledger, now_ms, 2);
}

static void take_held(struct server *s, const struct sl_args *a)
{
    struct sl_forward *r = s->relay;
    struct conn *c = conn_of(s, a->at[1]);
    struct sl_grant_view v;
    struct sl_bytes key;
    uint64_t fresh, age;
    if (!sl_frame_read(a->at[2], &fresh) || !sl_frame_read(a->at[3], &age) ||
        !sl_record_read(a->at + 4, &v, &key))
        return;
    if (c == NULL || c->relayed == NULL || !c->relayed->sent) return; /* It has left. */
    sl_ms end_ms = end_after(c->relayed->sent_ms, (sl_ms)age, v.left_ms);
    struct sl_record x = sl_record_of(key, &v, fresh == 1 ? sl_conn_id(c) : 0, end_ms);
    x.told = r->way;
    /* Without memory for it the next keeper will not know it: then it is lost. */
    put_record(r, s->now.ms, &x, fresh == 1 ? &c->held : NULL);
    if (fresh == 1) c->untold = v.fence;
}

/* Of a client of the keeper's node. */
static void take_note(struct server *s, const struct sl_args *a)
{
    struct sl_forward *r = s->relay;
    struct sl_grant_view v;
    struct sl_bytes key;
    uint64_t since;
    if (!sl_frame_read(a->at[1], &since) || !sl_record_read(a->at + 2, &v, &key) ||
        !v.leased)
        return;
    struct sl_record x = sl_record_of(key, &v, 0,
                                      end_after((sl_ms)since, 0, v.left_ms));
    x.told = r->way;
    put_record(r, s->now.ms, &x, NULL);
}

static void take_gone(struct server *s, const struct sl_args *a)
{
    struct sl_ledger *l = &s->relay->ledger;
    for (size_t i = 1; i < a->n; i++) {
        uint64_t fence;
        struct sl_record *x = sl_frame_read(a->at[i], &fence) ? sl_ledger_find(l, fence)
                                                              : NULL;
        if (x != NULL) sl_ledger_drop(l, x);
    }
}

/* What its client believes to hold without a lease is not held: so the connection ends, as it
 * would on one server. */
static void take_lost(struct server *s, const struct sl_args *a)
{
    static struct sl_log_kind kind;
    struct conn *c = conn_of(s, a->at[1]);
    uint64_t fence;
    struct sl_record *x = sl_frame_read(a->at[2], &fence)
                              ? sl_ledger_find(&s->relay->ledger, fence)
                              : NULL;
    if (x == NULL) return;
    bool leased = x->leased;
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "the keeper does not know a grant of ours any more", NULL);
    s->relay->counts.refused++;
    sl_ledger_drop(&s->relay->ledger, x);
    if (!leased && c != NULL) sl_conn_close(c, SL_WAS_CUT);
}

static void take_not(struct server *s, sl_node_id from, const struct sl_args *a)
{
    struct sl_forward *r = s->relay;
    uint64_t term;
    if (from != r->keeper || r->leads || !sl_frame_read(a->at[1], &term) ||
        term != r->keeper_term)
        return;
    if (r->open || r->handing) sl_forward_end_way(s);
    r->again_ms = s->now.ms + AGAIN_MS; /* It may be about to be. */
    sl_election_read_soon(r->office, s->now.ms);
}

static void take_doubt(struct server *s, sl_node_id from, const struct sl_args *a)
{
    uint64_t term, sight;
    if (sl_frame_read(a->at[1], &term) && sl_frame_read(a->at[2], &sight) &&
        sight <= SL_PEER_CLOSED)
        sl_election_peer_doubts(s->relay->office, s->now.ms, from, term,
                                (enum sl_peer_state)sight);
}

bool sl_forward_is_frame(const struct sl_args *args)
{
    return args->at[0].n > 2 && memcmp(args->at[0].at, "R.", 2) == 0;
}

static bool is(const struct sl_args *a, const char *name, size_t n)
{
    return a->n == n + 1 && sl_word_is(a->at[0], name);
}

static void from_keeper(struct server *s, const struct sl_args *a)
{
    struct conn *c;
    if (is(a, "R.HERE", 1)) take_here(s, a);
    else if (!s->relay->open && !s->relay->handing) return; /* Of an old way. */
    else if (is(a, "R.SAY", 4)) take_say(s, a);
    else if (is(a, "R.HELD", 3 + SL_RECORD_WORDS)) take_held(s, a);
    else if (is(a, "R.NOTE", 1 + SL_RECORD_WORDS)) take_note(s, a);
    else if (sl_word_is(a->at[0], "R.GONE")) take_gone(s, a);
    else if (is(a, "R.LOST", 2)) take_lost(s, a);
    else if (is(a, "R.CUT", 1) && (c = conn_of(s, a->at[1])) != NULL)
        sl_conn_close(c, SL_WAS_CUT);
    else if (is(a, "R.EVENT", 2))
        s->stats.events += sl_pubsub_publish(&s->pubsub, a->at[1], a->at[2]);
}

void sl_forward_received(struct server *s, sl_node_id from, const struct sl_args *a)
{
    struct sl_forward *r = s->relay;
    if (r == NULL) return;
    if (is(a, "R.DOUBT", 2)) take_doubt(s, from, a);
    else if (is(a, "R.NOT", 1)) take_not(s, from, a);
    else if (from == r->keeper && !r->leads) from_keeper(s, a);
    else sl_proxy_received(s, from, a);
}

/* --- What happens -------------------------------------------------------------------------------- */

void sl_forward_linked(struct server *s, sl_node_id id)
{
    struct sl_forward *r = s->relay;
    if (r == NULL) return;
    sl_election_peer_changed(r->office, s->now.ms, id, SL_PEER_UP);
    if (id == r->keeper && !r->leads) sl_forward_turn(s);
}

void sl_forward_unlinked(struct server *s, sl_node_id id, enum sl_link_end how)
{
    struct sl_forward *r = s->relay;
    if (r == NULL) return;
    sl_proxy_close_all(s, id);
    if (id == r->keeper && !r->leads) sl_forward_turn(s);
    if (how != SL_END_REPLACED) sl_forward_unreached(s, id, how);
}

void sl_forward_unreached(struct server *s, sl_node_id id, enum sl_link_end how)
{
    enum sl_peer_state sight = how == SL_END_CLOSED ? SL_PEER_CLOSED : SL_PEER_SILENT;
    if (s->relay != NULL)
        sl_election_peer_changed(s->relay->office, s->now.ms, id, sight);
}

void sl_forward_drained(struct server *s, sl_node_id id)
{
    struct sl_forward *r = s->relay;
    struct sl_list stalled;
    if (r == NULL) return;
    if (id == r->keeper && !r->leads) {
        send_queued(s);
        if (r->handing) sl_server_go_on(s);
    }
    sl_list_init(&stalled);
    while (!sl_list_empty(&r->stalled)) {
        struct sl_list *n = r->stalled.next;
        sl_list_remove(n);
        sl_list_append(&stalled, n);
    }
    while (!sl_list_empty(&stalled)) {
        struct sl_proxy *f = sl_container_of(stalled.next, struct sl_proxy, stalled);
        sl_list_remove(&f->stalled);
        sl_proxy_flush(f->c);
    }
}

/* A keeper lets what is held without a lease go SL_ADRIFT_MS after it lost the link, at the
 * earliest; the next one, when it has waited for the authority of this one, which takes as
 * long. While the engine says that there is no other, and that it does not renew, neither
 * happens. (It is told of the way's end up to half a second late.) */
#define CUT_OFF_MS 1200
#define POKE_MS 300

static void note_certain(struct server *s)
{
    struct sl_forward *r = s->relay;
    struct sl_election_view v;
    sl_election_view(r->office, &v);
    bool same = v.reign.term == r->lost.term && v.reign.heartbeat == r->lost.heartbeat;
    if (same && v.looked_ms > r->certain_ms) r->certain_ms = v.looked_ms;
}

sl_ms sl_forward_cut_due(const struct server *s)
{
    const struct sl_forward *r = s->relay;
    if (r->leads || r->without_since_ms == SL_NEVER || r->ledger.unleased == 0)
        return SL_NEVER;
    sl_ms cut = r->certain_ms + CUT_OFF_MS;
    return r->poke_ms < cut ? r->poke_ms : cut;
}

void sl_forward_cut_off(struct server *s)
{
    static struct sl_log_kind kind;
    struct sl_forward *r = s->relay;
    struct sl_list *next;
    if (!r->leads) note_certain(s);
    if (sl_forward_cut_due(s) > s->now.ms) return;
    r->poke_ms = s->now.ms + POKE_MS;
    sl_election_read_soon(r->office, s->now.ms);
    if (r->certain_ms + CUT_OFF_MS > s->now.ms) return;
#ifdef MUT_RELAYCUT
    return;
#endif
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "there is no way to the keeper: clients that hold something without "
                 "LEASE are hung up on",
                 NULL);
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        next = n->next;
        if (sl_ledger_holds_unleased(&c->held)) sl_conn_close(c, SL_WAS_CUT);
    }
}

/* Who waits for a keeper does not do so for ever. */
static void give_up_waiting(struct server *s)
{
    struct sl_forward *r = s->relay;
    if (r->without_since_ms == SL_NEVER || r->leads) return;
    while (!sl_list_empty(&r->queued)) {
        struct sl_forwarded *q = sl_container_of(r->queued.next, struct sl_forwarded,
                                                 place);
        sl_ms since = q->since_ms > r->without_since_ms ? q->since_ms
                                                        : r->without_since_ms;
        if (s->now.ms - since < s->settings->keeper_wait_ms) break;
        if (q->settles)
            answer_problem(q->c, sluice_status_word(SLUICE_ECLOSED),
                           "the keeper was lost while it committed, and there is no "
                           "other to ask: TX.OUTCOME id tells");
        else
            answer_problem(q->c, sluice_status_word(SLUICE_ENOKEEPER),
                           sl_forward_why_not(s));
    }
}

void sl_forward_second(struct server *s)
{
    if (s->relay == NULL) return;
    /* While it is handed over its order counts. */
    if (!s->relay->handing)
        sl_ledger_sweep(&s->relay->ledger, s->now.ms, SWEPT_A_SECOND);
    give_up_waiting(s);
    tell_listening(s);
    if (s->relay->open) tell_clock(s);
}
