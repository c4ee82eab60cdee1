#include "cli/script.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/holder.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/shell.h"
#include "cli/text.h"

#define LEASE_MS_DEFAULT 30000
#define LEASE_MS_MIN 1000

/* Like the library: stop relying on a lease this long before it expires. */
#define MARGINS_PER_LEASE 10
#define MARGIN_MS_MAX 5000

/* How long to wait for the end of the process that extended the lease. */
#define HOLDER_MS 5000

/* --- Results ------------------------------------------------------------------- */

/* Write a text at once if it fits into a pipe. */
static bool write_all(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t written = write(fd, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text += written;
        n -= (size_t)written;
    }
    return true;
}

static char *line_of(const struct cli_script *o, const struct cli_shell_lock *lock)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    if (o->json) {
        fputc('{', out);
        cli_json_member(out, "key", lock->key);
        fputc(',', out);
        cli_json_member(out, "server", lock->servers);
        fprintf(out, ",\"fence\":%llu,\"lease_ms\":%lld}\n",
                (unsigned long long)lock->fence, (long long)lock->lease_ms);
    } else fprintf(out, "%llu\n", (unsigned long long)lock->fence);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* Write a text and free it. */
static int put(struct cli_script *o, char *text)
{
    bool written = text != NULL && write_all(o->out, text);
    int error = errno;
    free(text);
    if (written) return 0;
    /* conclude() also writes to the same output. One message is enough. */
    if (o->unwritable) return CLI_EXIT_SYSTEM;
    o->unwritable = true;
    cli_message("cannot write to standard output: %s",
                strerror(text == NULL ? ENOMEM : error));
    return CLI_EXIT_SYSTEM;
}

int cli_script_print(struct cli_script *o, const struct cli_shell_lock *lock)
{
    int status = put(o, o->shell ? cli_shell_set(lock) : line_of(o, lock));
    o->printed = status == 0;
    return status;
}

/* End the command. With --shell, print a text that fails with the exit status of this process if no
 * result was printed, so that a script never believes that it holds a lock that it does not hold. */
static int conclude(struct cli_script *o, int status)
{
    if (o->shell && !o->printed) {
        /* --help has acquired no lock, so it fails. Only a release succeeds here. */
        if (status == 0 && !(o->id == CLI_RELEASE && o->forget))
            status = CLI_EXIT_USAGE;
        int failed = put(o, cli_shell_end(status, o->forget));
        if (status == 0) status = failed;
    }
    if (o->sig != 0) cli_end_by(o->sig);
    return status;
}

/* --- Options ------------------------------------------------------------------- */

static int take(void *into, int id, const char *value)
{
    struct cli_script *o = into;
    uint64_t n;
    switch (id) {
        case 'n': o->nonblock = true; return 0;
        case 'w': return cli_duration("-w", value, 0, &o->want.wait_ms);
        case 's': o->want.shared = 1; return 0;
        case 'j': return cli_per(value, &o->per);
        case 'p': return cli_priority(value, &o->want.priority);
        case 'q': o->quiet = true; return 0;
        case CLI_OPT_STEAL: o->want.steal = 1; return 0;
        case CLI_OPT_VALUE: return cli_short_text("--value", value, &o->want.value);
        case CLI_OPT_NOTE: return cli_short_text("--note", value, &o->want.note);
        case CLI_OPT_LEASE:
            return cli_duration("--lease", value, LEASE_MS_MIN, &o->want.lease_ms);
        case CLI_OPT_SHELL: return 0; /* prescan() has seen it. */
        case CLI_OPT_JSON: o->json = true; return 0;
        case CLI_OPT_KILL: o->kill = true; return 0;
        case CLI_OPT_PID:
            if (!cli_number(value, 1, INT32_MAX, &n))
                return cli_bad_value("--pid", value, "a process id, such as $$");
            o->pid = (pid_t)n;
            return 0;
        default: cli_server_option(&o->server, id, value); return 0;
    }
}

/* Return whether the command line contains --shell. This must be known even if it is invalid. */
static bool prescan(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t n = strlen(argv[i]);
        if (n > strlen("--s") && strncmp(argv[i], "--shell", n) == 0) return true;
    }
    return false;
}

static int check_key(const char *key)
{
    size_t n = strlen(key);
    if (n == 0) return cli_usage_error("KEY must not be empty");
    if (n > SLUICE_KEY_BYTES_MAX)
        return cli_usage_error("KEY is too long: %zu bytes (maximum %u)", n,
                               SLUICE_KEY_BYTES_MAX);
    return 0;
}

