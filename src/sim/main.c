/* main.c - sluice-sim: runs many seeds, or runs one seed with a trace.
 *
 * Exit status: 0 no violation, 1 a violation, 2 a usage error. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/kind.h"

#define JOBS_MAX 64

struct options {
    const struct sim_kind *kind;
    struct sim_setup setup;
    uint64_t first, seeds;
    uint32_t jobs;
    bool one, twice, shrink, until_caught;
    const char *program;
    const char *faults; /* The argument of --faults; NULL: not given. */
};

/* The progress of a process, in memory that it shares with its parent. */
struct job {
    struct sim_counts counts;
    uint64_t caught; /* The seed that failed; 0: none yet. */
    pid_t pid;
};

/* ---- help ---- */

static const char help[] =
    "sluice-sim - simulate clusters of Sluice with crashes, pauses and partitions\n"
    "\n"
    "    sluice-sim [--keeper] [--seeds N] [--first S] [--events N] [--jobs N]\n"
    "               [--until-caught]\n"
    "    sluice-sim [--keeper] --seed S [--trace] [--until N] [--shrink] [--twice]\n"
    "\n"
    "--keeper          clusters on etcd, with a keeper; without this option, majority\n"
    "                  clusters\n"
    "--seeds N         number of seeds (1,000)\n"
    "--first S         first seed (1)\n"
    "--events N        events per seed (10,000; with --keeper, 30,000); if the faults\n"
    "                  of a seed end, it continues until everything works again\n"
    "--seed S          run one seed, for example the one that a failure printed\n"
    "--trace           print every event of the seed\n"
    "--until N         stop after N events\n"
    "--shrink          find a minimal set of faults and clients that still fails\n"
    "--twice           run each seed twice and compare what the nodes do; without\n"
    "                  this option, only one seed in a hundred runs twice\n"
    "--faults A,B,...  use these faults, not those that the seed draws;\n"
    "                  '' means none\n"
    "--clients N       number of clients\n"
    "--jobs N          number of processes (1)\n"
    "--until-caught    stop at the first seed that fails, and print how many seeds "
    "ran\n"
    "--help            print this text\n"
    "\n";

static void print_faults(const char *title, const struct sim_fault_list *l)
{
    puts(title);
    for (uint32_t f = 0; f < l->count; f++)
        printf("    %-10s%s\n", l->rows[f].word, l->rows[f].what);
}

static void print_help(void)
{
    fputs(help, stdout);
    print_faults("Faults of majority clusters:", sim_kind_majority.faults);
    print_faults("\nFaults of keeper clusters:", sim_kind_keeper.faults);
}

static void fail_usage(const char *what, const char *value)
{
    fprintf(stderr, "sluice-sim: %s%s (see --help)\n", what, value);
    exit(2);
}

/* ---- options ---- */

static uint64_t number_of(const char *text, uint64_t most)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || n > most)
        fail_usage("invalid number: ", text);
    return n;
}

static void take_faults(struct options *o, const char *text)
{
    const char *bad;
    if (!sim_faults_parse(o->kind->faults, text, &o->setup.faults, &bad))
        fail_usage("unknown fault: ", bad);
    o->setup.faults_given = true;
}

enum {
    OPT_KEEPER = 1,
    OPT_SEEDS,
    OPT_FIRST,
    OPT_EVENTS,
    OPT_SEED,
    OPT_TRACE,
    OPT_UNTIL,
    OPT_SHRINK,
    OPT_TWICE,
    OPT_FAULTS,
    OPT_CLIENTS,
    OPT_JOBS,
    OPT_UNTIL_CAUGHT,
    OPT_HELP,
};

