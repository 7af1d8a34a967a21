/* .npy and safetensors: what is written is read back, and every way a file can be broken has its own sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <epilogue/tensor.h>

#include "tensors.h"

static char path[64];

static int set_up(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/ep_test_files_%d", (int)getpid());
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

static void write_file(const void *front, size_t front_size, const void *rest, size_t rest_size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(front, 1, front_size, f), front_size);
    if (rest_size) assert_int_equal(fwrite(rest, 1, rest_size, f), rest_size);
    fclose(f);
}

/* A header length, the header, `bytes` of data 0, 1, 2... */
static void write_weights(uint64_t claimed, const char *header, size_t bytes) {
    char all[4096];
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++) all[i] = (char)(claimed >> (8 * i) & 255);
    memcpy(all + 8, header, n);
    for (size_t i = 0; i < bytes; i++) all[8 + n + i] = (char)i;
    write_file(all, 8 + n + bytes, NULL, 0);
}

static void weights_are_read_in_place(void **state) {
    (void)state;
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":"
        "[4,12]},\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[12,12]},"
        "\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[12,15]}}    ";
    char padded[512]; /* the header ends at a multiple of 8, as writers make it */
    snprintf(padded, sizeof padded, "%s%*s", header, (int)(7 - (strlen(header) + 7) % 8), "");
    write_weights(strlen(padded), padded, 15);
    ep_weights *w;
    ep_tensor *a, *b, *e, *q;
    ep_error err;
    OK(ep_weights_open(path, &err, &w));
    assert_int_equal(ep_weights_count(w), 4);
    assert_string_equal(ep_weights_name(w, 0), "a");
    assert_string_equal(ep_weights_name(w, 1), "b");
    assert_null(ep_weights_name(w, 4));
    OK(ep_weights_tensor(w, "a", &err, &a));
    OK(ep_weights_tensor(w, "b", &err, &b));
    OK(ep_weights_tensor(w, "e", &err, &e));
    assert_int_equal(ep_weights_tensor(w, "q", &err, &q), EP_ERROR_DTYPE);
    assert_int_equal(ep_weights_tensor(w, "z", &err, &q), EP_ERROR_NOT_FOUND);
    assert_int_equal((char *)ep_tensor_data(b) - (char *)ep_tensor_data(a), 4);
    assert_int_equal(ep_tensor_numel(e), 0);
    ep_weights_close(w); /* the tensors keep the map */
    double v[2];
    OK(ep_tensor_read_f64(b, v, 2, &err));
    assert_true(v[0] == 0x07060504 && v[1] == 0x0b0a0908);
    OK(ep_tensor_fill(b, 7, &err)); /* changes a copy of the page, not the file */
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(e);
    OK(ep_weights_open(path, &err, &w));
    OK(ep_weights_tensor(w, "b", &err, &b));
    OK(ep_tensor_read_f64(b, v, 2, &err));
    assert_true(v[0] == 0x07060504);
    ep_tensor_destroy(b);
    ep_weights_close(w);
}

/* Data that no alignment fits is copied, so that kernels may read it. */
static void odd_headers_are_no_trap(void **state) {
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    char text[128];
    for (int pad = 0; pad < 4; pad++) {
        snprintf(text, sizeof text, "%s%*s", header, pad, "");
        write_weights(strlen(text), text, 8);
        ep_weights *w;
        ep_tensor *a;
        OK(ep_weights_open(path, NULL, &w));
        OK(ep_weights_tensor(w, "a", NULL, &a));
        assert_int_equal((uintptr_t)ep_tensor_data(a) % 4, 0);
        ep_tensor_destroy(a);
        ep_weights_close(w);
    }
}

typedef struct broken {
    const char *header;
    size_t bytes;
    ep_status status;
    const char *says;
} broken;

