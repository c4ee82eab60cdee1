/* segment.c - opening a damaged or crafted segment must not crash or hang a process.
 *
 *     segment [--short | --long] [--count N] [--seed N] [--only N] [--sluice PATH]
 *             [--name TEST] [--deadline SECONDS]
 *
 * The test makes a segment with everything that a segment can have: holders, waiters, dead
 * threads, the rest of a tethered slot. It damages copies of it, at random or on purpose, and
 * processes call every function of the library on them. Each process must end by itself before
 * a generous deadline, without a signal and without a sanitizer report. With --sluice it also
 * runs `sluice run` and `sluice canal` on some copies.
 *
 * Mutation N of a seed is always the same: --seed and --only replay it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "canal/layout.h"
#include "options.h"
#include "sluice.h"

/* For one process. What waits for a mutex gives up after a second, and none waits often. */
static unsigned deadline_s = 60;

#define KEYS 16u
#define SLOTS 8u
#define RECORDS 64u
#define NAMES 40 /* New names, so that old ones are reclaimed. */
#define HOLDERS_MAX 100000u
#define AT_ONCE 8 /* Processes; most of their time they wait for a mutex. */

static char directory[64];
static char template_path[96];
static uint8_t *template_bytes;
static size_t template_size;
static struct sl_canal_segment layout; /* Of the template: offsets, with base 0. */
static pid_t actors[8];
static unsigned actor_count;
static unsigned tests, failures;
static const char *sluice_path;

/* ---- small things ---- */

static void bail(const char *what)
{
    printf("Bail out! %s: %s\n", what, strerror(errno));
    exit(2);
}

static void tell(bool good, const char *name, const char *more)
{
    tests++;
    failures += !good;
    printf("%s %u - %s%s%s\n", good ? "ok" : "not ok", tests, name,
           *more != '\0' ? ": " : "", more);
    fflush(stdout);
}

static uint64_t chance(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t *state, uint64_t n)
{
    return chance(state) % n;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size) bail(path);
    close(fd);
}

