/* look.h - what replies about locks are made of (commands_look.c). */
#ifndef SL_SERVER_OBSERVE_INSPECT_H
#define SL_SERVER_OBSERVE_INSPECT_H

#include "base/glob.h"
#include "server/command/dispatch.h"

#define SL_SHOWN_MAX 100u /* Holders, and waiters, of one EXPLAIN. */
#define SL_COUNT_MAX 1000 /* Of one LOCKS. */
#define SL_LOOK_STEPS_MAX \
    500000u /* Of comparing patterns, in one call; then come again. */

/* What LOCKS is asked for. */
struct sl_page {
    struct sl_bytes match; /* at NULL: all. */
    struct sl_glob *glob;  /* The same, compiled. */
    uint64_t cursor;
    int64_t count;
};

/* A name and what it has. */
void sl_put_number(struct sl_resp_writer *w, const char *name, int64_t n);
void sl_put_bytes(struct sl_resp_writer *w, const char *name, struct sl_bytes b);
void sl_put_text(struct sl_resp_writer *w, const char *name, const char *text);

/* One of EXPLAIN's `holders`, and of its `waiters`. */
void sl_put_holder(struct sl_resp_writer *w, const struct sl_grant_view *v,
                   const char *address);
void sl_put_waiter(const struct server *s, struct sl_resp_writer *w,
                   const struct sl_grant_view *v, const char *why);

/* Where the session of this number is. */
void sl_look_address(const struct server *s, uint64_t id, char *out, size_t n);

#endif /* SL_SERVER_OBSERVE_INSPECT_H */
