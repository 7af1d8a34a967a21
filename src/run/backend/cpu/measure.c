/* Measures this processor's ceilings: the best of several short rounds, at one thread and at all. */
#include "run/backend/cpu/measure.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/isa.h"
#include "base/parallel.h"

enum { PIECE = 4096, ROUNDS = 6 };
#define HUGE_PAGE ((size_t)2 << 20)

static const ep_measure_loops *const by_isa[EP_ISA_COUNT] = {
    &ep_measure_portable,
#if defined(__x86_64__)
    &ep_measure_avx2,     &ep_measure_avx512, &ep_measure_avx512bf16, &ep_measure_amxbf16,
#endif
};

/* The loop of the highest instruction set in force that has it. */
static ep_measure_loops loops_here(void) {
    ep_measure_loops l = {0};
    int isa = (int)ep_cpu_get()->isa;
    if (isa == EP_ISA_AMX_BF16 && !ep_isa_request_amx()) isa--;
    for (; isa >= 0; isa--) {
        const ep_measure_loops *m = by_isa[isa];
        if (!m) continue;
        if (!l.fma) l.fma = m->fma;
        if (!l.bf16) l.bf16 = m->bf16;
        if (!l.read) l.read = m->read;
        if (!l.copy) l.copy = m->copy;
    }
    return l;
}

typedef enum task_kind { TASK_FLOPS, TASK_READ, TASK_COPY, TASK_NOTHING } task_kind;

typedef struct task {
    task_kind kind;
    double (*flops)(int64_t rounds);
    const ep_measure_loops *loops;
    int64_t rounds; /* flops: of the loop; memory: passes over the share */
    char *data, *to;
    size_t bytes;
    _Atomic double work;      /* flops or bytes done by all threads */
    _Atomic uint64_t checked; /* keeps the reads alive */
} task;

static void add(task *t, double work) {
    double w = t->work;
    while (!atomic_compare_exchange_weak(&t->work, &w, w + work)) {
    }
}

static void run(void *user, int thread, int threads) {
    task *t = user;
    if (t->kind == TASK_NOTHING) return;
    if (t->kind == TASK_FLOPS) {
        add(t, t->flops(t->rounds));
        return;
    }
    size_t pieces = t->bytes / PIECE, from = pieces * (size_t)thread / (size_t)threads * PIECE;
    size_t bytes = pieces * (size_t)(thread + 1) / (size_t)threads * PIECE - from;
    uint64_t seen = 0;
    for (int64_t r = 0; r < t->rounds; r++) {
        if (t->kind == TASK_READ)
            seen ^= t->loops->read(t->data + from, bytes);
        else
            t->loops->copy(t->to + from, t->data + from, bytes);
    }
    t->checked ^= seen;
    add(t, (double)bytes * (double)t->rounds * (t->kind == TASK_COPY ? 2 : 1));
}

/* Turns of the loop that one thread's share takes about `target` ns for. The least of a few counts, without the others: a
 * first round that had to wait for a busy core would otherwise pass for a long one, and every rate would be next to none. */
static void set_length(task *t, int threads, double target) {
    enum { TRIES = 3 };
    t->rounds = 1;
    for (;;) {
        double least = 1e18;
        for (int i = 0; i < TRIES; i++) {
            int64_t from = ep_clock_ns();
            run(t, 0, threads);
            double ns = (double)(ep_clock_ns() - from);
            if (ns < least) least = ns;
        }
        double grow = least > 0 ? target / least : 16;
        if (grow < 1.5 || t->rounds >= (int64_t)1 << 40) return;
        t->rounds = (int64_t)((double)t->rounds * (grow > 16 ? 16 : grow)) + 1;
    }
}

/* Work a nanosecond, the best of a few rounds of about `target` ns each; what others take from us only lowers it. */
static double best_rate(task *t, int threads, double target) {
    double best = 0;
    set_length(t, threads, target);
    for (int i = 0; i < ROUNDS; i++) {
        t->work = 0;
        int64_t from = ep_clock_ns();
        ep_parallel(threads, run, t);
        double ns = (double)(ep_clock_ns() - from);
        if (ns > 0 && t->work / ns > best) best = t->work / ns;
    }
    return best;
}

