#include "server/settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "base/suggest.h"
#include "server/settings_internal.h"

enum kind {
    NUMBER,
    TIME,
    SIZE,
    MEMORY,
    PORT,
    OCTAL,
    FORMAT,
    LEVEL,
    ENGINE,
    FLAG,
    TEXT,
    PATH,
    INPUT
};

#define NAME_SHOWN 60u /* Maximum bytes of an unknown name that an error shows. */

struct row {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *given;
    int64_t min, max;
    const char *arg, *help;
};

static const struct row rows[] = {
#define SETTING(name, kind, field, given, min, max, arg, help) \
    {name, kind, offsetof(struct sl_settings, field), given, min, max, arg, help},
#include "settings.def"
#undef SETTING
};
#define ROWS (sizeof rows / sizeof *rows)

/* The name of a number: one of a fixed set of values, or a unit. */
struct choice {
    const char *text;
    int64_t n;
};

static const struct choice formats[] = {
    {"text", SL_LOG_TEXT}, {"json", SL_LOG_JSON}, {0}};
static const struct choice levels[] = {{"debug", SL_LOG_DEBUG},
                                       {"info", SL_LOG_INFO},
                                       {"warn", SL_LOG_WARN},
                                       {"error", SL_LOG_ERROR},
                                       {0}};
static const struct choice engines[] = {{"auto", SL_ENGINE_AUTO},
                                        {"none", SL_ENGINE_NONE},
                                        {"lmdb", SL_ENGINE_LMDB},
                                        {"etcd", SL_ENGINE_ETCD},
                                        {0}};
static const struct choice flags[] = {{"no", 0}, {"yes", 1}, {0}};
static const struct choice sizes[] = {{"", 1},        {"b", 1},       {"k", 1 << 10},
                                      {"m", 1 << 20}, {"g", 1 << 30}, {0}};
static const struct choice none[] = {{"", 1}, {0}};

/* Return the names of the values of a kind, in the order of the values; NULL: any number is
 * allowed. */
static const struct choice *choices_of(enum kind kind)
{
    switch (kind) {
        case FORMAT: return formats;
        case LEVEL: return levels;
        case ENGINE: return engines;
        case FLAG: return flags;
        default: return NULL;
    }
}

static const struct choice *find_choice(const struct choice *all, const char *text)
{
    for (; all->text != NULL; all++)
        if (strcasecmp(all->text, text) == 0) return all;
    return NULL;
}

static bool is_text(const struct row *r)
{
    return r->kind == TEXT || r->kind == PATH || r->kind == INPUT;
}

static int64_t *number_of(struct sl_settings *s, const struct row *r)
{
    return (int64_t *)(void *)((char *)s + r->offset);
}

static char **text_of(struct sl_settings *s, const struct row *r)
{
    return (char **)(void *)((char *)s + r->offset);
}

/* --- Parsing one value ---------------------------------------------------- */

int sl_settings_wrong(const struct sl_settings_place *p, const char *format, ...)
{
    va_list args;
    if (p->file != NULL) fprintf(p->errors, "%s:%d: ", p->file, p->line);
    else fputs("sluice-server: ", p->errors);
    va_start(args, format);
    vfprintf(p->errors, format, args);
    va_end(args);
    fputc('\n', p->errors);
    return -1;
}

static const struct choice *units_of(enum kind kind)
{
    return kind == SIZE || kind == MEMORY ? sizes : none;
}

/* Parse digits and a unit. Returns false if the text is invalid or the number is too large. */
static bool parse_number(const char *text, enum kind kind, int64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    long long n = strtoll(text, &end, kind == OCTAL ? 8 : 10);
    const struct choice *unit = find_choice(units_of(kind), end);
    if (errno != 0 || unit == NULL || n > INT64_MAX / unit->n) return false;
    *out = n * unit->n;
    return true;
}

static int set_duration(struct sl_settings *s, const struct row *r, const char *text,
                        const struct sl_settings_place *p)
{
    char min[SL_DURATION_BYTES], max[SL_DURATION_BYTES];
    bool has_auto = strcmp(r->given, "auto") == 0;
    if (has_auto && strcasecmp(text, "auto") == 0) {
        *number_of(s, r) = SL_TIME_AUTO;
        return 0;
    }
    if (sl_parse_duration((struct sl_bytes){text, strlen(text)}, 1, r->min, r->max,
                          number_of(s, r)))
        return 0;
    return sl_settings_wrong(
        p,
        "%s must be %sa duration from %s to %s, such as " SL_DURATION_FORMS
        ", or a number of milliseconds (got \"%s\")",
        r->name, has_auto ? "auto or " : "", sl_duration_text(r->min, min),
        sl_duration_text(r->max, max), text);
}

