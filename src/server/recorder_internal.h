/* recorder_internal.h - shared by the files of recorder.h: recorder_start.c starts and stops the
 * journal, recorder.c has what happens in between. */
#ifndef SL_SERVER_RECORDER_INTERNAL_H
#define SL_SERVER_RECORDER_INTERNAL_H

#include "server/recorder.h"

/* The space that the file has for the records of the next loop iterations. */
#define SL_ROOM_BYTES 262144u

enum sl_recorder_job { SL_JOB_NONE, SL_JOB_SYNC, SL_JOB_COMMIT, SL_JOB_OPEN };

struct sl_recorder {
    const struct sl_recorder_owner *owner;
    enum sl_journal_use use;
    struct sl_journal *journal;
    struct sl_journal_file *file; /* NULL: after an error. */
    /* Only at the start: */
    struct sl_bytes map;
    struct sl_recovery recovery;
    bool found;
    bool converts; /* The journal is that of a single server, and this is a node. */

    sl_fence fence_limit;
    sl_ms wait_until_ms;
    uint64_t bytes_max;
    uint64_t items, live_bytes; /* Number and size of live items; approximate. */
    int error;                  /* Why the journal has failed; 0: it works. */
    bool displaced; /* The directory or the journal was moved or replaced. */
    sl_ms retry_ms; /* Begin no copy before this time. */

    bool copying, copy_begun;
    bool copied;  /* All items have been copied. */
    bool mending; /* The copy replaces a file that failed. */
    int copy_error;
    struct sl_buffer copy;
    uint64_t copied_items, copied_bytes;

    enum sl_recorder_job job;
    uv_work_t work;
    int result;
    struct sl_journal_file *opened; /* SL_JOB_OPEN: the old file, then the new one. */
    uint64_t job_position;          /* The position when the job began. */
    sl_ms job_begin_ms;
    bool job_syncs; /* sl_journal_sync_begin() was called for this job. */
    uint64_t syncs, copies, errors;
};

/* The items that describe the file itself. */
struct sl_file_items {
    struct sl_item at[3];
    char life[SL_LIFE_BYTES], number[2][SL_VALUE_BYTES];
};
void sl_recorder_describe_file(const struct sl_recorder *r, sl_ms volatile_ms,
                               struct sl_file_items *out);

/* Add an item to the counts of live items and bytes. */
void sl_recorder_count(struct sl_recorder *r, const struct sl_item *item);

/* Write all records. Returns 0 or an errno. */
int sl_recorder_write(struct server *s);

/* Begin a copy; copy a few more items (0 or an errno); end or abandon it. */
void sl_recorder_begin_copy(struct server *s);
int sl_recorder_copy_some(struct server *s);
void sl_recorder_stop_copying(struct sl_recorder *r);

/* Whether EFBIG means the file size limit of the process, which is lower than journal-bytes-max. */
bool sl_recorder_is_limit_of_process(const struct sl_recorder *r);

#endif /* SL_SERVER_RECORDER_INTERNAL_H */
