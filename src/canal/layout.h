/* layout.h - the layout of a segment, as every process that maps it sees it.
 *
 *     header | slots | keys | names | bitmaps | index | chunk owners | records
 *
 * A *slot* belongs to a thread that uses the segment. The thread holds the slot's
 * robust mutex as long as it lives, so other threads can see when it has died. A
 * *record* stores how many units of one key one slot holds, and the slot's pending
 * operation on the key. Slots get records in chunks. A *key* has a name and a word that
 * counts its held units. A key's *bitmap* has one bit for each slot. The bit is set
 * while the slot holds the key, waits for it, operates on it or has a handle for it. A
 * dead thread's slot with a set bit may still hold units. The key keeps its name while
 * any bit is set.
 *
 * The layout contains no pointers. Increase SL_CANAL_FORMAT when you change the layout;
 * the first 32 bytes of the header are the same in every format.
 *
 * Which threads may write which fields:
 *   key.word            every thread, by sl_canal_word_swap()           (counter.h)
 *   key.wake            every thread, atomically                        (sleep.c)
 *   key.state, names, index, fresh, hand, changes   holder of header.key_mutex (keys.c);
 *                       a user may reopen a closing key
 *   bitmap bit (k, s), record.key, record.capacity, record.since_ms, chunk owner s,
 *   slot fields         holder of slot s's mutex: its thread, or its reaper
 *   record.state        the slot's thread; after its death any reaper, by swap
 *   record.mark         every thread, upwards only
 *   slot.dying          holder of the slot's mutex; or of mark_mutex, if the slot's thread
 *                       is gone */
#ifndef SL_CANAL_LAYOUT_H
#define SL_CANAL_LAYOUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "canal/word.h"
#include "sluice.h"

#define SL_CANAL_MAGIC 0x454349554c53ull /* "SLUICE" in the file's first six bytes. */
#define SL_CANAL_FORMAT 2u

#define SL_CANAL_CHUNK_RECORDS 8u /* Slots get records in chunks of this size. */
#define SL_CANAL_NAME_WORDS ((SLUICE_KEY_BYTES_MAX + 1u) / 8u)

/*  OFFSET  SIZE  FIELD
 *       0     8  magic
 *       8     4  format
 *      12     4  ready        1 when all other fields are set; set last
 *      16    16  boot         the kernel's boot id: no thread survives a reboot
 *      32     8  bytes        of the segment
 *      40     4  keys
 *      44     4  slots
 *      48     4  records
 *      52     4  layout       a hash of the struct sizes, so that builds agree
 *      56     8  seed         of the hash of names
 *      64    64  key_mutex    robust; guards creating and reclaiming names
 *     128     4  fresh        keys below this have been used at least once
 *     132     4  hand         where the search for an unused key continues
 *     136     4  changes      counts changes of the index; odd during one
 *     144    48  mark_mutex   robust; its holder may mark slots as the kernel would */
struct sl_canal_shm_header {
    uint64_t magic;
    uint32_t format;
    uint32_t ready;
    uint8_t boot[16];
    uint64_t bytes;
    uint32_t keys;
    uint32_t slots;
    uint32_t records;
    uint32_t layout;
    uint64_t seed;
    union {
        pthread_mutex_t key_mutex;
        uint8_t mutex_bytes[64];
    };
    uint32_t fresh;
    uint32_t hand;
    uint32_t changes;
    uint32_t unused;
    union {
        pthread_mutex_t mark_mutex;
        uint8_t mark_mutex_bytes[48];
    };
};
_Static_assert(offsetof(struct sl_canal_shm_header, seed) == 56, "layout is shared");
_Static_assert(sizeof(struct sl_canal_shm_header) == 192, "layout is shared");

/* One thread that uses the segment.
 *
 *  OFFSET  SIZE  FIELD
 *       0    48  mutex        robust; held by the thread as long as it lives
 *      48     8  generation   rises each time the slot is claimed or freed; from 1
 *      56     8  dying        the generation that is being reaped; 0: none
 *      64     4  pid
 *      68     4  tid          as in the mutex; if not, a reaper has locked the mutex
 *      72    16  program
 *      88     4  waits_key    the key it waits for, plus 1; 0: none
 *      92     4  waits_units
 *      96     8  waits_capacity
 *     104     8  waits_since_ms
 *     112     4  tethered     1: dead only when the tether is free too
 *     116     4  pid_space    the PID namespace of pid and tid; 0: unknown
 *     120     8  unused */
struct sl_canal_shm_slot {
    union {
        pthread_mutex_t mutex;
        uint8_t mutex_bytes[48];
    };
    uint64_t generation;
    uint64_t dying;
    int32_t pid;
    int32_t tid;
    /* Sixteen characters, stored as words because other threads read them while they
     * change. */
    uint64_t program[2];
    uint32_t waits_key;
    uint32_t waits_units;
    uint64_t waits_capacity;
    int64_t waits_since_ms;
    uint32_t tethered;
    uint32_t pid_space;
    uint8_t unused[8];
};
_Static_assert(offsetof(struct sl_canal_shm_slot, generation) == 48,
               "layout is shared");
_Static_assert(sizeof(struct sl_canal_shm_slot) == 128, "two cache lines");

/* One key. A key has two cache lines, because processors fetch lines in pairs:
 * otherwise, threads that use neighbouring keys would slow each other down.
 *
 *  OFFSET  SIZE  FIELD
 *       0    16  word         lo: units held (32) | last writer's record + 1 (32);
 *                             hi: that writer's seq. Never reset, even if the name changes
 *      16     4  wake         bit 0: a thread sleeps; the rest counts wakes
 *      64     8  state        generation of the name << 2 | enum sl_canal_key_state
 *      72     8  hash         of the name */
