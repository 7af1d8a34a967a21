/* One study of one trace: device work in host order with the work of its ops, the machine, and small questions that
 * several analyses ask. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "base/sort.h"
#include "model/machine/gpus.h"
#include "model/trace/kernel_name.h"

const char *ep_study_name(const ep_study *s, uint32_t event) {
    return event == EP_NO_INDEX ? "" : ep_trace_text(s->trace, s->trace->name[event]);
}

const char *ep_study_printf(ep_study *s, const char *fmt, ...) {
    char buffer[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(buffer, sizeof buffer, fmt, args);
    va_end(args);
    if (n < 0) return "";
    size_t len = (size_t)n < sizeof buffer ? (size_t)n : sizeof buffer - 1;
    const char *copy = ep_arena_copy(&s->arena, buffer, len);
    s->failed = s->failed || !copy;
    return copy ? copy : "";
}

bool ep_study_finding(ep_study *s, const char *id, double weight, const char *sentence) {
    if (!ep_grow(&s->findings, &s->finding_cap, s->finding_count + 1, sizeof *s->findings)) {
        s->failed = true;
        return false;
    }
    ep_finding *f = &s->findings[s->finding_count++];
    memset(f, 0, sizeof *f);
    f->id = id;
    f->sentence = sentence;
    f->weight = weight;
    return true;
}

void ep_study_evidence(ep_study *s, const char *text) {
    if (!s->finding_count) return;
    ep_finding *f = &s->findings[s->finding_count - 1];
    if (f->evidence_count < (int)(sizeof f->evidence / sizeof f->evidence[0])) f->evidence[f->evidence_count++] = text;
}

/* The steps are one region to the analyses; "ProfilerStep#3" asks for one of them. */
bool ep_study_wants(const ep_study *s, const char *region) {
    const char *glob = s->options ? s->options->region : NULL;
    if (!glob || ep_glob(glob, region)) return true;
    if (strcmp(region, "ProfilerStep") != 0) return false;
    for (size_t i = 0; i < s->facts->region_count; i++)
        if (ep_region_is_step(s->facts->regions[i].name) && ep_glob(glob, s->facts->regions[i].name)) return true;
    return false;
}

double ep_study_bandwidth(const ep_study *s) {
    return s->has_machine ? s->machine.read_gbs[1] : 0;
}

static double peak_gflops(const ep_study *s, const char *dtype) {
    static const struct {
        const char *name;
        ep_dtype dtype;
    } known[] = {{"f32", EP_DTYPE_F32}, {"bf16", EP_DTYPE_BF16}, {"f16", EP_DTYPE_F16}};
    if (strcmp(dtype, "c64") == 0) dtype = "f32"; /* complex numbers are pairs of these */
    if (strcmp(dtype, "c128") == 0) dtype = "f64";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(dtype, known[i].name) == 0) return s->machine.gflops[known[i].dtype][1];
    return ep_gpu_tflops(s->device_name, dtype) * 1e3;
}

/* The cost model's memory time: of a processor it knows what the caches give, which a GPU's listed ceilings do not. */
static double memory_us(const ep_study *s, int64_t bytes) {
    const ep_work read = {.bytes_read = bytes};
    return ep_machine_bound(&s->machine, &read, EP_DTYPE_F32, 0).memory_us;
}

double ep_study_bound_us(const ep_study *s, int64_t flops, int64_t bytes, const char *dtype, ep_regime *regime) {
    *regime = EP_REGIME_UNKNOWN;
    if (!(ep_study_bandwidth(s) > 0)) return NAN;
    if (flops > 0 && !*dtype) return NAN; /* its products may take any time */
    double memory = memory_us(s, bytes), peak = flops > 0 ? peak_gflops(s, dtype) : 0;
    double compute = peak > 0 ? (double)flops / peak * 1e-3 : 0;
    if (memory <= 0 && compute <= 0) return NAN;
    *regime = compute > memory ? EP_REGIME_COMPUTE : EP_REGIME_MEMORY;
    return compute > memory ? compute : memory;
}

