#include "cli/top_screen.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ROWS 24
#define COLUMNS 80

/* The alternate screen, an invisible cursor, no wrap at the end of a line; and back. */
static const char enter[] = "\033[?1049h\033[?25l\033[?7l\033[2J";
static const char leave[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

static const int fatal[] = {SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGILL};

#define FATAL (sizeof fatal / sizeof *fatal)

/* Signal handlers read these. */
static volatile sig_atomic_t entered;
static struct termios before;
static struct sigaction usual[FATAL];

bool top_screen_usable(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL &&
           term[0] != '\0' && strcmp(term, "dumb") != 0;
}

static void on_fatal(int sig)
{
    top_screen_leave();
    for (size_t i = 0; i < FATAL; i++)
        if (fatal[i] == sig) sigaction(sig, &usual[i], NULL);
    raise(sig); /* It is delivered when this function returns. */
}

bool top_screen_enter(void)
{
    const struct sigaction restore = {.sa_handler = on_fatal};
    struct termios t;
    if (!entered) {
        if (tcgetattr(STDIN_FILENO, &before) != 0) return false;
        for (size_t i = 0; i < FATAL; i++) sigaction(fatal[i], &restore, &usual[i]);
    }
    entered = 1;
    t = before;
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    t.c_iflag &= ~(tcflag_t)(IXON | ICRNL);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &t) != 0) return false;
    return top_screen_write(enter, strlen(enter));
}

void top_screen_leave(void)
{
    sigset_t only, was;
    if (!entered) return;
    entered = 0;
    /* With SIGTTOU blocked, this works even if the shell has put us into the background. */
    sigemptyset(&only);
    sigaddset(&only, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &only, &was);
    top_screen_write(leave, strlen(leave));
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    for (size_t i = 0; i < FATAL; i++) sigaction(fatal[i], &usual[i], NULL);
}

void top_screen_size(int *rows, int *columns)
{
    struct winsize w;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 &&
                 w.ws_col > 0;
    *rows = known ? w.ws_row : ROWS;
    *columns = known ? w.ws_col : COLUMNS;
}

bool top_screen_write(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}
