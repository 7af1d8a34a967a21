/* The compiled function's inside, for blocks and tests. */
#ifndef EP_RUN_COMPILE_H
#define EP_RUN_COMPILE_H

#include <epilogue/compile.h>

#include "base/text.h"
#include "memo.h"

struct ep_compiled {
    ep_context *ctx;
    ep_fn fn;
    void *user;
    int input_count, output_count;
    ep_compile_options options; /* strings are ours */
    ep_kernel_table kernels;
    ep_memo memo;
    ep_pack_list packs;
    ep_binding *last;
    ep_storage *workspace;
    ep_text report;
    int64_t calls, captures, eager_calls, first_call_ns, waited_ns;
    bool verify, no_choice;
    bool attach_always; /* tests: what can be an epilogue is one, from the first call on */
    bool steps_always;  /* tests: chains behind products are done by gemm */
};

/* Refuses what a caller's options may not be. */
ep_status ep_compile_check(ep_context *ctx, const ep_compile_options *options);
/* As ep_compile. `interpret`: no code is generated; the loop nests are run by the plain reference, every graph is
 * verified after each pass, and nothing is timed against eager. */
ep_status ep_compile_with(ep_context *ctx, ep_fn fn, void *user, int input_count, int output_count,
                          const ep_compile_options *options, bool interpret, ep_compiled **out);
/* Has the last called binding's choice between compiled and eager been made? */
bool ep_compiled_settled(const ep_compiled *c);
/* bind.c: capture, passes, loops, kernels, plan for these inputs. */
ep_status ep_compiled_bind(ep_compiled *c, const ep_tensor *const *inputs, ep_binding **out);
/* Makes b->meanwhile, if it is not there. */
ep_status ep_binding_interpret(ep_compiled *c, ep_binding *b);
/* Writes this binding's sizes into the graph of its template. */
ep_status ep_binding_set_sizes(ep_compiled *c, ep_binding *b);
/* Turns a pending binding whose kernels are there into a plan, or gives it up for eager. */
ep_status ep_binding_advance(ep_compiled *c, ep_binding *b);

/* ways.c: the ways that a binding's products leave open, and their plans. */
/* May weights be packed, and pointwise kernels run on tiles of the products of them? */
bool ep_ways_may_pack(const ep_compiled *c);
/* Once its kernels are there: its units, the plan, and the plan whose steps the library does. */
ep_status ep_ways_begin(ep_compiled *c, ep_binding *b);
/* Has weights packed for the ways that may still be taken; once they are, makes the plans of these ways. */
ep_status ep_ways_advance(ep_compiled *c, ep_binding *b);
/* The ways there are plans for, as bits 1 << way; eager is one. */
unsigned ep_ways_there(const ep_binding *b);
/* The choice of bindings was made: drops what the kept way does not need, packed weights too. */
void ep_ways_decided(ep_compiled *c, const ep_choice *choice);
/* Has the choice made again, all ways in it: plans and packed weights are made anew as far as they went. */
ep_status ep_ways_reopen(ep_compiled *c, ep_choice *choice);

#endif
