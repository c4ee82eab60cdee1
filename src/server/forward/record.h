/* record.h - a grant as words, between nodes of a cluster with a keeper.
 *
 *     key fence shared units per buckets priority lease_ms value note
 *
 * All are bulk strings, numbers in decimal. lease_ms is what is left of it; -1: there is no
 * lease. Of a view what is not here is lost. */
#ifndef SL_SERVER_FORWARD_RECORD_H
#define SL_SERVER_FORWARD_RECORD_H

#include "locks/table.h"
#include "resp/writer.h"

/* A number of a frame. What is read is not negative, and no greater than a fence. */
void sl_frame_number(struct sl_resp_writer *w, uint64_t n);
void sl_frame_signed(struct sl_resp_writer *w, int64_t n);
bool sl_frame_read(struct sl_bytes b, uint64_t *out);

#define SL_RECORD_WORDS 10

/* A lease has not ended. */
void sl_record_write(struct sl_resp_writer *w, struct sl_bytes key,
                     const struct sl_grant_view *v);

/* From SL_RECORD_WORDS words. False: they are none. Bytes are borrowed. */
bool sl_record_read(const struct sl_bytes *at, struct sl_grant_view *v,
                    struct sl_bytes *key);

#endif /* SL_SERVER_FORWARD_RECORD_H */
