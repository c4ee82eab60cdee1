/* test_storage_memory.c - the storage on etcd without memory: every allocation of its own fails
 * once, and some fail by chance. Each call is answered; ENOMEM and EIO were not done, OK
 * was; and when there is memory again all goes on. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "failing_alloc.h"
#include "storage/etcd/client.h"
#include "storage_stage.h"

static bool in_storage; /* Everybody else has memory. */

/* --- Operations, without memory of the test's ------------------------------------- */

enum { OPS = 12 };

static struct sl_storage_op ops[OPS];
static struct sl_storage_result got[OPS];
static char value[16];

static void on_done(struct sl_storage_op *op)
{
    size_t i = (size_t)(op - ops);
    got[i] = op->result;
    if (op->type == SL_STORAGE_READ && op->result.found) {
        assert_true(op->result.value.n < sizeof value);
        memcpy(value, op->result.value.at, op->result.value.n);
        value[op->result.value.n] = '\0';
    }
    op->owner = NULL;
}

static void work(struct stage *s)
{
    in_storage = true;
    stage_work(s);
    in_storage = false;
}

/* All at once, and each is answered. */
static void do_all(struct stage *s, int n)
{
    struct pollfd p = {sl_storage_fd(s->storage), POLLIN, 0};
    for (int i = 0; i < n; i++) {
        ops[i].done = on_done;
        ops[i].owner = s;
        in_storage = true;
        sl_storage_submit(s->storage, &ops[i]);
        in_storage = false;
    }
    for (int i = 0; i < n; i++)
        while (ops[i].owner != NULL) {
            assert_int_equal(poll(&p, 1, 60000), 1);
            work(s);
        }
}

static bool was_not_done(int status)
{
    return status == SLUICE_ENOMEM || status == SLUICE_EIO;
}

static struct sl_storage_write rows[] = {{.key = {"x", 1}, .value = {"1", 1}},
                                         {.key = {"y", 1}, .value = {"2", 1}}};

static struct sl_storage_op record_of(uint64_t term, uint32_t count)
{
    return (struct sl_storage_op){
        .type = SL_STORAGE_RECORD, .term = term, .writes = rows, .write_count = count};
}

/* A claim; then everything else: a group in which one is barred, reads, a renewal, and the
 * end of the term. */
static void live(struct stage *s, uint64_t *term)
{
    struct sl_storage_write w[] = {{text("t"), text("a"), text("1")},
                                   {text("t"), text("b"), text("2")},
                                   {text("t"), text("c"), text("3")}};
    ops[0] = (struct sl_storage_op){.type = SL_STORAGE_CLAIM, .term = *term, .node = 1};
    do_all(s, 1);
    bool claimed = got[0].status == SLUICE_OK;
    if (claimed) assert_int_equal(got[0].term, ++*term);
    else assert_true(was_not_done(got[0].status));
    if (*term == 0) return;
    ops[0] = (struct sl_storage_op){.type = SL_STORAGE_BAR, .term = *term, .id = 7};
    do_all(s, 1);
    bool barred = got[0].status == SLUICE_OK;
    assert_true(barred || was_not_done(got[0].status));
    struct sl_storage_op commit = {.type = SL_STORAGE_COMMIT,
                                   .term = *term,
                                   .id = 1,
                                   .writes = w,
                                   .write_count = 1};
    for (int i = 0; i < 3; i++) {
        ops[i] = commit;
        ops[i].writes = &w[i];
    }
    ops[1].request = text("r");
    ops[2].id = 7;
    ops[3] = (struct sl_storage_op){
        .type = SL_STORAGE_READ, .table = text("kept"), .key = text("k")};
    ops[4] = (struct sl_storage_op){
        .type = SL_STORAGE_SCAN, .table = text("kept"), .rows_max = 10};
    ops[5] = (struct sl_storage_op){.type = SL_STORAGE_READ_TERM};
    ops[6] = (struct sl_storage_op){.type = SL_STORAGE_OUTCOME,
                                    .request = text("kept")};
    ops[7] = (struct sl_storage_op){
        .type = SL_STORAGE_RENEW, .term = *term, .fence_limit = 5};
    ops[8] = (struct sl_storage_op){.type = SL_STORAGE_COMMIT, .term = *term, .id = 9};
    ops[9] = record_of(*term, 2);
    ops[10] = (struct sl_storage_op){.type = SL_STORAGE_JOURNAL, .rows_max = 1};
    ops[11] = (struct sl_storage_op){.type = SL_STORAGE_RESIGN, .term = *term};
    do_all(s, OPS);
    if (!claimed && got[7].status == SLUICE_ESTALE)
        got[7].status = SLUICE_OK; /* The last round may have resigned this term. */
    for (int i = 0; i < OPS; i++)
        if (i != 2 || !barred)
            assert_true(got[i].status == SLUICE_OK || was_not_done(got[i].status));
    if (barred && !was_not_done(got[2].status))
        assert_int_equal(got[2].status, SLUICE_EBARRED);
    if (got[3].status == SLUICE_OK) assert_string_equal(value, "kept");
    if (got[4].status == SLUICE_OK) assert_int_equal(got[4].row_count, 1);
    if (got[5].status == SLUICE_OK) assert_int_equal(got[5].term_record.term, *term);
    if (got[6].status == SLUICE_OK) assert_true(got[6].found);
    if (got[10].status == SLUICE_OK) assert_int_equal(got[10].row_count, 1);
}

