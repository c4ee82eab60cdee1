/* clock.c - clocks that a test can step, and run faster or slower, for one process and while
 * it runs (LD_PRELOAD). $CLOCK_FILE names a file, which clock.py writes:
 *
 *      0   8  format: 1
 *      8   8  number of changes; the last one is in slot (this % 2), the one before in the other
 *     16  72  slot 0: of REALTIME, MONOTONIC and BOOTTIME: base ns, value ns, rate
 *     88  72  slot 1
 *
 * When the true clock says t, the process is told value + (t - base) * rate. A change takes effect
 * when the true clock reaches its base. The base lies in the future when the change is written, so
 * that no clock jumps back however long the writer takes.
 *
 * Who sleeps sleeps by these clocks. Timeouts of epoll, poll and nanosleep are stretched by
 * the rate. A timerfd that was armed before a change is armed again: for that, no wait in
 * epoll lasts longer than SLICE_MS without a look at the file. Timers are expected to belong
 * to one thread, as the server's do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

#define SLICE_MS 10
#define NS_A_SECOND 1000000000
#define NS_A_MS 1000000
#define TIMERS_MAX 16

enum which { WALL, STEADY, BOOT, CLOCKS, NOT_OURS = CLOCKS };

struct clock {
    int64_t base_ns, value_ns;
    double rate;
};

struct file {
    uint64_t format;
    _Atomic uint64_t count;
    struct clock slots[2][CLOCKS];
};

_Static_assert(sizeof(struct file) == 160, "as clock.py writes it");

static struct file *file;

/* --- What is behind us --------------------------------------------------------- */

static int (*true_gettime)(clockid_t, struct timespec *);
static int (*true_epoll)(int, struct epoll_event *, int, int, const sigset_t *);
static int (*true_poll)(struct pollfd *, nfds_t, int);
static int (*true_sleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*true_create)(int, int);
static int (*true_settime)(int, int, const struct itimerspec *, struct itimerspec *);

__attribute__((constructor)) static void open_file(void)
{
    if (file != NULL) return;
    *(void **)&true_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&true_epoll = dlsym(RTLD_NEXT, "epoll_pwait");
    *(void **)&true_poll = dlsym(RTLD_NEXT, "poll");
    *(void **)&true_sleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    *(void **)&true_create = dlsym(RTLD_NEXT, "timerfd_create");
    *(void **)&true_settime = dlsym(RTLD_NEXT, "timerfd_settime");
    const char *path = getenv("CLOCK_FILE");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED || file->format != 1) abort();
}

/* --- Clocks ---------------------------------------------------------------------- */

static enum which which_of(clockid_t id)
{
    switch (id) {
        case CLOCK_REALTIME:
        case CLOCK_REALTIME_COARSE: return WALL;
        case CLOCK_MONOTONIC:
        case CLOCK_MONOTONIC_COARSE:
        case CLOCK_MONOTONIC_RAW: return STEADY;
        case CLOCK_BOOTTIME: return BOOT;
        default: return NOT_OURS;
    }
}

static clockid_t id_of(enum which which)
{
    static const clockid_t ids[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    return ids[which];
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * NS_A_SECOND + t.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    if (ns < 0) ns = 0;
    return (struct timespec){ns / NS_A_SECOND, ns % NS_A_SECOND};
}

/* So written, the true time is told to the nanosecond when the rate is 1. */
static int64_t told(struct clock c, int64_t true_ns)
{
    int64_t d = true_ns - c.base_ns;
    return c.value_ns + d + (int64_t)((double)d * (c.rate - 1));
}

static int64_t true_now(enum which which)
{
    struct timespec t;
    open_file();
    true_gettime(id_of(which), &t);
    return ns_of(t);
}

/* The clock that is in effect, and the true time at which it is. */
static struct clock clock_now(enum which which, int64_t *true_ns)
{
    open_file(); /* The constructor of another library may read the clock before ours. */
    for (;;) {
        uint64_t count = atomic_load_explicit(&file->count, memory_order_acquire);
        *true_ns = true_now(which);
        struct clock c = file->slots[count % 2][which];
        if (*true_ns < c.base_ns) c = file->slots[(count + 1) % 2][which];
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&file->count, memory_order_relaxed) == count) return c;
    }
}

static int64_t told_now(enum which which)
{
    int64_t now;
    struct clock c = clock_now(which, &now);
    return told(c, now);
}

/* How long one has to wait in truth until so much time is told to have passed. */
static int64_t true_length(enum which which, int64_t ns)
{
    int64_t now;
    return (int64_t)((double)ns / clock_now(which, &now).rate);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    enum which which = which_of(id);
    open_file();
    int status = true_gettime(id, t);
    if (status != 0 || which == NOT_OURS) return status;
    *t = timespec_of(told_now(which));
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *tv = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL) *out = t.tv_sec;
    return t.tv_sec;
}

