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
# The source shown compiles by hand as it is, without a warning, for both dtypes and for any processor level.
"$epi" run geglu --batch 1 --seq 8 --dim 32 --hidden 48 --dtype f32 --mode compiled >/dev/null
for dtype in f32 bf16; do
    "$epi" kernels --show "epi_poi_gelu_tanh_mul_$dtype" >"$EPILOGUE_CACHE_DIR/hand.c"
    flags=()
    grep -q 'V_LANES 8$' "$EPILOGUE_CACHE_DIR/hand.c" && flags=(-mavx2 -mfma -mf16c)
    grep -q 'V_LANES 16$' "$EPILOGUE_CACHE_DIR/hand.c" && flags=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
    cc -std=gnu17 -O2 -Wall -Wextra -Werror -ffp-contract=off "${flags[@]}" -c "$EPILOGUE_CACHE_DIR/hand.c" \
        -o "$EPILOGUE_CACHE_DIR/hand.o"
    nm "$EPILOGUE_CACHE_DIR/hand.o" | grep -q " T epi_poi_gelu_tanh_mul_$dtype"
    rm "$EPILOGUE_CACHE_DIR/hand.c" "$EPILOGUE_CACHE_DIR/hand.o"
done
if "$epi" kernels --show no_such_kernel 2>/dev/null; then exit 1; fi
if "$epi" kernels --show "" >/dev/null 2>&1; then exit 1; fi
"$epi" kernels --clear-cache | grep -q "2 entries removed"
"$epi" kernels --cache | grep -q "none yet"
# A folder that can't be is told in a sentence.
refused() {
    local code=0
    "$@" >/dev/null 2>"$EPILOGUE_CACHE_DIR/err" || code=$?
    [ "$code" -eq 2 ] && grep -q "^epi: no cache: " "$EPILOGUE_CACHE_DIR/err"
}
touch "$EPILOGUE_CACHE_DIR/file"
folder=$EPILOGUE_CACHE_DIR/file/none
ran=$(EPILOGUE_CACHE_DIR="$folder" "$epi" run geglu --mode compiled --batch 1 --seq 4 --dim 64 --hidden 128)
grep -q "cache    none: its folder cannot be made (Not a directory)" <<<"$ran"
grep -q "$folder" <<<"$ran"
for what in --cache "--cache --json"; do
    refused env EPILOGUE_CACHE_DIR="$EPILOGUE_CACHE_DIR/file/none" "$epi" kernels $what
    refused env -u HOME -u XDG_CACHE_HOME -u EPILOGUE_CACHE_DIR "$epi" kernels $what
done
