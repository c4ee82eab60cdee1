/* keeper.c - the cost of a cluster with a keeper, on three nodes and three members of etcd: its
 * locks compared with etcd's, its commits, and the time from the kill of the keeper to the first
 * commit of the next one.
 *
 * Locks and commits are measured at the keeper's node and at another node. The difference is the
 * cost of forwarding a command. docs/bench.md explains how to read the report. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crowd.h"
#include "pack.h"
#include "process.h"
#include "programs.h"
#include "trial.h"

static const char usage[] =
    "usage: keeper [--json] [--quick] [--rounds N] [--only PART]... [--server FILE]\n"
    "              [--etcd FILE]\n"
    "\n"
    "Measures three nodes on three members of etcd: locks of the keeper, in "
    "comparison\n"
    "with locks of etcd; commits; and the time until the next commit after the keeper\n"
    "was killed. Takes about three minutes. TMPDIR, or /tmp, should be on a disk.\n"
    "\n"
    "  --json         print one JSON object\n"
    "  --quick        run for a few seconds, to test the benchmark; the numbers mean\n"
    "                 little\n"
    "  --rounds N     the number of rounds, 1 to 31; default: 5\n"
    "  --only PART    measure only this part: keeperlocks, keepercommits or failover;\n"
    "                 may be repeated\n"
    "  --server FILE  the server to measure; default: the one in this build directory\n"
    "  --etcd FILE    the etcd to use; default: etcd in PATH\n"
    "  --help         print this help\n"
    "\n"
    "Exit status: 0 success, whatever the numbers; 1 failure; 2 wrong usage.\n";

/* clang-format off */
static const char method[] =
    "Method: Cluster. Three nodes of Sluice on three members of etcd, all on loopback, not "
    "pinned, with directories on the same disk (TMPDIR, or /tmp). etcd has its default "
    "settings except for names, directories and ports, and syncs its log to disk before it "
    "replies: the time of fsync counts in a commit, in a lock of etcd and in a long lease. "
    "The keeper writes a long lease to etcd before it replies. A short lease, of at most "
    "lease-volatile (10 s), is in the memory of two nodes, the keeper and another one, before "
    "the client gets the reply. etcd confirms in advance how long the keeper may grant locks. "
    "Clients. One process with one thread and epoll, "
    "over TCP, all connected to the keeper's node, or all to one other node, which forwards "
    "their commands. Rounds. In each round all columns run once, for the same time, and a "
    "different one begins each round. A warm-up round comes first. The results are the median "
    "of the rounds, followed by the minimum and the maximum. Locks. A pair acquires a lock "
    "and releases it. Sluice: ACQUIRE key LEASE 5000 WAIT 60000, RELEASE key fence; long "
    "leases: LEASE 30000. etcd: "
    "POST /v3/lock/lock and /v3/lock/unlock through its HTTP gateway, on the same three "
    "members, on one open connection per client, with a lease that was granted before the "
    "measurement. A single client is connected to etcd's leader, where etcd is fastest; "
    "several are distributed over all three. CPU is user and system time of all servers that "
    "take part: of the members and, for Sluice, of the nodes. Commits. TX.BEGIN, TX.PUT of "
    "one row (17-byte key, 22-byte value) and TX.COMMIT in one write; each client has 100 "
    "keys of its own. Group of 1: three other nodes on the same members, with another prefix "
    "and tx-group-max 1, so that each commit is its own etcd transaction; their clients are "
    "connected to the keeper. CPU is of members, nodes and clients together. Failover. One "
    "client commits through a node that is not the keeper. The keeper is killed with SIGKILL. "
    "The time is from before the kill until the reply to the commit of a transaction that "
    "began after the kill; the client retries failed commands at once. The benchmark checks "
    "that the term is new. Then it starts the killed node again and, when all three nodes "
    "know the new keeper, kills the new keeper. A killed process closes its connections, so "
    "other nodes notice at once. They notice a machine that disappears after 3 s; this is not "
    "measured.";
/* clang-format on */

#define CHANGES 20u /* The number of times that the keeper is killed. */

/* The message of a part if etcd is not installed. */
static const char absent[] = "etcd is not installed";

/* ---- starting ---- */

