/* faults.c - every system call of the journal fails once, or several times, with every error that
 * matters; then the process is killed, or the power fails.
 *
 *     faults [--short | --long] [--only rules | replacement | starts | every] [--trace]
 *
 * A script (below) starts a server (owner.h) on a disk in memory (disk.h), and uses every function
 * of src/journal/file.h. The test runs it once for each call, error and number of failures. After
 * each run the disk works again, and so must the journal: within a few attempts, without a sync of a
 * file that has failed, and with everything that was acknowledged. --short takes some of the runs. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "disk.h"
#include "owner.h"

#include "options.h"
#include "sluice.h"
#include "stage.h"

#define DEADLINE_S 3600
#define ATTEMPTS_MAX 5 /* To write a new file, when the disk works again. */

static struct owner owner;
static jmp_buf dead;
static uint64_t runs, wrong_runs;

static void happen(void *unused)
{
    (void)unused;
    longjmp(dead, 1);
}

static void end_process(struct owner *o)
{
    disk_dead(true);
    owner_forget_process(o);
    disk_dead(false);
}

/* ---- the script ---- */

static void turn(struct owner *o)
{
    o->now_ms += 100;
    owner_turn(o);
    owner_mend(o);
}

static void copy_all(struct owner *o)
{
    for (int i = 0; i < OWNER_KEYS; i++) owner_copy(o);
}

/* While a worker thread syncs or commits. */
static void loop_meanwhile(void *of)
{
    struct owner *o = of;
    if (!o->serves) return;
    o->now_ms += 100;
    owner_extend(o, 3, 3600000);
    owner_acquire(o, 4, 20000);
    owner_turn(o);
}

/* Returns the errno of the start, or 0. */
static int run_script(struct owner *o)
{
    int error = owner_start(o);
    if (error != 0) return error;
    owner_acquire(o, 0, 300000);
    owner_acquire(o, 1, 30000);
    turn(o);
    owner_sync(o);
    owner_extend(o, 0, 600000);
    owner_acquire(o, 2, 0);
    turn(o);
    owner_release(o, 1);
    owner_sync(o);
    turn(o);
    owner_replace(o);
    owner_acquire(o, 3, 3600000);
    turn(o);
    owner_copy(o);
    owner_release(o, 0);
    turn(o);
    copy_all(o);
    owner_commit(o);
    owner_acquire(o, 0, 90000);
    turn(o);
    owner_sync(o);
    copy_all(o);
    owner_commit(o);
    owner_acquire(o, 4, 5000);
    owner_release(o, 3);
    turn(o);
    owner_replace(o);
    owner_replace(o); /* There is one already. */
    turn(o);
    copy_all(o);
    owner_commit(o);
    owner_sync(o);
    owner_acquire(o, 3, 120000);
    turn(o);
    owner_sync(o);
    return 0;
}

/* ---- one run ---- */

struct run {
    enum disk_call call;
    uint64_t nth, more;
    int error;
    bool difficult, power, restarted, no_allocate;
};

static void report(struct owner *o, const struct run *r)
{
    if (o->wrong[0] == '\0') return;
    if (wrong_runs++ < 3)
        stage_note("%s %" PRIu64 " and %" PRIu64 " more: %s%s%s%s%s: %s",
                   disk_call_names[r->call], r->nth, r->more, strerror(r->error),
                   r->difficult ? ", difficult" : "", r->restarted ? ", restarted" : "",
                   r->no_allocate ? ", without fallocate" : "",
                   r->power ? ", then a power failure" : ", then a kill", o->wrong);
}

static void complain(struct owner *o, const char *what)
{
    if (o->wrong[0] == '\0') snprintf(o->wrong, sizeof o->wrong, "%s", what);
}

/* The disk works again: so must the journal, soon. */
static void heal(struct owner *o)
{
    disk_fail(DISK_ANY, 0, 0, 0);
    for (int i = 0; i < ATTEMPTS_MAX && sl_journal_failed(o->j); i++) {
        owner_mend(o);
        copy_all(o);
        owner_commit(o);
    }
    if (sl_journal_failed(o->j)) complain(o, "the journal does not work again");
    owner_acquire(o, 5, 240000);
    turn(o);
    owner_sync(o);
    bool waits = o->now_ms < o->wait_until_ms;
    if (!sl_journal_failed(o->j) && !waits && owner_known(o, 5)->fence == 0)
        complain(o, "no lease is granted when the disk works again");
}

