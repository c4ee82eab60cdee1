/* main.c - sluice-store: look at the store of a server, write it as text, read that again.
 * `sluice store` becomes it, as `sluice serve` becomes the server: what it needs of LMDB is
 * not in `sluice`.
 *
 * check and dump only read, also while a server works. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "sluice.h"
#include "store/text.h"

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

/* LMDB maps the file: what is behind its end, or what a damaged page points to, is met as a
 * signal. */
static void on_fault(int number)
{
    static const char words[] =
        "sluice store: the store is damaged: a part of its file is missing\n";
    (void)number;
    ssize_t n = write(STDERR_FILENO, words, sizeof words - 1);
    (void)n;
    _exit(EX_DATAERR);
}

/* --- The three --------------------------------------------------------------- */

static int open_to_read(struct sl_store *s, const char *folder)
{
    char why[400];
    signal(SIGBUS, on_fault);
    signal(SIGSEGV, on_fault);
    int status = sl_store_open(s, folder, 0, why, sizeof why);
    if (status != SLUICE_OK) say("%s", why);
    return status;
}

static int check(const char *folder)
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
    printf("format %u\nterm %" PRIu64 "\nrevision %" PRIu64 "\ntables %" PRIu64
           "\nkeys %" PRIu64 "\nvalue_bytes %" PRIu64 "\nrequests %" PRIu64
           "\nbarred %" PRIu64 "\n",
           SL_STORE_FORMAT, c.term, c.revision, c.tables, c.keys, c.value_bytes,
           c.requests, c.barred);
    if (fflush(stdout) == 0) return 0;
    say("the output could not be written");
    return EX_OSERR;
}

static int dump(const char *folder)
{
    struct sl_store s;
    uint64_t lost;
    char why[400];
    int status = open_to_read(&s, folder);
    if (status != SLUICE_OK) return exit_of(status);
    status = sl_text_dump(&s, stdout, &lost, why, sizeof why);
    sl_store_close(&s);
    if (status != SLUICE_OK) say("%s", why);
    if (lost > 0) say("%" PRIu64 " damaged records were left out", lost);
    return status == SLUICE_OK && lost > 0 ? EX_DATAERR : exit_of(status);
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
        status = sl_text_load(&s, stdin, why, sizeof why);
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
