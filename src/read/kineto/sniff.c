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
        {"speedscope.app", "this is a speedscope profile, not a trace that torch.profiler wrote"},
        {"chakra", "this is a PyTorch execution trace (the graph of ops); a profiler trace with traceEvents is wanted"},
        {"\"nodes\"",
         "this is a graph with nodes, such as PyTorch's execution trace; a profiler trace with traceEvents "
         "is wanted"},
        {"\"samples\"", "this is a sampled CPU profile, not a trace that torch.profiler wrote"},
    };
    const char *keys = r->schema.data ? r->schema.data : "";
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strstr(keys, tools[i].part)) return ep_fail(r->err, EP_ERROR_FORMAT, "%s", tools[i].sentence);
    if (r->saw_no_list)
        return ep_fail(r->err, EP_ERROR_FORMAT, "\"traceEvents\" is no list here, so this is no profiler trace");
    return ep_fail(r->err, EP_ERROR_FORMAT, "this JSON has no \"traceEvents\", so it is no profiler trace");
}
