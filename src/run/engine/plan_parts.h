/* The inside of a plan: what its builder (plan_build.c) writes and its runner (plan.c) reads. */
#ifndef EP_RUN_PLAN_PARTS_H
#define EP_RUN_PLAN_PARTS_H

#include "base/arena.h"
#include "plan.h"
#include "replay.h"

typedef enum ep_step_kind {
    STEP_GEMM,
    STEP_KERNEL,
    STEP_POINTWISE,
    STEP_COPY,
    STEP_REDUCE,
    STEP_NORM,
    STEP_HOOKED,
    STEP_PACKED
} ep_step_kind;

/* Views of STEP_POINTWISE and the like own nothing; their data is patched. */
typedef struct ep_step {
    ep_step_kind kind;
    int32_t unit; /* whose time it counts to, or -1 */
    ep_op op;
    int count;
    ep_tensor *views;     /* inputs, then the output */
    const ep_tensor **in; /* the inputs' addresses */
    const ep_attr *attr;
    ep_gemm *gemm;
    const ep_plan_kernel *kernel;
    ep_hooked *hooked;
    ep_tuned_call *call;   /* of STEP_PACKED */
    int64_t *words, items; /* argument block */
    size_t word_count;
} ep_step;

/* Where an address goes before a launch: *at = base[slot] + offset. */
typedef struct ep_patch {
    void *at;
    int32_t slot;
    int64_t offset; /* bytes */
} ep_patch;

/* An output: a value with memory of its own, or a way to look at an input, a constant or another output. */
typedef struct ep_plan_output {
    ep_value value; /* shape, strides; offset in elements */
    int32_t slot;   /* whose memory */
    int32_t owner;  /* output that allocates it, or -1: an input or constant */
    const ep_tensor *constant;
    int32_t input;
    bool plain; /* the whole of a fresh result */
    ep_shape root;
} ep_plan_output;

struct ep_plan {
    ep_arena arena;
    ep_step *steps;
    size_t step_count, step_cap;
    ep_patch *patches;
    size_t patch_count, patch_cap;
    ep_plan_output *outputs;
    int output_count, input_count, slot_count;
    ep_plan_kernel *kernels;
    size_t kernel_count;
    int64_t workspace;
    bool interpret, simple; /* simple: one output, all of a fresh result, launches one by one */
    size_t simple_bytes;
    ep_replay *replay; /* NULL where the backend has none */
};

/* Slots: the workspace, the inputs, the outputs. Constants are addresses already. */
enum { SLOT_WORKSPACE = 0, SLOT_INPUTS = 1 };

#endif
