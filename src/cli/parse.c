#include "cli/parse.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/duration.h"
#include "base/suggest.h"
#include "cli/exits.h"
#include "cli/help.h"
#include "cli/message.h"
#include "cli/text.h"
#include "sluice.h"

#define OPTIONS_MAX 40
#define LETTERS_MAX (2 * OPTIONS_MAX + 4)
#define NAME_MAX_BYTES 32

/* The arguments of getopt_long(), built from the table. */
struct spec {
    char letters[LETTERS_MAX];
    char names[OPTIONS_MAX][NAME_MAX_BYTES];
    struct option longs[OPTIONS_MAX + 1];
    size_t long_count;
};

static void add_letters(struct spec *s, const struct cli_option *o)
{
    size_t n = strlen(s->letters);
    for (const char *l = o->letters; *l != '\0' && n + 2 < sizeof s->letters; l++) {
        s->letters[n++] = *l;
        if (o->arg != NULL) s->letters[n++] = ':';
    }
    s->letters[n] = '\0';
}

static void add_names(struct spec *s, const struct cli_option *o)
{
    for (const char *p = o->names; *p != '\0' && s->long_count < OPTIONS_MAX;) {
        size_t n = strcspn(p, " ");
        char *name = s->names[s->long_count];
        /* The table is part of this program, so this is a bug. */
        if (n >= NAME_MAX_BYTES) abort();
        memcpy(name, p, n);
        name[n] = '\0';
        s->longs[s->long_count++] = (struct option){
            .name = name,
            .has_arg = o->arg != NULL ? required_argument : no_argument,
            .val = o->id};
        p += n + strspn(p + n, " ");
    }
}

static void make_spec(struct spec *s, const struct cli_command *c, bool in_front)
{
    memset(s, 0, sizeof *s);
    strcpy(s->letters, in_front ? "+:" : ":");
    for (const struct cli_option *o = c->options; o->id != 0; o++) {
        add_letters(s, o);
        add_names(s, o);
    }
}

/* Return the id of an option, for any of its letters. */
static int id_of(const struct cli_command *c, int found)
{
    for (const struct cli_option *o = c->options; o->id != 0; o++)
        if (found < 256 && strchr(o->letters, found) != NULL) return o->id;
    return found;
}

/* Return a hint for users of redis-cli: what to write instead of a letter. */
static const char *hint_for(const struct cli_command *c, int letter)
{
    if (c->id != CLI_DO) return "";
    if (letter == 'a')
        return "; set the password with SLUICE_PASSWORD or --password-file";
    if (letter == 'u') return "; write --server redis://HOST:PORT";
    return "";
}

/* Report an unknown long option, and suggest one. */
static int unknown_name(const struct spec *s, const char *argument)
{
    char shown[CLI_SAFE_SIZE];
    const char *names[OPTIONS_MAX];
    struct sl_bytes word = {argument + 2, strcspn(argument + 2, "=")};
    for (size_t i = 0; i < s->long_count; i++) names[i] = s->names[i];
    const char *best = sl_suggest(word, names, s->long_count);
    cli_safe_text(argument, shown, sizeof shown);
    if (best == NULL) return cli_usage_error("unknown option \"%s\"", shown);
    return cli_usage_error("unknown option \"%s\"; did you mean \"--%s\"?", shown,
                           best);
}

/* Report what is wrong with the argument at which getopt_long() stopped. */
static int complain(const struct cli_command *c, const struct spec *s, int what,
                    char **argv)
{
    char shown[CLI_SAFE_SIZE];
    const char *word = cli_safe_text(argv[optind - 1], shown, sizeof shown);
    bool by_letter = argv[optind - 1][0] != '-' || argv[optind - 1][1] != '-';
    if (what == ':' && by_letter)
        return cli_usage_error("option -%c needs a value", optopt);
    if (what == ':') return cli_usage_error("option %s needs a value", word);
    if (by_letter && optopt > 0x20 && optopt < 0x7f)
        return cli_usage_error("unknown option \"-%c\"%s", optopt, hint_for(c, optopt));
    if (optopt != 0) return cli_usage_error("option %s takes no value", word);
    return unknown_name(s, argv[optind - 1]);
}

