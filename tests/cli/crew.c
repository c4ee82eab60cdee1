#include "crew.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "canal/counter.h"
#include "canal/slot.h"
#include "canal/thread.h"
#include "stage.h"

#define WRONGS_MAX 10
#define DRAIN_NS (40000 * CREW_MS)
#define POLL_NS (CREW_MS / 2) /* How often the board is looked at for who has begun. */
#define STOP_MAX_MS 15

struct crew crew;

const char *const crew_stage_names[STAGES] = {
    [STARTING] = "starting", [WAITING] = "waiting", [GRANTED] = "granted",
    [FORKED] = "forked",     [RUNNING] = "running", [AFTER] = "command ended",
};

static char sluice_path[PATH_MAX];
static char witness_path[PATH_MAX];
static sigset_t deaths;

/* --- Small things --------------------------------------------------------- */

uint32_t crew_pick(uint32_t below)
{
    return (uint32_t)(stage_random(&crew.chance) >> 33) % below;
}

void crew_wrong(const char *format, ...)
{
    char text[240];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (crew.wrong++ < WRONGS_MAX) stage_note("%s", text);
}

uint32_t crew_units(const struct crew_order *o)
{
    return o->kind == EXCLUSIVE ? SLUICE_UNITS_MAX : 1;
}

uint32_t crew_capacity(const struct crew_order *o)
{
    if (o->kind != COUNTING) return SLUICE_UNITS_MAX;
    return o->per * (o->buckets == 0 ? 1 : o->buckets);
}

void crew_act(struct crew_order *o, enum crew_deed deed, bool after_begin,
              int64_t delay_ns)
{
    if (o->act_count == CREW_ACTS_MAX) stage_bail("an order has too many acts");
    o->act[o->act_count++] = (struct crew_act){
        .deed = deed, .after_begin = after_begin, .delay_ns = delay_ns};
}

void crew_key_name(uint32_t key, char out[16])
{
    snprintf(out, 16, "key-%u", key);
}

/* --- Life ----------------------------------------------------------------- */

/* A program of this build: next to us, or from the build's top directory. */
static void find_program(const char *name, char out[PATH_MAX])
{
    char self[PATH_MAX / 2] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) stage_bail("/proc");
    char *slash = strrchr(self, '/');
    if (slash != NULL) *slash = '\0';
    snprintf(out, PATH_MAX, "%s/%s", self, name);
}

void crew_open(const char *sluice, uint64_t seed)
{
    find_program("witness", witness_path);
    if (sluice == NULL) find_program("../../src/cli/sluice", sluice_path);
    else snprintf(sluice_path, sizeof sluice_path, "%s", sluice);
    if (access(sluice_path, X_OK) != 0)
        stage_bail("%s: %s", sluice_path, strerror(errno));
    if (access(witness_path, X_OK) != 0)
        stage_bail("%s: %s", witness_path, strerror(errno));
    crew.chance = seed;
    unsetenv("SLUICE_SERVER");
    unsetenv("SLUICE_SEGMENT");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) stage_bail("prctl: %s", strerror(errno));
    sigemptyset(&deaths);
    sigaddset(&deaths, SIGCHLD);
    sigprocmask(SIG_BLOCK, &deaths, NULL);
    crew.run = calloc(BOARD_RUNS_MAX, sizeof *crew.run);
    if (crew.run == NULL) stage_bail("out of memory");
}

static int make_file(char path[96])
{
    stage_path(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) stage_bail("%s: %s", path, strerror(errno));
    return fd;
}

void crew_scene(const struct sluice_canal_options *options)
{
    int fd = make_file(crew.board_path);
    if (ftruncate(fd, sizeof *crew.board) != 0) stage_bail("%s", strerror(errno));
    crew.board = mmap(NULL, sizeof *crew.board, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      0);
    if (crew.board == MAP_FAILED) stage_bail("mmap: %s", strerror(errno));
    close(fd);
    close(make_file(crew.log));
    close(make_file(crew.said));
    crew.board->driver = getpid();
    memset(crew.run, 0, BOARD_RUNS_MAX * sizeof *crew.run);
    memset(crew.key_used, 0, sizeof crew.key_used);
    memset(crew.together, 0, sizeof crew.together);
    memset(&crew.now, 0, sizeof crew.now);
    crew.wrong = 0;
    stage_path(crew.segment);
    if (options == NULL) return;
    int status = sluice_canal_open(crew.segment, options, &crew.canal);
    if (status != SLUICE_OK) stage_bail("open: %s", sluice_status_word(status));
}

