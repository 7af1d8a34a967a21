/* --fail-on: expressions over a difference, `METRIC OP VALUE`, several joined by ';', each for the main region or, as
 * `region NAME: ...`, for another. A signed value or one with %, us, ms, s is a change; one with x is a ratio; a bare
 * number is what B has. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"

typedef struct metric {
    const char *name;
    double (*value)(const ep_diff_region *r, int side);
    bool time; /* in us */
} metric;

static const ep_diff_side *side_of(const ep_diff_region *r, int side) {
    return side ? &r->b : &r->a;
}

static double kernels(const ep_diff_region *r, int side) {
    return (double)side_of(r, side)->kernels;
}
static double device_time(const ep_diff_region *r, int side) {
    return (double)side_of(r, side)->device_ns * 1e-3;
}
static double host_time(const ep_diff_region *r, int side) {
    return (double)side_of(r, side)->host_ns * 1e-3;
}
static double memsets(const ep_diff_region *r, int side) {
    return (double)side_of(r, side)->memsets;
}
static double copies(const ep_diff_region *r, int side) {
    const ep_diff_side *s = side_of(r, side);
    double n = 0;
    for (size_t i = 0; i < s->count; i++) n += s->items[i].cls == EP_CLASS_COPY;
    return n;
}
static double of_class(const ep_diff_region *r, int side, ep_kernel_class cls) {
    const ep_diff_side *s = side_of(r, side);
    double n = 0;
    for (size_t i = 0; i < s->count; i++) n += s->items[i].decoded && s->items[i].cls == cls;
    return n;
}
static double gemms(const ep_diff_region *r, int side) {
    return of_class(r, side, EP_CLASS_GEMM);
}
static double pointwise(const ep_diff_region *r, int side) {
    return of_class(r, side, EP_CLASS_POINTWISE);
}
static double collectives(const ep_diff_region *r, int side) {
    return of_class(r, side, EP_CLASS_COLLECTIVE);
}
static double ops(const ep_diff_region *r, int side) {
    double n = 0;
    for (size_t i = 0; i < r->host_count; i++) n += (double)r->host[i].count[side];
    return n;
}
/* Counted as what only B has: A's is 0. */
static double relation(const ep_diff_region *r, int side, ep_relation which) {
    double n = 0;
    for (size_t i = 0; side && i < r->pair_count; i++) n += r->pairs[i].relation == which;
    return n;
}
static double fresh(const ep_diff_region *r, int side) {
    return relation(r, side, EP_RELATION_NEW);
}
static double split(const ep_diff_region *r, int side) {
    return relation(r, side, EP_RELATION_SPLIT);
}
static double renamed(const ep_diff_region *r, int side) {
    return relation(r, side, EP_RELATION_RENAMED);
}
static double gone(const ep_diff_region *r, int side) {
    return relation(r, side, EP_RELATION_GONE);
}

static const metric metrics[] = {
    {"kernels", kernels, false},
    {"device time", device_time, true},
    {"host time", host_time, true},
    {"dispatch", host_time, true},
    {"memsets", memsets, false},
    {"copies", copies, false},
    {"gemms", gemms, false},
    {"pointwise", pointwise, false},
    {"collectives", collectives, false},
    {"ops", ops, false},
    {"new", fresh, false},
    {"split", split, false},
    {"renamed", renamed, false},
    {"gone", gone, false},
};

static const char *skip(const char *p) {
    while (isspace((unsigned char)*p)) p++;
    return p;
}

static const ep_diff_region *find_region(const ep_diff_result *d, const char *name, size_t n) {
    for (size_t i = 0; i < d->region_count; i++)
        if (strlen(d->regions[i].name) == n && strncmp(d->regions[i].name, name, n) == 0) return &d->regions[i];
    return NULL;
}

static const metric *find_metric(const char *p, size_t *n) {
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        *n = strlen(metrics[i].name);
        if (strncmp(p, metrics[i].name, *n) == 0 && !isalnum((unsigned char)p[*n])) return &metrics[i];
    }
    return NULL;
}

typedef enum comparison { GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, EQUAL, NOT_EQUAL } comparison;

static bool read_comparison(const char **p, comparison *c) {
    static const struct {
        const char *text;
        comparison c;
    } table[] = {{">=", GREATER_EQUAL}, {"<=", LESS_EQUAL}, {"!=", NOT_EQUAL}, {"==", EQUAL},
                 {">", GREATER},        {"<", LESS},        {"=", EQUAL}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strncmp(*p, table[i].text, strlen(table[i].text)) == 0) {
            *p += strlen(table[i].text);
            *c = table[i].c;
            return true;
        }
    return false;
}