static const char *start_etcd(struct trial *r, struct trio *etcd)
{
    const struct trio_want want = {.kind = ETCD, .program = r->etcd};
    return trio_start(etcd, &want);
}

static const char *start_nodes(struct trial *r, struct trio *nodes,
                               const struct trio *etcd, const char *prefix,
                               const char *const *options)
{
    const struct trio_want want = {.kind = NODE,
                                   .program = r->server,
                                   .etcd = etcd,
                                   .prefix = prefix,
                                   .options = options};
    return trio_start(nodes, &want);
}

static struct subject *another(struct trio *t)
{
    return &t->members[(t->best + 1) % TRIO];
}

/* On a busy machine the keeper may change during a run. Then the columns show other
 * nodes, so print a note. */
static void note_term(struct trio *nodes, int64_t before, struct table *t)
{
    int64_t now = subject_info(&nodes->members[nodes->best], "keeper", "term");
    if (now != before)
        snprintf(
            t->note, sizeof t->note,
            "The keeper changed during the run, from term %lld to %lld, so the columns "
            "cannot be compared. Repeat on an idle machine.",
            (long long)before, (long long)now);
}

/* ---- locks ---- */

enum { AT_KEEPER, FORWARDED, RIVAL, LOCK_COLUMNS };

/* With the default lease-volatile of 10 s, the keeper records only the long leases in etcd. */
#define SHORT_MS 5000
#define LONG_MS 30000

static const struct lock_shape {
    const char *id, *name;
    uint32_t clients;
    bool one_key;
    uint32_t lease_ms;
    double least, far_least; /* Goals: ratio to etcd, and of forwarding; 0: none. */
} lock_shapes[] = {
    {"1", "1 client", 1, false, SHORT_MS, 15, 0.7},
    {"32", "32 clients, own keys", 32, false, SHORT_MS, 20, 0.7},
    {"32_one", "32 clients, one key", 32, true, SHORT_MS, 20, 0.7},
    {"1_long", "1 client, long", 1, false, LONG_MS, 1.5, 0},
    {"32_long", "32, own keys, long", 32, false, LONG_MS, 4, 0},
    {"32_one_long", "32, one key, long", 32, true, LONG_MS, 0, 0},
};
#define LOCK_SHAPES (sizeof lock_shapes / sizeof lock_shapes[0])
#define SHORT_SHAPES 3u /* The first shapes have short leases. */

static const struct trial_heading lock_headings[TRIAL_TABLES] = {
    [RATE] = {"keeperlocks_rate", "Pairs per second", "of all clients together"},
    [MEDIAN] = {"keeperlocks_median", "Time of a pair, median",
                "us; with one key, including the wait"},
    [P99] = {"keeperlocks_p99", "Time of a pair, p99", "us"},
    [ACQUIRE] = {"keeperlocks_acquire", "Time of an acquire, median", "us"},
    [CPU] = {"keeperlocks_cpu", "CPU of all servers", "us per lock and unlock"},
};

static void lock_goals(struct sheet *s, struct table *t[TRIAL_TABLES])
{
    static char ids[LOCK_SHAPES][4][48];
    for (uint32_t n = 0; n < LOCK_SHAPES; n++) {
        const struct cell *rate = t[RATE]->cells[n], *time = t[MEDIAN]->cells[n];
        const char *id = lock_shapes[n].id, *name = lock_shapes[n].name;
        snprintf(ids[n][0], sizeof ids[n][0], "keeperlocks_rate_%s_to_etcd", id);
        snprintf(ids[n][1], sizeof ids[n][1], "keeperlocks_far_%s_to_etcd", id);
        snprintf(ids[n][2], sizeof ids[n][2], "keeperlocks_far_%s_to_keeper", id);
        snprintf(ids[n][3], sizeof ids[n][3], "keeperlocks_time_%s_far_to_keeper", id);
        sheet_least(s, ids[n][0], &rate[AT_KEEPER], &rate[RIVAL], lock_shapes[n].least,
                    "Pairs per second, keeper / etcd, %s", name);
        sheet_least(s, ids[n][1], &rate[FORWARDED], &rate[RIVAL], lock_shapes[n].least,
                    "Pairs per second, other node / etcd, %s", name);
        sheet_least(s, ids[n][2], &rate[FORWARDED], &rate[AT_KEEPER],
                    lock_shapes[n].far_least,
                    "Forwarding: pairs per second, other node / keeper, %s", name);
        sheet_goal(s, ids[n][3], &time[FORWARDED], &time[AT_KEEPER], 0, 0,
                   "Forwarding: time of a pair, other node / keeper, %s", name);
    }
}

