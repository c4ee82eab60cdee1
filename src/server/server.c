/* server.c - the event loop: its clock, the budget of each loop iteration, and the start of the
 * server. */
#include "server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "server/arbiter/arbiter.h"
#include "server/arbiter/state.h"
#include "server/net/auth.h"
#include "server/net/conn.h"
#include "server/net/links.h"
#include "server/observe/log.h"
#include "server/observe/memory.h"
#include "server/recorder.h"

/* The budget of one iteration of the event loop: work and time. A loop iteration should stay well
 * below 5 ms. An effect costs about a microsecond; sending to a connection costs five to ten. */
#define TURN_NS 2000000u
#define EFFECTS_A_TURN 512u
#define FLUSHES_A_TURN 128u
#define COMMANDS_A_TURN 1024u
#define ACCEPTS_A_TURN 8u
#define CLOSES_A_TURN 8u
#define TURNS_A_CHECK 16u /* Loop iterations between two checks of memory-max. */

/* --- Time ----------------------------------------------------------------- */

static uint64_t read_clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sl_server_read_clock(struct server *s)
{
    /* CLOCK_BOOTTIME continues while the machine is suspended, and cannot be set. */
    uint64_t ns = read_clock_ns(CLOCK_BOOTTIME);
    if (s->turn_ns == 0) s->turn_ns = ns;
    s->now_ns = ns;
    s->now = (struct sl_now){.ms = (sl_ms)(ns / 1000000),
                             .wall_us = read_clock_ns(CLOCK_REALTIME) / 1000};
}

bool sl_server_turn_is_long(const struct server *s)
{
    return read_clock_ns(CLOCK_BOOTTIME) - s->turn_ns > TURN_NS;
}

/* Return when the next work is due: in an arbiter, a delayed AUTH, or a lingering session. */
static sl_ms next_due(const struct server *s)
{
    sl_ms due = sl_arbiters_due(s), other;
    if ((other = sl_auth_due(s)) < due) due = other;
    if ((other = sl_conn_linger_due(s)) < due) due = other;
    if ((other = sl_recorder_due(s)) < due) due = other;
    return due;
}

/* Set the timer again only for an earlier time: the timer may expire too early, but not too
 * late. */
