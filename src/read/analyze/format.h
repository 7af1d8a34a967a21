/* Figures for people: times, bytes, counts, shares; and columns cut to a width. */
#ifndef EP_READ_FORMAT_H
#define EP_READ_FORMAT_H

#include <stddef.h>
#include <stdint.h>

typedef struct ep_figure {
    char text[32];
} ep_figure;

ep_figure ep_figure_us(double us);                  /* "55.6 us", "1.24 ms", "3.13 s"; "?" if not finite */
ep_figure ep_figure_bytes(int64_t bytes);           /* "4 B", "50.3 MB"; "?" if negative */
ep_figure ep_figure_count(int64_t n);               /* "1 234 567" */
ep_figure ep_figure_share(double share);            /* "71.2 %" */
ep_figure ep_figure_number(double v, int decimals); /* "?" if not finite */
/* `text` cut to `width` bytes, with ".." in its middle if it was longer; never inside a UTF-8 sequence. */
const char *ep_cut(const char *text, size_t width, char *buffer, size_t size);

#endif
