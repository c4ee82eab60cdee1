/* test_open.c - segments: made, found, refused. Each refusal has its own status and
 * changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "canal/layout.h"
#include "canal/segment.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_capacity one = {.per = 1, .buckets = 1};
static const struct sluice_canal_options small = {.keys = 8, .slots = 4, .records = 32};

/* A directory, and a path in it that is not there yet. */
struct place {
    char directory[64];
    char path[80];
};

static struct place place_new(void)
{
    struct place p;
    alarm(WORLD_DEADLINE_S);
    directory_make(p.directory);
    snprintf(p.path, sizeof p.path, "%s/segment", p.directory);
    return p;
}

static void place_end(struct place *p)
{
    directory_remove(p->directory);
}

/* PLACE p = place_new() is removed at the end of its block. */
#define PLACE __attribute__((cleanup(place_end))) struct place

static int open_only(const char *path, const struct sluice_canal_options *o)
{
    struct sluice_canal *c;
    int status = sluice_canal_open(path, o, &c);
    assert_true((status == SLUICE_OK) == (c != NULL));
    sluice_canal_close(c);
    return status;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Change bytes of a segment's file at an offset. */
static void patch(const char *path, off_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
    close(fd);
}

static int run_child(int (*f)(const struct place *), const struct place *p)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(f(p));
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* Exit codes cannot be negative. */
static int code(int status)
{
    return -status;
}

/* --- Found and made ------------------------------------------------------- */

UNIT_TEST(a_name_without_a_slash_lies_in_dev_shm)
{
    char name[64], path[128];
    snprintf(name, sizeof name, "test-%d", (int)getpid());
    snprintf(path, sizeof path, "/dev/shm/sluice.%s", name);
    assert_int_equal(open_only(name, &small), SLUICE_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(sluice_canal_remove(name), SLUICE_OK);
    assert_int_equal(sluice_canal_remove(name), SLUICE_ENOENT);
    char expected[64];
    setenv("XDG_STATE_HOME", "/nonexistent/state", 1); /* Unsuitable for a segment. */
    assert_int_equal(sl_canal_segment_path(NULL, path, sizeof path), SLUICE_OK);
    snprintf(expected, sizeof expected, "/dev/shm/sluice.%u", (unsigned)geteuid());
    assert_string_equal(path, expected);
}

UNIT_TEST(the_mode_asked_for_is_the_mode_given_whatever_the_umask)
{
    PLACE p = place_new();
    struct sluice_canal_options o = small;
    struct stat st;
    o.mode = 0660;
    mode_t old = umask(077);
    assert_int_equal(open_only(p.path, &o), SLUICE_OK);
    umask(old);
    assert_int_equal(stat(p.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
}

UNIT_TEST(permits_outlive_a_close_by_others_and_an_open_by_others)
{
    WORLD w = world_new(&small);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    assert_int_equal(open_only(w.path, NULL), SLUICE_OK);
    assert_int_equal(open_only(w.path, &small), SLUICE_OK);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 1);
}

enum { CREATORS = 8 };

static int create_and_take(const struct place *p)
{
    struct sluice_canal *c;
    struct sluice_capacity capacity = {.per = CREATORS, .buckets = 1};
    if (sluice_canal_open(
            p->path,
            &(struct sluice_canal_options){.keys = 8, .slots = 16, .records = 128},
            &c) != SLUICE_OK)
        return 100;
    int64_t nth = sluice_canal_acquire(c, "db", capacity, NULL);
    if (nth < 1) return 101;
    /* Nobody leaves before all have come. */
    for (int i = 0; i < 20000 && sluice_canal_count(c, "db") < CREATORS; i++)
        pause_ms(1);
    return sluice_canal_count(c, "db") == CREATORS ? (int)nth : 102;
}

UNIT_TEST(creators_may_race_and_make_one_segment)
{
    for (int round = 0; round < 20; round++) {
        struct place p = place_new();
        pid_t pids[CREATORS];
        int seen = 0;
        fflush(NULL);
        for (int i = 0; i < CREATORS; i++) {
            pids[i] = fork();
            if (pids[i] != 0) continue;
            int result = create_and_take(&p);
            while (access(p.directory, F_OK) == 0 && result <= CREATORS) pause_ms(1);
            _exit(result); /* Holds on until the test has seen all. */
        }
        struct sluice_canal *c;
        assert_int_equal(sluice_canal_open(p.path, NULL, &c), SLUICE_OK);
        for (int i = 0; i < 20000 && sluice_canal_count(c, "db") < CREATORS; i++)
            pause_ms(1);
        assert_int_equal(sluice_canal_count(c, "db"), CREATORS);
        sluice_canal_close(c);
        directory_remove(p.directory);
        for (int i = 0; i < CREATORS; i++) {
            int status;
            waitpid(pids[i], &status, 0);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) >= 1 &&
                        WEXITSTATUS(status) <= CREATORS);
            seen |= 1 << (WEXITSTATUS(status) - 1);
        }
        assert_int_equal(seen, (1 << CREATORS) - 1); /* Each the nth once. */
    }
}

UNIT_TEST(after_another_boot_a_segment_is_made_anew)
{
    PLACE p = place_new();
    struct sluice_canal *c;
    assert_int_equal(sluice_canal_open(p.path, &small, &c), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(c, "db", one, NULL), 1);
    patch(p.path, offsetof(struct sl_canal_shm_header, boot), "another boot id.", 16);
    struct sluice_canal *later;
    assert_int_equal(sluice_canal_open(p.path, &small, &later), SLUICE_OK);
    assert_int_equal(sluice_canal_count(later, "db"), 0);
    assert_int_equal(sluice_canal_acquire(later, "db", one, NULL), 1);
    sluice_canal_close(later);
    /* c's memory has been truncated away under it: outside what is promised. */
}

UNIT_TEST(a_segment_whose_maker_died_is_made_by_the_next)
{
    PLACE p = place_new();
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
    uint32_t zero = 0;
    patch(p.path, offsetof(struct sl_canal_shm_header, ready), &zero, sizeof zero);
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
    write_file(p.path, "", 0);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.existing = 1}),
                     SLUICE_ENOENT); /* It is not there to be used. */
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
}

