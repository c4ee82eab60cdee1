/* store_load.c - fills a store from the text of a dump. */
#include "offline/store_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/hex.h"
#include "storage/storage.h"

/* Lines per transaction. LMDB keeps the pages of a transaction in memory until it
 * ends. */
#define LINES_PER_TXN 4096

/* The part of the dump that the next line must belong to. The parts appear in this
 * order. */
enum dump_part { AT_HEAD, AT_TERM, AT_REVISION, AT_RECORDS, AT_END };

struct load {
    const struct sl_store *store;
    MDB_txn *txn;
    enum dump_part part;
    uint64_t number;  /* Number of the current line, from 1. */
    uint64_t records; /* Records read so far. */
};

/* --- Parts of a line --------------------------------------------------------- */

/* Each of these functions parses one part of a line and skips it. Returns false if the
 * line has something else there. */

static bool take_word(char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0 || ((*at)[n] != ' ' && (*at)[n] != '\0'))
        return false;
    *at += n;
    return true;
}

static bool take_number(char **at, uint64_t *out)
{
    char *end;
    if ((*at)[0] != ' ' || (*at)[1] < '0' || (*at)[1] > '9') return false;
    errno = 0;
    *out = strtoull(*at + 1, &end, 10);
    if (errno != 0) return false;
    *at = end;
    return true;
}

/* Parse a quoted string. It is decoded in place, because decoding only makes it
 * shorter. */
static bool take_bytes(char **at, struct sl_bytes *out)
{
    char *from = *at, *to;
    if (from[0] != ' ' || from[1] != '"') return false;
    from += 2;
    *out = (struct sl_bytes){to = from, 0};
    for (; *from != '"'; from++) {
        if (*from == '\0') return false;
        char c = *from;
        if (c == '\\') {
            if (from[1] != 'x' || sl_hex_digit(from[2]) < 0 ||
                sl_hex_digit(from[3]) < 0)
                return false;
            c = (char)(sl_hex_digit(from[2]) << 4 | sl_hex_digit(from[3]));
            from += 3;
        }
        *to++ = c;
    }
    out->n = (size_t)(to - out->at);
    *at = from + 1;
    return true;
}

/* --- Lines ------------------------------------------------------------------- */

/* Each of these functions returns 0, EINVAL for an invalid line, or an error of
 * LMDB. */

static int take_record(struct load *l, char *at)
{
    struct sl_bytes table, key, value;
    struct sl_store_key k;
    uint64_t revision;
    if (!take_bytes(&at, &table) || !take_bytes(&at, &key) ||
        !take_number(&at, &revision) || !take_bytes(&at, &value) || *at != '\0')
        return EINVAL;
    if (table.n + key.n > SL_STORAGE_NAME_BYTES_MAX) return EINVAL;
    sl_store_key_of(&k, table, key);
    return sl_store_put_record(l->store, l->txn, &k, revision, value);
}

static int take_request(struct load *l, char *at)
{
    struct sl_bytes name;
    uint64_t revision, time_ms;
    if (!take_bytes(&at, &name) || !take_number(&at, &revision) ||
        !take_number(&at, &time_ms) || *at != '\0')
        return EINVAL;
    if (name.n == 0 || name.n > SL_STORAGE_REQUEST_BYTES_MAX || time_ms > INT64_MAX)
        return EINVAL;
    int rc = sl_store_put_request(l->store, l->txn, name,
                                  (struct sl_store_request){revision, (sl_ms)time_ms});
    return rc == MDB_KEYEXIST ? EINVAL : rc; /* Out of order. */
}

static int take_bar(struct load *l, char *at)
{
    uint64_t term, id;
    if (!take_number(&at, &term) || !take_number(&at, &id) || *at != '\0')
        return EINVAL;
    return sl_store_bar(l->store, l->txn, term, id);
}

static int take_end(struct load *l, char *at)
{
    uint64_t records;
    if (!take_number(&at, &records) || *at != '\0' || records != l->records)
        return EINVAL;
    l->part = AT_END;
    return 0;
}

