/* segment.h - the file that a segment lies in: found or made, checked, mapped.
 *
 * Two creators may race, a creator may die in the middle, the machine may have been
 * started anew since. All of that meets in one rule: a segment is good if `ready` is
 * set and the boot is ours; otherwise whoever has the file's lock makes it, from the
 * beginning, and sets `ready` last. */
#ifndef SL_CANAL_SEGMENT_H
#define SL_CANAL_SEGMENT_H

#include "canal/layout.h"

/* How long to wait for somebody else who is making the segment. */
#define SL_CANAL_SEGMENT_WAIT_MS 5000

#define SL_CANAL_KEYS_DEFAULT 4096u
#define SL_CANAL_SLOTS_DEFAULT 1024u
#define SL_CANAL_RECORDS_DEFAULT 16384u
#define SL_CANAL_MODE_DEFAULT 0600u

/* Open as sluice_canal_open() says, and fill *seg. On failure nothing stays open. */
int sl_canal_segment_open(const char *name, const struct sluice_canal_options *options,
                          struct sl_canal_segment *seg);

/* Unmap and close. Nobody in this process may have a slot any more. */
void sl_canal_segment_close(struct sl_canal_segment *seg);

/* The path that a name stands for; NULL: the user's own segment, or where it would be made
 * (own.h). SLUICE_EINVAL if it does not fit into size. */
int sl_canal_segment_path(const char *name, char *out, size_t size);

/* The absolute path of a segment's file, to be freed; NULL for an anonymous one.
 * SLUICE_ENOMEM, SLUICE_EIO. */
int sl_canal_segment_find_path(const struct sl_canal_segment *seg, char **out);

/* Whether a path leads to the file that we have open, as far as can be told. */
bool sl_canal_segment_still_at(int fd, const char *path);

/* Whether the file is now shorter than the segment: to touch what is missing is a SIGBUS. */
bool sl_canal_segment_truncated(const struct sl_canal_segment *seg);

#endif /* SL_CANAL_SEGMENT_H */
