/* test_node_wire.c - what nodes say to each other, as words: the same comes out again, and
 * what is not exactly that is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "resp/reader.h"
#include "server/net/link_auth.h"
#include "server/net/membership_text.h"
#include "server/net/node_wire.h"
#include "sluice.h"

/* --- Messages of all kinds -------------------------------------------------- */

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Small ones, large ones, and the last one. */
static uint64_t draw_to(uint64_t max)
{
    switch (draw() % 4) {
        case 0: return 0;
        case 1: return max;
        case 2: return draw() % (max < 1000 ? max + 1 : 1000);
        default: return max == UINT64_MAX ? draw() : draw() % (max + 1);
    }
}

static int32_t draw_i32(void)
{
    static const int32_t some[] = {0, 1, -1, INT32_MAX, INT32_MIN};
    return draw() % 2 == 0 ? some[draw() % 5] : (int32_t)draw();
}

static char bytes[5][5000];

static struct sl_bytes draw_bytes(char to[5000])
{
    size_t n = draw() % 4 == 0 ? 4096 : draw() % 20;
    for (size_t i = 0; i < n; i++) to[i] = (char)draw();
    return (struct sl_bytes){to, n};
}

static struct sl_membership draw_list(void)
{
    static const char *const addresses[] = {"a:1", "[fe80::1%eth0]:65535",
                                            "node-2.example:5627", "10.0.0.1:5627"};
    struct sl_membership l = {0};
    uint32_t id = 0;
    if (draw() % 5 == 0) return l;
    l.version = 1 + draw_to(UINT64_MAX - 1);
    l.count = 1 + (uint32_t)(draw() % SL_NODES_MAX);
    for (uint32_t i = 0; i < l.count; i++) {
        uint32_t most = SL_NODE_ID_MAX - (l.count - 1 - i); /* The others fit, too. */
        id += 1 + (uint32_t)(draw() % (most - id));
        l.at[i].id = id;
        if (draw() % 2 == 0) l.at[i].birth = draw_to(UINT64_MAX);
        strcpy(l.at[i].address, addresses[draw() % 4]);
    }
    if (draw() % 2 == 0) l.added = l.at[draw() % l.count].id;
    return l;
}

/* All fields, whether the type has them or not. */
static struct sl_message draw_message(enum sl_message_type type)
{
    return (struct sl_message){
        .type = type,
        .version = draw_to(UINT64_MAX),
        .epoch = draw_to(UINT64_MAX),
        .sent_ms = (sl_ms)draw_to(SL_NEVER),
        .heard_epoch = draw_to(UINT64_MAX),
        .heard_ms = (sl_ms)draw_to(SL_NEVER),
        .round = draw_to(UINT64_MAX),
        .key = draw_bytes(bytes[0]),
        .owner = {draw_to(UINT64_MAX), draw_to(UINT64_MAX)},
        .fence = draw_to(SL_FENCE_MAX),
        .lease_ms = (sl_ms)draw_to(SL_NEVER),
        .priority = draw_i32(),
        .flags = (uint32_t)draw_to(511),
        .value = draw_bytes(bytes[1]),
        .note = draw_bytes(bytes[2]),
        .client = draw_bytes(bytes[3]),
        .request = draw_bytes(bytes[4]),
        .digest = draw_to(UINT64_MAX),
        .waited_ms = (sl_ms)draw_to(SL_NEVER),
        .stamp = draw_to(SL_FENCE_MAX),
        .verdict = (enum sl_vote_verdict)(1 + draw() % (SL_VERDICT_COUNT - 1)),
        .ceiling = draw_to(SL_FENCE_MAX),
        .left_ms = (sl_ms)draw_to(SL_NEVER),
        .wanted = draw_i32(),
        .ballot = {draw_to(UINT64_MAX), (sl_node_id)draw_to(SL_NODE_ID_MAX)},
        .ballot2 = {draw_to(UINT64_MAX), (sl_node_id)draw_to(SL_NODE_ID_MAX)},
        .list = draw_list(),
        .which = draw_to(UINT64_MAX),
    };
}

