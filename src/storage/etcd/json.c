/* json.c - writes requests and reads answers in the JSON of etcd's gateway. In this
 * JSON, bytes are base64, 64-bit numbers are strings, and fields that are 0 or empty
 * are absent. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

/* --- Text -------------------------------------------------------------------- */

void sl_etcd_text_clear(struct sl_etcd_text *t)
{
    t->n = 0;
    t->failed = false;
}

void sl_etcd_text_free(struct sl_etcd_text *t)
{
    free(t->at);
    memset(t, 0, sizeof *t);
}

/* Allocate memory for this many more bytes and a '\0'. */
static bool reserve(struct sl_etcd_text *t, size_t more)
{
    size_t capacity = t->capacity > 0 ? t->capacity : 1024;
    if (t->failed) return false;
    if (t->n + more < t->capacity) return true;
    while (capacity <= t->n + more) capacity *= 2;
    char *at = realloc(t->at, capacity);
    if (at == NULL) {
        t->failed = true;
        return false;
    }
    t->at = at;
    t->capacity = capacity;
    return true;
}

void sl_etcd_text_add(struct sl_etcd_text *t, const char *more)
{
    size_t n = strlen(more);
    if (!reserve(t, n)) return;
    memcpy(t->at + t->n, more, n + 1);
    t->n += n;
}

static void add_base64(struct sl_etcd_text *t, const char *name, struct sl_bytes b)
{
    sl_etcd_text_add(t, "\"");
    sl_etcd_text_add(t, name);
    sl_etcd_text_add(t, "\":\"");
    if (!reserve(t, sl_etcd_base64_bytes(b.n))) return;
    sl_etcd_base64_write(t->at + t->n, b);
    t->n += strlen(t->at + t->n);
    sl_etcd_text_add(t, "\"");
}

static void add_key(struct sl_etcd_text *t, const char *name,
                    const struct sl_etcd_key *k)
{
    add_base64(t, name, (struct sl_bytes){k->at, k->n});
}

static void add_number(struct sl_etcd_text *t, const char *name, uint64_t number)
{
    char field[80];
    snprintf(field, sizeof field, ",\"%s\":\"%" PRIu64 "\"", name, number);
    sl_etcd_text_add(t, field);
}

/* Add a comma, unless a list has just begun. */
static void next(struct sl_etcd_text *t)
{
    if (!t->failed && t->n > 0 && t->at[t->n - 1] != '[') sl_etcd_text_add(t, ",");
}

/* --- Keys -------------------------------------------------------------------- */

static void add_to_key(struct sl_etcd_key *k, struct sl_bytes b)
{
    assert(b.n <= sizeof k->at - k->n); /* Callers have checked the lengths of names. */
    memcpy(k->at + k->n, b.at, b.n);
    k->n += b.n;
}

void sl_etcd_key_of(const struct sl_etcd *e, struct sl_etcd_key *k, const char *name)
{
    k->n = 0;
    add_to_key(k, e->prefix);
    add_to_key(k, (struct sl_bytes){name, strlen(name)});
}

void sl_etcd_key_data(const struct sl_etcd *e, struct sl_etcd_key *k,
                      struct sl_bytes table, struct sl_bytes key)
{
    char n[2] = {(char)(table.n >> 8), (char)(table.n & 0xff)};
    sl_etcd_key_of(e, k, "d/");
    add_to_key(k, (struct sl_bytes){n, 2});
    if (table.n > 0) add_to_key(k, table);
    if (key.n > 0) add_to_key(k, key);
}

void sl_etcd_key_journal(const struct sl_etcd *e, struct sl_etcd_key *k,
                         struct sl_bytes key)
{
    sl_etcd_key_of(e, k, "journal/");
    if (key.n > 0) add_to_key(k, key);
}

void sl_etcd_key_request(const struct sl_etcd *e, struct sl_etcd_key *k,
                         struct sl_bytes request)
{
    sl_etcd_key_of(e, k, "r/");
    add_to_key(k, request);
}

void sl_etcd_key_bar(const struct sl_etcd *e, struct sl_etcd_key *k, uint64_t term,
                     uint64_t id)
{
    char name[64];
    snprintf(name, sizeof name, "b/%016" PRIx64 "/%016" PRIx64, term, id);
    sl_etcd_key_of(e, k, name);
}

void sl_etcd_key_slot(const struct sl_etcd *e, struct sl_etcd_key *k, uint32_t slot)
{
    char name[64];
    snprintf(name, sizeof name, "g/%s/%02" PRIx32, e->nonce, slot);
    sl_etcd_key_of(e, k, name);
}

void sl_etcd_key_part(const struct sl_etcd *e, struct sl_etcd_key *k, uint32_t slot,
                      uint32_t i)
{
    char name[16];
    snprintf(name, sizeof name, "/%04" PRIx32, i);
    sl_etcd_key_slot(e, k, slot);
    add_to_key(k, (struct sl_bytes){name, strlen(name)});
}

