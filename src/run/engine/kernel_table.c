/* One worker thread a compiled function: emits the source, asks the disk cache, calls the compiler, loads, publishes. */
#define _GNU_SOURCE
#include "kernel_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/probe.h"
#include "run/codegen/emit_c.h"

enum {
    SMALL = 2048, /* elements: below this a kernel that runs row by row is fast enough */
    ASIDE = 5     /* niceness of what nobody waits for, above the calls' */
};

ep_status ep_kernels_open(ep_context *ctx, const ep_compile_options *o, bool interpret, ep_kernel_table *t) {
    memset(t, 0, sizeof *t);
    t->ctx = ctx;
    t->backend = ctx->backend;
    bool cuda = ctx->device.kind == EP_DEVICE_CUDA;
    t->dialect = cuda ? &ep_dialect_cuda : &ep_dialect_cpu;
    t->toolchain = cuda ? &ep_toolchain_nvrtc : &ep_toolchain_cc;
    snprintf(t->arch, sizeof t->arch, "%s", ctx->backend.arch);
    t->isa = ep_cpu_get()->isa;
    t->limit_s = o->compiler_limit_s;
    t->aside = o->wait != EP_WAIT_ALWAYS;
    t->interpret = interpret;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    if (o->no_disk_cache || interpret) return EP_OK;
    return ep_cache_open(o->cache_dir, 0, &ctx->err, &t->cache);
}

static void free_job(ep_kernel_job *j) {
    free(j->kernels);
    free(j);
}

static void *work(void *user);

/* Under the lock. */
static bool start_worker(ep_kernel_table *t) {
    if (!t->started) t->started = pthread_create(&t->worker, NULL, work, t) == 0;
    t->process = getpid();
    return t->started;
}

void ep_kernels_after_fork(ep_kernel_table *t) {
    if (!t->started || t->process == getpid()) return;
    pthread_mutex_init(&t->lock, NULL); /* as the worker left them they are of no use */
    pthread_cond_init(&t->changed, NULL);
    t->started = false;
    if (t->first) start_worker(t);
}

void ep_kernels_close(ep_kernel_table *t) {
    ep_kernels_after_fork(t);
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (t->started) pthread_join(t->worker, NULL);
    while (t->first) {
        ep_kernel_job *next = t->first->next;
        free_job(t->first);
        t->first = next;
    }
    for (size_t i = 0; i < t->module_count; i++) t->ctx->ops.module_free(&t->backend, t->modules[i]);
    for (size_t i = 0; i < t->count; i++) {
        free(t->all[i]->source);
        free(t->all[i]);
    }
    free(t->all);
    free(t->modules);
    ep_cache_close(t->cache);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
}

static bool same_code(const ep_loop *a, const ep_loop *b) {
    if (a->stmt_count != b->stmt_count || a->operand_count != b->operand_count || a->outer != b->outer ||
        a->reduces != b->reduces || a->fixed != b->fixed || a->rounding != b->rounding)
        return false;
    for (int i = 0; i < a->stmt_count; i++) {
        const ep_stmt *x = &a->stmts[i], *y = &b->stmts[i];
        if (x->kind != y->kind || x->op != y->op || x->dtype != y->dtype || memcmp(x->in, y->in, sizeof x->in) ||
            x->operand != y->operand || x->number != y->number || x->row != y->row || x->phase != y->phase)
            return false;
    }
    for (int k = 0; k < a->operand_count; k++) {
        const ep_loop_operand *x = &a->operands[k], *y = &b->operands[k];
        if (x->dtype != y->dtype || x->walk != y->walk || x->output != y->output) return false;
        if (a->fixed && memcmp(x->strides, y->strides, sizeof x->strides)) return false;
    }
    return !a->fixed || !memcmp(a->sizes, b->sizes, sizeof a->sizes);
}

static int64_t elements(const ep_loop *l) {
    int64_t n = 1;
    for (int i = 0; i <= l->outer; i++) n *= l->sizes[i];
    return n;
}

ep_kernel *ep_kernels_find(ep_kernel_table *t, ep_loop *l) {
    uint64_t h = ep_loop_hash(l);
    for (size_t i = 0; i < t->count; i++)
        if (t->all[i]->hash == h && same_code(&t->all[i]->loop, l)) return t->all[i];
    if (l->fixed) return NULL;
    ep_loop *tried = malloc(sizeof *tried);
    ep_kernel *found = NULL;
    for (size_t i = 0; tried && !found && i < t->count; i++) {
        ep_kernel *k = t->all[i];
        if (k->loop.stmt_count != l->stmt_count || k->loop.operand_count != l->operand_count) continue;
        *tried = *l;
        ep_loop_pad(tried, k->loop.outer);
        if (same_code(&k->loop, tried)) found = k;
        if (found || elements(l) > SMALL) continue;
        *tried = *l;
        if (!ep_loop_unroll_rows(tried)) continue;
        ep_loop_pad(tried, k->loop.outer);
        if (same_code(&k->loop, tried)) found = k;
    }
    if (found) *l = *tried;
    free(tried);
    return found;
}

