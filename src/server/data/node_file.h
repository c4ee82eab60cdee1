/* node_file.h - the file FOLDER/node: what a node has to know after a restart.
 *
 *     sluice node 1                     the format (text_file.h)
 *     id 1                              which node's it is
 *     birth 0123456789abcdef            and which folder
 *     fence_limit 1794752554123456      no fence above it was voted for
 *     lease_longest_ms 60000            no lease longer than that, of those that may live
 *     promised 0000000000000003 2       a ballot of the next list: number, node
 *     accepted 0000000000000000 0
 *     force 4 3 0 0123456789abcdef      a list: version, nodes, who was added, the cluster
 *     node 1 0123456789abcdef 10.0.0.1:5627   its nodes, each with its birth
 *     vote 0 0 0 0000000000000000
 *     stored 0 0 0 0000000000000000
 *     births 2                          so many lines follow
 *     of 1 0123456789abcdef             a node, and which folder it had
 *     checksum 0123456789abcdef */
#ifndef SL_SERVER_DATA_NODE_FILE_H
#define SL_SERVER_DATA_NODE_FILE_H

#include "majority/node.h"
#include "server/data/text_file.h"

#define SL_NODE_FORMAT 1

/* Put it in the place of the old one. 0, or an errno. On any thread, one at a time. */
int sl_node_file_write(struct sl_textfile_writer *w, int folder,
                       const struct sl_node_durable *d);

enum sl_found sl_node_file_read(int folder, struct sl_node_durable *out);

#endif /* SL_SERVER_DATA_NODE_FILE_H */
