/* top_server.c - reads an update of `sluice top` from a server: INFO, READY, LOCKS, and EXPLAIN
 * for the locks that are visible. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/ops.h"
#include "cli/server.h"
#include "cli/top_data.h"
#include "sluice.h"

#define CONNECT_MS 3000
#define REPLY_MS 5000
#define NUMBER_SIZE 24

/* Each special character of the filter can become two. */
#define PATTERN_SIZE (2 * TOP_FILTER_SIZE + 4)

/* --- Calls --------------------------------------------------------------------- */

static void set_trouble(struct top_update *u, int status, const char *text)
{
    u->status = status;
    top_copy(u->trouble, sizeof u->trouble, text, strlen(text));
}

/* Handle a failed call: the connection cannot be used any more. */
static void lose(struct top_source *s, struct top_update *u, int status)
{
    const char *error = sluice_wire_error(s->wire);
    set_trouble(u, CLI_EXIT_UNAVAILABLE,
                error[0] != '\0' ? error : sluice_status_text(status));
    sluice_wire_close(s->wire);
    s->wire = NULL;
}

/* Read the reply to a command. Returns NULL if the connection was lost. Push messages do not prolong
 * the time limit. */
static struct sluice_reply *next_reply(struct top_source *s, struct top_update *u)
{
    struct sluice_reply *r;
    int64_t until = cli_now_ms() + REPLY_MS;
    for (;;) {
        int status = sluice_wire_next(s->wire, &r);
        if (status != SLUICE_OK) {
            lose(s, u, status);
            return NULL;
        }
        if (r->type != SLUICE_REPLY_PUSH) return r;
        sluice_reply_free(r);
        if (cli_now_ms() < until) continue;
        lose(s, u, SLUICE_EUNREACHABLE);
        set_trouble(u, CLI_EXIT_UNAVAILABLE, "the server did not answer in time");
        return NULL;
    }
}

static bool send(struct top_source *s, struct top_update *u, const char *const *args,
                 const size_t *lengths, size_t n)
{
    int status = sluice_wire_send(s->wire, args, lengths, n);
    if (status != SLUICE_OK) lose(s, u, status);
    return status == SLUICE_OK;
}

static struct sluice_reply *call(struct top_source *s, struct top_update *u,
                                 const char *const *args, size_t n)
{
    return send(s, u, args, NULL, n) ? next_reply(s, u) : NULL;
}

/* Return a number that cannot be negative. */
static uint64_t count_of(const struct sluice_reply *map, const char *name)
{
    int64_t n = cli_field_number(map, name, 0);
    return n > 0 ? (uint64_t)n : 0;
}

static void copy_of(const struct sluice_reply *map, const char *name, char *out,
                    size_t size)
{
    size_t n;
    const char *text = cli_field_text(map, name, &n);
    top_copy(out, size, text, n);
}

/* --- INFO, READY ------------------------------------------------------------------ */

/* Return the value in a line "name:value" of INFO, and its length; "" if there is no such line. */
static const char *line_of(const char *text, const char *name, size_t *n)
{
    size_t length = strlen(name);
    for (const char *p = text; (p = strstr(p, name)) != NULL; p += length) {
        if ((p != text && p[-1] != '\n') || p[length] != ':') continue;
        *n = strcspn(p + length + 1, "\r\n");
        return p + length + 1;
    }
    *n = 0;
    return "";
}

static int64_t number_in(const char *text, const char *name)
{
    size_t n;
    return strtoll(line_of(text, name, &n), NULL, 10);
}

static void text_in(const char *text, const char *name, char *out, size_t size)
{
    size_t n;
    const char *value = line_of(text, name, &n);
    top_copy(out, size, value, n);
}