void crew_scene_end(void)
{
    struct crew_count *n = &crew.now, *all = &crew.all;
    all->runs += n->runs;
    all->ended += n->ended;
    all->refused += n->refused;
    all->killed_wrappers += n->killed_wrappers;
    all->killed_witnesses += n->killed_witnesses;
    all->killed_groups += n->killed_groups;
    all->killed_commands += n->killed_commands;
    all->stops += n->stops;
    all->heirs += n->heirs;
    all->orphans += n->orphans;
    all->unbegun += n->unbegun;
    for (int s = 0; s < STAGES; s++) all->stage[s] += n->stage[s];
    if (n->together_max > all->together_max) all->together_max = n->together_max;
    sluice_canal_close(crew.canal);
    crew.canal = NULL;
    munmap(crew.board, sizeof *crew.board);
    unlink(crew.segment);
    unlink(crew.board_path);
    unlink(crew.log);
    unlink(crew.said);
}

/* --- Start ---------------------------------------------------------------- */

static _Noreturn void be_wrapper(const struct crew_order *o, uint32_t number)
{
    char key[16], per[16], buckets[16], wait[24], run[16];
    const char *argv[32];
    int n = 0;
    crew_key_name(o->key, key);
    snprintf(run, sizeof run, "%u", number);
    argv[n++] = "sluice";
    argv[n++] = "run";
    argv[n++] = "--segment";
    argv[n++] = crew.segment;
    argv[n++] = "-q";
    if (o->kind == SHARED) argv[n++] = "-s";
    if (o->kind == EXCLUSIVE && number % 2 == 0) argv[n++] = "-x"; /* Or by default. */
    if (o->kind == COUNTING && (o->per != 1 || o->buckets == 0 || number % 2 == 0)) {
        snprintf(per, sizeof per, "%u", o->per);
        argv[n++] = "-j";
        argv[n++] = per;
    }
    if (o->kind == COUNTING && o->buckets != 0) {
        snprintf(buckets, sizeof buckets, "%u", o->buckets);
        argv[n++] = "--buckets";
        argv[n++] = buckets;
    }
    if (o->wait_ms == 0) argv[n++] = "-n";
    if (o->wait_ms > 0) {
        snprintf(wait, sizeof wait, "%" PRId64 "ms", o->wait_ms);
        argv[n++] = "-w";
        argv[n++] = wait;
    }
    if (o->in_place) argv[n++] = "-F";
    argv[n++] = key;
    argv[n++] = "--";
    argv[n++] = witness_path;
    argv[n++] = crew.board_path;
    argv[n++] = crew.log;
    argv[n++] = run; /* The last: owner_of() finds it there. */
    argv[n] = NULL;

    sigprocmask(SIG_UNBLOCK, &deaths, NULL);
    /* A wrapper whose command stops, stops its group. */
    setpgid(0, 0);
    int said = open(crew.said, O_WRONLY | O_APPEND | O_CLOEXEC);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(said, 1);
    dup2(said, 2);
    execv(sluice_path, (char **)(uintptr_t)argv);
    dprintf(2, "%s: %s\n", sluice_path, strerror(errno));
    _exit(98);
}

void crew_start(const struct crew_order *order)
{
    uint32_t number = crew.board->runs;
    if (number == BOARD_RUNS_MAX) stage_bail("more runs than the board has lines");
    struct crew_run *r = &crew.run[number];
    *r = (struct crew_run){
        .order = *order, .gone_ns = INT64_MAX, .stopped_fd = -1, .running = true};
    crew.board->run[number] = (struct board_run){.key = order->key,
                                                 .units = crew_units(order),
                                                 .capacity = crew_capacity(order),
                                                 .live_ns = order->live_ns,
                                                 .heir_ns = order->heir_ns};
    __atomic_store_n(&crew.board->runs, number + 1, __ATOMIC_RELEASE);
    crew.open[crew.open_count++] = number;
    crew.key_used[order->key] = true;
    crew.running++;
    crew.now.runs++;
    r->fork_ns = board_now_ns();
    r->pid = stage_fork();
    if (r->pid == 0) be_wrapper(order, number);
}

/* --- Deeds ---------------------------------------------------------------- */

/* Whether a process may have been killed already, although its state does not tell: it
 * may have begun after we looked and before it died. */
static bool is_past(const struct crew_run *r, int who)
{
    return r->group_killed ||
           (who == WITNESS && r->order.in_place && r->killed_ns != 0);
}