/* --- Comparing, without what node_wire.c knows of letters ------------------- */

static bool has(const struct sl_message *m, char letter)
{
    return strchr(sl_message_fields(m->type), letter) != NULL;
}

static void assert_bytes(struct sl_bytes a, struct sl_bytes b)
{
    assert_int_equal(a.n, b.n);
    if (a.n > 0) assert_memory_equal(a.at, b.at, a.n);
}

static void assert_list(const struct sl_membership *a, const struct sl_membership *b)
{
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->added, b->added);
    for (uint32_t i = 0; i < a->count; i++) {
        assert_int_equal(a->at[i].id, b->at[i].id);
        assert_int_equal(a->at[i].birth, b->at[i].birth);
        assert_string_equal(a->at[i].address, b->at[i].address);
    }
}

static void assert_number(const struct sl_message *m, char letter, uint64_t a,
                          uint64_t b)
{
    if (has(m, letter) && a != b) fail_msg("%c: %" PRIu64 ", %" PRIu64, letter, a, b);
}

static void assert_same(const struct sl_message *a, const struct sl_message *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->sent_ms, b->sent_ms);
    assert_int_equal(a->heard_epoch, b->heard_epoch);
    assert_int_equal(a->heard_ms, b->heard_ms);
    assert_number(a, 'r', a->round, b->round);
    if (has(a, 'k')) assert_bytes(a->key, b->key);
    assert_number(a, 'o', a->owner.epoch, b->owner.epoch);
    assert_number(a, 'o', a->owner.number, b->owner.number);
    assert_number(a, 'f', a->fence, b->fence);
    assert_number(a, 'L', (uint64_t)a->lease_ms, (uint64_t)b->lease_ms);
    assert_number(a, 'p', (uint64_t)a->priority, (uint64_t)b->priority);
    assert_number(a, 'F', a->flags, b->flags);
    if (has(a, 'v')) assert_bytes(a->value, b->value);
    if (has(a, 'n')) assert_bytes(a->note, b->note);
    if (has(a, 'i')) assert_bytes(a->client, b->client);
    if (has(a, 'q')) assert_bytes(a->request, b->request);
    assert_number(a, 'd', a->digest, b->digest);
    assert_number(a, 'w', (uint64_t)a->waited_ms, (uint64_t)b->waited_ms);
    assert_number(a, 's', a->stamp, b->stamp);
    assert_number(a, 'V', a->verdict, b->verdict);
    assert_number(a, 'c', a->ceiling, b->ceiling);
    assert_number(a, 'l', (uint64_t)a->left_ms, (uint64_t)b->left_ms);
    assert_number(a, 'P', (uint64_t)a->wanted, (uint64_t)b->wanted);
    assert_number(a, 'b', a->ballot.number, b->ballot.number);
    assert_number(a, 'b', a->ballot.id, b->ballot.id);
    assert_number(a, 'B', a->ballot2.number, b->ballot2.number);
    assert_number(a, 'B', a->ballot2.id, b->ballot2.id);
    if (has(a, 'm')) assert_list(&a->list, &b->list);
    assert_number(a, 'u', a->which, b->which);
}

/* --- Words ------------------------------------------------------------------ */

#define ARGUMENTS_MAX 64

struct words {
    struct sl_resp_writer w;
    struct sl_resp_reader *r;
    struct sl_args args;
};

/* What is written, and read again as bytes: its words. */
static void open_words(struct words *o, const struct sl_message *m)
{
    static const struct sl_resp_limits limits = {.args_max = ARGUMENTS_MAX,
                                                 .bulk_bytes_max = 65536,
                                                 .command_bytes_max = 262144,
                                                 .inline_bytes_max = 0};
    sl_resp_writer_init(&o->w, 1 << 20);
    sl_message_write(&o->w, m);
    assert_false(o->w.spilt);
    o->r = sl_resp_reader_new(&limits);
    for (size_t at = 0; at < o->w.n;) {
        char *to;
        size_t room = sl_resp_room(o->r, &to);
        size_t n = o->w.n - at < room ? o->w.n - at : room;
        memcpy(to, o->w.buffer + at, n);
        sl_resp_filled(o->r, n);
        at += n;
        assert_int_equal(sl_resp_next(o->r, &o->args), at == o->w.n ? 1 : 0);
    }
}

