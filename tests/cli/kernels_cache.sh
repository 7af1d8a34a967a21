# needs: run
# `epi kernels --cache`, `--show` and `--clear-cache`: what compiled mode generated, as a person meets it.
set -euo pipefail
epi=$1
export EPILOGUE_CACHE_DIR
EPILOGUE_CACHE_DIR=$(mktemp -d)
trap 'rm -rf "$EPILOGUE_CACHE_DIR"' EXIT
"$epi" kernels --cache | grep -q "none yet"
"$epi" run geglu --batch 1 --seq 8 --dim 32 --hidden 48 --mode compiled >/dev/null
list=$("$epi" kernels --cache)
grep -q epi_poi_gelu_tanh_mul <<<"$list"
"$epi" kernels --cache --json | grep -q '"kernels":'
name=$(grep -o 'epi_poi_[a-z0-9_]*' <<<"$list" | head -1)
"$epi" kernels --show "$name" >"$EPILOGUE_CACHE_DIR/shown.c"
grep -q "void $name(" "$EPILOGUE_CACHE_DIR/shown.c"
! grep -q '#include' "$EPILOGUE_CACHE_DIR/shown.c"
if "$epi" kernels --show no_such_kernel 2>/dev/null; then exit 1; fi
"$epi" kernels --clear-cache | grep -q "1 entry removed"
"$epi" kernels --cache | grep -q "none yet"
