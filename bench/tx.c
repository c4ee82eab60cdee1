/* tx.c - what transactions cost: how many commit in a second and how long that takes, beside
 * SQLite on the same disk; and how many locks they take.
 *
 * One run measures all side by side, since only ratios mean something on another machine.
 * docs/bench.md explains how to read it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "commit.h"
#include "crowd.h"
#include "process.h"
#include "programs.h"
#include "sheet.h"
#include "sqlite.h"

static const char usage[] =
    "usage: tx [--json] [--quick] [--rounds N] [--only PART]... [--server FILE]\n"
    "\n"
    "Measures transactions, beside SQLite on the same disk, in one run of about a "
    "minute\n"
    "and a half. Folders are below TMPDIR, or /tmp: let that be the disk you mean.\n"
    "\n"
    "  --json         the same as one JSON object\n"
    "  --quick        a few seconds, to see that it works; the numbers mean little\n"
    "  --rounds N     so many rounds, 1 to 31; 5 without it\n"
    "  --only PART    that part alone: commits, txlocks; may stand more than once\n"
    "  --server FILE  the server to measure, instead of the one built beside this\n"
    "  --help         this text\n"
    "\n"
    "Exit status: 0 measured, whatever the numbers; 1 something went wrong; 2 usage.\n";

/* clang-format off */
static const char method[] =
    "Method: a transaction writes one row, of a 17-byte key and a 22-byte value, and is on the "
    "disk when it is answered; each client has 100 keys of its own and writes them in turns. "
    "Ours: TX.BEGIN, TX.PUT, TX.COMMIT in one write, over TCP on loopback, by clients that "
    "are one process with one thread and epoll; singly means that each command waits for "
    "the answer to the one before. Group of 1 is the same server with tx-group-max 1: each "
    "commit has a sync of its own. SQLite: WAL, synchronous=FULL, one statement a transaction "
    "(INSERT ... ON CONFLICT DO UPDATE, prepared), inside of this process; each client is a "
    "thread with a connection of its own, and a mutex lets one after the other write, so that "
    "nobody sleeps longer than it must; alone is SQLite's own way of waiting, with a busy time "
    "of 60 s, as separate programs have it. All are on the same disk, in folders of "
    "their own, not pinned, and idle unless it is their turn. In each round all run once, for "
    "the time given above, and who begins changes; before the first round each runs once for "
    "warmth. Given are the median of the rounds and, behind it, the least and the most. CPU "
    "is user and system time of server and clients together. The disk itself: 4 KiB are "
    "written into a file that has them already, and fdatasync. Locks: a transaction takes 128 "
    "locks with TX.LOCK WRITE t key, on keys that nobody else uses, and is aborted, so "
    "nothing is written; by 32: 32 of them in one write.";
/* clang-format on */

enum { GROUPED, ALONE, SQLITE, COLUMNS };
static const char *const column_names[COLUMNS] = {"Sluice", "Sluice, group of 1",
                                                  "SQLite"};

enum { COMMITS, TXLOCKS, PARTS };
static const char *const part_names[PARTS] = {"commits", "txlocks"};

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
    {"64_alone", "64 clients, alone", 64, CROWD_TOGETHER, false, true, SQLITE_ALONE},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* What the options say, and what both parts need. */
struct run {
    struct sheet *sheet;
    struct subject_programs programs;
    bool json, quick;
    bool wanted[PARTS], some; /* --only. */
    uint32_t rounds;
    int64_t run_ns;
    struct subject servers[2]; /* GROUPED, ALONE. */
    double all_s, others_s; /* CPU time in all measured runs; what others had of it. */
};

/* ---- the servers ---- */

/* Its folder has its data as well. */
static const char *start_server(struct run *r, uint32_t i)
{
    struct subject *s = &r->servers[i];
    char data[80];
    const char *arguments[] = {r->programs.paths[OURS],
                               "--port",
                               "auto",
                               "--log-level",
                               "info",
                               "--data",
                               data,
                               i == ALONE ? "--tx-group-max" : NULL,
                               "1",
                               NULL};
    const char *wrong = subject_make(s, OURS);
    if (wrong != NULL) return wrong;
    snprintf(data, sizeof data, "%s/data", s->folder);
    wrong = subject_spawn(s, arguments, -1);
    if (wrong == NULL) wrong = subject_reach(s);
    for (int tries = 0; wrong == NULL && subject_info(s, "keeper", "term") <= 0;
         tries++) {
        if (interrupted()) return "interrupted";
        if (tries == 10000) wrong = "Sluice: it has no transactions";
        usleep(1000);
    }
    return wrong;
}

