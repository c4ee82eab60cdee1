#include "script.h"

#include <stdio.h>
#include <unistd.h>

#include "scene.h"
#include "stepped.h"

/* Far longer than anything lasts. */
#define WAIT_MS 20000

struct sluice_canal *script_canal;
struct sluice_key *script_handle;

struct sluice_capacity script_capacity(uint32_t units)
{
    return (struct sluice_capacity){.per = units, .buckets = 1};
}

/* ---- to prepare ---- */

static void must(bool well)
{
    if (!well) _exit(3);
}

void script_enter(void *scene)
{
    const struct scene *s = scene;
    must(sluice_canal_open(s->path, &s->options, &script_canal) == SLUICE_OK);
}

void script_resolve(void *scene)
{
    script_enter(scene);
    must(sluice_key_resolve(script_canal, "main", &script_handle) == SLUICE_OK);
}

void script_hold_one(void *scene)
{
    script_resolve(scene);
    must(sluice_key_acquire(script_handle, script_capacity(1), NULL) == 1);
}

void script_bind_all(void *scene)
{
    char name[ACTOR_KEY_MAX];
    script_enter(scene);
    for (unsigned i = 0; i < SL_CANAL_CHUNK_RECORDS; i++) {
        snprintf(name, sizeof name, "n%u", i);
        must(sluice_canal_acquire(script_canal, name, script_capacity(SCENE_ROOMY),
                                  NULL) > 0);
        must(sluice_canal_release(script_canal, name, 1) == SLUICE_OK);
    }
}

/* ---- to be led through ---- */

void script_open(void *scene)
{
    const struct scene *s = scene;
    stepped_tell(sluice_canal_open(s->path, &s->options, &script_canal));
}

void script_reap(void *scene)
{
    (void)scene;
    stepped_tell(sluice_canal_reap(script_canal));
}

void script_release(void *scene)
{
    (void)scene;
    script_give(1);
}

void script_wait(void *scene)
{
    struct sluice_want want = {.wait_ms = WAIT_MS};
    (void)scene;
    stepped_tell(sluice_key_acquire(script_handle, script_capacity(1), &want));
}

void script_acquire(const char *key, uint32_t capacity, uint32_t units)
{
    struct sluice_want want = {.units = units};
    stepped_tell(
        sluice_canal_acquire(script_canal, key, script_capacity(capacity), &want));
}

void script_take(uint32_t capacity, uint32_t units)
{
    struct sluice_want want = {.units = units};
    stepped_tell(sluice_key_acquire(script_handle, script_capacity(capacity), &want));
}

void script_give(uint32_t units)
{
    stepped_tell(sluice_key_release(script_handle, units));
}
