/* file_life.c - describes the life of a journal: boot, machine, mount and file. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "journal/file.h"

/* --- File systems ------------------------------------------------------------------ */

/* The numbers are those of statfs(2). canal/home.c has a list of its own, because it asks another
 * question: which file systems can share a mapping between the processes of one machine. */
static const struct {
    uint32_t type;
    enum sl_journal_place place;
} places[] = {
    {0x0000ef53, SL_PLACE_LOCAL},   /* ext2, ext3, ext4 */
    {0x58465342, SL_PLACE_LOCAL},   /* XFS */
    {0x9123683e, SL_PLACE_LOCAL},   /* Btrfs */
    {0xf2f52010, SL_PLACE_LOCAL},   /* F2FS */
    {0x2fc12fc1, SL_PLACE_LOCAL},   /* ZFS */
    {0xca451a4e, SL_PLACE_LOCAL},   /* bcachefs */
    {0x3153464a, SL_PLACE_LOCAL},   /* JFS */
    {0x01021994, SL_PLACE_MEMORY},  /* tmpfs */
    {0x858458f6, SL_PLACE_MEMORY},  /* ramfs */
    {0x794c7630, SL_PLACE_MEMORY},  /* overlayfs: usually lost with its container */
    {0x61756673, SL_PLACE_MEMORY},  /* aufs */
    {0x00006969, SL_PLACE_NETWORK}, /* NFS */
    {0xff534d42, SL_PLACE_NETWORK}, /* CIFS */
    {0xfe534d42, SL_PLACE_NETWORK}, /* SMB 2 */
    {0x0000517b, SL_PLACE_NETWORK}, /* SMB */
    {0x65735546, SL_PLACE_NETWORK}, /* FUSE, also virtiofs */
    {0x01021997, SL_PLACE_NETWORK}, /* 9P */
    {0x00c36400, SL_PLACE_NETWORK}, /* Ceph */
    {0x5346414f, SL_PLACE_NETWORK}, /* AFS */
    {0x6b414653, SL_PLACE_NETWORK}, /* AFS */
    {0x73757245, SL_PLACE_NETWORK}, /* Coda */
    {0x01161970, SL_PLACE_NETWORK}, /* GFS2 */
    {0x7461636f, SL_PLACE_NETWORK}, /* OCFS2 */
    {0x0bd00bd0, SL_PLACE_NETWORK}, /* Lustre */
    {0x47504653, SL_PLACE_NETWORK}, /* GPFS */
    {0x19830326, SL_PLACE_NETWORK}, /* BeeGFS */
    {0x786f4256, SL_PLACE_NETWORK}, /* directories shared by VirtualBox */
};

enum sl_journal_place sl_journal_place(int directory)
{
    struct statfs fs;
    if (fstatfs(directory, &fs) != 0) return SL_PLACE_UNKNOWN;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if ((uint32_t)fs.f_type == places[i].type) return places[i].place;
    return SL_PLACE_UNKNOWN;
}

/* --- Boot and machine -------------------------------------------------------------- */

/* Read a small file, without the end of its last line. The text is "" if there is no such file. */
static void read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    if (fd >= 0) close(fd);
    while (n > 0 && out[n - 1] == '\n') n--;
    out[n > 0 ? n : 0] = '\0';
}

/* Describe the clock: the time namespace, and by how much it moves CLOCK_BOOTTIME. The kernel
 * can reuse the number of a namespace, so the text that identifies the clock also has the offset. */
static void read_clock(struct sl_life *out)
{
    char text[200], id[24];
    long long seconds = 0, nanoseconds = 0;
    ssize_t n = readlink("/proc/self/ns/time", id, sizeof id - 1);
    id[n > 0 ? n : 0] = '\0';
    read_text("/proc/self/timens_offsets", text, sizeof text);
    const char *line = strstr(text, "boottime");
    if (line != NULL) sscanf(line, "boottime %lld %lld", &seconds, &nanoseconds);
    snprintf(out->clock, sizeof out->clock, "%s%+lld.%09lld", id, seconds, nanoseconds);
    out->boot_ms = seconds * 1000 + nanoseconds / 1000000;
}

/* --- The mount ----------------------------------------------------------------------- */

/* Identify the time from when a file system is mounted first until it is unmounted everywhere: the
 * kernel makes a directory in /sys for it, whose inode number is not used again soon. The id of the
 * mount is not used, because a service in a mount namespace of its own gets another one at each
 * start. Returns 0 if unknown. */
static uint64_t mount_of(int directory)
{
    static const char *const kinds[] = {"ext4", "xfs", "f2fs"};
    char path[PATH_MAX + 32], link[PATH_MAX];
    struct stat st;
    if (fstat(directory, &st) != 0) return 0;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(st.st_dev),
             minor(st.st_dev));
    ssize_t n = readlink(path, link, sizeof link - 1);
    if (n <= 0) return 0;
    link[n] = '\0';
    const char *name = strrchr(link, '/');
    for (size_t i = 0; name != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        snprintf(path, sizeof path, "/sys/fs/%s%s", kinds[i], name);
        if (stat(path, &st) == 0) return st.st_ino;
    }
    return 0;
}

/* --- The life ------------------------------------------------------------------------ */

void sl_journal_life(int directory, struct sl_life *out)
{
    struct stat st;
    *out = (struct sl_life){0};
    read_text("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot);
    read_text("/etc/machine-id", out->machine, sizeof out->machine);
    read_clock(out);
    out->mount = mount_of(directory);
    enum sl_journal_place place = sl_journal_place(directory);
    out->keeps_writes = place == SL_PLACE_LOCAL || place == SL_PLACE_MEMORY;
    /* If the look-up fails, that is an I/O error, too. */
    out->had_error = fstatat(directory, SL_JOURNAL_ERROR, &st, AT_SYMLINK_NOFOLLOW) ==
                         0 ||
                     errno != ENOENT;
    if (fstatat(directory, SL_JOURNAL_NAME, &st, AT_SYMLINK_NOFOLLOW) != 0) return;
    out->device = st.st_dev;
    out->inode = st.st_ino;
}
