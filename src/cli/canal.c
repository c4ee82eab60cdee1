#include "cli/canal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/hold.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/show.h"
#include "cli/text.h"
#include "sluice.h"

/* A segment whose name has no slash is a file in this directory, with the first prefix.
 * The user's default segment has the second prefix if another user has created a file
 * with the first name. */
#define DIRECTORY "/dev/shm"
#define PREFIX "sluice."
#define SECOND_PREFIX "sluice-"

/* Accept files of any owner: these commands only read, and the file's permissions
 * decide who may read. */
#define ANY_OWNER 0666u

#define INTERVAL_MS 1000 /* The default of `watch`. */

struct canal_options {
    enum cli_form form;
    bool force;
    int64_t interval_ms;
    uint64_t count;      /* 0: no limit. */
    const char *segment; /* For `show`; NULL: not given. */
    const char *pattern; /* Selects keys; NULL: all. */
    struct sluice_canal_options make;
};

static int take_size(const char *option, const char *value, uint32_t most,
                     uint32_t *out)
{
    uint64_t n;
    if (cli_number(value, 1, most, &n)) {
        *out = (uint32_t)n;
        return 0;
    }
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a number from 1 to %u", (unsigned)most);
    return cli_bad_value(option, value, wanted);
}

static int take_option(void *into, int id, const char *value)
{
    struct canal_options *o = into;
    switch (id) {
        case CLI_OPT_JSON: o->form = CLI_FORM_JSON; return 0;
        case 'q': o->form = CLI_FORM_NAMES; return 0;
        case CLI_OPT_FORCE: o->force = true; return 0;
        case CLI_OPT_INTERVAL:
            return cli_duration("--interval", value, 1, &o->interval_ms);
        case CLI_OPT_COUNT:
            if (!cli_number(value, 1, UINT64_MAX, &o->count))
                return cli_bad_value("--count", value, "a number of at least 1");
            return 0;
        case CLI_OPT_SEGMENT:
            if (value[0] == '\0')
                return cli_usage_error("--segment: the name must not be empty");
            o->segment = value;
            return 0;
        case CLI_OPT_KEYS:
            return take_size("--keys", value, SLUICE_KEYS_MAX, &o->make.keys);
        case CLI_OPT_SLOTS:
            return take_size("--slots", value, SLUICE_SLOTS_MAX, &o->make.slots);
        case CLI_OPT_RECORDS:
            return take_size("--records", value, SLUICE_RECORDS_MAX, &o->make.records);
        case CLI_OPT_MODE:
            if (!cli_mode(value, &o->make.mode))
                return cli_bad_value("--mode", value, "permissions such as 0660");
            return 0;
        default: abort(); /* The parser knows the options of each command. */
    }
}

/* --- One segment ---------------------------------------------------------- */

/* Return the segment to use: `name`, or else SLUICE_SEGMENT, or else NULL for the
 * default segment. */
static const char *name_or_own(const char *name)
{
    if (name != NULL) return name;
    const char *said = getenv("SLUICE_SEGMENT");
    return said != NULL && said[0] != '\0' ? said : NULL;
}

static int open_existing(const char *name, struct sluice_canal **out)
{
    const struct sluice_canal_options options = {.existing = 1, .mode = ANY_OWNER};
    const char *which = name_or_own(name);
    int status = sluice_canal_open(which, &options, out);
    if (status == SLUICE_OK) return 0;
    if (status == SLUICE_ENOENT && which == NULL) {
        cli_message("no locks: the default segment is created when it is first used");
        return CLI_EXIT_NO_INPUT;
    }
    return cli_status_error(which != NULL ? which : "default segment", status);
}

/* Show one key, or all keys if key is NULL. Returns false if there is no such key. */
static bool show_in(const struct canal_options *o, struct sluice_canal *c,
                    const char *key)
{
    if (key != NULL) return cli_show_key(c, key, o->form);
    cli_show_keys(c, o->pattern, o->form);
    return true;
}

static int show(const struct canal_options *o, const char *name, const char *key)
{
    struct sluice_canal *c;
    char shown[CLI_SAFE_SIZE];
    int status = open_existing(name, &c);
    if (status != 0) return status;
    if (!show_in(o, c, key)) {
        cli_message("no process holds or waits for \"%s\" in %s",
                    cli_safe_text(key, shown, sizeof shown), sluice_canal_path(c));
        status = CLI_EXIT_NO_INPUT;
    }
    sluice_canal_close(c);
    return cli_flush_output(status);
}

/* Show the key `word` of the default segment or, if there is no such key, the segment
 * `word`. */
