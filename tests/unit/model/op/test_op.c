/* The op table: names both ways, shapes by rule with their refusals, and work worked out by hand. */
#include <stdio.h>
#include <string.h>

#include "model/op/op.h"
#include "tensors.h"

#define S(dtype, ...)                                                                                                  \
    (ep_shape) {                                                                                                       \
        EP_DTYPE_##dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {                                 \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static void names_go_both_ways(void **state) {
    (void)state;
    for (int i = 0; i < EP_OP_COUNT; i++) {
        ep_op op = EP_OP_COUNT;
        OK(ep_op_parse(ep_op_name((ep_op)i), &op));
        assert_int_equal(op, i);
        assert_int_equal(ep_op_get((ep_op)i)->op, i);
        assert_true(ep_op_get((ep_op)i)->max_arity >= ep_op_get((ep_op)i)->min_arity);
    }
    ep_op op;
    OK(ep_op_parse("aten::gelu", &op));
    assert_int_equal(op, EP_OP_GELU_ERF); /* aten's gelu without more is erf's */
    OK(ep_op_parse("aten::addmm", &op));
    assert_int_equal(op, EP_OP_ADDMM);
    assert_int_equal(ep_op_parse("aten::conv2d", &op), EP_ERROR_NOT_FOUND);
    assert_string_equal(ep_op_name(EP_OP_COUNT), "?");
    for (int i = 0; i < EP_ACT_COUNT; i++) {
        ep_act act = EP_ACT_COUNT;
        OK(ep_act_parse(ep_act_name((ep_act)i), &act));
        assert_int_equal(act, i);
        if (i) assert_string_equal(ep_op_name(ep_act_op((ep_act)i)), ep_act_name((ep_act)i));
    }
    ep_act act;
    assert_int_equal(ep_act_parse("gelu", &act), EP_ERROR_NOT_FOUND); /* which one? */
    for (int i = 0; i < EP_DTYPE_COUNT; i++) {
        ep_dtype dtype = EP_DTYPE_COUNT;
        OK(ep_dtype_parse(ep_dtype_name((ep_dtype)i), &dtype));
        assert_int_equal(dtype, i);
    }
}

typedef struct shape_case {
    ep_op op;
    ep_attr attr;
    int count;
    ep_shape in[4];
    ep_status status;
    ep_shape want;
} shape_case;