/* Whose CPU time a pair takes, at the keeper and through another node: the columns and the rows of
 * this table, two for each shape with short leases. */
enum { CPU_KEEPER, CPU_OTHER, CPU_CLIENTS, CPU_COLUMNS };

static struct table *cpu_table(struct sheet *s)
{
    static const char *const columns[CPU_COLUMNS] = {"keeper", "other node", "clients"};
    static const char *const forwarded[SHORT_SHAPES] = {
        "1 client, forwarded", "own keys, forwarded", "one key, forwarded"};
    struct table *t = sheet_table(s, "keeperlocks", "keeperlocks_cpu_of",
                                  "CPU of each process",
                                  "us per lock and unlock with a short lease");
    t->columns = CPU_COLUMNS;
    for (uint32_t i = 0; i < CPU_COLUMNS; i++) t->column_names[i] = columns[i];
    for (uint32_t n = 0; n < SHORT_SHAPES; n++) {
        table_row(t, "%s", lock_shapes[n].name);
        table_row(t, "%s", forwarded[n]);
    }
    return t;
}

/* The clients of one column. */
struct lock_side {
    struct pack *pack;
    const struct subject *keeper, *other;
    struct table *cpu; /* NULL: not measured. */
    uint32_t row;
};

static void look_at_cpu(const struct lock_side *l, int64_t ns[CPU_COLUMNS])
{
    struct timespec own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    ns[CPU_KEEPER] = subject_time(l->keeper).cpu_ns;
    ns[CPU_OTHER] = subject_time(l->other).cpu_ns;
    ns[CPU_CLIENTS] = (int64_t)own.tv_sec * 1000000000 + own.tv_nsec;
}

static const char *run_pack(void *of, int64_t run_ns, struct trial_result *out)
{
    const struct lock_side *l = of;
    int64_t before[CPU_COLUMNS], after[CPU_COLUMNS];
    look_at_cpu(l, before);
    const char *wrong = pack_run(l->pack, run_ns, out);
    look_at_cpu(l, after);
    for (uint32_t i = 0; i < CPU_COLUMNS && wrong == NULL && l->cpu != NULL; i++)
        cell_add(&l->cpu->cells[l->row][i],
                 (double)(after[i] - before[i]) / 1000 / (double)out->rounds);
    return wrong;
}

static const char *lock_sides(uint32_t n, struct trio *nodes, struct trio *etcd,
                              struct lock_side of[LOCK_COLUMNS],
                              struct side sides[LOCK_COLUMNS])
{
    const enum pack_at places[LOCK_COLUMNS] = {
        PACK_BEST, PACK_ANOTHER, lock_shapes[n].clients == 1 ? PACK_BEST : PACK_ALL};
    const char *wrong = NULL;
    for (uint32_t i = 0; i < LOCK_COLUMNS && wrong == NULL; i++) {
        struct pack_want want = {.clients = lock_shapes[n].clients,
                                 .lease_ms = lock_shapes[n].lease_ms,
                                 .one_key = lock_shapes[n].one_key,
                                 .at = places[i]};
        of[i] = (struct lock_side){.keeper = &nodes->members[nodes->best],
                                   .other = another(nodes)};
        wrong = pack_open(&of[i].pack, i == RIVAL ? etcd : nodes, &want);
        sides[i] = (struct side){.of = &of[i], .run = run_pack};
        trio_serve(etcd, &sides[i]);
        if (i != RIVAL) trio_serve(nodes, &sides[i]);
    }
    return wrong;
}

