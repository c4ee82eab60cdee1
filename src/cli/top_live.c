/* top_live.c - `sluice top` on a terminal.
 *
 * One thread reads updates, so that a server that does not reply does not stop the other thread,
 * which reads keys and draws. They share `struct live`; the mutex protects it. */
#include "cli/top_live.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cells.h"
#include "cli/child.h"
#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/grid.h"
#include "cli/message.h"
#include "cli/top_draw.h"
#include "cli/top_screen.h"
#include "sluice.h"

#define PAUSE_MS_MIN 200 /* Between two updates, also if the user presses keys. */
#define DRAW_MS 1000     /* Draw at least this often, to show the age of the data. */
#define KEYS_SIZE 256
#define SEQUENCE_MAX 16 /* Bytes of an escape sequence. */
#define ESCAPE_MS \
    50 /* How long after the escape character the rest of a sequence may come. */
#define LATE_MS 2000 /* An update is late if it takes this much longer. */

struct live {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* Of `want`, `hurry` or `paused`. */
    struct top_want want;   /* Owns `detail`. */
    bool hurry;             /* Do not wait for the end of the interval. */
    bool paused;
    struct top_update *latest; /* The next one to show; NULL: none. */
    bool failed;               /* There was no memory for an update. */
    int event;                 /* Readable if `latest` or `failed` has been set. */
    int64_t interval_ms;

    struct top_source *source; /* Of the thread that reads. */
};

/* --- The thread that reads updates ------------------------------------------------- */

/* Copy what is wanted. Returns false if there is no memory. */
static bool copy_want(struct top_want *out, const struct top_want *want)
{
    *out = *want;
    if (want->detail == NULL) return true;
    out->detail = malloc(want->detail_bytes + 1);
    if (out->detail == NULL) return false;
    memcpy(out->detail, want->detail, want->detail_bytes + 1);
    return true;
}

static struct timespec time_at(int64_t ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};
}

/* Wait for the time of the next update. The mutex is locked. */
static void wait_for_turn(struct live *l, int64_t last_ms)
{
    for (;;) {
        int64_t pause_ms = l->hurry && l->interval_ms > PAUSE_MS_MIN ? PAUSE_MS_MIN
                                                                     : l->interval_ms;
        struct timespec until = time_at(last_ms + pause_ms);
        if (l->paused && !l->hurry) pthread_cond_wait(&l->changed, &l->mutex);
        else if (cli_now_ms() >= last_ms + pause_ms) break;
        else pthread_cond_timedwait(&l->changed, &l->mutex, &until);
    }
    l->hurry = false;
}

