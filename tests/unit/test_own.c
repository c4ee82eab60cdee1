/* test_own.c - the default segment: in the home directory, or in /dev/shm, where another user may
 * have taken its name. All processes find the same one, even if several are the first at the
 * same moment. Each test runs in a child with its own /dev/shm, which needs root. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "canal/own.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_canal_options small = {.keys = 8, .slots = 4, .records = 32};

/* As in segment.c: who makes a segment has locked this byte. */
#define MAKING_BYTE ((off_t)1 << 40)

/* --- Between a look for candidates and the creation of one ------------------- */

int __real_sl_canal_own_create(unsigned mode, char out[SL_CANAL_OWN_PATH_SIZE]);
int __wrap_sl_canal_own_create(unsigned mode, char out[SL_CANAL_OWN_PATH_SIZE]);

static void (*meanwhile)(void); /* Done once. */

int __wrap_sl_canal_own_create(unsigned mode, char out[SL_CANAL_OWN_PATH_SIZE])
{
    void (*f)(void) = meanwhile;
    meanwhile = NULL;
    if (f != NULL) f();
    return __real_sl_canal_own_create(mode, out);
}

/* --- In a child --------------------------------------------------------------- */

#define CANNOT 77

static int in_a_child(int (*f)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(WORLD_DEADLINE_S);
        bool can = geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
                   mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") == 0;
        setenv("XDG_STATE_HOME", "/nonexistent/state",
               1); /* Unsuitable for a segment. */
        _exit(can ? f() : CANNOT);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void passes(int (*f)(void))
{
    int status = in_a_child(f);
    if (status == CANNOT) skip();
    assert_int_equal(status, 0);
}

/* Another user has the name. */
static void take_the_name(void)
{
    int fd = open("/dev/shm/sluice.0", O_CREAT | O_RDWR | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || fchown(fd, 65534, 65534) != 0) _exit(90);
    close(fd);
}

/* Open it: its path in out. */
static bool open_own(char out[SL_CANAL_OWN_PATH_SIZE])
{
    struct sluice_canal *c;
    out[0] = '\0';
    if (sluice_canal_open(NULL, &small, &c) != SLUICE_OK) return false;
    snprintf(out, SL_CANAL_OWN_PATH_SIZE, "%s", sluice_canal_path(c));
    sluice_canal_close(c);
    return true;
}

static unsigned candidates(void)
{
    struct sl_canal_own_list list;
    if (sl_canal_own_list(&list) != 0) return 99;
    unsigned n = (unsigned)list.count;
    sl_canal_own_free(&list);
    return n;
}

/* --- Tests ---------------------------------------------------------------------- */

static void another_opens_it(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[SL_CANAL_OWN_PATH_SIZE];
        _exit(open_own(path) ? 0 : 1);
    }
    waitpid(pid, NULL, 0);
}

/* Names are random: in some rounds one is before the other, in some behind it. */
static int overtaken_between_look_and_creation(void)
{
    char mine[SL_CANAL_OWN_PATH_SIZE], after[SL_CANAL_OWN_PATH_SIZE];
    for (int round = 0; round < 40; round++) {
        if (round % 2 == 0) take_the_name();
        meanwhile = another_opens_it;
        if (!open_own(mine)) return 1;
        if (candidates() != 1) return 2;
        if (!open_own(after) || strcmp(mine, after) != 0) return 3;
        if ((round % 2 == 0) != (strstr(mine, "/sluice-") != NULL)) return 4;
        unlink(mine);
        unlink("/dev/shm/sluice.0");
    }
    return 0;
}

/* A maker that has created a candidate and locked it, and dies after a while. */
static const char *others_path;

