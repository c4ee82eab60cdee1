/* test_journal_random.c - random histories of a server with a journal: the real rules, records and
 * recovery, over a file in memory.
 *
 * history.h says how to choose and replay histories. Each is one server with a few exclusive keys,
 * its clients, and a machine that may fail:
 *
 *   kill            the process dies, also in the middle of a loop iteration or of a write
 *   power failure   each page of the file is as it was synced, or as it was written later; another
 *                   boot, or another machine
 *   I/O errors      writes and syncs fail, and the kernel may drop what it could not write; the
 *                   server writes a new file from memory
 *   old copy        an operator replaces the file with a copy of it, which lacks short leases only
 *   settings        lease-volatile changes between starts
 *
 * The test has the real time, and its own records of what clients know. The checks:
 *
 *   one holder      while a client holds a lock, no other client receives it
 *   fences          fences of a key rise; a fence is not extended or shown after a client has
 *                   received a higher one, or after BREAK
 *   nothing lost    after each start, and at random moments after a start that did not happen: every
 *                   lease that a client knows is held at least as long as the client believes.
 *                   After a power failure this need not be so for short leases, but then new grants
 *                   wait until they have expired
 *   no damage       no file is taken for damaged, since none is
 *
 * A reply leaves when its record is written (J1) and the position that it waits for is durable, so
 * these checks also find replies that left too early. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "journal_stage.h"
#include "sluice.h"

#ifdef __SANITIZE_ADDRESS__ /* Slower. */
#define HISTORIES 150
#else
#define HISTORIES 1000
#endif

enum {
    KEYS = 3,
    TURNS = 400,
    FILE_BYTES = 1 << 16,
    COMPACT_BYTES = SL_HEADER_BYTES + 1500,
    REPLIES = 256,
    KNOWN = 512, /* Fences that clients know. */
    FENCES = 12, /* The server reserves so many at a time. */
};

typedef int64_t real; /* The real time, in milliseconds. */

/* ---- the disk ---- */

struct file {
    char cache[FILE_BYTES];  /* As written, */
    char stable[FILE_BYTES]; /* and as it is certainly on the disk. */
    size_t n;
    uint64_t inode;
    size_t durable;   /* What the frames say about it. */
    size_t sync_from; /* A sync has begun when there were so many bytes. */
    bool has_name;
    struct sl_chain chain;
};

static struct file files[2];

/* ---- the world ---- */

struct known {
    int key;
    sl_fence fence;
    bool has_lease;
    bool over;     /* Released, or broken. */
    bool broken;   /* And BREAK was acknowledged. */
    real until;    /* Of the lease. */
    bool is_short; /* The lease that ends then need not survive a power failure, */
    bool is_lost;  /* and has not survived one, or has an earlier expiry after it. New
                    * grants wait until then. */
};

/* The lock table. */
struct holder {
    sl_fence fence; /* 0: the key is free. */
    bool has_lease, is_long, is_short;
    sl_ms expiry_ms;
};

enum reply_type { GRANTED, EXTENDED, SHOWN, BROKEN };

struct reply {
    enum reply_type type;
    int key;
    sl_fence fence;
    bool has_lease, is_short, written;
    real until;
    uint64_t position;
    struct holder before; /* EXTENDED: to undo it. */
};

struct copy {
    bool is_valid; /* Only short leases have changed since. */
    char bytes[FILE_BYTES];
    size_t n;
};

static struct {
    real t;
    /* The machine. */
    struct sl_life life; /* Without the file. */
    real clock_0;        /* When its clock was 0. */
    int boots, clocks;
    size_t page_bytes;
    uint32_t write_errors, sync_errors; /* One in so many fails. */
    uint64_t inodes;
    struct file *file, *next; /* next: of a compaction, or to mend the journal. */
    bool exists;              /* The journal. */
    bool error_noted;
    struct copy copy;
    /* The server. */
    struct sl_journal *journal; /* NULL: it does not run. */
    sl_ms volatile_ms, wait_until_ms;
    sl_fence fence, fence_limit, next_limit;
    uint64_t limit_position;
    struct holder holders[KEYS];
    struct reply replies[REPLIES];
    size_t reply_count;
    bool is_syncing;
    int copied;               /* Of the next file; -1: it is complete. */
    bool commits;             /* It is being synced and renamed, */
    uint64_t commit_position; /* with frames up to this one. */
    /* The clients. */
    struct known known[KNOWN];
    size_t known_count;
    sl_fence highest[KEYS];
} w;

/* What all histories together have done. */
static struct {
    uint64_t turns, grants, long_grants, extensions, unleased, breaks, shown, waited;
    uint64_t kills, power_failures, moves, stops, copies, starts, same_life, ignored;
    uint64_t compactions, failures, mended, supposed;
} done;

