/* etcd.c - the engine of a cluster: operations as transactions of etcd's. Here are its life,
 * its queues, and what an answer means; etcd_engine.h says where the rest is. */
#include "storage/etcd/etcd.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define OPS_MIN 16
#define REQUEST_BYTES_MIN ((size_t)16 << 10)
#define PAUSE_MS 20
#define PAUSE_MS_MAX 1000
#define TICK_MS 100 /* While something is wrong, or there is a hurry. */
#define ANSWERS_AT_ONCE 256

/* --- Operations --------------------------------------------------------------------- */

struct sl_storage_op *sl_etcd_op_after(const struct sl_list *list,
                                       struct sl_storage_op *op)
{
    struct sl_list *next = op != NULL ? op->place.next : list->next;
    return next != list ? sl_container_of(next, struct sl_storage_op, place) : NULL;
}

void sl_etcd_op_done(struct sl_storage *e, struct sl_storage_op *op, int status)
{
    op->result.status = status;
    sl_list_remove(&op->place);
    sl_list_append(&e->done, &op->place);
}

void sl_etcd_note_revision(struct sl_storage *e, uint64_t revision)
{
    if (revision > e->stats.revision) e->stats.revision = revision;
}

void sl_etcd_note_reign(struct sl_storage *e, const struct sl_storage_term *reign)
{
    if (reign->term < e->seen.term) return;
    e->seen = *reign;
    e->stats.term = reign->term;
}

/* --- Asking -------------------------------------------------------------------------- */

void sl_etcd_task_init(struct sl_storage *e, struct sl_etcd_task *a, const char *path,
                       void (*done)(struct sl_etcd_call *call), void *owner)
{
    a->e = e;
    a->call.path = path;
    a->call.done = done;
    a->call.owner = owner;
    a->retry_at = SL_NEVER;
}

void sl_etcd_task_begin(struct sl_etcd_task *a)
{
    a->busy = true;
    a->flying = a->lost = a->gone = false;
    a->tries = 0;
    a->since = sl_etcd_now();
    a->retry_at = SL_NEVER;
}

void sl_etcd_task_send(struct sl_etcd_task *a)
{
    a->flying = true;
    a->retry_at = SL_NEVER;
    a->call.body = (struct sl_bytes){a->body.at, a->body.n};
    sl_etcd_send(a->e->client, &a->call);
}

void sl_etcd_task_later(struct sl_etcd_task *a)
{
    sl_ms pause = PAUSE_MS << (a->tries < 6 ? a->tries : 6);
    a->tries++;
    a->retry_at = sl_etcd_now() + (pause < PAUSE_MS_MAX ? pause : PAUSE_MS_MAX);
    sl_etcd_wake(a->e, a->retry_at);
}

void sl_etcd_task_end(struct sl_etcd_task *a)
{
    a->busy = a->flying = a->lost = a->gone = false;
    a->retry_at = SL_NEVER;
}

bool sl_etcd_task_is_due(const struct sl_etcd_task *a, sl_ms now)
{
    if (!a->busy || a->flying) return false;
    if (a->retry_at > now) {
        sl_etcd_wake(a->e, a->retry_at);
        return false;
    }
    return true;
}

static bool says(const struct sl_etcd_call *call, const char *words)
{
    return call->answer.n > 0 &&
           memmem(call->answer.at, call->answer.n, words, strlen(words)) != NULL;
}

/* etcd's errors, by grpc's numbers, that come before anything is done; after all others it
 * may be done. */
static bool was_not_done(int code)
{
    switch (code) {
        case 3:  /* The request is wrong. */
        case 5:  /* Something is not there. */
        case 7:  /* It is not allowed. */
        case 8:  /* There is no room. */
        case 9:  /* Not as things are. */
        case 11: /* A revision that is compacted, or is to come. */
        case 12: /* It cannot do this. */
        case 16: return true;
        default: return false;
    }
}

