/* status.h: what every fallible call returns, and the caller-owned record of what went wrong.
 *
 * Every fallible function returns ep_status; its result comes through the last pointer. On any status but EP_OK the
 * result pointer is left untouched. Where a function takes `ep_error *err` it may be NULL; if not, it is filled on
 * failure and left alone on success. A fallible function refuses NULL where it needs an object (invalid_argument), and
 * _destroy takes it; the plain getters (ep_tensor_size, ep_block_dim...) need one. Libraries never print, exit or abort. */
#ifndef EPILOGUE_STATUS_H
#define EPILOGUE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define EP_API __attribute__((visibility("default")))
#define EP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define EP_API
#define EP_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* EP_OK is 0; the other codes follow the rows of errors.def in order. New rows are only ever added at the end. */
typedef enum ep_status {
#define EP_ERROR(code, name, sentence) EP_STATUS_ROW_##code,
#include "errors.def"
#undef EP_ERROR
    EP_STATUS_COUNT
} ep_status;

#define EP_OK EP_STATUS_ROW_OK
#define EP_ERROR_INVALID_ARGUMENT EP_STATUS_ROW_INVALID_ARGUMENT
#define EP_ERROR_SHAPE EP_STATUS_ROW_SHAPE
#define EP_ERROR_DTYPE EP_STATUS_ROW_DTYPE
#define EP_ERROR_DEVICE EP_STATUS_ROW_DEVICE
#define EP_ERROR_STRIDE EP_STATUS_ROW_STRIDE
#define EP_ERROR_OVERFLOW EP_STATUS_ROW_OVERFLOW
#define EP_ERROR_OUT_OF_MEMORY EP_STATUS_ROW_OUT_OF_MEMORY
#define EP_ERROR_IO EP_STATUS_ROW_IO
#define EP_ERROR_NOT_FOUND EP_STATUS_ROW_NOT_FOUND
#define EP_ERROR_AMBIGUOUS EP_STATUS_ROW_AMBIGUOUS
#define EP_ERROR_FORMAT EP_STATUS_ROW_FORMAT
#define EP_ERROR_PARSE EP_STATUS_ROW_PARSE
#define EP_ERROR_TRUNCATED EP_STATUS_ROW_TRUNCATED
#define EP_ERROR_UNSUPPORTED EP_STATUS_ROW_UNSUPPORTED
#define EP_ERROR_NOT_BUILT EP_STATUS_ROW_NOT_BUILT
#define EP_ERROR_MISSING_LIBRARY EP_STATUS_ROW_MISSING_LIBRARY
#define EP_ERROR_CAPTURE EP_STATUS_ROW_CAPTURE
#define EP_ERROR_COMPILER EP_STATUS_ROW_COMPILER
#define EP_ERROR_CACHE EP_STATUS_ROW_CACHE
#define EP_ERROR_GUARD EP_STATUS_ROW_GUARD
#define EP_ERROR_DRIVER EP_STATUS_ROW_DRIVER
#define EP_ERROR_BUSY EP_STATUS_ROW_BUSY
#define EP_ERROR_STATE EP_STATUS_ROW_STATE
#define EP_ERROR_INTERNAL EP_STATUS_ROW_INTERNAL

/* What went wrong, where, in one sentence. Owned by the caller; holds no pointers. */
typedef struct ep_error {
    ep_status status;
    int64_t position;  /* byte offset in the input, or -1 */
    int32_t line;      /* 1-based line in a text input, or 0 */
    int32_t column;    /* 1-based column in bytes, or 0 */
    char message[464]; /* one sentence naming the value and the limit; always terminated */
} ep_error;

/* The name ("shape") and sentence of a status; never NULL, any value accepted. Static strings. Any thread. */
EP_API const char *ep_status_name(ep_status status);
EP_API const char *ep_status_sentence(ep_status status);

/* The version of the library as "major.minor.patch". Static string. */
EP_API const char *ep_version(void);

#ifdef __cplusplus
}
#endif
#endif