struct sl_canal_shm_key {
    struct sl_canal_word word;
    uint32_t wake;
    uint8_t unused1[44];
    uint64_t state;
    uint64_t hash;
    uint8_t unused2[48];
};
_Static_assert(offsetof(struct sl_canal_shm_key, state) == 64, "layout is shared");
_Static_assert(sizeof(struct sl_canal_shm_key) == 128, "two cache lines");

enum sl_canal_key_state {
    SL_CANAL_KEY_FREE = 0,  /* No name. */
    SL_CANAL_KEY_READY = 1, /* Has a name. */
    SL_CANAL_KEY_CLOSING =
        2, /* The holder of key_mutex checks whether it can free the key. */
};

static inline enum sl_canal_key_state sl_canal_key_state(uint64_t state)
{
    return (enum sl_canal_key_state)(state & 3u);
}

static inline uint64_t sl_canal_key_state_make(uint64_t generation,
                                               enum sl_canal_key_state s)
{
    return generation << 2 | (uint64_t)s;
}

/* A name, padded with zeros. It is stored as words so that threads can compare it while
 * another thread changes it. */
struct sl_canal_shm_name {
    uint64_t words[SL_CANAL_NAME_WORDS];
};
_Static_assert(sizeof(struct sl_canal_shm_name) == 256, "layout is shared");

/* The units of one key that one slot holds. The mark has its own cache line, because
 * other threads write it while the owner uses the first line.
 *
 *  OFFSET  SIZE  FIELD
 *       0    16  state        lo: held (32) | pending kind (2), units (30); hi: seq,
 *                             which rises with every operation
 *      16     4  key          its key; changes only while nothing is held or pending
 *      24     8  capacity     last declared: per | buckets << 32
 *      32     8  since_ms     when `held` last rose from 0
 *      64     8  mark         all tags of this record with seq up to this one that were
 *                             written into a word have been overwritten */
struct sl_canal_shm_record {
    struct sl_canal_word state;
    uint32_t key;
    uint32_t unused1;
    uint64_t capacity;
    int64_t since_ms;
    uint8_t unused2[24];
    uint64_t mark;
    uint8_t unused3[56];
};
_Static_assert(offsetof(struct sl_canal_shm_record, mark) == 64, "layout is shared");
_Static_assert(sizeof(struct sl_canal_shm_record) == 128, "two cache lines");

/* A mapped segment, as one process sees it. */
struct sl_canal_segment {
    struct sl_canal_shm_header *header;
    struct sl_canal_shm_slot *slots;
    struct sl_canal_shm_key *keys;
    struct sl_canal_shm_name *names;
    uint64_t *bitmaps; /* bitmap_words for each key. */
    uint32_t *index;   /* Key + 1, found by the hash of its name; 0: empty. */
    uint32_t *chunks;  /* Owner of each chunk of records: slot + 1; 0: none. */
    struct sl_canal_shm_record *records;
    uint32_t key_count;
    uint32_t slot_count;
    uint32_t record_count;
    uint32_t chunk_count;
    uint32_t bitmap_words;
    uint32_t index_mask;
    size_t bytes;
    int fd; /* -1: anonymous. */
};

/* Fill *seg with the addresses of all parts of a segment that has these sizes and is
 * mapped at base. The function rounds the sizes up as the layout requires. If base is
 * NULL, only the sizes and seg->bytes are valid. */
void sl_canal_layout_place(struct sl_canal_segment *seg, void *base, uint32_t keys,
                           uint32_t slots, uint32_t records);

/* Return a number that differs between builds with different struct layouts. */
uint32_t sl_canal_layout_hash(void);

static inline uint64_t *sl_canal_bitmap(const struct sl_canal_segment *seg,
                                        uint32_t key)
{
    return seg->bitmaps + (size_t)key * seg->bitmap_words;
}

/* --- Numbers read from shared memory --------------------------------------- */

/* In a damaged segment any number can have any value. Use these functions to read a
 * number that is used as an index. Each reads the number once, and returns a valid
 * index or SL_CANAL_NONE. */
#define SL_CANAL_NONE UINT32_MAX

/* Return the key of a record. Acquire: sl_canal_counter_reap() reads the key after the
 * state. */
static inline uint32_t sl_canal_record_key(const struct sl_canal_segment *seg,
                                           uint32_t record)
{
    uint32_t key = __atomic_load_n(&seg->records[record].key, __ATOMIC_ACQUIRE);
    return key < seg->key_count ? key : SL_CANAL_NONE;
}

/* Return the key of an entry of the index. Returns SL_CANAL_NONE for an empty entry
 * too. Acquire: pairs with index_put(), so the caller sees the key's name. */
static inline uint32_t sl_canal_index_key(const struct sl_canal_segment *seg,
                                          uint32_t at)
{
    uint32_t entry = __atomic_load_n(&seg->index[at], __ATOMIC_ACQUIRE);
    return entry - 1u < seg->key_count ? entry - 1u : SL_CANAL_NONE;
}

/* Return the slot that owns a chunk of records. */
static inline uint32_t sl_canal_chunk_slot(const struct sl_canal_segment *seg,
                                           uint32_t chunk)
{
    uint32_t owner = __atomic_load_n(&seg->chunks[chunk], __ATOMIC_ACQUIRE);
    return owner - 1u < seg->slot_count ? owner - 1u : SL_CANAL_NONE;
}

#endif /* SL_CANAL_LAYOUT_H */
