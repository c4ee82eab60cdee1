/* node_record.c - the journal of a node.
 *
 * Every function that changes the state of a key calls sl_node_key_changed(). Before an order is
 * fetched, the states of all changed keys are recorded. What shows the state of a key (a vote, a
 * TEACH, an event, an answer) is held back until the record is durable, if the rules of the journal
 * require that. README.md explains why this is enough. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "majority/acceptor.h"
#include "majority/key_record.h"

static struct sl_now now_of(const struct sl_node *n)
{
    return (struct sl_now){.ms = n->now_ms, .wall_us = n->own_wall_us};
}

/* Reserve space for an item. If there is no memory, the journal fails: its owner writes a new file
 * later. */
static bool reserve(struct sl_node *n, size_t bytes)
{
    if (bytes <= n->record_bytes) return true;
    size_t size = bytes < 256 ? 256 : 2 * bytes;
    char *block = malloc(size);
    if (block == NULL) {
        sl_journal_fail(n->journal);
        return false;
    }
    free(n->record);
    n->record = block;
    n->record_bytes = size;
    return true;
}

/* --- Keys --------------------------------------------------------------------------- */

void sl_node_key_changed(struct sl_node *n, struct sl_node_key *k)
{
    if (sl_list_empty(&k->changed)) sl_list_append(&n->changed, &k->changed);
}

/* Encode the state of a key in n->record. */
static bool encode(struct sl_node *n, const struct sl_node_key *k, struct sl_bytes *out)
{
    size_t bytes = sl_key_record_bytes(k);
    if (!reserve(n, bytes)) return false;
    sl_key_record_write(k, n->record);
    *out = (struct sl_bytes){n->record, bytes};
    return true;
}

static uint64_t hash_of(const struct sl_node *n, struct sl_bytes value)
{
    uint64_t hash = sl_hash(n->keys.key, value.at, value.n);
    return hash != 0 ? hash : 1;
}

/* Whether there is nothing to remember about a key. */
static bool is_blank(const struct sl_node_key *k)
{
    return k->seen_fence == 0 && k->past_fence == 0 && k->report_next == 0 &&
           !k->lease.live && !k->reserved.live;
}

static struct sl_item item_of(const struct sl_node *n, const struct sl_node_key *k,
                              struct sl_bytes value)
{
    return (struct sl_item){
        .kind = SL_ITEM_KEY,
        .key = sl_node_key_bytes(k),
        .expiry_ms = sl_node_max_ms(sl_key_record_end(k), n->now_ms),
        .value = value};
}

static void note_recorded(const struct sl_node *n, struct sl_node_key *k,
                          const struct sl_item *item)
{
    k->recorded = hash_of(n, item->value);
    k->recorded_core = sl_key_record_core(n, k);
    k->recorded_end_ms = item->expiry_ms;
    k->recorded_long = item->is_long;
    k->recorded_fence = k->lease.live ? k->lease.fence : 0;
}

/* Whether the lease that was recorded last, or an earlier one, continues. */
static bool continues_lease(const struct sl_node_key *k)
{
    return k->overlapped != NULL ||
           (k->lease.live && k->lease.fence <= k->recorded_fence);
}

/* Record the state of a key. If the journal on disk may show a long lease, and more than its expiry
 * has changed, then the old item ends. So the new state must be durable before it is shown (J4 b):
 * otherwise the lease would return after a power failure, although it was released or replaced. If
 * the lease continues, it stays long (J3), even if it ends soon. */
