/* failing_alloc.c - see failing_alloc.h. */
#include "failing_alloc.h"

#include <stddef.h>

static _Thread_local struct {
    bool counts_down;
    long left;       /* This many still succeed. */
    bool for_good;   /* Then all fail, and not only one. */
    uint64_t chance; /* Not 0: one in this many fails. */
    uint64_t one_in;
    const bool *place;
    long allocations, failures;
} memory;

void memory_count_anew(void)
{
    memory.allocations = memory.failures = 0;
}

void memory_is_back(void)
{
    memory.counts_down = false;
    memory.chance = 0;
}

static void count_down(long n, bool for_good)
{
    memory_is_back();
    memory_count_anew();
    memory.counts_down = true;
    memory.left = n;
    memory.for_good = for_good;
}

void memory_fails_after(long n)
{
    count_down(n, false);
}

void memory_ends_after(long n)
{
    count_down(n, true);
}

void memory_fails_by_chance(uint64_t seed, uint64_t one_in)
{
    memory_is_back();
    memory_count_anew();
    memory.chance = seed;
    memory.one_in = one_in;
}

long memory_allocations(void)
{
    return memory.allocations;
}

long memory_failures(void)
{
    return memory.failures;
}

void memory_fails_only_in(const bool *place)
{
    memory.place = place;
}

static bool by_chance(void)
{
    if (memory.chance == 0) return false;
    memory.chance ^= memory.chance << 13;
    memory.chance ^= memory.chance >> 7;
    memory.chance ^= memory.chance << 17;
    return memory.chance % memory.one_in == 0;
}

static bool by_count(void)
{
    if (!memory.counts_down) return false;
    if (memory.left > 0) {
        memory.left--;
        return false;
    }
    memory.counts_down = memory.for_good;
    return true;
}

bool memory_fails_now(void)
{
    if (memory.place != NULL && !*memory.place) return false;
    memory.allocations++;
    bool fails = by_count() || by_chance();
    memory.failures += fails;
    return fails;
}

/* --- -Wl,--wrap ------------------------------------------------------------------ */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    return memory_fails_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return memory_fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return memory_fails_now() ? NULL : __real_realloc(p, n);
}
