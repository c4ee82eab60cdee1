/* steal.c - three threads and one lock: asked, released, granted with a higher fence.
 *
 *     cc steal.c $(pkg-config --cflags --libs sluice) -o steal && ./steal
 *
 * A report prints page after page. A letter of more priority wants the printer: the report
 * is asked to go and does, after the page it is at. A second report does not listen: it
 * keeps the printer to the end of its lease, and the letter has it then, not before.
 * Exits with 0 if it went like that. */
#include <inttypes.h>
#include <pthread.h>
#include <sluice.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define KEY "printer"
#define LEASE_MS 300

static struct sluice *service;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ---- a report: it holds the printer, and can be asked to go ---- */

struct report {
    bool listens;
    atomic_bool started, stop;
    uint64_t fence;
    int64_t began_ms;
    bool well;
};

/* Called by a thread of the service. It only leaves word. */
static void on_news(void *arg, const struct sluice_event *e)
{
    struct report *r = arg;
    if (e->type == SLUICE_EVENT_ASKED) {
        printf("report: asked to go; %" PRId32 " waits; my lease has %" PRId64 " ms\n",
               e->priority, e->left_ms);
        r->stop = r->listens;
    } else if (e->type == SLUICE_EVENT_EXPIRED) {
        printf("report: my lease has ended\n");
        r->stop = true;
    }
}

static void *print_report(void *arg)
{
    struct report *r = arg;
    struct sluice_grant g;
    struct sluice_request q = {
        .lease_ms = LEASE_MS, .note = "report", .on_event = on_news, .arg = r};
    r->began_ms = now_ms();
    if (sluice_acquire(service, KEY, &q, &g) != SLUICE_OK) return NULL;
    printf("report: printing\n");
    r->fence = g.fence;
    r->started = true;
    while (!r->stop) pause_ms(20); /* A page. */
    int status = sluice_release(service, KEY, g.fence);
    printf("report: released: %s\n", sluice_status_word(status));
    r->well = status == (r->listens ? SLUICE_OK : SLUICE_ELOST);
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
    printf("A report that listens:\n");
    bool well = scene(true);
    printf("\nA report that does not:\n");
    well = scene(false) && well;
    sluice_close(service);
    printf("\n%s\n", well ? "Nobody printed beside another."
                          : "That was not what Sluice promises. Please report it.");
    return well ? 0 : 1;
}