/* Kill the server or lose the power, check, and start once more. */
static void end_run(struct owner *o, const struct run *r)
{
    end_process(o);
    disk_fail(DISK_ANY, 0, 0, 0);
    disk_be_difficult(false);
    if (disk_wrong_syncs() > 0) complain(o, "a file was synced after a failure");
    sl_ms died_ms = o->now_ms;
    int error;
    if (r->power) {
        disk_lose_power(4096);
        owner_boot(o, died_ms);
        error = owner_check_other_life(o);
    } else {
        disk_kill();
        error = owner_check_same_life(o);
    }
    if (error != 0 && error != ENOENT) complain(o, "the journal cannot be read");
    error = owner_start(o);
    if (error != 0) complain(o, "the next start fails");
    else {
        if (disk_exists(SL_JOURNAL_ERROR)) complain(o, "the note of an error remains");
        if (disk_exists(SL_JOURNAL_NEXT)) complain(o, "a file is left behind");
        if (disk_descriptors() != 1) complain(o, "a descriptor is left behind");
    }
    end_process(o);
}

/* Returns true if the process died, some calls after a fault. */
static bool run_until_accident(struct owner *o)
{
    if (setjmp(dead) != 0) return true;
    run_script(o);
    disk_accident(0, NULL, NULL);
    return false;
}

/* Returns false if the fault did not happen: there are not so many calls. */
static bool run(const struct run *r)
{
    struct owner *o = &owner;
    disk_open(runs + 1);
    owner_init(o, disk_directory);
    o->may_fail = true;
    disk_meanwhile(loop_meanwhile, o);
    disk_support(!r->no_allocate, !r->no_allocate);
    if (r->restarted) {
        /* The fault is in a later start, of a journal that has leases. */
        if (run_script(o) != 0) complain(o, "the script fails without a fault");
        end_process(o);
        disk_kill();
    }
    disk_be_difficult(r->difficult);
    disk_fail(r->call, r->nth, r->more, r->error);
    disk_accident_after_fault(r->nth % 8, happen, NULL);
    bool died = run_until_accident(o);
    uint64_t failures = disk_failures();
    if (!died && failures > 0 && o->serves) heal(o);
    if (!died && failures == 0 && (!o->serves || sl_journal_failed(o->j)))
        complain(o, "the journal fails without a fault");
    end_run(o, r);
    runs++;
    report(o, r);
    return failures > 0;
}

/* ---- all runs ---- */

/* Run one kind of call and error at every place. `stride` leaves out places. */
static void run_all_places(struct run r, uint64_t first, uint64_t stride)
{
    for (r.nth = 1 + first % stride; run(&r); r.nth += stride) {}
}

static void every_fault(bool is_long)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};
    static const uint64_t more[] = {0, 1, 5, 100};
    uint64_t before = runs, wrong_before = wrong_runs, count = 0;
    for (enum disk_call call = DISK_OPEN; call < DISK_CALLS; call++)
        for (size_t e = 0; e < 4; e++)
            for (size_t m = 0; m < 4; m++)
                for (unsigned bits = 0; bits < 16; bits++) {
                    /* Some of them, but each combination at some places. */
                    if (!is_long && (bits + e + m) % 8 != 0) continue;
                    run_all_places((struct run){.call = call,
                                                .error = errors[e],
                                                .more = more[m],
                                                .difficult = (bits & 1) != 0,
                                                .power = (bits & 2) != 0,
                                                .restarted = (bits & 4) != 0,
                                                .no_allocate = (bits & 8) != 0},
                                   count++, is_long ? 1 : 6);
                }
    stage_ok(wrong_runs == wrong_before && runs - before > 500,
             "every call fails, once or often: %" PRIu64 " runs", runs - before);
}

