/* settings_internal.h - shared by settings.c and settings_check.c. */
#ifndef SL_SERVER_SETTINGS_INTERNAL_H
#define SL_SERVER_SETTINGS_INTERNAL_H

#include <stdio.h>

#include "server/settings.h"

/* The source of a value, for error messages. */
struct sl_settings_place {
    const char *file; /* NULL: the command line. */
    int line;
    FILE *errors;
};

/* Print an error with its place. Returns -1. */
__attribute__((format(printf, 2, 3))) int sl_settings_wrong(
    const struct sl_settings_place *p, const char *format, ...);

/* Return the name of a value of the setting engine. */
const char *sl_settings_engine_name(int64_t engine);

/* Read the files of secrets, and check settings that depend on each other. Returns 0, or -1
 * after it has printed an error. */
int sl_settings_check(struct sl_settings *s, const struct sl_settings_place *p);

#endif /* SL_SERVER_SETTINGS_INTERNAL_H */
