#include "server/observe/info.h"

#include <inttypes.h>
#include <stdarg.h>
#include <unistd.h>

#include "server/net/conn.h"
#include "server/observe/memory.h"

void sl_info_put(struct sl_info *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(t->file, format, args);
    va_end(args);
    fputs("\r\n", t->file);
}

static void put_server(const struct server *s, struct sl_info *t)
{
    sl_info_put(t, "sluice_version:" SLUICE_VERSION);
    sl_info_put(t, "redis_version:7.0.0"); /* Some clients require the Redis version. */
    sl_info_put(t, "redis_mode:standalone");
    sl_info_put(t, "process_id:%d", (int)getpid());
    sl_info_put(t, "tcp_port:%d", s->port);
    sl_info_put(t, "uptime_in_seconds:%" PRId64,
                (s->now.ms - s->stats.started_ms) / 1000);
    sl_info_put(t, "config_file:%s", s->settings->config);
}

static void put_clients(const struct server *s, struct sl_info *t)
{
    size_t listening = 0;
    for (const struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        const struct conn *c = sl_container_of(n, struct conn, all);
        if (sl_subscriber_listens(&c->subscriber)) listening++;
    }
    sl_info_put(t, "connected_clients:%zu", s->conn_count);
    sl_info_put(t, "maxclients:%" PRId64, s->settings->connections_max);
    sl_info_put(t, "blocked_clients:%zu", s->blocked_count);
    sl_info_put(t, "notify_waits:%zu", s->notifies.count);
    sl_info_put(t, "pubsub_clients:%zu", listening);
}

static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    size_t all, resident = 0;
    if (f == NULL) return 0;
    if (fscanf(f, "%zu %zu", &all, &resident) != 2) resident = 0;
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void put_memory(const struct server *s, struct sl_info *t)
{
    struct sl_table_stats table;
    size_t resident = resident_bytes();
    sl_table_stats(s->table, &table);
    /* Both lines show the resident memory, because malloc() can compute the allocated memory only
     * by walking through all free memory, which takes many milliseconds. */
    sl_info_put(t, "used_memory:%zu", resident);
    sl_info_put(t, "used_memory_rss:%zu", resident);
    sl_info_put(t, "client_bytes:%zu", sl_memory_used(s));
    sl_info_put(t, "maxmemory:%" PRId64, s->settings->memory_max);
    sl_info_put(t, "table_index_bytes:%zu", table.bytes);
}

static void put_stats(const struct server *s, struct sl_info *t)
{
#define X(name, field) sl_info_put(t, #name ":%" PRIu64, s->stats.field);
    SL_COUNTERS(X)
#undef X
    sl_info_put(t, "pubsub_channels:%zu", s->pubsub.channels.count);
    sl_info_put(t, "pubsub_patterns:%zu", s->pubsub.pattern_count);
}

static void put_histogram(const char *name, const struct sl_histogram *h,
                          struct sl_info *t)
{
    char buckets[1024];
    size_t n = 0;
    for (unsigned i = 0; i < SL_BUCKETS - 1; i++)
        n += (size_t)snprintf(buckets + n, sizeof buckets - n, "le_%llu=%" PRIu64 ",",
                              i == 0 ? 0ull : 1ull << (i - 1), h->buckets[i]);
    snprintf(buckets + n, sizeof buckets - n, "inf=%" PRIu64,
             h->buckets[SL_BUCKETS - 1]);
    sl_info_put(t,
                "%s:count=%" PRIu64 ",sum=%" PRIu64 ",p50=%" PRIu64 ",p99=%" PRIu64
                ",max=%" PRIu64,
                name, h->count, h->sum, sl_histogram_at(h, 0.5),
                sl_histogram_at(h, 0.99), h->max);
    sl_info_put(t, "%s_histogram:%s", name, buckets);
}

static void put_latency(const struct server *s, struct sl_info *t)
{
    const struct sl_stats *st = &s->stats;
    uint64_t recent = st->turn_us_recent[0] > st->turn_us_recent[1]
                          ? st->turn_us_recent[0]
                          : st->turn_us_recent[1];
    put_histogram("wait_ms", &st->wait_ms, t);
    put_histogram("hold_ms", &st->hold_ms, t);
    sl_ms force_ms = sl_answers_force_ms(&st->answers);
    sl_info_put(t,
                "steal_answer_ms:count=%" PRIu64 ",p50=%" PRId64 ",p99=%" PRId64
                ",auto_ms=%" PRId64,
                st->answers.count, sl_answers_at(&st->answers, 50),
                sl_answers_at(&st->answers, 99), force_ms == SL_NEVER ? -1 : force_ms);
    sl_info_put(t, "loop_turns:%" PRIu64, st->turns);
    sl_info_put(t, "loop_cpu_us_total:%" PRIu64, st->turn_us_total);
    sl_info_put(t, "loop_cpu_us_max:%" PRIu64, st->turn_us_max);
    sl_info_put(t, "loop_cpu_us_max_10s:%" PRIu64, recent);
}

const struct sl_info_section sl_info_sections[] = {
    {"SERVER", "# Server", put_server},
    {"CLIENTS", "# Clients", put_clients},
    {"MEMORY", "# Memory", put_memory},
    {"STATS", "# Stats", put_stats},
    {"LOCKS", "# Locks", sl_info_put_locks},
    {"PERSISTENCE", "# Persistence", sl_info_put_persistence},
    {"CLUSTER", "# Cluster", sl_info_put_cluster},
    {"KEEPER", "# Keeper", sl_info_put_keeper},
    {"LATENCY", "# Latency", put_latency},
    {0},
};
