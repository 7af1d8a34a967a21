/* What an open weights file knows of itself beyond its tensors. */
#ifndef EP_MODEL_SAFETENSORS_H
#define EP_MODEL_SAFETENSORS_H

#include "tensor.h"

/* The path it was opened with. */
const char *ep_weights_path(const ep_weights *w);
/* The shape as the header states it, no tensor made; false if there is no such name. */
bool ep_weights_shape(const ep_weights *w, const char *name, int *ndim, const int64_t **sizes);

#endif
