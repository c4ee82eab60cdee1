#include "owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

#define FENCES_STEP 50

static const struct sl_hash_key hash_key = {11, 12};

bool owner_trace;

void owner_say(const struct owner *o, const char *format, ...)
{
    va_list args;
    if (!owner_trace) return;
    printf("# [%u %7" PRId64 "] ", o->boot, o->now_ms);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* ---- violations ---- */

__attribute__((format(printf, 2, 3))) static void wrong(struct owner *o,
                                                        const char *format, ...)
{
    va_list args;
    if (o->wrong[0] != '\0') return;
    va_start(args, format);
    vsnprintf(o->wrong, sizeof o->wrong, format, args);
    va_end(args);
}

/* ---- items ---- */

static struct sl_bytes key_of(int key)
{
    static const char names[OWNER_KEYS][3] = {"k0", "k1", "k2", "k3", "k4", "k5"};
    return (struct sl_bytes){names[key], 2};
}

static struct sl_item item_of(const struct owner *o, int key,
                              const struct owner_grant *g)
{
    static const char value[OWNER_VALUE_BYTES_MAX];
    return (struct sl_item){.kind = SL_ITEM_GRANT,
                            .key = key_of(key),
                            .fence = g->fence,
                            .expiry_ms = g->expiry_ms,
                            .is_long = g->is_long,
                            .value = {value, (size_t)key * o->value_bytes}};
}

static bool has_record(const struct owner_grant *g)
{
    return g->fence != 0 && g->expiry_ms != SL_NEVER;
}

static struct sl_now now_of(const struct owner *o)
{
    return (struct sl_now){.ms = o->now_ms};
}

/* An item without expiry, about the file. */
static struct sl_item item_about_file(enum sl_item_kind kind, const char *value,
                                      size_t n)
{
    return (struct sl_item){.kind = kind,
                            .expiry_ms = SL_NEVER,
                            .bound_ms = SL_NEVER,
                            .is_long = true,
                            .value = {value, n}};
}

/* ---- lives ---- */

/* Each boot has an id of its own; everything else is the same. */
static void set_boot(const struct owner *o, struct sl_life *life)
{
    snprintf(life->boot, sizeof life->boot, "boot %u", o->boot);
    snprintf(life->clock, sizeof life->clock, "clock");
    snprintf(life->machine, sizeof life->machine, "machine");
    life->boot_ms = 0;
    life->wait_until_ms = o->wait_until_ms;
}

static void append_number(struct sl_buffer *b, enum sl_item_kind kind, uint64_t number)
{
    char value[SL_VALUE_BYTES];
    sl_value_write(value, number);
    struct sl_item item = item_about_file(kind, value, sizeof value);
    if (sl_record_put(b, &item) != SLUICE_OK) abort();
}

/* Copy everything but the grants to the next file. */
static int copy_about_file(struct owner *o, sl_ms volatile_ms)
{
    struct sl_buffer b = {0};
    struct sl_life life;
    char value[SL_LIFE_BYTES];
    sl_journal_file_life(o->f, &life);
    set_boot(o, &life);
    sl_life_write(value, &life);
    struct sl_item item = item_about_file(SL_ITEM_LIFE, value, sizeof value);
    if (sl_record_put(&b, &item) != SLUICE_OK) abort();
    append_number(&b, SL_ITEM_VOLATILE, (uint64_t)volatile_ms);
    append_number(&b, SL_ITEM_FENCES, o->fence_limit);
    int error = sl_journal_file_copy(o->f, (struct sl_bytes){b.at, b.n}, o->now_ms);
    sl_buffer_free(&b);
    return error;
}

/* Copy a grant to the next file. */
static int copy_grant(struct owner *o, int key)
{
    const struct owner_grant *g = &o->table[key];
    if (!has_record(g)) return 0;
    struct sl_buffer b = {0};
    struct sl_item item = item_of(o, key, g);
    sl_journal_bound(o->j, &item);
    if (sl_record_put(&b, &item) != SLUICE_OK) abort();
    int error = sl_journal_file_copy(o->f, (struct sl_bytes){b.at, b.n}, o->now_ms);
    sl_buffer_free(&b);
    return error;
}

/* ---- acknowledgements ---- */

struct owner_known *owner_known(struct owner *o, int key)
{
    return &o->known[key][o->shown[key]];
}

static void set_known(struct owner *o, int key, struct owner_known new)
{
    uint8_t other = o->shown[key] ^ 1;
    o->known[key][other] = new;
    /* Release: the process may be killed here, and another one reads the result. */
    atomic_signal_fence(memory_order_release);
    o->shown[key] = other;
}

static void add_wait(struct owner *o, struct owner_wait w)
{
    if (o->waits_count == OWNER_WAITS) abort();
    o->waits[o->waits_count++] = w;
}

static void acknowledge(struct owner *o, const struct owner_wait *w)
{
    struct owner_known k = *owner_known(o, w->key);
    const struct owner_grant *g = &w->grant;
    owner_say(o, "acknowledged: k%d fence %" PRIu64 " %s until %" PRId64 "%s", w->key,
              g->fence,
              w->is_end         ? "ended"
              : w->is_extension ? "extended"
                                : "granted",
              g->expiry_ms, g->is_long ? ", long" : "");
    if (w->is_end) {
        if (k.fence != g->fence) return;
        /* After a power failure a lease may expire before the client expects it, if the last
         * extension was short. New grants wait until the client's expiry. */
        if (w->is_expiry && k.expiry_ms > o->now_ms) k.is_forgotten = true;
        else k.ended = true;
        k.end_is_written = !sl_journal_failed(o->j);
    } else if (w->is_extension) {
        if (k.fence != g->fence || k.ended) return;
        k.is_long |= g->is_long;
        k.may_be_later = false;
        if (g->expiry_ms > k.expiry_ms) k.expiry_ms = g->expiry_ms;
        if (w->is_sure && g->expiry_ms > k.sure_ms) k.sure_ms = g->expiry_ms;
    } else {
        bool is_held = k.fence != 0 && !k.ended && k.expiry_ms != SL_NEVER &&
                       k.expiry_ms > o->now_ms;
        if (is_held)
            wrong(o,
                  "k%d was granted under fence %" PRIu64 " while %" PRIu64 " is valid",
                  w->key, g->fence, k.fence);
        k = (struct owner_known){
            .fence = g->fence, .expiry_ms = g->expiry_ms, .is_long = g->is_long};
        if (w->is_sure) k.sure_ms = g->expiry_ms;
        if (g->fence > o->fence_given) o->fence_given = g->fence;
    }
    set_known(o, w->key, k);
}

/* Send the acknowledgements of all changes that are written, and durable if that is necessary. */
static void send_acknowledgements(struct owner *o)
{
    size_t kept = 0;
    for (size_t i = 0; i < o->waits_count; i++) {
        const struct owner_wait w = o->waits[i];
        if (w.is_written && w.position <= sl_journal_durable(o->j)) acknowledge(o, &w);
        else o->waits[kept++] = w;
    }
    o->waits_count = kept;
}

/* ---- failure ---- */

/* The journal has failed: undo the grants that were not acknowledged. */
static void fail(struct owner *o)
{
    owner_say(o, "the journal has failed");
    o->has_failed = true;
    sl_journal_fail(o->j);
    if (o->copied >= 0 && !o->commits) {
        sl_journal_file_drop(o->f);
        o->copied = -1;
    }
    for (size_t i = 0; i < o->waits_count; i++) {
        const struct owner_wait *w = &o->waits[i];
        struct owner_grant *g = &o->table[w->key];
        owner_known(o, w->key)->may_be_later = true;
        if (w->is_end || w->is_extension || g->fence != w->grant.fence) continue;
        /* The file still shows the grant. */
        if (has_record(g))
            sl_journal_end(o->j, now_of(o), SL_ITEM_GRANT, key_of(w->key), g->fence,
                           g->is_long);
        g->fence = 0;
    }
    o->waits_count = 0;
}

/* ---- start ---- */

void owner_init(struct owner *o, int directory)
{
    *o = (struct owner){
        .directory = directory, .boot = 1, .now_ms = 1000, .copied = -1};
}

/* Read the journal. After 0, the caller calls sl_recovery_end() and sl_journal_unmap(). */
static int recover(const struct owner *o, struct sl_recovery *r, struct sl_bytes *file)
{
    struct sl_life life;
    sl_journal_life(o->directory, &life);
    set_boot(o, &life);
    life.wait_until_ms = 0;
    int error = sl_journal_map(o->directory, file);
    if (error != 0) return error;
    sl_recovery_begin(r, *file, &life, o->now_ms, hash_key);
    if (r->result == SL_RECOVERY_OK) return 0;
    sl_recovery_end(r);
    sl_journal_unmap(*file);
    return EILSEQ;
}

static void read_grants(const struct sl_recovery *r, struct owner_grant out[OWNER_KEYS])
{
    struct sl_item item;
    uint64_t cursor = 0;
    memset(out, 0, OWNER_KEYS * sizeof *out);
    while (sl_recovery_next(r, &cursor, &item)) {
        if (item.kind != SL_ITEM_GRANT || item.key.n != 2) continue;
        struct owner_grant *g = &out[item.key.at[1] - '0'];
        /* A key has at most one grant, because the end of the last one precedes the next. */
        if (g->fence != 0) g->fence = SL_FENCE_MAX;
        else *g = (struct owner_grant){item.fence, item.expiry_ms, item.is_long};
    }
}

/* Continue the file. */
static int start_same_life(struct owner *o)
{
    struct sl_life life;
    char text[SL_LIFE_BYTES], limit[SL_VALUE_BYTES];
    int error = sl_journal_file_continue(o->directory, &o->recovery, &o->f);
    if (error != 0) return error;
    o->j = sl_journal_new(hash_key, o->recovery.chain.position, OWNER_VOLATILE_MS);
    for (int key = 0; key < OWNER_KEYS; key++) {
        struct owner_grant *g = &o->table[key];
        if (!has_record(g)) continue;
        struct sl_item item = item_of(o, key, g);
        item.bound_ms = SL_NEVER;
        if (g->expiry_ms > o->now_ms) sl_journal_restore(o->j, &item);
        else {
            sl_journal_end(o->j, now_of(o), SL_ITEM_GRANT, item.key, g->fence,
                           g->is_long);
            g->fence = 0;
        }
    }
    sl_journal_file_life(o->f, &life);
    set_boot(o, &life);
    sl_life_write(text, &life);
    struct sl_item item = item_about_file(SL_ITEM_LIFE, text, sizeof text);
    sl_journal_put(o->j, now_of(o), &item, (struct sl_item_before){0});
    sl_value_write(limit, o->fence_limit);
    item = item_about_file(SL_ITEM_FENCES, limit, sizeof limit);
    sl_journal_put(o->j, now_of(o), &item, (struct sl_item_before){0});
    owner_turn(o);
    if (!sl_journal_failed(o->j)) owner_sync(o);
    return sl_journal_failed(o->j) ? EIO : 0;
}

/* Write a new file. */
static int start_other_life(struct owner *o)
{
    uint64_t position = o->recovery.chain.position;
    int error = sl_journal_file_new(o->directory, SL_JOURNAL_OF_SERVER, position,
                                    &o->f);
    if (error != 0) return error;
    o->j = sl_journal_new(hash_key, position, OWNER_VOLATILE_MS);
    error = copy_about_file(o, OWNER_VOLATILE_MS);
    for (int key = 0; key < OWNER_KEYS && error == 0; key++) error = copy_grant(o, key);
    if (error == 0) error = sl_journal_file_commit(o->f);
    if (error == 0) sl_journal_file_switch(o->f);
    return error;
}

/* The clients still rely on these leases. New grants wait until they have expired. */
static void forget_short_leases(struct owner *o)
{
    for (int key = 0; key < OWNER_KEYS; key++) {
        struct owner_known *k = owner_known(o, key);
        if (o->table[key].fence != k->fence && !k->is_long) k->is_forgotten = true;
        k->may_be_later = true; /* Recovery uses the bound. */
    }
}

int owner_start(struct owner *o)
{
    struct sl_bytes file;
    struct sl_recovery *r = &o->recovery;
    *r = (struct sl_recovery){0};
    memset(o->table, 0, sizeof o->table);
    o->j = NULL;
    o->f = NULL;
    o->waits_count = 0;
    o->copied = -1;
    o->commits = o->serves = false;
    sl_journal_probe(o->directory);
    int error = recover(o, r, &file);
    if (error != 0 && error != ENOENT) return error;
    if (error == 0) {
        read_grants(r, o->table);
        sl_recovery_end(r);
        sl_journal_unmap(file);
    }
    o->fence = r->fence_limit;
    o->fence_limit = r->fence_limit + FENCES_STEP;
    o->wait_until_ms = r->wait_until_ms;
    owner_say(o, "start: %s, %zu items, wait until %" PRId64,
              r->same_life ? "same life" : r->why_other, r->items, r->wait_until_ms);
    /* From the next record on, the file has no mark of a clean stop. */
    o->stopped_cleanly = false;
    if (!r->same_life) forget_short_leases(o);
    error = r->same_life ? start_same_life(o) : start_other_life(o);
    if (error != 0) return error;
    o->stopped_cleanly = o->has_failed = false;
    o->started_in = o->boot;
    o->waited_until_ms = o->wait_until_ms;
    o->serves = true;
    return 0;
}

void owner_forget_process(struct owner *o)
{
    for (size_t i = 0; i < o->waits_count; i++)
        owner_known(o, o->waits[i].key)->may_be_later = true;
    for (int key = 0; key < OWNER_KEYS; key++)
        if (owner_known(o, key)->expiry_ms == SL_NEVER)
            owner_known(o, key)->ended = true;
    sl_journal_file_close(o->f);
    sl_journal_free(o->j);
    o->f = NULL;
    o->j = NULL;
}

int owner_stop(struct owner *o)
{
    struct sl_item item = item_about_file(SL_ITEM_CLEAN, NULL, 0);
    o->serves = false;
    if (sl_journal_failed(o->j)) return EIO;
    if (o->copied >= 0) {
        sl_journal_file_drop(o->f);
        o->copied = -1;
    }
    owner_turn(o);
    if (sl_journal_failed(o->j)) return EIO;
    sl_journal_put(o->j, now_of(o), &item, (struct sl_item_before){0});
    owner_turn(o);
    if (!sl_journal_failed(o->j)) owner_sync(o);
    o->stopped_cleanly = !sl_journal_failed(o->j);
    return o->stopped_cleanly ? 0 : EIO;
}

/* ---- requests ---- */

static bool may_change(const struct owner *o, int key)
{
    return sl_journal_pending(o->j, key_of(key)) == 0 &&
           o->waits_count < OWNER_WAITS / 2;
}

/* Whether a change waits for its own record, which is in the next frame; not for an earlier one. */
static bool is_of_record(const struct owner *o, uint64_t position)
{
    return position > sl_journal_position(o->j);
}

void owner_acquire(struct owner *o, int key, sl_ms lease_ms)
{
    struct owner_grant *g = &o->table[key];
    if (g->fence != 0 || !may_change(o, key) || o->now_ms < o->wait_until_ms ||
        o->fence == o->fence_limit)
        return;
    struct owner_grant new = {.fence = o->fence + 1,
                              .expiry_ms = lease_ms == 0 ? SL_NEVER
                                                         : o->now_ms + lease_ms};
    uint64_t position;
    if (lease_ms == 0) position = sl_journal_need(o->j, key_of(key));
    else {
        struct sl_item item = item_of(o, key, &new);
        position = sl_journal_put(o->j, now_of(o), &item, (struct sl_item_before){0});
        new.is_long = item.is_long;
    }
    if (position == SL_JOURNAL_FAILED) return; /* The reply is an error. */
    o->fence++;
    *g = new;
    owner_say(o, "k%d granted under %" PRIu64 " until %" PRId64 ", waits for %" PRIu64,
              key, g->fence, g->expiry_ms, position);
    add_wait(o, (struct owner_wait){.position = position,
                                    .key = key,
                                    .is_sure = new.is_long &&is_of_record(o, position),
                                    .grant = new});
}

void owner_extend(struct owner *o, int key, sl_ms lease_ms)
{
    struct owner_grant *g = &o->table[key];
    if (!has_record(g) || !may_change(o, key) || o->now_ms + lease_ms <= g->expiry_ms)
        return;
    struct owner_grant new = *g;
    new.expiry_ms = o->now_ms + lease_ms;
    struct sl_item item = item_of(o, key, &new);
    uint64_t position = sl_journal_put(
        o->j, now_of(o), &item,
        (struct sl_item_before){.expiry_ms = g->expiry_ms, .is_long = g->is_long});
    if (position == SL_JOURNAL_FAILED) return;
    new.is_long = item.is_long;
    *g = new;
    add_wait(o, (struct owner_wait){.position = position,
                                    .key = key,
                                    .is_extension = true,
                                    .is_sure = new.is_long &&is_of_record(o, position),
                                    .grant = new});
}

/* End a grant: it was released, or it has expired. */
static void end(struct owner *o, int key, bool is_expiry)
{
    struct owner_grant *g = &o->table[key];
    struct owner_known *k = owner_known(o, key);
    uint64_t position = 0;
    if (has_record(g))
        position = sl_journal_end(o->j, now_of(o), SL_ITEM_GRANT, key_of(key), g->fence,
                                  g->is_long);
    owner_say(o, "k%d ended: %" PRIu64 " at %" PRIu64, key, g->fence, position);
    if (k->fence == g->fence && (!is_expiry || k->expiry_ms <= o->now_ms))
        k->ended = true;
    /* A release does not wait for the disk. */
    if (position != SL_JOURNAL_FAILED)
        add_wait(o,
                 (struct owner_wait){
                     .key = key, .is_end = true, .is_expiry = is_expiry, .grant = *g});
    g->fence = 0;
}

void owner_release(struct owner *o, int key)
{
    if (o->table[key].fence != 0 && may_change(o, key)) end(o, key, false);
}

/* ---- the loop ---- */

void owner_turn(struct owner *o)
{
    struct sl_bytes records;
    uint64_t position;
    for (int key = 0; key < OWNER_KEYS; key++)
        if (has_record(&o->table[key]) && o->table[key].expiry_ms <= o->now_ms &&
            sl_journal_pending(o->j, key_of(key)) == 0 && o->waits_count < OWNER_WAITS)
            end(o, key, true);
    while (sl_journal_take(o->j, &records, &position))
        if (sl_journal_file_write(o->f, records, position, o->now_ms) != 0) {
            fail(o);
            return;
        }
    owner_say(o, "turn %" PRIu64 ", %" PRIu64 " bytes", sl_journal_position(o->j),
              sl_journal_file_bytes(o->f));
    for (size_t i = 0; i < o->waits_count; i++) o->waits[i].is_written = true;
    send_acknowledgements(o);
}

static void sync_ended(struct owner *o, int error)
{
    sl_journal_sync_end(o->j, error == 0);
    owner_say(o, "synced up to %" PRIu64 ": %s", sl_journal_durable(o->j),
              strerror(error));
    if (sl_journal_failed(o->j)) fail(o);
    else send_acknowledgements(o);
}

void owner_sync(struct owner *o)
{
    if (sl_journal_failed(o->j)) return;
    sl_journal_sync_begin(o->j);
    sync_ended(o, sl_journal_file_sync(o->f));
}

void owner_replace(struct owner *o)
{
    if (o->copied >= 0 || sl_journal_failed(o->j)) return;
    if (sl_journal_file_replace(o->f) != 0) return;
    o->copied = 0;
    if (copy_about_file(o, sl_journal_copied_volatile_ms(o->j, o->now_ms)) != 0) {
        sl_journal_file_drop(o->f);
        o->copied = -1;
    }
}

void owner_copy(struct owner *o)
{
    if (o->copied < 0 || o->copied == OWNER_KEYS) return;
    if (copy_grant(o, o->copied) == 0) {
        o->copied++;
        return;
    }
    sl_journal_file_drop(o->f);
    o->copied = -1;
    if (sl_journal_failed(o->j)) fail(o);
}

/* A new file, written from memory, has replaced the old one. */
static void mended(struct owner *o, uint64_t position, int error)
{
    if (error != 0) {
        fail(o);
        return;
    }
    sl_journal_file_switch(o->f);
    o->copied = -1;
    sl_journal_mend(o->j, position);
    send_acknowledgements(o);
}

void owner_commit(struct owner *o)
{
    if (o->copied < OWNER_KEYS) return;
    bool mends = sl_journal_failed(o->j), was_failed = o->has_failed;
    uint64_t position = sl_journal_position(o->j);
    o->has_failed = false; /* To notice a write that fails meanwhile. */
    if (!mends) sl_journal_sync_begin(o->j);
    o->commits = true;
    int error = sl_journal_file_commit(o->f);
    o->commits = false;
    bool failed_meanwhile = o->has_failed;
    o->has_failed |= was_failed;
    if (mends) {
        mended(o, position, failed_meanwhile ? EIO : error);
        return;
    }
    o->copied = -1;
    if (error == 0 && !failed_meanwhile) sl_journal_file_switch(o->f);
    else {
        /* The current file may still be good. */
        sl_journal_file_drop(o->f);
        error = sl_journal_file_sync(o->f);
    }
    sync_ended(o, failed_meanwhile ? EIO : error);
}

void owner_mend(struct owner *o)
{
    if (!sl_journal_failed(o->j) || o->copied >= 0) return;
    struct sl_journal_file *new;
    if (sl_journal_file_new(o->directory, SL_JOURNAL_OF_SERVER,
                            sl_journal_position(o->j), &new) != 0)
        return;
    sl_journal_file_close(o->f);
    o->f = new;
    sl_journal_mend_begin(o->j);
    o->copied = 0;
    if (copy_about_file(o, sl_journal_copied_volatile_ms(o->j, o->now_ms)) != 0)
        fail(o);
}

/* ---- checks ---- */

static void check_fences(struct owner *o, const struct sl_recovery *r,
                         const struct owner_grant found[OWNER_KEYS])
{
    if (r->fence_limit < o->fence_given)
        wrong(o, "the limit of fences is %" PRIu64 ", but a client has %" PRIu64,
              r->fence_limit, o->fence_given);
    for (int key = 0; key < OWNER_KEYS; key++) {
        if (found[key].fence == SL_FENCE_MAX) wrong(o, "k%d has two grants", key);
        if (found[key].fence != 0 && found[key].fence < owner_known(o, key)->fence)
            wrong(o,
                  "k%d: fence %" PRIu64 " is held, but %" PRIu64
                  " was granted after it",
                  key, found[key].fence, owner_known(o, key)->fence);
    }
}

static void check_exact(struct owner *o, int key, const struct owner_grant *found)
{
    const struct owner_known *k = owner_known(o, key);
    if (k->fence == 0 || k->expiry_ms == SL_NEVER) return;
    if (k->ended) {
        if (k->end_is_written && found->fence == k->fence)
            wrong(o, "k%d: fence %" PRIu64 " is held, but its end was acknowledged",
                  key, k->fence);
        return;
    }
    if (k->expiry_ms <= o->now_ms || k->is_forgotten) return;
    if (found->fence != k->fence)
        wrong(o, "k%d: fence %" PRIu64 " is lost; found %" PRIu64, key, k->fence,
              found->fence);
    else if (found->expiry_ms < k->expiry_ms)
        wrong(o, "k%d: fence %" PRIu64 " expires at %" PRId64 ", not at %" PRId64, key,
              k->fence, found->expiry_ms, k->expiry_ms);
    else if (found->expiry_ms > k->expiry_ms && !k->may_be_later)
        wrong(o, "k%d: fence %" PRIu64 " expires at %" PRId64 ", later than %" PRId64,
              key, k->fence, found->expiry_ms, k->expiry_ms);
}

static bool clients_know_anything(const struct owner *o)
{
    return o->fence_given != 0;
}

/* Recover, read the grants, and release the memory again. */
static int look(const struct owner *o, struct sl_recovery *r,
                struct owner_grant found[OWNER_KEYS])
{
    struct sl_bytes file;
    int error = recover(o, r, &file);
    if (error != 0) return error;
    read_grants(r, found);
    owner_say(o,
              "found: %zu bytes, position %" PRIu64 ", %zu items, fences to %" PRIu64,
              r->bytes, r->chain.position, r->items, r->fence_limit);
    sl_recovery_end(r);
    sl_journal_unmap(file);
    return 0;
}

int owner_check_same_life(struct owner *o)
{
    struct sl_recovery r;
    struct owner_grant found[OWNER_KEYS];
    int error = look(o, &r, found);
    if (error == ENOENT && clients_know_anything(o)) wrong(o, "there is no journal");
    if (error != 0) return error;
    o->was_same_life = r.same_life;
    if (!r.same_life) {
        /* Only an I/O error that was noted makes this another life. */
        if (!o->has_failed && !o->may_fail && o->started_in == o->boot)
            wrong(o, "it is another life: %s", r.why_other);
        return owner_check_other_life(o);
    }
    check_fences(o, &r, found);
    for (int key = 0; key < OWNER_KEYS; key++) check_exact(o, key, &found[key]);
    if (o->waited_until_ms > o->now_ms && r.wait_until_ms < o->waited_until_ms)
        wrong(o, "the wait ends at %" PRId64 ", not at %" PRId64, r.wait_until_ms,
              o->waited_until_ms);
    return 0;
}

/* Whether a client still relies on a lease. `expiry_ms` is in the present clock. */
static bool relies(const struct owner *o, const struct owner_known *k)
{
    return k->fence != 0 && !k->ended && k->expiry_ms != SL_NEVER &&
           k->expiry_ms > o->now_ms;
}

int owner_check_other_life(struct owner *o)
{
    struct sl_recovery r;
    struct owner_grant found[OWNER_KEYS];
    int error = look(o, &r, found);
    if (error == ENOENT && clients_know_anything(o)) wrong(o, "there is no journal");
    if (error != 0) return error;
    o->was_same_life = false;
    o->found_wait_ms = r.wait_until_ms;
    check_fences(o, &r, found);
    for (int key = 0; key < OWNER_KEYS; key++) {
        struct owner_known *k = owner_known(o, key);
        const struct owner_grant *g = &found[key];
        k->may_be_later = true; /* Recovery uses the bound. */
        if (!relies(o, k)) continue;
        bool is_held = g->fence == k->fence && g->expiry_ms >= k->expiry_ms;
        bool is_sure = k->sure_ms <= o->now_ms ||
                       (g->fence == k->fence && g->expiry_ms >= k->sure_ms);
        if (!is_held) k->is_forgotten = true;
        if (k->is_long) o->held += is_held;
        else o->forgotten += !is_held;
        /* After a clean stop, recovery knows what the server knew. */
        bool is_known = o->stopped_cleanly && o->table[key].fence == k->fence;
        if (!is_sure || (!is_held && is_known))
            wrong(o, "k%d: the lease of fence %" PRIu64 " is lost; found %" PRIu64, key,
                  k->fence, g->fence);
        if (!is_held && r.wait_until_ms < k->expiry_ms)
            wrong(o,
                  "k%d: new grants wait until %" PRId64 ", but fence %" PRIu64
                  " expires at %" PRId64,
                  key, r.wait_until_ms, k->fence, k->expiry_ms);
    }
    if (o->waited_until_ms > o->now_ms && r.wait_until_ms < o->waited_until_ms)
        wrong(o, "the wait ends at %" PRId64 ", not at %" PRId64, r.wait_until_ms,
              o->waited_until_ms);
    return 0;
}

void owner_boot(struct owner *o, sl_ms died_ms)
{
    o->boot++;
    for (int key = 0; key < OWNER_KEYS; key++) {
        struct owner_known *k = owner_known(o, key);
        if (k->expiry_ms != SL_NEVER) k->expiry_ms -= died_ms;
        k->sure_ms -= died_ms;
        k->end_is_written = false; /* It may be lost. */
    }
    o->waited_until_ms -= died_ms;
    o->now_ms = 0;
}