int cli_parse(const struct cli_command *command, int argc, char **argv, bool in_front,
              cli_option_fn *take, void *into, int *rest)
{
    struct spec s;
    make_spec(&s, command, in_front);
    opterr = 0;
    optind = 1;
    for (;;) {
        int found = getopt_long(argc, argv, s.letters, s.longs, NULL);
        if (found == -1) break;
        /* Only `do` has an option -h with a value. Without a value, -h means help, as
         * for other commands. */
        bool help = found == ':' && optopt == 'h';
        if (!help && (found == '?' || found == ':'))
            return complain(command, &s, found, argv);
        int id = id_of(command, found);
        if (help || id == CLI_OPT_HELP) {
            cli_help(command);
            return cli_flush_output(0);
        }
        int status = take(into, id, optarg);
        if (status != 0) return status;
    }
    *rest = optind;
    return -1;
}

int cli_bad_value(const char *option, const char *value, const char *wanted)
{
    char shown[CLI_SAFE_SIZE];
    return cli_usage_error("%s must be %s (got \"%s\")", option, wanted,
                           cli_safe_text(value, shown, sizeof shown));
}

bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || n < least || n > most) return false;
    *out = n;
    return true;
}

int cli_duration(const char *option, const char *value, int64_t least, int64_t *out)
{
    /* A longer time is a mistake. */
    const int64_t most = INT64_C(1000) * 3600 * 24 * 365 * 100;
    struct sl_bytes text = {value, strlen(value)};
    char from[SL_DURATION_BYTES], to[SL_DURATION_BYTES], shown[CLI_SAFE_SIZE];
    if (sl_parse_duration(text, 1000, least, most, out)) return 0;
    return cli_usage_error(
        "%s must be a duration from %s to %s, such as %s, or a number of seconds "
        "(got \"%s\")",
        option, sl_duration_text(least, from), sl_duration_text(most, to),
        least > 500 ? "30s, 5m or 1h" : SL_DURATION_FORMS, /* Each in the range. */
        cli_safe_text(value, shown, sizeof shown));
}

bool cli_mode(const char *text, uint32_t *out)
{
    char *end;
    size_t digits = strspn(text, "01234567");
    if (digits == 0 || digits > 4 || text[digits] != '\0') return false;
    unsigned long mode = strtoul(text, &end, 8);
    if (mode == 0 || mode > 0777) return false;
    *out = (uint32_t)mode;
    return true;
}

/* --- Options of requests ----------------------------------------------------- */

static uint64_t cores(void)
{
    /* The processors that this process may use; containers can limit them. */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint64_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint64_t)n : 1;
}

/* Parse "4", "+1", "-1" or "50%". The result is at least 1. */
static bool is_per(const char *text, uint64_t *out)
{
    char number[16];
    size_t n = strlen(text);
    if (text[0] == '+' || text[0] == '-') {
        uint64_t some, all = cores();
        if (!cli_number(text + 1, 0, UINT32_MAX, &some)) return false;
        if (text[0] == '+') *out = all + some;
        else *out = all > some ? all - some : 1;
        return true;
    }
    if (n > 1 && n < sizeof number && text[n - 1] == '%') {
        uint64_t percent;
        memcpy(number, text, n - 1);
        number[n - 1] = '\0';
        if (!cli_number(number, 1, 1000000, &percent)) return false;
        *out = cores() * percent / 100;
        if (*out == 0) *out = 1;
        return true;
    }
    return cli_number(text, 1, SLUICE_CAPACITY_MAX, out);
}

int cli_per(const char *value, uint64_t *out)
{
    if (is_per(value, out)) return 0;
    return cli_bad_value("-j", value, "a number of at least 1, N%, +N or -N");
}

int cli_priority(const char *value, int32_t *out)
{
    uint64_t n;
    bool negative = value[0] == '-';
    if (!cli_number(value + negative, 0, INT32_MAX, &n))
        return cli_bad_value("--priority", value,
                             "an integer from -2147483647 to 2147483647");
    *out = negative ? -(int32_t)n : (int32_t)n;
    return 0;
}

int cli_short_text(const char *option, const char *value, const char **out)
{
    size_t n = strlen(value);
    if (n > SLUICE_VALUE_BYTES_MAX)
        return cli_usage_error("%s is too long: %zu bytes (maximum %u)", option, n,
                               SLUICE_VALUE_BYTES_MAX);
    *out = value;
    return 0;
}