static void *read_updates(void *arg)
{
    struct live *l = arg;
    const uint64_t one = 1;
    cli_cells_begin();
    pthread_mutex_lock(&l->mutex);
    for (bool failed = false; !failed;) {
        struct top_want want;
        struct top_update *u = NULL;
        failed = !copy_want(&want, &l->want);
        pthread_mutex_unlock(&l->mutex);
        if (!failed) u = top_read(l->source, &want);
        int64_t last_ms = cli_now_ms();
        free(want.detail);
        pthread_mutex_lock(&l->mutex);
        top_update_free(l->latest);
        l->latest = u;
        failed = u == NULL;
        l->failed = failed;
        if (write(l->event, &one, sizeof one) < 0) failed = true;
        if (!failed) wait_for_turn(l, last_ms);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* --- The user's side ---------------------------------------------------------------- */

struct ui {
    struct live *live;
    struct top_view view; /* Its `want` owns `detail`. */
    struct top_update *update;
    int64_t update_ms; /* When it came. */
    int signals;
    uint64_t shown;
    bool quits;
    int end; /* The signal that ends the process; 0: none. */
    int status;
};

/* Tell the other thread what to read; with `hurry`, to do it soon. */
static void tell_want(struct ui *ui, bool hurry)
{
    struct live *l = ui->live;
    struct top_want want;
    if (!copy_want(&want, &ui->view.want)) return;
    pthread_mutex_lock(&l->mutex);
    free(l->want.detail);
    l->want = want;
    l->hurry = l->hurry || hurry;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}

static void tell_paused(struct ui *ui)
{
    pthread_mutex_lock(&ui->live->mutex);
    ui->live->paused = ui->view.paused;
    ui->live->hurry = !ui->view.paused;
    pthread_cond_signal(&ui->live->changed);
    pthread_mutex_unlock(&ui->live->mutex);
}

/* Whether the visible locks have not been explained yet. */
static bool lacks_explanations(const struct ui *ui)
{
    const struct top_want *w = &ui->view.want;
    const struct top_update *u = ui->update;
    if (ui->view.page != TOP_LIST || u == NULL) return false;
    for (size_t i = w->first; i < u->count && i - w->first < w->rows; i++)
        if (!u->locks[i].explained && i - w->first < TOP_EXPLAINS_MAX) return true;
    return false;
}

static void draw(struct ui *ui)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return;
    int64_t age_ms = cli_now_ms() - ui->update_ms;
    bool late = !ui->view.paused && age_ms > ui->live->interval_ms + LATE_MS;
    ui->view.late_ms = late ? age_ms : 0;
    top_screen_size(&ui->view.rows, &ui->view.columns);
    top_draw(out, &ui->view, ui->update);
    bool drawn = fclose(out) == 0 && top_screen_write(text, bytes);
    free(text);
    if (!drawn) ui->quits = true;
    size_t first = ui->view.want.first, rows = ui->view.want.rows;
    if ((first != ui->live->want.first || rows != ui->live->want.rows) &&
        lacks_explanations(ui))
        tell_want(ui, !ui->view.paused);
}

/* Keep the cursor on the same lock, unless it is on the first line. */
static void follow(struct ui *ui, const struct top_update *old)
{
    const struct top_update *u = ui->update;
    size_t n = ui->view.selected;
    if (n == 0 || n >= old->count) return; /* The locks may have moved to the update. */
    const struct top_lock *was = &old->locks[n];
    for (size_t i = 0; i < u->count; i++)
        if (u->locks[i].key_bytes == was->key_bytes &&
            memcmp(u->locks[i].key, was->key, was->key_bytes) == 0)
            ui->view.selected = i;
}

/* Show the latest update. Without a connection, the locks of the update before stay. */
static void take_update(struct ui *ui, uint64_t count)
{
    uint64_t n;
    if (read(ui->live->event, &n, sizeof n) < 0) return;
    pthread_mutex_lock(&ui->live->mutex);
    struct top_update *u = ui->live->latest;
    ui->live->latest = NULL;
    bool failed = ui->live->failed;
    pthread_mutex_unlock(&ui->live->mutex);
    if (failed) {
        ui->quits = true;
        ui->status = SLUICE_ENOMEM;
    }
    if (u == NULL) return;
    struct top_update *old = ui->update;
    if (old != NULL && u->trouble[0] != '\0') top_keep_locks(u, old);
    ui->update = u;
    ui->update_ms = u->at_ms;
    /* The user may have changed the order since. */
    top_sort(u, ui->view.want.order, ui->view.want.reversed);
    if (old != NULL) follow(ui, old);
    top_update_free(old);
    if (++ui->shown == count) {
        ui->quits = true;
        if (u->trouble[0] != '\0') ui->status = u->status;
    }
}

/* --- Keys ------------------------------------------------------------------------------ */

enum key {
    KEY_NONE = 256,
    KEY_UP,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_ESCAPE,
};

static const struct {
    const char *sequence; /* After the escape character. */
    int key;
} sequences[] = {{"[A", KEY_UP},    {"OA", KEY_UP},       {"[B", KEY_DOWN},
                 {"OB", KEY_DOWN},  {"[H", KEY_HOME},     {"OH", KEY_HOME},
                 {"[1~", KEY_HOME}, {"[F", KEY_END},      {"OF", KEY_END},
                 {"[4~", KEY_END},  {"[5~", KEY_PAGE_UP}, {"[6~", KEY_PAGE_DOWN}};

/* Return the first key in the n bytes at `s`, and its length. */
static int key_at(const char *s, size_t n, size_t *length)
{
    *length = 1;
    if (s[0] != '\033') return (unsigned char)s[0];
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        size_t bytes = strlen(sequences[i].sequence);
        if (bytes > n - 1 || memcmp(s + 1, sequences[i].sequence, bytes) != 0) continue;
        *length = bytes + 1;
        return sequences[i].key;
    }
    if (n == 1 || (s[1] != '[' && s[1] != 'O')) return KEY_ESCAPE;
    /* An unknown sequence: skip it. It ends with a letter or "~". */
    for (*length = 2; *length < n; (*length)++)
        if (s[*length] >= '@' && s[*length] <= '~') break;
    if (*length < n) (*length)++;
    return KEY_NONE;
}

static void move_to(struct ui *ui, size_t n)
{
    size_t count = ui->update != NULL ? ui->update->count : 0;
    ui->view.selected = n < count ? n : count > 0 ? count - 1 : 0;
}

