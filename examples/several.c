/* several.c - acquire several locks, all or none, and work with them.
 *
 *     cc several.c $(pkg-config --cflags --libs sluice) -pthread -o several
 *     SLUICE_SERVER=db1:5625,db2:5625 ./several STEPS KEY...
 *
 * Programs that name the same keys in different orders do not deadlock. */
#include <inttypes.h>
#include <pthread.h>
#include <sluice.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LEASE_MS 3000
#define STEP_MS 50 /* The longest time that one step takes. */

static pthread_mutex_t step = PTHREAD_MUTEX_INITIALIZER; /* Held during a step. */
static bool stop;

/* When this function returns, the library releases the other locks. So it waits for the end of the
 * current step, and no other step follows. */
static void on_event(void *arg, const struct sluice_event *e)
{
    (void)arg;
    if (e->type == SLUICE_EVENT_WITHDRAWN) return;
    pthread_mutex_lock(&step);
    printf("%s: %s\n", e->key,
           e->type == SLUICE_EVENT_ASKED ? "asked to release" : "lost");
    stop = true;
    pthread_mutex_unlock(&step);
}

/* Do one step. Returns false if the work must end. */
static bool do_step(const struct sluice_locks *locks)
{
    pthread_mutex_lock(&step);
    bool may = !stop && sluice_locks_left(locks) >= STEP_MS;
    if (may) printf("step, fences from %" PRIu64 "\n", sluice_locks_fence(locks, 0));
    pthread_mutex_unlock(&step);
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    return may;
}

int main(int argc, char **argv)
{
    struct sluice *s;
    struct sluice_locks *locks;
    const struct sluice_request r = {
        .wait_ms = 20000, .lease_ms = LEASE_MS, .keep_alive = 1, .on_event = on_event};
    if (argc < 3 || sluice_open(NULL, NULL, &s) != SLUICE_OK) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *const *keys = (const char *const *)argv + 2;
    int status = sluice_acquire_all(s, keys, (size_t)argc - 2, &r, &locks);
    if (status == SLUICE_OK) {
        for (int i = 0; i < argc - 2; i++)
            printf("%s: fence %" PRIu64 "\n", keys[i],
                   sluice_locks_fence(locks, (size_t)i));
        for (int n = atoi(argv[1]); n > 0 && do_step(locks);) n--;
        status = sluice_release_all(locks); /* Not while `step` is locked. */
    }
    printf("%s\n", sluice_status_word(status));
    sluice_close(s);
    return status == SLUICE_OK ? 0 : 1;
}