static char key_names[KEYS][16];

static struct sl_bytes key_of(int key)
{
    return bytes_of(key_names[key]);
}

static sl_ms now_ms(void)
{
    return w.t - w.clock_0;
}

static struct sl_now now(void)
{
    return (struct sl_now){.ms = now_ms()};
}

static real real_of(sl_ms ms)
{
    return ms == SL_NEVER ? INT64_MAX : w.clock_0 + ms;
}

#define SHOW(...)                                                   \
    do {                                                            \
        if (history.shown) {                                        \
            printf("# %9" PRId64 " %7" PRId64 "  ", w.t, now_ms()); \
            printf(__VA_ARGS__);                                    \
            printf("\n");                                           \
        }                                                           \
    } while (0)

/* ---- what clients know ---- */

static struct known *known_of(int key, sl_fence fence)
{
    for (size_t i = 0; i < w.known_count; i++)
        if (w.known[i].key == key && w.known[i].fence == fence) return &w.known[i];
    return NULL;
}

static bool is_believed(const struct known *k)
{
    return !k->over && (!k->has_lease || k->until > w.t);
}

/* A reply leaves the server. */
static void acknowledge(const struct reply *r)
{
    SHOW("reply %d: key %d fence %" PRIu64 " until %" PRId64, r->type, r->key, r->fence,
         r->until);
    struct known *k = known_of(r->key, r->fence);
    if (r->type == BROKEN) {
        if (k != NULL) k->over = k->broken = true;
        done.breaks++;
        return;
    }
    CHECK(k == NULL || !k->broken);
    CHECK(r->fence >= w.highest[r->key]);
    for (size_t i = 0; i < w.known_count; i++)
        if (w.known[i].key == r->key && w.known[i].fence != r->fence)
            CHECK(!is_believed(&w.known[i]));
    w.highest[r->key] = r->fence;
    if (k == NULL) {
        CHECK(w.known_count < KNOWN);
        k = &w.known[w.known_count++];
        *k = (struct known){.key = r->key, .fence = r->fence};
    }
    k->has_lease = r->has_lease;
    /* BREAK may have ended the grant in the same iteration. */
    if (w.holders[r->key].fence != r->fence) k->over = true;
    if (r->until >= k->until) {
        k->until = r->until;
        k->is_short = r->is_short;
        k->is_lost = false;
    }
    done.grants += r->type == GRANTED;
    done.long_grants += r->type == GRANTED && r->has_lease && !r->is_short;
    done.unleased += r->type == GRANTED && !r->has_lease;
    done.extensions += r->type == EXTENDED;
    done.shown += r->type == SHOWN;
    done.waited += r->position != 0;
}

/* What a client knows must agree with what a start finds. real_0 is the real time of the clock's
 * 0 after the start. */
static void check_recovered(const struct sl_recovery *r, sl_ms start_ms, real real_0)
{
    struct sl_item found[KEYS] = {0}, item;
    uint64_t cursor = 0;
    CHECK(r->result == SL_RECOVERY_OK);
    while (sl_recovery_next(r, &cursor, &item)) {
        if (item.expiry_ms <= start_ms) continue;
        int key = item.key.at[4] - '0';
        CHECK(found[key].fence == 0);
        found[key] = item;
        const struct known *k = known_of(key, item.fence);
        CHECK(item.fence >= w.highest[key]);
        CHECK(k == NULL || !k->broken);
    }
    for (size_t i = 0; i < w.known_count; i++) {
        const struct known *k = &w.known[i];
        CHECK(r->fence_limit >= k->fence);
        if (!k->has_lease || !is_believed(k) || k->until <= real_0 + start_ms) continue;
        if (found[k->key].fence == k->fence &&
            found[k->key].expiry_ms >= k->until - real_0)
            continue;
        SHOW("not found: key %d fence %" PRIu64 " until %" PRId64 ", short %d, lost %d",
             k->key, k->fence, k->until, k->is_short, k->is_lost);
        CHECK(k->is_lost || (!r->same_life && k->is_short));
        CHECK(real_0 + r->wait_until_ms >= k->until);
        done.ignored++;
    }
}

/* ---- the disk ---- */

static struct file *new_file(uint64_t position)
{
    struct file *f = w.file == &files[0] ? &files[1] : &files[0];
    uint8_t id[SL_JOURNAL_ID_BYTES] = {0};
    memset(f, 0, sizeof *f);
    f->inode = ++w.inodes;
    memcpy(id, &w.inodes, sizeof w.inodes);
    sl_header_write(f->cache, SL_JOURNAL_OF_SERVER, id, position, &f->chain);
    f->n = SL_HEADER_BYTES;
    return f;
}

