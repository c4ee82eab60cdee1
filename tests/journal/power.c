/* power.c - power failures and kills at random moments: nothing acknowledged is lost, an accident
 * never looks like damage, and real damage is noticed.
 *
 *     power [--short | --long] [--failures N] [--seed N] [--trace]
 *           [--short-lease SECONDS --long-lease SECONDS]
 *
 * A history is a server (owner.h) on a disk in memory (disk.h). It grants, extends and ends leases,
 * syncs, and replaces its file, until the power fails or it is killed, before, after or in the
 * middle of a system call. Then it starts again, which can fail in the same way. A third of the
 * histories also have disk errors. The clients check after each accident that what was acknowledged
 * still holds (owner.h), and some bytes are damaged to check that the server notices. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "owner.h"

#include "options.h"
#include "stage.h"

#define DEADLINE_S 14000
#define TURNS_MAX 60
#define STARTS_MAX 20 /* Of one history. */
#define WRONG_MAX 3   /* The run ends after so many wrong histories. */

static struct owner owner;
static uint64_t random_state;
static jmp_buf dead;
static const char *program;
static uint64_t short_s, long_s; /* The only leases; 0: leases of many lengths. */
static bool lazy;                /* The disk is slow, and there are few syncs. */

static struct counts {
    uint64_t histories, power, kills, second, torn, lost, damaged, unnoticed, faults;
    uint64_t replaced, mended, clean;
    uint64_t held, forgotten;
    sl_ms wait_ms; /* The longest wait after a power failure, from the boot. */
} counts;

static uint64_t draw(uint64_t below)
{
    return stage_random(&random_state) % below;
}

/* ---- the server, until an accident ---- */

static void happen(void *unused)
{
    (void)unused;
    longjmp(dead, 1);
}

static sl_ms draw_lease(void)
{
    static const sl_ms leases[] = {
        5000, 30000, OWNER_VOLATILE_MS, OWNER_VOLATILE_MS + 1, 90000, 300000, 3600000};
    if (short_s > 0) return (sl_ms)(draw(2) == 0 ? short_s : long_s) * 1000;
    return leases[draw(sizeof leases / sizeof leases[0])];
}

static void some_request(struct owner *o)
{
    int key = (int)draw(OWNER_KEYS);
    switch (draw(8)) {
        case 0:
        case 1:
        case 2: owner_acquire(o, key, draw_lease()); break;
        case 3: owner_acquire(o, key, 0); break;
        case 4:
        case 5: owner_extend(o, key, draw_lease()); break;
        default: owner_release(o, key); break;
    }
}

/* While a worker thread is in a system call. */
static void loop_meanwhile(void *of)
{
    struct owner *o = of;
    if (!o->serves || draw(4) == 0) return;
    for (uint64_t n = 1 + draw(3); n > 0; n--) some_request(o);
    owner_turn(o);
}

static void one_turn(struct owner *o)
{
    o->now_ms += (sl_ms)(draw(12) == 0 ? draw(60000) : draw(500));
    for (uint64_t n = draw(4); n > 0; n--) some_request(o);
    owner_turn(o);
    if (draw(lazy ? 8 : 3) == 0 || (!lazy && sl_journal_sync_due(o->j) <= o->now_ms))
        owner_sync(o);
    if (draw(8) == 0) owner_replace(o);
    if (draw(2) == 0) owner_copy(o);
    if (draw(2) == 0) owner_commit(o);
    owner_mend(o);
}

static void draw_fault(void)
{
    static const int errors[] = {EIO, ENOSPC, EIO, EDQUOT, EROFS};
    enum disk_call call = (enum disk_call)draw(DISK_CALLS);
    /* Without reading, no server starts. */
    if (call == DISK_READ || call == DISK_ANY) call = DISK_SYNC;
    disk_fail(call, 1 + draw(20), draw(4), errors[draw(5)]);
}