static enum sl_etcd_outcome refusal(const struct sl_etcd_call *call, int *status)
{
    *status = SLUICE_EIO;
    if (says(call, "lease not found")) return SL_ETCD_OUTCOME_NO_LEASE;
    if (says(call, "too many requests")) return SL_ETCD_OUTCOME_BUSY;
    if (says(call, "space exceeded")) *status = SLUICE_ENOSPC;
    if (says(call, "too large") || says(call, "larger than max"))
        *status = SLUICE_ETOOBIG;
    if (says(call, "too many operations")) *status = SLUICE_EWRITES;
    return SL_ETCD_OUTCOME_REFUSED;
}

void sl_etcd_note_silence(struct sl_storage *e, sl_ms since)
{
    if (e->silent_since == 0) e->silent_since = since;
}

static void note_trouble(struct sl_storage *e, const struct sl_etcd_task *a)
{
    const struct sl_etcd_call *call = &a->call;
    if (call->too_big || e->format == SL_ETCD_FORMAT_OTHER) return;
    e->write_trouble = a->writes;
    if (call->answer.n > 0)
        snprintf(e->trouble, sizeof e->trouble, "etcd: %.*s",
                 (int)(call->answer.n < 200 ? call->answer.n : 200), call->answer.at);
    else
        snprintf(e->trouble, sizeof e->trouble, "etcd: it answers with HTTP's error %d",
                 call->http_status);
}

enum sl_etcd_outcome sl_etcd_outcome_of(struct sl_etcd_task *a, int *status)
{
    struct sl_etcd_call *call = &a->call;
    struct sl_storage *e = a->e;
    a->flying = false;
    *status = SLUICE_EIO;
    if (call->fate != SL_ETCD_ANSWERED) {
        sl_etcd_note_silence(e, sl_etcd_now());
        return call->fate == SL_ETCD_UNSENT ? SL_ETCD_OUTCOME_UNSENT
                                            : SL_ETCD_OUTCOME_UNKNOWN;
    }
    if (call->code == 0 && call->http_status == 200 && !call->too_big) {
        e->silent_since = 0;
        if (a->writes && !a->looks) e->write_trouble = false;
        if (e->format != SL_ETCD_FORMAT_OTHER && !e->write_trouble)
            e->trouble[0] = '\0';
        return SL_ETCD_OUTCOME_ANSWER;
    }
    note_trouble(e, a);
    if (!was_not_done(call->code)) {
        if (!call->too_big) sl_etcd_note_silence(e, sl_etcd_now());
        return SL_ETCD_OUTCOME_UNKNOWN;
    }
    e->silent_since = 0;
    return refusal(call, status);
}

bool sl_etcd_is_silent(const struct sl_storage *e, sl_ms now)
{
    sl_ms patience = e->settings.answer_ms * e->members, since = e->silent_since;
    if (since == 0) return false;
    if (e->hurry_since != 0) {
        if (since < e->hurry_since) since = e->hurry_since;
        if (patience > SL_HURRY_MS) patience = SL_HURRY_MS;
    }
    return now >= since + patience;
}

bool sl_etcd_format_is_ours(struct sl_storage *e, const json_t *keys)
{
    char words[32];
    bool was_other = e->format == SL_ETCD_FORMAT_OTHER;
    sl_etcd_json_text(json_array_get(keys, 0), words, sizeof words);
    if (json_array_size(keys) == 0) e->format = SL_ETCD_FORMAT_NONE;
    else if (strcmp(words, SL_ETCD_FORMAT) == 0) e->format = SL_ETCD_FORMAT_OURS;
    else e->format = SL_ETCD_FORMAT_OTHER;
    if (e->format != SL_ETCD_FORMAT_OTHER) {
        if (was_other) e->trouble[0] = '\0';
        return true;
    }
    snprintf(e->trouble, sizeof e->trouble,
             "etcd: what is under the prefix %.*s has the format %s, and this Sluice "
             "knows %s; give it another prefix, or another version of Sluice",
             (int)e->prefix.n, e->prefix.at, words, SL_ETCD_FORMAT);
    return false;
}

