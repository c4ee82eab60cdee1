/* segment.h - the file of a segment: find or create it, check it, map it.
 *
 * Two processes may create the file at once, a creator may die, and the machine may have
 * been rebooted. One rule covers all of this: a segment is valid if `ready` is set and its
 * boot id is ours. Otherwise a process locks the file, creates the segment from scratch and
 * sets `ready` last. */
#ifndef SL_CANAL_SEGMENT_H
#define SL_CANAL_SEGMENT_H

#include "canal/layout.h"

/* How long to wait for another process that is creating the segment. */
#define SL_CANAL_SEGMENT_WAIT_MS 5000

#define SL_CANAL_KEYS_DEFAULT 4096u
#define SL_CANAL_SLOTS_DEFAULT 1024u
#define SL_CANAL_RECORDS_DEFAULT 16384u
#define SL_CANAL_MODE_DEFAULT 0600u

/* Open a segment as sluice_canal_open() specifies, and fill *seg. A failure leaves
 * nothing open. */
int sl_canal_segment_open(const char *name, const struct sluice_canal_options *options,
                          struct sl_canal_segment *seg);

/* Unmap and close. No thread of this process may have a slot. */
void sl_canal_segment_close(struct sl_canal_segment *seg);

/* The path that a name stands for. NULL means the default segment: the file in the home
 * directory (home.h) if it exists, or else the file in /dev/shm (own.h). SLUICE_EINVAL if the path does not fit into size. */
int sl_canal_segment_path(const char *name, char *out, size_t size);

/* The absolute path of a segment's file, to be freed by the caller; NULL for an
 * anonymous segment. SLUICE_ENOMEM, SLUICE_EIO. */
int sl_canal_segment_find_path(const struct sl_canal_segment *seg, char **out);

/* Whether a path leads to the file that is open as fd; true if this cannot be
 * determined. */
bool sl_canal_segment_still_at(int fd, const char *path);

/* Whether the file is shorter than the segment. Accessing the missing part raises
 * SIGBUS. */
bool sl_canal_segment_truncated(const struct sl_canal_segment *seg);

#endif /* SL_CANAL_SEGMENT_H */
