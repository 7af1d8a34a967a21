/* What a compiled function remembers: templates (a captured graph after all passes, its sizes symbols), bindings (a plan
 * for one set of input sizes, made from a template) and entries (what their code rests on; many bindings share one). */
#ifndef EP_RUN_MEMO_H
#define EP_RUN_MEMO_H

#include "attach.h"
#include "capture.h"
#include "choice.h"
#include "kernel_table.h"
#include "plan.h"
#include "run/graph/guard.h"

enum {
    EP_MEMO_BINDINGS = 128,
    EP_MEMO_TEMPLATES = 64
}; /* the least recently used goes; its code stays, so it comes back without a compile */

typedef enum ep_binding_state { EP_BINDING_PENDING, EP_BINDING_READY, EP_BINDING_EAGER } ep_binding_state;

/* Its graph holds the numbers of the binding that was made last. */
typedef struct ep_template {
    ep_captured captured;
    int bindings; /* made from it and still there */
    int64_t used;
} ep_template;

typedef struct ep_binding {
    ep_fact *facts; /* by input */
    ep_template *from;
    int64_t *symbols;      /* the numbers of from's symbols */
    ep_plan_kernel *loops; /* by group, bound to these sizes */
    ep_kernel **kernels;   /* by group */
    size_t kernel_count;
    ep_plan *plans[EP_RUNNERS]; /* NULL: not there; never one of EP_RUN_EAGER. ATTACHED and MIXED are made on demand */
    int mix;                    /* the choice's, when plans[EP_RUN_MIXED] was made */
    ep_plan *meanwhile;         /* runs the loop nests without code, where eager's rounding would be another */
    const ep_plan *fast;        /* what answers, once that is decided; NULL: ask */
    bool by_eager;              /* nothing but eager can answer faster, as long as the choice says so */
    int32_t *unit_of;           /* by node of the graph: the unit of the choice it belongs to, or -1 */
    int unit_count;
    ep_attach *attaches; /* what can be made of packed weights */
    ep_pack **packs;     /* EP_TUNED_PRODUCTS for each of them; NULL: not asked for */
    int attach_count;
    ep_attach_state attach;
    ep_binding_state state;
    int entry;
    ep_choice *choice;
    int64_t elements; /* of all inputs, and one */
    int64_t used;
} ep_binding;

typedef struct ep_entry {
    uint64_t key;
    ep_fact *facts;   /* of the call that made it */
    char *reasons;    /* fusion decisions, a line each */
    char failed[256]; /* the guard whose failure made it; "" for the first */
    char *guards;     /* what its code rests on, a line an input */
    int kernels;
} ep_entry;

typedef struct ep_memo {
    ep_binding *bindings[EP_MEMO_BINDINGS];
    uint64_t hashes[EP_MEMO_BINDINGS];
    int count;
    int64_t tick;
    ep_template **templates;
    size_t template_count, template_cap;
    ep_entry *entries;
    size_t entry_count, entry_cap;
    ep_choice **choices;
    size_t choice_count, choice_cap;
} ep_memo;

ep_binding *ep_memo_find(ep_memo *m, int input_count, const ep_tensor *const *inputs, uint64_t hash);
/* A template whose guards these inputs meet, its symbols' numbers in *symbols (the caller's to free); NULL: none. */
ep_template *ep_memo_template(ep_memo *m, int input_count, const ep_fact *facts, int64_t **symbols);
/* Takes what was captured; a template that no binding uses may make room. NULL when memory is out. */
ep_template *ep_memo_add_template(ep_memo *m, ep_captured *c);
/* Takes the binding; may end the one used longest ago. */
void ep_memo_add(ep_memo *m, ep_binding *b, uint64_t hash);
/* The entry of this key, or a new one (*fresh) made of the binding's facts; -1 when memory is out. The failed guard is
 * told from the entry whose facts differ least. */
int ep_memo_entry(ep_memo *m, uint64_t key, const ep_binding *b, int input_count, bool fixed, bool *fresh);
/* The choice of an entry for inputs of this many elements (by powers of two). */
ep_choice *ep_memo_choice(ep_memo *m, int entry, int64_t elements);
/* The share of its attach `at` in packed weights goes back; ep_pack_list_trim frees what nobody has a share in. */
void ep_binding_release_packs(ep_binding *b, int at);
void ep_binding_destroy(ep_binding *b);
void ep_memo_clear(ep_memo *m);

#endif