/* Kernels that came from different graphs may share a name; a number tells them apart. */
static void unique_name(const ep_kernel_table *t, ep_loop *l) {
    char stem[sizeof l->name], *cut = strrchr(l->name, '_');
    if (!cut) return;
    int same = 1;
    snprintf(stem, sizeof stem, "%s", l->name);
    for (size_t i = 0; i < t->count; i++) {
        if (strcmp(t->all[i]->loop.name, l->name)) continue;
        snprintf(l->name, sizeof l->name, "%.*s_v%d%s", (int)(cut - l->name), stem, ++same, stem + (cut - l->name));
        i = (size_t)-1; /* look again from the start */
    }
}

ep_kernel *ep_kernels_add(ep_kernel_table *t, const ep_loop *l) {
    ep_kernel *k = calloc(1, sizeof *k);
    if (!k || !ep_grow(&t->all, &t->cap, t->count + 1, sizeof *t->all)) {
        free(k);
        return NULL;
    }
    k->loop = *l;
    k->hash = ep_loop_hash(l);
    unique_name(t, &k->loop);
    atomic_init(&k->state, t->interpret ? EP_KERNEL_READY : EP_KERNEL_PENDING);
    t->all[t->count++] = k;
    return k;
}

/* A span of the worker's on the recording, if there is one. */
static const ep_probe *begin(const char *name, const char *detail) {
    const ep_probe *p = ep_probe_get();
    ep_probe_span span = {.kind = EP_PROBE_COMPILE, .name = name, .detail = detail};
    if (p) p->begin(p->self, &span);
    return p;
}

static void end(const ep_probe *p) {
    if (p) p->end(p->self);
}

static ep_status image_of(ep_kernel_table *t, ep_text *source, ep_error *err, void **image, size_t *size, bool *disk) {
    ep_build b = {source->data, source->len, t->isa, t->arch, t->limit_s, NULL};
    ep_hasher h;
    ep_hasher_begin(&h);
    EP_TRY(t->toolchain->identity(&b, err, &h));
    ep_hasher_add(&h, source->data, source->len);
    ep_hash128 key = ep_hasher_end(&h);
    const ep_probe *p = begin("cache load", NULL);
    *disk = t->cache && ep_cache_load(t->cache, key, NULL, image, size, NULL) == EP_OK;
    end(p);
    if (*disk) return EP_OK;
    p = begin("C compiler", NULL);
    ep_status s = t->toolchain->build(&b, err, image, size);
    end(p);
    if (s == EP_OK && t->cache) ep_cache_store(t->cache, key, *image, *size, source->data, source->len, NULL);
    return s;
}

static ep_status publish(ep_kernel_table *t, ep_kernel *const *kernels, size_t count, const void *image, size_t size,
                         bool disk, ep_error *err) {
    void *module;
    const ep_probe *p = begin("load", NULL);
    ep_status s = t->ctx->ops.module_load(&t->backend, NULL, image, size, err, &module);
    end(p);
    EP_TRY(s);
    pthread_mutex_lock(&t->lock);
    bool room = ep_grow(&t->modules, &t->module_cap, t->module_count + 1, sizeof *t->modules);
    if (room) t->modules[t->module_count++] = module;
    pthread_mutex_unlock(&t->lock);
    if (!room) {
        t->ctx->ops.module_free(&t->backend, module);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the table of modules");
    }
    for (size_t i = 0; i < count; i++) {
        s = t->ctx->ops.module_symbol(&t->backend, module, kernels[i]->loop.name, err, &kernels[i]->function);
        if (s != EP_OK) return s;
    }
    pthread_mutex_lock(&t->lock);
    *(disk ? &t->from_disk : &t->generated) += (int64_t)count;
    pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < count; i++) {
        kernels[i]->from_disk = disk;
        atomic_store_explicit(&kernels[i]->state, EP_KERNEL_READY, memory_order_release);
    }
    return EP_OK;
}

