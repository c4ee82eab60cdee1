/* step.c - clocks that a test can step, for one process (LD_PRELOAD). The file $STEP_FILE holds two
 * 64-bit numbers: the seconds to add to the wall clock (CLOCK_REALTIME), and the seconds to add to
 * CLOCK_BOOTTIME, as if the machine had been suspended. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void open_file(void)
{
    int fd = open(getenv("STEP_FILE"), O_RDONLY | O_CLOEXEC);
    offset = mmap(NULL, 2 * sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (offset == MAP_FAILED) abort();
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, ts);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) ts->tv_sec += offset[0];
    if (id == CLOCK_BOOTTIME) ts->tv_sec += offset[1];
    return status;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    *tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out != NULL) *out = ts.tv_sec;
    return ts.tv_sec;
}
