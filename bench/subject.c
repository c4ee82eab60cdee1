#include "subject.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

#define ANSWER_MS 60000 /* The timeout for a reply. */
#define ARGUMENTS_MAX 40

const char *const subject_names[SUBJECT_KINDS] = {"Sluice", "Redis", "empty server",
                                                  "Sluice", "etcd"};

/* Delete the key if it has this value: the usual way to release a lock in Redis. */
static const char release_script[] =
    "if redis.call('get',KEYS[1])==ARGV[1] then return "
    "redis.call('del',KEYS[1]) else return 0 end";

/* An error message that names the server. */
static const char *wrong_with(const struct subject *s, const char *what)
{
    static char said[300];
    snprintf(said, sizeof said, "%s: %.200s", subject_names[s->kind], what);
    return said;
}

/* ---- connections ---- */

int line_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct linger reset = {.l_onoff = 1};
    int one = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

const char *line_send(int fd, const char *at, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR && !interrupted()) continue;
        if (sent < 0) return interrupted() ? "interrupted" : strerror(errno);
        at += sent;
        n -= (size_t)sent;
    }
    return NULL;
}

/* Parse digits up to \r\n. Returns the position after them; NULL: incomplete. */
static const char *line_number(const char *at, const char *end, int64_t *out)
{
    bool minus = at < end && *at == '-';
    int64_t number = 0;
    for (at += minus; at < end && *at != '\r'; at++) number = number * 10 + (*at - '0');
    *out = minus ? -number : number;
    return end - at >= 2 ? at + 2 : NULL;
}

const char *reply_end(const char *at, const char *end, int64_t *number)
{
    int64_t n;
    if (at >= end) return NULL;
    switch (*at) {
        case ':': return line_number(at + 1, end, number);
        case '$':
            at = line_number(at + 1, end, &n);
            if (at == NULL || n < 0) return at;
            return end - at >= n + 2 ? at + n + 2 : NULL;
        case '*':
        case '>':
            at = line_number(at + 1, end, &n);
            for (int64_t i = 0; i < n && at != NULL; i++) {
                int64_t inner = -1;
                at = reply_end(at, end, &inner);
                if (i == 0) *number = inner;
            }
            return at;
        default:
            at = memchr(at, '\n', (size_t)(end - at));
            return at == NULL ? NULL : at + 1;
    }
}

/* Read the available data. */
static const char *line_read(struct line *l, int64_t wait_ms, bool *any)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    *any = false;
    if (l->from > 0) {
        memmove(l->bytes, l->bytes + l->from, l->to - l->from);
        l->to -= l->from;
        l->from = 0;
    }
    if (l->to == l->size) {
        size_t size = l->size == 0 ? 65536 : 2 * l->size;
        char *bytes = realloc(l->bytes, size);
        if (bytes == NULL) return "no memory";
        l->bytes = bytes;
        l->size = size;
    }
    if (poll(&p, 1, (int)wait_ms) <= 0) return interrupted() ? "interrupted" : NULL;
    ssize_t n = recv(l->fd, l->bytes + l->to, l->size - l->to, MSG_DONTWAIT);
    if (n == 0) return "it has closed the connection";
    if (n < 0) return strerror(errno);
    l->to += (size_t)n;
    *any = true;
    return NULL;
}

const char *line_more(struct line *l, int64_t wait_ms)
{
    bool any;
    const char *wrong = line_read(l, wait_ms, &any);
    return wrong != NULL || any ? wrong : "it does not respond";
}

const char *line_reply(struct line *l, int64_t wait_ms, const char **reply, size_t *n)
{
    int64_t until_ns = now_ns() + wait_ms * 1000000;
    for (;;) {
        int64_t number, left_ms = (until_ns - now_ns()) / 1000000;
        bool any;
        const char *at = l->bytes + l->from;
        const char *end = l->to > l->from ? reply_end(at, l->bytes + l->to, &number)
                                          : NULL;
        if (end != NULL) {
            *reply = at;
            *n = (size_t)(end - at);
            l->from += *n;
            return NULL;
        }
        *n = 0;
        const char *wrong = line_read(l, left_ms > 0 ? left_ms : 0, &any);
        if (wrong != NULL) return wrong;
        if (any || left_ms > 0) continue;
        return wait_ms == 0 ? NULL : "it does not respond";
    }
}

const char *line_ask(struct line *l, const char *command, const char **reply, size_t *n)
{
    const char *wrong = line_send(l->fd, command, strlen(command));
    if (wrong == NULL) wrong = line_send(l->fd, "\r\n", 2);
    return wrong != NULL ? wrong : line_reply(l, ANSWER_MS, reply, n);
}

