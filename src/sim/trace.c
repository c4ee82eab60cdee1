/* trace.c - prints one line for each event: time in milliseconds, actor, action.
 *
 *     [   812.345] n3 > n1 ACQUIRE k0 fence 1700000000812001 lease 300 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

void sim_trace(const struct sim_world *w, const char *format, ...)
{
    va_list args;
    printf("[%7" PRId64 ".%03" PRId64 "] ", w->now_us / 1000, w->now_us % 1000);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void sim_trace_setup(const struct sim_world *w)
{
    char faults[400];
    sim_faults_print(&sim_faults_majority, w->faults, faults, sizeof faults);
    printf("seed %" PRIu64 ": %u nodes, %u keys, %u clients, leases %" PRId64
           " to %" PRId64 " ms, %" PRIu64 " events%s\n",
           w->setup.seed, w->node_count, w->key_count, w->client_count, w->lease_min_ms,
           w->lease_max_ms, w->setup.events,
           w->heal_at > 0 ? ", then it heals and must make progress" : "");
    printf("faults: %s\n", faults[0] ? faults : "none");
    printf("delay 50 to %" PRId64 " us, tail %" PRId64
           " ms, loss %u and doubles %u in 10000, "
           "votes are waited for %" PRId64 " ms at first, keys forgotten after %" PRId64
           " ms\n",
           w->short_us, w->tail_us / 1000, w->loss, w->doubles, w->limits.answer_ms,
           w->limits.forget_ms);
}

static size_t list_text(const struct sl_membership *m, char *out, size_t n)
{
    int at = snprintf(out, n, " list %" PRIu64 " {", m->version);
    for (uint32_t i = 0; i < m->count && (size_t)at < n; i++)
        at += snprintf(out + at, n - (size_t)at, i ? " %u" : "%u", m->at[i].id);
    if ((size_t)at < n) at += snprintf(out + at, n - (size_t)at, "}");
    return (size_t)at;
}

/* Format one field of a message, given by its letter in SL_MESSAGE_MAP. */
static size_t field_text(char field, const struct sl_message *m, char *out, size_t n)
{
    int wrote = 0;
    switch (field) {
        case 'k': wrote = snprintf(out, n, " %.*s", (int)m->key.n, m->key.at); break;
        case 'f':
            if (m->fence) wrote = snprintf(out, n, " fence %" PRIu64, m->fence);
            break;
        case 'L': wrote = snprintf(out, n, " lease %" PRId64, m->lease_ms); break;
        case 'p':
            if (m->priority) wrote = snprintf(out, n, " priority %d", m->priority);
            break;
        case 'F':
            if (m->flags) wrote = snprintf(out, n, " flags %#x", m->flags);
            break;
        case 'V':
            wrote = snprintf(out, n, " %s", sl_vote_verdict_name(m->verdict));
            break;
        case 'c': wrote = snprintf(out, n, " ceiling %" PRIu64, m->ceiling); break;
        case 'l':
        case 't':
            if (m->left_ms) wrote = snprintf(out, n, " left %" PRId64, m->left_ms);
            break;
        case 'b':
            wrote = snprintf(out, n, " ballot %" PRIu64 ".%u", m->ballot.number,
                             m->ballot.id);
            break;
        case 'B':
            wrote = snprintf(out, n, " of %" PRIu64 ".%u", m->ballot2.number,
                             m->ballot2.id);
            break;
        case 'm': return list_text(&m->list, out, n);
        case 'u': wrote = snprintf(out, n, " of %" PRIu64, m->which); break;
        case 'q':
            if (m->request.n)
                wrote = snprintf(out, n, " id %.*s", (int)m->request.n, m->request.at);
            break;
        case 'r': wrote = snprintf(out, n, " #%" PRIu64, m->round); break;
        default: break;
    }
    return wrote > 0 ? (size_t)wrote : 0;
}

void sim_trace_message(const struct sim_world *w, const char *verb, uint32_t from,
                       uint32_t to, const struct sl_message *m)
{
    char text[600] = "";
    size_t at = 0;
    /* Do not print heartbeats: there are too many. */
    if (m->type == SL_MESSAGE_BEAT) return;
    for (const char *f = sl_message_fields(m->type); *f && at < sizeof text - 1; f++)
        at += field_text(*f, m, text + at, sizeof text - at);
    sim_trace(w, "n%u %s n%u %s%s v%" PRIu64, from + 1, verb, to + 1,
              sl_message_name(m->type), text, m->version);
}

const char *sim_verb_name(enum sl_node_verb type)
{
    switch (type) {
        case SL_NODE_ACQUIRE: return "ACQUIRE";
        case SL_NODE_EXTEND: return "EXTEND";
        case SL_NODE_RELEASE: return "RELEASE";
        case SL_NODE_CHECK: return "CHECK";
        case SL_NODE_READ: return "READ";
        case SL_NODE_VOTES: return "EXPLAIN";
        case SL_NODE_AWAIT: return "AWAIT";
        case SL_NODE_BREAK: return "BREAK";
        case SL_NODE_DRAIN: return "DRAIN";
        case SL_NODE_CANCEL: return "CANCEL";
        case SL_NODE_TAKE_BACK: return "TAKE_BACK";
        case SL_NODE_ADD: return "ADD";
        case SL_NODE_REMOVE: return "REMOVE";
    }
    return "?";
}

void sim_trace_ask(const struct sim_world *w, uint32_t c, uint32_t m, uint64_t number,
                   const struct sl_node_request *ask)
{
    char text[200] = "";
    if (ask->type == SL_NODE_ACQUIRE)
        snprintf(text, sizeof text, " lease %" PRId64 " wait %" PRId64 " priority %d%s",
                 ask->lease_ms, ask->wait_ms, ask->priority,
                 ask->steal ? " steal" : "");
    if (ask->type == SL_NODE_EXTEND || ask->type == SL_NODE_RELEASE)
        snprintf(text, sizeof text, " fence %" PRIu64 " lease %" PRId64, ask->fence,
                 ask->lease_ms);
    sim_trace(w, "n%u is asked by c%u: %s %.*s%s (request %" PRIu64 ")", m + 1, c + 1,
              sim_verb_name(ask->type), (int)ask->key.n, ask->key.at, text, number);
}

void sim_trace_write(const struct sim_world *w, uint32_t m,
                     const struct sl_node_durable *d)
{
    char text[300];
    size_t at = list_text(&d->force, text, sizeof text);
    if (d->stored.version != 0 && at < sizeof text) {
        at += (size_t)snprintf(text + at, sizeof text - at, ", stored");
        list_text(&d->stored, text + at, sizeof text - at);
    }
    sim_trace(w,
              "n%u writes: fences to %" PRIu64 ", leases to %" PRId64
              " ms,%s, promised %" PRIu64 ".%u, voted %" PRIu64 ".%u",
              m + 1, d->fence_limit, d->lease_longest_ms, text, d->promised.number,
              d->promised.id, d->accepted.number, d->accepted.id);
}