static void close_words(struct words *o)
{
    sl_resp_writer_free(&o->w);
    sl_resp_reader_free(o->r);
}

/* What was read is, as words, what it was read from. */
static void assert_written_so(const struct sl_message *m, const struct sl_bytes *at,
                              size_t n)
{
    struct words o;
    open_words(&o, m);
    assert_int_equal(o.args.n, n);
    for (size_t i = 0; i < n; i++) assert_bytes(o.args.at[i], at[i]);
    close_words(&o);
}

#define EACH_TYPE(t) for (int t = SL_MESSAGE_NONE + 1; t < SL_MESSAGE_COUNT; t++)

static void every_message_comes_out_as_it_went_in(void **state)
{
    (void)state;
    EACH_TYPE(t) /* A new letter is to be added above, too. */
    {
        const char *fields = sl_message_fields((enum sl_message_type)t);
        assert_int_equal(strspn(fields, "rkofLpFvniqdwsVclPbBmu"), strlen(fields));
    }
    EACH_TYPE(t) for (int i = 0; i < 300; i++)
    {
        struct sl_message m = draw_message((enum sl_message_type)t), again;
        struct words o;
        open_words(&o, &m);
        assert_true(sl_message_read(&again, o.args.at, o.args.n));
        assert_same(&m, &again);
        close_words(&o);
    }
}

static void missing_and_extra_arguments_are_rejected(void **state)
{
    (void)state;
    EACH_TYPE(t)
    {
        struct sl_message m = draw_message((enum sl_message_type)t), again;
        struct sl_bytes words[ARGUMENTS_MAX];
        struct words o;
        open_words(&o, &m);
        for (size_t n = 0; n < o.args.n; n++)
            assert_false(sl_message_read(&again, o.args.at, n));
        memcpy(words, o.args.at, o.args.n * sizeof *words);
        words[o.args.n] = (struct sl_bytes){"0", 1};
        assert_false(sl_message_read(&again, words, o.args.n + 1));
        close_words(&o);
    }
}

/* Cut, made longer, or with another byte in it. */
static struct sl_bytes changed(struct sl_bytes word, char room[8192])
{
    size_t n = word.n;
    memcpy(room, word.at, n);
    switch (draw() % 4) {
        case 0:
            if (n > 0) n = draw() % n;
            break;
        case 1: room[n++] = (char)draw(); break;
        case 2:
            if (n > 0) room[draw() % n] = (char)draw();
            break;
        default:
            memmove(room + 1, room, n);
            n++;
            room[0] = "0+- "[draw() % 4];
            break;
    }
    return (struct sl_bytes){room, n};
}

static void a_changed_word_is_rejected_or_has_its_meaning(void **state)
{
    static char room[8192];
    size_t refused = 0, taken = 0;
    (void)state;
    EACH_TYPE(t) for (int i = 0; i < 2000; i++)
    {
        struct sl_message m = draw_message((enum sl_message_type)t), again;
        struct sl_bytes words[ARGUMENTS_MAX];
        struct words o;
        open_words(&o, &m);
        memcpy(words, o.args.at, o.args.n * sizeof *words);
        size_t at = draw() % o.args.n;
        words[at] = changed(words[at], room);
        if (sl_message_read(&again, words, o.args.n)) {
            taken++;
            assert_written_so(&again, words, o.args.n);
        } else refused++;
        close_words(&o);
    }
    assert_true(refused > 1000 && taken > 1000);
}