/* Whether a process has a file open; a removed one has another name there. */
static bool has_open(pid_t pid, const char *path)
{
    for (int fd = 0; fd < 64; fd++) {
        char link[64], target[256];
        snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = '\0';
        if (strcmp(target, path) == 0) return true;
    }
    return false;
}

UNIT_TEST(a_file_removed_while_one_waits_to_make_it_is_made_at_its_path)
{
    PLACE p = place_new();
    struct flock l = {.l_type = F_WRLCK, .l_start = (off_t)1 << 40, .l_len = 1};
    write_file(p.path, "", 0);
    int fd = open(p.path, O_RDWR | O_CLOEXEC), status;
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &l), 0); /* As a maker has it. */
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd); /* The lock stays with the parent's. */
        _exit(code(open_only(p.path, &small)));
    }
    while (!has_open(pid, p.path)) pause_ms(1);
    pause_ms(20); /* It has looked, and waits for the lock. */
    assert_int_equal(remove(p.path), 0);
    close(fd);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.existing = 1}),
                     SLUICE_OK);
}

UNIT_TEST(a_segment_that_was_removed_or_replaced_is_known_to_be)
{
    PLACE p = place_new();
    struct sluice_canal *c, *other;
    struct sluice_canal_options anonymous = {.anonymous = 1};
    char aside[96];
    snprintf(aside, sizeof aside, "%s.aside", p.path);
    assert_int_equal(sluice_canal_open(p.path, &small, &c), SLUICE_OK);
    assert_string_equal(sluice_canal_path(c), p.path);
    assert_int_equal(sluice_canal_removed(c), 0);
    assert_int_equal(rename(p.path, aside), 0);
    assert_int_equal(sluice_canal_removed(c), 1);
    assert_int_equal(sluice_canal_open(p.path, &small, &other), SLUICE_OK);
    assert_int_equal(sluice_canal_removed(c), 1); /* There is one, but not this one. */
    assert_int_equal(sluice_canal_removed(other), 0);
    sluice_canal_close(other);
    assert_int_equal(rename(aside, p.path), 0);
    assert_int_equal(sluice_canal_removed(c), 0);
    assert_int_equal(sluice_canal_remove(p.path), SLUICE_OK);
    assert_int_equal(sluice_canal_removed(c), 1);
    sluice_canal_close(c);
    assert_int_equal(sluice_canal_open(NULL, &anonymous, &c), SLUICE_OK);
    assert_null(sluice_canal_path(c));
    assert_int_equal(sluice_canal_removed(c), 0);
    sluice_canal_close(c);
    assert_null(sluice_canal_path(NULL));
    assert_int_equal(sluice_canal_removed(NULL), SLUICE_EINVAL);
}

