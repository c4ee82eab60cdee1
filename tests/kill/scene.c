#include "scene.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "audit.h"
#include "canal/keys.h"
#include "canal/segment.h"
#include "canal/slot.h"

struct actor scene_cast[CAST];

void scene_wrong(struct scene *s, const char *format, ...)
{
    if (s->wrong) return;
    s->wrong = true;
    va_list args;
    va_start(args, format);
    vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
}

/* The word of a result that is not a number of units. */
static const char *word(int64_t result)
{
    return result == ACTOR_SILENT ? "silence" : sluice_status_word(result);
}

static void expect(struct scene *s, const char *what, int64_t got, int64_t want)
{
    if (got != want)
        scene_wrong(s, "%s: got %" PRId64 " (%s), not %" PRId64 " (%s)", what, got,
                    word(got), want, word(want));
}

/* ---- life ---- */

void scene_cast_start(void)
{
    for (int i = 0; i < CAST; i++) scene_cast[i] = actor_start();
}

void scene_map(struct scene *s)
{
    struct sluice_canal_options o = {.existing = 1};
    if (s->seg.header != NULL) return;
    int status = sl_canal_segment_open(s->path, &o, &s->seg);
    if (status != SLUICE_OK) {
        memset(&s->seg, 0, sizeof s->seg);
        scene_wrong(s, "the test cannot open the segment: %s", word(status));
    }
}

void scene_open(struct scene *s, struct sluice_canal_options options, bool make_it)
{
    memset(s, 0, sizeof *s);
    s->options = options;
    stage_path(s->path);
    if (!make_it) return;
    int status = sl_canal_segment_open(s->path, &options, &s->seg);
    if (status != SLUICE_OK) stage_bail("no segment at %s: %s", s->path, word(status));
    /* The same hashes in every scene, so that a script takes the same way again. Nobody
     * has used the segment yet. */
    s->seg.header->seed = 0x51u;
}

static void judge_emptiness(struct scene *s)
{
    if (s->seg.header == NULL) return;
    for (uint32_t i = 0; i < s->seg.slot_count; i++)
        if (sl_canal_slot_in_use(&s->seg, i))
            scene_wrong(s, "at the end slot %u is in use", i);
    for (uint32_t k = 0; k < s->seg.key_count; k++)
        if (sl_canal_keys_in_use(&s->seg, k))
            scene_wrong(s, "at the end key %u is in use", k);
    for (uint32_t c = 0; c < s->seg.chunk_count; c++)
        if (s->seg.chunks[c] != 0) scene_wrong(s, "at the end chunk %u is taken", c);
}

void scene_close(struct scene *s)
{
    for (int i = 0; i < CAST; i++)
        if (s->entered[i]) scene_leave(s, i);
    if (!s->wrong) judge_emptiness(s);
    if (s->seg.header != NULL) sl_canal_segment_close(&s->seg);
    unlink(s->path);
}

/* ---- acting ---- */

static uint32_t note_key(struct scene *s, const char *key)
{
    for (uint32_t i = 0; i < s->key_count; i++)
        if (strcmp(s->keys[i].name, key) == 0) return i;
    if (s->key_count == SCENE_NAMES_MAX) stage_bail("too many names in a scene");
    snprintf(s->keys[s->key_count].name, ACTOR_KEY_MAX, "%s", key);
    return s->key_count++;
}

void scene_enter(struct scene *s, int who)
{
    if (s->entered[who]) return;
    s->entered[who] = true;
    expect(s, "opening", actor_open(&scene_cast[who], s->path, s->options), SLUICE_OK);
}

void scene_leave(struct scene *s, int who)
{
    s->entered[who] = s->attached[who] = false;
    for (uint32_t i = 0; i < s->key_count; i++) s->keys[i].held[who] = 0;
    expect(s, "closing", actor_close(&scene_cast[who]), 0);
}

int64_t scene_acquire(struct scene *s, int who, const char *key, uint32_t capacity,
                      uint32_t units)
{
    scene_enter(s, who);
    uint32_t i = note_key(s, key);
    s->attached[who] = true;
    int64_t nth = actor_acquire(&scene_cast[who], key, capacity, units);
    if (nth > 0) s->keys[i].held[who] += units;
    else if (nth != SLUICE_EFULL)
        scene_wrong(s, "an acquire of %s: %s", key, word(nth));
    return nth;
}

void scene_release(struct scene *s, int who, const char *key, uint32_t units)
{
    uint32_t i = note_key(s, key);
    expect(s, "release", actor_release(&scene_cast[who], key, units), SLUICE_OK);
    s->keys[i].held[who] -= units;
}