static void clean_up(void)
{
    for (unsigned i = 0; i < actor_count; i++) kill(actors[i], SIGKILL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (system(command) != 0) fprintf(stderr, "cannot remove %s\n", directory);
}

/* ---- the template ---- */

/* A process that does something in the template, says so, and stays. */
static pid_t act(void (*deed)(struct sluice_canal *, int), bool says)
{
    int pipes[2];
    char byte;
    if (pipe(pipes) != 0) bail("pipe");
    pid_t pid = fork();
    if (pid < 0) bail("fork");
    if (pid == 0) {
        struct sluice_canal *c;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (sluice_canal_open(template_path, NULL, &c) != SLUICE_OK) _exit(9);
        deed(c, pipes[1]);
        for (;;) pause();
    }
    close(pipes[1]);
    if (says && read(pipes[0], &byte, 1) != 1) bail("an actor has said nothing");
    close(pipes[0]);
    actors[actor_count++] = pid;
    return pid;
}

static void say(int fd)
{
    if (write(fd, "x", 1) != 1) _exit(9);
}

static const struct sluice_capacity one = {1, 1}, three = {3, 1};

static void hold(struct sluice_canal *c, int fd)
{
    struct sluice_key *k;
    sluice_canal_acquire(c, "held", three, NULL);
    sluice_canal_acquire(c, "full", one, NULL);
    if (sluice_key_resolve(c, "resolved", &k) != SLUICE_OK) _exit(9);
    say(fd);
}

static void hold_more(struct sluice_canal *c, int fd)
{
    sluice_canal_acquire(c, "held", three, NULL);
    say(fd);
}

static void wait_for_it(struct sluice_canal *c, int fd)
{
    say(fd);
    sluice_canal_acquire(c, "full", one,
                         &(struct sluice_want){.wait_ms = SLUICE_FOREVER});
}

static void hold_and_die(struct sluice_canal *c, int fd)
{
    sluice_canal_acquire(c, "dead", one, NULL);
    sluice_canal_acquire(c, "held", three, NULL);
    say(fd);
    raise(SIGKILL);
}

static void tether_and_die(struct sluice_canal *c, int fd)
{
    int tether;
    sluice_canal_acquire(c, "left", one, NULL);
    if (sluice_canal_tether(c, &tether) != SLUICE_OK) _exit(9);
    say(fd);
    raise(SIGKILL);
}

static bool waiter_waits(void)
{
    struct sluice_canal *c;
    struct sluice_holder h;
    bool waits = false;
    if (sluice_canal_open(template_path, NULL, &c) != SLUICE_OK) return false;
    for (uint64_t at = 0; sluice_canal_next_holder(c, "full", &at, &h) == 1;)
        waits |= h.waits != 0;
    sluice_canal_close(c);
    return waits;
}

static void make_template(void)
{
    const struct sluice_canal_options o = {
        .keys = KEYS, .slots = SLOTS, .records = RECORDS};
    struct sluice_canal *c;
    struct stat st;
    snprintf(directory, sizeof directory, "/dev/shm/sluice-test.XXXXXX");
    if (mkdtemp(directory) == NULL) bail("mkdtemp");
    atexit(clean_up);
    snprintf(template_path, sizeof template_path, "%s/template", directory);
    if (sluice_canal_open(template_path, &o, &c) != SLUICE_OK) bail("no segment");
    sluice_canal_close(c);
    act(hold, true);
    act(hold_more, true);
    waitpid(act(hold_and_die, true), NULL, 0);
    waitpid(act(tether_and_die, true), NULL, 0);
    actor_count -= 2; /* They are gone. */
    act(wait_for_it, true);
    for (int i = 0; i < 3000 && !waiter_waits(); i++) usleep(10000);
    sl_canal_layout_place(&layout, NULL, KEYS, SLOTS, RECORDS);
    int fd = open(template_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) bail(template_path);
    template_size = (size_t)st.st_size;
    template_bytes = malloc(template_size);
    if (read(fd, template_bytes, template_size) != (ssize_t)template_size)
        bail(template_path);
    close(fd);
}

/* ---- all that can be done with a segment ---- */

static void look_inside(struct sluice_canal *c)
{
    struct sluice_key_info k;
    struct sluice_holder h;
    struct sluice_canal_info info;
    char picture[64];
    unsigned holders = 0;
    sluice_canal_info(c, &info);
    for (uint64_t at = 0; sluice_canal_next_key(c, &at, &k) == 1;) {
        sluice_canal_picture(k.held, k.capacity, picture, sizeof picture);
        uint64_t at2 = 0;
        int got;
        while ((got = sluice_canal_next_holder(c, k.key, &at2, &h)) == 1)
            if (++holders > HOLDERS_MAX) return;
        if (got < 0) return; /* That took a second, and the next one would. */
    }
    sluice_canal_removed(c);
}

/* These are false when the mutex of the keys cannot be had: it took a second to find that
 * out, and each further name would take another one. */
static bool use_by_name(struct sluice_canal *c, const char *key,
                        struct sluice_capacity capacity, int64_t wait_ms)
{
    const struct sluice_want w = {.wait_ms = wait_ms};
    int64_t nth = sluice_canal_acquire(c, key, capacity, &w);
    if (nth > 0 && sluice_canal_count(c, key) >= 0) sluice_canal_release(c, key, 1);
    return nth != SLUICE_EBUSY;
}

static bool use_by_handle(struct sluice_canal *c, const char *key)
{
    struct sluice_key *k;
    int status = sluice_key_resolve(c, key, &k);
    if (status != SLUICE_OK) return status != SLUICE_EBUSY;
    if (sluice_key_acquire(k, three, NULL) > 0) sluice_key_release(k, 1);
    sluice_key_free(k);
    return true;
}

static bool use_new_names(struct sluice_canal *c)
{
    char name[32];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "new-%d", i);
        int64_t nth = sluice_canal_acquire(c, name, one, NULL);
        if (nth == SLUICE_EBUSY) return false;
        if (nth > 0 && i % 3 != 0) sluice_canal_release(c, name, 1);
    }
    return true;
}

static int do_everything(const char *path)
{
    struct sluice_canal *c;
    int tether;
    if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) return 0;
    look_inside(c);
    (void)(use_by_name(c, "held", three, 0) && use_by_name(c, "dead", one, 0) &&
           use_by_name(c, "full", one, 5) && use_by_name(c, "left", one, 0) &&
           use_by_handle(c, "held") && use_by_handle(c, "resolved") &&
           use_new_names(c));
    sluice_canal_reap(c);
    if (sluice_canal_tether(c, &tether) == SLUICE_OK) close(tether);
    look_inside(c);
    sluice_canal_close(c);
    return 0;
}

