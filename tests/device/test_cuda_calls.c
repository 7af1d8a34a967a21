/* Calls that come again on the GPU: replays, launches without the library, code that is still being built; and what a
 * recording shows of them. */
#include "cuda_case.h"

#include "model/trace/trace.h"
#include "run/backend/cuda/cuda_state.h"
#include "run/engine/context.h"

/* The same addresses again and again, so that calls are replays; what stands at them changes; two inputs in turn, and a
 * third of another size in between. Every answer is the reference's. */
static void replayed(void **state) {
    (void)state;
    static const ep_mode modes[] = {EP_MODE_TUNED, EP_MODE_COMPILED};
    bool small = getenv("EPILOGUE_TEST_SMALL") != NULL;
    for (int kind = 0; kind < 3; kind += small ? 2 : 1) { /* an mlp is a gated one without its gate */
        ep_error e;
        ep_tensor *h[3], *d[3], *hw[3], *dw[3], *y, *r;
        static const int64_t rows[] = {64, 64, 3}, shapes[3][2] = {{352, 200}, {352, 200}, {200, 352}};
        for (int i = 0; i < 3; i++) {
            hw[i] = host_tensor(EP_DTYPE_BF16, 2, shapes[i], 0);
            /* Values whose products keep their size: sums of large ones that cancel would show roundings as errors. */
            ep_tensor_fill_random(hw[i], seed++, 1 / sqrt((double)shapes[i][1]), &e);
            assert_int_equal(ep_to_device(gpu, hw[i], &dw[i]), EP_OK);
            h[i] = host_tensor(EP_DTYPE_BF16, 2, (int64_t[]){rows[i], 200}, 0);
            assert_int_equal(ep_to_device(gpu, h[i], &d[i]), EP_OK);
        }
        ep_block *bg, *br;
        ep_block_kind k = kind == 0 ? EP_BLOCK_LINEAR : kind == 1 ? EP_BLOCK_MLP : EP_BLOCK_GATED;
        ep_act act = kind ? EP_ACT_GELU_TANH : EP_ACT_NONE;
        ep_block_weights wg = {.gate = kind == 2 ? dw[0] : NULL, .up = dw[1], .down = kind ? dw[2] : NULL};
        ep_block_weights wr = {.gate = kind == 2 ? hw[0] : NULL, .up = hw[1], .down = kind ? hw[2] : NULL};
        assert_int_equal(ep_block_create(gpu, k, act, &wg, &bg), EP_OK);
        assert_int_equal(ep_block_create(ref, k, act, &wr, &br), EP_OK);
        for (int m = 0; m < 2; m++) {
            assert_int_equal(ep_block_prepare(bg, modes[m], d[0]), EP_OK);
            int rest = small ? 4 : 20;
            for (int round = 0; round < (small ? 10 : 60);
                 round++) { /* each of two is launched twice, captured, replayed */
                int i = round % rest == rest - 1 ? 2 : round % 2;
                if (round % 7 == 0) { /* other values, in place on both sides */
                    assert_int_equal(ep_pointwise_into(gpu, EP_OP_NEG, (const ep_tensor *[]){d[i]}, 1, d[i]), EP_OK);
                    assert_int_equal(ep_pointwise_into(ref, EP_OP_NEG, (const ep_tensor *[]){h[i]}, 1, h[i]), EP_OK);
                }
                ep_status s = ep_block_run(bg, modes[m], d[i], NULL, &y);
                if (s != EP_OK) print_message("replayed: %s\n", ep_context_error(gpu)->message);
                assert_int_equal(s, EP_OK);
                assert_int_equal(ep_block_run(br, EP_MODE_EAGER, h[i], NULL, &r), EP_OK);
                compare("replayed block", y, r, 3 * tolerance(EP_DTYPE_BF16));
            }
        }
        ep_block_destroy(bg);
        ep_block_destroy(br);
        for (int i = 0; i < 3; i++) {
            ep_tensor *all[] = {h[i], d[i], hw[i], dw[i]};
            for (int t = 0; t < 4; t++) ep_tensor_destroy(all[t]);
        }
    }
}

/* Products that come again and again, each time on other memory: from the second call on their kernels are launched without
 * the library, with the addresses of the day. Every answer is the reference's; each shape says whether it was learned. */
