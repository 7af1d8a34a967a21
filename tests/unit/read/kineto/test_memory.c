// ctest: slow
/* A trace of 300 MB: memory stays below 15 % of it for reading and facts together and
 * 18 % of it with the whole of explain (a fixed 7 MB are in that), and does not grow with the file when
 * only a step is wanted. Each measurement runs in a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen_trace.h"
#include "read/analyze/facts.h"

static char folder[] = "/tmp/epilogue-test-memory-XXXXXX";
static char large[64];
static gen_trace made;

static int work(const ep_read_options *options) {
    ep_error err;
    ep_trace *t = NULL;
    ep_facts *f = NULL;
    if (ep_trace_read(large, options, &err, &t) != EP_OK || ep_facts_create(t, &err, &f) != EP_OK) return 1;
    int64_t kernels = options ? GEN_STEP_KERNELS : made.step * GEN_STEP_KERNELS;
    int64_t events = options ? f->health.events : made.events;
    bool ok = f->health.kernels == kernels && f->health.events == events && f->health.launches_without_kernel == 0 &&
              f->health.complete && t->repair_count == 0;
    ep_facts_destroy(f);
    ep_trace_destroy(t);
    return ok ? 0 : 2;
}

static int explain(const ep_read_options *options) {
    ep_error err;
    ep_trace *t = NULL;
    ep_report *report = NULL;
    if (ep_trace_read(large, options, &err, &t) != EP_OK) return 1;
    const ep_trace *one = t;
    if (ep_explain(&one, NULL, 1, NULL, &err, &report) != EP_OK) return 1;
    ep_report_destroy(report);
    ep_trace_destroy(t);
    return 0;
}

/* Peak memory of the work in bytes. */
static int64_t peak_of(int (*job)(const ep_read_options *), const ep_read_options *options) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(job(options));
    int status;
    struct rusage usage;
    assert_int_equal(wait4(pid, &status, 0, &usage), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

static void test_peak(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizers' own memory is many times ours */
#endif
    int64_t peak = peak_of(work, NULL), whole = peak_of(explain, NULL),
            cut = peak_of(work, &(ep_read_options){.use_step = true, .step = made.step / 2});
    print_message("%.0f MB of trace: peak %.1f MB, %.1f %%; with explain %.1f MB; one step of it: %.1f MB\n",
                  (double)made.bytes / 1e6, (double)peak / 1e6, 100.0 * (double)peak / (double)made.bytes,
                  (double)whole / 1e6, (double)cut / 1e6);
    assert_true(peak < made.bytes / 100 * 15);
    assert_true(whole < made.bytes / 100 * 18);
    assert_true(cut < 16 << 20);
}

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(large, sizeof large, "%s/large.json", folder);
    return gen_file(large, 300000000, &made) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    return unlink(large) | rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
