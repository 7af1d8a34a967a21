/* Learning what a library launches, with a driver and a library of ours: what depends on the addresses alone is launched again
 * with others, to the word; whatever else differs is a reason to leave the library its call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "run/backend/cuda/gemm_relaunch.h"

enum { WORDS = 12, FILL_NODE = 1, KERNEL = 2, SECOND = 3 };

/* What the library makes of a call. */
typedef enum kind { PLAIN, WITH_FILL, TWO_KERNELS, SHIFTED, COUNTED, OTHER_GRID, BY_PARAMS, FORK, REFUSES, LATER } kind;

static struct {
    kind kind;
    int calls, open, graphs, launches, fills;
    uint64_t at[RELAUNCH_POINTERS], words[WORDS];
    size_t bytes;
    void *extra[5], *params[1];
    unsigned grid;
    /* the last launch */
    uint64_t seen[WORDS];
    cu_launch_config config;
    cu_launch_attribute attributes[4];
    uint64_t filled;
} f;

static cu_result stream_create(cu_stream *s, unsigned flags) {
    (void)flags;
    *s = (cu_stream)(void *)&f;
    f.open++;
    return 0;
}
static cu_result stream_destroy(cu_stream s) {
    (void)s;
    f.open--;
    return 0;
}
static cu_result capture_begin(cu_stream s, int mode) {
    (void)s, (void)mode;
    return 0;
}
static cu_result capture_end(cu_stream s, cu_graph *g) {
    (void)s;
    *g = (cu_graph)(void *)&f;
    f.graphs++;
    return 0;
}
static cu_result graph_destroy(cu_graph g) {
    (void)g;
    f.graphs--;
    return 0;
}

static void *node(int i) {
    return (void *)(intptr_t)(i == 0 && f.kind == WITH_FILL   ? FILL_NODE
                              : i == 0 || f.kind == WITH_FILL ? KERNEL
                                                              : SECOND);
}

static cu_result graph_nodes(cu_graph g, void **nodes, size_t *count) {
    (void)g;
    *count = f.kind == WITH_FILL || f.kind == TWO_KERNELS || f.kind == FORK ? 2 : 1;
    for (size_t i = 0; nodes && i < *count; i++) nodes[i] = node((int)i);
    return 0;
}
static cu_result node_dependencies(void *n, void **before, cu_edge *edges, size_t *count) {
    *count = n == node(0) || f.kind == FORK ? 0 : 1;
    if (*count) before[0] = node(0);
    if (*count) edges[0].type = f.kind == TWO_KERNELS;
    return 0;
}
static cu_result node_type(void *n, int *type) {
    *type = n == (void *)FILL_NODE ? 2 : 0;
    return 0;
}
static cu_result kernel_node(void *n, cu_kernel_node *k) {
    (void)n;
    k->function = (cu_function)(void *)f.words;
    k->grid[0] = f.grid, k->grid[1] = k->grid[2] = 1;
    k->block[0] = 384, k->block[1] = k->block[2] = 1;
    k->shared_bytes = 200000;
    f.extra[0] = (void *)1, f.extra[1] = f.words, f.extra[2] = (void *)2, f.extra[3] = &f.bytes;
    if (f.kind == BY_PARAMS)
        k->params = f.params;
    else
        k->extra = f.extra;
    return 0;
}
static cu_result attribute(void *n, int which, cu_launch_value *v) {
    (void)n;
    if (which == CU_LAUNCH_CLUSTER) v->cluster.x = 2, v->cluster.y = v->cluster.z = 1;
    return 0;
}
static cu_result memset_node(void *n, cu_memset_node *m) {
    (void)n;
    *m = (cu_memset_node){.to = 0x5000, .element = 4, .width = 16, .height = 1};
    return 0;
}
static cu_result memset32(cu_ptr to, unsigned value, size_t count, cu_stream s) {
    (void)value, (void)count, (void)s;
    f.filled = to;
    f.fills++;
    return 0;
}
static cu_result launch(const cu_launch_config *c, cu_function function, void **params, void **extra) {
    assert_ptr_equal(function, f.words);
    assert_null(params);
    assert_int_equal(*(size_t *)extra[3], f.bytes);
    memcpy(f.seen, extra[1], f.bytes);
    f.config = *c;
    for (unsigned i = 0; i < c->attribute_count; i++) f.attributes[i] = c->attributes[i];
    f.launches++;
    return 0;
}

static const cu_driver driver = {.stream_create = stream_create,
                                 .stream_destroy = stream_destroy,
                                 .capture_begin = capture_begin,
                                 .capture_end = capture_end,
                                 .graph_destroy = graph_destroy,
                                 .graph_nodes = graph_nodes,
                                 .graph_node_type = node_type,
                                 .node_dependencies = node_dependencies,
                                 .kernel_node = kernel_node,
                                 .kernel_node_attribute = attribute,
                                 .memset_node = memset_node,
                                 .memset32 = memset32,
                                 .launch = launch};

