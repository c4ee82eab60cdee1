/* journal.c - kill a server after every instruction that it spends on its journal: what it had
 * acknowledged is still there, in the same life.
 *
 *     journal [--short | --long] [--phase X] [--from N] [--to N] [--stride N]
 *             [--enough N] [--limit-ms N]
 *
 * A phase is a script of a small server around src/journal (tests/journal/owner.h). For each
 * instruction of the script, a process runs to that instruction and is killed. Then another process
 * recovers the journal, and compares it with what the clients know. At every third point it starts the
 * server again, which must grant, extend and sync, and recovers once more. The files are real. --short kills at some of
 * the instructions of each phase. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../journal/owner.h"
#include "scene.h"
#include "stage.h"
#include "stepped.h"
#include "sweep.h"

#define DEADLINE_SHORT_S 1500 /* Some ten seconds are usual. */
#define DEADLINE_LONG_S 14000
#define POINTS_MIN 25    /* Of a phase, whatever --limit-ms is. */
#define POINTS_SHORT 800 /* Of each phase, at most, in the short run. */

static int directory;
static struct owner *owner; /* Shared with the processes. */

/* ---- scripts; in the process that is killed ---- */

static void must(bool good)
{
    if (!good) _exit(3);
}

static void turn(void)
{
    owner->now_ms += 10;
    owner_turn(owner);
}

static void copy_all(void)
{
    for (int i = 0; i < OWNER_KEYS; i++) owner_copy(owner);
}

static void start(void *unused)
{
    (void)unused;
    must(owner_start(owner) == 0);
}

/* A journal with short and long leases, and some that have ended. */
static void start_with_leases(void *unused)
{
    start(unused);
    owner_acquire(owner, 0, 300000);
    owner_acquire(owner, 1, 30000);
    owner_acquire(owner, 2, 0);
    turn();
    owner_sync(owner);
    owner_extend(owner, 0, 400000);
    owner_acquire(owner, 3, 90000);
    owner_release(owner, 2);
    turn();
    owner_sync(owner);
}

static void a_first_start(void *unused)
{
    start(unused);
    owner_acquire(owner, 0, 300000);
    owner_acquire(owner, 1, 30000);
    turn();
    owner_sync(owner);
}

static void b_leases(void *unused)
{
    (void)unused;
    owner_acquire(owner, 4, 30000);
    owner_extend(owner, 1, 45000);
    owner_release(owner, 3);
    turn();
    owner_acquire(owner, 3, 240000); /* Waits until the release is durable. */
    turn();
    owner_extend(owner, 0, 500000);
    owner_sync(owner);
    owner_release(owner, 4);
    turn();
    owner_acquire(owner, 4, 5000);
    owner_extend(owner, 1, 90000); /* Becomes long. */
    turn();
    owner_sync(owner);
}

static void c_replacement(void *unused)
{
    (void)unused;
    owner_replace(owner);
    owner_acquire(owner, 4, 30000);
    turn();
    owner_copy(owner);
    owner_release(owner, 0);
    owner_extend(owner, 1, 50000);
    turn();
    copy_all();
    owner_acquire(owner, 5, 300000);
    turn();
    owner_commit(owner);
    owner_acquire(owner, 0, 120000);
    turn();
    owner_sync(owner);
}

/* The server was killed while it wrote a frame, and while it replaced its file. */
static void prepare_kill(void *unused)
{
    char rest[200];
    start_with_leases(unused);
    uint64_t end = sl_journal_file_bytes(owner->f);
    owner_forget_process(owner);
    memset(rest, 0x77, sizeof rest);
    int fd = openat(directory, SL_JOURNAL_NAME, O_RDWR | O_CLOEXEC);
    must(fd >= 0 && pwrite(fd, rest, sizeof rest, (off_t)end) == sizeof rest);
    /* Without the allocated space, in which recovery would search for a million instructions. */
    must(ftruncate(fd, (off_t)(end + sizeof rest)) == 0);
    close(fd);
    fd = openat(directory, SL_JOURNAL_NEXT, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && pwrite(fd, rest, sizeof rest, 0) == sizeof rest);
    close(fd);
    owner->now_ms += 1000;
}

static void d_next_start(void *unused)
{
    start(unused);
    owner_extend(owner, 1, 60000);
    turn();
}

/* The power failed, or an I/O error was noted. */
static void prepare_other_life(void *unused)
{
    prepare_kill(unused);
    owner_boot(owner, owner->now_ms);
}

static void prepare_failure(void *unused)
{
    start_with_leases(unused);
    sl_journal_file_note_error(directory);
    owner->may_fail = owner->has_failed = true;
    sl_journal_fail(owner->j);
}

static void f_mend(void *unused)
{
    (void)unused;
    owner_mend(owner);
    owner_copy(owner);
    owner_release(owner, 0);
    turn();
    copy_all();
    owner_commit(owner);
    owner_acquire(owner, 0, 200000);
    turn();
    owner_sync(owner);
}

static void g_stop(void *unused)
{
    (void)unused;
    owner_extend(owner, 1, 40000);
    must(owner_stop(owner) == 0);
}

static const struct phase {
    const char *letter, *sentence;
    void (*prepare)(void *unused);
    void (*script)(void *unused);
} phases[] = {
    {"a", "a first start", NULL, a_first_start},
    {"b", "grants, extensions, ends and syncs", start_with_leases, b_leases},
    {"c", "a replacement of the file", start_with_leases, c_replacement},
    {"d", "a start in the same life", prepare_kill, d_next_start},
    {"e", "a start in another life", prepare_other_life, d_next_start},
    {"f", "a new file after an error", prepare_failure, f_mend},
    {"g", "a clean stop", start_with_leases, g_stop},
};

