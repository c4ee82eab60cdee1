/* events.c - print the events of a lock: when it is granted, released, extended and so on.
 *
 *     cc events.c $(pkg-config --cflags --libs sluice) -o events
 *     ./events KEY [HOST:PORT]
 *
 * sluice_wire_call() sends a command and waits for its reply. SUBSCRIBE has many replies, so this
 * program uses sluice_wire_send() and sluice_wire_next(). */
#include <sluice.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct sluice_wire *w;
    struct sluice_reply *r;
    char channel[SLUICE_KEY_BYTES_MAX + 6];
    if (argc < 2) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(channel, sizeof channel, "lock:%s", argv[1]);
    const char *args[] = {"SUBSCRIBE", channel};
    if (sluice_wire_open(argv[2], NULL, &w) != SLUICE_OK) return 1;
    int status = sluice_wire_send(w, args, NULL, 2);
    while (status == SLUICE_OK && (status = sluice_wire_next(w, &r)) == SLUICE_OK) {
        /* An event is a list of three: "message", the channel, the text. */
        if (r->count == 3) printf("%s %s\n", r->items[0].text, r->items[2].text);
        sluice_reply_free(r);
    }
    printf("%s: %s\n", sluice_status_word(status), sluice_wire_error(w));
    sluice_wire_close(w);
    return 1;
}
