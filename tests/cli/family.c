/* family.c - a command with descendants that are hard to stop, for losses.py.
 *
 *     family FILE INDEX
 *
 * It ignores SIGTERM, and starts four processes: a child that ends at SIGTERM; a child in a session of its own and a
 * daemon that has forked twice, which ignore SIGTERM; and a child that is stopped. Each of the five writes its process
 * id and, every few milliseconds, the time (CLOCK_BOOTTIME) to its place in the file. They run until they are
 * killed. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS 5
#define BEAT_US 3000

struct member {
    volatile int64_t pid, beat_us;
};

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static _Noreturn void live(struct member *m)
{
    m->pid = getpid();
    for (;;) {
        m->beat_us = now_us();
        usleep(BEAT_US);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) return 64;
    int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    struct member *all = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || all == MAP_FAILED) return 71;
    struct member *m = all + (size_t)atoi(argv[2]) * MEMBERS;
    if (fork() == 0) live(m + 1);
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0) {
        setsid();
        live(m + 2);
    }
    if (fork() == 0) {
        setsid();
        if (fork() == 0) live(m + 3);
        _exit(0);
    }
    if (fork() == 0) {
        m[4].pid = getpid();
        m[4].beat_us = now_us();
        raise(SIGSTOP);
        live(m + 4);
    }
    live(m);
}
