/* "Concrete Inputs" as Kineto writes them: ["", "[2, 2]", "True", "0.1"]. */
#ifndef EP_READ_TORCH_ARGS_H
#define EP_READ_TORCH_ARGS_H

#include <stdbool.h>
#include <stdint.h>

/* Argument `index` as `n` integers: a list of n, a list of one for all, or one number. */
bool ep_torch_ints(const char *concrete, int index, int n, int64_t *out);
/* Argument `index` is True. */
bool ep_torch_flag(const char *concrete, int index);
/* Argument `index` as a list of n flags. */
bool ep_torch_flags(const char *concrete, int index, int n, bool *out);

#endif
