#include "disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define INODES_MAX 4096
#define NAMES_MAX 8
#define NAME_BYTES 32
#define DESCRIPTORS_MAX 16
#define FIRST_DESCRIPTOR (disk_directory + 1)
#define PAGE_BYTES_MIN 512u
#define EXT4 0xef53u

const char *const disk_call_names[DISK_CALLS] = {"any call",
                                                 "open",
                                                 "write",
                                                 "allocate",
                                                 "truncate",
                                                 "sync",
                                                 "sync of the directory",
                                                 "rename",
                                                 "unlink",
                                                 "read"};

/* ---- state ---- */

/* A change of a file that is not durable: bytes that were written, or a new size. */
struct change {
    uint64_t at, n;
    char *bytes;   /* NULL: zeros. */
    uint64_t size; /* Of the file, after this change. */
};

struct inode {
    char *cache, *durable; /* Both have `space` bytes. The bytes after them are zero. */
    size_t space;
    uint64_t size, durable_size; /* May be larger than `space`. */
    struct change *changes;
    size_t count, changes_max;
    bool write_failed; /* By the process that is alive. */
    bool sync_failed;
};

struct names {
    struct {
        char name[NAME_BYTES]; /* "": none. */
        int inode;
    } at[NAMES_MAX];
};

static struct inode inodes[INODES_MAX];
static int inodes_count;
static struct names names, durable_names;
static struct names *names_since; /* After each change since the last sync. */
static size_t names_count, names_max;
static int descriptors[DESCRIPTORS_MAX]; /* The inode + 1, or 0. */
static uint64_t random_state;

static struct {
    enum disk_call call;
    uint64_t nth, more;
    int error;
    uint64_t failures;
} fault;
static struct {
    uint64_t nth; /* 0: none. */
    void (*happen)(void *arg);
    void *arg;
    bool is_due;          /* In the middle of this call, or after it. */
    uint64_t after_fault; /* Becomes nth when a fault happens; 0: no accident. */
} accident;
static struct {
    void (*run)(void *arg);
    void *arg;
    bool is_running;
} meanwhile;
static bool dead;
static uint64_t counts[DISK_CALLS], wrong_syncs, calls, bad_byte;
static bool difficult, can_allocate, can_zero;
static uint32_t type;

static uint64_t draw(uint64_t below)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % below;
}

static void *must(void *memory)
{
    if (memory == NULL) abort();
    return memory;
}

/* ---- inodes ---- */

static void grow(struct inode *i, uint64_t size)
{
    if (size <= i->space) return;
    size_t space = (size_t)size + (64u << 10);
    i->cache = must(realloc(i->cache, space));
    i->durable = must(realloc(i->durable, space));
    memset(i->cache + i->space, 0, space - i->space);
    memset(i->durable + i->space, 0, space - i->space);
    i->space = space;
}

/* Forget the first changes. */
static void drop_changes(struct inode *i, size_t count)
{
    for (size_t c = 0; c < count; c++) free(i->changes[c].bytes);
    i->count -= count;
    if (i->count > 0)
        memmove(i->changes, i->changes + count, i->count * sizeof *i->changes);
}

static void inode_free(struct inode *i)
{
    drop_changes(i, i->count);
    free(i->changes);
    free(i->cache);
    free(i->durable);
    *i = (struct inode){0};
}

/* Apply the part of a change that lies in [from, to). */
static void apply(const struct change *c, char *bytes, size_t space, uint64_t from,
                  uint64_t to)
{
    if (c->at > from) from = c->at;
    if (c->at + c->n < to) to = c->at + c->n;
    if (to > space) to = space; /* Only zeros. */
    if (from >= to) return;
    if (c->bytes != NULL)
        memcpy(bytes + from, c->bytes + (from - c->at), (size_t)(to - from));
    else memset(bytes + from, 0, (size_t)(to - from));
}

