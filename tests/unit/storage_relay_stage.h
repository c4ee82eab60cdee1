/* storage_relay_stage.h - two connections to the same keys in etcd: one through a relay that can lose
 * messages, and one without it. */
#ifndef SLUICE_STORAGE_RELAY_STAGE_H
#define SLUICE_STORAGE_RELAY_STAGE_H

#include "relay_stage.h"
#include "storage_stage.h"

/* The limit for an answer. When the relay loses a message, connections end, and that takes time. */
#define ANSWER_MS 20000

static struct stage stage, second;

/* `stage` uses the relay; `second` does not. */
static int begin(void **state)
{
    stage_begin(&stage, &etcd_kind);
    sl_storage_close(stage.storage);
    stage.etcd.members = relay_begin(members.is[0].port);
    stage.etcd.answer_ms = ANSWER_MS;
    stage_open(&stage);
    second = stage;
    second.etcd.members = members.members;
    stage_open(&second);
    *state = &stage;
    return 0;
}

static int end(void **state)
{
    (void)state;
    relay_lose(RELAY_PASS, "", 0);
    sl_storage_close(second.storage);
    stage_end(&stage);
    relay_end();
    return 0;
}

#endif /* SLUICE_STORAGE_RELAY_STAGE_H */
