/* tx.c - the cost of transactions: commits per second and the time of each, compared with
 * SQLite on the same disk; and how many locks they take.
 *
 * One run measures all side by side, since only ratios mean something on another machine.
 * docs/bench.md explains how to read it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "crowd.h"
#include "process.h"
#include "programs.h"
#include "sqlite.h"
#include "trial.h"

static const char usage[] =
    "usage: tx [--json] [--quick] [--rounds N] [--only PART]... [--server FILE]\n"
    "\n"
    "Measures transactions, in comparison with SQLite on the same disk. Takes about a\n"
    "minute and a half. TMPDIR, or /tmp, should be on a disk.\n"
    "\n"
    "  --json         print one JSON object\n"
    "  --quick        run for a few seconds, to test the benchmark; the numbers mean\n"
    "                 little\n"
    "  --rounds N     the number of rounds, 1 to 31; default: 5\n"
    "  --only PART    measure only this part: commits or txlocks; may be repeated\n"
    "  --server FILE  the server to measure; default: the one in this build directory\n"
    "  --help         print this help\n"
    "\n"
    "Exit status: 0 success, whatever the numbers; 1 failure; 2 wrong usage.\n";

/* clang-format off */
static const char method[] =
    "Method: Transaction. A transaction writes one row (17-byte key, 22-byte value) and is on "
    "disk when the reply arrives. Each client writes 100 keys of its own in turn, so no "
    "transaction waits for a lock. Disk. Servers and SQLite have directories on the disk of "
    "TMPDIR, or /tmp. The benchmark also measures the disk itself: it overwrites 4 KiB of a "
    "file and calls fdatasync. If a sync takes 5 ms, a program with one sync per commit "
    "reaches at most 200 commits per second. Sluice. TX.BEGIN, TX.PUT and TX.COMMIT in one "
    "write, over TCP on loopback. The clients are one process with one thread and epoll. "
    "Singly: each command waits for the reply to the previous one, as in the retry loop. "
    "Group of 1: a second server with tx-group-max 1, so that each commit has its own sync. "
    "SQLite. WAL, synchronous=FULL, one prepared statement per transaction (INSERT ... ON "
    "CONFLICT DO UPDATE), inside the benchmark's process: without server, network and "
    "parsing. Each client is a thread with a connection. A mutex lets the threads write one "
    "after the other, so that no thread sleeps longer than necessary. No mutex: the threads "
    "use SQLite's own waiting, with a busy timeout of 60 s, as between separate programs. "
    "Rounds. In each round all columns run once, for the same time, and a different one "
    "begins each round. A warm-up round comes first. The results are the median of the "
    "rounds, followed by the minimum and the maximum. Nothing is pinned; servers are idle "
    "unless it is their turn. CPU. User and system time of server and clients together, "
    "because the time of SQLite includes both. Locks. A transaction takes 128 locks with "
    "TX.LOCK WRITE t key, on keys that no other client uses, and is aborted, so nothing is "
    "written to disk. By 32: 32 commands in one write.";
/* clang-format on */

enum { GROUPED, ALONE, SQLITE, COLUMNS };
static const char *const column_names[COLUMNS] = {"Sluice", "Sluice, group of 1",
                                                  "SQLite"};

static const struct shape {
    const char *id, *name;
    uint32_t clients;
    enum crowd_work work;
    bool ours, sqlite;
    enum sqlite_way way;
} shapes[] = {
    {"1", "1 client", 1, CROWD_TOGETHER, true, true, SQLITE_LINE},
    {"64", "64 clients", 64, CROWD_TOGETHER, true, true, SQLITE_LINE},
    {"1_singly", "1 client, singly", 1, CROWD_SINGLY, true, false, SQLITE_LINE},
    {"64_singly", "64 clients, singly", 64, CROWD_SINGLY, true, false, SQLITE_LINE},
    {"64_alone", "64 clients, no mutex", 64, CROWD_TOGETHER, false, true, SQLITE_ALONE},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static struct subject servers[2]; /* GROUPED, ALONE. */

/* ---- the servers ---- */

/* Its directory also contains its data. */
static const char *start_server(struct trial *r, uint32_t i)
{
    struct subject *s = &servers[i];
    char data[80];
    const char *arguments[] = {
        r->server, "--port", "auto", "--log-level",
        "info",    "--data", data,   i == ALONE ? "--tx-group-max" : NULL,
        "1",       NULL};
    const char *wrong = subject_make(s, OURS);
    if (wrong != NULL) return wrong;
    snprintf(data, sizeof data, "%s/data", s->directory);
    wrong = subject_spawn(s, arguments, -1);
    if (wrong == NULL) wrong = subject_reach(s);
    for (int tries = 0; wrong == NULL && subject_info(s, "keeper", "term") <= 0;
         tries++) {
        if (interrupted()) return "interrupted";
        if (tries == 10000) wrong = "Sluice: the server does not support transactions";
        usleep(1000);
    }
    return wrong;
}

static const char *start_servers(struct trial *r, uint32_t count)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < count && wrong == NULL; i++) wrong = start_server(r, i);
    return wrong;
}

