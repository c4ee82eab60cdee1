#include "canal/robust.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The list links the member __next of each mutex. The member __prev is directly before
 * __next. The lock word is at an offset that glibc has registered with the kernel. */
#define WORD_OFFSET                                   \
    ((long)offsetof(pthread_mutex_t, __data.__lock) - \
     (long)offsetof(pthread_mutex_t, __data.__list.__next))
_Static_assert(offsetof(struct __pthread_internal_list, __next) ==
                   offsetof(struct __pthread_internal_list, __prev) + sizeof(void *),
               "glibc finds the one by the other");

/* A thread without a slot has no exit handler that would free a larger list. Such a
 * thread never needs more than this many entries: it locks key_mutex, the mutex of one
 * slot and mark_mutex. */
#define HELD_INSIDE 4u

/* The calling thread's locks, and its robust list as we know it. */
static __thread struct {
    struct robust_list_head *head; /* glibc's; NULL: not read yet. */
    pthread_mutex_t *
        *held; /* In the order of locking; the robust list is in reverse order. */
    uint32_t count, size;
    pthread_mutex_t *inside[HELD_INSIDE];
    pthread_mutex_t first, last; /* The guards: free mutexes, never locked. */
} mine;

/* Keep the stores before and after this call in order. If we are killed between two
 * stores, the kernel reads the list. A compiler barrier is sufficient, because the
 * kernel runs on the same processor as the thread. */
