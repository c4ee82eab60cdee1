#include "canal/home.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define DIRECTORY "sluice"
#define FILE_NAME "segment"

/* --- File systems --------------------------------------------------------- */

/* Return whether a file is on a local file system. The numbers are those of statfs(2).
 * If a file system is not in this list, the default segment is in /dev/shm. So a
 * missing entry is harmless, but a wrong entry would break locks. File systems that
 * never write in place (ZFS, bcachefs, NILFS) are not in the list: on a full disk, a
 * write to the segment would raise SIGBUS. */
static bool is_local(int fd)
{
    static const uint32_t types[] = {
        0x0000ef53, /* ext2, ext3, ext4 */
        0x58465342, /* XFS */
        0x9123683e, /* Btrfs; sl_canal_home_prepare() makes it write in place */
        0xf2f52010, /* F2FS */
        0x01021994, /* tmpfs */
        0x794c7630, /* overlayfs: its upper layer is one of the others */
    };
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if ((uint32_t)fs.f_type == types[i]) return true;
    return false;
}

void sl_canal_home_prepare(int fd)
{
    int flags;
    /* Other file systems reject the flag and do not need it. */
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return;
    flags |= FS_NOCOW_FL;
    (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

/* --- Directories ---------------------------------------------------------- */

/* Return whether an error is permanent: this directory cannot be used now or later. */
static bool is_lasting(int e)
{
    switch (e) {
        case ENOENT:
        case ENOTDIR:
        case ELOOP:
        case EACCES:
        case EPERM:
        case EROFS:
        case ENAMETOOLONG: return true;
        default: return false;
    }
}

static bool is_ours(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_uid == geteuid();
}

static int close_with(int fd, int e)
{
    close(fd);
    errno = e;
    return -1;
}

/* Open a directory in the directory `parent`. If it does not exist, create it, but only
 * if the parent belongs to us and is on a local file system. */
static int enter(int parent, const char *name, bool create)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd >= 0 || errno != ENOENT || !create) return fd;
    if (!is_ours(parent) || !is_local(parent)) {
        errno = EACCES;
        return -1;
    }
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST) return -1;
    return openat(parent, name, flags);
}

/* Open the directory of the segment in the directory `state`. It must belong to us, be
 * on a local file system and not be a symbolic link. No other user may have write
 * permission. */
static int enter_last(int state, bool create)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    int fd = enter(state, DIRECTORY, create);
    if (fd < 0) return -1;
    close(fd);
    fd = openat(state, DIRECTORY, flags);
    if (fd < 0) return -1;
    if (fstat(fd, &st) != 0) return close_with(fd, errno);
    if (st.st_uid != geteuid() || !is_local(fd)) return close_with(fd, EACCES);
    if ((st.st_mode & 022u) != 0 && fchmod(fd, 0700) != 0) return close_with(fd, errno);
    return fd;
}

/* Check that the directory contains the segment, or that we can create the segment
 * there. */
static int check_last(int fd, bool create)
{
    struct stat st;
    if (fstatat(fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0) return 0;
    if (errno != ENOENT || !create) return -1;
    return faccessat(fd, ".", W_OK | X_OK, AT_EACCESS);
}

/* Find the directory `base`/names[0]/names[1]..., and the segment's directory in it. */
static int find_in(const char *base, const char *const names[], bool create)
{
    int fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (; fd >= 0 && *names != NULL; names++) {
        int next = enter(fd, *names, create);
        int e = errno;
        close(fd);
        errno = e;
        fd = next;
    }
    if (fd < 0) return -1;
    int last = enter_last(fd, create);
    int e = errno;
    close(fd);
    errno = e;
    if (last < 0) return -1;
    int found = check_last(last, create);
    e = errno;
    close(last);
    errno = e;
    return found;
}

/* --- The user's directories ----------------------------------------------- */

/* Return the directory in an environment variable, or NULL if there is none. Returns
 * NULL in a set-user-ID program, which must not trust its caller's environment. */
static const char *directory_in(const char *variable)
{
    const char *path = secure_getenv(variable);
    return path != NULL && path[0] == '/' ? path : NULL;
}

/* Find HOME if it belongs to us, or else the home directory from the password database.
 * Returns false if there is neither. */
static bool find_home(char *out, size_t size)
{
    struct passwd entry, *found = NULL;
    char buffer[4096];
    struct stat st;
    const char *home = directory_in("HOME");
    if (home == NULL || stat(home, &st) != 0 || st.st_uid != geteuid()) {
        if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) != 0 ||
            found == NULL || found->pw_dir == NULL || found->pw_dir[0] != '/')
            return false;
        home = found->pw_dir;
    }
    int n = snprintf(out, size, "%s", home);
    return n >= 0 && (size_t)n < size;
}

/* Split a path at its last slash into the parent, in `out`, and the name. */
static const char *split(const char *path, char *out, size_t size)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n >= size) return NULL;
    memcpy(out, path, n);
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    const char *name = path + (slash - out) + 1;
    /* Trailing slashes stay in the name; openat() and mkdirat() accept them. */
    if (slash == out) out[1] = '\0';
    else *slash = '\0';
    return name[0] != '\0' ? name : ".";
}

int sl_canal_home_path(bool create, char *out, size_t size)
{
    char home[PATH_MAX];
    int found, n; /* Keep the errno of find_in() until the end. */
    const char *state = directory_in("XDG_STATE_HOME");
    if (state != NULL) {
        const char *name = split(state, home, sizeof home);
        if (name == NULL) return ENOENT;
        found = find_in(home, (const char *const[]){name, NULL}, create);
        n = snprintf(out, size, "%s/" DIRECTORY "/" FILE_NAME, state);
    } else {
        if (!find_home(home, sizeof home)) return ENOENT;
        found = find_in(home, (const char *const[]){".local", "state", NULL}, create);
        n = snprintf(out, size, "%s/.local/state/" DIRECTORY "/" FILE_NAME, home);
    }
    if (n < 0 || (size_t)n >= size) return ENOENT;
    if (found == 0) return 0;
    return is_lasting(errno) ? ENOENT : errno;
}