/* Take note that a process which has not ended is going to be killed (E2). */
static bool doom(struct crew_run *r, int who)
{
    int64_t now = board_now_ns();
    if (is_past(r, who)) return false;
    if (!board_finish(process_of(r, who), DOOMED)) return false;
    r->doom_ns[who] = now;
    return true;
}

/* Say before it happens that a kill may hit a process that is just beginning, and whose
 * state then stays ALIVE forever. */
static void spoil(struct crew_run *r)
{
    __atomic_store_n(&line_of(r)->spoiled, 1, __ATOMIC_SEQ_CST);
}

static void kill_wrapper(struct crew_run *r)
{
    if (!r->running) return;
    if (r->order.in_place) {
        spoil(r);
        doom(r, WITNESS);
    }
    r->killed_ns = board_now_ns();
    kill(r->pid, SIGKILL);
}

/* A descriptor of the witness, if it lives. It lives while it is ALIVE, as nobody but us
 * kills it; so if it still is after the number was looked up, the number was its. */
static int hold_witness(struct crew_run *r)
{
    struct board_process *p = process_of(r, WITNESS);
    if (is_past(r, WITNESS) || board_state(p) != ALIVE) return -1;
    int fd = pidfd_open(p->pid, 0);
    if (fd >= 0 && board_state(p) == ALIVE) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void kill_witness(struct crew_run *r)
{
    int fd = hold_witness(r);
    if (fd < 0) return;
    if (doom(r, WITNESS)) {
        pidfd_send_signal(fd, SIGKILL, NULL, 0);
        crew.now.killed_witnesses++;
    }
    close(fd);
}

static void kill_group(struct crew_run *r)
{
    int fd = hold_witness(r);
    bool witness = fd >= 0 && doom(r, WITNESS), heir = doom(r, HEIR);
    if (witness || heir) {
        r->group_killed = true;
        spoil(r);
        if (kill(-process_of(r, WITNESS)->pid, SIGKILL) != 0)
            crew_wrong("run %u: its command has no group of its own", number_of(r));
        crew.now.killed_groups++;
    }
    if (witness) pidfd_send_signal(fd, SIGKILL, NULL, 0); /* Whatever its group. */
    if (fd >= 0) close(fd);
}

static void stop_witness(struct crew_run *r, int64_t now)
{
    int fd = hold_witness(r);
    if (fd < 0) return;
    pidfd_send_signal(fd, SIGSTOP, NULL, 0);
    r->stopped_fd = fd;
    r->stopped_until_ns = now + crew_pick(STOP_MAX_MS * 1000) * (CREW_MS / 1000);
    crew.now.stops++;
}

static void do_deed(struct crew_run *r, enum crew_deed deed, int64_t now)
{
    switch (deed) {
        case KILL_WRAPPER: kill_wrapper(r); break;
        case KILL_WITNESS: kill_witness(r); break;
        case KILL_GROUP: kill_group(r); break;
        case STOP_WRAPPER: /* That it has stopped is told by waitpid. */
            if (r->running) kill(r->pid, SIGSTOP), crew.now.stops++;
            break;
        case STOP_WITNESS:
            if (r->stopped_fd < 0) stop_witness(r, now);
            break;
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When an act is due. */
static int64_t due(const struct crew_run *r, const struct crew_act *a, int64_t now)
{
    if (!a->after_begin) return r->fork_ns + a->delay_ns;
    int64_t begin = __atomic_load_n(&process_of(r, WITNESS)->begin_ns,
                                    __ATOMIC_ACQUIRE);
    return begin == 0 ? now + POLL_NS : begin + a->delay_ns;
}

/* Do to a run what is due; returns when to come again. */
static int64_t tend(struct crew_run *r, int64_t now)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < r->order.act_count; i++) {
        struct crew_act *a = &r->order.act[i];
        if (a->done) continue;
        /* Nobody is left who could begin. */
        if (!r->running && r->child == 0 && r->order.heir_ns == 0) a->done = true;
        int64_t at = due(r, a, now);
        if (!a->done && at <= now) {
            do_deed(r, a->deed, now);
            a->done = true;
        }
        if (!a->done) next = earlier(next, at);
    }
    if (r->continue_ns != 0 && r->continue_ns <= now) {
        if (r->running) kill(r->pid, SIGCONT);
        r->continue_ns = 0;
    }
    if (r->continue_ns != 0) next = earlier(next, r->continue_ns);
    if (r->stopped_fd >= 0 && r->stopped_until_ns <= now) {
        pidfd_send_signal(r->stopped_fd, SIGCONT, NULL, 0);
        close(r->stopped_fd);
        r->stopped_fd = -1;
    }
    if (r->stopped_fd >= 0) next = earlier(next, r->stopped_until_ns);
    return next;
}

/* --- Deaths --------------------------------------------------------------- */

static bool is_our_child(pid_t pid)
{
    siginfo_t info;
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* The run that a child of ours belongs to, by the last of its arguments, which a child
 * that has not yet executed the witness has from its wrapper; -1: none. */
static long owner_of(pid_t pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    for (int tries = 0; tries < 200; tries++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return -1;
        ssize_t n = read(fd, text, sizeof text - 1);
        close(fd);
        if (n > 1) {
            text[n] = '\0';
            const char *last = text + n - 1;
            while (last > text && last[-1] != '\0') last--;
            return strtol(last, NULL, 10);
        }
        /* Empty: it is dead, or in the middle of execve. */
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == pid)
            return -1;
        usleep(50);
    }
    return -1;
}

static bool is_wrapper(pid_t pid)
{
    for (uint32_t i = 0; i < crew.open_count; i++) {
        const struct crew_run *r = &crew.run[crew.open[i]];
        if (r->running && r->pid == pid) return true;
    }
    return false;
}

/* The child that a killed wrapper left, before it has told who it is; 0: it left none. */
static pid_t find_unbegun(const struct crew_run *r)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *f = fopen(path, "re");
    if (f == NULL) stage_bail("%s: %s", path, strerror(errno));
    int pid, found = 0;
    while (found == 0 && fscanf(f, "%d", &pid) == 1)
        if (!is_wrapper(pid) && owner_of(pid) == (long)number_of(r)) found = pid;
    fclose(f);
    return found;
}

