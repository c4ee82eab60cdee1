/* store_pages.c - checks every page of the file before LMDB maps it.
 *
 * LMDB trusts its pages: a damaged page can make it read outside the map, loop forever,
 * or overwrite pages that are in use. So these functions walk through the whole file
 * and trust no number in it. They visit each page at most once, so the walk always
 * ends. LMDB can read and write a file that passes this check. The file consists of:
 *
 *     page 0, 1     metas; the newer one names the roots of two trees
 *     main tree     names of our databases -> their roots
 *     free tree     transaction -> pages that are free
 *
 *     a page        head(16) pointers(2 each) ... nodes
 *     a node        low(2) high(2) flags(2) key bytes(2) key value
 *                   in a branch the value is a page: flags are its highest bits; in a leaf a
 *                   large value is the number of its own pages
 *
 * This is the layout of LMDB 0.9, as mdb.c describes it. store_check.c verifies the
 * checksums of the records. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluice.h"
#include "storage/lmdb/store.h"

#define MAGIC 0xBEEFC0DEu
#define VERSION 1u
#define NO_PAGE SIZE_MAX
#define DEPTH_MAX 32u /* LMDB's. */
#define PAGE_BYTES_MAX 65536u
#define MAP_BYTES_MAX (SIZE_MAX >> 16)
#define TXN_MAX (SIZE_MAX >> 8)

enum { BRANCH = 1, LEAF = 2, OVERFLOW = 4, META = 8 }; /* Flags of a page, */
enum { BIG = 1, SUB = 2 };                             /* of a node in a leaf, */
enum { INTEGER_KEY = 8, FILE_FLAGS = 0x4000 };         /* and of a tree. */

struct tree {
    uint32_t pad; /* In the free tree: the page size. */
    uint16_t flags, depth;
    size_t branches, leaves, overflows, entries, root;
};

struct meta {
    uint32_t magic, version;
    size_t address, map_bytes;
    struct tree free, main;
    size_t last, txn;
};

struct head {
    size_t number;
    uint16_t pad, flags;
    union {
        struct {
            uint16_t lower, upper;
        };
        uint32_t pages;
    };
};

#define NODE_BYTES 8u
_Static_assert(sizeof(struct head) == 8 + sizeof(size_t), "a page's head");
_Static_assert(sizeof(struct tree) == 8 + 5 * sizeof(size_t), "a tree's root");

struct walk {
    const char *map;
    size_t file_bytes, page_bytes;
    struct meta meta; /* The newer of the two. */
    unsigned char *taken;
    uint32_t names; /* Which of our databases we have found, as bits. */
    char *why;
    size_t why_bytes;
};

/* The walk through one tree: the counts that the tree states, and those that we have
 * found. */
struct visit {
    struct walk *walk;
    const char *name;
    struct tree says, met;
    int (*one)(struct visit *v, struct sl_bytes key, struct sl_bytes value, bool sub);
};

__attribute__((format(printf, 2, 3))) static int broken(struct walk *w,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->why, w->why_bytes, format, args);
    va_end(args);
    return MDB_CORRUPTED;
}

/* --- Pages ------------------------------------------------------------------- */

/* Mark a page as used. Fails if it is marked already: each page belongs to one tree or
 * is free. */
static int take_page(struct walk *w, size_t number)
{
    if (number < 2 || number > w->meta.last)
        return broken(w, "page %zu does not exist", number);
    unsigned char bit = (unsigned char)(1u << number % 8);
    if ((w->taken[number / 8] & bit) != 0)
        return broken(w, "page %zu is used twice", number);
    w->taken[number / 8] |= bit;
    return 0;
}

/* Mark a page as used, and read its head. */
static int read_page(struct walk *w, size_t number, struct head *head)
{
    int rc = take_page(w, number);
    if (rc != 0) return rc;
    if (number >= w->file_bytes / w->page_bytes)
        return broken(w, "page %zu is beyond the end of the file", number);
    memcpy(head, w->map + number * w->page_bytes, sizeof *head);
    if (head->number != number)
        return broken(w, "page %zu has a wrong page number", number);
    return 0;
}