static void relaunched(void **state) {
    (void)state;
    enum { SIDES = 3, CALLS = 12 };
    static const int64_t shapes[][3] = {{1, 512, 768},  {16, 256, 2048}, {64, 64, 64},    {300, 256, 512},
                                        {512, 96, 640}, {33, 17, 65},    {128, 352, 1024}};
    const cuda_state *s = gpu->backend.state;
    const size_t count = getenv("EPILOGUE_TEST_SMALL") ? 2 : sizeof shapes / sizeof *shapes;
    for (size_t i = count == 2; i < count; i++) /* small: one whose k is split */
        for (int kind = 0; kind < 6; kind++) {
            ep_dtype dtype = float_dtypes[kind / 2];
            bool bias = kind % 2;
            ep_error e;
            const int64_t *mnk = shapes[i];
            ep_tensor *h[SIDES][3], *d[SIDES][3], *r[SIDES], *y[CALLS];
            int before = s->relaunched, not_before = s->not_relaunched;
            for (int k = 0; k < SIDES; k++) {
                int64_t sizes[3][2] = {{mnk[0], mnk[2]}, {mnk[1], mnk[2]}, {mnk[1], 0}};
                for (int t = 0; t < 3; t++) {
                    h[k][t] = host_tensor(dtype, t == 2 ? 1 : 2, sizes[t], 0);
                    ep_tensor_fill_random(h[k][t], seed++, t == 1 ? 1 / sqrt((double)mnk[2]) : 1, &e);
                    assert_int_equal(ep_to_device(gpu, h[k][t], &d[k][t]), EP_OK);
                }
                assert_int_equal(ep_linear(ref, h[k][0], h[k][1], bias ? h[k][2] : NULL, &r[k]), EP_OK);
            }
            for (int c = 0; c < CALLS; c++) { /* all results live at once, so each has its own memory */
                ep_tensor **in = d[c % SIDES];
                ep_status status = ep_linear(gpu, in[0], in[1], bias ? in[2] : NULL, &y[c]);
                if (status != EP_OK) print_message("relaunched: %s\n", ep_context_error(gpu)->message);
                assert_int_equal(status, EP_OK);
            }
            for (int c = 0; c < CALLS; c++) {
                ep_tensor *expected;
                ep_tensor_alias(r[c % SIDES], &e, &expected);
                compare("relaunched linear", y[c], expected, dtype == EP_DTYPE_F32 ? 3e-5 : tolerance(dtype));
            }
            print_message("%s %lldx%lldx%lld%s: %s\n", ep_dtype_name(dtype), (long long)mnk[0], (long long)mnk[1],
                          (long long)mnk[2], bias ? " bias" : "",
                          s->relaunched > before           ? "learned"
                          : s->not_relaunched > not_before ? s->why_not
                                                           : "not tried");
            for (int k = 0; k < SIDES; k++) {
                ep_tensor_destroy(r[k]);
                for (int t = 0; t < 3; t++) {
                    ep_tensor_destroy(h[k][t]);
                    ep_tensor_destroy(d[k][t]);
                }
            }
        }
}

static ep_status chain(ep_context *ctx, void *user, const ep_tensor *const *in, int in_count, ep_tensor **out,
                       int out_count) {
    (void)user, (void)in_count, (void)out_count;
    ep_tensor *a, *b;
    ep_status s = ep_gelu_tanh(ctx, in[0], &a);
    if (s == EP_OK) {
        s = ep_mul(ctx, a, in[1], &b);
        ep_tensor_destroy(a);
    }
    if (s != EP_OK) return s;
    s = ep_add(ctx, b, in[0], &out[0]);
    ep_tensor_destroy(b);
    return s;
}

/* With one rounding at the end asked for, no call is answered by eager, whose bits have three: the calls made while the code
 * is being built have the bits that the code gives later. */
static void fewest_while_building(void **state) {
    (void)state;
    enum { CALLS = 6, N = 4099 };
    ep_error e;
    ep_context *few;
    ep_context_options o = {.device = {EP_DEVICE_CUDA, 0}, .rounding = EP_ROUNDING_FEWEST};
    ep_compile_options co = {.wait = EP_WAIT_NEVER, .no_disk_cache = true};
    ep_compiled *c;
    assert_int_equal(ep_context_create(&o, &e, &few), EP_OK);
    assert_int_equal(ep_compile(few, chain, NULL, 2, 1, &co, &c), EP_OK);
    ep_tensor *h[2], *d[2], *host[CALLS + 1], *eager, *on_host;
    for (int i = 0; i < 2; i++) {
        h[i] = host_tensor(EP_DTYPE_BF16, 1, (int64_t[]){N}, 0);
        assert_int_equal(ep_to_device(few, h[i], &d[i]), EP_OK);
    }
    for (int i = 0; i <= CALLS; i++) {
        ep_tensor *y;
        if (i == CALLS) assert_int_equal(ep_compiled_wait(c), EP_OK);
        assert_int_equal(ep_compiled_call(c, (const ep_tensor *[]){d[0], d[1]}, &y), EP_OK);
        assert_int_equal(ep_to_host(few, y, &host[i]), EP_OK);
        ep_tensor_destroy(y);
    }
    ep_compile_stats stats;
    ep_compiled_stats(c, &stats);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(stats.kernels_generated, 1);
    for (int i = 0; i < CALLS; i++) assert_memory_equal(ep_tensor_data(host[i]), ep_tensor_data(host[CALLS]), 2 * N);
    ep_tensor *x[2];
    for (int i = 0; i < 2; i++) assert_int_equal(ep_to_device(gpu, h[i], &x[i]), EP_OK);
    assert_int_equal(chain(gpu, NULL, (const ep_tensor *[]){x[0], x[1]}, 2, &eager, 1), EP_OK);
    assert_int_equal(ep_to_host(gpu, eager, &on_host), EP_OK);
    assert_int_not_equal(memcmp(ep_tensor_data(on_host), ep_tensor_data(host[CALLS]), 2 * N), 0);
    ep_difference diff;
    assert_int_equal(ep_tensor_compare(on_host, host[CALLS], 1.0, &e, &diff), EP_OK);
    assert_true(diff.max_rel <= 3 * tolerance(EP_DTYPE_BF16));
    ep_tensor *all[] = {h[0], h[1], d[0], d[1], x[0], x[1], eager, on_host};
    for (int i = 0; i < 8; i++) ep_tensor_destroy(all[i]);
    for (int i = 0; i <= CALLS; i++) ep_tensor_destroy(host[i]);
    ep_compiled_destroy(c);
    ep_context_destroy(few);
}