void scene_touch(struct scene *s, int who, const char *key)
{
    if (scene_acquire(s, who, key, SCENE_ROOMY, 1) > 0) scene_release(s, who, key, 1);
}

void scene_dave_takes(struct scene *s, const char *key, uint32_t units)
{
    scene_acquire(s, DAVE, key, SCENE_ROOMY, units);
}

void scene_dave_dies(struct scene *s)
{
    actor_kill(&scene_cast[DAVE]);
    s->entered[DAVE] = s->attached[DAVE] = false;
    for (uint32_t i = 0; i < s->key_count; i++) s->keys[i].held[DAVE] = 0;
    scene_cast[DAVE] = actor_start();
}

void scene_besides(struct scene *s, const char *key, uint32_t units)
{
    s->keys[note_key(s, key)].besides = units;
}

uint32_t scene_held(const struct scene *s, const char *key)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < s->key_count; i++) {
        if (strcmp(s->keys[i].name, key) != 0) continue;
        for (int who = 0; who < CAST; who++) held += s->keys[i].held[who];
        held += s->keys[i].besides;
    }
    return held;
}

uint32_t scene_key(const struct scene *s, const char *key)
{
    struct sl_canal_name name;
    struct sl_canal_key_ref ref;
    if (s->seg.header == NULL || sl_canal_keys_name(&s->seg, key, &name) != SLUICE_OK ||
        !sl_canal_keys_find(&s->seg, &name, &ref))
        return UINT32_MAX;
    return ref.key;
}

/* ---- judgement ---- */

void scene_judge_counts(struct scene *s)
{
    scene_enter(s, CAROL);
    for (uint32_t i = 0; i < s->key_count; i++) {
        int64_t count = actor_count(&scene_cast[CAROL], s->keys[i].name);
        uint32_t held = scene_held(s, s->keys[i].name);
        if (count != held)
            scene_wrong(s, "%s counts %" PRId64 ", the living hold %u", s->keys[i].name,
                        count, held);
    }
}

/* Carol takes one unit with just the capacity for it: granted only if nothing of the dead is
 * in the way, and as the right number only if the count is exact. */
static void judge_by_asking(struct scene *s, const char *key)
{
    uint32_t held = scene_held(s, key);
    expect(s, "just enough capacity", scene_acquire(s, CAROL, key, held + 1, 1),
           held + 1);
    expect(s, "no more capacity", scene_acquire(s, CAROL, key, held + 1, 1),
           SLUICE_EFULL);
    if (scene_held(s, key) > held) scene_release(s, CAROL, key, 1);
}

/* It is still of use: a new key is made and filled to its capacity. */
static void judge_use(struct scene *s)
{
    expect(s, "a new key, 1 of 2", scene_acquire(s, CAROL, "fresh", 2, 1), 1);
    expect(s, "a new key, 2 of 2", scene_acquire(s, CAROL, "fresh", 2, 1), 2);
    expect(s, "a new key, 3 of 2", scene_acquire(s, CAROL, "fresh", 2, 1),
           SLUICE_EFULL);
    if (scene_held(s, "fresh") == 2) scene_release(s, CAROL, "fresh", 2);
}

/* Just what the living use is in use. */
static void judge_info(struct scene *s)
{
    struct sluice_canal_info info;
    uint32_t slots = s->others, keys = s->resolved;
    for (int who = 0; who < CAST; who++) slots += s->attached[who];
    for (uint32_t i = 0; i < s->key_count; i++)
        keys += scene_held(s, s->keys[i].name) != 0;
    uint32_t records = (slots - s->bare) * SL_CANAL_CHUNK_RECORDS;
    expect(s, "info", actor_info(&scene_cast[CAROL], &info), SLUICE_OK);
    if (info.slots_used != slots || info.records_used != records ||
        info.keys_used != keys)
        scene_wrong(
            s, "in use: %u slots, %u records, %u keys; by the living: %u, %u, %u",
            info.slots_used, info.records_used, info.keys_used, slots, records, keys);
}

void scene_judge(struct scene *s, const char *key, bool asking)
{
    char why[200];
    scene_enter(s, CAROL);
    if (s->wrong) return;
    if (asking) judge_by_asking(s, key);
    int64_t freed = actor_reap(&scene_cast[CAROL]);
    if (freed < 0) scene_wrong(s, "reap: %s", word(freed));
    scene_judge_counts(s);
    if (!s->no_spare_key) judge_use(s);
    scene_judge_counts(s);
    judge_info(s);
    scene_map(s);
    if (s->seg.header != NULL && !audit(&s->seg, true, why, sizeof why))
        scene_wrong(s, "%s", why);
}
