/* Natural merge sort: each pass merges neighbouring runs pairwise, so the passes are log2 of the runs found, not of n. */
#include "sort.h"

#include <stdlib.h>
#include <string.h>

#include "alloc.h"

static size_t run_end(const uint32_t *rows, size_t from, size_t n, ep_row_before before, const void *user) {
    size_t i = from + 1;
    while (i < n && !before(user, rows[i], rows[i - 1])) i++;
    return i < n ? i : n;
}

static void merge(const uint32_t *from, size_t lo, size_t mid, size_t hi, uint32_t *to, ep_row_before before,
                  const void *user) {
    size_t i = lo, j = mid, k = lo;
    while (i < mid && j < hi) to[k++] = before(user, from[j], from[i]) ? from[j++] : from[i++];
    memcpy(to + k, from + i, (mid - i) * sizeof *to);
    memcpy(to + k + (mid - i), from + j, (hi - j) * sizeof *to);
}

bool ep_sort_rows(uint32_t *rows, size_t n, ep_row_before before, const void *user) {
    if (n < 2 || run_end(rows, 0, n, before, user) == n) return true;
    uint32_t *other = ep_malloc_array(n, sizeof *other);
    if (!other) return false;
    uint32_t *from = rows, *to = other;
    for (size_t runs = 2; runs > 1;) {
        runs = 0;
        for (size_t lo = 0; lo < n; runs++) {
            size_t mid = run_end(from, lo, n, before, user);
            size_t hi = mid < n ? run_end(from, mid, n, before, user) : n;
            merge(from, lo, mid, hi, to, before, user);
            lo = hi;
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != rows) memcpy(rows, from, n * sizeof *rows);
    free(other);
    return true;
}

int ep_by_int64(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}
