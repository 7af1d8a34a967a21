/* Generated text: readable, complete, and accepted by the compilers it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/codegen/emit_c.h"
#include "run/graph/ir_text.h"
#include "run/jit/toolchain.h"
#include "run/pass/pass.h"

static const char *const graphs[] = {
    "%0 : bf16[9,70] = input\n%1 : bf16[9,70] = input\n%2 : bf16[9,70] = gelu_tanh(%0)\n%3 : bf16[9,70] = mul(%2, %1)\n"
    "output %3\n",
    "%0 : f32[9,70]{1,9} = input\n%1 : f32[9,1] = input\n%2 : f32[9,70] = add(%0, %1)\n%3 : f32[9,70] = erf(%2)\n"
    "output %3\noutput %2\n",
    "%0 : f16[9,70] = input\n%1 : bool[9,70] = input\n%2 : f16[9,70] = silu(%0)\n%3 : f16[9,70] = where(%1, %2, %0)\n"
    "output %3\n",
    "%0 : bf16[9,70] = input\n%1 : bf16[70] = input\n%2 : bf16[9,70] = rms_norm(%0, %1) eps=1e-5\n"
    "%3 : bf16[9,70] = softmax(%2) dims=1\n%4 : bf16[9,1] = amax(%3) dims=1 keepdim=1\n%5 : bf16[9,70] = sub(%3, %4)\n"
    "output %5\noutput %4\n",
    "%0 : f32[9,70] = input\n%1 : f32[70] = input\n%2 : f32[9,70] = layer_norm(%0, %1, %1) eps=1e-5\n"
    "%3 : f32[9,70] = tanh(%2)\n%4 : f32[9] = mean(%3) dims=1\noutput %4\noutput %3\n",
    /* every step of the vocabulary; a broadcast row, a scalar, a cast there and back, two outer dims that do not merge */
    "%0 : f32[5,9,70]{1400,140,1} = input\n%1 : f32[70] = input\n%2 : f32[] = input\n%3 : f32[5,9,70] = add(%0, %1)\n"
    "%4 : f32[5,9,70] = exp(%3)\n%5 : f32[5,9,70] = log(%4)\n%6 : f32[5,9,70] = div(%5, %2)\n"
    "%7 : f32[5,9,70] = sqrt(%6)\n%8 : f32[5,9,70] = rsqrt(%7)\n%9 : f32[5,9,70] = sigmoid(%8)\n"
    "%10 : f32[5,9,70] = gelu_erf(%9)\n%11 : f32[5,9,70] = minimum(%10, %3)\n%12 : f32[5,9,70] = maximum(%11, %1)\n"
    "%13 : f32[5,9,70] = abs(%12)\n%14 : f32[5,9,70] = neg(%13)\n%15 : f32[5,9,70] = relu(%14)\n"
    "%16 : f32[5,9,70] = sub(%15, %0)\noutput %16\n",
    "%0 : f32[9,70] = input\n%1 : bf16[9,70] = cast(%0)\n%2 : bf16[9,70] = gelu_tanh(%1)\n%3 : f32[9,70] = cast(%2)\n"
    "output %3\n",
    "%0 : f16[9,1000] = input\n%1 : f16[9,1000] = softmax(%0) dims=1\n%2 : f16[9] = sum(%1) dims=1\noutput %1\n"
    "output %2\n",
};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

static void loop_of(const char *text, ep_loop *l) {
    ep_error err = {0};
    ep_graph *g;
    if (ep_graph_parse(text, strlen(text), &err, &g) != EP_OK) fail_msg("%d: %s", err.line, err.message);
    if (ep_passes_run(g, &(ep_pass_options){.verify = true}, &err) != EP_OK) fail_msg("%s", err.message);
    assert_int_equal(g->group_count, 1);
    if (ep_loop_build(g, 0, &err, l) != EP_OK) fail_msg("%s", err.message);
    ep_loop_pad(l, 1);
    ep_graph_destroy(g);
}

static void source_of(const ep_dialect *d, ep_isa isa, ep_text *t) {
    ep_loop *l = malloc(sizeof *l);
    ep_emit_preamble(d, isa, t);
    for (int i = 0; i < GRAPHS; i++) {
        loop_of(graphs[i], l);
        ep_emit_kernel(d, isa, l, t);
        l->fixed = true;
        strcat(l->name, "_fixed");
        ep_emit_kernel(d, isa, l, t);
    }
    free(l);
}

