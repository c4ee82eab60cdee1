#include "server/data/node_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const struct sl_textfile_kind kind = {.name = "node",
                                             .name_new = "node.new",
                                             .magic = "sluice node ",
                                             .format_oldest = SL_NODE_FORMAT_OLDEST,
                                             .format = SL_NODE_FORMAT};

/* --- Writing --------------------------------------------------------------- */

static void put_ballot(struct sl_textfile_writer *w, const char *name,
                       struct sl_ballot b)
{
    sl_textfile_put(w, "%s %016" PRIx64 " %" PRIu32 "\n", name, b.number, b.id);
}

/* Whether the file format can represent this address. The format has no quoting, so only printable
 * ASCII without spaces can be read back. */
static bool is_plain(const char *address)
{
    for (const char *c = address; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~') return false;
    return *address != '\0';
}

static void put_list(struct sl_textfile_writer *w, const char *name,
                     const struct sl_membership *l)
{
    sl_textfile_put(w, "%s %" PRIu64 " %" PRIu32 " %" PRIu32 " %016" PRIx64 "\n", name,
                    l->version, l->count, l->added, l->cluster);
    for (uint32_t i = 0; i < l->count; i++) {
        if (!is_plain(l->at[i].address)) sl_textfile_fail(w, EINVAL);
        sl_textfile_put(w, "node %" PRIu32 " %016" PRIx64 " %s\n", l->at[i].id,
                        l->at[i].birth, l->at[i].address);
    }
}

static void put_births(struct sl_textfile_writer *w, const struct sl_node_birth *at)
{
    int count = 0;
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        if (at[i].id != 0) count++;
    sl_textfile_put(w, "births %d\n", count);
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        if (at[i].id != 0)
            sl_textfile_put(w, "of %" PRIu32 " %016" PRIx64 "\n", at[i].id,
                            at[i].birth);
}

int sl_node_file_write(struct sl_textfile_writer *w, int directory,
                       const struct sl_node_durable *d)
{
    sl_textfile_begin(w, directory, &kind);
    sl_textfile_put(w, "id %" PRIu32 "\n", d->id);
    sl_textfile_put(w, "birth %016" PRIx64 "\n", d->birth);
    sl_textfile_put(w, "fence_limit %" PRIu64 "\n", d->fence_limit);
    sl_textfile_put(w, "lease_longest_ms %" PRId64 "\n", d->lease_longest_ms);
    put_ballot(w, "promised", d->promised);
    put_ballot(w, "accepted", d->accepted);
    put_list(w, "force", &d->force);
    put_list(w, "vote", &d->vote);
    put_list(w, "stored", &d->stored);
    put_births(w, d->births);
    return sl_textfile_commit(w);
}

/* --- Reading --------------------------------------------------------------- */

#define VERSION_MAX INT64_MAX
#define MS_MAX ((int64_t)1 << 52)

static bool read_ballot(struct sl_textfile_reader *r, const char *name,
                        struct sl_ballot *out)
{
    int64_t id;
    if (!sl_textfile_skip(r, name) || !sl_textfile_word64(r, ' ', &out->number) ||
        !sl_textfile_number(r, 0, SL_NODE_ID_MAX, '\n', &id))
        return false;
    out->id = (sl_node_id)id;
    return true;
}

static bool read_member(struct sl_textfile_reader *r, struct sl_member *out)
{
    int64_t id;
    if (!sl_textfile_skip(r, "node ") ||
        !sl_textfile_number(r, 1, SL_NODE_ID_MAX, ' ', &id) ||
        !sl_textfile_word64(r, ' ', &out->birth))
        return false;
    out->id = (sl_node_id)id;
    return sl_textfile_rest(r, out->address, sizeof out->address) &&
           is_plain(out->address);
}

static bool read_list(struct sl_textfile_reader *r, const char *name,
                      struct sl_membership *out)
{
    int64_t version, count, added;
    if (!sl_textfile_skip(r, name) ||
        !sl_textfile_number(r, 0, VERSION_MAX, ' ', &version) ||
        !sl_textfile_number(r, version > 0 ? 1 : 0, version > 0 ? SL_NODES_MAX : 0, ' ',
                            &count) ||
        !sl_textfile_number(r, 0, SL_NODE_ID_MAX, ' ', &added) ||
        !sl_textfile_word64(r, '\n', &out->cluster))
        return false;
    out->version = (uint64_t)version;
    out->count = (uint32_t)count;
    out->added = (sl_node_id)added;
    for (uint32_t i = 0; i < out->count; i++)
        if (!read_member(r, &out->at[i]) ||
            (i > 0 && out->at[i].id <= out->at[i - 1].id))
            return false;
    return true;
}

static bool read_births(struct sl_textfile_reader *r, struct sl_node_birth *out)
{
    int64_t count, id;
    if (!sl_textfile_field(r, "births ", SL_NODES_MAX, &count)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!sl_textfile_skip(r, "of ") ||
            !sl_textfile_number(r, 1, SL_NODE_ID_MAX, ' ', &id) ||
            !sl_textfile_word64(r, '\n', &out[i].birth))
            return false;
        out[i].id = (sl_node_id)id;
    }
    return true;
}

static bool read_all(struct sl_textfile_reader *r, struct sl_node_durable *d)
{
    int64_t limit, id;
    bool good = sl_textfile_skip(r, "id ") &&
                sl_textfile_number(r, 1, SL_NODE_ID_MAX, '\n', &id) &&
                sl_textfile_skip(r, "birth ") &&
                sl_textfile_word64(r, '\n', &d->birth) && d->birth != 0 &&
                sl_textfile_field(r, "fence_limit ", (int64_t)SL_FENCE_MAX, &limit) &&
                sl_textfile_field(r, "lease_longest_ms ", MS_MAX,
                                  &d->lease_longest_ms) &&
                read_ballot(r, "promised ", &d->promised) &&
                read_ballot(r, "accepted ", &d->accepted) &&
                read_list(r, "force ", &d->force) && read_list(r, "vote ", &d->vote) &&
                read_list(r, "stored ", &d->stored) && read_births(r, d->births);
    if (!good || !sl_textfile_at_end(r)) return false;
    d->id = (sl_node_id)id;
    d->fence_limit = (sl_fence)limit;
    return true;
}

enum sl_found sl_node_file_read(int directory, struct sl_node_durable *out,
                                bool *has_journal)
{
    struct sl_textfile_reader r;
    *out = (struct sl_node_durable){0};
    *has_journal = false;
    enum sl_found found = sl_textfile_open(&r, directory, &kind);
    if (found != SL_FOUND) return found;
    *has_journal = r.format > 1;
    if (!read_all(&r, out)) found = SL_FOUND_NONSENSE;
    sl_textfile_close(&r);
    return found;
}
