/* Filling the caller's error: one line to fail with a sentence. */
#ifndef EP_BASE_STATUS_H
#define EP_BASE_STATUS_H

#include <epilogue/status.h>
#include <stdarg.h>

/* Fills err (may be NULL) and returns `status`, so that a check and its failure are one line:
 *   if (n < 0) return ep_fail(err, EP_ERROR_SHAPE, "size %lld of dim %d is negative", n, dim); */
ep_status ep_fail(ep_error *err, ep_status status, const char *fmt, ...) EP_PRINTF(3, 4);
/* The same with a byte position in the input. */
ep_status ep_fail_at(ep_error *err, ep_status status, int64_t position, const char *fmt, ...) EP_PRINTF(4, 5);
/* The same with line and column (1-based). */
ep_status ep_fail_line(ep_error *err, ep_status status, int line, int column, const char *fmt, ...) EP_PRINTF(5, 6);

#define EP_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        ep_status ep_try_status_ = (expr);                                                                             \
        if (ep_try_status_ != EP_OK) return ep_try_status_;                                                            \
    } while (0)

#endif