static int set_choice(struct sl_settings *s, const struct row *r, const char *text,
                      const struct sl_settings_place *p)
{
    static const char *const lists[] = {
        [FORMAT] = "text or json",
        [LEVEL] = "debug, info, warn or error",
        [ENGINE] = "auto, none, lmdb or etcd",
        [FLAG] = "yes or no",
    };
    const struct choice *c = find_choice(choices_of(r->kind), text);
    if (c == NULL)
        return sl_settings_wrong(p, "%s must be %s (got \"%s\")", r->name,
                                 lists[r->kind], text);
    *number_of(s, r) = c->n;
    return 0;
}

static int reject_number(const struct row *r, const char *text,
                         const struct sl_settings_place *p)
{
    switch (r->kind) {
        case PORT:
            return sl_settings_wrong(
                p, "%s must be a port from 1 to %" PRId64 ", 0 or auto (got \"%s\")",
                r->name, r->max, text);
        case OCTAL:
            return sl_settings_wrong(
                p,
                "%s must be permissions in octal from 0 to %04" PRIo64
                ", such as 0660 (got \"%s\")",
                r->name, r->max, text);
        case SIZE:
        case MEMORY:
            return sl_settings_wrong(p,
                                     "%s must be %sa size from %" PRId64 " to %" PRId64
                                     " bytes, such as 4096, 64k, 8m or 1g (got \"%s\")",
                                     r->name, r->kind == MEMORY ? "auto or " : "",
                                     r->min, r->max, text);
        default:
            return sl_settings_wrong(
                p, "%s must be an integer from %" PRId64 " to %" PRId64 " (got \"%s\")",
                r->name, r->min, r->max, text);
    }
}

static int set_number(struct sl_settings *s, const struct row *r, const char *text,
                      const struct sl_settings_place *p)
{
    int64_t n;
    if ((r->kind == PORT || r->kind == MEMORY) && strcasecmp(text, "auto") == 0)
        n = r->kind == PORT ? SL_PORT_AUTO : SL_MEMORY_AUTO;
    else if (!parse_number(text, r->kind, &n) || n < r->min || n > r->max)
        return reject_number(r, text, p);
    *number_of(s, r) = n;
    return 0;
}

static int set(struct sl_settings *s, const struct row *r, const char *text,
               const struct sl_settings_place *p)
{
    if (choices_of(r->kind) != NULL) return set_choice(s, r, text, p);
    if (r->kind == TIME) return set_duration(s, r, text, p);
    if (!is_text(r)) return set_number(s, r, text, p);
    char *copy = strdup(text);
    if (copy == NULL) return sl_settings_wrong(p, "out of memory");
    free(*text_of(s, r));
    *text_of(s, r) = copy;
    return 0;
}

static bool is_secret(const struct row *r)
{
    return r->offset == offsetof(struct sl_settings, password) ||
           r->offset == offsetof(struct sl_settings, secret) ||
           r->offset == offsetof(struct sl_settings, etcd_password);
}

static const struct row *find_row(const char *name, size_t n)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
            return &rows[i];
    return NULL;
}

/* Report an unknown setting; `dashes` is "--" for an option. */
static int reject_name(const char *what, const char *dashes, struct sl_bytes name,
                       const struct sl_settings_place *p)
{
    static const char *const names[] = {
#define SETTING(name, kind, field, given, min, max, arg, help) name,
#include "settings.def"
#undef SETTING
        "check", "help", "version"};
    size_t n = *dashes != '\0' ? sizeof names / sizeof *names : ROWS;
    const char *best = sl_suggest(name, names, n);
    int length = (int)(name.n < NAME_SHOWN ? name.n : NAME_SHOWN);
    if (best == NULL)
        return sl_settings_wrong(
            p, "unknown %s \"%s%.*s\"; sluice serve --help lists all settings", what,
            dashes, length, name.at);
    return sl_settings_wrong(p, "unknown %s \"%s%.*s\"; did you mean \"%s%s\"?", what,
                             dashes, length, name.at, dashes, best);
}

/* --- The configuration file ----------------------------------------------- */

/* The value in a line of the configuration file. */
struct value {
    char *text;
    bool quoted, commented; /* The value was in quotes; a comment follows the value. */
};

