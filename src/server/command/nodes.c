/* nodes.c - NODES: lists, adds or removes nodes of a cluster; the keeper resigns. */
#include <string.h>

#include "majority/membership.h"
#include "server/net/membership_text.h"
#include "server/request.h"

static void say_wrong_form(struct call *call)
{
    if (sl_word_is(call->at[1], "ADD"))
        sl_say_usage(call, "ADD needs an id and an address");
    else if (sl_word_is(call->at[1], "REMOVE"))
        sl_say_usage(call, "REMOVE needs an id");
    else if (sl_word_is(call->at[1], "RESIGN"))
        sl_say_usage(call, "RESIGN has no arguments");
    else
        sl_say_unknown(call, "subcommand", call->at[1],
                       SL_NAMES("ADD", "REMOVE", "RESIGN"));
}

void sl_do_nodes(struct call *call)
{
    struct request r;
    const char *wrong;
    int64_t id = 0;
    bool add = call->n == 4 && sl_word_is(call->at[1], "ADD");
    bool remove = call->n == 3 && sl_word_is(call->at[1], "REMOVE");
    bool resign = call->n == 2 && sl_word_is(call->at[1], "RESIGN");
    sl_request_init(&r, call, SL_VERB_NODES);
    r.add = add;
    r.remove = remove;
    r.resign = resign;
    if (call->n > 1 && !add && !remove && !resign) say_wrong_form(call);
    else if (call->n > 2 && !sl_parse_number(call->at[2], 1, SL_NODE_ID_MAX, &id))
        sl_say_format(call, "ERR",
                      "the node id must be an integer from 1 to %d (got \"%.*s%s\")",
                      SL_NODE_ID_MAX, SL_SHOWN(call->at[2]));
    else if (add && (wrong = sl_address_wrong(call->at[3])) != NULL)
        sl_say(call, sluice_status_word(SLUICE_ENODES), wrong);
    else {
        r.node = (sl_node_id)id;
        r.address = add ? call->at[3] : (struct sl_bytes){NULL, 0};
        sl_request_submit(&r);
    }
}
