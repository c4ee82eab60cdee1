/* programs.h - functions that the benchmarks of servers share: they find programs
 * and print progress. */
#ifndef BENCH_PROGRAMS_H
#define BENCH_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Print the current step to stderr, since a run takes long. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The path of a file relative to the directory of this program. */
void program_beside(char *out, size_t size, const char *file);

/* Does the program exist? A name without a slash is searched for in PATH. */
bool program_there(const char *program);

/* The number of rounds in an option; 0: invalid. */
uint32_t rounds_of(const char *text);

#endif /* BENCH_PROGRAMS_H */
