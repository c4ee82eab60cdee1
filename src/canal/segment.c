#include "canal/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "canal/own.h"
#include "canal/robust.h"

/* The byte of the file whose lock says "I am making it". Bytes below are the tethers
 * of slots. */
#define MAKING_BYTE ((off_t)1 << 40)

/* What an opener wants: options with the defaults filled in, and the path. */
struct wish {
    const char *path;
    struct sluice_canal_options asked;
    uint32_t keys, slots, records, mode;
    uint8_t boot[16];
};

/* --- Helpers -------------------------------------------------------------- */

/* A status for what the system refused; errno stays as it is. */
static int status_of(int e)
{
    switch (e) {
        case EACCES:
        case EPERM:
        case EROFS: return SLUICE_EACCES;
        case ENOSPC:
        case EDQUOT:
        case EFBIG: return SLUICE_ENOSPC;
        case ENOMEM: return SLUICE_ENOMEM;
        case ENOENT:
        case ENOTDIR: return SLUICE_ENOENT;
        case ELOOP: return SLUICE_EFOREIGN; /* A symbolic link: not ours to follow. */
        case EISDIR: return SLUICE_EFOREIGN;
        case ENAMETOOLONG: return SLUICE_EINVAL;
        default: return SLUICE_EIO;
    }
}

/* The first file that can be the user's segment; its fixed name if there is none. */
static void find_own_path(char out[SL_CANAL_OWN_PATH_SIZE])
{
    struct sl_canal_own_list list;
    sl_canal_own_path(out);
    if (sl_canal_own_is_at(out) || sl_canal_own_list(&list) != 0) return;
    if (list.count > 0) memcpy(out, list.paths[0], SL_CANAL_OWN_PATH_SIZE);
    sl_canal_own_free(&list);
}

int sl_canal_segment_path(const char *name, char *out, size_t size)
{
    int n;
    if (name == NULL) {
        char own[SL_CANAL_OWN_PATH_SIZE];
        find_own_path(own);
        n = snprintf(out, size, "%s", own);
    } else if (name[0] == '\0') return SLUICE_EINVAL;
    else if (strchr(name, '/') != NULL) n = snprintf(out, size, "%s", name);
    else n = snprintf(out, size, "/dev/shm/sluice.%s", name);
    return n < 0 || (size_t)n >= size ? SLUICE_EINVAL : SLUICE_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The kernel's id of this boot, as sixteen bytes. */
static int read_boot_id(uint8_t out[16])
{
    char text[64] = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return SLUICE_EIO;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return SLUICE_EIO;
    unsigned digits = 0;
    memset(out, 0, 16);
    for (const char *p = text; *p != '\0' && digits < 32; p++) {
        int d = hex_digit(*p);
        if (d < 0) continue;
        out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | d);
        digits++;
    }
    return digits == 32 ? SLUICE_OK : SLUICE_EIO;
}

/* --- Creating a segment --------------------------------------------------- */

static int init_mutex(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    int e = pthread_mutexattr_init(&a);
    if (e == 0) e = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (e == 0) e = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (e == 0) e = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
    if (e != 0) errno = e;
    return e == 0 ? SLUICE_OK : status_of(e);
}

/* Fill a segment whose memory is zero but for its signature. `ready` comes last; Release, so that who
 * sees it sees the rest. */
static int fill(struct sl_canal_segment *seg, const struct wish *w)
{
    struct sl_canal_shm_header *h = seg->header;
#ifdef MUT_READYFIRST
    h->ready = 1;
#endif
    h->magic = SL_CANAL_MAGIC;
    h->format = SL_CANAL_FORMAT;
    h->layout = sl_canal_layout_hash();
    h->bytes = seg->bytes;
    h->keys = seg->key_count;
    h->slots = seg->slot_count;
    h->records = seg->record_count;
    memcpy(h->boot, w->boot, sizeof h->boot);
    if (getrandom(&h->seed, sizeof h->seed, 0) != sizeof h->seed) return SLUICE_EIO;
    int status = init_mutex(&h->key_mutex);
    if (status == SLUICE_OK) status = init_mutex(&h->mark_mutex);
    for (uint32_t i = 0; i < seg->slot_count && status == SLUICE_OK; i++) {
        seg->slots[i].generation = 1;
        status = init_mutex(&seg->slots[i].mutex);
    }
    if (status == SLUICE_OK) __atomic_store_n(&h->ready, 1, __ATOMIC_RELEASE);
    return status;
}

