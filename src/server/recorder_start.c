/* recorder_start.c - starts and stops the journal: reads it, and continues the file or writes a
 * new one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/observe/log.h"
#include "server/recorder_internal.h"

static int fail_start(const struct server *s, const char *what, const char *why)
{
    return sl_directory_fail(&s->directory, what, why);
}

#define DAMAGED "data: the file \"journal\" is damaged; "
#define NOT_A_JOURNAL                                                                  \
    "data: the file \"journal\" in this directory is not a journal of Sluice, or its " \
    "header is damaged; if another program uses this directory, choose another "       \
    "--data; otherwise "
#define FORGET                                                                     \
    "when the longest lease that you use has expired, or its holder has stopped, " \
    "run `sluice journal forget DIRECTORY`, and start the server again "           \
    "(docs/restart.md)"
#define ADD_AGAIN                                                               \
    "send NODES REMOVE to another node, empty the directory, start this node, " \
    "and send NODES ADD (docs/commands/nodes.md)"

/* Explain why the journal cannot be used. */
static int refuse(const struct server *s, const struct sl_recorder *r)
{
    char at[64];
    switch (r->recovery.result) {
        case SL_RECOVERY_OK: break;
        case SL_RECOVERY_NOT_A_JOURNAL:
            return fail_start(s,
                              r->use == SL_JOURNAL_OF_NODE ? NOT_A_JOURNAL ADD_AGAIN
                                                           : NOT_A_JOURNAL FORGET,
                              "invalid header");
        case SL_RECOVERY_FORMAT:
            return fail_start(s,
                              "data: the file \"journal\" was written by another "
                              "version of Sluice, in a format that this version does "
                              "not read; start that version",
                              "unknown format");
        case SL_RECOVERY_DAMAGED:
            snprintf(at, sizeof at, "damaged at offset %zu", r->recovery.damaged_at);
            return fail_start(
                s, r->use == SL_JOURNAL_OF_NODE ? DAMAGED ADD_AGAIN : DAMAGED FORGET,
                at);
        case SL_RECOVERY_NO_MEMORY:
            return fail_start(s, "data: cannot read the journal", "out of memory");
    }
    return 0;
}

/* Log why the file cannot be read. Returns -1. */
static int fail_to_read(const struct server *s, int error)
{
    if (error == ELOOP) return sl_directory_fail_disk(&s->directory, error);
    if (error == EINVAL)
        return fail_start(s,
                          "data: the file \"journal\" is not a regular file; move it "
                          "away, or choose another --data",
                          strerror(error));
    return fail_start(s, "data: cannot read the journal", strerror(error));
}

/* Decide what the file system can be used for. Returns -1 after logging why it cannot. */
static int check_place(const struct server *s, sl_ms *volatile_ms)
{
    const struct sl_settings *set = s->settings;
    *volatile_ms = set->lease_volatile_ms > 0
                       ? set->lease_volatile_ms + SL_VOLATILE_EXTRA_MS
                       : 0;
    switch (sl_journal_place(s->directory.fd)) {
        case SL_PLACE_LOCAL: return 0;
        case SL_PLACE_MEMORY:
            if (set->data_volatile) return 0;
            if (strcmp(set->data, "auto") != 0)
                return fail_start(
                    s,
                    "data: this directory is on tmpfs or overlay, so its files may be "
                    "lost with the machine or the container; choose another --data, or "
                    "accept this with --data-volatile",
                    "volatile file system");
            sl_log(
                SL_LOG_WARN,
                "data: the default directory is on tmpfs or overlay: leases are lost "
                "with the machine or the container; set --data to a directory on a "
                "disk",
                "directory", s->directory.path, NULL);
            return 0;
        case SL_PLACE_NETWORK:
        case SL_PLACE_UNKNOWN: break;
    }
    *volatile_ms = 0;
    sl_log(SL_LOG_INFO,
           "data: not a local file system: the server syncs every lease before it "
           "replies",
           "directory", s->directory.path, NULL);
    return 0;
}

int sl_recorder_open(struct server *s, enum sl_journal_use use,
                     const struct sl_recorder_owner *owner)
{
    struct sl_life life;
    sl_ms volatile_ms;
    struct sl_recorder *r = calloc(1, sizeof *r);
    s->recorder = r;
    if (r == NULL) return fail_start(s, "cannot start", "out of memory");
    r->owner = owner;
    r->use = use;
    r->bytes_max = (uint64_t)s->settings->journal_bytes_max;
    if (check_place(s, &volatile_ms) != 0) return -1;
    sl_journal_probe(s->directory.fd);
    sl_journal_life(s->directory.fd, &life);
    int error = sl_journal_map(s->directory.fd, &r->map);
    if (error != 0 && error != ENOENT) return fail_to_read(s, error);
    r->found = error == 0;
    if (r->found) {
        sl_server_read_clock(s);
        sl_recovery_begin(&r->recovery, r->map, &life, s->now.ms, s->hash_key);
        if (refuse(s, r) != 0) return -1;
        if (r->recovery.use != use && use == SL_JOURNAL_OF_SERVER)
            return fail_start(s,
                              "data: this directory belongs to a node of a cluster; "
                              "start the server with --node, or choose another --data",
                              "other kind of server");
        r->converts = r->recovery.use != use;
        r->found = !r->converts;
    }
    r->journal = sl_journal_new(s->hash_key, r->recovery.chain.position, volatile_ms);
    if (r->journal == NULL) return fail_start(s, "cannot start", "out of memory");
    if (r->found) sl_journal_inherit(r->journal, r->recovery.volatile_ms, s->now.ms);
    return 0;
}