static void keep_order(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static struct robust_list *node_of(pthread_mutex_t *m)
{
    return (struct robust_list *)(void *)&m->__data.__list.__next;
}

static void set_next(struct robust_list *node, struct robust_list *next)
{
    *(struct robust_list *volatile *)&node->next = next;
}

/* glibc sets the lowest bit of pointers to priority-inheritance mutexes. */
static void set_prev(struct robust_list *node, struct robust_list *prev)
{
    char *at = (char *)((uintptr_t)node & ~(uintptr_t)1);
    *(void *volatile *)(void *)(at - sizeof(void *)) = prev;
}

static void set_pending(struct robust_list *node)
{
    keep_order();
    *(struct robust_list *volatile *)&mine.head->list_op_pending = node;
    keep_order();
}

static bool find_head(void)
{
    struct robust_list_head *head = NULL;
    size_t size = 0;
    if (mine.head != NULL) return true;
    if (syscall(SYS_get_robust_list, 0, &head, &size) != 0) return false;
    if (head == NULL || size != sizeof *head || head->futex_offset != WORD_OFFSET)
        return false;
    mine.head = head;
    mine.held = mine.inside;
    mine.size = HELD_INSIDE;
    return true;
}

bool sl_canal_robust_is_supported(void)
{
    return find_head();
}

/* --- The list -------------------------------------------------------------- */

/* Allocate memory for one more lock. Call this before locking it. */
static bool reserve(void)
{
    if (mine.count < mine.size) return true;
    uint32_t size = 2 * mine.size;
    pthread_mutex_t **more = malloc(size * sizeof *more);
    if (more == NULL) return false;
    memcpy(more, mine.held, mine.count * sizeof *more);
    if (mine.held != mine.inside) free(mine.held);
    mine.held = more;
    mine.size = size;
    return true;
}

static void release_memory(void)
{
    if (mine.held != mine.inside) free(mine.held);
    mine.held = mine.inside;
    mine.size = HELD_INSIDE;
}

static void put_guards(void)
{
    struct robust_list *head = (struct robust_list *)mine.head;
    struct robust_list *first = node_of(&mine.first), *last = node_of(&mine.last);
    struct robust_list *after = head->next;
    set_next(last, after);
    set_prev(last, first);
    set_next(first, last);
    set_prev(first, head);
    set_prev(after, last);
    keep_order();
    set_next(head, first);
}

/* Remove the guards from the list. glibc may have changed their neighbours
 * meanwhile. */
static void take_guards_away(void)
{
    struct robust_list *before = (void *)mine.first.__data.__list.__prev;
    struct robust_list *after = (void *)mine.last.__data.__list.__next;
    set_next(before, after);
    set_prev(after, before);
}

static void enlist(pthread_mutex_t *m)
{
    assert(mine.count < mine.size); /* reserve() made space. */
    if (mine.count == 0) put_guards();
    struct robust_list *first = node_of(&mine.first), *node = node_of(m);
    struct robust_list *after = node_of(mine.count > 0 ? mine.held[mine.count - 1]
                                                       : &mine.last);
    set_next(node, after);
    set_prev(node,
             first); /* glibc expects a valid pointer here, but does not read it. */
    keep_order();
    set_next(first, node);
    mine.held[mine.count++] = m;
}

static void delist(pthread_mutex_t *m)
{
    uint32_t i = mine.count;
    while (i > 0 && mine.held[i - 1] != m) i--;
    if (i-- == 0) return; /* The thread does not hold the mutex. */
    struct robust_list *before = node_of(i + 1 < mine.count ? mine.held[i + 1]
                                                            : &mine.first);
    struct robust_list *after = node_of(i > 0 ? mine.held[i - 1] : &mine.last);
    set_next(before, after);
    mine.count--;
    memmove(mine.held + i, mine.held + i + 1, (mine.count - i) * sizeof *mine.held);
    if (mine.count > 0) return;
    take_guards_away();
    release_memory();
}

/* --- The word -------------------------------------------------------------- */

static uint32_t *word_of(pthread_mutex_t *m)
{
    return (uint32_t *)&m->__data.__lock;
}

/* Try to lock once. `waiters` is FUTEX_WAITERS if other threads may be waiting,
 * otherwise 0. Stores the last value of the word in *seen. Returns 0, EOWNERDEAD or
 * EBUSY. */
static int take(pthread_mutex_t *m, uint32_t waiters, uint32_t *seen)
{
    uint32_t *word = word_of(m);
    *seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        bool dead = (*seen & FUTEX_OWNER_DIED) != 0;
        if (!dead && (*seen & FUTEX_TID_MASK) != 0) return EBUSY;
        uint32_t locked = (uint32_t)gettid() | waiters | (*seen & FUTEX_WAITERS);
        /* Acquire: pairs with the release of the previous holder. */
        if (!__atomic_compare_exchange_n(word, seen, locked, false, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        enlist(m);
        return dead ? EOWNERDEAD : 0;
    }
}

/* Tell the kernel which word we are about to lock. We may be killed after we have
 * locked the word and before we have added it to the list. */
static int prepare(pthread_mutex_t *m)
{
    if (!find_head()) return ENOTSUP;
    if (!reserve()) return ENOMEM;
    set_pending(node_of(m));
    return 0;
}

int sl_canal_robust_try(pthread_mutex_t *m)
{
    uint32_t seen;
    int e = prepare(m);
    if (e != 0) return e;
    e = take(m, 0, &seen);
    set_pending(NULL);
    return e;
}

int sl_canal_robust_lock(pthread_mutex_t *m, const struct timespec *until)
{
    uint32_t seen, waiters = 0;
    int e = prepare(m);
    if (e != 0) return e;
    while ((e = take(m, waiters, &seen)) == EBUSY) {
        uint32_t *word = word_of(m);
        if ((seen & FUTEX_WAITERS) == 0 &&
            !__atomic_compare_exchange_n(word, &seen, seen | FUTEX_WAITERS, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        /* The timeout is an absolute time of CLOCK_MONOTONIC. Unless the call returns
         * ETIMEDOUT, try again. */
        if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen | FUTEX_WAITERS, until,
                    NULL, FUTEX_BITSET_MATCH_ANY) != 0 &&
            errno != EAGAIN && errno != EINTR) {
            e = errno;
            break;
        }
        /* We were woken, but other threads may still be waiting. */
        waiters = FUTEX_WAITERS;
    }
    set_pending(NULL);
    return e;
}

void sl_canal_robust_unlock(pthread_mutex_t *m)
{
    assert(mine.head != NULL && mine.count > 0);
    uint32_t *word = word_of(m);
    set_pending(node_of(m));
    delist(m);
    /* Release: the next holder sees our writes. */
    uint32_t old = __atomic_exchange_n(word, 0, __ATOMIC_RELEASE);
    if ((old & FUTEX_WAITERS) != 0)
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    set_pending(NULL);
}

void sl_canal_robust_forked(void)
{
    if (mine.head == NULL) return;
    mine.count = 0;
    release_memory();
    mine.head = NULL;
}
