/* Several ranks of one run: whose own work is longest, how long each waits in collectives, and for whom. A rank that
 * arrives last spends the least time in collectives; what it does longer than the others is why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "format.h"
#include "spans.h"

typedef struct rank_sum {
    int64_t rank;
    double busy_us, comm_us, own_us, window_us, idle_us, by_class[EP_CLASS_COUNT]; /* by_class: durations added up */
    const ep_study *study;
    bool host; /* no rank's device was recorded: window, collectives and own work are the host's, the rest is NaN */
    int64_t left_out; /* pieces of work without a launch; 0 where they are counted */
    bool renumbered;  /* of the first: the traces do not tell different ranks */
} rank_sum;

static bool is_collective(const char *region) {
    static const char *const backends[] = {"gloo:", "nccl:", "mpi:", "ucc:", "xccl:", "hccl:"};
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strncmp(region, backends[i], strlen(backends[i])) == 0) return true;
    return false;
}

/* Time in which the host runs at least one collective, on any thread. */
static bool host_collectives(const ep_study *s, double *us) {
    const ep_facts *f = s->facts;
    int64_t(*spans)[2] = malloc((f->instance_count + 1) * sizeof *spans);
    size_t n = 0;
    if (!spans) return false;
    for (size_t r = 0; r < f->region_count; r++)
        for (uint32_t i = 0; is_collective(f->regions[r].name) && i < f->regions[r].count; i++) {
            uint32_t event = f->instances[f->regions[r].first + i].event;
            spans[n][0] = s->trace->ts[event];
            spans[n++][1] = s->trace->ts[event] + s->trace->dur[event];
        }
    *us = (double)ep_spans_ns(spans, ep_spans_merge(spans, n)) * 1e-3;
    free(spans);
    return true;
}

typedef enum which_work { WORK_ALL, WORK_COLLECTIVE, WORK_OWN } which_work;

static bool is_launched(const ep_study *s, uint32_t event) {
    return s->facts->links->launch[event] != EP_NO_INDEX;
}

/* The time in which a device runs such work, however many pieces at once; devices added up. *window: from the first to the last. */
static bool work_union(const ep_study *s, which_work which, bool launched, double *us, double *window_us) {
    int64_t(*spans)[2] = malloc((s->work_count + 1) * sizeof *spans), sum = 0, window = 0;
    if (!spans) return false;
    for (size_t d = 0; d < s->facts->device_count; d++) {
        size_t n = 0;
        for (size_t i = 0; i < s->work_count; i++) {
            uint32_t event = s->work[i].event;
            bool collective = ep_work_class(s, &s->work[i]) == EP_CLASS_COLLECTIVE;
            if (s->trace->lanes[s->trace->lane[event]].device != s->facts->devices[d].id) continue;
            if (which != WORK_ALL && collective != (which == WORK_COLLECTIVE)) continue;
            if (launched && !is_launched(s, event)) continue;
            spans[n][0] = s->trace->ts[event];
            spans[n++][1] = s->trace->ts[event] + s->trace->dur[event];
        }
        size_t merged = ep_spans_merge(spans, n);
        sum += ep_spans_ns(spans, merged);
        if (merged) window += spans[merged - 1][1] - spans[0][0];
    }
    *us = (double)sum * 1e-3;
    *window_us = (double)window * 1e-3;
    free(spans);
    return true;
}

static size_t count_launched(const ep_study *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->work_count; i++) n += is_launched(s, s->work[i].event);
    return n;
}

/* Recordings of ranks do not begin at the same work: what was queued before has no launch in there, on one rank more than on
 * another. So where launches are recorded, their work alone is compared. */
static bool by_launch(ep_study *const *studies, size_t count) {
    bool some = false;
    for (size_t i = 0; i < count; i++) {
        size_t n = count_launched(studies[i]), all = studies[i]->work_count;
        if (2 * n < all || !n) return false;
        some = some || n < all;
    }
    return some;
}

static bool sum_of(const ep_study *s, size_t index, bool launched, rank_sum *r) {
    double window;
    memset(r, 0, sizeof *r);
    r->study = s;
    r->rank = s->trace->rank >= 0 ? s->trace->rank : (int64_t)index;
    for (size_t i = 0; i < s->work_count; i++)
        if (!launched || is_launched(s, s->work[i].event))
            r->by_class[ep_work_class(s, &s->work[i])] += (double)s->trace->dur[s->work[i].event] * 1e-3;
    if (launched) {
        r->left_out = (int64_t)(s->work_count - count_launched(s));
        if (!work_union(s, WORK_ALL, true, &r->busy_us, &window)) return false;
        r->idle_us = window - r->busy_us;
        if (!work_union(s, WORK_COLLECTIVE, true, &r->comm_us, &window)) return false;
        return work_union(s, WORK_OWN, true, &r->own_us, &window);
    }
    for (size_t i = 0; i < s->facts->device_count; i++) {
        const ep_device_fact *d = &s->facts->devices[i];
        r->busy_us += (double)d->busy_ns * 1e-3;
        r->idle_us += (double)(d->span_ns - d->busy_ns) * 1e-3;
    }
    r->comm_us = (double)s->comm_ns * 1e-3;
    return work_union(s, WORK_OWN, false, &r->own_us, &window);
}

