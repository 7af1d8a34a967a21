/* What a file is that is no profiler trace: each kind that people hand over by mistake gets its own sentence. */
#include <string.h>
#include <strings.h>

#include "base/json_scan.h"
#include "kineto.h"

static const struct {
    const char *magic;
    size_t length;
    const char *sentence;
} magics[] = {
#define MAGIC(text, sentence)                                                                                          \
    { text, sizeof text - 1, sentence }
    MAGIC("version https://git-lfs.github.com/spec/",
          "this is a Git LFS pointer, not the trace itself; git lfs pull fetches the file"),
    MAGIC("\x1f\x8b", "this is gzip in gzip; unpack it once first (gzip -d)"),
    MAGIC("PK\x03\x04", "this is a zip archive; unpack the trace (.json or .json.gz) from it first"),
    MAGIC("SQLite format 3", "this is an SQLite database, such as Nsight Systems exports; a trace that torch.profiler "
                             "wrote is wanted"),
    MAGIC("\x28\xb5\x2f\xfd", "this is compressed with zstd; unpack it first (zstd -d)"),
    MAGIC("\xfd"
          "7zXZ",
          "this is compressed with xz; unpack it first (xz -d)"),
    MAGIC("BZh", "this is compressed with bzip2; unpack it first (bzip2 -d)"),
    MAGIC("\x7f"
          "ELF",
          "this is a program, not a trace"),
    MAGIC("\x89PNG", "this is a picture, not a trace"),
    MAGIC("%PDF", "this is a PDF, not a trace"),
    MAGIC("\x80\x02",
          "this is a Python pickle, such as a memory snapshot; a trace that torch.profiler wrote is wanted"),
    MAGIC("\x80\x04",
          "this is a Python pickle, such as a memory snapshot; a trace that torch.profiler wrote is wanted"),
    MAGIC("\x80\x05",
          "this is a Python pickle, such as a memory snapshot; a trace that torch.profiler wrote is wanted"),
    MAGIC("\xff\xfe\0\0", "this text is UTF-32; JSON traces are UTF-8"),
    MAGIC("\xff\xfe", "this text is UTF-16; JSON traces are UTF-8"),
    MAGIC("\xfe\xff", "this text is UTF-16; JSON traces are UTF-8"),
};

static bool starts_with(const char *p, const char *end, const char *text) {
    size_t n = strlen(text);
    return (size_t)(end - p) >= n && strncasecmp(p, text, n) == 0;
}

/* A protobuf trace begins with field 1 of wire type 2, which is the byte of a line break: what follows tells. */
static bool is_protobuf(const char *data, size_t size) {
    return size >= 2 && data[0] == '\n' && !ep_json_is_space(data[1]) && data[1] != '{' && data[1] != '[' &&
           data[1] != '<';
}

static bool is_binary(const char *p, const char *end) {
    size_t odd = 0, n = (size_t)(end - p) < 512 ? (size_t)(end - p) : 512;
    for (size_t i = 0; i < n; i++) odd += p[i] == 0 || ((unsigned char)p[i] < 0x20 && !ep_json_is_space(p[i]));
    return odd * 16 > n;
}

ep_status kineto_sniff(const char *data, size_t size, ep_error *err) {
    if (size == 0) return ep_fail_at(err, EP_ERROR_FORMAT, 0, "the file is empty");
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (size >= magics[i].length && memcmp(data, magics[i].magic, magics[i].length) == 0)
            return ep_fail_at(err, EP_ERROR_FORMAT, 0, "%s", magics[i].sentence);
    if (is_protobuf(data, size))
        return ep_fail_at(err, EP_ERROR_FORMAT, 0,
                          "this is a binary protobuf, such as Perfetto records; a JSON trace that torch.profiler wrote "
                          "is wanted");
    const char *end = data + size, *p = ep_json_skip_space(data, end);
    if (p == end) return ep_fail_at(err, EP_ERROR_FORMAT, 0, "the file holds nothing but blanks");
    if (*p == '{' || *p == '[') return EP_OK;
    int64_t at = p - data;
    if (starts_with(p, end, "<!doctype html") || starts_with(p, end, "<html"))
        return ep_fail_at(err, EP_ERROR_FORMAT, at,
                          "this is an HTML page, not a trace; a download that needed a login ends like this");
    if (*p == '<') return ep_fail_at(err, EP_ERROR_FORMAT, at, "this is XML or HTML, not a trace");
    if (is_binary(p, end)) return ep_fail_at(err, EP_ERROR_FORMAT, at, "this is a binary file, not a JSON trace");
    return ep_fail_at(err, EP_ERROR_FORMAT, at, "this is no JSON: a trace begins with '{' or '['");
}

