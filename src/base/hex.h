/* hex.h - hexadecimal digits. */
#ifndef SL_BASE_HEX_H
#define SL_BASE_HEX_H

/* Returns the value of a hexadecimal digit, or -1 if c is not one. */
static inline int sl_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

#endif /* SL_BASE_HEX_H */
