/* pool.c - at most four programs at once.
 *
 *     cc pool.c $(pkg-config --cflags --libs sluice) -o pool
 *     SLUICE_SERVER=db1:5625 ./pool KEY STEPS
 *
 * Start it six times: four programs work, and two wait. The lock has no lease. It lasts as long as
 * the connection, so it is free at once when a program exits or is killed. */
#include <inttypes.h>
#include <sluice.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The grant was revoked, or the connection is lost. */
static void on_event(void *stop, const struct sluice_event *e)
{
    (void)e;
    atomic_store((atomic_bool *)stop, true);
}

int main(int argc, char **argv)
{
    struct sluice *s;
    struct sluice_grant g;
    atomic_bool stop = false;
    struct sluice_request r = {.per = 4, /* Every program declares the capacity. */
                               .wait_ms = SLUICE_FOREVER,
                               .on_event = on_event,
                               .arg = &stop};
    if (argc != 3 || sluice_open(NULL, NULL, &s) != SLUICE_OK) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int status = sluice_acquire(s, argv[1], &r, &g);
    if (status == SLUICE_OK) {
        printf("granted, %" PRIu64 " of 4\n", g.held);
        for (int steps = atoi(argv[2]); steps > 0 && !stop; steps--)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* Work. */
        status = sluice_release(s, argv[1], g.fence);
    }
    printf("%s\n", sluice_status_word(status));
    sluice_close(s);
    return status == SLUICE_OK ? 0 : 1;
}
