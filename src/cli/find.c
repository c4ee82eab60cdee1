#include "cli/find.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/suggest.h"
#include "cli/message.h"
#include "cli/text.h"

#define WORD_BYTES_MAX 32

/* Return the number of arguments that form the name, or 0 if they do not. */
static int spells(const char *name, int argc, char **argv)
{
    int words = 0;
    for (const char *p = name;; p++) {
        size_t n = strcspn(p, " ");
        if (words >= argc || strlen(argv[words]) != n ||
            strncmp(argv[words], p, n) != 0)
            return 0;
        words++;
        p += n;
        if (*p == '\0') return words;
    }
}

const struct cli_command *cli_find_command(int argc, char **argv, int *words)
{
    for (size_t i = 0; i < CLI_COMMANDS; i++) {
        *words = spells(cli_commands[i].name, argc, argv);
        if (*words > 0) return &cli_commands[i];
    }
    return NULL;
}

/* Return the command name that is most similar to what the user typed, or NULL. Also
 * compares a single word with the first word of longer names. */
static const char *nearest(const char *said, bool one_word)
{
    static char first[CLI_COMMANDS][WORD_BYTES_MAX + 1];
    const char *names[CLI_COMMANDS];
    for (size_t i = 0; i < CLI_COMMANDS; i++) {
        const char *name = cli_commands[i].name;
        names[i] = name;
        if (!one_word) continue;
        snprintf(first[i], sizeof first[i], "%.*s", (int)strcspn(name, " "), name);
        names[i] = first[i];
    }
    return sl_suggest((struct sl_bytes){said, strlen(said)}, names, CLI_COMMANDS);
}

/* Return whether this word is the first of several words in a command's name. */
static bool is_in_group(const struct cli_command *c, const char *word)
{
    size_t n = strlen(word);
    return strncmp(c->name, word, n) == 0 && c->name[n] == ' ';
}

bool cli_is_group(const char *word)
{
    for (size_t i = 0; i < CLI_COMMANDS; i++)
        if (is_in_group(&cli_commands[i], word)) return true;
    return false;
}

/* Report that a group such as "canal" is not a command on its own. */
static int needs_another(const char *group)
{
    char list[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < CLI_COMMANDS && n < sizeof list; i++) {
        if (!is_in_group(&cli_commands[i], group)) continue;
        const char *word = cli_commands[i].name + strlen(group) + 1;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n > 0 ? ", " : "",
                              word);
    }
    return cli_usage_error("\"%s\" needs a command: %s", group, list);
}

static bool is_server_command(const char *word)
{
    for (const struct cli_server_command *c = cli_server_commands; c->name != NULL; c++)
        if (strcasecmp(c->name, word) == 0) return true;
    return false;
}

int cli_unknown_command(int argc, char **argv)
{
    char said[WORD_BYTES_MAX + 1], shown[CLI_SAFE_SIZE];
    bool group = cli_is_group(argv[0]), two = group && argc > 1;
    if (group && !two) return needs_another(argv[0]);
    snprintf(said, sizeof said, "%s%s%s", argv[0], two ? " " : "", two ? argv[1] : "");
    const char *best = nearest(said, !two);
    cli_safe_text(said, shown, sizeof shown);
    if (!two && is_server_command(said))
        return cli_usage_error("unknown command \"%s\"; to send it to a server, run "
                               "\"sluice do %s\"",
                               shown, shown);
    if (best == NULL) return cli_usage_error("unknown command \"%s\"", shown);
    return cli_usage_error("unknown command \"%s\"; did you mean \"%s\"?", shown, best);
}
