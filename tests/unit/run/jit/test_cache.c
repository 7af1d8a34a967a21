// ctest: threads
/* The kernel cache: whole entries or none, whatever happens to the folder. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "run/jit/cache.h"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/ep-cache-XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}

static int remove_dir(void **state) {
    (void)state;
    ep_cache *c;
    size_t n;
    chmod(dir, 0700);
    if (ep_cache_open(dir, 0, NULL, &c) == EP_OK) {
        ep_cache_clear(c, NULL, &n);
        ep_cache_close(c);
    }
    return rmdir(dir);
}

static ep_cache *open_cache(int64_t limit) {
    ep_cache *c;
    assert_int_equal(ep_cache_open(dir, limit, NULL, &c), EP_OK);
    return c;
}

static ep_hash128 key_of(uint64_t n) {
    return (ep_hash128){n * 0x9e3779b97f4a7c15u, n};
}

static void path_of(ep_hash128 key, char out[160]) {
    char hex[33];
    ep_hash128_hex(key, hex);
    snprintf(out, 160, "%s/%s.epk", dir, hex);
}

static ep_status load(ep_cache *c, ep_hash128 key, const char *expect) {
    void *image = NULL;
    size_t size;
    char *source = NULL;
    ep_status s = ep_cache_load(c, key, NULL, &image, &size, &source);
    if (s == EP_OK && expect) {
        assert_int_equal(size, strlen(expect));
        assert_memory_equal(image, expect, size);
        assert_string_equal(source, "int x;");
    }
    free(image);
    free(source);
    return s;
}

static ep_status store(ep_cache *c, ep_hash128 key, const char *image) {
    return ep_cache_store(c, key, image, strlen(image), "int x;", 6, NULL);
}

static void what_is_stored_is_loaded(void **state) {
    (void)state;
    ep_cache *c = open_cache(0);
    assert_string_equal(ep_cache_trouble(c), "");
    assert_int_equal(load(c, key_of(1), NULL), EP_ERROR_NOT_FOUND);
    assert_int_equal(store(c, key_of(1), "image one"), EP_OK);
    assert_int_equal(store(c, key_of(2), ""), EP_OK);
    assert_int_equal(load(c, key_of(1), "image one"), EP_OK);
    assert_int_equal(load(c, key_of(2), ""), EP_OK);
    ep_cache_close(c);
}

static void write_raw(const char *path, const char *mode, long at, const void *data, size_t n) {
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    if (at >= 0) fseek(f, at, SEEK_SET);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void damage_is_found_and_removed(void **state) {
    (void)state;
    ep_cache *c = open_cache(0);
    char path[160], other[160];
    path_of(key_of(3), path);
    path_of(key_of(4), other);
    struct stat st;
    for (long at = 0;; at++) { /* every byte matters */
        assert_int_equal(store(c, key_of(3), "abcdef"), EP_OK);
        assert_int_equal(stat(path, &st), 0);
        if (at >= st.st_size) break;
        FILE *f = fopen(path, "r+");
        fseek(f, at, SEEK_SET);
        int old = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(old ^ 0x40, f);
        fclose(f);
        assert_int_equal(load(c, key_of(3), NULL), EP_ERROR_CACHE);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    for (off_t n = 0; n < st.st_size; n++) {
        assert_int_equal(store(c, key_of(3), "abcdef"), EP_OK);
        assert_int_equal(truncate(path, n), 0);
        assert_int_equal(load(c, key_of(3), NULL), EP_ERROR_CACHE);
    }
    assert_int_equal(store(c, key_of(3), "abcdef"), EP_OK); /* an entry of another key under this name */
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(load(c, key_of(4), NULL), EP_ERROR_CACHE);
    write_raw(other, "w", -1, "hello, I am no kernel at all, and longer than a head is. Really, I am longer.", 77);
    assert_int_equal(load(c, key_of(4), NULL), EP_ERROR_CACHE);
    assert_int_equal(symlink("/etc/passwd", other), 0);
    assert_int_not_equal(load(c, key_of(4), NULL), EP_OK);
    unlink(other);
    ep_cache_close(c);
}

