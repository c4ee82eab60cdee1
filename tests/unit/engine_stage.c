#include "engine_stage.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/reply.h"

static const struct sl_resp_limits limits = {.args_max = 64,
                                             .bulk_bytes_max = 4096,
                                             .command_bytes_max = 65536,
                                             .inline_bytes_max = 4096};

/* --- The beginning and the end ------------------------------------------------- */

void stage_begin(struct stage *s, uint32_t addresses, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->now_ms = 1000000;
    for (unsigned i = 0; i < STAGE_CLIENTS; i++) {
        struct sl_engine_options o = {.addresses = addresses,
                                      .name = "test",
                                      .retry_ms = 5000,
                                      .connect_ms = 1000,
                                      .seed = seed + i};
        snprintf(o.id_prefix, sizeof o.id_prefix, "%032u", i);
        int status = sl_engine_init(&s->clients[i].engine, &o,
                                    (struct sl_hash_key){seed, i});
        assert(status == SLUICE_OK);
        (void)status;
        for (unsigned link = 0; link < SL_ENGINE_LINKS; link++)
            sl_resp_writer_init(&s->clients[i].conns[link].out, 1 << 20);
    }
}

static void drop_late(struct stage_late *late)
{
    sl_resp_reader_free(late->reader);
    late->reader = NULL;
}

static void forget_conn(struct stage_conn *c)
{
    sl_resp_reader_free(c->reader);
    sl_resp_writer_free(&c->out);
    *c = (struct stage_conn){0};
    sl_resp_writer_init(&c->out, 1 << 20);
    c->out.resp3 = true;
}

void stage_end(struct stage *s)
{
    for (size_t i = 0; i < STAGE_LATE; i++) drop_late(&s->late[i]);
    for (unsigned i = 0; i < STAGE_CLIENTS; i++) {
        sl_engine_free(&s->clients[i].engine);
        for (unsigned link = 0; link < SL_ENGINE_LINKS; link++) {
            forget_conn(&s->clients[i].conns[link]);
            sl_resp_writer_free(&s->clients[i].conns[link].out);
        }
    }
}

/* --- The server's locks ------------------------------------------------------------ */

static void end_request(struct stage_request *r)
{
    r->state = STAGE_ENDED;
}

struct stage_request *stage_holder(struct stage *s, const char *key)
{
    for (size_t i = 0; i < s->count; i++) {
        struct stage_request *r = &s->requests[i];
        if (r->state != STAGE_HELD || strcmp(r->key, key) != 0) continue;
        if (r->end_ms > s->now_ms) return r;
        end_request(r);
    }
    return NULL;
}

static struct stage_conn *conn_of(struct stage *s, uint64_t number)
{
    for (unsigned i = 0; i < STAGE_CLIENTS; i++)
        for (unsigned link = 0; link < SL_ENGINE_LINKS; link++) {
            struct stage_conn *c = &s->clients[i].conns[link];
            if (c->established && c->number == number) return c;
        }
    return NULL;
}

static void write_grant(struct stage *s, struct sl_resp_writer *w,
                        const struct stage_request *r, bool replay)
{
    sl_resp_array(w, 6);
    sl_resp_integer(w, (int64_t)r->fence);
    sl_resp_integer(w, 1);
    sl_resp_integer(w, r->end_ms == SL_NEVER ? -1 : r->end_ms - s->now_ms);
    sl_resp_integer(w, s->now_ms - r->arrived_ms);
    sl_resp_integer(w, 0);
    sl_resp_integer(w, replay);
}

static void push_outcome(struct stage *s, const struct stage_request *r)
{
    struct stage_conn *c = conn_of(s, r->conn);
    if (c == NULL) return;
    sl_resp_push(&c->out, 5);
    sl_resp_text(&c->out, "lock");
    sl_resp_text(&c->out, r->key);
    sl_resp_text(&c->out, "outcome");
    sl_resp_text(&c->out, r->id);
    if (r->state == STAGE_HELD) write_grant(s, &c->out, r, false);
    else sl_resp_null(&c->out);
}

