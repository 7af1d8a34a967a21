/* Files and streams: round trips, gzip in several members, cut and damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"

static char folder[] = "/tmp/epilogue-test-file-XXXXXX";

static const char *at(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void test_write_read(void **state) {
    (void)state;
    ep_error err;
    assert_int_equal(ep_file_write(at("a"), "first", 5, &err), EP_OK);
    assert_int_equal(ep_file_write(at("a"), "second text", 11, &err), EP_OK);
    char *data;
    size_t size;
    assert_int_equal(ep_file_read(at("a"), 100, &err, &data, &size), EP_OK);
    assert_int_equal(size, 11);
    assert_string_equal(data, "second text");
    free(data);
    assert_int_equal(ep_file_read(at("a"), 10, &err, &data, &size), EP_ERROR_OVERFLOW);
    ep_mapped m;
    assert_int_equal(ep_file_map(at("a"), &err, &m), EP_OK);
    assert_memory_equal(m.data, "second text", 11);
    ep_file_unmap(&m);
    assert_int_equal(ep_file_write(at("empty"), NULL, 0, &err), EP_OK);
    assert_int_equal(ep_file_map(at("empty"), &err, &m), EP_OK);
    assert_int_equal(m.size, 0);
    ep_file_unmap(&m);
    assert_int_equal(ep_file_map(at("nothing"), &err, &m), EP_ERROR_NOT_FOUND);
    assert_int_equal(ep_file_map(folder, &err, &m), EP_ERROR_IO);
    assert_int_equal(ep_file_write("/nowhere/x", "a", 1, &err), EP_ERROR_NOT_FOUND);
    assert_int_equal(ep_file_make_folder(at("x/y/z"), &err), EP_OK);
    assert_int_equal(ep_file_make_folder(at("x/y/z"), &err), EP_OK);
    assert_int_equal(ep_file_make_folder(at("a/b"), &err), EP_ERROR_IO);
}

/* All of a stream, in steps of `step` bytes. */
static char *drain(ep_stream_in *in, size_t step, size_t *size) {
    char *all = malloc(1 << 20);
    size_t n = 0, got;
    ep_error err;
    do {
        assert_int_equal(ep_stream_read(in, all + n, step, &err, &got), EP_OK);
        n += got;
    } while (got);
    *size = n;
    return all;
}

static size_t member(unsigned char *out, size_t cap, const char *text, size_t n) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void test_gzip(void **state) {
    (void)state;
    static char text[200000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + (i * i + i / 7) % 26);
    static unsigned char packed[400000];
    size_t first = member(packed, sizeof packed, text, 120000);
    size_t both = first + member(packed + first, sizeof packed - first, text + 120000, sizeof text - 120000);
    static const struct {
        const char *name;
        int cut, flip, tail;
        size_t at_least;
        bool is_cut, is_damaged, is_trailing;
    } cases[] = {
        {"whole", 0, 0, 0, 200000, false, false, false},
        {"cut", 30, 0, 0, 190000, true, false, false},
        {"cut in the trailer", 3, 0, 0, 200000, true, false, false},
        {"damaged", 0, 200, 0, 120000, false, true, false},
        {"tail", 0, 0, 9, 200000, false, false, true},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        static unsigned char copy[400100];
        memcpy(copy, packed, both);
        size_t n = both - (size_t)cases[c].cut;
        for (int i = 0; cases[c].flip && i < 40; i++) copy[both - (size_t)cases[c].flip + (size_t)i] ^= 0x5a;
        memset(copy + n, '?', (size_t)cases[c].tail);
        n += (size_t)cases[c].tail;
        ep_stream_in *in;
        ep_error err;
        assert_int_equal(ep_stream_memory(copy, n, &err, &in), EP_OK);
        for (int round = 0; round < 2; round++) {
            size_t size;
            char *all = drain(in, round ? 777 : 65536, &size);
            assert_true(size >= cases[c].at_least && size <= sizeof text);
            if (!cases[c].is_damaged) assert_memory_equal(all, text, size);
            ep_stream_state s = ep_stream_get_state(in);
            assert_true(s.gzip);
            assert_int_equal(s.cut, cases[c].is_cut);
            assert_int_equal(s.damaged, cases[c].is_damaged);
            assert_int_equal(s.trailing, cases[c].is_trailing);
            free(all);
            assert_int_equal(ep_stream_rewind(in, &err), EP_OK);
        }
        ep_stream_close(in);
    }
}

static void test_stream_out(void **state) {
    (void)state;
    for (int gzip = 0; gzip < 2; gzip++) {
        ep_stream_out *o;
        ep_error err;
        assert_int_equal(ep_stream_create(at("out"), gzip, &err, &o), EP_OK);
        for (int i = 0; i < 1000; i++) assert_int_equal(ep_stream_write(o, "0123456789", 10, &err), EP_OK);
        assert_int_equal(ep_stream_commit(o, &err), EP_OK);
        ep_stream_in *in;
        assert_int_equal(ep_stream_open(at("out"), &err, &in), EP_OK);
        size_t size;
        char *all = drain(in, 1000, &size);
        assert_int_equal(size, 10000);
        assert_memory_equal(all + 9990, "0123456789", 10);
        assert_int_equal(ep_stream_get_state(in).gzip, gzip);
        free(all);
        ep_stream_close(in);
        assert_int_equal(ep_stream_create(at("out"), gzip, &err, &o), EP_OK);
        ep_stream_abandon(o);
        assert_int_equal(access(at("out"), F_OK), 0);
    }
    ep_stream_abandon(NULL);
    ep_stream_close(NULL);
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A link stays one: what it points at is replaced. A name of an open file is that file, and is never renamed over. */
static void test_links(void **state) {
    (void)state;
    ep_error err;
    struct stat st;
    char target[600], link[600], name[32], seen[16] = {0};
    snprintf(target, sizeof target, "%s", at("target"));
    snprintf(link, sizeof link, "%s", at("link"));
    assert_int_equal(ep_file_write(target, "old", 3, &err), EP_OK);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(ep_file_write(link, "new", 3, &err), EP_OK);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    int fd = open(target, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, seen, sizeof seen), 3);
    assert_string_equal(seen, "new");
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(ep_file_write(name, "er", 2, &err), EP_OK); /* goes on where the open file stands */
    assert_int_equal(pread(fd, seen, sizeof seen, 0), 5);
    assert_string_equal(seen, "newer");
    close(fd);
    unlink(link);
    unlink(target);
    assert_int_not_equal(ep_file_write("/dev/fd/60000", "x", 1, &err), EP_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_write_read), cmocka_unit_test(test_gzip),
                                       cmocka_unit_test(test_stream_out), cmocka_unit_test(test_links)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
