/* lockers.c - clients of a server or a cluster, for the tests in this directory.
 *
 *     lockers lost ADDRESSES CLIENTS ACQUIRES LEASE_MS   clients acquire and release three locks
 *     lockers hold ADDRESSES KEYS LEASE_MS        hold locks until they are lost
 *     lockers wait ADDRESSES KEYS WAIT_MS         wait for locks, and release them
 *     lockers all ADDRESSES FILE ROUNDS SEED      acquire several locks at once
 *     lockers elect ADDRESSES KEY LEASE_MS        stand for election until SIGTERM
 *     lockers transfer ADDRESSES ROUNDS SEED      move money between accounts
 *
 * Each mode prints what happens, one event per line, with times in microseconds of
 * CLOCK_BOOTTIME. The scripts compare the lines of several processes. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sluice.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define KEYS_MAX 1000

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void pause_us(long us)
{
    nanosleep(
        &(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000},
        NULL);
}

/* stdout is line buffered, and stdio locks it. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

static struct sluice *open_service(const char *where)
{
    struct sluice *s;
    const struct sluice_options o = {.retry_ms = 20000};
    int status = sluice_open(where, &o, &s);
    if (status == SLUICE_OK) return s;
    fprintf(stderr, "%s: %s\n", where, sluice_status_text(status));
    exit(2);
}

/* --- lost: no client is locked out by its own grant ------------------------------------ */

#define LOST_KEYS 3
#define LOST_WAIT_MS 30000

static struct {
    struct sluice *s;
    int64_t lease_ms;
    atomic_int left, granted, wrong, failed, cancelled;
    atomic_int holder[LOST_KEYS];
    _Atomic uint64_t fence[LOST_KEYS];
} lost;

static const char *const lost_keys[LOST_KEYS] = {"a", "b", "c"};

static void lost_check(int me, int key, uint64_t fence)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&lost.holder[key], &nobody, me)) {
        say("wrong: clients %d and %d hold %s\n", nobody, me, lost_keys[key]);
        atomic_fetch_add(&lost.wrong, 1);
    }
    if (fence <= atomic_load(&lost.fence[key])) {
        say("wrong: the fence of %s does not rise\n", lost_keys[key]);
        atomic_fetch_add(&lost.wrong, 1);
    }
    atomic_store(&lost.fence[key], fence);
}

static void *cancel_soon(void *token)
{
    pause_us(1000);
    sluice_cancel(lost.s, token);
    return NULL;
}

static void lost_round(int me, unsigned *seed)
{
    int key = (int)(rand_r(seed) % LOST_KEYS);
    struct sluice_cancel token = {0};
    struct sluice_grant g;
    struct sluice_request r = {.wait_ms = LOST_WAIT_MS,
                               .lease_ms = lost.lease_ms,
                               .keep_alive = 1,
                               .cancel = &token};
    pthread_t other;
    bool cancels = rand_r(seed) % 10 == 0;
    if (cancels && pthread_create(&other, NULL, cancel_soon, &token) != 0)
        cancels = false;
    int status = sluice_acquire(lost.s, lost_keys[key], &r, &g);
    if (status == SLUICE_OK) {
        lost_check(me, key, g.fence);
        if (sluice_check(lost.s, lost_keys[key], g.fence) == SLUICE_ELOST) {
            say("wrong: client %d has lost %s\n", me, lost_keys[key]);
            atomic_fetch_add(&lost.wrong, 1);
        }
        atomic_store(&lost.holder[key], 0);
        int released = sluice_release(lost.s, lost_keys[key], g.fence);
        if (released != SLUICE_OK) say("release: %s\n", sluice_status_word(released));
        atomic_fetch_add(&lost.granted, 1);
    } else if (status == SLUICE_ECANCELLED && cancels)
        atomic_fetch_add(&lost.cancelled, 1);
    else {
        char error[300];
        sluice_error(lost.s, error, sizeof error);
        say("acquire: %s: %s\n", sluice_status_word(status), error);
        atomic_fetch_add(&lost.failed, 1);
    }
    if (cancels) pthread_join(other, NULL);
}

static void *lost_client(void *number)
{
    int me = (int)(intptr_t)number;
    unsigned seed = (unsigned)me;
    while (atomic_fetch_sub(&lost.left, 1) > 0 && atomic_load(&lost.wrong) == 0)
        lost_round(me, &seed);
    return NULL;
}

