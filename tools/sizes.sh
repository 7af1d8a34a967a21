#!/usr/bin/env bash
# File ceilings (700 lines; public headers 500; kernels 1200) and function ceiling (80 lines; kernels, tables excepted).
# A function that must be longer says why on the line above it: /* sizes: why */.
set -euo pipefail
cd "$(dirname "$0")/.."
find src cli include -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk '
FNR == 1 { if (file) done_file(); file = FILENAME; start = 0; waived = 0 }
function done_file() {
    limit = file ~ /^include\// ? 500 : file ~ /\/kernels\// ? 1200 : 700
    if (lines > limit) { printf "%s: %d lines, ceiling %d\n", file, lines, limit; bad = 1 }
    total += lines; files++
}
{ lines = FNR }
/\/\* sizes:/ { waived = FNR }
/^[A-Za-z_].*\)[^;]*\{[ \t]*$/ && !/^(typedef|struct|enum|union|extern "C"|#)/ { start = FNR; head = $0; skip = (waived == FNR - 1) }
/^\}/ && start {
    if (FNR - start + 1 > 80 && !skip && file !~ /\/kernels\/|\/simd\//) { printf "%s:%d: function of %d lines, ceiling 80\n", file, start, FNR - start + 1; bad = 1 }
    start = 0
}
END { done_file(); printf "%d files, %d lines\n", files, total > "/dev/stderr"; exit bad }
'
