/* stage.h - what every test that kills processes stands on.
 *
 * A test here starts many processes, stops them and kills them, so it must not leave
 * any behind, whatever becomes of it. stage_open() therefore splits the program:
 *
 *     watcher      in the caller's process group; has the deadline, kills the rest
 *       +-- test   the process that stage_open() returns in; a group of its own
 *             +-- whatever it starts by stage_fork(): dies with the test
 *     undertaker   removes the directory of the segments when all of these are gone
 *
 * The report is TAP. */
#ifndef TESTS_KILL_STAGE_H
#define TESTS_KILL_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STAGE_PATH_MAX 96

/* --- Life ----------------------------------------------------------------- */

/* Split as drawn above, and return in the test's process. After deadline_s seconds all
 * of it is killed and the program fails. */
void stage_open(unsigned deadline_s);

/* Print the plan and end the test: 0 if all was well, 1 if something was not. */
_Noreturn void stage_close(void);

/* As fork(), for a child that dies with the calling thread. Ends the test if it cannot. */
pid_t stage_fork(void);

/* End the test at once: it cannot go on. */
_Noreturn void stage_bail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* --- Things to have ------------------------------------------------------- */

/* A path for a segment that nobody else uses. */
void stage_path(char out[STAGE_PATH_MAX]);

/* Zeroed memory that children share with the test. */
void *stage_shared(size_t bytes);

/* CLOCK_MONOTONIC. */
int64_t stage_now_ms(void);

/* Random numbers; the same for the same seed. */
uint64_t stage_random(uint64_t *state);

/* --- Report --------------------------------------------------------------- */

/* One test of the plan. Returns good. */
bool stage_ok(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line of comment. */
void stage_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* TESTS_KILL_STAGE_H */
