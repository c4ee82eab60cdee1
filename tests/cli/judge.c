/* judge.c - what the evidence of a scene says, when everybody is gone. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit.h"
#include "canal/thread.h"
#include "crew.h"
#include "stage.h"

#define TOGETHER_MAX 256u
#define SAID_MAX 2000

static void take_evidence(struct crew_run *r, int64_t ns)
{
    if (r->first_ns == 0 || ns < r->first_ns) r->first_ns = ns;
    if (ns > r->last_ns) r->last_ns = ns;
}

/* E1 is in the log, E2 in our own notes. */
static void gather_evidence(void)
{
    FILE *f = fopen(crew.log, "re");
    if (f == NULL) stage_bail("%s: %s", crew.log, strerror(errno));
    uint32_t number;
    char what[8];
    int64_t ns;
    int pid, got;
    while ((got = fscanf(f, "%u %7s %" SCNd64 " %d\n", &number, what, &ns, &pid)) ==
           4) {
        if (number >= crew.board->runs) {
            crew_wrong("the log tells of run %u, which is none", number);
            break;
        }
        take_evidence(&crew.run[number], ns);
    }
    if (got != EOF) crew_wrong("the log has an invalid line");
    fclose(f);
    for (uint32_t i = 0; i < crew.board->runs; i++) {
        struct crew_run *r = &crew.run[i];
        for (int who = 0; who < PROCESSES; who++)
            if (r->doom_ns[who] != 0 && r->first_ns != 0)
                take_evidence(r, r->doom_ns[who]);
    }
}

/* --- Together ------------------------------------------------------------- */

/* Whether all runs of a key declare the same capacity, 1 unit each: then slots are numbered. */
static bool is_numbered(uint32_t key)
{
    uint32_t capacity = 0;
    for (uint32_t i = 0; i < crew.board->runs; i++) {
        const struct crew_order *o = &crew.run[i].order;
        if (o->key != key || crew.run[i].first_ns == 0) continue;
        /* The last question, for all of it, has no number; it is alone anyway. */
        if (o->kind != COUNTING && o->wait_ms == 0 && o->live_ns == 0) continue;
        if (o->kind != COUNTING) return false;
        if (capacity != 0 && crew_capacity(o) != capacity) return false;
        capacity = crew_capacity(o);
    }
    return capacity != 0;
}

static void check_slots(const struct crew_run *const in[], uint32_t count)
{
    const struct crew_run *last = in[count - 1];
    uint32_t slot = line_of(last)->slot, capacity = crew_capacity(&last->order);
    if (last->order.kind != COUNTING) return;
    if (slot < 1 || slot > capacity)
        crew_wrong("run %u of key %u has slot %u of %u", number_of(last),
                   last->order.key, slot, capacity);
    for (uint32_t i = 0; i + 1 < count; i++)
        if (line_of(in[i])->slot == slot)
            crew_wrong("runs %u and %u of key %u both have slot %u", number_of(in[i]),
                       number_of(last), last->order.key, slot);
}

static void check_fit(const struct crew_run *const in[], uint32_t count)
{
    const struct board_run *lines[TOGETHER_MAX];
    for (uint32_t i = 0; i < count; i++) lines[i] = line_of(in[i]);
    if (board_fit(lines, count)) return;
    char text[160];
    int n = 0;
    for (uint32_t i = 0; i < count && n < (int)sizeof text - 60; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %u (%u of %u, wrapper %s)",
                      number_of(in[i]), lines[i]->units, lines[i]->capacity,
                      in[i]->killed_ns == 0 ? "not killed"
                                            : crew_stage_names[in[i]->stage]);
    crew_wrong("key %u: these were in at once:%s", in[0]->order.key, text);
}

static int by_first(const void *a, const void *b)
{
    int64_t x = (*(const struct crew_run *const *)a)->first_ns;
    int64_t y = (*(const struct crew_run *const *)b)->first_ns;
    return (x > y) - (x < y);
}