static void record_key(struct sl_node *n, struct sl_node_key *k)
{
    struct sl_bytes value;
    struct sl_item_before before = {0};
    /* If the bound was not rounded up, no bound of the journal is on disk. A bound of the first
     * step is never more than lease-volatile ahead, so that one need not be. */
    if (k->recorded != 0)
        before = (struct sl_item_before){k->recorded_exact ? 1 : k->recorded_end_ms,
                                         k->recorded_long};
    if (!encode(n, k, &value)) return;
    /* While the journal has failed, put_key() may have copied the state to a file that was never
     * committed. */
    bool is_recorded = hash_of(n, value) == k->recorded &&
                       !sl_journal_failed(n->journal);
    if ((k->recorded == 0 && is_blank(k)) || is_recorded) {
        sl_list_remove(&k->changed);
        return;
    }
    if (sl_node_cannot_record(n)) return;
    struct sl_item item = item_of(n, k, value);
    if (k->recorded_long && sl_key_record_core(n, k) != k->recorded_core) {
        sl_journal_end(n->journal, now_of(n), SL_ITEM_KEY, item.key, 0, true);
        before = (struct sl_item_before){0, continues_lease(k)};
    }
    /* A lease of exactly lease-volatile ends later than that by the rounding of clocks. It needs
     * no sync all the same: the silence is longer, too. */
    struct sl_now now = now_of(n);
    now.ms += SL_NODE_GRAIN_MS;
    uint64_t position = sl_journal_put(n->journal, now, &item, before);
    if (position == SL_JOURNAL_FAILED) return;
    note_recorded(n, k, &item);
    k->recorded_exact = false;
    if (position > k->position) k->position = position;
    if (position > n->shown_after) n->shown_after = position;
    k->recorded_at = n->key_position = sl_journal_last(n->journal);
    n->record_due = true;
    sl_list_remove(&k->changed);
}

void sl_node_record_forgotten(struct sl_node *n, struct sl_node_key *k)
{
    sl_list_remove(&k->changed);
    if (k->recorded == 0) return;
    sl_journal_end(n->journal, now_of(n), SL_ITEM_KEY, sl_node_key_bytes(k), 0,
                   k->recorded_long);
    n->key_position = sl_journal_last(n->journal);
    n->record_due = true;
}

uint64_t sl_node_position(struct sl_node *n, struct sl_node_key *k)
{
    if (k == NULL) return 0;
    if (!sl_list_empty(&k->changed)) record_key(n, k);
    if (!sl_list_empty(&k->changed)) return SL_JOURNAL_FAILED;
    /* If the last record of the key was lost in a failed write, do not show the state before a new
     * file contains it. */
    if (sl_journal_failed(n->journal) &&
        k->recorded_at > sl_journal_written(n->journal))
        return SL_JOURNAL_FAILED;
    return k->position > sl_journal_durable(n->journal) ? k->position : 0;
}

bool sl_node_shows_all(const struct sl_node *n)
{
    return n->shown_after <= sl_journal_durable(n->journal) &&
           sl_list_empty(&n->changed) && !sl_journal_failed(n->journal);
}

uint64_t sl_node_position_of_all(struct sl_node *n)
{
    uint64_t most = 0;
    for (const struct sl_list *i = n->held.next; i != &n->held; i = i->next) {
        const struct sl_node_queued_order *o = sl_container_of(
            i, struct sl_node_queued_order, link);
        if (o->position > most) most = o->position;
    }
    return most;
}

/* After a failure, the new file contains all states, but positions before the failure may be
 * missing in it. So write one more record that must be durable, after which all of them are. */
bool sl_node_cannot_record(struct sl_node *n)
{
    bool failed = sl_journal_failed(n->journal);
    if (n->had_failed && !failed) n->self_due = true;
    n->had_failed = failed;
    return failed;
}

/* --- Other nodes ------------------------------------------------------------------- */

/* The value of SL_ITEM_PEER, whose key is the id of the node as one byte. All numbers are
 * little-endian u64: birth, epoch, began, position, durable, rejected. The item of this node itself has its
 * birth, soon_ms, and epoch, position and same_life of each run. */
#define PROGRESS_BYTES 48
#define SELF_BYTES (16 + 24 * SL_NODE_RUNS_MAX)

static char *put64(char *at, uint64_t x)
{
    for (int i = 0; i < 8; i++) at[i] = (char)(x >> 8 * i);
    return at + 8;
}

static uint64_t get64(const char **at)
{
    uint64_t x = 0;
    for (int i = 0; i < 8; i++) x |= (uint64_t)(uint8_t)(*at)[i] << 8 * i;
    *at += 8;
    return x;
}

static size_t write_progress(char *out, const struct sl_node_progress *p)
{
    char *at = put64(out, p->birth);
    at = put64(at, p->epoch);
    at = put64(at, p->began);
    at = put64(at, p->position);
    at = put64(at, p->durable);
    return (size_t)(put64(at, p->rejected) - out);
}

