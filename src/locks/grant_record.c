#include "locks/grant_record.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "locks/client.h"

enum { SHARED = 1, BROKEN = 2, OVERLAPPING = 4, STOLEN = 8, ALL_FLAGS = 15 };

static char *put_text(char *at, struct sl_bytes text)
{
    if (text.n > 0) memcpy(at, text.at, text.n);
    return at + text.n;
}

static uint32_t get_u16(const char *at)
{
    return (uint32_t)(uint8_t)at[0] | (uint32_t)(uint8_t)at[1] << 8;
}

static uint32_t get_u32(const char *at)
{
    return get_u16(at) | get_u16(at + 2) << 16;
}

size_t sl_grant_bytes(const struct sl_grant_view *v)
{
    return SL_GRANT_RECORD_BYTES + v->name.n + v->address.n + v->value.n + v->note.n;
}

char *sl_grant_write(char *out, const struct sl_grant_view *v)
{
    char *at = out;
    assert(v->name.n <= UINT8_MAX && v->address.n <= UINT8_MAX);
    assert(v->value.n <= UINT16_MAX && v->note.n <= UINT16_MAX);
    uint32_t flags = (v->shared ? SHARED : 0u) | (v->broken ? BROKEN : 0u) |
                     (v->overlapping ? OVERLAPPING : 0u) | (v->stolen ? STOLEN : 0u);
    const uint32_t head[] = {
        htole32(flags | (uint32_t)v->name.n << 8 | (uint32_t)v->address.n << 16),
        htole32(v->user),
        htole32(v->units),
        htole32(v->per),
        htole32(v->buckets),
        htole32((uint32_t)v->priority),
        htole32((uint32_t)v->value.n | (uint32_t)v->note.n << 16)};
    _Static_assert(sizeof head == SL_GRANT_RECORD_BYTES, "as drawn in the header");
    memcpy(at, head, sizeof head);
    at += sizeof head;
    at = put_text(at, v->name);
    at = put_text(at, v->address);
    at = put_text(at, v->value);
    return put_text(at, v->note);
}

static struct sl_bytes take(const char **at, size_t n)
{
    const struct sl_bytes text = {*at, n};
    *at += n;
    return text;
}

bool sl_grant_read(struct sl_bytes value, struct sl_grant_view *out)
{
    const char *at = value.at;
    if (value.n < SL_GRANT_RECORD_BYTES) return false;
    uint8_t flags = (uint8_t)at[0];
    size_t name = (uint8_t)at[1], address = (uint8_t)at[2];
    size_t text = get_u16(at + 24), note = get_u16(at + 26);
    if ((flags & ~(uint32_t)ALL_FLAGS) != 0 || at[3] != 0) return false;
    if (name > SL_CLIENT_NAME_MAX || address > SL_CLIENT_ADDRESS_MAX) return false;
    if (value.n != SL_GRANT_RECORD_BYTES + name + address + text + note) return false;
    *out = (struct sl_grant_view){.leased = true,
                                  .shared = (flags & SHARED) != 0,
                                  .broken = (flags & BROKEN) != 0,
                                  .overlapping = (flags & OVERLAPPING) != 0,
                                  .stolen = (flags & STOLEN) != 0,
                                  .asked = (flags & STOLEN) != 0,
                                  .user = get_u32(at + 4),
                                  .units = get_u32(at + 8),
                                  .per = get_u32(at + 12),
                                  .buckets = get_u32(at + 16),
                                  .priority = (int32_t)get_u32(at + 20)};
    at += SL_GRANT_RECORD_BYTES;
    out->name = take(&at, name);
    out->address = take(&at, address);
    out->value = take(&at, text);
    out->note = take(&at, note);
    return true;
}