static int take_head(struct load *l, char *at)
{
    uint64_t n;
    if (!take_word(&at, "sluice") || !take_word(&at, " store") ||
        !take_number(&at, &n) || *at != '\0')
        return EINVAL;
    if (n != SL_STORE_FORMAT) return MDB_VERSION_MISMATCH;
    l->part = AT_TERM;
    return 0;
}

static int take_meta(struct load *l, char *at, const char *name, enum dump_part next)
{
    uint64_t n;
    if (!take_word(&at, name) || !take_number(&at, &n) || *at != '\0') return EINVAL;
    l->part = next;
    return sl_store_put_number(l->store, l->txn, name, n);
}

static int take_line(struct load *l, char *at)
{
    switch (l->part) {
        case AT_HEAD: return take_head(l, at);
        case AT_TERM: return take_meta(l, at, SL_STORE_TERM, AT_REVISION);
        case AT_REVISION: return take_meta(l, at, SL_STORE_REVISION, AT_RECORDS);
        case AT_RECORDS: break;
        case AT_END: return EINVAL;
    }
    if (take_word(&at, "end")) return take_end(l, at);
    l->records++;
    if (take_word(&at, "data")) return take_record(l, at);
    if (take_word(&at, "request")) return take_request(l, at);
    if (take_word(&at, "barred")) return take_bar(l, at);
    return EINVAL;
}

/* --- The whole text ---------------------------------------------------------- */

/* After LINES_PER_TXN lines, commit and begin another transaction. */
static int next_txn(struct load *l)
{
    if (l->number % LINES_PER_TXN != 0) return 0;
    int rc = mdb_txn_commit(l->txn);
    l->txn = NULL;
    return rc != 0 ? rc : mdb_txn_begin(l->store->env, NULL, 0, &l->txn);
}

static int take_lines(struct load *l, FILE *from)
{
    char *line = NULL;
    size_t bytes = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&line, &bytes, from)) >= 0) {
        l->number++;
        if (n > 0 && line[n - 1] == '\n') line[--n] = '\0';
        rc = (size_t)n == strlen(line) ? take_line(l, line) : EINVAL;
        if (rc == 0) rc = next_txn(l);
    }
    free(line);
    if (rc == 0 && ferror(from)) return EIO;
    return rc == 0 && l->part != AT_END ? ENODATA : rc;
}

/* Check the whole store. If the store has fewer records than the text, two lines had
 * the same name. */
static int check_loaded(const struct load *l, char *why, size_t why_bytes)
{
    struct sl_store_counts c;
    int status = sl_store_check(l->store, &c, why, why_bytes);
    if (status == SLUICE_OK && c.keys + c.requests + c.barred == l->records)
        return SLUICE_OK;
    if (status == SLUICE_OK)
        snprintf(why, why_bytes, "the input contains a record twice");
    return status == SLUICE_OK || status == SLUICE_ETRUNCATED ? SLUICE_EINVAL : status;
}

static int explain(const struct load *l, int rc, char *why, size_t why_bytes)
{
    switch (rc) {
        case ENODATA:
            snprintf(why, why_bytes,
                     "the input is incomplete: its last line, \"end\", is missing");
            break;
        case EINVAL:
            snprintf(why, why_bytes, "line %" PRIu64 " of the input is invalid",
                     l->number);
            break;
        case MDB_VERSION_MISMATCH:
            snprintf(why, why_bytes,
                     "the dump was made by another version of Sluice; load it with "
                     "that version");
            break;
        default: snprintf(why, why_bytes, "%s", mdb_strerror(rc));
    }
    if (rc == EINVAL || rc == ENODATA) return SLUICE_EINVAL;
    return sl_store_status(rc);
}

int offline_store_read_text(const struct sl_store *s, FILE *from, char *why,
                            size_t why_bytes)
{
    struct load l = {.store = s};
    int rc = mdb_txn_begin(s->env, NULL, 0, &l.txn);
    if (rc != 0) return explain(&l, rc, why, why_bytes);
    rc = take_lines(&l, from);
    if (rc == 0) rc = mdb_txn_commit(l.txn);
    else mdb_txn_abort(l.txn);
    return rc == 0 ? check_loaded(&l, why, why_bytes) : explain(&l, rc, why, why_bytes);
}