static const char *start_servers(struct run *r, uint32_t count)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < count && wrong == NULL; i++) wrong = start_server(r, i);
    return wrong;
}

static void stop_servers(struct run *r)
{
    for (uint32_t i = 0; i < 2; i++) subject_stop(&r->servers[i]);
}

/* ---- one run ---- */

/* Who works: a crowd at a server, or SQLite. */
struct team {
    struct subject *server; /* NULL: SQLite. */
    struct crowd *crowd;
    struct sqlite *sqlite;
};

static const char *team_run(struct team *t, int64_t run_ns, struct crowd_result *out)
{
    return t->server != NULL ? crowd_run(t->crowd, run_ns, out)
                             : sqlite_run(t->sqlite, run_ns, out);
}

/* CPU of server and clients for one round of a client, in us. */
static const char *measure(struct run *r, struct team *t, struct crowd_result *out,
                           double *cpu_us)
{
    struct cpus cpus = cpus_look();
    double own = own_s(), ours_s;
    struct subject_time before = {0}, after = {0};
    if (t->server != NULL) before = subject_time(t->server);
    const char *wrong = team_run(t, r->run_ns, out);
    if (t->server != NULL) after = subject_time(t->server);
    struct cpus now = cpus_look();
    ours_s = own_s() - own + (double)(after.cpu_ns - before.cpu_ns) / 1e9;
    *cpu_us = ours_s * 1e6 / (double)out->rounds;
    r->all_s += now.all_s - cpus.all_s;
    r->others_s += now.used_s - cpus.used_s - ours_s;
    return wrong;
}

/* ---- commits ---- */

enum { RATE, MEDIAN, P99, CPU, GROUP, DISK, TABLES };

static const char why[] = "With one client there is nothing to group, and a commit "
                          "waits for the disk twice: LMDB "
                          "syncs the pages, then the page that names them. SQLite in "
                          "WAL mode syncs once, and is "
                          "a call in the same process; ours is a message to another "
                          "one and back, and within that "
                          "to a thread of its own, so that the loop never waits for a "
                          "disk. That is what it costs "
                          "to share the tables between programs and machines.";

static void tables_make(struct sheet *s, struct table *t[TABLES])
{
    t[RATE] = sheet_table(s, "commits", "tx_rate", "Transactions a second",
                          "of all clients together");
    t[MEDIAN] = sheet_table(s, "commits", "tx_median", "Time of one, median", "us");
    t[P99] = sheet_table(s, "commits", "tx_p99", "Time of one, p99", "us");
    t[CPU] = sheet_table(s, "commits", "tx_cpu", "CPU of one",
                         "us, of server and clients together");
    t[GROUP] = sheet_table(s, "commits", "tx_group", "Commits in one write",
                           "with one sync; as INFO counts them");
    t[DISK] = sheet_table(s, "commits", "tx_disk", "The disk itself", "us");
    for (uint32_t i = 0; i < DISK; i++) {
        t[i]->better = i == RATE ? MORE : i == GROUP ? NEITHER : LESS;
        if (i != GROUP) t[i]->why = why;
        t[i]->columns = i == GROUP ? 2 : COLUMNS;
        for (uint32_t k = 0; k < t[i]->columns; k++)
            t[i]->column_names[k] = column_names[k];
        for (uint32_t n = 0; n < SHAPES; n++)
            if (i != GROUP || shapes[n].ours) table_row(t[i], "%s", shapes[n].name);
    }
    t[DISK]->columns = 1;
    t[DISK]->column_names[0] = "median of a round";
    table_row(t[DISK], "4 KiB and fdatasync");
}

static void ratios_make(struct sheet *s, struct table *t[TABLES])
{
    static char ids[SHAPES][3][40];
    for (uint32_t n = 0; n < SHAPES; n++) {
        const struct cell *rate = t[RATE]->cells[n], *p99 = t[P99]->cells[n];
        if (!shapes[n].ours) continue;
        snprintf(ids[n][0], sizeof ids[n][0], "tx_rate_%s_to_sqlite", shapes[n].id);
        snprintf(ids[n][1], sizeof ids[n][1], "tx_rate_%s_to_alone", shapes[n].id);
        snprintf(ids[n][2], sizeof ids[n][2], "tx_p99_%s_to_sqlite", shapes[n].id);
        sheet_goal(s, ids[n][1], &rate[GROUPED], &rate[ALONE], 0, 0,
                   "Transactions a second, grouped / group of 1, %s", shapes[n].name);
        if (!shapes[n].sqlite) continue;
        sheet_goal(s, ids[n][0], &rate[GROUPED], &rate[SQLITE], 0, 0,
                   "Transactions a second, Sluice / SQLite, %s", shapes[n].name);
        sheet_goal(s, ids[n][2], &p99[GROUPED], &p99[SQLITE], 0, 0,
                   "Time of one, p99, Sluice / SQLite, %s", shapes[n].name);
    }
}

