/* A build that the disk cache could not take is named in the report and the stats, and the answer is there all the same. */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>

static char dir[64];

static ep_status silu_mul(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t = NULL;
    (void)user, (void)n, (void)m;
    ep_status s = ep_silu(c, in[0], &t);
    if (s == EP_OK) s = ep_mul(c, t, in[1], out);
    ep_tensor_destroy(t);
    return s;
}

/* 0 if the cache's trouble is told as `why`. The folder is taken away between opening and the first call with `remove`. */
static int call_and_read(const char *why, bool remove) {
    ep_context *ctx;
    ep_compiled *c;
    ep_tensor *x, *y;
    ep_compile_stats s;
    char line[128];
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .cache_dir = dir};
    if (ep_context_create(&(ep_context_options){.threads = 1}, NULL, &ctx) != EP_OK) return 1;
    if (ep_compile(ctx, silu_mul, NULL, 2, 1, &o, &c) != EP_OK) return 2;
    if (remove && rmdir(dir) != 0) return 3;
    if (ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[]){100}, NULL, &x) != EP_OK) return 4;
    if (ep_tensor_fill_random(x, 1, 1.0, NULL) != EP_OK) return 5;
    if (ep_compiled_call(c, (const ep_tensor *[]){x, x}, &y) != EP_OK) return 6;
    ep_compiled_stats(c, &s);
    snprintf(line, sizeof line, "cache: %s, a build is not kept\n", why);
    if (s.kernels_generated != 1 || s.builds_not_kept != 1 || s.build_failures) return 7;
    if (strcmp(s.cache_trouble, why)) return 8;
    if (!strstr(ep_compiled_report(c), line)) return 9;
    ep_tensor_destroy(x);
    ep_tensor_destroy(y);
    ep_compiled_destroy(c);
    ep_context_destroy(ctx);
    return 0;
}

static int in_child(int (*run)(void)) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(run());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int on_a_tiny_disk(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, "size=4k,mode=0700") != 0)
        return 77;
    return call_and_read("full disk", false);
}

static int without_its_folder(void) {
    return call_and_read("the folder is gone", true);
}

static void a_full_disk_is_named(void **state) {
    (void)state;
    int code = in_child(on_a_tiny_disk);
    if (code == 77) skip(); /* only root may mount */
    assert_int_equal(code, 0);
}

static void a_folder_that_went_away_is_named(void **state) {
    (void)state;
    assert_int_equal(in_child(without_its_folder), 0);
}

static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/ep-report-XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}

static int remove_dir(void **state) {
    (void)state;
    rmdir(dir);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_is_named, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_folder_that_went_away_is_named, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