static void write_words(uint64_t *w, const uint64_t *p) {
    memset(w, 0, sizeof f.words);
    w[0] = 77;
    w[1] = p[RELAUNCH_B];
    w[3] = p[RELAUNCH_A] + 4096;
    w[4] = p[RELAUNCH_OUT];
    w[7] = p[RELAUNCH_OUT];
    w[9] = p[RELAUNCH_BIAS];
}

static int enqueue(void *user, const uint64_t *p, cu_stream stream) {
    (void)user;
    assert_non_null(stream);
    f.calls++;
    f.grid = f.kind == OTHER_GRID ? 100 + (unsigned)f.calls : 132;
    write_words(f.words, p);
    if (f.kind == SHIFTED) f.words[5] = p[RELAUNCH_A] >> 4;
    if (f.kind == COUNTED) f.words[5] = (uint64_t)f.calls;
    if (f.kind == LATER && f.calls == 3) f.words[11] = 1; /* two calls do not foretell it */
    return f.kind == REFUSES;
}

static const uint64_t first[RELAUNCH_POINTERS] = {0x7f0000001000, 0x7f0000102000, 0x7f0000203000, 0x7f0000304000};
static const uint64_t later[RELAUNCH_POINTERS] = {0x7f1111101010, 0x7f0022202020, 0x7f0000333030, 0x7f0000444040};

static cuda_relaunch *learn(cuda_state *s, kind k, const uint64_t *p, const char **why) {
    memset(&f, 0, sizeof f);
    f.kind = k;
    f.bytes = sizeof f.words - 4; /* the last word is half of one */
    *s = (cuda_state){.cu = &driver};
    cuda_relaunch *r = cuda_relaunch_learn(s, p, enqueue, NULL, why);
    assert_int_equal(f.open, 0);
    assert_int_equal(f.graphs, 0);
    return r;
}

static void addresses_move(void **state) {
    (void)state;
    static const kind kinds[] = {PLAIN, WITH_FILL, TWO_KERNELS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cuda_state s;
        const char *why;
        cuda_relaunch *r = learn(&s, kinds[i], first, &why);
        assert_non_null(r);
        assert_null(why);
        assert_int_equal(f.calls, 3);
        for (int round = 0; round < 3; round++) {
            const uint64_t *p = round == 1 ? first : later;
            uint64_t want[WORDS];
            write_words(want, p);
            assert_int_equal(cuda_relaunch_run(&s, r, p, NULL), 0);
            assert_memory_equal(f.seen, want, f.bytes);
        }
        assert_int_equal(f.launches, kinds[i] == TWO_KERNELS ? 6 : 3);
        assert_int_equal(f.fills, kinds[i] == WITH_FILL ? 3 : 0);
        if (f.fills) assert_int_equal(f.filled, 0x5000);
        assert_int_equal(f.config.grid[0], 132);
        assert_int_equal(f.config.block[0], 384);
        assert_int_equal(f.config.shared_bytes, 200000);
        assert_int_equal(f.config.attribute_count, kinds[i] == TWO_KERNELS ? 2 : 1);
        assert_int_equal(f.attributes[0].id, CU_LAUNCH_CLUSTER);
        assert_int_equal(f.attributes[0].value.cluster.x, 2);
        if (kinds[i] == TWO_KERNELS) assert_int_equal(f.attributes[1].id, CU_LAUNCH_PROGRAMMATIC);
        cuda_relaunch_free(r);
    }
}

/* Without a bias nothing may be taken for one. */
static void no_bias(void **state) {
    (void)state;
    cuda_state s;
    const char *why;
    const uint64_t p[RELAUNCH_POINTERS] = {first[0], first[1], first[2], 0}, q[] = {later[0], later[1], later[2], 0};
    cuda_relaunch *r = learn(&s, PLAIN, p, &why);
    assert_non_null(r);
    uint64_t want[WORDS];
    write_words(want, q);
    assert_int_equal(cuda_relaunch_run(&s, r, q, NULL), 0);
    assert_memory_equal(f.seen, want, f.bytes);
    cuda_relaunch_free(r);
}

static void whatever_else_differs_is_refused(void **state) {
    (void)state;
    static const struct {
        kind kind;
        const char *why;
    } rows[] = {{SHIFTED, "more than the addresses differs"},
                {COUNTED, "more than the addresses differs"},
                {OTHER_GRID, "other addresses launch other kernels"},
                {BY_PARAMS, "too old to tell"}, /* this driver says no sizes of parameters */
                {FORK, "no chain"},
                {REFUSES, "refused a capture"},
                {LATER, "not what two calls foretell"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cuda_state s;
        const char *why;
        assert_null(learn(&s, rows[i].kind, first, &why));
        if (!strstr(why, rows[i].why)) print_message("%zu: %s\n", i, why);
        assert_non_null(strstr(why, rows[i].why));
    }
    cu_driver old = driver;
    old.kernel_node = NULL;
    cuda_state s = {.cu = &old};
    const char *why;
    assert_null(cuda_relaunch_learn(&s, first, enqueue, NULL, &why));
    assert_non_null(strstr(why, "too old"));
    cuda_relaunch_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses_move), cmocka_unit_test(no_bias),
                                       cmocka_unit_test(whatever_else_differs_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
