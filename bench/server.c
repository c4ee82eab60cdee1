/* server.c - the cost of the server, compared with Redis and with a server that only replies.
 *
 * One run measures all of them side by side with the same client (load.h), since only
 * ratios mean something on another machine. docs/bench.md explains how to read it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "commit.h"
#include "parts.h"
#include "process.h"
#include "programs.h"

static const struct part {
    const char *name;
    const char *(*measure)(struct bench *b);
} parts[] = {
    {"pairs", part_pairs},     {"memory", part_memory},   {"keys", part_keys},
    {"turns", part_turns},     {"waiters", part_waiters}, {"notify", part_notify},
    {"journal", part_journal},
};
#define PARTS (sizeof parts / sizeof parts[0])

static const char usage[] =
    "usage: server [--json] [--quick] [--rounds N] [--only PART]... [--server FILE]\n"
    "              [--redis FILE]\n"
    "\n"
    "Measures the cost of a lock and its release on the server, in comparison with\n"
    "redis-server and with an empty server that only replies. Takes about five "
    "minutes.\n"
    "\n"
    "  --json         print one JSON object\n"
    "  --quick        run for a few seconds, to test the benchmark; the numbers mean\n"
    "                 little\n"
    "  --rounds N     the number of rounds, 1 to 31; default: 7\n"
    "  --only PART    measure only this part: pairs, memory, keys, turns, waiters,\n"
    "                 notify or journal; may be repeated (make bench: also canal, the "
    "embedded lock)\n"
    "  --server FILE  the server to measure; default: the one in this build directory\n"
    "  --redis FILE   the Redis to compare with; default: redis-server in PATH\n"
    "  --help         print this help\n"
    "\n"
    "Exit status: 0 success, whatever the numbers; 1 failure; 2 wrong usage.\n";

/* clang-format off */
static const char method[] =
    "Method: Servers. Sluice, Redis, and an empty server on libuv that replies +OK to every "
    "command (bench/empty_server.c), which shows the cost of the kernel and of libuv. All "
    "servers are pinned to one CPU, and are idle unless it is their turn. Client. One process "
    "with one thread and epoll (bench/load.h), pinned to another CPU, over TCP on loopback, "
    "the same for all servers. Rounds. In each round every server runs once, for the same "
    "time, and a different one begins each round. A warm-up round comes first. The results are "
    "the median of the rounds, followed by the minimum and the maximum. Pair. A pair acquires "
    "a lock with a lease of 30 s (17-byte key, 22-byte value) and releases it. Each connection "
    "has 32 keys of its own. Sluice: ACQUIRE key LEASE 30000 VALUE v, RELEASE key fence. "
    "Redis: SET key v NX PX 30000, and the script that deletes a key with that value, by "
    "EVALSHA; Redis writes nothing to disk. The empty server receives the commands of Sluice. "
    "The benchmark checks that each lock was granted and released. Pipelined by 32. 32 "
    "acquires in one write and, when all replies have arrived, 32 releases in one write. CPU. "
    "User and system time of all threads of the server, in nanoseconds, from "
    "/proc/PID/task/*/schedstat before and after a run. The kernel's work for a message counts "
    "for its sender. Memory. The growth of the server's resident memory with a million held "
    "locks. Sluice runs with --lease-volatile 10h, so that it does not sync its journal for each "
    "of them. Turns. A turn is one iteration of the server's event loop; INFO latency reports "
    "the CPU time of the longest one. A million leases expire within a few milliseconds, while "
    "connections wait for some of the keys and one connection subscribes. INFO reports the "
    "longest turn of the last 10 to 20 s, which can include the quiet time before the expiry. "
    "If the values of the two times are the same, the turns that expired leases were not "
    "longer than the quiet ones. The benchmark requests single sections of INFO, because a "
    "request for the section memory itself causes a long turn. The server runs with "
    "--keep-alive 0: with thousands of idle connections on loopback, the kernel drops probes "
    "and then closes connections. Waiters. As many connections as the limit of open files "
    "allows wait for one key. Each connection releases the lock after its grant and joins the "
    "queue again. The benchmark does the same with the lock table alone, without sockets, and "
    "100000 waiters. Notify. Ten clients wait for each of a thousand keys, on a connection for each "
    "wait, or all on one connection with NOTIFY. The holder of a key releases it and joins the queue "
    "again. With one connection, a client sends the commands for all grants that have arrived in "
    "one write. Journal. The same pairs on six servers: Sluice without a data directory; "
    "Sluice with a journal, which writes each lock to a file before it replies; the same with "
    "leases of 300 s, which the server also syncs to disk before it replies; and Redis without "
    "persistence, with an append-only file that it syncs every second, and with one that it "
    "syncs before it replies. Then a server with a million leases rewrites its journal under "
    "load. The benchmark reports the longest turn of the last 10 to 20 s, which include the "
    "rewrite.";
/* clang-format on */

/* The options that are not in struct bench. */
struct settings {
    bool json;
    bool wanted[PARTS];
    bool some; /* --only was given. */
};

/* ---- options ---- */

static bool choose_part(struct settings *o, const char *name)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(parts[i].name, name) == 0) return o->wanted[i] = o->some = true;
    return false;
}

