/* parts_waiting.c - a million leases that expire at once, and many waiters. Only
 * Sluice: Redis has no waiters. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"
#include "parts.h"
#include "process.h"
#include "programs.h"

#define FILES_SPARE 200u /* Open files that are not connections of waiters. */
#define STALL_MS 60000
#define WAIT_MS 600000

/* ---- connections that wait ---- */

struct crowd {
    struct subject *subject;
    int epoll;
    uint32_t n;
    struct line *lines;
};

static uint32_t waiters_that_fit(const struct bench *b, uint32_t wish)
{
    uint32_t most = b->files_max > FILES_SPARE ? b->files_max - FILES_SPARE : 1;
    return wish < most ? wish : most;
}

static void crowd_close(struct crowd *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        close(c->lines[i].fd);
        free(c->lines[i].bytes);
    }
    if (c->epoll >= 0) close(c->epoll);
    free(c->lines);
    *c = (struct crowd){.epoll = -1};
}

/* Let the server accept them: its queue of new connections is short. */
static const char *crowd_breathe(struct crowd *c)
{
    const char *reply;
    size_t n;
    return line_ask(&c->subject->line, "*1\r\n$4\r\nPING", &reply, &n);
}

static const char *crowd_join(struct crowd *c, uint64_t key)
{
    char name[LOAD_KEY_BYTES + 1], text[200];
    struct line *l = &c->lines[c->n];
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
    l->fd = line_connect(c->subject->port);
    if (l->fd < 0) return strerror(errno);
    c->n++;
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->fd, &e) != 0) return strerror(errno);
    load_key(name, key);
    int n = snprintf(text, sizeof text, "ACQUIRE %s WAIT %d LEASE %d\r\n", name,
                     WAIT_MS, WAIT_MS);
    return line_send(l->fd, text, (size_t)n);
}

