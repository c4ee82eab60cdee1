/* crew.h - runs of `sluice run`, many at a time, what is done to them, and the judgement.
 *
 *     driver                 this process; adopts processes that are orphaned below it
 *       +-- sluice run       the wrapper; in a group of its own, dies with the driver
 *             +-- witness    the command (witness.c); in a group of its own
 *                   +-- heir
 *
 * A scene has a segment, a board (board.h) and a log. The driver starts runs as ordered
 * and does to each what its order says: kills and stops, of the wrapper or of the command,
 * some time after the start or after the command began. No process is ever named by a
 * number that may be another's by now: a wrapper is our child, an orphan too, and a
 * witness is known by a descriptor that was opened while it lived. */
#ifndef TESTS_CLI_CREW_H
#define TESTS_CLI_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "board.h"
#include "sluice.h"

#define CREW_ACTS_MAX 3
#define CREW_KEYS_MAX 64u
#define CREW_MS ((int64_t)1000000) /* In nanoseconds. */
#define CREW_FOREVER (-1)

/* Where a wrapper was when it was killed. */
enum crew_stage {
    STARTING, /* Neither waiting nor granted, as far as the segment tells. */
    WAITING,
    GRANTED, /* The permit is there, the child is not. */
    FORKED,  /* The child is there, the command has not begun. */
    RUNNING,
    AFTER, /* The command has ended, the wrapper has not. */
    STAGES
};

enum crew_kind { EXCLUSIVE, SHARED, COUNTING };

enum crew_deed {
    KILL_WRAPPER,
    KILL_WITNESS,
    KILL_GROUP,   /* The command's: the witness and its heir. */
    STOP_WRAPPER, /* Whatever is stopped is continued after a while. */
    STOP_WITNESS,
};

struct crew_act {
    enum crew_deed deed;
    bool after_begin; /* The delay counts from the witness's begin; else from fork. */
    bool done;
    int64_t delay_ns;
};

struct crew_order {
    uint32_t key;
    enum crew_kind kind;
    uint32_t per, buckets; /* COUNTING; buckets may be 0: not said. */
    int64_t wait_ms;       /* CREW_FOREVER; 0: -n; otherwise -w. */
    bool in_place;         /* -F */
    int64_t live_ns, heir_ns;
    uint32_t act_count;
    struct crew_act act[CREW_ACTS_MAX];
};

struct crew_run {
    struct crew_order order;
    pid_t pid;    /* The wrapper's. */
    bool running; /* The wrapper has not been reaped. */
    int status;   /* As waitpid's. */
    pid_t child;  /* The witness, if it was orphaned and not yet reaped. */
    bool heir_gone;
    bool group_killed;
    int64_t fork_ns, reaped_ns;
    int64_t gone_ns;   /* When all its processes were known to be gone. */
    int64_t killed_ns; /* Just before the wrapper was killed; 0: it was not. */
    int64_t doom_ns[PROCESSES];
    int64_t continue_ns; /* When to continue the wrapper. */
    int stopped_fd;      /* The witness, if it is stopped, and until when. */
    int64_t stopped_until_ns;
    enum crew_stage stage;
    int64_t first_ns, last_ns; /* Evidence of life; 0: none. */
};

/* What happened, of one scene or of all. */
struct crew_count {
    uint32_t runs, ended, refused, killed_wrappers, killed_witnesses, killed_groups,
        killed_commands, stops, heirs, orphans, unbegun;
    uint32_t stage[STAGES];
    uint32_t together_max;
};

struct crew {
    char segment[96], board_path[96], log[96], said[96];
    struct board *board;
    struct crew_run *run;          /* As many as the board has. */
    uint32_t open[BOARD_RUNS_MAX]; /* Runs that are not gone. */
    uint32_t open_count;
    uint32_t running; /* Wrappers. */
    bool key_used[CREW_KEYS_MAX];
    struct sluice_canal *canal;       /* NULL until there is a segment. */
    uint32_t together[CREW_KEYS_MAX]; /* The most at once, by the evidence. */
    bool stuck;                       /* Somebody has not got on for a long time. */
    uint32_t wrong;                   /* Complaints about this scene. */
    struct crew_count now, all;
    uint64_t chance;
};

extern struct crew crew;

/* --- Life ----------------------------------------------------------------- */

/* Find the programs (sluice NULL: the one of the same build) and become a driver. After
 * stage_open(). */
void crew_open(const char *sluice, uint64_t seed);

/* A new segment, board and log. options NULL: let the first run make the segment. */
void crew_scene(const struct sluice_canal_options *options);

/* Start a run. */
void crew_start(const struct crew_order *order);

/* Do what is due, and wait for more until then or until somebody dies. False: somebody
 * does not get on; then it is no use to go on. */
bool crew_turn(int64_t until_ns);

/* No more acts: wait until everybody is gone. Complains, and kills, if that takes long. */
void crew_drain(void);

/* --- Judgement, after crew_drain() ---------------------------------------- */

/* Ask for every key once more, by `run -n`. Then nothing may be held nor in use, the
 * segment is in order, and nobody has said anything. reap: with the dead reaped before.
 * Comes first, as it starts runs. */
void judge_settled(bool reap);

/* Each complains about what is wrong. */
void judge_together(void); /* Never more than fit, by the evidence; and slot numbers. */
void judge_ends(void);     /* Each run has ended as it should. */
void judge_refusals(void); /* Who was refused was so for a reason. */

/* Close the scene: add it to crew.all. */
void crew_scene_end(void);

/* --- Small things --------------------------------------------------------- */

/* A random number below that. */
uint32_t crew_pick(uint32_t below);

/* A complaint about this scene. */
void crew_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the units and the capacity of an order are to the canal. */
uint32_t crew_units(const struct crew_order *o);
uint32_t crew_capacity(const struct crew_order *o);

/* The number of a run, its line on the board, a process there. */
static inline uint32_t number_of(const struct crew_run *r)
{
    return (uint32_t)(r - crew.run);
}

static inline struct board_run *line_of(const struct crew_run *r)
{
    return &crew.board->run[number_of(r)];
}

static inline struct board_process *process_of(const struct crew_run *r, int who)
{
    return &line_of(r)->process[who];
}

/* Add an act to an order. */
void crew_act(struct crew_order *o, enum crew_deed deed, bool after_begin,
              int64_t delay_ns);

void crew_key_name(uint32_t key, char out[16]);

extern const char *const crew_stage_names[STAGES];

#endif /* TESTS_CLI_CREW_H */
