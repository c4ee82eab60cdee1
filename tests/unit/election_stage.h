/* election_stage.h - a fixture for one election: the storage, the other nodes and the time are in
 * the hands of the test.
 *
 *     ELECTION s = election_stage_new(1, 3);   node 1 of 3; it has ordered a read already
 *     SAID("read\n");
 *     TERM_READ(2, 5, 9);                 the keeper is node 2, of term 5, with heartbeat 9
 *     SAID("keeper 2 of 5\ndoubt up of 5\n");
 *     election_passes(s, 100);
 *
 * `said` has the orders, in their order. Time passes from one due time to the next, as in the loop
 * of a server; at each the fixture checks that the election is not due again at once. It calls
 * sl_election_check() after every call. */
#ifndef SLUICE_TEST_ELECTION_STAGE_H
#define SLUICE_TEST_ELECTION_STAGE_H

#include "test.h"

#include "failover/election.h"

struct election_stage {
    struct sl_election *election;
    struct sl_election_settings settings;
    sl_ms now;
    sl_ms read_ms, claim_ms, renew_ms; /* When these were last asked for. */
    uint64_t renew_term;
    char said[1 << 12];
};

struct election_stage *election_stage_new(uint32_t self, uint32_t nodes);
void election_stage_end(struct election_stage *s);

/* A stage that ends with its block. */
#define ELECTION __attribute__((cleanup(election_stage_leave))) struct election_stage *
void election_stage_leave(struct election_stage **s);

/* All orders are fetched. */
void election_settle(struct election_stage *s);
void election_passes(struct election_stage *s, sl_ms ms);
struct sl_election_view election_view(const struct election_stage *s);

/* --- The storage --------------------------------------------------------------- */

/* A term; fences up to 1000, leases up to 5000 ms were given. */
struct sl_storage_term election_reign(uint32_t node, uint64_t term, uint64_t beat);
void election_term_read(struct election_stage *s, int status, struct sl_storage_term r);
/* OK: r is what was before, and the term the one after. */
void election_claimed(struct election_stage *s, int status, struct sl_storage_term r);
void election_renewed(struct election_stage *s, int status, struct sl_storage_term r);
void election_told(struct election_stage *s, struct sl_storage_term r);

#define TERM_READ(node, term, beat) \
    election_term_read(s, SLUICE_OK, election_reign(node, term, beat))
#define CLAIMED(node, term, beat) \
    election_claimed(s, SLUICE_OK, election_reign(node, term, beat))
#define RENEWED() election_renewed(s, SLUICE_OK, (struct sl_storage_term){0})
#define TOLD(node, term, beat) election_told(s, election_reign(node, term, beat))
#define NOREIGN              \
    (struct sl_storage_term) \
    {                        \
        0                    \
    }

/* --- The other nodes ----------------------------------------------------------------- */

void election_sees(struct election_stage *s, uint32_t node, enum sl_peer_state sight);
void election_hears(struct election_stage *s, uint32_t from, uint64_t term,
                    enum sl_peer_state sight);
void election_needs(struct election_stage *s);
void election_refused(struct election_stage *s, uint64_t term);
void election_hurries(struct election_stage *s);
void election_members(struct election_stage *s, const uint32_t *ids, size_t n);

#define SEES(node, what) election_sees(s, node, SL_PEER_##what)
#define HEARS(from, term, what) election_hears(s, from, term, SL_PEER_##what)

/* --- Transcript ------------------------------------------------------------------ */

#define SAID(text)                          \
    do {                                    \
        assert_string_equal(s->said, text); \
        s->said[0] = '\0';                  \
    } while (0)
#define UNHEARD (s->said[0] = '\0')
bool election_said(const struct election_stage *s, const char *part);

#endif /* SLUICE_TEST_ELECTION_STAGE_H */
