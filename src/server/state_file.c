#include "server/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define NAME "state"
#define NAME_NEW "state.new"
#define MAGIC "sluice state "
#define SUM "checksum "
#define SUM_BYTES (sizeof SUM - 1 + 16 + 1) /* Its line. */

/* --- Writing --------------------------------------------------------------- */

struct sl_state_writer {
    int folder, fd;
    int error; /* The first thing that went wrong; an errno. */
    uint64_t grants;
    XXH64_state_t sum;
    size_t n;
    char buffer[65536];
};

struct sl_state_writer *sl_state_writer_new(void)
{
    return calloc(1, sizeof(struct sl_state_writer));
}

static void fail(struct sl_state_writer *w)
{
    if (w->error == 0) w->error = errno != 0 ? errno : EIO;
}

static void flush(struct sl_state_writer *w)
{
    size_t done = 0;
    XXH64_update(&w->sum, w->buffer, w->n);
    while (done < w->n && w->error == 0) {
        ssize_t n = write(w->fd, w->buffer + done, w->n - done);
        if (n > 0) done += (size_t)n;
        else if (n == 0 || errno != EINTR) fail(w);
    }
    w->n = 0;
}

static char *room_for(struct sl_state_writer *w, size_t n)
{
    if (sizeof w->buffer - w->n < n) flush(w);
    return w->buffer + w->n;
}

/* At most 400 bytes. */
__attribute__((format(printf, 2, 3))) static void put(struct sl_state_writer *w,
                                                      const char *format, ...)
{
    va_list args;
    char *at = room_for(w, 400);
    va_start(args, format);
    int n = vsnprintf(at, 400, format, args);
    va_end(args);
    w->n += n > 0 ? (size_t)n : 0;
}

static void put_hex(struct sl_state_writer *w, struct sl_bytes b)
{
    static const char digits[] = "0123456789abcdef";
    put(w, b.n == 0 ? " -" : " ");
    for (size_t i = 0; i < b.n; i++) {
        char *at = room_for(w, 2);
        at[0] = digits[(unsigned char)b.at[i] >> 4];
        at[1] = digits[(unsigned char)b.at[i] & 15];
        w->n += 2;
    }
}

