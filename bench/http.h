/* http.h - as much of HTTP/1.1 as etcd's gateway takes: POST with a body, one at a time. */
#ifndef BENCH_HTTP_H
#define BENCH_HTTP_H

#include <stddef.h>

#include "subject.h"

/* Write a request with this JSON as its body. Returns its length, 0 if it does not fit. */
size_t http_post(char *out, size_t size, const char *path, const char *json);

/* The end of a reply that begins at `at`, or NULL: it is not whole. Its status and where
 * its body begins; a reply that does not say how long it is has the status -1. */
const char *http_end(const char *at, const char *end, int *status, const char **body);

/* Send a request on a line and wait for the reply: its body, borrowed until the next call,
 * with a '\0' behind it. NULL, or what went wrong; any status but 200 is wrong. */
const char *http_ask(struct line *l, const char *path, const char *json,
                     const char **body);

/* What stands behind "name": in such a body, without quotes; false: nothing. The first of
 * that name counts. */
bool json_find(const char *body, const char *name, char *out, size_t size);

/* Bytes as base64, with a '\0'. */
void base64(char *out, size_t size, const char *bytes, size_t n);

#endif /* BENCH_HTTP_H */
