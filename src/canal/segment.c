#include "canal/segment.h"

#include <assert.h>
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

#include "base/hex.h"
#include "canal/home.h"
#include "canal/own.h"
#include "canal/robust.h"

/* The creator of a segment locks this byte of the file. The bytes below it are for the
 * tethers of slots. */
#define MAKING_BYTE ((off_t)1 << 40)

/* The arguments of an open, with the defaults filled in. */
struct open_args {
    const char *path;
    struct sluice_canal_options options;
    uint32_t keys, slots, records, mode;
    bool in_home; /* The default segment in the user's home directory. */
    uint8_t boot[16];
};

/* --- Helpers -------------------------------------------------------------- */

/* Convert an errno to a status. Does not change errno. */
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
        case ELOOP: return SLUICE_EFOREIGN; /* We do not follow symbolic links. */
        case EISDIR: return SLUICE_EFOREIGN;
        case ENAMETOOLONG: return SLUICE_EINVAL;
        default: return SLUICE_EIO;
    }
}

/* Find the first candidate for the user's segment; if there is none, return the fixed
 * name. */
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
        if (sl_canal_home_path(false, out, size) == 0) return SLUICE_OK;
        find_own_path(own);
        n = snprintf(out, size, "%s", own);
    } else if (name[0] == '\0') return SLUICE_EINVAL;
    else if (strchr(name, '/') != NULL) n = snprintf(out, size, "%s", name);
    else n = snprintf(out, size, "/dev/shm/sluice.%s", name);
    return n < 0 || (size_t)n >= size ? SLUICE_EINVAL : SLUICE_OK;
}

/* Read the kernel's boot id as sixteen bytes. */
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
        int d = sl_hex_digit(*p);
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

/* Fill a segment that contains only its signature and zeros. Set `ready` last, with
 * Release, so that a process that sees `ready` sees everything else. */
static int fill(struct sl_canal_segment *seg, const struct open_args *w)
{
    struct sl_canal_shm_header *h = seg->header;
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

/* Check the file size limit; a write beyond it would raise SIGXFSZ. */
static int check_limit(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes)
        return SLUICE_OK;
    errno = EFBIG;
    return SLUICE_ENOSPC;
}

/* Allocate all blocks of the file, so that a full disk causes an error now and not a
 * SIGBUS later. */
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
    assert(keys > 0 && keys <= SLUICE_KEYS_MAX);
    assert(slots > 0 && slots <= SLUICE_SLOTS_MAX);
    assert(records > 0 && records <= SLUICE_RECORDS_MAX);
    sl_canal_layout_place(seg, NULL, keys, slots, records);
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *base = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) return status_of(errno);
    /* The 16-byte instructions need this alignment. */
    assert((uintptr_t)base % 128 == 0);
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

/* Create the segment in a file that we have locked. No process uses the file's
 * contents. */
static int make(int fd, const struct open_args *w, struct sl_canal_segment *seg)
{
    sl_canal_layout_place(seg, NULL, w->keys, w->slots, w->records);
    int status = check_limit(seg->bytes);
    if (status != SLUICE_OK) return status;
    /* Write the signature before the file grows or is cleared. A file of zeros does not
     * count as an unfinished segment, because it may be a disk image. */
    const struct sl_canal_shm_header signature = {.magic = SL_CANAL_MAGIC,
                                                  .format = SL_CANAL_FORMAT};
    if (pwrite(fd, &signature, sizeof signature, 0) != sizeof signature)
        return status_of(errno);
    status = clear(fd); /* The file may have contents from before a reboot. */
    if (status == SLUICE_OK) status = reserve(fd, seg->bytes);
    if (status == SLUICE_OK) status = map(fd, seg, w->keys, w->slots, w->records);
    if (status != SLUICE_OK) {
        int e = errno;
        (void)clear(fd); /* Try to free the space. */
        errno = e;
        return status;
    }
    status = fill(seg, w);
    if (status != SLUICE_OK) munmap(seg->header, seg->bytes);
    return status;
}

