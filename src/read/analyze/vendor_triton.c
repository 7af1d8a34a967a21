/* Names that TorchInductor gives its Triton kernels: triton_<kind>_fused_<ops>_<n>[_<signature>]. The op list is what
 * went into the group, not what the kernel still computes; a template's list names only its prologue and epilogue. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "vendor_fields.h"

static void set_class(ep_kernel_name *out, const char *name, double confidence) {
    ep_field_set(out->class_name, sizeof out->class_name, name, strlen(name));
    out->confidence = confidence;
}

/* 0d1d2d3de: argument i, d: divisible by 16, e: by 8, c: a constant 1. */
static size_t signature_length(const char *name) {
    size_t n = strlen(name), at = n;
    bool letters = false;
    while (at > 0 && (isdigit((unsigned char)name[at - 1]) || strchr("dec", name[at - 1]))) {
        letters = letters || !isdigit((unsigned char)name[at - 1]);
        at--;
    }
    return letters && at > 0 && name[at - 1] == '_' && name[at] == '0' ? n - at : 0;
}

static bool lists(const char *ops, const char *const *words) {
    for (; *words; words++)
        if (strstr(ops, *words)) return true;
    return false;
}

static void judge_ops(const char *kind, const char *ops, ep_kernel_name *out) {
    static const char *const norms[] = {
        "native_layer_norm", "_softmax", "native_group_norm", "native_batch_norm", "batch_norm", "rms_norm", NULL};
    static const char *const convs[] = {"convolution", NULL};
    static const char *const attention[] = {"flex_attention", "scaled_dot_product", NULL};
    static const char *const gemms[] = {"mm", "bmm", "linear", NULL};
    bool reduction = !strcmp(kind, "red") || !strcmp(kind, "per");
    if (reduction && lists(ops, norms)) set_class(out, "norm", 0.75);
    /* mean of squares, then rsqrt: how an rms_norm looks once it is taken apart */
    else if (reduction && strstr(ops, "mean") && strstr(ops, "pow") && strstr(ops, "rsqrt"))
        set_class(out, "norm", 0.7);
    else if (!strcmp(kind, "tem") && lists(ops, attention))
        set_class(out, "attention", 0.85);
    else if (!strcmp(kind, "tem") && lists(ops, convs))
        set_class(out, "conv", 0.85);
    else if (!strcmp(kind, "tem") && lists(ops, gemms))
        set_class(out, "gemm", 0.9);
}

void ep_fields_triton(const char *name, ep_kernel_name *out) {
    char kind[8] = "", ops[256] = "", text[64];
    size_t signature = signature_length(name), end = strlen(name) - (signature ? signature + 1 : 0);
    const char *fused = strstr(name, "_fused_");
    if (strncmp(name, "triton_", 7) == 0 && strlen(name) > 10) ep_field_set(kind, sizeof kind, name + 7, 3);
    if (fused && (size_t)(fused - name) + 7 < end) {
        const char *list = fused + 7;
        size_t n = end - (size_t)(list - name);
        while (n > 0 && isdigit((unsigned char)list[n - 1])) n--;
        if (n > 0 && list[n - 1] == '_') n--;
        ep_field_set(ops, sizeof ops, list, n);
        ep_field_set(out->epilogue, sizeof out->epilogue, list, n);
        judge_ops(kind, ops, out);
        ep_field_add(out->note, sizeof out->note, "; ", "the op list in the name is no proof of what runs");
    } else if (out->confidence < 0.5) {
        ep_field_add(out->note, sizeof out->note, "; ", "the name says nothing; kernel_file or the owner op says more");
    }
    if (!signature) return;
    ep_field_set(text, sizeof text, name + strlen(name) - signature, signature);
    ep_field_add(out->note, sizeof out->note, "; ", "signature ");
    ep_field_add(out->note, sizeof out->note, "", text);
    ep_field_add(out->note, sizeof out->note, "", ": d means divisible by 16");
}
