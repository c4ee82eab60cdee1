/* log.h - what the server says about itself, on standard error: text, or JSON.
 *
 *     sl_log(SL_LOG_WARN, "hung up: output not read", "client", id_text, NULL);
 *
 * After the message come pairs of name and value, ended by NULL. Values may come from
 * anybody; they are quoted. Lines that a peer can cause go through sl_log_often(): one a
 * second of each kind, with the number of those that were left out. */
#ifndef SL_SERVER_OBSERVE_LOG_H
#define SL_SERVER_OBSERVE_LOG_H

#include "server/settings.h"

void sl_log_setup(enum sl_log_format format, enum sl_log_level level);

__attribute__((sentinel)) void sl_log(enum sl_log_level level, const char *message,
                                      ...);

/* The state of one kind of line: static, zero at first. */
struct sl_log_kind {
    sl_ms last_ms;
    uint64_t left_out;
};
__attribute__((sentinel)) void sl_log_often(struct sl_log_kind *kind, sl_ms now_ms,
                                            enum sl_log_level level,
                                            const char *message, ...);

/* Whether lines of this level are written at all. */
bool sl_log_wanted(enum sl_log_level level);

#endif /* SL_SERVER_OBSERVE_LOG_H */
