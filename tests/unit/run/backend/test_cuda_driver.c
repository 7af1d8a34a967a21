/* Errors of the device without a device: a driver of ours whose calls fail as told. An error that the context does not
 * survive is said once by its own name and again by every later call; others pass. A missing library is a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>
#include <stdio.h>
#include <string.h>

#include "run/backend/cuda/cuda_state.h"

static int entered;

static cu_result name(cu_result r, const char **text) {
    *text = r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
    return *text ? 0 : 1;
}

static cu_result sentence(cu_result r, const char **text) {
    *text = r == 700 ? "an illegal memory access was encountered" : NULL;
    return *text ? 0 : 1;
}

static cu_result enter(cu_context c) {
    (void)c;
    entered++;
    return 0;
}

static const cu_driver fake = {.error_name = name, .error_string = sentence, .context_set = enter};

static void a_sticky_error_is_repeated(void **state) {
    (void)state;
    cuda_state s = {.cu = &fake};
    ep_error e = {0};
    assert_int_equal(cuda_enter(&s, &e), EP_OK);
    assert_int_equal(cuda_result(&s, 700, "cuStreamSynchronize", &e), EP_ERROR_DRIVER);
    assert_non_null(strstr(e.message, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_non_null(strstr(e.message, "an illegal memory access was encountered"));
    assert_non_null(strstr(e.message, "cuStreamSynchronize"));
    int before = entered;
    for (int i = 0; i < 3; i++) {
        memset(&e, 0, sizeof e);
        assert_int_equal(cuda_enter(&s, &e), EP_ERROR_DRIVER);
        assert_non_null(strstr(e.message, "CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_non_null(strstr(e.message, "start the process again"));
    }
    assert_int_equal(entered, before); /* the device is not asked again */
    /* The first one stays the reason. */
    assert_int_equal(cuda_result(&s, 719, "later", &e), EP_ERROR_DRIVER);
    cuda_enter(&s, &e);
    assert_non_null(strstr(e.message, "ILLEGAL_ADDRESS"));
}

static void others_pass(void **state) {
    (void)state;
    static const cu_result passing[] = {1, 2, 100, 201, 500, 701, 702, 800, 900, 999};
    cuda_state s = {.cu = &fake};
    ep_error e;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        assert_int_not_equal(cuda_result(&s, passing[i], "a call", &e), EP_OK);
        assert_int_equal(cuda_enter(&s, &e), EP_OK);
    }
    assert_int_equal(cuda_result(&s, 2, "cuMemAlloc", &e), EP_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuda_result(&s, 0, "fine", &e), EP_OK);
    /* A result the driver has no words for still gets a number. */
    cuda_result(&s, 999, "a call", &e);
    assert_non_null(strstr(e.message, "999"));
}

static void sticky_ones(void **state) {
    (void)state;
    static const cu_result sticky[] = {214, 700, 715, 716, 717, 718, 719};
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++) {
        cuda_state s = {.cu = &fake};
        ep_error e;
        cuda_result(&s, sticky[i], "a call", &e);
        assert_int_equal(cuda_enter(&s, &e), EP_ERROR_DRIVER);
    }
}

/* On a machine without a driver; with one, the driver is simply there. */
static void what_is_missing_is_said(void **state) {
    (void)state;
    ep_error e = {0};
    if (cu_driver_get(&e)) skip();
    assert_int_equal(e.status, EP_ERROR_MISSING_LIBRARY);
    assert_non_null(strstr(e.message, "NVIDIA driver"));
    ep_context *ctx = NULL;
    ep_context_options o = {.device = {EP_DEVICE_CUDA, 0}, .autotune = true};
    assert_int_equal(ep_context_create(&o, &e, &ctx), EP_ERROR_MISSING_LIBRARY);
    assert_null(ctx);
    assert_non_null(strstr(e.message, "NVIDIA driver"));
}

static void cublaslt_says_its_errors(void **state) {
    (void)state;
    ep_error e;
    assert_int_equal(lt_check(0, "x", &e), EP_OK);
    assert_int_equal(lt_check(15, "cublasLtMatmul", &e), EP_ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "not supported"));
    assert_int_equal(lt_check(13, "cublasLtMatmul", &e), EP_ERROR_DRIVER);
    assert_non_null(strstr(e.message, "execution failed (13)"));
    assert_int_equal(lt_check(77, "cublasLtMatmul", &e), EP_ERROR_DRIVER);
    assert_non_null(strstr(e.message, "77"));
}

/* On the CPU nothing is measured, and that is no error. */
static void autotune_elsewhere(void **state) {
    (void)state;
    ep_error e;
    ep_context *ctx;
    ep_context_options o = {.autotune = true};
    assert_int_equal(ep_context_create(&o, &e, &ctx), EP_OK);
    assert_string_equal(ep_context_autotuned(ctx), "");
    ep_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sticky_error_is_repeated),
                                       cmocka_unit_test(others_pass),
                                       cmocka_unit_test(sticky_ones),
                                       cmocka_unit_test(what_is_missing_is_said),
                                       cmocka_unit_test(cublaslt_says_its_errors),
                                       cmocka_unit_test(autotune_elsewhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
