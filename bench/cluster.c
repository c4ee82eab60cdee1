/* cluster.c - what a lease by majority of three nodes costs, beside etcd's own lock on three
 * members; and how long it takes when the nodes are far from each other.
 *
 * One run measures both side by side with the same clients (pack.h), since only ratios mean
 * something on another machine. docs/bench.md explains how to read it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commit.h"
#include "pack.h"
#include "process.h"
#include "programs.h"
#include "sheet.h"

static const char usage[] =
    "usage: cluster [--json] [--quick] [--rounds N] [--only PART]... [--server FILE]\n"
    "               [--etcd FILE]\n"
    "\n"
    "Measures what a lease by majority costs on three nodes, beside the lock of three\n"
    "members of etcd, all in one run of about two minutes.\n"
    "\n"
    "  --json         the same as one JSON object\n"
    "  --quick        a few seconds, to see that it works; the numbers mean little\n"
    "  --rounds N     so many rounds, 1 to 31; 5 without it\n"
    "  --only PART    that part alone: majority, apart; may stand more than once\n"
    "  --server FILE  the server to measure, instead of the one built beside this\n"
    "  --etcd FILE    the etcd to compare with, instead of etcd on the path\n"
    "  --help         this text\n"
    "\n"
    "Exit status: 0 measured, whatever the numbers; 1 something went wrong; 2 usage.\n";

/* clang-format off */
static const char method[] =
    "Method: three nodes of ours and three members of etcd are processes of their own on "
    "loopback, not pinned, with folders on the same disk, and idle unless it is their turn. "
    "etcd has its default settings but for names, folders and ports, and syncs its log. The "
    "clients are one process with one thread and epoll, the same for both, over TCP. In each "
    "round both run once, for the time given above, and who begins changes; before the first "
    "round each runs once for warmth. Given are the median of the rounds and, behind it, the "
    "least and the most. A pair takes a lock and gives it back. Ours: ACQUIRE key LEASE 30000 "
    "WAIT 60000, RELEASE key fence. etcd: POST /v3/lock/lock and /v3/lock/unlock through its "
    "HTTP gateway, one connection for each client, which is kept open, with a lease that was "
    "granted before. A single client is connected to etcd's leader, which is best for it; "
    "many are connected to all three in turns, in both. CPU is user and system time of all "
    "threads of all three, from /proc/PID/task/*/schedstat, before and after a run. That each "
    "lock was granted and given back is checked; what ours answer with NOQUORUM is asked "
    "again, and counts with the time of both. Apart: between the node ports of ours is a "
    "relay that passes everything on 5 ms later, each way; a round trip is a message of 100 "
    "bytes and its echo through the same relay.";
/* clang-format on */

#define DELAY_NS 5000000
#define ECHO_BYTES 100
#define WHICH 2u /* Ours and etcd: the columns. */

static const enum subject_kind kinds[WHICH] = {NODE, ETCD};

enum { MAJORITY, APART, PARTS };
static const char *const part_names[PARTS] = {"majority", "apart"};

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

/* What the options say, and what both parts need. */
struct run {
    struct sheet *sheet;
    char programs[WHICH][512];
    bool without_etcd;
    bool json, quick;
    bool wanted[PARTS], some; /* --only. */
    uint32_t rounds;
    int64_t run_ns;
    double all_s, others_s; /* CPU time in all measured runs; what others had of it. */
    uint64_t again;         /* Commands that were sent again; see pack.h. */
};

/* ---- beside etcd ---- */

enum { CPU, RATE, MEDIAN, P99, ACQUIRE, TABLES };

static void tables_make(struct sheet *s, struct table *t[TABLES])
{
    t[CPU] = sheet_table(s, "majority", "majority_cpu", "CPU of all three",
                         "us per lock and unlock");
    t[RATE] = sheet_table(s, "majority", "majority_rate", "Pairs per second",
                          "of all clients together");
    t[MEDIAN] = sheet_table(s, "majority", "majority_median", "Time of a pair, median",
                            "us; on one key with the wait for the others");
    t[P99] = sheet_table(s, "majority", "majority_p99", "Time of a pair, p99", "us");
    t[ACQUIRE] = sheet_table(s, "majority", "majority_acquire",
                             "Time of an acquire, median", "us");
    for (uint32_t i = 0; i < TABLES; i++) {
        t[i]->better = i == RATE ? MORE : LESS;
        t[i]->why = "This should not be: measure again when the machine is quiet.";
        t[i]->columns = WHICH;
        for (uint32_t k = 0; k < WHICH; k++)
            t[i]->column_names[k] = subject_names[kinds[k]];
        for (uint32_t n = 0; n < SHAPES; n++) table_row(t[i], "%s", shapes[n].name);
    }
}

