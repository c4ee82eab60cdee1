#include "cli/top.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/cells.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/server.h"
#include "cli/top_data.h"
#include "cli/top_draw.h"
#include "cli/top_live.h"
#include "cli/top_screen.h"
#include "sluice.h"

#define INTERVAL_MS 1000
#define INTERVAL_MS_MIN \
    100 /* A shorter interval would cost the server more than it shows. */

struct top {
    struct cli_server server;
    bool local, json, once;
    const char *segment;
    int64_t interval_ms;
    uint64_t count; /* 0: no limit. */
};

static int take(void *into, int id, const char *value)
{
    struct top *t = into;
    switch (id) {
        case CLI_OPT_LOCAL: t->local = true; return 0;
        case CLI_OPT_SEGMENT:
            if (value[0] == '\0')
                return cli_usage_error("--segment: the name must not be empty");
            t->local = true;
            t->segment = value;
            return 0;
        case CLI_OPT_JSON: t->json = true; return 0;
        case CLI_OPT_INTERVAL:
            return cli_duration("--interval", value, INTERVAL_MS_MIN, &t->interval_ms);
        case CLI_OPT_COUNT:
            if (!cli_number(value, 1, UINT64_MAX, &t->count))
                return cli_bad_value("--count", value, "a number of at least 1");
            return 0;
        case CLI_OPT_ONCE: t->once = true; return 0;
        default: cli_server_option(&t->server, id, value); return 0;
    }
}

/* Print updates, without a terminal. */
static int print(const struct top *t, struct top_source *source)
{
    const struct top_want want = {.rows = TOP_EXPLAINS_MAX};
    const struct timespec pause = {.tv_sec = (time_t)(t->interval_ms / 1000),
                                   .tv_nsec = (long)(t->interval_ms % 1000) * 1000000};
    int status = 0;
    cli_cells_begin();
    for (uint64_t n = 1;; n++) {
        struct top_update *u = top_read(source, &want);
        if (u == NULL) return cli_status_error("an update", SLUICE_ENOMEM);
        if (t->json) top_print_json(stdout, u);
        else top_print_text(stdout, u);
        status = u->trouble[0] != '\0' ? u->status : 0;
        top_update_free(u);
        int failed = cli_flush_output(0);
        if (failed != 0) return failed;
        if (n == t->count || t->once) return status;
        nanosleep(&pause, NULL);
    }
}

static int open_source(struct top *t, struct top_source *source)
{
    const char *own = getenv("SLUICE_SEGMENT");
    if (!t->local) {
        int status = cli_server_find(&t->server);
        return status != 0 ? status : top_server_open(source, &t->server);
    }
    cli_catch_truncation();
    if (t->segment == NULL && own != NULL && own[0] != '\0') t->segment = own;
    return top_local_open(source, t->segment);
}

int cli_top(const struct cli_command *command, int argc, char **argv)
{
    /* A thread may use them until the process ends. */
    static struct top t = {.interval_ms = INTERVAL_MS};
    static struct top_source source;
    int rest;
    int status = cli_parse(command, argc, argv, false, take, &t, &rest);
    if (status >= 0) return status;
    if (rest < argc)
        return cli_usage_error("too many arguments; usage: sluice %s %s", command->name,
                               command->synopsis);
    if (t.local && (t.server.address != NULL || t.server.password_file != NULL))
        return cli_usage_error("--local and --segment exclude --server and "
                               "--password-file; use either a segment or a server");
    status = open_source(&t, &source);
    if (status != 0) return status;
    if (!t.once && !t.json && top_screen_usable())
        return top_live(&source, t.interval_ms, t.count);
    status = print(&t, &source);
    top_source_close(&source);
    return status;
}
