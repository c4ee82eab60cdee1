/* etcd.c - the storage of a cluster on etcd: its queues, opening and closing. Each
 * operation becomes a part of an etcd transaction; etcd_internal.h has an overview. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "storage/etcd/etcd_internal.h"

#define OPS_MIN 16
#define REQUEST_BYTES_MIN ((size_t)16 << 10)
#define TICK_MS 100 /* Used while etcd is silent or the storage is in a hurry. */
#define ANSWERS_AT_ONCE 256

static struct sl_etcd *etcd_of(const struct sl_storage *s)
{
    return sl_container_of(s, struct sl_etcd, base);
}

/* --- Operations -------------------------------------------------------------- */

void sl_etcd_op_done(struct sl_etcd *e, struct sl_storage_op *op, int status)
{
    op->result.status = status;
    sl_list_remove(&op->place);
    sl_list_append(&e->done, &op->place);
}

void sl_etcd_op_fail(struct sl_etcd *e, struct sl_storage_op *op, int status)
{
    assert(status != SLUICE_OK);
    memset(&op->result, 0, sizeof op->result);
    e->stats.errors++;
    sl_etcd_op_done(e, op, status);
}

void sl_etcd_ops_fail(struct sl_etcd *e, struct sl_list *ops, int status)
{
    struct sl_storage_op *op;
    while ((op = sl_storage_op_after(ops, NULL)) != NULL)
        sl_etcd_op_fail(e, op, status);
}

void sl_etcd_note_revision(struct sl_etcd *e, uint64_t revision)
{
    if (revision > e->stats.revision) e->stats.revision = revision;
}

void sl_etcd_note_term(struct sl_etcd *e, const struct sl_storage_term *term)
{
    if (term->term < e->seen.term) return;
    e->seen = *term;
    e->stats.term = term->term;
}

/* --- Invariants -------------------------------------------------------------- */

static void check_task(const struct sl_etcd *e, const struct sl_etcd_task *a)
{
    assert(a->e == e);
    assert(a->busy || (!a->in_flight && !a->lost && !a->abandoned));
    assert(a->busy || a->retry_at_ms == SL_NEVER);
    assert(!a->in_flight || a->retry_at_ms == SL_NEVER);
}

/* Check that all operations of a group belong to its term. Returns their number. */
static size_t check_group(const struct sl_etcd *e, const struct sl_etcd_group *g)
{
    size_t n = sl_storage_count_ops(&g->ops), later = sl_storage_count_ops(&g->later);
    check_task(e, &g->task);
    assert(g->task.busy || (n == 0 && later == 0 && g->name_count == 0));
    assert(g->task.abandoned || n == g->count);
    assert(!g->inner || g->count != 1 || g->task.abandoned);
    for (const struct sl_storage_op *op = NULL;
         (op = sl_storage_op_after(&g->ops, op)) != NULL;)
        assert(op->term == g->term);
    return n + later;
}

static void check(struct sl_storage *s)
{
    const struct sl_etcd *e = etcd_of(s);
    const struct sl_list *lists[] = {&e->writes, &e->renewals, &e->reads,
                                     &e->scans,  &e->held,     &e->done};
    size_t waiting = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        waiting += sl_storage_count_ops(lists[i]);
    for (uint32_t i = 0; i < e->slot_count; i++)
        waiting += check_group(e, &e->slots[i]);
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        const struct sl_etcd_reading *r = &e->readings[i];
        const struct sl_etcd_scanning *scan = &e->scannings[i];
        check_task(e, &r->task);
        check_task(e, &scan->task);
        assert(r->task.busy || sl_list_empty(&r->ops));
        assert(scan->task.busy || scan->op == NULL);
        waiting += sl_storage_count_ops(&r->ops) + (scan->op != NULL ? 1 : 0);
    }
    check_task(e, &e->claim.task);
    check_task(e, &e->renewal.task);
    check_task(e, &e->lease.task);
    check_task(e, &e->watching.task);
    assert(e->claim.task.busy || e->claim.op == NULL);
    assert(e->renewal.task.busy || e->renewal.op == NULL);
    waiting += (e->claim.op != NULL ? 1 : 0) + (e->renewal.op != NULL ? 1u : 0u);
    /* Every operation is in exactly one list until it is delivered. */
    assert(waiting == e->stats.waiting);
    assert(e->stats.term == e->seen.term);
}

/* --- Work -------------------------------------------------------------------- */

