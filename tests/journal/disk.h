/* disk.h - a disk in memory for src/journal/file.c: it loses power and it fails.
 *
 * The linker replaces the system calls of file.c by those of disk.c (--wrap; see meson.build). They
 * work on one directory, disk_directory. What is written goes to a cache, as in a kernel:
 *
 *     write ---> cache ---sync---> durable
 *
 * Without a sync, the kernel may write back any page at any time. So after a power failure each page
 * of a file has one of the contents that it has had since the last sync. The size of a file, and the
 * names in the directory, are those of some moment since the last sync. */
#ifndef TESTS_JOURNAL_DISK_H
#define TESTS_JOURNAL_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The descriptor of the directory. */
#define disk_directory (1 << 20)

/* Begin with an empty disk. All random choices come from the seed. disk_seed() only changes the
 * choices that follow. */
void disk_open(uint64_t seed);
void disk_seed(uint64_t seed);

/* --- Accidents ------------------------------------------------------------------------ */

/* The process is killed: all files are closed. */
void disk_kill(void);

/* The power fails. A page of this many bytes is written as a whole or not at all. */
void disk_lose_power(size_t page_bytes);

/* Make the disk as it was when disk_save() was called. One state is saved at a time. */
void disk_save(void);
void disk_restore(void);

/* Change a byte of a file in the cache and on disk. Returns false if the file is shorter. */
bool disk_damage(const char *name, uint64_t offset);

/* From now on, reads of this byte of the file `journal` fail with EIO. UINT64_MAX: none. */
void disk_bad_byte(uint64_t offset);

/* Call happen(arg) in the middle of the nth call from now on (1: the next one), except reads: before
 * it, after it, or when half of it is written. happen() does not return; it calls longjmp().
 * disk_dead(): the process is gone, and no call has any effect, until the disk is alive again. */
void disk_accident(uint64_t nth, void (*happen)(void *arg), void *arg);
void disk_dead(bool dead);

/* Let this accident happen at the nth call after the next fault (disk_fail()). 0: do not. */
void disk_accident_after_fault(uint64_t nth, void (*happen)(void *arg), void *arg);

/* Call run(arg) in the middle of each sync and each rename, as another thread would run meanwhile.
 * NULL: do not. */
void disk_meanwhile(void (*run)(void *arg), void *arg);

/* --- Faults --------------------------------------------------------------------------- */

enum disk_call {
    DISK_ANY,
    DISK_OPEN,
    DISK_WRITE,
    DISK_ALLOCATE,
    DISK_TRUNCATE,
    DISK_SYNC,
    DISK_SYNC_DIRECTORY,
    DISK_RENAME,
    DISK_UNLINK,
    DISK_READ,
    DISK_CALLS
};
extern const char *const disk_call_names[DISK_CALLS];

/* Let the nth call of this kind from now on fail with this errno (1: the next one), and `more`
 * calls of that kind after it. A write of several bytes that fails writes half of them first. A sync
 * that fails drops what was not durable: a later sync succeeds without it. */
void disk_fail(enum disk_call call, uint64_t nth, uint64_t more, int error);

/* Let every write be short, and every third call return EINTR. */
void disk_be_difficult(bool difficult);

/* Support fallocate(), and FALLOC_FL_ZERO_RANGE. Both at first. */
void disk_support(bool allocate, bool zero_range);

/* The number that statfs(2) returns; at first that of ext4. */
void disk_is(uint32_t type);

/* --- Inspection ------------------------------------------------------------------------ */

/* How many calls of this kind have been made since disk_open(). */
uint64_t disk_count(enum disk_call call);

/* How many faults have happened since the last disk_fail(). */
uint64_t disk_failures(void);

/* How often a file was synced although a write or a sync of it had failed. */
uint64_t disk_wrong_syncs(void);

/* The number of open descriptors. */
int disk_descriptors(void);

bool disk_exists(const char *name);

#endif /* TESTS_JOURNAL_DISK_H */