static void write_frame(struct file *f, struct sl_bytes records, uint64_t position,
                        size_t bytes_max)
{
    struct sl_frame frame = {.at = f->n,
                             .position = position,
                             .durable = f->has_name || w.commits ? f->durable : f->n,
                             .now_ms = now_ms(),
                             .records = records};
    size_t n = SL_FRAME_HEADER_BYTES + records.n;
    char *bytes = malloc(n);
    sl_frame_seal(bytes, &f->chain, &frame);
    memcpy(bytes + SL_FRAME_HEADER_BYTES, records.at, records.n);
    CHECK(f->n + n <= FILE_BYTES);
    memcpy(f->cache + f->n, bytes, n < bytes_max ? n : bytes_max);
    f->n += n;
    free(bytes);
}

static void sync_file(struct file *f, size_t n)
{
    memcpy(f->stable, f->cache, n);
    f->durable = n;
}

/* The state of the file after a power failure. */
static void mix(const struct file *f, char out[FILE_BYTES])
{
    bool all = draw_one_in(4);
    for (size_t at = 0; at < FILE_BYTES; at += w.page_bytes)
        memcpy(out + at, (all || draw_one_in(2) ? f->stable : f->cache) + at,
               w.page_bytes);
}

static struct sl_life life_now(const struct file *f)
{
    struct sl_life life = w.life;
    life.device = 1;
    life.inode = f->inode;
    life.had_error = w.error_noted;
    return life;
}

/* Suppose that the server died now, or that the power failed: what would a start find? */
static void suppose(void)
{
    static char image[FILE_BYTES];
    struct sl_recovery r;
    struct sl_life life = life_now(w.file);
    sl_ms start_ms = now_ms();
    real real_0 = w.clock_0;
    struct sl_bytes file = {w.file->cache, FILE_BYTES};
    if (w.error_noted) {
        mix(w.file, image);
        file.at = image;
    }
    if (draw_one_in(2)) {
        mix(w.file, image);
        file.at = image;
        snprintf(life.boot, sizeof life.boot, "supposed");
        life.boot_ms = 0;
        start_ms = draw_one_in(2) ? 0 : 5000;
        real_0 = w.t;
    }
    sl_recovery_begin(&r, file, &life, start_ms, stage_key);
    check_recovered(&r, start_ms, real_0);
    sl_recovery_end(&r);
    done.supposed++;
}

/* ---- the server: records ---- */

/* A change must be durable before it is acknowledged, so an old copy lacks it. */
static uint64_t waits(uint64_t position)
{
    if (position != 0) w.copy.is_valid = false;
    return position;
}

static uint64_t put_special(enum sl_item_kind kind, struct sl_bytes value)
{
    struct sl_item item = {.kind = kind, .expiry_ms = SL_NEVER, .value = value};
    return waits(sl_journal_put(w.journal, now(), &item, (struct sl_item_before){0}));
}

static uint64_t put_number(enum sl_item_kind kind, uint64_t number)
{
    char value[SL_VALUE_BYTES];
    sl_value_write(value, number);
    return put_special(kind, (struct sl_bytes){value, sizeof value});
}

static struct sl_item item_of(int key)
{
    const struct holder *h = &w.holders[key];
    return (struct sl_item){.kind = SL_ITEM_GRANT,
                            .key = key_of(key),
                            .fence = h->fence,
                            .expiry_ms = h->expiry_ms,
                            .is_long = h->is_long,
                            .value = bytes_of("some value")};
}

static uint64_t end_holder(int key)
{
    struct holder *h = &w.holders[key];
    uint64_t position = 0;
    if (h->has_lease) {
        position = sl_journal_end(w.journal, now(), SL_ITEM_GRANT, key_of(key),
                                  h->fence, h->is_long);
        if (h->is_long) w.copy.is_valid = false;
    }
    *h = (struct holder){0};
    return position;
}

/* ---- the server: replies ---- */

static void reply(enum reply_type type, int key, const struct holder *h,
                  uint64_t position)
{
    CHECK(w.reply_count < REPLIES && position != SL_JOURNAL_FAILED);
    w.replies[w.reply_count++] = (struct reply){
        .type = type,
        .key = key,
        .fence = h->fence,
        .has_lease = h->has_lease,
        .is_short = h->is_short,
        .until = h->has_lease ? real_of(h->expiry_ms) : 0,
        .position = position};
}

/* Send the replies that may leave. `all`: not just a part of them. */
static void send_replies(bool all)
{
    size_t kept = 0;
    for (size_t i = 0; i < w.reply_count; i++) {
        struct reply *r = &w.replies[i];
        bool leaves = r->written && r->position <= sl_journal_durable(w.journal);
        if (leaves && (all || draw_one_in(2))) acknowledge(r);
        else w.replies[kept++] = *r;
    }
    w.reply_count = kept;
}

