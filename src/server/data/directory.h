/* folder.h - the folder of a server: what has to survive a restart is in it.
 *
 *     lock     whose folder it is, and that somebody uses it now
 *     state    what one server has to know (state_file.h)
 *     node     what a node of a cluster has to know (node_file.h)
 *
 * The lock's file is empty until the other has been written once: so a first start can be
 * told from a folder that lost something. */
#ifndef SL_SERVER_DATA_DIRECTORY_H
#define SL_SERVER_DATA_DIRECTORY_H

#include <limits.h>

#include "server/data/text_file.h"
#include "server/settings.h"

struct sl_directory {
    int fd;   /* -1: nothing is kept. */
    int lock; /* The file "lock"; ours while we have it. */
    char path[PATH_MAX];
};

/* Find it, make it if need be, and take possession of it. 1: it is ours. 0: the settings
 * want none, or there is no name for one. -1: it was said in the log. */
int sl_directory_open(struct sl_directory *f, const struct sl_settings *set);

enum sl_directory_use {
    SL_DIRECTORY_IS_NEW,
    SL_DIRECTORY_OF_SERVER,
    SL_DIRECTORY_OF_NODE
};

/* Whose it was so far; and whose it is from now on: 0, or -1: it was said in the log. */
enum sl_directory_use sl_directory_use(const struct sl_directory *f);
int sl_directory_mark(const struct sl_directory *f, enum sl_directory_use use);

/* Say what is wrong, with the folder and the reason. Returns -1. */
int sl_directory_fail(const struct sl_directory *f, const char *what, const char *why);

/* The same of an error of the disk, with what to do about it. */
int sl_directory_fail_disk(const struct sl_directory *f, int error);

/* Say that a file in it is not what it should be; `as_if_lost` tells what to do where it is
 * of no use any more. Returns -1. */
int sl_directory_refuse(const struct sl_directory *f, const char *name,
                        enum sl_found found, const char *as_if_lost);

#endif /* SL_SERVER_DATA_DIRECTORY_H */