static void take_info(struct top_info *i, const char *text)
{
    char engine[32];
    text_in(text, "sluice_version", i->version, sizeof i->version);
    text_in(text, "keeper", i->keeper, sizeof i->keeper);
    text_in(text, "engine", engine, sizeof engine);
    i->uptime_s = number_in(text, "uptime_in_seconds");
    i->clients = number_in(text, "connected_clients");
    i->locks = number_in(text, "keys");
    i->waiters = number_in(text, "waiters");
    i->grants = number_in(text, "grants");
    i->releases = number_in(text, "releases") + number_in(text, "disconnect_releases");
    i->expiries = number_in(text, "expiries");
    i->node = number_in(text, "node");
    i->nodes = number_in(text, "nodes");
    i->nodes_up = number_in(text, "nodes_up");
    i->keeper_node = number_in(text, "keeper_node");
    i->term = number_in(text, "term");
    i->deployment = strcmp(engine, "etcd") == 0 ? "etcd"
                    : i->nodes > 0              ? "majority"
                                                : "single";
}

static bool read_info(struct top_source *s, struct top_update *u)
{
    static const char *const info[] = {"INFO",  "server",  "clients", "stats",
                                       "locks", "cluster", "keeper"};
    static const char *const ready[] = {"READY"};
    struct sluice_reply *r = call(s, u, info, sizeof info / sizeof *info);
    if (r == NULL) return false;
    if (r->type == SLUICE_REPLY_ERROR)
        set_trouble(u, cli_server_exit_of(r->text), r->text);
    else take_info(&u->info, r->text);
    sluice_reply_free(r);
    if (u->trouble[0] != '\0') return false;
    r = call(s, u, ready, 1);
    if (r == NULL) return false;
    u->info.ready = r->type != SLUICE_REPLY_ERROR;
    if (!u->info.ready)
        top_copy(u->info.unready, sizeof u->info.unready, r->text, r->text_bytes);
    sluice_reply_free(r);
    return true;
}

/* --- LOCKS ------------------------------------------------------------------------ */

/* Write a pattern for keys that contain a text. */
static void put_pattern(const char *filter, char out[PATTERN_SIZE])
{
    size_t n = 0;
    out[n++] = '*';
    for (const char *p = filter; *p != '\0'; p++) {
        if (strchr("*?[]\\", *p) != NULL) out[n++] = '\\';
        out[n++] = *p;
    }
    out[n++] = '*';
    out[n] = '\0';
}

static bool take_lock(struct top_update *u, const struct sluice_reply *r)
{
    const struct sluice_reply *key = cli_field(r, "key"),
                              *holder = cli_field(r, "holder");
    if (key == NULL) return true;
    struct top_lock *l = top_add_lock(u, key->text, key->text_bytes);
    if (l == NULL) return false;
    l->held = count_of(r, "held");
    l->holders = count_of(r, "holders");
    l->waiters = count_of(r, "waiters");
    l->waited_ms = cli_field_number(r, "waited_ms", -1);
    l->shared = cli_field_number(r, "shared", 0) != 0;
    l->drained = cli_field_number(r, "drained", 0) != 0;
    if (holder == NULL || holder->type != SLUICE_REPLY_MAP) return true;
    l->held_ms = cli_field_number(holder, "held_ms", -1);
    l->fence = count_of(holder, "fence");
    copy_of(holder, "name", l->name, sizeof l->name);
    copy_of(holder, "address", l->address, sizeof l->address);
    return true;
}

/* Read one page of LOCKS, and store the next cursor. Returns false if there is no memory, or
 * after trouble. */
static bool read_page(struct top_source *s, const struct top_want *want, bool waited,
                      char cursor[NUMBER_SIZE], struct top_update *u)
{
    char pattern[PATTERN_SIZE], count[NUMBER_SIZE];
    const char *args[8] = {"LOCKS"};
    size_t n = 1;
    snprintf(count, sizeof count, "%u", TOP_PAGE);
    if (waited) args[n++] = "WAITED";
    if (want->filter[0] != '\0') {
        put_pattern(want->filter, pattern);
        args[n++] = "MATCH", args[n++] = pattern;
    }
    args[n++] = "CURSOR", args[n++] = cursor;
    args[n++] = "COUNT", args[n++] = count;
    struct sluice_reply *r = call(s, u, args, n);
    if (r == NULL) return false;
    bool done = r->type == SLUICE_REPLY_LIST && r->count == 2;
    if (!done)
        set_trouble(u,
                    r->type == SLUICE_REPLY_ERROR ? cli_server_exit_of(r->text)
                                                  : CLI_EXIT_UNAVAILABLE,
                    r->type == SLUICE_REPLY_ERROR ? r->text : "invalid reply to LOCKS");
    for (size_t i = 0; done && i < r->items[1].count; i++)
        done = take_lock(u, &r->items[1].items[i]);
    if (done) top_copy(cursor, NUMBER_SIZE, r->items[0].text, r->items[0].text_bytes);
    sluice_reply_free(r);
    return done;
}