/* A template's name without "void ", arguments and namespaces. */
static void function_name(const char *name, char *buffer, size_t size) {
    if (strncmp(name, "void ", 5) == 0) name += 5;
    size_t end = strcspn(name, "<("), start = end;
    if (end == 0) end = strlen(name), start = end; /* "(anonymous namespace)::x" */
    while (start > 0 && name[start - 1] != ':') start--;
    snprintf(buffer, size, "%.*s", (int)(end - start), name + start);
}

const char *ep_short_name(const ep_kernel_name *d, const char *name, char *buffer, size_t size) {
    bool elementwise = strncmp(d->family, "elementwise ", 12) == 0, reduce = strncmp(d->family, "reduce ", 7) == 0;
    if (strcmp(d->vendor, "aten") == 0 && (elementwise || reduce)) {
        snprintf(buffer, size, "%s%s%s", d->family, d->dtype[0] ? " " : "", d->dtype);
    } else if (strcmp(d->vendor, "cutlass") == 0 && strstr(name, "Kernel2<")) {
        const char *p = strstr(name, "Kernel2<") + 8;
        snprintf(buffer, size, "%.*s", (int)strcspn(p, ">("), p);
    } else if (strcmp(d->vendor, "tensile") == 0) {
        snprintf(buffer, size, "Cijk %s %s MT%s %s", d->dtype, d->layout, d->tile, d->arch);
    } else if (strchr(name, '<') || strchr(name, '(')) {
        const char *skip = strstr(name, "(anonymous namespace)::");
        function_name(skip && skip < name + 24 + strcspn(name, "<") ? skip + 23 : name, buffer, size);
    } else {
        snprintf(buffer, size, "%s", name);
    }
    return buffer;
}

static void keep_row(ep_work_row *r, const ep_op_work *w) {
    memset(r, 0, sizeof *r);
    r->known = w->known, r->at_least = w->at_least, r->gemm = w->gemm, r->bias = w->bias;
    r->writes_first = w->writes_first;
    r->reason = w->reason;
    r->flops = w->flops, r->bytes_read = w->bytes_read, r->bytes_written = w->bytes_written;
    r->batch = w->batch, r->m = w->m, r->n = w->n, r->k = w->k;
    memcpy(r->dtype, w->dtype, sizeof r->dtype);
    r->out_numel = w->out_numel, r->out_bytes = w->out_bytes;
    for (int i = 0; i < w->input_count && r->input_count < EP_WORK_INPUTS; i++) {
        if (!w->in[i].tensor) continue;
        r->in[r->input_count].numel = w->in[i].numel;
        r->in[r->input_count].expanded = w->in[i].expanded;
        r->in[r->input_count++].element = w->in[i].element;
    }
}

/* Rows by (op name, shapes): open addressing over row + 1. */
typedef struct row_table {
    uint32_t *slots;
    uint64_t *keys;
    size_t mask;
} row_table;

static bool row_table_create(row_table *t, size_t items) {
    size_t size = 64;
    while (size < items * 2) size *= 2;
    t->mask = size - 1;
    t->slots = calloc(size, sizeof *t->slots);
    t->keys = calloc(size, sizeof *t->keys);
    return t->slots && t->keys;
}

static bool add_row(ep_study *s, const ep_op_work *w, uint32_t *out) {
    if (!ep_grow(&s->rows, &s->row_cap, s->row_count + 1, sizeof *s->rows)) return false;
    keep_row(&s->rows[s->row_count], w);
    *out = (uint32_t)s->row_count++;
    return true;
}

/* The op whose shapes say what the kernel does: the owner, or an op around it that launches nothing else. */
static bool find_work(ep_study *s, uint32_t owner, ep_op_work *w) {
    const ep_trace *t = s->trace;
    uint32_t op = owner;
    for (int up = 0; up < 4 && op != EP_NO_INDEX; up++) {
        ep_torch_work(t, op, w);
        if (w->known) return true;
        uint32_t parent = s->facts->links->parent[op];
        if (parent == EP_NO_INDEX || t->kind[parent] != EP_EVENT_OP ||
            s->facts->op_kernels[parent] != s->facts->op_kernels[op])
            break;
        op = parent;
    }
    ep_torch_work(t, owner, w);
    return false;
}