/* The class in which `slow` works longest beyond the mean of the others. */
static int longest_extra(const rank_sum *ranks, size_t count, size_t slow, double *extra) {
    int best = 0;
    *extra = -INFINITY;
    for (int c = 0; c < EP_CLASS_COUNT; c++) {
        double others = 0;
        if (c == EP_CLASS_COLLECTIVE) continue;
        for (size_t i = 0; i < count; i++)
            if (i != slow) others += ranks[i].by_class[c];
        double more = ranks[slow].by_class[c] - others / (double)(count - 1);
        if (more > *extra) *extra = more, best = c;
    }
    return best;
}

/* The slowest rank: the one that waits least in collectives; without collectives, the one that works longest. */
static size_t slowest(const rank_sum *ranks, size_t count) {
    size_t best = 0;
    double comm = 0;
    for (size_t i = 0; i < count; i++) comm += ranks[i].comm_us;
    for (size_t i = 1; i < count; i++)
        if (comm > 0 ? ranks[i].comm_us < ranks[best].comm_us : ranks[i].own_us > ranks[best].own_us) best = i;
    return best;
}

/* Numbers that several traces give are no ranks, nor is none: then they are numbered as they were given. */
static bool renumber(rank_sum *list, size_t count) {
    size_t nameless = 0;
    for (size_t i = 0; i < count; i++) nameless += list[i].study->trace->rank < 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (list[i].rank == list[k].rank) {
                for (size_t n = 0; n < count; n++) list[n].rank = (int64_t)n;
                return true;
            }
    return nameless > 1;
}

static rank_sum *sums(ep_study *const *studies, size_t count) {
    rank_sum *list = malloc(count * sizeof *list);
    bool host = true, ok = true, launched = by_launch(studies, count);
    for (size_t i = 0; i < count; i++) host = host && !studies[i]->facts->health.device_recorded;
    for (size_t i = 0; list && i < count; i++) {
        const ep_facts *f = studies[i]->facts;
        ok = ok && sum_of(studies[i], i, launched, &list[i]);
        list[i].host = host;
        if (!host) continue;
        list[i].busy_us = list[i].idle_us = NAN;
        list[i].window_us = (double)(f->span_end_ns - f->span_start_ns) * 1e-3;
        ok = ok && host_collectives(studies[i], &list[i].comm_us);
        list[i].own_us = list[i].window_us - list[i].comm_us;
    }
    if (list && renumber(list, count)) list[0].renumbered = true;
    if (ok) return list;
    free(list);
    return NULL;
}

/* Where it stood still: its devices idle between their first and last work, beyond the others' mean. */
static double extra_idle(const rank_sum *ranks, size_t count, size_t slow) {
    double others = 0;
    for (size_t i = 0; i < count; i++)
        if (i != slow) others += ranks[i].idle_us;
    return ranks[slow].idle_us - others / (double)(count - 1);
}

static void host_sentence(const rank_sum *ranks, size_t count, size_t slow, char *text, size_t size) {
    double comm = 0, own = 0, waited = 0;
    for (size_t i = 0; i < count; i++) {
        comm += ranks[i].comm_us;
        if (i == slow) continue;
        own += (ranks[slow].own_us - ranks[i].own_us) / (double)(count - 1);
        waited += (ranks[i].comm_us - ranks[slow].comm_us) / (double)(count - 1);
    }
    if (comm <= 0)
        snprintf(text, size, "No device work and no collectives were recorded: who waits for whom can't be told.");
    else if (waited <= 0)
        snprintf(text, size, "No device work was recorded. No rank waits longer in collectives than the others.");
    else
        snprintf(text, size,
                 "No device work was recorded. On the host rank %lld is the slowest: it spends %s more than the others "
                 "outside collectives, and they wait %s more in them.",
                 (long long)ranks[slow].rank, ep_figure_us(own).text, ep_figure_us(waited).text);
}

/* The first rank without device work among others that have some, or `count`. */
static size_t without_device(const rank_sum *ranks, size_t count) {
    size_t i = 0;
    while (i < count && (ranks[0].host || ranks[i].study->facts->health.device_recorded)) i++;
    return i;
}

