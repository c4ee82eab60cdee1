#include "journal/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Space is allocated in steps of a quarter of the file, within these limits. */
#define STEP_BYTES_MIN (1u << 20)
#define STEP_BYTES_MAX (64u << 20)
#define BLOCK_BYTES 4096u
/* Space is filled with zeros in aligned pieces of this size. */
#define FILL_BYTES 65536u

/* A file: the current one or the next one. The loop writes frames while a worker thread syncs. */
struct journal_part {
    int fd;
    dev_t device;
    ino_t inode;
    struct sl_chain chain;
    uint64_t allocated;
    uint64_t filled; /* The page cache has zeros from the last frame to this offset. */

    /* The offset after the last frame. The loop stores it after the write; a sync loads it first, so
     * the sync covers all frames before that offset. Sequentially consistent: see `unnamed`. */
    _Atomic uint64_t bytes;

    /* All bytes before this offset are on disk. A sync stores it (release), and the loop loads it
     * for the next frame (acquire). */
    _Atomic uint64_t durable;

    /* No sync of this file has begun, and it gets its name only after one. So a frame may say that
     * all bytes before it are durable: when the file has a name, that is true. A sync clears the
     * flag and then loads `bytes`; the loop stores `bytes` and then loads the flag. Both are
     * sequentially consistent, so the sync covers all bytes before a frame that says so. */
    _Atomic bool unnamed;

    /* The errno of the first error, or 0. `full`: there was no space for a frame, so nothing more
     * is written, but the file can be synced. `error`: a write or a sync failed. Sequentially
     * consistent: see `renaming`. */
    _Atomic int full, error;
};

struct sl_journal_file {
    int directory;
    enum sl_journal_use use;
    uint64_t bytes_max;
    struct journal_part *current, *next; /* NULL: there is no such file. */
    struct journal_part *retired;        /* To be closed. */

    /* The next file gets its name now, so a frame that is missing in it may be missing in the
     * journal. A commit sets this flag and then loads the errors of the next file; the loop stores
     * such an error and then loads this flag. Both are sequentially consistent, so at least one of
     * the two sees what the other one stored. */
    _Atomic bool renaming;
};

/* --- Errors ---------------------------------------------------------------------------- */

void sl_journal_file_note_error(int directory)
{
    static const char text[] =
        "An I/O error occurred in the file journal. If the server stops before it has "
        "written a new file, its next start proceeds as after a power failure.\n";
    int fd = openat(directory, SL_JOURNAL_ERROR,
                    O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) return;
    /* The text is for people. The existence of the file counts. */
    ssize_t n = pwrite(fd, text, sizeof text - 1, 0);
    (void)n;
    close(fd);
}

static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* Store the first error of a file. */
static void keep_error(_Atomic int *kept, int error)
{
    int none = 0;
    atomic_compare_exchange_strong_explicit(kept, &none, error, memory_order_seq_cst,
                                            memory_order_seq_cst);
}

static int sync_error(const struct journal_part *p)
{
    return atomic_load_explicit(&p->error, memory_order_seq_cst);
}

static int write_error(const struct journal_part *p)
{
    int error = sync_error(p);
    return error != 0 ? error : atomic_load_explicit(&p->full, memory_order_seq_cst);
}

/* --- Names ----------------------------------------------------------------------------- */

static bool has_name(int directory, const struct journal_part *p, const char *name)
{
    struct stat st;
    return p != NULL && fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == p->device && st.st_ino == p->inode;
}

/* Close a file. If it is the next file and never became the journal, remove it. */
static void part_free(int directory, struct journal_part *p)
{
    if (p == NULL) return;
    if (has_name(directory, p, SL_JOURNAL_NEXT))
        unlinkat(directory, SL_JOURNAL_NEXT, 0);
    close(p->fd);
    free(p);
}

static void close_retired(struct sl_journal_file *f)
{
    part_free(f->directory, f->retired);
    f->retired = NULL;
}

