/* Which part of a trace a reading command looks at; reading it, with progress on a terminal when it takes long. */
#include "read_options.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* "12", "1.5ms", "2s": nanoseconds; microseconds without a unit. Returns behind it, or NULL. */
static const char *read_time(const char *text, int64_t *ns) {
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    double v = strtod(text, &end), scale = 1e3;
    if (end == text || !(v >= 0)) return NULL;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strncmp(end, units[i].unit, strlen(units[i].unit)) == 0) {
            scale = units[i].ns;
            end += strlen(units[i].unit);
            break;
        }
    if (v * scale > 9e18) return NULL;
    *ns = (int64_t)(v * scale + 0.5);
    return end;
}

int check_choice(read_choice *c) {
    if (c->step < 0 && c->step != NO_STEP) return epi_bad("--step is 0 or more, not %lld", (long long)c->step);
    if (!c->window) return -1;
    if (c->region || c->step != NO_STEP) return epi_bad("--window can't be joined with --step or --region");
    const char *p = read_time(c->window, &c->from_ns);
    if (!p || *p != ':' || !(p = read_time(p + 1, &c->to_ns)) || *p)
        return epi_bad("--window wants A:B, two times like 0:500 or 2ms:5ms, not '%s'", c->window);
    if (c->to_ns <= c->from_ns) return epi_bad("--window ends before it begins: '%s'", c->window);
    return -1;
}

typedef struct progress {
    const char *path;
    time_t began;
    bool shown;
} progress;

static void show_progress(void *user, int64_t done, int64_t total) {
    progress *p = user;
    if (time(NULL) - p->began < 2) return;
    p->shown = true;
    if (total > 0)
        fprintf(stderr, "\rreading %s: %3d %%", p->path, (int)(100.0 * (double)done / (double)total));
    else
        fprintf(stderr, "\rreading %s: %lld MB", p->path, (long long)(done / 1000000));
}

ep_status read_trace(const char *path, const read_choice *c, ep_error *err, ep_trace **out) {
    progress p = {path, time(NULL), false};
    ep_read_options o = {.region = c->region, .keep_args = c->keep_args};
    if (c->window) o.window_start_ns = c->from_ns, o.window_end_ns = c->to_ns;
    if (c->step >= 0) o.step = c->step, o.use_step = true;
    if (strcmp(path, "-") == 0) path = "/dev/stdin";
    if (isatty(STDERR_FILENO)) o.progress = show_progress, o.progress_user = &p;
    ep_status status = ep_trace_read(path, &o, err, out);
    if (p.shown) fprintf(stderr, "\r%*s\r", 70, "");
    return status;
}