/* What the segment tells of a wrapper that is dead. */
static enum crew_stage look_inside(pid_t pid)
{
    if (crew.canal == NULL) return STARTING;
    const struct sl_canal_segment *seg = &crew.canal->seg;
    for (uint32_t s = 0; s < seg->slot_count; s++) {
        if (seg->slots[s].pid != pid || !sl_canal_slot_in_use(seg, s)) continue;
        if (seg->slots[s].waits_key != 0) return WAITING;
        for (uint32_t i = 0; i < seg->record_count; i++)
            if (seg->chunks[i / SL_CANAL_CHUNK_RECORDS] == s + 1 &&
                sl_canal_counter_effective(seg, i) != 0)
                return GRANTED;
    }
    return STARTING;
}

static enum crew_stage stage_of(const struct crew_run *r)
{
    const struct board_process *p = process_of(r, WITNESS);
    int64_t begin = __atomic_load_n(&p->begin_ns, __ATOMIC_ACQUIRE);
    int64_t end = __atomic_load_n(&p->end_ns, __ATOMIC_ACQUIRE);
    if (end != 0 && end <= r->killed_ns) return AFTER;
    if (begin != 0 && begin <= r->killed_ns) return RUNNING;
    if (begin != 0 || r->child != 0) return FORKED;
    return look_inside(r->pid);
}

/* A run is gone when nobody of it is left. An heir that was killed before it told its
 * number is not missed; such a run is never gone. */
static void check_gone(struct crew_run *r, int64_t now)
{
    if (r->running || r->child != 0) return;
    if (r->order.heir_ns > 0 && !r->heir_gone &&
        board_state(process_of(r, WITNESS)) != ABSENT)
        return;
    r->gone_ns = now;
    if (r->stopped_fd >= 0) close(r->stopped_fd);
    r->stopped_fd = -1;
    for (uint32_t i = 0; i < crew.open_count; i++)
        if (crew.open[i] == number_of(r)) crew.open[i] = crew.open[--crew.open_count];
}

static void wrapper_died(struct crew_run *r, int status, int64_t now)
{
    r->running = false;
    r->status = status;
    r->reaped_ns = now;
    crew.running--;
    if (WIFSIGNALED(status) && !r->order.in_place) {
        /* Its children became ours before we were told. */
        const struct board_process *p = process_of(r, WITNESS);
        if (board_state(p) == ABSENT) r->child = find_unbegun(r);
        else if (is_our_child(p->pid)) r->child = p->pid;
        if (r->child != 0) crew.now.orphans++;
    }
    if (WIFSIGNALED(status) && r->killed_ns != 0) {
        r->stage = stage_of(r);
        crew.now.stage[r->stage]++;
        crew.now.killed_wrappers++;
    }
    check_gone(r, now);
}

