/* fuzz.h - what the fuzzers share. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer calls it with bytes of its choice. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An assert that says where, and that no build leaves out. */
#define must(what)                                                             \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                           \
        }                                                                      \
    } while (0)

#endif /* TESTS_FUZZ_H */
