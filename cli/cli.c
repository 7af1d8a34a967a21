/* Options, messages, the terminal. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

int epi_bad(const char *fmt, ...) {
    va_list args;
    fprintf(stderr, "epi: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return EPI_BAD;
}

int epi_keep(const char *option, const char *output, const char *const *inputs, int count) {
    struct stat out, in;
    if (!output || stat(output, &out) != 0 || !S_ISREG(out.st_mode)) return -1;
    for (int i = 0; i < count; i++)
        if (inputs[i] && stat(inputs[i], &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return epi_bad("%s %s would overwrite what is read", option, output);
    return -1;
}

int epi_writable(const char *option, const char *path, bool folder) {
    struct stat st;
    char place[4096];
    if (!path) return -1;
    snprintf(place, sizeof place, "%s", path);
    if (stat(path, &st) == 0) {
        if ((bool)S_ISDIR(st.st_mode) != folder)
            return epi_bad("%s %s: this is %s folder", option, path, folder ? "no" : "a");
    } else { /* it will be made in the folder around it */
        for (size_t n = strlen(place); n > 1 && place[n - 1] == '/'; n--) place[n - 1] = 0;
        char *slash = strrchr(place, '/');
        if (slash)
            slash[slash == place] = 0;
        else
            snprintf(place, sizeof place, ".");
    }
    return access(place, W_OK) == 0 ? -1 : epi_bad("%s %s: %s", option, path, strerror(errno));
}

int epi_fail(const char *what, const ep_error *err) {
    if (!what) return epi_bad("%s", err->message);
    if (err->line > 0) return epi_bad("%s:%d:%d: %s", what, err->line, err->column, err->message);
    if (err->position >= 0) return epi_bad("%s: at byte %lld: %s", what, (long long)err->position, err->message);
    if (*what && strstr(err->message, what)) return epi_bad("%s", err->message); /* it names the file already */
    return epi_bad("%s: %s", what, err->message);
}

const char *epi_isa_note(void) {
    static char note[120];
    const char *cap = getenv("EPILOGUE_ISA");
    if (cap && *cap && strcmp(cap, ep_machine_isa()) != 0)
        snprintf(note, sizeof note, " (EPILOGUE_ISA=%.24s: no level of this processor)", cap);
    return note;
}

int epi_width(void) {
    struct winsize w;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col < 40) return 80;
    return w.ws_col > 160 ? 160 : w.ws_col;
}

bool epi_color(void) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

void epi_wrap(const char *text, int column, int indent, int width) {
    bool first = true;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (!first && column + 1 + n > width) {
            printf("\n%*s", indent, "");
            column = indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", n, text);
        column += n + !first;
        first = false;
        text += n;
        if (*text) text++;
    }
    putchar('\n');
}

/* Paragraphs are wrapped; the usage line and lines that begin with a blank stay as they are. */
static void show_usage(const char *usage) {
    char paragraph[2048];
    int used = 0;
    for (const char *at = usage; *at || used;) {
        int n = (int)strcspn(at, "\n");
        bool as_it_is = n == 0 || *at == ' ' || strncmp(at, "usage:", 6) == 0;
        if (used && as_it_is) {
            epi_wrap(paragraph, 0, 0, 80);
            used = 0;
            if (!*at) break;
        }
        if (as_it_is)
            printf("%.*s\n", n, at);
        else
            used += snprintf(paragraph + used, sizeof paragraph - (size_t)used, "%s%.*s", used ? " " : "", n, at);
        if (used >= (int)sizeof paragraph) used = (int)sizeof paragraph - 1;
        at += n + (at[n] == '\n');
    }
}

static void help(const char *usage, const epi_option *options) {
    show_usage(usage);
    if (options->name) printf("\noptions:\n");
    for (const epi_option *o = options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", o->name, o->argument ? o->argument : "");
        printf("  %-24s ", left);
        epi_wrap(o->help, 27, 27, 80);
    }
    printf("  %-24s %s\n", "--help", "this text");
}

static int store(const epi_option *o, const char *text) {
    char *end;
    errno = 0;
    if (o->kind == OPT_TEXT) {
        *(const char **)o->value = text;
        return 0;
    }
    if (o->kind == OPT_INT) {
        long long v = strtoll(text, &end, 10);
        if (errno || end == text || *end) return epi_bad("%s wants a whole number, not '%s'", o->name, text);
        *(int64_t *)o->value = v;
        return 0;
    }
    double v = strtod(text, &end);
    if (errno || end == text || *end) return epi_bad("%s wants a number, not '%s'", o->name, text);
    *(double *)o->value = v;
    return 0;
}

static const epi_option *find(const epi_option *options, const char *name, size_t len) {
    for (const epi_option *o = options; o->name; o++)
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0) return o;
    return NULL;
}

int epi_parse(int argc, char **argv, const char *usage, const epi_option *options, const char **positional, int max,
              int *count) {
    bool only_positional = false;
    *count = 0;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!only_positional && strcmp(a, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (only_positional || a[0] != '-' || a[1] == 0) {
            if (*count >= max) return epi_bad("'%s' is one argument too many", a);
            positional[(*count)++] = a;
            continue;
        }
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            help(usage, options);
            return EPI_DONE;
        }
        const char *equals = strchr(a, '=');
        const epi_option *o = find(options, a, equals ? (size_t)(equals - a) : strlen(a));
        if (!o) return epi_bad("there is no option '%s' here; --help lists them", a);
        if (o->kind == OPT_FLAG) {
            if (equals) return epi_bad("%s takes no value", o->name);
            *(bool *)o->value = true;
            continue;
        }
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value) return epi_bad("%s wants a value", o->name);
        int code = store(o, value);
        if (code) return code;
    }
    return -1;
}

static const struct {
    const char *name;
    ep_device_kind kind;
} devices[] = {{"cpu", EP_DEVICE_CPU}, {"cuda", EP_DEVICE_CUDA}};

int epi_device(const char *text, ep_device *out) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        size_t n = strlen(devices[i].name);
        if (strncmp(text, devices[i].name, n) != 0) continue;
        char *end = NULL;
        long index = text[n] == ':' ? strtol(text + n + 1, &end, 10) : 0;
        if (text[n] && !(text[n] == ':' && end != text + n + 1 && !*end && index >= 0 && index < 1024)) break;
        *out = (ep_device){devices[i].kind, (int32_t)index};
        return -1;
    }
    return epi_bad("--device is cpu or cuda (cuda:1 for the second), not '%s'", text);
}