/* The journal has failed: undo what was not acknowledged, the last change first. */
static void undo(void)
{
    SHOW("the journal has failed");
    for (size_t i = w.reply_count; i-- > 0;) {
        const struct reply *r = &w.replies[i];
        if (w.holders[r->key].fence != r->fence) continue;
        if (r->type == GRANTED) end_holder(r->key);
        if (r->type == EXTENDED) w.holders[r->key] = r->before;
    }
    w.reply_count = 0;
    w.next_limit = w.fence_limit;
    w.limit_position = 0;
    done.failures++;
}

/* ---- the server: requests ---- */

static bool may_grant(int key)
{
    if (w.holders[key].fence != 0 || now_ms() < w.wait_until_ms) return false;
    if (w.fence + 3 > w.fence_limit && w.limit_position == 0 &&
        !sl_journal_failed(w.journal)) {
        uint64_t position = put_number(SL_ITEM_FENCES, w.fence_limit + FENCES);
        if (position == SL_JOURNAL_FAILED) return false;
        w.next_limit = w.fence_limit + FENCES;
        w.limit_position = position;
    }
    if (w.limit_position != 0 && w.limit_position <= sl_journal_durable(w.journal)) {
        w.fence_limit = w.next_limit;
        w.limit_position = 0;
    }
    return w.fence < w.fence_limit;
}

static sl_ms draw_lease(void)
{
    static const sl_ms leases[] = {500, 2500, 4000, 15000, 40000, 70000, 150000};
    uint32_t i = draw_below(9);
    if (i == 7) return w.volatile_ms + 1;
    if (i == 8) return w.volatile_ms == 0 ? 1 : w.volatile_ms;
    return leases[i] + draw_below(1000);
}

static uint64_t put_holder(int key, struct holder *h, sl_ms lease_ms,
                           struct sl_item_before before)
{
    struct sl_item item = item_of(key);
    item.fence = h->fence;
    item.expiry_ms = now_ms() + lease_ms;
    uint64_t position = waits(sl_journal_put(w.journal, now(), &item, before));
    h->has_lease = true;
    h->is_long = item.is_long;
    h->is_short = lease_ms <= w.volatile_ms;
    h->expiry_ms = item.expiry_ms;
    return position;
}

static void acquire(int key)
{
    if (!may_grant(key)) return;
    struct holder h = {.fence = w.fence + 1};
    uint64_t position = draw_one_in(4) ? waits(sl_journal_need(w.journal, key_of(key)))
                                       : put_holder(key, &h, draw_lease(),
                                                    (struct sl_item_before){0});
    if (position == SL_JOURNAL_FAILED) return;
    SHOW("grant key %d fence %" PRIu64 " lease %d long %d until %" PRId64
         " waits for %" PRIu64,
         key, h.fence, h.has_lease, h.is_long, h.expiry_ms, position);
    w.fence++;
    w.holders[key] = h;
    reply(GRANTED, key, &h, position);
}

static void extend(int key, sl_fence fence)
{
    struct holder *h = &w.holders[key];
    if (h->fence != fence || !h->has_lease || sl_journal_failed(w.journal)) return;
    sl_ms lease_ms = draw_lease();
    if (now_ms() + lease_ms <= h->expiry_ms) return;
    struct holder after = *h;
    uint64_t position = put_holder(key, &after, lease_ms,
                                   (struct sl_item_before){h->expiry_ms, h->is_long});
    if (position == SL_JOURNAL_FAILED) return;
    SHOW("extend key %d fence %" PRIu64 " long %d until %" PRId64 " waits for %" PRIu64,
         key, fence, after.is_long, after.expiry_ms, position);
    struct holder before = *h;
    *h = after;
    reply(EXTENDED, key, h, position);
    w.replies[w.reply_count - 1].before = before;
}

static void break_lock(int key)
{
    struct holder h = w.holders[key];
    if (h.fence == 0 || sl_journal_failed(w.journal)) return;
    uint64_t position = end_holder(key);
    SHOW("break key %d fence %" PRIu64, key, h.fence);
    /* The holder finds out some time; until then, it is our fault. */
    struct known *k = known_of(key, h.fence);
    if (k != NULL) k->over = true;
    sl_journal_await(w.journal, position);
    waits(position);
    reply(BROKEN, key, &h, position);
}

