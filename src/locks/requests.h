/* requests.h - acquisitions with a REQUEST id, which clients can repeat.
 *
 * A client draws an id for each acquisition. If the reply to ACQUIRE was lost, the client sends the
 * command again with the same id. User, key and id together name one acquisition. Each ACQUIRE that names
 * it is an *attempt*.
 *
 *     state      next state
 *     new        waits; held; or ended, if the reply is nil, or CANCEL names an unknown id
 *     waits      held; absent; or ended, after a timeout or CANCEL
 *     held       ended; or absent, if the table takes back the grant
 *     absent     waits or held, with the next attempt; or ended, after linger_ms or CANCEL
 *     ended      forgotten after keep_ms; or held, if a node reports the grant
 *
 * After an error that decides nothing, such as DRAINED, the id is forgotten at once. While an acquisition
 * waits, one attempt is in the wait queue, and the others have *joined* it. An acquisition is *absent*
 * when the connections of all attempts were lost: the next attempt gets its position in the queue. */
#ifndef SL_LOCKS_REQUESTS_H
#define SL_LOCKS_REQUESTS_H

#include "base/index.h"
#include "base/types.h"

#define SL_REQUEST_ID_MIN 16u /* Bytes. */
#define SL_REQUEST_ID_MAX 128u

struct sl_entry;

struct sl_acquisition {
    struct sl_entry *entry; /* The waiter or the holder; NULL: absent, or ended. */
    struct sl_list joined;  /* The entries of other attempts. */
    struct sl_list
        to_answer; /* In the table's list of acquisitions whose attempts it must answer. */
    struct sl_list in_list; /* In one of the lists of struct sl_requests. */
    sl_ms until_ms;         /* Absent, ended: until when it is remembered. */
    sl_ms since_ms;         /* Absent: its position in the queue, */
    uint64_t number;        /* as in struct sl_wait. */
    uint64_t digest;        /* Of the options that all attempts must have. */
    uint32_t user;
    bool ended;
    bool known;     /* Held: a client knows the grant (sl_table_known()). */
    bool cancelled; /* Ended: a client has cancelled it, so nobody holds its grant. */
    uint8_t id_bytes;
    uint16_t key_bytes;
    char text[]; /* The key, then the id. */
};

struct sl_requests {
    struct sl_index index;        /* All acquisitions. */
    struct sl_list absent, ended; /* Ordered by until_ms. */
    sl_ms keep_ms;
    size_t text_bytes; /* The total size of all keys and ids. */
};

void sl_requests_init(struct sl_requests *r, struct sl_hash_key key, sl_ms keep_ms);

/* Forget all acquisitions. */
void sl_requests_empty(struct sl_requests *r);

/* Returns the acquisition with this name, or NULL. */
struct sl_acquisition *sl_requests_find(const struct sl_requests *r, uint32_t user,
                                        struct sl_bytes key, struct sl_bytes id);

/* Add an acquisition that is not known. It is neither absent nor ended: the caller makes it wait or
 * hold, or ends or forgets it. Copies key and id. Returns NULL when out of memory. */
struct sl_acquisition *sl_requests_add(struct sl_requests *r, uint32_t user,
                                       struct sl_bytes key, struct sl_bytes id,
                                       uint64_t digest);

/* The acquisition has ended: later attempts are rejected. Its entry no longer belongs to it. */
void sl_requests_end(struct sl_requests *r, struct sl_acquisition *a, sl_ms now_ms);

/* Nobody waits for the acquisition now. Keep its position until this time. */
void sl_requests_lose(struct sl_requests *r, struct sl_acquisition *a, sl_ms until_ms);

/* The acquisition was absent or has ended, and waits or is held again. */
void sl_requests_revive(struct sl_acquisition *a);

/* Forget an acquisition, and free it. */
void sl_requests_forget(struct sl_requests *r, struct sl_acquisition *a);

/* Forget the acquisition that ended first. Returns false if none has ended. */
bool sl_requests_forget_oldest(struct sl_requests *r);

/* End the absent acquisitions, and forget the ended ones, whose time has passed: a few in each call.
 * Returns false if there are none. */
bool sl_requests_expire(struct sl_requests *r, sl_ms now_ms);

/* Returns when sl_requests_expire() next has something to do, or SL_NEVER. */
sl_ms sl_requests_due(const struct sl_requests *r);

size_t sl_requests_bytes(const struct sl_requests *r);

static inline struct sl_bytes sl_acquisition_key(const struct sl_acquisition *a)
{
    return (struct sl_bytes){a->text, a->key_bytes};
}

static inline struct sl_bytes sl_acquisition_id(const struct sl_acquisition *a)
{
    return (struct sl_bytes){a->text + a->key_bytes, a->id_bytes};
}

#endif /* SL_LOCKS_REQUESTS_H */
