/* The host compiler as a toolchain: what builds loads and runs; what does not, says so in the compiler's words. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "run/backend/cpu/cpu_module.h"
#include "run/jit/toolchain.h"

static char dir[64];

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/ep-cc-test-XXXXXX");
    return mkdtemp(dir) && setenv("TMPDIR", dir, 1) == 0 ? 0 : 1;
}

static int teardown(void **state) {
    (void)state;
    unsetenv("TMPDIR");
    DIR *d = opendir(dir); /* nothing is left behind */
    int left = 0;
    for (struct dirent *e; d && (e = readdir(d));) left += e->d_name[0] != '.';
    if (d) closedir(d);
    if (left == 0) rmdir(dir);
    return left;
}

static ep_status build(const char *source, const char *finder, double limit, ep_error *err, void **image, size_t *n) {
    ep_build b = {source, strlen(source), ep_cpu_get()->isa, NULL, limit, finder};
    return ep_toolchain_cc.build(&b, err, image, n);
}

static void built_code_runs(void **state) {
    (void)state;
    ep_error err = {0};
    void *image, *module, *function;
    size_t size;
    const char *source = "void epi_test(const void *args, long b, long e) { for (long i = b; i < e; i++) "
                         "((float *)args)[i] *= 2; }\n";
    assert_int_equal(build(source, NULL, 0, &err, &image, &size), EP_OK);
    ep_backend b = {.threads = 2};
    assert_int_equal(ep_cpu_module_load(&b, NULL, image, size, &err, &module), EP_OK);
    free(image);
    assert_int_equal(ep_cpu_module_symbol(&b, module, "missing", &err, &function), EP_ERROR_COMPILER);
    assert_int_equal(ep_cpu_module_symbol(&b, module, "epi_test", &err, &function), EP_OK);
    float x[5] = {1, 2, 3, 4, 5};
    ep_work w = {1 << 30, 0, 0};
    assert_int_equal(ep_cpu_module_launch(&b, function, "epi_test", x, sizeof x, &w, 5, &err), EP_OK);
    for (int i = 0; i < 5; i++) assert_true(x[i] == 2.0f * (float)(i + 1));
    ep_cpu_module_free(&b, module);
    assert_int_equal(ep_cpu_module_load(&b, NULL, "no shared object", 16, &err, &module), EP_ERROR_COMPILER);
}

static void a_broken_source_is_reported(void **state) {
    (void)state;
    ep_error err = {0};
    void *image;
    size_t size;
    assert_int_equal(build("int f(void) { return undeclared_thing; }\n", NULL, 0, &err, &image, &size),
                     EP_ERROR_COMPILER);
    assert_non_null(strstr(err.message, "undeclared_thing"));
}

static void a_missing_compiler_is_named(void **state) {
    (void)state;
    ep_error err = {0};
    void *image;
    size_t size;
    assert_int_equal(build("int x;", "no-such-compiler", 0, &err, &image, &size), EP_ERROR_COMPILER);
    assert_non_null(strstr(err.message, "no-such-compiler"));
    assert_int_equal(build("int x;", "/nowhere/cc", 0, &err, &image, &size), EP_ERROR_COMPILER);
    ep_hasher h;
    ep_hasher_begin(&h);
    ep_build b = {"", 0, EP_ISA_PORTABLE, NULL, 0, "no-such-compiler"};
    assert_int_equal(ep_toolchain_cc.identity(&b, &err, &h), EP_ERROR_COMPILER);
}

static void script(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0700), 0);
}

static void a_compiler_that_hangs_or_dies_is_ended(void **state) {
    (void)state;
    char path[128];
    ep_error err = {0};
    void *image;
    size_t size;
    snprintf(path, sizeof path, "%s/cc", dir);
    script(path, "#!/bin/sh\nsleep 60 & sleep 60\n");
    assert_int_equal(build("int x;", path, 0.2, &err, &image, &size), EP_ERROR_COMPILER);
    assert_non_null(strstr(err.message, "limit"));
    script(path, "#!/bin/sh\nkill -9 $$\n");
    assert_int_equal(build("int x;", path, 0, &err, &image, &size), EP_ERROR_COMPILER);
    assert_non_null(strstr(err.message, "signal 9"));
    script(path, "#!/bin/sh\nexit 0\n"); /* claims success, wrote nothing */
    assert_int_not_equal(build("int x;", path, 0, &err, &image, &size), EP_OK);
    unlink(path);
}

static void the_identity_tells_compilers_and_flags_apart(void **state) {
    (void)state;
    ep_hash128 got[2];
    for (int i = 0; i < 2; i++) {
        ep_build b = {"", 0, i ? EP_ISA_AVX2 : EP_ISA_PORTABLE, NULL, 0, NULL};
        ep_hasher h;
        ep_hasher_begin(&h);
        assert_int_equal(ep_toolchain_cc.identity(&b, NULL, &h), EP_OK);
        got[i] = ep_hasher_end(&h);
    }
    assert_true(got[0].hi != got[1].hi || got[0].lo != got[1].lo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(built_code_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_broken_source_is_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_compiler_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_compiler_that_hangs_or_dies_is_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(the_identity_tells_compilers_and_flags_apart, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
