/* request.c - submits, keeps, answers and withdraws requests. */
#include "server/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/router.h"
#include "server/command/reply.h"
#include "server/forward/proxy.h"

#define BLOCK_BYTES_MIN 480u  /* Large enough for most requests. */
#define SPARE_BYTES_MAX 1024u /* The server does not reuse blocks larger than this. */

/* --- The memory of kept requests ------------------------------------------- */

static size_t digits(size_t n)
{
    size_t count = 1;
    for (; n >= 10; n /= 10) count++;
    return count;
}

/* Return the length of a protocol header such as "*2\r\n" or "$5\r\n". */
static size_t header_bytes(size_t n)
{
    return 1 + digits(n) + 2;
}

static char *write_header(char *at, char type, size_t n)
{
    size_t count = digits(n);
    *at++ = type;
    for (size_t i = count; i-- > 0; n /= 10) at[i] = (char)('0' + n % 10);
    at += count;
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

static size_t command_bytes(const struct sl_bytes *at, size_t n)
{
    size_t bytes = header_bytes(n);
    for (size_t i = 0; i < n; i++) bytes += header_bytes(at[i].n) + at[i].n + 2;
    return bytes;
}

static size_t block_bytes(const struct request *r)
{
    return sizeof *r + r->n * sizeof *r->at + command_bytes(r->at, r->n) + r->extra.n;
}

/* Make sure that the spare block has this many bytes, and that the indexes have space. Returns false if
 * out of memory. */
static bool has_block(struct server *s, size_t bytes)
{
    if (sl_index_reserve(&s->requests) != SLUICE_OK ||
        sl_index_reserve(&s->notifies) != SLUICE_OK)
        return false;
    if (s->spare_request_bytes >= bytes) return true;
    if (bytes < BLOCK_BYTES_MIN) bytes = BLOCK_BYTES_MIN;
    void *block = malloc(bytes);
    if (block == NULL) return false;
    free(s->spare_request);
    s->spare_request = block;
    s->spare_request_bytes = bytes;
    return true;
}

bool sl_request_reserve(struct request *r)
{
    if (r->kept || has_block(r->s, block_bytes(r))) return true;
    sl_request_answer_status(r, SLUICE_ENOMEM);
    return false;
}

/* Free the memory of a request. Erase it first if the command is allowed before AUTH, because it
 * may contain a password. */
static void free_block(struct request *r)
{
    struct server *s = r->s;
    size_t bytes = r->size;
    if ((r->command->flags & SL_EARLY) != 0) explicit_bzero(r, bytes);
    if (s->spare_request == NULL && bytes <= SPARE_BYTES_MAX) {
        s->spare_request = r;
        s->spare_request_bytes = bytes;
    } else free(r);
}

/* --- Indexes ----------------------------------------------------------------- */

static uint64_t hash_ticket(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct request *)item)->ticket, x->seed);
}

static bool same_ticket(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct request *)item)->ticket, key.at, key.n) == 0;
}

static const struct sl_index_kind by_ticket = {hash_ticket, same_ticket};

/* What identifies a request with NOTIFY. */
struct notify_name {
    const struct conn *c;
    struct sl_bytes key, id;
};

static uint64_t hash_of_name(const struct sl_index *x, const struct notify_name *n)
{
    return sl_hash(x->key, n->id.at, n->id.n) ^ sl_hash_u64((uintptr_t)n->c, x->seed);
}

static uint64_t hash_name(const void *item, const struct sl_index *x)
{
    const struct request *r = item;
    const struct notify_name n = {r->c, r->key, r->id};
    return hash_of_name(x, &n);
}

static bool same_name(const void *item, struct sl_bytes key)
{
    const struct request *r = item;
    const struct notify_name *n = (const void *)key.at;
    return r->c == n->c && sl_bytes_equal(r->key, n->key) &&
           sl_bytes_equal(r->id, n->id);
}

static const struct sl_index_kind by_name = {hash_name, same_name};

void sl_request_setup(struct server *s)
{
    sl_index_init(&s->requests, &by_ticket, s->hash_key);
    sl_index_init(&s->notifies, &by_name, s->hash_key);
}

