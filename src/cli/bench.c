#include "cli/bench.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench_client.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/server.h"
#include "cli/text.h"
#include "sluice.h"

/* Defaults. */
#define CLIENTS 50
#define KEYS 10000
#define DURATION_MS 10000
#define LEASE_MS 10000

/* How long to wait at the end for the clients to release their locks. */
#define END_MS 5000

#define TICK_MS 20 /* How often to look whether the clients have ended. */
#define PROGRESS_MS 1000

struct bench {
    struct cli_server server;
    struct bench_work work;
    uint32_t clients;
    int64_t duration_ms;
    bool json, quiet;
    char own_prefix[64];

    struct bench_client *client; /* An array with `clients` elements. */
    atomic_bool stop;
    int64_t elapsed_us;
    uint32_t stuck,
        lost; /* Clients that did not end; clients that lost the connection. */
    struct bench_results total;
};

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* --- Options ---------------------------------------------------------------- */

static int take_count(const char *option, const char *value, uint32_t most,
                      uint32_t *out)
{
    uint64_t n;
    char wanted[64];
    if (cli_number(value, 1, most, &n)) {
        *out = (uint32_t)n;
        return 0;
    }
    snprintf(wanted, sizeof wanted, "a number from 1 to %" PRIu32, most);
    return cli_bad_value(option, value, wanted);
}

static int take_prefix(struct bench *b, const char *value)
{
    if (strlen(value) > BENCH_PREFIX_BYTES_MAX)
        return cli_usage_error("--prefix must have at most %u bytes (got %zu)",
                               BENCH_PREFIX_BYTES_MAX, strlen(value));
    b->work.prefix = value;
    return 0;
}

static int take(void *into, int id, const char *value)
{
    struct bench *b = into;
    switch (id) {
        case CLI_OPT_CLIENTS:
            return take_count("--clients", value, BENCH_CLIENTS_MAX, &b->clients);
        case CLI_OPT_KEYS:
            return take_count("--keys", value, BENCH_KEYS_MAX, &b->work.keys);
        case CLI_OPT_PIPELINE:
            return take_count("--pipeline", value, BENCH_PIPELINE_MAX,
                              &b->work.pipeline);
        case 'j': return take_count("-j", value, SLUICE_UNITS_MAX, &b->work.per);
        case 's': b->work.shared = true; return 0;
        case CLI_OPT_DURATION:
            return cli_duration("--duration", value, 1, &b->duration_ms);
        case CLI_OPT_LEASE: return cli_duration("--lease", value, 0, &b->work.lease_ms);
        case 'w': return cli_duration("--wait", value, 0, &b->work.wait_ms);
        case CLI_OPT_PREFIX: return take_prefix(b, value);
        case CLI_OPT_JSON: b->json = true; return 0;
        case 'q': b->quiet = true; return 0;
        default: cli_server_option(&b->server, id, value); return 0;
    }
}

static int check_options(const struct bench *b)
{
    if (b->work.shared && b->work.per > 1)
        return cli_usage_error("-s excludes -j; use one or the other");
    if (b->work.wait_ms > 0 && b->work.pipeline > 1)
        return cli_usage_error(
            "--wait excludes --pipeline: a request that waits blocks "
            "the requests behind it on its connection");
    return 0;
}

/* --- The clients --------------------------------------------------------------- */

static uint32_t running(const struct bench *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->clients; i++)
        /* Acquire: pairs with the release at the end of the client's thread. */
        n += !atomic_load_explicit(&b->client[i].ended, memory_order_acquire);
    return n;
}

static void put_progress(const struct bench *b, int64_t began_us, uint64_t *before)
{
    uint64_t pairs = 0, errors = 0;
    for (uint32_t i = 0; i < b->clients; i++) {
        pairs += atomic_load_explicit(&b->client[i].pairs_so_far, memory_order_relaxed);
        errors += atomic_load_explicit(&b->client[i].errors_so_far,
                                       memory_order_relaxed);
    }
    fprintf(stderr, "\r%" PRId64 " s: %" PRIu64 " pairs/s, %" PRIu64 " errors \033[K",
            (now_us() - began_us) / 1000000, pairs - *before, errors);
    fflush(stderr);
    *before = pairs;
}

/* Wait for one of these signals for a tick. Returns whether one came. */
static bool interrupted(const sigset_t *set)
{
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000L};
    return sigtimedwait(set, NULL, &tick) > 0;
}