static const struct option table[] = {
    {"keeper", no_argument, NULL, OPT_KEEPER},
    {"seeds", required_argument, NULL, OPT_SEEDS},
    {"first", required_argument, NULL, OPT_FIRST},
    {"events", required_argument, NULL, OPT_EVENTS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"trace", no_argument, NULL, OPT_TRACE},
    {"until", required_argument, NULL, OPT_UNTIL},
    {"shrink", no_argument, NULL, OPT_SHRINK},
    {"twice", no_argument, NULL, OPT_TWICE},
    {"faults", required_argument, NULL, OPT_FAULTS},
    {"clients", required_argument, NULL, OPT_CLIENTS},
    {"jobs", required_argument, NULL, OPT_JOBS},
    {"until-caught", no_argument, NULL, OPT_UNTIL_CAUGHT},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static void take_option(struct options *o, int option)
{
    struct sim_setup *s = &o->setup;
    switch (option) {
        case OPT_SEEDS: o->seeds = number_of(optarg, UINT64_MAX / 2); break;
        case OPT_FIRST: o->first = number_of(optarg, UINT64_MAX / 2); break;
        case OPT_EVENTS: s->events = number_of(optarg, UINT64_MAX / 16); break;
        case OPT_SEED:
            o->first = number_of(optarg, UINT64_MAX / 2);
            o->one = true;
            break;
        case OPT_TRACE: s->trace = true; break;
        case OPT_UNTIL: s->until = number_of(optarg, UINT64_MAX / 2); break;
        case OPT_SHRINK: o->shrink = true; break;
        case OPT_TWICE: o->twice = true; break;
        case OPT_KEEPER: o->kind = &sim_kind_keeper; break;
        case OPT_FAULTS: o->faults = optarg; break;
        case OPT_CLIENTS: s->clients = (uint32_t)number_of(optarg, 8); break;
        case OPT_JOBS: o->jobs = (uint32_t)number_of(optarg, JOBS_MAX); break;
        case OPT_UNTIL_CAUGHT: o->until_caught = true; break;
        case OPT_HELP: print_help(); exit(0);
        default: exit(2);
    }
}

static void parse(struct options *o, int argc, char **argv)
{
    int option;
    o->program = argv[0];
    while ((option = getopt_long(argc, argv, "", table, NULL)) != -1)
        take_option(o, option);
    if (o->faults != NULL) take_faults(o, o->faults);
    if (optind < argc) fail_usage("unexpected argument: ", argv[optind]);
    if ((o->setup.trace || o->shrink || o->setup.until > 0) && !o->one)
        fail_usage("--trace, --until and --shrink need --seed", "");
    if (o->one) o->seeds = o->jobs = 1;
    if (o->jobs == 0) o->jobs = 1;
}

/* ---- one seed ---- */

static void print_replay(const struct options *o, const struct sim_setup *s,
                         const char *more)
{
    char faults[500];
    printf("replay: %s%s --seed %" PRIu64 " --events %" PRIu64, o->program,
           o->kind->option, s->seed, s->events);
    sim_faults_print(o->kind->faults, s->faults, faults, sizeof faults);
    if (s->faults_given) printf(" --faults '%s'", faults);
    if (s->clients > 0) printf(" --clients %u", s->clients);
    printf("%s\n", more);
}

static void print_wrong(const struct options *o, const struct sim_setup *setup,
                        const void *w, const char *wrong)
{
    struct sim_result r;
    o->kind->look(w, &r);
    if (!setup->trace) o->kind->print_setup(w);
    printf("%s in seed %" PRIu64 " at event %" PRIu64 ", %" PRId64 ".%03" PRId64
           " ms: %s\n",
           r.is_stuck ? "STUCK" : "WRONG", setup->seed, r.steps, r.now_us / 1000,
           r.now_us % 1000, wrong);
    print_replay(o, setup, " --trace");
    fflush(stdout);
}

/* The current run, for the crash handler. */
static struct {
    const struct options *options;
    struct sim_setup setup;
    const void *world;
} running;

/* Signal handler: print the seed that caused a failed assertion or another crash. */
static void on_crash(int number)
{
    signal(number, SIG_DFL);
    if (running.world != NULL) {
        struct sim_result r;
        running.options->kind->look(running.world, &r);
        printf("CRASH in seed %" PRIu64 " at event %" PRIu64 ": %s\n",
               running.setup.seed, r.steps, strsignal(number));
        print_replay(running.options, &running.setup, " --trace");
        fflush(stdout);
    }
    _exit(1);
}

static void add_counts(struct sim_counts *to, const struct sim_counts *from)
{
    to->seeds += from->seeds;
    to->events += from->events;
    to->grants += from->grants;
    to->extends += from->extends;
    to->steals += from->steals;
    to->crashes += from->crashes;
    to->resignations += from->resignations;
    to->early += from->early;
    to->failed_writes += from->failed_writes;
    to->changes += from->changes;
    to->healed += from->healed;
    to->forwarded += from->forwarded;
    to->records += from->records;
    to->overlaps += from->overlaps;
    to->commits += from->commits;
    to->breaks += from->breaks;
    to->members += from->members;
    to->drains += from->drains;
    to->wrong += from->wrong;
    to->stuck += from->stuck;
    to->twice += from->twice;
}

/* Run the seed again. Returns whether the second run differs, and says how. */
static bool differs(const struct options *o, void *w, struct sim_setup setup,
                    char *wrong, size_t n)
{
    struct sim_result a, b;
    o->kind->look(w, &a);
    setup.trace = false;
    o->kind->run(w, &setup);
    o->kind->look(w, &b);
    if (b.wrong[0] != '\0' || (a.hash == b.hash && a.steps == b.steps)) return false;
    snprintf(wrong, n,
             "the same seed ran in two ways: %" PRIx64 " after %" PRIu64
             " events, then %" PRIx64 " after %" PRIu64,
             a.hash, a.steps, b.hash, b.steps);
    return true;
}

static void run_one(const struct options *o, void *w, uint64_t seed,
                    struct sim_counts *counts)
{
    struct sim_result r;
    char wrong[400];
    running.setup = o->setup;
    running.setup.seed = seed;
    const struct sim_setup setup = running.setup;
    o->kind->run(w, &setup);
    bool twice = o->twice || (!o->one && seed % 100 == 0);
    bool differ = twice && differs(o, w, setup, wrong, sizeof wrong);
    o->kind->look(w, &r);
    r.counts.twice = twice;
    if (differ) r.counts.wrong = 1;
    add_counts(counts, &r.counts);
    if (r.counts.wrong > 0) print_wrong(o, &setup, w, differ ? wrong : r.wrong);
}

/* ---- shrinking ---- */

/* Return whether the seed fails with this setup. Runs it in a child process, because it
 * may crash. */
static bool still_fails(const struct options *o, const struct sim_setup *setup)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct sim_result r;
        void *w = o->kind->create();
        signal(SIGABRT, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
        o->kind->run(w, setup);
        o->kind->look(w, &r);
        _exit(r.counts.wrong > 0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status != 0;
}

static bool drop_one_fault(const struct options *o, struct sim_setup *setup)
{
    for (uint32_t f = 0; f < o->kind->faults->count; f++) {
        struct sim_setup less = *setup;
        less.faults &= ~(1ull << f);
        if (less.faults == setup->faults || !still_fails(o, &less)) continue;
        *setup = less;
        return true;
    }
    return false;
}

static int shrink(const struct options *o, void *w)
{
    struct sim_result r;
    struct sim_setup setup = o->setup;
    setup.seed = o->first;
    setup.trace = false;
    if (!still_fails(o, &setup)) {
        printf("seed %" PRIu64 " does not fail\n", setup.seed);
        return 0;
    }
    /* One event is enough to find out the faults of the seed. */
    struct sim_setup none = setup;
    none.until = 1;
    o->kind->run(w, &none);
    o->kind->look(w, &r);
    setup.faults = r.faults;
    setup.faults_given = true;
    uint32_t clients = r.clients;
    if (!still_fails(o, &setup)) {
        printf("seed %" PRIu64 " fails only as it was drawn\n", setup.seed);
        return 1;
    }
    while (drop_one_fault(o, &setup)) continue;
    for (uint32_t n = 1; n < clients; n++) {
        struct sim_setup less = setup;
        less.clients = n;
        if (!still_fails(o, &less)) continue;
        setup = less;
        break;
    }
    print_replay(o, &setup, " --trace");
    return 1;
}

/* ---- many seeds ---- */

static bool is_caught(const struct options *o, const struct job *jobs)
{
    for (uint32_t i = 0; i < o->jobs; i++) {
        if (jobs[i].caught != 0) return true;
    }
    return false;
}

static void work(const struct options *o, struct job *jobs, uint32_t me)
{
    void *w = o->kind->create();
    running.options = o;
    running.world = w;
    for (uint64_t i = me; i < o->seeds; i += o->jobs) {
        if (o->until_caught && is_caught(o, jobs)) break;
        uint64_t wrong = jobs[me].counts.wrong;
        run_one(o, w, o->first + i, &jobs[me].counts);
        if (jobs[me].counts.wrong > wrong) jobs[me].caught = o->first + i;
    }
    running.world = NULL;
    o->kind->destroy(w);
}

static void show_progress(const struct options *o, const struct job *jobs)
{
    struct sim_counts all = {0};
    for (uint32_t i = 0; i < o->jobs; i++) add_counts(&all, &jobs[i].counts);
    fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " wrong ", all.seeds,
            o->seeds, all.wrong);
}

/* Wait for all jobs. Returns whether a job crashed. */
static bool wait_for(const struct options *o, struct job *jobs)
{
    bool crashed = false;
    uint32_t left = o->jobs;
    bool tty = isatty(STDERR_FILENO);
    while (left > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, tty ? WNOHANG : 0);
        if (pid > 0) {
            left--;
            if (status != 0) crashed = true;
            continue;
        }
        if (pid < 0) break;
        show_progress(o, jobs);
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    if (tty) fputs("\r\033[K", stderr);
    return crashed;
}

static bool run_jobs(const struct options *o, struct job *jobs)
{
    if (o->jobs == 1 && !isatty(STDERR_FILENO)) {
        work(o, jobs, 0);
        return false;
    }
    fflush(stdout);
    for (uint32_t i = 0; i < o->jobs; i++) {
        jobs[i].pid = fork();
        if (jobs[i].pid != 0) continue;
        work(o, jobs, i);
        fflush(stdout);
        _exit(0);
    }
    return wait_for(o, jobs);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print_counts(const struct options *o, const struct sim_counts *c,
                         bool crashed, double took)
{
    printf("%" PRIu64 " seeds of %" PRIu64 " events: %" PRIu64 " events, ", c->seeds,
           o->setup.events, c->events);
    o->kind->print_counts(c);
    printf(", %" PRIu64 " healed, %" PRIu64 " run twice; %" PRIu64
           " violations (%" PRIu64 " stuck)%s; %.1f seconds, %.2f M events/s\n",
           c->healed, c->twice, c->wrong, c->stuck, crashed ? ", and a CRASH" : "",
           took, (double)c->events / took / 1e6);
}

int main(int argc, char **argv)
{
    struct options o = {.kind = &sim_kind_majority, .first = 1, .seeds = 1000};
    /* After a crash, on_crash() prints. It must not need the heap, which may be damaged. */
    static char out[BUFSIZ];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    parse(&o, argc, argv);
    if (o.setup.events == 0) o.setup.events = o.kind->events;
    if (o.shrink) { return shrink(&o, o.kind->create()); }
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    struct job *jobs = mmap(NULL, o.jobs * sizeof *jobs, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (jobs == MAP_FAILED) abort();
    double start = seconds();
    bool crashed = run_jobs(&o, jobs);
    struct sim_counts all = {0};
    for (uint32_t i = 0; i < o.jobs; i++) add_counts(&all, &jobs[i].counts);
    print_counts(&o, &all, crashed, seconds() - start);
    munmap(jobs, o.jobs * sizeof *jobs);
    return all.wrong > 0 || crashed;
}