struct reading {
    struct sl_settings *settings;
    /* Settings given on the command line, which take precedence. */
    const bool *by_flag;
    bool seen[ROWS];
    struct sl_settings_place place;
    bool bad;
};

/* Whether several lines can set this setting. Their values are joined. */
static bool is_list(const struct row *r)
{
    return r->offset == offsetof(struct sl_settings, peers);
}

static int add_to_list(struct reading *r, const struct row *row, const char *value)
{
    char *both;
    if (asprintf(&both, "%s,%s", *text_of(r->settings, row), value) < 0)
        return sl_settings_wrong(&r->place, "out of memory");
    free(*text_of(r->settings, row));
    *text_of(r->settings, row) = both;
    return 0;
}

/* Resolve a file name relative to the directory of the configuration file. systemd copies files
 * that only root can read into one directory (LoadCredential=), so the same configuration file
 * works with the originals and with the copies. */
static int set_file(struct reading *r, const struct row *row, const char *name)
{
    char *path;
    const char *slash = strrchr(r->place.file, '/');
    int n = slash == NULL ? 0 : (int)(slash + 1 - r->place.file);
    if (*name == '\0' || *name == '/') n = 0;
    if (asprintf(&path, "%.*s%s", n, r->place.file, name) < 0)
        return sl_settings_wrong(&r->place, "out of memory");
    int status = set(r->settings, row, path, &r->place);
    free(path);
    return status;
}

static void take_setting(struct reading *r, const char *name, const struct value *value)
{
    const struct row *row = find_row(name, strlen(name));
    size_t i = row != NULL ? (size_t)(row - rows) : 0;
    int status = 0;
    if (row == NULL)
        status = reject_name("setting", "", (struct sl_bytes){name, strlen(name)},
                             &r->place);
    else if (strcmp(name, "config") == 0)
        status = sl_settings_wrong(&r->place,
                                   "config is an option of the command line; a "
                                   "configuration file cannot include another one");
    else if (r->seen[i] && !is_list(row))
        status = sl_settings_wrong(&r->place, "duplicate setting \"%s\"", name);
    else if (value->commented && !value->quoted && is_secret(row))
        status = sl_settings_wrong(
            &r->place,
            "put the value of %s in quotes: it is followed by a blank and "
            "\"#\" or \";\", which begins a comment",
            name);
    else if (!r->by_flag[i])
        status = r->seen[i]           ? add_to_list(r, row, value->text)
                 : row->kind == INPUT ? set_file(r, row, value->text)
                                      : set(r->settings, row, value->text, &r->place);
    if (row != NULL) r->seen[i] = true;
    if (row != NULL && is_secret(row) && *value->text != '\0')
        r->settings->config_has_secret = true;
    /* Continue, to report all errors, not only the first. */
    if (status != 0) r->bad = true;
}

#define FILE_BYTES_MAX (1u << 20)
#define LINE_BYTES_MAX 4096u

/* Remove the blanks at both ends of the text, in place. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]);)
        text[--n] = '\0';
    return text;
}

static bool begins_comment(const char *text)
{
    return *text == '#' || *text == ';';
}

/* Parse a value in quotes. It cannot contain quotes of the same kind, because there are no
 * escapes. */
static const char *cut_quoted(char *text, struct value *out)
{
    char *end = strchr(text + 1, *text);
    if (end == NULL) return "the closing quote is missing";
    *end++ = '\0';
    out->text = text + 1;
    out->quoted = true;
    out->commented = isspace((unsigned char)*end) && begins_comment(trim(end));
    if (*trim(end) != '\0' && !out->commented)
        return "only a comment, after a blank, can follow the closing quote";
    return NULL;
}

/* Find the value in the text after the equals sign, and remove quotes, blanks and a comment ("#" or
 * ";" after a blank). Returns NULL or an error. Modifies the text. */
static const char *cut_value(char *text, struct value *out)
{
    char *begin = text;
    *out = (struct value){0};
    while (isspace((unsigned char)*begin)) begin++;
    if (*begin == '"' || *begin == '\'') return cut_quoted(begin, out);
    for (char *at = begin; *at != '\0' && !out->commented; at++)
        if (begins_comment(at) && at > text && isspace((unsigned char)at[-1])) {
            *at = '\0';
            out->commented = true;
        }
    out->text = trim(begin);
    return NULL;
}

