/* The GPU's gated kernels and the host's cost of a forward, through the public API. Calls are enqueued back to back and
 * waited for once, so device times hold where a kernel takes longer than its launch (4 us or so). The host time is that
 * of enqueueing alone: "host_us" the least of bursts of 20 on an empty queue, which long kernels may fill; "short_us" the
 * median of bursts of 4, which they cannot. Prints one JSON line a measurement.
 *     bench_gpu            all of it, about 40 s
 *     bench_gpu blocks     blocks of little memory only, about 10 s
 *     bench_gpu ways       tuned blocks timed by events as bench/peers/gpu_fused_peers.py times its own: after a rest as PyTorch's
 *                          script does (seven bursts of 10, of 50 where they are short), 20 in a row, bursts of 3 ms after 0.2 s
 *                          of rest, and 0.3 s after 0.15 s of the same
 *     bench_gpu turns KIND M,DIM,HIDDEN ...   the three modes by turns, each after 0.1 s of rest (bursts of 3 ms, and 30 ms in a row)
 *     bench_gpu [ways] [linear|mlp|geglu] M,DIM,HIDDEN ...   these blocks alone; linear: from DIM to HIDDEN */
#include "bench_gpu.h"

#include <string.h>

#include "run/backend/cuda/cuda_state.h"
#include "run/engine/context.h"

static bool in_ways, in_turns;

/* Runs `call` in bursts; *device_us is the time of a burst over its calls, *host_us that of enqueueing it. */
static void measure(void (*call)(void *user), void *user, int burst, double *device_us, double *host_us) {
    for (int i = 0; i < 3; i++) call(user);
    bursts b = measure_bursts(call, user, 15, burst);
    *device_us = b.device_median;
    *host_us = b.host_least;
}

/* Median host time of a call where the queue never fills: few calls, then a wait. */
static double short_bursts(void (*call)(void *user), void *user) {
    return measure_bursts(call, user, 41, 4).host_median;
}

static void rest(double seconds) {
    check(ep_context_sync(ctx), "sync");
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
        NULL);
}

/* `count` bursts of `calls` calls one behind the other, an event between: the median burst, in us a call. */
static double by_events(void (*call)(void *user), void *user, int count, int calls) {
    enum { MOST = 16 };
    cuda_state *s = ctx->backend.state;
    cu_event at[MOST + 1];
    double us[MOST];
    if (count > MOST) count = MOST;
    for (int i = 0; i <= count; i++)
        if (s->cu->event_create(&at[i], 0) != 0) exit(1);
    s->cu->event_record(at[0], s->stream);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < calls; k++) call(user);
        s->cu->event_record(at[i + 1], s->stream);
    }
    check(ep_context_sync(ctx), "sync");
    for (int i = 0; i < count; i++) {
        float ms = 0;
        s->cu->event_elapsed(&ms, at[i], at[i + 1]);
        us[i] = (double)ms * 1e3 / calls;
    }
    for (int i = 0; i <= count; i++) s->cu->event_destroy(at[i]);
    qsort(us, (size_t)count, sizeof *us, by_value);
    return us[count / 2];
}

static double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)(t.tv_sec % 86400) + (double)t.tv_nsec * 1e-9;
}

static void ways(void (*call)(void *user), void *user, int64_t m, int64_t dim, int64_t hidden) {
    int some = m * dim * hidden > (int64_t)1 << 36 ? 10 : 50;
    for (int i = 0; i < 40; i++) call(user);
    rest(1);
    for (int i = 0; i < 3 + some; i++) call(user);
    double script = by_events(call, user, 7, some), row = by_events(call, user, 15, 20), rested[5];
    int burst = row < 3000 ? (int)(3000 / row) : 1;
    for (int i = 0; i < 5; i++) {
        rest(0.2);
        rested[i] = by_events(call, user, 1, burst);
    }
    qsort(rested, 5, sizeof *rested, by_value);
    by_events(call, user, 1, (int)(150e3 / row));
    double from = clock_seconds(), longer = by_events(call, user, 1, (int)(300e3 / row));
    printf(
        "{\"what\": \"geglu, ways\", \"m\": %lld, \"dim\": %lld, \"hidden\": %lld, \"script_us\": %.2f, \"us\": %.2f, "
        "\"rested_us\": %.2f, \"long_us\": %.2f, \"long_from\": %.2f, \"long_to\": %.2f}\n",
        (long long)m, (long long)dim, (long long)hidden, script, row, rested[2], longer, from, clock_seconds());
    fflush(stdout);
}

