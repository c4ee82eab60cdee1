/* try.c - a first lock between two processes, step by step. `make try` runs it.
 *
 * Two child processes, A and B, receive orders through a pipe and answer with the result
 * and the time; the parent prints each step. The children share only a segment. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice.h>

#define KEY "gate"
#define PROMISED_MS 150.0 /* From a holder's death to the grant of a waiter. */

static const struct sluice_capacity capacity = {.per = 1, .buckets = 1};
static char segment[64];

struct actor {
    pid_t pid;
    int orders;  /* To the child: one letter each. */
    int answers; /* From the child: one struct answer each. */
};

struct answer {
    int64_t result;
    double at_ms;
};

static void die(const char *what)
{
    perror(what);
    sluice_canal_remove(segment);
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- the children ---- */

static struct sluice_canal *open_segment(void)
{
    struct sluice_canal *c;
    int status = sluice_canal_open(segment, NULL, &c);
    if (status == SLUICE_OK) return c;
    fprintf(stderr, "try: cannot open segment %s: %s\n", segment,
            sluice_status_text(status));
    exit(1);
}

static void act(int orders, int answers)
{
    struct sluice_canal *c = open_segment();
    const struct sluice_want patient = {.wait_ms = 10000};
    char order;

    while (read(orders, &order, 1) == 1) {
        struct answer a = {.result = 0};
        if (order == 'a') a.result = sluice_canal_acquire(c, KEY, capacity, NULL);
        if (order == 'w') a.result = sluice_canal_acquire(c, KEY, capacity, &patient);
        if (order == 'r') a.result = sluice_canal_release(c, KEY, 1);
        a.at_ms = now_ms();
        if (write(answers, &a, sizeof a) != sizeof a) exit(1);
    }
    sluice_canal_close(c);
    exit(0);
}

static struct actor actor_new(void)
{
    int orders[2], answers[2];
    if (pipe(orders) != 0 || pipe(answers) != 0) die("try: pipe");
    pid_t pid = fork();
    if (pid < 0) die("try: fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* No orphans if the parent is interrupted. */
        close(orders[1]);
        close(answers[0]);
        act(orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    return (struct actor){.pid = pid, .orders = orders[1], .answers = answers[0]};
}

static void send_order(const struct actor *a, char order)
{
    if (write(a->orders, &order, 1) != 1) die("try: write");
}

static struct answer receive_answer(const struct actor *a)
{
    struct answer answer;
    if (read(a->answers, &answer, sizeof answer) != sizeof answer) die("try: read");
    return answer;
}

/* ---- the parent ---- */

static double began_ms;

__attribute__((format(printf, 1, 2))) static void step(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%7.1f ms  ", now_ms() - began_ms);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

static void show_result(char who, int64_t result)
{
    if (result > 0) step("%c gets the lock: %" PRId64 " of 1 units held", who, result);
    else
        step("%c gets %s: %s", who, sluice_status_word(result),
             sluice_status_text(result));
}

static void show_holders(struct sluice_canal *c)
{
    struct sluice_holder h;
    uint64_t cursor = 0;
    while (sluice_canal_next_holder(c, KEY, &cursor, &h) == 1)
        step("    state: process %" PRId32 " (%s) %s %" PRIu64 " unit%s", h.pid,
             h.program, h.waits ? "waits for" : "holds", h.units,
             h.units == 1 ? "" : "s");
}

static bool has_waiter(struct sluice_canal *c)
{
    struct sluice_key_info info;
    uint64_t cursor = 0;
    while (sluice_canal_next_key(c, &cursor, &info) == 1)
        if (info.waiters > 0) return true;
    return false;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

int main(void)
{
    snprintf(segment, sizeof segment, "try-%ld", (long)getpid());
    began_ms = now_ms();
    struct actor a = actor_new(), b = actor_new();
    struct sluice_canal *c = open_segment(); /* Only to inspect it. */

    printf("Two processes share a lock \"%s\" with capacity 1.\n", KEY);
    printf("It is in the segment /dev/shm/sluice.%s; there is no server.\n\n", segment);
    step("A is process %ld, B is process %ld", (long)a.pid, (long)b.pid);

    step("A tries to acquire the lock");
    send_order(&a, 'a');
    struct answer first = receive_answer(&a);
    show_result('A', first.result);

    step("B tries to acquire it, without waiting");
    send_order(&b, 'a');
    struct answer full = receive_answer(&b);
    show_result('B', full.result);
    sluice_canal_remove(
        segment); /* All have it open; the kernel frees it after the last one. */

    step("B tries to acquire it, and waits");
    send_order(&b, 'w');
    for (int i = 0; i < 500 && !has_waiter(c); i++) pause_ms(2);
    pause_ms(300);
    show_holders(c);

    step("A is killed with SIGKILL, so it cannot release the lock");
    double killed_ms = now_ms();
    kill(a.pid, SIGKILL);
    struct answer granted = receive_answer(&b);
    waitpid(a.pid, NULL, 0);
    show_result('B', granted.result);
    double late_ms = granted.at_ms - killed_ms;
    step("    %.1f ms after A was killed (at most %.0f are promised)", late_ms,
         PROMISED_MS);
    if (late_ms > PROMISED_MS) step("    that is late; is this machine overloaded?");
    show_holders(c);

    step("B releases the lock");
    send_order(&b, 'r');
    struct answer released = receive_answer(&b);
    step("B gets %s: %" PRId64 " of 1 units held", sluice_status_word(released.result),
         sluice_canal_count(c, KEY));

    close(b.orders);
    waitpid(b.pid, NULL, 0);
    int64_t left = sluice_canal_count(c, KEY);
    sluice_canal_close(c);

    bool well = first.result == 1 && full.result == SLUICE_EFULL &&
                granted.result == 1 && released.result == SLUICE_OK && left == 0;
    printf("\n%s\n", well ? "The lock was never held twice, and it is free again."
                          : "This is a bug in Sluice. Please report it.");
    return well ? 0 : 1;
}