/* Read the arguments of acquire and hold. */
static int take_key(struct cli_script *o, int argc, char **argv)
{
    const struct cli_command *command = &cli_commands[o->id];
    if (argc == 0) return cli_usage_error("missing KEY");
    if (argc > 1)
        return cli_usage_error("too many arguments; usage: sluice %s %s", command->name,
                               command->synopsis);
    if (o->shell && o->json)
        return cli_usage_error("--json excludes --shell; use one or the other");
    if (o->per != 0 && o->want.shared)
        return cli_usage_error("-s cannot be combined with -j");
    if (o->id == CLI_HOLD && o->shell && o->pid == 0)
        return cli_usage_error("--shell needs --pid; write --pid $$");
    if (o->kill && o->pid == 0)
        return cli_usage_error("--kill needs --pid; write --pid $$");
    if (o->nonblock) o->want.wait_ms = 0;
    if (o->want.lease_ms == 0) o->want.lease_ms = LEASE_MS_DEFAULT;
    if (o->per > SLUICE_UNITS_MAX)
        return cli_usage_error("-j must not exceed %u", (unsigned)SLUICE_UNITS_MAX);
    o->want.per = (uint32_t)o->per;
    o->key = argv[0];
    return check_key(o->key);
}

/* --- The lock that the environment describes -------------------------------------- */

/* Read a number from the environment. Returns 0 if there is none. */
static uint64_t number_of(const char *name)
{
    const char *text = getenv(name);
    uint64_t n;
    return text != NULL && cli_number(text, 1, INT64_MAX / 1000, &n) ? n : 0;
}

/* Use the server that has granted the lock. SLUICE_SERVER may name the same server, and also its
 * password. */
static int find_server_of_lock(struct cli_script *o)
{
    const char *servers = getenv("SLUICE_LOCK_SERVER");
    int status = cli_server_find(&o->server);
    if (status != 0 || o->server.address != NULL || servers == NULL ||
        strcmp(servers, o->server.addresses) == 0)
        return status;
    o->server.address = servers;
    return cli_server_find(&o->server);
}

/* Read the arguments of extend and release: KEY FENCE, or else the environment. */
static int take_lock(struct cli_script *o, int argc, char **argv)
{
    char shown[CLI_SAFE_SIZE];
    const char *fence, *lease = getenv("SLUICE_LOCK_LEASE");
    if (argc != 0 && argc != 2)
        return cli_usage_error("give KEY and FENCE, or neither");
    if (argc == 2) o->key = argv[0], fence = argv[1];
    else o->key = getenv("SLUICE_LOCK_KEY"), fence = getenv("SLUICE_LOCK_FENCE");
    if (o->key == NULL || fence == NULL)
        return cli_usage_error("missing KEY and FENCE: SLUICE_LOCK_KEY and "
                               "SLUICE_LOCK_FENCE are not set");
    int status = check_key(o->key);
    if (status != 0) return status;
    if (!cli_number(fence, 1, INT64_MAX, &o->fence))
        return cli_usage_error("FENCE must be a number from 1 to %lld (got \"%s\")",
                               (long long)INT64_MAX,
                               cli_safe_text(fence, shown, sizeof shown));
    if (argc == 0) {
        o->until_ms = (int64_t)number_of("SLUICE_LOCK_UNTIL") * 1000;
        o->holder = (pid_t)number_of("SLUICE_LOCK_PID");
        if (o->want.lease_ms == 0 && lease != NULL)
            status = cli_duration("SLUICE_LOCK_LEASE", lease, LEASE_MS_MIN,
                                  &o->want.lease_ms);
    }
    if (o->want.lease_ms == 0) o->want.lease_ms = LEASE_MS_DEFAULT;
    if (status != 0) return status;
    return argc == 0 ? find_server_of_lock(o) : cli_server_find(&o->server);
}

/* --- extend and release ------------------------------------------------------------ */

/* Report a failed EXTEND or RELEASE. Returns an exit status. */
static int report(struct cli_script *o, struct sluice *service, int status)
{
    char key[CLI_SAFE_SIZE], left[32], error[512];
    int64_t now = cli_boot_ms();
    cli_safe_text(o->key, key, sizeof key);
    sluice_error(service, error, sizeof error);
    switch (status) {
        case SLUICE_ELOST:
            cli_message("\"%s\" is no longer held under fence %llu", key,
                        (unsigned long long)o->fence);
            o->forget = true;
            return CLI_EXIT_LOST;
        case SLUICE_EASKED:
            cli_message("a client with a higher priority needs \"%s\": release it; the "
                        "lease was not extended",
                        key);
            return CLI_EXIT_TAKEN;
        case SLUICE_ENOLEASE:
            cli_message("\"%s\": %s", key, sluice_status_text(status));
            return CLI_EXIT_USAGE;
        default: break;
    }
    const struct cli_refusal refusal = {
        .keys = o->key, .status = status, .error = error};
    int exit_status = cli_server_refused(&o->server, &refusal);
    if (o->until_ms == 0)
        cli_message("\"%s\" may be held until its lease expires", key);
    else if (o->until_ms <= now)
        cli_message("do not rely on \"%s\" any more: its lease may have expired", key);
    else
        cli_message(
            "\"%s\" may be held until its lease expires; rely on it for %s at most",
            key, cli_format_duration(o->until_ms - now, left, sizeof left));
    return exit_status;
}