/* ---- starting ---- */

int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
                getsockname(fd, (struct sockaddr *)&a, &size) == 0;
    if (fd >= 0) close(fd);
    return good ? ntohs(a.sin_port) : -1;
}

static bool has_option(const char *const *options, const char *name)
{
    for (; options != NULL && *options != NULL; options++)
        if (strcmp(*options, name) == 0) return true;
    return false;
}

/* The command line of a kind, terminated by NULL. Sluice keeps its journal in its
 * directory. */
static void arguments_of(const struct subject *s, const char *program, const char *port,
                         const char *const *options, const char **out)
{
    static const char *const ours[] = {"--port", "auto", "--log-level", "info", NULL};
    static const char *const redis[] = {
        "--bind", "127.0.0.1",   "--save", "",  "--appendonly",
        "no",     "--daemonize", "no",     NULL};
    const char *const *fixed = s->kind == OURS ? ours : s->kind == REDIS ? redis : NULL;
    int n = 0;
    out[n++] = program;
    while (fixed != NULL && *fixed != NULL) out[n++] = *fixed++;
    if (s->kind == OURS && !has_option(options, "--data")) {
        out[n++] = "--data";
        out[n++] = s->directory;
    }
    if (s->kind == REDIS) {
        out[n++] = "--port";
        out[n++] = port;
        out[n++] = "--dir";
        out[n++] = s->directory;
    }
    while (options != NULL && *options != NULL && n < ARGUMENTS_MAX - 1)
        out[n++] = *options++;
    out[n] = NULL;
}

static void log_path(const struct subject *s, char out[128])
{
    snprintf(out, 128, "%s/log", s->directory);
}