/* Read the overflow pages of a large value. */
static int read_large(struct visit *v, struct sl_bytes *value)
{
    struct walk *w = v->walk;
    struct head head;
    size_t number, bytes = value->n;
    memcpy(&number, value->at, sizeof number);
    int rc = read_page(w, number, &head);
    if (rc != 0) return rc;
    size_t in_file = w->file_bytes / w->page_bytes - number;
    if (head.flags != OVERFLOW || head.pages == 0 || head.pages > in_file ||
        bytes > head.pages * w->page_bytes - sizeof head)
        return broken(w, "page %zu is not an overflow page", number);
    for (size_t i = 1; i < head.pages; i++)
        if ((rc = take_page(w, number + i)) != 0) return rc;
    v->met.overflows += head.pages;
    *value = (struct sl_bytes){w->map + number * w->page_bytes + sizeof head, bytes};
    return 0;
}

/* --- Nodes ------------------------------------------------------------------- */

/* A page of a tree that is being read. */
struct page {
    size_t number;
    const char *at;
    bool leaf;
    uint32_t count, upper;
    unsigned char
        taken[PAGE_BYTES_MAX / 2]; /* The pairs of bytes that belong to a node. */
};

struct node {
    struct sl_bytes key,
        /* For a large value, n is its length, and `at` points to its page number. */
        value;
    size_t child;
    unsigned flags;
};

static uint32_t u16_at(const char *at)
{
    uint16_t n;
    memcpy(&n, at, sizeof n);
    return n;
}

/* Mark bytes as belonging to a node. Returns false if another node shares them. */
static bool take_bytes(struct page *p, size_t at, size_t n)
{
    for (size_t i = at / 2; i < (at + n + 1) / 2; i++)
        if (p->taken[i]++ != 0) return false;
    return true;
}

static int read_node(struct visit *v, struct page *p, uint32_t i, struct node *out)
{
    struct walk *w = v->walk;
    size_t at = u16_at(p->at + sizeof(struct head) + 2 * (size_t)i), bytes;
    if (at < p->upper || at % 2 != 0 || at + NODE_BYTES > w->page_bytes)
        return broken(w, "page %zu: node %u has an invalid offset", p->number, i);
    const char *node = p->at + at;
    uint32_t words[4] = {u16_at(node), u16_at(node + 2), u16_at(node + 4),
                         u16_at(node + 6)};
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    uint32_t low = words[1] | words[0] << 16;
#else
    uint32_t low = words[0] | words[1] << 16;
#endif
    size_t key = words[3];
    out->flags = p->leaf ? words[2] : 0;
    out->child = p->leaf ? 0 : (size_t)low | (size_t)words[2] << 16 << 16;
    bytes = !p->leaf ? 0 : (out->flags & BIG) != 0 ? sizeof(size_t) : low;
    if (out->flags != 0 && out->flags != BIG && out->flags != SUB)
        return broken(w, "page %zu: node %u has invalid flags %u", p->number, i,
                      out->flags);
    if (key > SL_STORE_KEY_MAX || (key == 0 && (p->leaf || i > 0)))
        return broken(w, "page %zu: key %u has an invalid length of %zu bytes",
                      p->number, i, key);
    if (bytes > w->page_bytes || at + NODE_BYTES + key + bytes > w->page_bytes ||
        !take_bytes(p, at, NODE_BYTES + key + bytes))
        return broken(w, "page %zu: node %u is too long or overlaps another node",
                      p->number, i);
    out->key = (struct sl_bytes){node + NODE_BYTES, key};
    out->value = (struct sl_bytes){node + NODE_BYTES + key, low};
    return 0;
}

static int compare(const struct visit *v, struct sl_bytes a, struct sl_bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n, x, y;
    if ((v->says.flags & INTEGER_KEY) == 0) {
        int order = memcmp(a.at, b.at, n);
        return order != 0 ? order : a.n < b.n ? -1 : a.n > b.n;
    }
    memcpy(&x, a.at, sizeof x);
    memcpy(&y, b.at, sizeof y);
    return x < y ? -1 : x > y;
}

