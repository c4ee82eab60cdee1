/* attack.c - clients that abuse a server, and a bystander that measures what it costs others.
 *
 *     attack bystander PORT SECONDS [PASSWORD]
 *     attack MODE PORT SECONDS [--connections N] [--password TEXT] [--file KEYS]
 *
 * The bystander acquires and releases a key of its own and prints how long a pair took.
 * An attacker is one thread with an epoll loop. It opens its connections, attacks for
 * SECONDS, closes everything and prints what the server did. tests/abuse/run.py starts both,
 * pins them to a CPU and prints the table. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
    fprintf(stderr, "attack: %s: %s\n", what, strerror(errno));
    exit(2);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* --- Commands as bytes ------------------------------------------------------ */

struct text {
    char *at;
    size_t n, size;
};

static void add(struct text *t, const void *bytes, size_t n)
{
    if (t->size - t->n < n) {
        t->size = 2 * t->size + n;
        t->at = realloc(t->at, t->size);
        if (t->at == NULL) die("memory");
    }
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
}

static void add_header(struct text *t, char sign, size_t n)
{
    char line[32];
    add(t, line, (size_t)sprintf(line, "%c%zu\r\n", sign, n));
}

static void add_argument(struct text *t, const void *bytes, size_t n)
{
    add_header(t, '$', n);
    add(t, bytes, n);
    add(t, "\r\n", 2);
}

/* A command whose arguments are separated by single spaces. */
static void add_command(struct text *t, const char *command)
{
    size_t n = 1;
    for (const char *c = command; *c != '\0'; c++) n += *c == ' ';
    add_header(t, '*', n);
    for (const char *end; n > 0; n--, command = end + 1) {
        end = strchrnul(command, ' ');
        add_argument(t, command, (size_t)(end - command));
    }
}

/* --- Connections ------------------------------------------------------------ */

