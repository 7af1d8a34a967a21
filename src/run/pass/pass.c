/* Runs the list in passes.def and checks its three columns on the way. */
#include "pass.h"

#include <stdlib.h>
#include <string.h>

#include "run/graph/extent.h"
#include "run/graph/ir_text.h"
#include "run/graph/verify.h"

static const ep_pass passes[] = {
#define EP_PASS(name, function, needs, gives, breaks) {#name, function, needs, gives, breaks},
#include "passes.def"
#undef EP_PASS
};
enum { PASSES = sizeof passes / sizeof *passes };

const ep_pass *ep_passes(size_t *count) {
    *count = PASSES;
    return passes;
}

static bool known(const char *name) {
    for (int i = 0; i < PASSES; i++)
        if (!strcmp(passes[i].name, name)) return true;
    return !strcmp(name, "all") || !strcmp(name, "capture");
}

static ep_status show(const ep_graph *g, const ep_pass_options *o, const char *pass, ep_error *err) {
    if (!o || !o->dump || !o->print || (strcmp(o->dump, "all") && strcmp(o->dump, pass))) return EP_OK;
    ep_text t = {0};
    ep_graph_print(g, &t);
    bool failed = t.failed;
    if (!failed) o->print(o->user, pass, ep_text_str(&t));
    ep_text_free(&t);
    return failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to print pass %s", pass) : EP_OK;
}

static ep_status check(const ep_graph *g, const ep_pass_options *o, const char *pass, ep_error *err) {
#ifdef EP_DEBUG
    bool verify = true;
#else
    bool verify = o && o->verify;
#endif
    ep_error inner = {0};
    (void)o;
    if (!verify || ep_graph_verify(g, &inner) == EP_OK) return EP_OK;
    return ep_fail(err, EP_ERROR_INTERNAL, "after pass %s: %s", pass, inner.message);
}

/* While passes compare sizes, symbols stand for numbers that nothing is equal to by chance, so that what is decided holds
 * for every size. Where those are too large for a graph, it stays with the sizes it has. */
static ep_status take_shadow(ep_graph *g, ep_error *err) {
    ep_error ignored = {0};
    if (g->symbol_count == 0) return EP_OK;
    int64_t *values = malloc(sizeof *values * g->symbol_count);
    if (!values) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the passes");
    ep_extent_shadow(g, values);
    ep_status s = ep_extent_evaluate(g, values, &ignored);
    free(values);
    if (s == EP_OK) return EP_OK;
    EP_TRY(ep_extent_restore(g, err));
    for (size_t i = 0; i < g->symbol_count; i++) g->symbols[i].fixed = true;
    return ep_extent_settle(g, err);
}

ep_status ep_passes_run(ep_graph *g, const ep_pass_options *o, ep_error *err) {
    if (o && o->dump && !known(o->dump)) return ep_fail(err, EP_ERROR_NOT_FOUND, "no pass is called %s", o->dump);
    EP_TRY(show(g, o, "capture", err));
    EP_TRY(check(g, o, "capture", err));
    EP_TRY(take_shadow(g, err));
    for (int i = 0; i < PASSES; i++) {
        const ep_pass *p = &passes[i];
        if ((g->marks & p->needs) != p->needs)
            return ep_fail(err, EP_ERROR_INTERNAL, "pass %s lacks what it needs (marks %#x, needs %#x)", p->name,
                           g->marks, p->needs);
        if (p->gives & EP_MARK_MEMORY) EP_TRY(ep_extent_restore(g, err)); /* places are those of real sizes */
        EP_TRY(p->run(g, err));
        g->marks = (g->marks & ~p->breaks) | p->gives;
        EP_TRY(check(g, o, p->name, err));
        EP_TRY(show(g, o, p->name, err));
        if (o && o->until && !strcmp(o->until, p->name)) break;
    }
    return ep_extent_restore(g, err);
}
