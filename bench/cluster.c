/* cluster.c - the cost of a lease by majority of three nodes, compared with etcd's lock on three
 * members; and how long it takes when the nodes are far from each other.
 *
 * One run measures both side by side with the same clients (pack.h), since only ratios mean
 * something on another machine. docs/bench.md explains how to read it. */
#include <stdio.h>

#include "pack.h"
#include "programs.h"
#include "trial.h"

static const char usage[] =
    "usage: cluster [--json] [--quick] [--rounds N] [--only PART]... [--server FILE]\n"
    "               [--etcd FILE]\n"
    "\n"
    "Measures the cost of a lease by majority on three nodes, in comparison with the\n"
    "lock of three members of etcd. Takes about two minutes.\n"
    "\n"
    "  --json         print one JSON object\n"
    "  --quick        run for a few seconds, to test the benchmark; the numbers mean\n"
    "                 little\n"
    "  --rounds N     the number of rounds, 1 to 31; default: 5\n"
    "  --only PART    measure only this part: majority or apart; may be repeated\n"
    "  --server FILE  the server to measure; default: the one in this build directory\n"
    "  --etcd FILE    the etcd to compare with; default: etcd in PATH\n"
    "  --help         print this help\n"
    "\n"
    "Exit status: 0 success, whatever the numbers; 1 failure; 2 wrong usage.\n";

/* clang-format off */
static const char method[] =
    "Method: Clusters. Three nodes of Sluice and three members of etcd, all on loopback, not "
    "pinned, with directories on the same disk (TMPDIR, or /tmp), idle unless it is their "
    "turn. etcd has its default settings except for names, directories and ports, and syncs "
    "its log to disk before it replies. A node of Sluice writes each vote to its journal "
    "before it sends the vote, and syncs the journal only for leases longer than "
    "lease-volatile (60 s), not for these leases of 30 s. Both wait for a majority. Clients. "
    "One process with one thread and epoll (bench/pack.h), over TCP, with prepared requests, "
    "the same for both. A single client is connected to etcd's leader, where etcd is fastest; "
    "in Sluice all nodes are equal. 32 clients are distributed over all three nodes, with a "
    "key each or with one key for all. Pair. A pair acquires a lock and releases it. Sluice: "
    "ACQUIRE key LEASE 30000 WAIT 60000, RELEASE key fence. etcd: POST /v3/lock/lock and "
    "/v3/lock/unlock through its HTTP gateway, on one open connection per client, with a lease "
    "that was granted before the measurement. The benchmark checks that each lock was granted "
    "and released. Rounds. In each round both run once, for the same time, and a different one "
    "begins each round. A warm-up round comes first. The results are the median of the rounds, "
    "followed by the minimum and the maximum. CPU. User and system time of all threads of all "
    "three servers, from /proc/PID/task/*/schedstat before and after a run. NOQUORUM. A node "
    "that gets no CPU replies late. The client retries a command that failed with NOQUORUM. "
    "The time of both attempts counts, and the report states the number of retries. Apart. A "
    "proxy between the node ports (bench/relay.h) delays every message by 5 ms, each way. A "
    "round trip is a message of 100 bytes and its echo through the same proxy. No system that "
    "asks a majority can be faster than one round trip.";
/* clang-format on */

#define DELAY_NS 5000000
#define ECHO_BYTES 100
#define WHICH 2u /* Ours and etcd: the columns. */