/* ---- one point ---- */

static void begin(const struct phase *p, struct stepped *victim)
{
    unlinkat(directory, SL_JOURNAL_NAME, 0);
    unlinkat(directory, SL_JOURNAL_NEXT, 0);
    unlinkat(directory, SL_JOURNAL_ERROR, 0);
    owner_init(owner, directory);
    stepped_start(victim, (struct stepped_role){p->prepare, p->script, NULL});
}

static void complain(const char *what, int error)
{
    if (owner->wrong[0] == '\0')
        snprintf(owner->wrong, sizeof owner->wrong, "%s: %s", what, strerror(error));
}

static void check(void)
{
    int error = owner_check_same_life(owner);
    bool empty = error == ENOENT && owner->fence_given == 0;
    if (error != 0 && !empty) complain("the journal cannot be read", error);
}

/* Check what the killed process left, start again, and check that, too. */
static void judge_here(bool restarts)
{
    owner->j = NULL; /* They were in the memory of the killed process. */
    owner->f = NULL;
    owner_forget_process(owner);
    check();
    if (!restarts) return;
    int error = owner_start(owner);
    if (error != 0) {
        complain("the next start fails", error);
        return;
    }
    owner_extend(owner, 1, 100000);
    owner_acquire(owner, 5, 300000);
    turn();
    owner_sync(owner);
    bool waits = owner->now_ms < owner->wait_until_ms;
    if (!waits && owner->table[5].fence == 0) complain("nothing is granted", EAGAIN);
    owner_forget_process(owner);
    check();
}

/* In a process of its own, so that the next victim finds the heap of the test as it was. */
static void judge(struct scene *s, bool restarts)
{
    int status;
    pid_t pid = stage_fork();
    if (pid == 0) {
        judge_here(restarts);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) stage_bail("waitpid: %s", strerror(errno));
    if (status != 0) scene_wrong(s, "the process that checks died: %d", status);
    if (owner->wrong[0] != '\0') scene_wrong(s, "%s", owner->wrong);
}

static void one_point(const struct phase *p, const struct trace *t, size_t point,
                      struct sweep *w)
{
    static struct stepped victim;
    static struct scene s;
    s = (struct scene){0};
    begin(p, &victim);
    w->points++;
    if (!stepped_reach(&victim, t, 0, point)) w->missed++;
    stepped_kill(&victim);
    judge(&s, w->points % 3 == 0);
    sweep_report(w, point, point, NULL, &s);
}

/* ---- one phase ---- */

static bool learn(const struct phase *p, struct trace *out)
{
    static struct stepped victim;
    static struct scene s;
    s = (struct scene){0};
    begin(p, &victim);
    stepped_trace(&victim, out, NULL, NULL);
    if (!victim.done) scene_wrong(&s, "the script did not come to its end");
    stepped_kill(&victim);
    judge(&s, true);
    if (s.wrong) stage_note("phase %s, not killed: %s", p->letter, s.why);
    return !s.wrong;
}

/* Whether the process is inside an instruction that repeats itself (rep stosb). A sample leaves these
 * points out: the path to them has one stop for each byte, and the instruction only fills memory. */
static bool repeats(const struct trace *t, size_t i)
{
    return i > 0 && t->at[i] == t->at[i - 1];
}

static size_t count_steps(const struct trace *t)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++) count += !repeats(t, i);
    return count;
}

static size_t run_phase(const struct phase *p)
{
    struct sweep w = sweep_begin(p->letter);
    struct trace t;
    char title[100];
    bool learned = learn(p, &t);
    size_t last = t.count - 1;
    if (last > sweep_options.to) last = sweep_options.to;
    stage_note("phase %s: %zu instructions", p->letter, t.count);
    size_t stride = sweep_options.stride, left = 0;
    bool is_sample = stride == 0 && !sweep_options.is_long &&
                     sweep_options.only == NULL;
    if (is_sample) stride = 1;
    struct tour tour = tour_of(sweep_options.from, last, stride);
    size_t gap = (count_steps(&t) + POINTS_SHORT - 1) / POINTS_SHORT;
    for (size_t i; sweep_next(&w, &tour, is_sample ? SIZE_MAX : POINTS_MIN, &i);) {
        if (is_sample && (repeats(&t, i) || left-- > 0)) continue;
        left = gap - 1;
        one_point(p, &t, i, &w);
    }
    trace_free(&t);
    snprintf(title, sizeof title, "phase %s, %s", p->letter, p->sentence);
    sweep_end(&w, learned, "kill points", title);
    return w.points;
}

static void open_directory(void)
{
    char path[STAGE_PATH_MAX];
    stage_path(path);
    *strrchr(path, '/') = '\0';
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) stage_bail("%s: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
    size_t points = 0;
    sweep_read_options(argc, argv, "--phase",
                       "journal [--short | --long] [--phase a|...|g] [--from N] "
                       "[--to N] [--stride N] [--enough N] [--limit-ms N]",
                       20, 0);
    stage_open(sweep_options.is_long ? DEADLINE_LONG_S : DEADLINE_SHORT_S);
    open_directory();
    owner = stage_shared(sizeof *owner);
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
        if (sweep_options.only == NULL ||
            strcmp(sweep_options.only, phases[i].letter) == 0)
            points += run_phase(&phases[i]);
    if (sweep_options.only == NULL && sweep_options.to == SIZE_MAX)
        stage_ok(points >= 5000, "%zu kill points in all", points);
    stage_close();
}