static void the_oldest_go_when_it_is_full(void **state) {
    (void)state;
    ep_cache *c = open_cache(4000);
    char big[1001], path[160];
    memset(big, 'x', 1000);
    big[1000] = 0;
    for (uint64_t i = 10; i < 20; i++) {
        assert_int_equal(store(c, key_of(i), big), EP_OK);
        path_of(key_of(i), path);
        struct timespec t[2] = {{1000 + (time_t)i, 0}, {1000 + (time_t)i, 0}};
        utimensat(AT_FDCWD, path, t, 0);
    }
    ep_cache_entry *list;
    size_t count;
    int64_t total = 0;
    assert_int_equal(ep_cache_list(c, NULL, &list, &count), EP_OK);
    for (size_t i = 0; i < count; i++) total += list[i].bytes;
    assert_true(count == 3 && total <= 4000);
    free(list);
    assert_int_equal(load(c, key_of(19), big), EP_OK);
    assert_int_equal(load(c, key_of(10), NULL), EP_ERROR_NOT_FOUND);
    ep_cache_close(c);
}

static void a_folder_that_cannot_be_used_is_no_cache(void **state) {
    (void)state;
    ep_cache *c;
    assert_int_equal(chmod(dir, 0777), 0); /* others could plant code */
    c = open_cache(0);
    assert_string_not_equal(ep_cache_trouble(c), "");
    assert_int_equal(store(c, key_of(1), "x"), EP_ERROR_CACHE);
    assert_int_equal(load(c, key_of(1), NULL), EP_ERROR_NOT_FOUND);
    ep_cache_close(c);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(ep_cache_open("/proc/no-such-place/cache", 0, NULL, &c), EP_OK);
    assert_string_not_equal(ep_cache_trouble(c), "");
    assert_int_equal(store(c, key_of(1), "x"), EP_ERROR_CACHE);
    ep_cache_close(c);
    if (access("/dev/full", W_OK) == 0 && geteuid() != 0) { /* read-only: root may write anyway */
        assert_int_equal(chmod(dir, 0500), 0);
        c = open_cache(0);
        assert_int_equal(store(c, key_of(1), "x"), EP_ERROR_CACHE);
        ep_cache_close(c);
        assert_int_equal(chmod(dir, 0700), 0);
    }
}

/* A write that fails in the middle, as on a full disk: nothing is stored, nothing is left behind. */
static void a_full_disk_stores_nothing(void **state) {
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char image[5000];
        ep_cache *c;
        ep_error err = {0};
        memset(image, 'i', sizeof image);
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000}) != 0) _exit(77);
        if (ep_cache_open(dir, 0, NULL, &c) != EP_OK) _exit(1);
        if (ep_cache_store(c, key_of(1), image, sizeof image, "", 0, &err) != EP_ERROR_CACHE) _exit(2);
        if (!strstr(err.message, "cannot be written")) _exit(3);
        if (load(c, key_of(1), NULL) != EP_ERROR_NOT_FOUND) _exit(4);
        if (store(c, key_of(2), "small") != EP_OK || load(c, key_of(2), "small") != EP_OK) _exit(5);
        ep_cache_close(c);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0); /* and remove_dir finds no stray file */
}

static void child(int n) {
    ep_cache *c;
    if (ep_cache_open(dir, 0, NULL, &c) != EP_OK) _exit(1);
    char image[3000];
    for (int round = 0; round < 60; round++) {
        uint64_t k = (uint64_t)(round % 7);
        memset(image, 'a' + (int)k, sizeof image - 1);
        image[sizeof image - 1] = 0;
        if ((round + n) % 2 && ep_cache_store(c, key_of(k), image, sizeof image, "", 0, NULL) != EP_OK) _exit(2);
        void *got;
        size_t size;
        ep_status s = ep_cache_load(c, key_of(k), NULL, &got, &size, NULL);
        if (s != EP_OK && s != EP_ERROR_NOT_FOUND) _exit(3);
        if (s == EP_OK && (size != sizeof image || memcmp(got, image, size))) _exit(4);
        if (s == EP_OK) free(got);
    }
    ep_cache_close(c);
    _exit(0);
}

static void many_processes_never_see_half_an_entry(void **state) {
    (void)state;
    pid_t pids[6];
    for (int i = 0; i < 6; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) child(i);
    }
    for (int i = 0; i < 6; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_stored_is_loaded, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(damage_is_found_and_removed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_oldest_go_when_it_is_full, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_used_is_no_cache, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_full_disk_stores_nothing, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(many_processes_never_see_half_an_entry, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
