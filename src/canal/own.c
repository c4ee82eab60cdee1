#include "canal/own.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "/dev/shm/"
#define DIGITS 16u

void sl_canal_own_path(char out[SL_CANAL_OWN_PATH_SIZE])
{
    snprintf(out, SL_CANAL_OWN_PATH_SIZE, DIRECTORY "sluice.%u", (unsigned)geteuid());
}

/* Write the common prefix of all alternative names to `out`. */
static size_t second_prefix(char out[SL_CANAL_OWN_PATH_SIZE])
{
    return (size_t)snprintf(out, SL_CANAL_OWN_PATH_SIZE, "sluice-%u.",
                            (unsigned)geteuid());
}

/* Return whether the file belongs to us, and is not a hard link to another file of ours
 * that a different user has created. */
static bool is_own(const struct stat *st)
{
    if (st->st_uid != geteuid()) return false;
    return S_ISREG(st->st_mode) && st->st_nlink == 1;
}

bool sl_canal_own_is(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && is_own(&st);
}

bool sl_canal_own_is_at(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && is_own(&st);
}

static bool has_second_name(const char *name)
{
    char prefix[SL_CANAL_OWN_PATH_SIZE];
    size_t n = second_prefix(prefix);
    return strncmp(name, prefix, n) == 0 && strlen(name) == n + DIGITS &&
           strspn(name + n, "0123456789abcdef") == DIGITS;
}

/* Return whether no other user can write to the file. We create a file with an
 * alternative name only for ourselves. If other users can write to it, it is a hard
 * link to another file of ours that a different user has created. */
static bool is_private_at(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && is_own(&st) && (st.st_mode & 077u) == 0;
}

static bool append(struct sl_canal_own_list *list, const char *path)
{
    void *more = realloc(list->paths, (list->count + 1) * sizeof *list->paths);
    if (more == NULL) return false;
    list->paths = more;
    snprintf(list->paths[list->count++], SL_CANAL_OWN_PATH_SIZE, "%s", path);
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list_second_names(struct sl_canal_own_list *list)
{
    struct dirent *e;
    char path[SL_CANAL_OWN_PATH_SIZE];
    int error = 0;
    DIR *d = opendir(DIRECTORY);
    if (d == NULL) return errno;
    while (error == 0 && (e = readdir(d)) != NULL) {
        if (!has_second_name(e->d_name)) continue;
        snprintf(path, sizeof path, DIRECTORY "%.40s", e->d_name);
        if (is_private_at(path) && !append(list, path)) error = ENOMEM;
    }
    closedir(d);
    return error;
}

int sl_canal_own_list(struct sl_canal_own_list *out)
{
    char fixed[SL_CANAL_OWN_PATH_SIZE];
    *out = (struct sl_canal_own_list){0};
    sl_canal_own_path(fixed);
    if (sl_canal_own_is_at(fixed) && !append(out, fixed)) return ENOMEM;
    size_t fixed_count = out->count;
    int error = list_second_names(out);
    if (error != 0) {
        sl_canal_own_free(out);
        return error;
    }
    if (out->count > fixed_count)
        qsort(out->paths + fixed_count, out->count - fixed_count, sizeof *out->paths,
              compare);
    return 0;
}

void sl_canal_own_free(struct sl_canal_own_list *list)
{
    free(list->paths);
    *list = (struct sl_canal_own_list){0};
}

static int create(const char *path, unsigned mode)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_CREAT | O_EXCL,
                  mode);
    if (fd < 0) return -1;
    /* The umask must not restrict the mode that the caller requested. */
    if (fchmod(fd, mode) == 0) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

int sl_canal_own_create(unsigned mode, char out[SL_CANAL_OWN_PATH_SIZE])
{
    char prefix[SL_CANAL_OWN_PATH_SIZE];
    uint64_t number;
    sl_canal_own_path(out);
    int fd = create(out, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
    if (sl_canal_own_is_at(out)) {
        errno = EEXIST;
        return -1;
    }
    if (getrandom(&number, sizeof number, 0) != sizeof number) return -1;
    second_prefix(prefix);
    snprintf(out, SL_CANAL_OWN_PATH_SIZE, DIRECTORY "%.30s%016llx", prefix,
             (unsigned long long)number);
    return create(out, 0600);
}
