/* record.h - a grant in a frame between nodes of a cluster on etcd.
 *
 *     key fence shared units per buckets priority lease_ms value note
 *
 * All fields are bulk strings; numbers are decimal. lease_ms is the remaining time of the lease;
 * -1: no lease. Other fields of a view are not sent. */
#ifndef SL_SERVER_FORWARD_RECORD_H
#define SL_SERVER_FORWARD_RECORD_H

#include "locks/table.h"
#include "resp/writer.h"

/* Write and read a number in a frame. The reader accepts 0 to SL_FENCE_MAX. */
void sl_frame_number(struct sl_resp_writer *w, uint64_t n);
void sl_frame_signed(struct sl_resp_writer *w, int64_t n);
bool sl_frame_read(struct sl_bytes b, uint64_t *out);

#define SL_RECORD_FIELDS 10

/* Write a grant. If it has a lease, the lease must not have expired. */
void sl_record_write(struct sl_resp_writer *w, struct sl_bytes key,
                     const struct sl_grant_view *v);

/* Read SL_RECORD_FIELDS arguments. Returns false if they are not a record. Bytes are borrowed. */
bool sl_record_read(const struct sl_bytes *at, struct sl_grant_view *v,
                    struct sl_bytes *key);

#endif /* SL_SERVER_FORWARD_RECORD_H */