/* Check that a key is at least `low` and below `high`; NULL means no bound. */
static int check_key(struct visit *v, const struct page *p, uint32_t i,
                     struct sl_bytes key, struct sl_bytes low, struct sl_bytes high)
{
    if ((v->says.flags & INTEGER_KEY) != 0 && key.n != sizeof(size_t))
        return broken(v->walk, "page %zu: key %u is not an integer", p->number, i);
    if ((low.at != NULL && compare(v, key, low) < 0) ||
        (high.at != NULL && compare(v, key, high) >= 0))
        return broken(v->walk, "page %zu: key %u is out of order", p->number, i);
    return 0;
}

/* --- Trees ------------------------------------------------------------------- */

static int read_leaf_node(struct visit *v, struct node *n)
{
    int rc = (n->flags & BIG) != 0 ? read_large(v, &n->value) : 0;
    v->met.entries++;
    return rc != 0 ? rc : v->one(v, n->key, n->value, (n->flags & SUB) != 0);
}

static int begin_page(struct visit *v, struct page *p, size_t number, unsigned depth)
{
    struct walk *w = v->walk;
    struct head head;
    int rc = read_page(w, number, &head);
    if (rc != 0) return rc;
    p->number = number;
    p->at = w->map + number * w->page_bytes;
    p->leaf = depth == v->says.depth;
    if (head.flags != (p->leaf ? LEAF : BRANCH))
        return broken(w, "database \"%s\": page %zu has invalid flags %u", v->name,
                      number, head.flags);
    if (head.lower < sizeof head || head.lower % 2 != 0 || head.upper < head.lower ||
        head.upper > w->page_bytes)
        return broken(w, "database \"%s\": page %zu has invalid bounds", v->name,
                      number);
    p->upper = head.upper;
    p->count = (head.lower - (uint32_t)sizeof head) / 2;
    memset(p->taken, 0, w->page_bytes / 2);
    if (p->leaf) v->met.leaves++;
    else v->met.branches++;
    if (p->count < (p->leaf ? 1 : 2))
        return broken(w, "database \"%s\": page %zu has too few nodes (%u)", v->name,
                      number, p->count);
    return 0;
}

static int walk_page(struct visit *v, size_t number, unsigned depth,
                     struct sl_bytes low, struct sl_bytes high);

/* Walk through the pages below a branch, each with the range of keys that it may
 * contain. */
static int walk_below(struct visit *v, const struct page *p, struct node *nodes,
                      unsigned depth, struct sl_bytes low, struct sl_bytes high)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->count; i++)
        rc = walk_page(v, nodes[i].child, depth + 1, i == 0 ? low : nodes[i].key,
                       i + 1 < p->count ? nodes[i + 1].key : high);
    return rc;
}

static int walk_nodes(struct visit *v, struct page *p, struct node *nodes,
                      unsigned depth, struct sl_bytes low, struct sl_bytes high)
{
    struct sl_bytes before = low;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->count; i++) {
        struct node *n = &nodes[i];
        rc = read_node(v, p, i, n);
        /* The first node of a branch has no key. */
        if (rc == 0 && (p->leaf || i > 0)) {
            rc = check_key(v, p, i, n->key, before, high);
            if (rc == 0 && i > (p->leaf ? 0u : 1u) && compare(v, n->key, before) == 0)
                rc = broken(v->walk, "page %zu: key %u is a duplicate", p->number, i);
            before = n->key;
        }
        if (rc == 0 && p->leaf) rc = read_leaf_node(v, n);
    }
    return rc != 0 || p->leaf ? rc : walk_below(v, p, nodes, depth, low, high);
}

