/* client_settings.c - reads the settings of the etcd client: members, files, user. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/etcd/client_internal.h"

/* Set `why` to "SUBJECT: MESSAGE". Returns false. */
static bool says(char *why, size_t why_bytes, const char *message, const char *subject)
{
    snprintf(why, why_bytes, "%s%s%s", subject, subject[0] != '\0' ? ": " : "",
             message);
    return false;
}

/* Return what is wrong with a member's URL, or NULL if it is valid. Sets *secret if the
 * URL contains a user: messages must not repeat such a URL, because it may also contain
 * a password. */
static const char *wrong_with(CURLU *u, const char *url, bool *secret)
{
    char *part = NULL;
    CURLUcode rc = curl_url_set(u, CURLUPART_URL, url, 0);
    *secret = strchr(url, '@') != NULL;
    if (*secret)
        return "an etcd URL cannot contain a user; use etcd-user and "
               "etcd-password-file";
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return "an etcd URL must start with http:// or https://";
    if (rc == CURLUE_OUT_OF_MEMORY) return "out of memory";
    if (rc != CURLUE_OK)
        return "invalid etcd URL; write http://HOST:PORT or https://HOST:PORT";
    rc = curl_url_get(u, CURLUPART_PATH, &part, 0);
    bool bare = rc == CURLUE_OK && strcmp(part, "/") == 0;
    curl_free(part);
    if (!bare || strpbrk(url, "?#") != NULL)
        return "an etcd URL must end after HOST:PORT";
    return NULL;
}

static bool add_member(struct sl_etcd_client *c, const char *text, size_t n, char *why,
                       size_t why_bytes)
{
    bool secret = false;
    if (c->member_count == SL_ETCD_MEMBERS_MAX)
        return says(why, why_bytes, "too many members of etcd", "");
    while (n > 0 && *text == ' ') text++, n--;
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '/')) n--;
    if (n == 0) return says(why, why_bytes, "an etcd URL is missing", "");
    char *url = strndup(text, n);
    CURLU *u = curl_url();
    const char *wrong = "out of memory";
    if (url != NULL && u != NULL) wrong = wrong_with(u, url, &secret);
    curl_url_cleanup(u);
    if (wrong == NULL) {
        c->members[c->member_count++].url = url;
        return true;
    }
    says(why, why_bytes, wrong, secret || url == NULL ? "" : url);
    free(url);
    return false;
}

static bool add_members(struct sl_etcd_client *c, const char *text, char *why,
                        size_t why_bytes)
{
    for (;;) {
        size_t n = strcspn(text, ",");
        if (!add_member(c, text, n, why, why_bytes)) return false;
        if (text[n] == '\0') return true;
        text += n + 1;
    }
}

static bool copy_file(char **out, const char *path, char *why, size_t why_bytes)
{
    if (path == NULL || path[0] == '\0') return true;
    if (access(path, R_OK) != 0) return says(why, why_bytes, strerror(errno), path);
    *out = strdup(path);
    return *out != NULL || says(why, why_bytes, "out of memory", "");
}

static bool add_files(struct sl_etcd_client *c, const struct sl_etcd_settings *s,
                      char *why, size_t why_bytes)
{
    if (!copy_file(&c->ca, s->ca, why, why_bytes)) return false;
    if (!copy_file(&c->cert, s->cert, why, why_bytes)) return false;
    if (!copy_file(&c->key, s->key, why, why_bytes)) return false;
    if ((c->cert == NULL) == (c->key == NULL)) return true;
    return says(why, why_bytes, "a certificate for etcd and its key belong together",
                "");
}

static bool add_user(struct sl_etcd_client *c, const struct sl_etcd_settings *s,
                     char *why, size_t why_bytes)
{
    if (s->user == NULL || s->user[0] == '\0') return true;
    const char *password = s->password != NULL ? s->password : "";
    json_t *user = json_string(s->user), *secret = json_string(password);
    if (user == NULL || secret == NULL) {
        json_decref(user);
        json_decref(secret);
        return says(why, why_bytes, "user and password of etcd must be UTF-8", "");
    }
    json_t *body = json_pack("{s:o, s:o}", "name", user, "password", secret);
    c->auth_body = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return c->auth_body != NULL || says(why, why_bytes, "out of memory", "");
}

bool sl_etcd_client_take_settings(struct sl_etcd_client *c,
                                  const struct sl_etcd_settings *s, char *why,
                                  size_t why_bytes)
{
    c->answer_ms = s->answer_ms;
    return add_members(c, s->members, why, why_bytes) &&
           add_files(c, s, why, why_bytes) && add_user(c, s, why, why_bytes);
}
