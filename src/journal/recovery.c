/* recovery.c - replays a journal in one pass, without an allocation per item.
 *
 * During the pass, a hash table leads from items to the offsets of their last records. Afterwards
 * a bitmap has one bit for each 8 bytes of the file, set where the record of an item begins. So
 * the items are returned in the order of the file, which is the fastest order to read it. */
#include "journal/recovery.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

#define SLOTS_MIN 1024u
#define SLOT_FILE_BYTES 256u

struct sl_recovery_map {
    struct sl_bytes file;
    size_t words;
    uint64_t bits[];
};

/* --- Lives ------------------------------------------------------------------------ */

static void write_text(char *out, const char *text)
{
    size_t n = strnlen(text, SL_LIFE_TEXT_BYTES - 1);
    memset(out, 0, SL_LIFE_TEXT_BYTES);
    memcpy(out, text, n);
}

void sl_life_write(char out[SL_LIFE_BYTES], const struct sl_life *l)
{
    write_text(out, l->boot);
    write_text(out += SL_LIFE_TEXT_BYTES, l->clock);
    write_text(out += SL_LIFE_TEXT_BYTES, l->machine);
    sl_value_write(out += SL_LIFE_TEXT_BYTES, l->device);
    sl_value_write(out += SL_VALUE_BYTES, l->inode);
    sl_value_write(out += SL_VALUE_BYTES, l->mount);
    sl_value_write(out + SL_VALUE_BYTES, (uint64_t)l->wait_until_ms);
}

static bool read_text(char *out, const char **at)
{
    memcpy(out, *at, SL_LIFE_TEXT_BYTES);
    *at += SL_LIFE_TEXT_BYTES;
    return out[SL_LIFE_TEXT_BYTES - 1] == 0;
}

static uint64_t read_number(const char **at)
{
    uint64_t number = 0;
    sl_value_read((struct sl_bytes){*at, SL_VALUE_BYTES}, &number);
    *at += SL_VALUE_BYTES;
    return number;
}

bool sl_life_read(struct sl_bytes value, struct sl_life *out)
{
    const char *at = value.at;
    if (value.n != SL_LIFE_BYTES) return false;
    *out = (struct sl_life){0};
    if (!read_text(out->boot, &at) || !read_text(out->clock, &at) ||
        !read_text(out->machine, &at))
        return false;
    out->device = read_number(&at);
    out->inode = read_number(&at);
    out->mount = read_number(&at);
    out->wait_until_ms = (sl_ms)read_number(&at);
    return out->wait_until_ms >= 0;
}

static bool is_same(const char *a, const char *b)
{
    return a[0] != 0 && strcmp(a, b) == 0;
}

/* Returns why the present is another life than that in which the file was written (J7), or NULL. */
static const char *why_other_life(const struct sl_life *was, const struct sl_life *is,
                                  sl_ms last_ms, sl_ms now_ms)
{
    if (!is_same(was->boot, is->boot)) return "the machine has been booted since";
    if (!is_same(was->clock, is->clock)) return "the time namespace is different";
    if (was->device != is->device || was->inode != is->inode)
        return "the file has been copied or moved";
    if (was->mount != is->mount) return "the file system has been unmounted since";
    if (!is->keeps_writes) return "the file system is not local";
    if (is->had_error) return "an I/O error was noted";
    if (now_ms < last_ms) return "the clock is behind the last record";
    return NULL;
}

/* --- The table of the replay --------------------------------------------------------- */

/* A slot is 0 if it is empty. Otherwise the upper half is a tag, the upper half of the item's hash,
 * and the lower half is the offset of its record, in units of 8 bytes. The tag determines where the
 * search for the slot begins, so the table can grow without reading records. */
struct table {
    uint64_t *slots;
    size_t size, count;
};

#define LOW 0xffffffffull

static size_t home_of(const struct table *t, uint64_t slot)
{
    return (size_t)((slot >> 32) * t->size >> 32);
}

static size_t after(const struct table *t, size_t i)
{
    return (i + 1) & (t->size - 1);
}