static void on_wake(void *owner)
{
    (void)owner; /* work() handles all queues anyway. */
}

void sl_etcd_wake(struct sl_etcd *e, sl_ms at_ms)
{
    if (at_ms < e->wake_at_ms) e->wake_at_ms = at_ms;
}

static void pump(struct sl_etcd *e)
{
    sl_ms now = sl_etcd_now();
    e->wake_at_ms = SL_NEVER;
    sl_etcd_lease_pump(e, now);
    sl_etcd_groups_pump(e, now);
    sl_etcd_term_pump(e, now);
    sl_etcd_reads_pump(e, now);
    sl_etcd_scans_pump(e, now);
    sl_etcd_watching_pump(e, now);
    if (e->hurry_since_ms != 0) {
        sl_etcd_groups_hurry(e, now);
        sl_etcd_term_hurry(e, now);
        sl_etcd_reads_hurry(e, now);
        sl_etcd_scans_hurry(e, now);
    }
    if (e->stats.waiting > 0 && (e->silent_since_ms != 0 || e->hurry_since_ms != 0))
        sl_etcd_wake(e, now + TICK_MS);
    sl_etcd_client_wake_at(e->client, e->wake_at_ms, on_wake, e);
}

/* Make the descriptor readable. */
static void ring(struct sl_etcd *e)
{
    eventfd_write(e->event, 1);
}

static void deliver(struct sl_etcd *e, size_t most)
{
    struct sl_storage_op *op;
    while (most-- > 0 && (op = sl_storage_op_after(&e->done, NULL)) != NULL) {
        sl_list_remove(&op->place);
        assert(e->stats.waiting > 0);
        e->stats.waiting--;
        sl_storage_deliver(op);
    }
}

static bool work(struct sl_storage *s, size_t most)
{
    struct sl_etcd *e = etcd_of(s);
    eventfd_t n;
    bool more = true;
    /* Deliver finished operations before sending new ones, so that operations that
     * their callbacks submit are grouped. */
    if (sl_list_empty(&e->done)) {
        eventfd_read(e->event, &n);
        more = sl_etcd_client_work(e->client, ANSWERS_AT_ONCE);
        pump(e);
    }
    deliver(e, most);
    bool undelivered = !sl_list_empty(&e->done);
    if (more || undelivered) ring(e);
    return undelivered;
}

static void submit(struct sl_storage *s, struct sl_storage_op *op)
{
    struct sl_etcd *e = etcd_of(s);
    memset(&op->result, 0, sizeof op->result);
    e->stats.waiting++;
    switch (op->type) {
        case SL_STORAGE_CLAIM:
        case SL_STORAGE_COMMIT:
        case SL_STORAGE_BAR:
        case SL_STORAGE_RECORD: sl_list_append(&e->writes, &op->place); break;
        case SL_STORAGE_RENEW:
        case SL_STORAGE_RESIGN: sl_list_append(&e->renewals, &op->place); break;
        case SL_STORAGE_READ_TERM:
        case SL_STORAGE_OUTCOME:
        case SL_STORAGE_READ:
        case SL_STORAGE_SCAN:
        case SL_STORAGE_JOURNAL: sl_etcd_reads_submit(e, op); break;
    }
    ring(e); /* Operations that are submitted together are sent together. */
}

static int fd_of(const struct sl_storage *s)
{
    return etcd_of(s)->fd;
}

static void hurry(struct sl_storage *s)
{
    struct sl_etcd *e = etcd_of(s);
    if (e->hurry_since_ms == 0) e->hurry_since_ms = sl_etcd_now();
    ring(e);
}

static void stats_of(struct sl_storage *s, struct sl_storage_stats *out)
{
    *out = etcd_of(s)->stats;
}

static void record_limits(const struct sl_storage *s,
                          struct sl_storage_record_limits *out)
{
    sl_etcd_record_limits(etcd_of(s), out);
}

static void watch(struct sl_storage *s,
                  void (*changed)(void *owner, const struct sl_storage_term *term),
                  void *owner)
{
    struct sl_etcd *e = etcd_of(s);
    e->watching.changed = changed;
    e->watching.owner = owner;
    e->watching.report = true;
    e->watching.poll_at_ms = 0;
    ring(e);
}

static const char *trouble(const struct sl_storage *s)
{
    const struct sl_etcd *e = etcd_of(s);
    return e->trouble[0] != '\0' ? e->trouble : sl_etcd_client_trouble(e->client);
}

