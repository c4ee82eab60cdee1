#include "cli/tether.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/text.h"

/* Return whether an open file of a process holds a lock on a byte. Such a lock is a
 * line of /proc/PID/fdinfo/FD:
 *     lock:   1: OFDLCK  ADVISORY  WRITE -1 00:19:1234 7 7 */
static bool locks_byte(const char *pid, const char *fd, uint32_t byte)
{
    char path[PATH_MAX], line[256];
    snprintf(path, sizeof path, "/proc/%s/fdinfo/%s", pid, fd);
    FILE *f = fopen(path, "re");
    bool found = false;
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        unsigned long long first, last;
        found = strncmp(line, "lock:", 5) == 0 &&
                sscanf(line + 5, " %*d: OFDLCK ADVISORY WRITE %*d %*s %llu %llu",
                       &first, &last) == 2 &&
                first == byte && last == byte;
    }
    fclose(f);
    return found;
}

static bool has_tether(const char *pid, const struct stat *segment, uint32_t slot)
{
    char path[PATH_MAX];
    struct stat st;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL) return false;
    for (struct dirent *e; !found && (e = readdir(dir)) != NULL;) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        found = fstatat(dirfd(dir), e->d_name, &st, 0) == 0 &&
                st.st_dev == segment->st_dev && st.st_ino == segment->st_ino &&
                locks_byte(pid, e->d_name, slot);
    }
    closedir(dir);
    return found;
}

size_t cli_tether_pids(const char *path, uint32_t slot, int32_t *pids, size_t max)
{
    struct stat segment;
    size_t count = 0;
    DIR *proc;
    if (stat(path, &segment) != 0 || (proc = opendir("/proc")) == NULL) return 0;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        if (!has_tether(e->d_name, &segment, slot)) continue;
        if (count < max) pids[count] = (int32_t)atoi(e->d_name);
        count++;
    }
    closedir(proc);
    return count;
}

const char *cli_tether_program(int32_t pid, char *out, size_t size)
{
    char path[64], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        if (fgets(name, sizeof name, f) == NULL) strcpy(name, "?");
        fclose(f);
    }
    name[strcspn(name, "\n")] = '\0';
    return cli_safe_text(name, out, size);
}