/* What was said is so. */
static void check(struct stage *s)
{
    static const char *const keys[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(value_of(s, "t", keys[i]) != NULL, got[i].status == SLUICE_OK);
    assert_int_equal(outcome(s, "r") != 0, got[1].status == SLUICE_OK);
    struct sl_storage_result journal;
    struct sl_storage_op op = {.type = SL_STORAGE_JOURNAL, .rows_max = 9};
    assert_int_equal(do_op(s, &op, &journal), SLUICE_OK);
    assert_int_equal(journal.row_count, got[9].status == SLUICE_OK ? 3 : 1);
}

static void clear(struct stage *s, uint64_t term)
{
    char json[500], base64[200], end[200], prefix[100];
    static const char *const keys[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) assert_int_equal(del(s, term, "t", keys[i]), SLUICE_OK);
    struct sl_storage_write none[] = {{.key = rows[0].key}, {.key = rows[1].key}};
    struct sl_storage_op op = record_of(term, 2);
    op.writes = none;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    snprintf(prefix, sizeof prefix, "%sr/r", s->prefix);
    sl_etcd_base64_write(base64, text(prefix));
    prefix[strlen(prefix) - 1]++;
    sl_etcd_base64_write(end, text(prefix));
    snprintf(json, sizeof json, "{\"key\":\"%s\",\"range_end\":\"%s\"}", base64, end);
    free(etcd_ask(&members, 0, "/v3/kv/deleterange", json, NULL));
}

/* --- Tests --------------------------------------------------------------------------- */

static struct stage stage;

static int begin(void **state)
{
    memory_fails_only_in(&in_storage);
    stage_begin(&stage, &etcd_kind);
    *state = &stage;
    return 0;
}

static int end(void **state)
{
    memory_is_back();
    in_storage = false;
    stage_end(*state);
    return 0;
}

static uint64_t begin_with_something(struct stage *s)
{
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "kept", "kept", "k", "kept", NULL), SLUICE_OK);
    struct sl_storage_write kept = {.key = {"kept", 4}, .value = {"kept", 4}};
    struct sl_storage_op op = record_of(term, 1);
    op.writes = &kept;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    return term;
}

static void every_allocation_fails_once(void **state)
{
    struct stage *s = *state;
    uint64_t term = begin_with_something(s);
    int rounds = 0;
    for (long at = 0;; at++, rounds++) {
        stage_reopen(s); /* It has no memory yet. */
        memory_fails_after(at);
        live(s, &term);
        memory_is_back();
        if (memory_failures() == 0) break;
        check(s);
        clear(s, term);
        assert_true(rounds < 1000);
    }
    assert_true(rounds > 10);
}

static void allocations_fail_by_chance(void **state)
{
    struct stage *s = *state;
    uint64_t term = begin_with_something(s);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        stage_reopen(s);
        memory_fails_by_chance(seed * 0x9e3779b97f4a7c15ull, 8);
        live(s, &term);
        memory_is_back();
        clear(s, term);
        assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    }
}

static void a_storage_that_cannot_be_opened_says_why(void **state)
{
    struct stage *s = *state;
    for (long at = 0;; at++) {
        char why[300] = "";
        sl_storage_close(s->storage);
        memory_fails_after(at);
        in_storage = true;
        s->storage = etcd_kind.open(s, why, sizeof why);
        in_storage = false;
        memory_is_back();
        if (memory_failures() == 0) break;
        if (s->storage == NULL) assert_string_not_equal(why, "");
    }
    assert_non_null(s->storage);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_allocation_fails_once, begin, end),
        cmocka_unit_test_setup_teardown(allocations_fail_by_chance, begin, end),
        cmocka_unit_test_setup_teardown(a_storage_that_cannot_be_opened_says_why, begin,
                                        end),
    };
    if (!kind_begin(&etcd_kind)) return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kind_end(&etcd_kind);
    return failed;
}