/* Waiter i waits for key i * step + first. */
static const char *crowd_open(struct crowd *c, struct subject *s, uint32_t n,
                              uint64_t first, uint64_t step)
{
    const char *wrong = NULL;
    *c = (struct crowd){.subject = s, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    c->lines = calloc(n, sizeof *c->lines);
    if (c->epoll < 0 || c->lines == NULL) return "no memory";
    for (uint32_t i = 0; i < n && wrong == NULL; i++) {
        wrong = crowd_join(c, first + i * step);
        if (wrong == NULL && i % 64 == 63) wrong = crowd_breathe(c);
    }
    /* Wait until INFO reports all of them as waiting. */
    for (int64_t until = now_ns() + STALL_MS * 1000000ll; wrong == NULL;) {
        int64_t blocked = subject_info(s, "clients", "blocked_clients");
        if (blocked >= (int64_t)n) break;
        if (blocked < 0) wrong = "INFO has no blocked_clients";
        else if (now_ns() > until) wrong = "not all clients wait";
        usleep(5000);
    }
    return wrong;
}

/* Read replies until `wanted` have arrived. */
static const char *crowd_replies(struct crowd *c, uint64_t wanted)
{
    struct epoll_event events[64];
    while (wanted > 0) {
        int n = epoll_wait(c->epoll, events, 64, STALL_MS);
        if (interrupted()) return "interrupted";
        if (n == 0) return "a waiter was not granted";
        for (int i = 0; i < n; i++) {
            const char *reply;
            size_t bytes;
            const char *wrong = line_reply(events[i].data.ptr, 0, &reply, &bytes);
            if (wrong != NULL) return wrong;
            if (bytes == 0) continue;
            if (reply[0] != '*' || reply[1] != '5') return "a waiter was rejected";
            wanted--;
        }
    }
    return NULL;
}

/* ---- a million leases expire ---- */

/* A subscriber, and the number of its events. */
struct listener {
    struct line line;
    const char *command; /* Its SUBSCRIBE command. */
    uint64_t messages;
    bool closed;
};

static const char *listener_open(struct listener *l, const struct subject *s,
                                 const char *command)
{
    const char *reply;
    size_t n;
    *l = (struct listener){.command = command};
    l->line.fd = line_connect(s->port);
    if (l->line.fd < 0) return strerror(errno);
    return line_ask(&l->line, command, &reply, &n);
}

/* Read all events that have arrived. The server may disconnect a subscriber that
 * does not keep up; that is counted and is not an error. */
static void listener_take(struct listener *l)
{
    const char *reply;
    size_t n = 1;
    while (!l->closed && n > 0) {
        l->closed = line_reply(&l->line, 0, &reply, &n) != NULL;
        if (!l->closed && n > 0) l->messages++;
    }
}

enum { EXPIRING, SETTING_UP, QUIET, CPU_EACH, LASTED, GRANTED, SENT, TURN_ROWS };

/* Wait until all leases have expired, according to INFO. Send INFO rarely, since it
 * costs a turn too. */
static const char *ends_wait(struct subject *s, struct listener *l, int64_t expiries,
                             int64_t end_ns, struct cell *lasted)
{
    int64_t until = now_ns() + 2 * (int64_t)STALL_MS * 1000000, asked = 0, now;
    while ((now = now_ns()) < until) {
        if (interrupted()) return "interrupted";
        listener_take(l);
        if (now < end_ns || now - asked < 50000000) {
            usleep(200);
            continue;
        }
        asked = now;
        int64_t seen = subject_info(s, "stats", "expiries");
        if (seen < 0) return "INFO has no expiries";
        if (seen < expiries) continue;
        cell_add(lasted, (double)(now_ns() - end_ns) / 1e6);
        return NULL;
    }
    return "the leases do not expire";
}

/* The parameters of a variant. */
struct ends_plan {
    uint64_t leases;
    uint32_t waiters;
    uint32_t column;
    const char *listen;
};

/* Wait until shortly before the leases expire, and read the longest turn of the idle
 * server for comparison. The window of INFO is 10 to 20 s, so it no longer includes
 * the set-up. A quick run does not wait, and reads the longest turn since the start. */
static const char *ends_quiet(struct subject *s, int64_t end_ns, const char *name,
                              struct cell *quiet)
{
    while (now_ns() < end_ns - 300000000) {
        if (interrupted()) return "interrupted";
        usleep(20000);
    }
    int64_t us = subject_info(s, "latency", name);
    if (us < 0) return "INFO has no turns of the event loop";
    cell_add(quiet, (double)us);
    return NULL;
}

static const char *ends_measure(struct bench *b, struct table *t, struct subject *s,
                                const struct ends_plan *p, struct crowd *c)
{
    struct listener l;
    const char *turn = b->quick ? "loop_cpu_us_max" : "loop_cpu_us_max_10s";
    int64_t end_ns = now_ns() + (b->quick ? 1500000000 : 32000000000);
    struct load_fill f = {.from = 0, .to = p->leases, .until_ns = end_ns};
    struct cell(*cells)[SHEET_COLUMNS_MAX] = t->cells;
    const char *wrong = load_fill(s, &f);
    if (wrong == NULL) wrong = crowd_open(c, s, p->waiters, 7, p->leases / p->waiters);
    if (wrong == NULL) wrong = listener_open(&l, s, p->listen);
    if (wrong != NULL) return wrong;
    cell_add(&cells[SETTING_UP][p->column],
             (double)subject_info(s, "latency", "loop_cpu_us_max"));
    progress("turns: all are connected, %.1f s before the leases expire",
             (double)(end_ns - now_ns()) / 1e9);
    wrong = ends_quiet(s, end_ns, turn, &cells[QUIET][p->column]);
    struct subject_time before = subject_time(s);
    if (wrong == NULL)
        wrong = ends_wait(s, &l, (int64_t)p->leases, end_ns, &cells[LASTED][p->column]);
    struct subject_time after = subject_time(s);
    if (wrong == NULL) {
        cell_add(&cells[EXPIRING][p->column], (double)subject_info(s, "latency", turn));
        cell_add(&cells[CPU_EACH][p->column],
                 (double)(after.cpu_ns - before.cpu_ns) / 1e3 / (double)p->leases);
        wrong = crowd_replies(c, p->waiters);
        listener_take(&l);
        cell_add(&cells[GRANTED][p->column], p->waiters);
        cell_add(&cells[SENT][p->column], (double)l.messages);
    }
    if (l.closed)
        snprintf(
            t->note + strlen(t->note), sizeof t->note - strlen(t->note),
            " With %.60s the server closed the connection of the subscriber, which "
            "did not keep up (output-bytes-max).",
            p->listen);
    close(l.line.fd);
    free(l.line.bytes);
    return wrong;
}

static const char *ends_variant(struct bench *b, struct table *t,
                                const struct ends_plan *p)
{
    char most[16];
    /* No keep-alive probes: if thousands of idle connections send them at once, the
     * kernel drops some on loopback and then closes the connections. */
    const char *options[] = {"--connections-max", most, "--keep-alive", "0", NULL};
    struct subject s = {0};
    struct crowd c = {.epoll = -1};
    snprintf(most, sizeof most, "%u", p->waiters + 50);
    progress("turns: %s", p->listen);
    const char *wrong = subject_start(&s, OURS, &b->programs, options);
    if (wrong == NULL) wrong = ends_measure(b, t, &s, p, &c);
    crowd_close(&c);
    subject_stop(&s);
    return wrong;
}

static const char *ends_in_table(struct bench *b, uint64_t leases, uint64_t waiters)
{
    struct table_ends e;
    const char *wrong = NULL;
    struct table *t = sheet_table(b->sheet, "turns", "table_turns", "The table alone",
                                  "CPU, in this process, without sockets");
    t->columns = 1;
    t->column_names[0] = "Sluice";
    uint32_t each = table_row(t, "ns of one effect");
    uint32_t longest = table_row(t, "us of 64, longest");
    snprintf(t->note, sizeof t->note,
             "%.0e leases expire at the same instant, and %.0e sessions wait for their "
             "keys. An effect is an expired lease or a grant.",
             (double)leases, (double)waiters);
    for (uint32_t i = 0; i < b->rounds && i < 3 && wrong == NULL; i++) {
        progress("turns: the table alone, round %u", i + 1);
        wrong = table_leases_end(leases, waiters, &e);
        if (wrong != NULL) break;
        cell_add(&t->cells[each][0], e.ns_per_effect);
        cell_add(&t->cells[longest][0], e.longest_us);
    }
    return wrong;
}

const char *part_turns(struct bench *b)
{
    uint64_t leases = b->quick ? 20000 : 1000000;
    uint32_t waiters = waiters_that_fit(b, b->quick ? 200 : 100000);
    struct ends_plan one = {leases, waiters, 0, "SUBSCRIBE lock:lock:000000000007"};
    struct ends_plan all = {leases, waiters, 1, "PSUBSCRIBE lock:*"};
    struct table *t = sheet_table(b->sheet, "turns", "turns", "Leases expire at once",
                                  "the CPU time of a turn is loop_cpu_us_max of INFO");
    t->columns = 2;
    t->column_names[0] = "one key subscribed";
    t->column_names[1] = "all keys subscribed";
    table_row(t, "us, longest, expiring");
    table_row(t, "us, longest, set-up");
    table_row(t, "us, longest, quiet");
    table_row(t, "us of CPU per lease");
    table_row(t, "ms until all expired");
    table_row(t, "waiters granted");
    table_row(t, "events sent");
    snprintf(
        t->note, sizeof t->note,
        "%.0e leases expire within a few ms. %u connections wait, each for a different "
        "one of the leased keys; the limit is %u files per process. Quiet: %s",
        (double)leases, waiters, b->files_max,
        b->quick
            ? "not measured with --quick; the longest is of all turns."
            : "the longest turn of the 10 to 20 s before the expiry. These turns can "
              "also count for the row of the expiry: if both values are the same, no "
              "turn that expired leases was longer.");
    sheet_goal(b->sheet, "turn_ending", &t->cells[EXPIRING][0], NULL, 0, 5000,
               "Longest turn while leases expire, us of CPU");
    sheet_goal(b->sheet, "turn_ending_all", &t->cells[EXPIRING][1], NULL, 0, 5000,
               "Longest turn while leases expire, all keys subscribed, us of CPU");
    const char *wrong = ends_variant(b, t, &one);
    if (wrong == NULL) wrong = ends_variant(b, t, &all);
    if (wrong == NULL) wrong = ends_in_table(b, leases, b->quick ? 1000 : 100000);
    return wrong;
}

/* ---- many wait for one key ---- */

/* A client that got the lock releases it and joins the queue again, in one write. */
static const char *pass_on(struct line *l, const char *key, uint64_t *grants)
{
    char text[200];
    const char *reply;
    size_t bytes;
    do {
        int64_t fence = 0;
        const char *wrong = line_reply(l, 0, &reply, &bytes);
        if (wrong != NULL) return wrong;
        if (bytes == 0) return NULL;
        if (reply[0] == ':') continue; /* Of the preceding release. */
        if (reply[0] != '*' || reply[1] != '5') return "a waiter was rejected";
        reply_end(reply, reply + bytes, &fence);
        int n = snprintf(text, sizeof text,
                         "*3\r\n$7\r\nRELEASE\r\n$17\r\n%s\r\n$16\r\n%016" PRId64 "\r\n"
                         "*6\r\n$7\r\nACQUIRE\r\n$17\r\n%s\r\n$4\r\nWAIT\r\n$6\r\n"
                         "600000\r\n$5\r\nLEASE\r\n$6\r\n600000\r\n",
                         key, fence, key);
        wrong = line_send(l->fd, text, (size_t)n);
        if (wrong != NULL) return wrong;
        ++*grants;
    } while (true);
}

static const char *pass_for(struct crowd *c, int64_t run_ns, const char *key,
                            uint64_t *grants)
{
    struct epoll_event events[64];
    int64_t until = now_ns() + run_ns;
    *grants = 0;
    while (now_ns() < until) {
        int n = epoll_wait(c->epoll, events, 64, STALL_MS);
        if (interrupted()) return "interrupted";
        if (n == 0) return "a waiter was not granted";
        for (int i = 0; i < n; i++) {
            const char *wrong = pass_on(events[i].data.ptr, key, grants);
            if (wrong != NULL) return wrong;
        }
    }
    return NULL;
}

static const char *line_of(struct bench *b, struct table *t, uint32_t row,
                           struct subject *s, uint32_t waiters, uint64_t number)
{
    char key[LOAD_KEY_BYTES + 1];
    uint64_t grants;
    struct crowd c = {.epoll = -1};
    load_key(key, number);
    struct load_fill hold = {.from = number, .to = number + 1, .lease_ms = 86400000};
    const char *reply;
    size_t n;
    const char *wrong = load_fill(s, &hold);
    if (wrong == NULL) wrong = crowd_open(&c, s, waiters, number, 0);
    char command[64];
    snprintf(command, sizeof command, "RELEASE %s", key);
    if (wrong == NULL) wrong = line_ask(&s->line, command, &reply, &n);
    if (wrong == NULL) wrong = pass_for(&c, b->run_ns / 2, key, &grants);
    for (uint32_t i = 0; i < b->rounds && wrong == NULL; i++) {
        struct subject_time before = subject_time(s);
        wrong = pass_for(&c, b->run_ns / 2, key, &grants);
        struct subject_time after = subject_time(s);
        if (wrong == NULL && grants > 0)
            cell_add(&t->cells[row][1],
                     (double)(after.cpu_ns - before.cpu_ns) / (double)grants);
    }
    crowd_close(&c);
    return wrong;
}

static const char *lines_of_table(struct bench *b, struct table *t)
{
    static const uint64_t sizes[] = {10, 1000, 100000};
    const char *wrong = NULL;
    for (uint32_t row = 0; row < 3; row++)
        for (uint32_t i = 0; i < b->rounds && wrong == NULL; i++) {
            double ns;
            uint64_t n = b->quick ? sizes[row] / 10 : sizes[row];
            wrong = table_grants(n, b->quick ? 20000 : 300000, &ns);
            if (wrong == NULL) cell_add(&t->cells[row][0], ns);
        }
    return wrong;
}

const char *part_waiters(struct bench *b)
{
    uint32_t fit = waiters_that_fit(b, b->quick ? 200 : 100000);
    const uint32_t sizes[] = {10, b->quick ? 50 : 1000, fit};
    char most[16];
    const char *options[] = {"--connections-max", most, NULL};
    struct subject s = {0};
    struct table *t = sheet_table(b->sheet, "waiters", "waiters",
                                  "Many waiters, one key", "ns of CPU per grant");
    t->columns = 2;
    t->column_names[0] = "the table alone";
    t->column_names[1] = "the server";
    table_row(t, "10 waiters");
    table_row(t, "%s waiters", b->quick ? "some" : "1e+03");
    table_row(t, "most waiters");
    snprintf(
        t->note, sizeof t->note,
        "The holder releases, the next waiter gets the lock, and the former holder "
        "joins the end of the queue. Most waiters: %s for the table alone, %u "
        "connections for the server (%u files per process).",
        b->quick ? "1e+04" : "1e+05", fit, b->files_max);
    sheet_goal(b->sheet, "grant_most_to_10", &t->cells[2][0], &t->cells[0][0], 0, 0,
               "CPU of a grant, the table alone, most waiters / 10 waiters");
    sheet_goal(b->sheet, "served_grant_most_to_10", &t->cells[2][1], &t->cells[0][1], 0,
               0, "CPU of a grant, the server, most waiters / 10 waiters");
    progress("waiters: the table alone");
    const char *wrong = lines_of_table(b, t);
    snprintf(most, sizeof most, "%u", fit + 50);
    if (wrong == NULL) wrong = subject_start(&s, OURS, &b->programs, options);
    for (uint32_t row = 0; row < 3 && wrong == NULL; row++) {
        progress("waiters: %u connections", sizes[row]);
        wrong = line_of(b, t, row, &s, sizes[row], row + 1);
    }
    subject_stop(&s);
    return wrong;
}