/* --- Timers ------------------------------------------------------------------------ */

static struct timer {
    int fd; /* -1: none. */
    enum which which;
    bool armed;
    int64_t end_ns, interval_ns; /* As told. */
} timers[TIMERS_MAX];
static size_t timer_count;

static struct timer *timer_of(int fd)
{
    for (size_t i = 0; i < timer_count; i++)
        if (timers[i].fd == fd) return &timers[i];
    return NULL;
}

int timerfd_create(int id, int flags)
{
    open_file();
    int fd = true_create(id, flags);
    if (fd < 0 || which_of(id) == NOT_OURS) return fd;
    struct timer *t = timer_of(fd); /* The number of one that was closed. */
    if (t == NULL) {
        if (timer_count == TIMERS_MAX) abort();
        t = &timers[timer_count++];
    }
    *t = (struct timer){.fd = fd, .which = which_of(id)};
    return fd;
}

static int arm(const struct timer *t, struct itimerspec *old)
{
    int64_t left = true_length(t->which, t->end_ns - told_now(t->which));
    int64_t at = true_now(t->which) + left;
    struct itimerspec spec = {
        .it_value = timespec_of(at > 1 ? at : 1),
        .it_interval = timespec_of(true_length(t->which, t->interval_ns))};
    return true_settime(t->fd, TFD_TIMER_ABSTIME, &spec, old);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *spec,
                    struct itimerspec *old)
{
    struct timer *t = timer_of(fd);
    if (t == NULL) return true_settime(fd, flags, spec, old);
    int64_t value = ns_of(spec->it_value);
    t->armed = value != 0;
    if (!t->armed) return true_settime(fd, flags, spec, old);
    t->end_ns = value + (flags & TFD_TIMER_ABSTIME ? 0 : told_now(t->which));
    t->interval_ns = ns_of(spec->it_interval);
    return arm(t, old);
}

/* If the clocks were changed: set the timers by what they say now. One that has rung, or
 * was closed, has nothing left. */
static void look_at_file(void)
{
    static uint64_t seen;
    open_file();
    uint64_t count = atomic_load_explicit(&file->count, memory_order_acquire);
    if (count == seen) return;
    for (enum which w = 0; w < CLOCKS; w++)
        if (true_now(w) < file->slots[count % 2][w].base_ns)
            return; /* Not in effect yet. */
    seen = count;
    for (size_t i = 0; i < timer_count; i++) {
        struct itimerspec left;
        if (!timers[i].armed || timerfd_gettime(timers[i].fd, &left) != 0) continue;
        if (ns_of(left.it_value) != 0) arm(&timers[i], NULL);
    }
}

/* --- Waiting ------------------------------------------------------------------------ */

/* The next slice of a wait until end_ns as told, in ms; 0: it is over. */
static int slice_until(int64_t end_ns)
{
    int64_t left = end_ns - told_now(STEADY);
    if (left <= 0) return 0;
    int64_t ms = (true_length(STEADY, left) + NS_A_MS - 1) / NS_A_MS;
    return ms < SLICE_MS ? (int)ms : SLICE_MS;
}

static int64_t end_of(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX
                          : told_now(STEADY) + (int64_t)timeout_ms * NS_A_MS;
}

int epoll_pwait(int fd, struct epoll_event *events, int max, int timeout_ms,
                const sigset_t *mask)
{
    look_at_file();
    int64_t end_ns = end_of(timeout_ms);
    for (;;) {
        int slice = slice_until(end_ns);
        int n = true_epoll(fd, events, max, slice, mask);
        if (n != 0 || slice == 0) return n;
        look_at_file();
    }
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
    return epoll_pwait(fd, events, max, timeout_ms, NULL);
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int64_t end_ns = end_of(timeout_ms);
    for (;;) {
        int slice = slice_until(end_ns);
        int n = true_poll(fds, count, slice);
        if (n != 0 || slice == 0) return n;
    }
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *length,
                    struct timespec *left)
{
    enum which which = which_of(id);
    open_file();
    if (which == NOT_OURS) return true_sleep(id, flags, length, left);
    int64_t ns = ns_of(*length) - (flags & TIMER_ABSTIME ? told_now(which) : 0);
    struct timespec t = timespec_of(true_length(which, ns));
    return true_sleep(id, 0, &t, flags & TIMER_ABSTIME ? NULL : left);
}

int nanosleep(const struct timespec *length, struct timespec *left)
{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, length, left);
    return errno == 0 ? 0 : -1;
}
