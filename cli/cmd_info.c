/* `epi info`: this machine, what was found on it, and its measured ceilings. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "json_out.h"

enum { MOST_LIBRARIES = 32 };

typedef struct info {
    ep_machine machine;
    ep_library libraries[MOST_LIBRARIES];
    size_t count;
    bool gpu;
} info;

static const char usage[] = "usage: epi info [OPTIONS]\n\n"
                            "Shows this machine: processor, libraries found, and what it can do at most. Every\n"
                            "report sets measured times beside these ceilings.";

static void bytes_text(int64_t n, char out[24]) {
    if (n >= 1 << 20)
        snprintf(out, 24, "%" PRId64 " MiB", n >> 20);
    else
        snprintf(out, 24, "%" PRId64 " KiB", n >> 10);
}

static void pair(const char *what, const double v[2], const char *unit) {
    if (!(v[0] > 0) && !(v[1] > 0)) return;
    printf("  %-34s %10.1f %10.1f %s\n", what, v[0], v[1], unit);
}

/* "measured 2026-11-30", and on a line of its own why that could not be kept. */
static int source_length(const ep_machine *m) {
    const char *note = strstr(m->source, ", not kept");
    return note ? (int)(note - m->source) : (int)strlen(m->source);
}

static void show_not_kept(const ep_machine *m) {
    const char *note = m->source + source_length(m);
    if (*note) epi_wrap(note + 2, printf("  "), 2, 80);
}

