/* Makes and parses OUR kernel names, round trip. Form:
 *   ep_<dtype>_<op>_<isa>[_<tile>][_<layout>][_<extra>...]   e.g. ep_bf16_gemm_bias_onednn_avx512bf16_tn
 *   epi_<poi|red|gem>_<ops joined by _>_<dtype>              generated: epi_poi_gelu_tanh_mul_bf16 */
#ifndef EP_MODEL_KERNEL_NAME_H
#define EP_MODEL_KERNEL_NAME_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ep_our_name {
    bool generated;
    char dtype[8];       /* f32 bf16 f16 i32 i64 bool */
    char op[64];         /* gemm, gemm_bias, gemm_gelu_tanh, geglu, pointwise op names, softmax, copy, ... */
    char isa[24];        /* portable avx2 avx512 avx512bf16 amxbf16 onednn_avx512bf16 sm80 sm90a cublaslt ... */
    char tile[24];       /* "t14x32", "u64", "" */
    char layout[8];      /* "tn", "nn", "nt", "tt" or "" */
    char extra[32];      /* "splitk4", ... or "" */
    char class_name[12]; /* gemm pointwise reduction norm copy */
} ep_our_name;

/* Writes the name; false if it does not fit. */
bool ep_our_name_make(const ep_our_name *n, char *out, size_t size);
/* False if the text is not one of ours. make(parse(x)) == x for every name we make. */
bool ep_our_name_parse(const char *text, ep_our_name *out);

#endif