static void goals_make(struct sheet *s, struct table *t[TABLES])
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

static const char *measure(struct run *r, struct trio *t, struct pack *p,
                           struct pack_result *out, double *cpu_us)
{
    struct cpus cpus = cpus_look();
    double own = own_s();
    struct subject_time before = trio_time(t);
    const char *wrong = pack_run(p, r->run_ns, out);
    struct subject_time after = trio_time(t);
    struct cpus now = cpus_look();
    double trio_s = (double)(after.cpu_ns - before.cpu_ns) / 1e9;
    *cpu_us = trio_s * 1e6 / (double)out->pairs;
    r->again += out->again;
    r->all_s += now.all_s - cpus.all_s;
    r->others_s += now.used_s - cpus.used_s - trio_s - (own_s() - own);
    return wrong;
}

static const char *run_one(struct run *r, struct table *t[TABLES], uint32_t shape,
                           uint32_t column, struct trio *trio, struct pack *p)
{
    struct pack_result out;
    double cpu_us;
    const char *wrong = measure(r, trio, p, &out, &cpu_us);
    if (wrong != NULL) return wrong;
    cell_add(&t[CPU]->cells[shape][column], cpu_us);
    cell_add(&t[RATE]->cells[shape][column], (double)out.pairs * 1e9 / (double)out.ns);
    cell_add(&t[MEDIAN]->cells[shape][column], out.median_us);
    cell_add(&t[P99]->cells[shape][column], out.p99_us);
    cell_add(&t[ACQUIRE]->cells[shape][column], out.acquire_median_us);
    return NULL;
}

/* Both in turns; who begins changes from round to round. */
static const char *run_shape(struct run *r, struct table *t[TABLES], uint32_t shape,
                             struct trio trios[WHICH], uint32_t which)
{
    struct pack *packs[WHICH] = {NULL};
    struct pack_result warm;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < which && wrong == NULL; i++) {
        wrong = pack_open(&packs[i], &trios[i], shapes[shape].clients,
                          shapes[shape].one_key);
        if (wrong == NULL) wrong = pack_run(packs[i], r->run_ns / 2, &warm);
    }
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        for (uint32_t n = 0; n < which && wrong == NULL; n++) {
            uint32_t i = (round + n) % which;
            wrong = run_one(r, t, shape, i, &trios[i], packs[i]);
        }
    for (uint32_t i = 0; i < which; i++) pack_close(packs[i]);
    return wrong;
}

static const char *part_majority(struct run *r)
{
    struct trio trios[WHICH] = {0};
    struct table *t[TABLES];
    uint32_t which = r->without_etcd ? 1 : WHICH;
    const char *wrong = NULL;
    tables_make(r->sheet, t);
    goals_make(r->sheet, t);
    for (uint32_t i = 0; i < TABLES && r->without_etcd; i++)
        cell_skip(&t[i]->cells[0][1], "etcd is not on this machine");
    for (uint32_t i = 0; i < which && wrong == NULL; i++)
        wrong = trio_start(&trios[i], kinds[i], r->programs[i], NULL, 0);
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

static const char *apart_round(struct run *r, struct table *t,
                               const struct relay *relay,
                               struct pack *packs[APART_ROWS])
{
    double trip_us;
    const char *wrong = relay_round_trip(relay, TRIO, ECHO_BYTES, r->quick ? 5 : 100,
                                         &trip_us);
    if (wrong == NULL) cell_add(&t->cells[ROUND_TRIP][0], trip_us / 1e3);
    for (uint32_t i = ONE; i < APART_ROWS && wrong == NULL; i++) {
        struct pack_result out;
        wrong = pack_run(packs[i], r->run_ns, &out);
        if (wrong != NULL) break;
        cell_add(&t->cells[i][0], out.acquire_median_us / 1e3);
        r->again += out.again;
    }
    return wrong;
}

static const char *part_apart(struct run *r)
{
    struct relay relay = {.ways = TRIO + 1}; /* The last one is the echo. */
    struct pack *packs[APART_ROWS] = {NULL};
    struct pack_result warm;
    struct trio trio;
    struct table *t;
    apart_table(r->sheet, &t);
    progress("apart: 5 ms each way");
    const char *wrong = trio_start(&trio, NODE, r->programs[0], &relay, DELAY_NS);
    for (uint32_t i = ONE; i < APART_ROWS && wrong == NULL; i++) {
        wrong = pack_open(&packs[i], &trio, i == ONE ? 1 : 32, false);
        if (wrong == NULL) wrong = pack_run(packs[i], r->run_ns / 4, &warm);
    }
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        wrong = apart_round(r, t, &relay, packs);
    for (uint32_t i = ONE; i < APART_ROWS; i++) pack_close(packs[i]);
    trio_stop(&trio);
    relay_stop(&relay);
    return wrong;
}

/* ---- options ---- */

static int refuse(const char *what, const char *argument)
{
    fprintf(stderr, "bench: %s: %s\n\n%s", what, argument, usage);
    return 2;
}

static bool choose_part(struct run *r, const char *name)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(part_names[i], name) == 0) return r->wanted[i] = r->some = true;
    return false;
}

