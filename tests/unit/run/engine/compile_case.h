/* What tests of compiled functions share: a context of two threads, a folder for kernels, a gated MLP and a gelu. */
#ifndef EP_TEST_COMPILE_CASE_H
#define EP_TEST_COMPILE_CASE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <epilogue/epilogue.h>

#include "run/engine/compile.h"
#include "seen.h"
#include "tensors.h"

static ep_context *ctx;
static char cache[64];

static inline int setup(void **state) {
    (void)state;
    strcpy(cache, "/tmp/ep-compile-XXXXXX");
    if (!mkdtemp(cache)) return 1;
    return ep_context_create(&(ep_context_options){.threads = 2}, NULL, &ctx) == EP_OK ? 0 : 1;
}

static inline int teardown(void **state) {
    (void)state;
    ep_context_destroy(ctx);
    ep_cache *c;
    size_t n;
    if (ep_cache_open(cache, 0, NULL, &c) == EP_OK) {
        ep_cache_clear(c, NULL, &n);
        ep_cache_close(c);
    }
    rmdir(cache);
    return 0;
}

static inline ep_compile_options always(void) {
    return (ep_compile_options){.wait = EP_WAIT_ALWAYS, .cache_dir = cache};
}

static inline ep_tensor *tensor(ep_dtype dtype, int ndim, const int64_t *sizes, uint64_t seed) {
    return random_tensor(dtype, ndim, sizes, seed, 1);
}

static inline void same(const ep_tensor *a, const ep_tensor *b) {
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(d.max_abs <= 0);
    assert_int_equal(ep_tensor_ndim(a), ep_tensor_ndim(b));
    for (int i = 0; i < ep_tensor_ndim(a); i++)
        if (ep_tensor_size(a, i) > 1) assert_int_equal(ep_tensor_stride(a, i), ep_tensor_stride(b, i));
}

typedef struct mlp {
    ep_tensor *gate, *up, *down, *bias;
    int calls;
} mlp;

static inline void make_mlp(mlp *m, ep_dtype dtype, int64_t dim, int64_t hidden) {
    *m = (mlp){0};
    m->gate = tensor(dtype, 2, (int64_t[]){hidden, dim}, 1);
    m->up = tensor(dtype, 2, (int64_t[]){hidden, dim}, 2);
    m->down = tensor(dtype, 2, (int64_t[]){dim, hidden}, 3);
    m->bias = tensor(dtype, 1, (int64_t[]){hidden}, 4);
}

static inline void drop_mlp(mlp *m) {
    ep_tensor_destroy(m->gate);
    ep_tensor_destroy(m->up);
    ep_tensor_destroy(m->down);
    ep_tensor_destroy(m->bias);
}

static inline ep_status geglu(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    mlp *w = user;
    ep_tensor *g = NULL, *u = NULL, *a = NULL, *h = NULL;
    (void)n;
    (void)m;
    w->calls++;
    ep_status s = ep_linear(c, in[0], w->gate, w->bias, &g);
    if (s == EP_OK) s = ep_linear(c, in[0], w->up, NULL, &u);
    if (s == EP_OK) s = ep_gelu_tanh(c, g, &a);
    if (s == EP_OK) s = ep_mul(c, a, u, &h);
    if (s == EP_OK) s = ep_linear(c, h, w->down, NULL, out);
    ep_tensor_destroy(h);
    ep_tensor_destroy(a);
    ep_tensor_destroy(u);
    ep_tensor_destroy(g);
    return s;
}

static inline ep_status gelu_plus(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out,
                                  int m) {
    ep_tensor *a;
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_gelu_erf(c, in[0], &a);
    if (s != EP_OK) return s;
    s = ep_add(c, a, in[1], out);
    ep_tensor_destroy(a);
    return s;
}

static inline void call_and_compare(ep_compiled *c, ep_fn fn, ep_tensor *a, ep_tensor *b) {
    ep_tensor *x, *y;
    const ep_tensor *in[2] = {a, b};
    OK(ep_compiled_call(c, in, &x));
    OK(fn(ctx, NULL, in, 2, &y, 1));
    same(x, y);
    ep_tensor_destroy(x);
    ep_tensor_destroy(y);
}

#endif
