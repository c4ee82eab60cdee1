/* message.h - the messages between the nodes of a cluster on etcd, about requests and grants.
 *
 * A server sends each message as one command of the Redis protocol over the link between two
 * nodes; sl_failover_write() and sl_failover_read() encode and decode it. Messages on one link
 * arrive in order. If the link ends, messages are lost, and a new route begins.
 *
 *     to the keeper                        from the keeper
 *     COME term                            HERE term, or NOT term: it is not the keeper
 *     WITHDRAW origin key fence
 *     RECLAIM session age grant            LOST session fence
 *     READY age                            HERE term
 *     DO session waited resp3 last bytes   SAY session what tx bytes
 *                                          OUTCOME session key id bytes
 *     ORIGIN session origin
 *     CLIENT session name address          CLIENT 0 name address
 *     END session cut                      CUT session
 *     FAIL session command                 HELD session fresh age grant
 *     LISTEN yes                           EVENT channel text
 *     CLOCK ms                             NOTE ms grant
 *     NOTED number                         GONE fence ...
 *                                          MARK number
 *                                          COMPLETE
 *                                          QUIET ms node
 *     between all nodes: DOUBT term sight
 *
 * A route begins with COME. If the keeper answers HERE, the node sends its withdrawals, the grants
 * in its ledger, then READY, then requests. The keeper confirms READY with a second HERE.
 *
 * ORIGIN is the first message of a session, and gives its origin (table.h). CLIENT names the client of
 * a session. With session 0, it names the client of the grant in the next NOTE, RECLAIM 0, or HELD of
 * an extension. WITHDRAW asks the keeper to release the grants with this origin whose fence is above
 * this one, because no client knows of them. With FAIL, a node reports that it has rejected a command
 * of a transaction; with LOST, the keeper rejects a grant.
 *
 * If a DO has NOTIFY and waits, its reply is QUEUED, and OUTCOME follows later: the reply that the
 * request would have had without NOTIFY. Meanwhile the session sends other commands.
 *
 * The time in NOTE is by the receiver's clock. NOTED answers MARK: the node has recorded all notes
 * before it. The age in RECLAIM is the time since HERE arrived; in READY, it is the time for which the
 * ledger has been complete. With COMPLETE, the keeper declares the ledger complete: it has sent the
 * short leases that the ledger lacked, in notes. QUIET answers CLOCK: the keeper grants nothing for
 * this time, and waits for the report of `node` (0: it waits for no report). */
#ifndef SL_FAILOVER_MESSAGE_H
#define SL_FAILOVER_MESSAGE_H

#include "failover/election.h"
#include "locks/client.h"
#include "locks/table.h"
#include "resp/reader.h"
#include "resp/writer.h"

/* MESSAGE(TYPE, fields): `fields` lists the fields on the wire, in this order. struct
 * sl_failover_message gives the letter of each field. On the wire, the type is "R." and its
 * name. The most frequent types come first. */
#define SL_FAILOVER_MESSAGE_MAP(MESSAGE) \
    MESSAGE(DO, "smylb")                 \
    MESSAGE(SAY, "swxb")                 \
    MESSAGE(OUTCOME, "sknb")             \
    MESSAGE(HELD, "symr")                \
    MESSAGE(GONE, "g")                   \
    MESSAGE(NOTE, "mr")                  \
    MESSAGE(MARK, "f")                   \
    MESSAGE(NOTED, "f")                  \
    MESSAGE(CLIENT, "sna")               \
    MESSAGE(RECLAIM, "smr")              \
    MESSAGE(ORIGIN, "so")                \
    MESSAGE(END, "sy")                   \
    MESSAGE(CUT, "s")                    \
    MESSAGE(WITHDRAW, "okf")             \
    MESSAGE(LOST, "sf")                  \
    MESSAGE(FAIL, "sb")                  \
    MESSAGE(EVENT, "cb")                 \
    MESSAGE(CLOCK, "m")                  \
    MESSAGE(QUIET, "mw")                 \
    MESSAGE(LISTEN, "y")                 \
    MESSAGE(DOUBT, "tv")                 \
    MESSAGE(COME, "t")                   \
    MESSAGE(HERE, "t")                   \
    MESSAGE(NOT, "t")                    \
    MESSAGE(COMPLETE, "")                \
    MESSAGE(READY, "m")

enum sl_failover_message_type {
    SL_FAILOVER_NONE,
#define MESSAGE(type, fields) SL_FAILOVER_##type,
    SL_FAILOVER_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
        SL_FAILOVER_MESSAGE_COUNT
};

/* Flags in `what` of SAY. LAST: these bytes complete the reply. MORE: more bytes of the reply or
 * push follow. */
#define SL_SAY_LAST 1u
#define SL_SAY_MORE 2u

#define SL_GONE_MAX 60u /* Maximum fences in one GONE. */

struct sl_route_request;

/* All bytes are borrowed. */
struct sl_failover_message {
    enum sl_failover_message_type type;
    uint64_t term;    /* t  The term. */
    uint64_t session; /* s  The client's session on its node; 0: none. */
    sl_ms ms;        /* m  DO: how long the request has waited. HELD: the time since the
                               *    DO arrived. CLOCK, NOTE: a time. RECLAIM, READY: see above. */
    bool yes;        /* y  DO: RESP3. HELD: a new grant, not an extension. END: the
                               *    connection was cut. LISTEN: the node has subscribers. */
    bool last;       /* l  DO: these bytes complete the command. */
    uint32_t what;   /* w  SAY: flags, see above. */
    uint64_t tx;     /* x  The current transaction of the session; 0: none. */
    uint64_t origin; /* o  The origin of a client. */
    sl_fence fence;  /* f  The fence of a grant. MARK, NOTED: the number of a note. */
    enum sl_peer_state sight; /* v  How the sender sees the keeper. */
    struct sl_bytes key;      /* k  The key; also the key of the grant. */
    struct sl_bytes name;     /* n  The name of a client. OUTCOME: the REQUEST id. */
    struct sl_bytes address;  /* a  The address of a client. */
    struct sl_bytes channel;  /* c  The channel of an event. */
    struct sl_bytes bytes; /* b  A command, a reply, a name of a command, an event. */
    struct sl_grant_view grant; /* r  A grant, with `key` (record.h). */
    const sl_fence *gone;       /* g  Fences of grants that have ended. */
    size_t gone_count;
    /* Not sent. HELD, OUTCOME: the receiver's request with NOTIFY that has this key and id; NULL:
     * none. */
    struct sl_route_request *request;
};

/* Write a message. */
void sl_failover_write(struct sl_resp_writer *w, const struct sl_failover_message *m);

/* Whether a command is a message of this kind, by its name. */
bool sl_failover_is_message(const struct sl_args *a);

/* Read a message. Its bytes are borrowed from the arguments, and its fences from `gone`. Returns
 * false if the arguments are not a valid message. */
bool sl_failover_read(const struct sl_args *a, sl_fence gone[SL_GONE_MAX],
                      struct sl_failover_message *m);

/* The content of the last CLIENT with session 0. */
struct sl_noted_client {
    size_t name_bytes, address_bytes;
    char text[SL_CLIENT_NAME_MAX + SL_CLIENT_ADDRESS_MAX];
};

/* Store a received CLIENT with session 0; copy it to the next grant, and forget it. */
void sl_noted_client_keep(struct sl_noted_client *n,
                          const struct sl_failover_message *m);
void sl_noted_client_take(struct sl_noted_client *n, struct sl_grant_view *v);

#endif /* SL_FAILOVER_MESSAGE_H */
