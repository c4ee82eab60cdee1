#include "etcd_stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define BEGIN_TRIES 3
#define READY_S 60 /* More than enough; on a slow machine, too. */
#define ASK_S 5

/* --- Ports --------------------------------------------------------------------- */

static int bound_socket(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

/* All are bound at once, so that they differ. Somebody may take one before etcd does: then
 * all is begun again with others. */
static void choose_ports(struct etcd_stage *e)
{
    int fds[2 * ETCD_MEMBERS_MAX];
    for (int i = 0; i < e->count; i++) {
        fds[2 * i] = bound_socket(&e->is[i].port);
        fds[2 * i + 1] = bound_socket(&e->is[i].peer_port);
        snprintf(e->is[i].url, sizeof e->is[i].url, "http%s://127.0.0.1:%d",
                 e->tls ? "s" : "", e->is[i].port);
    }
    for (int i = 0; i < 2 * e->count; i++) close(fds[i]);
    e->members[0] = '\0';
    for (int i = 0; i < e->count; i++) {
        if (i > 0) strcat(e->members, ",");
        strcat(e->members, e->is[i].url);
    }
}

/* --- Asking -------------------------------------------------------------------- */

static int connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval t = {.tv_sec = ASK_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

/* With HTTP 1.0 an answer ends where the connection does. */
static char *ask(int port, const char *request, int *status)
{
    size_t n = 0, room = 1 << 20;
    ssize_t some;
    int fd = connect_to(port);
    if (fd < 0) return NULL;
    char *text = malloc(room);
    assert_non_null(text);
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request))
        while (n + 1 < room && (some = recv(fd, text + n, room - n - 1, 0)) > 0)
            n += (size_t)some;
    close(fd);
    text[n] = '\0';
    char *body = strstr(text, "\r\n\r\n");
    if (body == NULL || sscanf(text, "HTTP/1.%*d %d", status) != 1) {
        free(text);
        return NULL;
    }
    memmove(text, body + 4, strlen(body + 4) + 1);
    return text;
}