/* As a user who may not look into the segment's directory any more. */
static int look_where_one_may_not(const struct place *p)
{
    struct sluice_canal *c;
    struct sluice_canal_options o = small;
    o.mode = 0666;
    if (sluice_canal_open(p->path, &o, &c) != SLUICE_OK) return 98;
    if (chmod(p->directory, 0700) != 0) return 97;
    if (setgid(65534) != 0 || setuid(65534) != 0) return 99;
    if (access(p->path, F_OK) == 0) return 96;
    return sluice_canal_removed(c);
}

UNIT_TEST(a_segment_that_cannot_be_checked_is_not_reported_as_removed)
{
    if (geteuid() != 0) skip(); /* Needs a second user. */
    PLACE p = place_new();
    assert_int_equal(run_child(look_where_one_may_not, &p), 0);
}

UNIT_TEST(the_path_is_absolute_whatever_the_directory)
{
    PLACE p = place_new();
    struct sluice_canal *c;
    char before[256];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(p.directory), 0);
    assert_int_equal(sluice_canal_open("./segment", &small, &c), SLUICE_OK);
    assert_int_equal(chdir(before), 0);
    assert_string_equal(sluice_canal_path(c), p.path);
    assert_int_equal(sluice_canal_removed(c), 0);
    sluice_canal_close(c);
}

/* --- Refused -------------------------------------------------------------- */

UNIT_TEST(a_foreign_file_is_recognized_and_left_unchanged)
{
    PLACE p = place_new();
    static const char text[] = "Dear diary, today I was nearly taken for a segment.\n";
    static const char zeros[8192];
    write_file(p.path, text, sizeof text);
    assert_int_equal(open_only(p.path, NULL), SLUICE_EFOREIGN);
    assert_int_equal(sluice_canal_remove(p.path), SLUICE_EFOREIGN);
    char back[sizeof text];
    FILE *f = fopen(p.path, "r");
    assert_int_equal(fread(back, 1, sizeof back, f), sizeof text);
    fclose(f);
    assert_memory_equal(back, text, sizeof text);
    write_file(p.path, zeros, sizeof zeros); /* It may be somebody's disk image. */
    assert_int_equal(open_only(p.path, NULL), SLUICE_EFOREIGN);
    write_file(p.path, "SL", 2);
    assert_int_equal(open_only(p.path, NULL), SLUICE_EFOREIGN);
    assert_int_equal(open_only(p.directory, NULL), SLUICE_EFOREIGN);
    remove(p.path);
    assert_int_equal(mkfifo(p.path, 0600), 0);
    assert_int_equal(open_only(p.path, NULL), SLUICE_EFOREIGN);
    remove(p.path);
    assert_int_equal(symlink("/etc/passwd", p.path), 0);
    assert_int_equal(open_only(p.path, NULL), SLUICE_EFOREIGN);
}

