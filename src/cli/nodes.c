#include "cli/nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exits.h"
#include "cli/grid.h"
#include "cli/message.h"
#include "cli/ops.h"
#include "cli/parse.h"
#include "cli/reply.h"
#include "cli/text.h"

#define REASON_SIZE 512

/* --- INFO ----------------------------------------------------------------- */

/* Return the value of a line "name:value" of INFO, and its length; NULL: there is no such line. */
static const char *info_text(const struct sluice_reply *info, const char *name,
                             size_t *n)
{
    size_t length = strlen(name);
    for (const char *p = info->text; *p != '\0';) {
        if (strncmp(p, name, length) == 0 && p[length] == ':') {
            p += length + 1;
            *n = strcspn(p, "\r\n");
            return p;
        }
        p += strcspn(p, "\n");
        p += *p != '\0';
    }
    return NULL;
}

static int64_t info_number(const struct sluice_reply *info, const char *name)
{
    size_t n;
    const char *text = info_text(info, name, &n);
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

static bool info_is(const struct sluice_reply *info, const char *name,
                    const char *value)
{
    size_t n;
    const char *text = info_text(info, name, &n);
    return text != NULL && n == strlen(value) && strncmp(text, value, n) == 0;
}

static int read_info(struct cli_ops *o, const char *section, struct sluice_reply **out)
{
    const char *const args[] = {"INFO", section};
    return cli_ops_call(o, args, 2, out);
}

/* --- One server ----------------------------------------------------------- */

/* The state of a server. */
struct probe {
    char address[CLI_ADDRESS_SIZE];
    bool ready;
    int64_t node;             /* 0: unknown, or not a node of a cluster. */
    int64_t version;          /* Of the membership; 0: unknown. */
    int64_t keeper, term;     /* What it knows; 0: no keeper, or unknown. */
    char reason[REASON_SIZE]; /* Why it is not ready. */
    int status;               /* The exit status of `ready`. */
};

static void set_reason(struct probe *p, int status, const char *reason)
{
    snprintf(p->reason, sizeof p->reason, "%s", reason);
    p->status = status;
}

/* Send READY and take the reply. */
static void ask_ready(struct cli_ops *o, struct probe *p)
{
    const char *const args[] = {"READY"};
    struct sluice_reply *r;
    int status = sluice_wire_call(o->wire, args, NULL, 1, &r);
    if (status != SLUICE_OK) {
        set_reason(p, CLI_EXIT_UNAVAILABLE, sluice_wire_error(o->wire));
        return;
    }
    if (r->type == SLUICE_REPLY_ERROR)
        set_reason(p, cli_server_exit_of(r->text), r->text);
    else if (r->type == SLUICE_REPLY_STATUS && strcmp(r->text, "READY") == 0)
        p->ready = true;
    else
        set_reason(
            p, CLI_EXIT_UNAVAILABLE,
            "the reply to READY is not that of a Sluice server; check the address");
    sluice_reply_free(r);
}

/* Ask what the server knows about its cluster. Without a reply, it knows nothing. */
static void ask_node(struct cli_ops *o, struct probe *p)
{
    static const char *const sections[] = {"cluster", "keeper"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const char *const args[] = {"INFO", sections[i]};
        struct sluice_reply *r;
        if (sluice_wire_call(o->wire, args, NULL, 2, &r) != SLUICE_OK) return;
        bool cluster = i == 0, valid = r->type != SLUICE_REPLY_ERROR;
        if (valid && cluster) {
            p->node = info_number(r, "node");
            p->version = info_number(r, "membership_version");
        } else if (valid && info_is(r, "engine", "etcd")) {
            p->keeper = info_number(r, "keeper_node");
            p->term = info_number(r, "term");
        }
        sluice_reply_free(r);
    }
}

/* --- ready ---------------------------------------------------------------- */

static void print_ready(const struct cli_ops *o, const struct probe *p)
{
    char address[CLI_SAFE_SIZE], reason[CLI_SAFE_SIZE];
    if (o->json) {
        fputs("{\"server\":", stdout);
        cli_json_string(stdout, p->address);
        printf(",\"ready\":%s", p->ready ? "true" : "false");
        if (!p->ready) {
            fputs(",\"reason\":", stdout);
            cli_json_string(stdout, p->reason);
        }
        puts("}");
    } else if (p->ready && !o->quiet) puts("ready");
    else if (!o->quiet)
        cli_message("%s is not ready: %s",
                    cli_safe_text(p->address, address, sizeof address),
                    cli_safe_text(p->reason, reason, sizeof reason));
}

int cli_ready(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    struct probe p = {0};
    int rest;
    int status = cli_ops_parse(command, argc, argv, 0, 0, &o, &rest);
    if (status >= 0) return status;
    bool quiet = o.quiet;
    o.quiet = quiet || o.json; /* With --json, the reason is in the document. */
    status = cli_ops_connect(&o);
    o.quiet = quiet;
    if (status != 0 && (!o.json || o.error[0] == '\0')) return status;
    snprintf(p.address, sizeof p.address, "%s", o.address);
    if (status != 0) set_reason(&p, status, o.error);
    else ask_ready(&o, &p);
    cli_ops_no_deadline();
    print_ready(&o, &p);
    sluice_wire_close(o.wire);
    return cli_flush_output(p.status);
}

/* --- nodes ---------------------------------------------------------------- */

/* What `nodes` shows. */
struct view {
    struct sluice_reply *nodes, *cluster, *keeper;
    struct probe *probes; /* Of each server, if several are given. */
    size_t probe_count;
};

static void free_view(struct view *v)
{
    sluice_reply_free(v->nodes);
    sluice_reply_free(v->cluster);
    sluice_reply_free(v->keeper);
    free(v->probes);
}

/* Find the state of one server of several. */
static void probe_server(const struct cli_ops *o, const char *address, struct probe *p)
{
    char error[REASON_SIZE];
    struct cli_ops one = *o;
    const struct sluice_wire_options options = {.connect_ms = o->timeout_ms,
                                                .reply_ms = o->timeout_ms};
    snprintf(p->address, sizeof p->address, "%s", address);
    snprintf(one.server.addresses, sizeof one.server.addresses, "%s", address);
    /* The copy has its own text of the password. */
    if (o->server.password == o->server.password_text)
        one.server.password = one.server.password_text;
    cli_ops_extend(o);
    int status = cli_server_try(&one.server, options, &one.wire, one.address,
                                sizeof one.address, error, sizeof error);
    if (status != SLUICE_OK) {
        set_reason(p, CLI_EXIT_UNAVAILABLE, error);
        return;
    }
    ask_ready(&one, p);
    ask_node(&one, p);
    sluice_wire_close(one.wire);
}

/* Find the state of each server, if several are given. */
static int probe_servers(const struct cli_ops *o, struct view *v)
{
    char address[CLI_ADDRESS_SIZE];
    size_t count = 1;
    for (const char *p = o->server.addresses; *p != '\0'; p++) count += *p == ',';
    if (count == 1) return 0;
    v->probes = calloc(count, sizeof *v->probes);
    if (v->probes == NULL) return cli_status_error("nodes", SLUICE_ENOMEM);
    for (const char *p = o->server.addresses; v->probe_count < count; p++) {
        size_t n = strcspn(p, ",");
        snprintf(address, sizeof address, "%.*s", (int)n, p);
        probe_server(o, address, &v->probes[v->probe_count++]);
        p += n;
    }
    return 0;
}

static bool has_keeper(const struct view *v)
{
    return info_is(v->keeper, "engine", "etcd");
}

static void print_heading(const struct view *v)
{
    int64_t silent_ms = info_number(v->cluster, "silent_ms");
    int64_t keeper = info_number(v->keeper, "keeper_node");
    printf("node %" PRId64 " reports: membership version %" PRId64 "%s\n",
           cli_field_number(v->nodes, "node", 0),
           cli_field_number(v->nodes, "version", 0),
           cli_field_number(v->nodes, "changing", 0) != 0 ? ", a change is in progress"
                                                          : "");
    if (has_keeper(v) && keeper == 0) puts("keeper: none");
    else if (has_keeper(v))
        printf("keeper: node %" PRId64 ", term %" PRId64 "%s\n", keeper,
               info_number(v->keeper, "term"),
               info_number(v->keeper, "keeper_reachable") != 0
                   ? ""
                   : " (this node cannot reach it)");
    if (silent_ms > 0) {
        fputs("this node does not vote for up to ", stdout);
        cli_put_ms(stdout, silent_ms);
        putchar('\n');
    }
}

static const struct cli_column node_columns[] = {
    {"NODE", true, 0},    {"ADDRESS", false, 12}, {"STATE", false, 0}, {"RTT", true, 0},
    {"VERSION", true, 0}, {"ROLE", false, 0},     {NULL, false, 0}};

static void add_node(struct cli_grid *g, const struct view *v,
                     const struct sluice_reply *node)
{
    size_t n, m;
    int64_t id = cli_field_number(node, "id", 0);
    const char *address = cli_field_text(node, "address", &n);
    const char *state = cli_field_text(node, "state", &m);
    bool keeper = has_keeper(v) && id == info_number(v->keeper, "keeper_node");
    cli_grid_row(g, strcmp(state, "down") == 0 ? CLI_RED : CLI_PLAIN);
    fprintf(cli_grid_cell(g), "%" PRId64, id);
    cli_put_line(cli_grid_cell(g), address, n);
    cli_put_line(cli_grid_cell(g), state, m);
    cli_put_ms(cli_grid_cell(g), cli_field_number(node, "rtt_ms", -1));
    fprintf(cli_grid_cell(g), "%" PRId64, cli_field_number(node, "version", 0));
    fputs(keeper ? "keeper" : "", cli_grid_cell(g));
}

static const struct cli_column server_columns[] = {
    {"SERVER", false, 12}, {"NODE", true, 0}, {"VERSION", true, 0},
    {"KEEPER", true, 0},   {"TERM", true, 0}, {"STATE", false, 12},
    {NULL, false, 0}};

/* Fill a cell with a number; 0: it is not known. */
static void add_number(struct cli_grid *g, int64_t n)
{
    FILE *out = cli_grid_cell(g);
    if (n > 0) fprintf(out, "%" PRId64, n);
    else fputc('-', out);
}

static void add_server(struct cli_grid *g, const struct probe *p)
{
    FILE *out;
    cli_grid_row(g, p->ready ? CLI_PLAIN : CLI_RED);
    cli_put_line(cli_grid_cell(g), p->address, strlen(p->address));
    add_number(g, p->node);
    add_number(g, p->version);
    add_number(g, p->keeper);
    add_number(g, p->term);
    out = cli_grid_cell(g);
    if (p->ready) fputs("ready", out);
    else cli_put_line(out, p->reason, strlen(p->reason));
}

/* Return whether all servers that replied know the same membership and the same keeper. */
static bool agree(const struct view *v)
{
    const struct probe *first = NULL;
    for (const struct probe *p = v->probes; p < v->probes + v->probe_count; p++) {
        if (p->version == 0) continue;
        if (first == NULL) first = p;
        if (p->version != first->version || p->keeper != first->keeper ||
            p->term != first->term)
            return false;
    }
    return true;
}

static bool print_tables(const struct view *v)
{
    const struct sluice_reply *list = cli_field_list(v->nodes, "nodes");
    struct cli_grid *g = cli_grid_new(node_columns);
    for (size_t i = 0; g != NULL && i < list->count; i++)
        add_node(g, v, &list->items[i]);
    bool printed = g != NULL && cli_grid_print(g);
    cli_grid_free(g);
    if (!printed || v->probe_count == 0) return printed;
    g = cli_grid_new(server_columns);
    for (size_t i = 0; g != NULL && i < v->probe_count; i++)
        add_server(g, &v->probes[i]);
    putchar('\n');
    printed = g != NULL && cli_grid_print(g);
    cli_grid_free(g);
    if (!agree(v)) puts("the servers report different memberships or keepers");
    return printed;
}

static void print_json(const struct view *v)
{
    size_t n;
    const char *engine = info_text(v->keeper, "engine", &n);
    fputs("{\"membership\":", stdout);
    cli_reply_json_value(stdout, v->nodes);
    printf(",\"silent_ms\":%" PRId64, info_number(v->cluster, "silent_ms"));
    if (has_keeper(v) && engine != NULL)
        printf(",\"keeper\":{\"node\":%" PRId64 ",\"term\":%" PRId64
               ",\"reachable\":%s}",
               info_number(v->keeper, "keeper_node"), info_number(v->keeper, "term"),
               info_number(v->keeper, "keeper_reachable") != 0 ? "true" : "false");
    else fputs(",\"keeper\":null", stdout);
    fputs(",\"servers\":[", stdout);
    for (size_t i = 0; i < v->probe_count; i++) {
        const struct probe *p = &v->probes[i];
        printf("%s{\"server\":", i > 0 ? "," : "");
        cli_json_string(stdout, p->address);
        printf(",\"node\":%" PRId64 ",\"version\":%" PRId64 ",\"keeper\":%" PRId64
               ",\"term\":%" PRId64 ",\"ready\":%s,\"reason\":",
               p->node, p->version, p->keeper, p->term, p->ready ? "true" : "false");
        if (p->ready) fputs("null", stdout);
        else cli_json_string(stdout, p->reason);
        putchar('}');
    }
    printf("],\"agree\":%s}\n", agree(v) ? "true" : "false");
}

static int show(struct cli_ops *o)
{
    static const char *const args[] = {"NODES"};
    struct view v = {0};
    int status = cli_ops_call(o, args, 1, &v.nodes);
    if (status == 0) status = read_info(o, "cluster", &v.cluster);
    if (status == 0) status = read_info(o, "keeper", &v.keeper);
    if (status == 0) status = probe_servers(o, &v);
    if (status == 0) {
        cli_ops_no_deadline();
        if (cli_field(v.nodes, "nodes") == NULL)
            status = cli_ops_unexpected(o, "NODES");
        else if (o->json) print_json(&v);
        else {
            print_heading(&v);
            if (!print_tables(&v)) status = cli_status_error("NODES", SLUICE_ENOMEM);
        }
    }
    free_view(&v);
    return cli_flush_output(status);
}

/* Make another node the keeper. */
static int resign(struct cli_ops *o)
{
    static const char *const args[] = {"NODES", "RESIGN"};
    struct sluice_reply *r;
    int status = cli_ops_call(o, args, 2, &r);
    if (status != 0) return status;
    if (o->json) printf("{\"term\":%" PRId64 "}\n", r->number);
    else
        printf("the keeper has resigned; term %" PRId64
               " ends, and another node becomes the keeper\n",
               r->number);
    sluice_reply_free(r);
    return cli_flush_output(0);
}

int cli_nodes(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    int rest;
    int status = cli_ops_parse(command, argc, argv, 0, 1, &o, &rest);
    if (status >= 0) return status;
    bool resigns = rest < argc && strcmp(argv[rest], "resign") == 0;
    if (rest < argc && !resigns)
        return cli_bad_value("the argument", argv[rest], "resign");
    status = cli_ops_connect(&o);
    if (status != 0) return status;
    status = resigns ? resign(&o) : show(&o);
    sluice_wire_close(o.wire);
    return status;
}
