/* store_open.c - creates and opens a store; on failure it reports the reason. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluice.h"
#include "storage/lmdb/store.h"

#define NEW_FILE SL_STORE_FILE "-new" /* A store that is not complete yet. */
#define FORMAT "sluice format"
#define FORMAT_MAX 999u

/* LOCK_BYTES are enough for READERS. */
enum { DATABASES = 5, READERS = 126, LOCK_BYTES = 8192 };

static const struct {
    const char *name;
    size_t at;
} databases[DATABASES] = {
    {"meta", offsetof(struct sl_store, meta)},
    {"data", offsetof(struct sl_store, data)},
    {"requests", offsetof(struct sl_store, requests)},
    {"order", offsetof(struct sl_store, order)},
    {"barred", offsetof(struct sl_store, barred)},
};

int sl_store_database_count(void)
{
    return DATABASES;
}

int sl_store_database(struct sl_bytes name)
{
    for (int i = 0; i < DATABASES; i++)
        if (strlen(databases[i].name) == name.n &&
            memcmp(databases[i].name, name.at, name.n) == 0)
            return i;
    return -1;
}

bool sl_store_path(const char *directory, const char *name, char *out, size_t out_bytes)
{
    int n = snprintf(out, out_bytes, "%s/%s", directory, name);
    return n > 0 && (size_t)n < out_bytes;
}

/* --- Errors ------------------------------------------------------------------ */

static const char *explanation_of(int rc)
{
    switch (sl_store_status(rc)) {
        case SLUICE_EFOREIGN:
            return "is not a store of Sluice; choose another directory";
        case SLUICE_EVERSION:
            return "was created by another version of Sluice or LMDB; dump it with "
                   "that "
                   "version (sluice store dump) and load the dump with this one";
        case SLUICE_ETRUNCATED:
            return "is damaged; restore a copy, or save the readable records (sluice "
                   "store "
                   "dump) and load them into an empty directory";
        case SLUICE_ENOSPC:
            return "does not fit on the disk, which is full; free some space";
        case SLUICE_EACCES:
            return "cannot be opened by this user; change the owner of the directory "
                   "and "
                   "its files";
        case SLUICE_ENOENT:
            return "does not exist; is this the data directory of a server?";
        default: return NULL;
    }
}

static int refuse(const char *path, int rc, char *why, size_t why_bytes)
{
    const char *text = rc == ELOOP
                           ? "is a symbolic link; replace it with the file itself"
                           : explanation_of(rc);
    if (text != NULL) snprintf(why, why_bytes, "the file %s %s", path, text);
    else snprintf(why, why_bytes, "the file %s: %s", path, mdb_strerror(rc));
    return rc == ELOOP ? SLUICE_EACCES : sl_store_status(rc);
}

/* --- LMDB -------------------------------------------------------------------- */

/* Create the lock file and allocate its space. LMDB maps its lock file: if the disk had
 * no space for a page of the file, writing to that page would raise SIGBUS. */
static int make_lock(const char *path)
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s-lock", path) >= (int)sizeof name)
        return ENAMETOOLONG;
    int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int rc = posix_fallocate(fd, 0, LOCK_BYTES);
    close(fd);
    return rc == EOPNOTSUPP || rc == EINVAL ? 0 : rc;
}

/* LMDB calls this before it prints a failed assertion and aborts. */
static void on_assert(MDB_env *env, const char *where)
{
    const char *path = "";
    (void)where;
    mdb_env_get_path(env, &path);
    fprintf(stderr,
            "the file %s is damaged; run \"sluice store check\" for details. LMDB "
            "reports: ",
            path);
}

/* Return whether a path is a symbolic link. LMDB would follow the link and write to
 * another file. It writes to the lock file even if it only reads the store. */
static bool is_link(const char *path)
{
    char lock[PATH_MAX];
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) return true;
    int n = snprintf(lock, sizeof lock, "%s-lock", path);
    return n < (int)sizeof lock && lstat(lock, &st) == 0 && S_ISLNK(st.st_mode);
}

static int open_env(struct sl_store *s, const char *path, size_t bytes_max)
{
    unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | (bytes_max == 0 ? MDB_RDONLY : 0);
    if (is_link(path)) return ELOOP;
    int rc = mdb_env_create(&s->env), dead;
    if (rc != 0) {
        s->env = NULL;
        return rc;
    }
    if ((rc = mdb_env_set_assert(s->env, on_assert)) != 0) return rc;
    if ((rc = mdb_env_set_maxdbs(s->env, DATABASES)) != 0) return rc;
    if ((rc = mdb_env_set_maxreaders(s->env, READERS)) != 0) return rc;
    if (bytes_max > 0) {
        if ((rc = mdb_env_set_mapsize(s->env, bytes_max)) != 0) return rc;
        if ((rc = make_lock(path)) != 0) return rc;
    }
    if ((rc = mdb_env_open(s->env, path, flags, 0600)) != 0) return rc;
    if (mdb_env_get_maxkeysize(s->env) < SL_STORE_KEY_MAX) return MDB_VERSION_MISMATCH;
    return mdb_reader_check(s->env,
                            /* Otherwise LMDB would keep old pages for readers that were
                             * killed. */
                            &dead);
}

static int open_databases(struct sl_store *s, MDB_txn *txn, unsigned flags)
{
    for (size_t i = 0; i < DATABASES; i++) {
        MDB_dbi *dbi = (MDB_dbi *)(void *)((char *)s + databases[i].at);
        int rc = mdb_dbi_open(txn, databases[i].name, flags, dbi);
        if (rc != 0)
            return rc == MDB_NOTFOUND || rc == MDB_INCOMPATIBLE ? MDB_INVALID : rc;
    }
    return 0;
}

