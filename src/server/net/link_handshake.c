/* link_handshake.c - the handshake of a link: proofs (link_auth.h), and comparison of settings.
 *
 *     caller                                        callee
 *       NONCE, HELLO and WELCOME between them
 *       SETTINGS BIRTH RUNS LINES -->
 *                            <-- SETTINGS BIRTH RUNS LINES
 *
 * A node that rejects the other one sends REFUSED with the reason, and closes the link. The
 * callee sends its settings only when it has accepted those of the caller. So when the link is up
 * for the caller, it is already up for the callee. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"
#include "base/number.h"
#include "server/net/links_internal.h"

#define SETTINGS_BYTES 8192u
#define NAME "sluice-node"

/* --- Arguments ------------------------------------------------------------ */

static bool is(struct sl_bytes word, const char *text)
{
    return strlen(text) == word.n && memcmp(word.at, text, word.n) == 0;
}

static bool is_command(const struct sl_args *args, const char *name, size_t n)
{
    return args->n == n && is(args->at[0], name);
}

static void write_number(struct sl_resp_writer *w, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    sl_resp_text(w, text);
}

/* --- Rejecting a link ----------------------------------------------------- */

/* Send the reason to the other side, and close the link. */
static void refuse(struct link *k, const char *why)
{
    struct sl_resp_writer *w = sl_link_out(k);
    k->server->links->counts.refused++;
    sl_resp_array(w, 2);
    sl_resp_text(w, "REFUSED");
    sl_resp_text(w, why);
    sl_link_flush(k);
    sl_link_close(k, why);
}

bool sl_link_is_refusal(const struct sl_args *args)
{
    return is_command(args, "REFUSED", 2);
}

void sl_link_refused(struct link *k, const struct sl_args *args)
{
    char why[120];
    struct sl_bytes said = args->at[1];
    snprintf(why, sizeof why, "rejected by the node: %.*s",
             (int)(said.n < 100 ? said.n : 100), said.at);
    sl_link_close(k, why);
}

/* --- Proofs ---------------------------------------------------------------- */

static sl_node_id own_id(const struct link *k)
{
    return (sl_node_id)k->server->settings->node;
}

/* Write the proof for our role. Both nonces are known. */
static void write_proof(struct link *k, struct sl_resp_writer *w)
{
    char proof[SL_HEX_BYTES];
    if (sl_proof_make(&k->handshake, k->role, k->server->settings->secret, proof))
        sl_resp_text(w, proof);
    else w->spilt = true; /* Out of memory. */
}

static bool proof_holds(const struct link *k, struct sl_bytes word)
{
    enum sl_link_role its_role = k->role == SL_CALLER ? SL_CALLEE : SL_CALLER;
    return sl_proof_holds(&k->handshake, its_role, k->server->settings->secret, word);
}

/* The runs of a node as text: epoch, position and whether it is the same life, of each run. */
#define RUN_BYTES 48
#define RUNS_BYTES (SL_NODE_RUNS_MAX * RUN_BYTES)

static void write_runs(struct sl_resp_writer *w, const struct sl_node_identity *self)
{
    char text[RUNS_BYTES] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < self->run_count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64 ":%" PRIu64 ":%d",
                              i > 0 ? "," : "", self->runs[i].epoch,
                              self->runs[i].position, self->runs[i].same_life);
    sl_resp_text(w, text);
}

/* Cut a number that ends with this character, or at the end. */
static bool cut_number(struct sl_bytes *text, char end, uint64_t *out)
{
    const char *at = text->n > 0 ? memchr(text->at, end, text->n) : NULL;
    size_t n = at != NULL ? (size_t)(at - text->at) : text->n;
    if (!sl_parse_u64((struct sl_bytes){text->at, n}, UINT64_MAX, out)) return false;
    size_t used = at != NULL ? n + 1 : n;
    *text = (struct sl_bytes){text->at + used, text->n - used};
    return true;
}

static bool read_runs(struct sl_bytes text, struct sl_node_identity *out)
{
    uint64_t same_life;
    while (text.n > 0) {
        if (out->run_count == SL_NODE_RUNS_MAX) return false;
        struct sl_node_run *run = &out->runs[out->run_count++];
        if (!cut_number(&text, ':', &run->epoch) ||
            !cut_number(&text, ':', &run->position) ||
            !cut_number(&text, ',', &same_life) || same_life > 1 || run->epoch == 0)
            return false;
        run->same_life = same_life == 1;
    }
    return out->run_count > 0;
}

