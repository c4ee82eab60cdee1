#include "stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[64];
static unsigned paths;
static unsigned tests;
static unsigned failures;

int64_t stage_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint64_t stage_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* ---- the directory and who removes it ---- */

static void make_directory(void)
{
    const char *places[] = {"/dev/shm", getenv("TMPDIR"), "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i] == NULL) continue;
        int n = snprintf(directory, sizeof directory, "%s/sluice-kill.XXXXXX",
                         places[i]);
        if (n < 0 || (size_t)n >= sizeof directory) continue;
        if (mkdtemp(directory) != NULL) return;
    }
    stage_bail("no directory for segments: %s", strerror(errno));
}

static void remove_directory(void)
{
    DIR *d = opendir(directory);
    if (d == NULL) return;
    struct dirent *e;
    while ((e = readdir(d)) != NULL) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(directory);
}

/* Wait until nobody has the pipe's other end any more, then remove the directory. Deaf to
 * polite signals and in a session of its own, so that it is the last to go. */
static _Noreturn void undertake(int deaths)
{
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_NAME, "undertaker");
    dup2(deaths, 0);
    close_range(1, ~0u, 0);
    char byte;
    while (read(0, &byte, 1) < 0 && errno == EINTR) continue;
    remove_directory();
    _exit(0);
}

static pid_t start_undertaker(int *alive)
{
    int ends[2];
    if (pipe(ends) != 0) stage_bail("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) stage_bail("fork: %s", strerror(errno));
    if (pid == 0) {
        close(ends[1]);
        undertake(ends[0]);
    }
    close(ends[0]);
    *alive = ends[1];
    return pid;
}

/* ---- the watcher ---- */

/* Wait for the test to end, for its deadline, or for a signal that asks us to. */
static int watch(pid_t test, unsigned deadline_s, const sigset_t *signals)
{
    int64_t until = stage_now_ms() + (int64_t)deadline_s * 1000;
    for (;;) {
        int status;
        pid_t gone = waitpid(test, &status, WNOHANG);
        if (gone == test) return status;
        int64_t left = until - stage_now_ms();
        if (left <= 0) break;
        struct timespec t = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
        int got = sigtimedwait(signals, NULL, &t);
        if (got > 0 && got != SIGCHLD) break;
    }
    return -1;
}

static _Noreturn void be_watcher(pid_t test, pid_t undertaker, int alive,
                                 unsigned deadline_s, const sigset_t *signals)
{
    int status = watch(test, deadline_s, signals);
    kill(-test, SIGKILL);
    if (status == -1) {
        kill(test, SIGKILL);
        while (waitpid(test, NULL, 0) < 0 && errno == EINTR) continue;
        printf("Bail out! It was interrupted, or took longer than %u s\n", deadline_s);
    } else if (!WIFEXITED(status)) {
        printf("Bail out! The test itself died of signal %d\n", WTERMSIG(status));
    }
    fflush(stdout);
    close(alive);
    while (waitpid(undertaker, NULL, 0) < 0 && errno == EINTR) continue;
    _exit(status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Die with the parent, and do not outlive one that is dead already. */
static void die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
}

/* Ask for short turns: processes here wait for each other all the time, and next to others
 * that only compute each of these waits would last for one of their long turns. Kernels
 * that do not know it (before 6.12) ignore it. */
static void ask_for_short_turns(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr = {.size = sizeof attr, .runtime_ns = 100000};
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

void stage_open(unsigned deadline_s)
{
    sigset_t signals, before;
    int alive;
    /* Not from the heap (stepped.c): what is forked finds it untouched. */
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    make_directory();
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t undertaker = start_undertaker(&alive);
    pid_t watcher = getpid();
    fflush(stdout);
    pid_t test = fork();
    if (test < 0) stage_bail("fork: %s", strerror(errno));
    if (test > 0) be_watcher(test, undertaker, alive, deadline_s, &signals);
    die_with(watcher);
    ask_for_short_turns();
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, SIG_IGN);
}

void stage_close(void)
{
    printf("1..%u\n", tests);
    fflush(stdout);
    _exit(failures == 0 && tests > 0 ? 0 : 1);
}

pid_t stage_fork(void)
{
    pid_t parent = getpid();
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) stage_bail("fork: %s", strerror(errno));
    if (pid == 0) die_with(parent);
    return pid;
}

/* ---- things to have ---- */

void stage_path(char out[STAGE_PATH_MAX])
{
    snprintf(out, STAGE_PATH_MAX, "%s/%u", directory, paths++);
}

void *stage_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    if (p == MAP_FAILED) stage_bail("mmap: %s", strerror(errno));
    return p;
}

/* ---- report ---- */

bool stage_ok(bool good, const char *format, ...)
{
    va_list args;
    tests++;
    if (!good) failures++;
    printf("%sok %u - ", good ? "" : "not ", tests);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    return good;
}

void stage_note(const char *format, ...)
{
    va_list args;
    fputs("# ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void stage_bail(const char *format, ...)
{
    va_list args;
    fputs("Bail out! ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    _exit(1);
}