/* Source addresses differ, so that a port that was just used is not needed again. */
static int dial(int port, unsigned number)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK + number)}};
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if ((number != 0 && bind(fd, (struct sockaddr *)&from, sizeof from) != 0) ||
        connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* --- The bystander ---------------------------------------------------------- */

#define INTERVAL_US 1000.0 /* It wants to begin a pair so often. */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static bool ask(int fd, const char *command)
{
    static char reply[4096];
    struct text t = {0};
    add_command(&t, command);
    bool sent = write(fd, t.at, t.n) == (ssize_t)t.n;
    free(t.at);
    return sent && read(fd, reply, sizeof reply) > 0 && reply[0] != '-';
}

static int stand_by(int port, double seconds, const char *password)
{
    size_t n = 0, pairs = 0, max = 1 << 20;
    double *us = malloc(max * sizeof *us), end = now_s() + seconds;
    char command[200], key[40];
    int fd = dial(port, 0);
    if (us == NULL || fd < 0) die("bystander");
    snprintf(command, sizeof command, "AUTH %s", password);
    if (*password != '\0' && !ask(fd, command)) die("bystander: AUTH");
    puts("up");
    fflush(stdout);
    snprintf(key, sizeof key, "bystander-%d", (int)getpid());
    while (n < max) {
        double begin = now_s();
        snprintf(command, sizeof command, "ACQUIRE %s", key);
        if (begin > end || !ask(fd, command)) break;
        snprintf(command, sizeof command, "RELEASE %s", key);
        if (!ask(fd, command)) break;
        pairs++;
        double took_us = (now_s() - begin) * 1e6;
        /* While it waited for a slow pair it would have begun others: they count as well,
         * else a second without any reply would weigh less than a millisecond with one. */
        for (double left_us = took_us; left_us > 0 && n < max; left_us -= INTERVAL_US)
            us[n++] = left_us;
        if (took_us < INTERVAL_US) sleep_us((long)(INTERVAL_US - took_us));
    }
    if (now_s() < end) puts("failed: the server hung up or sent an error");
    if (n == 0) return 1;
    qsort(us, n, sizeof *us, compare);
    printf("pairs=%zu p50=%.0f p99=%.0f max=%.0f\n", pairs, us[n / 2], us[n * 99 / 100],
           us[n - 1]);
    return 0;
}

/* --- Attackers -------------------------------------------------------------- */

struct attack {
    const char *name;
    unsigned connections;
    bool reads;       /* It reads replies. */
    bool repeats;     /* It sends its text again and again, else once. */
    bool again;       /* It connects again when the server hangs up. */
    size_t piece;     /* Bytes of a write; 0: as many as the socket takes. */
    unsigned sources; /* Addresses that it comes from. */
    void (*compose)(struct text *t);
};

struct peer {
    int fd; /* -1: closed. */
    size_t sent;
};

static const struct attack *attack;
static struct peer *peers;
static struct text text; /* What each sends. */
static size_t once;      /* Bytes at its beginning that are not repeated. */
static const char *password = "", *key_file = "";
static int port, queue;
static double end_s;
static uint64_t sent_bytes, received_bytes, closed_count, failed_count;
static char problem[200]; /* The first error that was received. */

static void compose_ping(struct text *t)
{
    for (int i = 0; i < 500; i++) add_command(t, "PING");
}

static void compose_docs(struct text *t)
{
    static const char *const names[] = {"acquire", "release", "extend", "subscribe"};
    add_header(t, '*', 1022);
    add_argument(t, "COMMAND", 7);
    add_argument(t, "DOCS", 4);
    for (int i = 0; i < 1020; i++) add_argument(t, names[i % 4], strlen(names[i % 4]));
}

static void compose_guesses(struct text *t)
{
    char command[40];
    for (int i = 0; i < 1000; i++) {
        snprintf(command, sizeof command, "AUTH guess-%d", i);
        add_command(t, command);
    }
}

#define FLOOD_KEYS 143400 /* With the two texts below about 1.1 GB. */

/* One connection stores as much as it can. Called again for more, until nothing is added. */
static void compose_keys(struct text *t)
{
    static char long_text[4096 - 64];
    static int next;
    char key[40];
    memset(long_text, 'v', sizeof long_text);
    for (int i = 0; i < 100 && next < FLOOD_KEYS; i++, next++) {
        add_header(t, '*', 6);
        add_argument(t, "ACQUIRE", 7);
        add_argument(t, key, (size_t)snprintf(key, sizeof key, "flood-%d", next));
        add_argument(t, "VALUE", 5);
        add_argument(t, long_text, sizeof long_text);
        add_argument(t, "NOTE", 4);
        add_argument(t, long_text, sizeof long_text);
    }
}

static void compose_scans(struct text *t)
{
    for (int i = 0; i < 50; i++) {
        add_command(t, "TX.BEGIN");
        add_command(t, "TX.SCAN flood");
        add_command(t, "TX.COMMIT");
    }
}

/* As much of a command as the server keeps: all but its last argument. */
static void compose_partial(struct text *t)
{
    static char argument[16000];
    memset(argument, 'x', sizeof argument);
    add_header(t, '*', 5);
    for (int i = 0; i < 4; i++) add_argument(t, argument, sizeof argument);
}

/* A command that never ends, a byte at a time. */
static void compose_loris(struct text *t)
{
    add_header(t, '*', 1000);
    for (int i = 0; i < 900; i++) add_argument(t, "loris", 5);
}

static void compose_pattern(struct text *t)
{
    char command[1200];
    for (int i = 0; i < 10; i++) {
        int n = snprintf(command, sizeof command, "ACQUIRE ");
        memset(command + n, 'a', 1000);
        snprintf(command + n + 1000, sizeof command - (size_t)n - 1000, "%d", i);
        add_command(t, command);
        memcpy(command, "RELEASE ", 8);
        add_command(t, command);
    }
}

static void compose_wait(struct text *t)
{
    add_command(t, "ACQUIRE waited-for WAIT 100000000");
}

/* Keys from a file, one a line: each is acquired and kept for the lease. */
static void compose_file(struct text *t)
{
    char line[2048];
    FILE *f = fopen(key_file, "r");
    if (f == NULL) die(key_file);
    while (fgets(line, sizeof line, f) != NULL) {
        add_header(t, '*', 4);
        add_argument(t, "ACQUIRE", 7);
        add_argument(t, line, strcspn(line, "\n"));
        add_argument(t, "LEASE", 5);
        add_argument(t, "60000", 5);
    }
    fclose(f);
}

static const struct attack attacks[] = {
    /* name, connections, reads, repeats, again, piece, sources, compose */
    {"ping", 200, true, true, false, 0, 1, compose_ping},
    {"docs", 200, true, true, true, 0, 1, compose_docs},
    {"guess", 20, true, true, true, 0, 1, compose_guesses},
    {"keys", 1, true, false, false, 0, 1, compose_keys},
    {"scan", 400, false, false, false, 0, 1, compose_scans},
    {"partial", 9900, false, false, false, 0, 200, compose_partial},
    {"loris", 3000, false, true, false, 1, 200, compose_loris},
    {"waiters", 9900, true, false, false, 0, 200, compose_wait},
    {"pattern", 20, true, true, false, 0, 1, compose_pattern},
    {"collide", 1, true, true, false, 0, 1, compose_file},
};

static void note_problem(const char *reply, size_t n)
{
    const char *at = n > 0 && reply[0] == '-' ? reply : memmem(reply, n, "\r\n-", 3);
    if (at == NULL) return;
    if (*at == '\r') at += 2;
    size_t rest = n - (size_t)(at - reply);
    const char *end = memchr(at, '\r', rest);
    size_t length = end != NULL ? (size_t)(end - at) : rest;
    snprintf(problem, sizeof problem, "%.*s", (int)length, at);
}

static void watch(size_t i)
{
    struct epoll_event e = {.data.u64 = i};
    if (attack->reads) e.events |= EPOLLIN;
    if (attack->repeats || peers[i].sent < text.n) e.events |= EPOLLOUT;
    fcntl(peers[i].fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(queue, EPOLL_CTL_ADD, peers[i].fd, &e) != 0) die("epoll_ctl");
}

static bool open_peer(size_t i)
{
    static unsigned opened;
    unsigned source = attack->sources > 1 ? 256 + opened++ % attack->sources : 0;
    peers[i] = (struct peer){.fd = dial(port, source)};
    if (peers[i].fd >= 0) watch(i);
    else failed_count++;
    return peers[i].fd >= 0;
}

static void close_peer(size_t i)
{
    close(peers[i].fd);
    peers[i].fd = -1;
    closed_count++;
    if (attack->again) open_peer(i);
}

/* False: the connection has ended. */
static bool receive(struct peer *p)
{
    static char reply[1 << 16];
    ssize_t n = read(p->fd, reply, sizeof reply - 1);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    received_bytes += (uint64_t)n;
    if (*problem == '\0') note_problem(reply, (size_t)n);
    return true;
}

static bool send_some(struct peer *p)
{
    size_t n = text.n - p->sent;
    if (attack->piece != 0 && n > attack->piece) n = attack->piece;
    ssize_t sent = write(p->fd, text.at + p->sent, n);
    if (sent < 0) return errno == EAGAIN;
    p->sent += (size_t)sent;
    sent_bytes += (uint64_t)sent;
    if (p->sent == text.n && attack->compose == compose_keys) {
        p->sent = text.n = 0;
        compose_keys(&text);
    }
    if (p->sent == text.n && attack->repeats) p->sent = once;
    return true;
}

static void stop_writing(size_t i)
{
    struct epoll_event e = {.data.u64 = i};
    if (attack->reads) e.events |= EPOLLIN;
    epoll_ctl(queue, EPOLL_CTL_MOD, peers[i].fd, &e);
}

static void handle(const struct epoll_event *e)
{
    size_t i = e->data.u64;
    struct peer *p = &peers[i];
    bool open = true;
    if (p->fd < 0) return;
    /* What the server said before it hung up is worth reading. */
    if ((e->events & EPOLLIN) != 0) open = receive(p);
    if (open && (e->events & (EPOLLERR | EPOLLHUP)) != 0) {
        receive(p);
        open = false;
    }
    if (open && (e->events & EPOLLOUT) != 0) {
        open = send_some(p);
        if (open && !attack->repeats && p->sent == text.n) stop_writing(i);
    }
    if (!open) close_peer(i);
}

static void turn(void)
{
    static struct epoll_event events[1024];
    int n = epoll_wait(queue, events, 1024, 10);
    for (int i = 0; i < n; i++) handle(&events[i]);
}

static void open_all(void)
{
    for (size_t i = 0; i < attack->connections && now_s() < end_s; i++) {
        open_peer(i);
        if (i % 64 == 63) turn(); /* It attacks while it connects. */
    }
}

static void report(void)
{
    size_t open = 0;
    for (size_t i = 0; i < attack->connections; i++) open += peers[i].fd >= 0;
    printf("sent=%" PRIu64 " received=%" PRIu64 " open=%zu closed=%" PRIu64
           " failed=%" PRIu64 " problem=%s\n",
           sent_bytes, received_bytes, open, closed_count, failed_count, problem);
    fflush(stdout);
}

/* Children connect, wait, and exit: the kernel closes all connections of each at once. */
static void waves_of_waiters(void)
{
    int waves = 0;
    int holder = dial(port, 0);
    char command[200];
    snprintf(command, sizeof command, "AUTH %s", password);
    if (*password != '\0') ask(holder, command);
    ask(holder, "ACQUIRE waited-for");
    for (; now_s() < end_s; waves++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            double until = now_s() + 2;
            queue = epoll_create1(EPOLL_CLOEXEC);
            open_all();
            while (now_s() < until && now_s() < end_s) turn();
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    printf("waves=%d\n", waves);
}

int main(int argc, char **argv)
{
    static struct attack chosen;
    if (argc < 4) die("usage: attack MODE PORT SECONDS ...");
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    port = atoi(argv[2]);
    double seconds = atof(argv[3]);
    if (strcmp(argv[1], "bystander") == 0)
        return stand_by(port, seconds, argc > 4 ? argv[4] : "");
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        if (strcmp(attacks[i].name, argv[1]) == 0) chosen = attacks[i];
    for (int i = 4; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--connections") == 0)
            chosen.connections = (unsigned)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--password") == 0) password = argv[i + 1];
        if (strcmp(argv[i], "--file") == 0) key_file = argv[i + 1];
    }
    if (chosen.name == NULL) die("unknown MODE");
    attack = &chosen;
    if (*password != '\0') {
        char command[200];
        snprintf(command, sizeof command, "AUTH %s", password);
        add_command(&text, command);
        once = text.n;
    }
    attack->compose(&text);
    peers = calloc(attack->connections, sizeof *peers);
    queue = epoll_create1(EPOLL_CLOEXEC);
    if (peers == NULL || queue < 0) die("epoll");
    for (size_t i = 0; i < attack->connections; i++) peers[i].fd = -1;
    end_s = now_s() + seconds;
    puts("up");
    fflush(stdout);
    if (strcmp(attack->name, "waiters") == 0) waves_of_waiters();
    else {
        open_all();
        while (now_s() < end_s) turn();
    }
    report();
    return 0; /* All connections are closed at once. */
}
