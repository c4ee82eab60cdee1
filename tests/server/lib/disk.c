/* disk.c - a disk that a test can make slow or broken, for one process (LD_PRELOAD). The file
 * $DISK_FILE holds seven 64-bit numbers. The first five set the result of
 *
 *     fsync()
 *     fdatasync() of the transaction store
 *     pwrite() to the first two pages of a file, which are the meta pages of the store
 *     fdatasync() of the journal
 *     writes to the journal
 *
 * 0: success; -1: the call blocks until the number changes; -2: one sync succeeds and sets the
 * number to -1; otherwise the call fails with this errno. The sixth number is the duration of each
 * fdatasync() of the journal in milliseconds. The seventh counts the writes to the journal that have
 * blocked.
 *
 * If $DISK_BOOT names a directory, the process reads its files "boot" and "machine" instead of the
 * boot id and the machine id. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define ORDERS 7
#define FIRST_PAGES 8192

static volatile int64_t *order;

__attribute__((constructor)) static void open_file(void)
{
    int fd = open(getenv("DISK_FILE"), O_RDWR | O_CLOEXEC);
    order = mmap(NULL, ORDERS * sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                 0);
    if (order == MAP_FAILED) abort();
}

static int obey(volatile int64_t *o, int (*real)(int), int fd)
{
    while (*o == -1) usleep(1000);
    if (*o == -2) {
        *o = -1;
        return real(fd);
    }
    if (*o == 0) return real(fd);
    errno = (int)*o;
    return -1;
}

static int is_journal(int fd)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return strstr(path, "/journal") != NULL;
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    char other[4096];
    const char *boot = getenv("DISK_BOOT");
    va_list more;
    va_start(more, flags);
    unsigned mode = va_arg(more, unsigned);
    va_end(more);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "open");
    if (boot != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
        snprintf(other, sizeof other, "%s/boot", boot);
        path = other;
    } else if (boot != NULL && strcmp(path, "/etc/machine-id") == 0) {
        snprintf(other, sizeof other, "%s/machine", boot);
        path = other;
    }
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

ssize_t pwritev(int fd, const struct iovec *v, int count, off_t at)
{
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pwritev");
    if (order[4] == -1) order[6]++;
    while (order[4] == -1) usleep(1000);
    if (order[4] == 0 || !is_journal(fd)) return real(fd, v, count, at);
    errno = (int)order[4];
    return -1;
}

ssize_t pwritev64(int fd, const struct iovec *v, int count, off_t at)
    __attribute__((alias("pwritev")));

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
    if (!is_journal(fd)) return obey(order + 1, real, fd);
    if (order[5] > 0) usleep((useconds_t)order[5] * 1000);
    return obey(order + 3, real, fd);
}

/* LMDB calls pwrite(), not pwrite64(). */
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
