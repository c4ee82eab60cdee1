#include "cli/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hex.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/text.h"
#include "sluice.h"

/* Return the text after a prefix, which may be in upper or lower case; NULL if the text
 * has no such prefix. */
static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncasecmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* Write an address for a message. Text before an "@" may contain a password, so "***" replaces
 * it; only the scheme of a URL stays. Returns `out`. */
static const char *without_password(const char *text, char out[CLI_SAFE_SIZE])
{
    char shown[CLI_SAFE_SIZE + sizeof "***"];
    const char *at = strrchr(text, '@'), *scheme = strstr(text, "://");
    if (at == NULL || after(text, "unix:") != NULL)
        return cli_safe_text(text, out, CLI_SAFE_SIZE);
    size_t n = scheme != NULL && scheme < at ? (size_t)(scheme - text) + 3 : 0;
    if (n > CLI_SAFE_SIZE / 2) n = 0;
    snprintf(shown, sizeof shown, "%.*s***%s", (int)n, text, at);
    return cli_safe_text(shown, out, CLI_SAFE_SIZE);
}

int cli_address_invalid(const char *text)
{
    char shown[CLI_SAFE_SIZE];
    return cli_usage_error(
        "invalid address \"%s\"; write host, host:port, [::1]:port, unix:/path or "
        "redis://host:port",
        without_password(text, shown));
}

/* Decode %XX. Returns false if the text is too long or an escape is invalid. */
static bool decode(const char *from, size_t n, char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%') {
            int high = i + 2 < n ? sl_hex_digit(from[i + 1]) : -1;
            int low = high >= 0 ? sl_hex_digit(from[i + 2]) : -1;
            if (low < 0) return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (c == '\0' || at + 1 >= size) return false;
        out[at++] = c;
    }
    out[at] = '\0';
    return true;
}

/* Take "[user:]password" from a URL. As in redis-cli, a text without a colon is the
 * password. Error messages must not show the text. */
static int take_login(const char *login, size_t n, struct cli_address *out)
{
    const char *colon = memchr(login, ':', n);
    size_t user = colon != NULL ? (size_t)(colon - login) : 0;
    bool is_default = user == strlen("default") && strncmp(login, "default", user) == 0;
    if (user > 0 && !is_default)
        return cli_usage_error("the server has no user names; write "
                               "redis://:PASSWORD@HOST:PORT");
    if (colon != NULL) login += user + 1, n -= user + 1;
    if (!decode(login, n, out->password, sizeof out->password))
        return cli_usage_error("the password in the redis:// address is invalid; write "
                               "special characters as %%XX, or set SLUICE_PASSWORD");
    out->has_password = out->password[0] != '\0';
    return 0;
}

/* Whether the port in "host:port" is a number from 1 to 65535, or there is no port. */
static bool has_valid_port(const char *address, size_t n)
{
    char port[8];
    uint64_t number;
    const char *colon = memrchr(address, ':', n);
    if (colon == NULL || memchr(colon, ']', n - (size_t)(colon - address)) != NULL)
        return true;
    size_t digits = n - (size_t)(colon + 1 - address);
    if (digits >= sizeof port) return false;
    memcpy(port, colon + 1, digits);
    port[digits] = '\0';
    return cli_number(port, 1, 65535, &number);
}

static int take_url(const char *url, struct cli_address *out)
{
    size_t n = strcspn(url, "/?#");
    const char *database = url + n, *at = memrchr(url, '@', n);
    if (strcmp(database, "") != 0 && strcmp(database, "/") != 0 &&
        strcmp(database, "/0") != 0)
        return cli_usage_error("the server has only database 0; write "
                               "redis://HOST:PORT");
    int status = at != NULL ? take_login(url, (size_t)(at - url), out) : 0;
    if (status != 0) return status;
    if (at != NULL) n -= (size_t)(at + 1 - url), url = at + 1;
    /* An IPv6 address without brackets: its last group could be a port. */
    const char *colon = memchr(url, ':', n);
    if (url[0] != '[' && colon != NULL &&
        memchr(colon + 1, ':', n - (size_t)(colon + 1 - url)))
        return cli_usage_error("write an IPv6 address in brackets: redis://[::1]:PORT");
    if (!has_valid_port(url, n)) /* The text after the colon may be a password. */
        return cli_usage_error("the port in the redis:// address is invalid; write "
                               "redis://:PASSWORD@HOST:PORT");
    snprintf(out->text, sizeof out->text, "%s%.*s",
             n == 0 || url[0] == ':' ? "127.0.0.1" : "", (int)n, url);
    return 0;
}

int cli_address_of_text(const char *text, struct cli_address *out)
{
    *out = (struct cli_address){0};
    const char *url = after(text, "redis://");
    if (url != NULL) return take_url(url, out);
    if (after(text, "rediss://") != NULL)
        return cli_usage_error("TLS is not supported in this version; write "
                               "redis://HOST:PORT for a connection without encryption");
    if (after(text, "unix:") == NULL &&
        (strstr(text, "://") != NULL || strchr(text, '@') != NULL))
        return cli_address_invalid(text);
    if (snprintf(out->text, sizeof out->text, "%s", text) >= (int)sizeof out->text)
        return cli_address_invalid(text);
    return 0;
}

int cli_address_of_host(const char *host, const char *port, struct cli_address *out)
{
    uint64_t number;
    char shown[CLI_SAFE_SIZE];
    *out = (struct cli_address){0};
    if (port != NULL && !cli_number(port, 1, 65535, &number))
        return cli_usage_error("PORT must be an integer from 1 to 65535 (got \"%s\")",
                               cli_safe_text(port, shown, sizeof shown));
    if (host == NULL) host = "127.0.0.1";
    if (port == NULL) port = SLUICE_SERVER_PORT;
    /* "host:7000" is an address, not a host; two colons are an IPv6 address. */
    const char *colon = strchr(host, ':');
    bool ipv6 = colon != NULL && strchr(colon + 1, ':') != NULL && host[0] != '[';
    if (host[0] == '\0' || (colon != NULL && !ipv6 && host[0] != '[') ||
        strpbrk(host, "/@") != NULL)
        return cli_usage_error(
            "HOST must be a host name or an IP address (got \"%s\"); "
            "--server takes addresses of other forms",
            without_password(host, shown));
    int n = snprintf(out->text, sizeof out->text, "%s%s%s:%s", ipv6 ? "[" : "", host,
                     ipv6 ? "]" : "", port);
    return n < (int)sizeof out->text ? 0 : cli_address_invalid(host);
}
