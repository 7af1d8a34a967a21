/* Any event, through the tolerant pull parser: the reference for kineto_fast.c, and what mends damage. */
#include <string.h>

#include "base/json_write.h"
#include "kineto.h"

enum { ARGS_LIMIT = 1 << 24 };

static bool keep(kineto_reader *r, const char *s, size_t n, slice *out) {
    char *copy = ep_arena_copy(&r->slow, s, n);
    *out = (slice){copy ? copy : "", copy ? n : 0};
    return copy != NULL;
}

static ep_status no_memory(kineto_reader *r) {
    return ep_fail(r->err, EP_ERROR_OUT_OF_MEMORY, "no memory for an event");
}

/* One member of args: its value as JSON text, into the event and into the kept text of the whole object. */
static ep_status slow_arg(kineto_reader *r, const ep_json_token *key, ep_text *all) {
    slice k, v;
    ep_text value = {0};
    int arg = kineto_keys_find(&r->args, key->text, key->len);
    if (!keep(r, key->text, key->len, &k)) return no_memory(r);
    bool whole;
    ep_status status = ep_json_copy(&r->json, &value, ARGS_LIMIT, &whole);
    if (status == EP_OK && whole) {
        if (!keep(r, value.data ? value.data : "", value.len, &v))
            status = no_memory(r);
        else
            kineto_set_arg(r, &r->raw, (kineto_arg)arg, k, v);
        if (r->keep_args) {
            ep_text_add(all, all->len ? ", " : "{");
            ep_json_quote(all, k.s, k.n);
            ep_text_add(all, ": ");
            ep_text_addn(all, v.s, v.n);
        }
    }
    ep_text_free(&value);
    return status;
}

static ep_status slow_args(kineto_reader *r) {
    ep_json_token t;
    EP_TRY(ep_json_next(&r->json, &t));
    if (t.type != EP_JSON_OBJECT) return ep_json_skip_rest(&r->json, &t);
    ep_text all = {0};
    ep_status status;
    for (;;) {
        status = ep_json_next(&r->json, &t);
        if (status != EP_OK || t.type == EP_JSON_OBJECT_END) break;
        status = slow_arg(r, &t, &all);
        if (status != EP_OK) break;
    }
    if (status == EP_OK && r->keep_args) {
        ep_text_add(&all, all.len ? "}" : "{}");
        if (all.failed || !keep(r, all.data, all.len, &r->raw.args)) status = no_memory(r);
    }
    ep_text_free(&all);
    return status;
}

static ep_status slow_field(kineto_reader *r, kineto_field field) {
    ep_json_token t;
    if (field == FIELD_ARGS) return slow_args(r);
    EP_TRY(ep_json_next(&r->json, &t));
    static const char *const words[] = {"true", "false", "null"};
    slice v = {"", 0};
    switch (t.type) {
    case EP_JSON_OBJECT:
    case EP_JSON_ARRAY: return ep_json_skip_rest(&r->json, &t);
    case EP_JSON_TRUE:
    case EP_JSON_FALSE:
    case EP_JSON_NULL: v.s = words[t.type - EP_JSON_TRUE], v.n = strlen(v.s); break;
    default:
        if (!keep(r, t.text, t.len, &v)) return no_memory(r);
    }
    if (field != FIELD_UNKNOWN) kineto_set_field(&r->raw, field, v, t.type == EP_JSON_STRING);
    return EP_OK;
}

ep_status kineto_slow_event(kineto_reader *r) {
    kineto_raw_begin(r, r->raw.offset);
    for (;;) {
        ep_json_token t;
        EP_TRY(ep_json_next(&r->json, &t));
        if (t.type == EP_JSON_OBJECT_END) return EP_OK;
        r->raw.any = true;
        int field = kineto_keys_find(&r->fields, t.text, t.len);
        EP_TRY(slow_field(r, (kineto_field)field));
    }
}