/* How long a small write and its sync take: the median of some. */
static const char *disk_sync(const char *folder, uint32_t count, double *us)
{
    static struct times times;
    static char page[4096];
    char path[128];
    const char *wrong = NULL;
    snprintf(path, sizeof path, "%s/sync", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return "cannot make a file";
    times_clear(&times);
    for (uint32_t i = 0; i <= count && wrong == NULL && !interrupted(); i++) {
        int64_t began = now_ns();
        memset(page, (int)i, sizeof page);
        if (pwrite(fd, page, sizeof page, 0) != sizeof page || fdatasync(fd) != 0)
            wrong = "cannot write";
        if (i > 0) times_add(&times, now_ns() - began); /* The first makes the file. */
    }
    close(fd);
    *us = times_us(&times, 0.5);
    return interrupted() ? "interrupted" : wrong;
}

static const char *run_disk(struct run *r, struct table *t)
{
    double us;
    const char *wrong = disk_sync(r->servers[GROUPED].folder, r->quick ? 5 : 100, &us);
    if (wrong == NULL) cell_add(&t->cells[0][0], us);
    return wrong;
}

/* Commits and writes of a server so far. */
static void groups_look(struct team *t, double out[2])
{
    if (t->server == NULL) return;
    out[0] = (double)subject_info(t->server, "keeper", "commits");
    out[1] = (double)subject_info(t->server, "keeper", "commit_groups");
}

static const char *run_one(struct run *r, struct table *t[TABLES], uint32_t shape,
                           uint32_t column, struct team *team)
{
    struct crowd_result out;
    double cpu_us, before[2] = {0}, after[2] = {0};
    groups_look(team, before);
    const char *wrong = measure(r, team, &out, &cpu_us);
    if (wrong != NULL) return wrong;
    groups_look(team, after);
    cell_add(&t[RATE]->cells[shape][column], (double)out.rounds * 1e9 / (double)out.ns);
    cell_add(&t[MEDIAN]->cells[shape][column], out.median_us);
    cell_add(&t[P99]->cells[shape][column], out.p99_us);
    cell_add(&t[CPU]->cells[shape][column], cpu_us);
    if (after[1] > before[1])
        cell_add(&t[GROUP]->cells[shape][column],
                 (after[0] - before[0]) / (after[1] - before[1]));
    return NULL;
}

static const char *team_open(struct run *r, const struct shape *shape, uint32_t column,
                             struct team *t)
{
    t->server = column == SQLITE ? NULL : &r->servers[column];
    if (t->server != NULL)
        return crowd_open(&t->crowd, t->server, shape->clients, shape->work);
    /* Beside the data of ours, so that it is the same disk and is removed with it. */
    return sqlite_open(&t->sqlite, r->servers[GROUPED].folder, shape->clients,
                       shape->way);
}

static void team_close(struct team *t)
{
    crowd_close(t->crowd);
    sqlite_close(t->sqlite);
}

static bool takes_part(const struct shape *shape, uint32_t column)
{
    return column == SQLITE ? shape->sqlite && sqlite_version() != NULL : shape->ours;
}

/* All in turns; who begins changes from round to round. */
static const char *run_shape(struct run *r, struct table *t[TABLES], uint32_t n)
{
    const struct shape *shape = &shapes[n];
    struct team teams[COLUMNS] = {0};
    struct crowd_result warm;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < COLUMNS && wrong == NULL; i++) {
        if (!takes_part(shape, i)) continue;
        wrong = team_open(r, shape, i, &teams[i]);
        if (wrong == NULL) wrong = team_run(&teams[i], r->run_ns / 2, &warm);
    }
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++) {
        if (n == 0) wrong = run_disk(r, t[DISK]);
        for (uint32_t k = 0; k < COLUMNS && wrong == NULL; k++) {
            uint32_t i = (round + k) % COLUMNS;
            if (takes_part(shape, i)) wrong = run_one(r, t, n, i, &teams[i]);
        }
    }
    for (uint32_t i = 0; i < COLUMNS; i++) team_close(&teams[i]);
    return wrong;
}

