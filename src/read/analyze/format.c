/* Figures for people. */
#include "format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ep_figure ep_figure_us(double us) {
    ep_figure f;
    double size = fabs(us);
    if (!isfinite(us))
        snprintf(f.text, sizeof f.text, "?");
    else if (size < 999.95)
        snprintf(f.text, sizeof f.text, "%.1f us", us);
    else if (size < 9999.5)
        snprintf(f.text, sizeof f.text, "%.0f us", us);
    else if (size < 999950)
        snprintf(f.text, sizeof f.text, "%.1f ms", us * 1e-3);
    else
        snprintf(f.text, sizeof f.text, "%.2f s", us * 1e-6);
    return f;
}

ep_figure ep_figure_bytes(int64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    ep_figure f;
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 999.5 && u + 1 < sizeof units / sizeof units[0]) v /= 1000, u++;
    if (bytes < 0)
        snprintf(f.text, sizeof f.text, "?");
    else
        snprintf(f.text, sizeof f.text, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return f;
}

ep_figure ep_figure_count(int64_t n) {
    ep_figure f;
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && digits[i - 1] != '-' && len > 4 && (len - i) % 3 == 0) f.text[at++] = ' ';
        f.text[at++] = digits[i];
    }
    f.text[at] = 0;
    return f;
}

ep_figure ep_figure_share(double share) {
    ep_figure f;
    if (!isfinite(share))
        snprintf(f.text, sizeof f.text, "?");
    else
        snprintf(f.text, sizeof f.text, "%.1f %%", share * 100);
    return f;
}

ep_figure ep_figure_number(double v, int decimals) {
    ep_figure f;
    if (!isfinite(v))
        snprintf(f.text, sizeof f.text, "?");
    else
        snprintf(f.text, sizeof f.text, "%.*f", decimals, v);
    return f;
}

static size_t back_to_start(const char *text, size_t at) {
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

const char *ep_cut(const char *text, size_t width, char *buffer, size_t size) {
    size_t n = strlen(text);
    if (width + 1 > size) width = size - 1;
    if (n <= width || width < 6) {
        snprintf(buffer, size, "%.*s", (int)(n <= width ? n : back_to_start(text, width)), text);
        return buffer;
    }
    size_t tail = (width - 2) / 3, head = back_to_start(text, width - 2 - tail), from = n - tail;
    while (from < n && ((unsigned char)text[from] & 0xc0) == 0x80) from++;
    snprintf(buffer, size, "%.*s..%s", (int)head, text, text + from);
    return buffer;
}