/* A block's kernel has another dtype than its op only where its name says so. */
static void find_dtype(const ep_study *s, const ep_device_work *d, const ep_op_work *owner, ep_op_work *w) {
    ep_our_name name;
    if (w->dtype[0]) return;
    if (ep_our_name_parse(ep_trace_text(s->trace, s->trace->name[d->event]), &name))
        snprintf(w->dtype, sizeof w->dtype, "%s", name.dtype);
    for (int i = 0; i < owner->input_count && !w->dtype[0]; i++)
        if (owner->in[i].tensor) memcpy(w->dtype, owner->in[i].dtype, sizeof w->dtype);
}

static bool row_of(ep_study *s, row_table *table, const ep_device_work *d, uint32_t *out) {
    const ep_trace *t = s->trace;
    ep_op_work w;
    /* ours: a kernel may carry its own work */
    const ep_event_info *own = &t->infos[t->info[d->event]];
    bool by_kernel = t->info[d->event] && own->bytes_read >= 0;
    uint32_t op = ep_work_owner(s, d), from = by_kernel ? d->event : op;
    if (from == EP_NO_INDEX) {
        *out = 0;
        return true;
    }
    uint64_t key = ((uint64_t)t->name[from] << 32 | t->info[from]) + 1;
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & table->mask;
    while (table->keys[i] && table->keys[i] != key) i = (i + 1) & table->mask;
    if (table->keys[i]) {
        *out = table->slots[i];
        return true;
    }
    if (by_kernel) {
        ep_torch_work(t, d->event, &w);
        ep_op_work owner = {0};
        if (op != EP_NO_INDEX) {
            ep_torch_work(t, op, &owner);
            if (owner.gemm)
                w.gemm = true, w.bias = owner.bias, w.batch = owner.batch, w.m = owner.m, w.n = owner.n, w.k = owner.k;
            if (!w.dtype[0]) memcpy(w.dtype, owner.dtype, sizeof w.dtype);
            if (owner.out_numel && !w.out_numel) w.out_numel = owner.out_numel;
            w.input_count = owner.input_count;
            memcpy(w.in, owner.in, sizeof w.in);
        }
        find_dtype(s, d, &owner, &w);
    } else {
        find_work(s, op, &w);
    }
    table->keys[i] = key;
    if (!add_row(s, &w, out)) return false;
    table->slots[i] = *out;
    return true;
}

static bool work_before(const void *user, uint32_t a, uint32_t b) {
    const ep_study *s = user;
    const ep_device_work *x = &s->work[a], *y = &s->work[b];
    uint32_t p = ep_work_lane(s, x), q = ep_work_lane(s, y);
    return p != q ? p < q : ep_work_launch_ts(s, x) < ep_work_launch_ts(s, y);
}

static void gather_work(ep_study *s, ep_device_work *work) {
    const ep_trace *t = s->trace;
    size_t n = 0;
    for (size_t i = 0; i < s->facts->kernel_count; i++) {
        const ep_kernel_fact *k = &s->facts->kernels[i];
        work[n++] = (ep_device_work){k->event, k->name_id, 0};
    }
    for (size_t i = 0; i < t->count; i++) {
        if ((t->kind[i] != EP_EVENT_MEMCPY && t->kind[i] != EP_EVENT_MEMSET) || !ep_event_is_span(t, i)) continue;
        work[n++] = (ep_device_work){(uint32_t)i, EP_NO_INDEX, 0};
    }
}

/* work[i] becomes what work[order[i]] was, cycle by cycle: a second array would be the largest of the study. */
static void permute(ep_device_work *work, uint32_t *order, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (order[i] == i) continue;
        ep_device_work first = work[i];
        size_t at = i;
        while (order[at] != i) {
            size_t from = order[at];
            work[at] = work[from];
            order[at] = (uint32_t)at;
            at = from;
        }
        work[at] = first;
        order[at] = (uint32_t)at;
    }
}

/* The few lanes that launched anything; lane_first holds counts yet. */
static bool list_work_lanes(ep_study *s, size_t lanes) {
    size_t cap = 0;
    for (size_t i = 0; i < lanes; i++) {
        if (!s->lane_first[i + 1]) continue;
        if (!ep_grow(&s->work_lanes, &cap, s->work_lane_count + 1, sizeof *s->work_lanes)) return false;
        s->work_lanes[s->work_lane_count++] = (uint32_t)i;
    }
    return true;
}

