#include "majority/membership.h"

#include <string.h>

int sl_membership_find(const struct sl_membership *l, sl_node_id id)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->at[i].id == id) return (int)i;
    return -1;
}

uint32_t sl_membership_majority(const struct sl_membership *l)
{
    return l->count / 2 + 1;
}

bool sl_membership_equal(const struct sl_membership *a, const struct sl_membership *b)
{
    if (a->version != b->version || a->cluster != b->cluster || a->count != b->count ||
        a->added != b->added)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->at[i].id != b->at[i].id || a->at[i].birth != b->at[i].birth ||
            strcmp(a->at[i].address, b->at[i].address) != 0)
            return false;
    return true;
}

static bool refuse(const char **why, const char *text)
{
    *why = text;
    return false;
}

/* Whether a text is a host, a colon and a port. It must not contain spaces or
 * commas, because addresses are written in lists. */
static bool is_address(const char *text)
{
    size_t n = strlen(text);
    const char *colon = strrchr(text, ':');
    if (n >= SL_ADDRESS_BYTES || colon == NULL || colon == text || colon[1] == '\0')
        return false;
    if (strlen(colon + 1) > 5 || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr(",=|", text[i]) != NULL)
            return false;
    return true;
}

bool sl_membership_add(const struct sl_membership *l, sl_node_id id,
                       const char *address, struct sl_membership *out, const char **why)
{
    if (id == 0 || id > SL_NODE_ID_MAX)
        return refuse(why, "the node id must be an integer from 1 to 15");
    if (!is_address(address))
        return refuse(why,
                      "the address must be host:port, with the node-port of the node");
    if (sl_membership_find(l, id) >= 0)
        return refuse(why, "this node is already a member");
    if (l->count >= SL_NODES_MAX)
        return refuse(why, "a cluster has at most 9 nodes; remove one first");
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->at[i].address, address) == 0)
            return refuse(why, "another member has this address");
    uint32_t at = 0;
    *out = *l;
    while (at < l->count && l->at[at].id < id) at++;
    memmove(&out->at[at + 1], &out->at[at], (l->count - at) * sizeof *out->at);
    memset(&out->at[at], 0, sizeof *out->at);
    out->at[at].id = id;
    memcpy(out->at[at].address, address, strlen(address) + 1);
    out->count++;
    out->version++;
    out->added = id;
    return true;
}

bool sl_membership_remove(const struct sl_membership *l, sl_node_id id,
                          struct sl_membership *out, const char **why)
{
    int at = sl_membership_find(l, id);
    if (at < 0) return refuse(why, "this node is not a member");
    if (l->count == 1) return refuse(why, "the last node cannot be removed");
    *out = *l;
    memmove(&out->at[at], &out->at[at + 1],
            (l->count - (uint32_t)at - 1) * sizeof *out->at);
    out->count--;
    memset(&out->at[out->count], 0, sizeof *out->at);
    out->version++;
    out->added = 0;
    return true;
}

bool sl_membership_follow(const struct sl_membership *a, const struct sl_membership *b)
{
    struct sl_membership step;
    const char *why;
    if (b->version != a->version + 1 || b->count > SL_NODES_MAX) return false;
    if (b->count == a->count + 1) {
        int at = sl_membership_find(b, b->added);
        if (at < 0 || !sl_membership_add(a, b->added, b->at[at].address, &step, &why))
            return false;
        step.at[at].birth = b->at[at].birth;
        return sl_membership_equal(&step, b);
    }
    if (b->count + 1 != a->count || b->added != 0) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (sl_membership_find(b, a->at[i].id) < 0)
            return sl_membership_remove(a, a->at[i].id, &step, &why) &&
                   sl_membership_equal(&step, b);
    return false;
}

bool sl_membership_is_valid(const struct sl_membership *l)
{
    if (l->count > SL_NODES_MAX || (l->version == 0) != (l->count == 0)) return false;
    if (l->added != 0 && sl_membership_find(l, l->added) < 0) return false;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct sl_member *m = &l->at[i];
        if (m->id == 0 || m->id > SL_NODE_ID_MAX || m->address[0] == '\0') return false;
        if (memchr(m->address, '\0', SL_ADDRESS_BYTES) == NULL) return false;
        if (i > 0 && l->at[i - 1].id >= m->id) return false;
    }
    return true;
}

int sl_ballot_compare(struct sl_ballot a, struct sl_ballot b)
{
    if (a.number != b.number) return a.number < b.number ? -1 : 1;
    if (a.id != b.id) return a.id < b.id ? -1 : 1;
    return 0;
}