static void change(struct inode *i, uint64_t at, const char *bytes, uint64_t n,
                   uint64_t size)
{
    if (i->count == i->changes_max) {
        i->changes_max = 2 * i->changes_max + 16;
        i->changes = must(realloc(i->changes, i->changes_max * sizeof *i->changes));
    }
    if (bytes != NULL) grow(i, at + n);
    struct change *c = &i->changes[i->count++];
    *c = (struct change){.at = at, .n = n, .size = size};
    if (bytes != NULL && n > 0) {
        c->bytes = must(malloc((size_t)n));
        memcpy(c->bytes, bytes, (size_t)n);
    }
    apply(c, i->cache, i->space, at, at + n);
    i->size = size;
}

/* Make some of the changes durable, page by page: those that the kernel has written back. */
static void write_back_some(struct inode *i, size_t page)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t c = 0; c < i->count; c++) {
        const struct change *x = &i->changes[c];
        if (x->n == 0) continue;
        if (x->at < low) low = x->at;
        if (x->at + x->n > high) high = x->at + x->n;
    }
    if (high > i->space) high = i->space;
    /* Often a whole range is old or new, because the kernel writes in order. */
    uint64_t style = draw(6), border = low < high ? low + draw(high - low) : 0;
    for (uint64_t p = low / page * page; p < high; p += page) {
        size_t until = style < 2    ? (size_t)draw(i->count + 1)
                       : style < 4  ? draw(2) * i->count
                       : style == 4 ? (p < border ? i->count : 0)
                                    : (p < border ? 0 : i->count);
        for (size_t c = 0; c < until; c++)
            apply(&i->changes[c], i->durable, i->space, p, p + page);
    }
    size_t sized = (size_t)draw(i->count + 1);
    if (sized > 0) i->durable_size = i->changes[sized - 1].size;
    if (i->durable_size < i->space)
        memset(i->durable + i->durable_size, 0, i->space - (size_t)i->durable_size);
}

/* Make the first changes durable. */
static void write_back(struct inode *i, size_t count)
{
    for (size_t c = 0; c < count; c++)
        apply(&i->changes[c], i->durable, i->space, i->changes[c].at,
              i->changes[c].at + i->changes[c].n);
    if (count > 0) i->durable_size = i->changes[count - 1].size;
    drop_changes(i, count);
}

/* ---- names ---- */

static int find(const struct names *in, const char *name)
{
    for (int i = 0; i < NAMES_MAX; i++)
        if (strcmp(in->at[i].name, name) == 0) return i;
    return -1;
}

static void names_changed(void)
{
    if (names_count == names_max) {
        names_max = 2 * names_max + 16;
        names_since = must(realloc(names_since, names_max * sizeof *names_since));
    }
    names_since[names_count++] = names;
}

static void set_name(const char *name, int inode)
{
    int at = find(&names, name);
    if (at < 0) at = find(&names, "");
    assert(at >= 0 && strlen(name) < NAME_BYTES);
    strcpy(names.at[at].name, name);
    names.at[at].inode = inode;
}

static void clear_name(const char *name)
{
    int at = find(&names, name);
    names.at[at].name[0] = '\0';
    names.at[at].inode = 0;
}

bool disk_exists(const char *name)
{
    return find(&names, name) >= 0;
}

static struct inode *inode_of(const char *name)
{
    int at = find(&names, name);
    return at < 0 ? NULL : &inodes[names.at[at].inode];
}

static bool refers(const struct names *n, int inode)
{
    for (int i = 0; i < NAMES_MAX; i++)
        if (n->at[i].name[0] != '\0' && n->at[i].inode == inode) return true;
    return false;
}

static bool is_used(int inode)
{
    for (int d = 0; d < DESCRIPTORS_MAX; d++)
        if (descriptors[d] == inode + 1) return true;
    for (size_t i = 0; i < names_count; i++)
        if (refers(&names_since[i], inode)) return true;
    return refers(&names, inode) || refers(&durable_names, inode);
}

/* Free the memory of files that are gone. Their numbers are not used again. */
static void free_unused(void)
{
    for (int i = 0; i < inodes_count; i++)
        if (inodes[i].space > 0 && !is_used(i)) inode_free(&inodes[i]);
}

/* ---- life of the disk ---- */

