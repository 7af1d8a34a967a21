/* JSON for programs: commas, escapes, and null for what is unknown. */
#ifndef EPI_JSON_OUT_H
#define EPI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_out {
    FILE *to;
    bool any[32]; /* something was written at this depth */
    char close[32];
    int depth;
} json_out;

/* `key` is NULL for the members of an array and for the outermost value. */
void json_object(json_out *j, const char *key);
void json_array(json_out *j, const char *key);
void json_end(json_out *j);
void json_text(json_out *j, const char *key, const char *text); /* NULL: null */
void json_number(json_out *j, const char *key, double v);       /* NaN and infinities: null */
void json_int(json_out *j, const char *key, int64_t v);
void json_bool(json_out *j, const char *key, bool v);
void json_null(json_out *j, const char *key);
/* Ends everything that is open and the line. */
void json_finish(json_out *j);

#endif