/* ---- single rules ---- */

static struct owner *fresh(void)
{
    disk_open(1);
    owner_init(&owner, disk_directory);
    if (owner_start(&owner) != 0) stage_bail("a start on an empty disk fails");
    owner_acquire(&owner, 0, 300000);
    owner_acquire(&owner, 1, 30000);
    owner_turn(&owner);
    owner_sync(&owner);
    return &owner;
}

static void failed_sync_is_final(void)
{
    struct owner *o = fresh();
    bool good = true;
    disk_fail(DISK_SYNC, 1, 0, EIO);
    good &= sl_journal_file_sync(o->f) == EIO;
    uint64_t syncs = disk_count(DISK_SYNC), writes = disk_count(DISK_WRITE);
    for (int i = 0; i < 3; i++) good &= sl_journal_file_sync(o->f) == EIO;
    good &= disk_count(DISK_SYNC) == syncs;
    stage_ok(good, "after a failed sync the file is never synced again");
    struct sl_bytes records = {"12345678", 8};
    good = sl_journal_file_write(o->f, records, sl_journal_position(o->j) + 1,
                                 o->now_ms) == EIO &&
           disk_count(DISK_WRITE) == writes;
    stage_ok(good, "after a failed sync nothing is written to the file");
    stage_ok(disk_exists(SL_JOURNAL_ERROR), "a failed sync is noted");
    end_process(o);
}

static void failed_write_is_final(void)
{
    struct owner *o = fresh();
    struct sl_bytes records = {"12345678", 8};
    uint64_t position = sl_journal_position(o->j) + 1;
    disk_fail(DISK_WRITE, 1, 0, EIO);
    bool good = sl_journal_file_write(o->f, records, position, o->now_ms) == EIO;
    uint64_t syncs = disk_count(DISK_SYNC);
    good &= sl_journal_file_sync(o->f) == EIO && disk_count(DISK_SYNC) == syncs;
    stage_ok(good, "after a failed write the file is never synced");
    stage_ok(disk_exists(SL_JOURNAL_ERROR), "a failed write is noted");
    end_process(o);
}

static void full_disk(void)
{
    struct owner *o = fresh();
    static const char zeros[65536];
    struct sl_bytes records = {zeros, sizeof zeros};
    uint64_t position = sl_journal_position(o->j);
    int error = 0;
    disk_fail(DISK_ALLOCATE, 1, UINT64_MAX - 1, ENOSPC);
    uint64_t before = sl_journal_file_bytes(o->f);
    while (error == 0) {
        before = sl_journal_file_bytes(o->f);
        error = sl_journal_file_write(o->f, records, ++position, o->now_ms);
    }
    stage_ok(error == ENOSPC && sl_journal_file_bytes(o->f) == before &&
                 before > 1 << 19,
             "a full disk is reported when the allocated space is used up");
    stage_ok(!disk_exists(SL_JOURNAL_ERROR),
             "a full disk is not noted as an I/O error");
    stage_ok(sl_journal_file_sync(o->f) == 0, "on a full disk the file can be synced");
    end_process(o);
}

static void failed_replacement(void)
{
    static const enum disk_call calls[] = {DISK_OPEN, DISK_WRITE, DISK_ALLOCATE,
                                           DISK_SYNC};
    bool good = true;
    for (size_t i = 0; i < 4; i++) {
        struct owner *o = fresh();
        disk_fail(calls[i], 1, 0, ENOSPC);
        owner_replace(o);
        copy_all(o);
        owner_commit(o);
        good &= disk_failures() == 1 && !sl_journal_failed(o->j) &&
                !disk_exists(SL_JOURNAL_ERROR);
        owner_acquire(o, 2, 300000);
        owner_turn(o);
        owner_sync(o);
        good &= owner_known(o, 2)->fence != 0;
        end_process(o);
        disk_lose_power(512);
        owner_boot(o, o->now_ms);
        good &= owner_check_other_life(o) == 0 && o->wrong[0] == '\0';
    }
    stage_ok(good,
             "a replacement that fails before the rename leaves the journal intact");
}