UNIT_TEST(another_version_a_truncated_file_and_a_smaller_one_have_their_own_status)
{
    PLACE p = place_new();
    uint32_t other = SL_CANAL_FORMAT + 1, huge = SLUICE_KEYS_MAX + 1;
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.keys = 9}),
                     SLUICE_ESMALLER);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.slots = 5}),
                     SLUICE_ESMALLER);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.records = 33}),
                     SLUICE_ESMALLER);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.keys = 8}),
                     SLUICE_OK);
    assert_int_equal(truncate(p.path, 4096), 0);
    assert_int_equal(open_only(p.path, NULL), SLUICE_ETRUNCATED);
    assert_int_equal(truncate(p.path, 100), 0);
    assert_int_equal(open_only(p.path, NULL), SLUICE_ETRUNCATED);
    assert_int_equal(sluice_canal_remove(p.path), SLUICE_OK);
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
    patch(p.path, offsetof(struct sl_canal_shm_header, keys), &huge, sizeof huge);
    assert_int_equal(open_only(p.path, NULL), SLUICE_EFOREIGN);
    patch(p.path, offsetof(struct sl_canal_shm_header, format), &other, sizeof other);
    assert_int_equal(open_only(p.path, NULL), SLUICE_EVERSION);
}

UNIT_TEST(bad_names_and_sizes_are_rejected)
{
    PLACE p = place_new();
    char missing[128];
    snprintf(missing, sizeof missing, "%s/no/such/directory", p.directory);
    assert_int_equal(sluice_canal_open(p.path, NULL, NULL), SLUICE_EINVAL);
    assert_int_equal(open_only("", NULL), SLUICE_EINVAL);
    assert_int_equal(open_only(missing, NULL), SLUICE_ENOENT);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.existing = 1}),
                     SLUICE_ENOENT);
    assert_int_equal(
        open_only(p.path, &(struct sluice_canal_options){.keys = SLUICE_KEYS_MAX + 1}),
        SLUICE_EINVAL);
    assert_int_equal(
        open_only(p.path,
                  &(struct sluice_canal_options){.slots = SLUICE_SLOTS_MAX + 1}),
        SLUICE_EINVAL);
    assert_int_equal(
        open_only(p.path,
                  &(struct sluice_canal_options){.records = SLUICE_RECORDS_MAX + 1}),
        SLUICE_EINVAL);
    assert_int_equal(open_only(p.path, &(struct sluice_canal_options){.mode = 01000}),
                     SLUICE_EINVAL);
    assert_int_equal(access(p.path, F_OK), -1);
}

/* As a user without rights, in a child. */
static int as_nobody(const struct place *p)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 99;
    return code(open_only(p->path, NULL));
}

static int as_nobody_shared(const struct place *p)
{
    struct sluice_canal_options o = small;
    o.mode = 0666;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 99;
    return code(open_only(p->path, &o));
}

UNIT_TEST(no_permission_and_another_owner_are_two_things)
{
    if (geteuid() != 0) skip(); /* Needs a second user. */
    PLACE p = place_new();
    assert_int_equal(chmod(p.directory, 0755), 0);
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
    assert_int_equal(run_child(as_nobody, &p), code(SLUICE_EACCES));
    assert_int_equal(chmod(p.path, 0666), 0);
    assert_int_equal(run_child(as_nobody, &p), code(SLUICE_EOWNER));
    assert_int_equal(run_child(as_nobody_shared, &p), code(SLUICE_OK));
    remove(p.path);
    assert_int_equal(run_child(as_nobody, &p),
                     code(SLUICE_EACCES)); /* Cannot create. */
}

static int with_a_small_file_size_limit(const struct place *p)
{
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 99;
    return code(open_only(p->path, NULL)); /* A signal would end us here. */
}

