/* What of NVRTC needs no NVRTC: its file is enough to tell who compiles, and reading it ahead is nobody's wait. */
// ctest: threads
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/jit/toolchain.h"

static char folder[] = "/tmp/ep_nvrtc_XXXXXX";

static void make_file(const char *name, size_t bytes) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++) fputc('x', f);
    assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static uint64_t identity_of(const char *arch) {
    ep_build b = {.arch = arch};
    ep_error err = {0};
    ep_hasher h;
    ep_hasher_begin(&h);
    assert_int_equal(ep_toolchain_nvrtc.identity(&b, &err, &h), EP_OK);
    return ep_hasher_end(&h).lo;
}

static void file_tells_the_compiler(void **state) {
    (void)state;
    ep_toolchain_nvrtc.expect();
    ep_toolchain_nvrtc.expect();
    uint64_t a = identity_of("sm_90");
    assert_true(a == identity_of("sm_90"));
    assert_false(a == identity_of("sm_80"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(file_tells_the_compiler)};
    if (!mkdtemp(folder)) return 1;
    make_file("libnvrtc.so.13", 100000);
    make_file("libnvrtc-builtins.so.13.0", 10);
    make_file("libnvrtc.alt.so.13", 10);
    setenv("LD_LIBRARY_PATH", folder, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_file("libnvrtc.so.13");
    remove_file("libnvrtc-builtins.so.13.0");
    remove_file("libnvrtc.alt.so.13");
    rmdir(folder);
    return failed;
}