/* Whether a file may be so large; else writing to it would send a signal. */
static int check_limit(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes)
        return SLUICE_OK;
    errno = EFBIG;
    return SLUICE_ENOSPC;
}

/* All of the file's space now, so that a full disk is a status here and not a SIGBUS
 * later. */
static int reserve(int fd, size_t bytes)
{
    int e;
    do e = posix_fallocate(fd, 0, (off_t)bytes);
    while (e == EINTR);
    if (e != 0) errno = e;
    return e == 0 ? SLUICE_OK : status_of(e);
}

static int map(int fd, struct sl_canal_segment *seg, uint32_t keys, uint32_t slots,
               uint32_t records)
{
    sl_canal_layout_place(seg, NULL, keys, slots, records);
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *base = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) return status_of(errno);
    sl_canal_layout_place(seg, base, keys, slots, records);
    seg->fd = fd;
    return SLUICE_OK;
}

/* Zero everything after the header. The file keeps its length: if its header was damaged, other
 * processes may have it mapped, and truncating it would raise SIGBUS there. */
static int clear(int fd)
{
    const off_t begin = sizeof(struct sl_canal_shm_header);
    struct stat st;
    if (fstat(fd, &st) != 0) return status_of(errno);
    if (st.st_size <= begin) return SLUICE_OK;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin,
                  st.st_size - begin) == 0)
        return SLUICE_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return status_of(errno);
    return ftruncate(fd, begin) == 0 ? SLUICE_OK : status_of(errno);
}

/* Make the segment in a file whose lock we have. What was there is not in use. */
static int make(int fd, const struct wish *w, struct sl_canal_segment *seg)
{
    sl_canal_layout_place(seg, NULL, w->keys, w->slots, w->records);
    int status = check_limit(seg->bytes);
    if (status != SLUICE_OK) return status;
    /* Signed before it grows or is cleared: a file of zeros is not taken for an
     * unfinished segment, it may be somebody's disk image. */
    const struct sl_canal_shm_header signature = {.magic = SL_CANAL_MAGIC,
                                                  .format = SL_CANAL_FORMAT};
    if (pwrite(fd, &signature, sizeof signature, 0) != sizeof signature)
        return status_of(errno);
    status = clear(fd); /* Also of an earlier boot's segment. */
    if (status == SLUICE_OK) status = reserve(fd, seg->bytes);
    if (status == SLUICE_OK) status = map(fd, seg, w->keys, w->slots, w->records);
    if (status != SLUICE_OK) {
        int e = errno;
        (void)clear(fd); /* Give the space back if we can. */
        errno = e;
        return status;
    }
    status = fill(seg, w);
    if (status != SLUICE_OK) munmap(seg->header, seg->bytes);
    return status;
}

/* --- Checking a header ---------------------------------------------------- */

enum verdict { GOOD, UNFINISHED, BAD };

/* Look at the header in a file before anything is mapped. BAD: *status says how.
 * UNFINISHED: nobody can be using it; whoever has the lock may make it anew. Only GOOD
 * is certain without the lock: somebody may be making it. Hence the header first, then
 * the size: a header that is ready belongs to a file that has grown. */
static enum verdict inspect(int fd, const struct wish *w, struct sl_canal_shm_header *h,
                            int *status)
{
    struct stat st;
    ssize_t n = pread(fd, h, sizeof *h, 0);
    if (n < 0 || fstat(fd, &st) != 0) {
        *status = status_of(errno);
        return BAD;
    }
    if (n == 0) return UNFINISHED;
    *status = SLUICE_EFOREIGN;
    if (n < (ssize_t)sizeof h->magic || h->magic != SL_CANAL_MAGIC) return BAD;
    *status = SLUICE_ETRUNCATED;
    if (n != sizeof *h) return BAD;
    if (memcmp(h->boot, w->boot, sizeof h->boot) != 0) return UNFINISHED;
    if (!h->ready) return UNFINISHED;
    *status = SLUICE_EVERSION;
    if (h->format != SL_CANAL_FORMAT || h->layout != sl_canal_layout_hash()) return BAD;
    *status = SLUICE_EFOREIGN;
    if (h->keys == 0 || h->keys > SLUICE_KEYS_MAX || h->slots == 0 ||
        h->slots > SLUICE_SLOTS_MAX || h->records == 0 ||
        h->records > SLUICE_RECORDS_MAX)
        return BAD;
    struct sl_canal_segment size;
    sl_canal_layout_place(&size, NULL, h->keys, h->slots, h->records);
    if (size.bytes != h->bytes) return BAD;
    *status = SLUICE_ETRUNCATED;
    if ((uint64_t)st.st_size < h->bytes) return BAD;
    *status = SLUICE_ESMALLER;
    if (h->keys < w->asked.keys || h->slots < w->asked.slots ||
        h->records < w->asked.records)
        return BAD;
    *status = SLUICE_OK;
    return GOOD;
}

