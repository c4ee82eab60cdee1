/* directory.h - the data directory of a server: finds it, locks it, and reports its errors.
 *
 *     lock     locked while a server uses the directory; its text says what kind of server
 *     state    what a single server has to know after a restart (state_file.h)
 *     node     what a node of a cluster has to know after a restart (node_file.h)
 *
 * "lock" is empty until the other file has been written for the first time. So the server can tell
 * a first start from a directory that has lost its file. */
#ifndef SL_SERVER_DATA_DIRECTORY_H
#define SL_SERVER_DATA_DIRECTORY_H

#include <limits.h>

#include "server/data/text_file.h"
#include "server/settings.h"

struct sl_directory {
    int fd;   /* -1: there is no data directory. */
    int lock; /* The file "lock", locked as long as it is open. */
    char path[PATH_MAX];
};

/* Find it, create it if necessary, and lock it. 1: done. 0: the settings want none, or there is no
 * path for one. -1: the log says why it cannot be used. */
int sl_directory_open(struct sl_directory *f, const struct sl_settings *set);

enum sl_directory_use {
    SL_DIRECTORY_IS_NEW,
    SL_DIRECTORY_OF_SERVER,
    SL_DIRECTORY_OF_NODE
};

/* Which kind of server has used the directory so far. sl_directory_mark() records the kind that
 * uses it from now on: 0, or -1 if the write failed; the log says why. */
enum sl_directory_use sl_directory_use(const struct sl_directory *f);
int sl_directory_mark(const struct sl_directory *f, enum sl_directory_use use);

/* Log what is wrong, with the path of the directory and the reason. Returns -1. */
int sl_directory_fail(const struct sl_directory *f, const char *what, const char *why);

/* The same for an error of the disk, with what to do about it. */
int sl_directory_fail_disk(const struct sl_directory *f, int error);

/* Log that a file in it cannot be used. `as_if_lost` says what to do if its content is lost.
 * Returns -1. */
int sl_directory_refuse(const struct sl_directory *f, const char *name,
                        enum sl_found found, const char *as_if_lost);

#endif /* SL_SERVER_DATA_DIRECTORY_H */
