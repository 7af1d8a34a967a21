/* Figures for people: times, bytes, counts, shares; and columns cut to a width. */
#ifndef EP_READ_FORMAT_H
#define EP_READ_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

typedef struct ep_figure {
    char text[32];
} ep_figure;

ep_figure ep_figure_us(double us);                  /* "55.6 us", "1.24 ms", "3.13 s"; "?" if not finite */
ep_figure ep_figure_bytes(int64_t bytes);           /* "4 B", "50.3 MB"; "?" if negative */
ep_figure ep_figure_count(int64_t n);               /* "1 234 567" */
ep_figure ep_figure_share(double share);            /* "71.2 %" */
ep_figure ep_figure_number(double v, int decimals); /* "?" if not finite */

/* Names come from traces: control bytes, which a terminal would obey, are shown as '?', and widths are columns of a
 * terminal, where an East Asian character takes two. */
/* `text` cut to `width` columns, with ".." in its middle if it was longer. */
const char *ep_cut(const char *text, size_t width, char *buffer, size_t size);
typedef struct ep_column {
    char text[512];
} ep_column;
/* The same, filled up with blanks to the width (at most 120), for a table. */
ep_column ep_column_of(const char *text, size_t width);
/* Words of `text` in lines of at most `width` columns; the first line begins with `head`, the others with `indent` blanks.
 * A word that is longer than a line is cut. */
void ep_paragraph(ep_text *out, const char *head, size_t indent, size_t width, const char *text);

#endif
