/* libuv.c - a worker with a lease in the event loop of libuv, in one thread.
 *
 *     cc libuv.c $(pkg-config --cflags --libs sluice libuv) -o libuv
 *     SLUICE_SERVER=db1:5625,db2:5625 ./libuv KEY STEPS
 *
 * It prints the same lines as worker.c. SIGTERM ends it, also while it waits. */
#include <inttypes.h>
#include <sluice.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define LEASE_MS 3000
#define STEP_MS 50

static struct sluice *service;
static struct sluice_cancel cancel;
static uv_loop_t *loop;
static uv_poll_t ready;   /* The service has received something. */
static uv_timer_t due;    /* The service has something to do at this time. */
static uv_prepare_t next; /* Sets that timer before the loop waits. */
static uv_timer_t work;
static uv_signal_t sigterm;
static const char *key;
static uint64_t fence; /* 0: the lock is not held. */
static int steps, done;

/* --- the service in the loop ------------------------------------------------------------ */

static void on_ready(uv_poll_t *handle, int status, int events)
{
    (void)handle, (void)status, (void)events;
    sluice_step(service);
}

static void on_due(uv_timer_t *handle)
{
    (void)handle;
    sluice_step(service);
}

/* Every call of a function of the service can change the time. */
static void on_prepare(uv_prepare_t *handle)
{
    (void)handle;
    int ms = sluice_timeout_ms(service);
    if (ms < 0) uv_timer_stop(&due);
    else uv_timer_start(&due, on_due, (uint64_t)ms, 0);
}

/* --- the worker ------------------------------------------------------------------------- */

static void on_released(void *arg, int status, const struct sluice_grant *g)
{
    (void)arg, (void)g;
    printf("%s\n", sluice_status_word(status));
    uv_stop(loop);
}

static void stop_work(void)
{
    if (fence == 0) return;
    uv_timer_stop(&work);
    printf("%d of %d steps done\n", done, steps);
    sluice_release_start(service, key, fence, on_released, NULL);
    fence = 0;
}

static void on_work(uv_timer_t *handle)
{
    (void)handle;
    if (done == steps || sluice_left(service, key, fence) < STEP_MS) stop_work();
    else printf("step %d, fence %" PRIu64 "\n", ++done, fence);
}

static void on_event(void *arg, const struct sluice_event *e)
{
    (void)arg;
    if (e->type == SLUICE_EVENT_WITHDRAWN) return;
    printf("%s\n", e->type == SLUICE_EVENT_ASKED ? "asked to release" : "lost");
    stop_work();
}

static void on_granted(void *arg, int status, const struct sluice_grant *g)
{
    if (status != SLUICE_OK) {
        on_released(arg, status, NULL);
        return;
    }
    fence = g->fence;
    uv_timer_start(&work, on_work, 0, STEP_MS);
}

static void on_sigterm(uv_signal_t *handle, int number)
{
    (void)handle, (void)number;
    sluice_cancel(service, &cancel);
    stop_work();
}

int main(int argc, char **argv)
{
    const struct sluice_options options = {.event_loop = 1};
    const struct sluice_request r = {.wait_ms = SLUICE_FOREVER,
                                     .lease_ms = LEASE_MS,
                                     .keep_alive = 1,
                                     .on_event = on_event,
                                     .cancel = &cancel};
    if (argc != 3) return 2;
    key = argv[1];
    steps = atoi(argv[2]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sluice_open(NULL, &options, &service) != SLUICE_OK) return 1;
    loop = uv_default_loop();
    uv_poll_init(loop, &ready, sluice_fd(service));
    uv_timer_init(loop, &due);
    uv_prepare_init(loop, &next);
    uv_timer_init(loop, &work);
    uv_signal_init(loop, &sigterm);
    uv_poll_start(&ready, UV_READABLE, on_ready);
    uv_prepare_start(&next, on_prepare);
    uv_signal_start(&sigterm, on_sigterm, SIGTERM);
    if (sluice_acquire_start(service, key, &r, on_granted, NULL) != SLUICE_OK) return 1;
    uv_run(loop, UV_RUN_DEFAULT); /* Until uv_stop(). */
    uv_poll_stop(&ready);
    sluice_close(service);
    return 0;
}
