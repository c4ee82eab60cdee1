/* What a node makes of messages that are well formed and make no sense, from nodes that are
 * on the list and from some that are not: it breaks no invariant, answers its clients, and
 * keeps its list. */
#include <string.h>

#include "majority_stage.h"
#include "test_main.h"

static struct sl_random generator;

static uint32_t draw(uint32_t below)
{
    return sl_random_below(&generator, below);
}

/* A number that is small, near one that is known, or anything. */
static uint64_t number(uint64_t known)
{
    switch (draw(4)) {
        case 0: return draw(4);
        case 1: return known + draw(5) - 2;
        case 2: return known;
        default: return sl_random_next(&generator) >> draw(64);
    }
}

static sl_ms time_of(sl_ms known)
{
    return (sl_ms)(number((uint64_t)known) & INT64_MAX);
}

static struct sl_membership a_list(const struct stage *s)
{
    struct sl_membership l = *sl_node_membership(s->actor[1].node);
    if (draw(3) == 0) l.version = number(l.version);
    if (draw(3) == 0) l.cluster = number(l.cluster);
    if (draw(3) == 0) l.added = (sl_node_id)draw(5);
    if (draw(3) == 0) l.count = (uint32_t)draw(l.count + 1);
    for (uint32_t i = 0; i < l.count; i++)
        if (draw(6) == 0) l.at[i].birth = number(l.at[i].birth);
    return l;
}

/* Of the last request that was sent. */
static uint64_t last_round(const struct stage *s)
{
    for (size_t i = s->sent_count; i > 0; i--)
        if (s->sent[i - 1].m.type == SL_MESSAGE_ACQUIRE) return s->sent[i - 1].m.round;
    return 1;
}

static struct sl_message nonsense(const struct stage *s, sl_node_id from, sl_node_id to,
                                  sl_fence fence)
{
    static const char *const keys[] = {"k", "l", "another"};
    const char *key = keys[draw(3)];
    enum sl_message_type type = (enum sl_message_type)(1 + draw(SL_MESSAGE_COUNT - 1));
    struct sl_message m = forged(s, from, to, type);
    if (draw(8) == 0) m.version = number(m.version);
    if (draw(8) == 0) m.heard_ms = time_of(m.heard_ms);
    if (draw(8) == 0) m.wall_us = number(m.wall_us);
    m.round = number(last_round(s));
    m.key = (struct sl_bytes){key, strlen(key)};
    m.owner = (struct sl_attempt_id){number(1), number(1)};
    m.fence = number(fence) & SL_FENCE_MAX;
    m.lease_ms = time_of(1000);
    m.priority = (int32_t)number(1);
    m.flags = (uint32_t)draw(512);
    m.value = (struct sl_bytes){"value", draw(6)};
    m.waited_ms = time_of(1);
    m.stamp = number(fence) & SL_FENCE_MAX;
    m.verdict = (enum sl_vote_verdict)(1 + draw(SL_VERDICT_COUNT - 1));
    m.ceiling = number(fence) & SL_FENCE_MAX;
    m.left_ms = time_of(1000);
    m.wanted = (int32_t)number(1);
    m.ballot = (struct sl_ballot){number(1), (sl_node_id)draw(5)};
    m.ballot2 = (struct sl_ballot){number(1), (sl_node_id)draw(5)};
    m.which = number(2);
    m.list = a_list(s);
    return m;
}

static void say_nonsense(struct stage *s, int count)
{
    sl_fence fence = (sl_fence)clock_of(s, 1).wall_us;
    for (int i = 0; i < count; i++) {
        sl_node_id to = 1 + (sl_node_id)draw(3), from = 1 + (sl_node_id)draw(5);
        if (from == to) continue;
        const struct sl_message m = nonsense(s, from, to, fence);
        give(s, from, to, &m);
    }
}

/* Votes are among it: so what clients are told may be anything, but they are told. */
TEST(nonsense_is_survived)
{
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct stage *s = stage_new(3);
        sl_random_seed(&generator, seed);
        s->may_overlap = s->remembers = true;
        for (int i = 0; i < 12; i++) {
            sl_node_id at = 1 + (sl_node_id)draw(3);
            uint64_t a = ASK(at, .wait_ms = (sl_ms)draw(2) * 200, .lease_ms = 300);
            uint64_t b = REQUEST(READ, at, .lease_ms = 0);
            say_nonsense(s, 40);
            pass(s, 50);
            outcome(s, a);
            outcome(s, b);
        }
        stage_end(s);
    }
}

/* A vote that is no answer to what was asked: once it was waited for without end. */
TEST(a_vote_without_a_matching_request_changes_nothing)
{
    for (int verdict = 1; verdict < SL_VERDICT_COUNT; verdict++) {
        struct stage *s = stage_new(3);
        s->may_overlap = true;
        hold(s, 1, 0, SL_MESSAGE_ACQUIRE);
        uint64_t a = ASK(1);
        for (sl_node_id from = 2; from <= 3; from++) {
            struct sl_message v = forged(s, from, 1, SL_MESSAGE_VOTE);
            v.round = newest(s, 1, from, SL_MESSAGE_ACQUIRE)->round;
            v.verdict = (enum sl_vote_verdict)verdict;
            give(s, from, 1, &v);
        }
        outcome(s, a);
        stage_end(s);
    }
}

TEST_MAIN(NULL, NULL)