const struct sl_recovery *sl_recorder_recovery(const struct sl_recorder *r)
{
    return &r->recovery;
}

bool sl_recorder_found(const struct sl_recorder *r)
{
    return r->found;
}

bool sl_recorder_converts(const struct sl_recorder *r)
{
    return r->converts;
}

bool sl_recorder_next(struct server *s, uint64_t *cursor, struct sl_item *out)
{
    struct sl_recorder *r = s->recorder;
    while (r->found && sl_recovery_next(&r->recovery, cursor, out)) {
        if (out->expiry_ms > s->now.ms) {
            if (r->recovery.same_life) sl_journal_restore(r->journal, out);
            sl_recorder_count(r, out);
            return true;
        }
        if (r->recovery.same_life)
            sl_journal_end(r->journal, s->now, out->kind, out->key, out->fence,
                           out->is_long);
    }
    return false;
}

/* Write a new file with all items, and make it the journal. Returns 0 or an errno. */
static int begin_new(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    int error = sl_journal_file_new(s->directory.fd, r->use,
                                    sl_journal_position(r->journal), &r->file);
    if (error != 0) return error;
    sl_journal_file_limit(r->file, r->bytes_max);
    sl_recorder_begin_copy(s);
    while (!r->copied && error == 0) error = sl_recorder_copy_some(s);
    if (error == 0) error = sl_journal_file_commit(r->file);
    if (error != 0) return error;
    sl_recorder_stop_copying(r);
    sl_journal_file_switch(r->file);
    return 0;
}

/* Continue the file of the last server, in the same life. Returns 0 or an errno. */
static int continue_file(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    struct sl_file_items items;
    int error = sl_journal_file_continue(s->directory.fd, &r->recovery, &r->file);
    if (error != 0) return error;
    sl_recorder_describe_file(r, sl_journal_volatile_ms(r->journal), &items);
    for (size_t i = 0; i < sizeof items.at / sizeof *items.at; i++)
        if (sl_journal_put(r->journal, s->now, &items.at[i],
                           (struct sl_item_before){0}) == SL_JOURNAL_FAILED)
            return ENOMEM;
    error = sl_recorder_write(s);
    if (error != 0) return error;
    sl_journal_sync_begin(r->journal);
    error = sl_journal_file_sync(r->file);
    sl_journal_sync_end(r->journal, error == 0);
    sl_journal_file_limit(r->file, r->bytes_max);
    return error;
}

int sl_recorder_begin(struct server *s, sl_fence fence_limit, sl_ms wait_until_ms)
{
    struct sl_recorder *r = s->recorder;
    r->fence_limit = fence_limit;
    r->wait_until_ms = wait_until_ms;
    /* If journal-bytes-max has been lowered, a shorter file may be within it. */
    bool continues = r->found && r->recovery.same_life &&
                     r->recovery.bytes + SL_ROOM_BYTES <= r->bytes_max;
    int error = continues ? continue_file(s) : begin_new(s);
    if (r->found || r->converts) {
        sl_recovery_end(&r->recovery);
        sl_journal_unmap(r->map);
        r->map = (struct sl_bytes){0};
    }
    if (error == EFBIG && !sl_recorder_is_limit_of_process(r))
        return fail_start(
            s, "data: the leases in the journal exceed journal-bytes-max; raise it",
            strerror(error));
    return error == 0 ? 0 : sl_directory_fail_disk(&s->directory, error);
}

/* --- Stop ---------------------------------------------------------------------------------- */

int sl_recorder_stop(struct server *s, bool clean)
{
    struct sl_recorder *r = s->recorder;
    struct sl_item item = {.kind = SL_ITEM_CLEAN, .expiry_ms = SL_NEVER};
    if (r == NULL) return 0;
    while (r->job != SL_JOB_NONE) uv_run(s->loop, UV_RUN_ONCE);
    int error = r->error;
    if (error == 0 && r->file != NULL) {
        if (r->copying) sl_journal_file_drop(r->file);
        if (clean)
            sl_journal_put(r->journal, s->now, &item, (struct sl_item_before){0});
        error = sl_recorder_write(s);
        if (error == 0) error = sl_journal_file_sync(r->file);
    }
    sl_journal_file_close(r->file);
    sl_journal_free(r->journal);
    sl_buffer_free(&r->copy);
    free(r);
    s->recorder = NULL;
    if (error == 0) return 0;
    return fail_start(s,
                      "data: cannot write the mark of a clean stop; the next start "
                      "proceeds as after a crash",
                      strerror(error));
}