char *etcd_ask(const struct etcd_stage *e, int member, const char *path,
               const char *json, int *status)
{
    char *request = NULL;
    int is;
    if (status == NULL) status = &is;
    if (asprintf(&request,
                 "POST %s HTTP/1.0\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 path, strlen(json), json) < 0)
        return NULL;
    char *answer = ask(e->is[member].port, request, status);
    free(request);
    return answer;
}

/* --- Members ------------------------------------------------------------------- */

static void shortly(void)
{
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

static bool is_healthy(const struct etcd_stage *e, int member)
{
    int status = 0;
    if (e->tls) { /* Whether it listens has to do. */
        int fd = connect_to(e->is[member].port);
        if (fd >= 0) close(fd);
        return fd >= 0;
    }
    char *text = ask(e->is[member].port, "GET /health HTTP/1.0\r\n\r\n", &status);
    bool healthy = text != NULL && status == 200 && strstr(text, "true") != NULL;
    free(text);
    return healthy;
}

static void run(const struct etcd_stage *e, int member)
{
    char data[200], log[200], name[8], peer[64], all[400] = "", part[96], file[3][200];
    const char *args[40];
    int n = 0;
    snprintf(name, sizeof name, "m%d", member);
    snprintf(data, sizeof data, "%s/%s", e->directory, name);
    snprintf(log, sizeof log, "%s/%s.log", e->directory, name);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", e->is[member].peer_port);
    for (int i = 0; i < e->count; i++) {
        snprintf(part, sizeof part, "%sm%d=http://127.0.0.1:%d", i > 0 ? "," : "", i,
                 e->is[i].peer_port);
        strcat(all, part);
    }
    /* clang-format off */
    const char *const plain[] = {
        "etcd", "--name", name, "--data-dir", data,
        "--listen-client-urls", e->is[member].url,
        "--advertise-client-urls", e->is[member].url,
        "--listen-peer-urls", peer,
        "--initial-advertise-peer-urls", peer,
        "--initial-cluster", all,
        "--heartbeat-interval", "50", "--election-timeout", "500",
        "--logger", "zap", "--log-level", "error",
    };
    /* clang-format on */
    for (; n < (int)(sizeof plain / sizeof *plain); n++) args[n] = plain[n];
    const char *const tls[] = {"--cert-file", "--key-file", "--trusted-ca-file"};
    const char *const files[] = {"cert.pem", "key.pem", "ca.pem"};
    for (int i = 0; i < 3 && e->tls; i++) {
        snprintf(file[i], sizeof file[i], "%s/%s", e->directory, files[i]);
        args[n++] = tls[i];
        args[n++] = file[i];
    }
    if (e->tls) args[n++] = "--client-cert-auth";
    args[n] = NULL;
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execvp("etcd", (char *const *)(void *)args);
    _exit(127);
}

void etcd_start(struct etcd_stage *e, int member)
{
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) run(e, member);
        _exit(127);
    }
    e->is[member].pid = pid;
}

void etcd_kill(struct etcd_stage *e, int member)
{
    pid_t pid = e->is[member].pid;
    if (pid == 0) return;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    e->is[member].pid = 0;
}

void etcd_pause(struct etcd_stage *e, int member)
{
    int status;
    kill(e->is[member].pid, SIGSTOP);
    while (waitpid(e->is[member].pid, &status, WUNTRACED) < 0 && errno == EINTR) {}
}

void etcd_resume(struct etcd_stage *e, int member)
{
    kill(e->is[member].pid, SIGCONT);
}

static bool is_paused(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state != NULL && state[2] == 'T';
}

/* 1: all are; 0: not yet; -1: one has ended. */
static int all_healthy(struct etcd_stage *e)
{
    for (int i = 0; i < e->count; i++) {
        pid_t pid = e->is[i].pid;
        if (pid == 0 || is_paused(pid)) continue;
        if (waitpid(pid, NULL, WNOHANG) == pid) {
            e->is[i].pid = 0;
            return -1;
        }
        if (!is_healthy(e, i)) return 0;
    }
    return 1;
}

static bool await(struct etcd_stage *e)
{
    time_t end = time(NULL) + READY_S;
    int all = 0;
    while (time(NULL) < end && (all = all_healthy(e)) == 0) shortly();
    return all == 1;
}

void etcd_await(struct etcd_stage *e)
{
    if (!await(e)) fail_msg("an etcd does not begin: see %s", e->directory);
}

int etcd_leader(struct etcd_stage *e)
{
    for (;;) {
        for (int i = 0; i < e->count; i++) {
            if (e->is[i].pid == 0 || is_paused(e->is[i].pid)) continue;
            char *text = etcd_ask(e, i, "/v3/maintenance/status", "{}", NULL);
            const char *me = text != NULL ? strstr(text, "\"member_id\":\"") : NULL;
            const char *leader = text != NULL ? strstr(text, "\"leader\":\"") : NULL;
            bool is = me != NULL && leader != NULL &&
                      strtoull(me + 13, NULL, 10) == strtoull(leader + 10, NULL, 10);
            free(text);
            if (is) return i;
        }
        shortly();
    }
}

/* --- Life ---------------------------------------------------------------------- */

static void sh(const char *format, const char *directory)
{
    char command[2000];
    snprintf(command, sizeof command, format, directory);
    if (system(command) != 0) fail_msg("this failed: %s", command);
}

static const char make_certificates[] =
    "cd '%s' && exec >openssl.log 2>&1 && "
    "new() { openssl ecparam -name prime256v1 -genkey -noout -out \"$1\"; } && "
    "new ca.key && openssl req -x509 -key ca.key -days 9 -subj /CN=ca -out ca.pem && "
    "new other.key && openssl req -x509 -key other.key -days 9 -subj /CN=other "
    "-out other.pem && new key.pem && "
    "openssl req -new -key key.pem -subj /CN=etcd -out cert.csr && "
    "echo subjectAltName=IP:127.0.0.1 >extra && "
    "openssl x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 "
    "-extfile extra -out cert.pem";

static bool begin_members(struct etcd_stage *e)
{
    choose_ports(e);
    for (int i = 0; i < e->count; i++) etcd_start(e, i);
    if (await(e)) return true;
    for (int i = 0; i < e->count; i++) etcd_kill(e, i);
    sh("rm -rf '%s'/m*", e->directory);
    return false;
}

static bool begin(struct etcd_stage *e, int count, bool tls)
{
    memset(e, 0, sizeof *e);
    if (system("command -v etcd >/dev/null") != 0) return false;
    e->count = count;
    e->tls = tls;
    const char *tmp = getenv("TMPDIR");
    snprintf(e->directory, sizeof e->directory, "%s/sluice-etcd.XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(e->directory));
    if (tls) sh(make_certificates, e->directory);
    for (int i = 0; i < BEGIN_TRIES; i++)
        if (begin_members(e)) return true;
    fail_msg("no etcd begins");
    return false;
}

bool etcd_begin(struct etcd_stage *e, int count)
{
    return begin(e, count, false);
}

bool etcd_begin_tls(struct etcd_stage *e)
{
    return begin(e, 1, true);
}

void etcd_end(struct etcd_stage *e)
{
    for (int i = 0; i < e->count; i++) etcd_kill(e, i);
    if (e->directory[0] != '\0') sh("rm -rf '%s'", e->directory);
    memset(e, 0, sizeof *e);
}
