/* stage.h - the common base of tests that kill processes.
 *
 * Such a test starts, stops and kills many processes, and must not leave any of them behind, even if
 * it fails. So stage_open() splits the program:
 *
 *     watcher      in the caller's process group; kills the others after the deadline
 *       +-- test   the process in which stage_open() returns; in its own process group
 *             +-- processes that stage_fork() starts; killed when the test ends
 *     undertaker   removes the directory of the segments when all others have ended
 *
 * The report is TAP. */
#ifndef TESTS_KILL_STAGE_H
#define TESTS_KILL_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STAGE_PATH_MAX 96

/* --- Life ----------------------------------------------------------------- */

/* Split the program, and return in the process of the test. After deadline_s seconds the watcher
 * kills all processes, and the program fails. */
void stage_open(unsigned deadline_s);

/* Print the plan and exit: with status 0 if all tests passed, otherwise 1. */
_Noreturn void stage_close(void);

/* Like fork(), for a child that is killed when the calling thread ends. Ends the test on failure. */
pid_t stage_fork(void);

/* End the test at once, because it cannot continue. */
_Noreturn void stage_bail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* --- Resources ------------------------------------------------------------ */

/* A unique path for a segment. */
void stage_path(char out[STAGE_PATH_MAX]);

/* Zeroed memory that children share with the test. */
void *stage_shared(size_t bytes);

/* CLOCK_MONOTONIC. */
int64_t stage_now_ms(void);

/* Random numbers; the same for the same seed. */
uint64_t stage_random(uint64_t *state);

/* --- Report --------------------------------------------------------------- */

/* Report a test of the plan. Returns `good`. */
bool stage_ok(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print a comment line. */
void stage_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* TESTS_KILL_STAGE_H */
