/* witness.c - the command that runs under a lock: it tells when it begins and ends.
 *
 *     witness BOARD LOG RUN
 *
 * LOG gets a line at the beginning and one at the end, `RUN begin|end NS PID`, each by
 * one write, so that lines of several witnesses do not mix. What else it does stands in
 * line RUN of the board (board.h): how long it lives, and whether it leaves a child, which
 * inherits the lock.
 *
 * It also looks around once: who else is in with it? It ends at once if the driver
 * is gone, so that no test leaves one behind. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "board.h"

#define TOGETHER_MAX 64u

static struct board *board;
static struct board_run *run;
static uint32_t number;
static int log_fd;
static int driver_fd; /* Readable when the driver is gone. */

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "witness: %s: %s\n", what, strerror(errno));
    _exit(98);
}

static void tell(const char *what, int64_t ns)
{
    char line[80];
    int n = snprintf(line, sizeof line, "%u %s %" PRId64 " %d\n", number, what, ns,
                     getpid());
    if (write(log_fd, line, (size_t)n) != n) fail("log");
}

/* The line of the log first: who is seen to be alive has one. */
static void begin(struct board_process *me)
{
    int64_t ns = board_now_ns();
    tell("begin", ns);
    me->pid = getpid();
    __atomic_store_n(&me->begin_ns, ns, __ATOMIC_RELEASE);
    __atomic_store_n(&me->state, ALIVE, __ATOMIC_SEQ_CST);
}

static void stay(int64_t ns)
{
    int64_t until = board_now_ns() + ns, left;
    while ((left = until - board_now_ns()) > 0) {
        struct pollfd p = {.fd = driver_fd, .events = POLLIN};
        struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        if (ppoll(&p, 1, &t, NULL) > 0) _exit(99);
    }
}

static _Noreturn void end(struct board_process *me)
{
    int64_t ns = board_now_ns();
    tell("end", ns);
    __atomic_store_n(&me->end_ns, ns, __ATOMIC_RELEASE);
    if (board_finish(me, ENDED)) _exit(0);
    for (;;) stay(INT64_MAX / 2); /* Doomed: the kill is on its way. */
}

static bool is_in(const struct board_run *r)
{
    if (__atomic_load_n(&r->spoiled, __ATOMIC_SEQ_CST) != 0) return false;
    return board_state(&r->process[WITNESS]) == ALIVE ||
           board_state(&r->process[HEIR]) == ALIVE;
}

/* Who is in with us? Looked at twice: processes that are there both times were there together,
 * between the two. */
static void look_around(void)
{
    const struct board_run *seen[TOGETHER_MAX];
    uint32_t count = 0, still = 1;
    uint32_t runs = __atomic_load_n(&board->runs, __ATOMIC_ACQUIRE);
    seen[count++] = run;
    for (uint32_t i = 0; i < runs && count < TOGETHER_MAX; i++) {
        const struct board_run *r = &board->run[i];
        if (r->key == run->key && r != run && is_in(r)) seen[count++] = r;
    }
    for (uint32_t i = 1; i < count; i++)
        if (is_in(seen[i])) seen[still++] = seen[i];
    __atomic_fetch_add(&board->looks, 1, __ATOMIC_RELAXED);
    if (board_fit(seen, still)) return;
    if (__atomic_fetch_add(&board->crowds, 1, __ATOMIC_RELAXED) != 0) return;
    int n = 0;
    for (uint32_t i = 0; i < still && n < BOARD_TEXT_MAX - 40; i++)
        n += snprintf(board->crowd + n, BOARD_TEXT_MAX - (size_t)n, " %u (%u of %u)",
                      (uint32_t)(seen[i] - board->run), seen[i]->units,
                      seen[i]->capacity);
}

static void map_board(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail(path);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED) fail("mmap");
    close(fd);
}

static uint32_t number_from(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: witness BOARD LOG RUN\n");
        return 98;
    }
    map_board(argv[1]);
    log_fd = open(argv[2], O_WRONLY | O_APPEND | O_CLOEXEC);
    if (log_fd < 0) fail(argv[2]);
    number = (uint32_t)strtoul(argv[3], NULL, 10);
    if (number >= BOARD_RUNS_MAX) fail("number");
    run = &board->run[number];
    driver_fd = pidfd_open(board->driver, 0);
    if (driver_fd < 0) _exit(99);
    run->session = (int32_t)number_from("SLUICE_LOCK_SESSION");
    run->slot = number_from("SLUICE_LOCK_SLOT");

    begin(&run->process[WITNESS]);
    if (run->heir_ns > 0) {
        pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (pid == 0) {
            begin(&run->process[HEIR]);
            stay(run->heir_ns);
            end(&run->process[HEIR]);
        }
    }
    look_around();
    stay(run->live_ns);
    end(&run->process[WITNESS]);
}
