/* clock.h - clocks, and times as text. */
#ifndef SL_CLI_CLOCK_H
#define SL_CLI_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t cli_wall_ms(void); /* Since 1970. */
int64_t cli_now_ms(void);  /* Monotonic. */
int64_t cli_boot_ms(void); /* Monotonic; also counts while the machine is suspended. */

/* Format a duration: "12 s", "3 min", "5 h", "9 days". Returns out. */
const char *cli_format_duration(int64_t ms, char *out, size_t size);

/* Format a time in ms since 1970 as local time: "14:03:07", or "2026-03-01 14:03" if it is
 * not today. Returns out. */
const char *cli_format_time(int64_t since_ms, char *out, size_t size);

#endif /* SL_CLI_CLOCK_H */
