/* tx_stage.h - a fixture for transaction managers, with the storage in the hands of the test.
 *
 *     STAGE s = stage_new();              a current manager, over an empty store
 *     BEGIN(1), PUT(1, "a", "x");         session 1 begins, and writes
 *     BEGIN(2), GET(2, "a"), COMMIT(1);
 *     SAID("1 began 1\n1 put\n2 began 2\n2 waits\n1 committed 1\n2 got x\n");
 *
 * An item is "a", a key of the table t; "u/a", a key of the table u; "*" or "u/" and a star, a
 * whole table. `said` has the answers, in that order; a request without an answer "waits".
 *
 * The storage carries out orders at once, until by_hand() is called: then the transcript has the
 * orders, does() carries out the oldest, applies() does so without reporting it yet, and refuses()
 * only answers with a status. It follows the rules of storage.h: terms, idempotency keys, bars.
 * Several managers may use one store: stage_beside().
 *
 * The fixture checks that every answer belongs to a request of a connected session, once. It calls
 * sl_tx_manager_check() after every call of a manager. */
#ifndef SLUICE_TEST_TX_STAGE_H
#define SLUICE_TEST_TX_STAGE_H

#include "test.h"

#include "tx/manager.h"

enum {
    STORE_ROWS = 512,
    STORE_REQUESTS = 1024,
    STAGE_TICKETS = 1 << 15,
    STAGE_SESSIONS = 100,
    STAGE_ORDERS = 256,
    STAGE_WRITES = 32,
    STAGE_NAME = 16,
    STAGE_VALUE = 32,
    STAGE_CYCLE = 64,
};

/* --- The store ---------------------------------------------------------------- */

struct stored {
    char table[STAGE_NAME], key[STAGE_NAME], value[STAGE_VALUE];
};

struct store {
    uint64_t term, revision;
    struct stored row[STORE_ROWS];
    uint32_t rows;
    struct {
        char name[STAGE_NAME];
        uint64_t revision;
    } request[STORE_REQUESTS];
    uint32_t requests;
    struct {
        uint64_t term, id;
    } barred[STORE_REQUESTS];
    uint32_t bars;
    uint64_t commits; /* That were applied, and not before. */
    int users;
};

/* "" for none. */
const char *stored_at(const struct store *d, const char *table, const char *key);
bool is_barred(const struct store *d, uint64_t term, uint64_t id);

/* --- Orders, and answers ---------------------------------------------------------- */

/* An order that the storage has, with all that it points to. */
struct ordered {
    bool used;
    enum sl_tx_order_type type;
    uint64_t op, term, id;
    char request[STAGE_NAME], table[STAGE_NAME], key[STAGE_NAME];
    struct stored write[STAGE_WRITES];
    bool deleted[STAGE_WRITES];
    uint32_t writes;
    bool applied;
    struct sl_storage_result done; /* Once it was applied. */
    char value[STAGE_VALUE];
    struct stored *rows; /* Owned; of a scan. */
    uint64_t turn;       /* Orders come in this order. */
};

/* What was asked, and answered. */
struct asked {
    uint64_t session;
    enum sl_tx_verb type;
    bool answered, left; /* The session has left: it is not to be answered. */
    int refused;         /* The result of sl_tx_manager_submit(). */
    int status;
    uint64_t term, id, revision;
    bool found;
    char value[STAGE_VALUE];
    char rows[256]; /* "a=x b=y" */
    uint64_t cycle[STAGE_CYCLE];
    uint32_t cycle_count;
};

struct stage {
    struct sl_tx_manager *manager;
    struct store *store;
    sl_ms now;
    bool by_hand;
    bool silent; /* Nothing is written into `said`. */
    struct ordered order[STAGE_ORDERS];
    uint64_t turns;
    struct asked *asked; /* By ticket. */
    uint64_t tickets;
    void (*told)(struct stage *s, uint64_t ticket); /* NULL: nobody wants to know. */
    void (*applied)(struct stage *s, const struct ordered *o); /* The same. */
    void *owner;
    char said[1 << 14];
};

/* True while a manager is called: to fail its allocations, but not those of the fixture. */
extern bool stage_in_manager;

/* --- Life ----------------------------------------------------------------------- */

