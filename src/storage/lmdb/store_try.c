/* store_try.c - checks a store in a child process, because a damaged file or a failing
 * disk may kill the process that reads it. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sluice.h"
#include "storage/lmdb/store.h"
#include "storage/storage.h"

struct check_result {
    int status;
    char why[SL_STORAGE_WHY_BYTES];
};

/* --- In the child ------------------------------------------------------------ */

static void check_store(const char *directory, struct check_result *a)
{
    struct sl_store s;
    struct sl_store_counts counts;
    int pages = sl_store_check_pages(directory, a->why, sizeof a->why);
    a->status = pages;
    if (pages == SLUICE_ETRUNCATED) return;
    a->status = sl_store_open(&s, directory, 0, a->why, sizeof a->why);
    if (pages == SLUICE_OK && a->status == SLUICE_OK) {
        a->status = sl_store_check(&s, &counts, a->why, sizeof a->why);
        sl_store_close(&s);
        return;
    }
    /* The store is not damaged: the path is a symbolic link, for example. */
    if (a->status == SLUICE_EACCES) return;
    if (a->status != pages && a->status != SLUICE_EVERSION) {
        /* Either the pages or LMDB show that the store is ours, so it is damaged. */
        a->status = SLUICE_ETRUNCATED;
        snprintf(a->why, sizeof a->why, "unknown format");
    }
}

/* Check the store and send the result to the parent. The child must not outlive its
 * parent, write a core file, or run the server's signal handlers. */
static void check_and_answer(const char *directory, pid_t parent, int to)
{
    struct check_result a = {0};
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    check_store(directory, &a);
    _exit(write(to, &a, sizeof a) == sizeof a ? 0 : 1);
}

/* --- In the parent ----------------------------------------------------------- */

static sl_ms now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Wait for the child's answer. Returns false on timeout. Sets *n to 0 if the child
 * exited without an answer. */
static bool await_answer(int from, sl_ms most_ms, struct check_result *a, ssize_t *n)
{
    struct pollfd p = {.fd = from, .events = POLLIN};
    sl_ms end = now_ms() + most_ms;
    for (;;) {
        sl_ms left = end - now_ms();
        if (left < 0) return false;
        int ready = poll(&p, 1, left < INT_MAX ? (int)left : INT_MAX);
        if (ready > 0) break;
    }
    *n = read(from, a, sizeof *a); /* Atomic, since it is smaller than PIPE_BUF. */
    return true;
}

_Static_assert(sizeof(struct check_result) <= PIPE_BUF,
               "read() returns a whole answer");

static void name_file(const char *directory, const char *text, const char *detail,
                      char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "the file %s/" SL_STORE_FILE " %s%s%s", directory, text,
             *detail != '\0' ? ": " : "", detail);
}

static int judge(const struct check_result *a, ssize_t n, int ended,
                 const char *directory, char *why, size_t why_bytes)
{
    char text[80] = "";
    if (n == (ssize_t)sizeof *a && a->status != SLUICE_ETRUNCATED) {
        snprintf(why, why_bytes, "%s", a->why);
        return a->status;
    }
    if (n != (ssize_t)sizeof *a && WIFSIGNALED(ended))
        snprintf(text, sizeof text, "the check crashed with signal %d",
                 WTERMSIG(ended));
    name_file(directory,
              "is damaged; restore a copy, or save what is readable (sluice store "
              "dump) and load it into an empty directory",
              n == (ssize_t)sizeof *a ? a->why : text, why, why_bytes);
    return SLUICE_ETRUNCATED;
}

static int wait_for(pid_t child, int from, const char *directory, sl_ms most_ms,
                    char *why, size_t why_bytes)
{
    struct check_result a;
    ssize_t n = 0;
    int ended = 0;
    bool heard = await_answer(from, most_ms, &a, &n);
    if (!heard) kill(child, SIGKILL);
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {}
    if (heard) return judge(&a, n, ended, directory, why, why_bytes);
    name_file(
        directory,
        "could not be checked in time; raise store-check-time, or run sluice store "
        "check",
        "", why, why_bytes);
    return SLUICE_ETRUNCATED;
}

int sl_storage_try_lmdb(const char *directory, sl_ms most_ms, char *why,
                        size_t why_bytes)
{
    int ends[2];
    pid_t parent = getpid(), child = -1;
    *why = '\0';
    if (pipe(ends) != 0) return sl_store_status(errno);
    child = fork();
    if (child == 0) check_and_answer(directory, parent, ends[1]);
    int rc = errno;
    close(ends[1]);
    int status = child < 0
                     ? sl_store_status(rc)
                     : wait_for(child, ends[0], directory, most_ms, why, why_bytes);
    close(ends[0]);
    if (child < 0)
        snprintf(why, why_bytes, "cannot start a process to check the store: %s",
                 strerror(rc));
    return status;
}
