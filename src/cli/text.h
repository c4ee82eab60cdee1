/* text.h - prints text from untrusted sources safely.
 *
 * Any user can choose keys and program names. Text printed by these functions cannot
 * move the cursor, end a line or break JSON. */
#ifndef SL_CLI_TEXT_H
#define SL_CLI_TEXT_H

#include <stddef.h>
#include <stdio.h>

#define CLI_SAFE_SIZE 1024 /* A suitable size for `out` below. */

/* Copy a name. Control characters and bytes that are not UTF-8 become \xNN. If the name
 * does not fit into `size` bytes, the copy ends in "...". Returns out. */
const char *cli_safe_text(const char *name, char *out, size_t size);

/* Print n bytes with the same escapes. A NUL must follow the bytes. cli_put_lines()
 * keeps line ends, except those at the end; cli_put_line() prints them as \x0a;
 * cli_put_quoted() prints "..." with \n and \". */
void cli_put_lines(FILE *out, const char *s, size_t n);
void cli_put_line(FILE *out, const char *s, size_t n);
void cli_put_quoted(FILE *out, const char *s, size_t n);

/* Print a JSON string. Each byte that is not UTF-8 becomes U+FFFD. */
void cli_json_string(FILE *out, const char *s);
void cli_json_bytes(FILE *out, const char *s, size_t n); /* A NUL must follow them. */

/* Print "name":"...". If the string is not UTF-8, also print "name_hex" with its
 * bytes. */
void cli_json_member(FILE *out, const char *name, const char *s);

#endif /* SL_CLI_TEXT_H */