void sl_state_begin(struct sl_state_writer *w, int folder, const struct sl_kept *k)
{
    w->folder = folder;
    w->error = 0;
    w->grants = 0;
    w->n = 0;
    XXH64_reset(&w->sum, 0);
    w->fd = openat(folder, NAME_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (w->fd < 0) fail(w);
    put(w, MAGIC "%d\n", SL_STATE_FORMAT);
    put(w, "fence_limit %" PRIu64 "\n", k->fence_limit);
    put(w, "fence_last %" PRIu64 "\n", k->fence_last);
    put(w, "lease_longest_ms %" PRId64 "\n", k->lease_longest_ms);
    put(w, "clean %d\n", k->clean);
    put(w, "quiet_ms %" PRId64 "\n", k->quiet_ms);
    put(w, "boot %s\n", k->boot);
    put(w, "at_ms %" PRId64 "\n", k->at_ms);
}

void sl_state_put(struct sl_state_writer *w, struct sl_bytes key,
                  const struct sl_view *v)
{
    w->grants++;
    put(w,
        "grant %" PRIu64 " %" PRId64 " %" PRIu32 " %d %" PRIu32 " %" PRIu32 " %" PRIu32
        " %" PRId32 " %d %d",
        v->fence, v->left_ms, v->user, v->shared, v->per, v->buckets, v->units,
        v->priority, v->broken, v->asked);
    put_hex(w, key);
    put_hex(w, v->value);
    put_hex(w, v->note);
    put(w, "\n");
}

/* Some file systems cannot sync a folder, and say so. */
static bool sync_folder(int folder)
{
    return fsync(folder) == 0 || errno == EINVAL;
}

int sl_state_commit(struct sl_state_writer *w)
{
    put(w, "grants %" PRIu64 "\n", w->grants);
    flush(w);
    put(w, SUM "%016" PRIx64 "\n", (uint64_t)XXH64_digest(&w->sum));
    flush(w);
    if (w->error == 0 && fsync(w->fd) != 0) fail(w);
    if (w->fd >= 0 && close(w->fd) != 0) fail(w);
    if (w->error == 0 && renameat(w->folder, NAME_NEW, w->folder, NAME) != 0) fail(w);
    else if (w->error != 0) unlinkat(w->folder, NAME_NEW, 0);
    if (w->error == 0 && !sync_folder(w->folder)) fail(w);
    return w->error;
}

/* --- Reading --------------------------------------------------------------- */

/* All of the file, in memory that may be written to. */
static enum sl_found map_file(struct sl_state_reading *r, int folder)
{
    struct stat st;
    int fd = openat(folder, NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? SL_FOUND_NOTHING : SL_FOUND_UNREADABLE;
    r->text = MAP_FAILED;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    } else if (st.st_size == 0) {
        close(fd);
        return SL_FOUND_CUT;
    } else {
        r->n = (size_t)st.st_size;
        r->text = mmap(NULL, r->n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE,
                       fd, 0);
    }
    int error = errno;
    close(fd);
    errno = error;
    return r->text == MAP_FAILED ? SL_FOUND_UNREADABLE : SL_FOUND;
}

/* What is to stand here stands here, and is passed. */
static bool skip(struct sl_state_reading *r, const char *word)
{
    size_t n = strlen(word), left = (size_t)(r->text + r->n - r->at);
    if (left < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

/* A number and the character behind it. */
static bool number(struct sl_state_reading *r, int64_t min, int64_t max, char end,
                   int64_t *out)
{
    const char *stop = r->text + r->n;
    bool minus = r->at < stop && *r->at == '-';
    int64_t n = 0;
    if (minus) r->at++;
    const char *first = r->at;
    while (r->at < stop && *r->at >= '0' && *r->at <= '9' && r->at - first < 18)
        n = n * 10 + (*r->at++ - '0');
    if (r->at == first || r->at == stop || *r->at != end) return false;
    r->at++;
    *out = minus ? -n : n;
    return *out >= min && *out <= max;
}

static bool field(struct sl_state_reading *r, const char *name, int64_t max,
                  int64_t *out)
{
    return skip(r, name) && number(r, 0, max, '\n', out);
}

static bool boot_field(struct sl_state_reading *r)
{
    if (!skip(r, "boot ")) return false;
    char *end = memchr(r->at, '\n', (size_t)(r->text + r->n - r->at));
    if (end == NULL || end - r->at >= SL_BOOT_BYTES) return false;
    memcpy(r->kept.boot, r->at, (size_t)(end - r->at));
    r->at = end + 1;
    return true;
}

static bool read_head(struct sl_state_reading *r)
{
    struct sl_kept *k = &r->kept;
    const int64_t fence_max = (int64_t)SL_FENCE_MAX, ms_max = (int64_t)1 << 52;
    int64_t limit, last, clean;
    bool good = field(r, "fence_limit ", fence_max, &limit) &&
                field(r, "fence_last ", fence_max, &last) &&
                field(r, "lease_longest_ms ", ms_max, &k->lease_longest_ms) &&
                field(r, "clean ", 1, &clean) &&
                field(r, "quiet_ms ", ms_max, &k->quiet_ms) && boot_field(r) &&
                field(r, "at_ms ", ms_max, &k->at_ms);
    if (!good || last > limit) return false;
    k->fence_limit = (sl_fence)limit;
    k->fence_last = (sl_fence)last;
    k->clean = clean == 1;
    return true;
}

static enum sl_found check_sum(struct sl_state_reading *r)
{
    char line[SUM_BYTES + 1];
    if (r->n < SUM_BYTES || r->text[r->n - 1] != '\n') return SL_FOUND_CUT;
    const char *last = r->text + r->n - SUM_BYTES;
    if (memcmp(last, SUM, sizeof SUM - 1) != 0) return SL_FOUND_CUT;
    snprintf(line, sizeof line, SUM "%016" PRIx64 "\n",
             (uint64_t)XXH64(r->text, r->n - SUM_BYTES, 0));
    return memcmp(last, line, SUM_BYTES) == 0 ? SL_FOUND : SL_FOUND_DAMAGED;
}

static enum sl_found read_all(struct sl_state_reading *r)
{
    int64_t format;
    r->at = r->text;
    if (r->n < sizeof MAGIC) return SL_FOUND_CUT;
    if (!skip(r, MAGIC)) return SL_FOUND_FOREIGN;
    if (!number(r, 0, INT64_MAX, '\n', &format)) return SL_FOUND_DAMAGED;
    if (format != SL_STATE_FORMAT) return SL_FOUND_VERSION;
    enum sl_found found = check_sum(r);
    if (found != SL_FOUND) return found;
    r->n -= SUM_BYTES;
    return read_head(r) ? SL_FOUND : SL_FOUND_NONSENSE;
}

enum sl_found sl_state_read(struct sl_state_reading *r, int folder)
{
    *r = (struct sl_state_reading){0};
    enum sl_found found = map_file(r, folder);
    if (found != SL_FOUND) return found;
    size_t mapped = r->n;
    found = read_all(r);
    if (found != SL_FOUND) munmap(r->text, mapped);
    return found;
}

void sl_state_read_end(struct sl_state_reading *r)
{
    munmap(r->text, r->n + SUM_BYTES);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Hex, made bytes where it stands. */
static bool hex(struct sl_state_reading *r, char end, struct sl_bytes *out)
{
    char *stop = r->text + r->n, *to = r->at;
    *out = (struct sl_bytes){.at = to};
    if (skip(r, "-")) return r->at < stop && *r->at++ == end;
    while (stop - r->at >= 2 && digit(r->at[0]) >= 0 && digit(r->at[1]) >= 0) {
        *to++ = (char)(digit(r->at[0]) << 4 | digit(r->at[1]));
        r->at += 2;
    }
    out->n = (size_t)(to - out->at);
    return out->n > 0 && r->at < stop && *r->at++ == end;
}

static bool read_grant(struct sl_state_reading *r, struct sl_bytes *key,
                       struct sl_view *v)
{
    static const struct {
        int64_t min, max;
    } of[10] = {{1, (int64_t)SL_FENCE_MAX},
                {0, (int64_t)1 << 52},
                {0, UINT32_MAX},
                {0, 1},
                {0, UINT32_MAX},
                {0, UINT32_MAX},
                {0, UINT32_MAX},
                {INT32_MIN, INT32_MAX},
                {0, 1},
                {0, 1}};
    int64_t n[10];
    for (size_t i = 0; i < 10; i++)
        if (!number(r, of[i].min, of[i].max, ' ', &n[i])) return false;
    *v = (struct sl_view){.leased = true,
                          .fence = (sl_fence)n[0],
                          .left_ms = n[1],
                          .user = (uint32_t)n[2],
                          .shared = n[3] != 0,
                          .per = (uint32_t)n[4],
                          .buckets = (uint32_t)n[5],
                          .units = (uint32_t)n[6],
                          .priority = (int32_t)n[7],
                          .broken = n[8] != 0,
                          .asked = n[9] != 0};
    return hex(r, ' ', key) && hex(r, ' ', &v->value) && hex(r, '\n', &v->note);
}

int sl_state_next(struct sl_state_reading *r, struct sl_bytes *key, struct sl_view *out)
{
    int64_t grants;
    if (skip(r, "grant ")) {
        r->grants++;
        return read_grant(r, key, out) ? 1 : -1;
    }
    bool all = skip(r, "grants ") && number(r, r->grants, r->grants, '\n', &grants);
    return all && r->at == r->text + r->n ? 0 : -1;
}

/* --- Which boot ------------------------------------------------------------ */

void sl_boot_id(char out[SL_BOOT_BYTES])
{
    char id[40] = "", clock[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, sizeof id - 1);
    if (fd >= 0) close(fd);
    id[n > 0 ? strcspn(id, "\n") : 0] = '\0';
    n = readlink("/proc/self/ns/time", clock, sizeof clock - 1);
    if (n <= 0) clock[0] = '\0';
    /* Nothing known is like nothing else. */
    snprintf(out, SL_BOOT_BYTES, "%s%s", *id != '\0' ? id : "unknown", clock);
}
