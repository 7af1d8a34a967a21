/* The system's C compiler: spawned without a shell, in a private folder, under a time limit. */
#define _GNU_SOURCE
#include "toolchain.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

enum { PATH_SIZE = 4096, MAX_IMAGE = 64 << 20 };

/* No option may change a result: no contraction, no fast math, no errno. Nothing is linked; what memcpy and the like
 * need is in the process that loads the result. */
static const char *const common_flags[] = {"-std=gnu17",
                                           "-O2",
                                           "-fPIC",
                                           "-shared",
                                           "-nostdlib",
                                           "-w",
                                           "-pipe",
                                           "-ffp-contract=off",
                                           "-fno-math-errno",
                                           "-fno-stack-protector",
                                           NULL};
static const char *const avx2_flags[] = {"-mavx2", "-mfma", "-mf16c", NULL};
static const char *const avx512_flags[] = {
    "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512", NULL};
static const char *const bf16_flags[] = {
    "-mavx512f",    "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512",
    "-mavx512bf16", NULL};
static const char *const no_flags[] = {NULL};
static const char *const *const isa_flags[EP_ISA_COUNT] = {no_flags, avx2_flags, avx512_flags, bf16_flags, bf16_flags};

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The program's full path, looked up in PATH as a shell would. */
static ep_status find_compiler(const ep_build *b, ep_error *err, char out[PATH_SIZE]) {
    const char *name = b->finder ? b->finder : getenv("EPILOGUE_CC");
    if (!name || !*name) name = "cc";
    if (strchr(name, '/')) {
        if (strlen(name) < PATH_SIZE && is_program(name)) {
            strcpy(out, name);
            return EP_OK;
        }
        return ep_fail(err, EP_ERROR_COMPILER, "no C compiler: %s is not a program", name);
    }
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");
        int len = snprintf(out, PATH_SIZE, "%.*s/%s", (int)n, p, name);
        if (n && len > 0 && len < PATH_SIZE && is_program(out)) return EP_OK;
        p += n + (p[n] == ':');
    }
    return ep_fail(err, EP_ERROR_COMPILER, "no C compiler: %s is not in PATH (EPILOGUE_CC names another)", name);
}

/* Who compiles, without running it: the file behind all links, its size and its time. Starting it costs more than a
 * warm load may. */
static ep_status cc_identity(const ep_build *b, ep_error *err, ep_hasher *h) {
    char path[PATH_SIZE], real[PATH_SIZE];
    struct stat st;
    EP_TRY(find_compiler(b, err, path));
    if (!realpath(path, real) || stat(real, &st) != 0)
        return ep_fail(err, EP_ERROR_COMPILER, "%s cannot be read: %s", path, strerror(errno));
    int64_t facts[3] = {(int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec, (int64_t)st.st_mtim.tv_nsec};
    ep_hasher_add(h, real, strlen(real));
    ep_hasher_add(h, facts, sizeof facts);
    for (const char *const *f = common_flags; *f; f++) ep_hasher_add(h, *f, strlen(*f) + 1);
    for (const char *const *f = isa_flags[b->isa]; *f; f++) ep_hasher_add(h, *f, strlen(*f) + 1);
    return EP_OK;
}

typedef struct job {
    char dir[PATH_SIZE], source[PATH_SIZE], object[PATH_SIZE], log[PATH_SIZE];
} job;

static ep_status write_file(const char *path, const void *data, size_t len, ep_error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return ep_fail(err, EP_ERROR_IO, "%s cannot be written: %s", path, strerror(errno));
    if (!ep_fd_write(fd, data, len)) {
        int e = errno;
        close(fd);
        return ep_fail(err, EP_ERROR_IO, "%s cannot be written: %s", path, strerror(e));
    }
    return close(fd) ? ep_fail(err, EP_ERROR_IO, "%s cannot be written: %s", path, strerror(errno)) : EP_OK;
}

static ep_status open_job(job *j, ep_error *err) {
    const char *tmp = getenv("TMPDIR");
    if (!tmp || !*tmp || strlen(tmp) > PATH_SIZE - 64) tmp = "/tmp";
    snprintf(j->dir, PATH_SIZE - 32, "%s/epilogue-XXXXXX", tmp);
    if (!mkdtemp(j->dir)) return ep_fail(err, EP_ERROR_IO, "no private folder in %s: %s", tmp, strerror(errno));
    const struct {
        char *to;
        const char *name;
    } files[] = {{j->source, "kernel.c"}, {j->object, "kernel.so"}, {j->log, "messages"}};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(j->dir);
        memcpy(files[i].to, j->dir, n);
        snprintf(files[i].to + n, 16, "/%s", files[i].name);
    }
    return EP_OK;
}