/* Apply the setting in a line. Returns NULL or an error. Modifies the line. */
static const char *take_line(struct reading *r, char *line)
{
    static const char mark[] =
        "\xEF\xBB\xBF"; /* A byte order mark, which some editors write. */
    static const char expected[] = "expected \"name = value\"";
    struct value value;
    if (r->place.line == 1 && strncmp(line, mark, 3) == 0) line += 3;
    line = trim(line);
    if (*line == '\0' || begins_comment(line)) return NULL;
    if (*line == '[') /* Section headings are ignored. */
        return strchr(line, ']') != NULL ? NULL : expected;
    char *equals = strpbrk(line, "=:");
    if (equals == NULL) return expected;
    *equals = '\0';
    const char *why = cut_value(equals + 1, &value);
    if (why == NULL) take_setting(r, trim(line), &value);
    return why;
}

/* Read a line of n bytes, without the newline. */
static void read_line(struct reading *r, const char *text, size_t n)
{
    char line[LINE_BYTES_MAX + 1];
    const char *why = NULL;
    if (memchr(text, '\0', n) != NULL) why = "the line contains a zero byte";
    else if (n > LINE_BYTES_MAX) {
        r->bad = true;
        sl_settings_wrong(&r->place, "the line has %zu bytes; the limit is %u", n,
                          LINE_BYTES_MAX);
    } else {
        memcpy(line, text, n);
        line[n] = '\0';
        why = take_line(r, line);
    }
    if (why == NULL) return;
    r->bad = true;
    sl_settings_wrong(&r->place, "%s", why);
}

/* Read the whole file and append a zero byte. The caller frees the result. Returns NULL after
 * printing an error. */
static char *slurp(const char *path, size_t *n, FILE *errors)
{
    char *text = malloc(FILE_BYTES_MAX + 1);
    FILE *file = text == NULL ? NULL : fopen(path, "re");
    const char *why = NULL;
    *n = 0;
    if (file == NULL) why = strerror(errno);
    else {
        *n = fread(text, 1, FILE_BYTES_MAX + 1, file);
        /* For example, the path is a directory. */
        if (ferror(file)) why = strerror(errno);
        else if (*n > FILE_BYTES_MAX) why = "the file is larger than 1 MiB";
        fclose(file);
    }
    if (why == NULL) {
        text[*n] = '\0';
        return text;
    }
    fprintf(errors, "sluice-server: cannot read the configuration file %s: %s\n", path,
            why);
    free(text);
    return NULL;
}

static int read_file(struct sl_settings *s, const char *path, const bool *by_flag,
                     FILE *errors)
{
    struct reading r = {
        .settings = s, .by_flag = by_flag, .place = {.file = path, .errors = errors}};
    size_t n, at = 0;
    char *text = slurp(path, &n, errors);
    if (text == NULL) return -1;
    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end != NULL ? (size_t)(end - (text + at)) : n - at;
        r.place.line++;
        read_line(&r, text + at, length);
        at += length + 1;
    }
    free(text);
    return r.bad ? -1 : 0;
}

/* --- The command line ----------------------------------------------------- */

/* Overwrite a secret in the command line, which every user can read with ps. The settings keep a
 * copy. */
static void hide(char *value)
{
    size_t n = strlen(value);
    explicit_bzero(value, n);
    if (n > 0) *value = '*';
}

static int take_option(struct sl_settings *s, char **argv, int *i, bool *by_flag,
                       const struct sl_settings_place *p)
{
    char *argument = argv[*i];
    if (strncmp(argument, "--", 2) != 0)
        return sl_settings_wrong(
            p,
            "unexpected argument \"%s\"; write settings as --name value, see "
            "sluice serve --help",
            argument);
    const char *name = argument + 2;
    char *equals = strchr(argument, '=');
    size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct row *r = find_row(name, n);
    if (r == NULL) return reject_name("option", "--", (struct sl_bytes){name, n}, p);
    if (r->kind == FLAG && equals == NULL) {
        const char *next = argv[*i + 1];
        bool given = next != NULL &&
                     (strcmp(next, "yes") == 0 || strcmp(next, "no") == 0);
        if (given) ++*i;
        by_flag[r - rows] = true;
        return set(s, r, given ? next : "yes", p);
    }
    char *value = equals != NULL ? equals + 1 : argv[++*i];
    if (value == NULL)
        return sl_settings_wrong(p, "%s needs a value: %s %s", argument, argument,
                                 r->arg);
    by_flag[r - rows] = true;
    int status = set(s, r, value, p);
    if (is_secret(r)) hide(value);
    return status;
}

