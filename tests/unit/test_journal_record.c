/* test_journal_record.c - the format of the journal: records, frames, the chain of checksums, and
 * bytes that are not a journal. */
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "base/random.h"
#include "journal_stage.h"
#include "sluice.h"

static struct sl_item item_in(struct sl_bytes records, size_t *at, int type)
{
    struct sl_item item;
    assert_int_equal(sl_record_next(records, at, &item), type);
    return item;
}

static void assert_bytes(struct sl_bytes bytes, const char *text)
{
    assert_int_equal(bytes.n, strlen(text));
    assert_memory_equal(bytes.at, text, bytes.n);
}

UNIT_TEST(a_record_is_read_as_it_was_written)
{
    struct sl_buffer b = {0};
    struct sl_item put = {.kind = SL_ITEM_GRANT,
                          .key = bytes_of("db"),
                          .fence = 7,
                          .expiry_ms = 1000,
                          .bound_ms = 30000,
                          .is_long = true,
                          .value = bytes_of("a value")};
    assert_int_equal(sl_record_put(&b, &put), SLUICE_OK);
    assert_int_equal(b.n, sl_record_bytes(&put));
    assert_int_equal(sl_record_end(&b, SL_ITEM_DRAIN, bytes_of("jobs:*"), 0),
                     SLUICE_OK);
    struct sl_bytes records = {b.at, b.n};
    size_t at = 0;
    struct sl_item got = item_in(records, &at, 1);
    assert_int_equal(got.kind, SL_ITEM_GRANT);
    assert_bytes(got.key, "db");
    assert_int_equal(got.fence, 7);
    assert_int_equal(got.expiry_ms, 1000);
    assert_int_equal(got.bound_ms, 30000);
    assert_true(got.is_long);
    assert_bytes(got.value, "a value");
    got = item_in(records, &at, 2);
    assert_int_equal(got.kind, SL_ITEM_DRAIN);
    assert_bytes(got.key, "jobs:*");
    item_in(records, &at, 0);
    sl_buffer_free(&b);
}

UNIT_TEST(times_and_fences_are_read_as_they_were_written)
{
    const struct sl_item items[] = {
        {.kind = SL_ITEM_GRANT, .fence = SL_FENCE_MAX, .expiry_ms = 1, .bound_ms = 1},
        {.kind = SL_ITEM_PEER, .expiry_ms = SL_NEVER, .bound_ms = SL_NEVER},
        {.kind = SL_ITEM_GRANT,
         .expiry_ms = SL_ITEM_EXPIRY_MAX,
         .bound_ms = SL_ITEM_EXPIRY_MAX,
         .is_long = true},
        {.kind = SL_ITEM_GRANT, .expiry_ms = 0, .bound_ms = SL_ITEM_EXPIRY_MAX}};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        struct sl_buffer b = {0};
        size_t at = 0;
        assert_int_equal(sl_record_put(&b, &items[i]), SLUICE_OK);
        struct sl_item got = item_in((struct sl_bytes){b.at, b.n}, &at, 1);
        assert_int_equal(got.kind, items[i].kind);
        assert_int_equal(got.fence, items[i].fence);
        assert_int_equal(got.expiry_ms, items[i].expiry_ms);
        assert_int_equal(got.bound_ms, items[i].bound_ms);
        assert_int_equal(got.is_long, items[i].is_long);
        sl_buffer_free(&b);
    }
}

UNIT_TEST(every_length_of_key_and_value_is_read_as_it_was_written)
{
    static char bytes[70000];
    memset(bytes, 'x', sizeof bytes);
    const size_t lengths[] = {0, 1, 7, 8, 9, 255, 256, 65535};
    for (size_t k = 0; k < 8; k++)
        for (size_t v = 0; v < 8; v++) {
            struct sl_buffer b = {0};
            struct sl_item item = {.kind = SL_ITEM_KEY,
                                   .key = {bytes, lengths[k]},
                                   .value = {bytes, lengths[v]}};
            assert_int_equal(sl_record_put(&b, &item), SLUICE_OK);
            assert_int_equal(sl_record_end(&b, SL_ITEM_KEY, item.key, 3), SLUICE_OK);
            assert_int_equal(b.n % 8, 0);
            size_t at = 0;
            struct sl_item got = item_in((struct sl_bytes){b.at, b.n}, &at, 1);
            assert_int_equal(at, sl_record_bytes(&item));
            assert_int_equal(got.key.n, lengths[k]);
            assert_int_equal(got.value.n, lengths[v]);
            assert_int_equal(item_in((struct sl_bytes){b.at, b.n}, &at, 2).key.n,
                             lengths[k]);
            sl_buffer_free(&b);
        }
}

static void put_grant(struct sl_buffer *b, const char *key, sl_fence fence)
{
    struct sl_item item = grant_of(key, fence, 1000);
    assert_int_equal(sl_record_put(b, &item), SLUICE_OK);
}

