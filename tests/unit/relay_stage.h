/* relay_stage.h - for tests: a relay in front of a member of an etcd, that loses what it is
 * told to: answers, requests, or requests that come late. */
#ifndef SLUICE_RELAY_STAGE_H
#define SLUICE_RELAY_STAGE_H

#include <stdbool.h>

enum relay_way {
    RELAY_PASS,
    RELAY_LOSE_ANSWER,  /* It is done, and the connection ends. */
    RELAY_LOSE_REQUEST, /* The connection ends before it is. */
    RELAY_LATE,         /* As that; but relay_release() brings it. */
    RELAY_SILENT,       /* Nothing is returned, and nothing is forwarded. */
};

/* From now on at 127.0.0.1, for a member at this port. The URL of the relay. */
const char *relay_begin(int port);
void relay_end(void);

/* Requests with these words in them ("": all) go this way, at most this many (-1: all); all
 * others pass. How many there were since: of answers, when they were lost. */
void relay_lose(enum relay_way way, const char *words, int count);
int relay_lost(void);

/* Send what is late; it is answered. How many there were. */
int relay_release(void);

#endif /* SLUICE_RELAY_STAGE_H */
