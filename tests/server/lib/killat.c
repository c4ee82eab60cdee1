/* killat.c - runs a program and kills it after a given system call of any of its threads.
 *
 *     killat N FILE PROGRAM [ARGUMENT...]
 *
 * It counts system calls from the moment it receives SIGUSR1. N 0: it only counts, and writes
 * the number to FILE when the program has ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 64

static volatile sig_atomic_t armed, stops;

static void arm(int number)
{
    (void)number;
    armed = 1;
}

static void stop(int number)
{
    (void)number;
    stops = 1;
}

/* A thread stops when it enters a system call and when it leaves it. */
static int leaves(pid_t thread)
{
    static pid_t inside[THREADS_MAX];
    for (int i = 0; i < THREADS_MAX; i++)
        if (inside[i] == thread) {
            inside[i] = 0;
            return 1;
        }
    for (int i = 0; i < THREADS_MAX; i++)
        if (inside[i] == 0) {
            inside[i] = thread;
            return 0;
        }
    abort();
}

int main(int argc, char **argv)
{
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE |
                         PTRACE_O_EXITKILL;
    long after = argc > 3 ? atol(argv[1]) : 0, calls = 0;
    int status, code = 1;
    pid_t child = argc > 3 ? fork() : -1;
    if (child < 0) return 2;
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(argv[3], argv + 3);
        _exit(127);
    }
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = arm}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options);
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (stops) {
            stops = 0;
            kill(child, SIGTERM);
        }
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread != child) continue;
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            break;
        }
        int number = WSTOPSIG(status), pass = 0;
        if (number == (SIGTRAP | 0x80)) {
            if (leaves(thread) && armed && ++calls == after) kill(child, SIGKILL);
        } else if (number != SIGTRAP && number != SIGSTOP) pass = number;
        ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)pass);
    }
    FILE *out = fopen(argv[2], "w");
    if (out == NULL) return 2;
    fprintf(out, "%ld\n", calls);
    fclose(out);
    return code;
}
