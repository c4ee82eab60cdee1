/* main.c - sluice-server: reads the settings, creates the arbiters of the deployment, runs the
 * event loop. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/arbiter/local.h"
#include "server/arbiter/majority.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/command/dispatch.h"
#include "server/forward/forward.h"
#include "server/observe/log.h"
#include "server/observe/memory.h"
#include "server/server.h"
#include "sluice.h"

enum { EXIT_STOPPED = 0, EXIT_COULD_NOT = 1, EXIT_SETTINGS = 2 };

/* Tell systemd that the server is ready (sd_notify(3)), if it runs under systemd. */
static void say_ready(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (path == NULL || *path == '\0' || strlen(path) >= sizeof a.sun_path) return;
    size_t n = strlen(path);
    memcpy(a.sun_path, path, n);
    if (*path == '@') a.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&a, size) < 0)
        sl_log(SL_LOG_WARN,
               "cannot notify systemd that the server is ready (NOTIFY_SOCKET)", NULL);
    close(fd);
}

/* Keep memory out of core files, because it contains passwords and other users may read the core. A
 * size limit of 0 does not stop a program that receives cores through a pipe, so this also excludes
 * memory with coredump_filter. */
static void keep_from_cores(void)
{
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "0", 1) != 1)
        sl_log(SL_LOG_WARN,
               "core-dumps: cannot write /proc/self/coredump_filter; core files may "
               "contain "
               "passwords",
               NULL);
    close(fd);
}

static int start_state(struct server *s)
{
    if (s->settings->node == 0) return sl_state_start(s);
    int status = s->settings->engine == SL_ENGINE_ETCD
                     ? sl_state_start_storage(s, sl_forward_write_state)
                     : sl_state_start_without(s);
    return status == 0 && sl_majority_start(s) == 0 ? 0 : -1;
}

/* Create the arbiters of this deployment, in the order in which the event loop pumps them. */
static int start_arbiters(struct server *s)
{
    struct arbiters *a = &s->arbiters;
    bool has_keeper = s->majority != NULL && s->settings->engine == SL_ENGINE_ETCD;
    if (s->majority != NULL) a->majority = sl_majority_arbiter(s);
    if (has_keeper && (a->remote = sl_forward_start(s)) == NULL) return -1;
    if (a->remote != NULL) a->at[a->n++] = a->remote;
    a->at[a->n++] = a->local;
    if (a->majority != NULL) a->at[a->n++] = a->majority;
    return 0;
}

static void log_ready(const struct server *s)
{
    bool alone = s->majority != NULL && !sl_majority_is_member(s);
    sl_log(SL_LOG_INFO,
           alone ? "ready: sluice " SLUICE_VERSION
                   "; waiting to be added to a cluster with NODES ADD"
                 : "ready: sluice " SLUICE_VERSION,
           NULL);
}

static int serve(struct sl_settings *settings)
{
    static struct server s;
    sl_memory_setup();
    signal(SIGPIPE, SIG_IGN);
    sl_dispatch_setup();
    if (!settings->core_dumps) keep_from_cores();
    if (sl_server_start(&s, settings) != 0 ||
        (s.arbiters.local = sl_local_new(&s)) == NULL)
        return EXIT_COULD_NOT;
    /* Lock the directory before listening, so that no client connects to a server that
     * cannot use it. */
    int directory = sl_directory_open(&s.directory, settings);
    s.has_directory = directory == 1;
    if (directory < 0 || sl_server_listen(&s) != 0) return EXIT_COULD_NOT;
    /* Do this last, because it marks the grants of a clean stop as taken over. */
    if (start_state(&s) != 0) {
        sl_server_stop_listening(&s);
        return EXIT_COULD_NOT;
    }
    if (sl_transactions_start(&s) != 0 || start_arbiters(&s) != 0) {
        sl_server_stop_listening(&s);
        sl_state_stop(&s); /* The server has granted nothing yet. */
        return EXIT_COULD_NOT;
    }
    /* Log this only now: administrators and scripts rely on these lines to know that the server is
     * ready. */
    sl_server_log_listening(&s);
    if (s.links != NULL) sl_links_log_listening(&s);
    log_ready(&s);
    say_ready();
    uv_run(s.loop, UV_RUN_DEFAULT);
    sl_transactions_stop(&s);
    sl_forward_stop(&s);
    int status = EXIT_STOPPED;
    if (s.majority != NULL && sl_majority_stop(&s) != 0) status = EXIT_COULD_NOT;
    if (sl_state_stop(&s) != 0) status = EXIT_COULD_NOT;
    sl_log(SL_LOG_INFO, "stopped", NULL);
    return status;
}

/* Open standard input, output and error if they are closed. Otherwise the next file opened would
 * take the place of one of them. */
static void open_standard_files(void)
{
    for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = dup(fd))
        if (fd > STDERR_FILENO) {
            close(fd);
            break;
        }
}

static void warn_of_file(const char *setting, const char *path)
{
    struct stat st;
    if (*path == '\0' || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
    if ((st.st_mode & (S_IROTH | S_IWOTH)) == 0) return;
    sl_log(SL_LOG_WARN,
           "every user can read or write this file, which contains a secret; run "
           "chmod o-rwx on it",
           "setting", setting, "file", path, NULL);
}

static void warn_of_secrets(const struct sl_settings *set)
{
    warn_of_file("password-file", set->password_file);
    warn_of_file("secret-file", set->secret_file);
    warn_of_file("etcd-password-file", set->etcd_password_file);
    warn_of_file("etcd-key", set->etcd_key);
    if (set->config_has_secret) warn_of_file("config", set->config);
}

/* From here on, errors go to the log, in the format that the settings select. */
static int set_up(struct sl_settings *settings)
{
    sl_log_setup((enum sl_log_format)settings->log_format,
                 (enum sl_log_level)settings->log_level);
    warn_of_secrets(settings);
    return sl_listen_check(settings);
}

int main(int argc, char **argv)
{
    struct sl_settings settings;
    enum sl_settings_action action;
    int status = EXIT_STOPPED;
    open_standard_files();
    if (sl_settings_read(&settings, argc, argv, &action, stderr) != 0)
        status = EXIT_SETTINGS;
    else if ((action == SL_ACTION_SERVE || action == SL_ACTION_CHECK) &&
             set_up(&settings) != 0)
        status = EXIT_SETTINGS;
    else if (action == SL_ACTION_HELP) sl_settings_help(stdout);
    else if (action == SL_ACTION_VERSION) puts("sluice-server " SLUICE_VERSION);
    else if (action == SL_ACTION_CHECK) puts("the settings are valid");
    else status = serve(&settings);
    sl_settings_free(&settings);
    return status;
}
