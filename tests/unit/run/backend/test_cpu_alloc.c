// ctest: threads
/* The caching allocator: classes, reuse, what it counts, trimming, other threads, storages that outlive their context. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/epilogue.h>

#include "model/tensor/tensor.h"
#include "run/backend/cpu/cpu_alloc.h"

static void classes(void **state) {
    (void)state;
    int last = -1;
    for (size_t n = 0; n < 3u << 20; n += n < 5000 ? 1 : 997) {
        int c = ep_cpu_size_class(n);
        size_t bytes = ep_cpu_class_bytes(c);
        assert_true(bytes >= n);
        assert_true(c >= last);
        assert_true(c == 0 || ep_cpu_class_bytes(c - 1) < n);
        assert_true(n <= 64 || bytes - n <= n / 3);
        assert_true(n < (1u << 20) + 1 || bytes - n <= n / 8);
        last = c;
    }
    assert_int_equal(ep_cpu_size_class((size_t)1 << 50), -1);
    assert_int_equal(ep_cpu_size_class(SIZE_MAX), -1);
}

static void reuse(void **state) {
    (void)state;
    ep_cpu_pool *p;
    ep_storage *s[3];
    ep_memory_stats m;
    assert_int_equal(ep_cpu_pool_create(NULL, &p), EP_OK);
    static const size_t sizes[3] = {0, 1000, 5u << 20};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ep_cpu_pool_storage(p, sizes[i], NULL, &s[i]), EP_OK);
            assert_int_equal((uintptr_t)s[i]->data % 64, 0);
            memset(s[i]->data, 0xab, sizes[i]);
        }
        assert_int_equal((uintptr_t)s[2]->data % (2 << 20), 0);
        ep_cpu_pool_stats(p, &m);
        assert_int_equal(m.system_allocations, 3);
        assert_int_equal(m.bytes_in_use, 1000 + (5 << 20));
        for (int i = 0; i < 3; i++) ep_storage_release(s[i]);
    }
    ep_cpu_pool_stats(p, &m);
    assert_int_equal(m.bytes_in_use, 0);
    assert_int_equal(m.peak_bytes, 1000 + (5 << 20));
    assert_true(m.bytes_cached >= 1000 + (5 << 20));
    ep_cpu_pool_trim(p);
    ep_cpu_pool_stats(p, &m);
    assert_int_equal(m.bytes_cached, 0);
    ep_error err;
    assert_int_equal(ep_cpu_pool_storage(p, (size_t)1 << 62, &err, &s[0]), EP_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(err.message, "4611686018427387904"));
#ifndef __SANITIZE_ADDRESS__ /* whose malloc ends the program here */
    assert_int_equal(ep_cpu_pool_storage(p, (size_t)1 << 45, &err, &s[0]), EP_ERROR_OUT_OF_MEMORY);
#endif
    ep_cpu_pool_stats(p, &m);
    assert_int_equal(m.bytes_in_use, 0);
    ep_cpu_pool_close(p);
}

/* Sizes that change all the time may not pile up. */
static void trims(void **state) {
    (void)state;
    ep_cpu_pool *p;
    ep_memory_stats m;
    assert_int_equal(ep_cpu_pool_create(NULL, &p), EP_OK);
    for (size_t mib = 1; mib < 120; mib++) {
        ep_storage *s;
        assert_int_equal(ep_cpu_pool_storage(p, mib << 20, NULL, &s), EP_OK);
        ep_storage_release(s);
        ep_cpu_pool_stats(p, &m);
        assert_true(m.bytes_cached <= m.peak_bytes + ((int64_t)256 << 20));
    }
    ep_cpu_pool_close(p);
}

typedef struct shared {
    ep_cpu_pool *pool;
    ep_storage *given[64];
} shared;

static void *other_thread(void *user) {
    shared *t = user;
    for (int i = 0; i < 64; i++) ep_storage_release(t->given[i]);
    for (int i = 0; i < 1000; i++) {
        ep_storage *a, *b;
        if (ep_cpu_pool_storage(t->pool, 100 + (size_t)i, NULL, &a) != EP_OK) return t;
        if (ep_cpu_pool_storage(t->pool, 100000, NULL, &b) != EP_OK) return t;
        memset(a->data, 1, a->bytes);
        memset(b->data, 2, b->bytes);
        ep_storage_release(a);
        ep_storage_release(b);
    }
    return NULL;
}

static void threads(void **state) {
    (void)state;
    shared t[3];
    ep_cpu_pool *p;
    ep_memory_stats m;
    assert_int_equal(ep_cpu_pool_create(NULL, &p), EP_OK);
    for (int k = 0; k < 3; k++) {
        t[k].pool = p;
        for (int i = 0; i < 64; i++) assert_int_equal(ep_cpu_pool_storage(p, 4096, NULL, &t[k].given[i]), EP_OK);
    }
    pthread_t id[2];
    for (int k = 0; k < 2; k++) assert_int_equal(pthread_create(&id[k], NULL, other_thread, &t[k]), 0);
    assert_null(other_thread(&t[2]));
    for (int k = 0; k < 2; k++) {
        void *bad;
        pthread_join(id[k], &bad);
        assert_null(bad);
    }
    ep_cpu_pool_stats(p, &m);
    assert_int_equal(m.bytes_in_use, 0);
    ep_cpu_pool_close(p);
}

static void *release_last(void *user) {
    ep_storage_release(user);
    return NULL;
}

static void outlives(void **state) {
    (void)state;
    ep_cpu_pool *p;
    ep_storage *a, *b;
    assert_int_equal(ep_cpu_pool_create(NULL, &p), EP_OK);
    assert_int_equal(ep_cpu_pool_storage(p, 100, NULL, &a), EP_OK);
    assert_int_equal(ep_cpu_pool_storage(p, 3 << 20, NULL, &b), EP_OK);
    ep_cpu_pool_close(p);
    memset(a->data, 1, 100);
    ep_storage_release(a);
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, release_last, b), 0);
    pthread_join(id, NULL);
}

/* After the first call a repeated forward asks the system for nothing. */
static void forward(void **state) {
    (void)state;
    ep_context *ctx;
    ep_tensor *x, *w;
    ep_memory_stats m, first = {0};
    assert_int_equal(ep_context_create(NULL, NULL, &ctx), EP_OK);
    assert_int_equal(ep_tensor_zeros(EP_DTYPE_F32, 2, (int64_t[]){64, 96}, NULL, &x), EP_OK);
    assert_int_equal(ep_tensor_zeros(EP_DTYPE_F32, 2, (int64_t[]){128, 96}, NULL, &w), EP_OK);
    for (int i = 0; i < 4; i++) {
        ep_tensor *g, *h, *y;
        assert_int_equal(ep_linear(ctx, x, w, NULL, &g), EP_OK);
        assert_int_equal(ep_gelu_tanh(ctx, g, &h), EP_OK);
        assert_int_equal(ep_mul(ctx, g, h, &y), EP_OK);
        ep_tensor_destroy(g);
        ep_tensor_destroy(h);
        ep_tensor_destroy(y);
        ep_context_memory(ctx, &m);
        if (i == 0) first = m;
    }
    assert_int_equal(m.system_allocations, first.system_allocations);
    assert_int_equal(m.bytes_in_use, 0);
    ep_tensor_destroy(x);
    ep_tensor_destroy(w);
    ep_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes),  cmocka_unit_test(reuse),
                                       cmocka_unit_test(trims),    cmocka_unit_test(threads),
                                       cmocka_unit_test(outlives), cmocka_unit_test(forward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
