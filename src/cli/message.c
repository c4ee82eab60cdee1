#include "cli/message.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/text.h"
#include "sluice.h"

static const char *prefix = "sluice";

void cli_message_prefix(const char *name)
{
    prefix = name;
}

static bool never_waits;

void cli_message_never_waits(void)
{
    never_waits = true;
}

/* Write to standard error, but do not wait. Its open file is shared with other processes, so open it again
 * instead of setting O_NONBLOCK. */
static void write_now(const char *text, size_t n)
{
    struct stat s;
    ssize_t written = -1;
    if (fstat(STDERR_FILENO, &s) != 0) return;
    if (S_ISSOCK(s.st_mode)) {
        written = send(STDERR_FILENO, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode)) {
        int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (fd >= 0) {
            written = write(fd, text, n);
            close(fd);
        } else if (poll(&p, 1, 0) > 0 && p.revents == POLLOUT) {
            /* The terminal belongs to another user. */
            written = write(STDERR_FILENO, text, n);
        }
    } else written = write(STDERR_FILENO, text, n);
    (void)written;
}

/* Print a line with one write(), so that lines of several processes do not mix. */
static void write_line(const char *format, va_list args, const char *hint)
{
    char line[4096];
    int n = snprintf(line, sizeof line, "%s: ", prefix);
    if (n < 0) return;
    int m = vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    if (m < 0) return;
    size_t len = (size_t)n + (size_t)m;
    if (len > sizeof line - 2) len = sizeof line - 2;
    line[len++] = '\n';
    if (never_waits) {
        write_now(line, len);
        return;
    }
    ssize_t written = write(STDERR_FILENO, line, len);
    if (written >= 0 && hint != NULL)
        written = write(STDERR_FILENO, hint, strlen(hint));
    (void)written; /* If standard error is closed, the message is lost. */
}

void cli_message(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args, NULL);
    va_end(args);
}

int cli_usage_error(const char *format, ...)
{
    char hint[128];
    const char *topic = strchr(prefix, ' ');
    snprintf(hint, sizeof hint, "Try: sluice help%s\n", topic != NULL ? topic : "");
    va_list args;
    va_start(args, format);
    write_line(format, args, hint);
    va_end(args);
    return CLI_EXIT_USAGE;
}

int cli_exit_of(int64_t status)
{
    switch (status) {
        case SLUICE_EFULL: return CLI_EXIT_TAKEN;
        case SLUICE_EACCES:
        case SLUICE_EOWNER: return CLI_EXIT_NO_PERMISSION;
        case SLUICE_EFOREIGN:
        case SLUICE_EVERSION:
        case SLUICE_EDAMAGED:
        case SLUICE_ETRUNCATED: return CLI_EXIT_DATA;
        case SLUICE_ENOENT: return CLI_EXIT_NO_INPUT;
        case SLUICE_ETOOBIG:
        case SLUICE_EINVAL: return CLI_EXIT_USAGE;
        case SLUICE_EKEYS:
        case SLUICE_ESLOTS:
        case SLUICE_ERECORDS:
        case SLUICE_ESEGMENTS:
        case SLUICE_ESMALLER:
        case SLUICE_ENOCAS:
        case SLUICE_EBUSY: return CLI_EXIT_UNAVAILABLE;
        default: return CLI_EXIT_SYSTEM;
    }
}

/* Return what the user can do about an error. */
static const char *advice(int64_t status)
{
    switch (status) {
        case SLUICE_EKEYS:
        case SLUICE_ESLOTS:
        case SLUICE_ERECORDS:
            return " (create a larger segment with: sluice canal make)";
        case SLUICE_EIO:
            return access("/proc/self", F_OK) == 0 ? "" : " (is /proc mounted?)";
        default: return "";
    }
}

int cli_status_error(const char *what, int64_t status)
{
    char shown[CLI_SAFE_SIZE];
    const char *reason = status == SLUICE_EIO ? strerror(errno)
                                              : sluice_status_text(status);
    cli_message("%s: %s%s", cli_safe_text(what, shown, sizeof shown), reason,
                advice(status));
    return cli_exit_of(status);
}

static char cut_line[128];

static void on_cut(int signal)
{
    (void)signal;
    ssize_t written = write(STDERR_FILENO, cut_line, strlen(cut_line));
    (void)written;
    _exit(CLI_EXIT_DATA);
}

void cli_catch_truncation(void)
{
    struct sigaction now;
    const struct sigaction cut = {.sa_handler = on_cut};
    snprintf(cut_line, sizeof cut_line,
             "%s: the segment was truncated while in use; remove its file when no "
             "process uses it\n",
             prefix);
    /* exec() resets signal handlers, so this does not affect the command that we
     * execute. */
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(SIGBUS, &cut, NULL);
}

int cli_flush_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    cli_message("cannot write to standard output: %s", strerror(errno));
    return CLI_EXIT_SYSTEM;
}
