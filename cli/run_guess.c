/* The guess before, the verdicts after. */
#include <string.h>

#include "run.h"

bool run_predict(const run_request *q, const run_setup *s, ep_mode mode, run_result *r) {
    ep_block_request b;
    ep_error err = {0};
    run_block_request(q, s, mode, &b);
    if (mode == EP_MODE_TUNED) b.tuned_pair = ep_block_tuned_pair(s->block, b.batch * b.seq);
    r->predicted = ep_predict_block(&b, &s->machine, &err, &r->prediction) == EP_OK;
    ep_status status =
        q->guess ? ep_guess_read(q->guess, &err, &r->guess) : ep_guess_predict(&b, &s->machine, &err, &r->guess);
    if (status == EP_OK) return true;
    if (q->guess) {
        epi_fail(q->guess, &err);
        return false;
    }
    snprintf(r->verdict_why, sizeof r->verdict_why, "%s", err.message);
    return true;
}

/* Which way a mode takes was open when the guess was made. Now that it is chosen, the claims are of that way. */
bool run_sharpen(const run_request *q, const run_setup *s, ep_mode mode, run_result *r) {
    ep_block_request b;
    ep_error err = {0};
    ep_guess *sharp;
    const ep_compiled *c = mode == EP_MODE_COMPILED ? ep_block_compiled(s->block) : NULL;
    if (q->guess || !r->predicted || r->prediction.kernel_range.low == r->prediction.kernel_range.high) return true;
    run_block_request(q, s, mode, &b);
    if (c) b.answer = ep_compiled_answer(c);
    if (mode == EP_MODE_TUNED) b.tuned_pair = ep_block_tuned_pair(s->block, b.batch * b.seq);
    if (b.answer == EP_ANSWER_UNDECIDED && b.tuned_pair == EP_TUNED_UNDECIDED) return true;
    if (ep_predict_block(&b, &s->machine, &err, &r->sharp) != EP_OK ||
        ep_guess_predict(&b, &s->machine, &err, &sharp) != EP_OK) {
        epi_fail(q->block, &err);
        return false;
    }
    ep_guess_destroy(r->guess);
    r->guess = sharp;
    r->sharpened = true;
    return true;
}

void run_judge(run_result *r) {
    ep_error err = {0};
    if (!r->guess || !r->trace) return;
    if (ep_guess_check(r->guess, r->trace, NULL, &err, &r->verdicts) != EP_OK)
        snprintf(r->verdict_why, sizeof r->verdict_why, "%s", err.message);
}
