/* transaction.c - sluice_transaction(): runs a transaction until its outcome is certain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/engine/engine.h"
#include "client/kind.h"

#define PAUSE_MS_MAX 500 /* Between two attempts to reach a server. */

struct sluice_tx {
    struct sluice *s;
    struct sluice_wire *wire; /* NULL: not connected. */
    struct sluice_reply *reply;
    int status;     /* The first failure since TX.BEGIN. */
    bool uncertain; /* A reply to TX.COMMIT was lost. */
    unsigned attempt;
    int64_t heard_ms; /* When a server last replied. */
    int64_t begun_ms; /* When a server last sent a reply other than NOKEEPER. */
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
    tx->heard_ms = now_ms();
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
    REJECTED /* The function did not want to commit, but an earlier commit may have succeeded. */
};

static bool is_lost(int status)
{
    return status == SLUICE_ECLOSED || status == SLUICE_EPROTOCOL ||
           status == SLUICE_EUNREACHABLE;
}

/* Classify a failure that committed nothing. */
static enum ending failed(struct sluice_tx *tx, int status)
{
    if (is_lost(status) || status == SLUICE_ENOKEEPER) {
        if (tx->wire != NULL) disconnect(tx);
        return AGAIN;
    }
    return status == SLUICE_ERESTART || status == SLUICE_ESTALE ||
                   status == SLUICE_EBARRED
               ? AGAIN
               : FINAL;
}

static enum ending commit(struct sluice_tx *tx, int *status)
{
    const char *args[] = {"TX.COMMIT"};
    *status = call(tx, args, NULL, 1);
    if (*status == SLUICE_OK) return FINAL;
    /* No reply, or the server does not know the outcome. */
    if (tx->wire == NULL || *status == SLUICE_ECLOSED) {
        if (tx->wire != NULL) disconnect(tx);
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
        if (o == FINAL && tx->wire != NULL) (void)call(tx, abort, NULL, 1);
        return o;
    }
    if (result == SLUICE_OK) return commit(tx, status);
    (void)call(tx, abort, NULL, 1);
    *status = result;
    /* If an earlier attempt was committed after all, this one may have read its writes. */
    return tx->uncertain ? REJECTED : FINAL;
}

/* Find out whether the transaction was committed. If it was not, the function runs again, or its
 * result is final if it had rejected the transaction. */
static enum ending ask(struct sluice_tx *tx, enum ending o, int *status)
{
    const char *args[] = {"TX.OUTCOME", tx->id};
    int asked = call(tx, args, NULL, 2);
    if (asked != SLUICE_OK) {
        if (tx->wire != NULL) disconnect(tx);
        return o;
    }
    bool committed = tx->reply->type == SLUICE_REPLY_NUMBER;
    if (committed) *status = SLUICE_OK;
    return committed || o == REJECTED ? FINAL : AGAIN;
}

/* Connect, if necessary. Returns a status. */
static int connect_tx(struct sluice_tx *tx)
{
    while (tx->wire == NULL) {
        int status = tx->s->kind->open_wire(tx->s, tx->attempt++, &tx->wire);
        if (status == SLUICE_OK) return status;
        tx->wire = NULL;
        if (status != SLUICE_EUNREACHABLE && status != SLUICE_EPROTOCOL) return status;
        if (now_ms() - tx->heard_ms >= tx->s->kind->retry_ms(tx->s)) return status;
        long ms = tx->attempt < 8 ? 10 << tx->attempt : PAUSE_MS_MAX;
        if (ms > PAUSE_MS_MAX) ms = PAUSE_MS_MAX;
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    }
    return SLUICE_OK;
}

static int run(struct sluice_tx *tx, int (*fn)(struct sluice_tx *, void *), void *arg)
{
    enum ending o = AGAIN;
    int status = SLUICE_OK;
    while (o != FINAL) {
        int connected = connect_tx(tx);
        if (connected != SLUICE_OK)
            return o == UNKNOWN || o == REJECTED ? SLUICE_EUNREACHABLE : connected;
        o = o == AGAIN ? attempt(tx, fn, arg, &status) : ask(tx, o, &status);
        /* Try each address in turn. Pause between attempts while no node has a keeper. */
        if (o != FINAL && status == SLUICE_ENOKEEPER) {
            if (now_ms() - tx->begun_ms >= tx->s->kind->retry_ms(tx->s)) return status;
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        } else if (status != SLUICE_ENOKEEPER) tx->begun_ms = now_ms();
    }
    return status;
}

int sluice_transaction(struct sluice *s, int (*fn)(struct sluice_tx *tx, void *arg),
                       void *arg)
{
    struct sluice_tx tx = {.s = s, .heard_ms = now_ms(), .begun_ms = now_ms()};
    uint64_t id[2];
    if (s == NULL || fn == NULL || s->kind->open_wire == NULL) return SLUICE_EINVAL;
    if (getrandom(id, sizeof id, 0) != sizeof id) return SLUICE_EIO;
    snprintf(tx.id, sizeof tx.id, "%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    int status = run(&tx, fn, arg);
    sluice_reply_free(tx.reply);
    if (tx.wire != NULL) s->kind->keep_wire(s, tx.wire);
    return status;
}
