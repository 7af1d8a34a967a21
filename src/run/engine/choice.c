/* Samples in turn until both have enough; a compiled plan that seems to lose is looked at longer before it is dropped. */
#include "choice.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { WARM = 1, ENOUGH = 4, DOUBT = 12 };

void ep_choice_settle(ep_choice *c, const char *why) {
    c->decided = true;
    c->keep_eager = false;
    snprintf(c->why, sizeof c->why, "%s", why);
}

void ep_choice_reopen(ep_choice *c) {
    c->attaches = true;
    c->decided = c->keep_eager = c->keep_attached = false;
    memset(c->count, 0, sizeof c->count);
}

static int runners(const ep_choice *c) {
    return c->attaches ? EP_RUNNERS : EP_RUN_ATTACHED;
}

ep_runner ep_choice_next(const ep_choice *c) {
    if (c->decided) return c->keep_eager ? EP_RUN_EAGER : c->keep_attached ? EP_RUN_ATTACHED : EP_RUN_COMPILED;
    int next = 0;
    for (int i = 1; i < runners(c); i++)
        if (c->count[i] < c->count[next]) next = i;
    return (ep_runner)next;
}

static void say_time(ep_text *t, const char *who, int64_t ns) {
    bool ms = ns >= 1000000;
    ep_text_printf(t, "%s %.2f %s", who, (double)ns * (ms ? 1e-6 : 1e-3), ms ? "ms" : "us");
}

static void say_why(ep_choice *c, int samples) {
    ep_text t = {c->why, 0, sizeof c->why, false};
    ep_text_printf(&t, "%s kept for 2^%d to 2^%d elements: ", c->keep_eager ? "eager" : "compiled", c->size_class,
                   c->size_class + 1);
    if (c->attaches)
        ep_text_printf(&t, "%s; ",
                       c->keep_attached ? "its pointwise kernel is the products' epilogue"
                                        : "an epilogue of the products was not faster");
    if (c->attaches) say_time(&t, "with epilogue", c->best_ns[EP_RUN_ATTACHED]);
    say_time(&t, c->attaches ? ", without" : "compiled", c->best_ns[EP_RUN_COMPILED]);
    say_time(&t, ", eager", c->best_ns[EP_RUN_EAGER]);
    ep_text_printf(&t, " (best of %d)", samples);
}

/* The epilogue has to be worth its packed weights. */
void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns) {
    if (c->decided) return;
    int n = c->count[who]++;
    if (n < WARM) return; /* the first call of anything pays for what later ones do not */
    if (n == WARM || ns < c->best_ns[who]) c->best_ns[who] = ns;
    int least = c->count[0];
    for (int i = 1; i < runners(c); i++) least = c->count[i] < least ? c->count[i] : least;
    if (least < ENOUGH + WARM) return;
    double compiled = (double)c->best_ns[EP_RUN_COMPILED], eager = (double)c->best_ns[EP_RUN_EAGER];
    bool attached = c->attaches && (double)c->best_ns[EP_RUN_ATTACHED] < 0.97 * compiled;
    if (attached) compiled = (double)c->best_ns[EP_RUN_ATTACHED];
    bool loses = compiled > eager * 1.05 + 100;
    if (loses && least < DOUBT + WARM) return;
    c->decided = true;
    c->keep_eager = loses;
    c->keep_attached = attached && !loses;
    say_why(c, least - WARM);
}