/* --- Checking a header ---------------------------------------------------- */

enum header_state { GOOD, UNFINISHED, BAD };

/* Return whether a header contains only zeros. After a power failure, the file of the
 * default segment may contain only zeros: the file system can write the length of a
 * file to the disk before its contents. */
static bool is_blank(const struct sl_canal_shm_header *h)
{
    static const struct sl_canal_shm_header zeros;
    return memcmp(h, &zeros, sizeof zeros) == 0;
}

/* Check the header of a file before it is mapped. Returns BAD, with the reason in
 * *status; UNFINISHED if no process can be using the file, so that the process that
 * locks it may create the segment; or GOOD. Without the lock only GOOD is certain,
 * because another process may be creating the segment. So this function reads the
 * header first and the size second: if `ready` is set in the header, the file already
 * has its full size. */
static enum header_state check_header(int fd, const struct open_args *w,
                                      struct sl_canal_shm_header *h, int *status)
{
    struct stat st;
    ssize_t n = pread(fd, h, sizeof *h, 0);
    if (n < 0 || fstat(fd, &st) != 0) {
        *status = status_of(errno);
        return BAD;
    }
    if (n == 0) return UNFINISHED;
    *status = SLUICE_EFOREIGN;
    if (w->in_home && n == sizeof *h && is_blank(h)) return UNFINISHED;
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
    if (h->keys < w->options.keys || h->slots < w->options.slots ||
        h->records < w->options.records)
        return BAD;
    *status = SLUICE_OK;
    return GOOD;
}

/* --- Opening a named segment ---------------------------------------------- */

/* Check that the file is a regular file and belongs to a user whom we trust. */
static int check_file(int fd, const struct open_args *w)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return status_of(errno);
    if (!S_ISREG(st.st_mode)) return SLUICE_EFOREIGN;
    if (w->in_home) return sl_canal_own_is(fd) ? SLUICE_OK : SLUICE_EOWNER;
    bool shared = (w->mode & 077u) != 0;
    if (!shared && st.st_uid != geteuid()) return SLUICE_EOWNER;
    return SLUICE_OK;
}

/* Open the file; create it if it does not exist. Try without O_CREAT first: if the
 * kernel protects sticky directories, O_CREAT fails for files of other users. */
static int open_file(const struct open_args *w, int *out, bool *created)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(w->path, flags);
        *created = false;
        if (fd < 0 && errno == ENOENT && !w->options.existing) {
            fd = open(w->path, flags | O_CREAT | O_EXCL, w->mode);
            *created = fd >= 0;
            if (fd < 0 && errno == EEXIST) continue; /* Another process created it. */
        }
        if (fd < 0) return status_of(errno);
        /* The umask must not restrict the mode that the caller requested. */
        if (*created && fchmod(fd, w->mode) != 0) {
            int e = errno;
            close(fd);
            errno = e;
            return status_of(e);
        }
        if (*created && w->in_home) sl_canal_home_prepare(fd);
        *out = fd;
        return SLUICE_OK;
    }
    return SLUICE_EBUSY;
}

/* Lock the file in order to create the segment. The lock belongs to this open file
 * description. */
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
    (void)fcntl(fd, F_OFD_SETLK, &l); /* Closing the file would unlock it too. */
}

/* Use the segment in an open file, or create the segment there. Sets *again if another
 * process has removed the file meanwhile. Removes a file that we created but could not
 * fill. */
