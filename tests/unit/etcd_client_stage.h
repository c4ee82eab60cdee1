/* etcd_client_stage.h - for tests of the client of etcd: one, calls that are waited for, a
 * watch that remembers what it was told. */
#ifndef SLUICE_ETCD_CLIENT_STAGE_H
#define SLUICE_ETCD_CLIENT_STAGE_H

#include "storage/etcd/client.h"

struct asked {
    struct sl_etcd_call call;
    int times; /* `done` was called. */
    char answer[4000];
};

struct watched {
    int told, ended;
    bool stop_at_once; /* It ends the watch when it is told something. */
    struct sl_etcd_client *client;
    char all[20000]; /* What it was told, one line each. */
    char why[400];
};

/* Of these members, an answer within so long. */
struct sl_etcd_client *client_of(const char *members, sl_ms answer_ms);
struct sl_etcd_client *client_with(const struct sl_etcd_settings *s);
struct sl_etcd_settings settings_of(const char *members, sl_ms answer_ms);

/* One turn of the loop, when there is something, at most this many ms. */
void turn(struct sl_etcd_client *c, int most_ms);

/* The bound of a->call is what the test has made it: they begin as {0}. */
void begin_call(struct sl_etcd_client *c, struct asked *a, const char *path,
                const char *body, bool repeatable);
void await_call(struct sl_etcd_client *c, struct asked *a);
void call(struct sl_etcd_client *c, struct asked *a, const char *path, const char *body,
          bool repeatable);

int watch_from(struct sl_etcd_client *c, struct watched *w, const char *key,
               uint64_t from);
void await_told(struct sl_etcd_client *c, struct watched *w, const char *words);
void await_end(struct sl_etcd_client *c, struct watched *w);

sl_ms now_ms(void);

#endif /* SLUICE_ETCD_CLIENT_STAGE_H */
