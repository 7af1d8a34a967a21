/* Damage as the field produces it: what is mended, counted and kept; what can't be; the same from both parsers and from
 * a file that ends at any byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/text.h"
#include "read/kineto/reader.h"

static const char *path_of(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/trace/%s", EP_TEST_DIR, name);
    return path;
}

static ep_status read_bytes(const char *data, size_t n, bool no_fast, ep_error *err, ep_trace **out) {
    ep_stream_in *stream;
    assert_int_equal(ep_stream_memory(data, n, err, &stream), EP_OK);
    ep_status status = kineto_read_stream(stream, "", NULL, no_fast, err, out);
    ep_stream_close(stream);
    return status;
}

/* "5 rows, 1 skipped, cut: cut_off 1 @240" */
static char *describe(const ep_trace *t) {
    ep_text out = {0};
    ep_text_printf(&out, "%zu rows, %lld skipped%s", t->count, (long long)t->skipped, t->complete ? "" : ", cut");
    for (size_t i = 0; i < t->repair_count; i++)
        ep_text_printf(&out, "%s %s %lld @%lld", i ? ";" : ":", ep_trace_text(t, t->repairs[i].kind),
                       (long long)t->repairs[i].count, (long long)t->repairs[i].first_offset);
    return ep_text_take(&out);
}

static const struct {
    const char *file, *expected;
    const char *name; /* of an event that must be there, or NULL */
} damaged[] = {
    {"damage/control_bytes.json", "5 rows, 0 skipped: control_byte 2 @178; invalid_utf8 2 @380", "two\nlines"},
    {"damage/bare_numbers.json", "4 rows, 0 skipped: bare_number 4 @327", "Memset"},
    {"damage/backslashes.json", "5 rows, 0 skipped: backslash 5 @188", "C:\\Users\\me\\model.py(3): forward"},
    {"damage/backslashes.json", "5 rows, 0 skipped: backslash 5 @188", "D:\\runs\\"},
    {"damage/backslashes.json", "5 rows, 0 skipped: backslash 5 @188", "say \"hi\", A\n"},
    {"damage/missing_comma.json", "4 rows, 0 skipped: missing_comma 3 @138; extra_comma 2 @338", "aten::b"},
    {"damage/empty_objects.json", "3 rows, 2 skipped: empty_object 2 @139; not_an_event 2 @249", "aten::end"},
    {"damage/cut_in_event.json", "2 rows, 1 skipped, cut: cut_off 1 @240", "aten::a"},
    {"damage/cut_in_string.json", "2 rows, 1 skipped, cut: cut_off 1 @240", "aten::a"},
    {"damage/cut_between.json", "2 rows, 0 skipped, cut: cut_off 1 @240", "aten::a"},
    {"damage/cut_after_events.json", "4 rows, 0 skipped, cut: cut_off 1 @460", "aten::end"},
    {"damage/missing_quote.json", "3 rows, 1 skipped: broken_event 1 @139", "aten::b"},
    {"damage/broken_last.json", "2 rows, 1 skipped: broken_event 1 @240", "aten::a"},
    {"damage/broken_head.json", "2 rows, 0 skipped: broken_head 1 @59", "aten::end"},
    {"damage/broken_tail.json", "2 rows, 0 skipped, cut: broken_tail 1 @258", "aten::end"},
    {"damage/trailing_data.json", "2 rows, 0 skipped: trailing_data 1 @269", "aten::end"},
    {"damage/seam.json", "1 rows, 0 skipped: trailing_data 1 @141", "aten::ok"},
    {"damage/negative_dur.json", "4 rows, 0 skipped: negative_dur 2 @139", "never_closed"},
    {"damage/impossible_time.json", "2 rows, 3 skipped: impossible_time 3 @139", "aten::end"},
    {"damage/unpaired.json", "3 rows, 1 skipped: unpaired_end 1 @215; unpaired_begin 1 @139", "open"},
    {"damage/not_utf8_key.json", "3 rows, 0 skipped: invalid_utf8 1 @238", "aten::a"},
    {"damage/endless.json", "4 rows, 3 skipped: impossible_time 4 @139", "month"},
    {"damage/raw_quotes.json", "5 rows, 2 skipped: raw_quote 8 @89; broken_event 2 @519", "say \"hi\" now"},
    {"damage/raw_quotes.json", "5 rows, 2 skipped: raw_quote 8 @89; broken_event 2 @519", "ends in \"hi\""},
    {"damage/raw_quotes.json", "5 rows, 2 skipped: raw_quote 8 @89; broken_event 2 @519", "\"a\", b"},
    {"damage/untimed_span.json", "6 rows, 0 skipped: untimed_span 3 @139", "b"},
    {"small/list_open.json", "2 rows, 0 skipped, cut: cut_off 1 @207", "aten::end"},
};

static bool has_name(const ep_trace *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(ep_trace_text(t, t->name[i]), name) == 0) return true;
    return false;
}

static void test_damaged(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        ep_error err;
        char *data;
        size_t n;
        assert_int_equal(ep_file_read(path_of(damaged[i].file), 1 << 20, &err, &data, &n), EP_OK);
        for (int no_fast = 0; no_fast < 2; no_fast++) {
            ep_trace *t = NULL;
            if (read_bytes(data, n, no_fast, &err, &t) != EP_OK) fail_msg("%s: %s", damaged[i].file, err.message);
            char *seen = describe(t);
            if (strcmp(seen, damaged[i].expected) != 0) print_error("%s\n", damaged[i].file);
            assert_string_equal(seen, damaged[i].expected);
            if (!has_name(t, damaged[i].name)) fail_msg("%s: no event %s", damaged[i].file, damaged[i].name);
            free(seen);
            ep_trace_destroy(t);
        }
        free(data);
    }
}

