/* parts_notify.c - many waits: on a connection for each of them, and on one connection with NOTIFY.
 * Only Sluice: Redis has no waiters. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "load.h"
#include "parts.h"
#include "process.h"
#include "programs.h"
#include "times.h"

#define WAITS_EACH 10u /* For one key. */
#define FILES_SPARE 200u
#define STALL_MS 60000
#define COMMAND_BYTES 220u
#define BATCH_BYTES 32768u
#define ID_KEY_DIGITS \
    6u /* An id has 16 digits: the number of the key, and a serial number. */

/* The clients of one run: one connection, or one for each wait. */
struct waits {
    struct subject *subject;
    bool notify;
    uint32_t keys;
    int epoll;
    struct line *lines;
    uint32_t n;
    int64_t *released_ns; /* By key: when its last holder sent RELEASE. */
    uint64_t serial;
    char *batch; /* Commands that were not sent yet. */
    size_t batch_bytes;
    uint64_t grants;
    struct times handovers; /* From RELEASE to the next grant of the key. */
};

static size_t write_acquire(struct waits *w, char *out, uint32_t key)
{
    char name[LOAD_KEY_BYTES + 1];
    load_key(name, key);
    int n = snprintf(
        out, COMMAND_BYTES,
        "*%u\r\n$7\r\nACQUIRE\r\n$17\r\n%s\r\n$4\r\nWAIT\r\n$6\r\n600000\r\n"
        "$5\r\nLEASE\r\n$6\r\n600000\r\n",
        w->notify ? 9u : 6u, name);
    if (w->notify)
        n += snprintf(out + n, COMMAND_BYTES - (size_t)n,
                      "$7\r\nREQUEST\r\n$16\r\n%06" PRIu32 "%010" PRIu64
                      "\r\n$6\r\nNOTIFY\r\n",
                      key, ++w->serial);
    return (size_t)n;
}

static const char *send_batch(struct waits *w, const struct line *l)
{
    const char *wrong = line_send(l->fd, w->batch, w->batch_bytes);
    w->batch_bytes = 0;
    return wrong;
}

/* The holder of a key releases it, and joins the queue again. */
static const char *pass_on(struct waits *w, const struct line *l, uint32_t key,
                           int64_t fence)
{
    char name[LOAD_KEY_BYTES + 1];
    int64_t now = now_ns();
    if (w->released_ns[key] != 0) times_add(&w->handovers, now - w->released_ns[key]);
    w->released_ns[key] = now;
    w->grants++;
    load_key(name, key);
    char *out = w->batch + w->batch_bytes;
    int n = snprintf(out, COMMAND_BYTES,
                     "*3\r\n$7\r\nRELEASE\r\n$17\r\n%s\r\n$16\r\n%016" PRId64 "\r\n",
                     name, fence);
    w->batch_bytes += (size_t)n + write_acquire(w, out + n, key);
    return w->batch_bytes < BATCH_BYTES ? NULL : send_batch(w, l);
}

/* Read the key and the fence from the outcome of a request with NOTIFY. */
static bool read_outcome(const char *reply, size_t n, uint32_t *key, int64_t *fence)
{
    static const char word[] = "outcome\r\n$16\r\n";
    const char *id = memmem(reply, n, word, sizeof word - 1);
    if (id == NULL) return false;
    id += sizeof word - 1;
    *key = 0;
    for (uint32_t i = 0; i < ID_KEY_DIGITS; i++)
        *key = *key * 10 + (uint32_t)(id[i] - '0');
    const char *grant = memchr(id, '*', (size_t)(reply + n - id));
    return grant != NULL && grant[1] == '6' &&
           reply_end(grant, reply + n, fence) == reply + n;
}

/* Handle all replies that have arrived on a connection. */
static const char *take(struct waits *w, struct line *l, uint32_t index)
{
    const char *reply, *wrong;
    size_t n;
    while ((wrong = line_reply(l, 0, &reply, &n)) == NULL && n > 0) {
        uint32_t key = index / WAITS_EACH;
        int64_t fence = 0;
        if (reply[0] == ':' || reply[0] == '+') continue; /* RELEASE, or QUEUED. */
        if (w->notify ? !read_outcome(reply, n, &key, &fence)
                      : reply[0] != '*' || reply[1] != '5' ||
                            reply_end(reply, reply + n, &fence) == NULL)
            return "a waiter was rejected";
        wrong = pass_on(w, l, key, fence);
        if (wrong != NULL) return wrong;
    }
    if (wrong == NULL && w->batch_bytes > 0) wrong = send_batch(w, l);
    return wrong;
}

static const char *run_for(struct waits *w, int64_t run_ns)
{
    struct epoll_event events[64];
    int64_t until = now_ns() + run_ns;
    w->grants = 0;
    times_clear(&w->handovers);
    while (now_ns() < until) {
        int n = epoll_wait(w->epoll, events, 64, STALL_MS);
        if (interrupted()) return "interrupted";
        if (n == 0) return "a waiter was not granted";
        for (int i = 0; i < n; i++) {
            const char *wrong = take(w, &w->lines[events[i].data.u32],
                                     events[i].data.u32);
            if (wrong != NULL) return wrong;
        }
    }
    return NULL;
}

static void waits_close(struct waits *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        close(w->lines[i].fd);
        free(w->lines[i].bytes);
    }
    if (w->epoll >= 0) close(w->epoll);
    free(w->lines);
    free(w->released_ns);
    free(w->batch);
}