/* ---- processes that do it ---- */

/* What became of a process that had the deadline: "" if all is well. */
static const char *verdict(int status, char *out, size_t size)
{
    out[0] = '\0';
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(out, size, "hangs");
    else if (WIFSIGNALED(status))
        snprintf(out, size, "signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        snprintf(out, size, "exit status %d", WEXITSTATUS(status));
    return out;
}

static pid_t start(int (*f)(const char *), const char *path)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) bail("fork");
    if (pid > 0) return pid;
    signal(SIGALRM, SIG_DFL);
    alarm(deadline_s);
    _exit(f(path));
}

static const char *run(int (*f)(const char *), const char *path, char *out, size_t size)
{
    int status;
    if (waitpid(start(f, path), &status, 0) < 0) bail("waitpid");
    return verdict(status, out, size);
}

/* ---- damage by chance ---- */

/* One of the parts of a segment, so that the small ones are hit as well. */
static void choose_part(uint64_t *r, size_t *begin, size_t *size)
{
    struct sl_canal_segment s;
    sl_canal_layout_place(&s, template_bytes, KEYS, SLOTS, RECORDS);
    const uint8_t *parts[] = {
        (uint8_t *)s.header, (uint8_t *)s.slots,   (uint8_t *)s.keys,
        (uint8_t *)s.names,  (uint8_t *)s.bitmaps, (uint8_t *)s.index,
        (uint8_t *)s.chunks, (uint8_t *)s.records, template_bytes + template_size};
    size_t i = below(r, 8);
    *begin = (size_t)(parts[i] - template_bytes);
    *size = (size_t)(parts[i + 1] - parts[i]);
    /* Damage of the first fields is seen when it is opened, and that is that. */
    if (i == 0 && below(r, 4) != 0) *begin = 64, *size = 128;
}

static uint64_t interesting(uint64_t *r)
{
    const uint64_t values[] = {0,
                               1,
                               2,
                               3,
                               KEYS - 1,
                               KEYS,
                               KEYS + 1,
                               SLOTS,
                               SLOTS + 1,
                               RECORDS,
                               RECORDS + 1,
                               0x7fffffff,
                               0x80000000,
                               UINT32_MAX,
                               INT64_MAX,
                               UINT64_MAX,
                               1ull << 63,
                               3ull << 62,
                               FUTEX_OWNER_DIED,
                               FUTEX_WAITERS,
                               (uint64_t)actors[0],
                               (uint64_t)actors[0] | FUTEX_WAITERS,
                               (uint64_t)getpid(),
                               1ull << 32,
                               (uint64_t)(RECORDS + 1) << 32,
                               0xdeadbeefull << 32,
                               0x4141414141414141ull,
                               0x2000,
                               16 | 128 | 1,
                               32 | 16 | 128};
    return values[below(r, sizeof values / sizeof values[0])];
}

static void mutate(uint64_t *r, uint8_t *bytes, size_t *size)
{
    size_t at, n, from;
    uint64_t value = below(r, 2) != 0 ? interesting(r) : chance(r);
    uint8_t swap[256];
    choose_part(r, &at, &n);
    at += below(r, n);
    size_t length = 1 + below(r, sizeof swap);
    from = below(r, template_size - sizeof swap);
    if (at > template_size - sizeof swap) at = template_size - sizeof swap;
    switch (below(r, 14)) {
        case 0: bytes[at] ^= (uint8_t)(1u << below(r, 8)); break;
        case 1: bytes[at] = (uint8_t)value; break;
        case 2:
        case 3:
        case 4: memcpy(bytes + (at & ~(size_t)3), &value, 4); break;
        case 5:
        case 6:
        case 7: memcpy(bytes + (at & ~(size_t)7), &value, 8); break;
        case 8:
            memmove(bytes + (at & ~(size_t)7), bytes + (from & ~(size_t)7), length);
            break;
        case 9:
            memcpy(swap, bytes + at, length);
            memmove(bytes + at, bytes + from, length);
            memcpy(bytes + from, swap, length);
            break;
        case 10: memset(bytes + at, 0, length); break;
        case 11: memset(bytes + at, 0xff, length); break;
        case 12: /* The same number in each place of a table. */
            for (size_t i = at & ~(size_t)7; i + 8 < at + 2048 && i + 8 < template_size;
                 i += below(r, 2) != 0 ? 8 : 128)
                memcpy(bytes + i, &value, 8);
            break;
        default:
            if (below(r, 4) == 0) *size = below(r, template_size + 1);
            else if (below(r, 2) == 0) *size = template_size + below(r, 100000);
            break;
    }
}

