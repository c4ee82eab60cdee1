#include "locks/grant_record.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "locks/client.h"
#include "locks/lock.h"
#include "locks/requests.h"

enum {
    SHARED = 1,
    BROKEN = 2,
    OVERLAPPING = 4,
    STOLEN = 8,
    NUMBERS = 16,
    NOTE = 32,
    ORIGIN = 64,
    UNSURE = 128,
    NAMED = 256
};
#define ALL_FLAGS 511u

#define HEAD_BYTES 6u
#define NUMBERS_BYTES 20u
#define NOTE_BYTES 2u
#define ORIGIN_BYTES 8u
#define UNSURE_BYTES 1u
#define REQUEST_BYTES 9u
_Static_assert(HEAD_BYTES + NUMBERS_BYTES + NOTE_BYTES + ORIGIN_BYTES + UNSURE_BYTES +
                       REQUEST_BYTES ==
                   SL_GRANT_RECORD_BYTES,
               "as drawn in the header");

static char *put_u16(char *at, size_t n)
{
    at[0] = (char)(n & 0xff);
    at[1] = (char)(n >> 8);
    return at + 2;
}

static char *put_text(char *at, struct sl_bytes text)
{
    if (text.n > 0) memcpy(at, text.at, text.n);
    return at + text.n;
}

static char *put_u64(char *at, uint64_t n)
{
    const uint64_t little = htole64(n);
    memcpy(at, &little, sizeof little);
    return at + sizeof little;
}

static uint32_t get_u16(const char *at)
{
    return (uint32_t)(uint8_t)at[0] | (uint32_t)(uint8_t)at[1] << 8;
}

static uint32_t get_u32(const char *at)
{
    return get_u16(at) | get_u16(at + 2) << 16;
}

static uint64_t get_u64(const char *at)
{
    return get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

size_t sl_grant_bytes_max(const struct sl_grant_view *v)
{
    return SL_GRANT_RECORD_BYTES + v->name.n + v->address.n + v->value.n + v->note.n +
           v->request.n;
}

/* Whether a number of the grant differs from its default. */
static bool has_numbers(const struct sl_grant_view *v)
{
    return v->user != 0 || v->units != 1 || v->per != 1 || v->buckets != 1 ||
           v->priority != 0;
}

char *sl_grant_write(char *out, const struct sl_grant_view *v)
{
    bool numbers = has_numbers(v);
    assert(v->name.n <= UINT8_MAX && v->address.n <= UINT8_MAX);
    assert(v->value.n <= UINT16_MAX && v->note.n <= UINT16_MAX);
    unsigned flags = (v->shared ? SHARED : 0) | (v->broken ? BROKEN : 0) |
                     (v->overlapping ? OVERLAPPING : 0) | (v->stolen ? STOLEN : 0) |
                     (numbers ? NUMBERS : 0) | (v->note.n > 0 ? NOTE : 0) |
                     (v->origin != 0 ? ORIGIN : 0) | (v->unsure_ms != 0 ? UNSURE : 0) |
                     (v->request.n > 0 ? NAMED : 0);
    char *at = put_u16(out, flags);
    *at++ = (char)v->name.n;
    *at++ = (char)v->address.n;
    at = put_u16(at, v->value.n);
    if (numbers) {
        const uint32_t all[] = {htole32(v->user), htole32(v->units), htole32(v->per),
                                htole32(v->buckets), htole32((uint32_t)v->priority)};
        _Static_assert(sizeof all == NUMBERS_BYTES, "as drawn in the header");
        memcpy(at, all, sizeof all);
        at += sizeof all;
    }
    if (v->note.n > 0) at = put_u16(at, v->note.n);
    if (v->origin != 0) at = put_u64(at, v->origin);
    if (v->unsure_ms != 0) *at++ = (char)sl_unsure_code(v->unsure_ms);
    if (v->request.n > 0) {
        at = put_u64(at, v->digest);
        *at++ = (char)v->request.n;
    }
    at = put_text(at, v->name);
    at = put_text(at, v->address);
    at = put_text(at, v->value);
    at = put_text(at, v->note);
    return put_text(at, v->request);
}

static struct sl_bytes take(const char **at, size_t n)
{
    const struct sl_bytes text = {*at, n};
    *at += n;
    return text;
}

/* Returns the number of bytes before the texts. */
static size_t head_bytes(unsigned flags)
{
    return HEAD_BYTES + (flags & NUMBERS ? NUMBERS_BYTES : 0) +
           (flags & NOTE ? NOTE_BYTES : 0) + (flags & ORIGIN ? ORIGIN_BYTES : 0) +
           (flags & UNSURE ? UNSURE_BYTES : 0) + (flags & NAMED ? REQUEST_BYTES : 0);
}

static void read_numbers(const char *at, struct sl_grant_view *out)
{
    out->user = get_u32(at);
    out->units = get_u32(at + 4);
    out->per = get_u32(at + 8);
    out->buckets = get_u32(at + 12);
    out->priority = (int32_t)get_u32(at + 16);
}

bool sl_grant_read(struct sl_bytes value, struct sl_grant_view *out)
{
    const char *at = value.at;
    if (value.n < HEAD_BYTES) return false;
    unsigned flags = get_u16(at);
    size_t name = (uint8_t)at[2], address = (uint8_t)at[3], text = get_u16(at + 4);
    size_t head = head_bytes(flags), note = 0, id = 0;
    if (flags > ALL_FLAGS || value.n < head) return false;
    *out = (struct sl_grant_view){.leased = true,
                                  .shared = (flags & SHARED) != 0,
                                  .broken = (flags & BROKEN) != 0,
                                  .overlapping = (flags & OVERLAPPING) != 0,
                                  .stolen = (flags & STOLEN) != 0,
                                  .asked = (flags & STOLEN) != 0,
                                  .units = 1,
                                  .per = 1,
                                  .buckets = 1};
    at += HEAD_BYTES;
    if (flags & NUMBERS) {
        read_numbers(at, out);
        at += NUMBERS_BYTES;
    }
    if (flags & NOTE) {
        note = get_u16(at);
        at += NOTE_BYTES;
    }
    if (flags & ORIGIN) {
        out->origin = get_u64(at);
        at += ORIGIN_BYTES;
    }
    if (flags & UNSURE) out->unsure_ms = sl_unsure_ms((uint8_t)*at++);
    if (flags & NAMED) {
        out->digest = get_u64(at);
        id = (uint8_t)at[8];
        at += REQUEST_BYTES;
        if (id < SL_REQUEST_ID_MIN || id > SL_REQUEST_ID_MAX) return false;
    }
    if (name > SL_CLIENT_NAME_MAX || address > SL_CLIENT_ADDRESS_MAX) return false;
    if (value.n != head + name + address + text + note + id) return false;
    out->name = take(&at, name);
    out->address = take(&at, address);
    out->value = take(&at, text);
    out->note = take(&at, note);
    out->request = take(&at, id);
    return true;
}
