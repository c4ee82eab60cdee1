/* record.h - the format of the journal: items, records and frames. Pure.
 *
 * A journal is a map that survives a crash. Its entries are *items*: the lease of a grant, a
 * drained pattern, the state of a key at an acceptor, a limit. Kind, key and fence identify an
 * item. A *record* puts an item or ends it; the last record of an item counts. All records that
 * the server writes at once, before it sends the replies of a loop iteration, form a *frame*.
 *
 * The file. All numbers are little-endian, and all times are milliseconds of CLOCK_BOOTTIME.
 *
 *     offset 0      header, SL_HEADER_BYTES
 *       0  char[16]   "sluice journal\n\0"
 *      16  u32        SL_JOURNAL_FORMAT
 *      20  u32        the kind of server that owns the file (enum sl_journal_use)
 *      24  u8[16]     id: random, drawn for each file
 *      40  u64        position: the last position before this file's first frame
 *      48  zeros
 *    4088  u64        checksum: XXH3 of bytes 0 to 4087
 *
 *     offset 4096   frames, each a multiple of 8 bytes, without gaps
 *       0  u32        the lower half of the seed: marks the beginning of a frame of this file
 *       4  u32        the number of bytes of the frame, including this header
 *       8  u64        position: one more than that of the frame before; or the same, if this
 *                     frame has items that were copied from an older file (file.h)
 *      16  u64        durable: all bytes of this file before this offset were certainly on disk
 *                     when this frame was written. (An offset, not a position: copied frames
 *                     share a position.) A frame that is written before the file gets its name
 *                     may have its own offset here, because it is on disk when that happens
 *      24  i64        the time at which the frame was written
 *      32  u64        the checksum of the frame before; in the first frame, that of the header
 *      40  u64        checksum: XXH3 of bytes 0 to 39, with XXH3 of the records as its seed; the
 *                     seed of that one is sl_journal_seed() of the id
 *      48  records
 *
 *     a record, a multiple of 8 bytes, padded with zeros
 *       0  u8         the kind of the item; 16: the record ends the item; for a put also 32: the
 *                     item is long; 64: the bound is not the expiry; 128: a length exceeds 255
 *       1  u56        its fence, or 0
 *     put only:
 *       8  u48        expiry; all ones: never
 *      14  u8         the number of bytes of the key, and
 *      15  u8         of the value; both 0 with flag 128
 *          i64        bound, only with flag 64
 *          u32, u32   the number of bytes of the key and of the value, only with flag 128
 *          key, value
 *     end only:
 *       8  u16        the number of bytes of the key
 *      10  key
 *
 * Each frame contains the checksum of the frame before (the checksums are chained), so replay
 * accepts a frame only if all frames before it are intact. A frame of another file has another
 * seed. Clients do not know the seed, so they cannot choose keys and values that look like frames. */
#ifndef SL_JOURNAL_RECORD_H
#define SL_JOURNAL_RECORD_H

#include "base/types.h"

#define SL_JOURNAL_FORMAT 2u
#define SL_HEADER_BYTES 4096u
#define SL_FRAME_HEADER_BYTES 48u
#define SL_FRAME_BYTES_MAX (16u << 20)
#define SL_RECORDS_BYTES_MAX (SL_FRAME_BYTES_MAX - SL_FRAME_HEADER_BYTES)
#define SL_JOURNAL_ID_BYTES 16

enum sl_journal_use { SL_JOURNAL_OF_SERVER = 1, SL_JOURNAL_OF_NODE = 2 };

enum sl_item_kind {
    SL_ITEM_LIFE =
        1, /* The life in which the following records were written (recovery.h). */
    SL_ITEM_VOLATILE, /* lease-volatile: the longest lease that need not be durable. */
    SL_ITEM_FENCES,   /* The limit of fences. */
    SL_ITEM_CLEAN,    /* The mark of a clean stop: the last record of the file. */
    SL_ITEM_GRANT,    /* A grant with a lease; the fence is that of the grant. */
    SL_ITEM_DRAIN,    /* A drained pattern, as the key. */
    SL_ITEM_OVERLAP,  /* The next grant of the key overlaps a grant that was broken. */
    SL_ITEM_KEY,      /* The state of a key at an acceptor. */
    SL_ITEM_PEER,     /* The birth and the last known position of another node. */
    SL_ITEM_KINDS
};

/* SL_ITEM_VOLATILE is this much longer than the setting lease-volatile, unless that is 0: clocks are
 * rounded down, so a lease expires up to 1 ms later than its length says. */
#define SL_VOLATILE_EXTRA_MS 1

