#include "trio.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "http.h"
#include "process.h"

#define READY_MS 60000
#define OPTIONS_MAX 8

static const char *places_find(struct trio_places *p, const struct trio_want *want)
{
    const struct relay *relay = want->relay;
    size_t n = 0, urls = 0;
    for (uint32_t i = 0; i < TRIO; i++) {
        p->ports[i] = free_port();
        if (p->node_ports[i] == 0) p->node_ports[i] = free_port();
        if (p->ports[i] < 0 || p->node_ports[i] < 0) return "no free port";
        int seen = relay != NULL ? relay->from[i] : p->node_ports[i];
        n += (size_t)snprintf(p->list + n, sizeof p->list - n,
                              want->kind == NODE ? "%s%u=127.0.0.1:%d"
                                                 : "%sm%u=http://127.0.0.1:%d",
                              i > 0 ? "," : "", i + 1, seen);
        if (want->etcd != NULL)
            urls += (size_t)snprintf(p->urls + urls, sizeof p->urls - urls,
                                     "%shttp://127.0.0.1:%d", i > 0 ? "," : "",
                                     want->etcd->members[i].port);
    }
    return NULL;
}

/* ---- Sluice ---- */

static const char *node_spawn(struct trio *t, uint32_t i)
{
    const struct trio_places *p = &t->places;
    struct subject *s = &t->members[i];
    char id[12], port[12], node_port[12], data[96];
    s->port = p->ports[i];
    snprintf(id, sizeof id, "%u", i + 1);
    snprintf(port, sizeof port, "%d", p->ports[i]);
    snprintf(node_port, sizeof node_port, "%d", p->node_ports[i]);
    snprintf(data, sizeof data, "%s/data", s->directory);
    const char *arguments[32] = {t->want.program,
                                 "--port",
                                 port,
                                 "--node",
                                 id,
                                 "--peers",
                                 p->list,
                                 "--node-port",
                                 node_port,
                                 "--data",
                                 data,
                                 "--secret",
                                 "the bench knows this secret",
                                 "--bootstrap"};
    uint32_t n = 14;
    if (t->want.etcd != NULL) {
        arguments[n++] = "--etcd";
        arguments[n++] = p->urls;
        arguments[n++] = "--etcd-prefix";
        arguments[n++] = t->want.prefix;
    }
    for (uint32_t k = 0; t->want.options != NULL && k < OPTIONS_MAX; k++) {
        if (t->want.options[k] == NULL) break;
        arguments[n++] = t->want.options[k];
    }
    return subject_spawn(s, arguments, -1);
}

/* Wait until the node grants a lock: then it has found a majority. */
static const char *node_ready(struct subject *s)
{
    static const char acquire[] =
        "*4\r\n$7\r\nACQUIRE\r\n$5\r\nready\r\n$5\r\nLEASE\r\n"
        "$3\r\n100";
    int64_t until_ns = now_ns() + (int64_t)READY_MS * 1000000;
    static char said[200];
    const char *reply;
    size_t n;
    const char *wrong = subject_reach(s);
    while (wrong == NULL) {
        wrong = line_ask(&s->line, acquire, &reply, &n);
        if (wrong != NULL || (n > 1 && reply[0] == '*' && reply[1] == '5')) break;
        if (now_ns() > until_ns) {
            snprintf(said, sizeof said, "a node of Sluice does not grant locks: %.*s",
                     (int)strcspn(reply, "\r\n"), reply);
            return said;
        }
        usleep(20000);
    }
    return wrong;
}

/* Does this node know a keeper, and can it reach it? Sets the keeper and its term. */
static bool has_keeper(struct subject *s, int64_t *node, int64_t *term)
{
    *node = subject_info(s, "keeper", "keeper_node");
    *term = subject_info(s, "keeper", "term");
    return *node > 0 && *term > 0 && subject_info(s, "keeper", "keeper_reachable") == 1;
}

static bool agree(struct trio *t)
{
    int64_t node, term, first_node = 0, first_term = 0;
    for (uint32_t i = 0; i < TRIO; i++) {
        if (!has_keeper(&t->members[i], &node, &term)) return false;
        if (i == 0) {
            first_node = node;
            first_term = term;
        }
        if (node != first_node || term != first_term) return false;
    }
    t->best = (uint32_t)first_node - 1;
    return t->best < TRIO;
}

