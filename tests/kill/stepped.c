#include "stepped.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

/* ---- what the processor is like ---- */

#if defined(__x86_64__)
#define PC(r) ((r).rip)
#define CALL_NUMBER(r) ((r).rax)
#define CALL_NUMBER_AFTER(r) ((r).orig_rax)
#define CALL_RESULT(r) ((int64_t)(r).rax)
#define CALL_ARG2(r) ((r).rsi)
#define BREAK_MASK 0xfful
#define BREAK_CODE 0xccul
#define BREAK_BEHIND 1u /* The process stands so far behind a breakpoint that it hit. */
#define CALL_MASK 0xfffful
#define CALL_CODE 0x050ful
#elif defined(__aarch64__)
#define PC(r) ((r).pc)
#define CALL_NUMBER(r) ((r).regs[8])
#define CALL_NUMBER_AFTER(r) ((r).regs[8])
#define CALL_RESULT(r) ((int64_t)(r).regs[0])
#define CALL_ARG2(r) ((r).regs[1])
#define BREAK_MASK 0xfffffffful
#define BREAK_CODE 0xd4200000ul
#define BREAK_BEHIND 0u
#define CALL_MASK 0xfffffffful
#define CALL_CODE 0xd4000001ul
#endif

#define TRACE_MAX (1u << 20)

/* Longer than any wait that a script goes through on its way. */
#define SLEPT_MS 300

static struct stepped_board *board;

/* ---- life ---- */

static void stop_here(void)
{
    syscall(SYS_kill, getpid(), SIGSTOP);
}

void stepped_tell(int64_t result)
{
    if (board->count < STEPPED_RESULTS_MAX) board->results[board->count++] = result;
}

/* Wait until p has stopped or is gone. */
static int wait_stop(struct stepped *p)
{
    int status;
    while (waitpid(p->pid, &status, __WALL) < 0) {
        if (errno != EINTR) stage_bail("waitpid: %s", strerror(errno));
    }
    if (WIFSTOPPED(status)) return WSTOPSIG(status);
    p->gone = true;
    p->pid = 0;
    return 0;
}

/* After it moved: where is it now? */
static void arrived(struct stepped *p, int sig)
{
    if (sig == SIGSTOP) p->done = true;
    else if (!p->gone && sig != SIGTRAP) {
        stage_note("a stepped process got signal %d", sig);
        stepped_kill(p);
    }
}

void stepped_start(struct stepped *p, struct stepped_role role)
{
    if (board == NULL) board = stage_shared(sizeof *board);
    /* Each has a board of its own; they are few and small, and used again. */
    struct stepped_board *own = p->board != NULL ? p->board : stage_shared(sizeof *own);
    *p = (struct stepped){.board = own};
    *own = (struct stepped_board){0};
    p->pid = stage_fork();
    if (p->pid == 0) {
        board = own;
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(2);
        if (role.prepare != NULL) role.prepare(role.arg);
        stop_here();
        role.script(role.arg);
        stop_here();
        _exit(0);
    }
    if (wait_stop(p) != SIGSTOP) stage_bail("a process could not be prepared");
    ptrace(PTRACE_SETOPTIONS, p->pid, 0, PTRACE_O_EXITKILL);
}

void stepped_kill(struct stepped *p)
{
    if (p->pid == 0) return;
    kill(p->pid, SIGKILL);
    while (!p->gone) wait_stop(p);
    p->pid = 0;
}

/* ---- moving ---- */

static struct user_regs_struct registers(const struct stepped *p)
{
    struct user_regs_struct r = {0};
    struct iovec io = {.iov_base = &r, .iov_len = sizeof r};
    if (ptrace(PTRACE_GETREGSET, p->pid, NT_PRSTATUS, &io) != 0)
        stage_bail("registers: %s", strerror(errno));
    return r;
}

static void set_registers(const struct stepped *p, struct user_regs_struct *r)
{
    struct iovec io = {.iov_base = r, .iov_len = sizeof *r};
    if (ptrace(PTRACE_SETREGSET, p->pid, NT_PRSTATUS, &io) != 0)
        stage_bail("registers: %s", strerror(errno));
}

static uintptr_t standing_at(const struct stepped *p)
{
    return (uintptr_t)PC(registers(p));
}