static int show_key_or_segment(const struct canal_options *o, const char *word)
{
    const struct sluice_canal_options options = {.existing = 1, .mode = ANY_OWNER};
    const char *own = name_or_own(NULL);
    char shown[CLI_SAFE_SIZE], path[CLI_SAFE_SIZE] = "the default segment";
    struct sluice_canal *c;
    bool found = false;
    if (sluice_canal_open(own, &options, &c) == SLUICE_OK) {
        found = cli_show_key(c, word, o->form);
        cli_safe_text(sluice_canal_path(c), path, sizeof path);
        sluice_canal_close(c);
    }
    if (found) return cli_flush_output(0);
    int status = sluice_canal_open(word, &options, &c);
    if (status == SLUICE_ENOENT || status == SLUICE_EINVAL) {
        cli_message("no process holds or waits for \"%s\" in %s, and no segment has "
                    "this name",
                    cli_safe_text(word, shown, sizeof shown), path);
        return CLI_EXIT_NO_INPUT;
    }
    if (status != SLUICE_OK) return cli_status_error(word, status);
    cli_show_keys(c, o->pattern, o->form);
    sluice_canal_close(c);
    return cli_flush_output(0);
}

/* Run `canal show` with its arguments: none, KEY, or SEGMENT KEY. */
static int show_arguments(const struct canal_options *o, int argc, char **argv)
{
    if (argc == 0) return show(o, o->segment, NULL);
    if (argc == 2) {
        if (o->segment == NULL) return show(o, argv[0], argv[1]);
        return cli_usage_error("too many arguments: expected one KEY with --segment");
    }
    if (o->segment == NULL) return show_key_or_segment(o, argv[0]);
    return show(o, o->segment, argv[0]);
}

static int reap(const struct canal_options *o, const char *name)
{
    struct sluice_canal *c;
    int status = open_existing(name, &c);
    if (status != 0) return status;
    int64_t units = sluice_canal_reap(c);
    sluice_canal_close(c);
    if (o->form == CLI_FORM_JSON) printf("{\"reaped\":%" PRId64 "}\n", units);
    else {
        /* Count an exclusive lock as one holder, not as 1073741823 units. */
        int64_t whole = units / CLI_WHOLE_CAPACITY, rest = units % CLI_WHOLE_CAPACITY;
        fputs("released ", stdout);
        if (whole > 0)
            printf("%" PRId64 " exclusive %s and ", whole,
                   whole == 1 ? "lock" : "locks");
        printf("%" PRId64 " %s\n", rest, rest == 1 ? "unit" : "units");
    }
    return cli_flush_output(0);
}

static int make(const struct canal_options *o, const char *name)
{
    struct sluice_canal *c;
    int status = sluice_canal_open(name, &o->make, &c);
    if (status != SLUICE_OK) return cli_status_error(name, status);
    printf("%s\n", sluice_canal_path(c));
    sluice_canal_close(c);
    return cli_flush_output(0);
}

/* --- watch ---------------------------------------------------------------- */

static int watch(const struct canal_options *o, const char *name)
{
    struct sluice_canal *c;
    const struct timespec pause = {.tv_sec = (time_t)(o->interval_ms / 1000),
                                   .tv_nsec = (long)(o->interval_ms % 1000) * 1000000};
    bool screen = o->form == CLI_FORM_TEXT && isatty(STDOUT_FILENO);
    int status = open_existing(name, &c);
    if (status != 0) return status;
    for (uint64_t n = 1;; n++) {
        char clock[32], path[CLI_SAFE_SIZE];
        if (screen) fputs("\033[H\033[2J", stdout);
        if (o->form == CLI_FORM_TEXT)
            printf("%s  %s\n", cli_safe_text(sluice_canal_path(c), path, sizeof path),
                   cli_format_time(cli_wall_ms(), clock, sizeof clock));
        cli_show_keys(c, o->pattern, o->form);
        status = cli_flush_output(0);
        if (status == 0 && sluice_canal_removed(c) == 1) {
            cli_message("%s was removed or truncated",
                        cli_safe_text(sluice_canal_path(c), path, sizeof path));
            status = CLI_EXIT_NO_INPUT;
        }
        if (status != 0 || n == o->count) break;
        nanosleep(&pause, NULL);
    }
    sluice_canal_close(c);
    return status;
}

/* --- rm ------------------------------------------------------------------- */

/* Return the reason why the segment must not be removed, or NULL if no living thread
 * has a slot in it. */
