/* What the raw driver and library calls of one geglu forward cost the host, and what the forward costs through the public
 * API, in the same run: three cublasLtMatmul and two launches against eager; one cuGraphLaunch of the same five against
 * compiled and tuned. Run with EPILOGUE_RELAUNCH=0, eager calls the library each time. One JSON line a measurement.
 *     bench_gpu_raw        about 10 s */
#include "bench_gpu.h"

#include "run/backend/cuda/cuda_state.h"
#include "run/engine/context.h"

enum { BURST = 20, BURSTS = 30 };

/* One product as the library's own user would call it: everything made before, one call. */
typedef struct product {
    lt_desc desc;
    lt_layout w, x, d;
    lt_heuristic found;
    const void *a, *b;
    void *out;
} product;

static const lt_library *lt;
static lt_handle handle;
static cu_ptr workspace;
static cuda_state *state;

static void make(product *p, const ep_tensor *x, const ep_tensor *w, ep_tensor *out, int64_t m, int64_t n, int64_t k) {
    int32_t t = 1, count = 0;
    size_t bytes = 32 << 20;
    lt_preference preference;
    int r = lt->desc_create(&p->desc, LT_COMPUTE_32F, LT_R_32F);
    r |= lt->desc_set(p->desc, LT_DESC_TRANSA, &t, sizeof t);
    r |= lt->layout_create(&p->w, LT_R_16BF, (uint64_t)k, (uint64_t)n, k);
    r |= lt->layout_create(&p->x, LT_R_16BF, (uint64_t)k, (uint64_t)m, k);
    r |= lt->layout_create(&p->d, LT_R_16BF, (uint64_t)n, (uint64_t)m, n);
    r |= lt->preference_create(&preference);
    r |= lt->preference_set(preference, LT_PREF_WORKSPACE, &bytes, sizeof bytes);
    r |= lt->heuristic(handle, p->desc, p->w, p->x, p->d, p->d, preference, 1, &p->found, &count);
    lt->preference_destroy(preference);
    if (r || !count) {
        fprintf(stderr, "bench_gpu_raw: cuBLASLt gives %d, %d algorithms\n", r, count);
        exit(1);
    }
    p->a = w->data, p->b = x->data, p->out = out->data;
}

static void drop(product *p) {
    lt->desc_destroy(p->desc);
    lt->layout_destroy(p->w);
    lt->layout_destroy(p->x);
    lt->layout_destroy(p->d);
}

static void multiply(const product *p) {
    float one = 1, zero = 0;
    int r = lt->matmul(handle, p->desc, &one, p->a, p->w, p->b, p->x, &zero, p->out, p->d, p->out, p->d, &p->found.algo,
                       (void *)(uintptr_t)workspace, 32 << 20, state->stream);
    if (r) exit(1);
}

typedef struct forward {
    product gate, up, down;
    cu_function function;
    void *params[1], *args;
    unsigned grid;
    cu_graph_exec graph; /* of the raw calls */
    ep_block *block;
    ep_tensor *x;
} forward;

static void launch(const forward *f) {
    cu_launch_config c = {{f->grid, 1, 1}, {256, 1, 1}, 0, state->stream, NULL, 0};
    if (state->cu->launch(&c, f->function, (void **)(uintptr_t)f->params, NULL) != 0) exit(1);
}

static void raw(void *user) {
    forward *f = user;
    multiply(&f->gate);
    multiply(&f->up);
    launch(f);
    launch(f);
    multiply(&f->down);
}

static void eager(void *user) {
    forward *f = user;
    ep_tensor *y;
    check(ep_block_run(f->block, EP_MODE_EAGER, f->x, NULL, &y), "eager");
    ep_tensor_destroy(y);
}

static void compiled(void *user) {
    forward *f = user;
    ep_tensor *y;
    check(ep_block_run(f->block, EP_MODE_COMPILED, f->x, NULL, &y), "compiled");
    ep_tensor_destroy(y);
}

static void tuned(void *user) {
    forward *f = user;
    ep_tensor *y;
    check(ep_block_run(f->block, EP_MODE_TUNED, f->x, NULL, &y), "tuned");
    ep_tensor_destroy(y);
}

static void graph(void *user) {
    const forward *f = user;
    if (state->cu->graph_launch(f->graph, state->stream) != 0) exit(1);
}

static void make_graph(forward *f) {
    cu_graph captured;
    int r = state->cu->capture_begin(state->stream, 2);
    if (r == 0) raw(f);
    r |= state->cu->capture_end(state->stream, &captured);
    if (r == 0) r = state->cu->graph_instantiate(&f->graph, captured, 0);
    if (r) exit(1);
    void *nodes[16];
    size_t count = 16, by_type[3] = {0};
    if (state->cu->graph_nodes(captured, nodes, &count) != 0) exit(1);
    for (size_t i = 0; i < count; i++) {
        int type;
        if (state->cu->graph_node_type(nodes[i], &type) == 0) by_type[type == 0 ? 0 : type == 2 ? 1 : 2]++;
    }
    printf("{\"what\": \"captured\", \"kernels\": %zu, \"memsets\": %zu, \"others\": %zu}\n", by_type[0], by_type[1],
           by_type[2]);
    state->cu->graph_destroy(captured);
}

