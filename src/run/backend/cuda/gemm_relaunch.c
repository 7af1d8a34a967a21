/* A library call takes the host two to three times as long as the kernel it ends in. So the call is captured for three
 * sets of addresses; what differs must be the addresses, and the third capture must be what the first two foretell, to
 * the byte. Then its kernels are launched with the addresses of the day. Anything else stays the library's call. */
#include "gemm_relaunch.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 4,
    PATCHES = 64,
    ATTRIBUTES = 4,
    PARAMS = 64,
    PARAM_BYTES = 32764, /* the most a kernel can have */
    KERNEL_NODE = 0,
    MEMSET_NODE = 2,
    CAPTURE_RELAXED = 2,
    PROGRAMMATIC_EDGE = 1
};

/* CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE */
#define EXTRA_END ((void *)0)
#define EXTRA_POINTER ((void *)1)
#define EXTRA_SIZE ((void *)2)

typedef struct patch {
    uint32_t step, word;
    int which;
    uint64_t addend;
} patch;

/* One kernel or one memset. */
typedef struct step {
    cu_function function; /* NULL: a memset */
    unsigned grid[3], block[3], shared_bytes, attribute_count;
    cu_launch_attribute attributes[ATTRIBUTES];
    size_t word_count;
    uint64_t *words; /* its parameters as they lie; of a memset: where, what, element size, count */
    size_t bytes;
} step;

struct cuda_relaunch {
    step steps[STEPS];
    size_t step_count;
    patch patches[PATCHES];
    size_t patch_count;
};

static void drop(step *s) {
    free(s->words);
    memset(s, 0, sizeof *s);
}

void cuda_relaunch_free(cuda_relaunch *r) {
    if (!r) return;
    for (size_t i = 0; i < STEPS; i++) drop(&r->steps[i]);
    free(r);
}

/* Zeroed and aligned as any parameter may want it. */
static bool room(step *s, size_t bytes) {
    s->word_count = (bytes + 7) / 8;
    size_t whole = (s->word_count * 8 + 63) / 64 * 64;
    s->words = aligned_alloc(64, whole ? whole : 64);
    if (s->words) memset(s->words, 0, whole ? whole : 64);
    return s->words != NULL;
}

/* Why not, or NULL: read. */
static const char *read_attributes(const cu_driver *cu, void *node, step *s) {
    static const int wanted[] = {CU_LAUNCH_CLUSTER, CU_LAUNCH_COOPERATIVE, CU_LAUNCH_CLUSTER_POLICY};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        cu_launch_attribute a;
        memset(&a, 0, sizeof a);
        a.id = wanted[i];
        if (cu->kernel_node_attribute(node, a.id, &a.value) != 0) return "a launch attribute could not be read";
        static const cu_launch_value none;
        if (memcmp(&a.value, &none, sizeof none) != 0) s->attributes[s->attribute_count++] = a;
    }
    return NULL;
}

static const char *read_block(const cu_kernel_node *n, step *s) {
    const void *block = NULL;
    for (void **e = n->extra; *e != EXTRA_END; e += 2) {
        if (e[0] == EXTRA_POINTER) block = e[1];
        if (e[0] == EXTRA_SIZE) s->bytes = *(const size_t *)e[1];
    }
    if (!block || !s->bytes) return "a kernel's block of parameters could not be read";
    if (!room(s, s->bytes)) return "no memory";
    memcpy(s->words, block, s->bytes);
    return NULL;
}

/* Parameters given one by one, put where a block has them. How many there are only an error tells. */
static const char *read_params(const cu_driver *cu, const cu_kernel_node *n, step *s) {
    size_t offset[PARAMS], bytes[PARAMS], count = 0;
    if (!cu->function_param) return "the driver is too old to tell a kernel's parameters";
    while (count < PARAMS && (n->function ? cu->function_param(n->function, count, &offset[count], &bytes[count])
                                          : cu->kernel_param(n->kernel, count, &offset[count], &bytes[count])) == 0) {
        if (offset[count] + bytes[count] > s->bytes) s->bytes = offset[count] + bytes[count];
        count++;
    }
    if (!count || count == PARAMS || s->bytes > PARAM_BYTES) return "a kernel's parameters could not be read";
    if (!room(s, s->bytes)) return "no memory";
    for (size_t i = 0; i < count; i++) memcpy((char *)s->words + offset[i], n->params[i], bytes[i]);
    return NULL;
}

static const char *read_kernel(const cu_driver *cu, void *node, step *s) {
    cu_kernel_node n;
    memset(&n, 0, sizeof n);
    if (cu->kernel_node(node, &n) != 0) return "a kernel could not be read";
    if (!n.params && !n.extra) return "a kernel's parameters could not be read";
    const char *why = n.params ? read_params(cu, &n, s) : read_block(&n, s);
    if (why) return why;
    s->function = n.function ? n.function : (cu_function)n.kernel; /* a launch takes either */
    memcpy(s->grid, n.grid, sizeof s->grid);
    memcpy(s->block, n.block, sizeof s->block);
    s->shared_bytes = n.shared_bytes;
    return read_attributes(cu, node, s);
}