/* --- Opening a named segment ---------------------------------------------- */

/* Whether the file may be ours at all: regular, and of an owner that we trust. */
static int check_file(int fd, const struct wish *w)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return status_of(errno);
    if (!S_ISREG(st.st_mode)) return SLUICE_EFOREIGN;
    bool shared = (w->mode & 077u) != 0;
    if (!shared && st.st_uid != geteuid()) return SLUICE_EOWNER;
    return SLUICE_OK;
}

/* Open the file, and create it if need be. First without O_CREAT: where the system
 * protects sticky folders, that is refused for files of others. */
static int open_file(const struct wish *w, int *out, bool *created)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(w->path, flags);
        *created = false;
        if (fd < 0 && errno == ENOENT && !w->asked.existing) {
            fd = open(w->path, flags | O_CREAT | O_EXCL, w->mode);
            *created = fd >= 0;
            if (fd < 0 && errno == EEXIST) continue; /* Somebody else was first. */
        }
        if (fd < 0) return status_of(errno);
        /* What the umask took away was asked for. */
        if (*created && fchmod(fd, w->mode) != 0) {
            int e = errno;
            close(fd);
            errno = e;
            return status_of(e);
        }
        *out = fd;
        return SLUICE_OK;
    }
    return SLUICE_EBUSY;
}

/* The lock of whoever makes the segment. Belongs to this open file alone. */
static int lock_making(int fd)
{
    for (int waited_ms = 0;; waited_ms += 2) {
        struct flock l = {.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = MAKING_BYTE,
                          .l_len = 1};
        if (fcntl(fd, F_OFD_SETLK, &l) == 0) return SLUICE_OK;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return status_of(errno);
        if (waited_ms >= SL_CANAL_SEGMENT_WAIT_MS) return SLUICE_EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static void unlock_making(int fd)
{
    struct flock l = {
        .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = MAKING_BYTE, .l_len = 1};
    (void)fcntl(fd, F_OFD_SETLK, &l); /* Closing the file would do as well. */
}

/* With the file open: use what is there, or make it. *again: the file was removed
 * under us. A file that we created and could not fill is removed again. */
static int use_file(int fd, bool created, const struct wish *w,
                    struct sl_canal_segment *seg, bool *again)
{
    struct sl_canal_shm_header h;
    int status = check_file(fd, w);
    if (status != SLUICE_OK) return status;
    if (inspect(fd, w, &h, &status) != GOOD) {
        status = lock_making(fd);
        if (status != SLUICE_OK) return status;
        if (!sl_canal_segment_still_at(fd, w->path)) {
            *again = true;
            return SLUICE_EIO;
        }
        if (inspect(fd, w, &h, &status) == UNFINISHED) {
            if (w->asked.existing) return SLUICE_ENOENT; /* Closing it unlocks it. */
            status = make(fd, w, seg);
            int e = errno;
            if (status != SLUICE_OK && created) unlink(w->path);
            unlock_making(fd);
            errno = e;
            return status;
        }
        unlock_making(fd);
    }
    if (status != SLUICE_OK) return status;
    return map(fd, seg, h.keys, h.slots, h.records);
}

static int open_named(const struct wish *w, struct sl_canal_segment *seg)
{
    for (int tries = 0; tries < 100; tries++) {
        int fd = -1;
        bool again = false, created;
        int status = open_file(w, &fd, &created);
        if (status != SLUICE_OK) return status;
        status = use_file(fd, created, w, seg, &again);
        if (status == SLUICE_OK) return status;
        int e = errno;
        close(fd);
        errno = e;
        if (!again) return status;
    }
    return SLUICE_EBUSY;
}

/* --- Opening the user's own segment --------------------------------------- */

/* Candidates are files that can be the user's segment (own.h); the first of them that is
 * finished is it. Several processes may find none, or none that is finished, and create
 * different ones. They agree in this way:
 *
 *   1. A process that makes a candidate into a segment locks it, and then looks for others.
 *   2. If it finds one before its own, it removes its own and starts again.
 *   3. If it finds one after its own, it waits for that one's lock. If the other is finished by
 *      then, it removes its own and uses the other. If not, the other's maker is dead, and it
 *      removes the other.
 *   4. Otherwise it makes its own.
 *
 * Of two makers the one that looks later sees the other, so they never make two segments. A
 * process that holds a lock waits only for candidates after its own, so there is no deadlock. */

/* What a maker that holds the lock of `path` has found out about one behind it: *other is
 * its descriptor if it is the user's segment, else -1. */
static int ask_another(const char *another, const struct wish *w,
                       struct sl_canal_shm_header *h, int *other)
{
    *other = -1;
    int fd = open(another, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? SLUICE_OK : status_of(errno);
    int status = sl_canal_own_is(fd) ? lock_making(fd) : SLUICE_OK;
    if (status == SLUICE_OK && sl_canal_own_is(fd) &&
        sl_canal_segment_still_at(fd, another)) {
        int verdict_status = SLUICE_OK;
        enum verdict v = inspect(fd, w, h, &verdict_status);
        if (v == UNFINISHED) unlink(another);
        if (v == GOOD) {
            unlock_making(fd);
            *other = fd;
            return SLUICE_OK;
        }
    }
    int e = errno;
    close(fd);
    errno = e;
    return status;
}

/* With the lock of `path`, which is not finished: whether it is to be made. *again: no, one
 * before it is. *other: no, this one is the user's segment. */
static int agree(const char *path, const struct wish *w, struct sl_canal_shm_header *h,
                 bool *again, int *other)
{
    struct sl_canal_own_list list;
    int status = SLUICE_OK;
    bool behind = false;
    *other = -1;
    int e = sl_canal_own_list(&list);
    if (e != 0) {
        errno = e;
        return status_of(e);
    }
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.paths[i], path) == 0) {
            behind = true;
            continue;
        }
#ifndef MUT_NOAGREE
        if (!behind) *again = true;
        else status = ask_another(list.paths[i], w, h, other);
#endif
        if (*again || status != SLUICE_OK || *other >= 0) break;
    }
    sl_canal_own_free(&list);
    return status;
}