/* Add a kept request to its lists, indexes and counters. The caller has reserved the memory. */
static void attach(struct request *r)
{
    struct server *s = r->s;
    sl_list_init(&r->place);
    sl_list_init(&r->of_conn);
    sl_index_put(&s->requests, r, hash_ticket(r, &s->requests));
    if (r->notify) {
        sl_index_put(&s->notifies, r, hash_name(r, &s->notifies));
        r->c->notify_count++;
    }
    if (!r->queued) s->blocked_count++;
    sl_list_append(r->queued ? &r->c->notifies : &r->c->requests, &r->of_conn);
    s->buffer_bytes += r->size;
}

/* Remove a kept request from its lists, indexes and counters; the caller frees it. */
static void detach(struct request *r)
{
    struct server *s = r->s;
    assert(r->kept && !sl_list_empty(&r->of_conn));
    assert(sl_list_empty(
        &r->place)); /* The module that put the request on a list has removed it. */
    assert(s->buffer_bytes >= r->size);
    sl_list_remove(&r->of_conn);
    sl_index_remove(&s->requests, r, hash_ticket(r, &s->requests));
    if (r->notify) {
        sl_index_remove(&s->notifies, r, hash_name(r, &s->notifies));
        r->c->notify_count--;
    }
    if (!r->queued) s->blocked_count--;
    s->buffer_bytes -= r->size;
}

/* Encode the command in the memory after k, and point k->at at the arguments there. `extra` comes
 * last. */
static void copy_arguments(struct request *k, const struct request *r)
{
    struct sl_bytes *args = (struct sl_bytes *)(k + 1);
    char *begin = (char *)(args + r->n), *at = write_header(begin, '*', r->n);
    for (size_t i = 0; i < r->n; i++) {
        at = write_header(at, '$', r->at[i].n);
        if (r->at[i].n > 0) memcpy(at, r->at[i].at, r->at[i].n);
        args[i] = (struct sl_bytes){at, r->at[i].n};
        at += r->at[i].n;
        *at++ = '\r';
        *at++ = '\n';
    }
    k->at = args;
    k->bytes = (struct sl_bytes){begin, (size_t)(at - begin)};
    if (r->extra.n > 0) memcpy(at, r->extra.at, r->extra.n);
    if (r->extra.at != NULL) k->extra.at = at;
    for (size_t i = 1; r->key.n > 0 && i < r->n; i++) {
        if (r->at[i].at == r->key.at) k->key = args[i];
        if (r->at[i].at == r->id.at) k->id = args[i];
    }
}

/* --- Keeping, answering and freeing a request -------------------------------- */

void sl_request_take_arrival(struct request *r, const struct call *call)
{
    const struct request *resumed = call->resumed;
    if (resumed != NULL) {
        r->came_ms = resumed->came_ms;
        r->arrived_ms = resumed->arrived_ms;
        r->arrival = resumed->arrival;
        return;
    }
    r->came_ms = call->c->proxy->arrival.came_ms;
    r->arrived_ms = call->c->proxy->arrival.arrived_ms;
    r->arrival = call->c->proxy->arrival.number;
}

void sl_request_submit(struct request *r)
{
    assert(!r->kept && !r->answered && r->verb != SL_VERB_NONE);
    assert((r->command->flags & SL_REQUEST) != 0);
    r->arbiter = sl_router_choose(r);
    r->arbiter->kind->submit(r->arbiter, r);
}

struct request *sl_request_keep(struct request *r)
{
    struct server *s = r->s;
    struct call *call = r->call;
    assert(!r->answered && (r->arbiter == NULL) == (r->verb == SL_VERB_NONE));
    if (r->kept) return r;
    if (!sl_request_reserve(r)) return NULL;
    sl_request_ticket(r);
    struct request *k = s->spare_request;
    size_t size = s->spare_request_bytes;
    s->spare_request = NULL;
    s->spare_request_bytes = 0;
    if (size > SPARE_BYTES_MAX) { /* The block was reserved for a larger request. */
        void *less = realloc(k, block_bytes(r));
        if (less != NULL) {
            k = less;
            size = block_bytes(r);
        }
    }
    *k = *r;
    copy_arguments(k, r);
    assert(k->bytes.at + k->bytes.n + k->extra.n <= (const char *)k + size);
    k->size = size;
    k->call = NULL;
    k->dropped = NULL;
    k->kept = true;
    if (k->notify && !k->queued && k->arbiter != s->arbiters.remote) {
        sl_resp_simple(call->out, "QUEUED");
        k->queued = true;
    }
    attach(k);
    return k;
}

