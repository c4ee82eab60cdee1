/* parcel.h - what travels: between nodes, and between a client and its node. */
#ifndef SL_SIM_PARCEL_H
#define SL_SIM_PARCEL_H

#include "majority/node.h"

#define SL_PARCEL_BYTES 96

struct parcel {
    struct parcel *next;
    union {
        struct sl_message message;
        struct sl_node_request ask;
        struct {
            int status;
            struct sl_grant grant;
            int64_t number;
        } answer;
        struct {
            enum sl_node_event_type type;
            uint32_t key;
            sl_fence fence;
            uint64_t session;
        } news;
    };
    char bytes[SL_PARCEL_BYTES]; /* Of the message: key, value, note. */
};

#endif /* SL_SIM_PARCEL_H */