static const char *read_memset(const cu_driver *cu, void *node, step *s) {
    cu_memset_node n;
    memset(&n, 0, sizeof n);
    if (cu->memset_node(node, &n) != 0) return "a memset could not be read";
    if (n.height != 1 || (n.element != 1 && n.element != 4)) return "a memset is of more than one row";
    if (!room(s, 4 * 8)) return "no memory";
    const uint64_t words[4] = {n.to, n.value, n.element, n.width};
    memcpy(s->words, words, sizeof words);
    return NULL;
}

/* The steps in their order, where they are a chain of kernels and memsets. */
static const char *read_graph(const cu_driver *cu, cu_graph graph, cuda_relaunch *r) {
    void *nodes[STEPS];
    size_t count = 0;
    if (cu->graph_nodes(graph, NULL, &count) != 0 || count == 0) return "nothing was captured";
    if (count > STEPS) return "it launches more than a few kernels";
    if (cu->graph_nodes(graph, nodes, &count) != 0) return "the capture could not be read";
    for (size_t i = 0; i < count; i++) {
        void *before[STEPS] = {NULL};
        cu_edge edges[STEPS] = {{0}};
        size_t found = STEPS;
        int type;
        if (cu->node_dependencies(nodes[i], before, edges, &found) != 0) return "the capture could not be read";
        if (found != (i ? 1 : 0) || (i && before[0] != nodes[i - 1])) return "its launches are no chain";
        if (cu->graph_node_type(nodes[i], &type) != 0) return "the capture could not be read";
        step *s = &r->steps[r->step_count++];
        const char *why = type == KERNEL_NODE   ? read_kernel(cu, nodes[i], s)
                          : type == MEMSET_NODE ? read_memset(cu, nodes[i], s)
                                                : "it does more than launch and fill";
        if (why) return why;
        if (i && edges[0].type == PROGRAMMATIC_EDGE) {
            cu_launch_attribute *a = &s->attributes[s->attribute_count++];
            a->id = CU_LAUNCH_PROGRAMMATIC;
            a->value.programmatic = 1;
        }
    }
    return NULL;
}

static const char *capture(cuda_state *s, cu_stream stream, const uint64_t *pointers, cuda_enqueue *enqueue, void *user,
                           cuda_relaunch **out) {
    cu_graph graph = NULL;
    cuda_relaunch *r = *out = calloc(1, sizeof *r);
    if (!r) return "no memory";
    if (s->cu->capture_begin(stream, CAPTURE_RELAXED) != 0) return "no capture could begin";
    bool called = enqueue(user, pointers, stream) == 0;
    if (s->cu->capture_end(stream, &graph) != 0) return "a capture failed";
    const char *why = called ? read_graph(s->cu, graph, r) : "the library refused a capture";
    if (graph) s->cu->graph_destroy(graph);
    return why;
}

static bool same_shape(const step *a, const step *b) {
    return a->function == b->function && memcmp(a->grid, b->grid, sizeof a->grid) == 0 &&
           memcmp(a->block, b->block, sizeof a->block) == 0 && a->shared_bytes == b->shared_bytes &&
           a->attribute_count == b->attribute_count &&
           memcmp(a->attributes, b->attributes, sizeof a->attributes) == 0 && a->word_count == b->word_count &&
           a->bytes == b->bytes;
}

/* Each word that differs must have moved by what one address moved by. */
static bool find_patches(cuda_relaunch *r, const cuda_relaunch *other, const uint64_t *p, const uint64_t *q) {
    for (uint32_t i = 0; i < r->step_count; i++) {
        const step *a = &r->steps[i], *b = &other->steps[i];
        for (uint32_t w = 0; w < a->word_count; w++) {
            if (a->words[w] == b->words[w]) continue;
            int which = 0;
            while (which < RELAUNCH_POINTERS && (!p[which] || b->words[w] - a->words[w] != q[which] - p[which]))
                which++;
            if (which == RELAUNCH_POINTERS || r->patch_count == PATCHES) return false;
            r->patches[r->patch_count++] = (patch){i, w, which, a->words[w] - p[which]};
        }
    }
    return true;
}

static void apply(cuda_relaunch *r, const uint64_t *pointers) {
    for (size_t i = 0; i < r->patch_count; i++) {
        const patch *t = &r->patches[i];
        r->steps[t->step].words[t->word] = pointers[t->which] + t->addend;
    }
}