/* A request about a key, of a client that may have been granted the lock long ago. */
static void request(void)
{
    int key = (int)draw_below(KEYS);
    if (sl_journal_pending(w.journal, key_of(key)) != 0) return;
    struct known *k = known_of(key, w.holders[key].fence);
    if (w.known_count > 0 && draw_one_in(4)) {
        uint32_t recent = w.known_count < 16 ? (uint32_t)w.known_count : 16;
        k = &w.known[w.known_count - 1 - draw_below(recent)];
        if (k->key != key) k = NULL;
    }
    switch (draw_below(10)) {
        case 0:
        case 1:
        case 2: acquire(key); break;
        case 3:
        case 4:
        case 5:
        case 8:
            if (k != NULL) extend(key, k->fence);
            break;
        case 6:
            if (k == NULL || w.holders[key].fence != k->fence) break;
            SHOW("release key %d fence %" PRIu64, key, k->fence);
            k->over = true;
            end_holder(key);
            break;
        case 7:
            if (draw_one_in(8)) break_lock(key);
            break;
        case 9:
            if (w.holders[key].fence != 0) reply(SHOWN, key, &w.holders[key], 0);
            break;
    }
}

/* A client disconnects while its reply waits. */
static void disconnect(void)
{
    if (w.reply_count == 0) return;
    size_t i = draw_below((uint32_t)w.reply_count);
    struct reply r = w.replies[i];
    if (r.type != GRANTED || w.holders[r.key].fence != r.fence) return;
    SHOW("disconnect: key %d fence %" PRIu64, r.key, r.fence);
    size_t kept = 0;
    for (i = 0; i < w.reply_count; i++)
        if (w.replies[i].fence != r.fence) w.replies[kept++] = w.replies[i];
    w.reply_count = kept;
    struct known *k = known_of(r.key, r.fence);
    if (k != NULL) k->over = true;
    end_holder(r.key);
}

static void expire(void)
{
    for (int key = 0; key < KEYS; key++)
        if (w.holders[key].has_lease && w.holders[key].expiry_ms <= now_ms()) {
            SHOW("expired: key %d fence %" PRIu64, key, w.holders[key].fence);
            end_holder(key);
        }
}

/* ---- the server: writing ---- */

static void die(void);

/* Write the records of the iteration. Returns false if the process died. */
static bool write_records(void)
{
    struct sl_bytes records;
    uint64_t position;
    while (sl_journal_take(w.journal, &records, &position)) {
        bool mends = sl_journal_failed(w.journal);
        if (draw_one_in(400)) {
            SHOW("killed during the write of frame %" PRIu64, position);
            write_frame(mends ? w.next : w.file, records, position,
                        draw_below((uint32_t)(SL_FRAME_HEADER_BYTES + records.n)));
            die();
            return false;
        }
        if (draw_one_in(mends ? 20 : w.write_errors)) {
            if (!mends && draw_one_in(4)) {
                write_frame(w.file, records, position, draw_below(40));
                w.error_noted = true;
            }
            sl_journal_fail(w.journal);
            if (w.commits && !mends) sl_journal_sync_end(w.journal, false);
            w.next = NULL;
            w.commits = false;
            if (!mends) undo();
            return true;
        }
        SHOW("frame %" PRIu64 ": %zu bytes at %zu", position, records.n, w.file->n);
        if (!mends) write_frame(w.file, records, position, SIZE_MAX);
        if (w.next != NULL) write_frame(w.next, records, position, SIZE_MAX);
    }
    for (size_t i = 0; i < w.reply_count; i++) w.replies[i].written = true;
    return true;
}

static void sync_step(void)
{
    if (w.is_syncing && draw_one_in(2)) {
        bool ok = !draw_one_in(w.sync_errors);
        bool failed = sl_journal_failed(w.journal);
        if (ok) sync_file(w.file, w.file->sync_from);
        else w.error_noted = true;
        w.is_syncing = false;
        SHOW("sync: %d", ok);
        sl_journal_sync_end(w.journal, ok);
        if (!ok && w.next != NULL) w.next = NULL;
        if (!ok && !failed) undo();
        send_replies(true);
    }
    sl_ms due_ms = sl_journal_sync_due(w.journal);
    if (!w.is_syncing && !w.commits && due_ms <= now_ms()) {
        w.is_syncing = true;
        w.file->sync_from = w.file->n;
        sl_journal_sync_begin(w.journal);
    }
}

/* ---- the server: new files ---- */

static void copy_records(struct file *f, struct sl_buffer *b, uint64_t position)
{
    if (b->n > 0) write_frame(f, (struct sl_bytes){b->at, b->n}, position, SIZE_MAX);
    sl_buffer_free(b);
}

/* Copy what is not an item of the table. */
static void copy_rest(struct file *f)
{
    struct sl_buffer b = {0};
    char life[SL_LIFE_BYTES], value[SL_VALUE_BYTES];
    struct sl_life l = life_now(f);
    l.wait_until_ms = w.wait_until_ms;
    sl_life_write(life, &l);
    struct sl_item item = {.kind = SL_ITEM_LIFE,
                           .expiry_ms = SL_NEVER,
                           .bound_ms = SL_NEVER,
                           .is_long = true,
                           .value = {life, sizeof life}};
    sl_record_put(&b, &item);
    item = number_of(SL_ITEM_VOLATILE,
                     (uint64_t)sl_journal_copied_volatile_ms(w.journal, now_ms()),
                     value);
    sl_record_put(&b, &item);
    item = number_of(SL_ITEM_FENCES, w.next_limit, value);
    sl_record_put(&b, &item);
    copy_records(f, &b, sl_journal_position(w.journal));
}

