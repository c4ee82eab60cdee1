/* directory.h - the data directory of a server: finds it, locks it, and reports its errors.
 *
 *     lock     locked while a server uses the directory, like the directory itself; its text names
 *              the kind of server
 *     journal  the leases of a single server, which it restores at a start (recorder.h)
 *     node     the state that a node of a cluster needs after a restart (node_file.h)
 *
 * "lock" is empty until "state" or "node" has been written for the first time. So the server can
 * distinguish a first start from a directory whose file was lost. */
#ifndef SL_SERVER_DATA_DIRECTORY_H
#define SL_SERVER_DATA_DIRECTORY_H

#include <limits.h>

#include "server/data/text_file.h"
#include "server/settings.h"

struct sl_directory {
    int fd;   /* Locked, too; -1: there is no data directory. */
    int lock; /* The file "lock", which stays locked while it is open. */
    char path[PATH_MAX];
};

/* Find the data directory, create it if necessary, and lock it. Returns 1 on success; 0 if the
 * settings disable it or give no path; -1 after logging why it cannot be used. */
int sl_directory_open(struct sl_directory *f, const struct sl_settings *set);

enum sl_directory_use {
    SL_DIRECTORY_IS_NEW,
    SL_DIRECTORY_OF_SERVER,
    SL_DIRECTORY_OF_NODE
};

/* sl_directory_use() returns which kind of server has used the directory so far.
 * sl_directory_mark() records the kind that uses it from now on, and returns 0, or -1 after logging
 * why the write failed. */
enum sl_directory_use sl_directory_use(const struct sl_directory *f);
int sl_directory_mark(const struct sl_directory *f, enum sl_directory_use use);

/* Log the error `what` with the path of the directory and the reason. Returns -1. */
int sl_directory_fail(const struct sl_directory *f, const char *what, const char *why);

/* Log a disk error and its remedy. Returns -1. */
int sl_directory_fail_disk(const struct sl_directory *f, int error);

/* Write why a running server cannot write a file of the directory, and what to do.
 * sl_directory_remedy() returns what to do about an errno. */
void sl_directory_explain(const struct sl_directory *f, const char *name,
                          const char *reason, const char *remedy, char *out,
                          size_t size);
const char *sl_directory_remedy(int error);

/* Log that a file in the directory cannot be used. `as_if_lost` says what to do if its content is
 * lost. Returns -1. */
int sl_directory_refuse(const struct sl_directory *f, const char *name,
                        enum sl_found found, const char *as_if_lost);

#endif /* SL_SERVER_DATA_DIRECTORY_H */
