/* test_storage.c - what every storage promises (storage/storage.h). The tests know a storage
 * only by its kind: a second one is a line in `kinds`. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "storage_stage.h"

static const struct storage_kind *const kinds[] = {&lmdb_kind, &etcd_kind,
                                                   &etcd_three_kind};

/* Revisions: LMDB's are those of the store, one after the other; etcd's belong to all that is
 * in it, and those that are done together have the same. */
static bool is_next(const struct stage *s, uint64_t revision, uint64_t before)
{
    return s->kind->members > 0 ? revision >= before && revision > 0
                                : revision == before + 1;
}

/* --- Terms ------------------------------------------------------------------- */

static void a_new_storage_is_empty(void **state)
{
    struct stage *s = *state;
    struct sl_storage_stats stats;
    sl_storage_stats(s->storage, &stats);
    assert_int_equal(stats.term, 0);
    assert_int_equal(stats.revision, 0);
    assert_int_equal(stats.keys, 0);
    assert_null(value_of(s, "t", "k"));
    assert_int_equal(outcome(s, "r"), 0);
}

static void before_the_first_claim_nothing_commits(void **state)
{
    struct stage *s = *state;
    assert_int_equal(put(s, 0, 1, NULL, "t", "k", "v", NULL), SLUICE_ESTALE);
    assert_int_equal(only_read(s, 0, 1, NULL), SLUICE_ESTALE);
    assert_null(value_of(s, "t", "k"));
}

static void each_claim_is_the_next_term_also_after_a_restart(void **state)
{
    struct stage *s = *state;
    assert_int_equal(claim(s), 1);
    assert_int_equal(claim(s), 2);
    stage_reopen(s);
    assert_int_equal(claim(s), 3);
    struct sl_storage_stats stats;
    sl_storage_stats(s->storage, &stats);
    assert_int_equal(stats.term, 3);
}

static void a_commit_of_an_old_term_gets_the_current_term(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t old = claim(s), now = claim(s);
    assert_int_equal(put(s, old, 1, "r", "t", "k", "v", &got), SLUICE_ESTALE);
    assert_int_equal(got.term, now);
    assert_int_equal(only_read(s, old, 1, NULL), SLUICE_ESTALE);
    assert_int_equal(bar(s, old, 1), SLUICE_ESTALE);
    assert_int_equal(put(s, now + 1, 1, NULL, "t", "k", "v", NULL), SLUICE_ESTALE);
    assert_null(value_of(s, "t", "k"));
    assert_int_equal(outcome(s, "r"), 0);
    assert_int_equal(put(s, now, 1, "r", "t", "k", "v", NULL), SLUICE_OK);
}

/* --- Commits ----------------------------------------------------------------- */

static void what_is_committed_is_read_also_after_a_restart(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "first", &got), SLUICE_OK);
    assert_true(is_next(s, got.revision, 0));
    uint64_t first = got.revision;
    assert_int_equal(put(s, term, 2, NULL, "t", "k", "second", &got), SLUICE_OK);
    assert_true(got.revision > first && is_next(s, got.revision, first));
    assert_int_equal(put(s, term, 3, NULL, "t", "empty", "", NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", "k"), "second");
    stage_reopen(s);
    assert_string_equal(value_of(s, "t", "k"), "second");
    assert_string_equal(value_of(s, "t", "empty"), "");
    assert_null(value_of(s, "t", "other"));
    assert_null(value_of(s, "other", "k"));
    term = claim(s);
    assert_int_equal(del(s, term, "t", "k"), SLUICE_OK);
    assert_int_equal(del(s, term, "t", "never there"), SLUICE_OK);
    assert_null(value_of(s, "t", "k"));
}

static void a_commit_writes_all_it_has_in_order(void **state)
{
    struct stage *s = *state;
    struct sl_storage_write w[] = {{text("t"), text("a"), text("1")},
                                   {text("t"), text("b"), text("2")},
                                   {text("u"), text("a"), text("3")},
                                   {text("t"), text("a"), text("4")},
                                   {text("t"), text("b"), {NULL, 0}}};
    struct sl_storage_op op = commit_of(claim(s), 0, NULL, w, 5);
    struct sl_storage_result got;
    assert_int_equal(do_op(s, &op, &got), SLUICE_OK);
    assert_true(is_next(s, got.revision, 0));
    assert_string_equal(value_of(s, "t", "a"), "4");
    assert_null(value_of(s, "t", "b"));
    assert_string_equal(value_of(s, "u", "a"), "3");
}

static void without_writes_nothing_changes(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got, before;
    struct sl_storage_stats stats;
    uint64_t term = claim(s);
    put(s, term, 1, NULL, "t", "k", "v", &before);
    struct sl_storage_op op = commit_of(term, 2, "r", NULL, 0);
    assert_int_equal(do_op(s, &op, &got), SLUICE_OK);
    assert_int_equal(got.revision, before.revision);
    assert_int_equal(outcome(s, "r"), 0);
    sl_storage_stats(s->storage, &stats);
    assert_int_equal(stats.revision, before.revision);
    assert_int_equal(stats.commits, 1);
}

/* --- Requests ---------------------------------------------------------------- */

static void a_request_is_committed_once(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result once, other, got;
    struct sl_storage_stats stats;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "once", &once), SLUICE_OK);
    assert_int_equal(put(s, term, 2, NULL, "t", "k", "other", &other), SLUICE_OK);
    assert_int_equal(put(s, term, 3, "r", "t", "k", "twice", &got), SLUICE_OK);
    assert_int_equal(got.revision, once.revision);
    assert_string_equal(value_of(s, "t", "k"), "other");
    assert_int_equal(outcome(s, "r"), once.revision);
    assert_int_equal(outcome(s, "s"), 0);
    sl_storage_stats(s->storage, &stats);
    assert_int_equal(stats.duplicates, 1);
    assert_int_equal(stats.revision, other.revision);
}

