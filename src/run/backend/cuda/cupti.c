/* Reads CUPTI's activity buffers: kernels, copies and sets with their times, linked to our launches by external
 * correlation. Field offsets are those of CUpti_ActivityKernel9 and later, CUpti_ActivityMemcpy6, CUpti_ActivityMemset4
 * and CUpti_ActivityExternalCorrelation in the CUPTI 12 and 13 reference; later versions only append. */
#include "cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"
#include "cuda_state.h"
#include "driver.h"

enum {
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_DRIVER = 4,
    KIND_RUNTIME = 5,
    KIND_KERNEL = 10,
    KIND_EXTERNAL = 39,
    EXTERNAL_CUSTOM = 3,
    MAX_LIMIT_REACHED = 12,
    BUFFER_BYTES = 1 << 20,
    SPARE = 8,
};

typedef void (*cupti_request_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

#define CUPTI_FUNCTIONS(F)                                                                                             \
    F(cuptiActivityRegisterCallbacks, register_callbacks, (cupti_request_fn request, cupti_complete_fn complete))      \
    F(cuptiActivityEnable, enable, (int kind))                                                                         \
    F(cuptiActivityDisable, disable, (int kind))                                                                       \
    F(cuptiActivityFlushAll, flush_all, (uint32_t flag))                                                               \
    F(cuptiActivityGetNextRecord, next_record, (uint8_t * buffer, size_t valid, uint8_t * *record))                    \
    F(cuptiActivityPushExternalCorrelationId, push, (int kind, uint64_t id))                                           \
    F(cuptiActivityPopExternalCorrelationId, pop, (int kind, uint64_t *last))                                          \
    F(cuptiGetTimestamp, timestamp, (uint64_t * ns))                                                                   \
    F(cuptiGetResultString, result_string, (int result, const char **text))

static struct {
#define F(symbol, field, params) int(*field) params;
    CUPTI_FUNCTIONS(F)
#undef F
} cupti;

typedef struct full_buffer {
    struct full_buffer *next;
    uint8_t *bytes;
    size_t valid;
} full_buffer;

static struct {
    pthread_mutex_t lock, full_lock;
    bool loaded, refused, running;
    atomic_int launches; /* since the last flush */
    char why[200];
    int64_t offset_ns, error_ns; /* monotonic minus CUPTI's clock */
    uint64_t *ours;              /* [CUPTI correlation & mask] -> our number */
    uint32_t *theirs;
    struct launch_work *work; /* [our number & mask]: what a launch's kernels take in turn */
    full_buffer *full;        /* completed, not read yet, newest first */
    uint8_t *spare[SPARE];    /* buffers to be used again */
    int spare_count;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .full_lock = PTHREAD_MUTEX_INITIALIZER, .error_ns = -1};

enum { MAP = 1 << 16 }; /* launches in flight between two flushes; older ones are overwritten */

typedef struct launch_work {
    uint64_t correlation;
    cupti_node node;    /* of a launch of one kernel */
    cupti_node *more;   /* of a replay: [count], `next` is the first not taken; owned */
    size_t count, next; /* next: kernels delivered so far */
} launch_work;

static uint64_t u64(const uint8_t *r, size_t at) {
    uint64_t v;
    memcpy(&v, r + at, sizeof v);
    return v;
}

static uint32_t u32(const uint8_t *r, size_t at) {
    uint32_t v;
    memcpy(&v, r + at, sizeof v);
    return v;
}

static uint64_t correlation_of(uint32_t theirs) {
    size_t at = theirs & (MAP - 1);
    return state.ours && state.theirs[at] == theirs ? state.ours[at] : 0;
}

static void take_work(const ep_probe *p, ep_probe_kernel *k) {
    launch_work *w = &state.work[k->correlation & (MAP - 1)];
    if (!k->correlation || w->correlation != k->correlation || !w->count) return;
    size_t kernel = w->next++, i = w->count - 1;
    while (w->more && i > 0 && w->more[i].first > kernel) i--;
    const cupti_node *n = w->more ? &w->more[i] : &w->node;
    if (*n->op) k->captured_in = p->name(p->self, n->op);
    if (kernel != n->first) return; /* the launch's first kernel carries all its work */
    k->flops = n->flops;
    k->bytes_read = n->bytes_read;
    k->bytes_written = n->bytes_written;
}

#define MEMSET_NAME "Memset (Device)"

static void deliver(const ep_probe *p, const uint8_t *r, uint32_t kind) {
    bool kernel = kind == KIND_KERNEL;
    ep_probe_kernel k = {.what = kernel                ? "kernel"
                                 : kind == KIND_MEMCPY ? "memcpy"
                                                       : "memset",
                         .source = EP_SOURCE_CUPTI};
    k.flops = k.bytes_read = k.bytes_written = -1;
    k.start = (int64_t)u64(r, 16) + state.offset_ns;
    k.end = (int64_t)u64(r, 24) + state.offset_ns;
    k.device = (int32_t)u32(r, kernel ? 40 : 32);
    k.stream = (int32_t)u32(r, kernel ? 48 : 40);
    k.correlation = correlation_of(u32(r, kernel ? 92 : 44));
    if (kernel) {
        take_work(p, &k);
        const char *name;
        memcpy(&name, r + 104, sizeof name);
        k.name = p->name(p->self, name ? name : "kernel");
        uint16_t registers;
        memcpy(&registers, r + 6, sizeof registers);
        k.registers = registers;
        for (size_t i = 0; i < 3; i++) {
            k.grid[i] = u32(r, 52 + 4 * i);
            k.block[i] = u32(r, 64 + 4 * i);
        }
        k.shared_bytes = u32(r, 76) + u32(r, 80);
        /* CUPTI calls the kernels by which the driver fills memory memsets; this one is of the same kind. */
        if (name && strcmp(name, CUDA_FILL_KERNEL) == 0) {
            k.what = "memset";
            k.name = MEMSET_NAME;
        }
    } else {
        static const char *const copies[] = {
            [1] = "Memcpy HtoD", [2] = "Memcpy DtoH", [8] = "Memcpy DtoD", [10] = "Memcpy PtoP"};
        uint8_t copy = r[4];
        bool known = copy < sizeof copies / sizeof *copies && copies[copy];
        k.name = kind == KIND_MEMSET ? MEMSET_NAME : known ? copies[copy] : "Memcpy";
        k.bytes_written = (int64_t)u64(r, 8);
        k.bytes_read = kind == KIND_MEMSET ? 0 : k.bytes_written;
        k.flops = 0;
    }
    p->kernel(p->self, &k);
}

/* Read buffers are given out again: a fresh one is paid for by page faults, 250 us in the middle of what is recorded. */
static void request(uint8_t **buffer, size_t *size, size_t *max_records) {
    pthread_mutex_lock(&state.full_lock);
    *buffer = state.spare_count ? state.spare[--state.spare_count] : NULL;
    pthread_mutex_unlock(&state.full_lock);
    if (!*buffer) *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0;
}

/* Kept until the next flush: the record that links a kernel to our launch may come in a later buffer than the kernel. */
static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    full_buffer *b = malloc(sizeof *b);
    if (!buffer || !b) {
        free(buffer);
        free(b);
        return;
    }
    pthread_mutex_lock(&state.full_lock);
    *b = (full_buffer){state.full, buffer, valid};
    state.full = b;
    pthread_mutex_unlock(&state.full_lock);
}

