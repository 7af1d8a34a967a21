/* What a call does, as a recording would see it: for tests of which kernels run and which ops are named. */
#ifndef EP_TEST_SEEN_H
#define EP_TEST_SEEN_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/probe.h"

typedef struct seen {
    char kernels[32][128], ops[32][32];
    int count, op_count, guards, compiles; /* count: of kernels */
    char guard[256];                       /* the last one */
    int64_t flops;
} seen;

static inline void seen_begin(void *self, const ep_probe_span *s) {
    seen *x = self;
    if (s->kind == EP_PROBE_OP && x->op_count < 32) snprintf(x->ops[x->op_count++], 32, "%s", s->name);
    if (s->kind == EP_PROBE_GUARD && s->detail) {
        x->guards++;
        snprintf(x->guard, sizeof x->guard, "%s", s->detail);
    }
    if (s->kind == EP_PROBE_COMPILE && s->detail) x->compiles++;
}

static inline void seen_end(void *self) {
    (void)self;
}

static inline void seen_kernel(void *self, const ep_probe_kernel *k) {
    seen *x = self;
    x->flops += k->flops;
    if (x->count < 32) snprintf(x->kernels[x->count++], 128, "%s", k->name);
}

static inline const char *seen_name(void *self, const char *text) {
    (void)self;
    return text;
}

static inline void watch(seen *s, ep_probe *p) {
    memset(s, 0, sizeof *s);
    *p = (ep_probe){.self = s,
                    .begin = seen_begin,
                    .end = seen_end,
                    .kernel = seen_kernel,
                    .launch = seen_kernel,
                    .name = seen_name};
    atomic_store(&ep_probe_active, p);
}

static inline void unwatch(void) {
    atomic_store(&ep_probe_active, NULL);
}

#endif