static bool grow(struct table *t, size_t size)
{
    struct table larger = {calloc(size, sizeof *larger.slots), size, t->count};
    if (larger.slots == NULL) return false;
    for (size_t i = 0; i < t->size; i++) {
        if (t->slots[i] == 0) continue;
        size_t to = home_of(&larger, t->slots[i]);
        while (larger.slots[to] != 0) to = after(&larger, to);
        larger.slots[to] = t->slots[i];
    }
    free(t->slots);
    *t = larger;
    return true;
}

/* The record at this offset, which has been read before, puts an item. */
static void read_put(struct sl_bytes file, uint64_t offset, struct sl_item *out)
{
    struct sl_bytes rest = {file.at + offset, file.n - (size_t)offset};
    size_t at = 0;
    int type = sl_record_next(rest, &at, out);
    assert(type == 1);
    (void)type;
}

static uint64_t offset_of(uint64_t slot)
{
    return (slot & LOW) * 8;
}

/* Find the slot of an item, or the empty slot where it would be. */
static size_t find(const struct table *t, struct sl_bytes file,
                   const struct sl_item *item, uint64_t tag)
{
    size_t i = home_of(t, tag);
    for (; t->slots[i] != 0; i = after(t, i)) {
        struct sl_item other;
        if ((t->slots[i] ^ tag) > LOW) continue;
        read_put(file, offset_of(t->slots[i]), &other);
        if (other.fence == item->fence && other.kind == item->kind &&
            other.key.n == item->key.n &&
            memcmp(other.key.at, item->key.at, item->key.n) == 0)
            break;
    }
    return i;
}

/* Empty a slot, and move those after it that would not be found any more. */
static void clear(struct table *t, size_t hole)
{
    for (size_t i = after(t, hole); t->slots[i] != 0; i = after(t, i)) {
        /* The slot may move to the hole unless its search begins after the hole. */
        size_t distance = (i - home_of(t, t->slots[i])) & (t->size - 1);
        if (distance < ((i - hole) & (t->size - 1))) continue;
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole] = 0;
    t->count--;
}

/* --- The replay ------------------------------------------------------------------------- */

/* Records are replayed in batches, so that the slots of the table, and the records that they refer
 * to, can be prefetched into the cache. */
#define BATCH 32u

struct step {
    struct sl_item item;
    uint64_t tag, offset; /* offset: of the record, or 0 if it ends the item. */
};

struct replay {
    struct sl_recovery *r;
    struct sl_bytes file;
    struct sl_hash_key key;
    struct table table;
    struct sl_life life; /* The last one in the file. */
    bool has_life;
    struct step steps[BATCH];
    size_t step_count;
};

/* The clients choose the keys, so the hash needs a secret. */
static uint64_t tag_of(const struct replay *p, const struct sl_item *item)
{
    uint64_t hash = sl_hash(p->key, item->key.at, item->key.n);
    return sl_hash_u64(item->fence ^ (uint64_t)item->kind << 56, hash) & ~LOW;
}

static uint64_t larger_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void replay_number(const struct sl_item *item, uint64_t max, uint64_t *largest,
                          bool *valid)
{
    uint64_t number = 0;
    if (!sl_value_read(item->value, &number) || number > max) *valid = false;
    else *largest = larger_of(*largest, number);
}

/* A record that is not about an item that next() returns. Returns false if it is one. */
static bool replay_about_file(struct replay *p, const struct sl_item *item, bool *valid)
{
    struct sl_recovery *r = p->r;
    uint64_t volatile_ms = (uint64_t)r->volatile_ms;
    switch (item->kind) {
        case SL_ITEM_LIFE:
            p->has_life = sl_life_read(item->value, &p->life);
            *valid = p->has_life;
            return true;
        case SL_ITEM_VOLATILE:
            replay_number(item, INT64_MAX, &volatile_ms, valid);
            r->volatile_ms = (sl_ms)volatile_ms;
            return true;
        case SL_ITEM_FENCES:
            replay_number(item, SL_FENCE_MAX, &r->fence_limit, valid);
            return true;
        case SL_ITEM_CLEAN: r->clean = true; return true;
        default: return false;
    }
}

static bool replay_put(struct replay *p, const struct step *step)
{
    struct table *t = &p->table;
    if (4 * (t->count + 1) > 3 * t->size && !grow(t, 2 * t->size)) return false;
    size_t i = find(t, p->file, &step->item, step->tag);
    if (t->slots[i] == 0) t->count++;
    t->slots[i] = step->tag | step->offset / 8;
    return true;
}

