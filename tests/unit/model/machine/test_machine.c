/* Machine files: round trip, errors with their place, the store under the cache directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <epilogue/machine.h>

#include "model/machine/machine.h"

static char folder[] = "/tmp/test_machineXXXXXX";
static const ep_device cpu = {EP_DEVICE_CPU, 0};

static const char *in_folder(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_round_trip(void **state) {
    (void)state;
    ep_machine m = {.name = "a machine, 2 cores", .source = "measured 2026-11-30", .measured = true, .cores = 2};
    m.gflops[EP_DTYPE_F32][0] = 123.5;
    m.gflops[EP_DTYPE_BF16][1] = 3210;
    m.vector_gflops[0] = 7;
    m.read_gbs[1] = 33.25;
    m.copy_gbs[0] = 12.5;
    m.cache_gbs[0][1] = 300;
    m.cache_gbs[1][0] = 20;
    m.dispatch_ns = 27.5;
    m.launch_us = 2.5;
    m.graph_launch_us = 4;
    m.fork_join_us = 1.5;
    m.cache_bytes[2] = 314572800;
    ep_machine back = {0};
    ep_error err = {0};
    assert_int_equal(ep_machine_write(&m, in_folder("m.txt"), &err), EP_OK);
    assert_int_equal(ep_machine_read(in_folder("m.txt"), &err, &back), EP_OK);
    assert_string_equal(back.name, m.name);
    assert_string_equal(back.source, m.source);
    assert_true(back.measured);
    assert_int_equal(back.cores, 2);
    assert_memory_equal(back.gflops, m.gflops, sizeof m.gflops);
    assert_memory_equal(back.read_gbs, m.read_gbs, sizeof m.read_gbs);
    assert_memory_equal(back.copy_gbs, m.copy_gbs, sizeof m.copy_gbs);
    assert_memory_equal(back.cache_gbs, m.cache_gbs, sizeof m.cache_gbs);
    assert_memory_equal(back.cache_bytes, m.cache_bytes, sizeof m.cache_bytes);
    assert_true(back.vector_gflops[0] == 7 && back.dispatch_ns == 27.5 && back.launch_us == 2.5);
    assert_true(back.graph_launch_us == 4 && back.fork_join_us == 1.5);
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int line, column;
        const char *part;
    } rows[] = {
        {"name = x\nspeed = 3\n", 2, 1, "'speed'"},
        {"name = x\n  read_gbs = fast 3\n", 2, 14, "read_gbs"},
        {"# c\n\nname = x\nread_gbs = 3\n", 4, 13, "2 numbers"},
        {"name = x\nread_gbs = 3 4 5\n", 2, 16, "more"},
        {"name = x\ncores = 2.5\n", 2, 9, "cores"},
        {"name = x\nread_gbs = -1 2\n", 2, 12, "range"},
        {"name x\n", 1, 1, "key = value"},
        {"cores = 2\n", 0, 0, "name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ep_machine m = {.cores = 77};
        ep_error err = {0};
        write_text(in_folder("bad.txt"), rows[i].text);
        assert_int_not_equal(ep_machine_read(in_folder("bad.txt"), &err, &m), EP_OK);
        assert_int_equal(err.line, rows[i].line);
        assert_int_equal(err.column, rows[i].column);
        assert_non_null(strstr(err.message, rows[i].part));
        assert_int_equal(m.cores, 77);
    }
    ep_machine m;
    ep_error err = {0};
    assert_int_equal(ep_machine_read(in_folder("absent.txt"), &err, &m), EP_ERROR_NOT_FOUND);
    assert_non_null(strstr(err.message, "absent.txt"));
}

/* Without a stored file the figures are estimates, and say so; a damaged file is as good as none. */
static void test_load(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", folder, 1);
    ep_machine m = {0};
    ep_error err = {0};
    assert_int_equal(ep_machine_load(cpu, &err, &m), EP_OK);
    assert_false(m.measured);
    assert_non_null(strstr(m.source, "estimated"));
    assert_true(m.gflops[EP_DTYPE_F32][0] > 0 && m.read_gbs[1] >= m.read_gbs[0] && m.cores > 0);
    ep_device gpu = {EP_DEVICE_CUDA, 3};
    assert_int_equal(ep_machine_load(gpu, &err, &m), EP_ERROR_NOT_FOUND);
    assert_non_null(strstr(err.message, "cuda:3"));
}

/* The file lies under XDG_CACHE_HOME, or ~/.cache where that is no absolute path. */
static void test_path(void **state) {
    (void)state;
    static const struct {
        const char *cache, *home, *start;
    } table[] = {{"/a", "/b", "/a/epilogue/machine-cpu0-"},
                 {"a", "/b", "/b/.cache/epilogue/machine-cpu0-"},
                 {"", "/b", "/b/.cache/epilogue/machine-cpu0-"},
                 {"a", "b", NULL},
                 {"", "", NULL}};
    const char *home = getenv("HOME");
    char *before = home ? strdup(home) : NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char path[512];
        ep_error err = {0};
        setenv("XDG_CACHE_HOME", table[i].cache, 1);
        setenv("HOME", table[i].home, 1);
        ep_status status = ep_machine_path(cpu, &err, path, sizeof path);
        assert_int_equal(status, table[i].start ? EP_OK : EP_ERROR_IO);
        if (table[i].start)
            assert_memory_equal(path, table[i].start, strlen(table[i].start));
        else
            assert_non_null(strstr(err.message, "XDG_CACHE_HOME"));
    }
    if (before) setenv("HOME", before, 1);
    free(before);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