static const char *in_use(const char *name)
{
    const struct sluice_canal_options options = {.existing = 1, .mode = ANY_OWNER};
    struct sluice_canal_info info = {0};
    struct sluice_canal *c;
    int status = sluice_canal_open(name, &options, &c);
    if (status == SLUICE_ENOENT) return NULL; /* No process has finished creating it. */
    /* The removal will fail anyway. */
    if (status == SLUICE_EFOREIGN || status == SLUICE_EACCES) return NULL;
    if (status != SLUICE_OK) return "cannot be opened and may be in use";
    sluice_canal_reap(c);
    sluice_canal_info(c, &info);
    sluice_canal_close(c);
    return info.slots_used > 0 ? "is in use" : NULL;
}

static int remove_one(const struct canal_options *o, const char *name)
{
    char shown[CLI_SAFE_SIZE];
    const char *why = o->force ? NULL : in_use(name);
    if (why != NULL) {
        cli_message("%s %s; use --force to remove it anyway",
                    cli_safe_text(name, shown, sizeof shown), why);
        return CLI_EXIT_TAKEN;
    }
    int status = sluice_canal_remove(name);
    return status == SLUICE_OK ? 0 : cli_status_error(name, status);
}

static int remove_all(const struct canal_options *o, int argc, char **argv)
{
    int worst = 0;
    for (int i = 0; i < argc; i++) {
        int status = remove_one(o, argv[i]);
        if (status != 0) worst = status;
    }
    return worst;
}

/* --- ls ------------------------------------------------------------------- */

static const char *owner_of(const char *path, char *out, size_t size)
{
    struct stat st;
    if (stat(path, &st) != 0) return "?";
    const struct passwd *pw = getpwuid(st.st_uid);
    if (pw != NULL) snprintf(out, size, "%s", pw->pw_name);
    else snprintf(out, size, "%u", (unsigned)st.st_uid);
    return out;
}

static void ls_json(const char *name, const char *path, const char *owner, int status,
                    const struct sluice_canal_info *i)
{
    fputs("{\"name\":", stdout);
    cli_json_string(stdout, name);
    fputs(",\"path\":", stdout);
    cli_json_string(stdout, path);
    fputs(",\"owner\":", stdout);
    cli_json_string(stdout, owner);
    printf(",\"keys\":%u,\"keys_used\":%u,\"slots\":%u,\"slots_used\":%u,"
           "\"records\":%u,\"records_used\":%u,\"bytes\":%" PRIu64
           ",\"status\":\"%s\"}",
           (unsigned)i->keys, (unsigned)i->keys_used, (unsigned)i->slots,
           (unsigned)i->slots_used, (unsigned)i->records, (unsigned)i->records_used,
           i->bytes, sluice_status_word(status));
}

static void ls_text(const char *name, const char *owner, int status,
                    const struct sluice_canal_info *i)
{
    char shown[CLI_SAFE_SIZE], keys[32], slots[32], records[32];
    snprintf(keys, sizeof keys, "%u/%u", (unsigned)i->keys_used, (unsigned)i->keys);
    snprintf(slots, sizeof slots, "%u/%u", (unsigned)i->slots_used, (unsigned)i->slots);
    snprintf(records, sizeof records, "%u/%u", (unsigned)i->records_used,
             (unsigned)i->records);
    printf("%-20s %-12s %12s %12s %14s %8.1f MiB  %s\n",
           cli_safe_text(name, shown, sizeof shown), owner, keys, slots, records,
           (double)i->bytes / (1 << 20), sluice_status_word(status));
}

static void ls_one(const struct canal_options *o, const char *name, const char *path,
                   const char **between)
{
    const struct sluice_canal_options options = {.existing = 1, .mode = ANY_OWNER};
    char owner[64], shown[CLI_SAFE_SIZE];
    struct sluice_canal_info info = {0};
    struct sluice_canal *c;
    int status = sluice_canal_open(path, &options, &c);
    if (status == SLUICE_EFOREIGN || status == SLUICE_ENOENT) return;
    if (status == SLUICE_OK) {
        status = sluice_canal_info(c, &info);
        sluice_canal_close(c);
    }
    const char *who = owner_of(path, owner, sizeof owner);
    if (o->form == CLI_FORM_NAMES) puts(cli_safe_text(name, shown, sizeof shown));
    else if (o->form == CLI_FORM_TEXT) ls_text(name, who, status, &info);
    else {
        fputs(*between, stdout);
        ls_json(name, path, who, status, &info);
        *between = ",";
    }
}

