/* Tuned products handed to a hook while they are in cache: bits equal to a product stored and read again, every element
 * once, on every ISA, for a gate and up pair and for several packs. */
#include "tuned_case.h"

typedef struct catcher {
    ep_dtype dtype;
    int64_t n, m;
    int products;
    char *got[EP_TUNED_PRODUCTS]; /* [m, n], adjacent */
    unsigned char *visits;
} catcher;

/* Keeps the products, and stores max(first, 0) * last in the call's out: a pointwise group in plain C. */
static void catch_tile(void *user, const ep_tuned_tile *t) {
    const catcher *c = user;
    size_t size = ep_dtype_size(c->dtype);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++) {
            int64_t at_all = (t->row + i) * c->n + t->col + j, from = i * t->in_row + j;
            c->visits[at_all]++;
            for (int p = 0; p < c->products; p++)
                memcpy(c->got[p] + (size_t)at_all * size, (const char *)t->in[p] + (size_t)from * size, size);
            float a = (float)at(c->dtype, t->in[0], from), b = (float)at(c->dtype, t->in[c->products - 1], from);
            float y = (a > 0 ? a : 0) * b;
            ep_element_store(c->dtype, (char *)t->out + (size_t)(i * t->out_row + j) * size, (double)y);
        }
}

static ep_packed *pack_one(const ep_tuned_row *row, const tuned_case *c, const tuned_data *d, int which, bool pair) {
    ep_packed *p = NULL;
    ep_pack_request q = {.dtype = row->dtype, .k = c->k, .n = c->n, .w0 = d->w[which], .w0_row = d->w_row};
    q.w0_col = c->w_col, q.w1_row = d->w_row, q.w1_col = c->w_col;
    if (pair) q.w1 = d->w[1];
    assert_int_equal(ep_tuned_pack_with(row, 2, &q, NULL, &p), EP_OK);
    return p;
}

/* The product of weight `which` alone, stored: [m, n]. */
static char *product(const ep_tuned_row *row, const tuned_case *c, const tuned_data *d, int which,
                     ep_tuned_scratch *scratch) {
    ep_packed *p = pack_one(row, c, d, which, false);
    char *out = malloc((size_t)(c->m * c->n) * ep_dtype_size(row->dtype));
    ep_tuned_call call = {.weights = p, .m = c->m, .x = d->x, .x_row = d->x_row, .x_col = c->x_col};
    call.dtype = row->dtype, call.rounding = EP_ROUNDING_EAGER;
    call.bias0 = d->bias[which], call.bias0_stride = c->bias_step;
    call.out = out, call.out_row = c->n;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, NULL), EP_OK);
    ep_tuned_pack_free(p);
    return out;
}

static void run_hooked(const ep_tuned_row *row, const tuned_case *c, const tuned_data *d, bool pair, int threads,
                       catcher *k, ep_tuned_scratch *scratch) {
    ep_packed *first = pack_one(row, c, d, 0, pair), *second = pair ? NULL : pack_one(row, c, d, 1, false);
    ep_tuned_call call = {.weights = first, .m = c->m, .x = d->x, .x_row = d->x_row, .x_col = c->x_col};
    call.dtype = row->dtype, call.rounding = EP_ROUNDING_EAGER;
    call.out = d->out, call.out_row = d->out_row;
    call.bias0 = d->bias[0], call.bias1 = pair ? d->bias[1] : NULL;
    call.bias0_stride = call.bias1_stride = c->bias_step;
    call.hook = catch_tile, call.hook_user = k;
    if (!pair) {
        call.more_count = 2; /* the second pack, and the first once more */
        call.more[0] = (ep_tuned_product){first, d->bias[0], c->bias_step};
        call.more[1] = (ep_tuned_product){second, d->bias[1], c->bias_step};
    }
    k->products = pair ? 2 : 3;
    ep_error err = {0};
    ep_status s = ep_tuned_run(scratch, threads, &call, &err);
    if (s != EP_OK) fail_msg("%s", err.message);
    ep_tuned_pack_free(first);
    ep_tuned_pack_free(second);
}

