/* settings.h - the settings of the server: defaults, configuration file, command line.
 *
 * src/settings.def has every setting; this is its struct, its parser and its printer. */
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

/* Texts are owned by the struct. All numbers have one type, so that one parser and one printer
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
    bool config_has_secret; /* The configuration file has a password or secret in it. */
};

/* What the command line asks for. */
enum sl_settings_action {
    SL_ACTION_SERVE,
    SL_ACTION_HELP,
    SL_ACTION_VERSION,
    SL_ACTION_CHECK
};

/* Read the defaults, the configuration file and the command line, and check them together. 0, or -1: the
 * errors were printed to `errors`. */
int sl_settings_read(struct sl_settings *s, int argc, char **argv,
                     enum sl_settings_action *action, FILE *errors);
void sl_settings_free(struct sl_settings *s);

/* How many settings there are; the name of one; and its value as in a configuration file, possibly in
 * `buffer`. Passwords and secrets are not shown. */
size_t sl_settings_count(void);
const char *sl_settings_name(size_t i);
const char *sl_settings_value(const struct sl_settings *s, size_t i, char *buffer,
                              size_t n);

void sl_settings_help(FILE *out);

#endif /* SL_SERVER_SETTINGS_H */
