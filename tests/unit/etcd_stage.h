/* etcd_stage.h - for tests: members of an etcd, each a process with a directory and ports of its
 * own, that are killed and paused. They end with the test, however that ends. */
#ifndef SLUICE_ETCD_STAGE_H
#define SLUICE_ETCD_STAGE_H

#include <stdbool.h>
#include <sys/types.h>

#define ETCD_MEMBERS_MAX 5

struct etcd_stage {
    int count;
    char directory[128]; /* In TMPDIR. */
    char members[400];   /* All their URLs, as the setting has them. */
    bool tls;            /* Certificates: see etcd_begin_tls(). */
    struct {
        pid_t pid; /* 0: it does not run. */
        int port, peer_port;
        char url[64];
    } is[ETCD_MEMBERS_MAX];
};

/* This many members, and all of them answer. False: there is no etcd here: skip(). */
bool etcd_begin(struct etcd_stage *e, int count);
/* One member that wants https: directory/ca.pem, cert.pem and key.pem are for its clients,
 * other.pem is a certificate that it does not take, and that is not its own. */
bool etcd_begin_tls(struct etcd_stage *e);
void etcd_end(struct etcd_stage *e);

void etcd_kill(struct etcd_stage *e, int member);
void etcd_start(struct etcd_stage *e, int member); /* Again, with what it had. */
void etcd_pause(struct etcd_stage *e, int member);
void etcd_resume(struct etcd_stage *e, int member);

/* All that run and are not paused say that they are healthy: there is a leader. */
void etcd_await(struct etcd_stage *e);
int etcd_leader(struct etcd_stage *e); /* Which member it is. */

/* A request of JSON to a member, without the client that is tested: the answer, the
 * caller's; NULL: none. `status`, where it is not NULL, is that of HTTP. */
char *etcd_ask(const struct etcd_stage *e, int member, const char *path,
               const char *json, int *status);

#endif /* SLUICE_ETCD_STAGE_H */
