/* kind_majority.c - majority clusters, as main.c sees them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/kind.h"
#include "sim/world.h"

static void *create(void)
{
    struct sim_world *w = calloc(1, sizeof *w);
    if (w == NULL) abort();
    return w;
}

static void destroy(void *w)
{
    sim_world_free(w);
    free(w);
}

static void run(void *w, const struct sim_setup *setup)
{
    sim_world_run(w, setup);
}

static void look(const void *world, struct sim_result *out)
{
    const struct sim_world *w = world;
    *out = (struct sim_result){.hash = w->hash,
                               .steps = w->steps,
                               .now_us = w->now_us,
                               .faults = w->faults,
                               .clients = w->client_count,
                               .wrong = w->checker.wrong,
                               .is_stuck = w->checker.is_stuck,
                               .counts = w->counts};
}

static void print_setup(const void *w)
{
    sim_trace_setup(w);
}

static void print_counts(const struct sim_counts *c)
{
    printf("%" PRIu64 " grants, %" PRIu64 " extends, %" PRIu64 " steals, %" PRIu64
           " crashes, %" PRIu64 " failed writes, %" PRIu64 " changes",
           c->grants, c->extends, c->steals, c->crashes, c->failed_writes, c->changes);
}

const struct sim_kind sim_kind_majority = {.option = "",
                                           .faults = &sim_faults_majority,
                                           .events = 10000,
                                           .create = create,
                                           .destroy = destroy,
                                           .run = run,
                                           .look = look,
                                           .print_setup = print_setup,
                                           .print_counts = print_counts};
