/* keeper_trace.c - prints one line for each event: time in milliseconds, actor, action.
 *
 *     [   812.345] n3 > n1 DO session 4 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "sim/keeper.h"

void ksim_trace(const struct ksim_world *w, const char *format, ...)
{
    va_list args;
    printf("[%7" PRId64 ".%03" PRId64 "] ", w->now_us / 1000, w->now_us % 1000);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void ksim_trace_setup(const struct ksim_world *w)
{
    char faults[400];
    sim_faults_print(&ksim_faults, w->faults, faults, sizeof faults);
    printf("seed %" PRIu64 ": keeper cluster, %u nodes on %u machines, %u keys, %u "
           "clients, leases %" PRId64 " to %" PRId64 " ms, lease-volatile %" PRId64
           " ms, linger %" PRId64 " ms, keeper-wait %" PRId64 " ms, %" PRIu64
           " events%s\n",
           w->setup.seed, w->node_count, w->machine_count, w->key_count,
           w->client_count, w->lease_min_ms, w->lease_max_ms, w->volatile_ms,
           w->linger_ms, w->keeper_wait_ms, w->setup.events,
           w->heal_at > 0 ? ", then it heals and must make progress" : "");
    printf("faults: %s\n", faults[0] ? faults : "none");
}

static const char *const names[] = {"NONE",
#define MESSAGE(type, fields) #type,
                                    SL_FAILOVER_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
};

void ksim_trace_message(const struct ksim_world *w, const char *verb, uint32_t from,
                        uint32_t to, const struct sl_failover_message *m)
{
    char text[200] = "";
    int at = 0;
    if (m->type == SL_FAILOVER_CLOCK) return; /* There are too many. */
    if (m->term != 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " term %" PRIu64, m->term);
    if (m->session != 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " session %" PRIu64,
                       m->session);
    if (m->tx != 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " tx %" PRIu64, m->tx);
    if (m->fence + m->grant.fence != 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " fence %" PRIu64,
                       m->fence + m->grant.fence);
    if (m->key.n > 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " %.*s", (int)m->key.n,
                       m->key.at);
    if (m->name.n > 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " %.*s", (int)m->name.n,
                       m->name.at);
    if (m->grant.leased)
        at += snprintf(text + at, sizeof text - (size_t)at, " left %" PRId64,
                       m->grant.left_ms);
    if (m->type == SL_FAILOVER_DOUBT)
        at += snprintf(text + at, sizeof text - (size_t)at, " sight %d", (int)m->sight);
    if (m->type == SL_FAILOVER_GONE && m->gone_count > 0)
        at += snprintf(text + at, sizeof text - (size_t)at, " %" PRIu64 " (%zu)",
                       m->gone[0], m->gone_count);
    ksim_trace(w, "n%u %s n%u %s%s", from + 1, verb, to + 1, names[m->type], text);
}

void ksim_trace_command(const struct ksim_world *w, uint32_t c, uint32_t node,
                        const struct ksim_command *m)
{
    static const char *const verbs[] = {"?",         "ACQUIRE",  "EXTEND",    "RELEASE",
                                        "READ",      "RESET",    "BREAK",     "DRAIN",
                                        "CANCEL",    "TX.BEGIN", "TX.GET",    "TX.PUT",
                                        "TX.COMMIT", "TX.ABORT", "TX.OUTCOME"};
    if (m->verb == KSIM_DRAIN) {
        struct sl_bytes pattern = ksim_pattern(m->pattern);
        ksim_trace(w, "c%u asks n%u: DRAIN %.*s %s (request %" PRIu64 ")", c + 1,
                   node + 1, (int)pattern.n, pattern.at, m->yes ? "ON" : "OFF",
                   m->number);
        return;
    }
    ksim_trace(w,
               "c%u asks n%u: %s k%u fence %" PRIu64 " lease %" PRId64 " wait %" PRId64
               "%s%s%s%s%s%s (request %" PRIu64 ")",
               c + 1, node + 1, verbs[m->verb], m->key, m->fence, m->lease_ms,
               m->wait_ms, m->steal ? " steal" : "", m->shared ? " shared" : "",
               m->yes ? " now" : "", m->id[0] != '\0' ? " id " : "", m->id,
               m->notify ? " notify" : "", m->number);
}
