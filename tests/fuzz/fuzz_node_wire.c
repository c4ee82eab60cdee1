/* fuzz_node_wire.c - any commands are no message of a node, or one that is written again as
 * the same words; and any text is not a membership, or one that is written in one way. */
#include <string.h>

#include "fuzz.h"

#include "resp/reader.h"
#include "server/net/membership_text.h"
#include "server/net/node_wire.h"

static const struct sl_resp_limits limits = {.args_max = 64,
                                             .bulk_bytes_max = 65536,
                                             .command_bytes_max = 262144,
                                             .inline_bytes_max = 1024};

static struct sl_resp_reader *reader_of(const char *bytes, size_t n)
{
    struct sl_resp_reader *r = sl_resp_reader_new(&limits);
    must(r != NULL);
    while (n > 0) {
        char *to;
        size_t room = sl_resp_room(r, &to), piece = n < room ? n : room;
        memcpy(to, bytes, piece);
        sl_resp_filled(r, piece);
        bytes += piece;
        n -= piece;
    }
    return r;
}

static void check_numbers(const struct sl_message *m)
{
    must(m->fence <= SL_FENCE_MAX && m->ceiling <= SL_FENCE_MAX);
    must(m->sent_ms >= 0 && m->heard_ms >= 0 && m->lease_ms >= 0);
    must(m->waited_ms >= 0 && m->left_ms >= 0);
    must(m->ballot.id <= SL_NODE_ID_MAX && m->ballot2.id <= SL_NODE_ID_MAX);
    must(m->type > SL_MESSAGE_NONE && m->type < SL_MESSAGE_COUNT);
    must(m->verdict < SL_VERDICT_COUNT);
}

static void check_list(const struct sl_membership *l)
{
    must(l->count <= SL_NODES_MAX);
    for (uint32_t i = 0; i < l->count; i++) {
        must(l->at[i].id >= 1 && l->at[i].id <= SL_NODE_ID_MAX);
        must(i == 0 || l->at[i - 1].id < l->at[i].id);
        must(memchr(l->at[i].address, '\0', SL_ADDRESS_BYTES) != NULL);
    }
}

/* Written again, it is the same words. */
static void check_again(const struct sl_message *m, const struct sl_args *words)
{
    struct sl_resp_writer w;
    struct sl_args again;
    sl_resp_writer_init(&w, 1 << 20);
    sl_message_write(&w, m);
    must(!w.spilt);
    struct sl_resp_reader *r = reader_of(w.buffer, w.n);
    must(sl_resp_next(r, &again) == 1 && again.n == words->n);
    for (size_t i = 0; i < again.n; i++)
        must(again.at[i].n == words->at[i].n &&
             (again.at[i].n == 0 ||
              memcmp(again.at[i].at, words->at[i].at, again.at[i].n) == 0));
    must(sl_resp_unread(r) == 0);
    sl_resp_reader_free(r);
    sl_resp_writer_free(&w);
}

static void check_commands(const char *bytes, size_t n)
{
    struct sl_resp_reader *r = reader_of(bytes, n);
    struct sl_args args;
    struct sl_message m;
    while (sl_resp_next(r, &args) == 1) {
        if (!sl_message_read(&m, args.at, args.n)) continue;
        check_numbers(&m);
        check_list(&m.list);
        check_again(&m, &args);
    }
    sl_resp_reader_free(r);
}

static void check_text(const char *bytes, size_t n)
{
    struct sl_membership list, again;
    struct sl_bytes where;
    char text[SL_MEMBERS_TEXT], text2[SL_MEMBERS_TEXT], host[SL_ADDRESS_BYTES], port[8];
    if (sl_membership_read(&list, (struct sl_bytes){bytes, n}, &where) != NULL) {
        must(where.at >= bytes && where.at + where.n <= bytes + n);
        return;
    }
    check_list(&list);
    size_t length = sl_membership_write(&list, text);
    must(length == strlen(text) && length < sizeof text);
    must(sl_membership_read(&again, (struct sl_bytes){text, length}, &where) == NULL);
    sl_membership_write(&again, text2);
    must(strcmp(text, text2) == 0);
    for (uint32_t i = 0; i < list.count; i++)
        sl_address_split(list.at[i].address, host, port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_commands((const char *)data, n);
    check_text((const char *)data, n);
    return 0;
}