/* Move the cursor, or scroll, by this many lines. */
static void move_by(struct ui *ui, size_t lines, bool down)
{
    struct top_view *v = &ui->view;
    size_t *at = v->page == TOP_DETAIL ? &v->scroll : &v->selected;
    size_t n = down ? *at + lines : *at > lines ? *at - lines : 0;
    if (v->page == TOP_DETAIL) v->scroll = n;
    else move_to(ui, n);
}

static void sort_by(struct ui *ui, enum top_order order)
{
    struct top_view *v = &ui->view;
    v->want.order = order;
    v->selected = v->want.first = 0;
    if (ui->update != NULL) top_sort(ui->update, order, v->want.reversed);
    tell_want(ui, !v->paused);
}

static void set_detail(struct ui *ui, const struct top_lock *l)
{
    struct top_want *w = &ui->view.want;
    free(w->detail);
    w->detail = NULL;
    w->detail_bytes = 0;
    ui->view.scroll = 0;
    ui->view.page = TOP_LIST;
    if (l != NULL && (w->detail = malloc(l->key_bytes + 1)) != NULL) {
        memcpy(w->detail, l->key, l->key_bytes + 1);
        w->detail_bytes = l->key_bytes;
        ui->view.page = TOP_DETAIL;
    }
    tell_want(ui, l != NULL);
}

static void type_filter(struct ui *ui, int key)
{
    struct top_view *v = &ui->view;
    size_t n = strlen(v->typed);
    if (key == '\r' || key == '\n') {
        memcpy(v->want.filter, v->typed, sizeof v->typed);
        v->typing = false;
        v->selected = v->want.first = 0;
        v->key_columns = 0;
        tell_want(ui, true);
    } else if (key == KEY_ESCAPE) v->typing = false;
    else if (key == 0x7f || key == '\b') {
        /* Remove a whole character. */
        while (n > 0 && ((unsigned char)v->typed[n - 1] & 0xc0) == 0x80) n--;
        v->typed[n > 0 ? n - 1 : 0] = '\0';
    } else if (key >= ' ' && key < KEY_NONE && n + 1 < sizeof v->typed) {
        v->typed[n] = (char)key;
        v->typed[n + 1] = '\0';
    }
}

static void go_back(struct ui *ui)
{
    struct top_view *v = &ui->view;
    if (v->page == TOP_DETAIL) set_detail(ui, NULL);
    else v->page = v->want.detail != NULL ? TOP_DETAIL : TOP_LIST;
}

static void on_enter(struct ui *ui)
{
    const struct top_update *u = ui->update;
    if (ui->view.page != TOP_LIST) go_back(ui);
    else if (u != NULL && ui->view.selected < u->count)
        set_detail(ui, &u->locks[ui->view.selected]);
}

static void on_key(struct ui *ui, int key)
{
    struct top_view *v = &ui->view;
    size_t page = v->want.rows > 0 ? v->want.rows : 1;
    if (v->typing) {
        type_filter(ui, key);
        return;
    }
    switch (key) {
        case 'q': ui->quits = true; return;
        case 'w': sort_by(ui, TOP_BY_WAITERS); return;
        case 't': sort_by(ui, TOP_BY_WAIT); return;
        case 'h': sort_by(ui, TOP_BY_HELD); return;
        case 'k': sort_by(ui, TOP_BY_KEY); return;
        case 'r':
            v->want.reversed = !v->want.reversed;
            sort_by(ui, v->want.order);
            return;
        case '/':
            if (v->page != TOP_LIST) return;
            v->typing = true;
            memcpy(v->typed, v->want.filter, sizeof v->typed);
            return;
        case ' ':
            v->paused = !v->paused;
            tell_paused(ui);
            return;
        case '?':
            if (v->page == TOP_HELP) go_back(ui);
            else v->page = TOP_HELP;
            return;
        case '\r':
        case '\n': on_enter(ui); return;
        case KEY_ESCAPE: go_back(ui); return;
        case KEY_UP: move_by(ui, 1, false); return;
        case KEY_DOWN: move_by(ui, 1, true); return;
        case KEY_PAGE_UP: move_by(ui, page, false); return;
        case KEY_PAGE_DOWN: move_by(ui, page, true); return;
        case KEY_HOME: move_by(ui, SIZE_MAX, false); return;
        case KEY_END:
            if (ui->update != NULL) move_by(ui, ui->update->count, true);
            return;
        default: return;
    }
}

