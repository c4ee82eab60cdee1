/* office_stage.h - a stage for one office: the engine, the other nodes and time are in the
 * hands of the test.
 *
 *     struct office_stage *s = office_stage_new(1, 3);   node 1 of 3; it has asked already
 *     SAID("look\n");
 *     LOOKED(2, 5, 9);                    the keeper is node 2, of term 5, its beat is 9
 *     SAID("keeper 2 of 5\ndoubt up of 5\n");
 *     office_passes(s, 100);
 *     office_stage_end(s);
 *
 * What an office orders stands in `said`, in that order. Time passes from one due moment to
 * the next, as a server's loop lets it; at each it is checked that the office does not ask
 * to be called again at once. After every call, sl_election_check(). */
#ifndef SLUICE_TEST_OFFICE_STAGE_H
#define SLUICE_TEST_OFFICE_STAGE_H

#include "test.h"

#include "failover/election.h"

struct office_stage {
    struct sl_election *office;
    struct sl_election_settings settings;
    sl_ms now;
    sl_ms look_ms, claim_ms, renew_ms; /* When these were last asked for. */
    char said[1 << 12];
};

struct office_stage *office_stage_new(uint32_t self, uint32_t nodes);
void office_stage_end(struct office_stage *s);

/* All orders are fetched. */
void office_settle(struct office_stage *s);
void office_passes(struct office_stage *s, sl_ms ms);
struct sl_election_view office_view(const struct office_stage *s);

/* --- The engine ------------------------------------------------------------------- */

/* A reign; fences up to 1000, leases up to 5000 ms were given. */
struct sl_storage_term office_reign(uint32_t node, uint64_t term, uint64_t beat);
void office_looked(struct office_stage *s, int status, struct sl_storage_term r);
/* OK: r is what was before, and the term the one after. */
void office_claimed(struct office_stage *s, int status, struct sl_storage_term r);
void office_renewed(struct office_stage *s, int status, struct sl_storage_term r);
void office_told(struct office_stage *s, struct sl_storage_term r);

#define LOOKED(node, term, beat) \
    office_looked(s, SLUICE_OK, office_reign(node, term, beat))
#define CLAIMED(node, term, beat) \
    office_claimed(s, SLUICE_OK, office_reign(node, term, beat))
#define RENEWED() office_renewed(s, SLUICE_OK, (struct sl_storage_term){0})
#define TOLD(node, term, beat) office_told(s, office_reign(node, term, beat))
#define NOREIGN              \
    (struct sl_storage_term) \
    {                        \
        0                    \
    }

/* --- The other nodes ----------------------------------------------------------------- */

void office_sees(struct office_stage *s, uint32_t node, enum sl_peer_state sight);
void office_hears(struct office_stage *s, uint32_t from, uint64_t term,
                  enum sl_peer_state sight);
void office_needs(struct office_stage *s);
void office_refused(struct office_stage *s, uint64_t term);
void office_hurries(struct office_stage *s);
void office_members(struct office_stage *s, const uint32_t *ids, size_t n);

#define SEES(node, what) office_sees(s, node, SL_PEER_##what)
#define HEARS(from, term, what) office_hears(s, from, term, SL_PEER_##what)

/* --- What was said ---------------------------------------------------------------------- */

#define SAID(text)                          \
    do {                                    \
        assert_string_equal(s->said, text); \
        s->said[0] = '\0';                  \
    } while (0)
#define UNHEARD (s->said[0] = '\0')
bool office_said(const struct office_stage *s, const char *part);

#endif /* SLUICE_TEST_OFFICE_STAGE_H */
