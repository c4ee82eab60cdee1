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

/* A connection with a buffer, for one question at a time. */
struct line {
    int fd;
    char *bytes; /* What came: from, to. */
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

/* Start one and wait until it answers. `options` are further arguments, ended by NULL, or
 * NULL. NULL, or what went wrong (static). */
const char *subject_start(struct subject *s, enum subject_kind kind,
                          const struct subject_programs *programs,
                          const char *const *options);

/* The same in steps, for servers that must know of each other before they start: a directory;
 * a process with these arguments, of which the first is the program; a wait until a
 * connection to s->port comes about, which is then s->line. */
const char *subject_make(struct subject *s, enum subject_kind kind);
const char *subject_spawn(struct subject *s, const char *const *arguments, int cpu);
const char *subject_reach(struct subject *s);

/* kill -9; its directory stays, and it may be spawned again. */
void subject_kill(struct subject *s);

/* Kill it and remove its directory. Also of one that is not running. */
void subject_stop(struct subject *s);

struct subject_time subject_time(const struct subject *s);

/* Resident bytes; 0 if they cannot be read. */
uint64_t subject_resident(const struct subject *s);

/* A number from a section of INFO; -1 if it is not there. Only one section: what a server
 * does for the others would be measured too. */
int64_t subject_info(struct subject *s, const char *section, const char *name);

/* --- lines ---------------------------------------------------------------- */

/* A port on loopback that is free at the moment; -1 if there is none. */
int free_port(void);

/* A connection to a server; -1 with errno. It resets when it is closed, so that nothing
 * of it stays behind in the kernel. */
int line_connect(int port);

/* Send everything. NULL, or what went wrong. */
const char *line_send(int fd, const char *at, size_t n);

/* Take in more of what comes, and wait for some. NULL, or what went wrong. */
const char *line_more(struct line *l, int64_t wait_ms);

/* The next reply of a connection: borrowed until the next call. NULL, or what went
 * wrong; with wait_ms 0 "nothing yet" is NULL and *n 0. */
const char *line_reply(struct line *l, int64_t wait_ms, const char **reply, size_t *n);

/* Send a command, as a line of text, and receive its reply. */
const char *line_ask(struct line *l, const char *command, const char **reply,
                     size_t *n);

/* The end of a reply that begins at `at`, or NULL: it is not whole. The first integer in
 * it, if there is one, is put into *number. */
const char *reply_end(const char *at, const char *end, int64_t *number);

#endif /* BENCH_SUBJECT_H */
