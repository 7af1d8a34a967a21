/* The tool's JSON writer. */
#include "json_out.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void quote(FILE *to, const char *s) {
    fputc('"', to);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20)
            fprintf(to, "\\u%04x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

static void lead(json_out *j, const char *key) {
    if (j->depth) {
        if (j->any[j->depth - 1]) fputc(',', j->to);
        j->any[j->depth - 1] = true;
        fprintf(j->to, "\n%*s", 2 * j->depth, "");
    }
    if (!key) return;
    quote(j->to, key);
    fputs(": ", j->to);
}

static void open_level(json_out *j, const char *key, char open, char close) {
    lead(j, key);
    fputc(open, j->to);
    if (j->depth == 32) return;
    j->any[j->depth] = false;
    j->close[j->depth++] = close;
}

void json_object(json_out *j, const char *key) {
    open_level(j, key, '{', '}');
}

void json_array(json_out *j, const char *key) {
    open_level(j, key, '[', ']');
}

void json_end(json_out *j) {
    j->depth--;
    if (j->any[j->depth]) fprintf(j->to, "\n%*s", 2 * j->depth, "");
    fputc(j->close[j->depth], j->to);
}

void json_text(json_out *j, const char *key, const char *text) {
    lead(j, key);
    if (text)
        quote(j->to, text);
    else
        fputs("null", j->to);
}

void json_number(json_out *j, const char *key, double v) {
    lead(j, key);
    if (isfinite(v))
        fprintf(j->to, "%.9g", v);
    else
        fputs("null", j->to);
}

void json_int(json_out *j, const char *key, int64_t v) {
    lead(j, key);
    fprintf(j->to, "%" PRId64, v);
}

void json_bool(json_out *j, const char *key, bool v) {
    lead(j, key);
    fputs(v ? "true" : "false", j->to);
}

void json_null(json_out *j, const char *key) {
    lead(j, key);
    fputs("null", j->to);
}

void json_finish(json_out *j) {
    while (j->depth) json_end(j);
    fputc('\n', j->to);
}