static bool is_action(const char *argument, enum sl_settings_action *action)
{
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)
        *action = SL_ACTION_HELP;
    else if (strcmp(argument, "--version") == 0 || strcmp(argument, "-V") == 0)
        *action = SL_ACTION_VERSION;
    else if (strcmp(argument, "--check") == 0) *action = SL_ACTION_CHECK;
    else return false;
    return true;
}

/* --- All settings ---------------------------------------------------------- */

int sl_settings_read(struct sl_settings *s, int argc, char **argv,
                     enum sl_settings_action *action, FILE *errors)
{
    bool by_flag[ROWS] = {false};
    const struct sl_settings_place p = {.errors = errors};
    *s = (struct sl_settings){0};
    *action = SL_ACTION_SERVE;
    for (size_t i = 0; i < ROWS; i++)
        if (set(s, &rows[i], rows[i].given, &p) != 0) return -1;
    for (int i = 1; i < argc; i++) {
        if (is_action(argv[i], action)) {
            if (*action != SL_ACTION_CHECK) return 0;
        } else if (take_option(s, argv, &i, by_flag, &p) != 0) return -1;
    }
    if (*s->config != '\0' && read_file(s, s->config, by_flag, errors) != 0) return -1;
    return sl_settings_check(s, &p);
}

void sl_settings_free(struct sl_settings *s)
{
    for (size_t i = 0; i < ROWS; i++)
        if (is_text(&rows[i])) free(*text_of(s, &rows[i]));
}

const char *sl_settings_engine_name(int64_t engine)
{
    return engines[engine].text;
}

/* --- Values and help -------------------------------------------------------- */

size_t sl_settings_count(void)
{
    return ROWS;
}

const char *sl_settings_name(size_t i)
{
    return rows[i].name;
}

const char *sl_settings_value(const struct sl_settings *s, size_t i, char *buffer,
                              size_t n)
{
    const struct row *r = &rows[i];
    const void *at = (const char *)s + r->offset;
    if (is_text(r)) {
        const char *text = *(char *const *)at;
        return is_secret(r) && *text != '\0' ? "(set)" : text;
    }
    int64_t value = *(const int64_t *)at;
    if (choices_of(r->kind) != NULL) return choices_of(r->kind)[value].text;
    if (r->kind == PORT && value == SL_PORT_AUTO) return "auto";
    snprintf(buffer, n, r->kind == OCTAL ? "%04" PRIo64 : "%" PRId64, value);
    return buffer;
}

static void help_line(FILE *out, const char *head, const char *text)
{
    const int column = 34, width = 88;
    int at = fprintf(out, "  %s", head);
    if (at >= column) fputc('\n', out), at = 0;
    at += fprintf(out, "%*s", column - at, "");
    for (const char *blank = ""; *text != '\0'; blank = " ") {
        int n = (int)strcspn(text, " ");
        if (at + 1 + n > width) {
            at = fprintf(out, "\n%*s", column, "") - 1;
            blank = "";
        }
        at += fprintf(out, "%s%.*s", blank, n, text);
        text += n;
        while (*text == ' ') text++;
    }
    fputc('\n', out);
}

void sl_settings_help(FILE *out)
{
    fputs("sluice-server - serve locks over the Redis protocol\n\n"
          "usage: sluice serve [--NAME VALUE ...]\n"
          "       sluice-server [--NAME VALUE ...]\n\n",
          out);
    for (size_t i = 0; i < ROWS; i++) {
        char head[80], text[500];
        const struct row *r = &rows[i];
        snprintf(head, sizeof head, r->kind == FLAG ? "--%s" : "--%s %s", r->name,
                 r->arg);
        snprintf(text, sizeof text, *r->given != '\0' ? "%s (default: %s)" : "%s",
                 r->help, r->given);
        help_line(out, head, text);
    }
    help_line(out, "--check", "check the settings, print errors, and exit");
    help_line(out, "--help", "print this help");
    help_line(out, "--version", "print the version");
    fputs("\nTIME is a duration: " SL_DURATION_FORMS
          "; a plain number is in milliseconds.\n"
          "BYTES is a size: 64k, 8m or 1g; a plain number is in bytes.\n"
          "Configuration file (--config): one line \"name = value\" for each setting.\n"
          "Signals: TERM or INT stops the server after it has notified its clients; a\n"
          "second one stops it at once.\n"
          "Exit status: 0 stopped, 1 cannot start or continue, 2 invalid settings.\n"
          "\nExample:\n"
          "  sluice serve\n"
          "  redis-cli -p 5625 ACQUIRE backup LEASE 60s\n"
          "\nMore: man sluice-serve\n",
          out);
}