static void replay_end(struct replay *p, const struct step *step)
{
    size_t i = find(&p->table, p->file, &step->item, step->tag);
    if (p->table.slots[i] != 0) clear(&p->table, i);
}

/* Replay the records of the batch. Returns false when out of memory. */
static bool replay_batch(struct replay *p)
{
    const struct step *end = p->steps + p->step_count;
    p->step_count = 0;
    for (const struct step *s = p->steps; s < end; s++) {
        uint64_t slot = p->table.slots[home_of(&p->table, s->tag)];
        if ((slot ^ s->tag) <= LOW) __builtin_prefetch(p->file.at + offset_of(slot));
    }
    for (const struct step *s = p->steps; s < end; s++) {
        if (s->offset == 0) replay_end(p, s);
        else if (!replay_put(p, s)) return false;
    }
    return true;
}

/* Add a record to the batch. Returns false when out of memory. */
static bool replay_later(struct replay *p, const struct sl_item *item, uint64_t offset)
{
    struct step *s = &p->steps[p->step_count++];
    *s = (struct step){*item, tag_of(p, item), offset};
    __builtin_prefetch(&p->table.slots[home_of(&p->table, s->tag)]);
    return p->step_count < BATCH || replay_batch(p);
}

/* Replay the records of an intact frame. */
static enum sl_recovery_result replay_frame(struct replay *p, const struct sl_frame *f)
{
    size_t start = f->at + SL_FRAME_HEADER_BYTES, at = 0;
    struct sl_item item;
    for (;;) {
        uint64_t offset = start + at;
        bool valid = true;
        int type = sl_record_next(f->records, &at, &item);
        if (type == 0) return SL_RECOVERY_OK;
        if (type < 0) return SL_RECOVERY_DAMAGED;
        p->r->clean = false; /* Only the last record can be the mark of a clean stop. */
        if (type == 1 && replay_about_file(p, &item, &valid)) {
            if (!valid) return SL_RECOVERY_DAMAGED;
        } else if (!replay_later(p, &item, type == 1 ? offset : 0))
            return SL_RECOVERY_NO_MEMORY;
    }
}

/* Whether an intact frame after the first bad one shows that frames were lost that were durable;
 * or, in the same life, that any frame was lost (J9). */
static bool is_damaged(const struct replay *p)
{
    const struct sl_recovery *r = p->r;
    struct sl_frame f;
    for (size_t at = r->bytes; sl_frame_search(p->file, at, r->chain.seed, &f);
         at = f.at + f.bytes)
        if (r->same_life || f.durable > r->bytes) return true;
    return false;
}

static enum sl_recovery_result replay(struct replay *p)
{
    struct sl_recovery *r = p->r;
    struct sl_frame f;
    /* In most files the live items do not need more slots, so the table does not grow. */
    size_t slots = SLOTS_MIN;
    while (slots < p->file.n / SLOT_FILE_BYTES) slots *= 2;
    if (!grow(&p->table, slots)) return SL_RECOVERY_NO_MEMORY;
    while (sl_frame_next(p->file, r->bytes, &r->chain, &f)) {
        enum sl_recovery_result result = replay_frame(p, &f);
        if (result != SL_RECOVERY_OK) return result;
        r->bytes = f.at + f.bytes;
        r->last_ms = f.now_ms;
    }
    return replay_batch(p) ? SL_RECOVERY_OK : SL_RECOVERY_NO_MEMORY;
}

/* How long new grants wait (J5, J8). */
static sl_ms wait_until(const struct replay *p, const struct sl_life *life,
                        sl_ms now_ms)
{
    const struct sl_recovery *r = p->r;
    sl_ms until_ms = p->life.wait_until_ms;
    if (!r->same_life) {
        sl_ms wait_ms = r->clean ? 0 : r->volatile_ms;
        if (until_ms - r->last_ms > wait_ms) wait_ms = until_ms - r->last_ms;
        /* In an earlier boot, the last lease was granted before this boot. The id of the machine
         * does not suffice to know that: machines that were made from one image may share it. */
        bool same_file = p->life.device == life->device && p->life.inode == life->inode;
        bool earlier_boot = same_file && is_same(p->life.machine, life->machine) &&
                            p->life.boot[0] != 0 && life->boot[0] != 0 &&
                            strcmp(p->life.boot, life->boot) != 0;
        until_ms = sl_ms_after(earlier_boot ? life->boot_ms : now_ms, wait_ms);
    }
    return until_ms > now_ms ? until_ms : 0;
}

