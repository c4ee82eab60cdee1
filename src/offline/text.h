/* text.h - prints bytes that clients have chosen, such as keys and notes. What is printed cannot
 * move the cursor, end a line or break JSON. */
#ifndef SL_OFFLINE_TEXT_H
#define SL_OFFLINE_TEXT_H

#include "base/types.h"

/* Print bytes; control characters, backslashes and bytes that are not UTF-8 become \xNN. Returns
 * the number of characters printed. */
size_t offline_put_text(struct sl_bytes b);

/* Print spaces after n characters, so that the next column begins after `width` and one space. */
void offline_put_gap(size_t n, size_t width);

/* Write text as offline_put_text() prints it. If it does not fit, it ends in "...". Returns out. */
#define OFFLINE_TEXT_BYTES 256
const char *offline_text(struct sl_bytes b, char out[OFFLINE_TEXT_BYTES]);

/* Print a JSON string. Each byte that is not UTF-8 becomes U+FFFD. */
void offline_json_text(struct sl_bytes b);

/* Print "name":"...". If the bytes are not UTF-8, also print "name_hex" with all bytes. */
void offline_json_member(const char *name, struct sl_bytes b);

/* Write a time that is left: "850ms", "12s", "1h5m", "3d2h". Returns out. */
#define OFFLINE_TIME_BYTES 32
const char *offline_time_text(sl_ms ms, char out[OFFLINE_TIME_BYTES]);

struct sl_bytes offline_bytes(const char *text);

#endif /* SL_OFFLINE_TEXT_H */