/* R1: the answer was lost, the keeper changed, the client sends it again. */
static void a_request_is_known_in_later_terms_and_after_a_restart(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result once, got;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "once", &once), SLUICE_OK);
    stage_reopen(s);
    for (int i = 0; i < 3; i++) claim(s);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "twice", &got), SLUICE_OK);
    assert_int_equal(got.revision, once.revision);
    assert_int_equal(put(s, claim(s), 9, "r", "t", "k", "twice", &got), SLUICE_OK);
    assert_int_equal(got.revision, once.revision);
    assert_string_equal(value_of(s, "t", "k"), "once");
}

static void a_rejected_request_may_be_repeated(void **state)
{
    struct stage *s = *state;
    uint64_t old = claim(s), term = claim(s);
    assert_int_equal(put(s, old, 1, "r", "t", "k", "v", NULL), SLUICE_ESTALE);
    assert_int_equal(outcome(s, "r"), 0);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    assert_true(is_next(s, outcome(s, "r"), 0));
}

/* --- Bars -------------------------------------------------------------------- */

static void a_barred_transaction_commits_no_more(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 5), SLUICE_OK);
    assert_int_equal(bar(s, term, 5), SLUICE_OK);
    assert_int_equal(put(s, term, 5, "r", "t", "k", "v", NULL), SLUICE_EBARRED);
    assert_null(value_of(s, "t", "k"));
    assert_int_equal(outcome(s, "r"), 0);
    assert_int_equal(put(s, term, 4, NULL, "t", "k", "4", NULL), SLUICE_OK);
    assert_int_equal(put(s, term, 6, NULL, "t", "k", "6", NULL), SLUICE_OK);
    stage_reopen(s);
    assert_int_equal(put(s, term, 5, NULL, "t", "k", "v", NULL), SLUICE_EBARRED);
    assert_string_equal(value_of(s, "t", "k"), "6");
}

/* R2: a reader that was given up may have seen half of a later commit. */
static void a_barred_read_only_transaction_is_rejected_too(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(only_read(s, term, 5, "r"), SLUICE_OK);
    assert_int_equal(bar(s, term, 5), SLUICE_OK);
    assert_int_equal(only_read(s, term, 5, "r"), SLUICE_EBARRED);
    assert_int_equal(only_read(s, term, 5, NULL), SLUICE_EBARRED);
    assert_int_equal(only_read(s, term, 6, NULL), SLUICE_OK);
}

static void what_was_committed_before_the_bar_is_committed(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result once, got;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 5, "r", "t", "k", "v", &once), SLUICE_OK);
    assert_int_equal(bar(s, term, 5), SLUICE_OK);
    assert_int_equal(put(s, term, 5, "r", "t", "k", "w", &got), SLUICE_OK);
    assert_int_equal(got.revision, once.revision);
    assert_string_equal(value_of(s, "t", "k"), "v");
}