void stage_push(struct stage *s, const struct stage_request *r, const char *event)
{
    struct stage_conn *c = conn_of(s, r->conn);
    if (c == NULL) return;
    sl_resp_push(&c->out, 4);
    sl_resp_text(&c->out, "lock");
    sl_resp_text(&c->out, r->key);
    sl_resp_text(&c->out, event);
    sl_resp_integer(&c->out, (int64_t)r->fence);
}

/* The outcome is nil. */
static void time_out(struct stage_request *r)
{
    end_request(r);
    r->id[0] = '\0';
}

static void hold(struct stage *s, struct stage_request *r)
{
    r->state = STAGE_HELD;
    r->fence = ++s->fences;
    r->end_ms = r->lease_ms > 0 ? s->now_ms + r->lease_ms : SL_NEVER;
}

/* Grant free locks to waiters, and end waits that have timed out. */
static void serve_waiters(struct stage *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct stage_request *r = &s->requests[i];
        if (r->state != STAGE_WAITS) continue;
        if (stage_holder(s, r->key) == NULL && conn_of(s, r->conn) != NULL) hold(s, r);
        else if (r->deadline_ms > s->now_ms) continue;
        push_outcome(s, r);
        if (r->state == STAGE_WAITS) time_out(r);
    }
}

/* --- Commands -------------------------------------------------------------------------- */

static bool is(struct sl_bytes b, const char *text)
{
    return b.n == strlen(text) && memcmp(b.at, text, b.n) == 0;
}

static int64_t number_of(struct sl_bytes b)
{
    char text[24] = {0};
    memcpy(text, b.at, b.n < 23 ? b.n : 23);
    return strtoll(text, NULL, 10);
}

static struct stage_request *request_of(struct stage *s, struct sl_bytes id)
{
    for (size_t i = 0; i < s->count; i++)
        if (is(id, s->requests[i].id)) return &s->requests[i];
    return NULL;
}

static struct stage_request *new_request(struct stage *s, struct sl_bytes key,
                                         struct sl_bytes id)
{
    assert(s->count < STAGE_IDS && id.n == SL_ENGINE_ID_BYTES && key.n < 8);
    struct stage_request *r = &s->requests[s->count++];
    *r = (struct stage_request){.state = STAGE_ENDED, .end_ms = SL_NEVER};
    memcpy(r->id, id.at, id.n);
    memcpy(r->key, key.at, key.n);
    return r;
}

static void do_acquire(struct stage *s, struct stage_conn *c, const struct sl_args *a)
{
    int64_t lease_ms = 0, wait_ms = 0;
    struct sl_bytes id = {0};
    for (size_t i = 2; i + 1 < a->n; i += 2) {
        if (is(a->at[i], "LEASE")) lease_ms = number_of(a->at[i + 1]);
        else if (is(a->at[i], "WAIT")) wait_ms = number_of(a->at[i + 1]);
        else if (is(a->at[i], "REQUEST")) id = a->at[i + 1];
    }
    assert(is(a->at[a->n - 1], "NOTIFY"));
    struct stage_request *r = request_of(s, id);
    bool replay = r != NULL;
    if (r != NULL && r->state == STAGE_HELD && r->end_ms <= s->now_ms) end_request(r);
    if (r != NULL && r->state == STAGE_ENDED) {
        sl_resp_problem(&c->out, "ENDED", "the acquisition has ended");
        return;
    }
    if (r == NULL) {
        r = new_request(s, a->at[1], id);
        r->state = STAGE_WAITS;
        r->lease_ms = lease_ms;
    }
    if (c->established || !replay) {
        r->conn = c->number;
        r->arrived_ms = s->now_ms;
        r->deadline_ms = sl_ms_after(s->now_ms, wait_ms);
    }
    if (r->state == STAGE_WAITS && stage_holder(s, r->key) == NULL) hold(s, r);
    if (r->state == STAGE_HELD) write_grant(s, &c->out, r, replay);
    else if (wait_ms > 0) sl_resp_simple(&c->out, "QUEUED");
    else {
        time_out(r);
        sl_resp_null_array(&c->out);
    }
}