static void stop_servers(void)
{
    for (uint32_t i = 0; i < 2; i++) subject_stop(&servers[i]);
}

/* ---- commits ---- */

static const char why[] =
    "With one client there is nothing to group, and a commit waits for the disk twice: "
    "LMDB syncs the pages, then the page that points to them. SQLite in WAL mode syncs "
    "once, and is a call within the process. In Sluice a commit goes to "
    "another process, there to a separate thread, and back, so that the event loop "
    "never waits for a disk. This is the cost of sharing tables between programs and "
    "machines.";

static const struct trial_heading headings[TRIAL_TABLES] = {
    [RATE] = {"tx_rate", "Transactions per second", "of all clients together"},
    [MEDIAN] = {"tx_median", "Transaction time, median", "us"},
    [P99] = {"tx_p99", "Transaction time, p99", "us"},
    [CPU] = {"tx_cpu", "CPU per transaction", "us, of server and clients together"},
    [GROUP] = {"tx_group", "Commits in one write", "with one sync; from INFO"},
};

static void tables_make(struct sheet *s, struct table *t[TRIAL_TABLES],
                        struct table **disk)
{
    trial_tables(s, "commits", headings, column_names, COLUMNS, why, t);
    t[GROUP]->columns = SQLITE;
    for (uint32_t n = 0; n < SHAPES; n++) trial_row(t, shapes[n].name);
    *disk = sheet_table(s, "commits", "tx_disk", "The disk itself", "us");
    (*disk)->columns = 1;
    (*disk)->column_names[0] = "median of a round";
    table_row(*disk, "4 KiB and fdatasync");
}

static void ratios_make(struct sheet *s, struct table *t[TRIAL_TABLES])
{
    static char ids[SHAPES][3][40];
    for (uint32_t n = 0; n < SHAPES; n++) {
        const struct cell *rate = t[RATE]->cells[n], *p99 = t[P99]->cells[n];
        if (!shapes[n].ours) continue;
        snprintf(ids[n][0], sizeof ids[n][0], "tx_rate_%s_to_sqlite", shapes[n].id);
        snprintf(ids[n][1], sizeof ids[n][1], "tx_rate_%s_to_alone", shapes[n].id);
        snprintf(ids[n][2], sizeof ids[n][2], "tx_p99_%s_to_sqlite", shapes[n].id);
        sheet_goal(s, ids[n][1], &rate[GROUPED], &rate[ALONE], 0, 0,
                   "Transactions per second, grouped / group of 1, %s", shapes[n].name);
        if (!shapes[n].sqlite) continue;
        sheet_goal(s, ids[n][0], &rate[GROUPED], &rate[SQLITE], 0, 0,
                   "Transactions per second, Sluice / SQLite, %s", shapes[n].name);
        sheet_goal(s, ids[n][2], &p99[GROUPED], &p99[SQLITE], 0, 0,
                   "Transaction time, p99, Sluice / SQLite, %s", shapes[n].name);
    }
}

/* The median time of a small write and its sync. */
static const char *disk_sync(const char *directory, uint32_t count, double *us)
{
    static struct times times;
    static char page[4096];
    char path[128];
    const char *wrong = NULL;
    snprintf(path, sizeof path, "%s/sync", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return "cannot create a file";
    times_clear(&times);
    for (uint32_t i = 0; i <= count && wrong == NULL && !interrupted(); i++) {
        int64_t began = now_ns();
        memset(page, (int)i, sizeof page);
        if (pwrite(fd, page, sizeof page, 0) != sizeof page || fdatasync(fd) != 0)
            wrong = "cannot write";
        /* The first write creates the file. */
        if (i > 0) times_add(&times, now_ns() - began);
    }
    close(fd);
    *us = times_us(&times, 0.5);
    return interrupted() ? "interrupted" : wrong;
}

static const char *run_disk(struct trial *r, struct table *t)
{
    double us;
    const char *wrong = disk_sync(servers[GROUPED].directory, r->quick ? 5 : 100, &us);
    if (wrong == NULL) cell_add(&t->cells[0][0], us);
    return wrong;
}

static const char *run_crowd(void *of, int64_t run_ns, struct trial_result *out)
{
    return crowd_run(of, run_ns, out);
}

static const char *run_sqlite(void *of, int64_t run_ns, struct trial_result *out)
{
    return sqlite_run(of, run_ns, out);
}

/* The clients of a server, or SQLite; none if it is not measured in this shape. */
static const char *side_open(const struct shape *shape, uint32_t column, struct side *s)
{
    struct crowd *crowd = NULL;
    struct sqlite *sqlite = NULL;
    const char *wrong = NULL;
    *s = (struct side){.with_clients = true};
    if (column == SQLITE && shape->sqlite && sqlite_version() != NULL) {
        /* In the server's directory, so that it is on the same disk and is removed with it. */
        wrong = sqlite_open(&sqlite, servers[GROUPED].directory, shape->clients,
                            shape->way);
        s->run = run_sqlite;
        s->of = sqlite;
    } else if (column != SQLITE && shape->ours) {
        wrong = crowd_open(&crowd, &servers[column], shape->clients, shape->work);
        s->run = run_crowd;
        s->of = crowd;
        s->servers[s->server_count++] = s->keeper = &servers[column];
    }
    return wrong;
}

static void side_close(struct side *s)
{
    if (s->run == run_sqlite) sqlite_close(s->of);
    else crowd_close(s->of);
}

static const char *run_shape(struct trial *r, struct table *t[TRIAL_TABLES],
                             struct table *disk, uint32_t n)
{
    struct side sides[COLUMNS] = {0};
    const char *wrong = NULL;
    for (uint32_t i = 0; i < COLUMNS && wrong == NULL; i++)
        wrong = side_open(&shapes[n], i, &sides[i]);
    if (wrong == NULL) wrong = trial_warm(r, sides, COLUMNS);
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++) {
        if (n == 0) wrong = run_disk(r, disk);
        if (wrong == NULL) wrong = trial_round(r, sides, COLUMNS, t, n, round);
    }
    for (uint32_t i = 0; i < COLUMNS; i++) side_close(&sides[i]);
    return wrong;
}

