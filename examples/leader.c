/* leader.c - elect a leader among several programs, with one server or a cluster.
 *
 *     cc leader.c $(pkg-config --cflags --libs sluice) -o leader
 *     ./leader KEY HOST:PORT...      one server, or the nodes of a cluster in any order
 *
 * Start it several times. One program prints `lead`. Kill it, stop it with SIGSTOP, or kill the
 * node that it is connected to, and watch. Each line begins with the time, in milliseconds of
 * CLOCK_BOOTTIME. `act` stands for the work that only the leader may do.
 *
 * Three rules make it safe (docs/leases.md): it counts its lease from before it sends the
 * request, it checks the clock before every step, and it passes the fence to the resource. */
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
#define WAIT_MS LEASE_MS /* How long one ACQUIRE waits in the queue. */
#define TRY_MS \
    (LEASE_MS / 6)   /* Timeout of EXTEND: leaves time to try two other nodes. */
#define PAUSE_MS 200 /* Between a failure and the next try. */
#define STEP_MS 50   /* The longest time that one step of the work takes. */
#define DRIFT 0.998  /* Allows two clocks that are each wrong by 0.1 %. */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x) /* One of these numbers, as an argument of a command. */

/* A clock that counts while the machine sleeps, and cannot be set. */
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

/* ---- send commands to one node, and switch to the next one after a failure ---- */

struct nodes {
    char **addresses;
    int count, at;
    int64_t timeout_ms;
    struct sluice_wire *wire; /* The connection to the node `at`, or NULL. */
    char why[200];            /* The reason of the last failure. */
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

/* Returns the reply, which the caller frees. NULL: the node may or may not have executed the
 * command; try the next node. LOST and ASKED are replies: every node would say the same. */
static struct sluice_reply *call(struct nodes *n, const char *const *command,
                                 size_t count)
{
    const char *address = n->addresses[n->at];
    struct sluice_wire_options options = {.connect_ms = TRY_MS,
                                          .reply_ms = n->timeout_ms,
                                          .error = n->why,
                                          .error_size = sizeof n->why};
    struct sluice_reply *r = NULL;
    if (n->wire == NULL && sluice_wire_open(address, &options, &n->wire) != SLUICE_OK) {
        n->wire = NULL;
    } else if (sluice_wire_call(n->wire, command, NULL, count, &r) != SLUICE_OK) {
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

/* ---- follow and lead ---- */

struct term {
    const char *key;
    int64_t fence;
    char fence_text[24];
    double end_ms; /* When the lease expires, by now_ms(). */
};

static volatile sig_atomic_t leads, stops;

/* A leader first stops its work, then releases. A follower has nothing to release. */
static void on_term(int number)
{
    (void)number;
    if (!leads) _exit(0);
    stops = 1;
}

/* The work that only the leader may do. It passes the fence to the resource, which rejects a
 * fence lower than the highest one it has seen: this process may have been stopped after it
 * checked the clock. */
static void act(double at_ms, int64_t fence)
{
    say(at_ms, "act %" PRId64, fence);
}

/* Wait until this program leads. */
static void follow(struct nodes *n, struct term *t, const char *me)
{
    const char *command[] = {"ACQUIRE", t->key,        "LEASE", TEXT(LEASE_MS),
                             "WAIT",    TEXT(WAIT_MS), "VALUE", me};
    for (bool granted = false; !granted;) {
        double sent_ms = now_ms();
        struct sluice_reply *r = call(n, command, sizeof command / sizeof *command);
        granted = r != NULL && r->type == SLUICE_REPLY_LIST && r->count == 5;
        if (granted) { /* Otherwise nil: another program leads. */
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

/* Returns false if the lease is lost, or a client with a higher priority waits for it. */
static bool extend(struct nodes *n, struct term *t, double *extend_at_ms)
{
    double sent_ms = now_ms();
    struct sluice_reply *r = call(
        n, (const char *[]){"EXTEND", t->key, t->fence_text, TEXT(LEASE_MS)}, 4);
    if (r == NULL) { /* The lease expires when it did before: try again soon. */
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

/* Act until the lease expires or is lost. A step must end before the lease does. */
static void lead(struct nodes *n, struct term *t)
{
    double extend_at_ms = t->end_ms - LEASE_MS * 2.0 / 3, now;
    const char *why = "the lease has expired";
    while (!stops && (now = now_ms()) + STEP_MS < t->end_ms) {
        if (now < extend_at_ms) {
            act(now, t->fence);
            pause_ms(STEP_MS);
        } else if (!extend(n, t, &extend_at_ms)) {
            why = n->why;
            break;
        }
    }
    say(now_ms(), "follow %" PRId64 ", %s", t->fence, stops ? "SIGTERM" : why);
    /* The work has stopped. If this command fails, the lease expires. */
    sluice_reply_free(call(n, (const char *[]){"RELEASE", t->key, t->fence_text}, 3));
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: leader KEY HOST:PORT...\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    struct nodes waiting = {
        .addresses = argv + 2, .count = argc - 2, .timeout_ms = WAIT_MS + 1000};
    struct nodes leading = waiting;
    leading.timeout_ms = TRY_MS;
    struct term t = {.key = argv[1]};
    char host[64] = "?", me[96]; /* READ KEY returns this. */
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
