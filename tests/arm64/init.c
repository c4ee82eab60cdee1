/* init.c - the first and only program of the little arm64 machine of tests/arm64/run:
 * mounts what the tests need, runs the programs named on the kernel's command line one
 * after the other, says how each ended, and switches the machine off. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void mount_all(void)
{
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    mkdir("/dev/shm", 01777);
    mount("shm", "/dev/shm", "tmpfs", 0, NULL);
    mount("tmp", "/tmp", "tmpfs", 0, NULL);
}

/* "step,--short,--seed,1" is a program and its arguments. */
static int run(char *line)
{
    char *argv[16] = {0};
    int n = 0, status;
    for (char *word = strtok(line, ","); word != NULL && n < 15;
         word = strtok(NULL, ","))
        argv[n++] = word;
    if (n == 0) return 1;
    char path[128];
    snprintf(path, sizeof path, "/%s", argv[0]);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execv(path, argv);
        perror(path);
        _exit(127);
    }
    if (waitpid(pid, &status, 0) != pid) return 1;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    return 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    mount_all();
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        char line[256];
        if (strncmp(argv[i], "run=", 4) != 0)
            continue; /* Some other kernel argument. */
        snprintf(line, sizeof line, "%s", argv[i] + 4);
        int status = run(line);
        printf("%s ended with %d\n", argv[i] + 4, status);
    }
    reboot(RB_POWER_OFF);
    return 0;
}
