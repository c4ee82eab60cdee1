/* disk.c - a disk that a test can make slow or broken, for one process (LD_PRELOAD). The file
 * that $DISK_FILE names holds a 64-bit number: 0, all is well; -1, fsync() waits until it is
 * another; else it fails with this errno. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *order;

__attribute__((constructor)) static void open_file(void)
{
    int fd = open(getenv("DISK_FILE"), O_RDONLY | O_CLOEXEC);
    order = mmap(NULL, sizeof *order, PROT_READ, MAP_SHARED, fd, 0);
    if (order == MAP_FAILED) abort();
}

int fsync(int fd)
{
    static int (*real)(int);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    while (*order == -1) usleep(1000);
    if (*order == 0) return real(fd);
    errno = (int)*order;
    return -1;
}
