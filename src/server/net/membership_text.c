#include "server/net/membership_text.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

#define TEXT_OF(number) TEXT_OF_IT(number)
#define TEXT_OF_IT(number) #number

/* --- Addresses ------------------------------------------------------------ */

static bool is_letter_or_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool all_of(struct sl_bytes text, const char *others)
{
    for (size_t i = 0; i < text.n; i++)
        if (!is_letter_or_digit(text.at[i]) &&
            (text.at[i] == '\0' || strchr(others, text.at[i]) == NULL))
            return false;
    return text.n > 0;
}

/* Parse a number from 1 to max without leading zeros. Returns 0 if it is invalid. */
static uint32_t read_number(struct sl_bytes text, uint32_t max)
{
    uint64_t n;
    return sl_parse_u64(text, max, &n) && text.at[0] != '0' ? (uint32_t)n : 0;
}

/* Return the position of the colon before the port; text.n: none. */
static size_t last_colon(struct sl_bytes text)
{
    for (size_t i = text.n; i > 0; i--)
        if (text.at[i - 1] == ':') return i - 1;
    return text.n;
}

const char *sl_address_wrong(struct sl_bytes a)
{
    size_t colon = last_colon(a);
    struct sl_bytes host = {a.at, colon};
    if (a.n >= SL_ADDRESS_BYTES)
        return "the address is too long; the limit is 71 bytes";
    if (colon == a.n) return "the address must be host:port";
    if (read_number((struct sl_bytes){a.at + colon + 1, a.n - colon - 1}, 65535) == 0)
        return "the port after the colon must be from 1 to 65535";
    if (host.n >= 2 && host.at[0] == '[' && host.at[host.n - 1] == ']')
        return all_of((struct sl_bytes){host.at + 1, host.n - 2}, ":.%")
                   ? NULL
                   : "the IP address in brackets is invalid";
    if (memchr(host.at, ':', host.n) != NULL)
        return "an IPv6 address needs brackets: [::1]:5627";
    return all_of(host, "._-") ? NULL : "the host name is invalid";
}

void sl_address_split(const char *address, char host[SL_ADDRESS_BYTES], char port[8])
{
    size_t colon = last_colon((struct sl_bytes){address, strlen(address)});
    bool brackets = *address == '[';
    snprintf(host, SL_ADDRESS_BYTES, "%.*s", (int)colon - (brackets ? 2 : 0),
             address + (brackets ? 1 : 0));
    snprintf(port, 8, "%s", address + colon + 1);
}

/* --- Lists ---------------------------------------------------------------- */

/* Return the text up to the next comma, and move *text past the comma. */
static struct sl_bytes next_item(struct sl_bytes *text, bool *more)
{
    const char *comma = text->n > 0 ? memchr(text->at, ',', text->n) : NULL;
    struct sl_bytes item = {text->at, comma ? (size_t)(comma - text->at) : text->n};
    *more = comma != NULL;
    if (comma != NULL) *text = (struct sl_bytes){comma + 1, text->n - item.n - 1};
    return item;
}

static struct sl_bytes trim(struct sl_bytes b)
{
    while (b.n > 0 && b.at[0] == ' ') b.at++, b.n--;
    while (b.n > 0 && b.at[b.n - 1] == ' ') b.n--;
    return b;
}

/* Insert a node after the nodes with smaller ids. Returns NULL or an error. */
static const char *put(struct sl_membership *out, sl_node_id id,
                       struct sl_bytes address)
{
    uint32_t at = out->count;
    while (at > 0 && out->at[at - 1].id > id) at--;
    if (at > 0 && out->at[at - 1].id == id) return "the node is listed twice";
    if (out->count == SL_NODES_MAX)
        return "a cluster has at most " TEXT_OF(SL_NODES_MAX) " nodes";
    memmove(&out->at[at + 1], &out->at[at], (out->count - at) * sizeof *out->at);
    out->count++;
    out->at[at] = (struct sl_member){.id = id};
    memcpy(out->at[at].address, address.at, address.n);
    return NULL;
}

static const char *read_member(struct sl_membership *out, struct sl_bytes item)
{
    const char *equals = item.n > 0 ? memchr(item.at, '=', item.n) : NULL;
    if (equals == NULL) return "each node must be given as ID=HOST:PORT";
    size_t n = (size_t)(equals - item.at);
    sl_node_id id = read_number((struct sl_bytes){item.at, n}, SL_NODE_ID_MAX);
    struct sl_bytes address = {equals + 1, item.n - n - 1};
    if (id == 0)
        return "the node id must be an integer from 1 to " TEXT_OF(SL_NODE_ID_MAX);
    const char *wrong = sl_address_wrong(address);
    return wrong != NULL ? wrong : put(out, id, address);
}

const char *sl_membership_read(struct sl_membership *out, struct sl_bytes text,
                               struct sl_bytes *where)
{
    bool more = true;
    *out = (struct sl_membership){0};
    while (more) {
        *where = trim(next_item(&text, &more));
        const char *wrong = read_member(out, *where);
        if (wrong != NULL) return wrong;
    }
    return NULL;
}

size_t sl_membership_write(const struct sl_membership *list, char out[SL_MEMBERS_TEXT])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < list->count; i++)
        n += (size_t)snprintf(out + n, SL_MEMBERS_TEXT - n, "%s%u=%s", i > 0 ? "," : "",
                              list->at[i].id, list->at[i].address);
    return n;
}