static void read_links(const full_buffer *b) {
    uint8_t *r = NULL;
    while (cupti.next_record(b->bytes, b->valid, &r) == 0) {
        if (u32(r, 0) != KIND_EXTERNAL || u32(r, 4) != EXTERNAL_CUSTOM) continue;
        uint32_t theirs = u32(r, 16);
        state.theirs[theirs & (MAP - 1)] = theirs;
        state.ours[theirs & (MAP - 1)] = u64(r, 8);
    }
}

static void read_work(const full_buffer *b, const ep_probe *p) {
    uint8_t *r = NULL;
    while (cupti.next_record(b->bytes, b->valid, &r) == 0) {
        uint32_t kind = u32(r, 0);
        if (kind == KIND_KERNEL || kind == KIND_MEMCPY || kind == KIND_MEMSET) deliver(p, r, kind);
    }
}

static void drain(void) {
    pthread_mutex_lock(&state.full_lock);
    full_buffer *list = state.full;
    state.full = NULL;
    pthread_mutex_unlock(&state.full_lock);
    const ep_probe *p = ep_probe_get();
    full_buffer *oldest = NULL; /* the kernels of a replay are told apart by their order */
    while (list) {
        full_buffer *next = list->next;
        list->next = oldest;
        oldest = list;
        list = next;
    }
    list = oldest;
    for (full_buffer *b = list; b; b = b->next) read_links(b);
    while (list) {
        full_buffer *b = list;
        list = b->next;
        if (p) read_work(b, p);
        pthread_mutex_lock(&state.full_lock);
        bool keep = state.spare_count < SPARE;
        if (keep) state.spare[state.spare_count++] = b->bytes;
        pthread_mutex_unlock(&state.full_lock);
        if (!keep) free(b->bytes);
        free(b);
    }
}

