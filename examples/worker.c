/* worker.c - do a job under a lock with a lease, and stop in time if the lock is lost.
 *
 *     cc worker.c $(pkg-config --cflags --libs sluice) -pthread -o worker
 *     SLUICE_SERVER=db1:5625,db2:5625 ./worker KEY STEPS
 *
 * Start it in two terminals: the second worker waits. Then kill the first one, stop it with SIGSTOP,
 * or stop the server, and watch. SIGTERM ends a worker, also while it waits. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sluice.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LEASE_MS 3000
#define STEP_MS 50 /* The longest time that one step takes. */

static struct sluice *service;
static struct sluice_cancel cancel;
static atomic_bool stop;

/* A thread of the library calls this function before the lease expires. */
static void on_event(void *arg, const struct sluice_event *e)
{
    (void)arg;
    if (e->type == SLUICE_EVENT_WITHDRAWN)
        return; /* ASKED came first, so the work stops anyway. */
    printf("%s\n", e->type == SLUICE_EVENT_ASKED ? "asked to release" : "lost");
    stop = true;
}

/* sluice_cancel() must not be called in a signal handler, so a thread waits for SIGTERM. */
static void *wait_for_sigterm(void *set)
{
    int number;
    sigwait(set, &number);
    stop = true;
    sluice_cancel(service, &cancel);
    return NULL;
}

/* The work. It passes the fence to the resource, which rejects a fence lower than the highest one
 * that it has seen: this process may be suspended at any moment, also here. */
static void do_step(int number, uint64_t fence)
{
    printf("step %d, fence %" PRIu64 "\n", number, fence);
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
}

static int work(const char *key, int steps)
{
    struct sluice_grant g;
    struct sluice_request r = {.wait_ms = SLUICE_FOREVER,
                               .lease_ms = LEASE_MS,
                               .keep_alive = 1,
                               .on_event = on_event,
                               .cancel = &cancel};
    int status = sluice_acquire(service, key, &r, &g), done = 0;
    if (status != SLUICE_OK) return status;
    /* An error of sluice_left() is negative, so it ends the loop too. */
    while (done < steps && !stop && sluice_left(service, key, g.fence) >= STEP_MS)
        do_step(++done, g.fence);
    status = sluice_release(service, key, g.fence);
    printf("%d of %d steps done\n", done, steps);
    return status;
}

int main(int argc, char **argv)
{
    sigset_t set;
    pthread_t thread;
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* Only sigwait() receives it. */
    if (sluice_open(NULL, NULL, &service) != SLUICE_OK) return 1;
    if (pthread_create(&thread, NULL, wait_for_sigterm, &set) != 0) return 1;

    int status = work(argv[1], atoi(argv[2]));
    char why[200];
    sluice_error(service, why, sizeof why);
    printf("%s%s%s\n", sluice_status_word(status), why[0] != '\0' ? ": " : "", why);

    pthread_kill(thread, SIGTERM);
    pthread_join(thread, NULL); /* It must not use the service after this. */
    sluice_close(service);
    return status == SLUICE_OK ? 0 : 1;
}
