/* safetensors from any bytes: an error or tensors that lie inside the file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <epilogue/tensor.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/ep_fuzz_st_%d", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!f) return 0;
    fwrite(data, 1, size, f);
    fclose(f);
    ep_weights *w;
    ep_error err;
    if (ep_weights_open(path, &err, &w) == EP_OK) {
        for (size_t i = 0; i < ep_weights_count(w); i++) {
            ep_tensor *t;
            if (ep_weights_tensor(w, ep_weights_name(w, i), &err, &t) != EP_OK) continue;
            size_t n = (size_t)ep_tensor_numel(t);
            double *v = n <= size ? malloc(sizeof(double) * (n + 1)) : NULL;
            if (!v) abort(); /* more elements than bytes of file */
            if (ep_tensor_read_f64(t, v, n, &err) != EP_OK) abort();
            free(v);
            ep_tensor_destroy(t);
        }
        ep_weights_close(w);
    } else if (!err.message[0]) {
        abort();
    }
    unlink(path);
    return 0;
}
