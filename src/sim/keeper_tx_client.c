/* keeper_tx_client.c - clients that run transactions, and repeat them if they do not know the
 * outcome.
 *
 * Each transaction reads two rows, writes one or both, and commits. A value contains the number of
 * its transaction, and what the transaction has read: its number, the last number of this row, the
 * other row, and the number of that row. So a commit shows whether the rows have changed since the
 * transaction read them (keeper_audit.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

enum { IDLE, BEGIN, GET_FIRST, GET_SECOND, PUT_FIRST, PUT_SECOND, COMMIT, ASK };

static void begin(struct ksim_world *w, struct ksim_tx *t)
{
    struct sl_random *r = &w->random;
    *t = (struct ksim_tx){.number = ++w->tx_count};
    t->rows[0] = sl_random_below(r, KSIM_ROWS);
    t->rows[1] = (t->rows[0] + 1 + sl_random_below(r, KSIM_ROWS - 1)) % KSIM_ROWS;
    t->both = sl_random_maybe(r, 5000);
    if (t->number >= KSIM_TXS) abort();
    if (sl_random_maybe(r, 7000))
        snprintf(t->id, sizeof t->id, "request%09" PRIu64, t->number);
}

/* In an open transaction: send another BEGIN, or RESET. Returns false if the client does neither. */
static bool disturb(struct ksim_world *w, uint32_t c)
{
    struct ksim_tx *t = &w->clients[c].tx;
    struct ksim_command m = {.verb = KSIM_TX_BEGIN, .id = "nested"};
    if (t->phase <= BEGIN || t->phase >= COMMIT || !sl_random_maybe(&w->random, 300))
        return false;
    t->nested = sl_random_maybe(&w->random, 7000);
    if (!t->nested) m = (struct ksim_command){.verb = KSIM_RESET};
    ksim_client_ask(w, c, 0, &m);
    return true;
}

/* The reply to the BEGIN or RESET of disturb(). A BEGIN succeeds if the transaction was lost. */
static void disturbed(struct ksim_world *w, uint32_t c, const char *text)
{
    struct ksim_tx *t = &w->clients[c].tx;
    /* The reply NOKEEPER may mean that the transaction is lost, so begin again. */
    bool rejected = t->nested && text[0] == '-' && strncmp(text, "-NOKEEPER", 9) != 0;
    bool begun = t->nested && !rejected;
    t->nested = false;
    if (rejected) return;
    t->phase = IDLE;
    t->repeats = true;
    if (begun) ksim_client_hang_up(w, c, 0, false);
}

/* Send the next command of the transaction. */
void ksim_tx_client_act(struct ksim_world *w, uint32_t c)
{
    struct ksim_tx *t = &w->clients[c].tx;
    struct ksim_command m = {0};
    if (disturb(w, c)) return;
    if (t->phase == IDLE) {
        if (t->number == 0 || !t->repeats) begin(w, t);
        t->phase = t->asks ? ASK : BEGIN;
    }
    switch (t->phase) {
        case BEGIN: m.verb = KSIM_TX_BEGIN; break;
        case GET_FIRST:
        case GET_SECOND:
            m.verb = KSIM_TX_GET;
            m.key = t->rows[t->phase - GET_FIRST];
            break;
        case PUT_FIRST:
        case PUT_SECOND: {
            uint32_t k = t->phase == PUT_FIRST ? 0 : 1;
            m.verb = KSIM_TX_PUT;
            m.key = t->rows[k];
            snprintf(m.value, sizeof m.value, "%" PRIu64 " %" PRIu64 " %u %" PRIu64,
                     t->number, t->read[k], t->rows[1 - k], t->read[1 - k]);
            break;
        }
        case COMMIT: m.verb = KSIM_TX_COMMIT; break;
        default: m.verb = KSIM_TX_OUTCOME; break;
    }
    if (m.verb == KSIM_TX_BEGIN || m.verb == KSIM_TX_OUTCOME)
        memcpy(m.id, t->id, sizeof m.id);
    ksim_client_ask(w, c, 0, &m);
}

/* The transaction was not committed, and never will be. */
static void refused(struct ksim_world *w, struct ksim_tx *t)
{
    if (w->committed[t->number] && !t->uncertain)
        KSIM_WRONG(w, "transaction %" PRIu64 " is rejected, but it was committed",
                   t->number);
    if (!t->uncertain) w->refused[t->number] = true;
    t->phase = IDLE;
    t->repeats = t->asks = false;
}

/* The outcome of the commit is unknown: ask for it, and repeat the transaction. */
static void unknown(struct ksim_tx *t)
{
    t->phase = IDLE;
    t->uncertain = true;
    t->repeats = t->asks = t->id[0] != '\0';
}

static void committed(struct ksim_world *w, struct ksim_tx *t, const char *text)
{
    uint64_t revision = strtoull(text + 1, NULL, 10);
    if (!w->committed[t->number])
        KSIM_WRONG(w, "transaction %" PRIu64 " is acknowledged, but not committed",
                   t->number);
    else if (w->committed_at[t->number] != revision)
        KSIM_WRONG(w,
                   "transaction %" PRIu64 " is committed at revision %" PRIu64
                   ", not %" PRIu64,
                   t->number, w->committed_at[t->number], revision);
    w->counts.commits++;
    t->phase = IDLE;
    t->repeats = t->asks = false;
}

void ksim_tx_client_answered(struct ksim_world *w, uint32_t c, const char *text)
{
    struct ksim_tx *t = &w->clients[c].tx;
    bool failed = text[0] == '-';
    if (t->nested || w->clients[c].ways[0].command.verb == KSIM_RESET) {
        disturbed(w, c, text);
        return;
    }
    if (strncmp(text, "-NOTX", 5) == 0)
        KSIM_WRONG(w, "c%u has begun a transaction, but receives %s", c + 1, text);
    if (failed && strncmp(text, "-UNKNOWN", 8) == 0) unknown(t);
    else if (failed && t->phase == ASK) t->phase = IDLE; /* Ask again. */
    else if (failed) {
        bool commits = t->phase == COMMIT;
        if (commits) refused(w, t);
        t->phase = IDLE;
        if (!commits) t->repeats = true;
        /* The transaction may still be open. */
        if (strncmp(text, "-RESTART", 8) != 0) ksim_client_hang_up(w, c, 0, false);
    } else if (t->phase == COMMIT) committed(w, t, text);
    else if (t->phase == ASK) {
        if (text[0] == ':') committed(w, t, text);
        else t->asks = false; /* Repeat it, with the same id. */
        t->phase = IDLE;
    } else {
        if (t->phase == GET_FIRST || t->phase == GET_SECOND)
            t->read[t->phase - GET_FIRST] = strncmp(text, "$-1", 3) == 0
                                                ? 0
                                                : strtoull(text + 1, NULL, 10);
        t->phase++;
        if (t->phase == PUT_SECOND && !t->both) t->phase = COMMIT;
    }
}

/* The connection is closed. */
void ksim_tx_client_cut(struct ksim_world *w, uint32_t c)
{
    struct ksim_tx *t = &w->clients[c].tx;
    t->nested = false;
    if (t->phase == COMMIT && w->clients[c].ways[0].busy) unknown(t);
    else if (t->phase == ASK) t->phase = IDLE;
    else if (t->phase != IDLE) {
        t->phase = IDLE;
        t->repeats = true;
    }
}