static const char *connect_one(struct waits *w)
{
    struct line *l = &w->lines[w->n];
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = w->n};
    const char *reply;
    size_t n;
    l->fd = line_connect(w->subject->port);
    if (l->fd < 0) return strerror(errno);
    w->n++;
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, l->fd, &e) != 0) return strerror(errno);
    if (w->notify) {
        const char *wrong = line_ask(l, "HELLO 3", &reply, &n);
        /* The reply is a map, which line_reply() does not read as a whole. */
        for (int more = 0; wrong == NULL && more < 14; more++)
            wrong = line_reply(l, STALL_MS, &reply, &n);
        return wrong;
    }
    /* Let the server accept it: its queue of new connections is short. */
    return w->n % 64 != 0 ? NULL
                          : line_ask(&w->subject->line, "*1\r\n$4\r\nPING", &reply, &n);
}

/* The holder keeps all keys until all clients wait. */
static const char *waits_open(struct waits *w)
{
    char text[COMMAND_BYTES], command[64], name[LOAD_KEY_BYTES + 1];
    uint32_t all = w->keys * WAITS_EACH, lines = w->notify ? 1 : all;
    const struct load_fill hold = {.to = w->keys, .lease_ms = 86400000};
    const char *reply, *wrong = load_fill(w->subject, &hold);
    size_t n;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->lines = calloc(lines, sizeof *w->lines);
    w->released_ns = calloc(w->keys, sizeof *w->released_ns);
    w->batch = malloc(BATCH_BYTES + 2 * COMMAND_BYTES);
    if (w->epoll < 0 || w->lines == NULL || w->released_ns == NULL || w->batch == NULL)
        return "no memory";
    for (uint32_t i = 0; i < lines && wrong == NULL; i++) wrong = connect_one(w);
    for (uint32_t i = 0; i < all && wrong == NULL; i++) {
        size_t bytes = write_acquire(w, text, i / WAITS_EACH);
        wrong = line_send(w->lines[w->notify ? 0 : i].fd, text, bytes);
    }
    const char *waiting = w->notify ? "notify_waits" : "blocked_clients";
    for (int64_t until = now_ns() + STALL_MS * 1000000ll; wrong == NULL; usleep(5000)) {
        if (subject_info(w->subject, "clients", waiting) >= all) break;
        if (now_ns() > until) wrong = "not all clients wait";
    }
    for (uint32_t i = 0; i < w->keys && wrong == NULL; i++) {
        load_key(name, i);
        snprintf(command, sizeof command, "RELEASE %s", name);
        wrong = line_ask(&w->subject->line, command, &reply, &n);
    }
    return wrong;
}

static const char *measure(struct bench *b, struct table *cpu, struct table *handover,
                           uint32_t column, uint32_t keys)
{
    static struct waits w; /* Its histogram is large. */
    struct subject s = {0};
    char most[16];
    const char *options[] = {"--connections-max", most, NULL};
    snprintf(most, sizeof most, "%u", keys * WAITS_EACH + 50);
    progress("notify: %s", cpu->column_names[column]);
    const char *wrong = subject_start(&s, OURS, &b->programs, options);
    w = (struct waits){.subject = &s, .notify = column == 0, .keys = keys, .epoll = -1};
    if (wrong == NULL) wrong = waits_open(&w);
    if (wrong == NULL) wrong = run_for(&w, b->run_ns / 2);
    for (uint32_t i = 0; i < b->rounds && wrong == NULL; i++) {
        struct subject_time before = subject_time(&s);
        wrong = run_for(&w, b->run_ns);
        struct subject_time after = subject_time(&s);
        if (wrong != NULL || w.grants == 0) continue;
        b->spent.cpu_ns += after.cpu_ns - before.cpu_ns;
        b->spent.kept_off_ns += after.kept_off_ns - before.kept_off_ns;
        cell_add(&cpu->cells[0][column],
                 (double)(after.cpu_ns - before.cpu_ns) / (double)w.grants);
        cell_add(&handover->cells[0][column], times_us(&w.handovers, 0.5));
        cell_add(&handover->cells[1][column], times_us(&w.handovers, 0.99));
    }
    waits_close(&w);
    subject_stop(&s);
    return wrong;
}

const char *part_notify(struct bench *b)
{
    static const char *const columns[] = {"one connection", "one for each wait"};
    uint32_t keys = b->quick ? 20 : 1000;
    if (keys * WAITS_EACH + FILES_SPARE > b->files_max)
        keys = b->files_max > FILES_SPARE + WAITS_EACH
                   ? (b->files_max - FILES_SPARE) / WAITS_EACH
                   : 1;
    struct table *cpu = sheet_table(b->sheet, "notify", "notify",
                                    "Many waits, many keys", "ns of CPU per pair");
    struct table *handover = sheet_table(b->sheet, "notify", "handover",
                                         "From RELEASE to the next grant", "us");
    cpu->columns = handover->columns = 2;
    for (uint32_t i = 0; i < 2; i++)
        cpu->column_names[i] = handover->column_names[i] = columns[i];
    table_row(cpu, "%u waits each", WAITS_EACH);
    table_row(handover, "median");
    table_row(handover, "99 %%");
    snprintf(
        cpu->note, sizeof cpu->note,
        "%u keys, %u waits for each: on one connection with NOTIFY, and on a "
        "connection for each wait. The holder releases, and joins the queue again.",
        keys, WAITS_EACH);
    sheet_goal(b->sheet, "notify_to_connections", &cpu->cells[0][0], &cpu->cells[0][1],
               0, 0.3, "CPU per pair, one connection / one for each wait");
    const char *wrong = measure(b, cpu, handover, 0, keys);
    return wrong != NULL ? wrong : measure(b, cpu, handover, 1, keys);
}