static void write_settings(struct link *k)
{
    char lines[SETTINGS_BYTES] = "";
    struct sl_resp_writer *w = sl_link_out(k);
    const struct sl_link_handler *handler = k->server->links->handler;
    const struct sl_node_identity *self = handler->identity(k->server);
    handler->settings(k->server, lines, sizeof lines);
    sl_resp_array(w, 4);
    sl_resp_text(w, "SETTINGS");
    write_number(w, self->birth);
    write_runs(w, self);
    sl_resp_text(w, lines);
}

static void now_known(struct link *k)
{
    if (k->role == SL_CALLEE) k->server->links->strangers--;
    k->known = true;
    k->phase = SL_LINK_AWAITS_SETTINGS;
    if (k->role == SL_CALLER) write_settings(k);
}

/* Generate our nonce. Returns false if the link was closed. */
static bool draw_nonce(struct link *k)
{
    if (sl_nonce_draw(k->handshake.nonces[k->role])) return true;
    sl_link_close(k, "cannot read random numbers");
    return false;
}

void sl_link_challenge(struct link *k)
{
    struct sl_resp_writer *w;
    if (!draw_nonce(k)) return;
    w = sl_link_out(k);
    sl_resp_array(w, 4);
    sl_resp_text(w, "NONCE");
    sl_resp_text(w, NAME);
    write_number(w, SL_LINK_PROTOCOL);
    sl_resp_text(w, k->handshake.nonces[SL_CALLEE]);
}

static void write_hello(struct link *k)
{
    struct sl_resp_writer *w = sl_link_out(k);
    sl_resp_array(w, 7);
    sl_resp_text(w, "HELLO");
    sl_resp_text(w, NAME);
    write_number(w, SL_LINK_PROTOCOL);
    write_number(w, own_id(k));
    write_number(w, k->id);
    sl_resp_text(w, k->handshake.nonces[SL_CALLER]);
    write_proof(k, w);
}

static void take_nonce(struct link *k, const struct sl_args *args)
{
    uint64_t protocol;
    if (!is_command(args, "NONCE", 4) || !is(args->at[1], NAME) ||
        !sl_parse_u64(args->at[2], UINT32_MAX, &protocol) ||
        !sl_nonce_take(k->handshake.nonces[SL_CALLEE], args->at[3]))
        refuse(k, "the program that answers is not a Sluice node");
    else if (protocol != SL_LINK_PROTOCOL)
        refuse(k, "the node uses another protocol version");
    else if (draw_nonce(k)) {
        k->handshake.ids[SL_CALLER] = own_id(k);
        k->handshake.ids[SL_CALLEE] = k->id;
        k->phase = SL_LINK_AWAITS_WELCOME;
        write_hello(k);
    }
}

/* Send our id and proof. The proof of the caller was correct. */
static void welcome(struct link *k, uint64_t to)
{
    struct sl_resp_writer *w;
    char why[80];
    if (to != own_id(k)) {
        snprintf(why, sizeof why,
                 "the connecting node expects node %" PRIu64 ", but this is node %u",
                 to, own_id(k));
        refuse(k, why);
        return;
    }
    if (k->id == own_id(k)) {
        snprintf(why, sizeof why, "two nodes have the id %u", own_id(k));
        refuse(k, why);
        return;
    }
    w = sl_link_out(k);
    sl_resp_array(w, 4);
    sl_resp_text(w, "WELCOME");
    write_number(w, SL_LINK_PROTOCOL);
    write_number(w, own_id(k));
    write_proof(k, w);
    now_known(k);
}

static void take_hello(struct link *k, const struct sl_args *args)
{
    uint64_t protocol, from, to;
    char why[160];
    if (args->n < 3 || !is(args->at[0], "HELLO") || !is(args->at[1], NAME) ||
        !sl_parse_u64(args->at[2], UINT32_MAX, &protocol)) {
        refuse(k, "this port is for other nodes (node-port)");
        return;
    }
    if (protocol != SL_LINK_PROTOCOL) {
        snprintf(why, sizeof why,
                 "the connecting node uses protocol version %" PRIu64
                 ", this node uses %d; run the same version of Sluice on all nodes",
                 protocol, SL_LINK_PROTOCOL);
        refuse(k, why);
        return;
    }
    if (args->n != 7 || !sl_parse_u64(args->at[3], SL_NODE_ID_MAX, &from) ||
        from == 0 || !sl_parse_u64(args->at[4], SL_NODE_ID_MAX, &to) ||
        !sl_nonce_take(k->handshake.nonces[SL_CALLER], args->at[5])) {
        refuse(k, "this port is for other nodes (node-port)");
        return;
    }
    k->id = (sl_node_id)from;
    k->handshake.ids[SL_CALLER] = k->id;
    k->handshake.ids[SL_CALLEE] = (sl_node_id)to;
    if (!proof_holds(k, args->at[6])) refuse(k, "the secrets differ");
    else welcome(k, to);
}