/* The words of a message, one of them replaced. */
static bool is_read_with(enum sl_message_type type, size_t place, const char *word)
{
    struct sl_message m = draw_message(type), again;
    struct words o;
    open_words(&o, &m);
    assert_true(place < o.args.n);
    o.args.at[place] = (struct sl_bytes){word, strlen(word)};
    bool good = sl_message_read(&again, o.args.at, o.args.n);
    close_words(&o);
    return good;
}

static void numbers_out_of_range_are_rejected(void **state)
{
    (void)state;
    static const char *const never[] = {"",
                                        "-1",
                                        "+1",
                                        "01",
                                        " 1",
                                        "1 ",
                                        "0x1",
                                        "1.",
                                        "-0",
                                        "18446744073709551616",
                                        "99999999999999999999999"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        for (size_t place = 1; place <= 7; place++)
            assert_false(is_read_with(SL_MESSAGE_BEAT, place, never[i]));
    assert_true(is_read_with(SL_MESSAGE_BEAT, 1, "18446744073709551615"));
    assert_true(is_read_with(SL_MESSAGE_BEAT, 4, "9223372036854775807")); /* A time. */
    assert_false(is_read_with(SL_MESSAGE_BEAT, 4, "9223372036854775808"));
    assert_true(is_read_with(SL_MESSAGE_STORED, 9, "9007199254740991")); /* A fence. */
    assert_false(is_read_with(SL_MESSAGE_STORED, 9, "9007199254740992"));
    assert_true(is_read_with(SL_MESSAGE_PREPARE, 9, "15")); /* A node. */
    assert_false(is_read_with(SL_MESSAGE_PREPARE, 9, "16"));
}

static void unknown_arguments_are_rejected(void **state)
{
    struct sl_message m;
    (void)state;
    assert_false(sl_message_read(&m, NULL, 0));
    assert_false(is_read_with(SL_MESSAGE_BEAT, 0, "NONE"));
    assert_false(is_read_with(SL_MESSAGE_BEAT, 0, "beat"));
    assert_false(is_read_with(SL_MESSAGE_BEAT, 0, "BEAT "));
    assert_false(is_read_with(SL_MESSAGE_BEAT, 0, ""));
    assert_false(is_read_with(SL_MESSAGE_ACCEPTED, 10, "")); /* A verdict. */
    assert_false(is_read_with(SL_MESSAGE_ACCEPTED, 10, "NONE"));
    assert_false(is_read_with(SL_MESSAGE_ACCEPTED, 10, "yes"));
    assert_true(is_read_with(SL_MESSAGE_ACCEPTED, 10, "YES"));
}

static bool is_list(const char *text)
{
    return is_read_with(SL_MESSAGE_STORE, 8, text);
}

static void lists_are_by_id_and_of_at_most_nine(void **state)
{
    (void)state;
    assert_true(is_list("0:0:0:"));
    assert_true(is_list("1:7:0:0:1=a:1"));
    assert_true(is_list("7:1:2:0:0:1=a:1,2=b:1"));
    assert_true(is_list("7:1:2:5:18446744073709551615:1=a:1,2=b:1"));
    assert_true(is_list("1:9:0:0:0:0:0:0:0:0:0:0:1=a:1,2=a:1,3=a:1,4=a:1,5=a:1,6=a:1,7="
                        "a:1,8=a:1,9=a:1"));
    static const char *const wrong[] = {
        "",
        "0",
        "0:0",
        "0:0:0",
        "0:9:0:",          /* A cluster without a list. */
        "1:9:0:1=a:1",     /* Without a birth, */
        "1:9:0:0:0:1=a:1", /* with two. */
        "1:9:1:07:1=a:1",
        "1:0:0:",
        "0:9:0:0:1=a:1",
        "1:9:0:0:1=a:1,",
        "1:0:0:,1=a:1",
        "1:9:0:0:1=a",
        "1:9:0:0:1=a:0",
        "1:9:0:0:1=a:65536",
        "1:9:0:0:1=:1",
        "1:9:0:0:0=a:1",
        "1:9:0:0:16=a:1",
        "1:9:0:0:0:2=a:1,1=b:1", /* Not by id. */
        "1:9:0:0:0:1=a:1,1=b:1", /* Twice. */
        "1:9:3:0:0:1=a:1,2=b:1", /* Added, and not there. */
        "1:9:0:0: 1=a:1",
        "1:9:0:0:0:1=a:1, 2=b:1", /* As people write it. */
        "01:9:0:0:1=a:1",
        "1:9:00:0:1=a:1",
        "1:9:0:0:01=a:1",
        "1:9:0:0:1=a:01",
        "1:9:0:0:1=a b:1",
        "1:9:0:0:1=::1:1",
        "1:9:0:0:1=[::1:1",
        "1:9:0:0:0:0:0:0:0:0:0:0:0:1=a:1,2=a:1,3=a:1,4=a:1,5=a:1,6=a:1,7=a:1,8=a:1,9=a:"
        "1,"
        "10=a:1",
        ("1:9:0:0:1="
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:"
         "1"),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (is_list(wrong[i])) fail_msg("\"%s\" was read", wrong[i]);
}

/* --- Lists as people write them ---------------------------------------------- */

static const char *wrong_with(const char *text)
{
    struct sl_membership list;
    struct sl_bytes where;
    return sl_membership_read(&list, (struct sl_bytes){text, strlen(text)}, &where);
}

static void peers_may_be_in_any_order_and_have_blanks(void **state)
{
    struct sl_membership list;
    struct sl_bytes where;
    const char *text = "3=c:3, 1=[::1]:1 ,2=b.example:2";
    char again[SL_MEMBERS_TEXT];
    (void)state;
    assert_null(
        sl_membership_read(&list, (struct sl_bytes){text, strlen(text)}, &where));
    sl_membership_write(&list, again);
    assert_string_equal(again, "1=[::1]:1,2=b.example:2,3=c:3");
}

static void what_is_wrong_with_peers_is_reported(void **state)
{
    (void)state;
    assert_string_equal(wrong_with(""), "each node must be given as ID=HOST:PORT");
    assert_string_equal(wrong_with("a:1"), "each node must be given as ID=HOST:PORT");
    assert_string_equal(wrong_with("x=a:1"),
                        "the node id must be an integer from 1 to 15");
    assert_string_equal(wrong_with("1=a"), "the address must be host:port");
    assert_string_equal(wrong_with("1=a:b"),
                        "the port after the colon must be from 1 to 65535");
    assert_string_equal(wrong_with("1=::1:5627"),
                        "an IPv6 address needs brackets: [::1]:5627");
    assert_string_equal(wrong_with("1=a:1,1=b:1"), "the node is listed twice");
    assert_string_equal(wrong_with("1=a:1,,2=b:1"),
                        "each node must be given as ID=HOST:PORT");
}

static void an_address_is_split_at_its_last_colon(void **state)
{
    char host[SL_ADDRESS_BYTES], port[8];
    (void)state;
    sl_address_split("[fe80::1%eth0]:5627", host, port);
    assert_string_equal(host, "fe80::1%eth0");
    assert_string_equal(port, "5627");
    sl_address_split("a-b.c:1", host, port);
    assert_string_equal(host, "a-b.c");
    assert_string_equal(port, "1");
}

/* --- Proofs ------------------------------------------------------------------ */

static const char secret[] = "0123456789abcdef";

static struct sl_handshake handshake(void)
{
    struct sl_handshake m = {.ids = {1, 2}};
    memset(m.nonces[SL_CALLER], 'a', SL_HEX_BYTES - 1);
    memset(m.nonces[SL_CALLEE], 'b', SL_HEX_BYTES - 1);
    return m;
}

static bool holds(const struct sl_handshake *m, enum sl_link_role role, const char *of,
                  const char *proof)
{
    return sl_proof_holds(m, role, of, (struct sl_bytes){proof, strlen(proof)});
}

/* printf '%s' "sluice-node 6 caller 1 2 aa... bb..." | openssl dgst -sha256 -hmac ... */
static void a_proof_is_what_others_compute_too(void **state)
{
    struct sl_handshake m = handshake();
    char proof[SL_HEX_BYTES];
    (void)state;
    assert_true(sl_proof_make(&m, SL_CALLER, secret, proof));
    assert_string_equal(
        proof, "5b26942dfb53dd7ecd0b933b49687e42be1d71d1246d442d16a7bccb20c27bae");
    assert_true(sl_proof_make(&m, SL_CALLEE, secret, proof));
    assert_string_equal(
        proof, "68d3e516cca0ad41e56e7cf3e212c127298fe164f89c54eb95578c8703e8b22a");
}

static void a_proof_holds_for_its_meeting_and_role_alone(void **state)
{
    struct sl_handshake m = handshake(), other;
    char proof[SL_HEX_BYTES];
    (void)state;
    assert_true(sl_proof_make(&m, SL_CALLER, secret, proof));
    assert_true(holds(&m, SL_CALLER, secret, proof));
    assert_false(holds(&m, SL_CALLEE, secret, proof));
    assert_false(holds(&m, SL_CALLER, "0123456789abcdeF", proof));
    for (int role = 0; role < 2; role++) {
        other = m;
        other.ids[role]++;
        assert_false(holds(&other, SL_CALLER, secret, proof));
        other = m;
        other.nonces[role][63] ^= 1;
        assert_false(holds(&other, SL_CALLER, secret, proof));
    }
    other = (struct sl_handshake){.ids = {2, 1}};
    memcpy(other.nonces[0], m.nonces[1], SL_HEX_BYTES);
    memcpy(other.nonces[1], m.nonces[0], SL_HEX_BYTES);
    assert_false(holds(&other, SL_CALLER, secret, proof));
    for (size_t i = 0; i < SL_HEX_BYTES - 1; i++) {
        proof[i] ^= 1;
        assert_false(holds(&m, SL_CALLER, secret, proof));
        proof[i] ^= 1;
    }
    proof[63] = '\0';
    assert_false(holds(&m, SL_CALLER, secret, proof));
    assert_false(holds(&m, SL_CALLER, secret, ""));
}

static void nonces_are_drawn_anew_and_taken_as_they_are(void **state)
{
    char a[SL_HEX_BYTES], b[SL_HEX_BYTES], c[SL_HEX_BYTES];
    (void)state;
    assert_true(sl_nonce_draw(a) && sl_nonce_draw(b));
    assert_int_equal(strlen(a), SL_HEX_BYTES - 1);
    assert_string_not_equal(a, b);
    assert_true(sl_nonce_take(c, (struct sl_bytes){a, SL_HEX_BYTES - 1}));
    assert_string_equal(a, c);
    assert_false(sl_nonce_take(c, (struct sl_bytes){a, SL_HEX_BYTES - 2}));
    a[7] = 'g';
    assert_false(sl_nonce_take(c, (struct sl_bytes){a, SL_HEX_BYTES - 1}));
    a[7] = 'A';
    assert_false(sl_nonce_take(c, (struct sl_bytes){a, SL_HEX_BYTES - 1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_comes_out_as_it_went_in),
        cmocka_unit_test(missing_and_extra_arguments_are_rejected),
        cmocka_unit_test(a_changed_word_is_rejected_or_has_its_meaning),
        cmocka_unit_test(numbers_out_of_range_are_rejected),
        cmocka_unit_test(unknown_arguments_are_rejected),
        cmocka_unit_test(lists_are_by_id_and_of_at_most_nine),
        cmocka_unit_test(peers_may_be_in_any_order_and_have_blanks),
        cmocka_unit_test(what_is_wrong_with_peers_is_reported),
        cmocka_unit_test(an_address_is_split_at_its_last_colon),
        cmocka_unit_test(a_proof_is_what_others_compute_too),
        cmocka_unit_test(a_proof_holds_for_its_meeting_and_role_alone),
        cmocka_unit_test(nonces_are_drawn_anew_and_taken_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