void sl_request_queue(struct request *r)
{
    assert(r->kept && r->notify);
    if (r->queued) return;
    sl_resp_simple(sl_conn_out(r->c), "QUEUED");
    sl_list_remove(&r->of_conn);
    sl_list_append(&r->c->notifies, &r->of_conn);
    r->s->blocked_count--;
    r->queued = true;
    sl_conn_unblock(r->c);
}

struct request *sl_request_replace(struct request *r, const struct sl_bytes *at,
                                   size_t n)
{
    assert(r->kept && !r->answered && n > 0);
    struct request next = *r;
    next.command = sl_command_find(at[0]);
    next.at = at;
    next.n = n;
    next.key = next.id = next.extra = (struct sl_bytes){NULL, 0};
    next.ticket = 0;
    next.kept = next.notify = false;
    assert(next.command != NULL);
    if (!has_block(r->s, block_bytes(&next))) return NULL;
    struct request *k = sl_request_keep(&next);
    detach(r);
    free_block(r);
    return k;
}

uint64_t sl_request_ticket(struct request *r)
{
    if (r->ticket == 0) r->ticket = ++r->s->last_ticket;
    return r->ticket;
}

struct request *sl_request_find(const struct server *s, uint64_t ticket)
{
    const struct sl_bytes key = {(const char *)&ticket, sizeof ticket};
    return sl_index_find(&s->requests, key, sl_hash_u64(ticket, s->requests.seed));
}

struct request *sl_request_find_notify(const struct conn *c, struct sl_bytes key,
                                       struct sl_bytes id)
{
    const struct sl_index *x = &c->server->notifies;
    const struct notify_name n = {c, key, id};
    if (c->notify_count == 0) return NULL;
    return sl_index_find(x, (struct sl_bytes){(const char *)&n, sizeof n},
                         hash_of_name(x, &n));
}

/* --- Answers ----------------------------------------------------------------- */

struct call sl_request_call(const struct request *r)
{
    return (struct call){.c = r->c,
                         .s = r->s,
                         .out = sl_conn_out(r->c),
                         .command = r->command,
                         .at = r->at,
                         .n = r->n,
                         .queued = r->queued ? r : NULL,
                         .begun = r->begun,
                         .tx = (r->command->flags & SL_TX) != 0 ? r->command->name
                                                                : NULL};
}

struct sl_resp_writer *sl_request_out(struct request *r)
{
    assert(r->kept && !r->answered);
    struct call call = sl_request_call(r);
    sl_call_begin(&call);
    return call.out;
}

void sl_request_end(struct request *r)
{
    struct conn *c = r->c;
    assert(!r->answered);
    r->answered = true;
    if (!r->kept) return;
    bool blocked = !r->queued;
    if (r->queued && c->proxy != NULL) sl_proxy_outcome(r);
    detach(r);
    free_block(r);
    if (blocked) sl_conn_unblock(c);
}

void sl_request_answer(struct request *r, const struct answer *a)
{
    assert(!r->answered && r->kept == (r->call == NULL));
    assert(a->status != SLUICE_OK || r->verb != SL_VERB_ACQUIRE || a->grant != NULL);
    if (!r->kept) {
        sl_reply(r->call, r, a);
        r->answered = true;
    } else {
        struct call call = sl_request_call(r);
        sl_reply(&call, r, a);
        sl_request_end(r);
    }
}

void sl_request_answer_status(struct request *r, int status)
{
    const struct answer a = {.status = status};
    sl_request_answer(r, &a);
}

void sl_request_answer_number(struct request *r, int64_t number)
{
    const struct answer a = {.status = SLUICE_OK, .number = number};
    sl_request_answer(r, &a);
}

void sl_request_resume(struct request *r)
{
    struct conn *c = r->c;
    assert(!r->answered);
    detach(r);
    if (!r->queued) sl_conn_unblock(c);
    sl_dispatch_again(c, r);
    free_block(r);
}

bool sl_request_came_too_late(struct request *r, const struct sl_grant *g)
{
    struct conn *c = r->c;
    enum sl_parting how = sl_conn_hung_up(c);
    assert(r->kept && !r->answered && r->verb == SL_VERB_ACQUIRE && r->arbiter != NULL);
    if (how == SL_STAYS) return false;
    r->arbiter->kind->take_back(r->arbiter, r, g);
    detach(r);
    free_block(r);
    sl_conn_close(c, how);
    return true;
}

/* --- All requests of a connection -------------------------------------------- */