static void take_welcome(struct link *k, const struct sl_args *args)
{
    uint64_t protocol, id;
    if (!is_command(args, "WELCOME", 4) ||
        !sl_parse_u64(args->at[1], UINT32_MAX, &protocol) ||
        !sl_parse_u64(args->at[2], SL_NODE_ID_MAX, &id)) {
        refuse(k, "the program that answers is not a Sluice node");
    } else if (protocol != SL_LINK_PROTOCOL)
        refuse(k, "the node uses another protocol version");
    else if (id != k->id) refuse(k, "another node answers at this address");
    else if (!proof_holds(k, args->at[3])) refuse(k, "the secrets differ");
    else now_known(k);
}

/* --- Comparing settings ------------------------------------------------------ */

/* Remove the first line from the text. Returns false if there is none. */
static bool cut_line(struct sl_bytes *text, struct sl_bytes *line)
{
    if (text->n == 0) return false;
    const char *end = memchr(text->at, '\n', text->n);
    *line = (struct sl_bytes){text->at, end ? (size_t)(end - text->at) : text->n};
    size_t n = end != NULL ? line->n + 1 : line->n;
    *text = (struct sl_bytes){text->at + n, text->n - n};
    return true;
}

/* Split a line "name=value". */
static struct sl_bytes name_of(struct sl_bytes line, struct sl_bytes *value)
{
    const char *equals = line.n > 0 ? memchr(line.at, '=', line.n) : NULL;
    size_t n = equals != NULL ? (size_t)(equals - line.at) : line.n;
    size_t behind = equals != NULL ? n + 1 : n;
    *value = (struct sl_bytes){line.at + behind, line.n - behind};
    return (struct sl_bytes){line.at, n};
}

static const char nothing[] = "(nothing)";

static struct sl_bytes find(struct sl_bytes text, struct sl_bytes name)
{
    struct sl_bytes line, value, there;
    while (cut_line(&text, &line)) {
        there = name_of(line, &value);
        if (there.n == name.n && memcmp(there.at, name.at, name.n) == 0) return value;
    }
    return (struct sl_bytes){nothing, sizeof nothing - 1};
}

static void put(char out[100], struct sl_bytes b)
{
    snprintf(out, 100, "%.*s", (int)(b.n < 99 ? b.n : 99), b.at);
}

/* Log each setting whose value differs on the other side. */
static void say_differences(const struct link *k, struct sl_bytes ours,
                            struct sl_bytes theirs)
{
    struct sl_bytes line, here, there;
    char node[16], name[100], a[100], b[100];
    snprintf(node, sizeof node, "%u", k->id);
    while (cut_line(&ours, &line)) {
        struct sl_bytes what = name_of(line, &here);
        there = find(theirs, what);
        if (here.n == there.n && memcmp(here.at, there.at, here.n) == 0) continue;
        put(name, what);
        put(a, here);
        put(b, there);
        sl_log(SL_LOG_WARN, "a setting differs between nodes", "setting", name, "node",
               node, "here", a, "there", b, NULL);
    }
}

/* Compare settings. Log the differences only once, until the settings of the other side change. */
static void compare(struct link *k, struct sl_bytes theirs)
{
    char lines[SETTINGS_BYTES] = "";
    struct peer *p = sl_links_peer(k->server->links, k->id);
    uint64_t seen = sl_fnv_add_bytes(SL_FNV_START, theirs.at, theirs.n);
    if (p != NULL && p->differs == seen) return;
    if (p != NULL) p->differs = seen;
    k->server->links->handler->settings(k->server, lines, sizeof lines);
    say_differences(k, (struct sl_bytes){lines, strlen(lines)}, theirs);
}

/* --- The link comes up ---------------------------------------------------- */

/* Whether a setting has our value in the text of the other side. A node whose version lacks this
 * setting behaves as if it had the default, `given`. */