static void damage(uint64_t seed, uint64_t number, const char *path)
{
    uint64_t r = seed * 1000003u + number;
    size_t size = template_size;
    uint8_t *bytes = calloc(1, template_size + 100000);
    if (bytes == NULL) bail("memory");
    memcpy(bytes, template_bytes, template_size);
    for (uint64_t n = 1 + below(&r, below(&r, 3) == 0 ? 40 : 6); n > 0; n--)
        mutate(&r, bytes, &size);
    write_file(path, bytes, size);
    free(bytes);
}

struct finding {
    uint64_t crashes, hangs, first;
    char what[64];
};

static void find(struct finding *f, int status, uint64_t number)
{
    char what[64];
    verdict(status, what, sizeof what);
    if (what[0] == '\0') return;
    if (strcmp(what, "hangs") == 0) f->hangs++;
    else f->crashes++;
    if (f->crashes + f->hangs > 1) return;
    f->first = number;
    snprintf(f->what, sizeof f->what, "%s", what);
}

struct busy {
    pid_t pid;
    uint64_t number;
    char path[96];
};

static void reap_one(struct busy *busy, unsigned count, struct finding *f)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    for (unsigned i = 0; i < count; i++) {
        if (busy[i].pid != pid) continue;
        find(f, status, busy[i].number);
        unlink(busy[i].path);
        busy[i].pid = 0;
    }
}

static void by_chance(const char *name, uint64_t seed, uint64_t first, uint64_t end,
                      uint64_t stride, int (*f)(const char *))
{
    struct busy busy[AT_ONCE] = {0};
    struct finding found = {0};
    char more[256];
    uint64_t count = 0;
    for (uint64_t n = first; n < end; n += stride, count++) {
        struct busy *b = NULL;
        while (b == NULL) {
            for (unsigned i = 0; i < AT_ONCE; i++)
                if (busy[i].pid == 0) b = &busy[i];
            if (b == NULL) reap_one(busy, AT_ONCE, &found);
        }
        snprintf(b->path, sizeof b->path, "%s/m%llu", directory, (unsigned long long)n);
        damage(seed, n, b->path);
        b->number = n;
        b->pid = start(f, b->path);
    }
    for (unsigned i = 0; i < AT_ONCE; i++)
        while (busy[i].pid != 0) reap_one(busy, AT_ONCE, &found);
    snprintf(more, sizeof more, "%llu mutations, %llu crash, %llu hang",
             (unsigned long long)count, (unsigned long long)found.crashes,
             (unsigned long long)found.hangs);
    tell(found.crashes + found.hangs == 0 && count > 0, name, more);
    if (found.crashes + found.hangs > 0)
        printf("# the first is number %llu: %s; again: --seed %llu --only %llu\n",
               (unsigned long long)found.first, found.what, (unsigned long long)seed,
               (unsigned long long)found.first);
}

/* ---- the commands ---- */

/* 0 unless a command is killed by a signal. The exit statuses are those of docs/run.md. */
static int command(const char *const *argv)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0), dup2(null, 1), dup2(null, 2);
        alarm(deadline_s / 2);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (waitpid(pid, &status, 0) < 0) return 9;
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    const int known[] = {0, 1, 65, 66, 69, 71, 79};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (WEXITSTATUS(status) == known[i]) return 0;
    return WEXITSTATUS(status);
}

