#include "cli/shell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The variables that describe each grant, and the others, which may come from a `sluice run` around
 * the script. */
#define OWN                                                                  \
    "SLUICE_LOCK_KEY SLUICE_LOCK_FENCE SLUICE_LOCK_SERVER SLUICE_LOCK_HELD " \
    "SLUICE_LOCK_WHERE SLUICE_LOCK_LEASE"
#define OTHERS                                                                   \
    "SLUICE_LOCK_UNTIL SLUICE_LOCK_PID SLUICE_LOCK_SEGMENT SLUICE_LOCK_SESSION " \
    "SLUICE_LOCK_NTH SLUICE_LOCK_SLOT SLUICE_LOCK_FD"
#define NAME_SIZE 32

/* Print a word in single quotes, in which no character but the quote has a meaning. */
static void put_word(FILE *out, const char *word)
{
    fputc('\'', out);
    for (const char *p = word; *p != '\0'; p++) {
        if (*p == '\'') fputs("'\\''", out);
        else fputc(*p, out);
    }
    fputc('\'', out);
}

static char *close_text(FILE *out, char **text)
{
    bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed) return *text;
    free(*text);
    return NULL;
}

void cli_shell_forget(void)
{
    char name[NAME_SIZE];
    for (const char *p = OWN " " OTHERS; *p != '\0'; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        unsetenv(name);
        p += n;
    }
}

char *cli_shell_set(const struct cli_shell_lock *lock)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    fputs("{ unset " OTHERS "; SLUICE_LOCK_KEY=", out);
    put_word(out, lock->key);
    fputs("; SLUICE_LOCK_SERVER=", out);
    put_word(out, lock->servers);
    fprintf(out,
            "; SLUICE_LOCK_FENCE=%llu; SLUICE_LOCK_LEASE=%lldms; "
            "SLUICE_LOCK_WHERE=server; SLUICE_LOCK_HELD=1; export " OWN "; ",
            (unsigned long long)lock->fence, (long long)lock->lease_ms);
    if (lock->until_ms > 0)
        fprintf(out, "export SLUICE_LOCK_UNTIL=%lld; ",
                (long long)(lock->until_ms / 1000));
    if (lock->holder > 0)
        fprintf(out, "export SLUICE_LOCK_PID=%d; ", (int)lock->holder);
    fputs("}\n", out);
    return close_text(out, &text);
}

char *cli_shell_end(int status, bool forget)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    fprintf(out, "{ %s(exit %d); }\n", forget ? "unset " OWN " " OTHERS "; " : "",
            status);
    return close_text(out, &text);
}
