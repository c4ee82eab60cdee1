/* family.c - a command with descendants that are hard to stop, for losses.py and test_leased.py.
 *
 *     family FILE INDEX
 *
 * It ignores SIGTERM, and starts six processes: a child that ends at SIGTERM; a child in a session of its own and a
 * daemon that has forked twice, which ignore SIGTERM; a child that is stopped; a process whose first thread has ended;
 * and one that forks again and again, so that its process id changes all the time. Each of the seven writes its
 * process id and, every few milliseconds, the time (CLOCK_BOOTTIME) to its place in the file. They run until they are
 * killed, for at most two minutes.
 *
 *     family daemon MICROSECONDS FILE
 *
 * It starts a daemon, which forks for the second time after this delay, and ends at once. The daemon writes its process
 * id to the file.
 *
 *     family thread FILE
 *
 * Its first thread ends. Another one writes the process id to the file. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS 7
#define BEAT_US 3000
#define HOP_US 15000
#define LIFE_S 120

struct member {
    volatile int64_t pid, beat_us;
};

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void *live(void *arg)
{
    struct member *m = arg;
    m->pid = getpid();
    for (int64_t end_us = now_us() + LIFE_S * 1000000ll; now_us() < end_us;) {
        m->beat_us = now_us();
        usleep(BEAT_US);
    }
    _exit(0);
}

static void live_without_first_thread(void *(*work)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, arg) != 0) _exit(71);
    pthread_exit(NULL);
}

/* Continue in a child again and again. */
static void hop(struct member *m)
{
    for (int64_t end_us = now_us() + LIFE_S * 1000000ll; now_us() < end_us;) {
        m->pid = getpid();
        m->beat_us = now_us();
        usleep(HOP_US);
        pid_t child = fork();
        if (child > 0) _exit(0);
    }
    _exit(0);
}

static void *write_id(void *path)
{
    FILE *f = fopen(path, "w");
    if (f != NULL) {
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
    }
    sleep(LIFE_S);
    _exit(0);
}

static void become_daemon(int delay_us, char *path)
{
    if (fork() != 0) return;
    setsid();
    usleep((useconds_t)delay_us);
    if (fork() == 0) write_id(path);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "daemon") == 0) {
        become_daemon(atoi(argv[2]), argv[3]);
        return 0;
    }
    if (argc != 3) return 64;
    if (strcmp(argv[1], "thread") == 0) live_without_first_thread(write_id, argv[2]);
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
    if (fork() == 0) live_without_first_thread(live, m + 5);
    if (fork() == 0) {
        setsid();
        hop(m + 6);
    }
    live(m);
}
