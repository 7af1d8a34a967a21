/* Spans of time, [start, end) in ns, as pairs: what several of them cover. */
#ifndef EP_READ_SPANS_H
#define EP_READ_SPANS_H

#include <stddef.h>
#include <stdint.h>

/* The union, in place: sorted, apart from each other. Returns how many are left. */
size_t ep_spans_merge(int64_t (*spans)[2], size_t n);
/* How long a union is. */
int64_t ep_spans_ns(int64_t (*spans)[2], size_t n);

#endif
