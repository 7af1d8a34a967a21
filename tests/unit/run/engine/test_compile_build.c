// ctest: threads
/* Compiled functions and their compiler: code from disk, code that is late, code that does not build. */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "compile_case.h"

/* Two processes, one graph: the second generates nothing. */
static void a_second_process_loads_from_disk(void **state) {
    (void)state;
    ep_cache *disk;
    size_t removed;
    OK(ep_cache_open(cache, 0, NULL, &disk));
    OK(ep_cache_clear(disk, NULL, &removed));
    ep_cache_close(disk);
    for (int process = 0; process < 2; process++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            mlp w;
            ep_context *mine;
            ep_compiled *c;
            ep_tensor *y;
            ep_compile_options o = always();
            if (ep_context_create(&(ep_context_options){.threads = 1}, NULL, &mine) != EP_OK) _exit(10);
            make_mlp(&w, EP_DTYPE_BF16, 32, 48);
            ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){4, 32}, 9);
            if (ep_compile(mine, geglu, &w, 1, 1, &o, &c) != EP_OK) _exit(11);
            if (ep_compiled_call(c, (const ep_tensor *[]){x}, &y) != EP_OK) _exit(12);
            ep_compile_stats s;
            ep_compiled_stats(c, &s);
            if (s.build_failures) _exit(13);
            _exit(s.kernels_generated == (process ? 0 : 1) && s.kernels_from_disk == (process ? 1 : 0) ? 0 : 14);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void a_kernel_that_does_not_build_is_counted(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/broken-cc", cache);
    FILE *f = fopen(path, "w");
    fputs("#!/bin/sh\necho 'kernel.c:1: error: injected' >&2\nexit 1\n", f);
    fclose(f);
    chmod(path, 0700);
    setenv("EPILOGUE_CC", path, 1);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 1), *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 2);
    call_and_compare(c, gelu_plus, a, b); /* answered by eager */
    call_and_compare(c, gelu_plus, a, b);
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.build_failures, 1);
    assert_int_equal(s.eager_calls, 2);
    assert_int_equal(s.kernels_generated, 0);
    assert_non_null(strstr(ep_compiled_report(c), "injected"));
    ep_compiled_destroy(c);
    setenv("EPILOGUE_CC", "/nowhere/cc", 1);
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    call_and_compare(c, gelu_plus, a, b);
    ep_compiled_stats(c, &s);
    assert_int_equal(s.build_failures, 1);
    assert_non_null(strstr(ep_compiled_report(c), "/nowhere/cc"));
    ep_compiled_destroy(c);
    unsetenv("EPILOGUE_CC");
    unlink(path);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

static void no_call_waits_for_a_compiler(void **state) {
    (void)state;
    ep_compile_options o = {.no_disk_cache = true};
    ep_compiled *c;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 1), *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 2);
    call_and_compare(c, gelu_plus, a, b);
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.eager_calls, 1);
    assert_true(s.waited_us == 0);
    OK(ep_compiled_wait(c));
    for (int i = 0; i < 60 || (i < 600 && !ep_compiled_settled(c)); i++) call_and_compare(c, gelu_plus, a, b);
    assert_true(ep_compiled_settled(c));
    ep_compiled_stats(c, &s);
    assert_int_equal(s.eager_calls, 1);
    assert_int_equal(s.kernels_generated, 1);
    assert_true(s.cold_us > 0);
    const char *name;
    assert_non_null(strstr(ep_compiled_source(c, 0, &name), "epi_poi_gelu_erf_add_f32"));
    assert_null(ep_compiled_source(c, 1, &name));
    assert_non_null(strstr(ep_compiled_report(c), " kept for 2^"));
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_compiled_destroy(c);
}

static void destroying_while_a_compiler_runs_is_fine(void **state) {
    (void)state;
    ep_compile_options o = {.no_disk_cache = true};
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 1), *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 2);
    for (int i = 0; i < 3; i++) {
        ep_compiled *c;
        OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
        call_and_compare(c, gelu_plus, a, b);
        ep_compiled_destroy(c);
    }
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_process_loads_from_disk),
        cmocka_unit_test(a_kernel_that_does_not_build_is_counted),
        cmocka_unit_test(no_call_waits_for_a_compiler),
        cmocka_unit_test(destroying_while_a_compiler_runs_is_fine),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