/* Device work in host order, and where each lane's part begins. */
static ep_status make_work(ep_study *s) {
    const ep_trace *t = s->trace;
    size_t n = s->facts->kernel_count, lanes = t->lane_count ? t->lane_count : 1;
    for (size_t i = 0; i < t->count; i++)
        n += (t->kind[i] == EP_EVENT_MEMCPY || t->kind[i] == EP_EVENT_MEMSET) && ep_event_is_span(t, i);
    uint32_t *order = ep_malloc_array(n, sizeof *order);
    s->work = ep_malloc_array(n, sizeof *s->work);
    s->lane_first = calloc(lanes + 1, sizeof *s->lane_first);
    bool ok = order && s->work && s->lane_first;
    if (ok) {
        gather_work(s, s->work);
        for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
        ok = ep_sort_rows(order, n, work_before, s);
    }
    if (ok) permute(s->work, order, n);
    for (size_t i = 0; ok && i < n; i++) {
        uint32_t lane = ep_work_lane(s, &s->work[i]);
        if (lane < lanes) s->lane_first[lane + 1]++;
    }
    ok = ok && list_work_lanes(s, lanes);
    for (size_t i = 0; ok && i < lanes; i++) s->lane_first[i + 1] += s->lane_first[i];
    s->work_count = ok ? n : 0;
    free(order);
    return ok ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}

static ep_status make_rows(ep_study *s) {
    row_table table = {0};
    ep_op_work none;
    memset(&none, 0, sizeof none);
    none.reason = "no op owns this kernel";
    uint32_t row;
    bool ok = row_table_create(&table, s->work_count) && add_row(s, &none, &row);
    for (size_t i = 0; ok && i < s->work_count; i++) {
        ok = row_of(s, &table, &s->work[i], &row);
        s->work[i].row = row;
    }
    free(table.slots);
    free(table.keys);
    return ok ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}

/* The one name all listed devices have: a device whose number is not in the list has it too. */
static const char *only_name(const ep_trace *t) {
    for (size_t i = 1; i < t->device_count; i++)
        if (t->devices[i].name != t->devices[0].name) return NULL;
    return t->device_count && t->devices[0].name ? ep_trace_text(t, t->devices[0].name) : NULL;
}

static ep_status find_machine(ep_study *s, ep_error *err) {
    const ep_device_fact *best = NULL;
    for (size_t i = 0; i < s->facts->device_count; i++)
        if (s->facts->devices[i].name && (!best || s->facts->devices[i].busy_ns > best->busy_ns))
            best = &s->facts->devices[i];
    s->device_name = best ? best->name : only_name(s->trace);
    if (s->options && s->options->machine) {
        EP_TRY(ep_machine_read(s->options->machine, err, &s->machine));
        s->has_machine = true;
        return EP_OK;
    }
    s->has_machine = s->device_name && ep_machine_by_name(s->device_name, &s->machine) == EP_OK;
    if (!s->has_machine && s->trace->is_ours && s->device_name) {
        /* A machine's name is its processor's with the number of cores behind. */
        ep_machine m;
        size_t n = strlen(s->device_name);
        s->has_machine = ep_machine_load((ep_device){EP_DEVICE_CPU, 0}, NULL, &m) == EP_OK &&
                         strncmp(m.name, s->device_name, n) == 0 && (m.name[n] == 0 || m.name[n] == ',');
        if (s->has_machine) s->machine = m;
    }
    if (!s->has_machine)
        s->no_machine = s->device_name ? "the device is not in the list of GPUs; --machine F gives its ceilings"
                                       : "the trace names no device; --machine F gives its ceilings";
    return EP_OK;
}

ep_status ep_study_create(const ep_trace *trace, const char *label, const ep_analysis_options *options, ep_error *err,
                          ep_study **out) {
    ep_study *s = calloc(1, sizeof *s);
    if (!s) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to study the trace");
    s->trace = trace;
    s->label = label ? label : "trace";
    s->options = options;
    ep_status status = ep_facts_create(trace, err, &s->facts);
    if (status == EP_OK) status = find_machine(s, err);
    if (status == EP_OK) {
        status = make_work(s);
        if (status == EP_OK) status = make_rows(s);
        if (status != EP_OK) ep_fail(err, status, "no memory to study %zu events", trace->count);
    }
    if (status != EP_OK) {
        ep_study_destroy(s);
        return status;
    }
    *out = s;
    return EP_OK;
}