/* An option with a value: 1, it was good; 0, it was not; -1, there is no such option. */
static int take_value(struct run *r, const char *name, const char *value)
{
    int program = strcmp(name, "--etcd") == 0     ? 1
                  : strcmp(name, "--server") == 0 ? 0
                                                  : -1;
    if (value == NULL) value = "";
    if (strcmp(name, "--rounds") == 0) return (r->rounds = rounds_of(value)) > 0;
    if (strcmp(name, "--only") == 0) return choose_part(r, value);
    if (program < 0) return -1;
    snprintf(r->programs[program], sizeof r->programs[program], "%s", value);
    return *value != '\0';
}

/* 0: go on; -1: that was all; else an exit status. */
static int parse(int argc, char **argv, struct run *r)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--json") == 0) r->json = true;
        else if (strcmp(name, "--quick") == 0) r->quick = true;
        else if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            return -1;
        } else {
            int good = take_value(r, name, argv[i + 1]);
            if (good < 0) return refuse("no such option", name);
            if (argv[++i] == NULL) return refuse("a value is missing", name);
            if (good == 0) return refuse("no such value", argv[i]);
        }
    }
    if (r->rounds == 0) r->rounds = r->quick ? 2 : 5;
    r->run_ns = r->quick ? 50000000 : 2000000000;
    return 0;
}

static const char *find_programs(struct run *r)
{
    static char said[600];
    if (r->programs[0][0] == '\0')
        program_beside(r->programs[0], sizeof r->programs[0],
                       "../src/server/sluice-server");
    if (r->programs[1][0] == '\0')
        snprintf(r->programs[1], sizeof r->programs[1], "etcd");
    if (!program_there(r->programs[0])) {
        snprintf(said, sizeof said, "there is no server at %s: build it first",
                 r->programs[0]);
        return said;
    }
    r->without_etcd = !program_there(r->programs[1]);
    if (r->without_etcd)
        progress("etcd is not here (`tools/deps bench` installs it): without it");
    return NULL;
}

/* ---- all of it ---- */

static const char *measure_all(struct run *r)
{
    const char *(*const measures[PARTS])(struct run *) = {part_majority, part_apart};
    const char *wrong = NULL;
    for (size_t i = 0; i < PARTS && wrong == NULL; i++)
        if (!r->some || r->wanted[i]) wrong = measures[i](r);
    return wrong;
}

static void close_sheet(struct run *r)
{
    struct sheet *s = r->sheet;
    struct table *last = &s->tables[s->table_count - 1];
    if (r->again > 0)
        snprintf(last->note, sizeof last->note,
                 "%llu commands of this run were answered with NOQUORUM, since nodes "
                 "that others keep off the CPU answer late, and were sent again.",
                 (unsigned long long)r->again);
    s->title = "what a lease by majority costs";
    s->method = method;
    s->quick = r->quick;
    s->rounds = r->rounds;
    s->run_ms = (double)r->run_ns / 1e6;
    s->whose = "the CPUs in the part majority";
    if (r->all_s > 0 && r->others_s > 0) s->kept_off = r->others_s / r->all_s;
    if (getloadavg(&s->load_after, 1) != 1) s->load_after = -1;
}

int main(int argc, char **argv)
{
    static struct sheet sheet = {.commit = BENCH_COMMIT};
    static struct run r = {.sheet = &sheet};
    int status = parse(argc, argv, &r);
    if (status != 0) return status < 0 ? 0 : status;
    machine_look(&sheet.machine);
    interrupt_catch();
    signal(SIGPIPE, SIG_IGN);
    const char *wrong = find_programs(&r);
    if (wrong == NULL) wrong = measure_all(&r);
    if (interrupted()) {
        fprintf(stderr, "bench: interrupted; nothing was left behind\n");
        return 128 + interrupt_signal();
    }
    if (wrong != NULL) {
        fprintf(stderr, "bench: %s\n", wrong);
        return 1;
    }
    signal(SIGPIPE, SIG_DFL); /* From here on it is about our own output. */
    close_sheet(&r);
    if (r.json) sheet_json(&sheet);
    else sheet_text(&sheet);
    return fflush(stdout) == 0 ? 0 : 1;
}