static int run_lost(const char *where, int clients, int acquires, int64_t lease_ms)
{
    pthread_t threads[64];
    if (clients > 64) return 2;
    lost.s = open_service(where);
    lost.lease_ms = lease_ms;
    atomic_store(&lost.left, acquires);
    for (int i = 0; i < clients; i++)
        pthread_create(&threads[i], NULL, lost_client, (void *)(intptr_t)(i + 1));
    for (int i = 0; i < clients; i++) pthread_join(threads[i], NULL);
    sluice_close(lost.s);
    say("done granted=%d cancelled=%d failed=%d wrong=%d\n", lost.granted,
        lost.cancelled, lost.failed, lost.wrong);
    return lost.wrong == 0 ? 0 : 1;
}

/* --- hold: stop in time ------------------------------------------------------------------- */

struct held {
    char key[16];
    uint64_t fence;
    atomic_bool stop;
    /* When the work took its last step: the time before it checked the clock. */
    _Atomic int64_t last_step_us;
};

static struct held helds[KEYS_MAX];
static atomic_int held_left;

static void on_lost(void *arg, const struct sluice_event *e)
{
    struct held *h = arg;
    int64_t at_us = now_us();
    if (e->type == SLUICE_EVENT_ASKED || e->type == SLUICE_EVENT_WITHDRAWN) return;
    atomic_store(&h->stop, true);
    say("lost %s %" PRIu64 " %" PRId64 " %d\n", h->key, e->fence, at_us, (int)e->type);
    atomic_fetch_sub(&held_left, 1);
}

static void name_key(char out[16], int i)
{
    snprintf(out, 16, "k%d", i);
}

/* The work: one thread takes the steps of all locks. Returns the longest pause of this thread
 * while it held all locks: a longer one than the script expects means that the machine is slow. */
static int64_t work(struct sluice *s, int keys)
{
    int64_t longest_us = 0, last_us = now_us();
    while (atomic_load(&held_left) > 0) {
        int64_t at_us = now_us();
        if (at_us - last_us > longest_us) longest_us = at_us - last_us;
        last_us = at_us;
        for (int i = 0; i < keys; i++) {
            struct held *h = &helds[i];
            int64_t before_us = now_us();
            if (atomic_load(&h->stop) || sluice_left(s, h->key, h->fence) <= 0)
                continue;
            atomic_store(&h->last_step_us, before_us);
        }
        pause_us(500);
    }
    return longest_us;
}

static int run_hold(const char *where, int keys, int64_t lease_ms)
{
    struct sluice *s = open_service(where);
    atomic_store(&held_left, keys);
    for (int i = 0; i < keys; i++) {
        struct held *h = &helds[i];
        struct sluice_grant g;
        struct sluice_request r = {.wait_ms = 20000,
                                   .lease_ms = lease_ms,
                                   .on_event = on_lost,
                                   .arg = h,
                                   .keep_alive = lease_ms > 0};
        name_key(h->key, i);
        int status = sluice_acquire(s, h->key, &r, &g);
        if (status != SLUICE_OK) {
            say("acquire %s: %s\n", h->key, sluice_status_word(status));
            return 1;
        }
        h->fence = g.fence;
    }
    say("held %d\n", keys);
    say("paused %" PRId64 "\n", work(s, keys));
    for (int i = 0; i < keys; i++)
        say("stepped %s %" PRIu64 " %" PRId64 "\n", helds[i].key, helds[i].fence,
            helds[i].last_step_us);
    sluice_close(s);
    say("done\n");
    return 0;
}

/* --- wait: the next holder ------------------------------------------------------------------- */

static struct sluice *waits_on;

static void on_granted(void *arg, int status, const struct sluice_grant *g)
{
    struct held *h = arg;
    int64_t at_us = now_us();
    if (status == SLUICE_OK) {
        say("granted %s %" PRIu64 " %" PRId64 "\n", h->key, g->fence, at_us);
        sluice_release_start(waits_on, h->key, g->fence, NULL, NULL);
    } else say("failed %s %s\n", h->key, sluice_status_word(status));
    atomic_fetch_sub(&held_left, 1);
}