static void set_clock(struct server *s)
{
    sl_ms due = next_due(s);
    if (due >= s->clock_at_ms) return;
    sl_ms at = due > 0 ? due : 1;
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at / 1000),
                     .tv_nsec = (long)(at % 1000) * 1000000}};
    if (timerfd_settime(s->clock_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
        s->clock_at_ms = due;
}

static void on_clock(uv_poll_t *handle, int status, int events)
{
    struct server *s = handle->data;
    uint64_t rings;
    (void)status;
    (void)events;
    if (read(s->clock_fd, &rings, sizeof rings) < 0 && errno == EAGAIN) return;
    s->clock_at_ms = SL_NEVER;
    sl_server_read_clock(s);
    sl_conn_end_lingering(s);
    sl_auth_resume(s);
    sl_server_settle(s);
}

static void on_second(uv_timer_t *timer)
{
    struct server *s = timer->data;
    sl_server_read_clock(s);
    sl_conn_end_lingering(s);
    sl_conn_check_all(s);
    sl_memory_second(s);
    sl_arbiters_second(s);
    sl_recorder_second(s);
    if (s->accept_retry) sl_listen_go_on(s);
    if (s->stats.turns_counted_ms + 10000 <= s->now.ms) {
        s->stats.turns_counted_ms = s->now.ms;
        s->stats.turn_us_recent[1] = s->stats.turn_us_recent[0];
        s->stats.turn_us_recent[0] = 0;
    }
    sl_server_settle(s);
}

/* --- An iteration of the event loop --------------------------------------- */

/* Serve the connections that have sent more than their share, round-robin. */
static void work_on_ready(struct server *s)
{
    uint64_t begin_ns = s->now_ns;
    while (s->commands_left > 0 && !sl_list_empty(&s->ready) &&
           s->now_ns - begin_ns < SL_SHARE_NS) {
        struct conn *c = sl_container_of(s->ready.next, struct conn, ready);
        sl_list_remove(&c->ready);
        sl_conn_work(c);
        s->now_ns = read_clock_ns(CLOCK_BOOTTIME);
    }
}

/* Runs once per loop iteration, before the loop polls. Begins with the work that the last loop
 * iteration left. */
static void on_prepare(uv_prepare_t *handle)
{
    struct server *s = handle->data;
    sl_stats_turn(&s->stats, s->turn_ns,
                  s->turn_ns == 0 ? 0 : read_clock_ns(CLOCK_BOOTTIME));
    s->effects_left = EFFECTS_A_TURN;
    s->flushes_left = FLUSHES_A_TURN;
    s->commands_left = COMMANDS_A_TURN;
    s->accepts_left = ACCEPTS_A_TURN;
    s->closes_left = CLOSES_A_TURN;
    s->turn_ns = 0;
    if (s->memory_due || s->stats.turns % TURNS_A_CHECK == 0) sl_memory_check(s);
    if (!uv_is_active((uv_handle_t *)&s->idle)) return;
    sl_server_read_clock(s);
    sl_state_resume(s);
    if (s->accept_pending) sl_listen_go_on(s);
    sl_conn_close_leaving(s);
    work_on_ready(s);
    sl_server_settle(s);
}

/* The handle does nothing; while it is active, the loop does not sleep. */
static void on_idle(uv_idle_t *handle)
{
    (void)handle;
}

static void spend(uint32_t *left, size_t n)
{
    *left = *left > n ? *left - (uint32_t)n : 0;
}

void sl_server_spend(struct server *s, size_t steps)
{
    spend(&s->commands_left, steps / SL_STEPS_A_COMMAND);
    spend(&s->effects_left, steps / SL_STEPS_A_COMMAND);
}

void sl_server_count_effect(struct server *s, bool costly)
{
    bool check = --s->effects_left % 4 == 0 || costly;
    /* This is the last effect of this loop iteration. */
    if (check && sl_server_turn_is_long(s)) s->effects_left = 0;
}

void sl_server_go_on(struct server *s)
{
    if (!uv_is_active((uv_handle_t *)&s->idle)) uv_idle_start(&s->idle, on_idle);
}

static void flush_dirty(struct server *s)
{
    while (s->flushes_left > 0 && !sl_list_empty(&s->dirty)) {
        s->flushes_left--;
        sl_conn_flush(sl_container_of(s->dirty.next, struct conn, dirty));
    }
}

void sl_server_settle(struct server *s)
{
    bool all_done = sl_arbiters_pump(s);
    /* The journal has every change before a client learns of it. */
    sl_recorder_flush(s);
    if (s->stopping && !s->stopped) all_done = sl_stop_step(s) && all_done;
    flush_dirty(s);
    /* flush_dirty() closes connections after their last reply, which may allow waiters to be
     * granted. */
    all_done = sl_arbiters_pump(s) && all_done;
    sl_state_write_ahead(s);
    sl_recorder_flush(s);
    sl_links_flush(s);
    all_done = sl_recorder_pump(s) && all_done;
    if (!all_done || !sl_list_empty(&s->dirty) || !sl_list_empty(&s->ready) ||
        !sl_list_empty(&s->leaving) || s->accept_pending || sl_state_has_more(s))
        sl_server_go_on(s);
    else if (uv_is_active((uv_handle_t *)&s->idle)) uv_idle_stop(&s->idle);
    if (all_done) set_clock(s);
}

/* --- Start ---------------------------------------------------------------- */

static int fail(const char *what, const char *why)
{
    sl_log(SL_LOG_ERROR, what, "error", why, NULL);
    return -1;
}

#define OWN_FILES 25 /* Open files in addition to connections-max. */
/* Additional files of a node, for links and connections to the node port. */
#define OWN_FILES_NODE 96

/* Raise the limit on open files to fit connections-max, or lower connections-max to fit the
 * limit. */
static void raise_file_limit(struct server *s)
{
    struct rlimit r;
    int64_t own = OWN_FILES + (s->settings->node != 0 ? OWN_FILES_NODE : 0);
    rlim_t want = (rlim_t)(s->settings->connections_max + own);
    char most[24];
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want) return;
    r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur >= want) return;
    int64_t most_now = (int64_t)r.rlim_cur - own;
    s->settings->connections_max = most_now > 0 ? most_now : 1;
    snprintf(most, sizeof most, "%" PRId64, s->settings->connections_max);
    sl_log(SL_LOG_WARN,
           "connections-max: lowered, because the process may not open so many files; "
           "raise the limit (ulimit -n, LimitNOFILE=)",
           "connections-max", most, NULL);
}