static void withdraw(struct request *r)
{
    assert(r->arbiter != NULL || r->dropped != NULL);
    if (r->arbiter == NULL) r->dropped(r);
    else r->arbiter->kind->withdraw(r->arbiter, r);
    if (r->arbiter != NULL && (r->command->flags & SL_TX) == 0)
        r->s->stats.waits_abandoned++;
    detach(r);
    free_block(r);
}

void sl_request_withdraw_all(struct conn *c)
{
    struct sl_list *lists[] = {&c->requests, &c->notifies};
    for (size_t i = 0; i < 2; i++)
        while (!sl_list_empty(lists[i]))
            withdraw(sl_container_of(lists[i]->next, struct request, of_conn));
}

void sl_request_cancelled(const struct request *cancel)
{
    struct request *r = sl_request_find_notify(cancel->c, cancel->key, cancel->id);
    if (r != NULL) withdraw(r);
}

struct refusal {
    bool withdrew; /* An arbiter has withdrawn a request. */
    bool stays;    /* A commit is in progress, and its client must learn the outcome. */
};

static void refuse_all(struct sl_list *all, struct refusal *x)
{
    struct sl_list *next;
    for (struct sl_list *i = all->next; i != all; i = next) {
        struct request *r = sl_container_of(i, struct request, of_conn);
        struct arbiter *a = r->arbiter;
        next = i->next;
        if (a == NULL) r->dropped(r);
        else if (a->kind->must_finish != NULL && a->kind->must_finish(a, r)) {
            x->stays = true;
            continue;
        } else {
            a->kind->withdraw(a, r);
            x->withdrew = true;
        }
        sl_resp_problem(sl_request_out(r), "SHUTDOWN", SL_SHUTDOWN_TEXT);
        sl_request_end(r);
    }
}

void sl_request_refuse_all(struct conn *c)
{
    struct refusal x = {0};
    refuse_all(&c->requests, &x);
    refuse_all(&c->notifies, &x);
    /* The session has no request left. */
    if (x.withdrew && !x.stays) sl_arbiters_leave(c, SL_SAID_BYE);
}

bool sl_request_all_brief(const struct conn *c)
{
    for (const struct sl_list *i = c->requests.next; i != &c->requests; i = i->next) {
        const struct request *r = sl_container_of(i, const struct request, of_conn);
        if (r->arbiter == NULL || !r->arbiter->kind->is_brief(r->arbiter, r))
            return false;
    }
    return !sl_list_empty(&c->requests);
}

sl_ms sl_request_age_ms(const struct request *r)
{
    return r->s->now.ms - r->arrived_ms;
}

/* --- Invariants ---------------------------------------------------------------- */

static void check_one(const struct server *s, const struct conn *c,
                      const struct request *r)
{
    const struct sl_list *place = &r->place;
    assert(r->kept && !r->answered && r->call == NULL);
    assert(r->s == s && r->c == c && !c->closing);
    assert(place->next->prev == place && place->prev->next == place);
    assert((r->arbiter == NULL) == (r->verb == SL_VERB_NONE));
    if (r->arbiter == NULL) assert(r->dropped != NULL);
    else assert(r->arbiter->s == s && (r->command->flags & SL_REQUEST) != 0);
    assert(sl_request_find(s, r->ticket) == r && (r->notify || !r->queued));
    assert(!r->notify || sl_request_find_notify(c, r->key, r->id) == r);
    assert(r->size >= block_bytes(r) && r->arrived_ms <= s->now.ms);
}

static size_t check_list(const struct server *s, const struct conn *c,
                         const struct sl_list *all, size_t *bytes)
{
    size_t count = 0;
    for (const struct sl_list *i = all->next; i != all; i = i->next) {
        const struct request *r = sl_container_of(i, const struct request, of_conn);
        check_one(s, c, r);
        assert(r->queued == (all == &c->notifies));
        count++;
        *bytes += r->size;
    }
    return count;
}

void sl_request_check(const struct server *s)
{
    size_t blocked = 0, notified = 0, bytes = 0;
    for (const struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        const struct conn *c = sl_container_of(n, const struct conn, all);
        bytes += c->counted_bytes;
        blocked += check_list(s, c, &c->requests, &bytes);
        notified += check_list(s, c, &c->notifies, &bytes);
    }
    assert(blocked == s->blocked_count && notified <= s->notifies.count);
    assert(blocked + notified == s->requests.count && bytes == s->buffer_bytes);
}
