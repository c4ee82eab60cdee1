#include "server/data/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/observe/log.h"

int sl_directory_fail(const struct sl_directory *f, const char *what, const char *why)
{
    sl_log(SL_LOG_ERROR, what, "directory", f->path, "error", why, NULL);
    return -1;
}

/* Return the remedy for a disk error. */
static const char *advice(int error)
{
    switch (error) {
        case EROFS:
            return "data: the file system is read-only; mount it read-write, or choose "
                   "another --data";
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return "data: the disk is full; free some space, or choose another --data";
        case EACCES:
        case EPERM:
            return "data: the server's user cannot write to this directory; change its "
                   "owner or mode, or choose another --data";
        case ELOOP:
            return "data: a file in the directory is a symbolic link, which the server "
                   "does not follow; replace it with the file itself, or choose "
                   "another --data";
        default: return "data: cannot write to this directory";
    }
}

int sl_directory_fail_disk(const struct sl_directory *f, int error)
{
    return sl_directory_fail(f, advice(error), strerror(error));
}

void sl_directory_explain(const struct sl_directory *f, const char *name,
                          const char *reason, const char *remedy, char *out,
                          size_t size)
{
    snprintf(
        out, size,
        "cannot write the file %s/%s (%s); %s; the server tries again every second",
        f->path, name, reason, remedy);
}

const char *sl_directory_remedy(int error)
{
    return error == ENOSPC || error == EDQUOT ? "free some space on the disk"
                                              : "check the disk";
}

int sl_directory_refuse(const struct sl_directory *f, const char *name,
                        enum sl_found found, const char *as_if_lost)
{
    static const struct {
        const char *before, *after;
        bool lost;
    } messages[] = {
        [SL_FOUND_NOTHING] = {"the directory was used before, but its file",
                              "is missing, so its leases and fences are unknown. If "
                              "the file was moved, put it back. Otherwise: ",
                              true},
        [SL_FOUND_UNREADABLE] = {"the file", "cannot be read", false},
        [SL_FOUND_FOREIGN] =
            {"the file",
             "in this directory was not written by Sluice; choose another --data",
             false},
        [SL_FOUND_VERSION] =
            {"the file",
             "was written by another version of Sluice; start that version. Or: ",
             true},
        [SL_FOUND_CUT] = {"the end of the file",
                          "is missing. To continue without it: ", true},
        [SL_FOUND_DAMAGED] = {"the file",
                              "is damaged (wrong checksum). To continue without it: ",
                              true},
        [SL_FOUND_NONSENSE] = {"the file",
                               "has invalid content. To continue without it: ", true},
    };
    char text[500];
    snprintf(text, sizeof text, "data: %s \"%s\" %s%s", messages[found].before, name,
             messages[found].after, messages[found].lost ? as_if_lost : "");
    if (found == SL_FOUND_UNREADABLE)
        return sl_directory_fail(f, text, strerror(errno));
    sl_log(SL_LOG_ERROR, text, "directory", f->path, NULL);
    return -1;
}

/* --- The path of the directory ---------------------------------------------- */

