/* Any bytes as JSON: the same answer from memory and through the smallest windows; what the strict parser takes, the
 * tolerant one takes alike and without a mend; what is copied parses to the same text. */
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct answer {
    ep_status status;
    ep_text text;
    int mends;
    int64_t position;
} answer;

static void count(void *user, const char *kind, int64_t offset) {
    if (!kind[0] || offset < 0) abort();
    ++*(int *)user;
}

static answer parse(const char *data, size_t size, bool tolerant, size_t window) {
    answer a = {0};
    ep_error err = {.position = -1};
    ep_stream_in *stream = NULL;
    ep_json_in j;
    if (window) {
        if (ep_stream_memory(data, size, &err, &stream) != EP_OK) abort();
        if (ep_json_open_stream(&j, stream, window, &err) != EP_OK) abort();
    } else {
        ep_json_open_memory(&j, data, size, &err);
    }
    j.tolerant = tolerant;
    j.mend = count;
    j.mend_user = &a.mends;
    a.status = ep_json_copy(&j, &a.text, SIZE_MAX, NULL);
    ep_json_token t;
    if (a.status == EP_OK) a.status = ep_json_next(&j, &t);
    if (a.status != EP_OK && (err.position < 0 || err.position > (int64_t)size || !err.message[0])) abort();
    a.position = err.position;
    ep_json_close(&j);
    ep_stream_close(stream);
    return a;
}

static void same(const answer *a, const answer *b) {
    if (a->status != b->status || a->mends != b->mends) abort();
    if (a->status == EP_OK ? a->text.len != b->text.len || memcmp(a->text.data, b->text.data, a->text.len) != 0
                           : a->position != b->position)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) return 0; /* a stream would unpack it */
    const char *text = (const char *)data;
    answer strict = parse(text, size, false, 0), tolerant = parse(text, size, true, 0);
    answer narrow = parse(text, size, false, 4), narrow_tolerant = parse(text, size, true, 7);
    same(&strict, &narrow);
    same(&tolerant, &narrow_tolerant);
    if (strict.status == EP_OK) {
        same(&strict, &tolerant);
        if (strict.mends) abort();
    }
    if (tolerant.status == EP_OK) {
        answer again = parse(tolerant.text.data, tolerant.text.len, false, 0);
        if (again.status != EP_OK || again.text.len != tolerant.text.len ||
            memcmp(again.text.data, tolerant.text.data, again.text.len) != 0)
            abort();
        ep_text_free(&again.text);
    }
    ep_text_free(&strict.text);
    ep_text_free(&tolerant.text);
    ep_text_free(&narrow.text);
    ep_text_free(&narrow_tolerant.text);
    return 0;
}