static void resume(struct stepped *p, int how)
{
    if (ptrace((enum __ptrace_request)how, p->pid, 0, 0) != 0)
        stage_bail("resume: %s", strerror(errno));
}

/* The clock that the kernel maps into every process. What is read there changes under the
 * reader, and it begins again; so the way through it is never twice the same. It touches
 * nothing that others can see: its instructions are no points. */
static bool in_the_clock(uintptr_t at)
{
    static uintptr_t from, to;
    if (to == 0) {
        from = (uintptr_t)getauxval(AT_SYSINFO_EHDR);
        to = from + 1;
        const ElfW(Ehdr) *file = (const void *)from;
        if (file == NULL) return false;
        const ElfW(Phdr) *part = (const void *)(from + file->e_phoff);
        for (int i = 0; i < file->e_phnum; i++)
            if (part[i].p_type == PT_LOAD)
                to = from + (uintptr_t)(part[i].p_vaddr + part[i].p_memsz);
    }
    return at >= from && at < to;
}

bool stepped_step(struct stepped *p)
{
    do {
        resume(p, PTRACE_SINGLESTEP);
        arrived(p, wait_stop(p));
    } while (!p->done && !p->gone && in_the_clock(standing_at(p)));
    return !p->done && !p->gone;
}

bool stepped_until(struct stepped *p, bool (*told)(void *arg), void *arg)
{
    while (!told(arg))
        if (!stepped_step(p)) return false;
    return true;
}

bool stepped_finish(struct stepped *p)
{
    resume(p, PTRACE_CONT);
    arrived(p, wait_stop(p));
    return p->done;
}

/* ---- sleeping ---- */

static unsigned long code_at(const struct stepped *p, uintptr_t at)
{
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, p->pid, (void *)at, 0);
    if (errno != 0) stage_bail("peek: %s", strerror(errno));
    return (unsigned long)code;
}

static void set_code_at(const struct stepped *p, uintptr_t at, unsigned long code)
{
    if (ptrace(PTRACE_POKETEXT, p->pid, (void *)at, (void *)code) != 0)
        stage_bail("poke: %s", strerror(errno));
}

bool stepped_would_sleep(const struct stepped *p)
{
    struct user_regs_struct r = registers(p);
    if ((code_at(p, (uintptr_t)PC(r)) & CALL_MASK) != CALL_CODE) return false;
    return CALL_NUMBER(r) == SYS_futex &&
           ((int)CALL_ARG2(r) & FUTEX_CMD_MASK) == FUTEX_WAIT;
}

