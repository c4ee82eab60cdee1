/* programs.h - what the programs of the bench about servers share: finding programs, and
 * telling how far they are. */
#ifndef BENCH_PROGRAMS_H
#define BENCH_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is going on, on stderr: it is a long run. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A file, named from the directory of this program. */
void program_beside(char *out, size_t size, const char *file);

/* Is there such a program? A name without a slash is looked for on the path. */
bool program_there(const char *program);

/* A number of rounds, as an option has it; 0: invalid. */
uint32_t rounds_of(const char *text);

#endif /* BENCH_PROGRAMS_H */
