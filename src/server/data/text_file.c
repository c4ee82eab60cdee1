#include "server/data/text_file.h"

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

#include "base/hex.h"
#include "base/number.h"

#define SUM "checksum "
#define SUM_BYTES (sizeof SUM - 1 + 16 + 1) /* The length of the last line. */

/* --- Writing --------------------------------------------------------------- */

struct sl_textfile_writer {
    const struct sl_textfile_kind *kind;
    int directory, fd;
    int error; /* The errno of the first failure. */
    XXH64_state_t sum;
    size_t n;
    char buffer[65536];
};

struct sl_textfile_writer *sl_textfile_writer_new(void)
{
    return calloc(1, sizeof(struct sl_textfile_writer));
}

void sl_textfile_fail(struct sl_textfile_writer *w, int error)
{
    if (w->error == 0) w->error = error != 0 ? error : EIO;
}

static void flush(struct sl_textfile_writer *w)
{
    size_t done = 0;
    XXH64_update(&w->sum, w->buffer, w->n);
    while (done < w->n && w->error == 0) {
        ssize_t n = write(w->fd, w->buffer + done, w->n - done);
        if (n > 0) done += (size_t)n;
        else if (n == 0 || errno != EINTR) sl_textfile_fail(w, n == 0 ? EIO : errno);
    }
    w->n = 0;
}

static char *space_for(struct sl_textfile_writer *w, size_t n)
{
    if (sizeof w->buffer - w->n < n) flush(w);
    return w->buffer + w->n;
}

void sl_textfile_put(struct sl_textfile_writer *w, const char *format, ...)
{
    va_list args;
    char *at = space_for(w, SL_TEXT_PUT_BYTES);
    va_start(args, format);
    int n = vsnprintf(at, SL_TEXT_PUT_BYTES, format, args);
    va_end(args);
    w->n += n > 0 ? (size_t)n : 0;
}

void sl_textfile_put_hex(struct sl_textfile_writer *w, struct sl_bytes b)
{
    static const char digits[] = "0123456789abcdef";
    sl_textfile_put(w, b.n == 0 ? " -" : " ");
    for (size_t i = 0; i < b.n; i++) {
        char *at = space_for(w, 2);
        at[0] = digits[(unsigned char)b.at[i] >> 4];
        at[1] = digits[(unsigned char)b.at[i] & 15];
        w->n += 2;
    }
}

void sl_textfile_begin(struct sl_textfile_writer *w, int directory,
                       const struct sl_textfile_kind *kind)
{
    w->kind = kind;
    w->directory = directory;
    w->error = 0;
    w->n = 0;
    XXH64_reset(&w->sum, 0);
    /* Always create a new file: an existing link would redirect our writes. */
    int flags = O_EXCL | O_NOFOLLOW;
    unlinkat(directory, kind->name_new, 0);
    w->fd = openat(directory, kind->name_new, O_WRONLY | O_CREAT | O_CLOEXEC | flags,
                   0600);
    if (w->fd < 0) sl_textfile_fail(w, errno);
    sl_textfile_put(w, "%s%" PRId64 "\n", kind->magic, kind->format);
}

/* Sync a directory. Ignore the error of file systems that cannot do that. */
static bool sync_directory(int directory)
{
    return fsync(directory) == 0 || errno == EINVAL;
}

int sl_textfile_commit(struct sl_textfile_writer *w)
{
    const char *name = w->kind->name, *name_new = w->kind->name_new;
    flush(w);
    sl_textfile_put(w, SUM "%016" PRIx64 "\n", (uint64_t)XXH64_digest(&w->sum));
    flush(w);
    if (w->error == 0 && fsync(w->fd) != 0) sl_textfile_fail(w, errno);
    if (w->fd >= 0 && close(w->fd) != 0) sl_textfile_fail(w, errno);
    if (w->error != 0) unlinkat(w->directory, name_new, 0);
    else if (renameat(w->directory, name_new, w->directory, name) != 0)
        sl_textfile_fail(w, errno);
    if (w->error == 0 && !sync_directory(w->directory)) sl_textfile_fail(w, errno);
    return w->error;
}

/* --- Reading --------------------------------------------------------------- */