static int run_commands(const char *path)
{
    const char *s = sluice_path, *g = "--segment";
    alarm(deadline_s * 6);
    const char *const all[][16] = {
        {s, "run", g, path, "-n", "-j", "3", "held", "--", "true", NULL},
        {s, "run", g, path, "-n", "full", "--", "true", NULL},
        {s, "run", g, path, "-w", "0.02", "full", "--", "true", NULL},
        {s, "run", g, path, "-n", "another", "--", "true", NULL},
        {s, "canal", "show", g, path, NULL},
        {s, "canal", "show", g, path, "held", NULL},
        {s, "canal", "show", "--json", g, path, "full", NULL},
        {s, "canal", "reap", path, NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int e = command(all[i]);
        if (e != 0) return e;
    }
    return 0;
}

/* ---- damage on purpose ---- */

/* The file, mapped, to be changed as another process would. */
static struct sl_canal_segment map_file(const char *path)
{
    struct sl_canal_segment s;
    struct sl_canal_shm_header h;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || pread(fd, &h, sizeof h, 0) != sizeof h) _exit(8);
    sl_canal_layout_place(&s, NULL, h.keys, h.slots, h.records);
    void *base = mmap(NULL, s.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) _exit(8);
    close(fd);
    sl_canal_layout_place(&s, base, h.keys, h.slots, h.records);
    return s;
}

/* Where planted pointers lead: memory that nobody has a reason to change. */
static uint64_t canary[64];
#define CANARY 0x5a5a5a5a5a5a5a5aull

static void plant(pthread_mutex_t *m, int kind, uint32_t word)
{
    m->__data.__lock = (int)word;
    m->__data.__count = 0;
    m->__data.__owner = gettid();
    m->__data.__kind = kind;
    m->__data.__list.__prev = (void *)&canary[16];
    m->__data.__list.__next = (void *)&canary[32];
}

static void arm_canary(void)
{
    for (size_t i = 0; i < 64; i++) canary[i] = CANARY;
}

static int canary_changed(void)
{
    for (size_t i = 0; i < 64; i++)
        if (canary[i] != CANARY) return 3;
    return 0;
}

/* The kinds of glibc: robust, recursive, checking, inheriting, protecting, and none. */
static const int kinds[] = {128 | 16,
                            128 | 16 | 1,
                            128 | 16 | 2,
                            128 | 32 | 16,
                            128 | 32,
                            128 | 64,
                            128 | 64 | 1,
                            0,
                            1,
                            2,
                            -1,
                            128 | 32 | 16 | 1};

static int planted_in_the_file(const char *path)
{
    const uint32_t words[] = {(uint32_t)gettid(), 0, FUTEX_OWNER_DIED,
                              (uint32_t)gettid() | FUTEX_OWNER_DIED};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        /* That we have the mutex already is worth a second's wait once: for glibc a
         * recursive one would then be ours. */
        for (size_t w = kinds[k] == (128 | 16 | 1) ? 0 : 1; w < 4; w++) {
            write_file(path, template_bytes, template_size);
            struct sl_canal_segment s = map_file(path);
            struct sluice_canal *c;
            arm_canary();
            plant(&s.header->key_mutex, kinds[k], words[w]);
            plant(&s.header->mark_mutex, kinds[k], words[w]);
            for (uint32_t i = 0; i < s.slot_count; i++)
                plant(&s.slots[i].mutex, kinds[k], w == 0 && i % 2 ? 0 : words[w]);
            if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) return 4;
            sluice_canal_acquire(c, "held", three, NULL);
            sluice_canal_acquire(c, "a new name", one, NULL);
            sluice_canal_reap(c);
            sluice_canal_close(c);
            if (canary_changed() != 0) return 3;
            munmap(s.header, s.bytes);
        }
    return 0;
}

/* While we have the locks, another process writes to them. */
static int planted_while_it_is_held(const char *path)
{
    struct sl_canal_segment s = map_file(path);
    struct sluice_canal *c, *d;
    char second[128];
    snprintf(second, sizeof second, "%s.second", path);
    write_file(second, template_bytes, template_size);
    if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) return 4;
    if (sluice_canal_open(second, NULL, &d) != SLUICE_OK) return 4;
    if (sluice_canal_acquire(c, "dead", one, NULL) != 1) return 5;
    if (sluice_canal_acquire(d, "dead", one, NULL) != 1) return 5;
    arm_canary();
    for (uint32_t i = 0; i < s.slot_count; i++) {
        s.slots[i].mutex.__data.__list.__prev = (void *)&canary[16];
        s.slots[i].mutex.__data.__list.__next = (void *)&canary[32];
    }
    sluice_canal_close(c);
    sluice_canal_close(d);
    unlink(second);
    return canary_changed();
}

