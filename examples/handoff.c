/* handoff.c - pass a lock to another program.
 *
 *     cc handoff.c $(pkg-config --cflags --libs sluice) -o handoff
 *     SLUICE_SERVER=db1:5625,db2:5625 ./handoff KEY
 *
 * The program acquires the lock, and then executes a second program (here: itself), which extends the
 * lease and releases the lock. Any program that knows the key and the fence of a grant with a lease
 * can extend and release it. */
#include <inttypes.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LEASE_MS 10000
#define STEP_MS 50 /* The longest time that one step takes. */
#define STEPS 3

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t); /* Counts while the machine sleeps. */
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Without keep_alive, sluice_close() does not release the grant. */
static int first(struct sluice *s, char **argv)
{
    struct sluice_grant g;
    struct sluice_request r = {.wait_ms = 5000, .lease_ms = LEASE_MS};
    int status = sluice_acquire(s, argv[1], &r, &g);
    sluice_close(s);
    if (status != SLUICE_OK) return status;
    char fence[24];
    snprintf(fence, sizeof fence, "%" PRIu64, g.fence);
    execl(argv[0], argv[0], argv[1], fence, (char *)NULL);
    return SLUICE_EIO;
}

/* The service of this program has not acquired the grant, so this program counts the lease itself:
 * from before the call, with 1/500 subtracted for clocks that differ. */
static int second(struct sluice *s, const char *key, uint64_t fence)
{
    int status = sluice_check(s, key, fence);
    printf("the grant is %s\n", status == SLUICE_OK ? "held" : "not held");
    int64_t end_ms = now_ms() + LEASE_MS - LEASE_MS / 500;
    if (status == SLUICE_OK) status = sluice_extend(s, key, fence, LEASE_MS);
    for (int i = 1; status == SLUICE_OK && i <= STEPS && now_ms() + STEP_MS < end_ms;
         i++)
        printf("step %d, fence %" PRIu64 "\n", i, fence); /* The work. */
    if (status == SLUICE_OK) status = sluice_release(s, key, fence);
    sluice_close(s);
    return status;
}

int main(int argc, char **argv)
{
    struct sluice *s;
    if (argc < 2 || sluice_open(NULL, NULL, &s) != SLUICE_OK) return 2;
    int status = argc > 2 ? second(s, argv[1], strtoull(argv[2], NULL, 10))
                          : first(s, argv);
    printf("%s\n", sluice_status_word(status));
    return status == SLUICE_OK ? 0 : 1;
}