static void commits_notes(struct run *r, struct table *t[TABLES])
{
    struct statfs fs;
    const uint64_t memory = 0x01021994; /* TMPFS_MAGIC */
    if (sqlite_version() == NULL)
        cell_skip(&t[RATE]->cells[0][SQLITE],
                  "built without SQLite (Debian package libsqlite3-dev)");
    else
        snprintf(t[RATE]->note, sizeof t[RATE]->note, "SQLite is version %s.",
                 sqlite_version());
    if (statfs(r->servers[GROUPED].folder, &fs) == 0 && (uint64_t)fs.f_type == memory)
        snprintf(t[DISK]->note, sizeof t[DISK]->note,
                 "This is memory (tmpfs), and syncs cost nothing: TMPDIR may name a "
                 "folder on a disk.");
}

static const char *part_commits(struct run *r)
{
    struct table *t[TABLES];
    tables_make(r->sheet, t);
    ratios_make(r->sheet, t);
    const char *wrong = start_servers(r, 2);
    if (wrong == NULL) commits_notes(r, t);
    for (uint32_t n = 0; n < SHAPES && wrong == NULL; n++) {
        progress("commits: %s", shapes[n].name);
        wrong = run_shape(r, t, n);
    }
    stop_servers(r);
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

static const char *run_locker(struct run *r, struct table *rate, struct table *cpu,
                              uint32_t n)
{
    struct team team = {.server = &r->servers[GROUPED]};
    struct crowd_result out;
    double cpu_us;
    const char *wrong = crowd_open(&team.crowd, team.server, lockers[n].clients,
                                   lockers[n].work);
    if (wrong == NULL) wrong = team_run(&team, r->run_ns / 2, &out);
    for (uint32_t round = 0; round < r->rounds && wrong == NULL; round++) {
        wrong = measure(r, &team, &out, &cpu_us);
        if (wrong != NULL) break;
        cell_add(&rate->cells[n][0],
                 (double)out.rounds * CROWD_LOCKS_EACH * 1e6 / (double)out.ns);
        cell_add(&cpu->cells[n][0], cpu_us / CROWD_LOCKS_EACH);
    }
    team_close(&team);
    return wrong;
}

static const char *part_txlocks(struct run *r)
{
    struct table *rate = sheet_table(r->sheet, "txlocks", "txlocks_rate",
                                     "TX.LOCK a second", "thousands");
    struct table *cpu = sheet_table(r->sheet, "txlocks", "txlocks_cpu", "CPU of a lock",
                                    "us, of server and clients together");
    rate->columns = cpu->columns = 1;
    rate->column_names[0] = cpu->column_names[0] = column_names[GROUPED];
    const char *wrong = start_servers(r, 1);
    for (uint32_t n = 0; n < LOCKERS && wrong == NULL; n++) {
        progress("txlocks: %s", lockers[n].name);
        table_row(rate, "%s", lockers[n].name);
        table_row(cpu, "%s", lockers[n].name);
        wrong = run_locker(r, rate, cpu, n);
    }
    stop_servers(r);
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
    char *path = r->programs.paths[OURS];
    if (value == NULL) value = "";
    if (strcmp(name, "--rounds") == 0) return (r->rounds = rounds_of(value)) > 0;
    if (strcmp(name, "--only") == 0) return choose_part(r, value);
    if (strcmp(name, "--server") != 0) return -1;
    snprintf(path, sizeof r->programs.paths[OURS], "%s", value);
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
    r->run_ns = r->quick ? 30000000 : 1000000000;
    return 0;
}

static const char *find_server(struct run *r)
{
    static char said[600];
    char *path = r->programs.paths[OURS];
    if (path[0] == '\0')
        program_beside(path, sizeof r->programs.paths[OURS],
                       "../src/server/sluice-server");
    if (program_there(path)) return NULL;
    snprintf(said, sizeof said, "there is no server at %s: build it first", path);
    return said;
}

/* ---- all of it ---- */

static const char *measure_all(struct run *r)
{
    const char *(*const measures[PARTS])(struct run *) = {part_commits, part_txlocks};
    const char *wrong = NULL;
    for (size_t i = 0; i < PARTS && wrong == NULL; i++)
        if (!r->some || r->wanted[i]) wrong = measures[i](r);
    return wrong;
}

static void close_sheet(struct run *r)
{
    struct sheet *s = r->sheet;
    s->title = "what transactions cost";
    s->method = method;
    s->quick = r->quick;
    s->rounds = r->rounds;
    s->run_ms = (double)r->run_ns / 1e6;
    s->whose = "the CPUs";
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
    const char *wrong = find_server(&r);
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
