#!/usr/bin/env bash
# Saves what the docs show of the CPU: what the stages and lab programs print, and the counts of three problems and of a sweep. Takes
# a minute.
#
#   docs/save_results.sh [BUILD_DIR]      (default: build; with its tests)
#
# For a GPU, copy *.jsonl of common/check_gpu.sh to docs/results/NAME/. Then run
# docs/generate.py.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-build}/bin
saved=docs/results/cpu
results=$(mktemp -d)  # the project stays as it was committed until all is there

for stage in "$bin"/[0-9][0-9]_*; do
  case $stage in  # the pass that a stage is about
    *_backward) pass=backward ;;
    *) pass=forward ;;
  esac
  "$stage" --device cpu --pass $pass >"$results/$(basename "$stage").txt"
done
# Where 01 overflows: it has to fail (exit code 1), and the part of its report that says why is shown.
if "$bin/01_naive" --device cpu --input large >"$results/01_naive_large.txt"; then
  echo "01_naive --input large did not fail" >&2
  exit 1
fi
sed -i.all '/^  extra memory/,$d' "$results/01_naive_large.txt" && rm "$results/01_naive_large.txt.all"
for lab in "$bin"/lab_*; do
  case $lab in *_skeleton) continue ;; esac  # no page shows it
  "$lab" >"$results/$(basename "$lab").txt"
done
docs/lab/zoo.sh "${1:-build}/tests" >"$results/zoo.txt"
"$bin/compare" --device cpu --tune --only 06 --variant tuned --no-causal --heads 1 --seq 512 >"$results/tune.txt"
"$bin/lab_fragments" --json >"$results/lab_fragments.json"  # for pictures
"$bin/compare" --device cpu --save "$results/compare.jsonl" >/dev/null
# Without a mask, and long enough for several tiles along both axes: for the page on IO complexity.
"$bin/compare" --device cpu --heads 1 --seq 1024 --no-causal --save "$results/io.jsonl" >/dev/null
# Nothing is a multiple of a tile, heads are shared, rows of Q and K have different numbers, and there is a bias.
"$bin/compare" --device cpu --heads 4 --kv-heads 2 --seq-q 113 --seq-k 203 --head-dim 59 --causal --bias matrix \
  --save "$results/odd_sizes.jsonl" >/dev/null
# The same for stage 08, the first problem in both of its types.
"$bin/compare" --device cpu --only 08 --sweep dtype=fp16,bf16 --save "$results/tensor.jsonl" >/dev/null
"$bin/compare" --device cpu --only 08 --dtype fp16 --heads 1 --seq 1024 --no-causal --save "$results/tensor_io.jsonl" >/dev/null
"$bin/compare" --device cpu --only 08 --dtype fp16 --heads 4 --kv-heads 2 --seq-q 113 --seq-k 203 --head-dim 59 --causal --bias matrix \
  --save "$results/tensor_odd.jsonl" >/dev/null
# For the plots against N. That of io.jsonl goes on where the sweep ends.
"$bin/compare" --device cpu --heads 1 --no-causal --sweep seq=64,128,256,512 --save "$results/sweep.jsonl" >/dev/null
"$bin/compare" --device cpu --only 08 --dtype fp16 --heads 1 --no-causal --sweep seq=64,128,256,512 --save "$results/sweep16.jsonl" >/dev/null
# What a block of a kernel with rings does, in order, for pictures of their phases.
mkdir "$results/traces"
FLASH_SIMT_TRACE="$results/trace.jsonl" "$bin/08_tensor_cores" --device cpu --variant overlap --dtype fp16 --batch 1 --heads 1 \
  --seq-q 128 --seq-k 384 --head-dim 64 --tiles 128,128 >/dev/null
# The first launch alone: another one counts.
awk -v kernel='"tensor_overlap"' 'index($0, kernel) && launches++ { exit } { print }' "$results/trace.jsonl" >"$results/traces/overlap.jsonl"
FLASH_SIMT_TRACE="$results/trace.jsonl" "$bin/08_tensor_cores" --device cpu --variant ring --pass backward --dtype fp16 --batch 1 --heads 1 \
  --seq-q 128 --seq-k 128 --head-dim 128 --tiles 64,128 >/dev/null
awk '/"kernel"/ { wanted = /"backward_ring"/ && !launches++ } NR == 1 || wanted { print }' "$results/trace.jsonl" \
  >"$results/traces/backward.jsonl"
rm "$results/trace.jsonl"
FLASH_SIMT_TRACE="$results/traces/ring.jsonl" "${1:-build}/tests/test_flash_simt" -ns -tc='trace: the ring for its picture' >/dev/null

cp "$saved/ring_events.csv" "$results/"  # of several processes: common/binding/trace_ring.py

# Of torch, where it is installed.
python3 -B docs/lab/autograd.py >"$results/autograd.txt" || { [ $? = 3 ] && cp "$saved/autograd.txt" "$results/"; }
# Needs torch and Triton.
python3 -B docs/lab/triton_stages.py >"$results/triton_stages.txt" || { [ $? = 3 ] && cp "$saved/triton_stages.txt" "$results/"; }

rm -rf "$saved"
mv "$results" "$saved"
chmod 755 "$saved"