extern const struct sl_tx_manager_limits stage_limits;

struct stage *stage_new(void);
struct stage *stage_with(const struct sl_tx_manager_limits *limits);
/* A candidate, over the same store, or a new one (NULL). NULL when out of memory. */
struct stage *stage_candidate(const struct sl_tx_manager_limits *limits,
                              struct store *store);
/* One that leads, over the store of another. */
struct stage *stage_beside(struct stage *other);
/* All leave; then nothing may be left. */
void stage_end(struct stage *s);

/* A stage that ends with its block. */
#define STAGE __attribute__((cleanup(stage_leave))) struct stage *
void stage_leave(struct stage **s);
/* It is gone with all that it knew. */
void stage_crash(struct stage *s);

/* --- Clients -------------------------------------------------------------------- */

uint64_t stage_ask(struct stage *s, struct sl_tx_request ask);
/* Of an item by its name. */
uint64_t stage_item(struct stage *s, enum sl_tx_verb type, uint64_t session,
                    const char *item, const char *value, bool write);
/* A lock, with a bounded wait. */
uint64_t stage_within(struct stage *s, uint64_t session, const char *item, bool write,
                      sl_ms wait_ms);
void leave(struct stage *s, uint64_t session);
void pass(struct stage *s, sl_ms ms);
void stop(struct stage *s, uint64_t term);

#define BEGIN(who) \
    stage_ask(s, (struct sl_tx_request){.type = SL_TX_BEGIN, .session = who})
#define BEGIN_AS(who, name)                                  \
    stage_ask(s, (struct sl_tx_request){.type = SL_TX_BEGIN, \
                                        .session = who,      \
                                        .request = {name, strlen(name)}})
#define OUTCOME(who, name)                                     \
    stage_ask(s, (struct sl_tx_request){.type = SL_TX_OUTCOME, \
                                        .session = who,        \
                                        .request = {name, strlen(name)}})
#define COMMIT(who) \
    stage_ask(s, (struct sl_tx_request){.type = SL_TX_COMMIT, .session = who})
#define ABORT(who) \
    stage_ask(s, (struct sl_tx_request){.type = SL_TX_ABORT, .session = who})
#define READ(who, item) stage_item(s, SL_TX_LOCK, who, item, "", false)
#define WRITE(who, item) stage_item(s, SL_TX_LOCK, who, item, "", true)
#define READ_WITHIN(who, item, ms) stage_within(s, who, item, false, ms)
#define WRITE_WITHIN(who, item, ms) stage_within(s, who, item, true, ms)
#define GET(who, item) stage_item(s, SL_TX_GET, who, item, "", false)
#define PUT(who, item, value) stage_item(s, SL_TX_PUT, who, item, value, false)
#define DEL(who, item) stage_item(s, SL_TX_DEL, who, item, "", false)
#define SCAN(who, item) stage_item(s, SL_TX_SCAN, who, item, "", false)

/* --- The storage ------------------------------------------------------------- */

/* From now on; and at once again, what was left included. */
void by_hand(struct stage *s);
void at_once(struct stage *s);

/* Of what is ordered: how much, the oldest, and what becomes of it. */
uint32_t orders(const struct stage *s);
struct ordered *oldest(struct stage *s);
void applies(struct stage *s, struct ordered *o);
void tells(struct stage *s, struct ordered *o);
void does(struct stage *s);
void refuses(struct stage *s, int status);
void refuses_one(struct stage *s, struct ordered *o, int status);

/* --- Transcript ------------------------------------------------------------ */

/* Fetch all orders, and carry them out unless by_hand() was called. */
void settle(struct stage *s);
void say(struct stage *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* This was said since the last SAID(). */
#define SAID(text)                          \
    do {                                    \
        assert_string_equal(s->said, text); \
        s->said[0] = '\0';                  \
    } while (0)
#define UNHEARD (s->said[0] = '\0')

/* Holders and waiters of an item: "1 reads, 2 waits to write for 1". */
const char *holders(struct stage *s, const char *item);
#define HOLDERS(item, text) assert_string_equal(holders(s, item), text)

struct sl_tx_manager_stats stats_of(const struct stage *s);

#endif /* SLUICE_TEST_TX_STAGE_H */