static bool load(void) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so", NULL};
    static const char *const extra[] = {"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", NULL};
    void *lib = cu_open_library(names);
    if (!lib) lib = cu_open_library(extra);
    if (!lib) {
        strcpy(state.why, "libcupti was not found");
        return false;
    }
#define F(symbol, field, params)                                                                                       \
    {                                                                                                                  \
        void *f = dlsym(lib, #symbol);                                                                                 \
        if (!f) {                                                                                                      \
            strcpy(state.why, "libcupti has no " #symbol);                                                             \
            return false;                                                                                              \
        }                                                                                                              \
        memcpy(&cupti.field, &f, sizeof f);                                                                            \
    }
    CUPTI_FUNCTIONS(F)
#undef F
    state.ours = calloc(MAP, sizeof *state.ours);
    state.theirs = calloc(MAP, sizeof *state.theirs);
    state.work = calloc(MAP, sizeof *state.work);
    return state.ours && state.theirs && state.work && cupti.register_callbacks(request, complete) == 0;
}

/* The pair of clock reads with the least delay of several tries gives the offset; half that delay is its error. */
static void calibrate(void) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t device;
        int64_t a = ep_clock_ns();
        if (cupti.timestamp(&device) != 0) return;
        int64_t b = ep_clock_ns();
        if (b - a >= best) continue;
        best = b - a;
        state.offset_ns = a + (b - a) / 2 - (int64_t)device;
        state.error_ns = (b - a + 1) / 2;
        atomic_store(&ep_probe_device_error_ns, state.error_ns);
    }
}

static const int kinds[] = {KIND_EXTERNAL, KIND_DRIVER, KIND_RUNTIME, KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET};

static bool enable_all(void) {
    /* Links are only written beside records of API calls, so those are on too. */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int r = cupti.enable(kinds[i]);
        if (r == 0) continue;
        const char *text = NULL;
        cupti.result_string(r, &text);
        strncpy(state.why, text ? text : "CUPTI refused", sizeof state.why - 1);
        return false;
    }
    return true;
}

bool cupti_start(ep_error *err) {
    pthread_mutex_lock(&state.lock);
    if (!state.running && !state.refused) {
        if (getenv("EPILOGUE_NO_CUPTI")) {
            strcpy(state.why, "EPILOGUE_NO_CUPTI is set");
            state.refused = true;
        } else if (!state.loaded && !(state.loaded = load())) {
            state.refused = true;
        } else if (!enable_all()) {
            state.refused = true;
        } else {
            calibrate();
            state.running = true;
        }
    }
    bool ok = state.running;
    if (!ok) ep_fail(err, EP_ERROR_MISSING_LIBRARY, "device times come from events, not from CUPTI: %s", state.why);
    pthread_mutex_unlock(&state.lock);
    return ok;
}

void cupti_push(uint64_t correlation) {
    atomic_fetch_add_explicit(&state.launches, 1, memory_order_relaxed);
    cupti.push(EXTERNAL_CUSTOM, correlation);
}

void cupti_pop(void) {
    uint64_t last;
    cupti.pop(EXTERNAL_CUSTOM, &last);
}

void cupti_work(uint64_t correlation, int64_t flops, int64_t bytes_read, int64_t bytes_written) {
    launch_work *w = state.work ? &state.work[correlation & (MAP - 1)] : NULL;
    if (!w) return;
    free(w->more);
    *w = (launch_work){correlation, {"", flops, bytes_read, bytes_written, 0}, NULL, 1, 0};
}

void cupti_replayed(uint64_t correlation, const cupti_node *nodes, size_t count) {
    launch_work *w = state.work ? &state.work[correlation & (MAP - 1)] : NULL;
    if (!w) return;
    free(w->more);
    *w = (launch_work){.correlation = correlation};
    if (!(w->more = malloc((count ? count : 1) * sizeof *nodes))) return;
    if (count) memcpy(w->more, nodes, count * sizeof *nodes);
    w->count = count;
}

void cupti_flush(void) {
    if (!state.running) return;
    atomic_store(&state.launches, 0);
    cupti.flush_all(1);
    drain();
}

/* A flush costs the host more than a launch does, so steps in a recording are not each given one. */
void cupti_flush_if_full(void) {
    if (atomic_load_explicit(&state.launches, memory_order_relaxed) > MAP / 4) cupti_flush();
}

void cupti_stop(void) {
    pthread_mutex_lock(&state.lock);
    if (state.running) {
        cupti.flush_all(1);
        drain();
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) cupti.disable(kinds[i]);
        state.running = false;
    }
    pthread_mutex_unlock(&state.lock);
}

int64_t cupti_clock_error_ns(void) {
    return state.error_ns;
}
