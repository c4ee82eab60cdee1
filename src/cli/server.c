#include "cli/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/message.h"
#include "cli/table.h"
#include "cli/text.h"

#define ERROR_SIZE 512

/* --- Address and password ------------------------------------------------- */

void cli_server_option(struct cli_server *s, int id, const char *value)
{
    switch (id) {
        case CLI_OPT_SERVER: s->address = value; return;
        case CLI_OPT_HOST: s->host = value; return;
        case CLI_OPT_PORT: s->port = value; return;
        case CLI_OPT_PASSWORD_FILE: s->password_file = value; return;
        default: abort(); /* The parser knows the options of each command. */
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

bool cli_server_named(const struct cli_server *s)
{
    return s->address != NULL || s->host != NULL || s->port != NULL ||
           variable("SLUICE_SERVER") != NULL;
}

/* Append an address to the list. The password of the first address that has one counts. */
static int append(struct cli_server *s, const struct cli_address *a)
{
    size_t used = strlen(s->addresses);
    int n = snprintf(s->addresses + used, sizeof s->addresses - used, "%s%s",
                     used > 0 ? "," : "", a->text);
    if (n >= (int)(sizeof s->addresses - used))
        return cli_usage_error("the list of addresses is too long: at most %d bytes",
                               CLI_SERVERS_SIZE - 1);
    if (a->has_password && s->password == NULL) {
        memcpy(s->password_text, a->password, sizeof s->password_text);
        s->password = s->password_text;
    }
    return 0;
}

/* Parse addresses with commas between them. */
static int find_each(struct cli_server *s, const char *text)
{
    char one[CLI_ADDRESS_SIZE + CLI_PASSWORD_SIZE];
    struct cli_address a;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        if (n >= sizeof one) return cli_address_invalid(text);
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        int status = cli_address_of_text(one, &a);
        if (status == 0) status = append(s, &a);
        if (status != 0) return status;
        p += n;
        if (*p == '\0') return 0;
    }
}

/* Find the address: --server, or -h and -p, or the environment, or else the default. */
static int find_addresses(struct cli_server *s)
{
    struct cli_address a;
    if (s->host != NULL || s->port != NULL) {
        if (s->address != NULL)
            return cli_usage_error("--server excludes -h and -p; use one or the other");
        int status = cli_address_of_host(s->host, s->port, &a);
        return status != 0 ? status : append(s, &a);
    }
    const char *text = s->address != NULL ? s->address : variable("SLUICE_SERVER");
    return find_each(s, text != NULL ? text : SLUICE_SERVER_DEFAULT);
}

/* Find the password: the first line of the password file; or else the password in the
 * address; or else SLUICE_PASSWORD. */
static int find_password(struct cli_server *s)
{
    char shown[CLI_SAFE_SIZE];
    if (s->password == NULL) s->password = variable("SLUICE_PASSWORD");
    if (s->password_file == NULL) return 0;
    FILE *file = fopen(s->password_file, "re");
    bool found = file != NULL &&
                 fgets(s->password_text, sizeof s->password_text, file) != NULL;
    int error = errno;
    bool failed = file == NULL || ferror(file);
    if (file != NULL) fclose(file);
    cli_safe_text(s->password_file, shown, sizeof shown);
    if (failed) {
        cli_message("cannot read the password file %s: %s", shown, strerror(error));
        return error == EACCES ? CLI_EXIT_NO_PERMISSION : CLI_EXIT_NO_INPUT;
    }
    if (found) s->password_text[strcspn(s->password_text, "\r\n")] = '\0';
    if (!found || s->password_text[0] == '\0') {
        cli_message("the first line of the password file %s is empty", shown);
        return CLI_EXIT_NO_INPUT;
    }
    s->password = s->password_text;
    return 0;
}

int cli_server_find(struct cli_server *s)
{
    s->addresses[0] = '\0';
    s->password = NULL;
    int status = find_addresses(s);
    return status != 0 ? status : find_password(s);
}

/* --- Connections ---------------------------------------------------------- */

/* Return whether the error means that no server runs at the address. */
static bool is_absent(const char *error)
{
    return strstr(error, strerror(ECONNREFUSED)) != NULL ||
           strstr(error, strerror(ENOENT)) != NULL;
}

int cli_server_failed(const char *address, int status, const char *error)
{
    char shown[CLI_SAFE_SIZE], reason[ERROR_SIZE];
    int why = errno;
    size_t n = strlen(address);
    /* The library names the address in the error, because it may try several. */
    if (strncmp(error, address, n) == 0 && strncmp(error + n, ": ", 2) == 0)
        error += n + 2;
    cli_safe_text(address, shown, sizeof shown);
    cli_safe_text(error, reason, sizeof reason);
    switch (status) {
        case SLUICE_EINVAL: return cli_address_invalid(address);
        case SLUICE_ENOMEM: return cli_status_error(address, status);
        case SLUICE_EIO: /* sluice_open() has failed, before it connected. */
            cli_message("cannot connect to %s: %s", shown, strerror(why));
            return CLI_EXIT_SYSTEM;
        case SLUICE_EDENIED:
            cli_message("%s: the server %s with SLUICE_PASSWORD or --password-file",
                        shown,
                        strncmp(error, "NOAUTH", 6) == 0
                            ? "requires a password; set it"
                            : "rejects the password; set the correct one");
            return CLI_EXIT_NO_PERMISSION;
        default:
            cli_message("cannot connect to %s: %s%s", shown, reason,
                        is_absent(error) ? "; start a server with \"sluice serve\", or "
                                           "set SLUICE_SERVER to the address of one"
                                         : "");
            return CLI_EXIT_UNAVAILABLE;
    }
}

int cli_server_try(const struct cli_server *s, struct sluice_wire_options options,
                   struct sluice_wire **out, char *address, size_t address_size,
                   char *error, size_t error_size)
{
    char one[CLI_SERVERS_SIZE];
    options.password = s->password;
    options.error = error;
    options.error_size = error_size;
    for (const char *p = s->addresses;; p++) {
        size_t n = strcspn(p, ",");
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        snprintf(address, address_size, "%s", one);
        int status = sluice_wire_open(one, &options, out);
        if (status == SLUICE_OK) return status;
        p += n;
        /* Another node may answer, unless the command line is wrong. */
        if (*p == '\0' || (status != SLUICE_EUNREACHABLE && status != SLUICE_ECLOSED))
            return status;
    }
}

int cli_server_connect(const struct cli_server *s, struct sluice_wire_options options,
                       struct sluice_wire **out)
{
    char address[CLI_SERVERS_SIZE], error[ERROR_SIZE];
    int status = cli_server_try(s, options, out, address, sizeof address, error,
                                sizeof error);
    return status == SLUICE_OK ? 0 : cli_server_failed(address, status, error);
}

int cli_server_exit_of(const char *error)
{
    size_t n = strcspn(error, " ");
    for (const struct cli_exit *e = cli_exits; e->when != NULL; e++)
        if (cli_list_has(e->errors, error, n)) return e->status;
    return CLI_EXIT_USAGE;
}

/* --- Locks ---------------------------------------------------------------- */

/* Skip the code at the start of an error reply: "DRAINED the key ...". */
static const char *without_code(const char *error)
{
    size_t n = strspn(error, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return n > 1 && error[n] == ' ' ? error + n + 1 : error;
}

int cli_server_refused(const struct cli_server *s, const struct cli_refusal *r)
{
    char shown[CLI_SAFE_SIZE], safe[ERROR_SIZE];
    cli_safe_text(r->keys, shown, sizeof shown);
    cli_safe_text(r->error[0] != '\0' ? without_code(r->error)
                                      : sluice_status_text(r->status),
                  safe, sizeof safe);
    switch (r->status) {
        case SLUICE_EFULL:
            if (!r->quiet && r->wait_ms == 0) cli_message("\"%s\" is taken", shown);
            else if (!r->quiet)
                cli_message("timed out after %g s: \"%s\" is still taken",
                            (double)r->wait_ms / 1000, shown);
            return CLI_EXIT_TAKEN;
        case SLUICE_EMAJORITY:
            cli_message(
                "\"%s\": a majority cluster has exclusive locks only; remove -s, -j "
                "and --buckets, or use a single server or a cluster on etcd",
                shown);
            return CLI_EXIT_USAGE;
        case SLUICE_EINVAL:
        case SLUICE_ETOOBIG:
        case SLUICE_ENOMEM: return cli_status_error(shown, r->status);
        case SLUICE_EDENIED:
        case SLUICE_EUNREACHABLE:
            return cli_server_failed(s->addresses, r->status, r->error);
        default: cli_message("\"%s\": %s", shown, safe); return CLI_EXIT_UNAVAILABLE;
    }
}

static void make_printable(char *name)
{
    for (char *p = name; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') *p = '_';
}

const char *cli_host_name(char *out, size_t size)
{
    memset(out, 0, size);
    if (gethostname(out, size - 1) != 0) out[0] = '\0';
    make_printable(out);
    return out;
}

void cli_client_name(const char *program, pid_t pid, char *out, size_t size)
{
    char host[64];
    snprintf(out, size, "%.40s[%d]@%s", program, (int)pid,
             cli_host_name(host, sizeof host));
    make_printable(out);
}
