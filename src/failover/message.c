/* message.c - writes and reads messages, by a table of their fields. */
#include "failover/message.h"

#include <assert.h>
#include <string.h>

#include "base/number.h"
#include "failover/record.h"

static const struct message_kind {
    const char *name; /* As on the wire. */
    const char *fields;
} kinds[SL_FAILOVER_MESSAGE_COUNT] = {
#define MESSAGE(type, fields) [SL_FAILOVER_##type] = {"R." #type, fields},
    SL_FAILOVER_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
};

/* Return the number of arguments of a message, without its name. */
static size_t count_arguments(const char *fields, size_t gone_count)
{
    size_t n = 0;
    for (; *fields != '\0'; fields++)
        n += *fields == 'r' ? SL_RECORD_FIELDS : *fields == 'g' ? gone_count : 1;
    return n;
}

static void write_field(struct sl_resp_writer *w, char field,
                        const struct sl_failover_message *m)
{
    switch (field) {
        case 't': sl_resp_decimal(w, (int64_t)m->term); break;
        case 's': sl_resp_decimal(w, (int64_t)m->session); break;
        case 'm': sl_resp_decimal(w, m->ms); break;
        case 'y': sl_resp_decimal(w, m->yes ? 1 : 0); break;
        case 'l': sl_resp_decimal(w, m->last ? 1 : 0); break;
        case 'w': sl_resp_decimal(w, m->what); break;
        case 'x': sl_resp_decimal(w, (int64_t)m->tx); break;
        case 'o': sl_resp_decimal(w, (int64_t)m->origin); break;
        case 'f': sl_resp_decimal(w, (int64_t)m->fence); break;
        case 'v': sl_resp_decimal(w, m->sight); break;
        case 'k': sl_resp_bulk(w, m->key); break;
        case 'n': sl_resp_bulk(w, m->name); break;
        case 'a': sl_resp_bulk(w, m->address); break;
        case 'c': sl_resp_bulk(w, m->channel); break;
        case 'b': sl_resp_bulk(w, m->bytes); break;
        case 'r': sl_record_write(w, m->key, &m->grant); break;
        case 'g':
            for (size_t i = 0; i < m->gone_count; i++)
                sl_resp_decimal(w, (int64_t)m->gone[i]);
            break;
        default: assert(false && "every field has a letter");
    }
}

void sl_failover_write(struct sl_resp_writer *w, const struct sl_failover_message *m)
{
    assert(m->type > SL_FAILOVER_NONE && m->type < SL_FAILOVER_MESSAGE_COUNT);
    const struct message_kind *kind = &kinds[m->type];
    assert(m->gone_count <= SL_GONE_MAX);
    sl_resp_array(w, 1 + count_arguments(kind->fields, m->gone_count));
    sl_resp_text(w, kind->name);
    for (const char *field = kind->fields; *field != '\0'; field++)
        write_field(w, *field, m);
}

bool sl_failover_is_message(const struct sl_args *a)
{
    return a->at[0].n > 2 && memcmp(a->at[0].at, "R.", 2) == 0;
}

static bool read_number(struct sl_bytes b, uint64_t *out)
{
    return sl_parse_u64(b, SL_FENCE_MAX, out);
}

static bool read_yes(struct sl_bytes b, bool *out)
{
    uint64_t n;
    if (!read_number(b, &n)) return false;
    *out = n == 1;
    return true;
}

static bool read_gone(const struct sl_bytes *at, size_t n, sl_fence *gone,
                      struct sl_failover_message *m)
{
    for (size_t i = 0; i < n; i++)
        if (!read_number(at[i], &gone[i])) return false;
    m->gone = gone;
    m->gone_count = n;
    return true;
}

/* Read a field that is one argument. */
static bool read_field(struct sl_bytes b, char field, struct sl_failover_message *m)
{
    uint64_t n;
    switch (field) {
        case 't': return read_number(b, &m->term);
        case 's': return read_number(b, &m->session);
        case 'x': return read_number(b, &m->tx);
        case 'o': return read_number(b, &m->origin);
        case 'f': return read_number(b, &m->fence);
        case 'y': return read_yes(b, &m->yes);
        case 'l': return read_yes(b, &m->last);
        case 'm':
            if (!read_number(b, &n)) return false;
            m->ms = (sl_ms)n;
            return true;
        case 'w':
            if (!sl_parse_u64(b, UINT32_MAX, &n)) return false;
            m->what = (uint32_t)n;
            return true;
        case 'v':
            if (!sl_parse_u64(b, SL_PEER_CLOSED, &n)) return false;
            m->sight = (enum sl_peer_state)n;
            return true;
        case 'k': m->key = b; return true;
        case 'n': m->name = b; return true;
        case 'a': m->address = b; return true;
        case 'c': m->channel = b; return true;
        case 'b': m->bytes = b; return true;
        default: assert(false && "every field has a letter"); return false;
    }
}

static enum sl_failover_message_type type_of(struct sl_bytes name)
{
    enum sl_failover_message_type type = SL_FAILOVER_NONE + 1;
    while (type < SL_FAILOVER_MESSAGE_COUNT) {
        const char *wanted = kinds[type].name;
        if (strlen(wanted) == name.n && memcmp(wanted, name.at, name.n) == 0)
            return type;
        type++;
    }
    return SL_FAILOVER_NONE;
}

bool sl_failover_read(const struct sl_args *a, sl_fence gone[SL_GONE_MAX],
                      struct sl_failover_message *m)
{
    *m = (struct sl_failover_message){.type = type_of(a->at[0])};
    if (m->type == SL_FAILOVER_NONE) return false;
    const char *fields = kinds[m->type].fields;
    size_t gone_count = m->type == SL_FAILOVER_GONE ? a->n - 1 : 0, at = 1;
    if (gone_count > SL_GONE_MAX || a->n != 1 + count_arguments(fields, gone_count))
        return false;
    for (; *fields != '\0'; fields++) {
        bool good;
        if (*fields == 'r') {
            good = sl_record_read(a->at + at, &m->grant, &m->key);
            at += SL_RECORD_FIELDS;
        } else if (*fields == 'g') good = read_gone(a->at + at, gone_count, gone, m);
        else good = read_field(a->at[at++], *fields, m);
        if (!good) return false;
    }
    return true;
}

void sl_noted_client_keep(struct sl_noted_client *n,
                          const struct sl_failover_message *m)
{
    struct sl_bytes name = m->name, address = m->address;
    n->name_bytes = n->address_bytes = 0;
    if (name.n + address.n > sizeof n->text) return;
    memcpy(n->text, name.at, name.n);
    memcpy(n->text + name.n, address.at, address.n);
    n->name_bytes = name.n;
    n->address_bytes = address.n;
}

void sl_noted_client_take(struct sl_noted_client *n, struct sl_grant_view *v)
{
    v->name = (struct sl_bytes){n->text, n->name_bytes};
    v->address = (struct sl_bytes){n->text + n->name_bytes, n->address_bytes};
    n->name_bytes = n->address_bytes = 0;
}
