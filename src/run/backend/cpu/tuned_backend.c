/* The tuned entries of the backend's struct. */
#include "cpu.h"
#include "tuned.h"

ep_status ep_cpu_pack(ep_backend *b, const ep_pack_request *request, ep_error *err, ep_packed **out) {
    return ep_tuned_pack(b->threads, request, err, out);
}

void ep_cpu_pack_free(ep_backend *b, ep_packed *p) {
    (void)b;
    ep_tuned_pack_free(p);
}

ep_status ep_cpu_gated(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                       ep_tensor *out, ep_error *err) {
    return ep_tuned_gated(b->threads, act, rounding, gate, up, out, err);
}

ep_status ep_cpu_gated_backward(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                ep_error *err) {
    return ep_tuned_gated_backward(b->threads, act, rounding, dy, gate, up, dgate, dup, err);
}