#define T(name, dtype, shape, from, to)                                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void broken_weights_say_how(void **state) {
    (void)state;
    const broken all[] = {
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, EP_ERROR_FORMAT, "overlaps \"a\""},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 4, EP_ERROR_FORMAT, "past the file's 4 bytes"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 12, EP_ERROR_FORMAT, "the file has 12 bytes"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 12, 16) "}", 16, EP_ERROR_FORMAT, "from 8 to 12"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("a", "F32", "[2]", 8, 16) "}", 16, EP_ERROR_FORMAT, "twice"},
        {"{" T("a", "F31", "[2]", 0, 8) "}", 8, EP_ERROR_FORMAT, "\"F31\" is not a dtype"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, EP_ERROR_FORMAT, "[3] of F32 is not 8 bytes"},
        {"{" T("a", "F32", "[-3]", 0, 8) "}", 8, EP_ERROR_FORMAT, "whole number"},
        {"{" T("a", "F32", "[2]", 8, 0) "}", 8, EP_ERROR_FORMAT, "ends before it begins"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 8) "}", 8, EP_ERROR_OVERFLOW, "2^63"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, EP_ERROR_FORMAT, "more than 8 numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, EP_ERROR_FORMAT, "no \"shape\""},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, EP_ERROR_FORMAT, "no \"dtype\""},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, EP_ERROR_FORMAT,
         "twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, EP_ERROR_FORMAT, "two numbers"},
        {"[1]", 0, EP_ERROR_FORMAT, "not a JSON object"},
        {"{} {}", 0, EP_ERROR_PARSE, ""},
        {"{\"a\":", 0, EP_ERROR_TRUNCATED, "damaged"},
    };
    ep_error err;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ep_weights *w = NULL;
        write_weights(strlen(all[i].header), all[i].header, all[i].bytes);
        ep_status status = ep_weights_open(path, &err, &w);
        if (status != all[i].status && all[i].says[0]) print_message("case %zu: %s\n", i, err.message);
        if (all[i].says[0]) assert_int_equal(status, all[i].status);
        assert_true(status != EP_OK);
        if (!strstr(err.message, all[i].says)) print_message("case %zu: %s\n", i, err.message);
        assert_non_null(strstr(err.message, all[i].says));
        assert_null(w);
    }
    ep_weights *w = NULL;
    write_weights(1000, "{}", 0);
    assert_int_equal(ep_weights_open(path, &err, &w), EP_ERROR_TRUNCATED);
    write_weights((uint64_t)1 << 60, "{}", 0);
    assert_int_equal(ep_weights_open(path, &err, &w), EP_ERROR_FORMAT);
    assert_non_null(strstr(err.message, "100000000"));
    write_file("\x02\0\0", 3, NULL, 0);
    assert_int_equal(ep_weights_open(path, &err, &w), EP_ERROR_TRUNCATED);
    assert_int_equal(err.position, 3);
    assert_true(ep_weights_open("/nonexistent/x", &err, &w) != EP_OK);
}

static void npy_round_trip(void **state) {
    (void)state;
    ep_tensor *t, *v, *r;
    double want[24], got[24];
    for (int d = 0; d < EP_DTYPE_COUNT; d++) {
        OK(ep_tensor_create((ep_dtype)d, SIZES(4, 6), NULL, &t));
        for (int i = 0; i < 24; i++) want[i] = d == EP_DTYPE_BOOL ? i % 2 : i - 7;
        OK(ep_tensor_write_f64(t, want, 24, NULL));
        OK(ep_tensor_transpose(t, 0, 1, NULL, &v));
        OK(ep_tensor_write_npy(v, path, NULL));
        OK(ep_tensor_read_f64(v, want, 24, NULL));
        OK(ep_tensor_read_npy(path, d == EP_DTYPE_BF16, NULL, &r));
        assert_int_equal(ep_tensor_dtype(r), d);
        assert_int_equal(ep_tensor_size(r, 0), 6);
        OK(ep_tensor_read_f64(r, got, 24, NULL));
        assert_memory_equal(want, got, sizeof want);
        ep_tensor_destroy(t);
        ep_tensor_destroy(v);
        ep_tensor_destroy(r);
    }
    OK(ep_tensor_zeros(EP_DTYPE_F32, 0, NULL, NULL, &t));
    OK(ep_tensor_write_npy(t, path, NULL));
    OK(ep_tensor_read_npy(path, false, NULL, &r));
    assert_int_equal(ep_tensor_ndim(r), 0);
    ep_tensor_destroy(t);
    ep_tensor_destroy(r);
}