/* Whether the n bytes at `s` are the beginning of a sequence. */
static bool is_cut(const char *s, size_t n)
{
    if (n == 0 || s[0] != '\033') return false;
    if (n == 1) return true;
    for (size_t i = 2; i < n; i++)
        if (s[i] >= '@' && s[i] <= '~') return false;
    return s[1] == '[' || s[1] == 'O';
}

/* Read the bytes that have come, after the `have` bytes of a sequence that was cut. Returns their
 * number; if the terminal is gone, quits. */
static size_t read_bytes(struct ui *ui, char *keys, size_t have)
{
    ssize_t n = read(STDIN_FILENO, keys + have, KEYS_SIZE - have);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return have;
    if (n <= 0) ui->quits = true;
    return have + (n > 0 ? (size_t)n : 0);
}

static void read_keys(struct ui *ui)
{
    struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
    char keys[KEYS_SIZE];
    size_t n = read_bytes(ui, keys, 0);
    for (size_t at = 0, length; at < n && !ui->quits; at += length) {
        /* The rest of a sequence follows at once; after the escape key, nothing does. */
        while (is_cut(keys + at, n - at) && n - at < SEQUENCE_MAX &&
               poll(&more, 1, ESCAPE_MS) > 0 && !ui->quits) {
            memmove(keys, keys + at, n - at);
            n = read_bytes(ui, keys, n - at);
            at = 0;
        }
        on_key(ui, key_at(keys + at, n - at, &length));
    }
}

/* --- Signals ---------------------------------------------------------------------------- */

static const int heeded[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                             SIGTSTP, SIGCONT, SIGWINCH};

static void on_signal(struct ui *ui, int sig)
{
    switch (sig) {
        case SIGWINCH: return; /* draw() asks for the size. */
        case SIGTSTP:
            top_screen_leave();
            if (!cli_stop_job(SIGTSTP, false) && !top_screen_enter()) ui->quits = true;
            return; /* SIGCONT follows. */
        case SIGCONT:
            if (!top_screen_enter()) ui->quits = true;
            return;
        default: ui->end = sig; ui->quits = true;
    }
}

static void read_signals(struct ui *ui)
{
    struct signalfd_siginfo s;
    while (!ui->quits && read(ui->signals, &s, sizeof s) == (ssize_t)sizeof s)
        on_signal(ui, (int)s.ssi_signo);
}

/* Block the signals for this thread and the next ones, except those that are ignored. */
static int open_signals(void)
{
    sigset_t set;
    struct sigaction now;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof heeded / sizeof *heeded; i++)
        if (sigaction(heeded[i], NULL, &now) != 0 || now.sa_handler != SIG_IGN)
            sigaddset(&set, heeded[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* --- The loop ---------------------------------------------------------------------------- */

static void show(struct ui *ui, uint64_t count)
{
    struct pollfd fds[] = {{.fd = ui->signals, .events = POLLIN},
                           {.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = ui->live->event, .events = POLLIN}};
    while (!ui->quits) {
        draw(ui);
        if (poll(fds, sizeof fds / sizeof *fds, DRAW_MS) < 0 && errno != EINTR) return;
        if (fds[0].revents != 0) read_signals(ui);
        if (!ui->quits && fds[1].revents != 0) read_keys(ui);
        if (!ui->quits && fds[2].revents != 0) take_update(ui, count);
    }
}

static bool start(struct live *l, pthread_t *thread)
{
    pthread_condattr_t monotonic;
    l->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return l->event >= 0 && pthread_mutex_init(&l->mutex, NULL) == 0 &&
           pthread_condattr_init(&monotonic) == 0 &&
           pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(&l->changed, &monotonic) == 0 &&
           pthread_create(thread, NULL, read_updates, l) == 0;
}

int top_live(struct top_source *source, int64_t interval_ms, uint64_t count)
{
    /* The other thread may use it until the process ends. */
    static struct live live;
    struct ui ui = {.live = &live, .update_ms = cli_now_ms()};
    pthread_t thread;
    live.source = source;
    live.interval_ms = interval_ms;
    ui.view.colours = cli_has_colours();
    cli_cells_begin();
    ui.signals = open_signals();
    top_screen_size(&ui.view.rows, &ui.view.columns);
    live.want.rows = ui.view.want.rows = top_rows(&ui.view, NULL);
    if (ui.signals < 0 || !start(&live, &thread))
        return cli_status_error("cannot start", SLUICE_EIO);
    if (!top_screen_enter()) return cli_status_error("the terminal", SLUICE_EIO);
    show(&ui, count);
    top_screen_leave();
    if (ui.end != 0) cli_end_by(ui.end);
    return ui.status < 0 ? cli_status_error("an update", ui.status) : ui.status;
}