_Noreturn static void become(const struct subject *s, const char *const *arguments,
                             int cpu)
{
    char path[128];
    struct rlimit files;
    crew_child();
    process_pin(cpu);
    log_path(s, path);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    dprintf(STDERR_FILENO, "cannot execute %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

/* The output of the process so far. */
static void log_read(const struct subject *s, char *out, size_t size)
{
    char path[128];
    log_path(s, path);
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    close(fd);
}

/* The reason why a process died: the last line of its output. */
static const char *last_words(const struct subject *s)
{
    static char said[4096];
    log_read(s, said, sizeof said);
    size_t n = strlen(said);
    while (n > 0 && said[n - 1] == '\n') said[--n] = '\0';
    char *line = strrchr(said, '\n');
    return said[0] == '\0' ? "it died without a message"
           : line != NULL  ? line + 1
                           : said;
}

static bool died(struct subject *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != s->pid) return false;
    s->pid = 0;
    return true;
}

/* The port in its output; 0: not printed yet. */
static int port_said(const struct subject *s)
{
    static const char message[] = "listening on 127.0.0.1:";
    char said[4096];
    log_read(s, said, sizeof said);
    const char *at = strstr(said, message);
    if (at == NULL || strchr(at, '\n') == NULL) return 0;
    return atoi(at + sizeof message - 1);
}

const char *subject_reach(struct subject *s)
{
    int64_t until_ns = now_ns() + (int64_t)ANSWER_MS * 1000000;
    for (s->line.fd = -1; s->line.fd < 0; usleep(2000)) {
        if (died(s)) return wrong_with(s, last_words(s));
        if (interrupted()) return "interrupted";
        if (now_ns() > until_ns) return wrong_with(s, "it does not listen");
        if (s->port <= 0) s->port = port_said(s);
        if (s->port > 0) s->line.fd = line_connect(s->port);
    }
    return NULL;
}

/* Wait until the server listens and replies. */
static const char *greet(struct subject *s)
{
    const char *reply;
    size_t n;
    const char *wrong = subject_reach(s);
    if (wrong != NULL) return wrong;
    wrong = line_ask(&s->line, "*1\r\n$4\r\nPING", &reply, &n);
    if (wrong != NULL) return wrong_with(s, wrong);
    if (s->kind != EMPTY && subject_info(s, "server", "process_id") != s->pid)
        return wrong_with(s, "another process responds on its port");
    return NULL;
}

static const char *load_script(struct subject *s)
{
    char command[512];
    const char *reply;
    size_t n;
    snprintf(command, sizeof command, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s",
             strlen(release_script), release_script);
    const char *wrong = line_ask(&s->line, command, &reply, &n);
    if (wrong == NULL && (n < 47 || memcmp(reply, "$40\r\n", 5) != 0))
        wrong = "it does not accept the script";
    if (wrong != NULL) return wrong_with(s, wrong);
    snprintf(s->script, sizeof s->script, "%.40s", reply + 5);
    return NULL;
}

const char *subject_spawn(struct subject *s, const char *const *arguments, int cpu)
{
    s->pid = fork();
    if (s->pid < 0) return "cannot fork";
    if (s->pid == 0) become(s, arguments, cpu);
    return NULL;
}

static const char *launch(struct subject *s, const struct subject_programs *programs,
                          const char *const *options)
{
    const char *arguments[ARGUMENTS_MAX];
    char port[16];
    s->port = s->kind == REDIS ? free_port() : 0;
    snprintf(port, sizeof port, "%d", s->port);
    arguments_of(s, programs->paths[s->kind], port, options, arguments);
    const char *wrong = subject_spawn(s, arguments, programs->cpu);
    if (wrong == NULL) wrong = greet(s);
    if (wrong == NULL && s->kind == REDIS) wrong = load_script(s);
    return wrong;
}

const char *subject_make(struct subject *s, enum subject_kind kind)
{
    *s = (struct subject){.kind = kind, .line = {.fd = -1}};
    const char *tmp = getenv("TMPDIR");
    snprintf(s->directory, sizeof s->directory, "%.36s/sluice.bench.XXXXXX",
             tmp != NULL && strlen(tmp) <= 36 ? tmp : "/tmp");
    if (mkdtemp(s->directory) != NULL) return NULL;
    s->directory[0] = '\0';
    return "cannot create a directory";
}

const char *subject_start(struct subject *s, enum subject_kind kind,
                          const struct subject_programs *programs,
                          const char *const *options)
{
    const char *wrong = NULL;
    /* Another process may have taken the free port in the meantime: try again. */
    for (int i = 0; i < 3; i++) {
        wrong = subject_make(s, kind);
        if (wrong == NULL) wrong = launch(s, programs, options);
        if (wrong == NULL) return NULL;
        subject_stop(s);
        if (kind != REDIS || interrupted()) return wrong;
    }
    return wrong;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

void subject_kill(struct subject *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    if (s->line.fd >= 0) close(s->line.fd);
    s->line.fd = -1;
    s->line.from = s->line.to = 0;
    s->pid = 0;
}

void subject_stop(struct subject *s)
{
    if (s->directory[0] == '\0') return;
    subject_kill(s);
    free(s->line.bytes);
    nftw(s->directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *s = (struct subject){.line = {.fd = -1}};
}

/* ---- resource usage ---- */

struct subject_time subject_time(const struct subject *s)
{
    struct subject_time sum = {0};
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task", (int)s->pid);
    DIR *threads = opendir(path);
    if (threads == NULL) return sum;
    for (struct dirent *d; (d = readdir(threads)) != NULL;) {
        long long cpu, waited;
        if (d->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.200s/schedstat", (int)s->pid,
                 d->d_name);
        FILE *f = fopen(path, "re");
        if (f == NULL) continue;
        if (fscanf(f, "%lld %lld", &cpu, &waited) == 2) {
            sum.cpu_ns += cpu;
            sum.kept_off_ns += waited;
        }
        fclose(f);
    }
    closedir(threads);
    return sum;
}

uint64_t subject_resident(const struct subject *s)
{
    char path[64], text[256];
    unsigned long long kib = 0;
    /* Not statm: it uses per-CPU counters, which are only approximate. */
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)s->pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(text, sizeof text, f) != NULL)
        if (sscanf(text, "Rss: %llu kB", &kib) == 1) break;
    if (f != NULL) fclose(f);
    return kib * 1024;
}

int64_t subject_info(struct subject *s, const char *section, const char *name)
{
    char command[80];
    const char *reply;
    size_t n, length = strlen(name);
    snprintf(command, sizeof command, "*2\r\n$4\r\nINFO\r\n$%zu\r\n%.40s",
             strlen(section), section);
    if (line_ask(&s->line, command, &reply, &n) != NULL) return -1;
    for (const char *at = reply, *end = reply + n; at != NULL && at < end;) {
        if ((size_t)(end - at) > length && memcmp(at, name, length) == 0 &&
            at[length] == ':')
            return strtoll(at + length + 1, NULL, 10);
        at = memchr(at, '\n', (size_t)(end - at));
        if (at != NULL) at++;
    }
    return -1;
}