static int with_no_file_size_at_all(const struct place *p)
{
    struct rlimit limit = {0};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 99;
    return code(open_only(p->path, NULL));
}

UNIT_TEST(a_file_size_limit_is_a_status_and_not_a_signal)
{
    PLACE p = place_new();
    assert_int_equal(run_child(with_a_small_file_size_limit, &p), code(SLUICE_ENOSPC));
    assert_int_equal(run_child(with_no_file_size_at_all, &p), code(SLUICE_ENOSPC));
    assert_int_equal(access(p.path, F_OK), -1); /* Nothing is left lying around. */
}

static bool say_to(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool said = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return said;
}

/* On a file system of 64 KiB of our own; 98: the system does not let us mount one. */
static int on_a_full_disk(const struct place *p)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof uids, "0 %u 1", (unsigned)geteuid());
    snprintf(gids, sizeof gids, "0 %u 1", (unsigned)getegid());
    bool root = geteuid() == 0;
    if (unshare(root ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return 98;
    /* A user without a number cannot make a file: EOVERFLOW. */
    if (!root && (!say_to("/proc/self/uid_map", uids) ||
                  !say_to("/proc/self/setgroups", "deny") ||
                  !say_to("/proc/self/gid_map", gids)))
        return 98;
    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mount("none", p->directory, "tmpfs", 0, "size=64k") != 0) return 98;
    int status = open_only(p->path, NULL);
    if (access(p->path, F_OK) == 0) return 97;
    return code(status);
}

UNIT_TEST(a_full_disk_is_a_status_and_not_a_sigbus)
{
    struct place p = place_new();
    int result = run_child(on_a_full_disk, &p);
    directory_remove(p.directory);
    if (result == 98) skip();
    assert_int_equal(result, code(SLUICE_ENOSPC));
}

/* -Wl,--wrap: what a processor without the instruction would say. */
bool __real_sl_canal_word_is_supported(void);
bool __wrap_sl_canal_word_is_supported(void);
static bool no_cas;
bool __wrap_sl_canal_word_is_supported(void)
{
    return !no_cas && __real_sl_canal_word_is_supported();
}

UNIT_TEST(without_a_16_byte_swap_nothing_is_opened)
{
    PLACE p = place_new();
    no_cas = true;
    assert_int_equal(open_only(p.path, NULL), SLUICE_ENOCAS);
    no_cas = false;
    assert_int_equal(access(p.path, F_OK), -1);
}

UNIT_TEST(a_maker_that_is_stopped_is_not_waited_for_forever)
{
    PLACE p = place_new();
    write_file(p.path, "", 0);
    int fd = open(p.path, O_RDWR);
    struct flock l = {.l_type = F_WRLCK, .l_start = (off_t)1 << 40, .l_len = 1};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &l), 0); /* As a maker has it. */
    assert_int_equal(open_only(p.path, NULL), SLUICE_EBUSY);
    close(fd);
    assert_int_equal(open_only(p.path, &small), SLUICE_OK);
}

/* --- What open leaves alone ----------------------------------------------- */

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

UNIT_TEST(open_installs_no_signal_handler_and_errors_leak_no_file)
{
    struct sigaction before[64], after;
    PLACE p = place_new();
    for (int s = 1; s < 64; s++) sigaction(s, NULL, &before[s]);
    int files = open_files();
    write_file(p.path, "foreign, and longer than eight bytes", 36);
    for (int i = 0; i < 10; i++) open_only(p.path, NULL);
    remove(p.path);
    struct world w = world_new(&small);
    sluice_canal_acquire(w.canal, "db", one, NULL);
    for (int s = 1; s < 64; s++) {
        if (sigaction(s, NULL, &after) != 0)
            continue; /* Some are the C library's own. */
        assert_ptr_equal(before[s].sa_handler, after.sa_handler);
    }
    world_end(&w);
    assert_int_equal(open_files(), files);
}

int main(void)
{
    return run_unit_tests("open");
}