/* --- Transactions ------------------------------------------------------------ */

void sl_etcd_txn_begin(struct sl_etcd_text *t)
{
    sl_etcd_text_add(t, "{\"compare\":[");
}

void sl_etcd_txn_then(struct sl_etcd_text *t)
{
    sl_etcd_text_add(t, "],\"success\":[");
}

void sl_etcd_txn_else(struct sl_etcd_text *t)
{
    sl_etcd_text_add(t, "],\"failure\":[");
}

void sl_etcd_txn_end(struct sl_etcd_text *t)
{
    sl_etcd_text_add(t, "]}");
}

void sl_etcd_txn_inner(struct sl_etcd_text *t)
{
    next(t);
    sl_etcd_text_add(t, "{\"request_txn\":");
    sl_etcd_txn_begin(t);
}

void sl_etcd_txn_inner_end(struct sl_etcd_text *t)
{
    sl_etcd_txn_end(t);
    sl_etcd_text_add(t, "}");
}

static void begin_if(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                     const char *target, const char *result)
{
    next(t);
    sl_etcd_text_add(t, "{");
    add_key(t, "key", k);
    sl_etcd_text_add(t, ",\"target\":\"");
    sl_etcd_text_add(t, target);
    sl_etcd_text_add(t, "\",\"result\":\"");
    sl_etcd_text_add(t, result);
    sl_etcd_text_add(t, "\"");
}

void sl_etcd_if_absent(struct sl_etcd_text *t, const struct sl_etcd_key *k)
{
    begin_if(t, k, "CREATE", "EQUAL");
    add_number(t, "create_revision", 0);
    sl_etcd_text_add(t, "}");
}

void sl_etcd_if_revision(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                         uint64_t revision)
{
    begin_if(t, k, "MOD", "EQUAL");
    add_number(t, "mod_revision", revision);
    sl_etcd_text_add(t, "}");
}

void sl_etcd_if_value(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                      const char *result, struct sl_bytes value)
{
    begin_if(t, k, "VALUE", result);
    sl_etcd_text_add(t, ",");
    add_base64(t, "value", value);
    sl_etcd_text_add(t, "}");
}

/* Compare the term. The value of the key "keeper" begins with the term and a space. All
 * such values, and no others, sort between the two texts in these comparisons. */
void sl_etcd_if_term(struct sl_etcd_text *t, const struct sl_etcd *e, uint64_t term)
{
    struct sl_etcd_key k;
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRIu64 " ", term);
    sl_etcd_key_of(e, &k, "keeper");
    sl_etcd_if_value(t, &k, "GREATER", (struct sl_bytes){text, (size_t)n});
    text[n - 1] = ' ' + 1;
    sl_etcd_if_value(t, &k, "LESS", (struct sl_bytes){text, (size_t)n});
}

void sl_etcd_op_put(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                    struct sl_bytes value, int64_t lease)
{
    next(t);
    sl_etcd_text_add(t, "{\"request_put\":{");
    add_key(t, "key", k);
    sl_etcd_text_add(t, ",");
    add_base64(t, "value", value);
    if (lease != 0) add_number(t, "lease", (uint64_t)lease);
    sl_etcd_text_add(t, "}}");
}

void sl_etcd_op_delete(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                       const struct sl_etcd_key *end)
{
    next(t);
    sl_etcd_text_add(t, "{\"request_delete_range\":{");
    add_key(t, "key", k);
    if (end != NULL) {
        sl_etcd_text_add(t, ",");
        add_key(t, "range_end", end);
    }
    sl_etcd_text_add(t, "}}");
}

void sl_etcd_op_range(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                      const struct sl_etcd_key *end, enum sl_etcd_range what)
{
    next(t);
    sl_etcd_text_add(t, "{\"request_range\":{");
    add_key(t, "key", k);
    if (end != NULL) {
        sl_etcd_text_add(t, ",");
        add_key(t, "range_end", end);
    }
    if (what == SL_ETCD_RANGE_KEYS) sl_etcd_text_add(t, ",\"keys_only\":true");
    if (what == SL_ETCD_RANGE_COUNT) sl_etcd_text_add(t, ",\"count_only\":true");
    sl_etcd_text_add(t, "}}");
}

void sl_etcd_op_read_term(struct sl_etcd_text *t, const struct sl_etcd *e)
{
    struct sl_etcd_key k, end;
    sl_etcd_key_of(e, &k, "keeper");
    /* Sorts after all keys that begin with "keeper/". */
    sl_etcd_key_of(e, &end, "keeper0");
    sl_etcd_op_range(t, &k, &end, SL_ETCD_RANGE_ALL);
}

/* --- Reading ----------------------------------------------------------------- */

json_t *sl_etcd_json_of(struct sl_bytes b)
{
    return json_loadb(b.at, b.n, 0, NULL);
}

uint64_t sl_etcd_json_number(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    if (json_is_string(v)) return strtoull(json_string_value(v), NULL, 10);
    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : 0;
}