/* Start the server and let it work until an accident. Returns false if it stopped cleanly. */
static bool live(struct owner *o, bool with_faults)
{
    disk_accident(1 + draw(draw(4) == 0 ? 16 : 200), happen, NULL);
    disk_fail(DISK_ANY, 0, 0, 0);
    disk_meanwhile(loop_meanwhile, o);
    disk_be_difficult(draw(4) == 0);
    disk_support(draw(4) != 0, draw(2) == 0);
    lazy = draw(2) == 0;
    if (with_faults && draw(2) == 0) {
        draw_fault();
        o->may_fail = true;
    }
    if (setjmp(dead) != 0) return true;
    int error = owner_start(o);
    if (error == EILSEQ) snprintf(o->wrong, sizeof o->wrong, "the start found damage");
    if (error != 0) return true; /* A fault. The next start is without one. */
    for (uint64_t n = draw(TURNS_MAX); n > 0; n--) {
        uint64_t replaced = disk_count(DISK_RENAME);
        bool failed = sl_journal_failed(o->j);
        one_turn(o);
        counts.replaced += disk_count(DISK_RENAME) - replaced;
        counts.mended += failed && !sl_journal_failed(o->j);
    }
    return draw(3) != 0 || owner_stop(o) != 0;
}

/* ---- damage ---- */

/* The offset up to which frames after `offset` say that the file was durable. */
static uint64_t claimed_after(struct sl_bytes file, uint64_t offset)
{
    struct sl_header header;
    struct sl_frame f;
    uint64_t claimed = 0;
    if (sl_header_read(file, &header) != 0) return 0;
    for (size_t at = (size_t)offset / 8 * 8;
         sl_frame_search(file, at, header.chain.seed, &f); at = f.at + f.bytes)
        if (f.at > offset && f.durable > claimed) claimed = f.durable;
    return claimed;
}

/* Damage a byte, and check that the server notices, if a later frame shows that the byte was durable
 * (in the same life: if there is a later frame). Then undo the damage. */
static void try_damage(struct owner *o)
{
    static struct owner copy;
    struct sl_bytes file;
    struct sl_header header;
    struct sl_chain chain;
    struct sl_frame f = {0};
    const bool same_life = o->was_same_life;
    if (sl_journal_map(disk_directory, &file) != 0) return;
    uint64_t end = SL_HEADER_BYTES;
    if (sl_header_read(file, &header) != 0) abort();
    chain = header.chain;
    while (sl_frame_next(file, (size_t)end, &chain, &f)) end = f.at + f.bytes;
    uint64_t offset = draw(4) == 0 ? draw(end)
                                   : SL_HEADER_BYTES + draw(end - SL_HEADER_BYTES + 1);
    if (offset >= end) offset = end - 1;
    /* The frame that has this byte. */
    uint64_t from = SL_HEADER_BYTES;
    chain = header.chain;
    while (sl_frame_next(file, (size_t)from, &chain, &f) && f.at + f.bytes <= offset)
        from = f.at + f.bytes;
    bool in_header = offset < SL_HEADER_BYTES;
    uint64_t claimed = claimed_after(file, from);
    bool has_later = !in_header && f.at == from && from + f.bytes < end;
    sl_journal_unmap(file);

    disk_save();
    disk_damage(SL_JOURNAL_NAME, offset);
    copy = *o;
    copy.wrong[0] = '\0';
    int error = same_life ? owner_check_same_life(&copy)
                          : owner_check_other_life(&copy);
    bool must = in_header || claimed > from || (same_life && has_later);
    if (error == EILSEQ) counts.damaged++;
    else if (must && o->wrong[0] == '\0')
        snprintf(o->wrong, sizeof o->wrong,
                 "damage at %" PRIu64 " was not noticed: the frame at %" PRIu64
                 ", durable up to %" PRIu64,
                 offset, from, claimed);
    else counts.unnoticed++;
    disk_restore();
}

/* ---- accidents ---- */

static void kill_it(struct owner *o)
{
    disk_kill();
    owner_say(o, "killed");
    counts.kills++;
    o->now_ms += (sl_ms)draw(2000);
    int error = owner_check_same_life(o);
    if (error == EILSEQ)
        snprintf(o->wrong, sizeof o->wrong, "a kill looks like damage");
    if (error == 0 && draw(4) == 0) try_damage(o);
}

