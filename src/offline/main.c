/* main.c - sluice-store: look at the store of a server, write it as text, read that again.
 * `sluice store` becomes it, as `sluice serve` becomes the server: what it needs of LMDB is
 * not in `sluice`.
 *
 * check and dump only read, also while a server works. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "offline/store_text.h"
#include "sluice.h"

/* Virtual memory, and the file grows with what is in it. */
#define LOAD_BYTES_MAX (SIZE_MAX > UINT32_MAX ? (size_t)1 << 40 : (size_t)1 << 30)

static const char *speaker = "";

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "sluice store%s%s: ", *speaker != '\0' ? " " : "", speaker);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* What the shell is told. */
static int exit_of(int status)
{
    switch (status) {
        case SLUICE_OK: return 0;
        case SLUICE_EINVAL:
        case SLUICE_EFOREIGN:
        case SLUICE_EVERSION:
        case SLUICE_ETRUNCATED: return EX_DATAERR;
        case SLUICE_ENOENT: return EX_NOINPUT;
        case SLUICE_EACCES: return EX_NOPERM;
        default: return EX_OSERR;
    }
}

/* --- Reading, in a child ----------------------------------------------------- */

static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGABRT ||
           number == SIGFPE || number == SIGILL;
}

/* What the child was told to say to the shell. */
static int status_of(int ended)
{
    if (WIFEXITED(ended)) return WEXITSTATUS(ended);
    int number = WTERMSIG(ended);
    if (is_fault(number)) {
        say("the store is damaged: a part of its file is missing, or a page makes no "
            "sense; put back a copy, or save what a dump can read");
        return EX_DATAERR;
    }
    signal(number, SIG_DFL);
    raise(number); /* It ended both of us. */
    return EX_OSERR;
}

/* LMDB maps the file, and believes what its pages say: what is behind its end, or what a
 * damaged page points to, is met as a signal, or as an assert. That ends the child alone. */
static int in_child(int (*read)(const char *folder, FILE *to), const char *folder,
                    FILE *to)
{
    pid_t parent = getpid(), child = fork();
    int ended;
    if (child < 0) {
        say("there can be no process: %s", strerror(errno));
        return EX_OSERR;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(EX_OSERR);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        exit(read(folder, to));
    }
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR) return EX_OSERR;
    return status_of(ended);
}

static int open_to_read(struct sl_store *s, const char *folder)
{
    char why[400];
    int status = sl_store_open(s, folder, 0, why, sizeof why);
    if (status != SLUICE_OK) say("%s", why);
    return status;
}

/* --- The three --------------------------------------------------------------- */

static int read_and_check(const char *folder, FILE *to)
{
    struct sl_store s;
    struct sl_store_counts c;
    char why[400];
    int status = open_to_read(&s, folder);
    if (status != SLUICE_OK) return exit_of(status);
    status = sl_store_check(&s, &c, why, sizeof why);
    sl_store_close(&s);
    if (status != SLUICE_OK) {
        say("the store is damaged: %s", why);
        return EX_DATAERR;
    }
    fprintf(to,
            "format %u\nterm %" PRIu64 "\nrevision %" PRIu64 "\ntables %" PRIu64
            "\nkeys %" PRIu64 "\nvalue_bytes %" PRIu64 "\nrequests %" PRIu64
            "\nbarred %" PRIu64 "\n",
            SL_STORE_FORMAT, c.term, c.revision, c.tables, c.keys, c.value_bytes,
            c.requests, c.barred);
    if (fflush(to) == 0) return 0;
    say("the output could not be written");
    return EX_OSERR;
}

static int check(const char *folder)
{
    return in_child(read_and_check, folder, stdout);
}

static int read_and_dump(const char *folder, FILE *to)
{
    struct sl_store s;
    uint64_t lost;
    char why[400];
    int status = open_to_read(&s, folder);
    if (status != SLUICE_OK) return exit_of(status);
    status = sl_store_text_dump(&s, to, &lost, why, sizeof why);
    sl_store_close(&s);
    if (status != SLUICE_OK) say("%s", why);
    if (status == SLUICE_EIO && to != stdout)
        say("set TMPDIR to a folder that has room for it, or write it to a file");
    if (lost > 0) say("%" PRIu64 " damaged records were left out", lost);
    return status == SLUICE_OK && lost > 0 ? EX_DATAERR : exit_of(status);
}

/* A file that has no name. NULL: it was said. */
static FILE *open_unnamed(void)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    if (folder == NULL || *folder == '\0') folder = "/tmp";
    int n = snprintf(path, sizeof path, "%s/sluice-dump.XXXXXX", folder);
    int fd = n < (int)sizeof path ? mkstemp(path) : -1;
    if (fd >= 0) unlink(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (f != NULL) return f;
    say("no file can be made in %s; set TMPDIR to a folder that takes one", folder);
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

/* While a dump is read from the store, LMDB keeps all that is overwritten, until there is no
 * room for commits. So nobody is waited for meanwhile: whoever is at the other end of a pipe
 * or a terminal gets it from a file, when it is whole. */
static int dump(const char *folder)
{
    struct stat out;
    if (fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode))
        return in_child(read_and_dump, folder, stdout);
    FILE *kept = open_unnamed();
    if (kept == NULL) return EX_CANTCREAT;
    int status = in_child(read_and_dump, folder, kept);
    if (!copy(kept, stdout)) {
        say("the output could not be written");
        status = EX_OSERR;
    }
    fclose(kept);
    return status;
}

/* There must be none yet: what is there is not ours to replace. */
static bool is_taken(const char *folder)
{
    char path[4096];
    struct stat st;
    if (!sl_store_path(folder, SL_STORE_FILE, path, sizeof path)) return false;
    if (lstat(path, &st) != 0) return false;
    say("there is a store in %s already; load into another folder", folder);
    return true;
}

static int load(const char *folder)
{
    struct sl_store s;
    char why[400];
    if (is_taken(folder)) return EX_CANTCREAT;
    int status = sl_store_begin(&s, folder, LOAD_BYTES_MAX, why, sizeof why);
    if (status == SLUICE_OK) {
        status = sl_store_text_load(&s, stdin, why, sizeof why);
        if (status == SLUICE_OK) status = sl_store_finish(&s, folder, why, sizeof why);
        else sl_store_forget(&s, folder);
    }
    if (status != SLUICE_OK) say("%s; nothing was loaded", why);
    return exit_of(status);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *folder);
    } commands[] = {{"check", check}, {"dump", dump}, {"load", load}};
    signal(SIGXFSZ, SIG_IGN); /* A limit is an error as others are. */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (argc < 2 || strcmp(argv[1], commands[i].name) != 0) continue;
        speaker = commands[i].name;
        if (argc == 3 && argv[2][0] != '-') return commands[i].run(argv[2]);
        say("it needs one FOLDER, the --data of a server");
        return EX_USAGE;
    }
    say("it needs one of check, dump, load, and a FOLDER");
    return EX_USAGE;
}
