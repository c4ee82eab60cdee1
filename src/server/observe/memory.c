#include "server/observe/memory.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/observe/log.h"

/* Do not close a connection that has less unread output than this. */
#define OUTPUT_BYTES_MIN 65536u
/* Do not close a connection whose partial command is smaller than this. */
#define PARTIAL_BYTES_MIN 16384u
#define MARGIN 16u /* Buffers may exceed memory-max by 1/16. */
#define TRIM_BYTES_MIN (16u << 20)
#define TRIM_AGAIN_MS 5000

/* --- Measuring memory use ---------------------------------------------------- */

size_t sl_memory_used(const struct server *s)
{
    size_t sessions = s->by_id.count * (sizeof(struct session) + SL_MALLOC_BYTES);
    size_t conns = s->conn_count * (sizeof(struct conn) + SL_MALLOC_BYTES);
    return sl_table_bytes(s->table) + sl_arbiters_bytes(s) +
           sl_pubsub_bytes(&s->pubsub) + sessions + conns + s->buffer_bytes;
}

/* --- Closing connections above the limit ------------------------------------- */

static size_t unread_output(const struct conn *c)
{
    return c->out.n + c->sending_bytes;
}

static size_t partial_command(const struct conn *c)
{
    return c->reader == NULL ? 0 : sl_resp_reader_bytes(c->reader);
}

static void close_one(struct conn *c, const char *why)
{
    static struct sl_log_kind kind;
    char address[128];
    struct server *s = c->server;
    s->stats.memory_closes++;
    sl_conn_address(c, address, sizeof address);
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN, why, "address", address, NULL);
    sl_conn_close(c, SL_WAS_CUT);
}

/* Close the connections with the most bytes (by bytes_of), and those with at least half as many,
 * until bytes_wanted are free. Returns the number of bytes freed. */
static size_t close_largest(struct server *s, size_t (*bytes_of)(const struct conn *c),
                            size_t bytes_min, size_t bytes_wanted, const char *why)
{
    size_t most = 0, freed = 0;
    struct sl_list *next;
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        const struct conn *c = sl_container_of(n, struct conn, all);
        if (c->proxy == NULL && bytes_of(c) > most) most = bytes_of(c);
    }
    if (most < bytes_min) return 0;
    for (struct sl_list *n = s->conns.next; n != &s->conns && freed < bytes_wanted;
         n = next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        size_t bytes = bytes_of(c);
        next = n->next;
        if (bytes < most / 2 || c->proxy != NULL) continue;
        freed += bytes;
        close_one(c, why);
    }
    return freed;
}

static void close_until_free(struct server *s, size_t bytes)
{
    size_t freed = 0, more;
    do {
        more = close_largest(
            s, unread_output, OUTPUT_BYTES_MIN, bytes - freed,
            "closed a connection: memory-max is exceeded, and the client does not "
            "read its output");
        freed += more;
    } while (more > 0 && freed < bytes);
    while (freed < bytes) {
        more = close_largest(
            s, partial_command, PARTIAL_BYTES_MIN, bytes - freed,
            "closed a connection: memory-max is exceeded, and the client sent "
            "only a part of a large command");
        if (more == 0) break;
        freed += more;
    }
}

void sl_memory_check(struct server *s)
{
    size_t used = sl_memory_used(s), max = (size_t)s->settings->memory_max;
    s->memory_due = false;
    if (used > s->memory_peak) s->memory_peak = used;
    if (max == 0) return;
    s->memory_full = used >= max;
    /* Near the limit, check in every loop iteration. */
    s->memory_due = used >= max - max / MARGIN;
    if (used <= max + max / MARGIN) return;
    sl_server_read_clock(s);
    close_until_free(s, used - max);
    sl_server_settle(s);
}

bool sl_memory_rejects(struct call *call)
{
    struct server *s = call->s;
    char text[160];
    if (!s->memory_full) return false;
    s->memory_full = sl_memory_used(s) >= (size_t)s->settings->memory_max;
    if (!s->memory_full) return false;
    s->stats.memory_rejections++;
    snprintf(text, sizeof text,
             "the server has reached its limit of %" PRId64
             " bytes for clients (memory-max); release locks, or retry later",
             s->settings->memory_max);
    sl_say(call, "LIMIT", text);
    return true;
}

/* --- Returning memory to the system ------------------------------------------ */

/* malloc maps blocks of this size and above separately, and free() returns them to the system. By
 * default, glibc raises this threshold each time such a block is freed, and then keeps later
 * blocks. */
#define MMAP_BYTES_MIN (128 << 10)
/* Maximum free memory at the end of the heap; more is returned to the system at
 * once. */
#define TOP_BYTES_MAX (4 << 20)

void sl_memory_setup(void)
{
    /* Merge small freed blocks one by one. By default glibc merges all of them when the first
     * large block is freed, which blocked the loop for 40 ms after a client with 300,000 locks
     * had disconnected. */
    mallopt(M_MXFAST, 0);
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES_MIN);
    mallopt(M_TRIM_THRESHOLD, TOP_BYTES_MAX);
}

/* Return the resident memory of the process without mapped files. */
static size_t private_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    size_t all, resident = 0, shared = 0;
    if (f == NULL) return 0;
    if (fscanf(f, "%zu %zu %zu", &all, &resident, &shared) != 3) resident = shared;
    fclose(f);
    return (resident - shared) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Whether much memory is unused. It was freed, or it was never counted, such as results of the
 * store for a client that had disconnected. */
static bool has_gaps(const struct server *s, size_t used)
{
    return s->now.ms - s->trimmed_ms >= TRIM_AGAIN_MS &&
           private_bytes() > 2 * used + 4 * (size_t)TRIM_BYTES_MIN;
}

/* Return unused memory to the system, but only if there is much of it, because malloc_trim() walks
 * through all free memory. */
void sl_memory_second(struct server *s)
{
    size_t used = sl_memory_used(s);
    if (s->memory_peak < used) s->memory_peak = used;
    bool fell = s->memory_peak - used >= TRIM_BYTES_MIN && used <= s->memory_peak / 2;
    if (!fell && !has_gaps(s, used)) return;
    s->memory_peak = used;
    s->trimmed_ms = s->now.ms;
    malloc_trim(0);
}

/* --- The default of memory-max ----------------------------------------------- */

/* Read a number from a file. Returns 0 if there is none, or if the file says "max". */
static int64_t number_in(const char *path)
{
    FILE *f = fopen(path, "re");
    int64_t n = 0;
    if (f == NULL) return 0;
    if (fscanf(f, "%" SCNd64, &n) != 1 || n < 0) n = 0;
    fclose(f);
    return n;
}

static int64_t smaller_of(int64_t a, int64_t b)
{
    return b > 0 && b < a ? b : a;
}

/* Return the lowest of `bytes` and the memory limits of our control group and its parents: version
 * 2, then version 1. */
static int64_t group_limit(int64_t bytes)
{
    char group[512] = "", path[600];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return bytes;
    while (fgets(group, sizeof group, f) != NULL && strncmp(group, "0::/", 4) != 0)
        group[0] = '\0';
    fclose(f);
    group[strcspn(group, "\n")] = '\0';
    for (char *end; strlen(group) > 3; *end = '\0') {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group + 3);
        bytes = smaller_of(bytes, number_in(path));
        end = strrchr(group, '/');
    }
    bytes = smaller_of(bytes, number_in("/sys/fs/cgroup/memory.max"));
    return smaller_of(bytes, number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
}

int64_t sl_memory_auto(void)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0) return 1 << 30;
    return group_limit(pages * page_bytes) / 4;
}
