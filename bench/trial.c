#include "trial.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commit.h"
#include "process.h"
#include "programs.h"

/* ---- tables ---- */

void trial_tables(struct sheet *s, const char *part,
                  const struct trial_heading headings[TRIAL_TABLES],
                  const char *const *columns, uint32_t column_count, const char *why,
                  struct table *t[TRIAL_TABLES])
{
    for (uint32_t i = 0; i < TRIAL_TABLES; i++) {
        const struct trial_heading *h = &headings[i];
        t[i] = NULL;
        if (h->id == NULL) continue;
        t[i] = sheet_table(s, part, h->id, h->title, h->unit);
        t[i]->better = i == RATE ? MORE : i == GROUP ? NEITHER : LESS;
        if (i != GROUP) t[i]->why = why;
        t[i]->columns = column_count;
        for (uint32_t k = 0; k < column_count; k++) t[i]->column_names[k] = columns[k];
    }
}

void trial_row(struct table *t[TRIAL_TABLES], const char *name)
{
    for (uint32_t i = 0; i < TRIAL_TABLES; i++)
        if (t[i] != NULL) table_row(t[i], "%s", name);
}

/* ---- runs in turn ---- */

static int64_t side_cpu_ns(const struct side *s)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->server_count; i++)
        sum += subject_time(s->servers[i]).cpu_ns;
    return sum;
}

/* Commits and writes so far. */
struct groups {
    double commits, writes;
};

static struct groups groups_look(const struct side *s)
{
    struct groups g = {0};
    if (s->keeper == NULL) return g;
    g.commits = (double)subject_info(s->keeper, "keeper", "commits");
    g.writes = (double)subject_info(s->keeper, "keeper", "commit_groups");
    return g;
}

/* A run, and the CPU time of one round in us. */
static const char *metered(struct trial *t, struct side *s, struct trial_result *out,
                           double *cpu_us)
{
    struct cpus cpus = cpus_look();
    double own = own_s();
    int64_t before_ns = side_cpu_ns(s);
    const char *wrong = s->run(s->of, t->run_ns, out);
    double servers_s = (double)(side_cpu_ns(s) - before_ns) / 1e9;
    struct cpus now = cpus_look();
    own = own_s() - own;
    *cpu_us = (servers_s + (s->with_clients ? own : 0)) * 1e6 / (double)out->rounds;
    t->again += out->again;
    t->all_s += now.all_s - cpus.all_s;
    t->others_s += now.used_s - cpus.used_s - servers_s - own;
    return wrong;
}

static void tell(struct table *table, uint32_t row, uint32_t column, double value)
{
    if (table != NULL) cell_add(&table->cells[row][column], value);
}

static const char *run_one(struct trial *t, struct side *s,
                           struct table *tables[TRIAL_TABLES], uint32_t row,
                           uint32_t column)
{
    struct trial_result out = {0};
    double cpu_us;
    struct groups before = groups_look(s);
    const char *wrong = metered(t, s, &out, &cpu_us);
    if (wrong != NULL) return wrong;
    struct groups after = groups_look(s);
    tell(tables[RATE], row, column, (double)out.rounds * 1e9 / (double)out.ns);
    tell(tables[MEDIAN], row, column, out.median_us);
    tell(tables[P99], row, column, out.p99_us);
    tell(tables[ACQUIRE], row, column, out.acquire_us);
    tell(tables[CPU], row, column, cpu_us);
    if (after.writes > before.writes)
        tell(tables[GROUP], row, column,
             (after.commits - before.commits) / (after.writes - before.writes));
    return NULL;
}

const char *trial_warm(struct trial *t, struct side *sides, uint32_t count)
{
    struct trial_result warm;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < count && wrong == NULL; i++)
        if (sides[i].of != NULL)
            wrong = sides[i].run(sides[i].of, t->run_ns / 2, &warm);
    return wrong;
}

const char *trial_round(struct trial *t, struct side *sides, uint32_t count,
                        struct table *tables[TRIAL_TABLES], uint32_t row,
                        uint32_t round)
{
    const char *wrong = NULL;
    for (uint32_t n = 0; n < count && wrong == NULL; n++) {
        uint32_t i = (round + n) % count;
        if (sides[i].of != NULL) wrong = run_one(t, &sides[i], tables, row, i);
    }
    return wrong;
}

/* ---- options ---- */

static int refuse(const struct trial *t, const char *what, const char *argument)
{
    fprintf(stderr, "bench: %s: %s\n\n%s", what, argument, t->program->usage);
    return 2;
}