static void measure_flops(const ep_measure_loops *l, int threads, int at, ep_machine *m) {
    task t = {.kind = TASK_FLOPS, .flops = l->fma};
    double f32 = best_rate(&t, threads, 2e7), bf16 = f32;
    if (l->bf16) {
        t.flops = l->bf16;
        bf16 = best_rate(&t, threads, 2e7);
    }
    m->vector_gflops[at] = m->gflops[EP_DTYPE_F32][at] = m->gflops[EP_DTYPE_F16][at] = f32;
    m->gflops[EP_DTYPE_BF16][at] = bf16;
}

typedef struct sizes {
    size_t l2, l3, memory; /* bytes read at each level by all threads */
} sizes;

static size_t whole(size_t bytes) {
    return bytes / PIECE * PIECE;
}

/* Memory is measured on a buffer the caches cannot hold, as far as the machine has room for two of them. */
static sizes pick_sizes(int threads) {
    const ep_cpu *cpu = ep_cpu_get();
    size_t l2 = (size_t)cpu->l2, l3 = (size_t)cpu->l3, n = (size_t)threads;
    size_t room = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 16;
    size_t memory = l3 * 2 > ((size_t)64 << 20) ? l3 * 2 : (size_t)64 << 20;
    if (memory > room) memory = room;
    size_t third = l2 * 8 * n < l3 / 2 ? l2 * 8 * n : l3 / 2;
    return (sizes){whole(l2 / 2 * n), whole(third), whole(memory)};
}

static void measure_memory(const ep_measure_loops *l, char *from, char *to, int threads, int at, ep_machine *m) {
    sizes s = pick_sizes(threads);
    task t = {.kind = TASK_READ, .loops = l, .data = from, .to = to, .bytes = s.memory};
    m->read_gbs[at] = best_rate(&t, threads, 1e7);
    t.kind = TASK_COPY;
    m->copy_gbs[at] = best_rate(&t, threads, 1e7);
    t.kind = TASK_READ;
    t.bytes = s.l2;
    m->cache_gbs[0][at] = best_rate(&t, threads, 1e7);
    t.bytes = s.l3;
    m->cache_gbs[1][at] = best_rate(&t, threads, 1e7);
}

static double fork_join_us(int threads) {
    task t = {.kind = TASK_NOTHING};
    double best = 1e9;
    enum { FORKS = 50 };
    for (int r = 0; r < ROUNDS * 4; r++) {
        int64_t from = ep_clock_ns();
        for (int i = 0; i < FORKS; i++) ep_parallel(threads, run, &t);
        double us = (double)(ep_clock_ns() - from) * 1e-3 / FORKS;
        if (us < best) best = us;
    }
    return best;
}

ep_status ep_cpu_measure(int threads, ep_error *err, ep_machine *out) {
    const ep_cpu *cpu = ep_cpu_get();
    if (threads <= 0) threads = cpu->cores;
    ep_measure_loops loops = loops_here();
    ep_machine m = {.measured = true, .cores = threads, .cache_bytes = {cpu->l1, cpu->l2, cpu->l3}};
    snprintf(m.name, sizeof m.name, "%.70s, %d core%s", cpu->model, threads, threads == 1 ? "" : "s");
    time_t now = time(NULL);
    struct tm day;
    gmtime_r(&now, &day);
    strftime(m.source, sizeof m.source, "measured %Y-%m-%d", &day);
    size_t bytes = pick_sizes(threads).memory;
    char *from = ep_malloc_aligned(bytes + HUGE_PAGE, HUGE_PAGE), *to = ep_malloc_aligned(bytes + HUGE_PAGE, HUGE_PAGE);
    if (from && to) {
        memset(from, 1, bytes + HUGE_PAGE);
        memset(to, 0, bytes);
        for (int at = 0; at < 2; at++) {
            int n = at ? threads : 1;
            measure_flops(&loops, n, at, &m);
            measure_memory(&loops, from, to, n, at, &m);
        }
        m.fork_join_us = threads > 1 ? fork_join_us(threads) : 0;
    }
    free(from);
    free(to);
    if (!from || !to) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for two buffers of %zu bytes", bytes);
    *out = m;
    return EP_OK;
}
