/* record.c - writes and reads the format of the journal. Reading accepts any bytes. */
#include "journal/record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sluice.h"

#define MAGIC "sluice journal\n" /* With its zero byte, 16 bytes. */
#define HEADER_CHECKSUM (SL_HEADER_BYTES - 8u)
#define FRAME_CHECKSUM (SL_FRAME_HEADER_BYTES - 8u)
#define PUT_BYTES 16u /* Without bound and lengths, which are 8 bytes each. */
#define END_BYTES 10u
#define BUFFER_BYTES_MIN 4096u

/* The first byte of a record: the kind and flags. */
enum { KIND = 15, END = 16, LONG = 32, BOUND = 64, LENGTHS = 128 };
#define NEVER ((1ull << 48) - 1) /* As an expiry. */
#define SHORT_BYTES_MAX 255u     /* Longer keys and values need the flag LENGTHS. */

_Static_assert(sizeof MAGIC == 16, "the layout is documented");
_Static_assert(PUT_BYTES + 16 + SL_ITEM_KEY_BYTES_MAX + SL_ITEM_VALUE_BYTES_MAX + 8 <=
                   SL_RECORDS_BYTES_MAX,
               "every record fits into a frame");
_Static_assert(SL_ITEM_KINDS <= KIND + 1, "a kind has four bits");
_Static_assert(SL_FENCE_MAX < 1ull << 56, "a fence has seven bytes");

/* --- Numbers, little-endian ------------------------------------------------------- */

static inline uint32_t little32(uint32_t x)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap32(x);
#else
    return x;
#endif
}

static inline uint64_t little64(uint64_t x)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(x);
#else
    return x;
#endif
}

static inline void write32(char *at, uint32_t x)
{
    x = little32(x);
    memcpy(at, &x, sizeof x);
}

static inline void write64(char *at, uint64_t x)
{
    x = little64(x);
    memcpy(at, &x, sizeof x);
}

static inline uint32_t read16(const char *at)
{
    return (uint32_t)(uint8_t)at[0] | (uint32_t)(uint8_t)at[1] << 8;
}

static inline uint32_t read32(const char *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return little32(x);
}

static inline uint64_t read64(const char *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return little64(x);
}

void sl_value_write(char out[SL_VALUE_BYTES], uint64_t number)
{
    write64(out, number);
}

bool sl_value_read(struct sl_bytes value, uint64_t *out)
{
    if (value.n != SL_VALUE_BYTES) return false;
    *out = read64(value.at);
    return true;
}

/* --- Records -------------------------------------------------------------------- */

static inline size_t padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static bool is_longer_than_short(const struct sl_item *item)
{
    return item->key.n > SHORT_BYTES_MAX || item->value.n > SHORT_BYTES_MAX;
}

size_t sl_record_bytes(const struct sl_item *item)
{
    size_t head = PUT_BYTES + (item->bound_ms != item->expiry_ms ? 8u : 0u) +
                  (is_longer_than_short(item) ? 8u : 0u);
    return padded(head + item->key.n + item->value.n);
}

/* Make space for n more bytes, a multiple of 8, and fill the last 8 with zeros, because they may
 * contain padding. Returns where the caller writes them, or NULL when out of memory. */
static char *extend(struct sl_buffer *b, size_t n)
{
    if (n > b->size - b->n) {
        size_t size = b->size == 0 ? BUFFER_BYTES_MIN : 2 * b->size;
        while (size - b->n < n) size *= 2;
        char *at = realloc(b->at, size);
        if (at == NULL) return NULL;
        b->at = at;
        b->size = size;
    }
    char *at = b->at + b->n;
    memset(at + n - 8, 0, 8);
    b->n += n;
    return at;
}

static void write_start(char *at, enum sl_item_kind kind, uint32_t flags,
                        sl_fence fence)
{
    write64(at, (uint64_t)kind | flags | fence << 8);
}

static void write_bytes(char *at, struct sl_bytes bytes)
{
    if (bytes.n > 0) memcpy(at, bytes.at, bytes.n);
}

