#include "cli/reply.h"

#include <string.h>

#include "cli/text.h"

static bool is_list(const struct sluice_reply *r)
{
    return r->type >= SLUICE_REPLY_LIST;
}

/* --- For people ----------------------------------------------------------- */

static bool fits_on_a_line(const struct sluice_reply *r)
{
    if (!is_list(r) || r->count == 0) return true;
    size_t most = r->type == SLUICE_REPLY_MAP ? 2 : 1;
    return r->count == most && fits_on_a_line(&r->items[most - 1]);
}

static int digits_of(size_t n)
{
    int digits = 1;
    while (n >= 10) n /= 10, digits++;
    return digits;
}

static void put_value(FILE *out, const struct sluice_reply *r, bool lines)
{
    switch (r->type) {
        case SLUICE_REPLY_STATUS: cli_put_lines(out, r->text, r->text_bytes); break;
        case SLUICE_REPLY_ERROR:
            fputs("(error) ", out);
            cli_put_lines(out, r->text, r->text_bytes);
            break;
        case SLUICE_REPLY_TEXT:
            if (lines) cli_put_lines(out, r->text, r->text_bytes);
            else cli_put_quoted(out, r->text, r->text_bytes);
            break;
        case SLUICE_REPLY_LINES: cli_put_lines(out, r->text, r->text_bytes); break;
        case SLUICE_REPLY_NUMBER:
            fprintf(out, "(integer) %lld", (long long)r->number);
            break;
        case SLUICE_REPLY_BOOL: fputs(r->number ? "(true)" : "(false)", out); break;
        case SLUICE_REPLY_DECIMAL: fprintf(out, "(double) %s", r->text); break;
        default: fputs("(nil)", out); break;
    }
    fputc('\n', out);
}

static void put_tree(FILE *out, const struct sluice_reply *r, int indent, bool lines);

/* Print a list: each item on its own line, after its number. */
static void put_items(FILE *out, const struct sluice_reply *r, int indent)
{
    bool map = r->type == SLUICE_REPLY_MAP;
    size_t step = map ? 2 : 1, count = r->count / step;
    int width = digits_of(count), inner = indent + width + 2;
    char sign = map ? '#' : r->type == SLUICE_REPLY_SET ? '~' : ')';
    for (size_t i = 0; i < count; i++) {
        const struct sluice_reply *item = &r->items[i * step];
        fprintf(out, "%*s%*zu%c ", i > 0 ? indent : 0, "", width, i + 1, sign);
        if (map) {
            if (is_list(item)) fputs("(a list)", out);
            else cli_put_quoted(out, item->text, item->text_bytes);
            fputs(" => ", out);
            item++;
            if (!fits_on_a_line(item)) fprintf(out, "\n%*s", inner, "");
        }
        put_tree(out, item, inner, false);
    }
}

static void put_tree(FILE *out, const struct sluice_reply *r, int indent, bool lines)
{
    if (!is_list(r)) put_value(out, r, lines);
    else if (r->count > 0) put_items(out, r, indent);
    else
        fputs(r->type == SLUICE_REPLY_MAP   ? "(empty hash)\n"
              : r->type == SLUICE_REPLY_SET ? "(empty set)\n"
                                            : "(empty array)\n",
              out);
}

void cli_reply_text(FILE *out, const struct sluice_reply *r, bool lines)
{
    put_tree(out, r, 0, lines);
}

/* --- For shells ----------------------------------------------------------- */

static void put_plain(FILE *out, const struct sluice_reply *r, bool lines)
{
    if (is_list(r)) {
        for (size_t i = 0; i < r->count; i++) put_plain(out, &r->items[i], false);
        return;
    }
    if (r->type == SLUICE_REPLY_NUMBER || r->type == SLUICE_REPLY_BOOL)
        fprintf(out, "%lld", (long long)r->number);
    else if (lines || r->type == SLUICE_REPLY_LINES)
        cli_put_lines(out, r->text, r->text_bytes);
    else cli_put_line(out, r->text, r->text_bytes);
    fputc('\n', out);
}

void cli_reply_values(FILE *out, const struct sluice_reply *r, bool lines)
{
    if (r->type != SLUICE_REPLY_NIL) put_plain(out, r, lines);
}

/* --- For programs --------------------------------------------------------- */

/* Return whether a value can be the name of a JSON member. */
static bool is_name(const struct sluice_reply *r)
{
    return r->type == SLUICE_REPLY_TEXT || r->type == SLUICE_REPLY_STATUS;
}

static void put_json(FILE *out, const struct sluice_reply *r);

static void put_json_list(FILE *out, const struct sluice_reply *r)
{
    bool object = r->type == SLUICE_REPLY_MAP;
    for (size_t i = 0; object && i < r->count; i += 2) object = is_name(&r->items[i]);
    fputc(object ? '{' : '[', out);
    for (size_t i = 0; i < r->count; i++) {
        if (i > 0) fputc(object && i % 2 == 1 ? ':' : ',', out);
        put_json(out, &r->items[i]);
    }
    fputc(object ? '}' : ']', out);
}

static void put_json(FILE *out, const struct sluice_reply *r)
{
    /* JSON has no inf or nan. */
    bool number = strspn(r->text, "0123456789-.eE+") == r->text_bytes &&
                  r->text[0] != '+' && r->text[0] != '.';
    switch (r->type) {
        case SLUICE_REPLY_NIL: fputs("null", out); break;
        case SLUICE_REPLY_NUMBER: fprintf(out, "%lld", (long long)r->number); break;
        case SLUICE_REPLY_BOOL: fputs(r->number ? "true" : "false", out); break;
        case SLUICE_REPLY_ERROR:
            fputs("{\"error\":", out);
            cli_json_bytes(out, r->text, r->text_bytes);
            fputc('}', out);
            break;
        case SLUICE_REPLY_DECIMAL:
            if (number) fputs(r->text, out);
            else cli_json_bytes(out, r->text, r->text_bytes);
            break;
        case SLUICE_REPLY_STATUS:
        case SLUICE_REPLY_TEXT:
        case SLUICE_REPLY_LINES: cli_json_bytes(out, r->text, r->text_bytes); break;
        default: put_json_list(out, r); break;
    }
}

void cli_reply_json_value(FILE *out, const struct sluice_reply *r)
{
    put_json(out, r);
}

void cli_reply_json(FILE *out, const struct sluice_reply *r)
{
    put_json(out, r);
    fputc('\n', out);
}
