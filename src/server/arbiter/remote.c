/* remote.c - the arbiter `remote`: a table of the functions in server/forward/. */
#include "server/arbiter/remote.h"

#include <stdlib.h>

#include "server/forward/forward.h"

static const struct arbiter_kind remote = {.name = "remote",
                                           .submit = sl_forward_submit,
                                           .withdraw = sl_forward_withdraw,
                                           .take_back = sl_forward_take_back,
                                           .is_brief = sl_forward_is_brief,
                                           .leave = sl_forward_leave,
                                           .tx_failed = sl_forward_failed,
                                           .due = sl_forward_due,
                                           .pump = sl_forward_pump,
                                           .second = sl_forward_second};

struct arbiter *sl_remote_new(struct server *s)
{
    struct arbiter *a = calloc(1, sizeof *a);
    if (a != NULL) *a = (struct arbiter){.kind = &remote, .s = s};
    return a;
}