static int make_table(struct server *s)
{
    const struct sl_settings *set = s->settings;
    const struct sl_table_limits limits = {
        .keys_max = (uint32_t)set->keys_max,
        .waiters_max = (uint32_t)set->waiters_max,
        .key_bytes_max = (uint32_t)set->key_bytes_max,
        .value_bytes_max = (uint32_t)set->value_bytes_max,
        .drains_max = (uint32_t)set->drains_max,
        .requests_max = (uint32_t)set->requests_max,
        .request_keep_ms = set->request_keep_ms,
        .linger_ms = set->linger_ms,
        .grain_ms = 1,
    };
    if (getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed ||
        getrandom(&s->hash_key, sizeof s->hash_key, 0) != sizeof s->hash_key)
        return fail("cannot read random numbers", strerror(errno));
    s->table = sl_table_new(&limits, s->hash_key);
    return s->table == NULL ? fail("cannot start", "out of memory") : 0;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct server *s = handle->data;
    const char *why = number == SIGTERM ? "SIGTERM" : "SIGINT";
    if (s->signaled || s->stopping) {
        sl_log(SL_LOG_WARN, "stopped immediately, after a second signal", NULL);
        _exit(1);
    }
    s->signaled = true;
    sl_server_read_clock(s);
    sl_server_stop(s, why);
    sl_server_settle(s);
}

static int start_handles(struct server *s)
{
    s->clock_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (s->clock_fd < 0) return fail("cannot create a timer", strerror(errno));
    uv_prepare_init(s->loop, &s->prepare);
    uv_idle_init(s->loop, &s->idle);
    uv_timer_init(s->loop, &s->second);
    uv_timer_init(s->loop, &s->stop_timer);
    uv_poll_init(s->loop, &s->clock, s->clock_fd);
    uv_signal_init(s->loop, &s->sigterm);
    uv_signal_init(s->loop, &s->sigint);
    s->prepare.data = s->idle.data = s->second.data = s->clock.data = s;
    s->stop_timer.data = s->sigterm.data = s->sigint.data = s;
    uv_prepare_start(&s->prepare, on_prepare);
    uv_timer_start(&s->second, on_second, 1000, 1000);
    uv_poll_start(&s->clock, UV_READABLE, on_clock);
    int status = sl_input_start(s);
    if (status != 0) return fail("cannot watch sockets for input", uv_strerror(status));
    uv_signal_start(&s->sigterm, on_signal, SIGTERM);
    uv_signal_start(&s->sigint, on_signal, SIGINT);
    return 0;
}

int sl_server_start(struct server *s, struct sl_settings *settings)
{
    *s = (struct server){
        .settings = settings, .loop = uv_default_loop(), .clock_at_ms = SL_NEVER};
    sl_list_init(&s->conns);
    sl_list_init(&s->unauthed);
    sl_list_init(&s->dirty);
    sl_list_init(&s->ready);
    sl_list_init(&s->leaving);
    if (settings->memory_max == SL_MEMORY_AUTO) settings->memory_max = sl_memory_auto();
    raise_file_limit(s);
    if (make_table(s) != 0) return -1;
    sl_conn_setup_sessions(s);
    sl_request_setup(s);
    sl_pubsub_init(&s->pubsub, s->hash_key);
    sl_conn_setup(s);
    if (sl_auth_start(s) != 0) return fail("cannot start", "out of memory");
    sl_server_read_clock(s);
    s->stats.started_ms = s->now.ms;
    return start_handles(s);
}
