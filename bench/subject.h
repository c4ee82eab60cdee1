/* subject.h - a server that is measured: a separate process, pinned to a CPU.
 *
 * Three of them speak RESP: Sluice, Redis, and a server on libuv that only replies
 * (empty_server.c). Two are members of a cluster: a node of Sluice, and a member of etcd (see
 * trio.h). Each has its own directory and a port that the system chose, and dies with the
 * benchmark. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Also the order of columns: Sluice is first. */
enum subject_kind {
    OURS,
    REDIS,
    EMPTY,
    SUBJECTS,
    NODE = SUBJECTS,
    ETCD,
    SUBJECT_KINDS
};

extern const char *const subject_names[SUBJECT_KINDS];

/* Where the programs are, and where they run. */
struct subject_programs {
    char paths[SUBJECTS][512];
    int cpu; /* -1: any. */
};

/* A connection with a buffer, for one command at a time. */
struct line {
    int fd;
    char *bytes; /* The received data: from, to. */
    size_t from, to, size;
};

struct subject {
    enum subject_kind kind;
    pid_t pid; /* 0: not running. */
    int port;
    char directory[64];
    struct line line;
    char script[48]; /* Redis: the hash of the script that releases. */
};

/* The CPU time of all its threads, and how long they waited for a CPU. */
struct subject_time {
    int64_t cpu_ns, kept_off_ns;
};

/* Start a server and wait until it replies. `options` are further arguments,
 * terminated by NULL, or NULL. Returns NULL, or an error message (static). */
const char *subject_start(struct subject *s, enum subject_kind kind,
                          const struct subject_programs *programs,
                          const char *const *options);

/* The same in steps, for servers that need each other's addresses at the start:
 * create a directory; start a process with these arguments, the first of which is
 * the program; connect s->line to s->port, and wait until this succeeds. */
const char *subject_make(struct subject *s, enum subject_kind kind);
const char *subject_spawn(struct subject *s, const char *const *arguments, int cpu);
const char *subject_reach(struct subject *s);

/* Kill it with SIGKILL. Its directory stays, and it can be spawned again. */
void subject_kill(struct subject *s);

/* Kill it, if it is running, and remove its directory. */
void subject_stop(struct subject *s);

struct subject_time subject_time(const struct subject *s);

/* Resident bytes; 0 if they cannot be read. */
uint64_t subject_resident(const struct subject *s);

/* A number from a section of INFO; -1 if it does not exist. It requests only one
 * section, because the cost of the others would be measured too. */
int64_t subject_info(struct subject *s, const char *section, const char *name);

/* --- connections ----------------------------------------------------------- */

/* A free port on loopback; -1 if there is none. */
int free_port(void);

/* Connect to a server; -1 with errno. Closing the connection resets it, so that it
 * leaves no TIME_WAIT state in the kernel. */
int line_connect(int port);

/* Send all data. Returns NULL, or an error message. */
const char *line_send(int fd, const char *at, size_t n);

/* Wait for more data and read it. Returns NULL, or an error message. */
const char *line_more(struct line *l, int64_t wait_ms);

/* The next reply of a connection, borrowed until the next call. Returns NULL, or an
 * error message. With wait_ms 0, if there is no reply yet, it returns NULL and sets
 * *n to 0. */
const char *line_reply(struct line *l, int64_t wait_ms, const char **reply, size_t *n);

/* Send a command, as a line of text, and receive its reply. */
const char *line_ask(struct line *l, const char *command, const char **reply,
                     size_t *n);

/* Returns the end of a reply that begins at `at`, or NULL if it is incomplete. Sets
 * *number to the first integer in it, if any. */
const char *reply_end(const char *at, const char *end, int64_t *number);

#endif /* BENCH_SUBJECT_H */
