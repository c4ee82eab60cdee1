#include "programs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sheet.h"

void progress(const char *format, ...)
{
    va_list arguments;
    fputs("bench: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void program_beside(char *out, size_t size, const char *file)
{
    char self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) *slash = '\0';
    snprintf(out, size, "%s/%s", self, file);
}

bool program_there(const char *program)
{
    char path[512];
    if (strchr(program, '/') != NULL) return access(program, X_OK) == 0;
    const char *directories = getenv("PATH");
    for (const char *at = directories; at != NULL && *at != '\0';) {
        int n = (int)strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", n, at, program);
        if (access(path, X_OK) == 0) return true;
        at += n;
        at += *at == ':';
    }
    return false;
}

uint32_t rounds_of(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    bool good = *text >= '0' && *text <= '9' && *end == '\0';
    return good && n <= SHEET_ROUNDS_MAX ? (uint32_t)n : 0;
}
