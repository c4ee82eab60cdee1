/* settings.h - the settings of the server: defaults, configuration file, command line.
 *
 * src/settings.def lists the settings. This file declares the struct that holds them, its parser
 * and its printer. */
#ifndef SL_SERVER_SETTINGS_H
#define SL_SERVER_SETTINGS_H

#include <stdint.h>
#include <stdio.h>

#include "base/types.h"

enum sl_log_format { SL_LOG_TEXT, SL_LOG_JSON };
enum sl_storage_choice {
    SL_ENGINE_AUTO,
    SL_ENGINE_NONE,
    SL_ENGINE_LMDB,
    SL_ENGINE_ETCD
};
enum sl_log_level { SL_LOG_DEBUG, SL_LOG_INFO, SL_LOG_WARN, SL_LOG_ERROR };

#define SL_PORT_AUTO (-1)
#define SL_MEMORY_AUTO (-1)
#define SL_TIME_AUTO (-1)

/* The struct owns its strings. All numbers have the same type, so that one parser and one printer
 * are enough. */
struct sl_settings {
#define TEXT char *
#define PATH char *
#define INPUT char *
#define NUMBER int64_t
#define TIME int64_t
#define SIZE int64_t
#define MEMORY int64_t
#define PORT int64_t
#define OCTAL int64_t
#define FORMAT int64_t
#define LEVEL int64_t
#define ENGINE int64_t
#define FLAG int64_t
#define SETTING(name, kind, field, given, min, max, arg, help) kind field;
#include "settings.def"
#undef SETTING
#undef TEXT
#undef PATH
#undef INPUT
#undef NUMBER
#undef TIME
#undef SIZE
#undef MEMORY
#undef PORT
#undef OCTAL
#undef FORMAT
#undef LEVEL
#undef ENGINE
#undef FLAG
    bool config_has_secret; /* The configuration file contains a password or secret. */
};

/* The action that the command line requests. */
enum sl_settings_action {
    SL_ACTION_SERVE,
    SL_ACTION_HELP,
    SL_ACTION_VERSION,
    SL_ACTION_CHECK
};

/* Read the defaults, the configuration file and the command line, and validate the result. Returns
 * 0, or -1 after printing errors to `errors`. */
int sl_settings_read(struct sl_settings *s, int argc, char **argv,
                     enum sl_settings_action *action, FILE *errors);
void sl_settings_free(struct sl_settings *s);

/* sl_settings_count() returns the number of settings; the others return the name of setting i, and
 * its value as written in a configuration file, possibly in `buffer`. The value of a password or
 * secret is shown as "(set)". */
size_t sl_settings_count(void);
const char *sl_settings_name(size_t i);
const char *sl_settings_value(const struct sl_settings *s, size_t i, char *buffer,
                              size_t n);

void sl_settings_help(FILE *out);

#endif /* SL_SERVER_SETTINGS_H */
