/* append.c - compares the ways to append to the journal (src/journal/): a write per turn, or stores
 * to a mapped file.
 *
 *     build/plain/bench/append [MEGABYTES [PAUSE_MS [DIRECTORY]]]
 *
 * One thread appends frames of 1, 10 and 100 records of 128 bytes, one frame per turn, as the loop
 * of a server does. Another thread calls fdatasync() again and again, with a pause of 10 ms. The
 * space is allocated in steps of 4 MiB when the file reaches its end: with fallocate(), or by writing
 * zeros. `64 KiB zeros` allocates with fallocate(), and writes zeros in smaller pieces.
 *
 * For each case the program prints the CPU time of the appending thread per record, the distribution
 * of the times of its turns, and the median time of a sync. On a busy machine the longest turns come
 * from the scheduler, which runs other processes. So `blocked` is the longest turn in which the
 * thread waited in the kernel: for a page, or for the file system. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "times.h"

#define HEADER_BYTES 48u
#define RECORD_BYTES 128u
#define STEP_BYTES (4u << 20)
#define RECORDS_MAX 100u
#define SLOW_NS 20000 /* A turn in which the thread waits takes longer. */

struct way {
    const char *name;
    bool mapped, zeros;
    uint64_t piece; /* The number of zeros per write into allocated space; 0: none. */
};
static const struct way ways[] = {
    {"write, allocated", false, false, 0}, {"write, 64 KiB zeros", false, false, 65536},
    {"write, zeros", false, true, 0},      {"mapped, allocated", true, false, 0},
    {"mapped, zeros", true, true, 0},
};

static int file;
static char *map;
static uint64_t allocated, filled;
static atomic_bool stop;
static struct timespec pause_time;
static struct times turns, syncs;
static char zeros[STEP_BYTES];

static void fail(const char *what)
{
    fprintf(stderr, "append: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* How often this thread has waited in the kernel. */
static long waits(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void *sync_often(void *pause)
{
    /* Relaxed: the thread is joined. */
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        int64_t from = clock_ns(CLOCK_MONOTONIC);
        if (fdatasync(file) != 0) fail("fdatasync");
        times_add(&syncs, clock_ns(CLOCK_MONOTONIC) - from);
        nanosleep(pause, NULL);
    }
    return NULL;
}

static void write_at(struct iovec *v, int count, uint64_t offset)
{
    ssize_t all = 0;
    for (int i = 0; i < count; i++) all += (ssize_t)v[i].iov_len;
    if (pwritev(file, v, count, (off_t)offset) != all) fail("pwritev");
}

static void grow(const struct way *w)
{
    if (w->zeros) write_at(&(struct iovec){zeros, STEP_BYTES}, 1, allocated);
    else if (fallocate(file, 0, (off_t)allocated, STEP_BYTES) != 0) fail("fallocate");
    allocated += STEP_BYTES;
}

static void append(const struct way *w, const char *header, const char *records,
                   size_t n, uint64_t offset)
{
    while (offset + HEADER_BYTES + n > allocated) grow(w);
    for (; w->piece > 0 && offset + HEADER_BYTES + n > filled; filled += w->piece)
        write_at(&(struct iovec){zeros, w->piece}, 1, filled);
    if (w->mapped) {
        memcpy(map + offset, header, HEADER_BYTES);
        memcpy(map + offset + HEADER_BYTES, records, n);
        return;
    }
    struct iovec v[] = {{(char *)header, HEADER_BYTES}, {(char *)records, n}};
    write_at(v, 2, offset);
}

static void measure(const struct way *w, unsigned records, uint64_t bytes,
                    const char *directory)
{
    static char header[HEADER_BYTES] = "header", body[RECORDS_MAX * RECORD_BYTES];
    char path[4096];
    pthread_t thread;
    snprintf(path, sizeof path, "%s/sluice-append.XXXXXX", directory);
    file = mkstemp(path);
    if (file < 0) fail(path);
    unlink(path);
    map = mmap(NULL, bytes + STEP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) fail("mmap");
    memset(body, 'r', sizeof body);
    allocated = filled = 0;
    grow(w);
    if (fsync(file) != 0) fail("fsync");
    times_clear(&turns);
    times_clear(&syncs);
    atomic_store_explicit(&stop, false, memory_order_relaxed);
    if (pthread_create(&thread, NULL, sync_often, &pause_time) != 0)
        fail("pthread_create");

    const size_t n = (size_t)records * RECORD_BYTES, frame = HEADER_BYTES + n;
    uint64_t count = bytes / frame;
    int64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), blocked = 0;
    long waited = waits();
    for (uint64_t i = 0; i < count; i++) {
        int64_t from = clock_ns(CLOCK_MONOTONIC);
        append(w, header, body, n, i * frame);
        int64_t took = clock_ns(CLOCK_MONOTONIC) - from;
        times_add(&turns, took);
        if (took < SLOW_NS) continue;
        long now = waits();
        if (now != waited && took > blocked) blocked = took;
        waited = now;
    }
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    printf("%-19s %7u %10.0f %9.1f %9.1f %9.1f %10.1f %9.2f\n", w->name, records,
           (double)cpu / (double)(count * records), times_us(&turns, 0.5),
           times_us(&turns, 0.99), times_us(&turns, 0.999), (double)blocked / 1000,
           times_us(&syncs, 0.5) / 1000);
    munmap(map, bytes + STEP_BYTES);
    close(file);
}

int main(int argc, char **argv)
{
    static const unsigned counts[] = {1, 10, 100};
    unsigned long megabytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    unsigned long pause_ms = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
    const char *directory = argc > 3 ? argv[3] : ".";
    if (megabytes == 0 || megabytes > 4096 || pause_ms > 999 || argc > 4) {
        fputs("usage: append [MEGABYTES [PAUSE_MS [DIRECTORY]]]\n", stderr);
        return 2;
    }
    pause_time.tv_nsec = (long)pause_ms * 1000000;
    printf("%-19s %7s %10s %9s %9s %9s %10s %9s\n", "", "records", "CPU ns", "turn us",
           "", "", "", "sync ms");
    printf("%-19s %7s %10s %9s %9s %9s %10s %9s\n", "", "per turn", "/record", "median",
           "99%", "99.9%", "blocked", "median");
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            measure(&ways[i], counts[c], (uint64_t)megabytes << 20, directory);
    return 0;
}
