#!/usr/bin/env bash
# Checks every #include of src/ against src/LAYERS, and that cli/ includes only <epilogue/*.h>, its own headers and libc.
set -euo pipefail
cd "$(dirname "$0")/.."
awk '
FNR == NR {
    if ($0 ~ /^#/ || NF == 0) next
    if ($1 == "never") { never[$2 " " $3] = 1; next }
    if ($1 == "allow") { allow[$2 " " $3] = 1; next }
    rank[$1] = ++n
    next
}
function folder(path,   f) { f = path; if (!sub(/\/[^\/]*$/, "", f)) return ""; sub(/^src\//, "", f); sub(/\/kernels(\/.*)?$/, "", f); return f }
function group(f) { return f ~ /^base/ ? "base" : f ~ /^model/ ? "model" : f ~ /^run/ ? "run" : "read" }
function complain(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; bad = 1 }
/^[ \t]*#[ \t]*include[ \t]*"/ {
    match($0, /"[^"]*"/)
    inc = substr($0, RSTART + 1, RLENGTH - 2)
    from = folder(FILENAME)
    if (inc ~ /^\.\.?\//) { complain("relative include " inc); next }
    if (inc !~ /\//) next
    if (inc ~ /^kernels\//) next
    to = folder("src/" inc)
    if (!(from in rank)) { complain("folder " from " is not in src/LAYERS"); next }
    if (!(to in rank)) { complain("folder " to " of " inc " is not in src/LAYERS"); next }
    if (to == from || (from " " to) in allow) next
    if ((from " " to) in never) { complain(from " may never include " to); next }
    if (rank[to] > rank[from]) { complain(from " includes " to ", which stands above it"); next }
    if (group(to) != group(from) && group(to) != "base" && group(to) != "model") complain(from " includes " to " of another group")
}
END { exit bad }
' src/LAYERS $(find src -name '*.c' -o -name '*.h' | sort)
bad=0
while IFS=: read -r file line text; do
    inc=$(printf '%s' "$text" | sed -E 's/.*#[[:space:]]*include[[:space:]]*"([^"]*)".*/\1/')
    [ -f "cli/$inc" ] || { echo "$file:$line: cli includes $inc"; bad=1; }
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' cli/*.c cli/*.h 2>/dev/null || true)
# The public headers include only their neighbours and libc.
while IFS=: read -r file line text; do
    inc=$(printf '%s' "$text" | sed -E 's/.*"([^"]*)".*/\1/')
    [ -f "include/epilogue/$inc" ] || { echo "$file:$line: a public header includes $inc"; bad=1; }
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' include/epilogue/*.h || true)
# A .c name occurs once in the tree.
twice=$(find src cli -name '*.c' -printf '%f\n' | sort | uniq -d)
[ -z "$twice" ] || { echo "these .c names occur twice: $twice"; bad=1; }
exit $bad
