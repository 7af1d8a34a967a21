/* Samples in turn until both have enough; a compiled plan that seems to lose is looked at longer before it is dropped. */
#include "choice.h"

#include <stdio.h>
#include <string.h>

enum { WARM = 1, ENOUGH = 4, DOUBT = 12 };

void ep_choice_settle(ep_choice *c, const char *why) {
    c->decided = true;
    c->keep_eager = false;
    snprintf(c->why, sizeof c->why, "%s", why);
}

ep_runner ep_choice_next(const ep_choice *c) {
    if (c->decided) return c->keep_eager ? EP_RUN_EAGER : EP_RUN_COMPILED;
    return c->count[EP_RUN_EAGER] < c->count[EP_RUN_COMPILED] ? EP_RUN_EAGER : EP_RUN_COMPILED;
}

void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns) {
    if (c->decided) return;
    int n = c->count[who]++;
    if (n < WARM) return; /* the first call of anything pays for what later ones do not */
    if (n == WARM || ns < c->best_ns[who]) c->best_ns[who] = ns;
    int least = c->count[0] < c->count[1] ? c->count[0] : c->count[1];
    if (least < ENOUGH + WARM) return;
    double compiled = (double)c->best_ns[EP_RUN_COMPILED] * 1e-3, eager = (double)c->best_ns[EP_RUN_EAGER] * 1e-3;
    bool loses = compiled > eager * 1.05 + 0.1;
    if (loses && least < DOUBT + WARM) return;
    c->decided = true;
    c->keep_eager = loses;
    snprintf(c->why, sizeof c->why, "%s kept for 2^%d to 2^%d elements: compiled %.2f us, eager %.2f us (best of %d)",
             loses ? "eager" : "compiled", c->size_class, c->size_class + 1, compiled, eager, least - WARM);
}
