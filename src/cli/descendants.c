#include "cli/descendants.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The longest chain of ancestors. A longer one is taken for a loop, which reused process ids can
 * form while /proc is read. */
#define DEPTH_MAX 4096

/* The parents that were read in this search, found by the process id. A later entry replaces an
 * earlier one with the same place. */
#define PARENTS 4096u

struct descent {
    pid_t root;
    uint32_t round;
};

static struct {
    uint32_t round;
    pid_t pid, parent;
} parents[PARENTS];

static uint32_t rounds;

/* Read the parent of a process, and whether it has ended. Returns false if it does not exist. */
static bool read_process(pid_t pid, bool *ended, pid_t *parent)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    if (n <= 0) return false;
    line[n] = '\0';
    /* The program's name can contain parentheses, so search for the last one. */
    const char *after = strrchr(line, ')');
    char state;
    int ppid;
    long threads;
    if (after == NULL ||
        sscanf(after + 1,
               " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
               &state, &ppid, &threads) != 3)
        return false;
    *parent = (pid_t)ppid;
    /* If only the first thread has ended, the state is that of a zombie, but the others run. */
    *ended = state == 'X' || (state == 'Z' && threads <= 1);
    return true;
}

/* Return the parent of a process; -1 if the process does not exist. */
static pid_t parent_of(const struct descent *s, pid_t pid)
{
    size_t at = (uint32_t)pid % PARENTS;
    bool ended;
    pid_t parent;
    if (parents[at].round == s->round && parents[at].pid == pid)
        return parents[at].parent;
    if (!read_process(pid, &ended, &parent)) return -1;
    parents[at].round = s->round;
    parents[at].pid = pid;
    parents[at].parent = parent;
    return parent;
}

static bool is_descendant(const struct descent *s, pid_t pid)
{
    for (int depth = 0; depth < DEPTH_MAX && pid > 0; depth++) {
        if (pid == s->root) return depth > 0;
        pid = parent_of(s, pid);
    }
    return false;
}

bool cli_has_child(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 ||
           errno != ECHILD;
}

/* Read the next number of a list, through a buffer. Returns 0 at the end. */
static pid_t next_number(int fd, char *buffer, size_t size, ssize_t *at, ssize_t *end)
{
    pid_t number = 0;
    for (;;) {
        if (*at == *end) {
            *end = read(fd, buffer, size);
            *at = 0;
            if (*end <= 0) {
                *end = 0;
                return 0;
            }
        }
        char c = buffer[(*at)++];
        if (isdigit((unsigned char)c)) number = number * 10 + (c - '0');
        else if (number > 0) return number;
    }
}

static int open_children(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool cli_lists_children(void)
{
    int fd = open_children();
    if (fd >= 0) close(fd);
    return fd >= 0;
}

bool cli_kill_children(void)
{
    char buffer[4096];
    ssize_t at = 0, end = 0;
    int fd = open_children();
    for (pid_t pid;
         fd >= 0 && (pid = next_number(fd, buffer, sizeof buffer, &at, &end)) > 0;)
        kill(pid, SIGKILL);
    if (fd >= 0) close(fd);
    return cli_has_child();
}

bool cli_can_find_descendants(void)
{
    bool ended;
    pid_t parent;
    return read_process(getpid(), &ended, &parent);
}

size_t cli_signal_descendants(int sig, pid_t *foreign)
{
    const struct descent s = {.root = getpid(), .round = ++rounds};
    size_t count = 0;
    *foreign = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL) return cli_has_child();
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        bool ended;
        pid_t parent;
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        pid_t pid = (pid_t)atoi(e->d_name);
        if (!is_descendant(&s, pid)) continue;
        if (!read_process(pid, &ended, &parent) || ended) continue;
        if (kill(pid, sig) == 0) count++;
        else if (errno == EPERM) *foreign = pid;
        if (sig == SIGTERM)
            kill(pid, SIGCONT); /* A stopped process cannot handle SIGTERM. */
    }
    closedir(proc);
    return count > 0 || *foreign != 0 ? count : cli_has_child();
}