static bool read_locks(struct top_source *s, const struct top_want *want,
                       struct top_update *u)
{
    char cursor[NUMBER_SIZE] = "0", first[NUMBER_SIZE] = "0";
    unsigned pages = 0;
    do {
        if (!read_page(s, want, false, cursor, u)) return false;
        u->complete = strcmp(cursor, "0") == 0;
    } while (!u->complete && ++pages < TOP_PAGES_MAX);
    /* There are too many locks to read all; do not miss those for which clients wait. */
    if (!u->complete && !read_page(s, want, true, first, u)) return false;
    top_unite(u);
    /* INFO of a majority node also counts keys that no client uses. */
    if (u->complete && want->filter[0] == '\0') u->info.locks = (int64_t)u->count;
    return true;
}

/* --- EXPLAIN ---------------------------------------------------------------------- */

static uint64_t capacity_of(const struct sluice_reply *party)
{
    return count_of(party, "per") * count_of(party, "buckets");
}

static void take_explained(struct top_lock *l, const struct sluice_reply *r)
{
    const struct sluice_reply *holders = cli_field(r, "holders"),
                              *waiters = cli_field(r, "waiters");
    bool held = holders != NULL && holders->count > 0;
    l->explained = true;
    /* The lock may have another holder by now. */
    l->lease_known = held && count_of(&holders->items[0], "fence") == l->fence;
    if (l->lease_known)
        l->lease_ms = cli_field_number(&holders->items[0], "lease_ms", -1);
    if (held) l->capacity = capacity_of(&holders->items[0]);
    else if (waiters != NULL && waiters->count > 0)
        l->capacity = capacity_of(&waiters->items[0]);
}

static bool send_explain(struct top_source *s, struct top_update *u, const char *key,
                         size_t bytes)
{
    const char *args[] = {"EXPLAIN", key};
    const size_t lengths[] = {strlen(args[0]), bytes};
    return send(s, u, args, lengths, 2);
}

/* Explain the visible locks. The commands are sent before the first reply is read, so that a
 * distant server delays them only once. */
static bool explain_locks(struct top_source *s, const struct top_want *want,
                          struct top_update *u)
{
    size_t first = want->first < u->count ? want->first : u->count;
    size_t rows = want->rows < TOP_EXPLAINS_MAX ? want->rows : TOP_EXPLAINS_MAX;
    size_t end = rows < u->count - first ? first + rows : u->count;
    for (size_t i = first; i < end; i++)
        if (!send_explain(s, u, u->locks[i].key, u->locks[i].key_bytes)) return false;
    for (size_t i = first; i < end; i++) {
        struct sluice_reply *r = next_reply(s, u);
        if (r == NULL) return false;
        if (r->type == SLUICE_REPLY_MAP) take_explained(&u->locks[i], r);
        sluice_reply_free(r);
    }
    return true;
}

static bool take_party(struct top_detail *d, const struct sluice_reply *r, bool waits)
{
    struct top_party *p = top_add_party(d);
    char note[TOP_TEXT_SIZE];
    if (p == NULL) return false;
    p->waits = waits;
    copy_of(r, "name", p->name, sizeof p->name);
    copy_of(r, "address", p->address, sizeof p->address);
    p->shared = cli_field_number(r, "shared", 0) != 0;
    p->gone = cli_field_number(r, "connected", -1) == 0;
    p->units = count_of(r, "units");
    p->fence = count_of(r, "fence");
    p->priority = cli_field_number(r, "priority", 0);
    p->since_ms = cli_field_number(r, waits ? "waited_ms" : "held_ms", 0);
    p->left_ms = cli_field_number(r, waits ? "left_ms" : "lease_ms", -1);
    if (p->left_ms > CLI_NO_LIMIT_MS) p->left_ms = -1;
    if (waits) {
        copy_of(r, "reason", p->text, sizeof p->text);
        return true;
    }
    copy_of(r, "note", note, sizeof note);
    snprintf(p->text, sizeof p->text, "%s%s%s%.*s",
             cli_field_number(r, "broken", 0) != 0 ? "revoked " : "",
             cli_field_number(r, "asked", 0) != 0 ? "asked to release " : "",
             p->gone ? "connection closed " : "", TOP_TEXT_SIZE / 2, note);
    return true;
}