/* Let the clients work until the duration has passed, a signal arrives, or none of them is left. */
static void work(struct bench *b, const sigset_t *set, int64_t began_us)
{
    bool shows = !b->quiet && isatty(STDERR_FILENO);
    int64_t end_us = began_us + b->duration_ms * 1000;
    int64_t show_us = began_us + PROGRESS_MS * 1000;
    uint64_t pairs = 0;
    while (now_us() < end_us && running(b) > 0 && !interrupted(set)) {
        if (!shows || now_us() < show_us) continue;
        put_progress(b, began_us, &pairs);
        show_us += PROGRESS_MS * 1000;
    }
    if (shows) fputs("\r\033[K", stderr);
}

/* Wait until the clients have released their locks. */
static void finish(struct bench *b)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    int64_t end_us = now_us() + END_MS * 1000L;
    atomic_store_explicit(&b->stop, true, memory_order_relaxed);
    while ((b->stuck = running(b)) > 0 && now_us() < end_us) nanosleep(&tick, NULL);
}

static void add_up(struct bench *b)
{
    for (uint32_t i = 0; i < b->clients; i++) {
        struct bench_client *c = &b->client[i];
        const struct bench_results *r = &c->results;
        if (!atomic_load_explicit(&c->ended, memory_order_acquire)) continue;
        b->lost += c->lost;
        b->total.grants += r->grants;
        b->total.pairs += r->pairs;
        b->total.taken += r->taken;
        b->total.expired += r->expired;
        for (size_t k = 0; k < BENCH_KINDS_MAX; k++)
            if (r->errors[k].count > 0)
                bench_add_error(&b->total, r->errors[k].kind, strlen(r->errors[k].kind),
                                r->errors[k].count);
        cli_latency_merge(&b->total.acquire, &r->acquire);
        cli_latency_merge(&b->total.release, &r->release);
        cli_latency_merge(&b->total.wait, &r->wait);
    }
}

/* Connect all clients before the first of them begins. */
static int connect_all(struct bench *b)
{
    for (uint32_t i = 0; i < b->clients; i++) {
        struct bench_client *c = &b->client[i];
        const struct sluice_wire_options options = {.resp = 3};
        int status = cli_server_connect(&b->server, options, &c->wire);
        if (status != 0) return status;
        c->work = &b->work;
        c->stop = &b->stop;
        sl_random_seed(&c->random, i);
    }
    return 0;
}

static int run(struct bench *b)
{
    sigset_t set, before;
    int status = connect_all(b);
    if (status != 0) return status;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, &before); /* The threads inherit the mask. */
    int64_t began_us = now_us();
    for (uint32_t i = 0; i < b->clients; i++)
        if (!bench_client_start(&b->client[i])) {
            /* The server ends the sessions when this process ends. */
            cli_message(
                "cannot start client %u: no memory or no thread is available; use "
                "fewer --clients",
                (unsigned)i + 1);
            return CLI_EXIT_SYSTEM;
        }
    work(b, &set, began_us);
    /* From now on, a signal ends the process at once. */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    b->elapsed_us = now_us() - began_us;
    finish(b);
    if (b->stuck == 0) b->elapsed_us = now_us() - began_us;
    add_up(b);
    return 0;
}

