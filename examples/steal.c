/* steal.c - a thread with a higher priority preempts the holder of a lock.
 *
 *     cc steal.c $(pkg-config --cflags --libs sluice) -o steal && ./steal
 *
 * One thread holds the printer and prints a report, page after page. Another thread with a
 * higher priority requests the printer for a letter. The service asks the report thread to
 * release the printer, and it does so after its current page. In a second run the report thread
 * ignores the request: it keeps the printer until its lease expires, and only then the letter
 * thread gets it. The program exits with 0 if this is what happened. */
#include <inttypes.h>
#include <pthread.h>
#include <sluice.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define KEY "printer"
#define LEASE_MS 300
#define PAGE_MS 20

static struct sluice *service;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t); /* Leases use this clock: it counts sleep. */
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ---- a report: it holds the printer, and can be asked to release it ---- */

struct report {
    bool listens;
    atomic_bool started, stop;
    uint64_t fence;
    int64_t began_ms;
    bool well;
};

/* Called by a thread of the service. An expired lease needs no case here: the event arrives
 * after the expiry, so the report checks the clock itself. */
static void on_event(void *arg, const struct sluice_event *e)
{
    struct report *r = arg;
    if (e->type != SLUICE_EVENT_ASKED) return;
    printf("report: asked to release by priority %" PRId32 "; my lease has %" PRId64
           " ms left\n",
           e->priority, e->left_ms);
    r->stop = r->listens;
}

static void *print_report(void *arg)
{
    struct report *r = arg;
    struct sluice_grant g;
    struct sluice_request q = {
        .lease_ms = LEASE_MS, .note = "report", .on_event = on_event, .arg = r};
    r->began_ms = now_ms();
    if (sluice_acquire(service, KEY, &q, &g) != SLUICE_OK) return NULL;
    printf("report: printing\n");
    r->fence = g.fence;
    r->started = true;
    /* began_ms is earlier than the grant, so this deadline is not later than the expiry. A
     * page takes PAGE_MS: print none that would end after the deadline. */
    int64_t last_ms = r->began_ms + LEASE_MS - PAGE_MS;
    while (!r->stop && now_ms() < last_ms) pause_ms(PAGE_MS); /* A page. */
    if (!r->stop) {
        printf("report: my lease expires, so I stop\n");
        while (now_ms() < r->began_ms + LEASE_MS)
            pause_ms(1); /* It does not release early. */
    }
    /* After this call the service does not use `r`. LOST: the lease has expired. */
    int status = sluice_release(service, KEY, g.fence);
    printf("report: done\n");
    r->well = status == SLUICE_OK || (!r->listens && status == SLUICE_ELOST);
    return NULL;
}

/* ---- the letter: it steals ---- */

static bool print_letter(const struct report *r)
{
    struct sluice_grant g = {0};
    struct sluice_request q = {
        .priority = 10, .steal = 1, .wait_ms = 5000, .note = "letter"};
    int status = sluice_acquire(service, KEY, &q, &g);
    int64_t held_ms = now_ms() - r->began_ms;
    printf("letter: %s after %" PRId64 " ms\n", sluice_status_word(status),
           g.waited_ms);
    if (status != SLUICE_OK) return false;
    sluice_release(service, KEY, g.fence);
    if (!r->listens && held_ms < LEASE_MS) return false; /* Too early. */
    return g.fence > r->fence && !g.overlapping;
}

static bool scene(bool listens)
{
    struct report r = {.listens = listens};
    pthread_t t;
    if (pthread_create(&t, NULL, print_report, &r) != 0) return false;
    while (!r.started) pause_ms(1);
    bool well = print_letter(&r);
    pthread_join(t, NULL);
    return well && r.well;
}

int main(void)
{
    if (sluice_open("memory:", NULL, &service) != SLUICE_OK) return 1;
    printf("The report thread releases the printer when asked:\n");
    bool well = scene(true);
    printf("\nThe report thread ignores the request:\n");
    well = scene(false) && well;
    sluice_close(service);
    printf("\n%s\n", well ? "The printer had one user at a time."
                          : "This breaks a promise of Sluice. Please report it.");
    return well ? 0 : 1;
}