int sl_record_put(struct sl_buffer *b, const struct sl_item *item)
{
    bool never = item->expiry_ms == SL_NEVER, is_long = item->is_long;
    bool has_bound = item->bound_ms != item->expiry_ms;
    bool has_lengths = is_longer_than_short(item);
    assert(item->kind > 0 && item->kind < SL_ITEM_KINDS);
    assert(item->key.n <= SL_ITEM_KEY_BYTES_MAX && item->fence <= SL_FENCE_MAX);
    assert(item->value.n <= SL_ITEM_VALUE_BYTES_MAX);
    assert(item->expiry_ms >= 0 && item->bound_ms >= item->expiry_ms);
    assert(never || item->bound_ms <= SL_ITEM_EXPIRY_MAX);
    char *at = extend(b, sl_record_bytes(item));
    if (at == NULL) return SLUICE_ENOMEM;
    write_start(at, item->kind,
                (is_long ? LONG : 0u) | (has_bound ? BOUND : 0u) |
                    (has_lengths ? LENGTHS : 0u),
                item->fence);
    uint64_t lengths = has_lengths ? 0 : item->key.n | item->value.n << 8;
    write64(at + 8, (never ? NEVER : (uint64_t)item->expiry_ms) | lengths << 48);
    at += PUT_BYTES;
    if (has_bound) {
        write64(at, (uint64_t)item->bound_ms);
        at += 8;
    }
    if (has_lengths) {
        write32(at, (uint32_t)item->key.n);
        write32(at + 4, (uint32_t)item->value.n);
        at += 8;
    }
    write_bytes(at, item->key);
    write_bytes(at + item->key.n, item->value);
    return SLUICE_OK;
}

int sl_record_end(struct sl_buffer *b, enum sl_item_kind kind, struct sl_bytes key,
                  sl_fence fence)
{
    assert(kind > 0 && kind < SL_ITEM_KINDS);
    assert(key.n <= SL_ITEM_KEY_BYTES_MAX && fence <= SL_FENCE_MAX);
    char *at = extend(b, padded(END_BYTES + key.n));
    if (at == NULL) return SLUICE_ENOMEM;
    write_start(at, kind, END, fence);
    at[8] = (char)(key.n & 0xff);
    at[9] = (char)(key.n >> 8);
    write_bytes(at + END_BYTES, key);
    return SLUICE_OK;
}

void sl_buffer_free(struct sl_buffer *b)
{
    free(b->at);
    *b = (struct sl_buffer){0};
}

/* Read the rest of a record that ends an item. */
static int next_end(const char *at, size_t left, size_t *offset, struct sl_item *out)
{
    if (left < padded(END_BYTES)) return -1;
    out->key = (struct sl_bytes){at + END_BYTES, read16(at + 8)};
    size_t bytes = padded(END_BYTES + out->key.n);
    if (bytes > left) return -1;
    *offset += bytes;
    return 2;
}

/* Read the rest of a record that puts an item. */
static int next_put(const char *at, size_t left, uint64_t flags, size_t *offset,
                    struct sl_item *out)
{
    size_t head = PUT_BYTES + (flags & BOUND ? 8u : 0u) + (flags & LENGTHS ? 8u : 0u);
    if (left < head) return -1;
    uint64_t expiry = read64(at + 8) & NEVER, lengths = read64(at + 8) >> 48;
    out->expiry_ms = expiry == NEVER ? SL_NEVER : (sl_ms)expiry;
    out->bound_ms = flags & BOUND ? (sl_ms)read64(at + PUT_BYTES) : out->expiry_ms;
    out->is_long = flags & LONG;
    out->key.n = lengths & 0xff;
    out->value.n = lengths >> 8;
    if (flags & LENGTHS) {
        out->key.n = read32(at + head - 8);
        out->value.n = read32(at + head - 4);
    }
    if (out->bound_ms < out->expiry_ms ||
        ((flags & BOUND) != 0 && out->bound_ms > SL_ITEM_EXPIRY_MAX) ||
        out->key.n > SL_ITEM_KEY_BYTES_MAX || out->value.n > SL_ITEM_VALUE_BYTES_MAX)
        return -1;
    size_t bytes = padded(head + out->key.n + out->value.n);
    if (bytes > left) return -1;
    out->key.at = at + head;
    out->value.at = at + head + out->key.n;
    *offset += bytes;
    return 1;
}

int sl_record_next(struct sl_bytes records, size_t *offset, struct sl_item *out)
{
    size_t left = records.n - *offset;
    if (left == 0) return 0;
    if (left < 8) return -1;
    const char *at = records.at + *offset;
    uint64_t start = read64(at), kind = start & KIND, flags = start & 0xf0;
    *out = (struct sl_item){.kind = (enum sl_item_kind)kind, .fence = start >> 8};
    if (kind == 0 || kind >= SL_ITEM_KINDS || out->fence > SL_FENCE_MAX) return -1;
    if (flags == END) return next_end(at, left, offset, out);
    return flags & END ? -1 : next_put(at, left, flags, offset, out);
}

/* --- The header of the file --------------------------------------------------------- */

uint64_t sl_journal_seed(const uint8_t id[SL_JOURNAL_ID_BYTES])
{
    return XXH3_64bits(id, SL_JOURNAL_ID_BYTES);
}