static const struct {
    const char *file, *part; /* of the sentence */
} foreign[] = {
    {"lfs", "Git LFS pointer"},
    {"page", "HTML page"},
    {"xml", "XML or HTML"},
    {"empty", "the file is empty"},
    {"blank", "nothing but blanks"},
    {"nsys", "SQLite database"},
    {"perfetto", "binary protobuf"},
    {"pickle", "Python pickle"},
    {"archive", "zip archive"},
    {"zstd", "zstd"},
    {"utf16", "UTF-16"},
    {"text", "no JSON"},
    {"binary", "binary file"},
    {"chrome", "Chrome's viewer that VizTracer wrote"},
    {"chrome", "its 1 event has 'FEE'"},
    {"xla", "that XLA's profiler (JAX or TensorFlow) wrote"},
    {"xla", "its 3 events have none"},
    {"viewer", "Chrome's viewer, not of torch.profiler"},
    {"viewer", "its 5 events have 'a', 'b', 'c', 'd' and others"},
    {"nested", "inside another object"},
    {"lines", "one event, or one a line"},
    {"memory", "snapshot of PyTorch's memory"},
    {"speedscope", "speedscope"},
    {"execution_trace", "execution trace"},
    {"other", "no \"traceEvents\""},
    {"number", "none of the 3 members"},
    {"no_list", "no list"},
};

static void test_foreign(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        char name[64];
        ep_error err = {0};
        ep_trace *t = NULL;
        snprintf(name, sizeof name, "foreign/%s.json", foreign[i].file);
        assert_int_equal(ep_trace_read(path_of(name), NULL, &err, &t), EP_ERROR_FORMAT);
        assert_null(t);
        if (!strstr(err.message, foreign[i].part)) fail_msg("%s: %s", name, err.message);
    }
    ep_error err = {0};
    ep_trace *t = NULL;
    assert_int_equal(ep_trace_read("/nowhere/trace.json", NULL, &err, &t), EP_ERROR_NOT_FOUND);
    assert_int_equal(ep_trace_read(EP_TEST_DIR, NULL, &err, &t), EP_ERROR_IO);
    assert_int_equal(ep_trace_read_memory("{\"traceEvents\": [", 17, NULL, &err, &t), EP_ERROR_TRUNCATED);
    assert_int_equal(err.position, 17);
    assert_int_equal(ep_trace_read(NULL, NULL, &err, &t), EP_ERROR_INVALID_ARGUMENT);
}

/* However a good trace is cut, the events before the cut are there, and the trace says that it is cut. */
static void test_every_cut(void **state) {
    (void)state;
    ep_error err;
    char *data;
    size_t n;
    assert_int_equal(ep_file_read(path_of("small/steps.json"), 1 << 20, &err, &data, &n), EP_OK);
    size_t last = 0;
    for (size_t cut = 0; cut < n; cut++) {
        ep_trace *t = NULL;
        ep_status status = read_bytes(data, cut, cut % 2, &err, &t);
        if (status != EP_OK) {
            assert_true(last == 0);
            continue;
        }
        assert_false(t->complete);
        assert_true(t->count >= last && t->count <= 22);
        last = t->count;
        ep_trace_destroy(t);
    }
    assert_int_equal(last, 22);
    free(data);
}

static size_t gzip(const char *data, size_t n, unsigned char *out, size_t cap) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void test_gzip(void **state) {
    (void)state;
    ep_error err;
    char *data;
    size_t n;
    assert_int_equal(ep_file_read(path_of("shared/article/mlp_eager.json"), 1 << 20, &err, &data, &n), EP_OK);
    static unsigned char packed[1 << 18];
    size_t half = n / 2, size = gzip(data, half, packed, sizeof packed);
    size_t first = size;
    size += gzip(data + half, n - half, packed + size, sizeof packed - size);
    ep_trace *t = NULL;
    assert_int_equal(read_bytes((char *)packed, size, false, &err, &t), EP_OK); /* two members, one stream */
    assert_int_equal(t->count, 200);
    assert_true(t->complete);
    ep_trace_destroy(t);
    for (size_t cut = first - 300; cut < size; cut += 37) {
        t = NULL;
        assert_int_equal(read_bytes((char *)packed, cut, false, &err, &t), EP_OK);
        assert_false(t->complete);
        assert_true(t->count > 50);
        /* A file that ends just between two members does not tell that there was another one. */
        const char *kind = ep_trace_text(t, t->repairs[0].kind);
        assert_string_equal(kind, cut == first ? "cut_off" : "gzip_cut_off");
        ep_trace_destroy(t);
    }
    packed[size - 6] ^= 1; /* the checksum */
    t = NULL;
    assert_int_equal(read_bytes((char *)packed, size, false, &err, &t), EP_OK);
    assert_int_equal(t->count, 200);
    assert_false(t->complete);
    assert_string_equal(ep_trace_text(t, t->repairs[0].kind), "gzip_damaged");
    ep_trace_destroy(t);
    packed[size - 6] ^= 1;
    memset(packed + first + 400, 0xff, 200);
    t = NULL;
    assert_int_equal(read_bytes((char *)packed, size, false, &err, &t), EP_OK);
    char *seen = describe(t);
    assert_non_null(strstr(seen, "gzip_damaged"));
    free(seen);
    ep_trace_destroy(t);
    assert_int_equal(read_bytes((char *)packed, 12, false, &err, &t), EP_ERROR_TRUNCATED);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged), cmocka_unit_test(test_foreign),
                                       cmocka_unit_test(test_every_cut), cmocka_unit_test(test_gzip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