/* --- The report ---------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned per_mille;
} percentiles[] = {
    {"p50", 500}, {"p90", 900}, {"p99", 990}, {"p99.9", 999}, {"max", 1000}};

#define PERCENTILES (sizeof percentiles / sizeof *percentiles)

static uint64_t errors_of(const struct bench_results *r)
{
    uint64_t n = 0;
    for (size_t i = 0; i < BENCH_KINDS_MAX; i++) n += r->errors[i].count;
    return n;
}

static double per_second(const struct bench *b)
{
    return (double)b->total.pairs * 1e6 /
           (double)(b->elapsed_us > 0 ? b->elapsed_us : 1);
}

static void text_latency(const char *name, const struct cli_latency *l)
{
    printf("%-10s", name);
    for (size_t i = 0; i < PERCENTILES; i++)
        printf(" %9.3f", (double)cli_latency_at(l, percentiles[i].per_mille) / 1000);
    putchar('\n');
}

static void text_report(const struct bench *b)
{
    const struct bench_results *r = &b->total;
    char shown[CLI_SAFE_SIZE];
    printf("%.1f pairs per second, with %" PRIu32 " clients and %" PRIu32
           " keys in %.1f s\n",
           per_second(b), b->clients, b->work.keys, (double)b->elapsed_us / 1e6);
    printf("granted %" PRIu64 ", released %" PRIu64 ", taken %" PRIu64
           ", expired %" PRIu64 ", errors %" PRIu64 "\n\n",
           r->grants, r->pairs, r->taken, r->expired, errors_of(r));
    printf("%-10s", "ms");
    for (size_t i = 0; i < PERCENTILES; i++) printf(" %9s", percentiles[i].name);
    putchar('\n');
    text_latency("acquire", &r->acquire);
    text_latency("release", &r->release);
    if (b->work.wait_ms > 0) text_latency("wait", &r->wait);
    for (size_t i = 0; i < BENCH_KINDS_MAX && r->errors[i].count > 0; i++)
        printf("%s%-20s %" PRIu64 "\n", i == 0 ? "\nerrors\n" : "",
               cli_safe_text(r->errors[i].kind, shown, sizeof shown),
               r->errors[i].count);
}

static void json_latency(const char *name, const struct cli_latency *l)
{
    printf(",\"%s_us\":{\"count\":%" PRIu64, name, l->count);
    for (size_t i = 0; i < PERCENTILES; i++)
        printf(",\"%s\":%" PRIu64, percentiles[i].name,
               cli_latency_at(l, percentiles[i].per_mille));
    putchar('}');
}

static void json_report(const struct bench *b)
{
    const struct bench_results *r = &b->total;
    fputs("{\"prefix\":", stdout);
    cli_json_string(stdout, b->work.prefix);
    printf(",\"clients\":%" PRIu32 ",\"keys\":%" PRIu32 ",\"pipeline\":%" PRIu32
           ",\"lease_ms\":%" PRId64 ",\"wait_ms\":%" PRId64 ",\"elapsed_ms\":%" PRId64
           ",\"pairs_per_second\":%.1f,\"granted\":%" PRIu64 ",\"released\":%" PRIu64
           ",\"taken\":%" PRIu64 ",\"expired\":%" PRIu64
           ",\"lost_connections\":%" PRIu32 ",\"unfinished_clients\":%" PRIu32,
           b->clients, b->work.keys, b->work.pipeline, b->work.lease_ms,
           b->work.wait_ms, b->elapsed_us / 1000, per_second(b), r->grants, r->pairs,
           r->taken, r->expired, b->lost, b->stuck);
    json_latency("acquire", &r->acquire);
    json_latency("release", &r->release);
    if (b->work.wait_ms > 0) json_latency("wait", &r->wait);
    fputs(",\"errors\":{", stdout);
    for (size_t i = 0; i < BENCH_KINDS_MAX && r->errors[i].count > 0; i++) {
        if (i > 0) putchar(',');
        cli_json_string(stdout, r->errors[i].kind);
        printf(":%" PRIu64, r->errors[i].count);
    }
    puts("}}");
}

/* Print the results. Returns the exit status. */
static int report(const struct bench *b)
{
    if (b->json) json_report(b);
    else text_report(b);
    if (b->lost > 0)
        cli_message("%" PRIu32 " of %" PRIu32 " clients lost their connections",
                    b->lost, b->clients);
    if (b->stuck > 0)
        cli_message("%" PRIu32 " of %" PRIu32
                    " clients still waited for replies after %d s; the results do not "
                    "include them, and locks that they hold end with their leases",
                    b->stuck, b->clients, END_MS / 1000);
    if (b->stuck > 0 || errors_of(&b->total) > 0) return CLI_EXIT_UNAVAILABLE;
    return b->total.pairs > 0 ? 0 : CLI_EXIT_TAKEN;
}

int cli_bench(const struct cli_command *command, int argc, char **argv)
{
    struct bench b = {.work = {.keys = KEYS,
                               .pipeline = 1,
                               .per = 1,
                               .lease_ms = LEASE_MS,
                               .now_us = now_us},
                      .clients = CLIENTS,
                      .duration_ms = DURATION_MS};
    int rest;
    int status = cli_parse(command, argc, argv, false, take, &b, &rest);
    if (status >= 0) return status;
    if (rest < argc)
        return cli_usage_error("too many arguments; usage: sluice %s %s", command->name,
                               command->synopsis);
    status = check_options(&b);
    if (status == 0) status = cli_server_find(&b.server);
    if (status != 0) return status;
    if (b.work.prefix == NULL) {
        snprintf(b.own_prefix, sizeof b.own_prefix,
                 "sluice-bench:%ld:", (long)getpid());
        b.work.prefix = b.own_prefix;
    }
    b.client = calloc(b.clients, sizeof *b.client);
    if (b.client == NULL) return cli_status_error("the clients", SLUICE_ENOMEM);
    status = run(&b);
    if (status == 0) status = report(&b);
    /* Threads that have not ended still use the clients, so they are not freed. */
    return cli_flush_output(status);
}