/* Map the whole file, writable: sl_textfile_hex() decodes in place. */
static enum sl_found map_file(struct sl_textfile_reader *r, int directory,
                              const char *name)
{
    struct stat st;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
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

bool sl_textfile_skip(struct sl_textfile_reader *r, const char *word)
{
    size_t n = strlen(word), left = (size_t)(r->text + r->n - r->at);
    if (left < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

bool sl_textfile_number(struct sl_textfile_reader *r, int64_t min, int64_t max,
                        char end, int64_t *out)
{
    char *stop = memchr(r->at, end, (size_t)(r->text + r->n - r->at));
    if (stop == NULL) return false;
    const struct sl_bytes digits = {r->at, (size_t)(stop - r->at)};
    r->at = stop + 1;
    return sl_parse_number(digits, min, max, out);
}

bool sl_textfile_field(struct sl_textfile_reader *r, const char *name, int64_t max,
                       int64_t *out)
{
    return sl_textfile_skip(r, name) && sl_textfile_number(r, 0, max, '\n', out);
}

bool sl_textfile_rest(struct sl_textfile_reader *r, char *out, size_t n)
{
    char *end = memchr(r->at, '\n', (size_t)(r->text + r->n - r->at));
    if (end == NULL || (size_t)(end - r->at) >= n) return false;
    memcpy(out, r->at, (size_t)(end - r->at));
    out[end - r->at] = '\0';
    r->at = end + 1;
    return true;
}

bool sl_textfile_word64(struct sl_textfile_reader *r, char end, uint64_t *out)
{
    if (r->text + r->n - r->at < 17 || r->at[16] != end) return false;
    *out = 0;
    for (int i = 0; i < 16; i++) {
        int d = sl_hex_digit(r->at[i]);
        if (d < 0) return false;
        *out = *out << 4 | (uint64_t)d;
    }
    r->at += 17;
    return true;
}

/* Decode the hex digits in place. */
bool sl_textfile_hex(struct sl_textfile_reader *r, char end, struct sl_bytes *out)
{
    char *stop = r->text + r->n, *to = r->at;
    *out = (struct sl_bytes){.at = to};
    if (sl_textfile_skip(r, "-")) return r->at < stop && *r->at++ == end;
    while (stop - r->at >= 2 && sl_hex_digit(r->at[0]) >= 0 &&
           sl_hex_digit(r->at[1]) >= 0) {
        *to++ = (char)(sl_hex_digit(r->at[0]) << 4 | sl_hex_digit(r->at[1]));
        r->at += 2;
    }
    out->n = (size_t)(to - out->at);
    return out->n > 0 && r->at < stop && *r->at++ == end;
}

bool sl_textfile_at_end(const struct sl_textfile_reader *r)
{
    return r->at == r->text + r->n;
}

static enum sl_found check_sum(struct sl_textfile_reader *r)
{
    char line[SUM_BYTES + 1];
    if (r->n < SUM_BYTES || r->text[r->n - 1] != '\n') return SL_FOUND_CUT;
    const char *last = r->text + r->n - SUM_BYTES;
    if (memcmp(last, SUM, sizeof SUM - 1) != 0) return SL_FOUND_CUT;
    snprintf(line, sizeof line, SUM "%016" PRIx64 "\n",
             (uint64_t)XXH64(r->text, r->n - SUM_BYTES, 0));
    return memcmp(last, line, SUM_BYTES) == 0 ? SL_FOUND : SL_FOUND_DAMAGED;
}

static enum sl_found check_all(struct sl_textfile_reader *r,
                               const struct sl_textfile_kind *kind)
{
    int64_t format;
    r->at = r->text;
    if (r->n <= strlen(kind->magic)) return SL_FOUND_CUT;
    if (!sl_textfile_skip(r, kind->magic)) return SL_FOUND_FOREIGN;
    if (!sl_textfile_number(r, 0, INT64_MAX, '\n', &format)) return SL_FOUND_DAMAGED;
    bool known = format >= kind->format_oldest && format <= kind->format;
    r->format = format;
    return known ? check_sum(r) : SL_FOUND_VERSION;
}

enum sl_found sl_textfile_open(struct sl_textfile_reader *r, int directory,
                               const struct sl_textfile_kind *kind)
{
    *r = (struct sl_textfile_reader){0};
    enum sl_found found = map_file(r, directory, kind->name);
    if (found != SL_FOUND) return found;
    found = check_all(r, kind);
    if (found != SL_FOUND) munmap(r->text, r->n);
    else r->n -= SUM_BYTES;
    return found;
}

void sl_textfile_close(struct sl_textfile_reader *r)
{
    munmap(r->text, r->n + SUM_BYTES);
}