static void check_hooked(const ep_tuned_row *row, const tuned_case *c, bool pair, int threads,
                         ep_tuned_scratch *scratch) {
    tuned_data d;
    make_data(c, row->dtype, &d);
    size_t size = ep_dtype_size(row->dtype), all = (size_t)(c->m * c->n);
    char *want[2] = {product(row, c, &d, 0, scratch), product(row, c, &d, 1, scratch)};
    catcher k = {.dtype = row->dtype, .n = c->n, .m = c->m, .visits = calloc(all, 1)};
    for (int i = 0; i < 3; i++) k.got[i] = malloc(all * size);
    run_hooked(row, c, &d, pair, threads, &k, scratch);
    for (size_t e = 0; e < all; e++)
        if (k.visits[e] != 1) fail_msg("element %zu was given %d times", e, k.visits[e]);
    assert_memory_equal(k.got[0], want[0], all * size);
    assert_memory_equal(k.got[1], want[pair ? 1 : 0], all * size);
    if (!pair) assert_memory_equal(k.got[2], want[1], all * size);
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = 0; j < c->n; j++) {
            float a = (float)at(row->dtype, want[0], i * c->n + j), b = (float)at(row->dtype, want[1], i * c->n + j);
            char y[4];
            ep_element_store(row->dtype, y, (double)((a > 0 ? a : 0) * b));
            assert_memory_equal(d.out + (size_t)(i * d.out_row + j) * size, y, size);
        }
    check_margins(c, row, &d);
    for (int i = 0; i < 3; i++) free(k.got[i]);
    free(k.visits);
    free(want[0]);
    free(want[1]);
    free_data(c, &d);
}

static void bits_of_a_stored_product(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 352, 100},  {3, 7, 65},     {40, 45, 96},    {33, 1000, 17},
                                        {300, 65, 352}, {7, 200, 9000}, {64, 100, 6000}, {5, 3, 0}};
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < 16 && row_runs(*r); i++) {
            tuned_case c = {.m = shapes[i / 2][0], .n = shapes[i / 2][1], .k = shapes[i / 2][2], .bias = i % 4 < 2};
            c.x_col = c.w_col = c.bias_step = 1;
            c.pair = true; /* two weights are made */
            c.out_more = 3;
            check_hooked(*r, &c, i % 2, 1 + i % 3, scratch);
        }
    ep_tuned_scratch_destroy(scratch);
}

static void bad_hooked_calls_are_refused(void **state) {
    (void)state;
    ep_error err;
    ep_tuned_scratch *scratch = NULL;
    ep_packed *plain = NULL, *wide = NULL;
    float w[4] = {1, 2, 3, 4}, out[2];
    assert_int_equal(ep_tuned_scratch_create(&err, &scratch), EP_OK);
    ep_pack_request q = {.dtype = EP_DTYPE_F32, .k = 2, .n = 2, .w0 = w, .w0_row = 2, .w0_col = 1};
    assert_int_equal(ep_tuned_pack(1, &q, &err, &plain), EP_OK);
    q.n = 1;
    assert_int_equal(ep_tuned_pack(1, &q, &err, &wide), EP_OK);
    ep_tuned_call good = {.weights = plain, .m = 1, .x = w, .x_row = 2, .x_col = 1, .dtype = EP_DTYPE_F32, .out = out};
    ep_tuned_call call = good;
    call.more_count = 1, call.more[0].weights = plain;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_ERROR_INVALID_ARGUMENT); /* no hook */
    call.hook = catch_tile, call.more[0].weights = wide;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_ERROR_INVALID_ARGUMENT); /* another shape */
    call.more_count = EP_TUNED_PRODUCTS;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_ERROR_INVALID_ARGUMENT);
    call = good;
    call.hook = catch_tile, call.act = EP_ACT_RELU;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_ERROR_INVALID_ARGUMENT);
    ep_tuned_pack_free(plain);
    ep_tuned_pack_free(wide);
    ep_tuned_scratch_destroy(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_a_stored_product),
        cmocka_unit_test(bad_hooked_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
