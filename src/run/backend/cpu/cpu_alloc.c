/* Size classes, a free list of each for the thread that allocated first (no lock, no atomic), a locked one for all other
 * threads. Cached memory is bounded by the peak in use and some slack; beyond it the largest blocks go back. */
#define _GNU_SOURCE
#include "cpu_alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(p, n) ((void)(p), (void)(n))
#define __asan_unpoison_memory_region(p, n) ((void)(p), (void)(n))
#endif

/* Classes: 64 bytes, then four an octave; from 1 MiB on eight, so that a large block wastes an eighth at most. */
enum { SMALL_BITS = 6, LARGE_BITS = 20, MOST_BITS = 46 };
enum { SMALL_CLASSES = 1 + 4 * (LARGE_BITS - SMALL_BITS), CLASSES = SMALL_CLASSES + 8 * (MOST_BITS - LARGE_BITS) };
#define HUGE_PAGE ((size_t)2 << 20)
#define SLACK ((int64_t)256 << 20)

typedef struct block {
    ep_storage storage; /* first: a storage is its block */
    struct block *next;
    int size_class;
    bool in_front; /* this struct lies in front of the data, in one allocation */
} block;

/* Counters are written by one thread at a time (the owner, or under the lock) and read by any. */
typedef struct lists {
    block *free[CLASSES];
    atomic_int_fast64_t live, in_use, cached; /* storages, bytes; may be negative: what is taken here may end there */
} lists;

struct ep_cpu_pool {
    lists mine; /* of the owner: the thread that allocated first, for as long as the pool lives */
    const void *owner;
    atomic_bool closed;
    atomic_int_fast64_t peak, system_allocations;
    pthread_mutex_t lock; /* for others */
    lists others;
};

static _Thread_local char this_thread; /* its address tells threads apart */

int ep_cpu_size_class(size_t bytes) {
    if (bytes <= 64) return 0;
    int top = 63 - __builtin_clzll(bytes - 1); /* 2^top < bytes <= 2^(top + 1) */
    if (top < LARGE_BITS) return 1 + 4 * (top - SMALL_BITS) + (int)((bytes - 1) >> (top - 2) & 3);
    if (top >= MOST_BITS) return -1;
    return SMALL_CLASSES + 8 * (top - LARGE_BITS) + (int)((bytes - 1) >> (top - 3) & 7);
}

size_t ep_cpu_class_bytes(int c) {
    if (c == 0) return 64;
    if (c < SMALL_CLASSES) return (size_t)(5 + (c - 1) % 4) << (SMALL_BITS + (c - 1) / 4 - 2);
    c -= SMALL_CLASSES;
    return (size_t)(9 + c % 8) << (LARGE_BITS + c / 8 - 3);
}

static void add(atomic_int_fast64_t *counter, int64_t n) {
    int64_t now = atomic_load_explicit(counter, memory_order_relaxed) + n;
    atomic_store_explicit(counter, now, memory_order_release);
}

static int64_t get(const atomic_int_fast64_t *counter) {
    return atomic_load_explicit(counter, memory_order_acquire);
}

static void give_back(block *b) {
    __asan_unpoison_memory_region(b->storage.data, ep_cpu_class_bytes(b->size_class));
    if (!b->in_front) free(b->storage.data);
    free(b);
}

/* Largest blocks first: they are few and hold most. */
static void trim_to(lists *l, int64_t most) {
    for (int c = CLASSES - 1; c >= 0 && get(&l->cached) > most; c--) {
        while (l->free[c] && get(&l->cached) > most) {
            block *b = l->free[c];
            l->free[c] = b->next;
            add(&l->cached, -(int64_t)ep_cpu_class_bytes(c));
            give_back(b);
        }
    }
}

static void destroy(ep_cpu_pool *p) {
    trim_to(&p->mine, 0);
    trim_to(&p->others, 0);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

ep_status ep_cpu_pool_create(ep_error *err, ep_cpu_pool **out) {
    ep_cpu_pool *p = calloc(1, sizeof *p);
    if (!p) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes for an allocator could not be allocated", sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return EP_OK;
}

static int64_t live(const ep_cpu_pool *p) {
    return get(&p->mine.live) + get(&p->others.live);
}

void ep_cpu_pool_close(ep_cpu_pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->closed, true);
    bool last = live(p) == 0;
    pthread_mutex_unlock(&p->lock);
    if (last) destroy(p);
}

static bool is_owner(const ep_cpu_pool *p) {
    return p->owner == &this_thread;
}

static void put(lists *l, block *b) {
    b->next = l->free[b->size_class];
    l->free[b->size_class] = b;
    add(&l->cached, (int64_t)ep_cpu_class_bytes(b->size_class));
    add(&l->in_use, -(int64_t)b->storage.bytes);
    add(&l->live, -1); /* last: nobody may end the pool before the list is whole */
}

static block *take(lists *l, int c, size_t bytes) {
    block *b = l->free[c];
    if (b) {
        l->free[c] = b->next;
        add(&l->cached, -(int64_t)ep_cpu_class_bytes(c));
    }
    add(&l->live, 1);
    add(&l->in_use, (int64_t)bytes);
    return b;
}

static void untake(lists *l, size_t bytes) {
    add(&l->in_use, -(int64_t)bytes);
    add(&l->live, -1);
}