/* Open or create a file. Returns 0 or an errno. */
static int part_open(int directory, const char *name, int flags,
                     struct journal_part **out)
{
    struct stat st;
    struct journal_part *p = calloc(1, sizeof *p);
    if (p == NULL) return ENOMEM;
    p->fd = openat(directory, name,
                   O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0600);
    int error = p->fd < 0 || fstat(p->fd, &st) != 0 ? errno : 0;
    if (error == 0 && !S_ISREG(st.st_mode)) error = EINVAL;
    if (error != 0) {
        if (p->fd >= 0) close(p->fd);
        free(p);
        return error;
    }
    p->device = st.st_dev;
    p->inode = st.st_ino;
    p->allocated = (uint64_t)st.st_size;
    *out = p;
    return 0;
}

/* --- Writing --------------------------------------------------------------------------- */

/* Write all of it. Returns 0 or an errno. */
static int write_all(int fd, struct iovec *v, int count, uint64_t offset)
{
    while (count > 0) {
        ssize_t n = pwritev(fd, v, count, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? EIO : errno;
        offset += (uint64_t)n;
        for (; count > 0 && (size_t)n >= v->iov_len; v++, count--)
            n -= (ssize_t)v->iov_len;
        if (count == 0) break;
        v->iov_base = (char *)v->iov_base + n;
        v->iov_len -= (size_t)n;
    }
    return 0;
}

static int write_zeros(int fd, uint64_t from, uint64_t to)
{
    static char zeros[65536];
    while (from < to) {
        size_t n = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        int error = write_all(fd, &(struct iovec){zeros, n}, 1, from);
        if (error != 0) return error;
        from += n;
    }
    return 0;
}

static int allocate(int fd, uint64_t from, uint64_t to)
{
    while (fallocate(fd, 0, (off_t)from, (off_t)(to - from)) != 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS) return write_zeros(fd, from, to);
        if (errno != EINTR) return errno;
    }
    return 0;
}

