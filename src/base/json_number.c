/* Decimal text to integers, exactly: microseconds with three decimals do not fit a double. */
#include <string.h>

#include "json_read.h"

typedef struct decimal {
    bool negative;
    uint64_t mantissa; /* the digits; `exponent` moves the point */
    int exponent;
} decimal;

/* Digits beyond what the mantissa holds are dropped; before the point they still move it. */
static void add_digit(decimal *d, int digit, bool fraction) {
    if (d->mantissa > (UINT64_MAX - 9) / 10) {
        if (!fraction) d->exponent++;
        return;
    }
    d->mantissa = d->mantissa * 10 + (uint64_t)digit;
    if (fraction) d->exponent--;
}

static bool parse(const char *s, size_t n, decimal *d) {
    memset(d, 0, sizeof *d);
    if (n == 0) return false; /* s may be NULL then */
    const char *p = s, *end = s + n;
    if (p < end && (*p == '-' || *p == '+')) d->negative = *p++ == '-';
    size_t digits = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++, digits++) add_digit(d, *p - '0', false);
    if (p < end && *p == '.')
        for (p++; p < end && *p >= '0' && *p <= '9'; p++, digits++) add_digit(d, *p - '0', true);
    if (digits == 0) return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool down = false;
        int e = 0;
        if (++p < end && (*p == '-' || *p == '+')) down = *p++ == '-';
        if (p == end) return false;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (e < 10000) e = e * 10 + (*p - '0');
        d->exponent += down ? -e : e;
    }
    return p == end;
}

bool ep_json_decimal(const char *s, size_t n, int decimals, int64_t *out) {
    decimal d;
    if (!parse(s, n, &d)) return false;
    int shift = d.exponent + decimals;
    for (; shift > 0 && d.mantissa; shift--) {
        if (d.mantissa > (uint64_t)INT64_MAX / 10) return false;
        d.mantissa *= 10;
    }
    if (shift < 0) {
        for (; shift < -1 && d.mantissa; shift++) d.mantissa /= 10;
        d.mantissa = (d.mantissa + 5) / 10;
    }
    if (d.mantissa > (uint64_t)INT64_MAX) return false;
    *out = d.negative ? -(int64_t)d.mantissa : (int64_t)d.mantissa;
    return true;
}

bool ep_json_u64(const char *s, size_t n, uint64_t *out) {
    if (n == 0 || n > 20) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        uint64_t digit = (uint64_t)(s[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}
