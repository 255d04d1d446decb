#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, all tests, compute-sanitizer's four tools on every kernel, the comparison.
#
#   common/check_gpu.sh [OUTPUT_DIR] [CMAKE_ARGUMENT...]
#
# Logs and the saved comparison go to OUTPUT_DIR (default: build-gpu/report). Exits 1 if anything failed. In a copy of the project
# without its git repository, FLASH_COMMIT says which commit the results belong to.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
output=${1:-build-gpu/report}
shift || true
build="build-gpu"
mkdir -p "$output"
failed=0

note() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; failed=1; }

note "build"
cmake -S . -B "$build" -G Ninja -DFLASH_CUDA=AUTO "$@" >"$output/configure.log" 2>&1 || { tail -n 20 "$output/configure.log"; exit 1; }
cmake --build "$build" >"$output/build.log" 2>&1 || { tail -n 40 "$output/build.log"; exit 1; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit 1

note "tests"
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" >"$output/ctest.log" 2>&1 || fail "ctest"
grep -A 40 'tests passed\|tests failed' "$output/ctest.log" | head -n 40 | tee "$output/tests.txt"

# Small problems that still meet every kernel, every tail and the mask. initcheck reports reads of memory that nobody wrote; the
# outputs are poisoned by a memset, which counts as written, so NaN in the check covers what it cannot see.
note "compute-sanitizer"
problems=("--seq-q 65 --seq-k 97 --head-dim 40 --heads 4 --kv-heads 2 --causal" "--seq 33 --head-dim 59 --layout qkv --bias matrix")
for stage in "$build"/bin/[0-9][0-9]_*; do
  name=$(basename "$stage")
  for variant in $("$stage" --list --json | python3 -c 'import json, sys; print(*(v["name"] for v in json.load(sys.stdin)["variants"]))'); do
    for pass in forward backward; do
      "$stage" --list --json | python3 -c "
import json, sys
passes = next(v['passes'] for v in json.load(sys.stdin)['variants'] if v['name'] == '$variant')
sys.exit('$pass' not in passes)" || continue
      for problem in "${problems[@]}"; do
        for tool in memcheck racecheck initcheck synccheck; do
          log="$output/sanitizer.log"
          # shellcheck disable=SC2086  # the problem is a list of options
          if compute-sanitizer --tool "$tool" --error-exitcode 9 "$stage" --device gpu --variant "$variant" --pass "$pass" $problem >"$log" 2>&1; then
            echo "clean: $tool $name $variant $pass $problem"
          else
            fail "$tool $name $variant $pass $problem"
            tail -n 15 "$log"
          fi
        done
      done
    done
  done
done | tee "$output/sanitizers.txt" | sort | uniq -c | awk '{print $2, $3, $4, $5, $6}' | sort | uniq -c
grep -q '^FAILED' "$output/sanitizers.txt" && failed=1

note "comparison"
"$build/bin/compare" --save "$output/compare.json" | tee "$output/compare.txt" || fail "compare"

# Also of the problem that the simulator counts in the docs, so that its counts can be held against the GPU's own.
if command -v ncu >/dev/null; then
  note "profile"
  "$build/bin/compare" --heads 2 --seq 256 --batch 1 --save "$output/counted_problem.json" >"$output/compare.log" || fail "compare"
  for rows in compare counted_problem; do
    common/profile_gpu.py "$build/bin" "$output/$rows.json" >>"$output/profile.log" 2>&1 || fail "profile of $rows"
  done
fi
exit $failed
