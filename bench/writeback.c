/* writeback.c - measures whether writing a segment to its disk delays the lock.
 *
 *     build/plain/bench/writeback [SECONDS [DIRECTORY...]]
 *
 * The default segment is a file in the user's home directory, so the kernel writes its pages
 * to the disk from time to time. For each directory this program creates a segment and times
 * pairs of acquire and release: first on a quiet disk, then while another process writes 64
 * MiB to the same directory, flushes the segment's file and calls sync(), without a pause.
 * It prints one line for each: the number of pairs and the distribution of their times.
 *
 * On a busy machine the longest times come from the scheduler, which runs other processes.
 * The column `blocked` therefore counts the pairs in which the thread had to wait in the
 * kernel, and the last column has the longest of these: an uncontended pair never waits, so
 * it waited for a page that was being written. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sluice.h"

#define DIRTY_BYTES (64u << 20)
#define BLOCK_BYTES (1u << 20)

/* Waiting in the kernel takes longer than this. */
#define SLOW_NS 2000u

/* A histogram of times in nanoseconds: 64 buckets for each power of two, so a value is exact
 * to 1/64. */
#define STEPS 64u
#define BUCKETS (64u * STEPS)
static uint64_t buckets[BUCKETS];

static unsigned bucket_of(uint64_t ns)
{
    if (ns < STEPS) return (unsigned)ns;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns); /* At least 6. */
    return (top - 5u) * STEPS + (unsigned)(ns >> (top - 6u) & (STEPS - 1u));
}

static uint64_t lowest_of(unsigned bucket)
{
    if (bucket < STEPS) return bucket;
    unsigned top = bucket / STEPS + 5u;
    return (uint64_t)(STEPS + bucket % STEPS) << (top - 6u);
}

static uint64_t quantile(uint64_t count, double q)
{
    uint64_t left = (uint64_t)((double)count * q);
    for (unsigned b = 0; b < BUCKETS; b++) {
        if (buckets[b] > left) return lowest_of(b);
        left -= buckets[b];
    }
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "writeback: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Write to the disk until killed. Counts the calls of sync() in *syncs. */
static void disturb(const char *directory, const char *segment, int report)
{
    char path[4096];
    static char block[BLOCK_BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof path, "%s/sluice.bench.writeback.%d", directory,
             (int)getpid());
    int fd = open(path, O_CREAT | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) fail(path);
    unlink(path);
    int shared = open(segment, O_RDWR | O_CLOEXEC);
    if (shared < 0) fail(segment);
    for (unsigned round = 0;; round++) {
        memset(block, (int)round, sizeof block);
        for (off_t at = 0; at < DIRTY_BYTES; at += BLOCK_BYTES) {
            if (pwrite(fd, block, sizeof block, at) != sizeof block) fail(path);
            if (at % (16 * BLOCK_BYTES) == 0) fdatasync(shared);
        }
        sync();
        if (write(report, "", 1) != 1) _exit(0);
    }
}

/* How often the kernel made this thread wait. It counts preemption separately. */
static long waits(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw : 0;
}

static void measure(const char *directory, const char *load, double seconds)
{
    char path[4096];
    struct sluice_canal *canal;
    const struct sluice_capacity one = {.per = 1, .buckets = 1};
    int pipes[2];
    snprintf(path, sizeof path, "%s/sluice.bench.segment.%d", directory, (int)getpid());
    if (sluice_canal_open(path, NULL, &canal) != SLUICE_OK) fail(path);
    unsigned syncs = 0;
    pid_t child = 0;
    if (load != NULL) {
        if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0) fail("pipe");
        child = fork();
        if (child == 0) disturb(directory, path, pipes[1]);
    }
    memset(buckets, 0, sizeof buckets);
    uint64_t blocked = 0, longest_blocked = 0;
    long waited = waits();
    uint64_t count = 0, longest = 0, start = now_ns(), last = start;
    uint64_t end = start + (uint64_t)(seconds * 1e9);
    while (last < end) {
        if (sluice_canal_acquire(canal, "db", one, NULL) != 1 ||
            sluice_canal_release(canal, "db", 1) != SLUICE_OK)
            fail("acquire");
        uint64_t at = now_ns(), took = at - last;
        buckets[bucket_of(took)]++;
        if (took > longest) longest = took;
        count++;
        if (took > SLOW_NS) {
            long n = waits();
            if (n != waited) {
                blocked++;
                if (took > longest_blocked) longest_blocked = took;
            }
            waited = n;
            at = now_ns();
        }
        last = at;
    }
    if (child != 0) {
        char byte;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipes[0], &byte, 1) == 1) syncs++;
        close(pipes[0]);
        close(pipes[1]);
    }
    sluice_canal_close(canal);
    sluice_canal_remove(path);
    printf("%-24s %-10s %6u %12" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64
           " %10" PRIu64 " %10" PRIu64 " %7" PRIu64 " %10" PRIu64 "\n",
           directory, load != NULL ? load : "quiet", syncs, count, quantile(count, 0.5),
           quantile(count, 0.99), quantile(count, 0.999), quantile(count, 0.9999),
           longest, blocked, longest_blocked);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char *places[] = {"/dev/shm", getenv("HOME"), NULL};
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 20;
    char **directory = argc > 2 ? argv + 2 : places;
    if (!(seconds > 0)) {
        fprintf(stderr, "usage: writeback [SECONDS [DIRECTORY...]]\n");
        return 64;
    }
    printf("%-24s %-10s %6s %12s %8s %8s %8s %10s %10s %7s %10s\n", "directory", "disk",
           "syncs", "pairs", "p50 ns", "p99 ns", "p99.9 ns", "p99.99 ns", "max ns",
           "blocked", "longest");
    for (; *directory != NULL; directory++) {
        measure(*directory, NULL, seconds);
        measure(*directory, "writing", seconds);
    }
    return 0;
}
