/* No allocation after the first call of a size: every malloc that this program's own code (the library is linked in) asks
 * for is counted while compiled calls run. oneDNN copies its arguments at each product; that is not counted. */
#include <stdatomic.h>
#include <stdlib.h>

#include <epilogue/epilogue.h>

#include "tensors.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define COUNTS 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS 0
#endif
#endif
#if !defined COUNTS && defined __GLIBC__
#define COUNTS 1
#elif !defined COUNTS
#define COUNTS 0
#endif

static atomic_long allocations;

#if COUNTS
extern char __executable_start, etext;
static void count(const void *from) {
    const char *p = from;
    if (p >= &__executable_start && p < &etext) atomic_fetch_add(&allocations, 1);
}
#endif

#if COUNTS
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size) {
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size) {
    count(__builtin_return_address(0));
    return __libc_realloc(p, size);
}
#endif

static ep_tensor *tensor(int ndim, const int64_t *sizes, uint64_t seed) {
    ep_tensor *t;
    OK(ep_tensor_create(EP_DTYPE_BF16, ndim, sizes, NULL, &t));
    OK(ep_tensor_fill_random(t, seed, 0.5, NULL));
    return t;
}

static void calls_of_known_sizes_allocate_nothing(void **state) {
    (void)state;
    ep_context *ctx;
    ep_block *b;
    OK(ep_context_create(&(ep_context_options){.threads = 1}, NULL, &ctx));
    ep_tensor *gate = tensor(2, (int64_t[]){96, 64}, 1), *up = tensor(2, (int64_t[]){96, 64}, 2),
              *down = tensor(2, (int64_t[]){64, 96}, 3), *x[2], *y;
    x[0] = tensor(2, (int64_t[]){8, 64}, 4);
    x[1] = tensor(2, (int64_t[]){20, 64}, 5);
    ep_block_weights w = {.gate = gate, .up = up, .down = down};
    OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, &b));
    OK(ep_block_compile_with(b, &(ep_compile_options){.no_disk_cache = true}));
    for (int i = 0; i < 2; i++) OK(ep_block_prepare(b, EP_MODE_COMPILED, x[i]));
    for (int i = 0; i < 200; i++) {
        OK(ep_block_run(b, EP_MODE_COMPILED, x[i % 2], NULL, &y));
        ep_tensor_destroy(y);
    }
    long before = atomic_load(&allocations);
    for (int i = 0; i < 400; i++) {
        OK(ep_block_run(b, EP_MODE_COMPILED, x[i % 2], NULL, &y)); /* the size changes with every call */
        ep_tensor_destroy(y);
    }
    if (COUNTS) assert_true(before > 0);
    assert_int_equal(atomic_load(&allocations) - before, 0);
    ep_block_destroy(b);
    ep_tensor *all[] = {gate, up, down, x[0], x[1]};
    for (int i = 0; i < 5; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_of_known_sizes_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
