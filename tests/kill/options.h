/* options.h - the options of a test program.
 *
 *     uint64_t runs = 500, seed = options_seed();
 *     const struct test_option options[] = {{"--long", .number = &runs, .preset = 50000},
 *                                           {"--runs", .number = &runs},
 *                                           {"--seed", .number = &seed},
 *                                           {.name = NULL}};
 *     options_read(argc, argv, "cron [--short | --long] [--runs N] [--seed N]", options);
 */
#ifndef TESTS_KILL_OPTIONS_H
#define TESTS_KILL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct test_option {
    const char *name;
    uint64_t *number;  /* Where its number goes, */
    const char **text; /* or its text. */
    uint64_t preset;   /* Not 0: the option takes no value, and its number is this. */
    bool *given;       /* Set if the option is there. */
};

/* Read the options; the list ends with name NULL. --short is always accepted, as it is the
 * default. An invalid option prints the usage and exits with 2. */
void options_read(int argc, char **argv, const char *usage,
                  const struct test_option *options);

/* A random seed, short enough to be typed. */
uint64_t options_seed(void);

#endif /* TESTS_KILL_OPTIONS_H */