static struct sl_recovery_map *map_of(const struct replay *p)
{
    size_t words = p->r->bytes / 512 + 1; /* 64 bits, each for 8 bytes. */
    struct sl_recovery_map *map = calloc(1, sizeof *map + words * sizeof map->bits[0]);
    if (map == NULL) return NULL;
    map->file = p->file;
    map->words = words;
    for (size_t i = 0; i < p->table.size; i++) {
        uint64_t bit = p->table.slots[i] & LOW;
        if (bit != 0) map->bits[bit / 64] |= 1ull << bit % 64;
    }
    return map;
}

static enum sl_recovery_result recover(struct replay *p, const struct sl_life *life,
                                       sl_ms now_ms)
{
    struct sl_recovery *r = p->r;
    struct sl_header header;
    int status = sl_header_read(p->file, &header);
    if (status == SLUICE_EVERSION) return SL_RECOVERY_FORMAT;
    if (status != SLUICE_OK) return SL_RECOVERY_NOT_A_JOURNAL;
    if (p->file.n > SL_RECOVERY_BYTES_MAX) return SL_RECOVERY_NO_MEMORY;
    r->use = header.use;
    r->chain = header.chain;
    r->bytes = SL_HEADER_BYTES;

    enum sl_recovery_result result = replay(p);
    /* A file gets its name when its first frames are durable, and they contain the life. */
    if (result == SL_RECOVERY_OK && !p->has_life) result = SL_RECOVERY_DAMAGED;
    r->why_other = why_other_life(&p->life, life, r->last_ms, now_ms);
    r->same_life = r->why_other == NULL;
    if (result == SL_RECOVERY_OK && is_damaged(p)) result = SL_RECOVERY_DAMAGED;
    if (result == SL_RECOVERY_DAMAGED) r->damaged_at = r->bytes;
    if (result != SL_RECOVERY_OK) return result;

    r->wait_until_ms = wait_until(p, life, now_ms);
    r->shift_ms = r->same_life ? 0 : now_ms - r->last_ms;
    r->items = p->table.count;
    r->map = map_of(p);
    return r->map == NULL ? SL_RECOVERY_NO_MEMORY : SL_RECOVERY_OK;
}

void sl_recovery_begin(struct sl_recovery *r, struct sl_bytes file,
                       const struct sl_life *life, sl_ms now_ms, struct sl_hash_key key)
{
    *r = (struct sl_recovery){0};
    struct replay p = {.r = r, .file = file, .key = key};
    r->result = recover(&p, life, now_ms);
    free(p.table.slots);
}

/* --- Items ---------------------------------------------------------------------------- */

/* Whether an item must be held. Sets its times to those of the present. */
static bool is_held(const struct sl_recovery *r, struct sl_item *item)
{
    if (r->same_life) return true;
    if (!item->is_long && item->expiry_ms != SL_NEVER && !r->clean) return false;
    if (item->bound_ms <= r->last_ms) return false;
    if (item->bound_ms != SL_NEVER)
        item->bound_ms = sl_ms_after(r->last_ms + r->shift_ms,
                                     item->bound_ms - r->last_ms);
    item->expiry_ms = item->bound_ms;
    return true;
}

bool sl_recovery_next(const struct sl_recovery *r, uint64_t *cursor,
                      struct sl_item *out)
{
    if (r->map == NULL) return false;
    size_t word = (size_t)(*cursor / 64);
    uint64_t skip = ~0ull << *cursor % 64;
    for (; word < r->map->words; word++, skip = ~0ull) {
        uint64_t bits = r->map->bits[word] & skip;
        for (; bits != 0; bits &= bits - 1) {
            uint64_t bit = word * 64 + (uint64_t)__builtin_ctzll(bits);
            read_put(r->map->file, bit * 8, out);
            *cursor = bit + 1;
            if (is_held(r, out)) return true;
        }
    }
    return false;
}

void sl_recovery_end(struct sl_recovery *r)
{
    free(r->map);
    r->map = NULL;
}
