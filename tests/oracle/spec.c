#include "spec.h"

#include <assert.h>

enum place { READ = 1, SWAP, END };

void spec_begin_acquire(struct spec_op *op, int64_t capacity, int64_t units)
{
    assert(capacity >= 0 && units >= 1);
    *op = (struct spec_op){.place = READ, .capacity = capacity, .change = units};
}

void spec_begin_release(struct spec_op *op, int64_t units)
{
    assert(units >= 1);
    *op = (struct spec_op){.place = READ, .change = -units};
}

static bool end(struct spec_op *op, int64_t answer)
{
    op->place = END;
    op->answer = answer;
    return true;
}

bool spec_step(struct spec *s, struct spec_op *op)
{
    bool acquire = op->change > 0;
    switch ((enum place)op->place) {
        case READ: {
            op->seen = s->held;
            /* By subtraction: a capacity may be as large as the type. */
            bool fits = acquire ? op->change <= op->capacity - op->seen
                                : -op->change <= op->seen;
            if (!fits) return end(op, SPEC_REFUSED);
            op->place = SWAP;
            return false;
        }
        case SWAP:
            if (s->held != op->seen) {
                op->place = READ;
                return false;
            }
            s->held += op->change;
            return end(op, acquire ? s->held : 0);
        case END: return true;
    }
    assert(0 && "a place of the list above");
    return true;
}

int64_t spec_acquire(struct spec *s, int64_t capacity, int64_t units)
{
    struct spec_op op;
    spec_begin_acquire(&op, capacity, units);
    while (!spec_step(s, &op)) continue;
    return op.answer;
}

int64_t spec_release(struct spec *s, int64_t units)
{
    struct spec_op op;
    spec_begin_release(&op, units);
    while (!spec_step(s, &op)) continue;
    return op.answer;
}
