/* commands_server.c - the commands about the server: COMMAND, INFO, CONFIG, SHUTDOWN. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/glob.h"
#include "server/arbiter/majority.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/command/dispatch.h"
#include "server/forward/forward.h"
#include "server/net/links.h"
#include "server/observe/memory.h"

/* --- COMMAND -------------------------------------------------------------- */

static void put_flags(struct sl_resp_writer *w, unsigned flags)
{
    static const struct {
        unsigned flag;
        const char *word;
    } words[] = {{SL_READ, "readonly"}, {SL_WRITE, "write"},   {SL_BLOCK, "blocking"},
                 {SL_ADMIN, "admin"},   {SL_EARLY, "no_auth"}, {SL_LISTEN, "pubsub"},
                 {SL_GROW, "denyoom"}};
    flags &= SL_READ | SL_WRITE | SL_BLOCK | SL_ADMIN | SL_EARLY | SL_LISTEN | SL_GROW;
    sl_resp_array(w, (size_t)__builtin_popcount(flags));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((flags & words[i].flag) != 0) sl_resp_simple(w, words[i].word);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static void put_lower(struct sl_resp_writer *w, const char *name)
{
    char text[40];
    size_t n = 0;
    for (; name[n] != '\0' && n < sizeof text - 1; n++) text[n] = lower(name[n]);
    sl_resp_bulk(w, (struct sl_bytes){text, n});
}

/* As Redis 7 answers: ten fields, of which the last four are of no use here. */
static void put_command(struct sl_resp_writer *w, const struct command *c)
{
    sl_resp_array(w, 10);
    put_lower(w, c->name);
    sl_resp_integer(w, c->min == c->max ? (int64_t)c->min : -(int64_t)c->min);
    put_flags(w, c->flags);
    sl_resp_integer(w, (int64_t)c->key);
    sl_resp_integer(w, (int64_t)c->key);
    sl_resp_integer(w, c->key != 0 ? 1 : 0);
    for (int i = 0; i < 4; i++) sl_resp_array(w, 0);
}

/* redis-cli builds its help from this; what follows the name is one argument to it. */
static void put_docs(struct sl_resp_writer *w, const struct command *c)
{
    const char *rest = strchr(c->syntax, ' ');
    put_lower(w, c->name);
    sl_resp_map(w, rest != NULL ? 4 : 3);
    sl_resp_text(w, "summary");
    sl_resp_text(w, c->summary);
    sl_resp_text(w, "since");
    sl_resp_text(w, "0.1.0");
    sl_resp_text(w, "group");
    sl_resp_text(w, c->group);
    if (rest == NULL) return;
    sl_resp_text(w, "arguments");
    sl_resp_array(w, 1);
    sl_resp_map(w, 3);
    sl_resp_text(w, "name");
    sl_resp_text(w, rest + 1);
    sl_resp_text(w, "type");
    sl_resp_text(w, "string");
    sl_resp_text(w, "display_text");
    sl_resp_text(w, rest + 1);
}

static void command_info(struct call *call)
{
    struct sl_resp_writer *w = call->out;
    if (call->n <= 2) {
        sl_resp_array(w, sl_command_count);
        for (size_t i = 0; i < sl_command_count; i++) put_command(w, &sl_commands[i]);
        return;
    }
    sl_resp_array(w, call->n - 2);
    for (size_t i = 2; i < call->n; i++) {
        const struct command *c = sl_command_find(call->at[i]);
        if (c != NULL) put_command(w, c);
        else sl_resp_null_array(w);
    }
}

static void command_docs(struct call *call)
{
    struct sl_resp_writer *w = call->out;
    size_t known = 0;
    for (size_t i = 2; i < call->n; i++)
        if (sl_command_find(call->at[i]) != NULL) known++;
    sl_resp_map(w, call->n <= 2 ? sl_command_count : known);
    for (size_t i = 0; call->n <= 2 && i < sl_command_count; i++)
        put_docs(w, &sl_commands[i]);
    for (size_t i = 2; i < call->n; i++) {
        const struct command *c = sl_command_find(call->at[i]);
        if (c != NULL) put_docs(w, c);
    }
}

void sl_do_command(struct call *call)
{
    sl_call_cost(call, 50);
    if (call->n == 1 || sl_word_is(call->at[1], "INFO")) command_info(call);
    else if (call->n == 2 && sl_word_is(call->at[1], "COUNT"))
        sl_resp_integer(call->out, (int64_t)sl_command_count);
    else if (sl_word_is(call->at[1], "DOCS")) command_docs(call);
    else if (call->n == 2 && sl_word_is(call->at[1], "LIST")) {
        sl_resp_array(call->out, sl_command_count);
        for (size_t i = 0; i < sl_command_count; i++)
            put_lower(call->out, sl_commands[i].name);
    } else sl_say_syntax(call, "COUNT, LIST, INFO or DOCS");
}

/* --- INFO ----------------------------------------------------------------- */

/* The text of INFO, of any length. */
struct text {
    FILE *file;
    char *at;
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void line(struct text *t,
                                                       const char *format, ...)
{
    va_list args;
#ifdef MUT_INFOBYTES
    if (ftell(t->file) > 4096) return;
#endif
    va_start(args, format);
    vfprintf(t->file, format, args);
    va_end(args);
    fputs("\r\n", t->file);
}

static void info_server(const struct server *s, struct text *t)
{
    line(t, "sluice_version:" SLUICE_VERSION);
    line(t, "redis_version:7.0.0"); /* Whose protocol this is, for clients that look. */
    line(t, "redis_mode:standalone");
    line(t, "process_id:%d", (int)getpid());
    line(t, "tcp_port:%d", s->port);
    line(t, "uptime_in_seconds:%" PRId64, (s->now.ms - s->stats.started_ms) / 1000);
    line(t, "config_file:%s", s->settings->config);
}

static void info_clients(const struct server *s, struct text *t)
{
    size_t listening = 0;
    for (const struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        const struct conn *c = sl_container_of(n, struct conn, all);
        if (sl_subscriber_listens(&c->subscriber)) listening++;
    }
    line(t, "connected_clients:%zu", s->conn_count);
    line(t, "maxclients:%" PRId64, s->settings->connections_max);
    line(t, "blocked_clients:%zu", s->blocked_count);
    line(t, "pubsub_clients:%zu", listening);
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

static void info_memory(const struct server *s, struct text *t)
{
    struct sl_table_stats table;
    size_t resident = resident_bytes();
    sl_table_stats(s->table, &table);
    /* What malloc() has given out it counts by walking through all that is free, for many
     * milliseconds. So both are what the system has given us. */
    line(t, "used_memory:%zu", resident);
    line(t, "used_memory_rss:%zu", resident);
    line(t, "client_bytes:%zu", sl_memory_used(s));
    line(t, "maxmemory:%" PRId64, s->settings->memory_max);
    line(t, "table_index_bytes:%zu", table.bytes);
}

static void info_stats(const struct server *s, struct text *t)
{
#define X(name, field) line(t, #name ":%" PRIu64, s->stats.field);
    SL_COUNTERS(X)
#undef X
    line(t, "pubsub_channels:%zu", s->pubsub.channels.count);
    line(t, "pubsub_patterns:%zu", s->pubsub.pattern_count);
}

/* Zero where this server is alone. */
static struct sl_node_stats node_stats(const struct server *s)
{
    struct sl_node_stats stats = {0};
    if (s->majority != NULL) sl_node_stats(sl_majority_node(s), s->now, &stats);
    return stats;
}

static void info_locks(const struct server *s, struct text *t)
{
    struct sl_table_stats table;
    sl_table_stats(s->table, &table);
    if (s->majority != NULL && s->forward == NULL) { /* Else it is the keeper's. */
        struct sl_node_stats node = node_stats(s);
        table.keys = node.keys;
        table.entries = node.leases + node.requests;
        table.waiters = node.requests;
        table.fence_last = node.fence_last;
    }
    line(t, "keys:%zu", table.keys);
    line(t, "entries:%zu", table.entries);
    line(t, "waiters:%zu", table.waiters);
    line(t, "drains:%zu", table.drains);
    line(t, "fence_last:%" PRIu64, table.fence_last);
}

static void look_at_node(const struct server *s, struct sl_state_view *v)
{
    struct sl_majority_view c;
    struct sl_node_stats stats = node_stats(s);
    sl_majority_inspect_file(s, &c);
    *v = (struct sl_state_view){.directory = c.directory,
                                .recovering_ms = stats.silent_ms,
                                .fence_limit = stats.fence_limit,
                                .lease_longest_ms = stats.lease_longest_ms,
                                .writes = c.writes,
                                .errors = c.errors};
}

static void info_persistence(const struct server *s, struct text *t)
{
    struct sl_state_view v;
    sl_state_inspect(s, &v);
    if (s->majority != NULL && s->forward == NULL) look_at_node(s, &v);
    else if (s->majority != NULL) {
        struct sl_majority_view c;
        sl_majority_inspect_file(s, &c);
        v.directory = c.directory;
    }
    line(t, "loading:0");
    line(t, "data:%s", v.directory);
    line(t, "recovering_ms:%" PRId64, v.recovering_ms);
    line(t, "fence_limit:%" PRIu64, v.fence_limit);
    line(t, "lease_longest_ms:%" PRId64, v.lease_longest_ms);
    line(t, "restored_grants:%" PRIu64, v.restored);
    line(t, "state_writes:%" PRIu64, v.writes);
    line(t, "state_errors:%" PRIu64, v.errors);
    line(t, "deferred_commands:%zu", v.deferred);
}

static void info_cluster(const struct server *s, struct text *t)
{
    static const struct sl_membership none;
    struct sl_majority_view c = {0};
    struct sl_node_stats n = node_stats(s);
    struct sl_links_view links;
    const struct sl_membership *list = &none;
    sl_links_view(s, &links);
    if (s->majority != NULL) {
        sl_majority_inspect_file(s, &c);
        list = sl_node_membership(sl_majority_node(s));
    }
    line(t, "node:%" PRId64, s->settings->node);
    line(t, "nodes:%" PRIu32, list->count);
    line(t, "nodes_up:%" PRIu32, c.nodes_up);
    line(t, "links_again:%" PRIu64, links.reconnects);
    line(t, "links_refused:%" PRIu64, links.refused);
    line(t, "links_unread:%" PRIu64, links.unread);
    line(t, "nodes_version:%" PRIu64, list->version);
    line(t, "nodes_changing:%d", n.changing);
    /* An operator waits for this before the next node is restarted. */
    line(t, "silent_ms:%" PRId64, n.silent_ms > 0 ? n.silent_ms : n.learning_ms);
    line(t, "answer_ms:%" PRId64, n.answer_ms);
    line(t, "leases:%zu", n.leases);
    line(t, "requests:%zu", n.requests);
    line(t, "attempts:%" PRIu64, n.attempts);
    line(t, "agreed:%" PRIu64, n.grants);
    line(t, "splits:%" PRIu64, n.splits);
    line(t, "timeouts:%" PRIu64, n.timeouts);
    line(t, "taught:%" PRIu64, n.taught);
}

static void info_keeper(const struct server *s, struct text *t)
{
    struct sl_transactions_view v;
    char cycle[SL_DEADLOCK_TEXT_BYTES] = "";
    const struct sl_deadlock *last = sl_transactions_deadlock(s, 0);
    struct sl_forward_view r;
    const char *trouble = sl_transactions_trouble(s);
    sl_transactions_inspect(s, &v);
    sl_forward_view(s, &r);
    const struct sl_tx_manager_stats *k = &v.keeper;
    const struct sl_storage_stats *e = &v.engine_stats;
    if (last != NULL) sl_deadlock_text(last->of, last->count, cycle);
    line(t, "engine:%s", v.engine);
    line(t, "keeper:%s", v.state);
    line(t, "term:%" PRIu64, s->forward != NULL ? r.term : k->term);
    line(t, "keeper_node:%u", r.keeper);
    line(t, "keeper_way:%d", r.leads || r.open);
    line(t, "authority_ms:%" PRId64, r.authority_ms);
    line(t, "claims:%" PRIu64, r.claims);
    line(t, "ways:%" PRIu64, r.ways);
    line(t, "relayed:%" PRIu64, r.forwarded);
    line(t, "relayed_waiting:%zu", r.queued + r.sent);
    line(t, "relayed_here:%" PRIu64, r.served);
    line(t, "far_connections:%zu", r.far);
    line(t, "ledger:%zu", r.records);
    line(t, "reclaimed:%" PRIu64, r.reclaimed);
    line(t, "reclaims_refused:%" PRIu64, r.refused);
    line(t, "engine_trouble:%s", trouble);
    line(t, "transactions:%zu", k->transactions);
    line(t, "transactions_waiting:%zu", k->waiting);
    line(t, "transaction_locks:%zu", k->locks);
    line(t, "transaction_locks_remembered:%zu", k->remembered);
    line(t, "transactions_begun:%" PRIu64, k->begun);
    line(t, "commits:%" PRIu64, k->committed);
    line(t, "aborts:%" PRIu64, k->aborted);
    line(t, "restarts:%" PRIu64, k->restarted);
    line(t, "barred:%" PRIu64, k->barred);
    line(t, "cycles:%" PRIu64, k->cycles);
    line(t, "last_cycle:%s", cycle);
    line(t, "revision:%" PRIu64, e->revision);
    line(t, "duplicates:%" PRIu64, e->duplicates);
    line(t, "commit_groups:%" PRIu64, e->groups);
    line(t, "store_errors:%" PRIu64, e->errors);
    line(t, "store_keys:%" PRIu64, e->keys);
    line(t, "store_bytes:%" PRIu64, e->bytes_used);
    line(t, "store_bytes_max:%" PRIu64, e->bytes_max);
    line(t, "store_waiting:%zu", e->waiting);
}

static void info_histogram(const char *name, const struct sl_histogram *h,
                           struct text *t)
{
    char buckets[1024];
    size_t n = 0;
    for (unsigned i = 0; i < SL_BUCKETS - 1; i++)
        n += (size_t)snprintf(buckets + n, sizeof buckets - n, "le_%llu=%" PRIu64 ",",
                              i == 0 ? 0ull : 1ull << (i - 1), h->buckets[i]);
    snprintf(buckets + n, sizeof buckets - n, "inf=%" PRIu64,
             h->buckets[SL_BUCKETS - 1]);
    line(t,
         "%s:count=%" PRIu64 ",sum=%" PRIu64 ",p50=%" PRIu64 ",p99=%" PRIu64
         ",max=%" PRIu64,
         name, h->count, h->sum, sl_histogram_at(h, 0.5), sl_histogram_at(h, 0.99),
         h->max);
    line(t, "%s_histogram:%s", name, buckets);
}

static void info_latency(const struct server *s, struct text *t)
{
    const struct sl_stats *st = &s->stats;
    uint64_t recent = st->turn_us_recent[0] > st->turn_us_recent[1]
                          ? st->turn_us_recent[0]
                          : st->turn_us_recent[1];
    info_histogram("wait_ms", &st->wait_ms, t);
    info_histogram("hold_ms", &st->hold_ms, t);
    sl_ms force_ms = sl_answers_force_ms(&st->answers);
    line(t,
         "steal_answer_ms:count=%" PRIu64 ",p50=%" PRId64 ",p99=%" PRId64
         ",auto_ms=%" PRId64,
         st->answers.count, sl_answers_at(&st->answers, 50),
         sl_answers_at(&st->answers, 99), force_ms == SL_NEVER ? -1 : force_ms);
    line(t, "loop_turns:%" PRIu64, st->turns);
    line(t, "loop_cpu_us_total:%" PRIu64, st->turn_us_total);
    line(t, "loop_cpu_us_max:%" PRIu64, st->turn_us_max);
    line(t, "loop_cpu_us_max_10s:%" PRIu64, recent);
}

static const struct {
    const char *name, *title;
    void (*put)(const struct server *s, struct text *t);
} sections[] = {
    {"SERVER", "# Server", info_server},
    {"CLIENTS", "# Clients", info_clients},
    {"MEMORY", "# Memory", info_memory},
    {"STATS", "# Stats", info_stats},
    {"LOCKS", "# Locks", info_locks},
    {"PERSISTENCE", "# Persistence", info_persistence},
    {"CLUSTER", "# Cluster", info_cluster},
    {"KEEPER", "# Keeper", info_keeper},
    {"LATENCY", "# Latency", info_latency},
};

static bool section_wanted(const struct call *call, const char *name)
{
    if (call->n == 1) return true;
    for (size_t i = 1; i < call->n; i++)
        if (sl_word_is(call->at[i], name) || sl_word_is(call->at[i], "ALL") ||
            sl_word_is(call->at[i], "DEFAULT") || sl_word_is(call->at[i], "EVERYTHING"))
            return true;
    return false;
}

void sl_do_info(struct call *call)
{
    struct text t = {0};
    bool first = true;
    t.file = open_memstream(&t.at, &t.n);
    sl_call_cost(call, 100 + call->s->conn_count / 4);
    for (size_t i = 0; t.file != NULL && i < sizeof sections / sizeof *sections; i++) {
        if (!section_wanted(call, sections[i].name)) continue;
        if (!first) line(&t, "%s", "");
        line(&t, "%s", sections[i].title);
        sections[i].put(call->s, &t);
        first = false;
    }
    bool whole = t.file != NULL && !ferror(t.file);
    if (t.file != NULL && fclose(t.file) != 0) whole = false;
    if (whole) sl_resp_bulk(call->out, (struct sl_bytes){t.at, t.n});
    else sl_say_status(call, SLUICE_ENOMEM);
    free(t.at);
}

/* --- CONFIG --------------------------------------------------------------- */

#define GLOBS_MAX 32 /* Of one CONFIG GET: each is compared with each name. */

struct globs {
    size_t n;
    struct sl_glob *at[GLOBS_MAX];
};

/* SLUICE_ENOMEM. */
static int read_globs(const struct call *call, struct globs *out)
{
    char glob[64];
    for (size_t i = 2; i < call->n; i++) {
        size_t n = call->at[i].n;
        if (n > sizeof glob) continue; /* Longer than any name. */
        for (size_t j = 0; j < n; j++) glob[j] = lower(call->at[i].at[j]);
        out->at[out->n] = sl_glob_new((struct sl_bytes){glob, n});
        if (out->at[out->n++] == NULL) return SLUICE_ENOMEM;
    }
    return SLUICE_OK;
}

static bool setting_wanted(const struct globs *globs, const char *name)
{
    const struct sl_bytes b = {name, strlen(name)};
    for (size_t i = 0; i < globs->n; i++)
        if (sl_glob_matches(globs->at[i], b)) return true;
    return false;
}

/* redis-benchmark wants to print these two, and complains if it cannot. They are true. */
static bool of_redis(struct call *call)
{
    bool save = sl_word_is(call->at[2], "SAVE");
    if (call->n != 3 || (!save && !sl_word_is(call->at[2], "APPENDONLY"))) return false;
    sl_resp_map(call->out, 1);
    sl_resp_bulk(call->out, call->at[2]);
    sl_resp_text(call->out, save ? "" : "no");
    return true;
}

static void put_settings(struct call *call, const struct globs *globs)
{
    char value[32];
    size_t n = 0;
    for (size_t i = 0; i < sl_settings_count(); i++)
        if (setting_wanted(globs, sl_settings_name(i))) n++;
    sl_resp_map(call->out, n);
    for (size_t i = 0; i < sl_settings_count(); i++) {
        if (!setting_wanted(globs, sl_settings_name(i))) continue;
        sl_resp_text(call->out, sl_settings_name(i));
        sl_resp_text(call->out,
                     sl_settings_value(call->s->settings, i, value, sizeof value));
    }
}

static void config_get(struct call *call)
{
    struct globs globs = {0};
    if (of_redis(call)) return;
    sl_call_cost(call, 20 * call->n);
    if (read_globs(call, &globs) == SLUICE_OK) put_settings(call, &globs);
    else sl_say_status(call, SLUICE_ENOMEM);
    for (size_t i = 0; i < globs.n; i++) sl_glob_free(globs.at[i]);
}

void sl_do_config(struct call *call)
{
    if (call->n > 2 && call->n <= 2 + GLOBS_MAX && sl_word_is(call->at[1], "GET"))
        config_get(call);
    else
        sl_say_syntax(call,
                      "GET and at most 32 patterns; settings change with a restart");
}

/* --- SHUTDOWN ------------------------------------------------------------- */

void sl_do_shutdown(struct call *call)
{
    if (call->n > 1 && !sl_word_is(call->at[1], "NOSAVE") &&
        !sl_word_is(call->at[1], "SAVE") && !sl_word_is(call->at[1], "NOW")) {
        sl_say_syntax(call, "NOSAVE, SAVE or NOW");
        return;
    }
    /* As with Redis, the end of the connection is the answer. */
    sl_server_stop(call->s, "SHUTDOWN");
}
