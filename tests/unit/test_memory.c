/* test_memory.c - every allocation may fail: each in its turn, in a loop. Nothing is
 * lost by it, and the leak checker has the last word. */
#include <unistd.h>

#include "failing_alloc.h"
#include "test.h"

#include "sluice.h"
#include "world.h"

static const struct sluice_capacity one = {.per = 1, .buckets = 1};

/* Forty keys by name, one by handle: the bindings grow several times. Stops at the
 * first failure, having said what it holds. */
static int64_t scenario(const char *path, struct sluice_canal **c, int *held)
{
    struct sluice_key *k = NULL;
    *held = 0;
    int64_t status = sluice_canal_open(path, NULL, c);
    if (status != SLUICE_OK) return status;
    for (; *held < 40 && status >= 0; *held += status > 0) {
        char key[4] = {'k', (char)('0' + *held / 10), (char)('0' + *held % 10), '\0'};
        status = sluice_canal_acquire(*c, key, one, NULL);
    }
    if (status < 0) return status;
    status = sluice_key_resolve(*c, "handle", &k);
    if (status != SLUICE_OK) return status;
    return sluice_key_free(k);
}

UNIT_TEST(every_allocation_may_fail_and_nothing_is_lost)
{
    WORLD w = world_new(NULL);
    int64_t status;
    int n = 0;
    do {
        struct sluice_canal *c = NULL;
        struct sluice_canal_info info;
        int held;
        memory_fails_after(n++);
        status = scenario(w.path, &c, &held);
        memory_is_back();
        assert_true(status == SLUICE_OK || status == SLUICE_ENOMEM);
        sluice_canal_info(w.canal, &info);
        assert_true(info.keys_used == (uint32_t)held);
        sluice_canal_close(c);
        sluice_canal_info(w.canal, &info);
        assert_int_equal(info.keys_used, 0);
        assert_int_equal(info.slots_used, 0);
        assert_int_equal(info.records_used, 0);
    } while (status != SLUICE_OK);
    assert_true(n > 5); /* It did fail at several places. */
}

int main(void)
{
    return run_unit_tests("memory");
}
