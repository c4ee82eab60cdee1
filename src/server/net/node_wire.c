#include "server/net/node_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "majority/membership.h"
#include "server/net/membership_text.h"

/* --- The arguments that each letter stands for --------------------------- */

enum kind { NOTHING, U64, U32, I32, MS, BYTES, VERDICT, LIST };

/* The description of one argument. */
struct part {
    enum kind kind;
    size_t offset;
    uint64_t max; /* The maximum of U64 and U32. */
};

struct letter {
    struct part parts[2];
};

#define AT(field) offsetof(struct sl_message, field)
#define NUMBER64(field)            \
    {                              \
        U64, AT(field), UINT64_MAX \
    }
#define FENCE(field)                 \
    {                                \
        U64, AT(field), SL_FENCE_MAX \
    }
#define BALLOT(field)                         \
    {                                         \
        NUMBER64(field.number),               \
        {                                     \
            U32, AT(field.id), SL_NODE_ID_MAX \
        }                                     \
    }
#define FLAGS_MAX 0x7ffff

static const struct letter letters[128] = {
    ['r'] = {{NUMBER64(round)}},
    ['k'] = {{{BYTES, AT(key), 0}}},
    ['o'] = {{NUMBER64(owner.epoch), NUMBER64(owner.number)}},
    ['f'] = {{FENCE(fence)}},
    ['L'] = {{{MS, AT(lease_ms), 0}}},
    ['p'] = {{{I32, AT(priority), 0}}},
    ['F'] = {{{U32, AT(flags), FLAGS_MAX}}},
    ['v'] = {{{BYTES, AT(value), 0}}},
    ['n'] = {{{BYTES, AT(note), 0}}},
    ['i'] = {{{BYTES, AT(client), 0}}},
    ['q'] = {{{BYTES, AT(request), 0}}},
    ['d'] = {{NUMBER64(digest)}},
    ['w'] = {{{MS, AT(waited_ms), 0}}},
    ['s'] = {{FENCE(stamp)}},
    ['V'] = {{{VERDICT, AT(verdict), 0}}},
    ['c'] = {{FENCE(ceiling)}},
    ['l'] = {{{MS, AT(left_ms), 0}}},
    ['P'] = {{{I32, AT(wanted), 0}}},
    ['b'] = {BALLOT(ballot)},
    ['B'] = {BALLOT(ballot2)},
    ['m'] = {{{LIST, AT(list), 0}}},
    ['u'] = {{NUMBER64(which)}},
};

/* The arguments that all types have. */
static const struct part common[] = {
    NUMBER64(cluster),    NUMBER64(version),     NUMBER64(epoch),
    {MS, AT(sent_ms), 0}, NUMBER64(heard_epoch), {MS, AT(heard_ms), 0},
    NUMBER64(wall_us),
};
#define COMMON (sizeof common / sizeof *common)

/* List the arguments of a type after its name. Returns their number. */
#define PARTS_MAX 32
static size_t parts_of(enum sl_message_type type, const struct part *out[PARTS_MAX])
{
    size_t n = 0;
    for (; n < COMMON; n++) out[n] = &common[n];
    for (const char *f = sl_message_fields(type); *f != '\0'; f++) {
        const struct letter *l = &letters[(unsigned char)*f & 127];
        for (size_t i = 0; i < 2 && l->parts[i].kind != NOTHING; i++)
            if (n < PARTS_MAX) out[n++] = &l->parts[i];
    }
    return n;
}

/* --- Writing ---------------------------------------------------------------- */

static void write_number(struct sl_resp_writer *w, uint64_t n, bool negative)
{
    char text[24], *at = text + sizeof text;
    do *--at = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    if (negative) *--at = '-';
    sl_resp_bulk(w, (struct sl_bytes){at, (size_t)(text + sizeof text - at)});
}

/* Births come before the members, in the same order, because people write members without
 * births. */
#define LIST_TEXT (SL_MEMBERS_TEXT + 64 + SL_NODES_MAX * 21)

static size_t list_text(const struct sl_membership *list, char out[LIST_TEXT])
{
    int n = snprintf(out, LIST_TEXT, "%llu:%llu:%u:", (unsigned long long)list->version,
                     (unsigned long long)list->cluster, list->added);
    for (uint32_t i = 0; i < list->count; i++)
        n += snprintf(out + n, (size_t)(LIST_TEXT - n),
                      "%llu:", (unsigned long long)list->at[i].birth);
    return (size_t)n + sl_membership_write(list, out + n);
}

static void write_list(struct sl_resp_writer *w, const struct sl_membership *list)
{
    char text[LIST_TEXT];
    sl_resp_bulk(w, (struct sl_bytes){text, list_text(list, text)});
}

static void write_part(struct sl_resp_writer *w, const struct part *p, const void *at)
{
    int64_t n = p->kind == I32  ? *(const int32_t *)at
                : p->kind == MS ? *(const sl_ms *)at
                                : 0;
    switch (p->kind) {
        case NOTHING: break;
        case U64: write_number(w, *(const uint64_t *)at, false); break;
        case U32: write_number(w, *(const uint32_t *)at, false); break;
        case I32:
        case MS: write_number(w, n < 0 ? -(uint64_t)n : (uint64_t)n, n < 0); break;
        case BYTES: sl_resp_bulk(w, *(const struct sl_bytes *)at); break;
        case VERDICT: {
            const char *name = sl_vote_verdict_name(*(const enum sl_vote_verdict *)at);
            sl_resp_text(w, name != NULL ? name : "");
            break;
        }
        case LIST: write_list(w, at); break;
    }
}

