/* Any bytes as a kernel's name: every field is terminated, the class is one of the ten, the confidence a share. */
#include <stdlib.h>
#include <string.h>

#include "read/analyze/facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void terminated(const char *field, size_t size) {
    if (!memchr(field, 0, size)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ep_kernel_name n;
    char *name = malloc(size + 1);
    if (!name) return 0;
    memcpy(name, data, size);
    name[size] = 0;
    ep_kernel_name_decode(name, &n);
    terminated(n.class_name, sizeof n.class_name);
    terminated(n.vendor, sizeof n.vendor);
    terminated(n.family, sizeof n.family);
    terminated(n.arch, sizeof n.arch);
    terminated(n.dtype, sizeof n.dtype);
    terminated(n.tile, sizeof n.tile);
    terminated(n.layout, sizeof n.layout);
    terminated(n.epilogue, sizeof n.epilogue);
    terminated(n.note, sizeof n.note);
    if (!(n.confidence >= 0 && n.confidence <= 1) || n.split_k < 0) abort();
    ep_kernel_class c = ep_kernel_class_of(&n);
    if (strcmp(ep_kernel_class_name(c), n.class_name) != 0) abort();
    free(name);
    return 0;
}
