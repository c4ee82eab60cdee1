/* log.h - the log of the server, on standard error: text or JSON.
 *
 *     sl_log(SL_LOG_WARN, "closed a connection: output not read", "client", id_text, NULL);
 *
 * After the message come pairs of name and value, ended by NULL. Values may come from a client,
 * so they are quoted. Use sl_log_often() for messages that a client can cause: it writes one per
 * second of each kind, with the number of those that it left out. */
#ifndef SL_SERVER_OBSERVE_LOG_H
#define SL_SERVER_OBSERVE_LOG_H

#include "server/settings.h"

void sl_log_setup(enum sl_log_format format, enum sl_log_level level);

__attribute__((sentinel)) void sl_log(enum sl_log_level level, const char *message,
                                      ...);

/* The state of one kind of message: static, zero at first. */
struct sl_log_kind {
    sl_ms last_ms;
    uint64_t left_out;
};
__attribute__((sentinel)) void sl_log_often(struct sl_log_kind *kind, sl_ms now_ms,
                                            enum sl_log_level level,
                                            const char *message, ...);

/* Whether messages of this level are written at all. */
bool sl_log_wanted(enum sl_log_level level);

#endif /* SL_SERVER_OBSERVE_LOG_H */
