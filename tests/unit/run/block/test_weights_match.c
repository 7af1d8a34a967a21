/* Feed-forward layers by the names of model families, from files the test makes; ambiguity is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <epilogue/block.h>

#include "tensors.h"

static char folder[64], path[96], config[96];

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ep_test_match_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    unlink(path);
    unlink(config);
    return rmdir(folder);
}

typedef struct named {
    const char *name;
    int rows, cols; /* rows 0: one dim */
} named;

/* A file of f32 tensors, element i of each being i. */
static ep_weights *make(const named *t, size_t count) {
    char header[8192] = "{";
    size_t at = 1, data = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = (size_t)(t[i].rows ? t[i].rows : 1) * (size_t)t[i].cols * 4;
        char shape[32];
        if (t[i].rows)
            snprintf(shape, sizeof shape, "%d,%d", t[i].rows, t[i].cols);
        else
            snprintf(shape, sizeof shape, "%d", t[i].cols);
        at += (size_t)snprintf(header + at, sizeof header - at,
                               "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
                               t[i].name, shape, data, data + n);
        data += n;
    }
    header[at++] = '}';
    while (at % 8) header[at++] = ' ';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t length = at;
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, at, f);
    for (size_t i = 0; i < count; i++) {
        int n = (t[i].rows ? t[i].rows : 1) * t[i].cols;
        for (int j = 0; j < n; j++) fwrite(&(float){(float)j}, 4, 1, f);
    }
    fclose(f);
    ep_weights *w;
    OK(ep_weights_open(path, NULL, &w));
    return w;
}
#define MAKE(...) make((named[]){__VA_ARGS__}, sizeof((named[]){__VA_ARGS__}) / sizeof(named))

