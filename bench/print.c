#include "print.h"

#include <stdio.h>
#include <string.h>

void print_wrapped(const char *text, int indent, int width)
{
    int column = 0;
    while (*text != '\0') {
        int n = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + n > width - indent) {
            putchar('\n');
            column = 0;
        }
        if (column == 0) printf("%*s", indent, "");
        else putchar(' ');
        printf("%.*s", n, text);
        column += n + (column > 0);
        text += n;
        text += strspn(text, " ");
    }
    putchar('\n');
}

void print_machine(const struct machine *m)
{
    printf("machine   %s%s\n", m->cpu, m->virtual ? ", virtual" : "");
    printf("          %d CPUs online, %d available; load %.2f at the start\n",
           m->online, m->allowed, m->load);
    printf("system    %s; %s\n", m->kernel, m->libc);
}

void json_text(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') printf("\\%c", *c);
        else if (*c < 0x20) printf("\\u%04x", *c);
        else putchar(*c);
    }
    putchar('"');
}

void json_pair(const char *name, const char *text, const char *after)
{
    json_text(name);
    printf(": ");
    json_text(text);
    printf("%s", after);
}

void json_machine(const struct machine *m)
{
    printf("  \"machine\": {\n    ");
    json_pair("cpu", m->cpu, ",\n    ");
    printf("\"virtual\": %s,\n    ", m->virtual ? "true" : "false");
    printf("\"cpus_online\": %d,\n    \"cpus_allowed\": %d,\n    ", m->online,
           m->allowed);
    printf("\"pinned_to\": [%d, %d],\n    ", m->pair[0], m->pair[1]);
    printf("\"load\": %.2f,\n    ", m->load);
    json_pair("kernel", m->kernel, ",\n    ");
    json_pair("libc", m->libc, ",\n    ");
    json_pair("compiler", m->compiler, ",\n    ");
    json_pair("library", m->library, "\n  },\n");
}
