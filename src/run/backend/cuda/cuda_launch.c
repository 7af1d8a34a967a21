/* Ahead-of-time kernels by name, and the one place where a kernel is launched: every launch passes the probe here. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/probe.h"
#include "cuda_images.h"
#include "cuda_probe.h"
#include "cuda_state.h"

typedef struct cuda_function_entry {
    const char *name;      /* the driver's, or the launch's, which is static */
    cu_function function;  /* NULL: this build has no such kernel for this device */
    unsigned shared_bytes; /* dynamic shared memory already allowed */
} cuda_function_entry;

/* Where name is or would be. */
static cuda_function_entry *slot_of(const cuda_state *s, const char *name) {
    size_t mask = s->function_slots - 1, at = (size_t)ep_hash64(name, strlen(name), 0) & mask;
    while (s->functions[at].name && strcmp(s->functions[at].name, name) != 0) at = (at + 1) & mask;
    return &s->functions[at];
}

static bool grow(cuda_state *s) {
    size_t next = s->function_slots ? s->function_slots * 2 : 64;
    cuda_function_entry *old = s->functions, *slots = calloc(next, sizeof *slots);
    size_t count = s->function_slots;
    if (!slots) return false;
    s->functions = slots;
    s->function_slots = next;
    for (size_t i = 0; i < count; i++)
        if (old[i].name) *slot_of(s, old[i].name) = old[i];
    free(old);
    return true;
}

/* The earlier image's kernel stays where two have one of the same name. */
static bool add(cuda_state *s, const char *name, cu_function function) {
    if (s->function_count * 2 >= s->function_slots && !grow(s)) return false;
    cuda_function_entry *e = slot_of(s, name);
    if (e->name) {
        if (!e->function) e->function = function;
        return true;
    }
    *e = (cuda_function_entry){.name = name, .function = function};
    s->function_count++;
    return true;
}

/* Drivers that can list what a module holds are asked, since looking up what is not there is an error to their tools. */
static bool list_image(cuda_state *s, cu_module module) {
    unsigned count = 0;
    if (!s->cu->module_count || s->cu->module_count(&count, module) != 0) return false;
    cu_function *all = malloc((count + 1) * sizeof *all);
    bool ok = all && s->cu->module_list(all, count, module) == 0;
    for (unsigned i = 0; i < count && ok; i++) {
        const char *name = NULL;
        ok = s->cu->function_name(&name, all[i]) == 0 && name && add(s, name, all[i]);
    }
    free(all);
    return ok;
}

/* Loads the images one after the other until one has the kernel. */
static cu_function look_up(cuda_state *s, const char *name) {
    for (size_t i = 0; i < cuda_image_count; i++) {
        if (cuda_images[i].min_major > s->major || (cuda_images[i].only_major && cuda_images[i].only_major != s->major))
            continue;
        bool fresh = !s->modules[i];
        if (fresh && s->cu->module_load(&s->modules[i], cuda_images[i].data) != 0) {
            s->modules[i] = NULL;
            continue;
        }
        cu_function f;
        if (fresh) s->listed[i] = list_image(s, s->modules[i]);
        if (s->listed[i]) {
            const cuda_function_entry *e = slot_of(s, name);
            if (e->name && e->function) return e->function;
        } else if (s->cu->module_function(&f, s->modules[i], name) == 0) {
            return f;
        }
    }
    return NULL;
}

static bool open_table(cuda_state *s) {
    if (s->modules) return true;
    s->modules = calloc(cuda_image_count + 1, sizeof *s->modules);
    s->listed = calloc(cuda_image_count + 1, sizeof *s->listed);
    return s->modules && s->listed && grow(s);
}

/* `name` is static, as a name that is not found stays in the table. */
static cuda_function_entry *find(cuda_state *s, const char *name) {
    if (!open_table(s)) return NULL;
    cuda_function_entry *e = slot_of(s, name);
    if (e->name) return e;
    if (!add(s, name, look_up(s, name))) return NULL;
    return slot_of(s, name);
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
    if (s->capture) {
        cuda_capture_launch(s, l);
        return launch_now(s, function, l, params, err);
    }
    const ep_probe *p = ep_probe_get();
    if (!p) return launch_now(s, function, l, params, err);
    cuda_probe_mark mark;
    cuda_probe_begin(s, p, "cuLaunchKernelEx", &mark); /* the call, as CUPTI and Kineto name it */
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
    free(s->listed);
    free(s->functions);
}