static void lose_power(struct owner *o)
{
    sl_ms died_ms = o->now_ms;
    counts.power++;
    owner_say(o, "power lost");
    disk_lose_power(draw(2) == 0 ? 4096 : 512);
    owner_boot(o, died_ms);
    o->now_ms = (sl_ms)draw(5000);
    int error = owner_check_other_life(o);
    if (error == EILSEQ)
        snprintf(o->wrong, sizeof o->wrong, "a power failure looks like damage");
    /* The machine has booted at 0. */
    if (error == 0 && o->found_wait_ms > OWNER_VOLATILE_MS)
        snprintf(o->wrong, sizeof o->wrong,
                 "new grants wait for %" PRId64 " ms from the boot", o->found_wait_ms);
    if (error == 0 && o->found_wait_ms > counts.wait_ms)
        counts.wait_ms = o->found_wait_ms;
    if (error == 0 && draw(4) == 0) try_damage(o);
}

/* ---- one history ---- */

static bool run_history(uint64_t seed, uint64_t *failures)
{
    struct owner *o = &owner;
    random_state = seed;
    disk_open(seed ^ 0x5eed);
    owner_init(o, disk_directory);
    bool with_faults = draw(3) == 0;
    o->value_bytes = draw(3) == 0 ? 0 : (size_t)draw(1600);
    counts.histories++;
    for (uint64_t n = 2 + draw(STARTS_MAX - 1); n > 0 && o->wrong[0] == '\0'; n--) {
        bool accident = live(o, with_faults);
        bool started = o->j != NULL && o->f != NULL;
        counts.faults += disk_failures();
        if (disk_wrong_syncs() > 0 && o->wrong[0] == '\0')
            snprintf(o->wrong, sizeof o->wrong,
                     "a file was synced after a write or a sync had failed");
        disk_dead(true);
        owner_forget_process(o);
        disk_dead(false);
        disk_fail(DISK_ANY, 0, 0, 0);
        disk_be_difficult(false);
        counts.clean += !accident;
        counts.second += accident && !started;
        if (o->wrong[0] != '\0') break;
        if (draw(3) == 0) kill_it(o);
        else lose_power(o);
        ++*failures;
    }
    counts.held += o->held;
    counts.forgotten += o->forgotten;
    if (o->wrong[0] == '\0') return true;
    stage_note("seed %" PRIu64 ": %s", seed, o->wrong);
    stage_note("replay: %s --failures 1 --seed %" PRIu64 " --trace", program, seed);
    return false;
}

int main(int argc, char **argv)
{
    uint64_t least = 3000, seed = options_seed(), failures = 0, wrong = 0;
    const struct test_option options[] = {
        {"--long", .number = &least, .preset = 300000},
        {"--failures", .number = &least},
        {"--seed", .number = &seed},
        {"--short-lease", .number = &short_s},
        {"--long-lease", .number = &long_s},
        {"--trace", .given = &owner_trace},
        {.name = NULL}};
    options_read(argc, argv,
                 "power [--short | --long] [--failures N] [--seed N] "
                 "[--short-lease S --long-lease S]",
                 options);
    program = argv[0];
    stage_open(DEADLINE_S);
    stage_note("seed %" PRIu64 ", at least %" PRIu64 " failures", seed, least);
    for (; failures < least && wrong < WRONG_MAX; seed++)
        wrong += !run_history(seed, &failures);
    stage_note("%" PRIu64 " histories, %" PRIu64 " power failures, %" PRIu64
               " kills, %" PRIu64 " of them during a start",
               counts.histories, counts.power, counts.kills, counts.second);
    stage_note("after power failures %" PRIu64 " long leases were held, %" PRIu64
               " short ones were not; new grants waited at most until %" PRId64
               " ms after the boot",
               counts.held, counts.forgotten, counts.wait_ms);
    stage_note("%" PRIu64 " files replaced, %" PRIu64 " journals mended after %" PRIu64
               " faults, %" PRIu64 " clean stops",
               counts.replaced, counts.mended, counts.faults, counts.clean);
    stage_note("%" PRIu64 " damaged bytes noticed, %" PRIu64
               " in frames that no later frame calls durable",
               counts.damaged, counts.unnoticed);
    stage_ok(wrong == 0, "what was acknowledged holds after %" PRIu64 " failures",
             failures);
    if (least >= 1000)
        stage_ok(counts.damaged > 0 && counts.replaced > 0 && counts.mended > 0 &&
                     counts.second > 0 && counts.clean > 0,
                 "every kind of accident happened");
    stage_close();
}