static size_t write_self(char *out, const struct sl_node *n)
{
    const struct sl_node_identity *self = &n->self;
    char *at = put64(out, self->birth);
    at = put64(at, (uint64_t)n->soon_ms);
    for (uint32_t i = 0; i < self->run_count; i++) {
        at = put64(at, self->runs[i].epoch);
        at = put64(at, self->runs[i].position);
        at = put64(at, self->runs[i].same_life);
    }
    return (size_t)(at - out);
}

/* `key` has a byte, and `value` SELF_BYTES. */
static struct sl_item peer_item(const struct sl_node *n, sl_node_id id, char *key,
                                char *value)
{
    *key = (char)id;
    size_t bytes = id == n->id ? write_self(value, n)
                               : write_progress(value, &n->journals[id].known);
    return (struct sl_item){.kind = SL_ITEM_PEER,
                            .key = {key, 1},
                            .expiry_ms = SL_NEVER,
                            .bound_ms = SL_NEVER,
                            .is_long = true,
                            .value = {value, bytes}};
}

static bool record_peer(struct sl_node *n, sl_node_id id)
{
    char key, value[SELF_BYTES];
    struct sl_item item = peer_item(n, id, &key, value);
    if (sl_journal_put(n->journal, now_of(n), &item, (struct sl_item_before){0}) ==
        SL_JOURNAL_FAILED)
        return false;
    n->record_due = true;
    return true;
}

static bool is_changed(const struct sl_node_journal_of *p)
{
    return p->known.epoch != p->recorded.epoch ||
           p->known.rejected != p->recorded.rejected ||
           p->known.position != p->recorded.position ||
           p->known.durable != p->recorded.durable;
}

/* Positions change all the time, so they are not recorded every time. */
static void record_peers(struct sl_node *n)
{
    if (n->self_due && record_peer(n, n->id)) n->self_due = false;
    for (sl_node_id id = 1; id <= SL_NODE_ID_MAX; id++) {
        struct sl_node_journal_of *p = &n->journals[id];
        if (!is_changed(p) || n->now_ms < p->record_ms || !record_peer(n, id)) continue;
        p->recorded = p->known;
        p->position = sl_journal_last(n->journal);
        p->record_ms = n->now_ms + n->limits.forget_ms;
    }
}

/* A heartbeat of an earlier run may arrive late. */
void sl_node_hear_journal(struct sl_node *n, sl_node_id from,
                          const struct sl_message *m)
{
    struct sl_node_progress *p = &n->journals[from].known;
    if (p->epoch != m->epoch || p->epoch == 0) return;
    if (m->ceiling > p->position) p->position = m->ceiling;
    if (m->which > p->durable) p->durable = m->which;
}

void sl_node_meet_journal(struct sl_node *n, sl_node_id id,
                          const struct sl_node_identity *states)
{
    const struct sl_node_run *run = &states->runs[states->run_count - 1];
    struct sl_node_progress *p = &n->journals[id].known;
    if (p->epoch == run->epoch) return;
    *p = (struct sl_node_progress){.rejected = p->birth == states->birth ? p->rejected
                                                                         : 0,
                                   .birth = states->birth,
                                   .epoch = run->epoch,
                                   .began = run->position,
                                   .position = run->position,
                                   .durable = run->position};
}

/* Return whether a node has lost records: the runs that it reports do not continue the run that we
 * remember of it. The run after the remembered one must have begun at or after its durable position
 * (in the same life: its last written position). If the node reports an earlier run but not the
 * remembered one, its directory is an old copy. If all reported runs are later, we cannot compare. If
 * a run was rejected, so are the runs that follow it, because an old copy never catches up. */
static bool is_behind(const struct sl_node_progress *was,
                      const struct sl_node_identity *is)
{
    const struct sl_node_run *next = is->runs, *last = &is->runs[is->run_count - 1];
    if (was->epoch == 0 || was->birth != is->birth) return false;
    for (const struct sl_node_run *run = next; run <= last; run++)
        if (run->epoch == was->rejected) return true;
    while (next <= last && next->epoch != was->epoch) next++;
    if (next > last) return is->runs[0].position <= was->began;
    if (next++ == last) return false;
    return next->position < was->durable ||
           (next->same_life && next->position < was->position);
}

bool sl_node_went_back(struct sl_node *n, sl_node_id id,
                       const struct sl_node_identity *states)
{
    struct sl_node_journal_of *p = &n->journals[id];
    if (!is_behind(&p->known, states)) return false;
    p->known.rejected = states->runs[states->run_count - 1].epoch;
    p->record_ms = n->now_ms;
    return true;
}