static const char *run_lock_shape(struct trial *r, struct table *t[TRIAL_TABLES],
                                  struct table *cpu, uint32_t n, struct trio *nodes,
                                  struct trio *etcd)
{
    struct lock_side of[LOCK_COLUMNS] = {0};
    struct side sides[LOCK_COLUMNS] = {0};
    const char *wrong = lock_sides(n, nodes, etcd, of, sides);
    if (wrong == NULL) wrong = trial_warm(r, sides, LOCK_COLUMNS);
    for (uint32_t i = 0; i < RIVAL && n < SHORT_SHAPES; i++) {
        of[i].cpu = cpu;
        of[i].row = 2 * n + i;
    }
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        wrong = trial_round(r, sides, LOCK_COLUMNS, t, n, round);
    for (uint32_t i = 0; i < LOCK_COLUMNS; i++) pack_close(of[i].pack);
    return wrong;
}

static const char *measure_locks(struct trial *r, struct table *t[TRIAL_TABLES],
                                 struct table *cpu)
{
    struct trio nodes = {0}, etcd = {0};
    const char *wrong = start_etcd(r, &etcd);
    if (wrong == NULL) wrong = start_nodes(r, &nodes, &etcd, "locks/", NULL);
    int64_t term = wrong != NULL ? 0
                                 : subject_info(&nodes.members[0], "keeper", "term");
    for (uint32_t n = 0; n < LOCK_SHAPES && wrong == NULL; n++) {
        progress("keeperlocks: %s", lock_shapes[n].name);
        wrong = run_lock_shape(r, t, cpu, n, &nodes, &etcd);
    }
    if (wrong == NULL) note_term(&nodes, term, t[RATE]);
    trio_stop(&nodes);
    trio_stop(&etcd);
    return wrong;
}

static const char *part_locks(struct trial *r)
{
    static const char *const columns[LOCK_COLUMNS] = {"Sluice, keeper",
                                                      "Sluice, other node", "etcd"};
    struct table *t[TRIAL_TABLES];
    trial_tables(r->sheet, "keeperlocks", lock_headings, columns, LOCK_COLUMNS,
                 "Unexpected: repeat on an idle machine.", t);
    for (uint32_t i = 0; i < TRIAL_TABLES; i++)
        if (t[i] != NULL) t[i]->ours = RIVAL;
    t[ACQUIRE]->why =
        "The acquire of a long lease waits for one write, like that of etcd. "
        "The release waits for none; that of etcd waits for another write.";
    for (uint32_t n = 0; n < LOCK_SHAPES; n++) trial_row(t, lock_shapes[n].name);
    lock_goals(r->sheet, t);
    struct table *cpu = cpu_table(r->sheet);
    if (!r->without_etcd) return measure_locks(r, t, cpu);
    cell_skip(&t[RATE]->cells[0][AT_KEEPER], absent);
    return NULL;
}

/* ---- commits ---- */

/* The column after the two columns of both tables. */
enum { ALONE = FORWARDED + 1, TX_COLUMNS };

static const struct tx_shape {
    const char *id, *name;
    uint32_t clients;
} tx_shapes[] = {
    {"1", "1 client", 1}, {"64", "64 clients", 64}, {"256", "256 clients", 256}};
#define TX_SHAPES (sizeof tx_shapes / sizeof tx_shapes[0])

static const struct trial_heading tx_headings[TRIAL_TABLES] = {
    [RATE] = {"keepercommits_rate", "Transactions per second",
              "of all clients together"},
    [MEDIAN] = {"keepercommits_median", "Transaction time, median", "us"},
    [P99] = {"keepercommits_p99", "Transaction time, p99", "us"},
    [CPU] = {"keepercommits_cpu", "CPU per transaction",
             "us, of members, nodes and clients together"},
    [GROUP] = {"keepercommits_group", "Commits in one write",
               "one etcd transaction; from INFO"},
};

