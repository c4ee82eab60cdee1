#include "crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "canal/word.h"

/* The number of pairs between two reads of the clock. It is large enough to make the
 * reads cheap, and small enough that slow locks stop in time. */
#define STRIDE 500u

#define ANSWER_MS 60000 /* The timeout for a message of a process. */

/* The barrier of a crew, in shared memory. */
struct crew_barrier {
    _Alignas(128) uint64_t arrived; /* It never decreases. */
};

struct order {
    uint64_t meet; /* Start when this many have arrived. */
    int64_t run_ns;
};

struct tally {
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t pairs;
    uint64_t granted;
    int64_t pushed; /* Involuntary context switches during the run. */
};

/* The first message of a process: "", or the reason why it cannot start. */
struct hello {
    char refused[120];
};

/* ---- reading ---- */

const char *crew_read(int fd, void *out, size_t size, int64_t wait_ms)
{
    int64_t until_ns = now_ns() + wait_ms * 1000000;
    for (size_t have = 0; have < size;) {
        int64_t left_ms = (until_ns - now_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (interrupted()) return "interrupted";
        if (left_ms <= 0) return "a process does not respond";
        if (poll(&p, 1, (int)left_ms) <= 0) continue;
        ssize_t n = read(fd, (char *)out + have, size - have);
        if (n == 0) return "a process has died";
        if (n > 0) have += (size_t)n;
    }
    return NULL;
}

/* ---- in the child ---- */

static void meet(struct crew_barrier *b, uint64_t count)
{
    /* Acquire and release, so that no process starts before all have arrived. Each
     * waiting process has its own CPU, so it may spin. */
    __atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&b->arrived, __ATOMIC_ACQUIRE) < count)
        sl_canal_word_pause();
}

static int64_t pushed_so_far(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? u.ru_nivcsw : 0;
}

static struct tally work(const struct rival *r, struct seat *s, int64_t run_ns)
{
    uint32_t (*pairs)(struct seat *, uint32_t) = s->place->site.order != NULL ? r->many
                                                                              : r->one;
    struct tally t = {.begin_ns = now_ns()};
    do {
        t.granted += pairs(s, STRIDE);
        t.pairs += STRIDE;
        t.end_ns = now_ns();
    } while (t.end_ns - t.begin_ns < run_ns);
    return t;
}

static _Noreturn void serve(const struct rival *r, struct place *p, uint32_t number,
                            struct crew_barrier *barrier, int orders, int tallies)
{
    struct seat seat = {.place = p, .key = p->site.apart ? number : 0};
    struct hello hello = {.refused = ""};
    const char *refused = r->sit(p, number);
    if (refused != NULL) strncpy(hello.refused, refused, sizeof hello.refused - 1);
    if (write(tallies, &hello, sizeof hello) != sizeof hello) _exit(1);
    for (;;) {
        struct order o;
        if (read(orders, &o, sizeof o) != sizeof o) _exit(0);
        int64_t before = pushed_so_far();
        meet(barrier, o.meet);
        struct tally t = work(r, &seat, o.run_ns);
        t.pushed = pushed_so_far() - before;
        if (write(tallies, &t, sizeof t) != sizeof t) _exit(1);
    }
}

/* ---- in the parent ---- */

/* Fork a process. Its first message has not arrived yet. */
static bool hire(struct crew *c, const struct rival *r, struct place *p, int cpu)
{
    int order[2], tally[2];
    if (pipe(order) != 0) return false;
    if (pipe(tally) != 0) {
        close(order[0]);
        close(order[1]);
        return false;
    }
    uint32_t number = c->size;
    pid_t pid = fork();
    if (pid == 0) {
        crew_child();
        close(order[1]);
        close(tally[0]);
        process_pin(cpu);
        serve(r, p, number, c->barrier, order[0], tally[1]);
    }
    close(order[0]);
    close(tally[1]);
    if (pid < 0) {
        close(order[1]);
        close(tally[0]);
        return false;
    }
    c->pids[number] = pid;
    c->orders[number] = order[1];
    c->tallies[number] = tally[0];
    c->size++;
    return true;
}

const char *crew_start(struct crew *c, const struct rival *r, struct place *p,
                       const int *cpus)
{
    static char refused[sizeof((struct hello *)0)->refused];
    *c = (struct crew){.inexact = r->inexact};
    c->barrier = mmap(NULL, sizeof *c->barrier, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->barrier == MAP_FAILED) return "no memory";
    const char *wrong = NULL;
    for (uint32_t i = 0; i < p->site.seats && wrong == NULL; i++)
        if (!hire(c, r, p, cpus[i])) wrong = "cannot start a process";
    for (uint32_t i = 0; i < c->size && wrong == NULL; i++) {
        struct hello hello;
        wrong = crew_read(c->tallies[i], &hello, sizeof hello, ANSWER_MS);
        if (wrong == NULL && hello.refused[0] != '\0') {
            memcpy(refused, hello.refused, sizeof refused);
            wrong = refused;
        }
    }
    if (wrong != NULL) crew_end(c);
    return wrong;
}

const char *crew_run(struct crew *c, int64_t run_ns, double *ns_per_pair,
                     bool *disturbed)
{
    int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
    uint64_t pairs = 0;
    const char *wrong = NULL;
    struct order o = {.run_ns = run_ns};
    *disturbed = false;
    o.meet = __atomic_load_n(&c->barrier->arrived, __ATOMIC_ACQUIRE) + c->size;
    for (uint32_t i = 0; i < c->size; i++)
        if (write(c->orders[i], &o, sizeof o) != sizeof o) return "a process has died";
    for (uint32_t i = 0; i < c->size; i++) {
        struct tally t;
        wrong = crew_read(c->tallies[i], &t, sizeof t, run_ns / 1000000 + ANSWER_MS);
        if (wrong != NULL) return wrong;
        if (t.granted != t.pairs && !c->inexact)
            return "a request that fits was rejected";
        if (t.begin_ns < begin_ns) begin_ns = t.begin_ns;
        if (t.end_ns > end_ns) end_ns = t.end_ns;
        if (t.pushed > 0) *disturbed = true;
        pairs += t.pairs;
    }
    *ns_per_pair = (double)(end_ns - begin_ns) / (double)pairs;
    return NULL;
}

void crew_end(struct crew *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        kill(c->pids[i], SIGKILL);
        while (waitpid(c->pids[i], NULL, 0) < 0 && errno == EINTR) continue;
        close(c->orders[i]);
        close(c->tallies[i]);
    }
    munmap(c->barrier, sizeof *c->barrier);
    c->size = 0;
}