static int run_wait(const char *where, int keys, int64_t wait_ms)
{
    waits_on = open_service(where);
    atomic_store(&held_left, keys);
    for (int i = 0; i < keys; i++) {
        struct sluice_request r = {.wait_ms = wait_ms, .lease_ms = 10000};
        name_key(helds[i].key, i);
        int status = sluice_acquire_start(waits_on, helds[i].key, &r, on_granted,
                                          &helds[i]);
        if (status != SLUICE_OK) return 1;
    }
    say("waiting %d\n", keys);
    while (atomic_load(&held_left) > 0) pause_us(1000);
    sluice_close(waits_on);
    say("done\n");
    return 0;
}

/* --- all: several locks at once --------------------------------------------------------------- */

#define ALL_KEYS 6

static int run_all(const char *where, const char *path, int rounds, unsigned seed)
{
    static const char *const names[ALL_KEYS] = {"red", "green", "blue", "a", "b", "c"};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), acquired = 0, wrong = 0;
    if (fd < 0 || ftruncate(fd, ALL_KEYS * (off_t)sizeof(atomic_int)) != 0) return 2;
    atomic_int *owners = mmap(NULL, ALL_KEYS * sizeof *owners, PROT_READ | PROT_WRITE,
                              MAP_SHARED, fd, 0);
    if (owners == MAP_FAILED) return 2;
    struct sluice *s = open_service(where);
    for (int round = 0; round < rounds; round++) {
        const char *keys[ALL_KEYS];
        int numbers[ALL_KEYS];
        size_t n = 0;
        for (int i = 0; i < ALL_KEYS; i++) /* A random order of a random subset. */
            if (rand_r(&seed) % 2 != 0) {
                size_t at = (size_t)rand_r(&seed) % (n + 1);
                memmove(&numbers[at + 1], &numbers[at], (n - at) * sizeof *numbers);
                numbers[at] = i;
                n++;
            }
        if (n == 0) continue;
        for (size_t i = 0; i < n; i++) keys[i] = names[numbers[i]];
        struct sluice_locks *locks;
        /* Some rounds use locks without a lease, some give up soon. */
        bool leases = rand_r(&seed) % 2 != 0 || strchr(where, ',') != NULL;
        struct sluice_request r = {.wait_ms = rand_r(&seed) % 8 == 0 ? 2 : 60000,
                                   .lease_ms = leases ? 10000 : 0,
                                   .keep_alive = leases};
        int status = sluice_acquire_all(s, keys, n, &r, &locks);
        if (status == SLUICE_EFULL && r.wait_ms == 2) continue;
        if (status != SLUICE_OK) {
            say("wrong: acquire_all: %s\n", sluice_status_word(status));
            wrong++;
            break;
        }
        acquired++;
        for (size_t i = 0; i < n; i++)
            if (atomic_exchange(&owners[numbers[i]], (int)getpid()) != 0) wrong++;
        for (size_t i = 0; i < n; i++)
            if (sluice_locks_fence(locks, i) == 0) wrong++;
        for (size_t i = 0; i < n; i++)
            if (atomic_exchange(&owners[numbers[i]], 0) != (int)getpid()) wrong++;
        if (sluice_release_all(locks) != SLUICE_OK) wrong++;
    }
    sluice_close(s);
    say("done acquired=%d wrong=%d\n", acquired, wrong);
    return wrong == 0 ? 0 : 1;
}

/* --- elect: one leader ---------------------------------------------------------------------------- */

static volatile sig_atomic_t stops;

static void on_term(int number)
{
    (void)number;
    stops = 1;
}

static void on_elected(void *arg, uint64_t fence)
{
    (void)arg;
    say("lead %" PRIu64 " %" PRId64 "\n", fence, now_us());
}

static void on_ended(void *arg, uint64_t fence, enum sluice_event_type why)
{
    (void)arg;
    say("end %" PRIu64 " %" PRId64 " %d\n", fence, now_us(), (int)why);
}