static void tx_goals(struct sheet *s, struct table *t[TRIAL_TABLES])
{
    static char ids[TX_SHAPES][3][48];
    for (uint32_t n = 0; n < TX_SHAPES; n++) {
        const struct cell *rate = t[RATE]->cells[n], *time = t[MEDIAN]->cells[n];
        const char *id = tx_shapes[n].id, *name = tx_shapes[n].name;
        snprintf(ids[n][0], sizeof ids[n][0], "keepercommits_rate_%s_to_alone", id);
        snprintf(ids[n][1], sizeof ids[n][1], "keepercommits_far_%s_to_keeper", id);
        snprintf(ids[n][2], sizeof ids[n][2], "keepercommits_time_%s_far_to_keeper",
                 id);
        sheet_least(s, ids[n][0], &rate[AT_KEEPER], &rate[ALONE],
                    tx_shapes[n].clients == 256 ? 2 : 0,
                    "Transactions per second, grouped / group of 1, %s", name);
        sheet_goal(s, ids[n][1], &rate[FORWARDED], &rate[AT_KEEPER], 0, 0,
                   "Forwarding: transactions per second, other node / keeper, %s",
                   name);
        sheet_goal(s, ids[n][2], &time[FORWARDED], &time[AT_KEEPER], 0, 0,
                   "Forwarding: transaction time, other node / keeper, %s", name);
    }
}

static const char *run_crowd(void *of, int64_t run_ns, struct trial_result *out)
{
    return crowd_run(of, run_ns, out);
}

static const char *run_tx_shape(struct trial *r, struct table *t[TRIAL_TABLES],
                                uint32_t n, struct trio *grouped, struct trio *alone,
                                struct trio *etcd)
{
    struct side sides[TX_COLUMNS] = {0};
    const char *wrong = NULL;
    for (uint32_t i = 0; i < TX_COLUMNS && wrong == NULL; i++) {
        struct trio *nodes = i == ALONE ? alone : grouped;
        struct subject *keeper = &nodes->members[nodes->best];
        struct crowd *crowd;
        wrong = crowd_open(&crowd, i == FORWARDED ? another(nodes) : keeper,
                           tx_shapes[n].clients, CROWD_TOGETHER);
        sides[i] = (struct side){
            .of = crowd, .run = run_crowd, .with_clients = true, .keeper = keeper};
        trio_serve(etcd, &sides[i]);
        trio_serve(nodes, &sides[i]);
    }
    if (wrong == NULL) wrong = trial_warm(r, sides, TX_COLUMNS);
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        wrong = trial_round(r, sides, TX_COLUMNS, t, n, round);
    for (uint32_t i = 0; i < TX_COLUMNS; i++) crowd_close(sides[i].of);
    return wrong;
}

static const char *measure_commits(struct trial *r, struct table *t[TRIAL_TABLES])
{
    static const char *const of_one[] = {"--tx-group-max", "1", NULL};
    struct trio grouped = {0}, alone = {0}, etcd = {0};
    const char *wrong = start_etcd(r, &etcd);
    if (wrong == NULL) wrong = start_nodes(r, &grouped, &etcd, "grouped/", NULL);
    if (wrong == NULL) wrong = start_nodes(r, &alone, &etcd, "alone/", of_one);
    int64_t terms[2] = {0};
    if (wrong == NULL) {
        terms[0] = subject_info(&grouped.members[0], "keeper", "term");
        terms[1] = subject_info(&alone.members[0], "keeper", "term");
    }
    for (uint32_t n = 0; n < TX_SHAPES && wrong == NULL; n++) {
        progress("keepercommits: %s", tx_shapes[n].name);
        wrong = run_tx_shape(r, t, n, &grouped, &alone, &etcd);
    }
    if (wrong == NULL) {
        note_term(&grouped, terms[0], t[RATE]);
        note_term(&alone, terms[1], t[RATE]);
    }
    trio_stop(&grouped);
    trio_stop(&alone);
    trio_stop(&etcd);
    return wrong;
}

static const char *part_commits(struct trial *r)
{
    static const char *const columns[TX_COLUMNS] = {
        "Sluice, keeper", "Sluice, other node", "keeper, group of 1"};
    struct table *t[TRIAL_TABLES];
    trial_tables(r->sheet, "keepercommits", tx_headings, columns, TX_COLUMNS, NULL, t);
    for (uint32_t n = 0; n < TX_SHAPES; n++) trial_row(t, tx_shapes[n].name);
    tx_goals(r->sheet, t);
    if (!r->without_etcd) return measure_commits(r, t);
    cell_skip(&t[RATE]->cells[0][AT_KEEPER], absent);
    return NULL;
}

/* ---- failover ---- */