/* A file with these many frames; the time of each is its position. */
static void begin_frames(struct disk *d, uint64_t frames)
{
    disk_begin(d, 10);
    for (uint64_t i = 1; i <= frames; i++) {
        struct sl_buffer b = {0};
        put_grant(&b, "key", i);
        disk_frame(d, (struct sl_bytes){b.at, b.n}, 10 + i, 10, (sl_ms)i);
        sl_buffer_free(&b);
    }
}

static struct sl_bytes file_of(const struct disk *d)
{
    return (struct sl_bytes){d->at, d->n};
}

static uint64_t count_intact(const struct disk *d)
{
    struct sl_header header;
    struct sl_frame f;
    uint64_t count = 0;
    assert_int_equal(sl_header_read(file_of(d), &header), SLUICE_OK);
    size_t at = SL_HEADER_BYTES;
    for (; sl_frame_next(file_of(d), at, &header.chain, &f); at += f.bytes) count++;
    return count;
}

UNIT_TEST(frames_are_read_as_they_were_written)
{
    struct disk d = {0};
    struct sl_header header;
    struct sl_frame f;
    begin_frames(&d, 3);
    assert_int_equal(sl_header_read(file_of(&d), &header), SLUICE_OK);
    assert_int_equal(header.use, SL_JOURNAL_OF_SERVER);
    assert_int_equal(header.format, SL_JOURNAL_FORMAT);
    assert_int_equal(header.chain.position, 10);
    size_t at = SL_HEADER_BYTES;
    for (uint64_t i = 1; i <= 3; i++, at += f.bytes) {
        assert_true(sl_frame_next(file_of(&d), at, &header.chain, &f));
        assert_int_equal(f.at, at);
        assert_int_equal(f.position, 10 + i);
        assert_int_equal(f.durable, 10);
        assert_int_equal(f.now_ms, i);
        size_t record = 0;
        assert_int_equal(item_in(f.records, &record, 1).fence, i);
    }
    assert_int_equal(at, d.n);
    assert_false(sl_frame_next(file_of(&d), at, &header.chain, &f));
    assert_memory_equal(&header.chain, &d.chain, sizeof d.chain);
    disk_end(&d);
}