static int refuse(const char *what, const char *argument)
{
    fprintf(stderr, "bench: %s: %s\n\n%s", what, argument, usage);
    return 2;
}

/* Read an option with a value; returns whether it is valid. */
static bool take_value(const char *name, const char *value, struct bench *b,
                       struct settings *o)
{
    if (strcmp(name, "--rounds") == 0) return (b->rounds = rounds_of(value)) > 0;
    if (strcmp(name, "--only") == 0) return choose_part(o, value);
    enum subject_kind kind = strcmp(name, "--redis") == 0 ? REDIS : OURS;
    snprintf(b->programs.paths[kind], sizeof b->programs.paths[kind], "%s", value);
    return true;
}

static bool has_value(const char *name)
{
    return strcmp(name, "--rounds") == 0 || strcmp(name, "--only") == 0 ||
           strcmp(name, "--server") == 0 || strcmp(name, "--redis") == 0;
}

/* 0: continue; -1: done; else an exit status. */
static int parse(int argc, char **argv, struct bench *b, struct settings *o)
{
    uint32_t rounds = 0;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--json") == 0) o->json = true;
        else if (strcmp(name, "--quick") == 0) b->quick = true;
        else if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            return -1;
        } else if (!has_value(name)) return refuse("unknown option", name);
        else if (++i == argc) return refuse("missing value", name);
        else if (!take_value(name, argv[i], b, o))
            return refuse("invalid value", argv[i]);
        if (strcmp(name, "--rounds") == 0) rounds = b->rounds;
    }
    b->rounds = rounds > 0 ? rounds : b->quick ? 2 : 7;
    b->run_ns = b->quick ? 20000000 : 400000000;
    return 0;
}

/* ---- the programs ---- */

static const char *find_programs(struct bench *b)
{
    char(*paths)[512] = b->programs.paths;
    if (paths[OURS][0] == '\0')
        program_beside(paths[OURS], sizeof paths[OURS], "../src/server/sluice-server");
    if (paths[REDIS][0] == '\0')
        snprintf(paths[REDIS], sizeof paths[REDIS], "redis-server");
    program_beside(paths[EMPTY], sizeof paths[EMPTY], "empty_server");
    static char said[600];
    if (!program_there(paths[OURS])) {
        snprintf(said, sizeof said, "no server at %s; build it first", paths[OURS]);
        return said;
    }
    b->absent[REDIS] = !program_there(paths[REDIS]);
    if (b->absent[REDIS])
        progress(
            "redis-server is not installed (Debian package redis-server); skipping it");
    return NULL;
}

/* Raise the limit of open files, and choose the CPUs. */
static void settle(struct bench *b)
{
    const struct machine *m = &b->sheet->machine;
    struct rlimit files = {.rlim_cur = 1024};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    b->files_max = files.rlim_cur > 200000 ? 200000 : (uint32_t)files.rlim_cur;
    b->programs.cpu = m->pair[1] >= 0 ? m->pair[0] : -1;
    process_pin(m->pair[1]);
}

/* ---- main ---- */

static const char *measure_all(struct bench *b, const struct settings *o)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < PARTS && wrong == NULL; i++)
        if (!o->some || o->wanted[i]) wrong = parts[i].measure(b);
    return wrong;
}

/* A server that is not installed is named in place of its numbers. */
static void note_absent(struct bench *b)
{
    if (!b->absent[REDIS]) return;
    for (uint32_t i = 0; i < b->sheet->table_count; i++) {
        struct table *t = &b->sheet->tables[i];
        if (t->columns > REDIS && t->column_names[REDIS] == subject_names[REDIS])
            cell_skip(&t->cells[0][REDIS], "redis-server is not installed");
    }
}

static void close_sheet(struct bench *b)
{
    struct sheet *s = b->sheet;
    note_absent(b);
    s->quick = b->quick;
    s->rounds = b->rounds;
    s->run_ms = (double)b->run_ns / 1e6;
    s->title = "the cost of locks on the server";
    s->whose = "the CPU of the measured server";
    s->method = method;
    if (b->spent.cpu_ns > 0)
        s->kept_off = (double)b->spent.kept_off_ns / (double)b->spent.cpu_ns;
    if (getloadavg(&s->load_after, 1) != 1) s->load_after = -1;
}

int main(int argc, char **argv)
{
    static struct sheet sheet = {.commit = BENCH_COMMIT};
    static struct bench b = {.sheet = &sheet};
    struct settings o = {0};
    int status = parse(argc, argv, &b, &o);
    if (status != 0) return status < 0 ? 0 : status;
    machine_look(&sheet.machine);
    interrupt_catch();
    signal(SIGPIPE, SIG_IGN);
    const char *wrong = find_programs(&b);
    if (wrong == NULL) {
        settle(&b);
        wrong = measure_all(&b, &o);
    }
    if (interrupted()) {
        fprintf(stderr, "bench: interrupted; nothing was left behind\n");
        return 128 + interrupt_signal();
    }
    if (wrong != NULL) {
        fprintf(stderr, "bench: %s\n", wrong);
        return 1;
    }
    signal(SIGPIPE, SIG_DFL); /* From here on, it only writes its own output. */
    close_sheet(&b);
    if (o.json) sheet_json(&sheet);
    else sheet_text(&sheet);
    return fflush(stdout) == 0 ? 0 : 1;
}