#define GIVE_UP_S 60

/* Run a transaction through this node; returns whether it was committed. */
static const char *commit(struct subject *s, bool *done)
{
    static const char commands[] =
        "*1\r\n$8\r\nTX.BEGIN\r\n"
        "*4\r\n$6\r\nTX.PUT\r\n$1\r\nt\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"
        "*1\r\n$9\r\nTX.COMMIT\r\n";
    const char *reply;
    size_t n;
    *done = true;
    const char *wrong = line_send(s->line.fd, commands, sizeof commands - 1);
    for (uint32_t i = 0; i < 3 && wrong == NULL; i++) {
        wrong = line_reply(&s->line, GIVE_UP_S * 1000, &reply, &n);
        /* An error, or nil: not committed. */
        if (wrong == NULL && (reply[0] == '-' || reply[1] == '-')) *done = false;
    }
    return wrong;
}

/* Repeat until a transaction is committed. */
static const char *commit_at_last(struct subject *s)
{
    int64_t until_ns = now_ns() + (int64_t)GIVE_UP_S * 1000000000;
    bool done = false;
    const char *wrong = commit(s, &done);
    while (wrong == NULL && !done) {
        if (now_ns() > until_ns) return "Sluice: no keeper commits";
        usleep(1000);
        wrong = commit(s, &done);
    }
    return wrong;
}

/* The duration of one failover in ms. Afterwards all three nodes run again. */
static const char *change(struct trio *nodes, double *ms)
{
    uint32_t keeper = nodes->best;
    struct subject *through = another(nodes);
    int64_t term = subject_info(through, "keeper", "term");
    const char *wrong = commit_at_last(through);
    if (wrong != NULL) return wrong;
    int64_t began_ns = now_ns();
    subject_kill(&nodes->members[keeper]);
    wrong = commit_at_last(through);
    *ms = (double)(now_ns() - began_ns) / 1e6;
    if (wrong == NULL) wrong = trio_restart(nodes, keeper);
    if (wrong == NULL) wrong = trio_agree(nodes);
    if (wrong == NULL && subject_info(through, "keeper", "term") <= term)
        wrong = "Sluice: the keeper was killed, but the term has not changed";
    return wrong;
}

static const char *measure_failover(struct trial *r, struct table *t)
{
    struct trio nodes = {0}, etcd = {0};
    const char *wrong = start_etcd(r, &etcd);
    if (wrong == NULL) wrong = start_nodes(r, &nodes, &etcd, "failover/", NULL);
    for (uint32_t n = 0; n < (r->quick ? 2 : CHANGES) && wrong == NULL; n++) {
        double ms;
        wrong = change(&nodes, &ms);
        if (wrong == NULL) cell_add(&t->cells[0][0], ms);
    }
    if (wrong == NULL) cell_add(&t->cells[1][0], t->cells[0][0].max);
    trio_stop(&nodes);
    trio_stop(&etcd);
    return wrong;
}

static const char *part_failover(struct trial *r)
{
    struct table *t = sheet_table(r->sheet, "failover", "failover", "Keeper killed",
                                  "ms until the next commit through another node");
    t->columns = 1;
    t->column_names[0] = "Sluice";
    table_row(t, "all kills");
    table_row(t, "longest");
    sheet_goal(r->sheet, "failover_median", &t->cells[0][0], NULL, 0, 2000,
               "Keeper killed: ms until the next commit, median");
    sheet_goal(r->sheet, "failover_longest", &t->cells[1][0], NULL, 2000, 0,
               "Keeper killed: ms until the next commit, longest");
    if (r->without_etcd) {
        cell_skip(&t->cells[0][0], absent);
        return NULL;
    }
    progress("failover: killing the keeper");
    return measure_failover(r, t);
}

int main(int argc, char **argv)
{
    static const struct trial_program program = {
        .usage = usage,
        .title = "the cost of a keeper on etcd",
        .method = method,
        .whose = "the CPUs",
        .parts = {{"keeperlocks", part_locks},
                  {"keepercommits", part_commits},
                  {"failover", part_failover}},
        .run_ns = 1000000000,
        .quick_ns = 50000000,
        .etcd = true};
    return trial_main(argc, argv, &program);
}