typedef struct operands {
    ep_tensor *g, *u, *dy;
    ep_block *block;
    ep_mode mode;
} operands;

static void forward(void *user) {
    operands *o = user;
    ep_tensor *y;
    check(ep_gated(ctx, EP_ACT_GELU_TANH, o->g, o->u, &y), "gated");
    ep_tensor_destroy(y);
}

static void backward(void *user) {
    operands *o = user;
    ep_tensor *a, *b;
    check(ep_gated_backward(ctx, EP_ACT_GELU_TANH, o->dy, o->g, o->u, &a, &b), "gated backward");
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

static void run_block(void *user) {
    operands *o = user;
    ep_tensor *y;
    check(ep_block_run(o->block, o->mode, o->g, NULL, &y), "block");
    ep_tensor_destroy(y);
}

static void gated(int64_t m, int64_t n) {
    operands o = {.g = device(m, n, 1, 1), .u = device(m, n, 2, 1), .dy = device(m, n, 3, 1)};
    double us, host, bytes = 2.0 * (double)m * (double)n;
    measure(forward, &o, 40, &us, &host);
    printf("{\"what\": \"gated\", \"m\": %lld, \"n\": %lld, \"us\": %.2f, \"gbs\": %.0f}\n", (long long)m, (long long)n,
           us, 3 * bytes / us / 1e3);
    measure(backward, &o, 40, &us, &host);
    printf("{\"what\": \"gated_backward\", \"m\": %lld, \"n\": %lld, \"us\": %.2f, \"gbs\": %.0f}\n", (long long)m,
           (long long)n, us, 5 * bytes / us / 1e3);
    ep_tensor_destroy(o.g);
    ep_tensor_destroy(o.u);
    ep_tensor_destroy(o.dy);
}

static const char *const kinds[] = {[EP_BLOCK_LINEAR] = "linear", [EP_BLOCK_MLP] = "mlp", [EP_BLOCK_GATED] = "geglu"};

static const char *const modes[] = {"eager", "compiled", "tuned"};

/* The three modes one after the other, several times over, each after a rest and then for 30 ms: what comes last in a list finds
 * a card that is warm. */
static void by_turns(operands *o, const char *kind, int64_t m, int64_t dim, int64_t hidden) {
    enum { ROUNDS = 5 };
    double us[EP_MODE_COUNT][2][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int mode = 0; mode < EP_MODE_COUNT; mode++) {
            o->mode = (ep_mode)mode;
            if (round == 0 && ep_block_prepare(o->block, o->mode, o->g) != EP_OK) return;
            for (int i = 0; i < (round ? 0 : 40); i++) run_block(o);
            rest(0.1);
            for (int i = 0; i < 3; i++) run_block(o);
            double about = by_events(run_block, o, 1, 10);
            rest(0.1);
            for (int i = 0; i < 3; i++) run_block(o);
            us[mode][0][round] = by_events(run_block, o, 1, 1 + (int)(3e3 / about));
            by_events(run_block, o, 1, 1 + (int)(30e3 / about));
            us[mode][1][round] = by_events(run_block, o, 1, 1 + (int)(30e3 / about));
        }
    for (int mode = 0; mode < EP_MODE_COUNT; mode++) {
        for (int k = 0; k < 2; k++) qsort(us[mode][k], ROUNDS, sizeof(double), by_value);
        printf("{\"what\": \"%s, by turns\", \"mode\": \"%s\", \"m\": %lld, \"dim\": %lld, \"hidden\": %lld, "
               "\"rested_us\": "
               "%.2f, \"row_us\": %.2f}\n",
               kind, modes[mode], (long long)m, (long long)dim, (long long)hidden, us[mode][0][ROUNDS / 2],
               us[mode][1][ROUNDS / 2]);
    }
    fflush(stdout);
}

static void block(ep_block_kind kind, int64_t m, int64_t dim, int64_t hidden) {
    operands o = {.g = device(m, dim, 1, 1)};
    ep_tensor *gate = device(hidden, dim, 2, 0.03), *up = device(hidden, dim, 3, 0.03),
              *down = device(dim, hidden, 4, 0.02);
    ep_block_weights w = {.gate = gate, .up = up, .down = down};
    if (kind == EP_BLOCK_LINEAR) w = (ep_block_weights){.up = up};
    if (kind == EP_BLOCK_MLP) w = (ep_block_weights){.up = up, .down = down};
    check(ep_block_create(ctx, kind, kind == EP_BLOCK_LINEAR ? EP_ACT_NONE : EP_ACT_GELU_TANH, &w, &o.block), "block");
    if (in_turns) by_turns(&o, kinds[kind], m, dim, hidden);
    for (int mode = 0; mode < EP_MODE_COUNT && !in_turns; mode++) {
        double us, host;
        if (in_ways && mode != EP_MODE_TUNED) continue;
        o.mode = (ep_mode)mode;
        if (ep_block_prepare(o.block, o.mode, o.g) != EP_OK) continue;
        if (in_ways) {
            ways(run_block, &o, m, dim, hidden);
            continue;
        }
        for (int i = 0; i < 40; i++) run_block(&o); /* past the calls that decide between plans */
        measure(run_block, &o, 20, &us, &host);
        printf("{\"what\": \"%s\", \"mode\": \"%s\", \"m\": %lld, \"dim\": %lld, \"hidden\": %lld, \"us\": %.2f, "
               "\"host_us\": %.2f, \"short_us\": %.2f}\n",
               kinds[kind], modes[mode], (long long)m, (long long)dim, (long long)hidden, us, host,
               short_bursts(run_block, &o));
        fflush(stdout);
    }
    ep_block_destroy(o.block);
    ep_tensor *all[] = {o.g, gate, up, down};
    for (size_t i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
}

int main(int argc, char **argv) {
    static const int64_t shapes[][3] = {{8192, 768, 3072},   {8192, 2048, 16384}, {8192, 4096, 14336},
                                        {1024, 2048, 16384}, {128, 4096, 14336},  {128, 2048, 16384},
                                        {64, 4096, 14336},   {64, 2048, 16384},   {16, 4096, 14336},
                                        {16, 2048, 16384},   {1, 2048, 16384},    {1, 768, 3072}};
    bool little = false, given = false;
    for (int i = 1; i < argc; i++) {
        in_ways = in_ways || strcmp(argv[i], "ways") == 0;
        in_turns = in_turns || strcmp(argv[i], "turns") == 0;
        little = little || strcmp(argv[i], "blocks") == 0;
    }
    if (!open_gpu()) return 2;
    ep_block_kind kind = EP_BLOCK_GATED;
    for (int i = 1; i < argc; i++) {
        long long m, dim, hidden;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (strcmp(argv[i], kinds[k]) == 0) kind = (ep_block_kind)k;
        if (sscanf(argv[i], "%lld,%lld,%lld", &m, &dim, &hidden) != 3) continue;
        block(kind, m, dim, hidden);
        given = true;
    }
    if (!given && !little && !in_ways) {
        gated(8192, 3072);
        gated(8192, 16384);
        gated(16384, 14336);
        gated(8192, 3001);
    }
    if (!given && !in_ways) block(EP_BLOCK_LINEAR, 1024, 32, 64);
    for (size_t i = 0; !given && i < sizeof shapes / sizeof *shapes; i++)
        if (!little || shapes[i][1] == 768 || shapes[i][0] <= 1024)
            block(EP_BLOCK_GATED, shapes[i][0], shapes[i][1], shapes[i][2]);
    ep_context_destroy(ctx);
    return 0;
}
