#include "cli/bench_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* After an error, a client waits, so that it does not send requests as fast as it can to a server
 * that rejects them. */
#define ERROR_PAUSE_MS 10

#define KEY_SIZE (BENCH_PREFIX_BYTES_MAX + 12)
#define NUMBER_SIZE 24

/* A slot has one command in flight. There are as many slots as commands in the pipeline. The
 * server replies in the order of the commands, and a slot sends its next command as soon as its
 * reply has come, so the replies come in the order of the slots. */
struct bench_slot {
    uint32_t key;
    bool busy, releases;
    int64_t sent_us;
};

void bench_add_error(struct bench_results *r, const char *kind, size_t n,
                     uint64_t count)
{
    struct bench_error *e = r->errors;
    if (n >= BENCH_KIND_SIZE) n = BENCH_KIND_SIZE - 1;
    /* The last entry counts all other kinds. */
    for (size_t i = 0; i < BENCH_KINDS_MAX - 1; i++, e++) {
        if (e->kind[0] == '\0') {
            memcpy(e->kind, kind, n);
            e->kind[n] = '\0';
        }
        if (strlen(e->kind) == n && memcmp(e->kind, kind, n) == 0) {
            e->count += count;
            return;
        }
    }
    strcpy(e->kind, "other");
    e->count += count;
}

static void count_error(struct bench_client *c, const char *kind)
{
    bench_add_error(&c->results, kind, strcspn(kind, " "), 1);
    /* Relaxed: a number to show, which orders nothing. */
    atomic_fetch_add_explicit(&c->errors_so_far, 1, memory_order_relaxed);
}

/* --- Commands --------------------------------------------------------------- */

static int send_command(struct bench_client *c, struct bench_slot *slot,
                        const char *const *args, size_t n)
{
    slot->busy = true;
    slot->sent_us = c->work->now_us();
    return sluice_wire_send(c->wire, args, NULL, n);
}

static void put_key(const struct bench_client *c, uint32_t key, char out[KEY_SIZE])
{
    snprintf(out, KEY_SIZE, "%s%" PRIu32, c->work->prefix, key);
}

static int send_acquire(struct bench_client *c, struct bench_slot *slot)
{
    const struct bench_work *w = c->work;
    char key[KEY_SIZE], per[NUMBER_SIZE], lease[NUMBER_SIZE], wait[NUMBER_SIZE];
    const char *args[9] = {"ACQUIRE", key};
    size_t n = 2;
    slot->key = sl_random_below(&c->random, w->keys);
    slot->releases = false;
    put_key(c, slot->key, key);
    if (w->shared) args[n++] = "SHARED";
    else if (w->per > 1) {
        snprintf(per, sizeof per, "%" PRIu32, w->per);
        args[n++] = "PER", args[n++] = per;
    }
    if (w->lease_ms > 0) {
        snprintf(lease, sizeof lease, "%" PRId64, w->lease_ms);
        args[n++] = "LEASE", args[n++] = lease;
    }
    if (w->wait_ms > 0) {
        snprintf(wait, sizeof wait, "%" PRId64, w->wait_ms);
        args[n++] = "WAIT", args[n++] = wait;
    }
    return send_command(c, slot, args, n);
}

static int send_release(struct bench_client *c, struct bench_slot *slot, int64_t fence)
{
    char key[KEY_SIZE], number[NUMBER_SIZE];
    const char *args[] = {"RELEASE", key, number};
    put_key(c, slot->key, key);
    snprintf(number, sizeof number, "%" PRId64, fence);
    slot->releases = true;
    return send_command(c, slot, args, 3);
}

static int send_next(struct bench_client *c, struct bench_slot *slot)
{
    slot->busy = false;
    /* Relaxed: the client may see it late. */
    if (atomic_load_explicit(c->stop, memory_order_relaxed)) return SLUICE_OK;
    return send_acquire(c, slot);
}

/* --- Replies ---------------------------------------------------------------- */

static int on_granted(struct bench_client *c, struct bench_slot *slot, int64_t us,
                      const struct sluice_reply *r)
{
    enum { FENCE, WAITED_MS = 3 };
    c->results.grants++;
    cli_latency_add(&c->results.acquire, us);
    if (c->work->wait_ms > 0)
        cli_latency_add(&c->results.wait, r->items[WAITED_MS].number * 1000);
    return send_release(c, slot, r->items[FENCE].number);
}

static void on_released(struct bench_client *c, int64_t us, bool held)
{
    if (!held) {
        c->results.expired++;
        return;
    }
    c->results.pairs++;
    cli_latency_add(&c->results.release, us);
    atomic_fetch_add_explicit(&c->pairs_so_far, 1, memory_order_relaxed);
}

static int on_reply(struct bench_client *c, struct bench_slot *slot,
                    const struct sluice_reply *r)
{
    const struct timespec pause = {.tv_nsec = ERROR_PAUSE_MS * 1000000L};
    int64_t us = c->work->now_us() - slot->sent_us;
    if (r->type == SLUICE_REPLY_ERROR) {
        count_error(c, r->text);
        nanosleep(&pause, NULL);
    } else if (slot->releases && r->type == SLUICE_REPLY_NUMBER)
        on_released(c, us, r->number != 0);
    else if (!slot->releases && r->type == SLUICE_REPLY_LIST && r->count >= 5)
        return on_granted(c, slot, us, r);
    else if (!slot->releases && r->type == SLUICE_REPLY_NIL) c->results.taken++;
    else return SLUICE_EPROTOCOL;
    return send_next(c, slot);
}

/* Read the reply to the command of a slot, and send its next command. */
static int serve_slot(struct bench_client *c, struct bench_slot *slot)
{
    struct sluice_reply *r;
    int status;
    for (;;) {
        status = sluice_wire_next(c->wire, &r);
        if (status != SLUICE_OK) return status;
        if (r->type != SLUICE_REPLY_PUSH) break;
        sluice_reply_free(r);
    }
    status = on_reply(c, slot, r);
    sluice_reply_free(r);
    return status;
}

/* --- The thread --------------------------------------------------------------- */

static int work(struct bench_client *c)
{
    uint32_t n = c->work->pipeline, busy = 0;
    int status = SLUICE_OK;
    for (uint32_t i = 0; i < n && status == SLUICE_OK; i++)
        status = send_next(c, &c->slots[i]);
    do {
        busy = 0;
        for (uint32_t i = 0; i < n && status == SLUICE_OK; i++) {
            if (!c->slots[i].busy) continue;
            status = serve_slot(c, &c->slots[i]);
            busy++;
        }
    } while (status == SLUICE_OK && busy > 0);
    return status;
}

static void *run(void *arg)
{
    struct bench_client *c = arg;
    int status = work(c);
    c->lost = status != SLUICE_OK;
    if (c->lost) count_error(c, sluice_status_word(status));
    sluice_wire_close(c->wire);
    atomic_store_explicit(&c->ended, true, memory_order_release);
    return NULL;
}

bool bench_client_start(struct bench_client *c)
{
    c->slots = calloc(c->work->pipeline, sizeof *c->slots);
    return c->slots != NULL && pthread_create(&c->thread, NULL, run, c) == 0;
}