static bool has(struct sl_bytes text, const char *name, const char *given,
                struct sl_bytes ours)
{
    struct sl_bytes value = find(text, (struct sl_bytes){name, strlen(name)});
    if (value.at == nothing) value = (struct sl_bytes){given, strlen(given)};
    return value.n == ours.n && memcmp(value.at, ours.at, ours.n) == 0;
}

/* Check the settings that determine which arbiter decides a key. Two nodes that differ in them must
 * not work together. Returns true, and sets *why, if they differ. */
static bool must_be_equal(const struct link *k, struct sl_bytes theirs,
                          const char **why)
{
    static const struct {
        const char *name, *given, *why;
    } must[] = {
        {"engine", "none",
         "the values of engine differ; use etcd on all nodes, or on none"},
        {"etcd-prefix", "",
         "the values of etcd-prefix differ; use the same value on all nodes"},
        {"majority-keys", "",
         "the values of majority-keys differ; use the same value on all nodes"}};
    char lines[SETTINGS_BYTES] = "";
    k->server->links->handler->settings(k->server, lines, sizeof lines);
    const struct sl_bytes ours = {lines, strlen(lines)};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++) {
        const struct sl_bytes name = {must[i].name, strlen(must[i].name)};
        *why = must[i].why;
        if (!has(theirs, must[i].name, must[i].given, find(ours, name))) return true;
    }
    return false;
}

static sl_node_id caller_of(const struct link *k)
{
    return k->role == SL_CALLER ? own_id(k) : k->id;
}

/* Whether to keep this link or the other one, if there are two. If each node has opened one,
 * both nodes keep the link that the node with the smaller id opened. If the same node has opened
 * both, they keep the newer one, because that node would not have reconnected if the older link
 * still worked. The node with the smaller id closes the other link, because it knows that both
 * nodes have the link that is kept. The node with the larger id leaves the other link open until
 * it is silent. */
static bool is_kept(const struct link *k, const struct link *old)
{
    return old->close_why != NULL || caller_of(k) <= caller_of(old);
}

/* Mark this link as replaced, because the other one is kept. */
static void replace(struct link *k)
{
    k->replaced = true;
    sl_list_remove(&k->dirty);
    if (own_id(k) < k->id || caller_of(k) == k->id) sl_link_close(k, NULL);
}

/* Ask the handler whether to accept the link. The handler may immediately send to the node. */
static bool is_wanted(struct link *k, const struct sl_node_identity *states,
                      const char **why)
{
    size_t before = k->out.n;
    if (k->role == SL_CALLEE) write_settings(k);
    k->phase = SL_LINK_UP;
    if (k->server->links->handler->up(k->server, k->id, states, why)) return true;
    k->phase = SL_LINK_AWAITS_SETTINGS;
    k->out.n = before;
    return false;
}

static void take_settings(struct link *k, const struct sl_args *args)
{
    struct server *s = k->server;
    const char *why = "the node is not accepted";
    struct sl_node_identity states = {0};
    if (!is_command(args, "SETTINGS", 4) ||
        !sl_parse_u64(args->at[1], UINT64_MAX, &states.birth) ||
        !read_runs(args->at[2], &states)) {
        refuse(k, "the connecting node did not send its settings");
        return;
    }
    struct link *old = sl_links_up(s->links, k->id);
    k->up_ms = s->now.ms;
    sl_links_wake_by(s->links, s->now.ms + SL_LINK_SILENT_MS);
    if (old != NULL && !is_kept(k, old)) {
        k->phase = SL_LINK_UP;
        replace(k);
        return;
    }
    compare(k, args->at[3]);
    if (must_be_equal(k, args->at[3], &why)) {
        refuse(k, why);
        return;
    }
    if (old != NULL) {
        k->talks = old->talks;
        s->links->handler->down(s, k->id, SL_END_REPLACED);
        replace(old);
    }
    if (!is_wanted(k, &states, &why)) refuse(k, why);
}

void sl_link_shake(struct link *k, const struct sl_args *args)
{
    if (sl_link_is_refusal(args)) {
        sl_link_refused(k, args);
        return;
    }
    switch (k->phase) {
        case SL_LINK_AWAITS_NONCE: take_nonce(k, args); break;
        case SL_LINK_AWAITS_HELLO: take_hello(k, args); break;
        case SL_LINK_AWAITS_WELCOME: take_welcome(k, args); break;
        case SL_LINK_AWAITS_SETTINGS: take_settings(k, args); break;
        case SL_LINK_CALLS:
        case SL_LINK_UP: break;
    }
}
