#!/usr/bin/env bash
# The reading library and tool link against zlib and libc only, and the tool explains a trace: read_only.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
for file in "$build/epi" "$build"/libepilogue-read.so; do
    extra=$(ldd "$file" | awk '{print $1}' | grep -vE '^(linux-vdso|/lib.*/ld-linux|libz|libm|libc|libpthread|libdl)' || true)
    [ -z "$extra" ] || { echo "$file also needs: $extra"; exit 1; }
done
"$build/epi" explain tests/trace/shared/article/mlp_eager.json --json >/dev/null
"$build/epi" diff tests/trace/shared/article/mlp_eager.json tests/trace/shared/article/mlp_compiled.json >/dev/null
"$build/epi" list tests/trace/shared/article/mlp_eager.json >/dev/null
echo "read-only build: $(ldd "$build/epi" | awk '{print $1}' | grep -c .) libraries, explain and list work"
