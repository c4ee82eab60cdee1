#include "sim/faults.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"

static const struct sim_fault_row rows[] = {
#define FAULT(name, w, o, text) {.word = w, .what = text, .often = o},
    SIM_FAULT_MAP(FAULT)
#undef FAULT
};

const struct sim_fault_list sim_faults_majority = {rows, SIM_FAULT_COUNT};

uint64_t sim_faults_draw(const struct sim_fault_list *l, struct sl_random *r)
{
    uint64_t faults = 0;
    for (uint32_t f = 0; f < l->count; f++) {
        if (sl_random_maybe(r, l->rows[f].often)) faults |= 1ull << f;
    }
    return faults;
}

bool sim_faults_parse(const struct sim_fault_list *l, const char *text, uint64_t *out,
                      const char **bad)
{
    *out = 0;
    while (*text != '\0') {
        size_t n = strcspn(text, ","), f = 0;
        while (f < l->count &&
               (strlen(l->rows[f].word) != n || memcmp(l->rows[f].word, text, n) != 0))
            f++;
        *bad = text;
        if (f == l->count) return false;
        *out |= 1ull << f;
        text += n + (text[n] == ',');
    }
    return true;
}

void sim_faults_print(const struct sim_fault_list *l, uint64_t faults, char *out,
                      size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t f = 0; f < l->count; f++) {
        if ((faults & 1ull << f) == 0 || at + 1 >= n) continue;
        int wrote = snprintf(out + at, n - at, "%s%s", at == 0 ? "" : ",",
                             l->rows[f].word);
        at += wrote > 0 ? (size_t)wrote : 0;
    }
}
