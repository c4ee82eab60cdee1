/* disk.c - a disk that a test can make slow or broken, for one process (LD_PRELOAD). The file
 * that $DISK_FILE names holds three 64-bit numbers: of fsync(); of fdatasync(), by which the
 * store of transactions is written; and of pwrite() into the first two pages of a file, which
 * say in the store what was the last commit. 0, all is well; -1, it waits until that has changed;
 * else it fails with this errno. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ORDERS 3
#define FIRST_PAGES 8192

static volatile int64_t *order;

__attribute__((constructor)) static void open_file(void)
{
    int fd = open(getenv("DISK_FILE"), O_RDONLY | O_CLOEXEC);
    order = mmap(NULL, ORDERS * sizeof *order, PROT_READ, MAP_SHARED, fd, 0);
    if (order == MAP_FAILED) abort();
}

static int obey(const volatile int64_t *o, int (*real)(int), int fd)
{
    while (*o == -1) usleep(1000);
    if (*o == 0) return real(fd);
    errno = (int)*o;
    return -1;
}

int fsync(int fd)
{
    static int (*real)(int);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return obey(order, real, fd);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    return obey(order + 1, real, fd);
}

/* By the name that LMDB calls it by. */
ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (at >= FIRST_PAGES || order == NULL || order[2] == 0)
        return real(fd, from, n, at);
    while (order[2] == -1) usleep(1000);
    errno = (int)order[2];
    return errno == 0 ? real(fd, from, n, at) : -1;
}
