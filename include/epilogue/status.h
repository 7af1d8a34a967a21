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

/* EP_OK is 0; the codes follow the rows of errors.def in order. */
typedef enum ep_status {
#define EP_ERROR(code, name, sentence) code,
#include "errors.def"
#undef EP_ERROR
    EP_STATUS_COUNT
} ep_status;

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
