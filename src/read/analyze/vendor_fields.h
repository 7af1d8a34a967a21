/* Readers of the fields that vendors put into kernel names. Each leaves what it can't find as it was. */
#ifndef EP_READ_VENDOR_FIELDS_H
#define EP_READ_VENDOR_FIELDS_H

#include <epilogue/analyze.h>
#include <stdbool.h>

void ep_fields_gemm(const char *name, ep_kernel_name *out);    /* cuBLAS, CUTLASS, xmma and their likes */
void ep_fields_conv(const char *name, ep_kernel_name *out);    /* cuDNN */
void ep_fields_nvjet(const char *name, ep_kernel_name *out);   /* nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT */
void ep_fields_tensile(const char *name, ep_kernel_name *out); /* Cijk_Alik_Bljk_BBS_..._MT256x192x64_... */
void ep_fields_triton(const char *name, ep_kernel_name *out);  /* may change the class */
void ep_fields_nccl(const char *name, ep_kernel_name *out);
void ep_fields_cpp(const char *name, ep_kernel_name *out);   /* a demangled template: dtype */
void ep_fields_flash(const char *name, ep_kernel_name *out); /* attention: dtype, tile, arch */
void ep_fields_ours(const char *name, ep_kernel_name *out);  /* sets the class */

/* Bounded copies: what does not fit is cut. */
void ep_field_set(char *field, size_t size, const char *text, size_t n);
void ep_field_add(char *field, size_t size, const char *separator, const char *text);

#endif