void disk_open(uint64_t seed)
{
    for (int i = 0; i < inodes_count; i++) inode_free(&inodes[i]);
    inodes_count = 0;
    names = durable_names = (struct names){0};
    names_count = 0;
    memset(descriptors, 0, sizeof descriptors);
    random_state = seed;
    fault.error = 0;
    accident.nth = accident.after_fault = 0;
    accident.is_due = dead = false;
    meanwhile.run = NULL;
    memset(counts, 0, sizeof counts);
    calls = wrong_syncs = 0;
    bad_byte = UINT64_MAX;
    difficult = false;
    can_allocate = can_zero = true;
    type = EXT4;
}

void disk_seed(uint64_t seed)
{
    random_state = seed;
}

void disk_kill(void)
{
    memset(descriptors, 0, sizeof descriptors);
    for (int i = 0; i < inodes_count; i++) inodes[i].write_failed = false;
}

void disk_lose_power(size_t page_bytes)
{
    disk_kill();
    size_t named = (size_t)draw(names_count + 1);
    if (named > 0) durable_names = names_since[named - 1];
    names = durable_names;
    names_count = 0;
    free_unused();
    for (int i = 0; i < inodes_count; i++) {
        struct inode *f = &inodes[i];
        write_back_some(f, page_bytes);
        drop_changes(f, f->count);
        if (f->space > 0) memcpy(f->cache, f->durable, f->space);
        f->size = f->durable_size;
        f->sync_failed = false;
    }
    bad_byte = UINT64_MAX;
}

bool disk_damage(const char *name, uint64_t offset)
{
    struct inode *i = inode_of(name);
    if (i == NULL || offset >= i->size || offset >= i->space) return false;
    char other = (char)(i->cache[offset] ^ (char)(1 + draw(255)));
    i->cache[offset] = i->durable[offset] = other;
    return true;
}

void disk_bad_byte(uint64_t offset)
{
    bad_byte = offset;
}

void disk_accident(uint64_t nth, void (*happen)(void *arg), void *arg)
{
    accident.nth = nth;
    accident.happen = happen;
    accident.arg = arg;
    accident.is_due = false;
}

void disk_accident_after_fault(uint64_t nth, void (*happen)(void *arg), void *arg)
{
    disk_accident(0, happen, arg);
    accident.after_fault = nth;
}

void disk_dead(bool is)
{
    dead = is;
    accident.nth = accident.after_fault = 0;
    accident.is_due = meanwhile.is_running = false;
}

void disk_meanwhile(void (*run)(void *arg), void *arg)
{
    meanwhile.run = run;
    meanwhile.arg = arg;
}

void disk_fail(enum disk_call call, uint64_t nth, uint64_t more, int error)
{
    fault.call = call;
    fault.nth = nth;
    fault.more = more;
    fault.error = error;
    fault.failures = 0;
}

void disk_be_difficult(bool is)
{
    difficult = is;
}

void disk_support(bool allocate, bool zero_range)
{
    can_allocate = allocate;
    can_zero = zero_range;
}

void disk_is(uint32_t is)
{
    type = is;
}

uint64_t disk_count(enum disk_call call)
{
    return counts[call];
}

uint64_t disk_failures(void)
{
    return fault.failures;
}

uint64_t disk_wrong_syncs(void)
{
    return wrong_syncs;
}

int disk_descriptors(void)
{
    int n = 0;
    for (int i = 0; i < DESCRIPTORS_MAX; i++) n += descriptors[i] != 0;
    return n;
}

/* ---- saved states ---- */

static struct inode saved_inodes[INODES_MAX];
static int saved_count;
static struct names saved_names, saved_durable_names;
static struct names *saved_since;
static size_t saved_since_count;
static uint64_t saved_random;

static struct inode copy_of(const struct inode *i)
{
    struct inode c = *i;
    c.cache = c.durable = NULL;
    c.changes = NULL;
    c.changes_max = c.count;
    if (i->space > 0) {
        c.cache = must(malloc(i->space));
        c.durable = must(malloc(i->space));
        memcpy(c.cache, i->cache, i->space);
        memcpy(c.durable, i->durable, i->space);
    }
    if (c.count > 0) {
        c.changes = must(malloc(c.count * sizeof *c.changes));
        memcpy(c.changes, i->changes, c.count * sizeof *c.changes);
        for (size_t k = 0; k < c.count; k++) {
            const struct change *from = &i->changes[k];
            if (from->bytes == NULL) continue;
            c.changes[k].bytes = must(malloc((size_t)from->n));
            memcpy(c.changes[k].bytes, from->bytes, (size_t)from->n);
        }
    }
    return c;
}

