/* Contexts on threads of their own, over shared weights; tensors end on another thread than the one that made them, and
 * after their context. */
// ctest: threads
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/epilogue.h>

enum { THREADS = 4, ROUNDS = 30 };

static ep_tensor *weight, *bias;

typedef struct job {
    uint64_t seed;
    bool reference;
    ep_tensor *left[ROUNDS]; /* for whoever joins */
    double sum;
    ep_status status;
} job;

/* The work of one thread; cmocka's asserts belong to the main thread, so it only notes. */
static ep_status work(job *j) {
    ep_context *ctx;
    ep_context_options o = {.threads = 1, .reference = j->reference};
    ep_status status = ep_context_create(&o, NULL, &ctx);
    for (int i = 0; i < ROUNDS && status == EP_OK; i++) {
        ep_tensor *x = NULL, *y = NULL, *z = NULL, *t = NULL;
        double v[6];
        status = ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){3, 8}, NULL, &x);
        if (status == EP_OK) status = ep_tensor_fill_random(x, j->seed, 1, NULL);
        if (status == EP_OK) status = ep_linear(ctx, x, weight, bias, &y);
        if (status == EP_OK) status = ep_gelu_tanh(ctx, y, &z);
        if (status == EP_OK) status = ep_t(ctx, z, &t);
        if (status == EP_OK) status = ep_add(ctx, t, t, &j->left[i]);
        if (status == EP_OK) status = ep_tensor_read_f64(j->left[i], v, 6, NULL);
        if (status == EP_OK) j->sum += v[0];
        ep_tensor_destroy(x);
        ep_tensor_destroy(y);
        ep_tensor_destroy(z);
        ep_tensor_destroy(t);
    }
    ep_context_destroy(ctx);
    return status;
}

static void *start(void *user) {
    job *j = user;
    j->status = work(j);
    return NULL;
}

static void each_thread_its_context(void **state) {
    (void)state;
    static job jobs[THREADS];
    pthread_t threads[THREADS];
    assert_int_equal(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){2, 8}, NULL, &weight), EP_OK);
    assert_int_equal(ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[]){2}, NULL, &bias), EP_OK);
    assert_int_equal(ep_tensor_fill_random(weight, 1, 1, NULL), EP_OK);
    assert_int_equal(ep_tensor_fill_random(bias, 2, 1, NULL), EP_OK);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.seed = 9, .reference = i == THREADS - 1};
        assert_int_equal(pthread_create(&threads[i], NULL, start, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].status, EP_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        double gap = jobs[i].sum - jobs[0].sum;
        assert_true(gap < 1e-3 && gap > -1e-3);
        for (int k = 0; k < ROUNDS; k++) ep_tensor_destroy(jobs[i].left[k]);
    }
    ep_tensor_destroy(weight);
    ep_tensor_destroy(bias);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_thread_its_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