/* The number in grows only when one begins: look at each of these moments. */
static void sweep(uint32_t key)
{
    static const struct crew_run *runs[BOARD_RUNS_MAX];
    const struct crew_run *in[TOGETHER_MAX];
    uint32_t count = 0, in_count = 0;
    for (uint32_t i = 0; i < crew.board->runs; i++)
        if (crew.run[i].order.key == key && crew.run[i].first_ns != 0)
            runs[count++] = &crew.run[i];
    qsort(runs, count, sizeof runs[0], by_first);
    bool numbered = is_numbered(key);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t still = 0;
        for (uint32_t j = 0; j < in_count; j++)
            if (in[j]->last_ns > runs[i]->first_ns) in[still++] = in[j];
        in_count = still;
        if (in_count == TOGETHER_MAX) stage_bail("too many at once to judge");
        in[in_count++] = runs[i];
        if (in_count > crew.together[key]) crew.together[key] = in_count;
        check_fit(in, in_count);
        if (numbered) check_slots(in, in_count);
    }
}

void judge_together(void)
{
    gather_evidence();
    for (uint32_t key = 0; key < CREW_KEYS_MAX; key++) {
        if (!crew.key_used[key]) continue;
        sweep(key);
        if (crew.together[key] > crew.now.together_max)
            crew.now.together_max = crew.together[key];
    }
    if (crew.board->crowds != 0)
        crew_wrong("%u of %u witnesses saw too many next to them, the first of them:%s",
                   crew.board->crowds, crew.board->looks, crew.board->crowd);
}

/* --- Ends ----------------------------------------------------------------- */

/* A process that began and was not killed has also ended. */
static void check_life(const struct crew_run *r)
{
    const struct board_process *p = line_of(r)->process;
    /* Killed at a moment when it had not yet begun, it may have begun before it died. */
    bool witness_killed = r->order.in_place && r->killed_ns != 0;
    if (board_state(&p[WITNESS]) == ALIVE && !witness_killed)
        crew_wrong("run %u: nobody killed its command, and it has not ended",
                   number_of(r));
    if (board_state(&p[HEIR]) == ALIVE && !r->group_killed)
        crew_wrong("run %u: nobody killed its heir, and it has not ended",
                   number_of(r));
    if (board_state(&p[HEIR]) != ABSENT) crew.now.heirs++;
    if (board_state(&p[WITNESS]) != ABSENT && line_of(r)->session != r->pid)
        crew_wrong("run %u: its session is %d, its wrapper was %d", number_of(r),
                   line_of(r)->session, r->pid);
}

/* The one reason there may be for how a wrapper ended. */
static void check_status(const struct crew_run *r)
{
    uint32_t command = board_state(&line_of(r)->process[WITNESS]);
    int64_t wait_ns = r->order.wait_ms * CREW_MS;
    /* A kill of the group for the heir's sake may meet a witness that has ended and is
     * just about to exit. */
    bool command_killed = command == DOOMED || (command == ENDED && r->group_killed);
    bool exited = WIFEXITED(r->status);
    int code = exited ? WEXITSTATUS(r->status) : 0;
    if (exited && code == 0 && command == ENDED) {
        crew.now.ended++;
    } else if (exited && code == 1 && command == ABSENT && wait_ns >= 0) {
        crew.now.refused++;
        /* At most so long, is the promise; by a clock of milliseconds. */
        if (r->reaped_ns - r->fork_ns < wait_ns - CREW_MS)
            crew_wrong(
                "run %u was to wait for %" PRId64 " us and was gone after %" PRId64,
                number_of(r), wait_ns / 1000, (r->reaped_ns - r->fork_ns) / 1000);
    } else if (exited && code == 128 + SIGKILL && command_killed &&
               !r->order.in_place) {
        crew.now.killed_commands++;
    } else if (WIFSIGNALED(r->status) && WTERMSIG(r->status) == SIGKILL &&
               (r->killed_ns != 0 || (r->order.in_place && command_killed))) {
        /* Counted when it died. */
    } else {
        crew_wrong("run %u ended by status 0x%x, its command being in state %u",
                   number_of(r), (unsigned)r->status, command);
    }
}