void disk_save(void)
{
    for (int i = 0; i < saved_count; i++) inode_free(&saved_inodes[i]);
    saved_count = inodes_count;
    for (int i = 0; i < inodes_count; i++) saved_inodes[i] = copy_of(&inodes[i]);
    saved_names = names;
    saved_durable_names = durable_names;
    saved_since = must(realloc(saved_since, (names_count + 1) * sizeof *saved_since));
    if (names_count > 0)
        memcpy(saved_since, names_since, names_count * sizeof *names_since);
    saved_since_count = names_count;
    saved_random = random_state;
}

void disk_restore(void)
{
    disk_kill();
    for (int i = 0; i < inodes_count; i++) inode_free(&inodes[i]);
    inodes_count = saved_count;
    for (int i = 0; i < inodes_count; i++) inodes[i] = copy_of(&saved_inodes[i]);
    names = saved_names;
    durable_names = saved_durable_names;
    names_count = saved_since_count;
    if (names_count > names_max) {
        names_max = names_count;
        names_since = must(realloc(names_since, names_max * sizeof *names_since));
    }
    if (names_count > 0)
        memcpy(names_since, saved_since, names_count * sizeof *names_since);
    random_state = saved_random;
    bad_byte = UINT64_MAX;
}

/* ---- system calls ---- */

/* An accident happens now, if one is due. */
static void end_of_call(void)
{
    if (!accident.is_due) return;
    accident.is_due = false;
    accident.happen(accident.arg);
}

static void run_meanwhile(void)
{
    if (meanwhile.run == NULL || meanwhile.is_running) return;
    meanwhile.is_running = true;
    meanwhile.run(meanwhile.arg);
    meanwhile.is_running = false;
}

/* Count a call. Returns true if it fails; errno is set. */
static bool fails(enum disk_call call)
{
    if (dead) {
        errno = EIO;
        return true;
    }
    if (accident.nth > 0 && call != DISK_READ && --accident.nth == 0) {
        accident.is_due = true;
        if (draw(3) == 0) end_of_call();
    }
    counts[call]++;
    counts[DISK_ANY]++;
    if (difficult && ++calls % 3 == 0 && call != DISK_RENAME && call != DISK_UNLINK &&
        call != DISK_OPEN) {
        errno = EINTR;
        return true;
    }
    if (fault.error == 0 || (fault.call != DISK_ANY && fault.call != call))
        return false;
    if (fault.nth > 1) {
        fault.nth--;
        return false;
    }
    errno = fault.error;
    if (fault.failures++ == 0 && accident.after_fault > 0)
        accident.nth = accident.after_fault;
    if (fault.more == 0) fault.error = 0;
    else fault.more--;
    return true;
}

static struct inode *inode_at(int fd)
{
    int i = fd - FIRST_DESCRIPTOR;
    return i >= 0 && i < DESCRIPTORS_MAX && descriptors[i] > 0
               ? &inodes[descriptors[i] - 1]
               : NULL;
}

#define REAL(name) __real_##name
#define WRAP(name) __wrap_##name

int REAL(close)(int fd);
int REAL(unlinkat)(int directory, const char *name, int flags);
int REAL(fstatat64)(int directory, const char *name, struct stat *out, int flags);

