/* journal_load.h - reads the journal of a server, for show, check and forget.
 *
 * A journal is read into memory as a whole, and replayed twice: once as the next start of a server
 * replays it (`start`), and once to get all items, even those that the start would ignore (`all`).
 * If the file is damaged, both are about the intact part before the damage. */
#ifndef SL_OFFLINE_JOURNAL_LOAD_H
#define SL_OFFLINE_JOURNAL_LOAD_H

#include "journal/file.h"
#include "locks/grant_record.h"

/* What the intact frames contain. */
struct offline_journal_counts {
    uint64_t frames, records, live; /* live: items that have not ended. */
    uint64_t durable_position;      /* The last frame that is certainly on disk. */
    uint64_t torn_bytes;            /* Bytes of incomplete frames at the end. */
};

struct offline_journal {
    int directory;
    bool in_use;            /* A running server uses the directory. */
    struct sl_bytes file;   /* All bytes. */
    struct sl_bytes intact; /* Those before the damage, if any. */
    bool has_header; /* false: the header is damaged, or this is not a journal. */
    bool is_damaged;
    size_t damaged_at;
    const char *damage; /* What is wrong there. */
    sl_ms now_ms;
    struct sl_life present;
    struct sl_life written; /* The last life in the file. All zero: none. */
    struct sl_recovery start, all;
    struct offline_journal_counts counts;
};

/* Open the directory, and find out whether a server uses it. Returns 0, or an exit status after a
 * message. Call offline_journal_close() in any case. */
int offline_journal_open(struct offline_journal *j, const char *path);

/* Read the journal. A damaged one is not an error: then is_damaged is set. Returns 0, or an exit
 * status after a message: there is no journal, it cannot be read, or it has another format. */
int offline_journal_read(struct offline_journal *j, const char *path);
void offline_journal_close(struct offline_journal *j);

/* Report damage: where it is, and what to do. Returns the exit status. */
int offline_journal_report_damage(const struct offline_journal *j, const char *path);

/* The items of the journal, in the order of the file. Zero-initialize a cursor. `is_held`: the next
 * start holds the item; then its times are those of the present. */
struct offline_item {
    struct sl_item item;
    bool is_held;
    sl_ms left_ms; /* SL_NEVER; or the time until the expiry; 0 if it has expired. */
};
struct offline_cursor {
    uint64_t all, start;
    struct sl_item held; /* The next item that is held. */
    bool has_held, has_begun;
};
bool offline_journal_next(const struct offline_journal *j, struct offline_cursor *c,
                          struct offline_item *out);

/* How long the next start would wait before it grants locks, or before a node votes. */
sl_ms offline_journal_wait_ms(const struct offline_journal *j);

/* The setting lease-volatile of the server that wrote the journal. */
sl_ms offline_journal_setting_ms(const struct offline_journal *j);

/* "server" or "node". */
const char *offline_journal_owner(const struct offline_journal *j);

sl_ms offline_now_ms(void); /* CLOCK_BOOTTIME, as in the journal. */

#endif /* SL_OFFLINE_JOURNAL_LOAD_H */
