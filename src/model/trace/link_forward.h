/* Part of link.c: fills `forwards` once parents are known. */
#ifndef EP_MODEL_LINK_FORWARD_H
#define EP_MODEL_LINK_FORWARD_H

#include "trace.h"

/* first[lane] .. first[lane + 1]: a lane's part of l->order. False: memory is out. */
bool link_forward(const ep_trace *t, ep_links *l, const size_t *first);

#endif