static void a_bar_is_of_its_term(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 5), SLUICE_OK);
    uint64_t next = claim(s);
    assert_int_equal(put(s, term, 5, NULL, "t", "k", "v", NULL), SLUICE_ESTALE);
    assert_int_equal(put(s, next, 5, NULL, "t", "k", "v", NULL), SLUICE_OK);
}

/* --- Names, values and scans ------------------------------------------------- */

static void names_are_bytes_and_do_not_meet(void **state)
{
    static const struct sl_bytes names[][2] = {
        {{"a", 1}, {"bc", 2}},      {{"ab", 2}, {"c", 1}},
        {{"a", 1}, {"b", 1}},       {{"a\0", 2}, {"b", 1}},
        {{"a", 1}, {"\0b", 2}},     {{"a", 1}, {"\0", 1}},
        {{"a", 1}, {"\0\0", 2}},    {{"\0a", 2}, {"b", 1}},
        {{"\xff", 1}, {"\xff", 1}}, {{"\xff\xff", 2}, {"", 0}},
        {{"", 0}, {"\xff\xff", 2}}};
    struct stage *s = *state;
    size_t n = sizeof names / sizeof *names;
    uint64_t term = claim(s);
    for (size_t i = 0; i < n; i++) {
        char value[2] = {(char)('A' + i), '\0'};
        struct sl_storage_write w = {names[i][0], names[i][1], {value, 1}};
        struct sl_storage_op op = commit_of(term, 0, NULL, &w, 1);
        assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    }
    for (size_t i = 0; i < n; i++) {
        struct asked a = {
            .op = {.type = SL_STORAGE_READ, .table = names[i][0], .key = names[i][1]}};
        submit(s, &a);
        await(s, &a);
        assert_int_equal(a.got.value.n, 1);
        assert_int_equal(a.got.value.at[0], 'A' + i);
        forget(&a);
    }
}

static void a_scan_has_one_table_in_the_order_of_its_keys(void **state)
{
    static const char *const keys[] = {"a", "a\x01", "aa", "b", "z", "\xff"};
    struct stage *s = *state;
    uint64_t term = claim(s);
    for (int i = 5; i >= 0; i--)
        assert_int_equal(put(s, term, 1, NULL, "mid", keys[i], keys[i], NULL), 0);
    put(s, term, 1, NULL, "mi", "d\x01", "no", NULL);
    put(s, term, 1, NULL, "midd", "le", "no", NULL);
    put(s, term, 1, NULL, "mie", "a", "no", NULL);
    struct asked a = {
        .op = {.type = SL_STORAGE_SCAN, .table = text("mid"), .rows_max = 6}};
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    assert_int_equal(a.got.row_count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(a.got.rows[i].key.n, strlen(keys[i]));
        assert_memory_equal(a.got.rows[i].key.at, keys[i], strlen(keys[i]));
        assert_memory_equal(a.got.rows[i].value.at, keys[i], strlen(keys[i]));
    }
    forget(&a);
    a.op.rows_max = 5;
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_ETOOBIG);
    assert_int_equal(a.got.row_count, 0);
    forget(&a);
    a.op.table = text("none");
    a.op.rows_max = 0;
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    assert_int_equal(a.got.row_count, 0);
    forget(&a);
}