static int use_file(int fd, bool created, const struct open_args *w,
                    struct sl_canal_segment *seg, bool *again)
{
    struct sl_canal_shm_header h;
    int status = check_file(fd, w);
    if (status != SLUICE_OK) return status;
    if (check_header(fd, w, &h, &status) != GOOD) {
        status = lock_making(fd);
        if (status != SLUICE_OK) return status;
        if (!sl_canal_segment_still_at(fd, w->path)) {
            *again = true;
            return SLUICE_EIO;
        }
        if (check_header(fd, w, &h, &status) == UNFINISHED) {
            /* Closing the file unlocks it. */
            if (w->options.existing) return SLUICE_ENOENT;
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

static int open_named(const struct open_args *w, struct sl_canal_segment *seg)
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

/* --- Opening the default segment in /dev/shm ------------------------------- */

/* Candidates are files that can be the user's segment (own.h). The first finished
 * candidate is the user's segment. Several processes may find no finished candidate at
 * the same time, and each may create its own. They agree on one of them as follows:
 *
 *   1. A process that wants to create the segment locks its candidate and lists the others.
 *   2. If there is an earlier candidate, it removes its own and starts again.
 *   3. If there is a later candidate, it waits for the lock of that candidate. If that
 *      candidate is finished by then, the process removes its own and uses that one. If not,
 *      the creator of that candidate is dead, and the process removes it.
 *   4. Otherwise the process creates the segment in its own candidate.
 *
 * Of two creators, the one that searches later sees the other's candidate, so they
 * never create two segments. A process that holds a lock waits only for the locks of
 * later candidates, so there is no deadlock. */

/* Check a candidate that comes after our own candidate `path`, which we have locked.
 * Sets *other to the descriptor of that candidate if it is the user's segment,
 * otherwise to -1. */
static int check_candidate(const char *another, const struct open_args *w,
                           struct sl_canal_shm_header *h, int *other)
{
    *other = -1;
    int fd = open(another, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? SLUICE_OK : status_of(errno);
    int status = sl_canal_own_is(fd) ? lock_making(fd) : SLUICE_OK;
    if (status == SLUICE_OK && sl_canal_own_is(fd) &&
        sl_canal_segment_still_at(fd, another)) {
        int candidate_status = SLUICE_OK;
        enum header_state v = check_header(fd, w, h, &candidate_status);
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

/* Decide whether to create the segment in the candidate `path`, which is unfinished and
 * which we have locked. Sets *again if we must not, because an earlier candidate
 * exists. Sets *other to a descriptor if we must not, because that candidate is the
 * user's segment. */
static int choose_candidate(const char *path, const struct open_args *w,
                            struct sl_canal_shm_header *h, bool *again, int *other)
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
        if (!behind) *again = true;
        else status = check_candidate(list.paths[i], w, h, other);
        if (*again || status != SLUICE_OK || *other >= 0) break;
    }
    sl_canal_own_free(&list);
    return status;
}

/* Create the segment in a candidate that is unfinished, locked by us and still at its
 * path. If another candidate is the user's segment, set *fd to the descriptor of that
 * candidate instead. */
static int make_own(int *fd, const char *path, const struct open_args *w,
                    struct sl_canal_segment *seg, bool *again)
{
    struct sl_canal_shm_header h;
    int other;
    int status = choose_candidate(path, w, &h, again, &other);
    if (status == SLUICE_OK && !*again && other < 0) status = make(*fd, w, seg);
    else {
        unlink(path); /* The file is unfinished and locked, so no process uses it. */
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

/* Use the segment in an open candidate, or create the segment there. */
static int use_own(int *fd, const char *path, const struct open_args *w,
                   struct sl_canal_segment *seg, bool *again)
{
    struct sl_canal_shm_header h;
    int status = SLUICE_OK;
    if (check_header(*fd, w, &h, &status) != GOOD) {
        status = lock_making(*fd);
        if (status != SLUICE_OK) return status;
        if (!sl_canal_segment_still_at(*fd, path)) {
            *again = true;
            return SLUICE_EBUSY;
        }
        if (check_header(*fd, w, &h, &status) == UNFINISHED)
            return w->options.existing ? SLUICE_ENOENT
                                       : make_own(fd, path, w, seg, again);
        unlock_making(*fd);
    }
    if (status != SLUICE_OK) return status;
    return map(*fd, seg, h.keys, h.slots, h.records);
}

/* Open the first candidate; create one if there is none. On failure, returns -1 and
 * sets errno; EEXIST and ENOENT mean that the candidates have changed meanwhile. */
static int open_candidate(const struct open_args *w, char path[SL_CANAL_OWN_PATH_SIZE])
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
    } else if (!w->options.existing) fd = sl_canal_own_create(w->mode, path);
    else errno = ENODATA;
    return fd;
}

static int open_own(const struct open_args *w, struct sl_canal_segment *seg)
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

/* Open the default segment: in the home directory, or else in /dev/shm. */
static int open_default(const struct open_args *w, struct sl_canal_segment *seg)
{
    for (int tries = 0;; tries++) {
        char path[PATH_MAX];
        int e = sl_canal_home_path(!w->options.existing, path, sizeof path);
        if (e == ENOENT) return open_own(w, seg);
        if (e != 0) {
            errno = e;
            return status_of(e);
        }
        struct open_args home = *w;
        home.path = path;
        /* Only this user can access the directory. */
        home.mode = SL_CANAL_MODE_DEFAULT;
        home.in_home = true;
        int status = open_named(&home, seg);
        /* A process may have removed the directory meanwhile. */
        if (status != SLUICE_ENOENT || w->options.existing || tries == 10)
            return status;
    }
}

static int open_anonymous(const struct open_args *w, struct sl_canal_segment *seg)
{
    int status = map(-1, seg, w->keys, w->slots, w->records);
    if (status != SLUICE_OK) return status;
    status = fill(seg, w);
    if (status != SLUICE_OK) munmap(seg->header, seg->bytes);
    return status;
}

static int fill_args(struct open_args *w, const struct sluice_canal_options *options)
{
    if (options != NULL) w->options = *options;
    const struct sluice_canal_options *o = &w->options;
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
    struct open_args w = {0};
    char path[PATH_MAX];
    if (!sl_canal_word_is_supported()) return SLUICE_ENOCAS;
    if (!sl_canal_robust_is_supported()) {
        errno = ENOTSUP;
        return SLUICE_EIO;
    }
    int status = fill_args(&w, options);
    if (status != SLUICE_OK) return status;
    if (w.options.anonymous) return open_anonymous(&w, seg);
    if (name == NULL) return open_default(&w, seg);
    status = sl_canal_segment_path(name, path, sizeof path);
    if (status != SLUICE_OK) return status;
    w.path = path;
    return open_named(&w, seg);
}

void sl_canal_segment_close(struct sl_canal_segment *seg)
{
    assert(seg->header != NULL && seg->bytes > 0);
    munmap(seg->header, seg->bytes);
    if (seg->fd >= 0) close(seg->fd);
}

int sl_canal_segment_find_path(const struct sl_canal_segment *seg, char **out)
{
    char self[64], path[PATH_MAX];
    *out = NULL;
    if (seg->fd < 0) return SLUICE_OK;
    /* The path that the kernel returns is absolute, so it does not depend on the
     * working directory. */
    snprintf(self, sizeof self, "/proc/self/fd/%d", seg->fd);
    ssize_t n = readlink(self, path, sizeof path);
    if (n < 0 || (size_t)n >= sizeof path) return SLUICE_EIO;
    *out = strndup(path, (size_t)n);
    return *out == NULL ? SLUICE_ENOMEM : SLUICE_OK;
}

bool sl_canal_segment_still_at(int fd, const char *path)
{
    struct stat a, b;
    /* If we cannot examine the file, assume that it is still there. */
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
    /* An empty file is an unfinished segment. */
    bool ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                (st.st_size == 0 ||
                 (pread(fd, &h, sizeof h.magic, 0) == sizeof h.magic &&
                  h.magic == SL_CANAL_MAGIC));
    close(fd);
    if (!ours) return SLUICE_EFOREIGN;
    return unlink(path) == 0 ? SLUICE_OK : status_of(errno);
}