/* A tag that names no record. Nothing is granted on such a word, and a status says so. */
static int tags_out_of_range(const char *path)
{
    const uint32_t tags[] = {RECORDS + 1, UINT32_MAX, 0x80000000u, 1u << 26};
    for (size_t t = 0; t < 4; t++) {
        write_file(path, template_bytes, template_size);
        struct sl_canal_segment s = map_file(path);
        for (uint32_t k = 0; k < s.key_count; k++)
            s.keys[k].word.lo = (uint64_t)tags[t] << 32 | (uint32_t)s.keys[k].word.lo;
        struct sluice_canal *c;
        if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) return 4;
        if (sluice_canal_acquire(c, "resolved", one, NULL) > 0) return 6;
        if (sluice_canal_acquire(c, "resolved", one,
                                 &(struct sluice_want){.wait_ms = SLUICE_FOREVER}) > 0)
            return 6;
        munmap(s.header, s.bytes);
        sluice_canal_close(c);
        do_everything(path);
    }
    return 0;
}

static int an_index_without_an_end(const char *path)
{
    const uint32_t entries[] = {1, KEYS, KEYS + 1, UINT32_MAX, 0x40000000u};
    for (size_t e = 0; e < 5; e++) {
        write_file(path, template_bytes, template_size);
        struct sl_canal_segment s = map_file(path);
        for (uint32_t i = 0; i <= s.index_mask; i++) s.index[i] = entries[e];
        munmap(s.header, s.bytes);
        do_everything(path);
    }
    return 0;
}

static int states_that_are_none(const char *path)
{
    for (uint64_t low = 0; low < 4; low++) {
        write_file(path, template_bytes, template_size);
        struct sl_canal_segment s = map_file(path);
        for (uint32_t k = 0; k < s.key_count; k++)
            s.keys[k].state = (s.keys[k].state & ~(uint64_t)3) | low;
        munmap(s.header, s.bytes);
        struct sluice_canal *c;
        if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) return 4;
        if (sluice_canal_acquire(c, "resolved", one, NULL) != 1) return 6;
        sluice_canal_close(c);
        do_everything(path);
    }
    return 0;
}

static int owners_and_keys_out_of_range(const char *path)
{
    const uint32_t numbers[] = {KEYS, SLOTS + 1, UINT32_MAX, 0x7fffffff, 1u << 20};
    for (size_t n = 0; n < 5; n++) {
        write_file(path, template_bytes, template_size);
        struct sl_canal_segment s = map_file(path);
        memset(s.bitmaps, 0xff, s.key_count * s.bitmap_words * sizeof(uint64_t));
        for (uint32_t i = 0; i < s.record_count; i++)
            s.records[i].key = i % 2 ? numbers[n] : s.records[i].key;
        for (uint32_t i = 0; i < s.chunk_count; i++)
            if (i % 2) s.chunks[i] = numbers[n];
        for (uint32_t i = 0; i < s.slot_count; i++) s.slots[i].waits_key = numbers[n];
        s.header->fresh = s.header->hand = numbers[n];
        munmap(s.header, s.bytes);
        do_everything(path);
    }
    return 0;
}

/* Sizes that the file does not have, or that are none. */
static int sizes_that_are_wrong(const char *path)
{
    const uint32_t sizes[] = {0, 1, KEYS + 1, 1u << 16, 1u << 24, 1u << 26, UINT32_MAX};
    for (size_t a = 0; a < 7; a++)
        for (size_t b = 0; b < 7; b++) {
            write_file(path, template_bytes, template_size);
            struct sl_canal_shm_header *h = map_file(path).header;
            struct sl_canal_segment s;
            struct sluice_canal *c;
            h->keys = sizes[a];
            h->slots = h->records = sizes[b];
            if (sizes[a] <= 1u << 24 && sizes[b] <= 1u << 26) {
                sl_canal_layout_place(&s, NULL, h->keys, h->slots, h->records);
                h->bytes = s.bytes;
            }
            int status = sluice_canal_open(path, NULL, &c);
            if (status == SLUICE_OK && h->bytes > template_size) return 7;
            if (status == SLUICE_OK) sluice_canal_close(c);
            if (status == SLUICE_OK) do_everything(path);
            munmap(h, template_size);
        }
    return 0;
}

/* Every bit is set and every slot is in use: a look inside is not a walk over keys times
 * slots times records. */
