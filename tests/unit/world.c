#include "world.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "canal/thread.h"

#define DIE(what) (perror(what), abort())

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L},
              NULL);
}

/* --- Directories and worlds --------------------------------------------------- */

void directory_make(char out[64])
{
    snprintf(out, 64, "/dev/shm/sluice-test.XXXXXX");
    if (mkdtemp(out) == NULL) DIE("mkdtemp");
}

void directory_remove(const char *directory)
{
    DIR *d = opendir(directory);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) remove(path);
    }
    closedir(d);
    rmdir(directory);
}

struct world world_new(const struct sluice_canal_options *options)
{
    struct world w = {0};
    alarm(WORLD_DEADLINE_S);
    directory_make(w.directory);
    snprintf(w.path, sizeof w.path, "%s/segment", w.directory);
    int status = sluice_canal_open(w.path, options, &w.canal);
    if (status != SLUICE_OK) {
        fprintf(stderr, "open %s: %s\n", w.path, sluice_status_text(status));
        abort();
    }
    return w;
}

void canal_check(const struct sluice_canal *c)
{
    const struct sl_canal_attachment *att = sl_canal_thread_attached(c);
    if (att != NULL) sl_canal_thread_check(att);
}

void world_end(struct world *w)
{
    canal_check(w->canal);
    sluice_canal_close(w->canal);
    directory_remove(w->directory);
}

/* --- What an actor does --------------------------------------------------- */

/* The one handle that an actor may have resolved. */
static struct sluice_key *handle;

static int64_t carry_out(struct sluice_canal *c, const struct command *d)
{
    int fd;
    switch (d->deed) {
        case ACQUIRE: return sluice_canal_acquire(c, d->key, d->capacity, &d->want);
        case RELEASE: return sluice_canal_release(c, d->key, d->want.units);
        case RESOLVE: return sluice_key_resolve(c, d->key, &handle);
        case KEY_ACQUIRE: return sluice_key_acquire(handle, d->capacity, &d->want);
        case KEY_RELEASE: return sluice_key_release(handle, d->want.units);
        case REAP: return sluice_canal_reap(c);
        case CLOSE: sluice_canal_close(c); return 0;
        case TETHER: return sluice_canal_tether(c, &fd) == SLUICE_OK ? fd : -1;
    }
    return SLUICE_EINVAL;
}

static void act(const char *path, int in, int out)
{
    struct sluice_canal *c;
    struct command d;
    if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) _exit(1);
    while (read(in, &d, sizeof d) == sizeof d) {
        int64_t result = carry_out(c, &d);
        if (d.deed != CLOSE) canal_check(c);
        if (write(out, &result, sizeof result) != sizeof result) _exit(1);
    }
    _exit(0);
}

/* --- How the test talks to it --------------------------------------------- */

struct actor actor_start(const struct world *w)
{
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) DIE("pipe");
    fflush(NULL);
    pid_t test = getpid();
    pid_t pid = fork();
    if (pid < 0) DIE("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != test) _exit(1);
        close(to[1]);
        close(from[0]);
        act(w->path, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    return (struct actor){.pid = pid, .in = to[1], .out = from[0]};
}

void actor_send(struct actor *a, struct command c)
{
    if (write(a->in, &c, sizeof c) != sizeof c) DIE("write to an actor");
}

bool actor_answered(struct actor *a, int within_ms)
{
    struct pollfd p = {.fd = a->out, .events = POLLIN};
    return poll(&p, 1, within_ms) == 1;
}

int64_t actor_answer(struct actor *a)
{
    int64_t result;
    if (read(a->out, &result, sizeof result) != sizeof result)
        DIE("read from an actor");
    return result;
}

int64_t actor_do(struct actor *a, struct command c)
{
    actor_send(a, c);
    return actor_answer(a);
}

static struct command command(enum deed deed, const char *key)
{
    struct command c = {.deed = deed};
    snprintf(c.key, sizeof c.key, "%s", key);
    return c;
}

int64_t actor_acquire(struct actor *a, const char *key, uint32_t per, uint32_t buckets)
{
    struct command c = command(ACQUIRE, key);
    c.capacity = (struct sluice_capacity){.per = per, .buckets = buckets};
    return actor_do(a, c);
}

int64_t actor_release(struct actor *a, const char *key, uint32_t units)
{
    struct command c = command(RELEASE, key);
    c.want.units = units;
    return actor_do(a, c);
}

void actor_kill(struct actor *a)
{
    if (a->pid <= 0) return;
    kill(a->pid, SIGKILL);
    waitpid(a->pid, NULL, 0);
    close(a->in);
    close(a->out);
    a->pid = 0;
}

bool actor_step_until(struct actor *a, struct command c, bool (*seen)(void *),
                      void *arg)
{
    int status;
    if (ptrace(PTRACE_SEIZE, a->pid, 0, 0) != 0) DIE("ptrace");
    if (ptrace(PTRACE_INTERRUPT, a->pid, 0, 0) != 0) DIE("ptrace");
    waitpid(a->pid, &status, __WALL);
    actor_send(a, c);
    while (!seen(arg)) {
        if (actor_answered(a, 0)) return false;
        if (ptrace(PTRACE_SINGLESTEP, a->pid, 0, 0) != 0) DIE("ptrace");
        if (waitpid(a->pid, &status, __WALL) != a->pid || !WIFSTOPPED(status))
            return false;
    }
    return true;
}

void actor_continue(struct actor *a)
{
    ptrace(PTRACE_DETACH, a->pid, 0, 0);
}
