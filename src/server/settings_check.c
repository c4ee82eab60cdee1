/* settings_check.c - reads the files that contain passwords and secrets, and checks settings that
 * depend on each other. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "majority/membership.h"
#include "server/net/membership_text.h"
#include "server/settings_internal.h"

#define SECRET_BYTES_MIN 16u

/* Read the setting `what` from the first line of the file that the setting WHAT-file names. */
static int read_first_line(char **text, const char *path, const char *what,
                           const struct sl_settings_place *p)
{
    if (*path == '\0') return 0;
    if (**text != '\0')
        return sl_settings_wrong(p, "%s and %s-file are both set; remove one of them",
                                 what, what);
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return sl_settings_wrong(p, "%s-file: cannot read %s: %s", what, path,
                                 strerror(errno));
    ssize_t n = getline(&line, &size, file);
    fclose(file);
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = '\0';
    if (n <= 0) {
        free(line);
        return sl_settings_wrong(
            p, "%s-file: the first line of %s is empty; it must contain the %s", what,
            path, what);
    }
    if (strlen(line) != (size_t)n) {
        free(line);
        return sl_settings_wrong(
            p, "%s-file: the first line of %s contains a zero byte", what, path);
    }
    free(*text);
    *text = line;
    return 0;
}

static int check_peers(const struct sl_settings *s, const struct sl_settings_place *p)
{
    struct sl_membership list;
    struct sl_bytes where;
    if (*s->peers == '\0')
        return sl_settings_wrong(
            p, "node requires peers: a list of all nodes of the cluster, "
               "including this one");
    const char *why = sl_membership_read(
        &list, (struct sl_bytes){s->peers, strlen(s->peers)}, &where);
    if (why != NULL)
        return sl_settings_wrong(p, "peers: \"%.*s\": %s", (int)where.n, where.at, why);
    if (sl_membership_find(&list, (sl_node_id)s->node) >= 0) return 0;
    return sl_settings_wrong(
        p, "peers must contain this node, %" PRId64 " (got \"%s\")", s->node, s->peers);
}

static int check_node(const struct sl_settings *s, const struct sl_settings_place *p)
{
    if (s->node == 0) {
        if (*s->peers != '\0')
            return sl_settings_wrong(
                p, "peers requires node: the ID of this server in peers");
        if (s->bootstrap)
            return sl_settings_wrong(
                p, "bootstrap requires node and peers; remove bootstrap to "
                   "run a single server");
        return 0;
    }
    if (check_peers(s, p) != 0) return -1;
    if (strlen(s->secret) < SECRET_BYTES_MIN)
        return sl_settings_wrong(
            p,
            "node requires a secret of at least %u bytes (got %zu); set "
            "\"secret-file\" to a file that contains one",
            SECRET_BYTES_MIN, strlen(s->secret));
    if (s->node_port == 0)
        return sl_settings_wrong(p, "node requires node-port: it must not be 0");
    if (*s->data == '\0' || strcmp(s->data, "none") == 0)
        return sl_settings_wrong(
            p, "node requires a data directory, because the promises of a node "
               "must survive a restart; set \"data\" to a directory");
    if (s->lease_ms_max < s->lease_ms_min)
        return sl_settings_wrong(p, "lease-max must be at least lease-min");
    return 0;
}

/* Check majority-keys, a comma-separated list of patterns. No pattern may be empty or too long. */
static int check_majority_keys(const struct sl_settings *s,
                               const struct sl_settings_place *p)
{
    const char *at = s->majority_keys;
    if (*at == '\0') return 0;
    if (s->engine != SL_ENGINE_ETCD)
        return sl_settings_wrong(
            p, "majority-keys requires etcd; without etcd, a majority of the nodes "
               "grants the locks on all keys");
    for (;; at++) {
        size_t n = strcspn(at, ",");
        if (n == 0)
            return sl_settings_wrong(p, "majority-keys contains an empty pattern");
        if (n > (size_t)s->pattern_bytes_max)
            return sl_settings_wrong(p,
                                     "majority-keys: \"%.*s\" is longer than %" PRId64
                                     " bytes (pattern-bytes-max)",
                                     (int)n, at, s->pattern_bytes_max);
        at += n;
        if (*at == '\0') return 0;
    }
}

static int check_etcd(const struct sl_settings *s, const struct sl_settings_place *p)
{
    if (s->node == 0)
        return sl_settings_wrong(p, "engine etcd requires the setting \"node\"; a "
                                    "single server uses engine lmdb");
    if (*s->etcd == '\0')
        return sl_settings_wrong(
            p, "engine etcd requires the addresses of the etcd members; set "
               "\"etcd\" to http://host:2379,...");
    if ((*s->etcd_cert == '\0') != (*s->etcd_key == '\0'))
        return sl_settings_wrong(p,
                                 "set both etcd-cert and etcd-key, or neither of them");
    if ((*s->etcd_user == '\0') != (*s->etcd_password == '\0'))
        return sl_settings_wrong(
            p, "set both etcd-user and etcd-password-file (or etcd-password), "
               "or neither of them");
    return 0;
}

/* What lease-volatile is by default: with the journal in etcd, and in a file. */
#define LEASE_VOLATILE_ETCD_MS 10000
#define LEASE_VOLATILE_FILE_MS 60000

static int check_engine(struct sl_settings *s, const struct sl_settings_place *p)
{
    if (s->engine == SL_ENGINE_AUTO && *s->etcd != '\0') s->engine = SL_ENGINE_ETCD;
    if (s->lease_volatile_ms == SL_TIME_AUTO)
        s->lease_volatile_ms = s->engine == SL_ENGINE_ETCD ? LEASE_VOLATILE_ETCD_MS
                                                           : LEASE_VOLATILE_FILE_MS;
    if (*s->etcd != '\0' && s->engine != SL_ENGINE_ETCD)
        return sl_settings_wrong(p, "etcd requires engine etcd or auto (got \"%s\")",
                                 sl_settings_engine_name(s->engine));
    if (s->engine == SL_ENGINE_ETCD && check_etcd(s, p) != 0) return -1;
    if (s->engine != SL_ENGINE_LMDB) return check_majority_keys(s, p);
    if (s->node != 0)
        return sl_settings_wrong(
            p, "engine lmdb is for a single server; a cluster requires etcd "
               "for transactions");
    if (*s->data == '\0' || strcmp(s->data, "none") == 0)
        return sl_settings_wrong(
            p, "engine lmdb requires a data directory; set \"data\" to "
               "a directory");
    return check_majority_keys(s, p);
}

int sl_settings_check(struct sl_settings *s, const struct sl_settings_place *p)
{
    if (read_first_line(&s->password, s->password_file, "password", p) != 0 ||
        read_first_line(&s->secret, s->secret_file, "secret", p) != 0 ||
        read_first_line(&s->etcd_password, s->etcd_password_file, "etcd-password", p) !=
            0 ||
        check_node(s, p) != 0 || check_engine(s, p) != 0)
        return -1;
    if (s->port == 0 && *s->socket == '\0')
        return sl_settings_wrong(
            p, "port is 0 and socket is empty, so no client could connect; "
               "set \"port\", or set \"socket\" to a path");
    if (strlen(s->password) > (size_t)s->auth_bytes_max / 2)
        return sl_settings_wrong(
            p,
            "password is longer than half of auth-bytes-max (%" PRId64
            "); use a shorter password, or increase auth-bytes-max",
            s->auth_bytes_max);
    if (s->command_bytes_max < s->argument_bytes_max)
        return sl_settings_wrong(
            p, "command-bytes-max must be at least argument-bytes-max");
    return 0;
}
