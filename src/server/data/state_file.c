#include "server/data/state_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "locks/client.h"

static const struct sl_textfile_kind kind = {.name = "state",
                                             .name_new = "state.new",
                                             .magic = "sluice state ",
                                             .format_oldest = SL_STATE_FORMAT_OLDEST,
                                             .format = SL_STATE_FORMAT};

static bool read_head(struct sl_textfile_reader *r, struct sl_kept *k)
{
    const int64_t fence_max = (int64_t)SL_FENCE_MAX, ms_max = (int64_t)1 << 52;
    int64_t limit, last, clean;
    bool good = sl_textfile_field(r, "fence_limit ", fence_max, &limit) &&
                sl_textfile_field(r, "fence_last ", fence_max, &last) &&
                sl_textfile_field(r, "lease_longest_ms ", ms_max,
                                  &k->lease_longest_ms) &&
                sl_textfile_field(r, "clean ", 1, &clean) &&
                sl_textfile_field(r, "quiet_ms ", ms_max, &k->quiet_ms) &&
                sl_textfile_skip(r, "boot ") &&
                sl_textfile_rest(r, k->boot, sizeof k->boot) &&
                sl_textfile_field(r, "at_ms ", ms_max, &k->at_ms);
    if (!good || last > limit) return false;
    k->fence_limit = (sl_fence)limit;
    k->fence_last = (sl_fence)last;
    k->clean = clean == 1;
    return true;
}

enum sl_found sl_state_read(struct sl_state_reading *r, int directory)
{
    *r = (struct sl_state_reading){0};
    enum sl_found found = sl_textfile_open(&r->text, directory, &kind);
    if (found != SL_FOUND || read_head(&r->text, &r->kept)) return found;
    sl_textfile_close(&r->text);
    return SL_FOUND_NONSENSE;
}

void sl_state_read_end(struct sl_state_reading *r)
{
    sl_textfile_close(&r->text);
}

static bool read_grant(struct sl_textfile_reader *r, struct sl_bytes *key,
                       struct sl_grant_view *v)
{
    static const struct {
        int64_t min, max;
    } of[10] = {{1, (int64_t)SL_FENCE_MAX},
                {0, (int64_t)1 << 52},
                {0, UINT32_MAX},
                {0, 1},
                {0, UINT32_MAX},
                {0, UINT32_MAX},
                {0, UINT32_MAX},
                {INT32_MIN, INT32_MAX},
                {0, 1},
                {0, 1}};
    int64_t n[10];
    for (size_t i = 0; i < 10; i++)
        if (!sl_textfile_number(r, of[i].min, of[i].max, ' ', &n[i])) return false;
    *v = (struct sl_grant_view){.leased = true,
                                .fence = (sl_fence)n[0],
                                .left_ms = n[1],
                                .user = (uint32_t)n[2],
                                .shared = n[3] != 0,
                                .per = (uint32_t)n[4],
                                .buckets = (uint32_t)n[5],
                                .units = (uint32_t)n[6],
                                .priority = (int32_t)n[7],
                                .broken = n[8] != 0,
                                .asked = n[9] != 0};
    return sl_textfile_hex(r, ' ', key) && sl_textfile_hex(r, ' ', &v->value) &&
           sl_textfile_hex(r, '\n', &v->note);
}

int sl_state_next(struct sl_state_reading *r, struct sl_bytes *key,
                  struct sl_grant_view *out)
{
    int64_t grants;
    if (sl_textfile_skip(&r->text, "client ") &&
        !(sl_textfile_hex(&r->text, ' ', &r->name) &&
          sl_textfile_hex(&r->text, '\n', &r->address)))
        return -1;
    if (sl_textfile_skip(&r->text, "grant ")) {
        r->grants++;
        if (!read_grant(&r->text, key, out)) return -1;
        out->name = r->name;
        out->address = r->address;
        return 1;
    }
    bool all = sl_textfile_skip(&r->text, "grants ") &&
               sl_textfile_number(&r->text, r->grants, r->grants, '\n', &grants);
    return all && sl_textfile_at_end(&r->text) ? 0 : -1;
}

/* --- The boot id ----------------------------------------------------------- */

void sl_boot_id(char out[SL_BOOT_BYTES])
{
    char id[40] = "", clock[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, sizeof id - 1);
    if (fd >= 0) close(fd);
    id[n > 0 ? strcspn(id, "\n") : 0] = '\0';
    n = readlink("/proc/self/ns/time", clock, sizeof clock - 1);
    if (n <= 0) clock[0] = '\0';
    /* Write "unknown" if the system has no boot id. */
    snprintf(out, SL_BOOT_BYTES, "%s%s", *id != '\0' ? id : "unknown", clock);
}