static bool choose_part(struct trial *t, const char *name)
{
    for (uint32_t i = 0; i < TRIAL_PARTS_MAX; i++) {
        const char *part = t->program->parts[i].name;
        if (part != NULL && strcmp(part, name) == 0)
            return t->wanted[i] = t->some = true;
    }
    return false;
}

/* Read an option with a value. 1: valid; 0: invalid; -1: unknown option. */
static int take_value(struct trial *t, const char *name, const char *value)
{
    char *program = strcmp(name, "--server") == 0                     ? t->server
                    : strcmp(name, "--etcd") == 0 && t->program->etcd ? t->etcd
                                                                      : NULL;
    if (value == NULL) value = "";
    if (strcmp(name, "--rounds") == 0) return (t->rounds = rounds_of(value)) > 0;
    if (strcmp(name, "--only") == 0) return choose_part(t, value);
    if (program == NULL) return -1;
    snprintf(program, sizeof t->server, "%s", value);
    return *value != '\0';
}

/* 0: continue; -1: done; else an exit status. */
static int parse(int argc, char **argv, struct trial *t)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--json") == 0) t->json = true;
        else if (strcmp(name, "--quick") == 0) t->quick = true;
        else if (strcmp(name, "--help") == 0) {
            fputs(t->program->usage, stdout);
            return -1;
        } else {
            int good = take_value(t, name, argv[i + 1]);
            if (good < 0) return refuse(t, "unknown option", name);
            if (argv[++i] == NULL) return refuse(t, "missing value", name);
            if (good == 0) return refuse(t, "invalid value", argv[i]);
        }
    }
    if (t->rounds == 0) t->rounds = t->quick ? 2 : 5;
    t->run_ns = t->quick ? t->program->quick_ns : t->program->run_ns;
    return 0;
}

static const char *find_programs(struct trial *t)
{
    static char said[600];
    if (t->server[0] == '\0')
        program_beside(t->server, sizeof t->server, "../src/server/sluice-server");
    if (t->etcd[0] == '\0') snprintf(t->etcd, sizeof t->etcd, "etcd");
    if (!program_there(t->server)) {
        snprintf(said, sizeof said, "no server at %s; build it first", t->server);
        return said;
    }
    t->without_etcd = !program_there(t->etcd);
    if (t->without_etcd && t->program->etcd)
        progress("etcd is not installed (`tools/deps bench` installs it); skipping it");
    return NULL;
}

/* ---- main ---- */

static const char *measure_all(struct trial *t)
{
    const struct trial_part *parts = t->program->parts;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < TRIAL_PARTS_MAX && wrong == NULL; i++)
        if (parts[i].name != NULL && (!t->some || t->wanted[i]))
            wrong = parts[i].measure(t);
    return wrong;
}

static void close_sheet(struct trial *t)
{
    struct sheet *s = t->sheet;
    struct table *last = &s->tables[s->table_count - 1];
    if (t->again > 0 && last->note[0] == '\0')
        snprintf(last->note, sizeof last->note,
                 "%llu commands failed with NOQUORUM or NOKEEPER, because servers that "
                 "get no CPU reply late, and were sent again.",
                 (unsigned long long)t->again);
    s->title = t->program->title;
    s->method = t->program->method;
    s->whose = t->program->whose;
    s->quick = t->quick;
    s->rounds = t->rounds;
    s->run_ms = (double)t->run_ns / 1e6;
    if (t->all_s > 0 && t->others_s > 0) s->kept_off = t->others_s / t->all_s;
    if (getloadavg(&s->load_after, 1) != 1) s->load_after = -1;
}

int trial_main(int argc, char **argv, const struct trial_program *p)
{
    static struct sheet sheet = {.commit = BENCH_COMMIT};
    static struct trial t = {.sheet = &sheet};
    t.program = p;
    int status = parse(argc, argv, &t);
    if (status != 0) return status < 0 ? 0 : status;
    machine_look(&sheet.machine);
    interrupt_catch();
    signal(SIGPIPE, SIG_IGN);
    const char *wrong = find_programs(&t);
    if (wrong == NULL) wrong = measure_all(&t);
    if (interrupted()) {
        fprintf(stderr, "bench: interrupted; nothing was left behind\n");
        return 128 + interrupt_signal();
    }
    if (wrong != NULL) {
        fprintf(stderr, "bench: %s\n", wrong);
        return 1;
    }
    signal(SIGPIPE, SIG_DFL); /* From here on, it only writes its own output. */
    close_sheet(&t);
    if (t.json) sheet_json(&sheet);
    else sheet_text(&sheet);
    return fflush(stdout) == 0 ? 0 : 1;
}
