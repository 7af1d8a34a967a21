/* compile.h: capture a function written in the eager API, fuse it, generate code, guard it, run it. */
#ifndef EPILOGUE_COMPILE_H
#define EPILOGUE_COMPILE_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The user's function: reads inputs[0..input_count), writes outputs[0..output_count). It must not look at data, makes its
 * tensors by the calls of ops.h (views too; an input to be returned goes through ep_view or ep_copy), and must release
 * every tensor it makes but the outputs. It runs under capture once for each class of inputs: dtypes, ranks, which
 * sizes are 0, 1 or larger, how strides lie. Sizes larger than 1 stay open, so a new size is no reason to run it again,
 * unless the function looks at a size (ep_tensor_size and the like, of a tensor it was given or made from one): then that
 * size is guarded, and another one captures again. */
typedef ep_status (*ep_fn)(ep_context *ctx, void *user, const ep_tensor *const *inputs, int input_count,
                           ep_tensor **outputs, int output_count);

/* While an entry compiles, calls are answered by running the function eagerly: its pointwise part has the bits that the
 * code will give. Under EP_ROUNDING_FEWEST eager's bits are others, so there the plan runs with its loop nests walked
 * without code: slower, and with the rounding asked for (on a GPU such a call waits for the compiler). */
typedef enum ep_wait { EP_WAIT_NEVER, EP_WAIT_ALWAYS } ep_wait;
typedef enum ep_specialize { EP_SPECIALIZE_GENERIC, EP_SPECIALIZE_STATIC } ep_specialize;

typedef struct ep_compile_options {
    ep_wait wait;             /* NEVER: while an entry compiles, calls are answered by the eager path (see above) */
    ep_specialize specialize; /* STATIC: sizes are guarded and written into the code */
    /* Tensors that the function uses and was not given are never written to: they may be packed, which takes memory once
     * more, for products whose pointwise kernel runs on their tiles (CPU). */
    bool weights_stay;
    bool no_disk_cache;
    const char *cache_dir;   /* NULL: the user's cache directory */
    double compiler_limit_s; /* 0: 30 s */
    const char *dump_pass;   /* print the IR after this pass ("all": after each) through `dump` */
    void (*dump)(void *user, const char *pass, const char *text);
    void *dump_user;
} ep_compile_options;

/* A compiled function belongs to one thread at a time, as its context does, which must outlive it; what compiles beside
 * calls does so on a thread of the library's. `options` NULL: the defaults, all zero. */
typedef struct ep_compiled ep_compiled;
EP_API ep_status ep_compile(ep_context *ctx, ep_fn fn, void *user, int input_count, int output_count,
                            const ep_compile_options *options, ep_compiled **out);
EP_API void ep_compiled_destroy(ep_compiled *c);
EP_API ep_status ep_compiled_call(ep_compiled *c, const ep_tensor *const *inputs, ep_tensor **outputs);
/* Waits until background compiles are done. */
EP_API ep_status ep_compiled_wait(ep_compiled *c);

typedef struct ep_compile_stats {
    int64_t calls, entries, recompiles, eager_calls; /* eager_calls: answered by eager while an entry compiled */
    int64_t captures; /* how often the function ran under capture; a new size alone is no reason */
    int64_t kernels_generated, kernels_from_disk, build_failures;
    int64_t packed_bytes;       /* weights packed for products with an epilogue */
    int64_t packed_freed_bytes; /* that were packed and are freed, as another way was faster */
    int64_t builds_not_kept;    /* that the disk cache could not take */
    /* Why ("full disk"), or why there is no disk cache; "" if all is well. Lives as the compiled function does. */
    const char *cache_trouble;
    double cold_us;   /* first call to the moment its entry was ready */
    double waited_us; /* time calls spent waiting for a compiler */
} ep_compile_stats;
EP_API void ep_compiled_stats(const ep_compiled *c, ep_compile_stats *out);

/* Why the entries are what they are: guards, failed guards by name, fusion decisions with reasons, kept-eager reasons.
 * One sentence a line; owned by `c`, valid until the next call on it. */
EP_API const char *ep_compiled_report(ep_compiled *c);
/* Which way the last call's sizes are answered and why, in one sentence; "" before that is decided, or while later calls
 * have it decided again (docs/compile.md). Valid until the next call on `c`. */
EP_API const char *ep_compiled_choice(const ep_compiled *c);
/* The same in a word. */
typedef enum ep_answer {
    EP_ANSWER_UNDECIDED,
    EP_ANSWER_PLAN,     /* products, and generated kernels between them */
    EP_ANSWER_POST_OPS, /* f32 steps behind a product done by the library that makes it */
    EP_ANSWER_EPILOGUE, /* generated kernels on the products' tiles, where they can be */
    EP_ANSWER_EAGER
} ep_answer;
EP_API ep_answer ep_compiled_answer(const ep_compiled *c);
/* Generated sources, by index; NULL past the end. Valid until the next call on `c`. */
EP_API const char *ep_compiled_source(ep_compiled *c, size_t index, const char **name);

/* The disk cache of generated kernels, shared by all processes of a user. `dir` NULL: the user's cache directory
 * (EPILOGUE_CACHE_DIR, or epilogue under XDG_CACHE_HOME or ~/.cache). An entry is one source file with what was built
 * from it. `entry` is called newest first; its strings live for the call. */
typedef struct ep_kernel_cache_entry {
    const char *key;    /* 32 hex digits */
    int64_t bytes;      /* on disk */
    int64_t used_ns;    /* last use, ns since 1970 */
    const char *source; /* NULL if the entry is damaged */
} ep_kernel_cache_entry;
EP_API ep_status ep_kernel_cache_each(const char *dir, void (*entry)(void *user, const ep_kernel_cache_entry *e),
                                      void *user, ep_error *err);
EP_API ep_status ep_kernel_cache_clear(const char *dir, ep_error *err, size_t *removed);
/* The folder in use, or "" with the reason in `err`. */
EP_API ep_status ep_kernel_cache_dir(const char *dir, char *out, size_t size, ep_error *err);

#ifdef __cplusplus
}
#endif
#endif