static int read_format(struct sl_store *s, MDB_txn *txn)
{
    uint64_t n;
    int rc = sl_store_get_number(s, txn, FORMAT, &n);
    if (rc == MDB_CORRUPTED) return MDB_INVALID;
    if (rc != 0) return rc;
    /* No Sluice version will have such a format number. */
    if (n > FORMAT_MAX) return MDB_CORRUPTED;
    if (n != SL_STORE_FORMAT) return MDB_VERSION_MISMATCH;
    rc = sl_store_get_number(s, txn, SL_STORE_TERM, &n);
    return rc != 0 ? rc : sl_store_get_number(s, txn, SL_STORE_REVISION, &n);
}

static int read_databases(struct sl_store *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0) return rc;
    rc = open_databases(s, txn, 0);
    if (rc == 0) rc = read_format(s, txn);
    if (rc == 0) return mdb_txn_commit(txn); /* The database handles stay valid. */
    mdb_txn_abort(txn);
    return rc;
}

/* --- Opening ----------------------------------------------------------------- */

/* Reject an empty file: LMDB would create a new store in it, but a complete store is
 * never empty. */
static int check_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return errno;
    if (!S_ISREG(st.st_mode)) return MDB_INVALID;
    return st.st_size == 0 ? MDB_CORRUPTED : 0;
}

static int check_content(struct sl_store *s)
{
    struct sl_store_counts counts;
    char why[200];
    int rc = read_databases(s);
    if (rc != 0) return rc;
    return sl_store_check(s, &counts, why, sizeof why) == SLUICE_OK ? 0 : MDB_CORRUPTED;
}

/* Handle a file that is shorter than all its pages together. Either the last pages are
 * free and were never written, or the file was truncated, and reading beyond its end
 * would raise SIGBUS. So this function extends the file, checks the contents, and keeps
 * the file extended if the contents are good. Only a writer may do this: a reader may
 * see a store that another process is extending. */
static int check_end(struct sl_store *s, const char *path)
{
    MDB_envinfo info;
    MDB_stat pages;
    struct stat st;
    mdb_env_info(s->env, &info);
    mdb_env_stat(s->env, &pages);
    off_t needed = (off_t)((info.me_last_pgno + 1) * pages.ms_psize);
    if (stat(path, &st) != 0) return errno;
    if (st.st_size >= needed) return 0;
    if (truncate(path, needed) != 0) return errno;
    if (check_content(s) == 0) return 0;
    return truncate(path, st.st_size) == 0 ? MDB_CORRUPTED : errno;
}

int sl_store_open(struct sl_store *s, const char *directory, size_t bytes_max,
                  char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    memset(s, 0, sizeof *s);
    if (!sl_store_path(directory, SL_STORE_FILE, path, sizeof path))
        return refuse(directory, ENAMETOOLONG, why, why_bytes);
    int rc = check_file(path);
    if (rc == 0) rc = open_env(s, path, bytes_max);
    if (rc == 0 && bytes_max > 0) rc = check_end(s, path);
    if (rc == 0) rc = read_databases(s);
    if (rc == 0) return SLUICE_OK;
    sl_store_close(s);
    return refuse(path, rc, why, why_bytes);
}

void sl_store_close(struct sl_store *s)
{
    if (s->env != NULL) mdb_env_close(s->env);
    s->env = NULL;
}

/* --- Creating ---------------------------------------------------------------- */

static int write_format(struct sl_store *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(s->env, NULL, 0, &txn);
    if (rc != 0) return rc;
    rc = open_databases(s, txn, MDB_CREATE);
    if (rc == 0) rc = sl_store_put_number(s, txn, FORMAT, SL_STORE_FORMAT);
    if (rc == 0) rc = sl_store_put_number(s, txn, SL_STORE_TERM, 0);
    if (rc == 0) rc = sl_store_put_number(s, txn, SL_STORE_REVISION, 0);
    if (rc == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static void remove_in(const char *directory, const char *name)
{
    char path[PATH_MAX];
    if (sl_store_path(directory, name, path, sizeof path)) unlink(path);
}

void sl_store_forget(struct sl_store *s, const char *directory)
{
    sl_store_close(s);
    remove_in(directory, NEW_FILE);
    remove_in(directory, NEW_FILE "-lock");
}

int sl_store_begin(struct sl_store *s, const char *directory, size_t bytes_max,
                   char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    memset(s, 0, sizeof *s);
    if (!sl_store_path(directory, NEW_FILE, path, sizeof path))
        return refuse(directory, ENAMETOOLONG, why, why_bytes);
    sl_store_forget(s, directory); /* Remove an unfinished earlier one. */
    int rc = open_env(s, path, bytes_max);
    if (rc == 0) rc = write_format(s);
    if (rc == 0) return SLUICE_OK;
    sl_store_forget(s, directory);
    if (rc == ENOENT) {
        snprintf(why, why_bytes, "the directory %s does not exist", directory);
        return SLUICE_ENOENT;
    }
    return refuse(path, rc, why, why_bytes);
}

static int sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int rc = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return rc;
}

int sl_store_finish(struct sl_store *s, const char *directory, char *why,
                    size_t why_bytes)
{
    char from[PATH_MAX], to[PATH_MAX];
    /* The path fits: the file was opened with it. */
    sl_store_path(directory, NEW_FILE, from, sizeof from);
    sl_store_path(directory, SL_STORE_FILE, to, sizeof to);
    int rc = mdb_env_sync(s->env, 1);
    sl_store_close(s);
    /* Do not use rename(), which would replace an existing store. */
    if (rc == 0 && link(from, to) != 0) rc = errno;
    sl_store_forget(s, directory);
    if (rc == 0) rc = sync_directory(directory);
    return rc == 0 ? SLUICE_OK : refuse(to, rc, why, why_bytes);
}
