/* A stable merge sort of row numbers that takes what is already in order as it finds it: n comparisons for sorted rows.
 * And qsort's order of numbers. */
#ifndef EP_BASE_SORT_H
#define EP_BASE_SORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does row a belong before row b (strictly)? */
typedef bool (*ep_row_before)(const void *user, uint32_t a, uint32_t b);
/* False, and the rows as they were, when memory for a second array of rows is out. */
bool ep_sort_rows(uint32_t *rows, size_t n, ep_row_before before, const void *user);
/* For qsort and bsearch: int64_t, ascending. */
int ep_by_int64(const void *a, const void *b);

#endif
