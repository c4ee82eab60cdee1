/* say.h - what we say: to people on stderr, to people and programs on stdout. Names come
 * from anybody, so nothing is printed that could move a cursor or break a line. */
#ifndef SL_CLI_SAY_H
#define SL_CLI_SAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Who speaks: "sluice run". Set once it is known which command this is. */
void cli_speaker(const char *name);

/* One line on stderr: "sluice run: ...". */
__attribute__((format(printf, 1, 2))) void cli_say(const char *format, ...);

/* The same for a wrong command line, with a hint at the help. Returns EXIT_USAGE. */
__attribute__((format(printf, 1, 2))) int cli_usage(const char *format, ...);

/* The same for a status of the library about `what`. Returns the exit status. */
int cli_fail(const char *what, int64_t status);

/* From here on, a segment that is truncated while we use it ends us with EXIT_DATA and a
 * line that says so, not with SIGBUS. */
void cli_expect_cut(void);

/* See that all of stdout went out. Returns `status`, or EXIT_SYSTEM with a message. */
int cli_finish(int status);

/* A name, safe to show: control characters and what is not UTF-8 as \xNN. Shortened
 * with "..." if need be. Returns out. */
const char *cli_shown(const char *name, char *out, size_t size);
#define CLI_SHOWN_SIZE 1024

/* n bytes with a NUL behind them, as safe to show. Lines: their ends are kept, and the
 * last one is left out. A line: there are none, but \x0a. Quoted: "..." with \n, \". */
void cli_put_lines(FILE *out, const char *s, size_t n);
void cli_put_line(FILE *out, const char *s, size_t n);
void cli_put_quoted(FILE *out, const char *s, size_t n);

/* A time ago in words: "12 s", "3 min", "5 h", "9 days". */
const char *cli_ago(int64_t ms, char *out, size_t size);

/* ms since 1970, local time: "14:03:07", or "2026-03-01 14:03" if not today. */
const char *cli_clock(int64_t since_ms, char *out, size_t size);

int64_t cli_wall_ms(void);
int64_t cli_now_ms(void); /* Monotonic. */

/* --- JSON ------------------------------------------------------------------ */

/* A quoted string. Bytes that are not UTF-8 become U+FFFD, one each. */
void cli_json_string(FILE *out, const char *s);
void cli_json_bytes(FILE *out, const char *s, size_t n); /* With a NUL behind them. */

/* "name":"..."; where the string could not be told exactly, "name_hex" follows. */
void cli_json_member(FILE *out, const char *name, const char *s);

#endif /* SL_CLI_SAY_H */
