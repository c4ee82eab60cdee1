/* test_failover_message.c - messages between the nodes of a cluster on etcd: a message that is
 * written and read is the same, and an invalid one is rejected. */
#include <string.h>

#include "test.h"

#include "failover/message.h"
#include "sluice.h"

static const struct sl_resp_limits limits = {.args_max = 128,
                                             .bulk_bytes_max = 65536,
                                             .command_bytes_max = 1 << 20,
                                             .inline_bytes_max = 64};
static struct sl_resp_reader *reader;
static struct sl_args args; /* The last command. */
static sl_fence gone[SL_GONE_MAX];

/* Parse bytes as one command. */
static void parse(const char *bytes, size_t n)
{
    char *at;
    if (reader != NULL) sl_resp_reader_free(reader);
    reader = sl_resp_reader_new(&limits);
    assert_non_null(reader);
    for (size_t part, done = 0; done < n; done += part) {
        part = sl_resp_room(reader, &at);
        assert_true(part > 0);
        if (part > n - done) part = n - done;
        memcpy(at, bytes + done, part);
        sl_resp_filled(reader, part);
    }
    assert_int_equal(sl_resp_next(reader, &args), 1);
}

static int teardown(void **state)
{
    (void)state;
    if (reader != NULL) sl_resp_reader_free(reader);
    reader = NULL;
    return 0;
}

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

