/* transfer.c - move money between two accounts, in a transaction.
 *
 *     cc transfer.c $(pkg-config --cflags --libs sluice) -o transfer
 *     SLUICE_SERVER=db1:5625,db2:5625 ./transfer FROM TO AMOUNT
 *
 * The money is moved once, even if the server restarts, a reply is lost, or another transfer uses the
 * same accounts at the same time. The account `bank` has no limit. An account without money does not
 * exist. */
#include <inttypes.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "accounts"

struct transfer {
    const char *from, *to;
    int64_t amount;
    char after[1000]; /* All accounts after the transfer. */
};

static int change(struct sluice_tx *tx, const char *account, int64_t amount)
{
    const char *value;
    char text[24];
    int status = sluice_tx_get(tx, TABLE, account, &value, NULL);
    if (status != SLUICE_OK) return status;
    int64_t now = (value != NULL ? atoll(value) : 0) + amount;
    if (now < 0 && strcmp(account, "bank") != 0) return SLUICE_EFULL; /* Abort. */
    if (now == 0) return sluice_tx_del(tx, TABLE, account);
    int n = snprintf(text, sizeof text, "%" PRId64, now);
    return sluice_tx_put(tx, TABLE, account, text, (size_t)n);
}

/* There is no function for TX.SCAN, so send it as a command. */
static int list(struct sluice_tx *tx, char *out, size_t size)
{
    const char *args[] = {"TX.SCAN", TABLE};
    const struct sluice_reply *r;
    int status = sluice_tx_call(tx, args, NULL, 2, &r);
    if (status != SLUICE_OK) return status;
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i + 1 < r->count && n < size; i += 2)
        n += (size_t)snprintf(out + n, size - n, "%s %s\n", r->items[i].text,
                              r->items[i + 1].text);
    return SLUICE_OK;
}

/* The library may call this function several times, so it changes nothing except through tx, and
 * prints nothing. */
static int transfer(struct sluice_tx *tx, void *arg)
{
    struct transfer *t = arg;
    int status = change(tx, t->from, -t->amount);
    if (status == SLUICE_OK) status = change(tx, t->to, t->amount);
    if (status == SLUICE_OK) status = list(tx, t->after, sizeof t->after);
    return status;
}

int main(int argc, char **argv)
{
    struct sluice *s;
    if (argc != 4 || sluice_open(NULL, NULL, &s) != SLUICE_OK) return 2;
    struct transfer t = {.from = argv[1], .to = argv[2], .amount = atoll(argv[3])};
    int status = sluice_transaction(s, transfer, &t);
    if (status == SLUICE_OK) printf("%s", t.after); /* Now it is committed. */
    else if (status == SLUICE_EFULL) printf("%s has too little money\n", t.from);
    else printf("%s\n", sluice_status_word(status));
    sluice_close(s);
    return status == SLUICE_OK ? 0 : 1;
}
