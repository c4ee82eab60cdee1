/* segment.h - finds or creates the file of a segment, checks it and maps it.
 *
 * Two processes may create the file at once, a creator may die, and the machine may
 * have been rebooted. One rule covers all these cases: a segment is valid if `ready` is
 * set and its boot id is the current one. Otherwise the process locks the file, creates
 * the segment from scratch and sets `ready` last. */
#ifndef SL_CANAL_SEGMENT_H
#define SL_CANAL_SEGMENT_H

#include "canal/layout.h"

/* How long to wait for another process that is creating the segment. */
#define SL_CANAL_SEGMENT_WAIT_MS 5000

#define SL_CANAL_KEYS_DEFAULT 4096u
#define SL_CANAL_SLOTS_DEFAULT 1024u
#define SL_CANAL_RECORDS_DEFAULT 16384u
#define SL_CANAL_MODE_DEFAULT 0600u

/* Open a segment as sluice_canal_open() specifies, and fill *seg. If this fails,
 * nothing remains open. */
int sl_canal_segment_open(const char *name, const struct sluice_canal_options *options,
                          struct sl_canal_segment *seg);

/* Unmap and close the segment. No thread of this process may still have a slot. */
void sl_canal_segment_close(struct sl_canal_segment *seg);

/* Convert the name of a segment to a path. NULL means the default segment: the file in
 * the home directory (home.h) if it exists, or else the file in /dev/shm (own.h).
 * Returns SLUICE_OK, or SLUICE_EINVAL if the path does not fit into `size` bytes. */
int sl_canal_segment_path(const char *name, char *out, size_t size);

/* Store the absolute path of a segment's file in *out, or NULL for an anonymous
 * segment. The caller frees the path. Returns SLUICE_OK, SLUICE_ENOMEM or
 * SLUICE_EIO. */
int sl_canal_segment_find_path(const struct sl_canal_segment *seg, char **out);

/* Return whether a path still leads to the file that is open as fd. Returns true if
 * this cannot be determined. */
bool sl_canal_segment_still_at(int fd, const char *path);

/* Return whether the file is shorter than the segment. Accessing the missing part
 * raises SIGBUS. */
bool sl_canal_segment_truncated(const struct sl_canal_segment *seg);

#endif /* SL_CANAL_SEGMENT_H */
