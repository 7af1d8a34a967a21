/* Thousands of random triples on every ISA this machine has: every element against f64, rows of NaN, of infinities and of
 * denormal numbers among them, and the same bits from one thread to four. EP_SEED chooses others. */
// ctest: slow
#include "tuned_case.h"

enum { CASES = 300 };

/* Most cases have a row of x of another kind: NaN, infinity in one place, all denormal. */
static void set_row(tuned_case *c, ep_dtype t, const tuned_data *d) {
    int64_t kind = random_below(4), row = random_below(c->m), k = random_below(c->k);
    double tiny = t == EP_DTYPE_F16 ? 0x1p-20 : 0x1p-130;
    size_t size = ep_dtype_size(t);
    char *x = d->x + (size_t)(row * d->x_row) * size;
    if (kind == 0) ep_element_store(t, x + (size_t)(k * c->x_col) * size, NAN);
    if (kind == 1) ep_element_store(t, x + (size_t)(k * c->x_col) * size, random_below(2) ? INFINITY : -INFINITY);
    for (int64_t i = 0; kind == 2 && i < c->k; i++) ep_element_store(t, x + (size_t)(i * c->x_col) * size, tiny);
    if (kind == 2 && t == EP_DTYPE_F16) c->lost = 0x1p-24; /* what two roundings to a denormal f16 may */
    if (kind == 2 && t == EP_DTYPE_BF16) c->lost = 0x1p-126 * 2 * (double)c->k;
}

static void check_case(const ep_tuned_row *row, int64_t most, ep_tuned_scratch *scratch) {
    tuned_case c;
    tuned_data d;
    random_case(&c, most);
    make_data(&c, row->dtype, &d);
    set_row(&c, row->dtype, &d);
    char *first = malloc(d.out_bytes);
    assert_non_null(first);
    for (int threads = 1; threads <= 4; threads++) {
        memset(d.out, 0xff, d.out_bytes);
        run_case(&c, row, &d, threads, scratch);
        if (threads == 1) memcpy(first, d.out, d.out_bytes);
        if (memcmp(first, d.out, d.out_bytes) != 0)
            fail_msg("%s m %lld n %lld k %lld pair %d: other bits with %d threads", row->isa_name, (long long)c.m,
                     (long long)c.n, (long long)c.k, c.pair, threads);
    }
    d.x_wide = widen(row->dtype, d.x, c.m, c.k, d.x_row, c.x_col);
    for (int i = 0; i < 1 + c.pair; i++) d.w_wide[i] = widen(row->dtype, d.w[i], c.n, c.k, d.w_row, c.w_col);
    for (int64_t e = 0; e < c.m * c.n; e++) check_element(&c, row, &d, e / c.n, e % c.n);
    check_margins(&c, row, &d);
    free(first);
    free_data(&c, &d);
}

static void every_element_of_thousands_of_triples(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < CASES && row_runs(*r); i++)
            check_case(*r, (*r)->isa == EP_ISA_PORTABLE ? 1 << 19 : 1 << 22, scratch);
    ep_tuned_scratch_destroy(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_of_thousands_of_triples)};
    const char *seed = getenv("EP_SEED");
    if (seed) random_state = strtoull(seed, NULL, 0) * 0x9e3779b97f4a7c15u | 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
