/* Spans of time, [start, end) in ns: their union and how long it is. */
#include "spans.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

size_t ep_spans_merge(int64_t (*spans)[2], size_t n) {
    size_t kept = 0;
    if (n) qsort(spans, n, sizeof *spans, by_start);
    for (size_t i = 0; i < n; i++) {
        if (kept && spans[i][0] <= spans[kept - 1][1]) {
            if (spans[i][1] > spans[kept - 1][1]) spans[kept - 1][1] = spans[i][1];
            continue;
        }
        spans[kept][0] = spans[i][0];
        spans[kept++][1] = spans[i][1];
    }
    return kept;
}

int64_t ep_spans_ns(int64_t (*spans)[2], size_t n) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += spans[i][1] - spans[i][0];
    return sum;
}
