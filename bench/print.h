/* print.h - output on stdout: wrapped text, and JSON. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include "machine.h"

/* Print a text with line breaks, each line indented by this many spaces. */
void print_wrapped(const char *text, int indent, int width);

/* Print two lines that describe the machine, for the head of a report. */
void print_machine(const struct machine *m);

void json_text(const char *text);

/* Print "name": "text" and `after`. */
void json_pair(const char *name, const char *text, const char *after);

/* Print "machine": {...} and a line end. */
void json_machine(const struct machine *m);

#endif /* BENCH_PRINT_H */
