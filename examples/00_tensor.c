/* Tensors: made, viewed without a copy, computed with, read back. */
#include <epilogue/epilogue.h>
#include <stdio.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != EP_OK) {                                                                                         \
            fprintf(stderr, "%s\n", err.message[0] ? err.message : ep_context_error(ctx)->message);                    \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

int main(void) {
    ep_error err = {0};
    ep_context *ctx = NULL;
    CHECK(ep_context_create(NULL, &err, &ctx)); /* the CPU, all cores */

    /* x is 2 rows of 6; the halves of its columns are views: same storage, other offset, no byte moved. */
    int64_t sizes[2] = {2, 6};
    double values[12];
    for (int i = 0; i < 12; i++) values[i] = i;
    ep_tensor *x, *left, *right, *sum;
    CHECK(ep_tensor_create(EP_DTYPE_F32, 2, sizes, &err, &x));
    CHECK(ep_tensor_write_f64(x, values, 12, &err));
    CHECK(ep_tensor_chunk(x, 1, 2, 0, &err, &left));
    CHECK(ep_tensor_chunk(x, 1, 2, 1, &err, &right));
    printf("left is [%lld, %lld] with strides [%lld, %lld]\n", (long long)ep_tensor_size(left, 0),
           (long long)ep_tensor_size(left, 1), (long long)ep_tensor_stride(left, 0),
           (long long)ep_tensor_stride(left, 1));

    /* Ops read views in place, whatever their strides. */
    CHECK(ep_add(ctx, left, right, &sum));
    double out[6];
    CHECK(ep_tensor_read_f64(sum, out, 6, &err));
    for (int i = 0; i < 6; i++) printf("%g%s", out[i], i % 3 == 2 ? "\n" : " ");

    ep_tensor_destroy(x);
    ep_tensor_destroy(left);
    ep_tensor_destroy(right);
    ep_tensor_destroy(sum);
    ep_context_destroy(ctx);
    return out[0] == 3 && out[5] == 19 ? 0 : 1; /* 0 + 3, 8 + 11 */
}
