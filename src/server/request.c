/* request.c - submits, keeps, answers and withdraws requests. */
#include "server/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/router.h"
#include "server/command/reply.h"
#include "server/forward/proxy.h"

/* The low bits are the number of the request; the others are the session. */
#define TICKET_BITS 16
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

/* Make sure that the spare block has this many bytes. Returns false if out of memory. */
static bool has_block(struct server *s, size_t bytes)
{
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

/* Remove a kept request from its lists and counters; the caller frees it. */
static void detach(struct request *r)
{
    struct server *s = r->s;
    assert(r->kept && !sl_list_empty(&r->of_conn));
    assert(sl_list_empty(
        &r->place)); /* The module that put the request on a list has removed it. */
    assert(s->blocked_count > 0 && s->buffer_bytes >= r->size);
    sl_list_remove(&r->of_conn);
    s->blocked_count--;
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
    for (size_t i = 1; r->key.n > 0 && i < r->n; i++)
        if (r->at[i].at == r->key.at) k->key = args[i];
}

/* --- Keeping, answering and freeing a request -------------------------------- */

sl_ms sl_request_arrival_ms(const struct call *call)
{
    if (call->resumed != NULL) return call->resumed->arrived_ms;
    return sl_proxy_arrived_ms(call->c);
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
    assert(!r->answered && (r->arbiter == NULL) == (r->verb == SL_VERB_NONE));
    if (r->kept) return r;
    if (!sl_request_reserve(r)) return NULL;
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
    sl_list_init(&k->place);
    sl_list_init(&k->of_conn);
    sl_list_append(&k->c->requests, &k->of_conn);
    s->blocked_count++;
    s->buffer_bytes += size;
    return k;
}

struct request *sl_request_replace(struct request *r, const struct sl_bytes *at,
                                   size_t n)
{
    assert(r->kept && !r->answered && n > 0);
    struct request next = *r;
    next.command = sl_command_find(at[0]);
    next.at = at;
    next.n = n;
    next.key = next.extra = (struct sl_bytes){NULL, 0};
    next.ticket = 0;
    next.kept = false;
    assert(next.command != NULL);
    if (!has_block(r->s, block_bytes(&next))) return NULL;
    struct request *k = sl_request_keep(&next);
    detach(r);
    free_block(r);
    return k;
}

uint64_t sl_request_ticket(struct request *r)
{
    const uint64_t mask = (1u << TICKET_BITS) - 1;
    assert(sl_conn_id(r->c) >> (64 - TICKET_BITS) == 0);
    if (r->ticket == 0)
        r->ticket = sl_conn_id(r->c) << TICKET_BITS | (++r->c->ticket_count & mask);
    return r->ticket;
}

struct request *sl_request_find(const struct server *s, uint64_t ticket)
{
    const struct session *n = sl_server_session(s, ticket >> TICKET_BITS);
    if (n == NULL || n->conn == NULL) return NULL;
    struct sl_list *all = &n->conn->requests;
    for (struct sl_list *i = all->next; i != all; i = i->next) {
        struct request *r = sl_container_of(i, struct request, of_conn);
        if (r->ticket == ticket) return r;
    }
    return NULL;
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
                         .tx = (r->command->flags & SL_TX) != 0 ? r->command->name
                                                                : NULL};
}

void sl_request_end(struct request *r)
{
    struct conn *c = r->c;
    assert(!r->answered);
    r->answered = true;
    if (!r->kept) return;
    detach(r);
    free_block(r);
    sl_conn_unblock(c);
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
    sl_conn_unblock(c);
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

void sl_request_withdraw_all(struct conn *c)
{
    while (!sl_list_empty(&c->requests)) {
        struct request *r = sl_container_of(c->requests.next, struct request, of_conn);
        assert(r->arbiter != NULL || r->dropped != NULL);
        if (r->arbiter == NULL) r->dropped(r);
        else r->arbiter->kind->withdraw(r->arbiter, r);
        if (r->arbiter != NULL && (r->command->flags & SL_TX) == 0)
            c->server->stats.waits_abandoned++;
        detach(r);
        free_block(r);
    }
}

void sl_request_refuse_all(struct conn *c)
{
    struct sl_list *next;
    for (struct sl_list *i = c->requests.next; i != &c->requests; i = next) {
        struct request *r = sl_container_of(i, struct request, of_conn);
        struct arbiter *a = r->arbiter;
        next = i->next;
        if (a == NULL) r->dropped(r);
        else if (a->kind->must_finish != NULL && a->kind->must_finish(a, r)) continue;
        else {
            a->kind->withdraw(a, r);
            if (a->kind->leave != NULL) a->kind->leave(a, c, SL_SAID_BYE);
        }
        sl_resp_problem(sl_conn_out(c), "SHUTDOWN", SL_SHUTDOWN_TEXT);
        sl_request_end(r);
    }
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
    assert(r->ticket == 0 || r->ticket >> TICKET_BITS == sl_conn_id(c));
    assert(r->size >= block_bytes(r) && r->arrived_ms <= s->now.ms);
}

void sl_request_check(const struct server *s)
{
    size_t count = 0, bytes = 0;
    for (const struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        const struct conn *c = sl_container_of(n, const struct conn, all);
        bytes += c->counted_bytes;
        for (const struct sl_list *i = c->requests.next; i != &c->requests;
             i = i->next) {
            const struct request *r = sl_container_of(i, const struct request, of_conn);
            check_one(s, c, r);
            count++;
            bytes += r->size;
        }
    }
    assert(count == s->blocked_count && bytes == s->buffer_bytes);
}