static int walk_page(struct visit *v, size_t number, unsigned depth,
                     struct sl_bytes low, struct sl_bytes high)
{
    struct page *p = malloc(sizeof *p);
    int rc = p == NULL ? ENOMEM : begin_page(v, p, number, depth);
    struct node *nodes = rc == 0 ? malloc(p->count * sizeof *nodes) : NULL;
    if (rc == 0 && nodes == NULL) rc = ENOMEM;
    if (rc == 0) rc = walk_nodes(v, p, nodes, depth, low, high);
    free(nodes);
    free(p);
    return rc;
}

static int walk_tree(struct visit *v)
{
    const struct sl_bytes any = {NULL, 0};
    const struct tree *says = &v->says, *met = &v->met;
    int rc = 0;
    if (says->depth > DEPTH_MAX || (says->depth == 0) != (says->root == NO_PAGE))
        return broken(v->walk, "database \"%s\": invalid depth %u", v->name,
                      says->depth);
    if (says->root != NO_PAGE) rc = walk_page(v, says->root, 1, any, any);
    if (rc != 0) return rc;
    if (says->branches != met->branches || says->leaves != met->leaves ||
        says->overflows != met->overflows || says->entries != met->entries)
        return broken(v->walk, "database \"%s\": wrong count of pages or records",
                      v->name);
    return 0;
}

/* --- Contents of the trees --------------------------------------------------- */

static int take_record(struct visit *v, struct sl_bytes key, struct sl_bytes value,
                       bool sub)
{
    (void)key;
    (void)value;
    return sub ? broken(v->walk, "database \"%s\": a record has the flag of a database",
                        v->name)
               : 0;
}

/* Read a list of free pages: their count, then their numbers in descending order. */
static int take_free(struct visit *v, struct sl_bytes key, struct sl_bytes value,
                     bool sub)
{
    struct walk *w = v->walk;
    size_t txn, count = 0, number, before = SIZE_MAX;
    memcpy(&txn, key.at, sizeof txn);
    if (value.n >= sizeof count) memcpy(&count, value.at, sizeof count);
    /* For LMDB, transaction 0 means "none yet", so it would use these pages twice. */
    if (sub || txn == 0 || txn > w->meta.txn || value.n < sizeof count ||
        count > value.n / sizeof number - 1)
        return broken(w, "free pages: the list of transaction %zu is damaged", txn);
    for (size_t i = 1; i <= count; i++) {
        memcpy(&number, value.at + i * sizeof number, sizeof number);
        if (number >= before)
            return broken(w, "free pages: page %zu is out of order in its list",
                          number);
        int rc = take_page(w, number);
        if (rc != 0) return rc;
        before = number;
    }
    return 0;
}

static int take_database(struct visit *v, struct sl_bytes key, struct sl_bytes value,
                         bool sub)
{
    char name[16] = "";
    int i = sl_store_database(key);
    if (i < 0) return 0; /* Not one of our databases: skip its pages. */
    struct visit below = {.walk = v->walk, .name = name, .one = take_record};
    memcpy(name, key.at, key.n < sizeof name ? key.n : sizeof name - 1);
    v->walk->names |= 1u << i;
    if (!sub || value.n != sizeof below.says)
        return broken(v->walk, "%s: not a database", name);
    memcpy(&below.says, value.at, sizeof below.says);
    if (below.says.flags != 0)
        return broken(v->walk, "%s: invalid flags %u", name, below.says.flags);
    return walk_tree(&below);
}

/* --- The whole file ---------------------------------------------------------- */

#define UNWRITTEN_MAX 16384u /* Number of pages in a large transaction. */

static int check_meta(struct walk *w, const struct meta *m, size_t at)
{
    size_t bytes = m->free.pad;
    if (bytes != w->page_bytes || m->txn % 2 != at || m->txn > TXN_MAX ||
        m->map_bytes > MAP_BYTES_MAX || m->last < 1 || m->last >= m->map_bytes / bytes)
        return broken(w, "meta page %zu is damaged", at);
    /* Some of the last pages may be missing in the file, because LMDB does not write
     * pages that a transaction allocates and frees again. But if the number of the last
     * page is damaged and too high, LMDB would extend the file up to that page. */
    if (m->last > w->file_bytes / bytes + UNWRITTEN_MAX)
        return broken(w,
                      "meta page %zu: last page %zu is far beyond the end of the file",
                      at, m->last);
    if ((m->free.flags & ~FILE_FLAGS) != INTEGER_KEY || m->main.flags != 0)
        return broken(w, "meta page %zu has invalid flags", at);
    return 0;
}

