/* log.h - the log of the server, on standard error: text or JSON.
 *
 *     sl_log(SL_LOG_WARN, "closed a connection: output not read", "client", id_text, NULL);
 *
 * Pairs of name and value follow the message; NULL ends them. Values may come from a client, so
 * they are quoted. Use sl_log_often() for messages that a client can cause: it writes at most one
 * message of each kind per second, and says how many it suppressed. */
#ifndef SL_SERVER_OBSERVE_LOG_H
#define SL_SERVER_OBSERVE_LOG_H

#include "server/settings.h"

void sl_log_setup(enum sl_log_format format, enum sl_log_level level);

__attribute__((sentinel)) void sl_log(enum sl_log_level level, const char *message,
                                      ...);

/* The state of one kind of message. Make it static, so that it is zero at first. */
struct sl_log_kind {
    sl_ms last_ms;
    uint64_t left_out;
};
__attribute__((sentinel)) void sl_log_often(struct sl_log_kind *kind, sl_ms now_ms,
                                            enum sl_log_level level,
                                            const char *message, ...);

/* Whether the log level includes messages of this level. */
bool sl_log_wanted(enum sl_log_level level);

#endif /* SL_SERVER_OBSERVE_LOG_H */