/* With the lock of a candidate that is not finished, and that is still at its path: make
 * it, unless another one is the user's segment. *fd becomes that one's. */
static int make_own(int *fd, const char *path, const struct wish *w,
                    struct sl_canal_segment *seg, bool *again)
{
    struct sl_canal_shm_header h;
    int other;
    int status = agree(path, w, &h, again, &other);
    if (status == SLUICE_OK && !*again && other < 0) status = make(*fd, w, seg);
    else {
        unlink(path); /* Unfinished and locked: nobody uses it. */
        if (other < 0) return status == SLUICE_OK ? SLUICE_EBUSY : status;
        close(*fd);
        *fd = other;
        return map(other, seg, h.keys, h.slots, h.records);
    }
    int e = errno;
    if (status != SLUICE_OK) unlink(path);
    unlock_making(*fd);
    errno = e;
    return status;
}

/* With a candidate open: use it, or make it. */
static int use_own(int *fd, const char *path, const struct wish *w,
                   struct sl_canal_segment *seg, bool *again)
{
    struct sl_canal_shm_header h;
    int status = SLUICE_OK;
    if (inspect(*fd, w, &h, &status) != GOOD) {
        status = lock_making(*fd);
        if (status != SLUICE_OK) return status;
        if (!sl_canal_segment_still_at(*fd, path)) {
            *again = true;
            return SLUICE_EBUSY;
        }
        if (inspect(*fd, w, &h, &status) == UNFINISHED)
            return w->asked.existing ? SLUICE_ENOENT
                                     : make_own(fd, path, w, seg, again);
        unlock_making(*fd);
    }
    if (status != SLUICE_OK) return status;
    return map(*fd, seg, h.keys, h.slots, h.records);
}

/* The first candidate, created if there is none. -1 and errno; EEXIST and ENOENT: what was
 * there a moment ago has changed. */
static int open_candidate(const struct wish *w, char path[SL_CANAL_OWN_PATH_SIZE])
{
    find_own_path(path);
    int fd = -1;
    if (sl_canal_own_is_at(path)) {
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && !sl_canal_own_is(fd)) {
            close(fd);
            fd = -1;
            errno = EEXIST;
        }
    } else if (!w->asked.existing) fd = sl_canal_own_create(w->mode, path);
    else errno = ENODATA;
    return fd;
}