int WRAP(openat64)(int directory, const char *name, int flags, ...);
int WRAP(openat64)(int directory, const char *name, int flags, ...)
{
    assert(directory == disk_directory);
    /* If an error cannot be noted, it is lost. So the note of one error does not fail as well. */
    bool is_note = strcmp(name, "journal-error") == 0;
    if ((dead || !is_note) && fails(DISK_OPEN)) return -1;
    int at = find(&names, name), fd = 0;
    if (at >= 0 && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
        errno = EEXIST;
        return -1;
    }
    if (at < 0 && (flags & O_CREAT) == 0) {
        errno = ENOENT;
        return -1;
    }
    assert((flags & O_NOFOLLOW) != 0 && (flags & O_CLOEXEC) != 0);
    while (fd < DESCRIPTORS_MAX && descriptors[fd] != 0) fd++;
    assert(fd < DESCRIPTORS_MAX);
    if (at < 0) {
        assert(inodes_count < INODES_MAX);
        set_name(name, inodes_count++);
        names_changed();
        at = find(&names, name);
    }
    end_of_call();
    descriptors[fd] = names.at[at].inode + 1;
    return FIRST_DESCRIPTOR + fd;
}

int WRAP(close)(int fd);
int WRAP(close)(int fd)
{
    if (fd < FIRST_DESCRIPTOR) return REAL(close)(fd);
    assert(dead || inode_at(fd) != NULL);
    descriptors[fd - FIRST_DESCRIPTOR] = 0;
    return 0;
}

static void fill_stat(const struct inode *i, struct stat *out)
{
    *out = (struct stat){.st_dev = 7,
                         .st_ino = (ino_t)(i - inodes) + 100,
                         .st_mode = S_IFREG | 0600,
                         .st_size = (off_t)i->size};
}

int WRAP(fstat64)(int fd, struct stat *out);
int WRAP(fstat64)(int fd, struct stat *out)
{
    if (fd == disk_directory) *out = (struct stat){0}; /* Of no block device. */
    else fill_stat(inode_at(fd), out);
    return 0;
}

int WRAP(fstatat64)(int directory, const char *name, struct stat *out, int flags);
int WRAP(fstatat64)(int directory, const char *name, struct stat *out, int flags)
{
    if (directory != disk_directory)
        return REAL(fstatat64)(directory, name, out, flags);
    const struct inode *i = inode_of(name);
    if (i == NULL || dead) {
        errno = dead ? EIO : ENOENT;
        return -1;
    }
    fill_stat(i, out);
    return 0;
}

int WRAP(fstatfs64)(int fd, struct statfs *out);
int WRAP(fstatfs64)(int fd, struct statfs *out)
{
    assert(fd == disk_directory);
    *out = (struct statfs){.f_type = (__typeof__(out->f_type))type};
    return 0;
}

static bool is_zero(const struct iovec *v, int count)
{
    for (int k = 0; k < count; k++) {
        const char *bytes = v[k].iov_base;
        size_t n = v[k].iov_len;
        if (n > 0 && (bytes[0] != 0 || memcmp(bytes, bytes + 1, n - 1) != 0))
            return false;
    }
    return true;
}

ssize_t WRAP(pwritev64)(int fd, const struct iovec *v, int count, off_t offset);
ssize_t WRAP(pwritev64)(int fd, const struct iovec *v, int count, off_t offset)
{
    struct inode *i = inode_at(fd);
    uint64_t at = (uint64_t)offset, n = 0, done = 0;
    for (int k = 0; k < count; k++) n += v[k].iov_len;
    bool zero = is_zero(v, count), failing = fails(DISK_WRITE);
    int error = errno;
    uint64_t limit = failing              ? (error == EINTR ? 0 : n / 2)
                     : difficult && n > 1 ? 1 + draw(n - 1)
                                          : n;
    for (int k = 0; k < count && done < limit; k++) {
        uint64_t part = v[k].iov_len < limit - done ? v[k].iov_len : limit - done;
        uint64_t end = at + done + part;
        const char *bytes = zero ? NULL : v[k].iov_base;
        change(i, at + done, bytes, part, end > i->size ? end : i->size);
        done += part;
    }
    end_of_call();
    if (!failing) return (ssize_t)done;
    /* Zeros are written to allocate space. If that fails, the frames are still good. */
    if (!dead && error != EINTR && !zero) i->write_failed = true;
    errno = error;
    return -1;
}