static void orphan_died(pid_t pid, int64_t now)
{
    for (uint32_t i = 0; i < crew.open_count; i++) {
        struct crew_run *r = &crew.run[crew.open[i]];
        bool witness = r->child == pid;
        bool heir = board_state(process_of(r, HEIR)) != ABSENT &&
                    process_of(r, HEIR)->pid == pid;
        if (!witness && !heir) continue;
        if (witness) {
            r->child = 0;
            if (board_state(process_of(r, WITNESS)) == ABSENT) crew.now.unbegun++;
        }
        if (heir) r->heir_gone = true;
        check_gone(r, now);
        return;
    }
}

/* Hear of all deaths and stops. False: there is nobody left. */
static bool hear(void)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return false;
        if (pid == 0) return true;
        int64_t now = board_now_ns();
        struct crew_run *r = NULL;
        for (uint32_t i = 0; i < crew.open_count && r == NULL; i++)
            if (crew.run[crew.open[i]].running && crew.run[crew.open[i]].pid == pid)
                r = &crew.run[crew.open[i]];
        if (r != NULL && WIFSTOPPED(status))
            r->continue_ns = now + crew_pick(STOP_MAX_MS * 1000) * (CREW_MS / 1000);
        else if (r != NULL) wrapper_died(r, status, now);
        else if (!WIFSTOPPED(status)) orphan_died(pid, now);
    }
}

/* --- Turns ---------------------------------------------------------------- */

static void nap_until(int64_t until_ns)
{
    int64_t left = until_ns - board_now_ns();
    if (left <= 0) return;
    struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    sigtimedwait(&deaths, NULL, &t);
}

static bool turn(int64_t until_ns)
{
    bool anybody = hear();
    if (crew.canal == NULL) {
        struct sluice_canal_options there = {.existing = 1};
        if (sluice_canal_open(crew.segment, &there, &crew.canal) != SLUICE_OK)
            crew.canal = NULL;
    }
    int64_t now = board_now_ns(), next = until_ns;
    for (uint32_t i = 0; i < crew.open_count; i++)
        next = earlier(next, tend(&crew.run[crew.open[i]], now));
    if (anybody) nap_until(next);
    return anybody;
}

bool crew_turn(int64_t until_ns)
{
    turn(until_ns);
    int64_t long_ago = board_now_ns() - DRAIN_NS;
    for (uint32_t i = 0; i < crew.open_count; i++) {
        const struct crew_run *r = &crew.run[crew.open[i]];
        if (!r->running || r->fork_ns > long_ago) continue;
        crew_wrong("run %u on key %u does not end", number_of(r), r->order.key);
        crew.stuck = true;
        return false;
    }
    return true;
}

/* Somebody is left who should have ended long ago: tell, and end it. */
static void give_up(void)
{
    char path[64];
    for (uint32_t i = 0; i < crew.open_count; i++) {
        const struct crew_run *r = &crew.run[crew.open[i]];
        if (r->running)
            crew_wrong("run %u on key %u has not ended: pid %d, its command is in "
                       "state %u",
                       number_of(r), r->order.key, r->pid,
                       board_state(process_of(r, WITNESS)));
    }
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    for (int64_t until = board_now_ns() + DRAIN_NS; hear();) {
        if (board_now_ns() > until) stage_bail("processes cannot be killed");
        FILE *f = fopen(path, "re");
        for (int pid; f != NULL && fscanf(f, "%d", &pid) == 1;) kill(pid, SIGKILL);
        if (f != NULL) fclose(f);
        nap_until(board_now_ns() + 10 * CREW_MS);
    }
}

void crew_drain(void)
{
    for (uint32_t i = 0; i < crew.open_count; i++) {
        struct crew_run *r = &crew.run[crew.open[i]];
        for (uint32_t a = 0; a < r->order.act_count; a++) r->order.act[a].done = true;
    }
    int64_t start = board_now_ns();
    while (turn(board_now_ns() + 10 * CREW_MS)) {
        if (!crew.stuck && board_now_ns() - start < DRAIN_NS) continue;
        crew_wrong("somebody has not ended after %d s",
                   (int)(DRAIN_NS / CREW_MS / 1000));
        give_up();
        crew.stuck = false;
        break;
    }
    crew.open_count = 0;
}