static void replays(forward *f, int64_t m, int64_t dim, int64_t hidden) {
    static const struct {
        const char *name;
        void (*call)(void *);
    } rows[] = {{"cuGraphLaunch", graph}, {"compiled", compiled}, {"tuned", tuned}};
    make_graph(f);
    check(ep_block_prepare(f->block, EP_MODE_COMPILED, f->x), "compile");
    for (size_t i = 0; i < 3; i++) {
        for (int k = 0; k < 40; k++) rows[i].call(f);
        bursts b = measure_bursts(rows[i].call, f, BURSTS, 4);
        printf("{\"what\": \"replay host\", \"by\": \"%s\", \"m\": %lld, \"dim\": %lld, \"hidden\": %lld, "
               "\"short_us\": %.2f, \"least_us\": %.2f}\n",
               rows[i].name, (long long)m, (long long)dim, (long long)hidden, b.host_median, b.host_least);
    }
    state->cu->graph_exec_destroy(f->graph);
}

/* A kernel as cheap to launch as any: its one argument block, nothing to do. */
static void find_kernel(forward *f) {
    static long long args[8]; /* ep_flat_args of no element */
    static const char *const name = "ep_bf16_gelu_tanh_sm80_v16";
    for (size_t i = 0; !f->function && i < 16; i++)
        if (state->modules && state->modules[i]) state->cu->module_function(&f->function, state->modules[i], name);
    f->args = args;
    f->params[0] = args;
    f->grid = 1;
}

static void geglu(int64_t m, int64_t dim, int64_t hidden) {
    forward f = {.x = device(m, dim, 1, 0.03)};
    ep_tensor *gate = device(hidden, dim, 2, 0.03), *up = device(hidden, dim, 3, 0.03),
              *down = device(dim, hidden, 4, 0.03);
    ep_tensor *h = device(m, hidden, 5, 0.03), *g = device(m, hidden, 6, 0.03), *y = device(m, dim, 7, 0.03);
    ep_block_weights w = {.gate = gate, .up = up, .down = down};
    check(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_GELU_TANH, &w, &f.block), "block");
    for (int i = 0; i < 8; i++) eager(&f); /* past the calls that learn */
    make(&f.gate, f.x, gate, h, m, hidden, dim);
    make(&f.up, f.x, up, g, m, hidden, dim);
    make(&f.down, h, down, y, m, dim, hidden);
    find_kernel(&f);
    if (!f.function) {
        fprintf(stderr, "bench_gpu_raw: the pointwise kernel was not found\n");
        exit(1);
    }
    for (int i = 0; i < 3; i++) raw(&f);
    double a = measure_bursts(raw, &f, BURSTS, BURST).host_least,
           b = measure_bursts(eager, &f, BURSTS, BURST).host_least;
    double a2 = measure_bursts(raw, &f, BURSTS, BURST).host_least,
           b2 = measure_bursts(eager, &f, BURSTS, BURST).host_least;
    a = a2 < a ? a2 : a, b = b2 < b ? b2 : b;
    printf("{\"what\": \"eager geglu host\", \"m\": %lld, \"dim\": %lld, \"hidden\": %lld, \"raw_us\": %.2f, "
           "\"eager_us\": %.2f, \"ratio\": %.3f}\n",
           (long long)m, (long long)dim, (long long)hidden, a, b, b / a);
    replays(&f, m, dim, hidden);
    fflush(stdout);
    drop(&f.gate), drop(&f.up), drop(&f.down);
    ep_block_destroy(f.block);
    ep_tensor *all[] = {f.x, gate, up, down, h, g, y};
    for (size_t i = 0; i < 7; i++) ep_tensor_destroy(all[i]);
}

int main(void) {
    ep_error err = {0};
    if (!open_gpu()) return 2;
    if (!(lt = lt_library_get(&err))) {
        fprintf(stderr, "bench_gpu_raw: %s\n", err.message);
        return 2;
    }
    state = ctx->backend.state;
    if (lt->create(&handle) || state->cu->memory_alloc(&workspace, 32 << 20)) return 1;
    geglu(8192, 768, 3072);
    geglu(1024, 2048, 16384);
    geglu(1, 768, 3072);
    printf("{\"what\": \"products launched without the library\", \"learned\": %d, \"not\": %d, \"why\": \"%s\"}\n",
           state->relaunched, state->not_relaunched, state->why_not ? state->why_not : "");
    lt->destroy(handle);
    state->cu->memory_free(workspace);
    ep_context_destroy(ctx);
    return 0;
}
