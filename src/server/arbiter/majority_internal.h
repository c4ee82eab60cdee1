/* majority_internal.h - what majority.c and majority_start.c share. */
#ifndef SL_SERVER_ARBITER_MAJORITY_INTERNAL_H
#define SL_SERVER_ARBITER_MAJORITY_INTERNAL_H

#include "server/arbiter/majority.h"
#include "server/data/directory.h"
#include "server/data/text_file.h"

struct sl_majority {
    struct arbiter arbiter;
    struct sl_node *node;
    struct sl_directory directory;
    struct sl_textfile_writer *writer;
    struct sl_node_durable next; /* What is being written. */
    bool starting;               /* What is to be written is written at once. */
    bool writing;                /* Then `result` and `writer` are the worker's. */
    int result;
    int failed; /* Why the last write failed; 0: it did not. */
    uint64_t writes, errors;
    uv_work_t work;
};

void sl_majority_init(struct sl_majority *m, struct server *s);

/* Write the node's file; sl_node_written() follows. */
void sl_majority_write(struct server *s, const struct sl_node_durable *d);

/* What links call. */
extern const struct sl_link_handler sl_majority_links;

/* The membership has changed: connect with its nodes. */
void sl_majority_set_links(struct server *s);

/* majority_inspect.c */
void sl_majority_explain(struct request *r, const struct sl_node_answer *a);
void sl_majority_inspect(const struct arbiter *a, struct sl_inspection *i);

#endif /* SL_SERVER_ARBITER_MAJORITY_INTERNAL_H */