void sl_header_write(char out[SL_HEADER_BYTES], enum sl_journal_use use,
                     const uint8_t id[SL_JOURNAL_ID_BYTES], uint64_t position,
                     struct sl_chain *chain)
{
    memset(out, 0, SL_HEADER_BYTES);
    memcpy(out, MAGIC, sizeof MAGIC);
    write32(out + 16, SL_JOURNAL_FORMAT);
    write32(out + 20, (uint32_t)use);
    memcpy(out + 24, id, SL_JOURNAL_ID_BYTES);
    write64(out + 40, position);
    uint64_t checksum = XXH3_64bits(out, HEADER_CHECKSUM);
    write64(out + HEADER_CHECKSUM, checksum);
    *chain = (struct sl_chain){sl_journal_seed(id), checksum, position};
}

int sl_header_read(struct sl_bytes file, struct sl_header *out)
{
    if (file.n < SL_HEADER_BYTES || memcmp(file.at, MAGIC, sizeof MAGIC) != 0)
        return SLUICE_EINVAL;
    uint32_t use = read32(file.at + 20);
    *out = (struct sl_header){.format = read32(file.at + 16)};
    if (out->format != SL_JOURNAL_FORMAT) return SLUICE_EVERSION;
    uint64_t checksum = XXH3_64bits(file.at, HEADER_CHECKSUM);
    if (checksum != read64(file.at + HEADER_CHECKSUM)) return SLUICE_EINVAL;
    if (use != SL_JOURNAL_OF_SERVER && use != SL_JOURNAL_OF_NODE) return SLUICE_EINVAL;
    if (read64(file.at + 40) > INT64_MAX) return SLUICE_EINVAL;
    out->use = (enum sl_journal_use)use;
    uint8_t id[SL_JOURNAL_ID_BYTES];
    memcpy(id, file.at + 24, sizeof id);
    out->chain = (struct sl_chain){sl_journal_seed(id), checksum, read64(file.at + 40)};
    return SLUICE_OK;
}

/* --- Frames --------------------------------------------------------------------------- */

static uint64_t checksum_of(const char *frame, struct sl_bytes records, uint64_t seed)
{
    /* Two short hashes instead of one over both parts: the header and the records are not
     * contiguous in memory when a frame is sealed, and a stream has a high fixed cost. */
    return XXH3_64bits_withSeed(frame, FRAME_CHECKSUM,
                                XXH3_64bits_withSeed(records.at, records.n, seed));
}

void sl_frame_seal(char out[SL_FRAME_HEADER_BYTES], struct sl_chain *chain,
                   const struct sl_frame *frame)
{
    size_t n = frame->records.n;
    assert(n % 8 == 0 && n <= SL_RECORDS_BYTES_MAX);
    assert(frame->position - chain->position <= 1 && frame->now_ms >= 0);
    write32(out, (uint32_t)chain->seed);
    write32(out + 4, (uint32_t)(SL_FRAME_HEADER_BYTES + n));
    write64(out + 8, frame->position);
    write64(out + 16, frame->durable);
    write64(out + 24, (uint64_t)frame->now_ms);
    write64(out + 32, chain->checksum);
    chain->checksum = checksum_of(out, frame->records, chain->seed);
    chain->position = frame->position;
    write64(out + FRAME_CHECKSUM, chain->checksum);
}

/* Read an intact frame of the file with this seed, whatever precedes it. */
static bool read_frame(struct sl_bytes file, size_t offset, uint64_t seed,
                       struct sl_frame *out)
{
    if (offset > file.n || file.n - offset < SL_FRAME_HEADER_BYTES) return false;
    const char *at = file.at + offset;
    if (read32(at) != (uint32_t)seed) return false;
    size_t bytes = read32(at + 4);
    if (bytes < SL_FRAME_HEADER_BYTES || bytes > SL_FRAME_BYTES_MAX || bytes % 8 != 0 ||
        bytes > file.n - offset)
        return false;
    *out = (struct sl_frame){
        .at = offset,
        .bytes = bytes,
        .position = read64(at + 8),
        .durable = read64(at + 16),
        .now_ms = (sl_ms)read64(at + 24),
        .records = {at + SL_FRAME_HEADER_BYTES, bytes - SL_FRAME_HEADER_BYTES},
    };
    return out->now_ms >= 0 && out->durable <= offset &&
           checksum_of(at, out->records, seed) == read64(at + FRAME_CHECKSUM);
}

bool sl_frame_next(struct sl_bytes file, size_t offset, struct sl_chain *chain,
                   struct sl_frame *out)
{
    if (!read_frame(file, offset, chain->seed, out)) return false;
    if (out->position - chain->position > 1) return false;
    if (read64(file.at + offset + 32) != chain->checksum) return false;
    chain->checksum = read64(file.at + offset + FRAME_CHECKSUM);
    chain->position = out->position;
    return true;
}

bool sl_frame_search(struct sl_bytes file, size_t offset, uint64_t seed,
                     struct sl_frame *out)
{
    for (size_t at = padded(offset); at < file.n; at += 8)
        if (read_frame(file, at, seed, out)) return true;
    return false;
}
