/* status.c - names and texts of status codes. */
#include "sluice.h"

const char *sluice_status_word(int64_t status)
{
    if (status > 0) return "OK";
    switch (status) {
#define X(name, number, word, text) \
    case number: return word;
        SLUICE_STATUS_MAP(X)
#undef X
        default: return "UNKNOWN";
    }
}

const char *sluice_status_text(int64_t status)
{
    if (status > 0) return "done";
    switch (status) {
#define X(name, number, word, text) \
    case number: return text;
        SLUICE_STATUS_MAP(X)
#undef X
        default: return "unknown status";
    }
}