static void commits_notes(struct table *t[TRIAL_TABLES], struct table *disk)
{
    struct statfs fs;
    const uint64_t memory = 0x01021994; /* TMPFS_MAGIC */
    if (sqlite_version() == NULL)
        cell_skip(&t[RATE]->cells[0][SQLITE],
                  "built without SQLite (Debian package libsqlite3-dev)");
    else
        snprintf(t[RATE]->note, sizeof t[RATE]->note, "SQLite is version %s.",
                 sqlite_version());
    if (statfs(servers[GROUPED].directory, &fs) == 0 && (uint64_t)fs.f_type == memory)
        snprintf(
            disk->note, sizeof disk->note,
            "This directory is in memory (tmpfs), where syncs cost nothing. Set TMPDIR "
            "to a directory on a disk.");
}

static const char *part_commits(struct trial *r)
{
    struct table *t[TRIAL_TABLES], *disk;
    tables_make(r->sheet, t, &disk);
    ratios_make(r->sheet, t);
    const char *wrong = start_servers(r, 2);
    if (wrong == NULL) commits_notes(t, disk);
    for (uint32_t n = 0; n < SHAPES && wrong == NULL; n++) {
        progress("commits: %s", shapes[n].name);
        wrong = run_shape(r, t, disk, n);
    }
    stop_servers();
    return wrong;
}

/* ---- locks ---- */

static const struct {
    const char *name;
    uint32_t clients;
    enum crowd_work work;
} lockers[] = {
    {"1 client", 1, CROWD_LOCKS},
    {"64 clients", 64, CROWD_LOCKS},
    {"1 client, by 32", 1, CROWD_LOCKS_BY},
    {"64 clients, by 32", 64, CROWD_LOCKS_BY},
};
#define LOCKERS (sizeof lockers / sizeof lockers[0])

/* A round takes CROWD_LOCKS_EACH of them. */
static const char *run_locks(void *of, int64_t run_ns, struct trial_result *out)
{
    const char *wrong = crowd_run(of, run_ns, out);
    out->rounds *= CROWD_LOCKS_EACH;
    return wrong;
}

static const char *run_locker(struct trial *r, struct table *t[TRIAL_TABLES],
                              uint32_t n)
{
    struct crowd *crowd;
    const char *wrong = crowd_open(&crowd, &servers[GROUPED], lockers[n].clients,
                                   lockers[n].work);
    struct side side = {.of = crowd,
                        .run = run_locks,
                        .servers = {&servers[GROUPED]},
                        .server_count = 1,
                        .with_clients = true};
    if (wrong == NULL) wrong = trial_warm(r, &side, 1);
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++)
        wrong = trial_round(r, &side, 1, t, n, round);
    crowd_close(crowd);
    return wrong;
}

static const char *part_txlocks(struct trial *r)
{
    static const struct trial_heading of_locks[TRIAL_TABLES] = {
        [RATE] = {"txlocks_rate", "TX.LOCK per second", "of all clients together"},
        [CPU] = {"txlocks_cpu", "CPU per lock", "us, of server and clients together"},
    };
    struct table *t[TRIAL_TABLES];
    trial_tables(r->sheet, "txlocks", of_locks, column_names, 1, NULL, t);
    const char *wrong = start_servers(r, 1);
    for (uint32_t n = 0; n < LOCKERS && wrong == NULL; n++) {
        progress("txlocks: %s", lockers[n].name);
        trial_row(t, lockers[n].name);
        wrong = run_locker(r, t, n);
    }
    stop_servers();
    return wrong;
}

int main(int argc, char **argv)
{
    static const struct trial_program program = {
        .usage = usage,
        .title = "the cost of transactions",
        .method = method,
        .whose = "the CPUs",
        .parts = {{"commits", part_commits}, {"txlocks", part_txlocks}},
        .run_ns = 1000000000,
        .quick_ns = 30000000};
    return trial_main(argc, argv, &program);
}
