/* server.c - the commands about the server: COMMAND, INFO, CONFIG, SHUTDOWN. */
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/command/dispatch.h"
#include "server/observe/info.h"

/* --- COMMAND -------------------------------------------------------------- */

static void put_flags(struct sl_resp_writer *w, unsigned flags)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {{SL_READ, "readonly"}, {SL_WRITE, "write"},   {SL_BLOCK, "blocking"},
                 {SL_ADMIN, "admin"},   {SL_EARLY, "no_auth"}, {SL_LISTEN, "pubsub"},
                 {SL_GROW, "denyoom"}};
    flags &= SL_READ | SL_WRITE | SL_BLOCK | SL_ADMIN | SL_EARLY | SL_LISTEN | SL_GROW;
    sl_resp_array(w, (size_t)__builtin_popcount(flags));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((flags & names[i].flag) != 0) sl_resp_simple(w, names[i].name);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static void put_lower(struct sl_resp_writer *w, const char *name)
{
    char text[40];
    size_t n = 0;
    for (; name[n] != '\0' && n < sizeof text - 1; n++) text[n] = lower(name[n]);
    sl_resp_bulk(w, (struct sl_bytes){text, n});
}

/* Write a command as Redis 7 does: ten fields, of which the last four are empty here. */
static void put_command(struct sl_resp_writer *w, const struct command *c)
{
    sl_resp_array(w, 10);
    put_lower(w, c->name);
    sl_resp_integer(w, c->min == c->max ? (int64_t)c->min : -(int64_t)c->min);
    put_flags(w, c->flags);
    sl_resp_integer(w, (int64_t)c->key);
    sl_resp_integer(w, (int64_t)c->key);
    sl_resp_integer(w, c->key != 0 ? 1 : 0);
    for (int i = 0; i < 4; i++) sl_resp_array(w, 0);
}

/* Write the documentation of a command, from which redis-cli builds its help. It shows all
 * arguments as a single one. */
static void put_docs(struct sl_resp_writer *w, const struct command *c)
{
    const char *rest = strchr(c->syntax, ' ');
    put_lower(w, c->name);
    sl_resp_map(w, rest != NULL ? 4 : 3);
    sl_resp_text(w, "summary");
    sl_resp_text(w, c->summary);
    sl_resp_text(w, "since");
    sl_resp_text(w, "0.1.0");
    sl_resp_text(w, "group");
    sl_resp_text(w, c->group);
    if (rest == NULL) return;
    sl_resp_text(w, "arguments");
    sl_resp_array(w, 1);
    sl_resp_map(w, 3);
    sl_resp_text(w, "name");
    sl_resp_text(w, rest + 1);
    sl_resp_text(w, "type");
    sl_resp_text(w, "string");
    sl_resp_text(w, "display_text");
    sl_resp_text(w, rest + 1);
}

static void command_info(struct call *call)
{
    struct sl_resp_writer *w = call->out;
    if (call->n <= 2) {
        sl_resp_array(w, sl_command_count);
        for (size_t i = 0; i < sl_command_count; i++) put_command(w, &sl_commands[i]);
        return;
    }
    sl_resp_array(w, call->n - 2);
    for (size_t i = 2; i < call->n; i++) {
        const struct command *c = sl_command_find(call->at[i]);
        if (c != NULL) put_command(w, c);
        else sl_resp_null_array(w);
    }
}

static void command_docs(struct call *call)
{
    struct sl_resp_writer *w = call->out;
    size_t known = 0;
    for (size_t i = 2; i < call->n; i++)
        if (sl_command_find(call->at[i]) != NULL) known++;
    sl_resp_map(w, call->n <= 2 ? sl_command_count : known);
    for (size_t i = 0; call->n <= 2 && i < sl_command_count; i++)
        put_docs(w, &sl_commands[i]);
    for (size_t i = 2; i < call->n; i++) {
        const struct command *c = sl_command_find(call->at[i]);
        if (c != NULL) put_docs(w, c);
    }
}

void sl_do_command(struct call *call)
{
    sl_call_cost(call, 50);
    if (call->n == 1 || sl_word_is(call->at[1], "INFO")) command_info(call);
    else if (call->n == 2 && sl_word_is(call->at[1], "COUNT"))
        sl_resp_integer(call->out, (int64_t)sl_command_count);
    else if (sl_word_is(call->at[1], "DOCS")) command_docs(call);
    else if (call->n == 2 && sl_word_is(call->at[1], "LIST")) {
        sl_resp_array(call->out, sl_command_count);
        for (size_t i = 0; i < sl_command_count; i++)
            put_lower(call->out, sl_commands[i].name);
    } else if (sl_word_is(call->at[1], "COUNT") || sl_word_is(call->at[1], "LIST"))
        sl_say_usage(call, "too many arguments");
    else
        sl_say_unknown(call, "subcommand", call->at[1],
                       SL_NAMES("COUNT", "LIST", "INFO", "DOCS"));
}

/* --- INFO ----------------------------------------------------------------- */

static bool section_wanted(const struct call *call, const char *name)
{
    if (call->n == 1) return true;
    for (size_t i = 1; i < call->n; i++)
        if (sl_word_is(call->at[i], name) || sl_word_is(call->at[i], "ALL") ||
            sl_word_is(call->at[i], "DEFAULT") || sl_word_is(call->at[i], "EVERYTHING"))
            return true;
    return false;
}