static void shapes(void **state) {
    (void)state;
    const shape_case all[] = {
        {EP_OP_ADD, {0}, 2, {S(F32, 2, 1, 3), S(F32, 4, 1)}, EP_OK, S(F32, 2, 4, 3)},
        {EP_OP_ADD, {0}, 2, {S(F32, 0, 3), S(F32, 1, 3)}, EP_OK, S(F32, 0, 3)},
        {EP_OP_ADD, {0}, 2, {S(F32, 0, 3), S(F32, 2, 3)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_ADD, {0}, 2, {S(F32, 2), S(BF16, 2)}, EP_ERROR_DTYPE, S(F32, 0)},
        {EP_OP_ADD, {0}, 2, {S(I32, 2), S(I32, 2)}, EP_ERROR_DTYPE, S(F32, 0)},
        {EP_OP_ADD, {0}, 1, {S(F32, 2)}, EP_ERROR_INVALID_ARGUMENT, S(F32, 0)},
        {EP_OP_WHERE, {0}, 3, {S(BOOL, 2, 1), S(F16, 3), S(F16, 1)}, EP_OK, S(F16, 2, 3)},
        {EP_OP_MM, {0}, 2, {S(F32, 2, 3), S(F32, 3, 4)}, EP_OK, S(F32, 2, 4)},
        {EP_OP_MM, {0}, 2, {S(F32, 2, 3), S(F32, 2, 3)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_ADDMM, {0}, 3, {S(F32, 4), S(F32, 2, 3), S(F32, 3, 4)}, EP_OK, S(F32, 2, 4)},
        {EP_OP_ADDMM, {0}, 3, {S(F32, 3), S(F32, 2, 3), S(F32, 3, 4)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_BMM, {0}, 2, {S(F32, 5, 2, 3), S(F32, 5, 3, 4)}, EP_OK, S(F32, 5, 2, 4)},
        {EP_OP_LINEAR, {0}, 3, {S(F32, 7, 2, 3), S(F32, 4, 3), S(F32, 4)}, EP_OK, S(F32, 7, 2, 4)},
        {EP_OP_LINEAR, {0}, 2, {S(F32, 3), S(F32, 4, 3)}, EP_OK, S(F32, 4)},
        {EP_OP_LINEAR, {0}, 3, {S(F32, 2, 3), S(F32, 4, 3), S(F32, 3)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_SUM, {.dims = 2}, 1, {S(F32, 2, 3, 4)}, EP_OK, S(F32, 2)},
        {EP_OP_SUM, {.dims = 2, .keepdim = true}, 1, {S(F32, 2, 3, 4)}, EP_OK, S(F32, 2, 1, 1)},
        {EP_OP_SUM, {.dims = 4}, 1, {S(F32, 2, 3, 4)}, EP_ERROR_INVALID_ARGUMENT, S(F32, 0)},
        {EP_OP_LAYER_NORM, {0}, 2, {S(F32, 2, 3), S(F32, 2)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_CAST, {.dtype = EP_DTYPE_I64}, 1, {S(F32, 2)}, EP_OK, S(I64, 2)},
        {EP_OP_CAT, {.dim = -1}, 3, {S(I32, 2, 3), S(I32, 2, 0), S(I32, 2, 4)}, EP_OK, S(I32, 2, 7)},
        {EP_OP_CAT, {.dim = 0}, 2, {S(I32, 2, 3), S(I32, 2, 4)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_T, {.dim = 0, .dim1 = 1}, 1, {S(BOOL, 2, 3)}, EP_OK, S(BOOL, 3, 2)},
        {EP_OP_RESHAPE, {.ndim = 2, .sizes = {-1, 4}}, 1, {S(F32, 2, 6)}, EP_OK, S(F32, 3, 4)},
        {EP_OP_RESHAPE, {.ndim = 1, .sizes = {5}}, 1, {S(F32, 2, 6)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_EXPAND, {.ndim = 2, .sizes = {4, -1}}, 1, {S(F32, 1, 6)}, EP_OK, S(F32, 4, 6)},
        {EP_OP_SLICE, {.dim = 0, .start = 1, .stop = -1, .step = 2}, 1, {S(F32, 6)}, EP_OK, S(F32, 2)},
        {EP_OP_CHUNK, {.dim = 0, .start = 2, .stop = 3}, 1, {S(F32, 7)}, EP_OK, S(F32, 1)},
        {EP_OP_GATED, {0}, 2, {S(F32, 2, 3), S(F32, 1, 3)}, EP_ERROR_SHAPE, S(F32, 0)},
        {EP_OP_GEGLU, {0}, 4, {S(F32, 5, 2), S(F32, 8, 2), S(F32, 8, 2), S(F32, 3, 8)}, EP_OK, S(F32, 5, 3)},
        {EP_OP_MLP, {0}, 3, {S(F32, 5, 2), S(F32, 8, 2), S(F32, 3, 7)}, EP_ERROR_SHAPE, S(F32, 0)},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const shape_case *c = &all[i];
        ep_shape got;
        ep_error err;
        ep_status status = ep_op_shape(c->op, &c->attr, c->count, c->in, &err, &got);
        if (status != c->status) fail_msg("case %zu, %s: %s", i, ep_op_name(c->op), status ? err.message : "accepted");
        if (status != EP_OK) continue;
        assert_int_equal(got.dtype, c->want.dtype);
        assert_int_equal(got.ndim, c->want.ndim);
        assert_memory_equal(got.sizes, c->want.sizes, sizeof(int64_t) * (size_t)got.ndim);
    }
}

typedef struct work_case {
    ep_op op;
    ep_attr attr;
    int count;
    ep_shape in[7];
    int64_t flops, read, written;
} work_case;

static void work(void **state) {
    (void)state;
    const work_case all[] = {
        {EP_OP_ADD, {0}, 2, {S(F32, 4, 8), S(F32, 8)}, 32, 4 * 40, 4 * 32}, /* what broadcasts counts once */
        {EP_OP_GELU_TANH, {0}, 1, {S(BF16, 10)}, 220, 20, 20},
        {EP_OP_ADD, {0}, 2, {S(F32, 0, 8), S(F32, 8)}, 0, 0, 0},
        {EP_OP_T, {.dim1 = 1}, 1, {S(F32, 4, 8)}, 0, 0, 0},
        {EP_OP_MM, {0}, 2, {S(F32, 2, 3), S(F32, 3, 5)}, 60, 4 * 21, 4 * 10},
        {EP_OP_ADDMM, {.beta = 1}, 3, {S(F32, 5), S(F32, 2, 3), S(F32, 3, 5)}, 70, 4 * 26, 4 * 10},
        {EP_OP_ADDMM, {.beta = 0}, 3, {S(F32, 5), S(F32, 2, 3), S(F32, 3, 5)}, 60, 4 * 21, 4 * 10},
        {EP_OP_LINEAR, {0}, 3, {S(BF16, 2, 3), S(BF16, 5, 3), S(BF16, 5)}, 70, 2 * 26, 2 * 10},
        {EP_OP_LINEAR, {0}, 2, {S(F32, 0, 100), S(F32, 1, 100)}, 0, 0, 0},
        {EP_OP_SUM, {.dims = 1}, 1, {S(F32, 4, 8)}, 32, 4 * 32, 4 * 4},
        {EP_OP_COPY, {0}, 1, {S(I64, 4)}, 0, 32, 32},
        {EP_OP_GATED, {.act = EP_ACT_RELU}, 2, {S(F32, 4), S(F32, 4)}, 8, 32, 16},
        /* 3 rows: two products 2 -> 8, relu and mul, one product 8 -> 5; weights, x and y once. */
        {EP_OP_GEGLU,
         {.act = EP_ACT_RELU},
         4,
         {S(F32, 3, 2), S(F32, 8, 2), S(F32, 8, 2), S(F32, 5, 8)},
         3 * (2 * 2 * 2 * 8 + 2 * 8 + 2 * 8 * 5),
         4 * (6 + 16 + 16 + 40),
         4 * 15},
        {EP_OP_MLP,
         {.act = EP_ACT_NONE},
         5,
         {S(F32, 3, 2), S(F32, 8, 2), S(F32, 5, 8), S(F32, 8), S(F32, 5)},
         3 * (2 * 2 * 8 + 8 + 2 * 8 * 5 + 5),
         4 * (6 + 16 + 40 + 13),
         4 * 15},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const work_case *c = &all[i];
        ep_shape out;
        ep_work w;
        OK(ep_op_shape(c->op, &c->attr, c->count, c->in, NULL, &out));
        ep_op_work(c->op, &c->attr, c->count, c->in, &out, &w);
        if (w.flops != c->flops || w.bytes_read != c->read || w.bytes_written != c->written)
            fail_msg("case %zu, %s: %lld flops, %lld read, %lld written", i, ep_op_name(c->op), (long long)w.flops,
                     (long long)w.bytes_read, (long long)w.bytes_written);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_go_both_ways), cmocka_unit_test(shapes),
                                       cmocka_unit_test(work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