/* --- Opening and closing ----------------------------------------------------- */

static void destroy(struct sl_etcd *e)
{
    e->watching.changed = NULL;
    sl_etcd_client_free(e->client);
    sl_etcd_groups_free(e);
    sl_etcd_term_free(e);
    sl_etcd_reads_free(e);
    sl_etcd_scans_free(e);
    sl_etcd_watching_free(e);
    sl_etcd_text_free(&e->lease.task.body);
    if (e->event >= 0) close(e->event);
    if (e->fd >= 0) close(e->fd);
    free((char *)e->prefix.at);
    free(e);
}

static void close_etcd(struct sl_storage *s)
{
    struct sl_etcd *e = etcd_of(s);
    struct pollfd p = {e->fd, POLLIN, 0};
    e->watching.changed = NULL;
    sl_etcd_client_unwatch(e->client);
    hurry(s);
    while (e->stats.waiting > 0) {
        poll(&p, 1, TICK_MS);
        work(s, SIZE_MAX);
    }
    destroy(e);
}

static const struct sl_storage_kind kind = {
    .close = close_etcd,
    .submit = submit,
    .fd = fd_of,
    .work = work,
    .hurry = hurry,
    .stats = stats_of,
    .record_limits = record_limits,
    .watch = watch,
    .trouble = trouble,
    .check = check,
};

static bool add_to_poll(int fd, int what)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(fd, EPOLL_CTL_ADD, what, &event) == 0;
}

static bool start(struct sl_etcd *e, const struct sl_etcd_settings *s, char *why,
                  size_t why_bytes)
{
    uint64_t nonce = 0;
    e->client = sl_etcd_client_new(s, why, why_bytes);
    if (e->client == NULL) return false;
    snprintf(why, why_bytes, "out of memory or file descriptors");
    e->prefix = (struct sl_bytes){strdup(s->prefix), strlen(s->prefix)};
    e->fd = epoll_create1(EPOLL_CLOEXEC);
    e->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->prefix.at == NULL || e->fd < 0 || e->event < 0) return false;
    if (!add_to_poll(e->fd, e->event) ||
        !add_to_poll(e->fd, sl_etcd_client_fd(e->client)))
        return false;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return false;
    snprintf(e->nonce, sizeof e->nonce, "%016llx", (unsigned long long)nonce);
    sl_etcd_lease_init(e);
    sl_etcd_term_init(e);
    sl_etcd_reads_init(e);
    sl_etcd_scans_init(e);
    sl_etcd_watching_init(e);
    return sl_etcd_groups_init(e) == SLUICE_OK;
}

/* Check the settings. On failure, returns false and writes the reason to `why`. */
static bool are_valid(const struct sl_etcd_settings *s, char *why, size_t why_bytes)
{
    why[0] = '\0';
    if (strlen(s->prefix) > SL_ETCD_PREFIX_MAX)
        snprintf(why, why_bytes, "etcd-prefix: the limit is %d bytes",
                 SL_ETCD_PREFIX_MAX);
    if (s->ops_max < OPS_MIN)
        snprintf(
            why, why_bytes,
            "etcd-ops-max: must be at least %d (etcd's own limit is --max-txn-ops)",
            OPS_MIN);
    if (s->request_bytes_max < REQUEST_BYTES_MIN)
        snprintf(why, why_bytes,
                 "etcd-request-bytes-max: must be at least %zu (etcd's own limit is "
                 "--max-request-bytes)",
                 REQUEST_BYTES_MIN);
    return why[0] == '\0';
}

struct sl_storage *sl_storage_open_etcd(const struct sl_etcd_settings *s, char *why,
                                        size_t why_bytes)
{
    assert(s->members != NULL && s->prefix != NULL && why_bytes > 0);
    if (!are_valid(s, why, why_bytes)) return NULL;
    struct sl_etcd *e = calloc(1, sizeof *e);
    if (e == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return NULL;
    }
    e->base.kind = &kind;
    e->settings = *s;
    if (e->settings.group_max == 0) e->settings.group_max = 1;
    e->fd = e->event = -1;
    e->members = 1;
    for (const char *c = s->members; *c != '\0'; c++) e->members += *c == ',';
    struct sl_list *lists[] = {&e->writes, &e->renewals, &e->reads,
                               &e->scans,  &e->held,     &e->done};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) sl_list_init(lists[i]);
    if (start(e, s, why, why_bytes)) return &e->base;
    destroy(e);
    return NULL;
}