static void copy_key(struct file *f, int key)
{
    struct sl_buffer b = {0};
    struct sl_item item = item_of(key);
    if (!w.holders[key].has_lease) return;
    sl_journal_bound(w.journal, &item);
    sl_record_put(&b, &item);
    copy_records(f, &b, sl_journal_position(w.journal));
}

/* The new file is synced, and gets its name. The machine may fail on the way. */
static void rename_next(void)
{
    w.next->has_name = true;
    w.exists = true;
    w.file->has_name = false;
    w.file = w.next;
    w.next = NULL;
    w.error_noted = false;
}

static void power_failure(void);

static void copy_step(void)
{
    bool failed = sl_journal_failed(w.journal);
    if (w.next == NULL) {
        if (w.is_syncing || !draw_one_in(failed ? 10 : 20)) return;
        if (!failed && w.file->n < COMPACT_BYTES) return;
        SHOW("begin a new file");
        w.next = new_file(sl_journal_position(w.journal));
        w.copied = 0;
        w.commits = false;
        if (failed) sl_journal_mend_begin(w.journal);
    } else if (w.copied >= 0) {
        if (w.copied == 0) copy_rest(w.next);
        copy_key(w.next, w.copied);
        if (++w.copied == KEYS) w.copied = -1;
    } else if (!w.commits) {
        if (w.is_syncing || draw_one_in(2)) return;
        w.commits = true;
        w.commit_position = sl_journal_position(w.journal);
        w.next->sync_from = w.next->n;
        w.next->durable = w.next->n;
        if (!failed) sl_journal_sync_begin(w.journal);
    } else if (draw_one_in(3)) {
        sync_file(w.next, w.next->sync_from);
        if (draw_one_in(20)) { /* The name may or may not be on disk. */
            if (draw_one_in(2)) rename_next();
            power_failure();
            return;
        }
        rename_next();
        if (draw_one_in(20)) {
            die();
            return;
        }
        SHOW("the new file has its name");
        w.commits = false;
        if (failed) {
            sl_journal_mend(w.journal, w.commit_position);
            w.copy.is_valid = false;
        } else sl_journal_sync_end(w.journal, true);
        send_replies(true);
        done.mended += failed;
        done.compactions += !failed;
    }
}

/* ---- the end of a process ---- */

static void die(void)
{
    sl_journal_free(w.journal);
    w.journal = NULL;
    w.next = NULL;
    w.is_syncing = w.commits = false;
    w.reply_count = 0;
    memset(w.holders, 0, sizeof w.holders);
    if (w.error_noted) { /* The kernel has dropped pages that it could not write. */
        static char image[FILE_BYTES];
        mix(w.file, image);
        memcpy(w.file->cache, image, FILE_BYTES);
        w.copy.is_valid = false;
    }
    for (size_t i = 0; i < w.known_count; i++)
        if (!w.known[i].has_lease) w.known[i].over = true;
    done.kills++;
}

static void boot(void)
{
    w.clock_0 = w.t;
    w.life.boot_ms = 0;
    if (draw_one_in(4)) { /* In a time namespace. */
        w.life.boot_ms = (sl_ms)draw_below(10000000);
        w.clock_0 -= w.life.boot_ms;
    }
    snprintf(w.life.boot, sizeof w.life.boot, "boot %d", ++w.boots);
}

static void power_failure(void)
{
    static char image[FILE_BYTES];
    SHOW("power failure");
    if (w.journal != NULL) die();
    mix(w.file, image);
    memcpy(w.file->cache, image, FILE_BYTES);
    memcpy(w.file->stable, image, FILE_BYTES);
    w.copy.is_valid = false;
    w.t += draw_below(3000);
    boot();
    if (draw_one_in(5)) { /* The volume moves to a machine that has been running. */
        SHOW("another machine");
        snprintf(w.life.machine, sizeof w.life.machine, "machine %d", w.boots);
        w.clock_0 -= (real)draw_below(1000000);
        done.moves++;
    }
    done.power_failures++;
}

static void stop(void)
{
    SHOW("clean stop");
    if (w.is_syncing || w.commits) return;
    if (sl_journal_failed(w.journal)) return;
    w.next = NULL;
    put_special(SL_ITEM_CLEAN, (struct sl_bytes){NULL, 0});
    struct sl_bytes records;
    uint64_t position;
    while (sl_journal_take(w.journal, &records, &position))
        write_frame(w.file, records, position, SIZE_MAX);
    sync_file(w.file, w.file->n);
    die();
    done.stops++;
}

