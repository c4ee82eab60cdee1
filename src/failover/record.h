/* record.h - a grant in a message between nodes of a cluster on etcd.
 *
 *     key fence origin shared units per buckets priority lease_ms unsure_ms value note request
 *     digest
 *
 * All fields are bulk strings; numbers are decimal. lease_ms is the remaining time of the lease;
 * -1: no lease. The origin is that of the client (locks/table.h). unsure_ms is that of struct
 * sl_grant_view, but at most lease_ms. The request is the id of the acquisition; empty: none. Other
 * fields of a view are not sent. */
#ifndef SL_FAILOVER_RECORD_H
#define SL_FAILOVER_RECORD_H

#include "locks/table.h"
#include "resp/writer.h"

#define SL_RECORD_FIELDS 14

/* Write a grant. If it has a lease, the lease must not have expired. */
void sl_record_write(struct sl_resp_writer *w, struct sl_bytes key,
                     const struct sl_grant_view *v);

/* Read SL_RECORD_FIELDS arguments. Returns false if they are not a record. Bytes are borrowed. */
bool sl_record_read(const struct sl_bytes *at, struct sl_grant_view *v,
                    struct sl_bytes *key);

#endif /* SL_FAILOVER_RECORD_H */