static bool take_parties(struct top_detail *d, const struct sluice_reply *list,
                         bool waits)
{
    for (size_t i = 0; list != NULL && i < list->count; i++)
        if (!take_party(d, &list->items[i], waits)) return false;
    return true;
}

static bool take_detail(struct top_detail *d, const struct sluice_reply *r)
{
    const struct sluice_reply *summary = cli_field(r, "summary");
    d->holders = count_of(r, "holders_count");
    d->waiters = count_of(r, "waiters_count");
    for (size_t i = 0; summary != NULL && i < summary->count; i++) {
        if (d->sentences == TOP_SUMMARY_MAX) break;
        top_copy(d->summary[d->sentences++], TOP_REASON_SIZE, summary->items[i].text,
                 summary->items[i].text_bytes);
    }
    return take_parties(d, cli_field(r, "holders"), false) &&
           take_parties(d, cli_field(r, "waiters"), true);
}

static bool read_detail(struct top_source *s, const struct top_want *want,
                        struct top_update *u)
{
    if (want->detail == NULL) return true;
    struct top_detail *d = top_add_detail(u, want->detail, want->detail_bytes);
    if (d == NULL || !send_explain(s, u, d->key, d->key_bytes)) return false;
    struct sluice_reply *r = next_reply(s, u);
    if (r == NULL) return false;
    bool done = true;
    if (r->type == SLUICE_REPLY_ERROR)
        top_copy(d->summary[d->sentences++], TOP_REASON_SIZE, r->text, r->text_bytes);
    else done = take_detail(d, r);
    sluice_reply_free(r);
    return done;
}

/* --- Connections -------------------------------------------------------------------- */

static void introduce(struct top_source *s, struct top_update *u)
{
    static const char *const name[] = {"CLIENT", "SETNAME", "sluice-top"};
    sluice_reply_free(call(s, u, name, sizeof name / sizeof *name));
}

static const struct sluice_wire_options options = {
    .connect_ms = CONNECT_MS, .reply_ms = REPLY_MS, .resp = 3};

int top_server_open(struct top_source *s, const struct cli_server *server)
{
    char error[TOP_REASON_SIZE];
    s->server = server;
    int status = cli_server_try(server, options, &s->wire, s->source, sizeof s->source,
                                error, sizeof error);
    return status == SLUICE_OK ? 0 : cli_server_failed(s->source, status, error);
}

/* Connect again. */
static void reconnect(struct top_source *s, struct top_update *u)
{
    char error[TOP_REASON_SIZE] = "";
    int status = cli_server_try(s->server, options, &s->wire, s->source,
                                sizeof s->source, error, sizeof error);
    if (status == SLUICE_OK) introduce(s, u);
    else {
        s->wire = NULL;
        set_trouble(
            u, status == SLUICE_EDENIED ? CLI_EXIT_NO_PERMISSION : CLI_EXIT_UNAVAILABLE,
            error[0] != '\0' ? error : sluice_status_text(status));
    }
}

bool top_server_read(struct top_source *s, const struct top_want *want,
                     struct top_update *u)
{
    if (s->wire == NULL) reconnect(s, u);
    else if (s->before_ms == 0) introduce(s, u);
    bool done = u->trouble[0] == '\0' && read_info(s, u) && read_locks(s, want, u);
    if (done) {
        top_sort(u, want->order, want->reversed);
        done = explain_locks(s, want, u) && read_detail(s, want, u);
    }
    return done || u->trouble[0] != '\0';
}
