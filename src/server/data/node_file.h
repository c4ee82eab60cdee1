/* node_file.h - the file "node" in the data directory: the state that a node needs after a
 * restart.
 *
 *     sluice node 2                     the format (text_file.h)
 *     id 1                              the node that owns this file
 *     birth 0123456789abcdef            identifies this data directory
 *     fence_limit 1794752554123456      this node has not voted for a higher fence
 *     lease_longest_ms 0                after a start, wait for leases of this length that are not
 *                                       in the journal
 *     promised 0000000000000003 2       a ballot of a membership change: number, node
 *     accepted 0000000000000000 0
 *     force 4 3 0 0123456789abcdef      the current membership: version, nodes, added node, cluster
 *     node 1 0123456789abcdef 10.0.0.1:5627   its nodes, each with its birth
 *     vote 0 0 0 0000000000000000
 *     stored 0 0 0 0000000000000000
 *     births 2                          the number of lines that follow
 *     of 1 0123456789abcdef             the last known birth of a node
 *     checksum 0123456789abcdef */
#ifndef SL_SERVER_DATA_NODE_FILE_H
#define SL_SERVER_DATA_NODE_FILE_H

#include "majority/node.h"
#include "server/data/text_file.h"

/* In format 1, lease_longest_ms was that of all leases, and there was no journal. */
#define SL_NODE_FORMAT 2
#define SL_NODE_FORMAT_OLDEST 1

/* Replace the file. Returns 0 or an errno. May run on any thread, but not concurrently. */
int sl_node_file_write(struct sl_textfile_writer *w, int directory,
                       const struct sl_node_durable *d);

/* Read the file. *has_journal: the node that wrote it had a journal, too. */
enum sl_found sl_node_file_read(int directory, struct sl_node_durable *out,
                                bool *has_journal);

#endif /* SL_SERVER_DATA_NODE_FILE_H */
