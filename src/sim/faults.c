#include "sim/faults.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"

static const struct {
    const char *word, *what;
    uint32_t often;
} table[] = {
#define FAULT(name, w, o, text) {.word = w, .what = text, .often = o},
    SIM_FAULT_MAP(FAULT)
#undef FAULT
};

const char *sim_fault_name(enum sim_fault f)
{
    return table[f].word;
}

const char *sim_fault_text(enum sim_fault f)
{
    return table[f].what;
}

uint32_t sim_faults_draw(struct sl_random *r)
{
    uint32_t faults = 0;
    for (uint32_t f = 0; f < SIM_FAULT_COUNT; f++) {
        if (sl_random_maybe(r, table[f].often)) faults |= 1u << f;
    }
    return faults;
}

bool sim_faults_parse(const char *text, uint32_t *out, const char **bad)
{
    *out = 0;
    while (*text != '\0') {
        size_t n = strcspn(text, ","), f = 0;
        while (f < SIM_FAULT_COUNT &&
               (strlen(table[f].word) != n || memcmp(table[f].word, text, n) != 0))
            f++;
        *bad = text;
        if (f == SIM_FAULT_COUNT) return false;
        *out |= 1u << f;
        text += n + (text[n] == ',');
    }
    return true;
}

void sim_faults_print(uint32_t faults, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t f = 0; f < SIM_FAULT_COUNT; f++) {
        if ((faults & 1u << f) == 0 || at + 1 >= n) continue;
        int wrote = snprintf(out + at, n - at, "%s%s", at == 0 ? "" : ",",
                             table[f].word);
        at += wrote > 0 ? (size_t)wrote : 0;
    }
}