/* A replay shows every kernel it ran, with the op that asked for it when it was captured. */
static void replay_recorded(void **state) {
    (void)state;
    ep_error e;
    ep_profile *p;
    ep_trace *t;
    ep_tensor *h = host_tensor(EP_DTYPE_BF16, 2, (int64_t[]){64, 256}, 0), *d, *y;
    ep_block *b;
    assert_int_equal(ep_to_device(gpu, h, &d), EP_OK);
    ep_tensor *wh = host_tensor(EP_DTYPE_BF16, 2, (int64_t[]){256, 256}, 0), *w;
    assert_int_equal(ep_to_device(gpu, wh, &w), EP_OK);
    ep_block_weights weights = {.gate = w, .up = w, .down = w};
    assert_int_equal(ep_block_create(gpu, EP_BLOCK_GATED, EP_ACT_GELU_TANH, &weights, &b), EP_OK);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(ep_block_run(b, EP_MODE_TUNED, d, NULL, &y), EP_OK);
        ep_tensor_destroy(y);
    }
    assert_int_equal(ep_profile_start(NULL, &e, &p), EP_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ep_block_run(b, EP_MODE_TUNED, d, NULL, &y), EP_OK);
        ep_tensor_destroy(y);
    }
    assert_int_equal(ep_context_sync(gpu), EP_OK);
    assert_int_equal(ep_profile_stop(p, &e, &t), EP_OK);
    size_t launches = 0, kernels = 0, told = 0;
    for (size_t i = 0; i < ep_trace_count(t); i++) {
        ep_event ev;
        ep_trace_event(t, i, &ev);
        launches += ev.kind == EP_EVENT_RUNTIME && ev.correlation;
        if (ev.kind != EP_EVENT_KERNEL) continue;
        kernels++;
        told += ev.flops > 0 && ev.correlation != 0;
    }
    print_message("%zu launches, %zu kernels, %zu with their work\n", launches, kernels, told);
    assert_int_equal(kernels, 20);
    assert_int_equal(told, kernels);
    assert_true(launches == 10 || launches == 20); /* 20: no replay here, or events instead of CUPTI */
    ep_trace_destroy(t);
    ep_block_destroy(b);
    ep_tensor *all[] = {h, d, wh, w};
    for (int i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
}

static void recorded(void **state) {
    (void)state;
    ep_error e;
    ep_profile *p;
    ep_trace *t;
    int64_t sizes[2] = {512, 512};
    ep_tensor *h = host_tensor(EP_DTYPE_BF16, 2, sizes, 0), *d, *y;
    assert_int_equal(ep_to_device(gpu, h, &d), EP_OK);
    assert_int_equal(ep_profile_start(NULL, &e, &p), EP_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ep_linear(gpu, d, d, NULL, &y), EP_OK);
        ep_tensor_destroy(y);
        assert_int_equal(ep_gelu_tanh(gpu, d, &y), EP_OK);
        ep_tensor_destroy(y);
    }
    assert_int_equal(ep_context_sync(gpu), EP_OK);
    assert_int_equal(ep_profile_stop(p, &e, &t), EP_OK);
    assert_true(t->device_times != EP_TIMES_UNKNOWN);
    assert_in_range(t->device_error_ns, 1, 1000000);
    size_t launches = 0, kernels = 0, linked = 0;
    for (size_t i = 0; i < ep_trace_count(t); i++) {
        ep_event ev;
        ep_trace_event(t, i, &ev);
        if (ev.kind == EP_EVENT_RUNTIME) launches++;
        if (ev.kind != EP_EVENT_KERNEL) continue;
        kernels++;
        linked += ev.correlation != 0;
        assert_true(ev.dur_ns > 0);
    }
    print_message("%zu launches, %zu kernels, %zu linked\n", launches, kernels, linked);
    assert_true(launches >= 40);
    assert_true(kernels >= 40);
    assert_true(linked == kernels);
    ep_trace_destroy(t);
    ep_tensor_destroy(h);
    ep_tensor_destroy(d);
}

/* test_cuda_calls [PATTERN] */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(replayed), cmocka_unit_test(recorded),
                                       cmocka_unit_test(replay_recorded), cmocka_unit_test(relaunched),
                                       cmocka_unit_test(fewest_while_building)};
    if (!open_gpu(argc > 1 ? argv[1] : NULL)) return 0;
    return cmocka_run_group_tests(tests, NULL, close_gpu);
}