void sl_message_write(struct sl_resp_writer *w, const struct sl_message *m)
{
    const struct part *parts[PARTS_MAX];
    if (sl_message_name(m->type) == NULL) return;
    size_t n = parts_of(m->type, parts);
    sl_resp_array(w, 1 + n);
    sl_resp_text(w, sl_message_name(m->type));
    for (size_t i = 0; i < n; i++)
        write_part(w, parts[i], (const char *)m + parts[i]->offset);
}

/* --- Reading ---------------------------------------------------------------- */

static bool same(struct sl_bytes argument, const char *text)
{
    return strlen(text) == argument.n && memcmp(argument.at, text, argument.n) == 0;
}

/* Parse a number of at most max, exactly as write_number() writes it. */
static bool read_number(struct sl_bytes argument, uint64_t max, uint64_t *out)
{
    return sl_parse_u64(argument, max, out) &&
           (argument.at[0] != '0' || argument.n == 1);
}

static bool read_i32(struct sl_bytes argument, int32_t *out)
{
    uint64_t n;
    bool negative = argument.n > 0 && argument.at[0] == '-';
    if (negative) argument.at++, argument.n--;
    if (!read_number(argument, negative ? 1ull << 31 : INT32_MAX, &n)) return false;
    *out = (int32_t)(negative ? -(int64_t)n : (int64_t)n);
    return !negative || n != 0;
}

static bool read_verdict(struct sl_bytes argument, enum sl_vote_verdict *out)
{
    for (int v = SL_VERDICT_NONE + 1; v < SL_VERDICT_COUNT; v++) {
        *out = (enum sl_vote_verdict)v;
        if (same(argument, sl_vote_verdict_name(*out))) return true;
    }
    return false;
}

/* Remove a number and a colon from the front of the text. */
static bool cut_number(struct sl_bytes *text, uint64_t max, uint64_t *out)
{
    const char *colon = text->n > 0 ? memchr(text->at, ':', text->n) : NULL;
    if (colon == NULL) return false;
    struct sl_bytes number = {text->at, (size_t)(colon - text->at)};
    *text = (struct sl_bytes){colon + 1, text->n - number.n - 1};
    return read_number(number, max, out);
}

static bool read_list(struct sl_bytes argument, struct sl_membership *out)
{
    struct sl_bytes rest = argument, where;
    uint64_t version, cluster, added, births[SL_NODES_MAX];
    size_t count = 0;
    char again[LIST_TEXT];
    *out = (struct sl_membership){0};
    if (!cut_number(&rest, UINT64_MAX, &version) ||
        !cut_number(&rest, UINT64_MAX, &cluster) ||
        !cut_number(&rest, SL_NODE_ID_MAX, &added))
        return false;
    /* The first number followed by "=" begins the list. */
    while (count < SL_NODES_MAX) {
        struct sl_bytes before = rest;
        if (!cut_number(&rest, UINT64_MAX, &births[count])) {
            rest = before;
            break;
        }
        count++;
    }
    if (rest.n > 0 && sl_membership_read(out, rest, &where) != NULL) return false;
    if (out->count != count || (version == 0) != (count == 0)) return false;
    if (version == 0 && cluster != 0) return false;
    out->version = version;
    out->cluster = cluster;
    out->added = (sl_node_id)added;
    for (size_t i = 0; i < count; i++) out->at[i].birth = births[i];
    if (added != 0 && sl_membership_find(out, out->added) < 0) return false;
    /* Accept only one text for each membership: the one that list_text() writes. */
    return list_text(out, again) == argument.n &&
           memcmp(again, argument.at, argument.n) == 0;
}

static bool read_part(const struct part *p, struct sl_bytes argument, void *at)
{
    uint64_t n = 0;
    bool good;
    switch (p->kind) {
        case NOTHING: return false;
        case U64: return read_number(argument, p->max, at);
        case U32:
            good = read_number(argument, p->max, &n);
            *(uint32_t *)at = (uint32_t)n;
            return good;
        case I32: return read_i32(argument, at);
        case MS:
            good = read_number(argument, INT64_MAX, &n);
            *(sl_ms *)at = (sl_ms)n;
            return good;
        case BYTES: *(struct sl_bytes *)at = argument; return true;
        case VERDICT: return read_verdict(argument, at);
        case LIST: return read_list(argument, at);
    }
    return false;
}

static enum sl_message_type type_of(struct sl_bytes argument)
{
    for (int t = SL_MESSAGE_NONE + 1; t < SL_MESSAGE_COUNT; t++)
        if (same(argument, sl_message_name((enum sl_message_type)t)))
            return (enum sl_message_type)t;
    return SL_MESSAGE_NONE;
}

bool sl_message_read(struct sl_message *m, const struct sl_bytes *at, size_t n)
{
    const struct part *parts[PARTS_MAX];
    *m = (struct sl_message){.type = n > 0 ? type_of(at[0]) : SL_MESSAGE_NONE};
    if (m->type == SL_MESSAGE_NONE || parts_of(m->type, parts) != n - 1) return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (!read_part(parts[i], at[i + 1], (char *)m + parts[i]->offset)) return false;
    return true;
}