const char *trio_agree(struct trio *t)
{
    int64_t until_ns = now_ns() + (int64_t)READY_MS * 1000000;
    while (!agree(t)) {
        if (interrupted()) return "interrupted";
        if (now_ns() > until_ns) return "Sluice: the nodes do not agree on a keeper";
        usleep(20000);
    }
    return NULL;
}

const char *trio_restart(struct trio *t, uint32_t i)
{
    const char *wrong = node_spawn(t, i);
    return wrong != NULL ? wrong : subject_reach(&t->members[i]);
}

/* ---- etcd ---- */

static const char *etcd_spawn(struct trio *t, uint32_t i)
{
    const struct trio_places *p = &t->places;
    struct subject *s = &t->members[i];
    char name[12], data[96], client[48], peer[48];
    s->port = p->ports[i];
    snprintf(name, sizeof name, "m%u", i + 1);
    snprintf(data, sizeof data, "%s/data", s->directory);
    snprintf(client, sizeof client, "http://127.0.0.1:%d", p->ports[i]);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", p->node_ports[i]);
    const char *arguments[] = {t->want.program,
                               "--name",
                               name,
                               "--data-dir",
                               data,
                               "--listen-client-urls",
                               client,
                               "--advertise-client-urls",
                               client,
                               "--listen-peer-urls",
                               peer,
                               "--initial-advertise-peer-urls",
                               peer,
                               "--initial-cluster",
                               p->list,
                               NULL};
    return subject_spawn(s, arguments, -1);
}

/* Wait until the member knows a leader; returns whether it is the leader. */
static const char *etcd_ready(struct subject *s, bool *leads)
{
    int64_t until_ns = now_ns() + (int64_t)READY_MS * 1000000;
    const char *body, *wrong = NULL;
    char leader[32] = "", member[32];
    for (;;) {
        if (s->line.fd < 0) wrong = subject_reach(s);
        if (wrong == NULL)
            wrong = http_ask(&s->line, "/v3/maintenance/status", "{}", &body);
        if (wrong == NULL && json_find(body, "leader", leader, sizeof leader) &&
            json_find(body, "member_id", member, sizeof member) &&
            strcmp(leader, "0") != 0)
            break;
        if (interrupted()) return "interrupted";
        if (s->pid == 0 || now_ns() > until_ns)
            return wrong != NULL ? wrong : "etcd has no leader";
        wrong = NULL;
        close(s->line.fd);
        s->line.fd = -1;
        s->line.from = s->line.to = 0;
        usleep(50000);
    }
    *leads = strcmp(leader, member) == 0;
    return NULL;
}

/* ---- both ---- */

static const char *wait_ready(struct trio *t)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < TRIO && wrong == NULL; i++) {
        bool leads = false;
        wrong = t->want.kind == NODE ? node_ready(&t->members[i])
                                     : etcd_ready(&t->members[i], &leads);
        if (leads) t->best = i;
    }
    return wrong == NULL && t->want.etcd != NULL ? trio_agree(t) : wrong;
}

static const char *try_start(struct trio *t)
{
    struct relay *relay = t->want.relay;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < TRIO && relay != NULL; i++)
        relay->to[i] = t->places.node_ports[i] = free_port();
    if (relay != NULL) wrong = relay_start(relay, t->want.delay_ns);
    if (wrong == NULL) wrong = places_find(&t->places, &t->want);
    for (uint32_t i = 0; i < TRIO && wrong == NULL; i++) {
        wrong = subject_make(&t->members[i], t->want.kind);
        if (wrong != NULL) break;
        wrong = t->want.kind == NODE ? node_spawn(t, i) : etcd_spawn(t, i);
    }
    return wrong != NULL ? wrong : wait_ready(t);
}

const char *trio_start(struct trio *t, const struct trio_want *want)
{
    const char *wrong = NULL;
    /* Another process may have taken the free port in the meantime: try again. */
    for (int i = 0; i < 3; i++) {
        *t = (struct trio){.want = *want};
        wrong = try_start(t);
        if (wrong == NULL) return NULL;
        trio_stop(t);
        if (want->relay != NULL) relay_stop(want->relay);
        if (interrupted()) break;
    }
    return wrong;
}

void trio_stop(struct trio *t)
{
    for (uint32_t i = 0; i < TRIO; i++) subject_stop(&t->members[i]);
}

void trio_serve(const struct trio *t, struct side *side)
{
    for (uint32_t i = 0; i < TRIO; i++)
        side->servers[side->server_count++] = &t->members[i];
}