static void close_job(job *j) {
    unlink(j->source);
    unlink(j->object);
    unlink(j->log);
    rmdir(
        j->dir); /* a killed compiler may have left a temporary file: then the folder stays, as any crash leaves one */
}

/* Only what a compiler needs: where programs and libraries are, and where its own temporary files go. */
static void environment(const job *j, char path[PATH_SIZE], char tmp[PATH_SIZE], char lib[PATH_SIZE], char *env[5]) {
    const char *p = getenv("PATH"), *l = getenv("LD_LIBRARY_PATH");
    int n = 0;
    if (p && strlen(p) < PATH_SIZE - 8) env[n++] = (snprintf(path, PATH_SIZE, "PATH=%s", p), path);
    if (l && strlen(l) < PATH_SIZE - 20) env[n++] = (snprintf(lib, PATH_SIZE, "LD_LIBRARY_PATH=%s", l), lib);
    size_t d = strlen(j->dir);
    memcpy(tmp, "TMPDIR=", 7);
    memcpy(tmp + 7, j->dir, d + 1);
    env[n++] = tmp;
    env[n++] = (char *)"LC_ALL=C";
    env[n] = NULL;
}

static ep_status start(const char *program, job *j, ep_isa isa, ep_error *err, pid_t *pid) {
    const char *argv[32];
    int n = 0;
    argv[n++] = program;
    for (const char *const *f = common_flags; *f; f++) argv[n++] = *f;
    for (const char *const *f = isa_flags[isa]; *f; f++) argv[n++] = *f;
    argv[n++] = "-o";
    argv[n++] = j->object;
    argv[n++] = j->source;
    argv[n] = NULL;
    char path[PATH_SIZE], tmp[PATH_SIZE], lib[PATH_SIZE], *env[5];
    environment(j, path, tmp, lib, env);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, j->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP); /* so that a time-out ends its children too */
    int e = posix_spawn(pid, program, &actions, &attr, (char *const *)argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return e ? ep_fail(err, EP_ERROR_COMPILER, "%s cannot be started: %s", program, strerror(e)) : EP_OK;
}

static ep_status wait_for(pid_t pid, const char *program, double limit_s, ep_error *err, int *status) {
    int64_t end = ep_clock_ns() + (int64_t)((limit_s > 0 ? limit_s : 30.0) * 1e9);
    for (;;) {
        pid_t r = waitpid(pid, status, WNOHANG);
        if (r == pid) return EP_OK;
        if (r < 0 && errno != EINTR)
            return ep_fail(err, EP_ERROR_COMPILER, "%s was lost: %s", program, strerror(errno));
        if (ep_clock_ns() > end) {
            kill(-pid, SIGKILL);
            while (waitpid(pid, status, 0) < 0 && errno == EINTR) continue;
            return ep_fail(err, EP_ERROR_COMPILER, "%s took longer than its limit of %.3g s and was ended", program,
                           limit_s > 0 ? limit_s : 30.0);
        }
        nanosleep(&(struct timespec){0, 400000}, NULL);
    }
}

static ep_status report(const job *j, const char *program, int status, ep_error *err) {
    char *text = NULL;
    if (ep_file_read(j->log, 1 << 20, NULL, &text, NULL) != EP_OK) text = NULL;
    ep_status s = WIFSIGNALED(status)
                      ? ep_fail(err, EP_ERROR_COMPILER, "%s was ended by signal %d", program, WTERMSIG(status))
                      : ep_fail(err, EP_ERROR_COMPILER, "%s failed (exit %d): %.300s", program,
                                WIFEXITED(status) ? WEXITSTATUS(status) : -1, text ? text : "");
    free(text);
    return s;
}

static ep_status cc_build(const ep_build *b, ep_error *err, void **image, size_t *size) {
    char program[PATH_SIZE];
    pid_t pid;
    int status = 0;
    EP_TRY(find_compiler(b, err, program));
    job *j = calloc(1, sizeof *j);
    if (!j) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a compiler's job");
    ep_status s = open_job(j, err);
    if (s != EP_OK) {
        free(j);
        return s;
    }
    s = write_file(j->source, b->source, b->source_len, err);
    if (s == EP_OK) s = start(program, j, b->isa, err, &pid);
    if (s == EP_OK) s = wait_for(pid, program, b->limit_s, err, &status);
    if (s == EP_OK && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) s = report(j, program, status, err);
    char *object = NULL;
    if (s == EP_OK) s = ep_file_read(j->object, MAX_IMAGE, err, &object, size);
    if (s == EP_OK) *image = object;
    close_job(j);
    free(j);
    return s;
}

const ep_toolchain ep_toolchain_cc = {"cc", cc_identity, cc_build, NULL};