static void do_cancel(struct stage *s, struct stage_conn *c, const struct sl_args *a)
{
    struct stage_request *r = request_of(s, a->at[2]);
    int n = 0;
    if (r == NULL) r = new_request(s, a->at[1], a->at[2]);
    else if (r->state == STAGE_WAITS) n = 1;
    else if (r->state == STAGE_HELD) n = 2;
    end_request(r);
    sl_resp_integer(&c->out, n);
}

static void do_fence_command(struct stage *s, struct stage_conn *c,
                             const struct sl_args *a)
{
    char key[8] = {0};
    memcpy(key, a->at[1].at, a->at[1].n);
    struct stage_request *r = stage_holder(s, key);
    bool held = r != NULL && r->fence == (uint64_t)number_of(a->at[2]);
    if (is(a->at[0], "EXTEND")) {
        int64_t ms = number_of(a->at[3]);
        if (!held || r->broken) sl_resp_problem(&c->out, "LOST", "not held");
        else if (r->asked) sl_resp_problem(&c->out, "ASKED", "asked to release");
        else {
            if (s->now_ms + ms > r->end_ms) r->end_ms = s->now_ms + ms;
            sl_resp_integer(&c->out, r->end_ms - s->now_ms);
        }
        return;
    }
    if (held && is(a->at[0], "RELEASE")) end_request(r);
    sl_resp_integer(&c->out, held);
}

static void execute(struct stage *s, struct stage_conn *c, const struct sl_args *a)
{
    s->commands++;
    memmove(s->log, s->log + 1, sizeof s->log - 2);
    s->log[sizeof s->log - 2] = a->at[0].at[0];
    if (is(a->at[0], "HELLO")) {
        if (s->denied != NULL) sl_resp_problem(&c->out, s->denied, "denied");
        else sl_resp_map(&c->out, 0);
    } else if (is(a->at[0], "PING")) sl_resp_simple(&c->out, "PONG");
    else if (s->denied != NULL) sl_resp_problem(&c->out, "NOAUTH", "denied");
    else if (s->error != NULL) sl_resp_problem(&c->out, s->error, "not now");
    else if (is(a->at[0], "ACQUIRE")) do_acquire(s, c, a);
    else if (is(a->at[0], "CANCEL")) do_cancel(s, c, a);
    else do_fence_command(s, c, a);
    serve_waiters(s);
}

void stage_serve(struct stage *s, unsigned client, unsigned link)
{
    struct stage_conn *c = &s->clients[client].conns[link];
    struct sl_args a;
    while (c->established && !c->cut && sl_resp_next(c->reader, &a) == 1)
        execute(s, c, &a);
    serve_waiters(s);
}

/* --- Connections ---------------------------------------------------------------------------- */

/* The connection has ended: grants without a lease end, and waiters are skipped. */
static void server_close(struct stage *s, struct stage_conn *c)
{
    if (!c->established) return;
    for (size_t i = 0; i < s->count; i++) {
        struct stage_request *r = &s->requests[i];
        if (r->conn == c->number && r->state == STAGE_HELD && r->lease_ms == 0)
            end_request(r);
    }
    forget_conn(c);
    serve_waiters(s);
}

void stage_fail(struct stage *s, unsigned client, unsigned link, int status)
{
    struct stage_conn *c = &s->clients[client].conns[link];
    if (!c->open) return;
    server_close(s, c);
    forget_conn(c);
    sl_engine_disconnected(&s->clients[client].engine, s->now_ms, link, status,
                           "the connection was closed");
}

void stage_break(struct stage *s, unsigned client, unsigned link)
{
    stage_fail(s, client, link, SLUICE_EUNREACHABLE);
}

void stage_delay(struct stage *s, unsigned client)
{
    struct stage_conn *c = &s->clients[client].conns[SL_ENGINE_LEASES];
    for (size_t i = 0; i < STAGE_LATE && c->reader != NULL; i++)
        if (s->late[i].reader == NULL) {
            s->late[i] = (struct stage_late){c->reader, s->now_ms + STAGE_LATE_MS};
            c->reader = NULL;
        }
    stage_break(s, client, SL_ENGINE_LEASES);
}

