/* keeper_memory.c - lets nodes run out of memory. The linker replaces malloc(), calloc() and realloc() in the
 * simulator by the functions below (--wrap in meson.build). They fail only while a node does something that
 * must succeed, or must be reported, without memory. */
#include <stdlib.h>

#include "sim/keeper.h"

static bool fails;  /* Allocations fail at present; */
static bool failed; /* one has failed. */

void ksim_memory_begin(struct ksim_world *w)
{
    fails = ksim_has_fault(w, KSIM_FAULT_MEMORY) && sl_random_maybe(&w->random, 1000);
    failed = false;
}

bool ksim_memory_end(void)
{
    fails = false;
    return failed;
}

/* Whether an allocation fails. */
static bool fail(void)
{
    if (fails) failed = true;
    return fails;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *at, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *at, size_t n);

void *__wrap_malloc(size_t n)
{
    return fail() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    return fail() ? NULL : __real_calloc(count, n);
}

void *__wrap_realloc(void *at, size_t n)
{
    return fail() ? NULL : __real_realloc(at, n);
}
