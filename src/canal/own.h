/* own.h - finds and creates the default segment in /dev/shm.
 *
 * The default segment is in /dev/shm if it cannot be in the home directory (home.h).
 * All processes of a user must find the same segment, in a directory where every user
 * may create files. So its name is fixed,
 *
 *     /dev/shm/sluice.UID
 *
 * but another user may have created a file with that name first. That user cannot
 * create a file that belongs to us. So there are alternative names,
 *
 *     /dev/shm/sluice-UID.0123456789abcdef       (sixteen random digits)
 *
 * and a file with such a name is a candidate only if it belongs to us. The user's
 * segment is the first candidate: the file with the fixed name if it is a candidate,
 * otherwise the alternative name that sorts first. An ordinary segment,
 * /dev/shm/sluice.NAME, never has one of these names. If several processes create a
 * candidate at the same time, segment.c decides which of them becomes the segment. */
#ifndef SL_CANAL_OWN_H
#define SL_CANAL_OWN_H

#include <stdbool.h>
#include <stddef.h>

#define SL_CANAL_OWN_PATH_SIZE 64

struct sl_canal_own_list {
    char (*paths)[SL_CANAL_OWN_PATH_SIZE];
    size_t count;
};

/* Write the path with the user's fixed name to `out`. */
void sl_canal_own_path(char out[SL_CANAL_OWN_PATH_SIZE]);

/* Return whether an open file, or the file at a path, is a candidate. */
bool sl_canal_own_is(int fd);
bool sl_canal_own_is_at(const char *path);

/* List all candidates in order. Free the list with sl_canal_own_free(). Returns 0 or an
 * errno. */
int sl_canal_own_list(struct sl_canal_own_list *out);
void sl_canal_own_free(struct sl_canal_own_list *list);

/* Create a candidate. If no file has the fixed name, use the fixed name and these
 * permissions; otherwise use an alternative name and allow access only to this user.
 * Returns the file descriptor and writes the path to `out`. On failure, returns -1 and
 * sets errno, which is EEXIST if another process has created a candidate. */
int sl_canal_own_create(unsigned mode, char out[SL_CANAL_OWN_PATH_SIZE]);

#endif /* SL_CANAL_OWN_H */
