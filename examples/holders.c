/* holders.c - show the holders and waiters of a lock, and revoke a grant.
 *
 *     cc holders.c $(pkg-config --cflags --libs sluice) -o holders
 *     SLUICE_SERVER=db1:5625 ./holders KEY           list them
 *     SLUICE_SERVER=db1:5625 ./holders KEY FENCE     revoke the grant with this fence */
#include <inttypes.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX 100

static int64_t list(struct sluice *s, const char *key)
{
    static struct sluice_view all[MAX];
    int64_t n = sluice_inspect(s, key, all, MAX);
    for (int64_t i = 0; i < n && i < MAX; i++) {
        const struct sluice_view *v = &all[i];
        printf("%s %s, fence %" PRIu64 ", %" PRId64 " ms left\n",
               v->waits ? "waiter" : "holder", v->client, v->fence, v->left_ms);
    }
    return n;
}

int main(int argc, char **argv)
{
    struct sluice *s;
    if (argc < 2 || sluice_open(NULL, NULL, &s) != SLUICE_OK) return 2;
    /* The last argument is 0: a grant with a lease ends when its lease expires, because its holder
     * may be working. A grant without a lease ends now. */
    int64_t result = argc > 2 ? sluice_break(s, argv[1], strtoull(argv[2], NULL, 10), 0)
                              : list(s, argv[1]);
    if (result < 0) printf("%s\n", sluice_status_word(result));
    sluice_close(s);
    return result < 0 ? 1 : 0;
}