static bool foretells(cuda_relaunch *r, const cuda_relaunch *seen, const uint64_t *pointers) {
    apply(r, pointers);
    for (size_t i = 0; i < r->step_count; i++)
        if (memcmp(r->steps[i].words, seen->steps[i].words, r->steps[i].word_count * 8) != 0) return false;
    return true;
}

static const char *compare(cuda_relaunch *const *seen, const uint64_t at[3][RELAUNCH_POINTERS]) {
    for (int i = 1; i < 3; i++) {
        if (seen[i]->step_count != seen[0]->step_count) return "other addresses launch other kernels";
        for (size_t k = 0; k < seen[0]->step_count; k++)
            if (!same_shape(&seen[0]->steps[k], &seen[i]->steps[k])) return "other addresses launch other kernels";
    }
    if (!find_patches(seen[0], seen[1], at[0], at[1])) return "more than the addresses differs";
    return foretells(seen[0], seen[2], at[2]) ? NULL : "another call is not what two calls foretell";
}

cuda_relaunch *cuda_relaunch_learn(cuda_state *s, const uint64_t *pointers, cuda_enqueue *enqueue, void *user,
                                   const char **why) {
    /* Far apart, of no simple ratio, and no more aligned than the library may count on: multiples of 16. */
    static const uint64_t moves[2][RELAUNCH_POINTERS] = {{0x10230110, 0x30450230, 0x50670370, 0x708904d0},
                                                         {0x7a112090, 0x15133150, 0x4a354370, 0x29575190}};
    uint64_t at[3][RELAUNCH_POINTERS];
    cuda_relaunch *seen[3] = {NULL, NULL, NULL};
    cu_stream stream = NULL;
    *why = "the driver is too old to read a graph";
    if (!s->cu->kernel_node) return NULL;
    *why = "no stream to capture on";
    if (s->cu->stream_create(&stream, 1) != 0) return NULL;
    *why = NULL;
    for (int i = 0; i < 3 && !*why; i++) {
        for (int k = 0; k < RELAUNCH_POINTERS; k++)
            at[i][k] = pointers[k] && i > 0 ? pointers[k] + moves[i - 1][k] : pointers[k];
        *why = capture(s, stream, at[i], enqueue, user, &seen[i]);
    }
    s->cu->stream_destroy(stream);
    if (!*why) *why = compare(seen, at);
    cuda_relaunch *learned = *why ? NULL : seen[0];
    for (int i = learned ? 1 : 0; i < 3; i++) cuda_relaunch_free(seen[i]);
    return learned;
}

/* In a graph a memset costs the host 1 us a replay and more, a kernel that does the same next to nothing. */
static bool fill_by_kernel(cuda_state *s, uint64_t to, uint32_t value, uint64_t bytes) {
    if (!s->capture || to % 4 || bytes % 4 || !cuda_has_kernel(s, CUDA_FILL_KERNEL)) return false;
    cuda_launch l = {.name = CUDA_FILL_KERNEL, .grid = {1, 1, 1}, .block = 256, .bytes_written = (int64_t)bytes};
    uint64_t count = bytes / 4;
    ep_error ignored;
    l.grid[0] = (unsigned)(count < 128 * 256 ? (count + 255) / 256 : 128);
    void *params[] = {&to, &value, &count};
    return cuda_run(s, &l, params, &ignored) == EP_OK;
}

static cu_result fill(cuda_state *s, const uint64_t *w) {
    uint32_t value = w[2] == 1 ? (uint32_t)(w[1] & 0xff) * 0x01010101u : (uint32_t)w[1];
    if (w[3] && fill_by_kernel(s, w[0], value, w[3] * w[2])) return 0;
    return w[2] == 1 ? s->cu->memset8(w[0], (unsigned char)w[1], w[3], s->stream)
                     : s->cu->memset32(w[0], value, w[3], s->stream);
}

static cu_result launch(const cuda_state *s, step *t) {
    cu_launch_config c = {{t->grid[0], t->grid[1], t->grid[2]},
                          {t->block[0], t->block[1], t->block[2]},
                          t->shared_bytes,
                          s->stream,
                          t->attributes,
                          t->attribute_count};
    void *extra[] = {EXTRA_POINTER, t->words, EXTRA_SIZE, &t->bytes, EXTRA_END};
    return s->cu->launch(&c, t->function, NULL, extra);
}

cu_result cuda_relaunch_run(cuda_state *s, cuda_relaunch *r, const uint64_t *pointers, const cuda_launch *l) {
    bool told = false;
    apply(r, pointers);
    for (size_t i = 0; i < r->step_count; i++) {
        step *t = &r->steps[i];
        if (t->function && s->capture && !told) { /* the first kernel carries the work */
            cuda_capture_launch(s, l);
            told = true;
        }
        cu_result status = t->function ? launch(s, t) : fill(s, t->words);
        if (status != 0) return status;
    }
    return 0;
}