bool sl_node_remembers(const struct sl_node *n, sl_node_id id,
                       const struct sl_node_identity *states)
{
    const struct sl_node_journal_of *p = &n->journals[id];
    return is_behind(&p->known, states) && is_behind(&p->recorded, states) &&
           p->position <= sl_journal_durable(n->journal);
}

/* Positions without records of keys do not count. Otherwise the records about other nodes would
 * cause such records there, without end. A record that is not written does not count either. */
void sl_node_report_journal(const struct sl_node *n, struct sl_message *m)
{
    uint64_t written = sl_journal_written(n->journal),
             durable = sl_journal_durable(n->journal);
    m->digest = sl_node_drain_digest(n);
    m->ceiling = written < n->key_position ? written : n->key_position;
    m->which = durable < n->key_position ? durable : n->key_position;
}

const struct sl_node_identity *sl_node_identity(const struct sl_node *n)
{
    return &n->self;
}

/* --- Recording and restoring --------------------------------------------------------- */

void sl_node_record(struct sl_node *n)
{
    if (sl_node_cannot_record(n)) return;
    struct sl_list *next;
    for (struct sl_list *i = n->changed.next; i != &n->changed; i = next) {
        next = i->next;
        record_key(n, sl_container_of(i, struct sl_node_key, changed));
    }
    record_peers(n);
    sl_node_record_drains(n);
}

/* In another life it is unknown when the membership came into force, so the lease may be one of the
 * membership before. */
static void restore_lease(struct sl_node *n, struct sl_node_lease *l)
{
    sl_acceptor_count_length(n, l, l->lease_ms);
    if (!n->same_life && l->end_ms > n->soon_ms) n->soon_ms = l->end_ms;
}

static int restore_key(struct sl_node *n, struct sl_now now, const struct sl_item *item,
                       sl_ms shift_ms)
{
    if (item->key.n == 0) return SLUICE_EINVAL;
    struct sl_node_key *k = sl_node_key_restore(n, now, item->key);
    if (k == NULL) return SLUICE_ENOMEM;
    if (k->recorded != 0) return SLUICE_EINVAL; /* Twice. */
    int status = sl_key_record_read(n, k, item->value, shift_ms);
    if (status != SLUICE_OK) return status;
    if (k->lease.live) n->lease_count++;
    /* In another life, extensions up to the bound may have been lost. */
    if (!n->same_life && k->lease.live)
        k->lease.end_ms = sl_node_max_ms(k->lease.end_ms, item->bound_ms);
    if (k->lease.live) restore_lease(n, &k->lease);
    if (k->overlapped != NULL) restore_lease(n, k->overlapped);
    struct sl_bytes value;
    if (!encode(n, k, &value)) return SLUICE_ENOMEM;
    struct sl_item as = *item;
    as.value = value;
    note_recorded(n, k, &as);
    /* Do not round the bound up in every life, or frequent power failures would extend the lease. */
    k->recorded_exact = !n->same_life;
    k->idle_ms = now.ms;
    sl_node_key_schedule(n, k);
    return SLUICE_OK;
}

static int restore_self(struct sl_node *n, struct sl_bytes value)
{
    size_t runs = (value.n - 16) / 24;
    if (value.n < 16 || value.n != 16 + 24 * runs || runs > SL_NODE_RUNS_MAX)
        return SLUICE_EINVAL;
    const char *at = value.at;
    n->self.birth = get64(&at);
    sl_ms soon_ms = (sl_ms)get64(&at);
    if (n->same_life) n->soon_ms = sl_node_max_ms(n->soon_ms, soon_ms);
    n->self.run_count = (uint32_t)runs;
    for (size_t i = 0; i < runs; i++) {
        n->self.runs[i].epoch = get64(&at);
        n->self.runs[i].position = get64(&at);
        n->self.runs[i].same_life = get64(&at) != 0;
    }
    return SLUICE_OK;
}

