/* leader.c - of several programs one leads, as long as a majority of nodes is there.
 *
 *     cc leader.c $(pkg-config --cflags --libs sluice) -o leader
 *     ./leader KEY HOST:PORT...      one server, or nodes of a cluster in any order
 *
 * Start it several times. One says `lead`. Kill it, stop it with SIGSTOP, kill the node it
 * talks to, and watch. Lines begin with the time, in milliseconds of CLOCK_BOOTTIME. `act`
 * stands for what only the leader may do.
 *
 * What makes it right (docs/leases.md): it counts its lease from before it asked, looks at
 * the clock before every step, and takes the fence along. */
#include <inttypes.h>
#include <signal.h>
#include <sluice.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEASE_MS 3000
#define WAIT_MS LEASE_MS      /* In line, before it asks again. */
#define TRY_MS (LEASE_MS / 6) /* For a node to answer EXTEND: leaves time for others. */
#define PAUSE_MS 200          /* After one that did not answer, before the next. */
#define STEP_MS 50            /* Of the work. */
#define DRIFT 0.998           /* Two clocks that are right within 0.1 %. */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x) /* One of these numbers, as a word of a command. */

/* A clock that goes on while the machine sleeps, and is never set. */
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

__attribute__((format(printf, 2, 3))) static void say(double at_ms, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    printf("%.3f ", at_ms);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

/* ---- commands to one node; after a failure, to the next ---- */

struct nodes {
    char **addresses;
    int count, at;
    int64_t patience_ms;
    struct sluice_wire *wire; /* To the node `at`, if not NULL. */
    char why[200];            /* Of the last failure. */
};

static void go_to(struct nodes *n, int at)
{
    sluice_wire_close(n->wire);
    n->wire = NULL;
    n->at = at % n->count;
}

static bool is_error(const struct sluice_reply *r, const char *word)
{
    size_t length = strlen(word);
    return r->type == SLUICE_REPLY_ERROR && strncmp(r->text, word, length) == 0 &&
           (r->text[length] == ' ' || r->text[length] == '\0');
}

/* The reply, to be freed. NULL: whether it was done is not known, and the next node may
 * know more. Of errors, LOST and ASKED are answers. */
static struct sluice_reply *ask(struct nodes *n, const char *const *words, size_t count)
{
    const char *address = n->addresses[n->at];
    struct sluice_wire_options options = {.connect_ms = TRY_MS,
                                          .reply_ms = n->patience_ms,
                                          .error = n->why,
                                          .error_size = sizeof n->why};
    struct sluice_reply *r = NULL;
    if (n->wire == NULL && sluice_wire_open(address, &options, &n->wire) != SLUICE_OK) {
        n->wire = NULL;
    } else if (sluice_wire_call(n->wire, words, NULL, count, &r) != SLUICE_OK) {
        r = NULL;
        snprintf(n->why, sizeof n->why, "%s", sluice_wire_error(n->wire));
    } else if (r->type != SLUICE_REPLY_ERROR || is_error(r, "LOST") ||
               is_error(r, "ASKED")) {
        return r;
    } else {
        snprintf(n->why, sizeof n->why, "%s", r->text);
    }
    sluice_reply_free(r);
    go_to(n, n->at + 1);
    return NULL;
}

/* ---- who leads ---- */

struct term {
    const char *key;
    int64_t fence;
    char fence_text[24];
    double end_ms; /* By our own clock. */
};

static volatile sig_atomic_t leads, stops;

/* A leader first stops, then releases; the others have nothing to release. */
static void on_term(int number)
{
    (void)number;
    if (!leads) _exit(0);
    stops = 1;
}

/* What only the leader may do. What it writes to is told the fence, and refuses one that is
 * lower than it has seen: we may be stopped between the look at the clock and here. */
static void act(double at_ms, int64_t fence)
{
    say(at_ms, "act %" PRId64, fence);
}

/* Wait until we lead. */
static void follow(struct nodes *n, struct term *t, const char *me)
{
    const char *words[] = {"ACQUIRE", t->key,        "LEASE", TEXT(LEASE_MS),
                           "WAIT",    TEXT(WAIT_MS), "VALUE", me};
    for (bool granted = false; !granted;) {
        double sent_ms = now_ms();
        struct sluice_reply *r = ask(n, words, sizeof words / sizeof *words);
        granted = r != NULL && r->type == SLUICE_REPLY_LIST && r->count == 5;
        if (granted) { /* Otherwise nil: another leads. */
            int64_t lease_ms = r->items[2].number, waited_ms = r->items[3].number;
            t->fence = r->items[0].number;
            snprintf(t->fence_text, sizeof t->fence_text, "%" PRId64, t->fence);
            t->end_ms = sent_ms + DRIFT * (double)(waited_ms + lease_ms);
        } else if (r == NULL) {
            say(now_ms(), "follow, %s", n->why);
            pause_ms(PAUSE_MS);
        }
        sluice_reply_free(r);
    }
}

/* Returns false, if it is lost, or one of more priority asks us to go. */
static bool extend(struct nodes *n, struct term *t, double *extend_at_ms)
{
    double sent_ms = now_ms();
    struct sluice_reply *r = ask(
        n, (const char *[]){"EXTEND", t->key, t->fence_text, TEXT(LEASE_MS)}, 4);
    if (r == NULL) { /* The end is what it was: try again soon. */
        say(now_ms(), "still %" PRId64 ", %s", t->fence, n->why);
        *extend_at_ms = now_ms() + PAUSE_MS;
        return true;
    }
    bool good = r->type == SLUICE_REPLY_NUMBER;
    double end_ms = sent_ms + DRIFT * (double)r->number;
    if (good && end_ms > t->end_ms) t->end_ms = end_ms;
    *extend_at_ms = t->end_ms - LEASE_MS * 2.0 / 3;
    if (!good) snprintf(n->why, sizeof n->why, "%s", r->text);
    sluice_reply_free(r);
    return good;
}

/* Act until our time is over. */
static void lead(struct nodes *n, struct term *t)
{
    double extend_at_ms = t->end_ms - LEASE_MS * 2.0 / 3, now;
    const char *why = "my lease is over";
    while (!stops && (now = now_ms()) < t->end_ms) {
        if (now < extend_at_ms) {
            act(now, t->fence);
            pause_ms(STEP_MS);
        } else if (!extend(n, t, &extend_at_ms)) {
            why = n->why;
            break;
        }
    }
    say(now_ms(), "follow %" PRId64 ", %s", t->fence, stops ? "told to stop" : why);
    /* We have stopped; if this does not arrive, it ends by itself. */
    sluice_reply_free(ask(n, (const char *[]){"RELEASE", t->key, t->fence_text}, 3));
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: leader KEY HOST:PORT...\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    struct nodes waiting = {
        .addresses = argv + 2, .count = argc - 2, .patience_ms = WAIT_MS + 1000};
    struct nodes leading = waiting;
    leading.patience_ms = TRY_MS;
    struct term t = {.key = argv[1]};
    char host[64] = "?", me[96]; /* Whom READ KEY tells of. */
    gethostname(host, sizeof host - 1);
    snprintf(me, sizeof me, "%s:%ld", host, (long)getpid());

    say(now_ms(), "follow");
    while (!stops) {
        follow(&waiting, &t, me);
        leads = 1;
        go_to(&leading, waiting.at);
        say(now_ms(), "lead %" PRId64 " until %.3f, %s", t.fence, t.end_ms,
            argv[2 + leading.at]);
        lead(&leading, &t);
        leads = 0;
    }
    return 0;
}
