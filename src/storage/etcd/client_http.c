/* client_http.c - one attempt at one member, with curl. The client watches curl's
 * sockets and timeouts with its own epoll instance (curl_multi_socket_action).
 *
 * The client must know exactly whether a request was sent, because that decides whether
 * it may send the request again. curl calls `prereq` before it sends the first byte. If
 * curl reuses a connection that the server has closed, curl would repeat the request
 * automatically, even though etcd may have executed it. So the client forbids that. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "storage/etcd/client_internal.h"

#define EVENTS 64
#define ANSWER_CAPACITY_MIN 1024
#define ANSWER_CAPACITY_KEPT ((size_t)64 << 10) /* Free a larger buffer. */

sl_ms sl_etcd_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- The epoll ----------------------------------------------------------------- */

void sl_etcd_http_arm(struct sl_etcd_client *c, sl_ms due_ms)
{
    /* The timer fires earlier and is then armed again. */
    if (due_ms >= c->armed_ms) return;
    if (due_ms < 1) due_ms = 1; /* 0 would disarm the timer. */
    struct itimerspec t = {
        .it_value = {.tv_sec = due_ms / 1000, .tv_nsec = due_ms % 1000 * 1000000}};
    timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &t, NULL);
    c->armed_ms = due_ms;
}

/* Callback: curl wants the client to watch a socket, or to stop watching it. If epoll
 * is out of memory, the request on that socket times out. This function hides the error
 * from curl, which would fail all requests. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *owner, void *known)
{
    struct sl_etcd_client *c = owner;
    struct epoll_event e = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN) e.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) e.events |= EPOLLOUT;
    if (known == NULL || epoll_ctl(c->epoll, EPOLL_CTL_MOD, fd, &e) != 0)
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
    curl_multi_assign(c->multi, fd, c);
    return 0;
}

static int on_time(CURLM *multi, long timeout_ms, void *owner)
{
    struct sl_etcd_client *c = owner;
    (void)multi;
    c->curl_due_ms = SL_NEVER;
    if (timeout_ms == 0) c->curl_due_ms = sl_etcd_now();
    if (timeout_ms > 0)
        c->curl_due_ms = sl_etcd_now() + timeout_ms + 1; /* Rounded up. */
    sl_etcd_http_arm(c, c->curl_due_ms);
    return 0;
}

static void turn_socket(struct sl_etcd_client *c, const struct epoll_event *e)
{
    int mask = 0, running;
    if (e->events & EPOLLIN) mask |= CURL_CSELECT_IN;
    if (e->events & EPOLLOUT) mask |= CURL_CSELECT_OUT;
    if (e->events & (EPOLLERR | EPOLLHUP)) mask |= CURL_CSELECT_ERR;
    curl_multi_socket_action(c->multi, e->data.fd, mask, &running);
}

void sl_etcd_http_turn(struct sl_etcd_client *c,
                       void (*over)(struct sl_etcd_slot *s, CURLcode rc))
{
    struct epoll_event events[EVENTS];
    int running, left;
    int n = epoll_wait(c->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        uint64_t times;
        if (events[i].data.fd != c->timer) turn_socket(c, &events[i]);
        else if (read(c->timer, &times, sizeof times) > 0) c->armed_ms = SL_NEVER;
    }
    if (c->curl_due_ms <= sl_etcd_now()) {
        c->curl_due_ms = SL_NEVER;
        curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    const CURLMsg *m;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        char *s = NULL;
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &s);
        over((struct sl_etcd_slot *)(void *)s, rc);
    }
}

bool sl_etcd_http_open(struct sl_etcd_client *c)
{
    struct epoll_event e = {.events = EPOLLIN};
    c->armed_ms = c->curl_due_ms = SL_NEVER;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    e.data.fd = c->timer;
    if (c->epoll < 0 || c->timer < 0 ||
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timer, &e) != 0)
        return false;
    errno = ENOMEM;
    c->multi = curl_multi_init();
    if (c->multi == NULL) return false;
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_time);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)SL_ETCD_CONNECTIONS_MAX);
    curl_multi_setopt(c->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
                      (long)SL_ETCD_CONNECTIONS_MAX);
    return true;
}

