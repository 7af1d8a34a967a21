/* Names and sentences of errors.def, and the one way an error is filled. */
#include "status.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define EP_ERROR(code, name, sentence) name,
#include <epilogue/errors.def>
#undef EP_ERROR
};

static const char *const sentences[] = {
#define EP_ERROR(code, name, sentence) sentence,
#include <epilogue/errors.def>
#undef EP_ERROR
};

const char *ep_status_name(ep_status status) {
    return (unsigned)status < EP_STATUS_COUNT ? names[status] : "unknown";
}

const char *ep_status_sentence(ep_status status) {
    return (unsigned)status < EP_STATUS_COUNT ? sentences[status] : "not a status of this library";
}

const char *ep_version(void) {
    return EP_VERSION;
}

static ep_status fill(ep_error *err, ep_status status, int64_t position, int line, int column, const char *fmt,
                      va_list args) {
    if (!err) return status;
    err->status = status;
    err->position = position;
    err->line = line;
    err->column = column;
    vsnprintf(err->message, sizeof err->message, fmt, args);
    return status;
}

ep_status ep_fail(ep_error *err, ep_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fill(err, status, -1, 0, 0, fmt, args);
    va_end(args);
    return status;
}

ep_status ep_fail_at(ep_error *err, ep_status status, int64_t position, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fill(err, status, position, 0, 0, fmt, args);
    va_end(args);
    return status;
}

ep_status ep_fail_line(ep_error *err, ep_status status, int line, int column, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fill(err, status, -1, line, column, fmt, args);
    va_end(args);
    return status;
}
