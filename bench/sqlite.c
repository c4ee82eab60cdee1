#include "sqlite.h"

#ifdef BENCH_SQLITE

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

#define BUSY_MS 60000 /* The busy timeout of a statement. */

static const char settings[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
    "CREATE TABLE IF NOT EXISTS t(k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID;";
static const char statement[] =
    "INSERT INTO t VALUES(?1, ?2) ON CONFLICT(k) DO UPDATE SET v = excluded.v";

struct writer {
    struct sqlite *all;
    uint32_t number;
    uint64_t round;
    sqlite3 *db;
    sqlite3_stmt *write;
    uint64_t rounds; /* In this run. */
    struct times times;
    pthread_t thread;
};

struct sqlite {
    enum sqlite_way way;
    uint32_t count;
    int64_t until_ns;
    _Atomic(const char *) wrong;
    pthread_mutex_t line;
    pthread_barrier_t start;
    struct writer *writers;
};

const char *sqlite_version(void)
{
    return sqlite3_libversion();
}

/* The error message of SQLite. One thread at a time. */
static const char *its_words(sqlite3 *db)
{
    static char said[200];
    snprintf(said, sizeof said, "SQLite: %.180s",
             db != NULL ? sqlite3_errmsg(db) : "no memory");
    return said;
}

/* One transaction. */
static bool write_row(struct writer *w)
{
    char key[CROWD_KEY_BYTES + 1], value[CROWD_VALUE_BYTES + 1];
    bool in_line = w->all->way == SQLITE_LINE;
    crowd_row(w->number, ++w->round, key, value);
    if (in_line) pthread_mutex_lock(&w->all->line);
    sqlite3_bind_text(w->write, 1, key, CROWD_KEY_BYTES, SQLITE_STATIC);
    sqlite3_bind_text(w->write, 2, value, CROWD_VALUE_BYTES, SQLITE_STATIC);
    bool good = sqlite3_step(w->write) == SQLITE_DONE;
    good = sqlite3_reset(w->write) == SQLITE_OK && good;
    if (in_line) pthread_mutex_unlock(&w->all->line);
    return good;
}

/* Only the first error is reported. */
static void fail(struct sqlite *s, sqlite3 *db)
{
    pthread_mutex_lock(&s->line);
    if (s->wrong == NULL) s->wrong = its_words(db);
    pthread_mutex_unlock(&s->line);
}

static void *work(void *of)
{
    struct writer *w = of;
    struct sqlite *s = w->all;
    pthread_barrier_wait(&s->start);
    for (int64_t began = now_ns(), now; began < s->until_ns; began = now) {
        if (s->wrong != NULL || interrupted()) break;
        if (!write_row(w)) {
            fail(s, w->db);
            break;
        }
        now = now_ns();
        times_add(&w->times, now - began);
        w->rounds++;
    }
    return NULL;
}

const char *sqlite_run(struct sqlite *s, int64_t run_ns, struct trial_result *out)
{
    static struct times times;
    uint32_t started = 0;
    int64_t began_ns = now_ns();
    *out = (struct trial_result){0};
    s->until_ns = began_ns + run_ns;
    s->wrong = NULL;
    for (; started < s->count; started++) {
        struct writer *w = &s->writers[started];
        w->rounds = 0;
        times_clear(&w->times);
        /* The threads wait for each other, so a missing thread is fatal. */
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            fprintf(stderr, "bench: cannot create %u threads\n", s->count);
            exit(1);
        }
    }
    times_clear(&times);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(s->writers[i].thread, NULL);
        out->rounds += s->writers[i].rounds;
        times_join(&times, &s->writers[i].times);
    }
    out->ns = now_ns() - began_ns;
    out->median_us = times_us(&times, 0.5);
    out->p99_us = times_us(&times, 0.99);
    return interrupted() ? "interrupted" : s->wrong;
}

static const char *open_writer(struct writer *w, const char *path)
{
    const int how = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &w->db, how, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(w->db, BUSY_MS) != SQLITE_OK ||
        sqlite3_exec(w->db, settings, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(w->db, statement, -1, &w->write, NULL) != SQLITE_OK)
        return its_words(w->db);
    return NULL;
}

const char *sqlite_open(struct sqlite **out, const char *directory, uint32_t clients,
                        enum sqlite_way way)
{
    char path[128];
    const char *wrong = NULL;
    struct sqlite *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s == NULL) return "no memory";
    s->way = way;
    pthread_mutex_init(&s->line, NULL);
    pthread_barrier_init(&s->start, NULL, clients);
    s->writers = calloc(clients, sizeof *s->writers);
    if (s->writers == NULL) wrong = "no memory";
    else s->count = clients;
    snprintf(path, sizeof path, "%s/sqlite.db", directory);
    for (uint32_t i = 0; i < s->count && wrong == NULL; i++) {
        s->writers[i].all = s;
        s->writers[i].number = i;
        wrong = open_writer(&s->writers[i], path);
    }
    if (wrong == NULL) *out = s;
    else sqlite_close(s);
    return wrong;
}

void sqlite_close(struct sqlite *s)
{
    if (s == NULL) return;
    for (uint32_t i = 0; i < s->count; i++) {
        sqlite3_finalize(s->writers[i].write);
        sqlite3_close(s->writers[i].db);
    }
    pthread_barrier_destroy(&s->start);
    pthread_mutex_destroy(&s->line);
    free(s->writers);
    free(s);
}

#else

const char *sqlite_version(void)
{
    return NULL;
}

const char *sqlite_open(struct sqlite **out, const char *directory, uint32_t clients,
                        enum sqlite_way way)
{
    (void)directory, (void)clients, (void)way;
    *out = NULL;
    return "built without SQLite";
}

void sqlite_close(struct sqlite *s)
{
    (void)s;
}

const char *sqlite_run(struct sqlite *s, int64_t run_ns, struct trial_result *out)
{
    (void)s, (void)run_ns, (void)out;
    return "built without SQLite";
}

#endif