bool sl_etcd_json_succeeded(const json_t *o)
{
    return json_is_true(json_object_get(o, "succeeded"));
}

uint64_t sl_etcd_json_revision(const json_t *answer)
{
    return sl_etcd_json_number(json_object_get(answer, "header"), "revision");
}

static const json_t *response(const json_t *txn, size_t i, const char *name)
{
    return json_object_get(json_array_get(json_object_get(txn, "responses"), i), name);
}

const json_t *sl_etcd_json_keys(const json_t *txn, size_t i)
{
    return json_object_get(response(txn, i, "response_range"), "kvs");
}

uint64_t sl_etcd_json_count(const json_t *txn, size_t i)
{
    return sl_etcd_json_number(response(txn, i, "response_range"), "count");
}

const json_t *sl_etcd_json_inner(const json_t *txn, size_t i)
{
    return response(txn, i, "response_txn");
}

void sl_etcd_json_text(const json_t *kv, char *out, size_t out_bytes)
{
    const char *value = json_string_value(json_object_get(kv, "value"));
    char bytes[400];
    size_t n = 0;
    out[0] = '\0';
    if (value == NULL || strlen(value) >= sizeof bytes) return;
    if (!sl_etcd_base64_read(value, bytes, &n)) return;
    if (n >= out_bytes) n = out_bytes - 1;
    memcpy(out, bytes, n);
    out[n] = '\0';
}

bool sl_etcd_json_is(const json_t *kv, const struct sl_etcd_key *k)
{
    const char *key = json_string_value(json_object_get(kv, "key"));
    char wanted[SL_ETCD_KEY_MAX * 4 / 3 + 8];
    if (key == NULL) return false;
    sl_etcd_base64_write(wanted, (struct sl_bytes){k->at, k->n});
    return strcmp(key, wanted) == 0;
}

/* Read the value of "keeper". A new term has no ledgers, and is not resigned. Versions
 * before the journal wrote no clock. */
static void read_keeper(const json_t *kv, struct sl_storage_term *out,
                        char nonce[SL_ETCD_NONCE_BYTES])
{
    char value[200], whose[SL_ETCD_NONCE_BYTES] = "";
    sl_etcd_json_text(kv, value, sizeof value);
    out->clock_ms = 0;
    out->ledgers = 0;
    out->resigned = false;
    sscanf(value, "%" SCNu64 " %" SCNu32 " %39s %" SCNd64, &out->term, &out->node,
           whose, &out->clock_ms);
    if (nonce != NULL) memcpy(nonce, whose, sizeof whose);
}

/* Read the value of "keeper/beat". A claim does not change this key, so it may still
 * have the clock and the marks of an earlier term; or those of no term, if an older
 * version wrote it. */
static void read_beat(const json_t *kv, struct sl_storage_term *out)
{
    char value[200];
    uint64_t term = 0;
    sl_ms clock_ms = 0;
    uint32_t ledgers = 0;
    unsigned resigned = 0;
    sl_etcd_json_text(kv, value, sizeof value);
    sscanf(value, "%*u %" SCNu64 " %" SCNd64 " %" SCNu64 " %" SCNd64 " %" SCNu32 " %u",
           &out->fence_limit, &out->longest_ms, &term, &clock_ms, &ledgers, &resigned);
    out->heartbeat = sl_etcd_json_number(kv, "mod_revision");
    if (term == 0 || term != out->term) return;
    out->clock_ms = clock_ms;
    out->ledgers = ledgers;
    out->resigned = resigned != 0;
}

void sl_etcd_json_term_key(const struct sl_etcd *e, const json_t *kv,
                           struct sl_storage_term *out, char nonce[SL_ETCD_NONCE_BYTES])
{
    struct sl_etcd_key keeper, heartbeat;
    sl_etcd_key_of(e, &keeper, "keeper");
    sl_etcd_key_of(e, &heartbeat, "keeper/beat");
    if (sl_etcd_json_is(kv, &keeper)) read_keeper(kv, out, nonce);
    if (sl_etcd_json_is(kv, &heartbeat)) read_beat(kv, out);
}

void sl_etcd_json_beat(const struct sl_etcd *e, const json_t *keys,
                       struct sl_storage_term *out)
{
    struct sl_etcd_key heartbeat;
    sl_etcd_key_of(e, &heartbeat, "keeper/beat");
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *kv = json_array_get(keys, i);
        if (sl_etcd_json_is(kv, &heartbeat)) read_beat(kv, out);
    }
}

/* etcd returns keys in order, so "keeper" comes before "keeper/beat". */
void sl_etcd_json_term(const struct sl_etcd *e, const json_t *keys,
                       struct sl_storage_term *out, char nonce[SL_ETCD_NONCE_BYTES])
{
    memset(out, 0, sizeof *out);
    if (nonce != NULL) nonce[0] = '\0';
    for (size_t i = 0; i < json_array_size(keys); i++)
        sl_etcd_json_term_key(e, json_array_get(keys, i), out, nonce);
}