/* A GPU has no threads to count and no instruction set of this processor. */
static void show_gpu(const ep_machine *m) {
    printf("\nceilings, %.*s\n", m->measured ? source_length(m) : 9, m->measured ? m->source : "estimated");
    show_not_kept(m);
    const struct {
        const char *what, *unit;
        double v;
    } rows[] = {{"f32 products", "GFLOP/s", m->gflops[EP_DTYPE_F32][1]},
                {"bf16 products, f32 sums", "GFLOP/s", m->gflops[EP_DTYPE_BF16][1]},
                {"f16 products, f32 sums", "GFLOP/s", m->gflops[EP_DTYPE_F16][1]},
                {"f32 products by tf32, f32 sums", "GFLOP/s", m->tf32_gflops},
                {"reading memory", "GB/s", m->read_gbs[1]},
                {"copying memory, both ways counted", "GB/s", m->copy_gbs[1]},
                {"launching a kernel, on the host", "us", m->launch_us},
                {"replaying a graph of five, on the host", "us", m->graph_launch_us},
                {"one op on 64 numbers, on the host", "us", m->dispatch_ns * 1e-3}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        if (rows[r].v > 0)
            printf("  %-40s %10.*f %s\n", rows[r].what, rows[r].v < 100 ? 2 : 1, rows[r].v, rows[r].unit);
}

static void show_text(const info *x) {
    const ep_machine *m = &x->machine;
    char l1[24], l2[24], l3[24];
    bytes_text(m->cache_bytes[0], l1);
    bytes_text(m->cache_bytes[1], l2);
    bytes_text(m->cache_bytes[2], l3);
    printf("epi %s\n%s\n", ep_version(), m->name);
    if (x->gpu && m->cache_bytes[2]) printf("%d multiprocessors; L2 %s\n\n", m->cores, l3);
    if (!x->gpu)
        printf("instruction set %s%s;\ncaches L1 %s, L2 %s a core, L3 %s\n\n", ep_machine_isa(), epi_isa_note(), l1, l2,
               l3);
    if (x->count) printf("libraries and programs\n");
    for (size_t i = 0; i < x->count; i++)
        printf("  %-12s %-30s %s\n", x->libraries[i].name, x->libraries[i].use,
               !x->libraries[i].found       ? "not found"
               : x->libraries[i].version[0] ? x->libraries[i].version
                                            : "found");
    if (x->gpu) {
        show_gpu(m);
        return;
    }
    printf("\nceilings, %.*s%25s one thread %8s all\n", m->measured ? source_length(m) : 9,
           m->measured ? m->source : "estimated", "", "");
    pair("f32 multiply-adds", m->gflops[EP_DTYPE_F32], "GFLOP/s");
    pair("bf16 products, f32 sums", m->gflops[EP_DTYPE_BF16], "GFLOP/s");
    pair("reading memory", m->read_gbs, "GB/s");
    pair("copying memory, both ways counted", m->copy_gbs, "GB/s");
    pair("reading from L2", m->cache_gbs[0], "GB/s");
    pair("reading from L3", m->cache_gbs[1], "GB/s");
    printf("  one op on 64 numbers: %.0f ns; starting all threads: %.1f us\n", m->dispatch_ns, m->fork_join_us);
    show_not_kept(m);
    if (!m->measured)
        printf("  These are estimates from the instruction set. 'epi info --measure' measures\n"
               "  them once (about 5 s) and keeps them in the user's cache directory.\n");
}

static void put_pair(json_out *j, const char *key, const double v[2]) {
    json_object(j, key);
    json_number(j, "one_thread", v[0] > 0 ? v[0] : NAN);
    json_number(j, "all_threads", v[1] > 0 ? v[1] : NAN);
    json_end(j);
}

static void show_json(const info *x) {
    json_out out = {.to = stdout}, *j = &out;
    const ep_machine *m = &x->machine;
    json_object(j, NULL);
    json_text(j, "version", ep_version());
    json_object(j, "machine");
    json_text(j, "name", m->name);
    json_text(j, "source", m->source);
    json_bool(j, "measured", m->measured);
    json_int(j, "cores", m->cores);
    json_text(j, "isa", ep_machine_isa());
    json_object(j, "peak_gflops");
    for (int d = 0; d <= EP_DTYPE_F16; d++) put_pair(j, ep_dtype_name((ep_dtype)d), m->gflops[d]);
    if (x->gpu) put_pair(j, "tf32", (double[2]){m->tf32_gflops, m->tf32_gflops});
    json_end(j);
    put_pair(j, "read_gbs", m->read_gbs);
    put_pair(j, "copy_gbs", m->copy_gbs);
    put_pair(j, "l2_gbs", m->cache_gbs[0]);
    put_pair(j, "l3_gbs", m->cache_gbs[1]);
    json_number(j, "dispatch_ns", m->dispatch_ns);
    json_number(j, "launch_us", m->launch_us);
    json_number(j, "graph_launch_us", m->graph_launch_us > 0 ? m->graph_launch_us : NAN);
    json_number(j, "fork_join_us", m->fork_join_us);
    json_array(j, "cache_bytes");
    for (int i = 0; i < 3; i++) json_int(j, NULL, m->cache_bytes[i]);
    json_end(j);
    json_end(j);
    json_array(j, "libraries");
    for (size_t i = 0; i < x->count; i++) {
        json_object(j, NULL);
        json_text(j, "name", x->libraries[i].name);
        json_text(j, "use", x->libraries[i].use);
        json_bool(j, "found", x->libraries[i].found);
        json_text(j, "version", x->libraries[i].version[0] ? x->libraries[i].version : NULL);
        json_end(j);
    }
    json_finish(j);
}

#ifdef EP_HAVE_RUN
static int measure(const ep_device device, int64_t threads, bool json, info *x) {
    ep_error err = {0};
    if (!json) fprintf(stderr, "measuring, about 5 seconds ...\n");
    if (ep_machine_measure(device, (int)threads, &err, &x->machine) == EP_OK) return -1;
    return err.status == EP_ERROR_NOT_BUILT ? epi_bad("not built yet: %s", err.message) : epi_fail("measuring", &err);
}
#else
static int measure(const ep_device device, int64_t threads, bool json, info *x) {
    (void)device;
    (void)threads;
    (void)json;
    (void)x;
    return epi_bad("--measure needs the runtime, and this epi was built without it");
}
#endif

int cmd_info(int argc, char **argv) {
    bool wants_measure = false, json = false;
    int64_t threads = 0;
    const char *device = "cpu";
    const epi_option options[] = {
        {"--measure", OPT_FLAG, &wants_measure, NULL, "measure the ceilings now and keep them"},
        {"--threads", OPT_INT, &threads, "N", "with --measure: what counts as all threads"},
        {"--device", OPT_TEXT, &device, "NAME", "cpu, cuda or cuda:N (cpu)"},
        {"--json", OPT_FLAG, &json, NULL, "one JSON object instead of text"},
        {0}};
    info *x = &(info){0};
    ep_error err = {0};
    int count, code = epi_parse(argc, argv, usage, options, NULL, 0, &count);
    if (code >= 0) return code;
    if (threads < 0 || threads > 4096) return epi_bad("--threads is %" PRId64 "; it must be 0 to 4096", threads);
    ep_device d;
    code = epi_device(device, &d);
    if (code >= 0) return code;
    x->gpu = d.kind == EP_DEVICE_CUDA;
    if (wants_measure) {
        code = measure(d, threads, json, x);
        if (code >= 0) return code;
    } else if (ep_machine_load(d, &err, &x->machine) != EP_OK) {
        return epi_fail(device, &err);
    }
#ifdef EP_HAVE_RUN
    x->count = ep_libraries(x->libraries, MOST_LIBRARIES);
    if (x->count > MOST_LIBRARIES) x->count = MOST_LIBRARIES;
#endif
    if (json)
        show_json(x);
    else
        show_text(x);
    return EPI_DONE;
}