/* While no server runs, the world may change. */
static void interlude(void)
{
    w.t += draw_below(draw_one_in(3) ? 60000 : 1000);
    if (w.exists && w.copy.is_valid && draw_one_in(2)) {
        SHOW("an old copy replaces the file");
        memset(w.file->cache, 0, FILE_BYTES);
        memcpy(w.file->cache, w.copy.bytes, w.copy.n);
        memcpy(w.file->stable, w.file->cache, FILE_BYTES);
        w.file->inode = ++w.inodes;
        done.copies++;
    }
    if (draw_one_in(20)) { /* The clock of a virtual machine. */
        SHOW("the clock goes back");
        w.clock_0 += (real)draw_below(100000);
        if (now_ms() < 0) w.clock_0 = w.t;
        w.life.boot_ms = now_ms();
    }
    if (draw_one_in(20)) {
        SHOW("another time namespace");
        snprintf(w.life.clock, sizeof w.life.clock, "time %d", ++w.clocks);
        w.clock_0 = w.t - (real)draw_below(1000000);
        w.life.boot_ms = now_ms();
    }
}

/* ---- the start of a process ---- */

static void restore_items(const struct sl_recovery *r)
{
    uint64_t cursor = 0;
    struct sl_item item;
    while (sl_recovery_next(r, &cursor, &item)) {
        int key = item.key.at[4] - '0';
        if (item.expiry_ms <= now_ms()) {
            sl_journal_end(w.journal, now(), item.kind, key_of(key), item.fence,
                           item.is_long);
            continue;
        }
        w.holders[key] = (struct holder){.fence = item.fence,
                                         .has_lease = true,
                                         .is_long = item.is_long,
                                         .is_short = !item.is_long,
                                         .expiry_ms = item.expiry_ms};
        if (r->same_life) sl_journal_restore(w.journal, &item);
    }
}

/* Continue the file after its last intact frame. Returns false if the process died. */
static bool continue_file(const struct sl_recovery *r)
{
    memset(w.file->cache + r->bytes, 0, FILE_BYTES - r->bytes);
    w.file->n = r->bytes;
    w.file->chain = r->chain;
    w.file->durable = 0;
    char value[SL_LIFE_BYTES];
    struct sl_life life = life_now(w.file);
    life.wait_until_ms = w.wait_until_ms;
    sl_life_write(value, &life);
    put_special(SL_ITEM_LIFE, (struct sl_bytes){value, sizeof value});
    put_number(SL_ITEM_VOLATILE, (uint64_t)w.volatile_ms);
    put_number(SL_ITEM_FENCES, w.fence_limit);
    if (!write_records()) return false;
    if (draw_one_in(20)) {
        if (draw_one_in(2)) power_failure();
        else die();
        return false;
    }
    if (sl_journal_failed(w.journal)) { /* Then it does not serve. */
        die();
        return false;
    }
    sl_journal_sync_begin(w.journal);
    sync_file(w.file, w.file->n);
    sl_journal_sync_end(w.journal, true);
    return true;
}

/* Write a new file with all items. */
static bool begin_file(uint64_t position)
{
    w.next = new_file(position);
    copy_rest(w.next);
    for (int key = 0; key < KEYS; key++) copy_key(w.next, key);
    if (w.exists && draw_one_in(20)) {
        if (draw_one_in(2)) power_failure();
        else die();
        return false;
    }
    sync_file(w.next, w.next->n);
    rename_next();
    return true;
}

static void start(void)
{
    static const sl_ms volatiles[] = {0, 3000, 20000, 60000};
    struct sl_recovery r = {.why_other = "there is no file"};
    if (w.boots == 0) boot();
    if (draw_one_in(3)) w.volatile_ms = volatiles[draw_below(4)];
    w.life.keeps_writes = w.volatile_ms > 0;
    struct sl_life life = life_now(w.file);
    if (w.exists) {
        sl_recovery_begin(&r, (struct sl_bytes){w.file->cache, FILE_BYTES}, &life,
                          now_ms(), stage_key);
    }
    SHOW("start: %s, lease-volatile %" PRId64 ", wait until %" PRId64
         ", position %" PRIu64 ", %zu bytes",
         r.same_life ? "same life" : r.why_other, w.volatile_ms, r.wait_until_ms,
         r.chain.position, r.bytes);
    if (w.exists) check_recovered(&r, now_ms(), w.clock_0);
    w.copy.is_valid = false;
    w.wait_until_ms = r.wait_until_ms;
    w.fence = r.fence_limit;
    w.fence_limit = w.next_limit = w.fence + FENCES;
    w.limit_position = 0;
    w.journal = sl_journal_new(stage_key, r.chain.position, w.volatile_ms);
    sl_journal_inherit(w.journal, r.volatile_ms, now_ms());
    restore_items(&r);
    bool serves = r.same_life ? continue_file(&r) : begin_file(r.chain.position);
    for (size_t i = 0; serves && i < w.known_count; i++) {
        struct known *k = &w.known[i];
        const struct holder *h = &w.holders[k->key];
        if (h->fence != k->fence || real_of(h->expiry_ms) < k->until) k->is_lost = true;
    }
    if (serves) sl_journal_check(w.journal);
    done.starts++;
    done.same_life += r.same_life;
    sl_recovery_end(&r);
}

