#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANSWER_MS 60000

size_t http_post(char *out, size_t size, const char *path, const char *json)
{
    int n = snprintf(out, size,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     path, strlen(json), json);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

const char *http_end(const char *at, const char *end, int *status, const char **body)
{
    static const char blank[] = "\r\n\r\n", length[] = "\r\nContent-Length:";
    const char *head = memmem(at, (size_t)(end - at), blank, 4);
    if (head == NULL) return NULL;
    *body = head + 4;
    *status = strncmp(at, "HTTP/1.1 ", 9) == 0 ? atoi(at + 9) : -1;
    for (const char *line = at; line < head;) {
        if (strncasecmp(line, length, sizeof length - 1) == 0) {
            long n = atol(line + sizeof length - 1);
            return end - *body >= n ? *body + n : NULL;
        }
        line = memmem(line + 1, (size_t)(*body - line) - 1, "\r\n", 2);
    }
    *status = -1;
    return end;
}

const char *http_ask(struct line *l, const char *path, const char *json,
                     const char **body)
{
    static char said[4096], request[1024];
    size_t n = http_post(request, sizeof request, path, json);
    int status;
    const char *wrong = n > 0 ? line_send(l->fd, request, n) : "a request is too long";
    if (wrong == NULL) wrong = line_more(l, ANSWER_MS);
    while (wrong == NULL) {
        const char *at = l->bytes + l->from;
        const char *end = http_end(at, l->bytes + l->to, &status, body);
        if (end != NULL) {
            snprintf(said, sizeof said, "%.*s", (int)(end - *body), *body);
            l->from += (size_t)(end - at);
            break;
        }
        wrong = line_more(l, ANSWER_MS);
    }
    if (wrong != NULL) return wrong;
    *body = said;
    return status == 200 ? NULL : said;
}

bool json_find(const char *body, const char *name, char *out, size_t size)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%.50s\":", name);
    const char *at = strstr(body, quoted);
    if (at == NULL) return false;
    at += strlen(quoted);
    at += *at == '"';
    snprintf(out, size, "%.*s", (int)strcspn(at, "\",}"), at);
    return true;
}

void base64(char *out, size_t size, const char *bytes, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t used = 0;
    for (size_t i = 0; i < n && used + 5 <= size; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++)
            three = three << 8 | (i + k < n ? (unsigned char)bytes[i + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            out[used++] = i + k <= n ? digits[three >> (18 - 6 * k) & 63u] : '=';
    }
    out[used] = '\0';
}
