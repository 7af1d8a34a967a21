#!/usr/bin/env bash
# An installed tree is enough for a stranger's program in C and C++: by pkg-config, wherever the tree was put, and the
# README's twenty lines compile without a warning. The libraries export ep_ names alone.
set -euo pipefail
build=$(dirname "$1")
here=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "install.sh: $*" >&2; exit 1; }
skip() { echo "install.sh: skipped: $*"; exit 0; }
command -v pkg-config >/dev/null || skip "no pkg-config"
grep -qE '^EPILOGUE_SANITIZE:[A-Z]+=.+' "$build/CMakeCache.txt" && skip "a sanitized library needs a sanitized program"
cmake --install "$build" --prefix "$tmp/first" >/dev/null || fail "cmake --install"
mv "$tmp/first" "$tmp/moved"
lib=$(dirname "$(find "$tmp/moved" -name epilogue-read.pc)")
export PKG_CONFIG_PATH=$lib LD_LIBRARY_PATH=$(dirname "$lib")
cat >"$tmp/read.c" <<'C'
#include <epilogue/analyze.h>
#include <epilogue/guess.h>
#include <epilogue/trace.h>
#include <stdio.h>
int main(int n, char **v) {
    ep_error err;
    ep_trace *t = NULL;
    if (n < 2 || ep_trace_read(v[1], NULL, &err, &t) != EP_OK) return 2;
    printf("%zu events\n", ep_trace_count(t));
    ep_trace_destroy(t);
    return 0;
}
C
trace=$here/../trace/shared/article/mlp_eager.json
cc -std=c17 -Wall -Wextra -Werror "$tmp/read.c" $(pkg-config --cflags --libs epilogue-read) -o "$tmp/read" || fail "C, epilogue-read"
"$tmp/read" "$trace" | grep -qE '^[1-9][0-9]+ events$' || fail "the program read nothing"
for so in "$(dirname "$lib")"/libepilogue*.so; do
    other=$(nm -D --defined-only "$so" | awk '{ print $3 }' | grep -v '^ep_' | head -3 || true)
    [ -z "$other" ] || fail "$so exports $other"
done
for archive in "$(dirname "$lib")"/libepilogue*.a; do
    other=$(nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | grep -v '^ep_' | head -3 || true)
    [ -z "$other" ] || fail "$archive defines $other"
done
# A thread that used the library may end after the library was closed; opening it again and again costs nothing.
cat >"$tmp/open.c" <<'C'
#include <dlfcn.h>
#include <epilogue/tensor.h>
#include <pthread.h>
#include <stdio.h>
#define FIND(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(so, #name)
static void *use(void *path) {
    void *so = dlopen(path, RTLD_NOW);
    if (!so) return puts(dlerror()), path;
    FIND(ep_tensor_zeros);
    FIND(ep_tensor_destroy);
    ep_tensor *t;
    ep_status s = ep_tensor_zeros_(EP_DTYPE_F32, 0, NULL, NULL, &t);
    if (s == EP_OK) ep_tensor_destroy_(t);
    return s != EP_OK || dlclose(so) != 0 ? path : NULL;
}
int main(int n, char **v) {
    for (int i = 0; i < 2000; i++) {
        pthread_t t;
        void *bad = v[n - 1];
        if (pthread_create(&t, NULL, use, bad) != 0 || pthread_join(t, &bad) != 0 || bad) return 1;
    }
    return 0;
}
C
cc -std=gnu17 "$tmp/open.c" -I"$(dirname "$(dirname "$lib")")/include" -ldl -lpthread -o "$tmp/open" || fail "a program that opens a library"
for so in "$(dirname "$lib")"/libepilogue*.so; do
    "$tmp/open" "$so" || fail "$so opened and closed in threads"
done
[ -f "$lib/epilogue.pc" ] || exit 0
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/../../README.md" >"$tmp/linear.c"
cc -std=c17 -Wall -Wextra -Werror "$tmp/linear.c" $(pkg-config --cflags --libs epilogue) -o "$tmp/linear" || fail "the README's program"
(cd "$tmp" && ./linear) | grep -qE '^[1-9][0-9]* events$' || fail "the README's program recorded nothing"
for example in "$here"/../../examples/*.c; do
    cc -std=c17 -Wall -Wextra -Werror "$example" $(pkg-config --cflags --libs epilogue) -o "$tmp/example" || fail "$example"
done
# find_package, from projects of one language or both, with either kind of library.
mkdir "$tmp/cmake"
cat >"$tmp/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(stranger LANGUAGES ${LANGUAGES_USED})
find_package(epilogue 0.1 REQUIRED)
foreach(library epilogue epilogue_shared epilogue_static epilogue-read epilogue-read_static)
  add_executable(use_${library} a.${SUFFIX})
  target_link_libraries(use_${library} epilogue::${library})
endforeach()
CMAKE
printf '#include <epilogue/status.h>\nint main(void) { return ep_version()[0] ? 0 : 1; }\n' | tee "$tmp/cmake/a.c" >"$tmp/cmake/a.cpp"
use_cmake() { # suffix, languages
    rm -rf "$tmp/cmake/build"
    cmake -S "$tmp/cmake" -B "$tmp/cmake/build" -DCMAKE_PREFIX_PATH="$tmp/moved" -DSUFFIX="$1" -DLANGUAGES_USED="$2" >"$tmp/log" 2>&1 &&
        cmake --build "$tmp/cmake/build" >>"$tmp/log" 2>&1 || { tail -20 "$tmp/log" >&2; fail "find_package from $2"; }
    for program in "$tmp/cmake/build"/use_*; do "$program" || fail "$program from $2"; done
}
use_cmake c C
command -v c++ >/dev/null || exit 0
use_cmake cpp CXX
use_cmake cpp 'C;CXX'
printf '#include <epilogue/epilogue.h>\nint main() { return ep_version()[0] ? 0 : 1; }\n' >"$tmp/a.cpp"
c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror "$tmp/a.cpp" $(pkg-config --cflags --libs epilogue) -o "$tmp/a" || fail "C++"
"$tmp/a" || fail "the C++ program"