static void another_begins_to_make_it(void)
{
    int pipes[2];
    char byte;
    if (pipe(pipes) != 0) _exit(91);
    pid_t pid = fork();
    if (pid == 0) {
        struct flock l = {.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = MAKING_BYTE,
                          .l_len = 1};
        int fd = open(others_path, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (fd < 0 || fcntl(fd, F_OFD_SETLK, &l) != 0) _exit(1);
        if (write(pipes[1], "x", 1) != 1) _exit(1);
        usleep(100000);
        _exit(0);
    }
    close(pipes[1]);
    if (read(pipes[0], &byte, 1) != 1) _exit(92);
    close(pipes[0]);
}

static int a_maker_dies(void)
{
    char path[SL_CANAL_OWN_PATH_SIZE];
    const char *others[] = {"/dev/shm/sluice-0.0000000000000000",
                            "/dev/shm/sluice-0.ffffffffffffffff"};
    for (int i = 0; i < 4; i++) {
        take_the_name();
        others_path = others[i % 2];
        if (i < 2) meanwhile = another_begins_to_make_it;
        else another_begins_to_make_it();
        if (!open_own(path)) return 1;
        if (candidates() != 1) return 2;
        /* One that is before ours is made for its maker; one behind it is removed. */
        bool joined = strcmp(path, others_path) == 0;
        if (joined != (i % 2 == 0 || i >= 2)) return 3;
        unlink(path);
        unlink("/dev/shm/sluice.0");
    }
    return 0;
}

/* Ours, but others may write to it: they have linked it to the name. */
static int links_are_not_candidates(void)
{
    char path[SL_CANAL_OWN_PATH_SIZE];
    take_the_name();
    struct sluice_canal_options shared = small;
    struct sluice_canal *c;
    shared.mode = 0666;
    if (sluice_canal_open("team", &shared, &c) != SLUICE_OK) return 1;
    sluice_canal_close(c);
    if (link("/dev/shm/sluice.team", "/dev/shm/sluice-0.0000000000000000") != 0)
        return 2;
    if (!open_own(path)) return 3;
    if (strcmp(path, "/dev/shm/sluice-0.0000000000000000") == 0) return 4;
    unlink("/dev/shm/sluice.team"); /* Now it has one link, and is still not private. */
    char again[SL_CANAL_OWN_PATH_SIZE];
    return open_own(again) && strcmp(path, again) == 0 ? 0 : 5;
}

static int what_is_not_there_is_not_made(void)
{
    struct sluice_canal_options o = {.existing = 1, .mode = 0666};
    struct sluice_canal *c;
    take_the_name();
    if (sluice_canal_open(NULL, &o, &c) != SLUICE_ENOENT) return 1;
    if (candidates() != 0) return 2;
    char path[SL_CANAL_OWN_PATH_SIZE];
    if (!open_own(path) || sluice_canal_open(NULL, &o, &c) != SLUICE_OK) return 3;
    sluice_canal_close(c);
    if (sluice_canal_remove(NULL) != SLUICE_OK || candidates() != 0) return 4;
    return access("/dev/shm/sluice.0", F_OK) == 0 ? 0 : 5;
}

/* --- The home directory --------------------------------------------------------- */

/* A home directory on a file system of its own. */
static void mount_home(const char *type, const char *options)
{
    static char home[] = "/dev/shm/sluice-test.home";
    if (mkdir(home, 0700) != 0 || mount("none", home, type, 0, options) != 0) _exit(91);
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", home, 1);
}

static int a_local_home(void)
{
    char path[SL_CANAL_OWN_PATH_SIZE];
    mount_home("tmpfs", "mode=0700");
    if (!open_own(path)) return 1;
    if (strcmp(path, "/dev/shm/sluice-test.home/.local/state/sluice/segment") != 0)
        return 2;
    return candidates() == 0 ? 0 : 3;
}

static int an_unknown_file_system(void)
{
    char path[SL_CANAL_OWN_PATH_SIZE];
    mount_home("ramfs", NULL);
    if (!open_own(path)) return 1;
    return strcmp(path, "/dev/shm/sluice.0") == 0 ? 0 : 2;
}

static int a_full_disk(void)
{
    struct sluice_canal *c;
    mount_home("tmpfs", "mode=0700,nr_inodes=2");
    if (sluice_canal_open(NULL, &small, &c) != SLUICE_ENOSPC) return 1;
    return candidates() == 0 ? 0 : 2;
}

UNIT_TEST(the_default_segment_is_in_the_home_directory)
{
    passes(a_local_home);
}

UNIT_TEST(a_home_directory_on_an_unknown_file_system_is_not_used)
{
    passes(an_unknown_file_system);
}

UNIT_TEST(a_full_disk_is_an_error_and_does_not_lead_to_dev_shm)
{
    passes(a_full_disk);
}

UNIT_TEST(two_processes_that_find_no_segment_use_one)
{
    passes(overtaken_between_look_and_creation);
}

UNIT_TEST(a_candidate_whose_maker_died_is_made_or_removed)
{
    passes(a_maker_dies);
}

UNIT_TEST(a_shared_segment_linked_to_a_second_name_is_not_used)
{
    passes(links_are_not_candidates);
}

UNIT_TEST(the_file_of_another_user_is_neither_shown_nor_removed)
{
    passes(what_is_not_there_is_not_made);
}

int main(void)
{
    return run_unit_tests("own");
}
