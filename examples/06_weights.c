/* A model's own feed-forward layer, from a .safetensors file to a tuned block: 06_weights [FILE PATTERN]. Without a file
 * it writes a small one first. The weights are mapped, not copied; the packed form is kept for the next start. */
#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ep_context *ctx;
static ep_error err;

static void stop_on(ep_status status) {
    if (status == EP_OK) return;
    fprintf(stderr, "%s\n", err.message[0] ? err.message : ep_context_error(ctx)->message);
    _Exit(1);
}

/* A safetensors file: the length of a JSON header, the header, the numbers (all of them 0.01 here). */
static void write_model(const char *path) {
    static const char header[] =
        "{\"model.layers.0.mlp.gate_proj.weight\":{\"dtype\":\"F32\",\"shape\":[128,64],\"data_offsets\":[0,32768]},"
        "\"model.layers.0.mlp.up_proj.weight\":{\"dtype\":\"F32\",\"shape\":[128,64],\"data_offsets\":[32768,65536]},"
        "\"model.layers.0.mlp.down_proj.weight\":{\"dtype\":\"F32\",\"shape\":[64,128],\"data_offsets\":[65536,98304]}"
        "}";
    uint64_t length = strlen(header); /* little-endian, as the machine is */
    float weight = 0.01f;
    FILE *f = fopen(path, "wb");
    if (!f) _Exit(1);
    fwrite(&length, sizeof length, 1, f);
    fwrite(header, 1, length, f);
    for (int i = 0; i < 98304 / 4; i++) fwrite(&weight, sizeof weight, 1, f);
    fclose(f);
}

int main(int argc, char **argv) {
    const char *path = argc > 2 ? argv[1] : "06_weights.safetensors", *pattern = argc > 2 ? argv[2] : "layers.0";
    if (argc < 3) write_model(path);
    stop_on(ep_context_create(NULL, &err, &ctx));
    ep_weights *file;
    ep_layer_match layer;
    char found[1024], choices[2048];
    stop_on(ep_weights_open(path, &err, &file));
    stop_on(ep_weights_match_layer(file, pattern, found, sizeof found, &err, &layer));
    printf("a layer of the %s family:\n%s", layer.family, found);

    ep_block *block;
    ep_block_weights weights = {.gate = layer.gate,
                                .gate_bias = layer.gate_bias,
                                .up = layer.up,
                                .up_bias = layer.up_bias,
                                .down = layer.down,
                                .down_bias = layer.down_bias};
    stop_on(ep_block_create(ctx, layer.kind, layer.act, &weights, &block));
    ep_layer_match_clear(&layer); /* the block holds what it needs */
    ep_weights_close(file);

    /* At start: pack the weights, or map what an earlier start packed. Then no call waits for it. */
    ep_tensor *x, *y, *z;
    stop_on(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){32, ep_block_dim(block)}, &err, &x));
    stop_on(ep_tensor_fill_random(x, 1, 1.0, &err));
    bool kept = ep_block_load_packed(block, "06_weights.packed", true) == EP_OK;
    stop_on(ep_block_prepare(block, EP_MODE_TUNED, x));
    if (!kept) stop_on(ep_block_save_packed(block, "06_weights.packed"));
    /* Any number of rows, again and again; into memory that is there, or as a new tensor. */
    stop_on(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){32, ep_block_out(block)}, &err, &y));
    stop_on(ep_block_run_into(block, EP_MODE_TUNED, x, NULL, y));
    stop_on(ep_block_run(block, EP_MODE_EAGER, x, NULL, &z));
    ep_difference d;
    stop_on(ep_tensor_compare(y, z, 1e-3, &err, &d));
    ep_block_tuned_text(block, choices, sizeof choices);
    printf("tuned and eager differ by at most %g; packed %lld bytes\n%s", d.max_abs,
           (long long)ep_block_packed_bytes(block), choices);
    ep_tensor *all[] = {x, y, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_block_destroy(block);
    ep_context_destroy(ctx);
    return d.max_abs < 1e-3 ? 0 : 1;
}