ssize_t WRAP(pwrite64)(int fd, const void *bytes, size_t n, off_t offset);
ssize_t WRAP(pwrite64)(int fd, const void *bytes, size_t n, off_t offset)
{
    struct iovec v = {(void *)bytes, n};
    return WRAP(pwritev64)(fd, &v, 1, offset);
}

ssize_t WRAP(pread64)(int fd, void *to, size_t n, off_t offset);
ssize_t WRAP(pread64)(int fd, void *to, size_t n, off_t offset)
{
    const struct inode *i = inode_at(fd);
    uint64_t at = (uint64_t)offset;
    if (fails(DISK_READ)) return -1;
    if (i == inode_of("journal") && bad_byte >= at && bad_byte < at + n) {
        errno = EIO;
        return -1;
    }
    if (at >= i->size) return 0;
    if (n > i->size - at) n = (size_t)(i->size - at);
    if (difficult && n > 1) n = 1 + (size_t)draw(n - 1);
    memset(to, 0, n);
    if (at < i->space)
        memcpy(to, i->cache + at, n < i->space - at ? n : i->space - (size_t)at);
    return (ssize_t)n;
}

int WRAP(fallocate64)(int fd, int mode, off_t offset, off_t n);
int WRAP(fallocate64)(int fd, int mode, off_t offset, off_t n)
{
    struct inode *i = inode_at(fd);
    uint64_t at = (uint64_t)offset, end = at + (uint64_t)n;
    if (!can_allocate || (mode == FALLOC_FL_ZERO_RANGE && !can_zero)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (fails(DISK_ALLOCATE)) return -1;
    assert(mode == 0 || mode == FALLOC_FL_ZERO_RANGE);
    change(i, at, NULL, mode == 0 ? 0 : (uint64_t)n, end > i->size ? end : i->size);
    end_of_call();
    return 0;
}

int WRAP(ftruncate64)(int fd, off_t size);
int WRAP(ftruncate64)(int fd, off_t size)
{
    struct inode *i = inode_at(fd);
    uint64_t to = (uint64_t)size;
    if (fails(DISK_TRUNCATE)) return -1;
    change(i, to, NULL, i->size > to ? i->size - to : 0, to);
    end_of_call();
    return 0;
}

static int sync_file(int fd)
{
    struct inode *i = inode_at(fd);
    if (!dead && (i->write_failed || i->sync_failed)) wrong_syncs++;
    if (fails(DISK_SYNC)) {
        if (dead || errno == EINTR) return -1;
        int error = errno;
        /* The kernel marks the pages as clean although they were not written. */
        drop_changes(i, i->count);
        i->sync_failed = true;
        errno = error;
        return -1;
    }
    size_t count = i->count;
    run_meanwhile();
    write_back(i, count);
    end_of_call();
    return 0;
}

int WRAP(fdatasync)(int fd);
int WRAP(fdatasync)(int fd)
{
    return sync_file(fd);
}

int WRAP(fsync)(int fd);
int WRAP(fsync)(int fd)
{
    if (fd != disk_directory) return sync_file(fd);
    if (fails(DISK_SYNC_DIRECTORY)) return -1;
    run_meanwhile();
    durable_names = names;
    names_count = 0;
    free_unused();
    end_of_call();
    return 0;
}

int WRAP(renameat)(int from, const char *name, int to, const char *new_name);
int WRAP(renameat)(int from, const char *name, int to, const char *new_name)
{
    assert(from == disk_directory && to == disk_directory);
    if (fails(DISK_RENAME)) return -1;
    int at = find(&names, name);
    if (at < 0) {
        errno = ENOENT;
        return -1;
    }
    int inode = names.at[at].inode;
    clear_name(name);
    set_name(new_name, inode);
    names_changed();
    run_meanwhile();
    end_of_call();
    return 0;
}

int WRAP(unlinkat)(int directory, const char *name, int flags);
int WRAP(unlinkat)(int directory, const char *name, int flags)
{
    if (directory != disk_directory) return REAL(unlinkat)(directory, name, flags);
    if (fails(DISK_UNLINK)) return -1;
    if (!disk_exists(name)) {
        errno = ENOENT;
        return -1;
    }
    clear_name(name);
    names_changed();
    end_of_call();
    return 0;
}
