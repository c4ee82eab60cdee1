/* home.h - the default segment in the user's home directory.
 *
 *     $XDG_STATE_HOME/sluice/segment, or ~/.local/state/sluice/segment
 *
 * No other user can create or remove files there, and the system does not delete the
 * file when the user logs out. The file is used only on a file system that is known to
 * be local: processes of other machines must not map the file, and locks and mappings
 * work differently on network file systems. If the directory cannot be used, the
 * default segment is in /dev/shm (own.h).
 *
 * All processes of a user should choose the same file. So ~ means HOME only if the user
 * owns that directory. Otherwise ~ means the home directory from the password database:
 * services often run without HOME, and sudo can keep the HOME of another user. For the
 * same reason, a temporary error such as a full disk makes the call fail instead of
 * choosing /dev/shm. */
#ifndef SL_CANAL_HOME_H
#define SL_CANAL_HOME_H

#include <stdbool.h>
#include <stddef.h>

/* Find the path of the segment. If `create`, create the missing directories; otherwise find
 * only a file that exists. Returns 0 or an errno. ENOENT: the default segment is in
 * /dev/shm. */
int sl_canal_home_path(bool create, char *out, size_t size);

/* Prepare a file that was just created: turn off copy-on-write on Btrfs. */
void sl_canal_home_prepare(int fd);

#endif /* SL_CANAL_HOME_H */