static int open_own(const struct wish *w, struct sl_canal_segment *seg)
{
    for (int tries = 0; tries < 100; tries++) {
        char path[SL_CANAL_OWN_PATH_SIZE];
        bool again = false;
        int fd = open_candidate(w, path);
        if (fd < 0 && errno == ENODATA) return SLUICE_ENOENT;
        if (fd < 0 && (errno == EEXIST || (errno == ENOENT && tries < 10))) continue;
        if (fd < 0) return status_of(errno);
        int status = use_own(&fd, path, w, seg, &again);
        if (status == SLUICE_OK) return status;
        int e = errno;
        close(fd);
        errno = e;
        if (!again) return status;
    }
    return SLUICE_EBUSY;
}

/* --- The functions of segment.h ------------------------------------------- */

static int open_anonymous(const struct wish *w, struct sl_canal_segment *seg)
{
    int status = map(-1, seg, w->keys, w->slots, w->records);
    if (status != SLUICE_OK) return status;
    status = fill(seg, w);
    if (status != SLUICE_OK) munmap(seg->header, seg->bytes);
    return status;
}

static int fill_wish(struct wish *w, const struct sluice_canal_options *options)
{
    if (options != NULL) w->asked = *options;
    const struct sluice_canal_options *o = &w->asked;
    w->keys = o->keys != 0 ? o->keys : SL_CANAL_KEYS_DEFAULT;
    w->slots = o->slots != 0 ? o->slots : SL_CANAL_SLOTS_DEFAULT;
    w->records = o->records != 0 ? o->records : SL_CANAL_RECORDS_DEFAULT;
    w->mode = o->mode != 0 ? o->mode : SL_CANAL_MODE_DEFAULT;
    if (w->keys > SLUICE_KEYS_MAX || w->slots > SLUICE_SLOTS_MAX ||
        w->records > SLUICE_RECORDS_MAX || (w->mode & ~0777u) != 0)
        return SLUICE_EINVAL;
    return read_boot_id(w->boot);
}

int sl_canal_segment_open(const char *name, const struct sluice_canal_options *options,
                          struct sl_canal_segment *seg)
{
    struct wish w = {0};
    char path[PATH_MAX];
    if (!sl_canal_word_is_supported()) return SLUICE_ENOCAS;
    if (!sl_canal_robust_is_supported()) {
        errno = ENOTSUP;
        return SLUICE_EIO;
    }
    int status = fill_wish(&w, options);
    if (status != SLUICE_OK) return status;
    if (w.asked.anonymous) return open_anonymous(&w, seg);
    if (name == NULL) return open_own(&w, seg);
    status = sl_canal_segment_path(name, path, sizeof path);
    if (status != SLUICE_OK) return status;
    w.path = path;
    return open_named(&w, seg);
}

void sl_canal_segment_close(struct sl_canal_segment *seg)
{
    munmap(seg->header, seg->bytes);
    if (seg->fd >= 0) close(seg->fd);
}

int sl_canal_segment_find_path(const struct sl_canal_segment *seg, char **out)
{
    char self[64], path[PATH_MAX];
    *out = NULL;
    if (seg->fd < 0) return SLUICE_OK;
    /* Absolute, as the kernel sees it, whatever the folder we are in later. */
    snprintf(self, sizeof self, "/proc/self/fd/%d", seg->fd);
    ssize_t n = readlink(self, path, sizeof path);
    if (n < 0 || (size_t)n >= sizeof path) return SLUICE_EIO;
    *out = strndup(path, (size_t)n);
    return *out == NULL ? SLUICE_ENOMEM : SLUICE_OK;
}

bool sl_canal_segment_still_at(int fd, const char *path)
{
    struct stat a, b;
    /* What cannot be looked at is not known to be gone. */
    if (fstat(fd, &a) != 0) return true;
    if (stat(path, &b) != 0) return errno != ENOENT && errno != ENOTDIR;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool sl_canal_segment_truncated(const struct sl_canal_segment *seg)
{
    struct stat st;
    return seg->fd >= 0 && fstat(seg->fd, &st) == 0 &&
           (uint64_t)st.st_size < seg->bytes;
}

int sluice_canal_remove(const char *name)
{
    char path[PATH_MAX];
    struct sl_canal_shm_header h;
    struct stat st;
    int status = sl_canal_segment_path(name, path, sizeof path);
    if (status != SLUICE_OK) return status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return status_of(errno);
    /* An empty one is a segment that nobody finished. */
    bool ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                (st.st_size == 0 ||
                 (pread(fd, &h, sizeof h.magic, 0) == sizeof h.magic &&
                  h.magic == SL_CANAL_MAGIC));
    close(fd);
    if (!ours) return SLUICE_EFOREIGN;
    return unlink(path) == 0 ? SLUICE_OK : status_of(errno);
}
