/* One context of the standard options for all tests of a program: open_context and close_context are its group's. */
#ifndef EP_TEST_CONTEXT_H
#define EP_TEST_CONTEXT_H

#include "tensors.h"

#include <epilogue/epilogue.h>

static ep_context *ctx;

static inline int open_context(void **state) {
    (void)state;
    return ep_context_create(NULL, NULL, &ctx) != EP_OK;
}

static inline int close_context(void **state) {
    (void)state;
    ep_context_destroy(ctx);
    return 0;
}

#endif