void sl_etcd_http_close(struct sl_etcd_client *c)
{
    if (c->multi != NULL) curl_multi_cleanup(c->multi);
    if (c->timer >= 0) close(c->timer);
    if (c->epoll >= 0) close(c->epoll);
}

/* --- One attempt --------------------------------------------------------------- */

/* Allocate memory for n more bytes of the answer. */
static bool reserve(struct sl_etcd_slot *s, size_t n)
{
    size_t capacity = s->answer_capacity;
    if (capacity < ANSWER_CAPACITY_MIN) capacity = ANSWER_CAPACITY_MIN;
    while (capacity < s->answer_bytes + n + 1) capacity *= 2;
    if (capacity == s->answer_capacity) return true;
    char *more = realloc(s->answer, capacity);
    if (more == NULL) return false;
    s->answer = more;
    s->answer_capacity = capacity;
    return true;
}

static void heard(struct sl_etcd_slot *s)
{
    s->heard = true;
    s->heard_ms = sl_etcd_now();
}

static size_t on_bytes(char *at, size_t one, size_t n, void *owner)
{
    struct sl_etcd_slot *s = owner;
    (void)one;
    heard(s);
    assert(s->answer_bytes <= s->bytes_max);
    s->too_big = n > s->bytes_max - s->answer_bytes;
    if (s->too_big) return 0;
    s->no_memory = !reserve(s, n);
    if (s->no_memory) return 0;
    memcpy(s->answer + s->answer_bytes, at, n);
    s->answer_bytes += n;
    s->answer[s->answer_bytes] = '\0';
    return n;
}

static size_t on_header(char *at, size_t one, size_t n, void *owner)
{
    struct sl_etcd_slot *s = owner;
    (void)at;
    heard(s);
    return one * n;
}

static bool something_was_sent(const struct sl_etcd_slot *s)
{
    long bytes = 0;
    curl_easy_getinfo(s->easy, CURLINFO_REQUEST_SIZE, &bytes);
    return s->issued && bytes > 0;
}

/* Callback: curl is connected and is about to send the request, for the first time or
 * again. */
static int on_request(void *owner, char *to_ip, char *from_ip, int to_port,
                      int from_port)
{
    struct sl_etcd_slot *s = owner;
    (void)to_ip, (void)from_ip, (void)to_port, (void)from_port;
    if (!s->repeatable && something_was_sent(s)) return CURL_PREREQFUNC_ABORT;
    s->issued = true;
    return CURL_PREREQFUNC_OK;
}

/* Callback: open a socket as curl does, but close-on-exec. */
static curl_socket_t on_open(void *owner, curlsocktype purpose,
                             struct curl_sockaddr *to)
{
    (void)owner, (void)purpose;
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* Set the options that are the same for all requests. */
static bool set_options(struct sl_etcd_slot *s)
{
    const struct sl_etcd_client *c = s->c;
    CURL *e = s->easy;
    long idle_s = c->answer_ms < 2000 ? 1 : (long)(c->answer_ms / 1000);
    curl_easy_setopt(e, CURLOPT_PRIVATE, s);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* Do not wait for a name server. */
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->error);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, idle_s);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, idle_s);
    /* Connecting may take half of the time for an answer; the other half is for the
     * next member. */
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(c->answer_ms + 1) / 2);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_request);
    curl_easy_setopt(e, CURLOPT_PREREQDATA, s);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_open);
    return curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           (c->ca == NULL || curl_easy_setopt(e, CURLOPT_CAINFO, c->ca) == CURLE_OK) &&
           (c->cert == NULL ||
            curl_easy_setopt(e, CURLOPT_SSLCERT, c->cert) == CURLE_OK) &&
           (c->key == NULL || curl_easy_setopt(e, CURLOPT_SSLKEY, c->key) == CURLE_OK);
}