UNIT_TEST(every_changed_bit_of_a_frame_is_noticed)
{
    struct disk d = {0};
    begin_frames(&d, 2);
    for (size_t bit = SL_HEADER_BYTES * 8; bit < d.n * 8; bit++) {
        d.at[bit / 8] ^= (char)(1 << bit % 8);
        assert_true(count_intact(&d) < 2);
        d.at[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_int_equal(count_intact(&d), 2);
    disk_end(&d);
}

UNIT_TEST(every_changed_bit_of_the_header_is_noticed)
{
    struct disk d = {0};
    struct sl_header header;
    begin_frames(&d, 1);
    for (size_t bit = 0; bit < SL_HEADER_BYTES * 8; bit++) {
        d.at[bit / 8] ^= (char)(1 << bit % 8);
        assert_true(sl_header_read(file_of(&d), &header) != SLUICE_OK);
        d.at[bit / 8] ^= (char)(1 << bit % 8);
    }
    disk_end(&d);
}

UNIT_TEST(a_journal_of_another_format_is_told_from_other_files)
{
    struct disk d = {0};
    struct sl_header header;
    disk_begin(&d, 0);
    d.at[16] = SL_JOURNAL_FORMAT + 1;
    assert_int_equal(sl_header_read(file_of(&d), &header), SLUICE_EVERSION);
    d.at[0] = 'S';
    assert_int_equal(sl_header_read(file_of(&d), &header), SLUICE_EINVAL);
    assert_int_equal(sl_header_read((struct sl_bytes){d.at, 100}, &header),
                     SLUICE_EINVAL);
    assert_int_equal(sl_header_read((struct sl_bytes){NULL, 0}, &header),
                     SLUICE_EINVAL);
    disk_end(&d);
}

/* The frame before is intact in itself, but it is not the one that this frame continues. */
UNIT_TEST(a_frame_is_accepted_only_after_the_frame_that_it_continues)
{
    struct disk a = {0}, b = {0};
    begin_frames(&a, 3);
    begin_frames(&b, 1);
    struct sl_buffer records = {0};
    put_grant(&records, "kex", 2); /* As long as the second frame of `a`. */
    disk_frame(&b, (struct sl_bytes){records.at, records.n}, 12, 10, 2);
    disk_append(&b, a.at + b.n, a.n - b.n);
    assert_int_equal(b.n, a.n);
    assert_int_equal(count_intact(&a), 3);
    assert_int_equal(count_intact(&b), 2);
    sl_buffer_free(&records);
    disk_end(&a);
    disk_end(&b);
}

UNIT_TEST(a_frame_of_another_file_is_not_accepted)
{
    struct disk a = {0}, b = {0};
    struct sl_frame f;
    begin_frames(&a, 1);
    disk_begin_as(&b, 2, 10);
    disk_append(&b, a.at + b.n, a.n - b.n);
    assert_int_equal(count_intact(&b), 0);
    assert_true(sl_frame_search(file_of(&a), 0, a.chain.seed, &f));
    assert_false(sl_frame_search(file_of(&b), 0, b.chain.seed, &f));
    disk_end(&a);
    disk_end(&b);
}

UNIT_TEST(the_search_finds_frames_after_a_bad_one)
{
    struct disk d = {0};
    struct sl_frame f;
    begin_frames(&d, 3);
    d.at[SL_HEADER_BYTES + 30] ^= 1;
    assert_int_equal(count_intact(&d), 0);
    assert_true(sl_frame_search(file_of(&d), SL_HEADER_BYTES, d.chain.seed, &f));
    assert_int_equal(f.position, 12);
    assert_true(sl_frame_search(file_of(&d), f.at + 1, d.chain.seed, &f));
    assert_int_equal(f.position, 13);
    assert_false(sl_frame_search(file_of(&d), f.at + 1, d.chain.seed, &f));
    disk_end(&d);
}

UNIT_TEST(positions_without_a_frame_are_noticed)
{
    struct disk d = {0};
    begin_frames(&d, 1);
    d.chain.position++; /* As if a frame had been lost that was written before. */
    disk_frame(&d, (struct sl_bytes){NULL, 0}, 13, 10, 2);
    assert_int_equal(count_intact(&d), 1);
    disk_end(&d);
}

UNIT_TEST(copied_items_have_the_position_of_the_frame_before)
{
    struct disk d = {0};
    begin_frames(&d, 1);
    disk_frame(&d, (struct sl_bytes){NULL, 0}, 11, d.n, 2);
    disk_frame(&d, (struct sl_bytes){NULL, 0}, 11, d.n, 2);
    disk_frame(&d, (struct sl_bytes){NULL, 0}, 12, 10, 2);
    assert_int_equal(count_intact(&d), 4);
    disk_end(&d);
}

/* Change a record and read it: what is returned must lie within the bytes. */
UNIT_TEST(random_bytes_are_not_read_beyond_their_end)
{
    struct sl_random r;
    sl_random_seed(&r, 1);
    for (int i = 0; i < 200000; i++) {
        struct sl_buffer b = {0};
        put_grant(&b, "some key", 1);
        sl_record_end(&b, SL_ITEM_GRANT, bytes_of("some key"), 1);
        for (uint32_t n = sl_random_below(&r, 4); n > 0; n--)
            b.at[sl_random_below(&r, (uint32_t)b.n)] = (char)sl_random_next(&r);
        size_t n = sl_random_below(&r, (uint32_t)b.n + 1), at = 0;
        char *exact = malloc(n + 1); /* So that the sanitizer sees the end. */
        memcpy(exact, b.at, n);
        struct sl_item item;
        int type;
        while ((type = sl_record_next((struct sl_bytes){exact, n}, &at, &item)) > 0) {
            assert_true(at <= n);
            assert_true(item.key.at >= exact && item.key.at + item.key.n <= exact + n);
            if (type == 1)
                assert_true(item.value.at + item.value.n <= exact + n &&
                            item.bound_ms >= item.expiry_ms);
        }
        free(exact);
        sl_buffer_free(&b);
    }
}

/* Other builds and other machines read these bytes. */
UNIT_TEST(the_format_does_not_change)
{
    struct disk d = {0};
    disk_begin(&d, 5);
    struct sl_buffer b = {0};
    struct sl_item item = grant_of("db", 0x10203040506, 1000);
    item.value = bytes_of("v");
    sl_record_put(&b, &item);
    sl_record_end(&b, SL_ITEM_GRANT, bytes_of("db"), 9);
    item.is_long = true;
    item.bound_ms = 30000;
    sl_record_put(&b, &item);
    disk_frame(&d, (struct sl_bytes){b.at, b.n}, 6, 5, 77);
    static const unsigned char records[] = {
        5,   6, 5,    4,    3,   2, 1,  0, 0xe8, 3, 0,   0,   0,    0, 2, 1, 'd', 'b',
        'v', 0, 0,    0,    0,   0, 21, 9, 0,    0, 0,   0,   0,    0, 2, 0, 'd', 'b',
        0,   0, 0,    0,    101, 6, 5,  4, 3,    2, 1,   0,   0xe8, 3, 0, 0, 0,   0,
        2,   1, 0x30, 0x75, 0,   0, 0,  0, 0,    0, 'd', 'b', 'v',  0, 0, 0, 0,   0};
    assert_int_equal(b.n, sizeof records);
    assert_memory_equal(b.at, records, sizeof records);
    assert_memory_equal(d.at,
                        "sluice journal\n\0\2\0\0\0\1\0\0\0\1\1\1\1\1\1\1\1"
                        "\1\1\1\1\1\1\1\1\5\0\0\0\0\0\0\0\0",
                        49);
    assert_int_equal(d.n, SL_HEADER_BYTES + SL_FRAME_HEADER_BYTES + sizeof records);
    uint64_t checksum;
    sl_value_read((struct sl_bytes){d.at + SL_HEADER_BYTES + 40, 8}, &checksum);
    assert_int_equal(checksum, 0x18c9c2297a98a361);
    sl_buffer_free(&b);
    disk_end(&d);
}

int main(void)
{
    return run_unit_tests("journal_record");
}