/* List the default segment, unless it is in DIRECTORY. */
static void ls_default(const struct canal_options *o, const char **between)
{
    const struct sluice_canal_options options = {.existing = 1, .mode = ANY_OWNER};
    struct sluice_canal *c;
    if (sluice_canal_open(NULL, &options, &c) != SLUICE_OK) return;
    const char *path = sluice_canal_path(c);
    if (strncmp(path, DIRECTORY "/", strlen(DIRECTORY "/")) != 0)
        ls_one(o, path, path, between);
    sluice_canal_close(c);
}

/* List a file in DIRECTORY, with the name that other commands accept for it. */
static void ls_file(const struct canal_options *o, const char *file,
                    const char **between)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", DIRECTORY, file);
    bool named = strncmp(file, PREFIX, strlen(PREFIX)) == 0;
    ls_one(o, named ? file + strlen(PREFIX) : path, path, between);
}

static int ours(const struct dirent *e)
{
    size_t n = strlen(PREFIX); /* Both prefixes have the same length. */
    return (strncmp(e->d_name, PREFIX, n) == 0 ||
            strncmp(e->d_name, SECOND_PREFIX, n) == 0) &&
           e->d_name[n] != '\0';
}

static int ls(const struct canal_options *o)
{
    struct dirent **files;
    const char *between = "";
    int n = scandir(DIRECTORY, &files, ours, alphasort);
    if (n < 0) {
        cli_message("%s: %s", DIRECTORY, strerror(errno));
        return CLI_EXIT_SYSTEM;
    }
    if (o->form == CLI_FORM_JSON) fputs("{\"segments\":[", stdout);
    if (o->form == CLI_FORM_TEXT)
        printf("%-20s %-12s %12s %12s %14s %12s  %s\n", "NAME", "OWNER", "KEYS",
               "SLOTS", "RECORDS", "SIZE", "STATE");
    ls_default(o, &between);
    for (int i = 0; i < n; i++) {
        ls_file(o, files[i]->d_name, &between);
        free(files[i]);
    }
    free(files);
    if (o->form == CLI_FORM_JSON) puts("]}");
    return cli_flush_output(0);
}

/* --- Dispatch ------------------------------------------------------------- */

/* Return whether a command accepts this number of arguments. */
static bool count_fits(enum cli_id id, int argc)
{
    switch (id) {
        case CLI_CANAL_LS: return argc == 0;
        case CLI_CANAL_SHOW: return argc <= 2;
        case CLI_CANAL_MAKE: return argc == 1;
        case CLI_CANAL_RM: return argc >= 1;
        default: return argc <= 1;
    }
}

int cli_canal(const struct cli_command *command, int argc, char **argv)
{
    struct canal_options o = {.interval_ms = INTERVAL_MS};
    int rest;
    int status = cli_parse(command, argc, argv, false, take_option, &o, &rest);
    if (status >= 0) return status;
    argc -= rest, argv += rest;
    if (!count_fits(command->id, argc))
        return cli_usage_error("%s", argc == 0 ? "missing NAME" : "too many arguments");
    const char *name = argc > 0 ? argv[0] : NULL;
    cli_catch_truncation();
    switch (command->id) {
        case CLI_CANAL_LS: return ls(&o);
        case CLI_CANAL_SHOW: return show_arguments(&o, argc, argv);
        case CLI_CANAL_WATCH: return watch(&o, name);
        case CLI_CANAL_REAP: return reap(&o, name);
        case CLI_CANAL_MAKE: return make(&o, name);
        default: return remove_all(&o, argc, argv);
    }
}

/* --- ls, explain and watch with --local ------------------------------------- */

int cli_canal_list(const char *segment, const char *pattern, bool json, bool quiet)
{
    const struct canal_options o = {.form = json    ? CLI_FORM_JSON
                                            : quiet ? CLI_FORM_NAMES
                                                    : CLI_FORM_TEXT,
                                    .pattern = pattern};
    cli_catch_truncation();
    return show(&o, segment, NULL);
}

int cli_canal_explain(const char *segment, const char *key, bool json)
{
    const struct canal_options o = {.form = json ? CLI_FORM_JSON : CLI_FORM_TEXT};
    cli_catch_truncation();
    return show(&o, segment, key);
}

int cli_canal_watch(const char *segment, const char *pattern, bool json, uint64_t count)
{
    const struct canal_options o = {.form = json ? CLI_FORM_JSON : CLI_FORM_TEXT,
                                    .pattern = pattern,
                                    .interval_ms = INTERVAL_MS,
                                    .count = count};
    cli_catch_truncation();
    return watch(&o, segment);
}