static const struct shape {
    const char *id, *name;
    uint32_t clients;
    bool one_key;
} shapes[] = {
    {"1", "1 client", 1, false},
    {"32", "32 clients, own keys", 32, false},
    {"32_one", "32 clients, one key", 32, true},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* ---- compared with etcd ---- */

static const struct trial_heading headings[TRIAL_TABLES] = {
    [RATE] = {"majority_rate", "Pairs per second", "of all clients together"},
    [MEDIAN] = {"majority_median", "Time of a pair, median",
                "us; with one key, including the wait"},
    [P99] = {"majority_p99", "Time of a pair, p99", "us"},
    [ACQUIRE] = {"majority_acquire", "Time of an acquire, median", "us"},
    [CPU] = {"majority_cpu", "CPU of all three", "us per lock and unlock"},
};

static void goals_make(struct sheet *s, struct table *t[TRIAL_TABLES])
{
    static char ids[SHAPES][2][40];
    for (uint32_t n = 0; n < SHAPES; n++) {
        const struct cell *rate = t[RATE]->cells[n], *cpu = t[CPU]->cells[n];
        snprintf(ids[n][0], sizeof ids[n][0], "majority_rate_%s_to_etcd", shapes[n].id);
        snprintf(ids[n][1], sizeof ids[n][1], "majority_cpu_%s_to_etcd", shapes[n].id);
        sheet_least(s, ids[n][0], &rate[0], &rate[1], shapes[n].one_key ? 0 : 10,
                    "Pairs per second, Sluice / etcd, %s", shapes[n].name);
        sheet_goal(s, ids[n][1], &cpu[0], &cpu[1], 0, 0,
                   "CPU of a pair, Sluice / etcd, %s", shapes[n].name);
    }
}

static const char *run_pack(void *of, int64_t run_ns, struct trial_result *out)
{
    return pack_run(of, run_ns, out);
}

static const char *run_shape(struct trial *r, struct table *t[TRIAL_TABLES], uint32_t n,
                             struct trio trios[WHICH], uint32_t which)
{
    struct pack_want want = {.clients = shapes[n].clients,
                             .lease_ms = 30000,
                             .one_key = shapes[n].one_key,
                             .at = shapes[n].clients == 1 ? PACK_BEST : PACK_ALL};
    struct pack *packs[WHICH] = {NULL};
    struct side sides[WHICH] = {{.run = run_pack}, {.run = run_pack}};
    const char *wrong = NULL;
    for (uint32_t i = 0; i < which && wrong == NULL; i++) {
        wrong = pack_open(&packs[i], &trios[i], &want);
        sides[i].of = packs[i];
        trio_serve(&trios[i], &sides[i]);
    }
    if (wrong == NULL) wrong = trial_warm(r, sides, which);
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        wrong = trial_round(r, sides, which, t, n, round);
    for (uint32_t i = 0; i < which; i++) pack_close(packs[i]);
    return wrong;
}

static const char *part_majority(struct trial *r)
{
    static const char *const columns[WHICH] = {"Sluice", "etcd"};
    const struct trio_want wants[WHICH] = {{.kind = NODE, .program = r->server},
                                           {.kind = ETCD, .program = r->etcd}};
    struct trio trios[WHICH] = {0};
    struct table *t[TRIAL_TABLES];
    uint32_t which = r->without_etcd ? 1 : WHICH;
    const char *wrong = NULL;
    trial_tables(r->sheet, "majority", headings, columns, WHICH,
                 "Unexpected: repeat on an idle machine.", t);
    for (uint32_t n = 0; n < SHAPES; n++) trial_row(t, shapes[n].name);
    goals_make(r->sheet, t);
    if (r->without_etcd) cell_skip(&t[RATE]->cells[0][1], "etcd is not installed");
    for (uint32_t i = 0; i < which && wrong == NULL; i++)
        wrong = trio_start(&trios[i], &wants[i]);
    for (uint32_t n = 0; n < SHAPES && wrong == NULL; n++) {
        progress("majority: %s", shapes[n].name);
        wrong = run_shape(r, t, n, trios, which);
    }
    for (uint32_t i = 0; i < which; i++) trio_stop(&trios[i]);
    return wrong;
}

/* ---- far from each other ---- */

enum { ROUND_TRIP, ONE, MANY, APART_ROWS };

static void apart_table(struct sheet *s, struct table **out)
{
    static const char *const rows[APART_ROWS] = {"one round trip", "ACQUIRE, 1 client",
                                                 "ACQUIRE, 32 clients"};
    struct table *t = sheet_table(s, "apart", "apart", "Nodes 5 ms apart, each way",
                                  "ms, median");
    t->columns = 1;
    t->column_names[0] = subject_names[NODE];
    for (uint32_t i = 0; i < APART_ROWS; i++) table_row(t, "%s", rows[i]);
    const struct cell *trip = &t->cells[ROUND_TRIP][0];
    sheet_goal(s, "apart_1_to_round_trip", &t->cells[ONE][0], trip, 1.2, 0,
               "Nodes apart: ACQUIRE / one round trip, 1 client");
    sheet_goal(s, "apart_32_to_round_trip", &t->cells[MANY][0], trip, 1.2, 0,
               "Nodes apart: ACQUIRE / one round trip, 32 clients, own keys");
    *out = t;
}

static const char *apart_round(struct trial *r, struct table *t,
                               const struct relay *relay,
                               struct pack *packs[APART_ROWS])
{
    double trip_us;
    const char *wrong = relay_round_trip(relay, TRIO, ECHO_BYTES, r->quick ? 5 : 100,
                                         &trip_us);
    if (wrong == NULL) cell_add(&t->cells[ROUND_TRIP][0], trip_us / 1e3);
    for (uint32_t i = ONE; i < APART_ROWS && wrong == NULL; i++) {
        struct trial_result out;
        wrong = pack_run(packs[i], r->run_ns, &out);
        if (wrong != NULL) break;
        cell_add(&t->cells[i][0], out.acquire_us / 1e3);
        r->again += out.again;
    }
    return wrong;
}

static const char *part_apart(struct trial *r)
{
    struct relay relay = {.ways = TRIO + 1}; /* The last one is the echo. */
    struct pack *packs[APART_ROWS] = {NULL};
    struct trial_result warm;
    struct trio trio;
    struct table *t;
    apart_table(r->sheet, &t);
    progress("apart: 5 ms each way");
    const struct trio_want want = {
        .kind = NODE, .program = r->server, .relay = &relay, .delay_ns = DELAY_NS};
    const char *wrong = trio_start(&trio, &want);
    for (uint32_t i = ONE; i < APART_ROWS && wrong == NULL; i++) {
        struct pack_want clients = {.clients = i == ONE ? 1 : 32,
                                    .lease_ms = 30000,
                                    .at = i == ONE ? PACK_BEST : PACK_ALL};
        wrong = pack_open(&packs[i], &trio, &clients);
        if (wrong == NULL) wrong = pack_run(packs[i], r->run_ns / 4, &warm);
    }
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        wrong = apart_round(r, t, &relay, packs);
    for (uint32_t i = ONE; i < APART_ROWS; i++) pack_close(packs[i]);
    trio_stop(&trio);
    relay_stop(&relay);
    return wrong;
}

int main(int argc, char **argv)
{
    static const struct trial_program program = {
        .usage = usage,
        .title = "the cost of leases by majority",
        .method = method,
        .whose = "the CPUs during part majority",
        .parts = {{"majority", part_majority}, {"apart", part_apart}},
        .run_ns = 2000000000,
        .quick_ns = 50000000,
        .etcd = true};
    return trial_main(argc, argv, &program);
}