/* JSON that has no traceEvents: whose is it? */
ep_status kineto_no_events(const kineto_reader *r) {
    static const struct {
        const char *part, *sentence;
    } tools[] = {
        {"\"traceEvents\"", "\"traceEvents\" is inside another object here; write that object to a file of its own"},
        {"speedscope.app", "this is a speedscope profile, not a trace that torch.profiler wrote"},
        {"chakra", "this is a PyTorch execution trace (the graph of ops); a profiler trace with traceEvents is wanted"},
        {"\"nodes\"",
         "this is a graph with nodes, such as PyTorch's execution trace; a profiler trace with traceEvents "
         "is wanted"},
        {"\"samples\"", "this is a sampled CPU profile, not a trace that torch.profiler wrote"},
        {"\"device_traces\"", "this is a snapshot of PyTorch's memory; a profiler trace with traceEvents is wanted"},
        {"\"ph\"", "this is one event, or one a line; a trace has them in a list: [{...}, {...}]"},
    };
    const char *keys = r->schema.data ? r->schema.data : "";
    if (r->saw_no_list)
        return ep_fail(r->err, EP_ERROR_FORMAT, "\"traceEvents\" is no list here, so this is no profiler trace");
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strstr(keys, tools[i].part)) return ep_fail(r->err, EP_ERROR_FORMAT, "%s", tools[i].sentence);
    return ep_fail(r->err, EP_ERROR_FORMAT, "this JSON has no \"traceEvents\", so it is no profiler trace");
}

/* Whose trace for Chrome's viewer is it, by a text that only this tool's traces hold? A process is named, or a key stands
 * beside the events, or an event has the name. */
static const char *writer_of(const ep_trace *t) {
    static const struct {
        const char *text, *writer;
    } writers[] = {
        {"/job:localhost/", "TensorFlow's timeline"},
        {"/device:", "XLA's profiler (JAX or TensorFlow)"},
        {"/host:CPU", "XLA's profiler (JAX or TensorFlow)"},
        {"\"viztracer_metadata\"", "VizTracer"},
        {"ExecuteCompiler", "clang (-ftime-trace)"},
        {"model_loading_uri", "ONNX Runtime"},
        {"\"systemTraceEvents\"", "Chrome"},
        {"TaskQueueManager", "Chrome"},
    };
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        size_t n = strlen(writers[i].text);
        if (t->schema && strstr(ep_trace_text(t, t->schema), writers[i].text)) return writers[i].writer;
        for (uint32_t k = 0; k < t->strings.count; k++)
            if (t->strings.len[k] >= n && memcmp(t->strings.text[k], writers[i].text, n) == 0) return writers[i].writer;
    }
    return NULL;
}

enum { CATEGORIES = 4, CATEGORY_BYTES = 32 };

/* "'toplevel', 'v8' and others": of the events' categories the first ones. */
static void add_categories(const ep_trace *t, ep_text *out) {
    uint32_t seen[CATEGORIES];
    size_t count = 0;
    for (size_t row = 0; row < t->count; row++) {
        uint32_t category = t->category[row];
        if (!*ep_trace_text(t, category)) continue;
        size_t i = 0;
        while (i < count && seen[i] != category) i++;
        if (i < count) continue;
        if (count == CATEGORIES) {
            ep_text_add(out, " and others");
            return;
        }
        seen[count++] = category;
        ep_text_printf(out, "%s'%.*s'", count == 1 ? "" : ", ", CATEGORY_BYTES, ep_trace_text(t, category));
    }
    if (count == 0) ep_text_add(out, "none");
}

ep_status kineto_foreign_viewer(const kineto_reader *r) {
    const char *writer = writer_of(r->trace);
    ep_text categories = {0};
    add_categories(r->trace, &categories);
    bool one = r->events == 1;
    ep_status status = ep_fail(
        r->err, EP_ERROR_FORMAT,
        "this is a trace for Chrome's viewer%s%s%s, not of torch.profiler: it lacks the categories that mark ops "
        "and kernels (cpu_op, kernel, ...); its %lld event%s %s %s",
        writer ? " that " : "", writer ? writer : "", writer ? " wrote" : "", (long long)r->events, one ? "" : "s",
        one ? "has" : "have", ep_text_str(&categories));
    ep_text_free(&categories);
    return status;
}
