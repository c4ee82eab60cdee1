/* word.h - atomic operations on sixteen bytes.
 *
 * The canal's algorithm needs a 16-byte compare-and-swap and a 16-byte load that is not
 * torn. C11's atomics would call libatomic, which may use a lock that is private to one
 * process. So this header uses the processor's instructions directly.
 *
 * x86-64: cmpxchg16b. The load is an aligned SSE load if the processor has AVX (Intel
 * and AMD document that it is atomic on such processors), otherwise cmpxchg16b. arm64:
 * caspal if the compiler may use it, otherwise ldaxp/stlxp. An ldaxp alone is not
 * atomic before LSE2, so the load also writes back the value that it read.
 *
 * Ordering: sl_canal_word_swap() orders all earlier loads and stores before all later
 * loads; sl_canal_word_load() is an acquire load. */
#ifndef SL_CANAL_WORD_H
#define SL_CANAL_WORD_H

#include <stdbool.h>
#include <stdint.h>

/* A value of sixteen bytes. */
struct sl_canal_pair {
    uint64_t lo;
    uint64_t hi;
};

/* A 16-byte value in shared memory. */
struct sl_canal_word {
    _Alignas(16) uint64_t lo;
    uint64_t hi;
};
_Static_assert(sizeof(struct sl_canal_word) == 16, "layout is shared");

/* Return whether this processor supports the operations below. Called once, when a
 * segment is opened. */
bool sl_canal_word_is_supported(void);

static inline bool sl_canal_pair_equal(struct sl_canal_pair a, struct sl_canal_pair b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* The thread sanitizer does not understand assembly, so these macros declare the
 * ordering. */
#if defined(__SANITIZE_THREAD__)
#define SL_CANAL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SL_CANAL_TSAN 1
#endif
#endif
#ifdef SL_CANAL_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define SL_CANAL_TSAN_ACQUIRE(p) __tsan_acquire((void *)(p))
#define SL_CANAL_TSAN_RELEASE(p) __tsan_release((void *)(p))
#else
#define SL_CANAL_TSAN_ACQUIRE(p) ((void)0)
#define SL_CANAL_TSAN_RELEASE(p) ((void)0)
#endif

#if defined(__x86_64__)

extern bool sl_canal_word_sse_load; /* Set by sl_canal_word_is_supported(). */

/* Write `next` if the word equals *seen, and return true. Otherwise return false and
 * store the word in *seen. */
static inline bool sl_canal_word_swap(struct sl_canal_word *w,
                                      struct sl_canal_pair *seen,
                                      struct sl_canal_pair next)
{
    bool done;
    SL_CANAL_TSAN_RELEASE(w);
    __asm__ __volatile__("lock cmpxchg16b %1"
                         : "=@ccz"(done), "+m"(*w), "+a"(seen->lo), "+d"(seen->hi)
                         : "b"(next.lo), "c"(next.hi)
                         : "memory");
    SL_CANAL_TSAN_ACQUIRE(w);
    return done;
}

static inline struct sl_canal_pair sl_canal_word_load(struct sl_canal_word *w)
{
    if (__builtin_expect(sl_canal_word_sse_load, 1)) {
        typedef unsigned long long two __attribute__((vector_size(16)));
        two v;
        __asm__ __volatile__("movdqa %1, %0" : "=x"(v) : "m"(*w) : "memory");
        SL_CANAL_TSAN_ACQUIRE(w);
        return (struct sl_canal_pair){.lo = v[0], .hi = v[1]};
    }
    struct sl_canal_pair seen = {0, 0};
    sl_canal_word_swap(w, &seen,
                       /* A swap of zero with zero never changes the value; it stores
                        * the current value in `seen`. */
                       seen);
    return seen;
}

/* Order a store before this call before a load after it. A compiler barrier is
 * sufficient on x86-64, because every caller executes a locked instruction between the
 * two. */
static inline void sl_canal_word_fence(void)
{
    __asm__ __volatile__("" ::: "memory");
}

static inline void sl_canal_word_pause(void)
{
    __builtin_ia32_pause();
}

#elif defined(__aarch64__)

static inline bool sl_canal_word_swap(struct sl_canal_word *w,
                                      struct sl_canal_pair *seen,
                                      struct sl_canal_pair next)
{
    SL_CANAL_TSAN_RELEASE(w);
#if defined(__ARM_FEATURE_ATOMICS)
    register uint64_t x0 __asm__("x0") = seen->lo;
    register uint64_t x1 __asm__("x1") = seen->hi;
    register uint64_t x2 __asm__("x2") = next.lo;
    register uint64_t x3 __asm__("x3") = next.hi;
    __asm__ __volatile__("caspal x0, x1, x2, x3, %2"
                         : "+r"(x0), "+r"(x1), "+Q"(*w)
                         : "r"(x2), "r"(x3)
                         : "memory");
    struct sl_canal_pair was = {x0, x1};
#else
    struct sl_canal_pair was;
    uint32_t lost;
    do {
        __asm__ __volatile__("ldaxp %0, %1, %2"
                             : "=&r"(was.lo), "=&r"(was.hi)
                             : "Q"(*w)
                             : "memory");
        struct sl_canal_pair put = sl_canal_pair_equal(was, *seen) ? next : was;
        __asm__ __volatile__("stlxp %w0, %2, %3, %1"
                             : "=&r"(lost), "=Q"(*w)
                             : "r"(put.lo), "r"(put.hi)
                             : "memory");
    } while (lost);
#endif
    bool done = sl_canal_pair_equal(was, *seen);
    *seen = was;
    SL_CANAL_TSAN_ACQUIRE(w);
    return done;
}

static inline struct sl_canal_pair sl_canal_word_load(struct sl_canal_word *w)
{
    struct sl_canal_pair seen = {0, 0};
    sl_canal_word_swap(w, &seen, seen);
    return seen;
}

static inline void sl_canal_word_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void sl_canal_word_pause(void)
{
    __asm__ __volatile__("isb" ::: "memory");
}

#else
#error "Sluice runs on x86-64 and arm64"
#endif

#endif /* SL_CANAL_WORD_H */