static int a_look_at_a_segment_that_is_full(const char *path)
{
    const struct sluice_canal_options o = {
        .keys = 1024, .slots = 16384, .records = 65536};
    struct sluice_canal *c;
    struct sluice_key_info k;
    char name[16];
    uint32_t seen = 0;
    unlink(path);
    if (sluice_canal_open(path, &o, &c) != SLUICE_OK) return 4;
    for (unsigned i = 0; i < 1024; i++) {
        snprintf(name, sizeof name, "k%u", i);
        if (sluice_canal_acquire(c, name, one, NULL) != 1) return 5;
    }
    struct sl_canal_segment s = map_file(path);
    memset(s.bitmaps, 0xff, s.key_count * s.bitmap_words * sizeof(uint64_t));
    for (uint64_t at = 0; sluice_canal_next_key(c, &at, &k) == 1;) seen++;
    return seen == 1024 ? 0 : 6;
}

/* The header is damaged, and the next one to open it makes a smaller segment in its
 * place: who has it open is not killed by that. */
static int made_anew_under_a_holder(const char *path)
{
    struct sluice_canal *c, *d;
    if (sluice_canal_open(path, NULL, &c) != SLUICE_OK) return 4;
    if (sluice_canal_acquire(c, "dead", one, NULL) != 1) return 5;
    map_file(path).header->boot[0] ^= 1;
    const struct sluice_canal_options small = {.keys = 1, .slots = 1, .records = 8};
    if (sluice_canal_open(path, &small, &d) != SLUICE_OK) return 4;
    sluice_canal_close(d);
    look_inside(c);
    sluice_canal_release(c, "dead", 1);
    sluice_canal_close(c);
    return 0;
}

/* clang-format off */
static const struct {
    const char *name;
    int (*f)(const char *);
} crafted[] = {
    {"an orderly segment is used without complaint", do_everything},
    {"planted pointers of robust mutexes are not followed", planted_in_the_file},
    {"nor are those planted while the mutex is held", planted_while_it_is_held},
    {"a tag that names no record is not marked, and nothing is granted there", tags_out_of_range},
    {"an index without an empty place is not searched forever", an_index_without_an_end},
    {"a key whose state is none is free", states_that_are_none},
    {"owners and keys out of range are nobody's", owners_and_keys_out_of_range},
    {"sizes that the file does not have are rejected", sizes_that_are_wrong},
    {"a look at a segment whose every bit is set ends", a_look_at_a_segment_that_is_full},
    {"a damaged header that is created again kills no holder", made_anew_under_a_holder},
};
/* clang-format on */

static void on_purpose(const char *only)
{
    char path[128], what[64];
    for (size_t i = 0; i < sizeof crafted / sizeof crafted[0]; i++) {
        if (only != NULL && strstr(crafted[i].name, only) == NULL) continue;
        snprintf(path, sizeof path, "%s/crafted", directory);
        write_file(path, template_bytes, template_size);
        run(crafted[i].f, path, what, sizeof what);
        tell(what[0] == '\0', crafted[i].name, what);
        unlink(path);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = options_seed(), count = 400, first = 0, end, deadline = deadline_s;
    bool only = false;
    const char *name = NULL;
    const struct test_option options[] = {{"--long", .number = &count, .preset = 10000},
                                          {"--count", .number = &count},
                                          {"--seed", .number = &seed},
                                          {"--only", .number = &first, .given = &only},
                                          {"--sluice", .text = &sluice_path},
                                          {"--name", .text = &name},
                                          {"--deadline", .number = &deadline},
                                          {.name = NULL}};
    options_read(argc, argv,
                 "segment [--short | --long] [--count N] [--seed N] [--only N] "
                 "[--sluice PATH] [--name TEST] [--deadline SECONDS]",
                 options);
    if (only) count = 1;
    deadline_s = (unsigned)deadline;
    end = first + count;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# seed %llu\n", (unsigned long long)seed);
    make_template();
    if ((count != 1 && sluice_path == NULL) || name != NULL) on_purpose(name);
    if (name == NULL && sluice_path == NULL)
        by_chance("mutated segments crash and hang nobody", seed, first, end, 1,
                  do_everything);
    if (name == NULL && sluice_path != NULL)
        by_chance("mutated segments crash and hang no command", seed, first, end, 1,
                  run_commands);
    printf("1..%u\n", tests);
    return failures > 0;
}
