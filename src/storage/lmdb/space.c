/* space.c - limits how much of the file an operation may use, and recognizes a full
 * disk. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "storage/lmdb/lmdb_internal.h"

#define RESERVE_BYTES_MIN ((size_t)256 << 10) /* For operations that free space. */
#define RESERVE_BYTES_MAX ((size_t)64 << 20)
#define DISK_BYTES_MIN ((size_t)1 << 20) /* A disk with less free space is full. */

size_t sl_lmdb_file_bytes(const struct sl_lmdb *l)
{
    MDB_envinfo info;
    MDB_stat pages;
    mdb_env_info(l->store.env, &info);
    mdb_env_stat(l->store.env, &pages);
    return (info.me_last_pgno + 1) * pages.ms_psize;
}

size_t sl_lmdb_map_bytes(const struct sl_lmdb *l, enum sl_lmdb_level level)
{
    size_t all = l->settings.bytes_max, reserve = all / 8;
    if (reserve < RESERVE_BYTES_MIN) reserve = RESERVE_BYTES_MIN;
    if (reserve > RESERVE_BYTES_MAX) reserve = RESERVE_BYTES_MAX;
    if (level == SL_LMDB_FOR_WRITES) all -= reserve;
    if (level == SL_LMDB_FOR_DELETIONS) all -= reserve / 4;
    return all & ~(size_t)0xffff; /* A multiple of every possible page size. */
}

int sl_lmdb_open_store(struct sl_lmdb *l, char *why, size_t why_bytes)
{
    l->level = SL_LMDB_FOR_WRITES;
    return sl_store_open(&l->store, l->directory,
                         sl_lmdb_map_bytes(l, SL_LMDB_FOR_WRITES), why, why_bytes);
}

int sl_lmdb_reopen(struct sl_lmdb *l)
{
    char why[SL_STORAGE_WHY_BYTES];
    pthread_mutex_lock(&l->map);
    sl_store_close(&l->store);
    int status = sl_lmdb_open_store(l, why, sizeof why);
    pthread_mutex_unlock(&l->map);
    return status == SLUICE_OK ? 0 : EIO;
}

int sl_lmdb_set_level(struct sl_lmdb *l, enum sl_lmdb_level level)
{
    if (l->level == level && level != SL_LMDB_NO_GROWTH) return 0;
    size_t bytes = level == SL_LMDB_NO_GROWTH ? 0 : sl_lmdb_map_bytes(l, level);
    size_t least = sl_lmdb_file_bytes(l);
    if (bytes < least) bytes = least; /* A smaller map would hide pages in use. */
    pthread_mutex_lock(&l->map);
    int rc = mdb_env_set_mapsize(l->store.env, bytes);
    if (rc == 0) l->level = level;
    pthread_mutex_unlock(&l->map);
    return rc == 0 ? 0 : sl_lmdb_reopen(l);
}

/* Return whether the disk is full. When a disk becomes full, a write may be incomplete,
 * and LMDB reports an incomplete write as EIO. */
static bool is_full(const struct sl_lmdb *l)
{
    char path[PATH_MAX];
    struct statvfs disk;
    struct rlimit limit;
    struct stat st;
    if (!sl_store_path(l->directory, SL_STORE_FILE, path, sizeof path)) return false;
    if (statvfs(path, &disk) == 0 &&
        (uint64_t)disk.f_bavail * disk.f_frsize < DISK_BYTES_MIN)
        return true;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           stat(path, &st) == 0 && (rlim_t)st.st_size + DISK_BYTES_MIN > limit.rlim_cur;
}

int sl_lmdb_status(const struct sl_lmdb *l, int rc)
{
    int status = sl_store_status(rc);
    switch (status) {
        case SLUICE_ENOSPC:
        case SLUICE_ENOMEM:
        case SLUICE_ETOOBIG: return status;
        default: break;
    }
    return rc == EIO && is_full(l) ? SLUICE_ENOSPC : SLUICE_EIO;
}
