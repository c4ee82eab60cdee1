#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const struct test_option *find(const struct test_option *o, const char *name)
{
    while (o->name != NULL && strcmp(o->name, name) != 0) o++;
    return o->name != NULL ? o : NULL;
}

void options_read(int argc, char **argv, const char *usage,
                  const struct test_option *options)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--short") == 0) continue;
        const struct test_option *o = find(options, argv[i]);
        bool has_value = o != NULL && o->preset == 0 &&
                         (o->number != NULL || o->text != NULL);
        if (o == NULL || (has_value && i + 1 == argc)) {
            fprintf(stderr, "usage: %s\n", usage);
            exit(2);
        }
        if (has_value) i++;
        if (o->text != NULL) *o->text = argv[i];
        if (o->number != NULL)
            *o->number = has_value ? strtoull(argv[i], NULL, 10) : o->preset;
        if (o->given != NULL) *o->given = true;
    }
}

uint64_t options_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) exit(2);
    return seed;
}
