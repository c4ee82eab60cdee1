/* majority_internal.h - shared by majority.c, majority_start.c and majority_inspect.c. */
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
    struct sl_node_durable next; /* The content that is being written. */
    bool starting;               /* Write synchronously, not on a worker thread. */
    bool has_journal;            /* The last run of this node had a journal. */
    bool was_server;             /* A single server has used the directory. */
    uint64_t copy_cursor;        /* Where the copy of the journal continues. */
    bool writing;                /* The worker thread uses `result` and `writer`. */
    int result;
    int failed; /* The errno of the last write; 0: it succeeded. */
    uint64_t writes, errors;
    uv_work_t work;
};

void sl_majority_init(struct sl_majority *m, struct server *s);

/* Write the file of the node, then call sl_node_written(). */
void sl_majority_write(struct server *s, const struct sl_node_durable *d);

/* Callbacks of the links. */
extern const struct sl_link_handler sl_majority_links;

/* Connect to the nodes of the changed membership, and close links to other nodes. */
void sl_majority_set_links(struct server *s);

/* majority_inspect.c */
void sl_majority_explain(struct request *r, const struct sl_node_answer *a);
void sl_majority_inspect(const struct arbiter *a, struct sl_inspection *i);

#endif /* SL_SERVER_ARBITER_MAJORITY_INTERNAL_H */
