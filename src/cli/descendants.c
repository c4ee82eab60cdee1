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
#include <unistd.h>

/* The longest chain of ancestors. A longer one is taken for a loop, which reused process ids can
 * form while /proc is read. */
#define DEPTH_MAX 4096

/* The parents that were read in this search, found by the process id. A later entry replaces an
 * earlier one with the same place. */
#define PARENTS 4096u

struct descent {
    pid_t root;
    const pid_t *except;
    uint32_t round;
    bool unsure; /* An ancestor ended while we searched. */
};

static struct {
    uint32_t round;
    pid_t pid, parent;
} parents[PARENTS];

static uint32_t rounds;

/* Read the state and the parent of a process. Returns false if it does not exist. */
static bool read_process(pid_t pid, char *state, pid_t *parent)
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
    int ppid;
    if (after == NULL || sscanf(after + 1, " %c %d", state, &ppid) != 2) return false;
    *parent = (pid_t)ppid;
    return true;
}

/* Return the parent of a process; -1 if the process does not exist. */
static pid_t parent_of(const struct descent *s, pid_t pid)
{
    size_t at = (uint32_t)pid % PARENTS;
    char state;
    pid_t parent;
    if (parents[at].round == s->round && parents[at].pid == pid)
        return parents[at].parent;
    if (!read_process(pid, &state, &parent)) return -1;
    parents[at].round = s->round;
    parents[at].pid = pid;
    parents[at].parent = parent;
    return parent;
}

static bool is_excepted(const struct descent *s, pid_t pid)
{
    for (const pid_t *p = s->except; *p != 0; p++)
        if (*p == pid) return true;
    return false;
}

static bool is_descendant(struct descent *s, pid_t pid)
{
    for (int depth = 0; depth < DEPTH_MAX && pid > 0; depth++) {
        if (is_excepted(s, pid)) return false;
        if (pid == s->root) return depth > 0;
        pid = parent_of(s, pid);
        /* The process that we look at may just have been given another parent. */
        if (pid < 0 && depth > 0) s->unsure = true;
    }
    return false;
}

size_t cli_signal_descendants(pid_t root, const pid_t *except, int sig, pid_t *foreign)
{
    struct descent s = {.root = root, .except = except, .round = ++rounds};
    size_t count = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL) return 0;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        char state;
        pid_t parent;
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        pid_t pid = (pid_t)atoi(e->d_name);
        if (!is_descendant(&s, pid)) continue;
        if (!read_process(pid, &state, &parent) || state == 'Z' || state == 'X')
            continue;
        if (kill(pid, sig) == 0 || (errno == EPERM && sig == 0)) count++;
        else if (errno == EPERM) *foreign = pid;
    }
    closedir(proc);
    return count > 0 ? count : s.unsure;
}