static void say(const char *text) {
    FILE *f = fopen(config, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static ep_layer_match found(ep_weights *w, const char *pattern, const char *family, ep_block_kind kind, ep_act act) {
    ep_layer_match m;
    ep_error err;
    char report[2048];
    if (ep_weights_match_layer(w, pattern, report, sizeof report, &err, &m) != EP_OK) fail_msg("%s", err.message);
    assert_string_equal(m.family, family);
    assert_int_equal(m.kind, kind);
    assert_int_equal(m.act, act);
    assert_non_null(strstr(report, "up "));
    assert_int_equal(ep_tensor_size(m.up, 0), 8);
    assert_int_equal(ep_tensor_size(m.up, 1), 4);
    assert_int_equal(ep_tensor_size(m.down, 0), 4);
    assert_int_equal(ep_tensor_size(m.down, 1), 8);
    assert_int_equal(m.gate != NULL, kind == EP_BLOCK_GATED);
    return m;
}

static void families(void **state) {
    (void)state;
    ep_layer_match m;
    unlink(config);
    ep_weights *w = MAKE({"model.layers.1.mlp.gate_proj.weight", 8, 4}, {"model.layers.1.mlp.up_proj.weight", 8, 4},
                         {"model.layers.1.mlp.down_proj.weight", 4, 8}, {"model.layers.12.mlp.gate_proj.weight", 8, 4},
                         {"model.layers.12.mlp.up_proj.weight", 8, 4}, {"model.layers.12.mlp.down_proj.weight", 4, 8});
    m = found(w, "layers.1", "llama", EP_BLOCK_GATED, EP_ACT_SILU);
    ep_layer_match_clear(&m);
    say("{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\",\"hidden_activation\":\"gelu_pytorch_tanh\"}");
    m = found(w, "layers.12", "llama", EP_BLOCK_GATED, EP_ACT_GELU_TANH);
    ep_layer_match_clear(&m);
    unlink(config);
    m = found(w, "model.layers.12.*", "llama", EP_BLOCK_GATED, EP_ACT_SILU);
    ep_layer_match_clear(&m);
    ep_weights_close(w);

    w = MAKE({"encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 8, 4},
             {"encoder.block.0.layer.1.DenseReluDense.wi_1.weight", 8, 4},
             {"encoder.block.0.layer.1.DenseReluDense.wo.weight", 4, 8});
    m = found(w, NULL, "t5 v1.1", EP_BLOCK_GATED, EP_ACT_GELU_TANH);
    ep_layer_match_clear(&m);
    ep_weights_close(w);

    w = MAKE({"block.0.DenseReluDense.wi.weight", 8, 4}, {"block.0.DenseReluDense.wo.weight", 4, 8});
    m = found(w, "", "t5", EP_BLOCK_MLP, EP_ACT_RELU);
    ep_layer_match_clear(&m);
    ep_weights_close(w);

    w = MAKE({"encoder.layer.0.attention.output.dense.weight", 4, 4},
             {"encoder.layer.0.attention.output.dense.bias", 0, 4}, {"encoder.layer.0.intermediate.dense.weight", 8, 4},
             {"encoder.layer.0.intermediate.dense.bias", 0, 8}, {"encoder.layer.0.output.dense.weight", 4, 8},
             {"encoder.layer.0.output.dense.bias", 0, 4});
    m = found(w, "encoder.layer.0", "bert", EP_BLOCK_MLP, EP_ACT_GELU_ERF);
    assert_int_equal(ep_tensor_size(m.up_bias, 0), 8);
    assert_int_equal(ep_tensor_size(m.down_bias, 0), 4);
    ep_layer_match_clear(&m);
    ep_weights_close(w);

    w = MAKE({"model.decoder.layers.0.fc1.weight", 8, 4}, {"model.decoder.layers.0.fc1.bias", 0, 8},
             {"model.decoder.layers.0.fc2.weight", 4, 8});
    say("{\"activation_function\":\"relu\"}");
    m = found(w, "layers.0", "fc1-fc2", EP_BLOCK_MLP, EP_ACT_RELU);
    assert_null(m.down_bias);
    ep_layer_match_clear(&m);
    say("{\"hidden_act\":\"quick_gelu\"}");
    ep_error err;
    assert_int_equal(ep_weights_match_layer(w, "", NULL, 0, &err, &m), EP_ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "quick_gelu"));
    unlink(config);
    ep_weights_close(w);

    w = MAKE({"layers.3.mlp.gate_up_proj.weight", 16, 4}, {"layers.3.mlp.down_proj.weight", 4, 8});
    m = found(w, "layers.3", "phi3", EP_BLOCK_GATED, EP_ACT_SILU);
    double v[32];
    OK(ep_tensor_read_f64(m.up, v, 32, NULL));
    assert_true(v[0] == 32);
    OK(ep_tensor_read_f64(m.gate, v, 32, NULL));
    assert_true(v[0] == 0);
    ep_layer_match_clear(&m);
    ep_weights_close(w);
}

/* GPT-2 keeps [in, out]; a view turns it, nothing is copied. The same names over plain linears are told by the bias. */
static void conv1d_is_a_view(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        ep_weights *w = MAKE({"h.0.mlp.c_fc.weight", plain ? 8 : 4, plain ? 4 : 8}, {"h.0.mlp.c_fc.bias", 0, 8},
                             {"h.0.mlp.c_proj.weight", plain ? 4 : 8, plain ? 8 : 4}, {"h.0.mlp.c_proj.bias", 0, 4},
                             {"h.0.attn.c_proj.weight", 4, 4});
        ep_layer_match m = found(w, "h.0", "gpt2", EP_BLOCK_MLP, EP_ACT_GELU_TANH);
        double v[32];
        OK(ep_tensor_read_f64(m.up, v, 32, NULL));
        assert_true(v[1] == (plain ? 1 : 8));
        assert_int_equal(ep_tensor_stride(m.up, 0), plain ? 4 : 1);
        ep_layer_match_clear(&m);
        ep_weights_close(w);
    }
}

static void two_layers_are_refused(void **state) {
    (void)state;
    ep_weights *w = MAKE({"a.fc1.weight", 8, 4}, {"a.fc2.weight", 4, 8}, {"b.fc1.weight", 8, 4}, {"b.fc2.weight", 4, 8},
                         {"c.fc1.weight", 8, 4});
    ep_layer_match m;
    ep_error err;
    char report[512];
    assert_int_equal(ep_weights_match_layer(w, "fc1", report, sizeof report, &err, &m), EP_ERROR_AMBIGUOUS);
    assert_non_null(strstr(err.message, "2 layers"));
    assert_non_null(strstr(err.message, "a.fc1, b.fc1"));
    assert_string_equal(report, "a.fc1 and fc2 (fc1-fc2)\nb.fc1 and fc2 (fc1-fc2)\n");
    assert_int_equal(ep_weights_match_layer(w, "layer.9", report, sizeof report, &err, &m), EP_ERROR_NOT_FOUND);
    assert_non_null(strstr(err.message, "the file has 2"));
    m = found(w, "b", "fc1-fc2", EP_BLOCK_MLP, EP_ACT_GELU_ERF);
    ep_layer_match_clear(&m);
    ep_layer_match_clear(&m);
    ep_weights_close(w);
    w = MAKE({"x.weight", 8, 4});
    assert_int_equal(ep_weights_match_layer(w, "", report, sizeof report, &err, &m), EP_ERROR_NOT_FOUND);
    ep_weights_close(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(families), cmocka_unit_test(conv1d_is_a_view),
                                       cmocka_unit_test(two_layers_are_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