/* --- Work ----------------------------------------------------------------------------- */

static void woken(void *owner)
{
    (void)owner; /* sl_storage_work() looks at everything. */
}

void sl_etcd_wake(struct sl_storage *e, sl_ms at)
{
    if (at < e->wake_at) e->wake_at = at;
}

static void pump(struct sl_storage *e)
{
    sl_ms now = sl_etcd_now();
    e->wake_at = SL_NEVER;
    sl_etcd_lease_pump(e, now);
    sl_etcd_groups_pump(e, now);
    sl_etcd_term_pump(e, now);
    sl_etcd_reads_pump(e, now);
    sl_etcd_watching_pump(e, now);
    if (e->hurry_since != 0) {
        sl_etcd_groups_hurry(e, now);
        sl_etcd_term_hurry(e, now);
        sl_etcd_reads_hurry(e, now);
    }
    if (e->stats.waiting > 0 && (e->silent_since != 0 || e->hurry_since != 0))
        sl_etcd_wake(e, now + TICK_MS);
    sl_etcd_wake_at(e->client, e->wake_at, woken, e);
}

/* So that there is work. */
static void ring(struct sl_storage *e)
{
    eventfd_write(e->event, 1);
}

static void deliver(struct sl_storage *e, size_t most)
{
    while (most-- > 0 && !sl_list_empty(&e->done)) {
        struct sl_storage_op *op = sl_etcd_op_after(&e->done, NULL);
        void *value = (void *)op->result.value.at, *rows = (void *)op->result.rows;
        sl_list_remove(&op->place);
        e->stats.waiting--;
        op->done(op); /* Then it may be gone. */
        free(value);
        free(rows);
    }
}

static bool work(struct sl_storage *e, size_t most)
{
    eventfd_t n;
    bool more = true;
    if (sl_list_empty(
            &e->done)) { /* First what is done: what comes of it goes together. */
        eventfd_read(e->event, &n);
        more = sl_etcd_work(e->client, ANSWERS_AT_ONCE);
        pump(e);
    }
    deliver(e, most);
    bool undelivered = !sl_list_empty(&e->done);
    if (more || undelivered) ring(e);
    return undelivered;
}

static void submit(struct sl_storage *e, struct sl_storage_op *op)
{
    memset(&op->result, 0, sizeof op->result);
    e->stats.waiting++;
    switch (op->type) {
        case SL_STORAGE_CLAIM:
        case SL_STORAGE_COMMIT:
        case SL_STORAGE_BAR: sl_list_append(&e->writes, &op->place); break;
        case SL_STORAGE_RENEW: sl_list_append(&e->renewals, &op->place); break;
        case SL_STORAGE_READ_TERM:
        case SL_STORAGE_OUTCOME:
        case SL_STORAGE_READ:
        case SL_STORAGE_SCAN: sl_etcd_reads_submit(e, op); break;
    }
    ring(e); /* Those that are submitted together are sent together. */
}

static int fd_of(const struct sl_storage *e)
{
    return e->fd;
}

static void hurry(struct sl_storage *e)
{
    if (e->hurry_since == 0) e->hurry_since = sl_etcd_now();
    ring(e);
}

static void stats(struct sl_storage *e, struct sl_storage_stats *out)
{
    *out = e->stats;
}

static void watch(struct sl_storage *e,
                  void (*told)(void *owner, const struct sl_storage_term *reign),
                  void *owner)
{
    e->watching.told = told;
    e->watching.owner = owner;
    e->watching.tell = true;
    e->watching.look_at = 0;
    ring(e);
}

static const char *trouble(const struct sl_storage *e)
{
    return e->trouble[0] != '\0' ? e->trouble : sl_etcd_trouble(e->client);
}

/* --- Life ------------------------------------------------------------------------------ */

