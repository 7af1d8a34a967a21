/* .npy from any bytes: an error, or a tensor that reads back the same after it was written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <epilogue/tensor.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/ep_fuzz_npy_%d", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!f) return 0;
    fwrite(data, 1, size, f);
    fclose(f);
    ep_tensor *t, *again;
    ep_error err;
    ep_difference d;
    if (ep_tensor_read_npy(path, true, &err, &t) == EP_OK) {
        if (ep_tensor_write_npy(t, path, &err) != EP_OK) abort();
        if (ep_tensor_read_npy(path, true, &err, &again) != EP_OK) abort();
        if (ep_tensor_compare(t, again, 1, &err, &d) != EP_OK || d.max_abs != 0) abort();
        ep_tensor_destroy(t);
        ep_tensor_destroy(again);
    } else if (!err.message[0]) {
        abort();
    }
    unlink(path);
    return 0;
}
