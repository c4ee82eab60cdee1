/* poll.c - wait for many locks at once, in one thread, with poll(2).
 *
 *     cc poll.c $(pkg-config --cflags --libs sluice) -o poll
 *     SLUICE_SERVER=db1:5625,db2:5625 ./poll KEY...
 *
 * Each lock is acquired, extended and released, one call after another, independently of the other
 * locks. */
#include <inttypes.h>
#include <poll.h>
#include <sluice.h>
#include <stdio.h>

#define LEASE_MS 10000
#define LONGER_MS 60000

struct job {
    const char *key;
    uint64_t fence;
};

static struct sluice *service;
static int running;

static void done(struct job *j, const char *what, int status)
{
    printf("%s: %s %s\n", j->key, what, sluice_status_word(status));
    running--;
}

static void on_released(void *arg, int status, const struct sluice_grant *g)
{
    (void)g;
    done(arg, "released:", status);
}

static void on_extended(void *arg, int status, const struct sluice_grant *g)
{
    struct job *j = arg;
    (void)g;
    printf("%s: extended: %s\n", j->key, sluice_status_word(status));
    status = sluice_release_start(service, j->key, j->fence, on_released, j);
    if (status != SLUICE_OK) done(j, "release:", status);
}

static void on_granted(void *arg, int status, const struct sluice_grant *g)
{
    struct job *j = arg;
    if (status != SLUICE_OK) {
        done(j, "acquire:", status);
        return;
    }
    j->fence = g->fence;
    printf("%s: granted, fence %" PRIu64 "\n", j->key, g->fence);
    status = sluice_extend_start(service, j->key, j->fence, LONGER_MS, on_extended, j);
    if (status != SLUICE_OK) done(j, "extend:", status);
}

int main(int argc, char **argv)
{
    static struct job jobs[100];
    const struct sluice_options options = {.event_loop = 1};
    const struct sluice_request r = {.wait_ms = 20000, .lease_ms = LEASE_MS};
    if (argc < 2 || argc > 101) return 2;
    if (sluice_open(NULL, &options, &service) != SLUICE_OK) return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        struct job *j = &jobs[i - 1];
        j->key = argv[i];
        running++;
        int status = sluice_acquire_start(service, j->key, &r, on_granted, j);
        if (status != SLUICE_OK) done(j, "acquire:", status);
    }
    struct pollfd p = {.fd = sluice_fd(service), .events = POLLIN};
    while (running > 0) {
        poll(&p, 1, sluice_timeout_ms(service));
        sluice_step(service); /* Calls the functions above. */
    }
    sluice_close(service);
    return 0;
}
