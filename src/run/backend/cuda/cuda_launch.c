/* Ahead-of-time kernels by name, and the one place where a kernel is launched: every launch passes the probe here. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/probe.h"
#include "cuda_images.h"
#include "cuda_probe.h"
#include "cuda_state.h"

typedef struct cuda_function_entry {
    const char *name;      /* static: the launch's */
    cu_function function;  /* NULL: this build has no such kernel for this device */
    unsigned shared_bytes; /* dynamic shared memory already allowed */
} cuda_function_entry;

/* The symbol from the first image that loads here and has it. */
static cu_function look_up(cuda_state *s, const char *name) {
    for (size_t i = 0; i < cuda_image_count; i++) {
        if (cuda_images[i].min_major > s->major || (cuda_images[i].only_major && cuda_images[i].only_major != s->major))
            continue;
        if (!s->modules[i] && s->cu->module_load(&s->modules[i], cuda_images[i].data) != 0) {
            s->modules[i] = NULL;
            continue;
        }
        cu_function f;
        if (s->cu->module_function(&f, s->modules[i], name) == 0) return f;
    }
    return NULL;
}

static bool grow(cuda_state *s) {
    size_t next = s->function_slots ? s->function_slots * 2 : 64;
    cuda_function_entry *slots = calloc(next, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < s->function_slots; i++) {
        if (!s->functions[i].name) continue;
        size_t at = (size_t)ep_hash64(s->functions[i].name, strlen(s->functions[i].name), 0) & (next - 1);
        while (slots[at].name) at = (at + 1) & (next - 1);
        slots[at] = s->functions[i];
    }
    free(s->functions);
    s->functions = slots;
    s->function_slots = next;
    return true;
}

static cuda_function_entry *find(cuda_state *s, const char *name) {
    if (s->function_count * 2 >= s->function_slots && !grow(s)) return NULL;
    if (!s->modules && !(s->modules = calloc(cuda_image_count + 1, sizeof *s->modules))) return NULL;
    size_t mask = s->function_slots - 1, at = (size_t)ep_hash64(name, strlen(name), 0) & mask;
    for (; s->functions[at].name; at = (at + 1) & mask)
        if (s->functions[at].name == name || strcmp(s->functions[at].name, name) == 0) return &s->functions[at];
    s->functions[at].name = name;
    s->functions[at].function = look_up(s, name);
    s->function_count++;
    return &s->functions[at];
}

bool cuda_has_kernel(cuda_state *s, const char *name) {
    ep_error e;
    if (cuda_enter(s, &e) != EP_OK) return false;
    cuda_function_entry *f = find(s, name);
    return f && f->function;
}

static ep_status launch_now(cuda_state *s, cu_function function, const cuda_launch *l, void **params, ep_error *err) {
    cu_launch_attribute attributes[2];
    cu_launch_config c = {
        {l->grid[0], l->grid[1], l->grid[2]}, {l->block, 1, 1}, l->shared_bytes, s->stream, attributes, 0};
    if (l->cluster > 1) {
        cu_launch_attribute *a = &attributes[c.attribute_count++];
        memset(a, 0, sizeof *a);
        a->id = CU_LAUNCH_CLUSTER;
        a->value.cluster.x = l->cluster;
        a->value.cluster.y = a->value.cluster.z = 1;
    }
    if (l->programmatic) {
        cu_launch_attribute *a = &attributes[c.attribute_count++];
        memset(a, 0, sizeof *a);
        a->id = CU_LAUNCH_PROGRAMMATIC;
        a->value.programmatic = 1;
    }
    return cuda_result(s, s->cu->launch(&c, function, params, NULL), l->name, err);
}

ep_status cuda_run_function(cuda_state *s, cu_function function, const cuda_launch *l, void **params, ep_error *err) {
    const ep_probe *p = ep_probe_get();
    if (!p) return launch_now(s, function, l, params, err);
    cuda_probe_mark mark;
    cuda_probe_begin(s, p, l->name, &mark);
    ep_status status = launch_now(s, function, l, params, err);
    cuda_probe_end(s, p, l, &mark);
    return status;
}

ep_status cuda_run(cuda_state *s, const cuda_launch *l, void **params, ep_error *err) {
    EP_TRY(cuda_enter(s, err));
    cuda_function_entry *f = find(s, l->name);
    if (!f) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the kernel table");
    if (!f->function)
        return ep_fail(err, EP_ERROR_NOT_BUILT, "kernel %s is not in this build for compute capability %d.%d", l->name,
                       s->major, s->minor);
    if (l->shared_bytes > 48 * 1024 && l->shared_bytes > f->shared_bytes) {
        EP_TRY(cuda_result(s, s->cu->function_attribute(f->function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)l->shared_bytes),
                           l->name, err));
        f->shared_bytes = l->shared_bytes;
    }
    return cuda_run_function(s, f->function, l, params, err);
}

void cuda_launch_close(cuda_state *s) {
    for (size_t i = 0; s->modules && i < cuda_image_count; i++)
        if (s->modules[i]) s->cu->module_unload(s->modules[i]);
    free(s->modules);
    free(s->functions);
}