static void destroy(struct sl_storage *e)
{
    e->watching.told = NULL;
    sl_etcd_free(e->client);
    sl_etcd_groups_free(e);
    sl_etcd_term_free(e);
    sl_etcd_reads_free(e);
    sl_etcd_watching_free(e);
    sl_etcd_text_free(&e->lease.ask.body);
    if (e->event >= 0) close(e->event);
    if (e->fd >= 0) close(e->fd);
    free((char *)e->prefix.at);
    free(e);
}

static void close_engine(struct sl_storage *e)
{
    struct pollfd p = {e->fd, POLLIN, 0};
    e->watching.told = NULL;
    sl_etcd_unwatch(e->client);
    hurry(e);
    while (e->stats.waiting > 0) {
        poll(&p, 1, TICK_MS);
        work(e, SIZE_MAX);
    }
    destroy(e);
}

static const struct sl_storage_kind kind = {close_engine, submit, fd_of, work,
                                            hurry,        stats,  watch, trouble};

static bool add_to_poll(int fd, int what)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(fd, EPOLL_CTL_ADD, what, &event) == 0;
}

static bool start(struct sl_storage *e, const struct sl_etcd_settings *s, char *why,
                  size_t why_bytes)
{
    uint64_t nonce = 0;
    e->client = sl_etcd_new(s, why, why_bytes);
    if (e->client == NULL) return false;
    snprintf(why, why_bytes, "out of memory, or of descriptors");
    e->prefix = (struct sl_bytes){strdup(s->prefix), strlen(s->prefix)};
    e->fd = epoll_create1(EPOLL_CLOEXEC);
    e->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->prefix.at == NULL || e->fd < 0 || e->event < 0) return false;
    if (!add_to_poll(e->fd, e->event) || !add_to_poll(e->fd, sl_etcd_fd(e->client)))
        return false;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return false;
    snprintf(e->nonce, sizeof e->nonce, "%016llx", (unsigned long long)nonce);
    sl_etcd_lease_init(e);
    sl_etcd_term_init(e);
    sl_etcd_reads_init(e);
    sl_etcd_watching_init(e);
    return sl_etcd_groups_init(e) == SLUICE_OK;
}

/* False: why says it. */
static bool are_possible(const struct sl_etcd_settings *s, char *why, size_t why_bytes)
{
    why[0] = '\0';
    if (strlen(s->prefix) > SL_ETCD_PREFIX_MAX)
        snprintf(why, why_bytes, "etcd-prefix: more than %d bytes", SL_ETCD_PREFIX_MAX);
    if (s->ops_max < OPS_MIN)
        snprintf(why, why_bytes,
                 "etcd: a transaction of less than %d operations is of "
                 "no use; allow more (--max-txn-ops)",
                 OPS_MIN);
    if (s->request_bytes_max < REQUEST_BYTES_MIN)
        snprintf(why, why_bytes,
                 "etcd: a request of less than %zu bytes is of no use; "
                 "allow more (--max-request-bytes)",
                 REQUEST_BYTES_MIN);
    return why[0] == '\0';
}

struct sl_storage *sl_storage_open_etcd(const struct sl_etcd_settings *s, char *why,
                                        size_t why_bytes)
{
    if (!are_possible(s, why, why_bytes)) return NULL;
    struct sl_storage *e = calloc(1, sizeof *e);
    if (e == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return NULL;
    }
    e->head.kind = &kind;
    e->settings = *s;
    if (e->settings.group_max == 0) e->settings.group_max = 1;
    e->fd = e->event = -1;
    e->members = 1;
    for (const char *c = s->members; *c != '\0'; c++) e->members += *c == ',';
    struct sl_list *lists[] = {&e->writes, &e->renewals, &e->reads,
                               &e->scans,  &e->held,     &e->done};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) sl_list_init(lists[i]);
    if (start(e, s, why, why_bytes)) return e;
    destroy(e);
    return NULL;
}