static void sentence(const rank_sum *ranks, size_t count, size_t slow, char *text, size_t size) {
    if (ranks[0].host) {
        host_sentence(ranks, count, slow, text, size);
        return;
    }
    size_t without = without_device(ranks, count);
    if (without < count) {
        snprintf(text, size, "Rank %lld has no device work in its trace: who is the slowest can't be told.",
                 (long long)ranks[without].rank);
        return;
    }
    double extra, waited = 0, idle = extra_idle(ranks, count, slow);
    int cls = longest_extra(ranks, count, slow, &extra);
    for (size_t i = 0; i < count; i++)
        if (i != slow) waited += (ranks[i].comm_us - ranks[slow].comm_us) / (double)(count - 1);
    if (waited <= 0 && extra <= 0) {
        snprintf(text, size, "No rank is slower than the others.");
        return;
    }
    char others[120] = "";
    if (waited >= 0.05)
        snprintf(others, sizeof others, " The others wait %s more in collectives than it does.",
                 ep_figure_us(waited).text);
    if (idle > extra)
        snprintf(text, size,
                 "Rank %lld is the slowest: its device stands idle %s longer than the others' do (it waits for its "
                 "host or its data).%s",
                 (long long)ranks[slow].rank, ep_figure_us(idle).text, others);
    else if (extra < 0.05)
        snprintf(text, size, "Rank %lld is the slowest.%s", (long long)ranks[slow].rank, others);
    else
        snprintf(text, size, "Rank %lld is the slowest: it works %s longer in %s kernels than the others do.%s",
                 (long long)ranks[slow].rank, ep_figure_us(extra).text, ep_kernel_class_name((ep_kernel_class)cls),
                 others);
}

/* The file's name without its folder and, where it is long, without the endings that all have: what tells ranks apart is
 * before them. */
static void file_name(const char *path, char *out, size_t size) {
    static const char *const endings[] = {".gz", ".json", ".trace", ".pt"};
    const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
    char whole[512];
    snprintf(whole, sizeof whole, "%s", name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings && strlen(whole) > 20; i++) {
        size_t n = strlen(whole), m = strlen(endings[i]);
        if (n > m && strcmp(whole + n - m, endings[i]) == 0) whole[n - m] = 0;
    }
    ep_cut(whole, 20, out, size);
}

ep_status ep_ranks_text(ep_study *const *studies, size_t count, int width_in, ep_text *out, ep_error *err) {
    size_t width = (size_t)width_in;
    rank_sum *ranks = sums(studies, count);
    char line[512];
    if (!ranks) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for %zu ranks", count);
    bool host = ranks[0].host;
    ep_text_add(out, host ? "RANKS (host)  traced us    own work us  collectives us  file\n"
                          : "RANKS        busy us    own work us  collectives us    idle us  file\n");
    for (size_t i = 0; i < count; i++) {
        char idle[32] = "", name[32];
        if (!host) snprintf(idle, sizeof idle, "%11.1f", ranks[i].idle_us);
        file_name(studies[i]->label, name, sizeof name);
        ep_text_printf(out, "  %4lld%s %12.1f %14.1f %15.1f%s  %s\n", (long long)ranks[i].rank, host ? "    " : "",
                       host ? ranks[i].window_us : ranks[i].busy_us, ranks[i].own_us, ranks[i].comm_us, idle, name);
    }
    sentence(ranks, count, slowest(ranks, count), line, sizeof line);
    ep_text left = {0};
    for (size_t i = 0; i < count; i++)
        if (ranks[i].left_out)
            ep_text_printf(&left, "%s%lld on rank %lld", left.len ? ", " : "", (long long)ranks[i].left_out,
                           (long long)ranks[i].rank);
    if (left.len) {
        ep_text_add(&left, ".");
        ep_text all = {0};
        ep_text_printf(&all, "Left out: work whose launch was not recorded, %s", ep_text_str(&left));
        ep_paragraph(out, "  ", 2, width, ep_text_str(&all));
        ep_text_free(&all);
    }
    ep_text_free(&left);
    if (ranks[0].renumbered)
        ep_paragraph(
            out, "  ", 2, width,
            "These traces do not tell different ranks: they are numbered as they were given, and are compared as "
            "if they were ranks of one run.");
    ep_paragraph(out, "  ", 2, width, line);
    ep_text_char(out, '\n');
    free(ranks);
    return EP_OK;
}

void ep_ranks_json(ep_study *const *studies, size_t count, ep_json_out *o) {
    rank_sum *ranks = sums(studies, count);
    char line[512];
    if (!ranks) {
        o->failed = true;
        return;
    }
    size_t slow = slowest(ranks, count);
    sentence(ranks, count, slow, line, sizeof line);
    ep_json_object(o);
    ep_json_put_known(o, "slowest_rank", without_device(ranks, count) < count ? -1 : ranks[slow].rank);
    ep_json_put_str(o, "sentence", line);
    ep_json_put_array(o, "ranks");
    for (size_t i = 0; i < count; i++) {
        const struct {
            const char *key;
            double v;
        } figures[] = {
            {"busy_us", ranks[i].busy_us},
            {"own_us", ranks[i].own_us},
            {"collective_us", ranks[i].comm_us},
            {"exposed_us", ranks[i].host ? NAN : (double)(studies[i]->comm_ns - studies[i]->comm_hidden_ns) * 1e-3},
            {"idle_us", ranks[i].idle_us}};
        ep_json_object(o);
        ep_json_put_int(o, "rank", ranks[i].rank);
        ep_json_put_str(o, "file", studies[i]->label);
        for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
            ep_json_put_fixed(o, figures[k].key, figures[k].v, 3);
        ep_json_key(o, "explain");
        ep_explain_json(studies[i], o);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_end(o);
    free(ranks);
}