/* Returns the offset of the second frame of the journal; 0: there is none. */
static uint64_t second_frame(const struct owner *o)
{
    struct sl_bytes file;
    struct sl_header header;
    struct sl_frame f = {0};
    if (sl_journal_map(o->directory, &file) != 0) return 0;
    bool good = sl_header_read(file, &header) == SLUICE_OK &&
                sl_frame_next(file, SL_HEADER_BYTES, &header.chain, &f) &&
                sl_frame_next(file, f.at + f.bytes, &header.chain, &f);
    sl_journal_unmap(file);
    return good ? f.at : 0;
}

/* If a frame of the first sync is damaged, a frame that was written during that sync shows it. */
static void damaged_in_first_sync(void)
{
    struct owner *o = fresh();
    disk_meanwhile(loop_meanwhile, o);
    owner_replace(o);
    owner_copy(o); /* The last frame before the sync. */
    uint64_t position = sl_journal_position(o->j);
    sl_journal_file_commit(o->f);
    bool good = sl_journal_position(o->j) >
                position; /* A frame was written meanwhile. */
    end_process(o);
    disk_kill();
    owner_boot(o, o->now_ms); /* But everything was written back. */
    good &= owner_check_other_life(o) == 0;
    good &= disk_damage(SL_JOURNAL_NAME, second_frame(o) + SL_FRAME_HEADER_BYTES);
    good &= owner_check_other_life(o) == EILSEQ;
    stage_ok(good, "damage in a frame of the first sync is noticed in another boot");
}

static void bad_block(void)
{
    struct owner *o = fresh();
    struct sl_bytes file;
    bool good = true;
    end_process(o);
    disk_kill();
    for (uint64_t at = 0; at < 1 << 20; at += 4096) {
        disk_bad_byte(at + at % 4093);
        uint64_t writes = disk_count(DISK_WRITE);
        good &= sl_journal_map(disk_directory, &file) == EIO;
        good &= owner_start(o) == EIO && disk_count(DISK_WRITE) == writes;
        good &= disk_descriptors() == 0;
    }
    disk_bad_byte(UINT64_MAX);
    good &= owner_check_same_life(o) == 0 && o->wrong[0] == '\0';
    stage_ok(good, "a block that cannot be read stops the start, and changes nothing");
}

/* Start the server. It dies at the nth call of the start. Returns whether the start was complete. */
static bool start_until(struct owner *o, uint64_t nth)
{
    disk_accident(nth, happen, NULL);
    if (setjmp(dead) != 0) return false;
    bool started = owner_start(o) == 0;
    disk_accident(0, NULL, NULL);
    return started;
}

/* The process is killed, or the power fails. */
static void crash(struct owner *o, bool power, size_t page_bytes)
{
    int error;
    end_process(o);
    if (power) {
        disk_lose_power(page_bytes);
        owner_boot(o, o->now_ms);
        error = owner_check_other_life(o);
    } else {
        disk_kill();
        error = owner_check_same_life(o);
    }
    if (error != 0) complain(o, "the journal cannot be read");
}

/* The server crashes, its next start crashes at the call `first`, and the start after that at the
 * call `second`. Returns how many of the two starts were complete: there are not so many calls. */
static int crash_twice(struct owner *o, unsigned powers, uint64_t first,
                       uint64_t second)
{
    disk_open(first * 1000 + second);
    owner_init(o, disk_directory);
    if (run_script(o) != 0) complain(o, "the script fails");
    crash(o, (powers & 1) != 0, 4096);
    int complete = start_until(o, first);
    crash(o, (powers & 2) != 0, 512);
    complete += start_until(o, second) ? 2 : 0;
    crash(o, (powers & 4) != 0, 4096);
    return complete;
}