/* Make sure that the file has space up to `end`. Returns 0 or an errno. */
static int reserve(struct journal_part *p, uint64_t end, uint64_t bytes_max)
{
    if (end <= p->allocated) return 0;
    uint64_t step = end / 4;
    if (step < STEP_BYTES_MIN) step = STEP_BYTES_MIN;
    if (step > STEP_BYTES_MAX) step = STEP_BYTES_MAX;
    uint64_t to = (end + step) / STEP_BYTES_MIN * STEP_BYTES_MIN;
    if (to > bytes_max) to = bytes_max;
    int error = allocate(p->fd, p->allocated, to);
    if (is_full(error)) {
        /* There may be enough space for this frame. */
        to = (end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
        error = allocate(p->fd, p->allocated, to);
    }
    if (error == 0) p->allocated = to;
    return error;
}

/* Write zeros to the space of the next frames. So the kernel caches the file in large pages, each of
 * which holds many frames; a new page for each small write would cost twice as much CPU time. (Pages
 * that are much larger make each small write slower.) Returns 0 or an errno. */
static int fill(struct journal_part *p, uint64_t at, uint64_t end)
{
    if (end <= p->filled) return 0;
    uint64_t from = p->filled > at ? p->filled : at;
    uint64_t to = (end + FILL_BYTES - 1) / FILL_BYTES * FILL_BYTES;
    if (to > p->allocated) to = p->allocated;
    int error = write_zeros(p->fd, from, to);
    if (error == 0) p->filled = to;
    return error;
}

/* Append a frame to a file. Returns 0 or an errno, which is kept in the file. */
static int append(struct journal_part *p, struct sl_frame frame, uint64_t bytes_max)
{
    int error = write_error(p);
    if (error != 0) return error;
    char header[SL_FRAME_HEADER_BYTES];
    struct sl_chain chain = p->chain;
    uint64_t at = atomic_load_explicit(&p->bytes, memory_order_relaxed);
    uint64_t end = at + sizeof header + frame.records.n;
    bool fits = frame.records.n <= SL_RECORDS_BYTES_MAX && end <= bytes_max;
    error = fits ? reserve(p, end, bytes_max) : EFBIG;
    if (error == 0) error = fill(p, at, end);
    if (error != 0) {
        keep_error(is_full(error) ? &p->full : &p->error, error);
        return error;
    }
    frame.at = (size_t)at;
    frame.durable = atomic_load_explicit(&p->unnamed, memory_order_seq_cst)
                        ? at
                        : atomic_load_explicit(&p->durable, memory_order_acquire);
    sl_frame_seal(header, &chain, &frame);
    struct iovec v[] = {{header, sizeof header},
                        {(char *)frame.records.at, frame.records.n}};
    error = write_all(p->fd, v, frame.records.n > 0 ? 2 : 1, at);
    if (error != 0) {
        keep_error(&p->error, error);
        return error;
    }
    p->chain = chain;
    atomic_store_explicit(&p->bytes, end, memory_order_seq_cst);
    return 0;
}

int sl_journal_file_write(struct sl_journal_file *f, struct sl_bytes records,
                          uint64_t position, sl_ms now_ms)
{
    const struct sl_frame frame = {
        .position = position, .now_ms = now_ms, .records = records};
    const struct journal_part *first = f->current != NULL ? f->current : f->next;
    assert(first != NULL);
    int error = write_error(first);
    if (error != 0) return error;
    assert(position == first->chain.position + 1);
    if (f->current != NULL) error = append(f->current, frame, f->bytes_max);
    if (error == 0 && f->next != NULL) {
        error = append(f->next, frame, f->bytes_max);
        /* The current file has the frame, and it is the journal. */
        if (f->current != NULL &&
            !atomic_load_explicit(&f->renaming, memory_order_seq_cst))
            error = 0;
    }
    if (error != 0 && !is_full(error)) sl_journal_file_note_error(f->directory);
    return error;
}

int sl_journal_file_reserve(struct sl_journal_file *f, uint64_t bytes)
{
    struct journal_part *p = f->current;
    if (p == NULL) return 0;
    int error = write_error(p);
    if (error != 0) return error;
    uint64_t end = atomic_load_explicit(&p->bytes, memory_order_relaxed) + bytes;
    error = end > f->bytes_max ? EFBIG : reserve(p, end, f->bytes_max);
    if (error != 0) keep_error(is_full(error) ? &p->full : &p->error, error);
    if (error != 0 && !is_full(error)) sl_journal_file_note_error(f->directory);
    return error;
}

int sl_journal_file_copy(struct sl_journal_file *f, struct sl_bytes records,
                         sl_ms now_ms)
{
    const struct sl_frame frame = {
        .position = f->next->chain.position, .now_ms = now_ms, .records = records};
    return append(f->next, frame, f->bytes_max);
}

void sl_journal_file_limit(struct sl_journal_file *f, uint64_t bytes_max)
{
    f->bytes_max = bytes_max;
}

/* --- Syncing --------------------------------------------------------------------------- */

/* Sync a file, unless a write or a sync of it has failed before. Returns 0 or an errno. */
static int part_sync(struct journal_part *p)
{
    int error = sync_error(p);
    if (error != 0) return error;
    bool unnamed = atomic_load_explicit(&p->unnamed, memory_order_seq_cst);
    atomic_store_explicit(&p->unnamed, false, memory_order_seq_cst);
    uint64_t bytes = atomic_load_explicit(&p->bytes, memory_order_seq_cst);
    /* If the file gets its name, this sync has succeeded. So frames can rely on it at once. */
    if (unnamed) atomic_store_explicit(&p->durable, bytes, memory_order_release);
    while (fdatasync(p->fd) != 0) {
        if (errno == EINTR) continue;
        error = errno;
        keep_error(&p->error, error);
        return error;
    }
    atomic_store_explicit(&p->durable, bytes, memory_order_release);
    return 0;
}

static int sync_directory(int directory)
{
    /* Some file systems cannot sync a directory. They return EINVAL. */
    while (fsync(directory) != 0)
        if (errno != EINTR) return errno == EINVAL ? 0 : errno;
    return 0;
}

int sl_journal_file_sync(struct sl_journal_file *f)
{
    close_retired(f);
    int error = sync_error(f->current);
    if (error != 0) return error;
    error = part_sync(f->current);
    if (error != 0) sl_journal_file_note_error(f->directory);
    return error;
}

/* --- Replacing ------------------------------------------------------------------------- */

static int write_header(struct journal_part *p, enum sl_journal_use use,
                        uint64_t position)
{
    char header[SL_HEADER_BYTES];
    uint8_t id[SL_JOURNAL_ID_BYTES];
    if (getrandom(id, sizeof id, 0) != sizeof id) return errno;
    int error = reserve(p, sizeof header, UINT64_MAX);
    if (error != 0) return error;
    sl_header_write(header, use, id, position, &p->chain);
    error = write_all(p->fd, &(struct iovec){header, sizeof header}, 1, 0);
    atomic_store_explicit(&p->bytes, sizeof header, memory_order_seq_cst);
    atomic_store_explicit(&p->unnamed, true, memory_order_seq_cst);
    return error;
}

/* Create the next file. Returns 0 or an errno. */
static int begin_next(struct sl_journal_file *f, uint64_t position)
{
    struct journal_part *p;
    /* Always create a new file: an existing link would redirect our writes. */
    unlinkat(f->directory, SL_JOURNAL_NEXT, 0);
    int error = part_open(f->directory, SL_JOURNAL_NEXT, O_CREAT | O_EXCL, &p);
    if (error != 0) return error;
    error = write_header(p, f->use, position);
    if (error != 0) part_free(f->directory, p);
    else f->next = p;
    return error;
}

int sl_journal_file_replace(struct sl_journal_file *f)
{
    assert(f->next == NULL && f->current != NULL);
    close_retired(f);
    return begin_next(f, f->current->chain.position);
}

/* Give the next file the name "journal". From here on, an error leaves it unknown which file has
 * the name after a power failure. */
static int rename_next(struct sl_journal_file *f)
{
    if (renameat(f->directory, SL_JOURNAL_NEXT, f->directory, SL_JOURNAL_NAME) != 0)
        return errno;
    int error = sync_directory(f->directory);
    if (error != 0) return error;
    unlinkat(f->directory, SL_JOURNAL_ERROR, 0);
    /* The loop stores an error before it notes the error. So if this does not find the error, the
     * note comes after unlinkat() and stays. */
    return write_error(f->next);
}

int sl_journal_file_commit(struct sl_journal_file *f)
{
    close_retired(f);
    int error = part_sync(f->next);
    if (error != 0) return error;
    if (!has_name(f->directory, f->next, SL_JOURNAL_NEXT)) return ESTALE;
    atomic_store_explicit(&f->renaming, true, memory_order_seq_cst);
    error = write_error(f->next);
    if (error != 0) return error;
    error = rename_next(f);
    if (error == 0) return 0;
    if (f->current != NULL) keep_error(&f->current->error, error);
    sl_journal_file_note_error(f->directory);
    return error;
}

void sl_journal_file_switch(struct sl_journal_file *f)
{
    f->retired = f->current;
    f->current = f->next;
    f->next = NULL;
    atomic_store_explicit(&f->renaming, false, memory_order_seq_cst);
}

void sl_journal_file_drop(struct sl_journal_file *f)
{
    f->retired = f->next;
    f->next = NULL;
    atomic_store_explicit(&f->renaming, false, memory_order_seq_cst);
}

/* --- Starting -------------------------------------------------------------------------- */

void sl_journal_probe(int directory)
{
    struct journal_part *p;
    struct stat st;
    if (fstatat(directory, SL_JOURNAL_ERROR, &st, AT_SYMLINK_NOFOLLOW) == 0) return;
    if (part_open(directory, SL_JOURNAL_NAME, 0, &p) != 0) return;
    if (part_sync(p) != 0) sl_journal_file_note_error(directory);
    part_free(directory, p);
}

static int read_all(int fd, char *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, to + done, n - done, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0 ? EIO : errno;
        done += (size_t)got;
    }
    return 0;
}