/* A disk that fills up after the header is told, as the rest of a file is not there. */
static void npy_full_disk(void **state) {
    (void)state;
    ep_tensor *t;
    ep_error err = {0};
    if (access("/dev/full", W_OK) != 0) return;
    OK(ep_tensor_zeros(EP_DTYPE_F32, 1, (int64_t[]){100000}, NULL, &t));
    assert_int_equal(ep_tensor_write_npy(t, "/dev/full", &err), EP_ERROR_IO);
    assert_non_null(strstr(err.message, "/dev/full"));
    ep_tensor_destroy(t);
}

/* `header` under version `major`, then four bytes 1, 2, 3... as data. */
static ep_status read_npy(int major, const char *header, size_t bytes, ep_error *err, ep_tensor **out) {
    unsigned char front[600] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)major, 0};
    size_t n = strlen(header), at = major == 1 ? 10 : 12;
    front[8] = (unsigned char)n;
    memcpy(front + at, header, n);
    for (size_t i = 0; i < bytes; i++) front[at + n + i] = (unsigned char)(i + 1);
    write_file(front, at + n + bytes, NULL, 0);
    return ep_tensor_read_npy(path, false, err, out);
}

static void npy_headers(void **state) {
    (void)state;
    ep_tensor *t = NULL;
    ep_error err;
    OK(read_npy(1, "{'descr': '|b1', 'fortran_order': True, 'shape': (2, 3), }\n", 6, &err, &t));
    assert_int_equal(ep_tensor_stride(t, 0), 1);
    assert_int_equal(ep_tensor_stride(t, 1), 2);
    ep_tensor_destroy(t);
    OK(read_npy(3, "{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<i4\"}", 12, &err, &t));
    assert_int_equal(ep_tensor_ndim(t), 1);
    ep_tensor_destroy(t);
    t = NULL;
    const broken bad[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", 8, EP_ERROR_DTYPE, "<f8"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4, EP_ERROR_DTYPE, ">f4"},
        {"{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }", 2, EP_ERROR_DTYPE, "bf16"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 4, EP_ERROR_TRUNCATED, "2 elements"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4, EP_ERROR_FORMAT, "64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, EP_ERROR_FORMAT, "whole"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }", 4, EP_ERROR_FORMAT, "comma"},
        {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4, EP_ERROR_FORMAT, "string"},
        {"{'descr': '<f4', 'shape': (1,), }", 4, EP_ERROR_FORMAT, "missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), ", 0, EP_ERROR_FORMAT, ""},
        {"", 0, EP_ERROR_FORMAT, "dict"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_npy(1, bad[i].header, bad[i].bytes, &err, &t), bad[i].status);
        assert_non_null(strstr(err.message, bad[i].says));
    }
    assert_int_equal(read_npy(7, "{}", 0, &err, &t), EP_ERROR_UNSUPPORTED);
    write_file("\x93NUMPY\1\0\xff\xff{}", 12, NULL, 0);
    assert_int_equal(ep_tensor_read_npy(path, false, &err, &t), EP_ERROR_TRUNCATED);
    write_file("PK", 2, NULL, 0);
    assert_int_equal(ep_tensor_read_npy(path, false, &err, &t), EP_ERROR_FORMAT);
    assert_null(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_read_in_place),
        cmocka_unit_test(odd_headers_are_no_trap),
        cmocka_unit_test(broken_weights_say_how),
        cmocka_unit_test(npy_round_trip),
        cmocka_unit_test(npy_full_disk),
        cmocka_unit_test(npy_headers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
