#!/usr/bin/env bash
# Compares stages built for WebAssembly with native ones, in node: the counts of the same small run must be equal byte for byte. What a broken
# kernel is told is tested in a browser: docs/playground/test_playground.py.
#
#   common/wasm/test.sh [NATIVE [STAGE...]]     NATIVE: a native build folder (default: build-cpu); stages: default those built there
#
# It builds with the preset `wasm`: emscripten and node are needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { printf 'wasm: %s\n' "$*" >&2 && exit 1; }

native=${1:-build-cpu}
shift || true
[ -d "$native/bin" ] || fail "$native/bin is missing: cmake --preset cpu && cmake --build build-cpu"
stages=("$@")
if [ ${#stages[@]} = 0 ]; then
  for path in "$native"/bin/0[1-7]_*; do stages+=("${path##*/}"); done
fi
build="build-wasm"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Older emscriptens take a fetch() for a browser's, and that of node opens no files.
in_node() { node --no-experimental-fetch "$@"; }

[ -e $build/build.ninja ] || cmake --preset wasm >"$work/log" || fail "$(cat "$work/log")"
cmake --build $build --target "${stages[@]}" >"$work/log" || fail "$(tail -n 30 "$work/log")"

# Rounding differs between math libraries, so `check` may; what was counted and predicted may not.
counts='import json, sys
run = json.load(sys.stdin)
assert run["check"]["passed"] and run["threads"]["passed"], run
print(json.dumps([run["predicted"], run["counters"], run["threads"], run["tiles"], run["variant"]], indent=1))'
problem=(--device cpu --heads 1 --seq 33 --head-dim 16 --causal --json)
for stage in "${stages[@]}"; do
  case $stage in 05* | 07*) pass=backward ;; *) pass=forward ;; esac
  "$native/bin/$stage" "${problem[@]}" --pass $pass | python3 -c "$counts" >"$work/native"
  in_node $build/bin/"$stage".js "${problem[@]}" --pass $pass | python3 -c "$counts" >"$work/wasm"
  diff "$work/native" "$work/wasm" || fail "$stage: the counts differ (native <, WebAssembly >)"
  echo "wasm: $stage counts as the native program does"
done
