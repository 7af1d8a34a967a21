/* Launches captured into a CUDA graph and replayed by one call. What was allocated while capturing is kept, since every
 * replay uses it; a recording gets each node's work and the op it was captured in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/probe.h"
#include "cuda_probe.h"
#include "cuda_state.h"
#include "cupti.h"

enum { CAPTURE_RELAXED = 2 }; /* allocations by the driver are allowed meanwhile */

typedef struct cuda_capture {
    cu_graph_exec exec;
    ep_storage **held;
    size_t held_count, held_cap;
    cupti_node *nodes; /* in launch order */
    size_t node_count, node_cap;
    const char *op;
    bool failed; /* memory ran out on the way */
} cuda_capture;

static void release(cuda_state *s, cuda_capture *c) {
    if (c->exec) s->cu->graph_exec_destroy(c->exec);
    for (size_t i = 0; i < c->held_count; i++) ep_storage_release(c->held[i]);
    free(c->held);
    free(c->nodes);
    free(c);
}

ep_status cuda_capture_begin(ep_backend *b, ep_error *err) {
    cuda_state *s = cuda_of(b);
    EP_TRY(cuda_enter(s, err));
    if (s->capture) return ep_fail(err, EP_ERROR_STATE, "this device's stream is being captured already");
    cuda_capture *c = calloc(1, sizeof *c);
    if (!c) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a capture");
    ep_status status = cuda_result(s, s->cu->capture_begin(s->stream, CAPTURE_RELAXED), "cuStreamBeginCapture", err);
    if (status != EP_OK) {
        free(c);
        return status;
    }
    s->capture = c;
    return EP_OK;
}

void cuda_capture_op(ep_backend *b, const char *op) {
    cuda_state *s = cuda_of(b);
    if (s->capture) s->capture->op = op;
}

void cuda_capture_hold(cuda_state *s, ep_storage *storage) {
    cuda_capture *c = s->capture;
    if (!ep_grow(&c->held, &c->held_cap, c->held_count + 1, sizeof *c->held)) {
        c->failed = true;
        return;
    }
    ep_storage_retain(storage);
    c->held[c->held_count++] = storage;
}

/* Kernels captured so far. */
static size_t kernel_nodes(const cuda_state *s) {
    enum { KERNEL_NODE = 0, CAPTURING = 1 };
    int status = 0;
    cu_graph graph = NULL;
    size_t count = 0, kernels = 0;
    if (s->cu->capture_info(s->stream, &status, NULL, &graph, NULL, NULL) != 0 || status != CAPTURING) return 0;
    if (s->cu->graph_nodes(graph, NULL, &count) != 0 || !count) return 0;
    void **nodes = malloc(count * sizeof *nodes);
    if (nodes && s->cu->graph_nodes(graph, nodes, &count) == 0)
        for (size_t i = 0; i < count; i++) {
            int type;
            kernels += s->cu->graph_node_type(nodes[i], &type) == 0 && type == KERNEL_NODE;
        }
    free(nodes);
    return kernels;
}

void cuda_capture_launch(cuda_state *s, const cuda_launch *l) {
    cuda_capture *c = s->capture;
    if (!ep_grow(&c->nodes, &c->node_cap, c->node_count + 1, sizeof *c->nodes)) {
        c->failed = true;
        return;
    }
    cupti_node *n = &c->nodes[c->node_count++];
    *n = (cupti_node){"", l->flops, l->bytes_read, l->bytes_written, kernel_nodes(s)};
    if (c->op) snprintf(n->op, sizeof n->op, "%s", c->op);
}

ep_status cuda_capture_end(ep_backend *b, ep_error *err, void **out) {
    cuda_state *s = cuda_of(b);
    cuda_capture *c = s->capture;
    cu_graph graph = NULL;
    if (!c) return ep_fail(err, EP_ERROR_STATE, "no capture was begun");
    s->capture = NULL;
    ep_status status = cuda_result(s, s->cu->capture_end(s->stream, &graph), "cuStreamEndCapture", err);
    if (status == EP_OK && c->failed) status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a capture");
    if (status == EP_OK && out)
        status = cuda_result(s, s->cu->graph_instantiate(&c->exec, graph, 0), "cuGraphInstantiate", err);
    if (graph) s->cu->graph_destroy(graph);
    if (status == EP_OK && out)
        *out = c;
    else
        release(s, c);
    return status;
}

ep_status cuda_replay(ep_backend *b, void *capture, ep_error *err) {
    cuda_state *s = cuda_of(b);
    const cuda_capture *c = capture;
    EP_TRY(cuda_enter(s, err));
    const ep_probe *p = ep_probe_get();
    if (!p) return cuda_result(s, s->cu->graph_launch(c->exec, s->stream), "cuGraphLaunch", err);
    if (!cupti_start(err)) return EP_ERROR_UNSUPPORTED; /* events cannot tell the kernels of a replay apart */
    uint64_t correlation = ep_probe_correlation();
    ep_probe_span span = {.kind = EP_PROBE_LAUNCH, .name = "cuGraphLaunch", .correlation = correlation};
    p->begin(p->self, &span);
    cupti_push(correlation);
    ep_status status = cuda_result(s, s->cu->graph_launch(c->exec, s->stream), "cuGraphLaunch", err);
    cupti_pop();
    cupti_replayed(correlation, c->nodes, c->node_count);
    p->end(p->self);
    return status;
}

void cuda_capture_free(ep_backend *b, void *capture) {
    cuda_state *s = cuda_of(b);
    ep_error err;
    if (capture && cuda_enter(s, &err) == EP_OK) release(s, capture);
}
