/* http.h - as much of HTTP/1.1 as etcd's gateway takes: POST with a body, one at a time. */
#ifndef BENCH_HTTP_H
#define BENCH_HTTP_H

#include <stddef.h>

#include "subject.h"

/* Write a request with this JSON as its body. Returns its length, 0 if it does not fit. */
size_t http_post(char *out, size_t size, const char *path, const char *json);

/* Returns the end of a reply that begins at `at`, or NULL if it is incomplete. Sets
 * its status and the start of its body. The status is -1 if the reply has no length. */
const char *http_end(const char *at, const char *end, int *status, const char **body);

/* Send a request and wait for the reply. Its body is borrowed until the next call
 * and ends with '\0'. Returns NULL, or an error message; any status other than 200
 * is an error. */
const char *http_ask(struct line *l, const char *path, const char *json,
                     const char **body);

/* The value of "name" in such a body, without quotes; false if there is none. If the
 * name occurs several times, the first one counts. */
bool json_find(const char *body, const char *name, char *out, size_t size);

/* Encode bytes as base64, with a final '\0'. */
void base64(char *out, size_t size, const char *bytes, size_t n);

#endif /* BENCH_HTTP_H */
