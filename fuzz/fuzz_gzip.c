/* Any bytes as gzip data: unpacked as far as they go. And any bytes as a text: packed in two members, cut anywhere, what
 * comes out is a prefix of it, and the cut is told. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 1 << 16, MOST = 1 << 22 };

static size_t drain(const uint8_t *data, size_t size, uint8_t *out, size_t cap, ep_stream_state *state) {
    ep_stream_in *in;
    ep_error err;
    size_t n = 0, got = 1;
    static uint8_t rest[4096];
    if (ep_stream_memory(data, size, &err, &in) != EP_OK) abort();
    while (got && n < MOST) {
        bool fits = n < cap;
        if (ep_stream_read(in, fits ? out + n : rest, fits ? cap - n : sizeof rest, &err, &got) != EP_OK) abort();
        n += got;
    }
    *state = ep_stream_get_state(in);
    ep_stream_close(in);
    return n;
}

static size_t pack(const uint8_t *data, size_t size, uint8_t *out, size_t cap) {
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
    deflateEnd(&z);
    return cap - z.avail_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t packed[2 * ROOM], out[ROOM];
    ep_stream_state state;
    drain(data, size, out, sizeof out, &state);
    if (size < 2 || size > ROOM / 2) return 0;
    size_t split = data[0] * size / 256, n = pack(data, split, packed, sizeof packed);
    n += pack(data + split, size - split, packed + n, sizeof packed - n);
    size_t got = drain(packed, n, out, sizeof out, &state);
    if (got != size || memcmp(out, data, size) != 0 || state.cut || state.damaged || state.trailing) abort();
    size_t cut = 2 + data[1] * (n - 2) / 256;
    got = drain(packed, cut, out, sizeof out, &state);
    if (got > size || memcmp(out, data, got) != 0 || state.damaged) abort();
    if (!state.cut && got != split) abort(); /* only between the members a cut does not show */
    return 0;
}
