/* leader.c - elect a leader among several programs, with one server or a cluster.
 *
 *     cc leader.c $(pkg-config --cflags --libs sluice) -pthread -o leader
 *     ./leader KEY HOST:PORT...      one server, or the nodes of a cluster in any order
 *
 * Start it several times. One program prints `lead`. Kill it, stop it with SIGSTOP, or kill the
 * node that it is connected to, and watch. Each line begins with the time, in milliseconds of
 * CLOCK_BOOTTIME. `act` stands for the work that only the leader may do.
 *
 * The library stands for election, extends the lease, and calls on_ended() before the lease
 * expires. The program checks sluice_left() before every step, and passes the fence to the
 * resource (docs/clients.md). */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sluice.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEASE_MS 3000
#define STEP_MS 50 /* The longest time that one step of the work takes. */

static struct sluice *service;
static const char *key;
static pthread_mutex_t step = PTHREAD_MUTEX_INITIALIZER; /* Held during a step. */
static uint64_t leads; /* The fence of the leadership; 0: this program does not lead. */
static volatile sig_atomic_t stops;

/* A clock that counts while the machine sleeps, and cannot be set. */
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

__attribute__((format(printf, 2, 3))) static void say(double at_ms, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    printf("%.3f ", at_ms);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

static void on_elected(void *arg, uint64_t fence)
{
    (void)arg;
    pthread_mutex_lock(&step);
    leads = fence;
    double at_ms = now_ms();
    int64_t left_ms = sluice_left(service, key, fence);
    say(at_ms, "lead %" PRIu64 " until %.3f", fence, at_ms + (double)left_ms);
    pthread_mutex_unlock(&step);
}

/* When this function returns, the work has stopped: it waits for the end of the current step. */
static void on_ended(void *arg, uint64_t fence, enum sluice_event_type why)
{
    (void)arg;
    pthread_mutex_lock(&step);
    leads = 0;
    say(now_ms(), "follow %" PRIu64 ", %s", fence,
        why == SLUICE_EVENT_EXPIRED       ? "the lease expires"
        : why == SLUICE_EVENT_UNREACHABLE ? "no server answers"
                                          : "the leadership was revoked");
    pthread_mutex_unlock(&step);
}

/* The work that only the leader may do. It passes the fence to the resource, which rejects a
 * fence lower than the highest one it has seen: this process may have been stopped after it
 * called sluice_left(). */
static void act(double at_ms, uint64_t fence)
{
    say(at_ms, "act %" PRIu64, fence);
}

static void on_term(int number)
{
    (void)number;
    stops = 1;
}

static void work(void)
{
    while (!stops) {
        pthread_mutex_lock(&step);
        double at_ms = now_ms();
        if (leads != 0 && sluice_left(service, key, leads) > STEP_MS) act(at_ms, leads);
        pthread_mutex_unlock(&step);
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
    pthread_mutex_lock(&step);
    if (leads != 0) say(now_ms(), "follow %" PRIu64 ", SIGTERM", leads);
    leads = 0;
    pthread_mutex_unlock(&step);
}

int main(int argc, char **argv)
{
    char where[1000] = "", host[40] = "?", me[64];
    struct sluice_election *e;
    if (argc < 3) {
        fprintf(stderr, "usage: leader KEY HOST:PORT...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        size_t n = strlen(where);
        snprintf(where + n, sizeof where - n, "%s%s", n > 0 ? "," : "", argv[i]);
    }
    gethostname(host, sizeof host - 1);
    snprintf(me, sizeof me, "%s:%ld", host, (long)getpid());
    signal(SIGTERM, on_term);
    key = argv[1];
    const struct sluice_options options = {.name = me}; /* EXPLAIN shows it. */
    struct sluice_candidate candidate = {.lease_ms = LEASE_MS,
                                         .value = me, /* READ KEY returns this. */
                                         .on_elected = on_elected,
                                         .on_ended = on_ended};
    say(now_ms(), "follow");
    if (sluice_open(where, &options, &service) != SLUICE_OK ||
        sluice_elect(service, key, &candidate, &e) != SLUICE_OK)
        return 1;
    work();
    sluice_resign(e); /* The work has stopped. */
    sluice_close(service);
    return 0;
}