static void the_longest_names_fit_and_no_longer_ones(void **state)
{
    struct stage *s = *state;
    char name[SL_STORAGE_REQUEST_BYTES_MAX + 2];
    uint64_t term = claim(s);
    memset(name, 'n', sizeof name);
    name[SL_STORAGE_NAME_BYTES_MAX - 1] = '\0';
    assert_int_equal(put(s, term, 1, NULL, "t", name, "v", NULL), SLUICE_OK);
    assert_int_equal(put(s, term, 1, NULL, name, "k", "w", NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", name), "v");
    assert_string_equal(value_of(s, name, "k"), "w");
    assert_int_equal(put(s, term, 1, NULL, "tt", name, "v", NULL), SLUICE_ETOOBIG);
    assert_int_equal(put(s, term, 1, NULL, name, "kk", "v", NULL), SLUICE_ETOOBIG);
    struct sl_storage_op op = {
        .type = SL_STORAGE_READ, .table = text("tt"), .key = text(name)};
    assert_int_equal(do_op(s, &op, NULL), SLUICE_ETOOBIG);
    memset(name, 'r', sizeof name);
    name[SL_STORAGE_REQUEST_BYTES_MAX] = '\0';
    assert_int_equal(put(s, term, 1, name, "t", "k", "v", NULL), SLUICE_OK);
    assert_int_not_equal(outcome(s, name), 0);
    name[SL_STORAGE_REQUEST_BYTES_MAX] = 'r';
    name[SL_STORAGE_REQUEST_BYTES_MAX + 1] = '\0';
    assert_int_equal(put(s, term, 1, name, "t", "k", "v", NULL), SLUICE_ETOOBIG);
}

static void a_value_may_be_large(void **state)
{
    struct stage *s = *state;
    size_t n = (size_t)(s->kind->members > 0 ? 1 : 3) << 20; /* etcd takes 1.5 MB. */
    char *value = malloc(n + 1);
    for (size_t i = 0; i < n; i++) value[i] = (char)('a' + i % 26);
    value[n] = '\0';
    assert_int_equal(put(s, claim(s), 1, NULL, "t", "k", value, NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", "k"), value);
    free(value);
}

/* --- Together ---------------------------------------------------------------- */

enum { CROWD = 32 };

static void fill(struct asked *a, struct sl_storage_write *w, uint64_t term,
                 uint64_t id, const char *key, const char *value)
{
    *w = (struct sl_storage_write){text("t"), text(key), text(value)};
    a->op = commit_of(term, id, NULL, w, 1);
}

static int syncs_of_a_crowd(struct stage *s, uint64_t term)
{
    struct asked first, crowd[CROWD];
    struct sl_storage_write w[CROWD + 1];
    char keys[CROWD][8];
    fill(&first, &w[CROWD], term, 1, "first", "v");
    hold_disk(s, &first);
    for (int i = 0; i < CROWD; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        fill(&crowd[i], &w[i], term, 2, keys[i], keys[i]);
        submit(s, &crowd[i]);
    }
    int before = atomic_load(&disk.syncs);
    release_disk();
    await(s, &first);
    forget(&first);
    for (int i = 0; i < CROWD; i++) {
        await(s, &crowd[i]);
        assert_int_equal(crowd[i].got.status, SLUICE_OK);
        if (i > 0)
            assert_int_equal(crowd[i].got.revision, crowd[i - 1].got.revision + 1);
        forget(&crowd[i]);
    }
    return atomic_load(&disk.syncs) - before;
}

static void those_that_wait_together_share_a_sync(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(syncs_of_a_crowd(s, term), 1);
    s->settings.group_max = 8;
    stage_reopen(s);
    assert_int_equal(syncs_of_a_crowd(s, term), CROWD / 8);
    s->settings.group_max = 1;
    stage_reopen(s);
    assert_int_equal(syncs_of_a_crowd(s, term), CROWD);
}

static void nothing_is_answered_before_its_sync(void **state)
{
    struct stage *s = *state;
    struct asked a;
    struct sl_storage_write w;
    uint64_t term = claim(s);
    fill(&a, &w, term, 1, "k", "v");
    hold_disk(s, &a);
    for (int i = 0; i < 20; i++) {
        assert_null(value_of(s, "t", "k")); /* Nor seen; and reads go on. */
        assert_false(a.done);
    }
    release_disk();
    await(s, &a);
    forget(&a);
    assert_string_equal(value_of(s, "t", "k"), "v");
}

static void in_a_group_the_order_is_that_of_submission(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    struct asked first, bar_it, write, same, look, next, late;
    struct sl_storage_write w[4];
    fill(&first, &w[0], term, 1, "first", "v");
    hold_disk(s, &first);
    bar_it = (struct asked){.op = {.type = SL_STORAGE_BAR, .term = term, .id = 7}};
    submit(s, &bar_it);
    fill(&write, &w[1], term, 7, "k", "barred");
    submit(s, &write);
    fill(&same, &w[2], term, 8, "k", "good");
    same.op.request = text("r");
    submit(s, &same);
    look = (struct asked){.op = {.type = SL_STORAGE_OUTCOME, .request = text("r")}};
    submit(s, &look);
    next = (struct asked){.op = {.type = SL_STORAGE_CLAIM, .term = term}};
    submit(s, &next);
    fill(&late, &w[3], term, 9, "k", "late");
    submit(s, &late);
    release_disk();
    /* On etcd a read may be answered after a later commit. */
    struct asked *all[] = {&first, &bar_it, &write, &same, &look, &next, &late};
    for (size_t i = 0; i < 7; i++) await(s, all[i]);
    assert_int_equal(first.got.status, SLUICE_OK);
    assert_int_equal(bar_it.got.status, SLUICE_OK);
    assert_int_equal(write.got.status, SLUICE_EBARRED);
    assert_int_equal(same.got.status, SLUICE_OK);
    assert_true(look.got.found);
    assert_int_equal(look.got.revision, same.got.revision);
    assert_int_equal(next.got.term, term + 1);
    assert_int_equal(late.got.status, SLUICE_ESTALE);
    assert_int_equal(late.got.term, term + 1);
    assert_string_equal(value_of(s, "t", "k"), "good");
    for (size_t i = 0; i < 7; i++) forget(all[i]);
}

static void work_is_done_in_pieces_and_reports_the_rest(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    struct asked first, a[3];
    struct sl_storage_write w[4];
    struct pollfd p = {sl_storage_fd(s->storage), POLLIN, 0};
    fill(&first, &w[3], term, 1, "first", "v");
    hold_disk(s, &first);
    for (int i = 0; i < 3; i++) {
        fill(&a[i], &w[i], term, 2, "k", "v");
        submit(s, &a[i]);
    }
    release_disk();
    assert_int_equal(poll(&p, 1, 60000), 1);
    sl_storage_work(s->storage, 1);
    assert_true(first.done);
    assert_false(a[0].done);
    /* Those of one group come together. */
    assert_int_equal(poll(&p, 1, 60000), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll(&p, 1, 0), 1);
        assert_false(a[i].done);
        assert_int_equal(sl_storage_work(s->storage, 1), i < 2);
        assert_true(a[i].done);
        forget(&a[i]);
    }
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_false(sl_storage_work(s->storage, 1));
    forget(&first);
}

/* --- A full store ------------------------------------------------------------ */

enum { SMALL = 1 << 20 };

static void commits_in_one_write_succeed_or_fail_independently(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    struct asked first, a[5];
    struct sl_storage_write w[6];
    char *large = malloc(SMALL);
    memset(large, 'x', SMALL - 1);
    large[SMALL - 1] = '\0';
    s->settings.bytes_max = SMALL;
    stage_reopen(s);
    fill(&first, &w[5], term, 1, "first", "v");
    hold_disk(s, &first);
    fill(&a[0], &w[0], term, 2, "a", "1");
    fill(&a[1], &w[1], term, 3, "large", large);
    a[1].op.request = text("r");
    fill(&a[2], &w[2], term, 4, "b", "2");
    fill(&a[3], &w[3], term, 5, "first", NULL);
    fill(&a[4], &w[4], term - 1, 6, "late", "3");
    for (int i = 0; i < 5; i++) submit(s, &a[i]);
    release_disk();
    await(s, &a[4]);
    assert_int_equal(a[0].got.status, SLUICE_OK);
    assert_int_equal(a[1].got.status, SLUICE_ENOSPC);
    assert_int_equal(a[2].got.status, SLUICE_OK);
    assert_int_equal(a[2].got.revision, a[0].got.revision + 1);
    assert_int_equal(a[3].got.status, SLUICE_OK);
    assert_int_equal(a[4].got.status, SLUICE_ESTALE);
    for (int i = 0; i < 5; i++) forget(&a[i]);
    forget(&first);
    assert_string_equal(value_of(s, "t", "a"), "1");
    assert_string_equal(value_of(s, "t", "b"), "2");
    assert_null(value_of(s, "t", "large"));
    assert_null(value_of(s, "t", "first"));
    assert_int_equal(outcome(s, "r"), 0);
    free(large);
}

/* How many could be put. */
static int fill_up(struct stage *s, uint64_t term, const char *value)
{
    char key[16], request[16];
    int n = 0, status;
    do {
        snprintf(key, sizeof key, "%d", n);
        snprintf(request, sizeof request, "r%d", n);
        status = put(s, term, 1, request, "fill", key, value, NULL);
        n++;
    } while (status == SLUICE_OK);
    assert_int_equal(status, SLUICE_ENOSPC);
    return n - 1;
}

static void a_full_store_reads_deletes_and_continues(void **state)
{
    struct stage *s = *state;
    char value[1000], key[16];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    s->settings.bytes_max = SMALL;
    s->settings.dedup_keep_ms = 0;
    stage_reopen(s);
    int least = 100;
    for (int round = 0; round < 6; round++) {
        uint64_t term = claim(s);
        int n = fill_up(s, term, value);
        assert_true(n >= least);
        assert_string_equal(value_of(s, "fill", "0"), value);
        /* Without these there would be no server. */
        term = claim(s);
        assert_int_equal(bar(s, term, 1000), SLUICE_OK);
        assert_int_equal(only_read(s, term, 1, NULL), SLUICE_OK);
        for (int i = 0; i < n; i++) {
            snprintf(key, sizeof key, "%d", i);
            assert_int_equal(del(s, term, "fill", key), SLUICE_OK);
        }
        assert_int_equal(put(s, term, 1, NULL, "t", "k", value, NULL), SLUICE_OK);
        if (round == 2) stage_reopen(s);
    }
    struct sl_storage_stats stats;
    sl_storage_stats(s->storage, &stats);
    assert_int_equal(stats.keys, 1);
    assert_true(stats.bytes_used < SMALL / 4);
}

/* --- Old requests ------------------------------------------------------------ */

static void old_requests_are_forgotten_a_few_at_a_time_the_oldest_first(void **state)
{
    struct stage *s = *state;
    char request[16];
    uint64_t term = claim(s);
    for (int i = 0; i < 100; i++) {
        snprintf(request, sizeof request, "r%d", i);
        assert_int_equal(put(s, term, 1, request, "t", "k", "v", NULL), SLUICE_OK);
    }
    s->settings.dedup_keep_ms = 0; /* As if the clock had jumped: all are old. */
    stage_reopen(s);
    assert_int_equal(put(s, term, 1, "new", "t", "k", "v", NULL), SLUICE_OK);
    assert_int_equal(outcome(s, "r0"), 0);
    assert_int_not_equal(outcome(s, "r10"), 0);
    assert_int_not_equal(outcome(s, "r99"), 0);
    assert_int_not_equal(outcome(s, "new"), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(request, sizeof request, "s%d", i);
        assert_int_equal(put(s, term, 1, request, "t", "k", "v", NULL), SLUICE_OK);
    }
    assert_int_equal(outcome(s, "r99"), 0);
}

static void requests_that_are_not_old_are_kept(void **state)
{
    struct stage *s = *state;
    char request[16];
    struct sl_storage_result got[300];
    uint64_t term = claim(s);
    for (int i = 0; i < 300; i++) {
        snprintf(request, sizeof request, "r%d", i);
        assert_int_equal(put(s, term, 1, request, "t", "k", "v", &got[i]), SLUICE_OK);
        assert_true(is_next(s, got[i].revision, i > 0 ? got[i - 1].revision : 0));
        if (i % 100 == 0) stage_reopen(s);
    }
    for (int i = 0; i < 300; i++) {
        snprintf(request, sizeof request, "r%d", i);
        assert_int_equal(outcome(s, request), got[i].revision);
    }
}

/* --- The disk ---------------------------------------------------------------- */

static void a_failed_write_was_not_done_and_the_rest_continues(void **state)
{
    static const struct {
        int error, status;
        bool sync;
    } cases[] = {{EIO, SLUICE_EIO, true},
                 {EIO, SLUICE_EIO, false},
                 {ENOSPC, SLUICE_ENOSPC, false}};
    struct stage *s = *state;
    uint64_t term = claim(s);
    struct sl_storage_result got;
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "old", NULL), SLUICE_OK);
    for (size_t i = 0; i < 3; i++) {
        atomic_int *fault = cases[i].sync ? &disk.sync_error : &disk.write_error;
        atomic_store(fault, cases[i].error);
        assert_int_equal(put(s, term, 1, "r", "t", "k", "new", NULL), cases[i].status);
        assert_int_equal(bar(s, term, 3), cases[i].status);
        assert_string_equal(value_of(s, "t", "k"), "old");
        assert_int_equal(outcome(s, "r"), 0);
        assert_int_equal(only_read(s, term, 3, NULL), SLUICE_OK);
        atomic_store(fault, 0);
    }
    assert_int_equal(put(s, term, 1, "r", "t", "k", "new", &got), SLUICE_OK);
    assert_int_equal(got.revision, 2);
    stage_reopen(s);
    assert_string_equal(value_of(s, "t", "k"), "new");
    assert_int_equal(outcome(s, "r"), 2);
}

/* --- The end ----------------------------------------------------------------- */

static void what_was_submitted_is_done_before_the_end(void **state)
{
    struct stage *s = *state;
    struct asked a[CROWD], look;
    struct sl_storage_write w[CROWD];
    char keys[CROWD][8];
    uint64_t term = claim(s);
    for (int i = 0; i < CROWD; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        fill(&a[i], &w[i], term, 2, keys[i], keys[i]);
        submit(s, &a[i]);
    }
    look = (struct asked){
        .op = {.type = SL_STORAGE_SCAN, .table = text("t"), .rows_max = 99}};
    submit(s, &look);
    stage_reopen(s);
    assert_true(look.done);
    forget(&look);
    for (int i = 0; i < CROWD; i++) {
        assert_true(a[i].done);
        assert_int_equal(a[i].got.status, SLUICE_OK);
        assert_string_equal(value_of(s, "t", keys[i]), keys[i]);
        forget(&a[i]);
    }
}

/* --- By chance, against a model ---------------------------------------------- */

enum { KEYS = 6, REQUESTS = 200, IDS = 5, STEPS = 3000, STEPS_ETCD = 600, FLIGHT = 16 };

struct model {
    uint64_t term, revision, random;
    int value[KEYS]; /* 0: none. */
    uint64_t request[REQUESTS];
    uint64_t real[STEPS + 1]; /* What the storage calls a revision of ours. */
    bool barred[IDS];
};

static unsigned pick(struct model *m, unsigned below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (unsigned)(m->random % below);
}

struct step {
    struct asked asked;
    struct sl_storage_write write[2];
    char key[2][8], value[2][8], request[16];
    int status;
    uint64_t term, revision;
};

static void commit_by_model(struct model *m, struct step *t, const int *key,
                            const int *value, int request, unsigned id)
{
    const struct sl_storage_op *op = &t->asked.op;
    if (request >= 0 && m->request[request] != 0) {
        t->revision = m->request[request];
    } else if (op->term != m->term || m->term == 0) {
        t->status = SLUICE_ESTALE;
        t->term = m->term;
    } else if (m->barred[id]) {
        t->status = SLUICE_EBARRED;
    } else {
        if (op->write_count > 0) m->revision++;
        t->revision = m->revision;
        for (uint32_t i = 0; i < op->write_count; i++) m->value[key[i]] = value[i];
        if (op->write_count > 0 && request >= 0) m->request[request] = m->revision;
    }
}

static void choose_commit(struct model *m, struct step *t)
{
    int key[2], value[2], request = pick(m, 2) ? (int)pick(m, REQUESTS) : -1;
    unsigned id = pick(m, IDS);
    struct sl_storage_op *op = &t->asked.op;
    op->type = SL_STORAGE_COMMIT;
    op->term = m->term - (pick(m, 8) == 0 && m->term > 0);
    op->id = id;
    op->writes = t->write;
    op->write_count = pick(m, 3);
    for (uint32_t i = 0; i < op->write_count; i++) {
        key[i] = (int)pick(m, KEYS);
        value[i] = (int)pick(m, 100);
        snprintf(t->key[i], sizeof t->key[i], "k%d", key[i]);
        snprintf(t->value[i], sizeof t->value[i], "%d", value[i]);
        t->write[i] = (struct sl_storage_write){
            text("t"), text(t->key[i]), text(value[i] != 0 ? t->value[i] : NULL)};
    }
    if (request >= 0) {
        snprintf(t->request, sizeof t->request, "r%d", request);
        op->request = text(t->request);
    }
    commit_by_model(m, t, key, value, request, id);
}

static void choose(struct model *m, struct step *t)
{
    memset(t, 0, sizeof *t);
    struct sl_storage_op *op = &t->asked.op;
    unsigned what = pick(m, 40);
    if (what == 0) {
        op->type = SL_STORAGE_CLAIM;
        op->term = m->term;
        t->term = ++m->term;
        memset(m->barred, 0, sizeof m->barred);
    } else if (what < 4) {
        unsigned id = pick(m, IDS);
        op->type = SL_STORAGE_BAR;
        op->term = m->term;
        op->id = id;
        if (m->term == 0) t->status = SLUICE_ESTALE;
        else m->barred[id] = true;
    } else if (what < 10) {
        int request = (int)pick(m, REQUESTS);
        op->type = SL_STORAGE_OUTCOME;
        snprintf(t->request, sizeof t->request, "r%d", request);
        op->request = text(t->request);
        t->revision = m->request[request];
    } else choose_commit(m, t);
}

static void compare(struct stage *s, const struct model *m)
{
    for (int i = 0; i < KEYS; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        const char *got = value_of(s, "t", key);
        assert_int_equal(got != NULL ? atoi(got) : 0, m->value[i]);
    }
}

/* A commit that writes has a revision of its own, or of its group; a client that asks for it later is
 * told the same. What only reads may be told of what was submitted after it. */
static void compare_revisions(const struct stage *s, struct model *m,
                              const struct step *t)
{
    const struct sl_storage_op *op = &t->asked.op;
    uint64_t got = t->asked.got.revision;
    bool reads = op->type == SL_STORAGE_OUTCOME ? t->revision == 0
                                                : op->write_count == 0;
    if (s->kind->members == 0) assert_int_equal(got, t->revision);
    if (s->kind->members == 0 || (reads && t->status == SLUICE_OK)) return;
    if (m->real[t->revision] == 0) m->real[t->revision] = got;
    assert_int_equal(got, m->real[t->revision]);
    if (t->revision == 0) assert_int_equal(got, 0);
}

static void random_operations_have_the_results_of_a_model(void **state)
{
    struct stage *s = *state;
    static struct model m;
    static struct step steps[FLIGHT];
    m = (struct model){.random = 88172645463325252ull};
    for (int done = 0; done < (s->kind->members > 0 ? STEPS_ETCD : STEPS);) {
        int n = 1 + (int)pick(&m, FLIGHT);
        for (int i = 0; i < n; i++) {
            choose(&m, &steps[i]);
            submit(s, &steps[i].asked);
        }
        for (int i = 0; i < n; i++) {
            struct step *t = &steps[i];
            await(s, &t->asked);
            assert_int_equal(t->asked.got.status, t->status);
            assert_int_equal(t->asked.got.term, t->term);
            compare_revisions(s, &m, t);
            forget(&t->asked);
        }
        done += n;
        compare(s, &m);
        if (pick(&m, 30) == 0) {
            s->settings.group_max = 1 + pick(&m, FLIGHT);
            stage_reopen(s);
        }
    }
}

/* --- All of them, for each kind ---------------------------------------------- */

static int begin(void **state)
{
    static struct stage stage;
    const struct storage_kind *kind = *state;
    stage_begin(&stage, kind);
    *state = &stage;
    return 0;
}

static int end(void **state)
{
    memset(&disk, 0, sizeof disk);
    stage_end(*state);
    return 0;
}

#define TEST(name)                    \
    {                                 \
#name, name, begin, end, NULL \
    }

static int run(const struct storage_kind *kind, struct CMUnitTest *tests, size_t n)
{
    for (size_t i = 0; i < n; i++) tests[i].initial_state = (void *)kind;
    return _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
}

int main(void)
{
    static struct CMUnitTest tests[] = {
        TEST(a_new_storage_is_empty),
        TEST(before_the_first_claim_nothing_commits),
        TEST(each_claim_is_the_next_term_also_after_a_restart),
        TEST(a_commit_of_an_old_term_gets_the_current_term),
        TEST(what_is_committed_is_read_also_after_a_restart),
        TEST(a_commit_writes_all_it_has_in_order),
        TEST(without_writes_nothing_changes),
        TEST(a_request_is_committed_once),
        TEST(a_request_is_known_in_later_terms_and_after_a_restart),
        TEST(a_rejected_request_may_be_repeated),
        TEST(a_barred_transaction_commits_no_more),
        TEST(a_barred_read_only_transaction_is_rejected_too),
        TEST(what_was_committed_before_the_bar_is_committed),
        TEST(a_bar_is_of_its_term),
        TEST(names_are_bytes_and_do_not_meet),
        TEST(a_scan_has_one_table_in_the_order_of_its_keys),
        TEST(the_longest_names_fit_and_no_longer_ones),
        TEST(a_value_may_be_large),
        TEST(in_a_group_the_order_is_that_of_submission),
        TEST(requests_that_are_not_old_are_kept),
        TEST(what_was_submitted_is_done_before_the_end),
        TEST(random_operations_have_the_results_of_a_model),
    };
    /* Of the disk, and how LMDB uses it. */
    static struct CMUnitTest of_lmdb[] = {
        TEST(those_that_wait_together_share_a_sync),
        TEST(nothing_is_answered_before_its_sync),
        TEST(work_is_done_in_pieces_and_reports_the_rest),
        TEST(commits_in_one_write_succeed_or_fail_independently),
        TEST(a_full_store_reads_deletes_and_continues),
        TEST(old_requests_are_forgotten_a_few_at_a_time_the_oldest_first),
        TEST(a_failed_write_was_not_done_and_the_rest_continues),
    };
    int failed = run(&lmdb_kind, of_lmdb, sizeof of_lmdb / sizeof *of_lmdb);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!kind_begin(kinds[k])) continue;
        failed += run(kinds[k], tests, sizeof tests / sizeof *tests);
        kind_end(kinds[k]);
    }
    return failed;
}
