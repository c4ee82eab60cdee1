#include "cli/cells.h"

#include <locale.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/text.h"

void cli_cells_begin(void)
{
    /* Only this locale knows the widths of characters; the messages stay in English. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (utf8 != (locale_t)0) uselocale(utf8);
}

/* Write the text with escapes, as cli_safe_text() does; it may contain NUL. */
static void make_safe(const char *text, size_t bytes, char out[CLI_SAFE_SIZE])
{
    static const char nul[] = "\\x00";
    size_t at = 0;
    for (const char *end = text + bytes;;) {
        cli_safe_text(text, out + at, CLI_SAFE_SIZE - at);
        at += strlen(out + at);
        text += strlen(text);
        if (text >= end || at + sizeof nul + sizeof "..." > CLI_SAFE_SIZE) return;
        memcpy(out + at, nul, sizeof nul);
        at += strlen(nul);
        text++;
    }
}

/* Return the columns of the character at s, and its length; -1 if the terminal may not know it. */
static int width_at(const char *s, size_t *length)
{
    wchar_t c;
    mbstate_t state = {0};
    *length = sl_utf8_length((const unsigned char *)s, 4);
    if (*length == 0) *length = 1;
    if (*length == 1) return 1;
    if (mbrtowc(&c, s, *length, &state) != *length) return -1;
    return wcwidth(c);
}

static int width_of(const char *s)
{
    int width = 0;
    for (size_t n; *s != '\0'; s += n) {
        int w = width_at(s, &n);
        width += w < 0 ? 1 : w;
    }
    return width;
}

int cli_cell_width(const char *text, size_t bytes)
{
    char safe[CLI_SAFE_SIZE];
    make_safe(text, bytes, safe);
    return width_of(safe);
}

/* Print the characters that fit into the width. Returns their width. */
static int put_part(FILE *out, const char *s, int width)
{
    int at = 0;
    for (size_t n; *s != '\0'; s += n) {
        int w = width_at(s, &n);
        if (at + (w < 0 ? 1 : w) > width) break;
        if (w < 0) fputc('?', out);
        else fwrite(s, 1, n, out);
        at += w < 0 ? 1 : w;
    }
    return at;
}

void cli_put_cell(FILE *out, const char *text, size_t bytes, int width, bool right)
{
    char safe[CLI_SAFE_SIZE];
    if (width <= 0) return;
    make_safe(text, bytes, safe);
    int whole = width_of(safe), at = 0;
    if (whole > width) {
        at = put_part(out, safe, width - 1) + 1;
        fputc('+', out);
    } else if (!right) at = put_part(out, safe, width);
    for (int i = right && whole <= width ? whole : at; i < width; i++) fputc(' ', out);
    if (right && whole <= width) put_part(out, safe, width);
}