static int run_elect(const char *where, const char *key, int64_t lease_ms)
{
    struct sluice *s = open_service(where);
    struct sluice_election *e;
    const struct sluice_candidate c = {.lease_ms = lease_ms,
                                       .value = "candidate",
                                       .on_elected = on_elected,
                                       .on_ended = on_ended};
    signal(SIGTERM, on_term);
    int status = sluice_elect(s, key, &c, &e);
    if (status != SLUICE_OK) {
        say("elect: %s\n", sluice_status_word(status));
        return 1;
    }
    say("stands\n");
    while (!stops) pause_us(10000);
    say("resigns %" PRId64 "\n", now_us());
    sluice_resign(e);
    sluice_close(s);
    say("done\n");
    return 0;
}

/* --- transfer: transactions ------------------------------------------------------------------------ */

#define ACCOUNTS 5

struct transfer {
    int from, to, amount, runs;
};

static int64_t balance_of(struct sluice_tx *tx, int account, int *status)
{
    char key[16];
    const char *value;
    name_key(key, account);
    *status = sluice_tx_get(tx, "accounts", key, &value, NULL);
    return *status == SLUICE_OK && value != NULL ? strtoll(value, NULL, 10) : 0;
}

static int set_balance(struct sluice_tx *tx, int account, int64_t to)
{
    char key[16], value[24];
    name_key(key, account);
    snprintf(value, sizeof value, "%" PRId64, to);
    return sluice_tx_put(tx, "accounts", key, value, strlen(value));
}

static int transfer(struct sluice_tx *tx, void *arg)
{
    struct transfer *t = arg;
    int status;
    t->runs++;
    int64_t from = balance_of(tx, t->from, &status);
    if (status != SLUICE_OK) return status;
    int64_t to = balance_of(tx, t->to, &status);
    if (status == SLUICE_OK) status = set_balance(tx, t->from, from - t->amount);
    if (status == SLUICE_OK) status = set_balance(tx, t->to, to + t->amount);
    return status;
}

static int count_one(struct sluice_tx *tx, void *arg)
{
    char key[16];
    int status;
    snprintf(key, sizeof key, "%d", *(int *)arg);
    const char *value;
    status = sluice_tx_get(tx, "counts", key, &value, NULL);
    int64_t n = status == SLUICE_OK && value != NULL ? strtoll(value, NULL, 10) : 0;
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, n + 1);
    return status == SLUICE_OK ? sluice_tx_put(tx, "counts", key, text, strlen(text))
                               : status;
}

static int run_transfer(const char *where, int rounds, unsigned seed)
{
    struct sluice *s = open_service(where);
    int runs = 0, counted = 0, me = (int)seed;
    for (int i = 0; i < rounds; i++) {
        struct transfer t = {.amount = (int)(rand_r(&seed) % 100)};
        t.from = (int)(rand_r(&seed) % ACCOUNTS);
        t.to = (t.from + 1 + (int)(rand_r(&seed) % (ACCOUNTS - 1))) % ACCOUNTS;
        int status = sluice_transaction(s, transfer, &t);
        if (status == SLUICE_OK) status = sluice_transaction(s, count_one, &me);
        if (status != SLUICE_OK) {
            say("transaction: %s\n", sluice_status_word(status));
            return 1;
        }
        runs += t.runs;
        counted++;
    }
    sluice_close(s);
    say("done runs=%d counted=%d\n", runs, counted);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc >= 5) {
        const char *mode = argv[1], *where = argv[2];
        if (strcmp(mode, "lost") == 0 && argc >= 6)
            return run_lost(where, atoi(argv[3]), atoi(argv[4]), atoll(argv[5]));
        if (strcmp(mode, "hold") == 0 && atoi(argv[3]) <= KEYS_MAX)
            return run_hold(where, atoi(argv[3]), atoll(argv[4]));
        if (strcmp(mode, "wait") == 0 && atoi(argv[3]) <= KEYS_MAX)
            return run_wait(where, atoi(argv[3]), atoll(argv[4]));
        if (strcmp(mode, "elect") == 0)
            return run_elect(where, argv[3], atoll(argv[4]));
        if (strcmp(mode, "transfer") == 0)
            return run_transfer(where, atoi(argv[3]), (unsigned)atoi(argv[4]));
        if (strcmp(mode, "all") == 0 && argc >= 6)
            return run_all(where, argv[3], atoi(argv[4]), (unsigned)atoi(argv[5]));
    }
    fprintf(stderr,
            "usage: lockers lost|hold|wait|all|elect|transfer ADDRESSES ARGUMENTS\n");
    return 2;
}