static ep_status build(ep_kernel_table *t, ep_kernel *const *kernels, size_t count, ep_error *err) {
    ep_text source = {0};
    void *image = NULL;
    size_t size = 0;
    bool disk;
    const ep_probe *p = begin("generate", NULL);
    ep_text_printf(&source, "/* Generated by Epilogue %s: %zu kernel%s for %s. */\n", ep_version(), count,
                   count == 1 ? "" : "s", t->arch[0] ? t->arch : ep_isa_name(t->isa));
    ep_emit_preamble(t->dialect, t->isa, &source);
    for (size_t i = 0; i < count; i++) {
        size_t from = source.len;
        ep_emit_kernel(t->dialect, t->isa, &kernels[i]->loop, &source);
        if (!kernels[i]->source && !source.failed) kernels[i]->source = strdup(source.data + from);
    }
    end(p);
    ep_status s = source.failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a kernel's source")
                                : image_of(t, &source, err, &image, &size, &disk);
    if (s == EP_OK) s = publish(t, kernels, count, image, size, disk, err);
    free(image);
    ep_text_free(&source);
    return s;
}

/* One kernel that does not build must not take its neighbours along. */
static void run_job(ep_kernel_table *t, ep_kernel_job *j) {
    ep_error err = {0};
    const ep_probe *p = begin("compile", j->why);
    ep_status s = build(t, j->kernels, j->count, &err);
    for (size_t i = 0; s != EP_OK && i < j->count; i++) {
        if (j->count > 1) s = build(t, &j->kernels[i], 1, &err);
        if (s != EP_OK || j->count == 1) {
            j->kernels[i]->err = err;
            atomic_store_explicit(&j->kernels[i]->state, EP_KERNEL_FAILED, memory_order_release);
            pthread_mutex_lock(&t->lock);
            t->failures++;
            pthread_mutex_unlock(&t->lock);
        }
        if (i + 1 < j->count) s = EP_ERROR_COMPILER; /* go on with the next */
    }
    end(p);
}

/* The compiler is this thread's child and inherits this. Where calls keep all cores busy it gets a fourth of one, and
 * the calls most of it: seen, 1.15 times their usual time in place of 1.35, for as long as the code takes. */
static void step_aside(void) {
    id_t self = (id_t)syscall(SYS_gettid);
    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + ASIDE);
}

static void *work(void *user) {
    ep_kernel_table *t = user;
    if (t->aside) step_aside();
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->first && !t->stopping) pthread_cond_wait(&t->changed, &t->lock);
        if (t->stopping) break;
        ep_kernel_job *j = t->first; /* which stays there: the child of a fork begins it anew */
        pthread_mutex_unlock(&t->lock);
        if (j->work)
            j->work(j->user);
        else
            run_job(t, j);
        bool kernels = !j->work;
        pthread_mutex_lock(&t->lock);
        t->first = j->next;
        if (!t->first) t->last = NULL;
        free_job(j);
        if (kernels && !t->ready_first_ns) t->ready_first_ns = ep_clock_ns();
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Takes the job. */
static ep_status send(ep_kernel_table *t, ep_kernel_job *j) {
    ep_kernels_after_fork(t);
    pthread_mutex_lock(&t->lock);
    bool ok = start_worker(t);
    if (ok) {
        *(t->last ? &t->last->next : &t->first) = j;
        t->last = j;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    if (ok) return EP_OK;
    free_job(j);
    return ep_fail(&t->ctx->err, EP_ERROR_OUT_OF_MEMORY, "the compile thread could not be started");
}

ep_status ep_kernels_build(ep_kernel_table *t, ep_kernel *const *kernels, size_t count, const char *why) {
    ep_kernel_job *j = calloc(1, sizeof *j);
    if (j) j->kernels = malloc(sizeof *kernels * (count ? count : 1));
    if (!j || !j->kernels) {
        free(j);
        return ep_fail(&t->ctx->err, EP_ERROR_OUT_OF_MEMORY, "a compile job could not be allocated");
    }
    memcpy(j->kernels, kernels, sizeof *kernels * count);
    j->count = count;
    snprintf(j->why, sizeof j->why, "%s", why);
    return send(t, j);
}

ep_status ep_kernels_do(ep_kernel_table *t, void (*work_fn)(void *user), void *user) {
    ep_kernel_job *j = calloc(1, sizeof *j);
    if (!j) return ep_fail(&t->ctx->err, EP_ERROR_OUT_OF_MEMORY, "a job could not be allocated");
    j->work = work_fn;
    j->user = user;
    return send(t, j);
}

void ep_kernels_wait(ep_kernel_table *t) {
    ep_kernels_after_fork(t);
    pthread_mutex_lock(&t->lock);
    while (t->first && t->started) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}