/* As /proc has it: R, S, t and so on. */
static char state_of(pid_t pid)
{
    char path[32], line[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return '?';
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(line, ')');
    return name_end != NULL ? name_end[2] : '?';
}

void stepped_sleep(struct stepped *p)
{
    resume(p, PTRACE_SINGLESTEP);
    for (int i = 0; i < 10000; i++) {
        char state = state_of(p->pid);
        if (state == 'S' || state == 't' || state == '?') return;
        sched_yield();
    }
}

void stepped_wake(struct stepped *p)
{
    arrived(p, wait_stop(p));
}

bool stepped_run_to_sleep(struct stepped *p)
{
    /* From system call to system call: each stops it before and after. */
    for (;;) {
        resume(p, PTRACE_SYSCALL);
        int sig = wait_stop(p);
        arrived(p, sig);
        if (p->done || p->gone) return false;
        struct user_regs_struct r = registers(p);
        if (CALL_NUMBER_AFTER(r) != SYS_futex) continue;
        if (((int)CALL_ARG2(r) & FUTEX_CMD_MASK) != FUTEX_WAIT) continue;
        resume(p, PTRACE_SYSCALL); /* It stands before it: let it fall asleep. */
        for (int i = 0; i < 10000; i++) {
            char state = state_of(p->pid);
            if (state == 'S') return true;
            if (state == 't' || state == '?') break; /* It did not, or not for long. */
            sched_yield();
        }
        arrived(p, wait_stop(p));
        if (p->done || p->gone) return false;
    }
}

bool stepped_finish_counting(struct stepped *p, uint32_t *timeouts)
{
    *timeouts = 0;
    for (;;) {
        struct user_regs_struct r = registers(p);
        if (CALL_NUMBER_AFTER(r) == SYS_futex && CALL_RESULT(r) == -ETIMEDOUT)
            ++*timeouts;
        resume(p, PTRACE_SYSCALL);
        arrived(p, wait_stop(p));
        if (p->done || p->gone) return p->done;
    }
}

/* ---- traces ---- */

/* Not from the heap: processes that are forked later would find another heap, and go another
 * way. */
static void note_point(struct trace *t, uintptr_t at)
{
    if (t->at == NULL) t->at = stage_shared(TRACE_MAX * sizeof *t->at);
    if (t->count == TRACE_MAX) stage_bail("a script is too long");
    t->at[t->count++] = at;
}

void stepped_trace(struct stepped *p, struct trace *out, void (*on_sleep)(void *arg),
                   void *arg)
{
    *out = (struct trace){.sleep = SIZE_MAX};
    bool more = true;
    while (more) {
        note_point(out, standing_at(p));
        if (on_sleep != NULL && out->sleep == SIZE_MAX && stepped_would_sleep(p)) {
            out->sleep = out->count - 1;
            stepped_sleep(p);
            on_sleep(arg);
            stepped_wake(p);
            more = !p->done && !p->gone;
        } else {
            more = stepped_step(p);
        }
    }
    /* The stop behind the script has a point before and one after its system call; the
     * second is where the first of all is, and nobody can come by it again. */
    if (p->done && out->count > 1 && out->at[out->count - 1] == out->at[0])
        out->count--;
}

/* Wait until p has stopped; but if it went another way and sleeps there, do not wait for
 * its end: a signal, which it never sees, stops it in its sleep. */
static int wait_stop_or_sleep(struct stepped *p)
{
    int64_t until = stage_now_ms() + SLEPT_MS;
    for (;;) {
        siginfo_t info = {0};
        int options = WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL;
        if (waitid(P_PID, (id_t)p->pid, &info, options) != 0)
            stage_bail("waitid: %s", strerror(errno));
        if (info.si_pid != 0) return wait_stop(p);
        if (stage_now_ms() < until) {
            sched_yield();
        } else if (state_of(p->pid) == 'S') {
            kill(p->pid, SIGUSR1);
            return wait_stop(p);
        } else {
            usleep(1000);
        }
    }
}

/* Run until the process stands before the instruction at `at`. */
static bool run_to(struct stepped *p, uintptr_t at)
{
    unsigned long code = code_at(p, at);
    set_code_at(p, at, (code & ~BREAK_MASK) | BREAK_CODE);
    resume(p, PTRACE_CONT);
    int sig = wait_stop_or_sleep(p);
    if (sig != SIGUSR1) arrived(p, sig);
    if (p->gone) return false;
    set_code_at(p, at, code);
    if (p->done || sig == SIGUSR1) return false;
    struct user_regs_struct r = registers(p);
    PC(r) = (__typeof__(PC(r)))at;
    if (BREAK_BEHIND != 0) set_registers(p, &r);
    return true;
}

bool stepped_reach(struct stepped *p, const struct trace *t, size_t from, size_t to)
{
    if (from == to) return true;
    uintptr_t at = t->at[to];
    size_t passes = 0; /* How often it comes by until it is there. */
    for (size_t i = from + 1; i <= to; i++) passes += t->at[i] == at;
    while (passes > 0) {
        if (!stepped_step(p)) return false;
        if (standing_at(p) != at && !run_to(p, at)) return false;
        passes--;
    }
    return true;
}

void trace_free(struct trace *t)
{
    if (t->at != NULL) munmap(t->at, TRACE_MAX * sizeof *t->at);
    *t = (struct trace){0};
}

/* ---- tours ---- */

/* Each pass goes through all, with gaps, and begins where the gaps are largest. */
static const size_t begins[] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
#define PASSES (sizeof begins / sizeof begins[0])

struct tour tour_of(size_t first, size_t last, size_t stride)
{
    return (struct tour){.first = first, .last = last, .stride = stride, .next = first};
}

bool tour_next(struct tour *t, size_t *out)
{
    size_t step = t->stride != 0 ? t->stride : PASSES;
    while (t->next > t->last) {
        if (t->stride != 0 || ++t->pass == PASSES) return false;
        t->next = t->first + begins[t->pass];
    }
    *out = t->next;
    t->next += step;
    return true;
}