static bool same(struct sl_bytes a, struct sl_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

static struct sl_failover_message pass(const struct sl_failover_message *m)
{
    struct sl_resp_writer w;
    struct sl_failover_message out;
    sl_resp_writer_init(&w, 1 << 20);
    sl_failover_write(&w, m);
    parse(w.buffer, w.n);
    sl_resp_writer_free(&w);
    assert_true(sl_failover_is_message(&args));
    assert_true(sl_failover_read(&args, gone, &out));
    assert_int_equal(out.type, m->type);
    return out;
}

/* Every field has a value of its own, so a field in the wrong place is found. */
static const struct sl_failover_message full = {.term = 11,
                                                .session = 12,
                                                .ms = 13,
                                                .yes = true,
                                                .last = true,
                                                .what = SL_SAY_MORE,
                                                .tx = 14,
                                                .origin = 16,
                                                .fence = SL_FENCE_MAX,
                                                .sight = SL_PEER_CLOSED,
                                                .key = {"key", 3},
                                                .name = {"name", 4},
                                                .address = {"address", 7},
                                                .channel = {"channel", 7},
                                                .bytes = {"by\r\ntes\0", 8},
                                                .grant = {.fence = 15,
                                                          .units = 2,
                                                          .per = 3,
                                                          .buckets = 4,
                                                          .leased = true,
                                                          .origin = 17,
                                                          .left_ms = 1000,
                                                          .unsure_ms = 18,
                                                          .priority = -5,
                                                          .value = {"value", 5},
                                                          .note = {"note", 4}},
                                                .gone = (const sl_fence[]){21, 22, 23},
                                                .gone_count = 3};

static void assert_fields(const struct sl_failover_message *m, const char *fields)
{
    for (; *fields != '\0'; fields++) switch (*fields) {
            case 't': assert_int_equal(m->term, full.term); break;
            case 's': assert_int_equal(m->session, full.session); break;
            case 'm': assert_int_equal(m->ms, full.ms); break;
            case 'y': assert_true(m->yes); break;
            case 'l': assert_true(m->last); break;
            case 'w': assert_int_equal(m->what, full.what); break;
            case 'x': assert_int_equal(m->tx, full.tx); break;
            case 'o': assert_int_equal(m->origin, full.origin); break;
            case 'f': assert_true(m->fence == full.fence); break;
            case 'v': assert_int_equal(m->sight, full.sight); break;
            case 'k': assert_true(same(m->key, full.key)); break;
            case 'n': assert_true(same(m->name, full.name)); break;
            case 'a': assert_true(same(m->address, full.address)); break;
            case 'c': assert_true(same(m->channel, full.channel)); break;
            case 'b': assert_true(same(m->bytes, full.bytes)); break;
            case 'r':
                assert_true(same(m->key, full.key));
                assert_int_equal(m->grant.fence, 15);
                assert_int_equal(m->grant.left_ms, 1000);
                assert_int_equal(m->grant.unsure_ms, 18);
                assert_int_equal(m->grant.origin, 17);
                assert_true(same(m->grant.note, full.grant.note));
                break;
            case 'g':
                assert_int_equal(m->gone_count, 3);
                assert_memory_equal(m->gone, full.gone, 3 * sizeof *full.gone);
                break;
            default: fail();
        }
}

UNIT_TEST(every_message_is_read_as_it_was_written)
{
    static const char *const fields[SL_FAILOVER_MESSAGE_COUNT] = {
#define MESSAGE(type, letters) [SL_FAILOVER_##type] = letters,
        SL_FAILOVER_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
    };
    for (int type = SL_FAILOVER_NONE + 1; type < SL_FAILOVER_MESSAGE_COUNT; type++) {
        struct sl_failover_message m = full;
        m.type = (enum sl_failover_message_type)type;
        const struct sl_failover_message out = pass(&m);
        assert_fields(&out, fields[type]);
    }
}

/* Nodes of different versions exchange messages during an upgrade. */
UNIT_TEST(the_encoding_does_not_change)
{
    struct sl_resp_writer w;
    struct sl_failover_message m = {.type = SL_FAILOVER_DO,
                                    .session = 7,
                                    .ms = 120,
                                    .last = true,
                                    .bytes = text("x")};
    sl_resp_writer_init(&w, 1 << 20);
    sl_failover_write(&w, &m);
    m = (struct sl_failover_message){.type = SL_FAILOVER_HELD,
                                     .session = 7,
                                     .yes = true,
                                     .ms = 3,
                                     .key = text("k"),
                                     .grant = {.fence = 9,
                                               .origin = 8,
                                               .shared = true,
                                               .units = 1,
                                               .per = 2,
                                               .buckets = 1,
                                               .priority = -1,
                                               .left_ms = SL_NEVER,
                                               .value = text("v"),
                                               .request = text("an id of 16 byte"),
                                               .digest = 77}};
    sl_failover_write(&w, &m);
    static const char wanted[] =
        "*6\r\n$4\r\nR.DO\r\n$1\r\n7\r\n$3\r\n120\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\nx\r\n"
        "*18\r\n$6\r\nR.HELD\r\n$1\r\n7\r\n$1\r\n1\r\n$1\r\n3\r\n$1\r\nk\r\n$1\r\n9\r\n"
        "$1\r\n8\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n1\r\n$2\r\n-1\r\n$2\r\n-"
        "1\r\n$1\r\n0\r\n$"
        "1\r\nv\r\n"
        "$0\r\n\r\n$16\r\nan id of 16 byte\r\n$2\r\n77\r\n";
    assert_int_equal(w.n, sizeof wanted - 1);
    assert_memory_equal(w.buffer, wanted, w.n);
    sl_resp_writer_free(&w);
}

static bool reads(const char *line)
{
    struct sl_failover_message m;
    parse(line, strlen(line));
    return sl_failover_read(&args, gone, &m);
}

UNIT_TEST(an_invalid_message_is_rejected)
{
    assert_true(reads("R.COME 5\r\n"));
    assert_false(reads("R.COME\r\n"));
    assert_false(reads("R.COME 5 6\r\n"));
    assert_false(reads("R.COME x\r\n"));
    assert_false(reads("R.COME -1\r\n"));
    assert_false(reads("R.COME 9007199254740992\r\n"));
    assert_false(reads("R.UNKNOWN 5\r\n"));
    assert_false(reads("COME 5\r\n"));
    assert_true(reads("R.DOUBT 5 2\r\n"));
    assert_false(reads("R.DOUBT 5 3\r\n"));
    assert_true(reads("R.READY 5\r\n"));
    assert_false(reads("R.READY\r\n"));
    assert_true(reads("R.GONE 1 2\r\n"));
    assert_false(reads("R.GONE 1 x\r\n"));
    assert_false(reads("R.HELD 7 1 3 k 9 4 0 1 1 1 0 1000 0 v\r\n"));
    assert_true(reads("R.HELD 7 1 3 k 9 4 0 1 1 1 0 1000 0 v n \"\" 0\r\n"));
    assert_false(reads("R.HELD 7 1 3 k 9 4 2 1 1 1 0 1000 0 v n \"\" 0\r\n"));
}

int main(void)
{
    return run_unit_tests_with("failover_message", NULL, teardown);
}