static int restore_peer(struct sl_node *n, const struct sl_item *item)
{
    sl_node_id id = item->key.n == 1 ? (uint8_t)item->key.at[0] : 0;
    if (id == n->id) return restore_self(n, item->value);
    if (id == 0 || id > SL_NODE_ID_MAX || item->value.n != PROGRESS_BYTES)
        return SLUICE_EINVAL;
    const char *at = item->value.at;
    struct sl_node_progress *p = &n->journals[id].known;
    p->birth = get64(&at);
    p->epoch = get64(&at);
    p->began = get64(&at);
    p->position = get64(&at);
    p->durable = get64(&at);
    p->rejected = get64(&at);
    n->journals[id].recorded = *p;
    return SLUICE_OK;
}

void sl_node_restored(struct sl_node *n)
{
    struct sl_node_identity *self = &n->self;
    if (self->run_count == SL_NODE_RUNS_MAX)
        memmove(self->runs, self->runs + 1, --self->run_count * sizeof *self->runs);
    self->birth = n->next.birth;
    self->runs[self->run_count++] = (struct sl_node_run){
        n->epoch, sl_journal_position(n->journal), n->same_life};
    n->self_due = true;
    sl_node_record(n);
}

int sl_node_restore(struct sl_node *n, struct sl_now now, const struct sl_item *item,
                    sl_ms shift_ms)
{
    if (item->kind == SL_ITEM_KEY) return restore_key(n, now, item, shift_ms);
    if (item->kind == SL_ITEM_PEER) return restore_peer(n, item);
    if (item->kind == SL_ITEM_DRAIN) return sl_node_restore_drain(n, item);
    return SLUICE_EINVAL;
}

/* The cursor: 0, then PEERS and the last id, then DRAINS and the last stamp, then KEYS and the cursor of
 * the index, then DONE. */
#define DRAINS ((uint64_t)1 << 61)
#define PEERS ((uint64_t)1 << 63)
#define KEYS ((uint64_t)1 << 62)
#define DONE (PEERS | KEYS)

static bool next_peer(struct sl_node *n, uint64_t *cursor, struct sl_item *out)
{
    sl_node_id id = *cursor == 0 ? 0 : (sl_node_id)(*cursor & ~PEERS);
    while (++id <= SL_NODE_ID_MAX) {
        if (id != n->id && n->journals[id].known.epoch == 0) continue;
        if (!reserve(n, 1 + SELF_BYTES)) break;
        *out = peer_item(n, id, n->record, n->record + 1);
        *cursor = PEERS | id;
        return true;
    }
    *cursor = DRAINS;
    return false;
}

static bool next_drain(struct sl_node *n, uint64_t *cursor, struct sl_item *out)
{
    uint64_t stamp = *cursor & ~DRAINS;
    if (reserve(n, 16) && sl_node_next_drain(n, &stamp, n->record, out)) {
        *cursor = DRAINS | stamp;
        return true;
    }
    *cursor = KEYS;
    return false;
}

/* A key that could not be recorded, because the journal has failed, becomes long: the new file is
 * durable before anything depends on it. */
static bool put_key(struct sl_node *n, struct sl_node_key *k, struct sl_item *out)
{
    struct sl_bytes value;
    if (!encode(n, k, &value)) return false;
    *out = item_of(n, k, value);
    if (hash_of(n, value) == k->recorded) {
        out->expiry_ms = k->recorded_end_ms;
        out->is_long = k->recorded_long;
    } else {
        out->is_long = true;
        note_recorded(n, k, out);
        k->recorded_exact = false;
    }
    sl_journal_bound(n->journal, out);
    if (k->recorded_exact) out->bound_ms = out->expiry_ms;
    return true;
}

bool sl_node_item(struct sl_node *n, uint64_t *cursor, struct sl_item *out)
{
    /* Record changes in the present file, too: the node may be killed before the new file replaces
     * it. */
    if (*cursor == 0 || !sl_list_empty(&n->changed)) sl_node_record(n);
    if (*cursor == 0 || (*cursor >= PEERS && *cursor < DONE))
        if (next_peer(n, cursor, out)) return true;
    if (*cursor >= DRAINS && *cursor < KEYS && next_drain(n, cursor, out)) return true;
    while (*cursor != DONE) {
        void *k;
        uint64_t at = *cursor & ~KEYS;
        size_t found = sl_index_scan(&n->keys, &at, &k, 1);
        *cursor = at == 0 ? DONE : KEYS | at;
        if (found == 0) continue;
        struct sl_node_key *key = k;
        if (key->recorded == 0 && is_blank(key)) continue;
        return put_key(n, key, out);
    }
    return false;
}