void judge_ends(void)
{
    for (uint32_t i = 0; i < crew.board->runs; i++) {
        check_life(&crew.run[i]);
        check_status(&crew.run[i]);
    }
}

/* --- Refusals ------------------------------------------------------------- */

static bool was_refused(const struct crew_run *r)
{
    return WIFEXITED(r->status) && WEXITSTATUS(r->status) == 1;
}

/* The most units of its key that others can have held at a moment, by any account: from
 * when each was started to when all of it was gone. */
static uint64_t units_at(const struct crew_run *refused, int64_t ns)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < crew.board->runs; i++) {
        const struct crew_run *r = &crew.run[i];
        if (r->order.key == refused->order.key && !was_refused(r) && r->fork_ns <= ns &&
            ns <= r->gone_ns)
            units += crew_units(&r->order);
    }
    return units;
}

static void check_refusal(const struct crew_run *refused)
{
    uint64_t capacity = crew_capacity(&refused->order),
             units = crew_units(&refused->order);
    if (units_at(refused, refused->fork_ns) + units > capacity) return;
    for (uint32_t i = 0; i < crew.board->runs; i++) {
        int64_t ns = crew.run[i].fork_ns;
        if (crew.run[i].order.key == refused->order.key && ns > refused->fork_ns &&
            ns <= refused->reaped_ns && units_at(refused, ns) + units > capacity)
            return;
    }
    crew_wrong("run %u of key %u was refused, and there was capacity all the time",
               number_of(refused), refused->order.key);
}

void judge_refusals(void)
{
    for (uint32_t i = 0; i < crew.board->runs; i++)
        if (was_refused(&crew.run[i])) check_refusal(&crew.run[i]);
}

/* --- The end of a scene --------------------------------------------------- */

/* What wrappers and witnesses said, which should be nothing. */
static void check_said(void)
{
    char text[SAID_MAX];
    int fd = open(crew.said, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return;
    text[n] = '\0';
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        crew_wrong("said: %s", line);
}

static void check_empty(void)
{
    struct sluice_canal_info info;
    char name[16], why[200];
    for (uint32_t key = 0; key < CREW_KEYS_MAX; key++) {
        if (!crew.key_used[key]) continue;
        crew_key_name(key, name);
        int64_t held = sluice_canal_count(crew.canal, name);
        if (held != 0) crew_wrong("at the end %s counts %" PRId64, name, held);
    }
    int status = sluice_canal_info(crew.canal, &info);
    if (status != SLUICE_OK) crew_wrong("info: %s", sluice_status_word(status));
    else if (info.slots_used != 0 || info.keys_used != 0 || info.records_used != 0)
        crew_wrong("at the end %u slots, %u keys and %u records are in use",
                   info.slots_used, info.keys_used, info.records_used);
    if (!audit(&crew.canal->seg, true, why, sizeof why))
        crew_wrong("the segment is not in order: %s", why);
}

static void reap(void)
{
    int64_t freed = sluice_canal_reap(crew.canal);
    if (freed < 0) crew_wrong("reap: %s", sluice_status_word(freed));
}

void judge_settled(bool reap_first)
{
    if (crew.canal == NULL) {
        crew_wrong("nobody has made the segment");
        return;
    }
    if (reap_first) {
        reap();
        check_empty();
    }
    uint32_t first = crew.board->runs;
    for (uint32_t key = 0; key < CREW_KEYS_MAX; key++) {
        if (!crew.key_used[key]) continue;
        struct crew_order o = {.key = key, .kind = EXCLUSIVE};
        crew_start(&o);
        crew_drain();
    }
    for (uint32_t i = first; i < crew.board->runs; i++)
        if (crew.run[i].status != 0)
            crew_wrong("at the end run -n of key %u is not granted: status 0x%x",
                       crew.run[i].order.key, (unsigned)crew.run[i].status);
    reap();
    check_empty();
    check_said();
}
