/* own.h - the files that can be the default segment in /dev/shm.
 *
 * The default segment is there if it cannot be in the home directory (home.h). All processes
 * of a user must find one segment, in a directory where every user may create files. So its
 * name is fixed,
 *
 *     /dev/shm/sluice.UID
 *
 * and another user may have taken that name first. Another user can take any name, but
 * cannot create a file that belongs to us. So there are alternative names,
 *
 *     /dev/shm/sluice-UID.0123456789abcdef       (sixteen random digits)
 *
 * and a file with such a name is a candidate only if it is ours. The first candidate is the
 * user's segment: the fixed name, then the others in the order of their names. No name of
 * an ordinary segment, /dev/shm/sluice.NAME, is one of these. Which candidate is made into
 * a segment, if several processes are the first at a time, is decided in segment.c. */
#ifndef SL_CANAL_OWN_H
#define SL_CANAL_OWN_H

#include <stdbool.h>
#include <stddef.h>

#define SL_CANAL_OWN_PATH_SIZE 64

struct sl_canal_own_list {
    char (*paths)[SL_CANAL_OWN_PATH_SIZE];
    size_t count;
};

/* The user's fixed name. */
void sl_canal_own_path(char out[SL_CANAL_OWN_PATH_SIZE]);

/* Whether a file that is open, or that a path leads to, is a candidate. */
bool sl_canal_own_is(int fd);
bool sl_canal_own_is_at(const char *path);

/* All candidates in their order; free the list with sl_canal_own_free(). 0 or an errno. */
int sl_canal_own_list(struct sl_canal_own_list *out);
void sl_canal_own_free(struct sl_canal_own_list *list);

/* Create a candidate: under the fixed name, with these permissions, if it is free; otherwise
 * under another name, with permissions only for us. Returns its descriptor, and its path in
 * `out`; or -1 and errno, which is EEXIST if another process has created a candidate. */
int sl_canal_own_create(unsigned mode, char out[SL_CANAL_OWN_PATH_SIZE]);

#endif /* SL_CANAL_OWN_H */
