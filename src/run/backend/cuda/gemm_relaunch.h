/* What a library call launches, learned once and launched again by the driver alone. */
#ifndef EP_CUDA_GEMM_RELAUNCH_H
#define EP_CUDA_GEMM_RELAUNCH_H

#include "cuda_state.h"

/* The addresses that change from call to call; 0 where a call has none. */
enum { RELAUNCH_A, RELAUNCH_B, RELAUNCH_OUT, RELAUNCH_BIAS, RELAUNCH_POINTERS };

typedef struct cuda_relaunch cuda_relaunch;

/* Makes the library call for these addresses on this stream; 0 is success. It is called while the stream is captured, also
 * with addresses at which nothing lies. */
typedef int cuda_enqueue(void *user, const uint64_t *pointers, cu_stream stream);

/* Captures the call for three sets of addresses and works out how its launches depend on them. NULL, with a sentence in
 * `why`, unless the third is exactly what the first two foretell. */
cuda_relaunch *cuda_relaunch_learn(cuda_state *s, const uint64_t *pointers, cuda_enqueue *enqueue, void *user,
                                   const char **why);
/* `l` is the work that a capture is told of. */
cu_result cuda_relaunch_run(cuda_state *s, cuda_relaunch *r, const uint64_t *pointers, const cuda_launch *l);
void cuda_relaunch_free(cuda_relaunch *r);

#endif