/* What may stay cached: as much as was ever in use at once, and some slack for other sizes. */
static int64_t most_cached(const ep_cpu_pool *p) {
    return get(&p->peak) + SLACK;
}

static void release_shared(ep_cpu_pool *p, block *b) {
    pthread_mutex_lock(&p->lock);
    put(&p->others, b);
    bool closed = atomic_load(&p->closed), last = closed && live(p) == 0;
    if (closed || get(&p->others.cached) > most_cached(p)) trim_to(&p->others, closed ? 0 : most_cached(p) / 2);
    pthread_mutex_unlock(&p->lock);
    if (last) destroy(p);
}

static void release(ep_storage *s) {
    block *b = (block *)s;
    ep_cpu_pool *p = s->owner;
    __asan_poison_memory_region(s->data, ep_cpu_class_bytes(b->size_class));
    if (!is_owner(p) || atomic_load_explicit(&p->closed, memory_order_relaxed)) {
        release_shared(p, b);
        return;
    }
    put(&p->mine, b);
    if (__builtin_expect(get(&p->mine.cached) > SLACK, 0) && get(&p->mine.cached) > most_cached(p))
        trim_to(&p->mine, most_cached(p) / 2);
}

/* Up to 64 KiB the struct lies in front of its data; beyond it a page would be lost to it. */
static block *from_system(size_t bytes) {
    enum { FRONT = 128 };
    _Static_assert(sizeof(block) <= FRONT, "the struct fits in front");
    if (bytes <= 65536) {
        block *b = aligned_alloc(64, (FRONT + bytes + 63) / 64 * 64);
        if (!b) return NULL;
        b->storage.data = (char *)b + FRONT;
        b->in_front = true;
        return b;
    }
    block *b = malloc(sizeof *b);
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
    void *data = b ? aligned_alloc(align, (bytes + align - 1) / align * align) : NULL;
    if (!data) {
        free(b);
        return NULL;
    }
    if (align == HUGE_PAGE) madvise(data, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    b->storage.data = data;
    b->in_front = false;
    return b;
}

static block *fresh(ep_cpu_pool *p, int c) {
    size_t bytes = ep_cpu_class_bytes(c);
    block *b = from_system(bytes);
    if (!b) {
        ep_cpu_pool_trim(p);
        b = from_system(bytes);
    }
    if (!b) return NULL;
    b->size_class = c;
    b->storage.device = (ep_device){EP_DEVICE_CPU, 0};
    b->storage.release = release;
    b->storage.owner = p;
    b->storage.deleter = NULL;
    __asan_poison_memory_region(b->storage.data, bytes);
    atomic_fetch_add_explicit(&p->system_allocations, 1, memory_order_relaxed);
    return b;
}

static ep_status too_large(size_t bytes, ep_error *err) {
    return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes for a tensor could not be allocated", bytes);
}

static void note_peak(ep_cpu_pool *p) {
    int64_t now = get(&p->mine.in_use) + get(&p->others.in_use);
    if (now > get(&p->peak)) atomic_store_explicit(&p->peak, now, memory_order_relaxed);
}

static void ready(ep_cpu_pool *p, block *b, size_t bytes, ep_storage **out) {
    __asan_unpoison_memory_region(b->storage.data, bytes);
    atomic_store_explicit(&b->storage.refs, 1, memory_order_relaxed);
    b->storage.bytes = bytes;
    note_peak(p);
    *out = &b->storage;
}

static ep_status storage_shared(ep_cpu_pool *p, int c, size_t bytes, ep_error *err, ep_storage **out) {
    pthread_mutex_lock(&p->lock);
    block *b = take(&p->others, c, bytes);
    pthread_mutex_unlock(&p->lock);
    if (!b) b = fresh(p, c);
    if (!b) {
        pthread_mutex_lock(&p->lock);
        untake(&p->others, bytes);
        pthread_mutex_unlock(&p->lock);
        return too_large(bytes, err);
    }
    ready(p, b, bytes, out);
    return EP_OK;
}

ep_status ep_cpu_pool_storage(ep_cpu_pool *p, size_t bytes, ep_error *err, ep_storage **out) {
    int c = ep_cpu_size_class(bytes);
    if (c < 0) return too_large(bytes, err);
    if (__builtin_expect(!p->owner, 0)) p->owner = &this_thread;
    if (__builtin_expect(!is_owner(p), 0)) return storage_shared(p, c, bytes, err, out);
    block *b = take(&p->mine, c, bytes);
    if (__builtin_expect(!b, 0)) b = fresh(p, c);
    if (!b) {
        untake(&p->mine, bytes);
        return too_large(bytes, err);
    }
    ready(p, b, bytes, out);
    return EP_OK;
}

void ep_cpu_pool_stats(ep_cpu_pool *p, ep_memory_stats *out) {
    *out = (ep_memory_stats){.bytes_in_use = get(&p->mine.in_use) + get(&p->others.in_use),
                             .bytes_cached = get(&p->mine.cached) + get(&p->others.cached),
                             .peak_bytes = get(&p->peak),
                             .system_allocations = get(&p->system_allocations)};
}

void ep_cpu_pool_trim(ep_cpu_pool *p) {
    if (is_owner(p)) trim_to(&p->mine, 0);
    pthread_mutex_lock(&p->lock);
    trim_to(&p->others, 0);
    pthread_mutex_unlock(&p->lock);
}
