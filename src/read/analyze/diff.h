/* The difference of two traces: regions paired by name, their device work aligned, host work compared by name. */
#ifndef EP_READ_DIFF_H
#define EP_READ_DIFF_H

#include "analyze.h"

typedef enum ep_relation {
    EP_RELATION_SAME,
    EP_RELATION_RENAMED,
    EP_RELATION_FUSED,
    EP_RELATION_SPLIT,
    EP_RELATION_GONE,
    EP_RELATION_NEW,
    EP_RELATION_COUNT
} ep_relation;
const char *ep_relation_name(ep_relation r);

/* One kernel, copy or memset of a region's median instance. */
typedef struct ep_diff_item {
    const char *kernel, *op;       /* op: its owner, or "" */
    const ep_kernel_name *decoded; /* NULL for copies and memsets */
    const ep_work_row *row;
    uint32_t event, node;
    uint32_t key; /* equal names have equal keys in both traces */
    uint8_t cls;
    int64_t ns; /* median over the instances that run the same sequence */
    int32_t pair;
} ep_diff_item;

/* Items of one side of a region. */
typedef struct ep_diff_side {
    const ep_study *study;
    ep_diff_item *items;
    size_t count;
    uint32_t event; /* the region's median instance, or EP_NO_INDEX: the whole trace */
    int64_t instances, host_ns, device_ns, kernels, memsets, copies, launches;
} ep_diff_side;

typedef struct ep_diff_pair {
    ep_relation relation;
    uint32_t *a, *b; /* items, in order */
    size_t a_count, b_count, a_cap, b_cap;
    int64_t a_ns, b_ns, bytes_saved; /* bytes_saved: -1 unknown, else may be 0 */
    bool bytes_known;
} ep_diff_pair;

/* Host work of one name in the median instance. */
typedef struct ep_diff_host {
    const char *name;
    int64_t count[2], self_ns[2];
} ep_diff_host;

typedef struct ep_diff_region {
    const char *name;
    ep_diff_side a, b;
    ep_diff_pair *pairs;
    size_t pair_count, pair_cap;
    ep_diff_host *host;
    size_t host_count, host_cap;
} ep_diff_region;

typedef struct ep_diff_result {
    ep_study *a, *b;
    const char *label_a, *label_b;
    ep_intern names; /* of kernels, both sides */
    ep_diff_region *regions;
    size_t region_count, region_cap;
    size_t main; /* regions[]: what sentences and --fail-on speak of first */
    ep_text summary;
    const char **sentences;
    size_t sentence_count, sentence_cap;
    ep_arena arena;
    bool failed;
} ep_diff_result;

/* A trace has no device events: the host is all there is to compare. */
static inline bool ep_diff_host_only(const ep_diff_result *d) {
    return !d->a->facts->health.device_recorded || !d->b->facts->health.device_recorded;
}
/* diff_align.c: which item of a stands for which of b: match[i] is an index of b, or EP_NO_INDEX. */
bool ep_diff_align(const ep_diff_item *a, size_t n, const ep_diff_item *b, size_t m, uint32_t *match);
/* diff_pairs.c: relations from the alignment, many-to-one among them. */
bool ep_diff_pair_up(ep_diff_result *d, ep_diff_region *r);
/* diff_region.c: regions of both traces by name with their items and host work. */
bool ep_diff_regions(ep_diff_result *d);
/* The region's host work by how much its own time changed, the most first. NULL: no memory. */
const ep_diff_host **ep_diff_host_by_change(const ep_diff_region *r);
/* diff_sentences.c */
bool ep_diff_sentences(ep_diff_result *d);
/* diff_write.c */
void ep_diff_text(ep_diff_result *d, ep_text *out, int width);
void ep_diff_json(ep_diff_result *d, ep_json_out *out);

#endif