/* ---- a history ---- */

static void turn(void)
{
    w.t += draw_one_in(40)  ? draw_below(100000)
           : draw_one_in(5) ? draw_below(10000)
                            : draw_below(300);
    if (w.journal == NULL) {
        interlude();
        start();
        return;
    }
    bool copies_first = draw_one_in(2);
    expire();
    for (uint32_t n = draw_below(5); n > 0; n--) request();
    if (draw_one_in(20)) disconnect();
    if (copies_first) copy_step();
    if (w.journal != NULL && draw_one_in(80))
        die(); /* Before the records are written. */
    if (w.journal == NULL || !write_records()) return;
    if (draw_one_in(60)) {
        send_replies(false);
        if (draw_one_in(2)) power_failure();
        else die();
        return;
    }
    send_replies(true);
    sync_step();
    if (!copies_first) copy_step();
    if (w.journal == NULL) return;
    sl_journal_check(w.journal);
    if (draw_one_in(150)) {
        stop();
        return;
    }
    if (draw_one_in(30)) {
        memcpy(w.copy.bytes, w.file->cache, w.file->n);
        w.copy.n = w.file->n;
        w.copy.is_valid = true;
    }
    if (draw_one_in(4)) suppose();
}

static void play(uint64_t number)
{
    (void)number;
    sl_journal_free(w.journal);
    memset(&w, 0, sizeof w);
    memset(files, 0, sizeof files);
    for (int i = 0; i < KEYS; i++)
        snprintf(key_names[i], sizeof key_names[i], "key %d", i);
    w.file = &files[0];
    w.t = 1000000;
    w.page_bytes = (size_t)64 << draw_below(5);
    w.write_errors = draw_one_in(4) ? 20 : 300;
    w.sync_errors = draw_one_in(8) ? 5 : 60;
    w.volatile_ms = 20000;
    w.life = life_of("");
    for (int i = 0; i < TURNS && w.known_count < KNOWN - 8; i++) {
        done.turns++;
        turn();
    }
    sl_journal_free(w.journal);
    w.journal = NULL;
}

UNIT_TEST(no_lease_is_lost_and_no_key_has_two_holders)
{
    bool enough = play_histories("test_journal_random", HISTORIES, play);
    printf("# %" PRIu64 " turns, %" PRIu64 " grants (%" PRIu64 " long, %" PRIu64
           " without lease), %" PRIu64 " extensions, %" PRIu64 " BREAK, %" PRIu64
           " shown, %" PRIu64 " waited for a sync\n",
           done.turns, done.grants, done.long_grants, done.unleased, done.extensions,
           done.breaks, done.shown, done.waited);
    printf("# %" PRIu64 " kills, %" PRIu64 " power failures, %" PRIu64
           " moves, %" PRIu64 " clean stops, %" PRIu64 " old copies, %" PRIu64
           " starts (%" PRIu64 " in the same life)\n",
           done.kills, done.power_failures, done.moves, done.stops, done.copies,
           done.starts, done.same_life);
    printf("# %" PRIu64 " compactions, %" PRIu64 " failures (%" PRIu64
           " mended), %" PRIu64 " supposed crashes, %" PRIu64 " short leases ignored\n",
           done.compactions, done.failures, done.mended, done.supposed, done.ignored);
    if (!enough) return;
    /* Enough of everything was tried. */
    assert_true(done.long_grants > 10 * HISTORIES && done.unleased > 5 * HISTORIES);
    assert_true(done.extensions > 5 * HISTORIES && done.breaks > HISTORIES);
    assert_true(done.power_failures > HISTORIES && done.same_life > HISTORIES);
    assert_true(done.compactions > HISTORIES && done.mended > HISTORIES / 2);
    assert_true(done.stops > HISTORIES / 2 && done.moves > HISTORIES / 4);
    assert_true(done.copies > HISTORIES / 4 && done.ignored > HISTORIES);
}

int main(void)
{
    return run_unit_tests("journal_random");
}
