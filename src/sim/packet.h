/* packet.h - the messages between nodes, and between a client and its node. */
#ifndef SL_SIM_PACKET_H
#define SL_SIM_PACKET_H

#include "majority/node.h"

#define SIM_PACKET_BYTES 128

struct sim_packet {
    struct sim_packet *next; /* In the list of unused packets. */
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
            bool at_once;
        } notice; /* An event about a lease of the client. */
    };
    /* The strings of the message: key, value, note, client, REQUEST id. */
    char bytes[SIM_PACKET_BYTES];
};

#endif /* SL_SIM_PACKET_H */
