/* key_record.h - the state of a key at an acceptor, as bytes: the value of SL_ITEM_KEY in the
 * journal of a node (journal/record.h). Pure.
 *
 * The state contains everything that decides how the acceptor votes on the key: leases, the
 * reservation, fences, and how grants ended. It does not contain
 *
 *   - the requests and sessions of this node, which end with the process;
 *   - the turn of a request. A turn lasts two answer times and only delays other requests.
 *
 * All numbers are little-endian; times are milliseconds of the node's clock.
 *
 *     0  u8       SL_KEY_RECORD_FORMAT
 *     1  u8       what follows: 1 = lease, 2 = overlapped, 4 = learned, 8 = reservation
 *     2  u8       the number of reports
 *     3  zeros
 *     8  u64      seen_fence
 *    16  u64      past_fence
 *    24  u64      released_fence
 *    32  u64      lapsed_fence
 *    40  u64      broken_fence
 *    48  i64      overlaps_until
 *    56  the reservation, if any, 32 bytes
 *          0  u64   owner: epoch
 *          8  u64   owner: number
 *         16  i64   end
 *         24  i32   priority
 *         28  zeros
 *        the reports, oldest first, 16 bytes each
 *          0  u64   fence
 *          8  u8    1 = granted, 2 = over
 *          9  u8    how it ended (enum sl_node_event_type)
 *         10  zeros
 *        lease, overlapped and learned, if any, each 96 bytes and the texts
 *          0  u64   owner: epoch
 *          8  u64   owner: number
 *         16  u64   fence
 *         24  i64   end
 *         32  i64   the length of the lease
 *         40  u64   stamp of the value
 *         48  i64   agreed at least until; 0: unknown
 *         56  i64   when it was asked to release; -1: not asked
 *         64  i32   priority
 *         68  u32   1 = live, 2 = agreed, 4 = overlapping, 8 = stolen, 16 = copied,
 *                   32 = adopted
 *         72  u32   the number of bytes of the value,
 *         76  u32   of the note,
 *         80  u32   of the client,
 *         84  u32   and of the user and REQUEST id
 *         88  u64   digest of the options of the request
 *         96  value, note, client, user and id, without padding
 *
 * Format 1 had no REQUEST ids and no BREAK: the reservation follows at 40, and leases have 88
 * bytes. */
#ifndef SL_MAJORITY_KEY_RECORD_H
#define SL_MAJORITY_KEY_RECORD_H

#include "majority/node_internal.h"

#define SL_KEY_RECORD_FORMAT 2u

/* Returns the number of bytes that sl_key_record_write() writes. */
size_t sl_key_record_bytes(const struct sl_node_key *k);
void sl_key_record_write(const struct sl_node_key *k, char *out);

/* Set the state of a new key. Adds shift_ms to all times. In another life it is unknown until when a
 * lease is agreed. Returns SLUICE_OK; SLUICE_EINVAL if the
 * bytes are invalid; SLUICE_ENOMEM. After an error, the key has no state. */
int sl_key_record_read(struct sl_node *n, struct sl_node_key *k, struct sl_bytes value,
                       sl_ms shift_ms);

/* Returns when the last of the leases and the reservation ends; 0: there is none. */
sl_ms sl_key_record_end(const struct sl_node_key *k);

/* Returns a hash of the part of the state that must not return after a power failure once a later
 * state has been shown: which leases there are, and which have ended. An extension leaves it
 * unchanged. */
uint64_t sl_key_record_core(const struct sl_node *n, const struct sl_node_key *k);

#endif /* SL_MAJORITY_KEY_RECORD_H */
