/* The steps in which facts are made; each reads what the ones before it filled in. */
#ifndef EP_READ_FACTS_PARTS_H
#define EP_READ_FACTS_PARTS_H

#include "facts.h"

/* facts_kernels.c: kernels, their names, devices. */
bool facts_kernels(ep_facts *f);
bool facts_names(ep_facts *f);
bool facts_devices(ep_facts *f);
/* attribute.c: op_kernels, ops. */
bool facts_ops(ep_facts *f);
/* facts_regions.c */
bool facts_regions(ep_facts *f);
/* health.c */
bool facts_health(ep_facts *f);

/* What launches brought. Running sums over a set of launches in time order are kept for every LAUNCH_BLOCK-th of them:
 * sums[i] is over the ones before launch i * LAUNCH_BLOCK, and the rest is added up when asked for. */
typedef struct launch_sum {
    int64_t device_ns, kernel_ns;
    uint32_t kernels, memcpys, memsets, launches;
} launch_sum;
enum { LAUNCH_BLOCK = 8 };
static inline size_t facts_sum_count(size_t launches) {
    return launches / LAUNCH_BLOCK + 1;
}
/* `rows`: n runtime calls in time order that launch or have device work. */
void facts_sum_launches(const ep_facts *f, const uint32_t *rows, size_t n, launch_sum *sums);
/* The sum over the launches with from <= ts < to. *near: where the last answer was found; questions come in time order. */
launch_sum facts_sum_between(const ep_facts *f, const uint32_t *rows, const launch_sum *sums, size_t n, int64_t from,
                             int64_t to, size_t *near);
/* Has a runtime call the name of one that launches kernels? */
bool facts_launches(const ep_facts *f, uint32_t call);
/* Does the row launch, or has it device work? */
bool facts_is_call(const ep_facts *f, uint32_t row);
/* Device work at a time that cannot be: the profiler lost it. */
bool facts_impossible(const ep_trace *t, size_t row);

#endif