static bool has_easy(struct sl_etcd_slot *s)
{
    if (s->easy != NULL) return true;
    s->easy = curl_easy_init();
    if (s->easy == NULL) return false;
    if (set_options(s)) return true;
    curl_easy_cleanup(s->easy);
    s->easy = NULL;
    return false;
}

static bool add_header(struct sl_etcd_slot *s, const char *line)
{
    struct curl_slist *more = curl_slist_append(s->headers, line);
    if (more != NULL) s->headers = more;
    return more != NULL;
}

/* Build the headers if the token has changed. curl reads the headers until an attempt
 * ends, so change them only between attempts. */
static bool has_headers(struct sl_etcd_slot *s)
{
    const struct sl_etcd_client *c = s->c;
    uint64_t wanted = s->without_token ? 0 : c->token_number;
    if (s->headers != NULL && s->headers_of == wanted) return true;
    char *line = NULL;
    curl_slist_free_all(s->headers);
    s->headers = NULL;
    /* An empty "Expect" header makes curl send a long body without asking first. */
    bool ok = add_header(s, "Content-Type: application/json") &&
              add_header(s, "Expect:");
    if (ok && !s->without_token && c->token != NULL) {
        ok = asprintf(&line, "Authorization: %s", c->token) >= 0;
        ok = ok && add_header(s, line);
        if (line != NULL) explicit_bzero(line, strlen(line));
        free(line);
    }
    if (!ok) {
        curl_slist_free_all(s->headers);
        s->headers = NULL;
    }
    s->headers_of = wanted;
    return ok;
}

static bool set_request(struct sl_etcd_slot *s)
{
    char *url = NULL;
    if (asprintf(&url, "%s%s", s->c->members[s->member].url, s->path) < 0) return false;
    bool ok = curl_easy_setopt(s->easy, CURLOPT_URL, url) == CURLE_OK;
    free(url);
    curl_easy_setopt(s->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->body.n);
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body.at);
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->headers);
    return ok;
}

bool sl_etcd_http_begin(struct sl_etcd_slot *s)
{
    s->issued = s->heard = s->too_big = s->no_memory = false;
    s->answer_bytes = 0;
    s->error[0] = '\0';
    if (s->answer != NULL) s->answer[0] = '\0';
    s->begun_ms = s->heard_ms = sl_etcd_now();
    return has_easy(s) && has_headers(s) && set_request(s) &&
           curl_multi_add_handle(s->c->multi, s->easy) == CURLM_OK;
}

bool sl_etcd_http_end(struct sl_etcd_slot *s)
{
    bool sent = something_was_sent(s);
    curl_multi_remove_handle(s->c->multi, s->easy);
    return sent;
}

int sl_etcd_http_status(const struct sl_etcd_slot *s)
{
    long status = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

void sl_etcd_http_message(struct sl_etcd_slot *s, CURLcode rc)
{
    long error = 0;
    const char *text = s->error[0] != '\0' ? s->error : curl_easy_strerror(rc);
    curl_easy_getinfo(s->easy, CURLINFO_OS_ERRNO, &error);
    if (rc == CURLE_COULDNT_CONNECT && error != 0) text = strerror((int)error);
    if (rc == CURLE_OK) text = "the reply is not from etcd";
    sl_etcd_one_line(s->message, sizeof s->message, text, strlen(text));
}

void sl_etcd_http_free_answer(struct sl_etcd_slot *s)
{
    if (s->answer_capacity <= ANSWER_CAPACITY_KEPT) return;
    free(s->answer);
    s->answer = NULL;
    s->answer_capacity = s->answer_bytes = 0;
}

void sl_etcd_http_close_slot(struct sl_etcd_slot *s)
{
    if (s->easy != NULL) curl_easy_cleanup(s->easy);
    for (struct curl_slist *h = s->headers; h != NULL; h = h->next)
        explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(s->headers);
    free(s->answer);
}