void stage_arrive(struct stage *s)
{
    struct stage_conn closed = {0};
    struct sl_args a;
    sl_resp_writer_init(&closed.out, 1 << 20);
    for (size_t i = 0; i < STAGE_LATE; i++) {
        struct stage_late *late = &s->late[i];
        while (late->reader != NULL && s->now_ms < late->until_ms &&
               sl_resp_next(late->reader, &a) == 1)
            execute(s, &closed, &a);
        drop_late(late);
    }
    sl_resp_writer_free(&closed.out);
}

static bool settle_link(struct stage *s, unsigned client, unsigned link)
{
    struct sl_engine *e = &s->clients[client].engine;
    struct stage_conn *c = &s->clients[client].conns[link];
    uint32_t at;
    if (sl_engine_wants_close(e, link)) {
        server_close(s, c);
        forget_conn(c);
    }
    if (sl_engine_wants_connect(e, link, &at)) {
        s->connects++;
        forget_conn(c);
        c->open = true;
        if (s->down) {
            stage_break(s, client, link);
            return true;
        }
        c->established = true;
        c->number = ++s->conns;
        c->reader = sl_resp_reader_new(&limits);
        sl_engine_connected(e, s->now_ms, link);
        return true;
    }
    if (!c->open || c->full) return false;
    struct sl_bytes out = sl_engine_output(e, s->now_ms, link);
    if (out.n == 0) return false;
    if (c->cut) {
        sl_engine_sent(e, link, out.n);
        return true;
    }
    char *to;
    size_t n = sl_resp_room(c->reader, &to);
    if (n > out.n) n = out.n;
    memcpy(to, out.at, n);
    sl_resp_filled(c->reader, n);
    sl_engine_sent(e, link, n);
    return true;
}

static void take_tickets(struct sl_engine *e)
{
    struct sl_ticket *t;
    while ((t = sl_engine_next_ticket(e)) != NULL) sl_ticket_reported(t);
}

bool stage_settle(struct stage *s)
{
    bool any = false, more = true;
    while (more) {
        more = false;
        for (unsigned i = 0; i < STAGE_CLIENTS; i++) {
            sl_engine_advance(&s->clients[i].engine, s->now_ms);
            for (unsigned link = 0; link < SL_ENGINE_LINKS; link++)
                more |= settle_link(s, i, link);
            take_tickets(&s->clients[i].engine);
            sl_engine_check(&s->clients[i].engine);
        }
        any |= more;
    }
    return any;
}

void stage_deliver(struct stage *s, unsigned client, unsigned link)
{
    struct sl_engine *e = &s->clients[client].engine;
    struct stage_conn *c = &s->clients[client].conns[link];
    size_t n, at = 0;
    if (!c->established || c->cut) return;
    char *data = sl_resp_take(&c->out, &n);
    while (at < n && !e->links[link].close) {
        struct sl_client_reply_scan scan = {0};
        struct sluice_reply *reply;
        int whole = sl_client_reply_scan(&scan, data + at, n - at);
        assert(whole == 1);
        (void)whole;
        if (sl_client_reply_build(data + at, &scan, &reply) != SLUICE_OK) abort();
        at += scan.at;
        sl_engine_received(e, s->now_ms, link, reply);
        sl_engine_check(e);
    }
    free(data);
}

void stage_run(struct stage *s)
{
    for (bool more = true; more;) {
        unsigned before = s->commands;
        more = stage_settle(s);
        for (unsigned i = 0; i < STAGE_CLIENTS; i++)
            for (unsigned link = 0; link < SL_ENGINE_LINKS; link++) {
                stage_serve(s, i, link);
                more |= s->clients[i].conns[link].out.n > 0;
                stage_deliver(s, i, link);
            }
        more |= s->commands != before;
    }
}

void stage_pass(struct stage *s, sl_ms ms)
{
    sl_ms end_ms = s->now_ms + ms;
    stage_run(s);
    while (s->now_ms < end_ms) {
        s->now_ms++;
        stage_run(s);
    }
}