/* Every ISA's text compiles; whether this processor can run it does not matter, if it is of the kind. */
static void cpu_text_compiles_for_every_isa(void **state) {
    (void)state;
#if defined(__x86_64__)
    enum { LEVELS = EP_ISA_COUNT };
#else
    enum { LEVELS = EP_ISA_PORTABLE + 1 };
#endif
    for (int isa = 0; isa < LEVELS; isa++) {
        ep_text t = {0};
        ep_error err = {0};
        void *image;
        size_t size;
        source_of(&ep_dialect_cpu, (ep_isa)isa, &t);
        assert_null(strstr(ep_text_str(&t), "#include"));
        ep_build b = {ep_text_str(&t), t.len, (ep_isa)isa, NULL, 300, NULL}; /* s: a machine may be busy */
        if (ep_toolchain_cc.build(&b, &err, &image, &size) != EP_OK)
            fail_msg("%s: %s", ep_isa_name((ep_isa)isa), err.message);
        free(image);
        ep_text_free(&t);
    }
}

/* The device text of every kind of nest, for each architecture that this NVRTC knows; no GPU is needed. */
static void cuda_text_compiles_where_nvrtc_is(void **state) {
    (void)state;
    static const char *const archs[] = {"sm_80", "sm_90", "sm_120"};
    ep_text t = {0};
    source_of(&ep_dialect_cuda, EP_ISA_PORTABLE, &t);
    assert_non_null(strstr(ep_text_str(&t), "__global__"));
    assert_null(strstr(ep_text_str(&t), "#include"));
    int compiled = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        ep_hasher h;
        ep_error err = {0};
        ep_build b = {ep_text_str(&t), t.len, EP_ISA_PORTABLE, archs[i], 0, NULL};
        void *image;
        size_t size;
        ep_hasher_begin(&h);
        if (ep_toolchain_nvrtc.identity(&b, &err, &h) != EP_OK) break;
        if (ep_toolchain_nvrtc.build(&b, &err, &image, &size) != EP_OK) {
            if (strstr(err.message, "invalid value for --gpu-architecture")) continue; /* an older NVRTC */
            fail_msg("%s: %s", archs[i], err.message);
        }
        assert_true(size > 1000);
        compiled++;
        free(image);
    }
    print_message("compiled for %d of 3 architectures%s\n", compiled, compiled ? "" : ": no NVRTC here");
    ep_text_free(&t);
}

static void a_person_can_read_it(void **state) {
    (void)state;
    ep_loop *l = malloc(sizeof *l);
    ep_text t = {0};
    loop_of(graphs[0], l);
    ep_emit_kernel(&ep_dialect_cpu, EP_ISA_AVX512, l, &t);
    const char *s = ep_text_str(&t);
    assert_string_equal(l->name, "epi_poi_gelu_tanh_mul_bf16");
    assert_non_null(strstr(s, "/* gelu_tanh, mul; rounding as eager."));
    assert_non_null(strstr(s, "sizes are free"));
    assert_non_null(strstr(s, "const v_f32 r2 = v_round_bf16(gelu_tanh1);"));
    assert_non_null(strstr(s, "v_store_bf16_n(p2 + i * 2, "));
    loop_of(graphs[3], l);
    assert_string_equal(l->name, "epi_red_rms_norm_softmax_amax_sub_bf16");
    free(l);
    ep_text_free(&t);
}

static void the_hash_is_of_the_code(void **state) {
    (void)state;
    ep_loop *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    loop_of(graphs[0], a);
    loop_of("%0 : bf16[5,7] = input\n%1 : bf16[5,7] = input\n%2 : bf16[5,7] = gelu_tanh(%0)\n%3 : bf16[5,7] = mul(%2, "
            "%1)\noutput %3\n",
            b);
    assert_true(ep_loop_hash(a) == ep_loop_hash(b)); /* other sizes */
    loop_of("%0 : bf16[5,7] = input\n%1 : bf16[5,7] = input\n%2 : bf16[5,7] = gelu_erf(%0)\n%3 : bf16[5,7] = mul(%2, "
            "%1)\noutput %3\n",
            b);
    assert_true(ep_loop_hash(a) != ep_loop_hash(b)); /* another op */
    loop_of("%0 : bf16[5,7]{1,5} = input\n%1 : bf16[5,7] = input\n%2 : bf16[5,7] = gelu_tanh(%0)\n%3 : bf16[5,7] = "
            "mul(%2, %1)\noutput %3\n",
            b);
    assert_true(ep_loop_hash(a) != ep_loop_hash(b)); /* other strides of the inner dim */
    free(a);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_text_compiles_for_every_isa),
        cmocka_unit_test(cuda_text_compiles_where_nvrtc_is),
        cmocka_unit_test(a_person_can_read_it),
        cmocka_unit_test(the_hash_is_of_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