void ep_study_destroy(ep_study *s) {
    if (!s) return;
    void *const owned[] = {s->node_graph, s->node_step, s->by_stream, s->work,      s->work_lanes, s->lane_first,
                           s->rows,       s->nodes,     s->node_of,   s->producers, s->bounds,     s->gemms,
                           s->gated,      s->fusions,   s->regimes,   s->compiles,  s->recompiles, s->findings,
                           s->idles,      s->memory,    s->attentions};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
    ep_facts_destroy(s->facts);
    ep_arena_free(&s->arena);
    free(s);
}

ep_status ep_study_run(ep_study *s, ep_error *err) {
    static const struct {
        const char *name;
        ep_status (*run)(ep_study *s, ep_error *err);
    } table[] = {
#define EP_ANALYSIS(name, run, sentence) {#name, run},
#include "analyses.def"
#undef EP_ANALYSIS
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_status status = table[i].run(s, err);
        if (status == EP_OK && s->failed) status = EP_ERROR_OUT_OF_MEMORY;
        if (status == EP_ERROR_OUT_OF_MEMORY) ep_fail(err, status, "no memory for the analysis '%s'", table[i].name);
        EP_TRY(status);
    }
    return EP_OK;
}

void ep_study_range(const ep_study *s, uint32_t lane, int64_t start, int64_t end, size_t *first, size_t *count) {
    size_t low = s->lane_first[lane], high = s->lane_first[lane + 1], stop = high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (ep_work_launch_ts(s, &s->work[mid]) < start)
            low = mid + 1;
        else
            high = mid;
    }
    *first = low;
    high = stop;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (ep_work_launch_ts(s, &s->work[mid]) < end)
            low = mid + 1;
        else
            high = mid;
    }
    *count = low - *first;
}

/* Was it launched inside a region of its own thread that is another one's time: of the same name, or over the edge of
 * this one? Else it is the region's: a backward pass, a loader's copy. */
static bool works_for_another(const ep_study *s, const ep_device_work *w, uint32_t region) {
    const ep_trace *t = s->trace;
    const uint32_t *parent = s->facts->links->parent;
    int64_t start = t->ts[region], end = start + t->dur[region];
    uint32_t up = ep_work_launch(s, w);
    while (up != EP_NO_INDEX && (up = parent[up]) != EP_NO_INDEX) {
        if (t->kind[up] != EP_EVENT_REGION) continue;
        if (t->name[up] == t->name[region] || t->ts[up] < start || t->ts[up] + t->dur[up] > end) return true;
    }
    return false;
}

static bool launched_before(const void *user, uint32_t a, uint32_t b) {
    const ep_study *s = user;
    return ep_work_launch_ts(s, &s->work[a]) < ep_work_launch_ts(s, &s->work[b]);
}

bool ep_study_region_work(const ep_study *s, uint32_t region, uint32_t **out, size_t *count) {
    const ep_trace *t = s->trace;
    size_t total = 0, cap = 0, own = 0;
    uint32_t *list = NULL, lane = t->lane[region];
    bool ok = ep_grow(&list, &cap, 1, sizeof *list);
    for (size_t i = 0; ok && i < s->work_lane_count; i++) {
        size_t first, n;
        bool other = s->work_lanes[i] != lane;
        if (t->lanes[s->work_lanes[i]].pid != t->lanes[lane].pid) continue;
        ep_study_range(s, s->work_lanes[i], t->ts[region], t->ts[region] + t->dur[region], &first, &n);
        ok = ep_grow(&list, &cap, total + n + 1, sizeof *list);
        for (size_t k = first; ok && k < first + n; k++)
            if (!other || !works_for_another(s, &s->work[k], region)) list[total++] = (uint32_t)k;
        own = other ? own : n;
    }
    if (ok && own != total) ok = ep_sort_rows(list, total, launched_before, s);
    if (!ok) {
        free(list);
        return false;
    }
    *out = list;
    *count = total;
    return true;
}
