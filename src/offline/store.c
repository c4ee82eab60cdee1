/* store.c - `sluice-offline store`: checks the store of a server, dumps it as text, and
 * creates a new store from such a dump. check and dump only read, so a server may use
 * the store at the same time. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "offline/offline.h"
#include "offline/store_text.h"
#include "sluice.h"

/* load reserves this much address space; the file grows only as far as needed. */
#define LOAD_BYTES_MAX (SIZE_MAX > UINT32_MAX ? (size_t)1 << 40 : (size_t)1 << 30)

/* --- Reading in a child process ---------------------------------------------- */

static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGABRT ||
           number == SIGFPE || number == SIGILL;
}

/* Convert the wait status of the child to an exit status. If an external signal killed
 * the child, kill this process with the same signal. */
static int exit_status_of(int ended)
{
    if (WIFEXITED(ended)) return WEXITSTATUS(ended);
    int number = WTERMSIG(ended);
    if (is_fault(number)) {
        offline_say("the store is damaged: its file is truncated, or a page is "
                    "invalid; restore a "
                    "copy, or save the readable records with \"sluice store dump\"");
        return EX_DATAERR;
    }
    signal(number, SIG_DFL);
    raise(number);
    return EX_OSERR;
}

/* Run a function in a child process. LMDB maps the file and trusts its pages. So a
 * truncated file or a damaged page raises a signal or fails an assertion in LMDB, which
 * must kill only the child. */
static int in_child(int (*read)(const char *directory, FILE *to), const char *directory,
                    FILE *to)
{
    pid_t parent = getpid(), child = fork();
    int ended;
    if (child < 0) {
        offline_say("cannot start a process: %s", strerror(errno));
        return EX_OSERR;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(EX_OSERR);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        exit(read(directory, to));
    }
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR) return EX_OSERR;
    return exit_status_of(ended);
}

static int open_to_read(struct sl_store *s, const char *directory)
{
    char why[400];
    int status = sl_store_open(s, directory, 0, why, sizeof why);
    if (status != SLUICE_OK) offline_say("%s", why);
    return status;
}

/* --- The commands ------------------------------------------------------------ */

static int read_and_check(const char *directory, FILE *to)
{
    struct sl_store s;
    struct sl_store_counts c;
    char why[400];
    int status = open_to_read(&s, directory);
    if (status != SLUICE_OK) return offline_exit_status(status);
    status = sl_store_check(&s, &c, why, sizeof why);
    sl_store_close(&s);
    if (status != SLUICE_OK) {
        offline_say("the store is damaged: %s", why);
        return EX_DATAERR;
    }
    fprintf(to,
            "format %u\nterm %" PRIu64 "\nrevision %" PRIu64 "\ntables %" PRIu64
            "\nkeys %" PRIu64 "\nvalue_bytes %" PRIu64 "\nrequests %" PRIu64
            "\nbarred %" PRIu64 "\n",
            SL_STORE_FORMAT, c.term, c.revision, c.tables, c.keys, c.value_bytes,
            c.requests, c.barred);
    if (fflush(to) == 0) return 0;
    offline_say("cannot write to standard output: %s", strerror(errno));
    return EX_OSERR;
}

int offline_store_check(const struct offline_arguments *a)
{
    return in_child(read_and_check, a->directory, stdout);
}

static int read_and_dump(const char *directory, FILE *to)
{
    struct sl_store s;
    uint64_t lost;
    char why[400];
    int status = open_to_read(&s, directory);
    if (status != SLUICE_OK) return offline_exit_status(status);
    status = offline_store_write_text(&s, to, &lost, why, sizeof why);
    sl_store_close(&s);
    if (status != SLUICE_OK) offline_say("%s", why);
    if (status == SLUICE_EIO && to != stdout)
        offline_say(
            "set TMPDIR to a directory with enough space, or redirect the output to a "
            "file");
    if (lost > 0)
        offline_say("skipped %" PRIu64 " damaged record%s", lost, lost == 1 ? "" : "s");
    return status == SLUICE_OK && lost > 0 ? EX_DATAERR : offline_exit_status(status);
}

/* Open a temporary file without a name. On failure, prints a message and returns
 * NULL. */
static FILE *open_unnamed(void)
{
    const char *directory = getenv("TMPDIR");
    char path[4096];
    if (directory == NULL || *directory == '\0') directory = "/tmp";
    int n = snprintf(path, sizeof path, "%s/sluice-dump.XXXXXX", directory);
    int fd = n < (int)sizeof path ? mkstemp(path) : -1;
    if (fd >= 0) unlink(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (f != NULL) return f;
    offline_say("cannot create a temporary file in %s: %s; set TMPDIR to another "
                "directory",
                directory, strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
}

static bool copy(FILE *from, FILE *to)
{
    char bytes[65536];
    size_t n;
    rewind(from);
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0 &&
           fwrite(bytes, 1, n, to) == n) {}
    return !ferror(from) && fflush(to) == 0 && !ferror(to);
}

/* While a reader is active, LMDB cannot reuse pages that the server frees, so the store
 * may become full. A dump must therefore not wait for a pipe or a terminal. So this
 * command writes the dump to a temporary file first, and copies it to standard output
 * when it is complete. */
int offline_store_dump(const struct offline_arguments *a)
{
    struct stat out;
    if (fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode))
        return in_child(read_and_dump, a->directory, stdout);
    FILE *kept = open_unnamed();
    if (kept == NULL) return EX_CANTCREAT;
    int status = in_child(read_and_dump, a->directory, kept);
    if (!copy(kept, stdout)) {
        offline_say("cannot write to standard output: %s", strerror(errno));
        status = EX_OSERR;
    }
    fclose(kept);
    return status;
}

static bool has_store(const char *directory)
{
    char path[4096];
    struct stat st;
    if (!sl_store_path(directory, SL_STORE_FILE, path, sizeof path)) return false;
    if (lstat(path, &st) != 0) return false;
    offline_say("%s already contains a store; load into another directory", directory);
    return true;
}

int offline_store_load(const struct offline_arguments *a)
{
    const char *directory = a->directory;
    struct sl_store s;
    char why[400];
    if (has_store(directory)) return EX_CANTCREAT;
    int status = sl_store_begin(&s, directory, LOAD_BYTES_MAX, why, sizeof why);
    if (status == SLUICE_OK) {
        status = offline_store_read_text(&s, stdin, why, sizeof why);
        if (status == SLUICE_OK)
            status = sl_store_finish(&s, directory, why, sizeof why);
        else sl_store_forget(&s, directory);
    }
    if (status != SLUICE_OK) offline_say("%s; nothing was loaded", why);
    return offline_exit_status(status);
}