static void second_crash(bool is_long)
{
    (void)is_long;
    struct owner *o = &owner;
    uint64_t count = 0;
    for (unsigned powers = 0; powers < 8; powers++) {
        uint64_t first = 1, second = 1;
        for (;;) {
            int complete = crash_twice(o, powers, first, second++);
            count++;
            if (o->wrong[0] != '\0') {
                stage_note("crashes %u at calls %" PRIu64 " and %" PRIu64 ": %s",
                           powers, first, second - 1, o->wrong);
                stage_ok(false, "a start that crashes, twice");
                return;
            }
            if (complete < 2) continue;
            if (complete == 3) break;
            first++;
            second = 1;
        }
    }
    stage_ok(count > 500, "a start that crashes, twice: %" PRIu64 " runs", count);
}

/* Returns whether the replacement was complete. */
static bool replace_until_accident(struct owner *o)
{
    if (setjmp(dead) != 0) return false;
    owner_replace(o);
    copy_all(o);
    owner_commit(o);
    disk_accident(0, NULL, NULL);
    return true;
}

/* A process is killed at every call of a replacement. Its successor goes on with whichever file has
 * the name, and then the power fails. */
static void killed_replacement(bool is_long)
{
    (void)is_long;
    bool good = true, complete = false;
    for (uint64_t nth = 1; good && !complete; nth++)
        for (uint64_t seed = 0; good && seed < 20; seed++) {
            struct owner *o = fresh();
            disk_accident(nth, happen, NULL);
            complete = replace_until_accident(o);
            crash(o, false, 0);
            if (owner_start(o) != 0) complain(o, "the next start fails");
            owner_acquire(o, 2, 300000);
            owner_turn(o);
            owner_sync(o);
            if (owner_known(o, 2)->fence == 0) complain(o, "nothing is granted");
            disk_seed(seed);
            crash(o, true, 4096);
            good = o->wrong[0] == '\0';
            if (!good) stage_note("killed at call %" PRIu64 ": %s", nth, o->wrong);
        }
    stage_ok(good, "a replacement that is killed, and then a power failure");
}

static void lives(void)
{
    static const struct {
        uint32_t type;
        enum sl_journal_place place;
        bool keeps;
    } expected[] = {
        {0x0000ef53, SL_PLACE_LOCAL, true},    {0x58465342, SL_PLACE_LOCAL, true},
        {0x9123683e, SL_PLACE_LOCAL, true},    {0xf2f52010, SL_PLACE_LOCAL, true},
        {0x2fc12fc1, SL_PLACE_LOCAL, true},    {0x01021994, SL_PLACE_MEMORY, true},
        {0x794c7630, SL_PLACE_MEMORY, true},   {0x00006969, SL_PLACE_NETWORK, false},
        {0xff534d42, SL_PLACE_NETWORK, false}, {0x65735546, SL_PLACE_NETWORK, false},
        {0x01021997, SL_PLACE_NETWORK, false}, {0x00c36400, SL_PLACE_NETWORK, false},
        {0x12345678, SL_PLACE_UNKNOWN, false},
    };
    bool good = true;
    struct sl_life life;
    disk_open(1);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        disk_is(expected[i].type);
        sl_journal_life(disk_directory, &life);
        good &= sl_journal_place(disk_directory) == expected[i].place &&
                life.keeps_writes == expected[i].keeps && !life.had_error;
    }
    stage_ok(good, "only local file systems keep what was written");
}

static void rules(bool is_long)
{
    (void)is_long;
    failed_sync_is_final();
    failed_write_is_final();
    full_disk();
    failed_replacement();
    damaged_in_first_sync();
    bad_block();
    lives();
}

static const struct {
    const char *name;
    void (*run)(bool is_long);
} parts[] = {{"rules", rules},
             {"replacement", killed_replacement},
             {"starts", second_crash},
             {"every", every_fault}};

int main(int argc, char **argv)
{
    bool is_long = false;
    const char *only = NULL;
    const struct test_option options[] = {{"--long", .given = &is_long},
                                          {"--only", .text = &only},
                                          {"--trace", .given = &owner_trace},
                                          {.name = NULL}};
    options_read(argc, argv,
                 "faults [--short | --long] [--only rules | replacement | starts | "
                 "every] [--trace]",
                 options);
    stage_open(DEADLINE_S);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (only == NULL || strcmp(only, parts[i].name) == 0) parts[i].run(is_long);
    stage_close();
}