static bool holds(double v, comparison c, double limit) {
    switch (c) {
    case GREATER: return v > limit;
    case GREATER_EQUAL: return v >= limit;
    case LESS: return v < limit;
    case LESS_EQUAL: return v <= limit;
    case EQUAL: return v == limit;
    default: return v != limit;
    }
}

typedef struct limit {
    double value;
    bool change, percent, ratio;
} limit;

static bool read_limit(const char **p, bool time, limit *l) {
    static const struct {
        const char *unit;
        double us;
    } units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    char *end;
    bool sign = **p == '+' || **p == '-', unit = false;
    l->value = strtod(*p, &end);
    if (end == *p) return false;
    *p = end;
    l->percent = **p == '%';
    l->ratio = **p == 'x';
    *p += l->percent || l->ratio;
    for (size_t i = 0; time && !l->percent && !l->ratio && !unit && i < 3; i++)
        if (strncmp(*p, units[i].unit, strlen(units[i].unit)) == 0) {
            unit = true;
            l->value *= units[i].us;
            *p += strlen(units[i].unit);
        }
    l->change = sign || l->percent;
    return true;
}

static ep_status bad(ep_error *err, const char *expression, const char *at, const char *what) {
    return ep_fail_line(err, EP_ERROR_PARSE, 1, (int)(at - expression) + 1, "%s at '%.40s'", what, at);
}

static ep_status one(const ep_diff_result *d, const char *expression, const char **p, ep_error *err, bool *failed,
                     char *sentence, size_t size) {
    const ep_diff_region *r = &d->regions[d->main];
    const char *start = *p = skip(*p);
    if (strncmp(*p, "region ", 7) == 0) {
        const char *name = skip(*p + 7), *colon = strchr(name, ':');
        if (!colon) return bad(err, expression, *p, "a region's name ends with ':'; there is none");
        r = find_region(d, name, (size_t)(colon - name));
        if (!r) return bad(err, expression, name, "both traces hold no region of this name");
        *p = skip(colon + 1);
    }
    size_t n;
    comparison c;
    limit l;
    const metric *m = find_metric(*p, &n);
    if (!m)
        return bad(
            err, expression, *p,
            "a metric was expected (kernels, device time, host time, dispatch, memsets, copies, gemms, pointwise, "
            "collectives, ops, new, split, renamed, gone)");
    *p = skip(*p + n);
    if (!read_comparison(p, &c)) return bad(err, expression, *p, "one of > >= < <= = != was expected");
    *p = skip(*p);
    if (!read_limit(p, m->time, &l)) return bad(err, expression, *p, "a number was expected");
    const char *end = *p = skip(*p);
    if (**p && **p != ';') return bad(err, expression, *p, "';' or the end was expected");
    double a = m->value(r, 0), b = m->value(r, 1),
           v = l.ratio    ? (a != 0   ? b / a
                             : b == 0 ? 1
                                      : 1e300)
               : l.change ? b - a
                          : b;
    if (l.percent) v = a != 0 ? 100 * (b - a) / a : b == 0 ? 0 : 1e300;
    if (*failed || !holds(v, c, l.value)) return EP_OK;
    *failed = true;
    while (end > start && isspace((unsigned char)end[-1])) end--;
    snprintf(sentence, size, "'%.*s' holds: %s of %s went from %.*f to %.*f%s", (int)(end - start), start, m->name,
             r->name, m->time ? 1 : 0, a, m->time ? 1 : 0, b, m->time ? " us" : "");
    return EP_OK;
}

ep_status ep_diff_fail_on(const ep_report *report, const char *expression, ep_error *err, bool *failed, char *sentence,
                          size_t sentence_size) {
    if (!report || !report->diff || !expression)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "there is no difference to ask");
    bool found = false;
    char text[512] = "";
    const char *p = expression;
    if (*skip(p) == 0) return bad(err, expression, p, "an expression was expected");
    while (*p) {
        EP_TRY(one(report->diff, expression, &p, err, &found, text, sizeof text));
        if (*p == ';') p = skip(p + 1);
    }
    *failed = found;
    if (sentence && sentence_size) snprintf(sentence, sentence_size, "%s", text);
    return EP_OK;
}