static int open_service(const struct cli_script *o, struct sluice **service)
{
    const struct sluice_options options = {.password = o->server.password};
    int status = sluice_open(o->server.addresses, &options, service);
    if (status == SLUICE_OK) return 0;
    return cli_server_failed(o->server.addresses, status, sluice_status_text(status));
}

static int extend(struct cli_script *o)
{
    struct sluice *service;
    int64_t lease = o->want.lease_ms, margin = lease / MARGINS_PER_LEASE;
    if (margin > MARGIN_MS_MAX) margin = MARGIN_MS_MAX;
    int exit_status = open_service(o, &service);
    if (exit_status != 0) return exit_status;
    /* The server counts from a later moment. */
    int64_t until = cli_boot_ms() + lease - margin;
    int status = sluice_extend(service, o->key, o->fence, lease);
    if (status != SLUICE_OK) exit_status = report(o, service, status);
    sluice_close(service);
    if (exit_status != 0 || !o->shell) return exit_status;
    const struct cli_shell_lock lock = {.key = o->key,
                                        .fence = o->fence,
                                        .servers = o->server.addresses,
                                        .lease_ms = lease,
                                        .until_ms = o->holder != 0        ? 0
                                                    : until > o->until_ms ? until
                                                                          : o->until_ms,
                                        .holder = o->holder};
    return cli_script_print(o, &lock);
}

/* Kill the process that extends the lease, so that it neither extends the lease again nor reports
 * the release as a loss. */
static void end_holder(const struct cli_script *o)
{
    char path[32], wanted[CLI_HOLDER_NAME_SIZE], name[CLI_HOLDER_NAME_SIZE + 1] = "";
    int fd = o->holder > 0 ? (int)syscall(SYS_pidfd_open, o->holder, 0) : -1;
    if (fd < 0) return; /* It has ended. */
    snprintf(path, sizeof path, "/proc/%d/comm", (int)o->holder);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(name, sizeof name, file) == NULL) name[0] = '\0';
        fclose(file);
    }
    name[strcspn(name, "\n")] = '\0';
    /* Another process may have this process id now. */
    if (strcmp(name, cli_holder_name(o->fence, wanted)) == 0 &&
        syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (poll(&p, 1, HOLDER_MS) < 0 && errno == EINTR) {}
    }
    close(fd);
}

static int release(struct cli_script *o)
{
    struct sluice *service;
    int exit_status = open_service(o, &service);
    if (exit_status != 0) return exit_status;
    end_holder(o);
    int status = sluice_release(service, o->key, o->fence);
    if (status == SLUICE_OK) o->forget = true;
    else exit_status = report(o, service, status);
    sluice_close(service);
    return exit_status;
}

/* --- The commands ------------------------------------------------------------------ */

static int perform(struct cli_script *o, const struct cli_command *command, int argc,
                   char **argv)
{
    bool acquires = o->id == CLI_ACQUIRE || o->id == CLI_HOLD;
    int rest;
    o->want.wait_ms = SLUICE_FOREVER;
    o->forget = acquires; /* If it fails. */
    int status = cli_parse(command, argc, argv, false, take, o, &rest);
    if (status >= 0) return status;
    if (!acquires) {
        status = take_lock(o, argc - rest, argv + rest);
        if (status != 0) return status;
        return o->id == CLI_EXTEND ? extend(o) : release(o);
    }
    status = take_key(o, argc - rest, argv + rest);
    if (status == 0) status = cli_server_find(&o->server);
    return status != 0 ? status : cli_holder(o);
}

int cli_script(const struct cli_command *command, int argc, char **argv)
{
    struct cli_script o = {
        .id = command->id, .shell = prescan(argc, argv), .out = STDOUT_FILENO};
    signal(SIGPIPE, SIG_IGN); /* write() fails instead, and the lock is released. */
    if (o.shell) {
        /* Only what the shell may evaluate goes to standard output. */
        o.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
        if (o.out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return CLI_EXIT_SYSTEM;
    }
    return conclude(&o, perform(&o, command, argc, argv));
}