/* Create the directory and its parents. Returns false and sets errno on failure. */
static bool make_directories(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        int status = mkdir(path, 0700);
        *slash = '/';
        if (status != 0 && errno != EEXIST && errno != EROFS) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Get the default path. Returns false if there is none. */
static bool default_path(const struct sl_settings *set, char path[PATH_MAX])
{
    const char *of_service = getenv("STATE_DIRECTORY");
    const char *of_user = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (of_service != NULL && *of_service == '/') {
        /* The variable may list several directories. */
        n = (int)strcspn(of_service, ":");
        if (n < PATH_MAX) snprintf(path, PATH_MAX, "%.*s", n, of_service);
    } else if (set->port <= 0) return false;
    else if (of_user != NULL && *of_user == '/')
        n = snprintf(path, PATH_MAX, "%s/sluice/%" PRId64, of_user, set->port);
    else if (home != NULL && *home == '/')
        n = snprintf(path, PATH_MAX, "%s/.local/state/sluice/%" PRId64, home,
                     set->port);
    return n > 0 && n < PATH_MAX;
}

static int cannot_make(const struct sl_directory *f)
{
    return sl_directory_fail(
        f,
        "data: cannot create the directory; choose another one with --data DIRECTORY, "
        "or use --data none to lose leases and fences at a restart",
        strerror(errno));
}

/* Choose the directory and create it if necessary. Returns 1 if it exists, 0 if there is none, or
 * -1 after logging why it cannot be created. */
static int choose(struct sl_directory *f, const struct sl_settings *set)
{
    const char *data = set->data;
    if (strcmp(data, "auto") == 0) {
        /* A directory that is unusable now may have been used before. A server that continued
         * without it would forget the leases that it granted. */
        if (default_path(set, f->path))
            return make_directories(f->path) ? 1 : cannot_make(f);
        *f->path = '\0';
        return 0;
    }
    if (*data == '\0' || strcmp(data, "none") == 0) return 0;
    if (strlen(data) >= PATH_MAX)
        return sl_directory_fail(f, "data: the path is too long", "path too long");
    strcpy(f->path, data);
    if (mkdir(f->path, 0700) != 0 && errno != EEXIST)
        return sl_directory_fail(f, "data: cannot create the directory",
                                 strerror(errno));
    return 1;
}

/* --- The owner and the lock of the directory -------------------------------- */

/* Reject a directory that another user can write to, because that user could replace our files. */
static int check_owner(const struct sl_directory *f)
{
    struct stat st;
    char why[120];
    if (fstat(f->fd, &st) != 0)
        return sl_directory_fail(f, "data: cannot open the directory", strerror(errno));
    if (st.st_uid != geteuid()) {
        snprintf(why, sizeof why, "its owner is uid %u, the server runs as uid %u",
                 st.st_uid, geteuid());
        return sl_directory_fail(
            f,
            "data: this directory belongs to another user; give it "
            "to the server's user (chown), or choose another --data",
            why);
    }
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        snprintf(why, sizeof why, "its mode is %04o", st.st_mode & 07777u);
        return sl_directory_fail(f,
                                 "data: other users can write to this directory; run "
                                 "chmod go-w on it, or choose another --data",
                                 why);
    }
    return 0;
}

/* Lock the file "lock" and the directory itself, so the lock remains if the file is removed. Some
 * file systems cannot lock a directory; there the file has to suffice. */
static bool lock_both(const struct sl_directory *f)
{
    return flock(f->lock, LOCK_EX | LOCK_NB) == 0 &&
           (flock(f->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
}

/* Lock the directory: two servers on one directory would overwrite each other's state. */
static int take(struct sl_directory *f)
{
    struct stat st;
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0)
        return sl_directory_fail(f, "data: cannot open the directory", strerror(errno));
    if (check_owner(f) != 0) return -1;
    f->lock = openat(f->fd, "lock",
                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (f->lock < 0) return sl_directory_fail_disk(f, errno);
    if (fstat(f->lock, &st) != 0 || !S_ISREG(st.st_mode))
        return sl_directory_fail(f,
                                 "data: the file \"lock\" in this directory is not a "
                                 "regular file; remove it",
                                 "not a regular file");
    if (lock_both(f)) return 1;
    return sl_directory_fail(
        f,
        "data: another server uses this directory; stop it, or choose "
        "another --data",
        strerror(errno));
}

int sl_directory_open(struct sl_directory *f, const struct sl_settings *set)
{
    f->fd = f->lock = -1;
    *f->path = '\0';
    int status = choose(f, set);
    if (status != 1) return status;
    signal(SIGXFSZ, SIG_IGN); /* Instead of the signal, write() returns EFBIG. */
    /* One thread is enough: there is one write at a time. */
    setenv("UV_THREADPOOL_SIZE", "1", 0);
    return take(f);
}

static const char *const marks[] = {
    [SL_DIRECTORY_IS_NEW] = "",
    [SL_DIRECTORY_OF_SERVER] =
        "This is the data directory of a Sluice server. The file journal has what the "
        "server must know after a restart.\n",
    [SL_DIRECTORY_OF_NODE] = "This is the data directory of a Sluice node. The file "
                             "node has what the node must know after a restart.\n",
};

enum sl_directory_use sl_directory_use(const struct sl_directory *f)
{
    char text[200];
    ssize_t n = pread(f->lock, text, sizeof text - 1, 0);
    if (n <= 0) return SL_DIRECTORY_IS_NEW;
    text[n] = '\0';
    /* Earlier versions wrote other texts, but they also contain this word. */
    return strstr(text, "node") != NULL ? SL_DIRECTORY_OF_NODE : SL_DIRECTORY_OF_SERVER;
}

int sl_directory_mark(const struct sl_directory *f, enum sl_directory_use use)
{
    size_t n = strlen(marks[use]);
    if (sl_directory_use(f) == use) return 0;
    if (pwrite(f->lock, marks[use], n, 0) == (ssize_t)n &&
        ftruncate(f->lock, (off_t)n) == 0 && fsync(f->lock) == 0)
        return 0;
    return sl_directory_fail_disk(f, errno);
}