void sl_do_ready(struct call *call)
{
    char reason[PATH_MAX + 300];
    if (sl_server_is_ready(call->s, reason, sizeof reason))
        sl_resp_simple(call->out, "READY");
    else sl_say_format(call, "NOTREADY", "%s", reason);
}

void sl_do_info(struct call *call)
{
    struct sl_info i = {0};
    bool first = true;
    i.file = open_memstream(&i.at, &i.n);
    sl_call_cost(call, 100 + call->s->conn_count / 4);
    const struct sl_info_section *section = sl_info_sections;
    for (; i.file != NULL && section->name != NULL; section++) {
        if (!section_wanted(call, section->name)) continue;
        if (!first) sl_info_put(&i, "%s", "");
        sl_info_put(&i, "%s", section->title);
        section->put(call->s, &i);
        first = false;
    }
    bool whole = i.file != NULL && !ferror(i.file);
    if (i.file != NULL && fclose(i.file) != 0) whole = false;
    if (whole) sl_resp_bulk(call->out, (struct sl_bytes){i.at, i.n});
    else sl_say_status(call, SLUICE_ENOMEM);
    free(i.at);
}

/* --- CONFIG --------------------------------------------------------------- */

/* Maximum patterns in one CONFIG GET, because each is compared with every name. */
#define GLOBS_MAX 32

struct globs {
    size_t n;
    struct sl_glob *at[GLOBS_MAX];
};

/* Compile the patterns of CONFIG GET. Returns SLUICE_OK or SLUICE_ENOMEM. */
static int read_globs(const struct call *call, struct globs *out)
{
    char glob[64];
    for (size_t i = 2; i < call->n; i++) {
        size_t n = call->at[i].n;
        if (n > sizeof glob) continue; /* The pattern is longer than any name. */
        for (size_t j = 0; j < n; j++) glob[j] = lower(call->at[i].at[j]);
        out->at[out->n] = sl_glob_new((struct sl_bytes){glob, n});
        if (out->at[out->n++] == NULL) return SLUICE_ENOMEM;
    }
    return SLUICE_OK;
}

static bool setting_wanted(const struct globs *globs, const char *name)
{
    const struct sl_bytes b = {name, strlen(name)};
    for (size_t i = 0; i < globs->n; i++)
        if (sl_glob_matches(globs->at[i], b)) return true;
    return false;
}

/* Answer CONFIG GET for two settings of Redis that redis-benchmark prints; it complains if they do
 * not exist. */
static bool of_redis(struct call *call)
{
    bool save = sl_word_is(call->at[2], "SAVE");
    if (call->n != 3 || (!save && !sl_word_is(call->at[2], "APPENDONLY"))) return false;
    sl_resp_map(call->out, 1);
    sl_resp_bulk(call->out, call->at[2]);
    sl_resp_text(call->out, save ? "" : "no");
    return true;
}

static void put_settings(struct call *call, const struct globs *globs)
{
    char value[32];
    size_t n = 0;
    for (size_t i = 0; i < sl_settings_count(); i++)
        if (setting_wanted(globs, sl_settings_name(i))) n++;
    sl_resp_map(call->out, n);
    for (size_t i = 0; i < sl_settings_count(); i++) {
        if (!setting_wanted(globs, sl_settings_name(i))) continue;
        sl_resp_text(call->out, sl_settings_name(i));
        sl_resp_text(call->out,
                     sl_settings_value(call->s->settings, i, value, sizeof value));
    }
}

static void config_get(struct call *call)
{
    struct globs globs = {0};
    if (of_redis(call)) return;
    sl_call_cost(call, 20 * call->n);
    if (read_globs(call, &globs) == SLUICE_OK) put_settings(call, &globs);
    else sl_say_status(call, SLUICE_ENOMEM);
    for (size_t i = 0; i < globs.n; i++) sl_glob_free(globs.at[i]);
}

void sl_do_config(struct call *call)
{
    if (call->n > 2 && call->n <= 2 + GLOBS_MAX && sl_word_is(call->at[1], "GET"))
        config_get(call);
    else if (sl_word_is(call->at[1], "GET"))
        sl_say_format(call, "ERR", "CONFIG GET takes 1 to %d patterns", GLOBS_MAX);
    else if (sl_word_is(call->at[1], "SET") || sl_word_is(call->at[1], "REWRITE"))
        sl_say(
            call, "ERR",
            "a running server cannot change its settings; edit the configuration file, "
            "and restart the server");
    else sl_say_unknown(call, "subcommand", call->at[1], SL_NAMES("GET"));
}

/* --- SHUTDOWN ------------------------------------------------------------- */

void sl_do_shutdown(struct call *call)
{
    if (call->n > 1 && !sl_word_is(call->at[1], "NOSAVE") &&
        !sl_word_is(call->at[1], "SAVE") && !sl_word_is(call->at[1], "NOW")) {
        sl_say_unknown(call, "option", call->at[1], SL_NAMES("NOSAVE", "SAVE", "NOW"));
        return;
    }
    /* As in Redis, there is no reply; the connection closes. */
    sl_server_stop(call->s, "SHUTDOWN");
}
