/* transaction.c - sluice_transaction(): runs a transaction until its outcome is certain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/engine/engine.h"
#include "client/kind.h"

/* The mean pause after a failure doubles with each failure, from this to this. */
#define PAUSE_MS_MIN 20
#define PAUSE_MS_MAX 500

struct sluice_tx {
    struct sluice *s;
    struct sluice_wire *wire; /* NULL: not connected. */
    struct sluice_reply *reply;
    int status;     /* The first failure since TX.BEGIN. */
    bool uncertain; /* A reply to TX.COMMIT was lost. */
    unsigned attempt;
    /* Steps in a row that ended without a connection or without a keeper, and when the first of them
     * ended. A transaction that the server restarts begins a new row. */
    unsigned failures;
    int64_t failed_ms;
    bool failed; /* The current step failed so. */
    struct sl_random random;
    char id[33];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void disconnect(struct sluice_tx *tx)
{
    sluice_wire_close(tx->wire);
    tx->wire = NULL;
}

/* The connection is lost, or this node has no keeper: try the next address after a pause. */
static void leave(struct sluice_tx *tx)
{
    disconnect(tx);
    tx->failed = true;
}

/* Send a command. The reply is in tx->reply. */
static int call(struct sluice_tx *tx, const char *const *args, const size_t *lengths,
                size_t n)
{
    sluice_reply_free(tx->reply);
    tx->reply = NULL;
    int status = sluice_wire_call(tx->wire, args, lengths, n, &tx->reply);
    if (status != SLUICE_OK) {
        tx->reply = NULL;
        if (status != SLUICE_EINVAL) disconnect(tx);
        return status;
    }
    return tx->reply->type == SLUICE_REPLY_ERROR ? sl_call_status(tx->reply)
                                                 : SLUICE_OK;
}

/* --- What the function of the program can do ------------------------------------------ */

int sluice_tx_call(struct sluice_tx *tx, const char *const *args, const size_t *lengths,
                   size_t n, const struct sluice_reply **out)
{
    if (tx == NULL || args == NULL || n == 0) return SLUICE_EINVAL;
    if (tx->status == SLUICE_OK) tx->status = call(tx, args, lengths, n);
    if (tx->status == SLUICE_OK && out != NULL) *out = tx->reply;
    return tx->status;
}

int sluice_tx_get(struct sluice_tx *tx, const char *table, const char *key,
                  const char **value, size_t *bytes)
{
    const char *args[] = {"TX.GET", table, key};
    const struct sluice_reply *r;
    if (table == NULL || key == NULL || value == NULL) return SLUICE_EINVAL;
    int status = sluice_tx_call(tx, args, NULL, 3, &r);
    if (status != SLUICE_OK) return status;
    bool exists = r->type == SLUICE_REPLY_TEXT;
    if (!exists && r->type != SLUICE_REPLY_NIL) return tx->status = SLUICE_EPROTOCOL;
    *value = exists ? r->text : NULL;
    if (bytes != NULL) *bytes = exists ? r->text_bytes : 0;
    return SLUICE_OK;
}

int sluice_tx_put(struct sluice_tx *tx, const char *table, const char *key,
                  const char *value, size_t bytes)
{
    const char *args[] = {"TX.PUT", table, key, value};
    if (table == NULL || key == NULL || value == NULL) return SLUICE_EINVAL;
    size_t lengths[] = {6, strlen(table), strlen(key), bytes};
    return sluice_tx_call(tx, args, lengths, 4, NULL);
}

int sluice_tx_del(struct sluice_tx *tx, const char *table, const char *key)
{
    const char *args[] = {"TX.DEL", table, key};
    if (table == NULL || key == NULL) return SLUICE_EINVAL;
    return sluice_tx_call(tx, args, NULL, 3, NULL);
}

/* --- One attempt ------------------------------------------------------------------------- */

/* How an attempt ended. */
enum ending {
    FINAL,   /* With the status. */
    AGAIN,   /* Nothing was committed: run the function again. */
    UNKNOWN, /* The reply to TX.COMMIT was lost. */
    REJECTED /* With the status, unless an earlier commit has succeeded. */
};

/* Classify a failure that committed nothing. */
static enum ending failed(struct sluice_tx *tx, int status)
{
    if (status == SLUICE_ECLOSED || status == SLUICE_EUNREACHABLE ||
        status == SLUICE_ENOKEEPER) {
        leave(tx);
        return AGAIN;
    }
    if (status == SLUICE_ERESTART || status == SLUICE_ESTALE ||
        status == SLUICE_EBARRED) {
        tx->failures = 0;
        return AGAIN;
    }
    /* If an earlier attempt was committed after all, that is the result. */
    return tx->uncertain ? REJECTED : FINAL;
}

static enum ending commit(struct sluice_tx *tx, int *status)
{
    const char *args[] = {"TX.COMMIT"};
    *status = call(tx, args, NULL, 1);
    if (*status == SLUICE_OK) return FINAL;
    /* No reply, or the server does not know the outcome. */
    if (tx->wire == NULL || *status == SLUICE_ECLOSED) {
        leave(tx);
        tx->uncertain = true;
        return UNKNOWN;
    }
    return failed(tx, *status);
}

static enum ending attempt(struct sluice_tx *tx, int (*fn)(struct sluice_tx *, void *),
                           void *arg, int *status)
{
    const char *begin[] = {"TX.BEGIN", "REQUEST", tx->id}, *abort[] = {"TX.ABORT"};
    tx->status = SLUICE_OK;
    *status = call(tx, begin, NULL, 3);
    if (*status != SLUICE_OK) return failed(tx, *status);
    int result = fn(tx, arg);
    if (tx->status != SLUICE_OK) {
        *status = tx->status;
        enum ending o = failed(tx, *status);
        if (o != AGAIN && tx->wire != NULL) (void)call(tx, abort, NULL, 1);
        return o;
    }
    if (result == SLUICE_OK) return commit(tx, status);
    (void)call(tx, abort, NULL, 1);
    *status = result;
    /* If an earlier attempt was committed after all, this one may have read its writes. */
    return tx->uncertain ? REJECTED : FINAL;
}

/* Find out whether the transaction was committed. If it was not, the function runs again, or the status
 * is final if the attempt was rejected. */
static enum ending ask(struct sluice_tx *tx, enum ending o, int *status)
{
    const char *args[] = {"TX.OUTCOME", tx->id};
    int asked = call(tx, args, NULL, 2);
    if (asked != SLUICE_OK) {
        leave(tx);
        return o;
    }
    bool committed = tx->reply->type == SLUICE_REPLY_NUMBER;
    if (committed) *status = SLUICE_OK;
    return committed || o == REJECTED ? FINAL : AGAIN;
}

/* Connect to the next address, if necessary. Returns a status. */
static int connect_tx(struct sluice_tx *tx)
{
    if (tx->wire != NULL) return SLUICE_OK;
    int status = tx->s->kind->open_wire(tx->s, tx->attempt++, &tx->wire);
    if (status != SLUICE_OK) tx->wire = NULL;
    tx->failed = status == SLUICE_EUNREACHABLE || status == SLUICE_EPROTOCOL;
    return status;
}

static void pause_tx(struct sluice_tx *tx)
{
    int64_t mean_ms = PAUSE_MS_MIN;
    for (unsigned i = 1; i < tx->failures && mean_ms < PAUSE_MS_MAX; i++) mean_ms *= 2;
    if (mean_ms > PAUSE_MS_MAX) mean_ms = PAUSE_MS_MAX;
    int64_t ms = sl_random_between(&tx->random, mean_ms / 2, mean_ms + mean_ms / 2);
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

/* The current step failed. Pause, and return whether to try again. */
static bool goes_on(struct sluice_tx *tx)
{
    int64_t now = now_ms();
    if (tx->failures++ == 0) tx->failed_ms = now;
    else if (now - tx->failed_ms >= tx->s->kind->retry_ms(tx->s)) return false;
    pause_tx(tx);
    return true;
}

static int run(struct sluice_tx *tx, int (*fn)(struct sluice_tx *, void *), void *arg)
{
    enum ending o = AGAIN;
    int status = SLUICE_OK;
    for (;;) {
        tx->failed = false;
        int why = connect_tx(tx);
        if (why == SLUICE_OK && o != AGAIN) o = ask(tx, o, &status);
        else if (why == SLUICE_OK) {
            o = attempt(tx, fn, arg, &status);
            why = status == SLUICE_ENOKEEPER ? status : SLUICE_EUNREACHABLE;
        } else if (!tx->failed) return tx->uncertain ? SLUICE_EUNREACHABLE : why;
        if (o == FINAL) return status;
        if (tx->failed && !goes_on(tx))
            return tx->uncertain ? SLUICE_EUNREACHABLE : why;
    }
}

int sluice_transaction(struct sluice *s, int (*fn)(struct sluice_tx *tx, void *arg),
                       void *arg)
{
    struct sluice_tx tx = {.s = s};
    uint64_t id[2];
    if (s == NULL || fn == NULL || s->kind->open_wire == NULL) return SLUICE_EINVAL;
    if (getrandom(id, sizeof id, 0) != sizeof id) return SLUICE_EIO;
    snprintf(tx.id, sizeof tx.id, "%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    sl_random_seed(&tx.random, id[0]);
    int status = run(&tx, fn, arg);
    sluice_reply_free(tx.reply);
    if (tx.wire != NULL) s->kind->keep_wire(s, tx.wire);
    return status;
}