struct sl_item {
    enum sl_item_kind kind;
    struct sl_bytes key; /* At most SL_ITEM_KEY_BYTES_MAX. */
    sl_fence fence;      /* At most SL_FENCE_MAX. */
    sl_ms expiry_ms;     /* SL_NEVER: it does not expire. */
    sl_ms bound_ms;      /* At least expiry_ms; see J3 in journal.h. At most
                          * SL_ITEM_EXPIRY_MAX, or SL_NEVER. */
    bool is_long; /* A record of it had to be durable before it was acknowledged. */
    struct sl_bytes value; /* At most SL_ITEM_VALUE_BYTES_MAX. */
};
#define SL_ITEM_KEY_BYTES_MAX 65535u
#define SL_ITEM_VALUE_BYTES_MAX (8u << 20)
#define SL_ITEM_EXPIRY_MAX ((sl_ms)((1ull << 48) - 2)) /* 8,900 years after the boot. */

/* --- Writing ------------------------------------------------------------------- */

/* Bytes that grow. Zero-initialized: empty. */
struct sl_buffer {
    char *at;
    size_t n, size;
};

/* sl_record_put() and sl_record_end() append a record. They return SLUICE_OK or SLUICE_ENOMEM;
 * then nothing was appended. sl_record_bytes() returns the size of the record that puts an
 * item. */
int sl_record_put(struct sl_buffer *b, const struct sl_item *item);
int sl_record_end(struct sl_buffer *b, enum sl_item_kind kind, struct sl_bytes key,
                  sl_fence fence);
size_t sl_record_bytes(const struct sl_item *item);
void sl_buffer_free(struct sl_buffer *b);

/* The state of the chain of checksums of one file. */
struct sl_chain {
    uint64_t seed;     /* sl_journal_seed() of the id. */
    uint64_t checksum; /* The checksum of the last frame, or of the header. */
    uint64_t position; /* The position of the last frame. */
};

uint64_t sl_journal_seed(const uint8_t id[SL_JOURNAL_ID_BYTES]);

/* Write the header of a new file, and begin its chain. */
void sl_header_write(char out[SL_HEADER_BYTES], enum sl_journal_use use,
                     const uint8_t id[SL_JOURNAL_ID_BYTES], uint64_t position,
                     struct sl_chain *chain);

struct sl_frame {
    size_t at, bytes; /* Where the frame begins, and its length. */
    uint64_t position;
    uint64_t durable; /* An offset of the file. */
    sl_ms now_ms;
    struct sl_bytes records;
};

/* Write the header of a frame, and advance the chain. The caller sets everything in `frame` but
 * `bytes`, and writes `out` and then the records to the file. There are at most
 * SL_RECORDS_BYTES_MAX bytes of records. The position is that of the chain, or one more. */
void sl_frame_seal(char out[SL_FRAME_HEADER_BYTES], struct sl_chain *chain,
                   const struct sl_frame *frame);

/* The value of an item that is a number: SL_ITEM_VOLATILE in milliseconds, SL_ITEM_FENCES.
 * sl_value_read() returns false if the bytes are not a number. */
#define SL_VALUE_BYTES 8
void sl_value_write(char out[SL_VALUE_BYTES], uint64_t number);
bool sl_value_read(struct sl_bytes value, uint64_t *out);

/* --- Reading ------------------------------------------------------------------- */

struct sl_header {
    enum sl_journal_use use;
    uint32_t format;
    struct sl_chain chain; /* To verify the first frame. */
};

/* Returns SLUICE_OK; SLUICE_EVERSION if this is a journal of another format; SLUICE_EINVAL if it
 * is not a journal or the header is damaged. */
int sl_header_read(struct sl_bytes file, struct sl_header *out);

/* Read the frame at this offset, and advance the chain. Returns false if there is no intact frame
 * that continues the chain; then the chain has not changed. */
bool sl_frame_next(struct sl_bytes file, size_t offset, struct sl_chain *chain,
                   struct sl_frame *out);

/* Find the next intact frame of this file at or after `offset`, whether or not it continues the
 * chain. Returns false if there is none. */
bool sl_frame_search(struct sl_bytes file, size_t offset, uint64_t seed,
                     struct sl_frame *out);

/* Read the next record of a frame and advance *offset. Returns 1: *out was put; 2: it was ended
 * (only its kind, key and fence are set); 0: there are no more records; -1: invalid. */
int sl_record_next(struct sl_bytes records, size_t *offset, struct sl_item *out);

#endif /* SL_JOURNAL_RECORD_H */
