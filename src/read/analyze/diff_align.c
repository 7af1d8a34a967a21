/* Aligns two sequences of device work: equal ends first, then a table of best scores; long sequences are cut at names
 * that occur once on both sides, and, where there are none, into blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "diff.h"

enum { CELLS = 1 << 21, BLOCK = 1000 };

static bool same_sizes(const ep_work_row *a, const ep_work_row *b) {
    return a->gemm && b->gemm && a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch;
}

/* How well two items stand for each other; 0: not at all. */
static int score(const ep_diff_item *a, const ep_diff_item *b) {
    if (a->key == b->key) return 10;
    if (a->cls != b->cls) return 0;
    bool op = a->op[0] && strcmp(a->op, b->op) == 0;
    bool family =
        a->decoded && b->decoded && a->decoded->family[0] && strcmp(a->decoded->family, b->decoded->family) == 0;
    switch (a->cls) {
    case EP_CLASS_GEMM: return same_sizes(a->row, b->row) ? 8 : op ? 6 : 4;
    case EP_CLASS_ATTENTION:
    case EP_CLASS_CONV:
    case EP_CLASS_NORM:
    case EP_CLASS_COLLECTIVE: return op ? 7 : 6;
    case EP_CLASS_MEMSET: return 8;
    case EP_CLASS_OTHER: return op ? 5 : 1;
    default: return op || family ? 7 : 3;
    }
}

static bool table(const ep_diff_item *a, size_t n, const ep_diff_item *b, size_t m, uint32_t base, uint32_t *match) {
    uint32_t *best = ep_malloc_array((n + 1) * (m + 1), sizeof *best);
    if (!best) return false;
    size_t w = m + 1;
    for (size_t i = n + 1; i-- > 0;)
        for (size_t j = m + 1; j-- > 0;) {
            uint32_t v = 0;
            if (i < n && best[(i + 1) * w + j] > v) v = best[(i + 1) * w + j];
            if (j < m && best[i * w + j + 1] > v) v = best[i * w + j + 1];
            uint32_t s = i < n && j < m ? (uint32_t)score(&a[i], &b[j]) : 0;
            if (s && best[(i + 1) * w + j + 1] + s > v) v = best[(i + 1) * w + j + 1] + s;
            best[i * w + j] = v;
        }
    for (size_t i = 0, j = 0; i < n && j < m;) {
        uint32_t s = (uint32_t)score(&a[i], &b[j]);
        if (s && best[i * w + j] == best[(i + 1) * w + j + 1] + s)
            match[i++] = base + (uint32_t)j++;
        else if (best[i * w + j] == best[(i + 1) * w + j])
            i++;
        else
            j++;
    }
    free(best);
    return true;
}

typedef struct sighting {
    uint32_t key, at;
    bool from_b;
} sighting;

static int by_key(const void *x, const void *y) {
    const sighting *a = x, *b = y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->from_b != b->from_b ? (a->from_b ? 1 : -1) : (a->at < b->at ? -1 : a->at > b->at);
}

static int by_place(const void *x, const void *y) {
    const uint32_t *a = x, *b = y;
    return a[0] < b[0] ? -1 : a[0] > b[0];
}

/* Places (i, j) of names that occur once in a and once in b, the longest rising run of them. */
static uint32_t (*anchors(const ep_diff_item *a, size_t n, const ep_diff_item *b, size_t m, size_t *count))[2] {
    sighting *list = ep_malloc_array(n + m, sizeof *list);
    uint32_t(*found)[2] = ep_malloc_array(n + 1, sizeof *found);
    uint32_t *tail = ep_malloc_array(n + 1, sizeof *tail), *back = ep_malloc_array(n + 1, sizeof *back);
    size_t pairs = 0, length = 0;
    *count = 0;
    if (!list || !found || !tail || !back) goto fail;
    for (size_t i = 0; i < n; i++) list[i] = (sighting){a[i].key, (uint32_t)i, false};
    for (size_t j = 0; j < m; j++) list[n + j] = (sighting){b[j].key, (uint32_t)j, true};
    qsort(list, n + m, sizeof *list, by_key);
    for (size_t k = 0; k < n + m;) {
        size_t e = k;
        while (e < n + m && list[e].key == list[k].key) e++;
        if (e == k + 2 && !list[k].from_b && list[k + 1].from_b)
            found[pairs][0] = list[k].at, found[pairs++][1] = list[k + 1].at;
        k = e;
    }
    qsort(found, pairs, sizeof *found, by_place);
    for (uint32_t k = 0; k < pairs; k++) { /* patience: the longest run rising in b too */
        size_t low = 0, high = length;
        while (low < high) {
            size_t mid = (low + high) / 2;
            if (found[tail[mid]][1] < found[k][1])
                low = mid + 1;
            else
                high = mid;
        }
        back[k] = low ? tail[low - 1] : EP_NO_INDEX;
        tail[low] = k;
        if (low == length) length++;
    }
    for (uint32_t k = length ? tail[length - 1] : EP_NO_INDEX, at = (uint32_t)length; k != EP_NO_INDEX; k = back[k])
        tail[--at] = k;
    for (size_t k = 0; k < length; k++) { /* tail[] rises, so no place is overwritten before it is read */
        found[k][0] = found[tail[k]][0];
        found[k][1] = found[tail[k]][1];
    }
    *count = length;
    free(list), free(tail), free(back);
    return found;
fail:
    free(list), free(tail), free(back), free(found);
    return NULL;
}

static bool blocks(const ep_diff_item *a, size_t n, const ep_diff_item *b, size_t m, uint32_t base, uint32_t *match) {
    size_t parts = (n > m ? n : m) / BLOCK + 1;
    for (size_t p = 0; p < parts; p++) {
        size_t i = n * p / parts, i2 = n * (p + 1) / parts, j = m * p / parts, j2 = m * (p + 1) / parts;
        if (!table(a + i, i2 - i, b + j, j2 - j, base + (uint32_t)j, match + i)) return false;
    }
    return true;
}

static bool align(const ep_diff_item *a, size_t n, const ep_diff_item *b, size_t m, uint32_t base, uint32_t *match,
                  int depth) {
    while (n && m && a[0].key == b[0].key) {
        *match++ = base++;
        a++, b++, n--, m--;
    }
    while (n && m && a[n - 1].key == b[m - 1].key) {
        match[n - 1] = base + (uint32_t)m - 1;
        n--, m--;
    }
    if (!n || !m) return true;
    if (n * m <= CELLS) return table(a, n, b, m, base, match);
    size_t count = 0;
    uint32_t(*at)[2] = depth < 8 ? anchors(a, n, b, m, &count) : NULL;
    if (depth < 8 && !at) return false;
    bool ok = true;
    size_t i = 0, j = 0;
    for (size_t k = 0; ok && k < count; k++) {
        ok = align(a + i, at[k][0] - i, b + j, at[k][1] - j, base + (uint32_t)j, match + i, depth + 1);
        match[at[k][0]] = base + at[k][1];
        i = at[k][0] + 1, j = at[k][1] + 1;
    }
    if (ok && count)
        ok = align(a + i, n - i, b + j, m - j, base + (uint32_t)j, match + i, depth + 1);
    else if (ok)
        ok = blocks(a, n, b, m, base, match);
    free(at);
    return ok;
}

bool ep_diff_align(const ep_diff_item *a, size_t n, const ep_diff_item *b, size_t m, uint32_t *match) {
    for (size_t i = 0; i < n; i++) match[i] = EP_NO_INDEX;
    return align(a, n, b, m, 0, match, 0);
}