int sl_journal_map(int directory, struct sl_bytes *out)
{
    struct stat st;
    *out = (struct sl_bytes){0};
    int fd = openat(directory, SL_JOURNAL_NAME,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fstat(fd, &st) != 0 ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    if (error == 0 && st.st_size > 0) {
        /* A copy, not a mapping of the file: a block that cannot be read would raise SIGBUS. */
        const struct sl_bytes file = {mmap(NULL, (size_t)st.st_size,
                                           PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                                      (size_t)st.st_size};
        error = file.at == MAP_FAILED ? errno : read_all(fd, (char *)file.at, file.n);
        if (error == 0) *out = file;
        else if (file.at != MAP_FAILED) sl_journal_unmap(file);
    }
    close(fd);
    return error;
}

void sl_journal_unmap(struct sl_bytes file)
{
    if (file.n > 0) munmap((char *)file.at, file.n);
}

static struct sl_journal_file *file_new(int directory, enum sl_journal_use use)
{
    struct sl_journal_file *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->directory = directory;
    f->use = use;
    f->bytes_max = UINT64_MAX;
    return f;
}

/* Clear the file after this offset, and keep the space if the file system can do that. Otherwise
 * the rest of a partly written frame could follow the frames that are written next. */
static int clear_after(struct journal_part *p, uint64_t bytes)
{
    if (p->allocated == bytes || fallocate(p->fd, FALLOC_FL_ZERO_RANGE, (off_t)bytes,
                                           (off_t)(p->allocated - bytes)) == 0)
        return 0;
    while (ftruncate(p->fd, (off_t)bytes) != 0)
        if (errno != EINTR) return errno;
    p->allocated = bytes;
    return 0;
}

/* Prepare a file to be continued after this offset, and make sure that it is durable, with its name:
 * the last server may have been killed after it renamed the file. */
static int take_over(int directory, struct journal_part *p, const struct sl_recovery *r)
{
    if (p->allocated < r->bytes) return ESTALE; /* It has become shorter. */
    int error = clear_after(p, r->bytes);
    if (error != 0) return error;
    p->chain = r->chain;
    atomic_store_explicit(&p->bytes, r->bytes, memory_order_seq_cst);
    error = part_sync(p);
    return error != 0 ? error : sync_directory(directory);
}

int sl_journal_file_continue(int directory, const struct sl_recovery *r,
                             struct sl_journal_file **out)
{
    struct sl_journal_file *f = file_new(directory, r->use);
    if (f == NULL) return ENOMEM;
    int error = part_open(directory, SL_JOURNAL_NAME, 0, &f->current);
    if (error == 0) error = take_over(directory, f->current, r);
    if (error != 0) {
        if (f->current != NULL) sl_journal_file_note_error(directory);
        sl_journal_file_close(f);
        return error;
    }
    unlinkat(directory, SL_JOURNAL_NEXT, 0);
    *out = f;
    return 0;
}

int sl_journal_file_new(int directory, enum sl_journal_use use, uint64_t position,
                        struct sl_journal_file **out)
{
    struct sl_journal_file *f = file_new(directory, use);
    if (f == NULL) return ENOMEM;
    int error = begin_next(f, position);
    if (error != 0) free(f);
    else *out = f;
    return error;
}

void sl_journal_file_close(struct sl_journal_file *f)
{
    if (f == NULL) return;
    close_retired(f);
    part_free(f->directory, f->next);
    part_free(f->directory, f->current);
    free(f);
}

/* --- Inspection ------------------------------------------------------------------------ */

bool sl_journal_file_in_place(const struct sl_journal_file *f)
{
    return has_name(f->directory, f->current, SL_JOURNAL_NAME) ||
           has_name(f->directory, f->next, SL_JOURNAL_NAME);
}

uint64_t sl_journal_file_bytes(const struct sl_journal_file *f)
{
    const struct journal_part *p = f->current != NULL ? f->current : f->next;
    return p == NULL ? 0 : atomic_load_explicit(&p->bytes, memory_order_relaxed);
}

void sl_journal_file_life(const struct sl_journal_file *f, struct sl_life *out)
{
    const struct journal_part *p = f->next != NULL ? f->next : f->current;
    sl_journal_life(f->directory, out);
    out->device = p->device;
    out->inode = p->inode;
}