static bool is_page_size(size_t n)
{
    return n >= 512 && n <= PAGE_BYTES_MAX && (n & (n - 1)) == 0;
}

/* Read both meta pages, and use the newer one. If only one of them has LMDB's magic
 * number, or they differ in the version, one of them is damaged. */
static int read_metas(struct walk *w)
{
    struct meta metas[2] = {0};
    struct head heads[2] = {0};
    const size_t needed = sizeof heads[0] + sizeof metas[0];
    if (w->file_bytes < needed) return MDB_INVALID;
    memcpy(&metas[0], w->map + sizeof heads[0], sizeof metas[0]);
    w->page_bytes = metas[0].free.pad;
    if (!is_page_size(w->page_bytes)) w->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < 2; i++) {
        size_t at = i * w->page_bytes;
        if (w->file_bytes < at + needed) continue;
        memcpy(&heads[i], w->map + at, sizeof heads[i]);
        memcpy(&metas[i], w->map + at + sizeof heads[i], sizeof metas[i]);
    }
    if (metas[0].magic != MAGIC && metas[1].magic != MAGIC) return MDB_INVALID;
    if (metas[0].version == metas[1].version && metas[0].version != VERSION)
        return MDB_VERSION_MISMATCH;
    for (size_t i = 0; i < 2; i++)
        if (metas[i].magic != MAGIC || metas[i].version != VERSION ||
            heads[i].flags != META || metas[i].free.pad != w->page_bytes)
            return broken(w, "meta page %zu is damaged", i);
    size_t newer = metas[0].txn < metas[1].txn ? 1 : 0;
    w->meta = metas[newer];
    return check_meta(w, &w->meta, newer);
}

static int walk_trees(struct walk *w)
{
    struct visit main = {
        .walk = w, .name = "main", .says = w->meta.main, .one = take_database};
    struct visit free_ = {
        .walk = w, .name = "free", .says = w->meta.free, .one = take_free};
    int rc = walk_tree(&main);
    int named = __builtin_popcount(w->names), all = sl_store_database_count();
    if (rc == 0 && named < 2 && named < all) return MDB_INVALID;
    if (rc == 0 && (named != all || main.met.entries != (size_t)all))
        rc = broken(w, "a database is missing or unknown");
    return rc != 0 ? rc : walk_tree(&free_);
}

static int walk(struct walk *w)
{
    int rc = read_metas(w);
    if (rc != 0) return rc;
    w->taken = calloc(w->meta.last / 8 + 1, 1);
    if (w->taken == NULL) return ENOMEM;
    rc = walk_trees(w);
    free(w->taken);
    return rc;
}

static int walk_file(struct walk *w, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return errno;
    if (!S_ISREG(st.st_mode)) return MDB_INVALID;
    if (st.st_size == 0) return broken(w, "the file is empty");
    w->file_bytes = (size_t)st.st_size;
    void *map = mmap(NULL, w->file_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return errno;
    w->map = map;
    int rc = walk(w);
    munmap(map, w->file_bytes);
    return rc;
}

int sl_store_check_pages(const char *directory, char *why, size_t why_bytes)
{
    struct walk w = {.why = why, .why_bytes = why_bytes};
    char path[PATH_MAX];
    *why = '\0';
    if (!sl_store_path(directory, SL_STORE_FILE, path, sizeof path))
        return sl_store_status(ENAMETOOLONG);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int rc = fd < 0 ? errno : walk_file(&w, fd);
    if (fd >= 0) close(fd);
    return sl_store_status(rc);
}
