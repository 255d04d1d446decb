#!/usr/bin/env bash
# Saves what the docs show of the CPU: what the stages and lab programs print, and the counts of two problems and of a sweep. Takes two minutes.
#
#   docs/save_results.sh [BUILD_DIR]      (default: build; with its tests)
#
# For a GPU, copy *.jsonl of common/check_gpu.sh to docs/results/NAME/. Then run docs/generate.py.
set -euo pipefail
case ${1:-} in
  --help | -h) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;;
  -*) echo "save_results: '$1' is no build folder; --help says what is allowed" >&2 && exit 2 ;;
esac
[ $# -le 1 ] || { echo "save_results: there is no second argument '$2'; --help says what is allowed" >&2 && exit 2; }
cd "$(dirname "$0")/.."
build=${1:-build}
bin=$build/bin
saved=docs/results/cpu
[ -d "$bin" ] || { echo "save_results: there is no folder '$bin'; --help says what is allowed" >&2 && exit 2; }
results=$(mktemp -d)  # the project stays as it was committed until all is there
trap 'rm -rf "$results"' EXIT

for stage in "$bin"/[0-9][0-9]_*; do
  "$stage" --device cpu >"$results/$(basename "$stage").txt"
done
# Where 01 overflows: it has to fail (exit code 1), and the part of its report that says why is shown.
if "$bin/01_naive" --device cpu --input large >"$results/all.txt"; then
  echo "01_naive --input large did not fail" >&2
  exit 1
fi
sed '/^  extra memory/,$d' "$results/all.txt" >"$results/01_naive_large.txt"
rm "$results/all.txt"  # a trace goes there
for lab in "$bin"/lab_*; do
  case $lab in *_skeleton | *_first) continue ;; esac  # no page shows it
  "$lab" >"$results/$(basename "$lab").txt"
done
docs/lab/zoo.sh "$build/tests" >"$results/zoo.txt"
"$bin/compare" --device cpu --tune --only 06 --variant tuned --causal=false --heads 1 --seq 512 >"$results/tune.txt"
"$bin/lab_fragments" --json >"$results/lab_fragments.json"  # for pictures

count() { "$bin/compare" --device cpu "${@:2}" --save "$results/$1.jsonl" >/dev/null; }
one_head=(--heads 1 --causal=false)
count compare
count tensor --only 08 --sweep dtype=fp16,bf16
# Without a mask, and long enough for several tiles along both axes: for the page on IO complexity.
count io "${one_head[@]}" --seq 1024
count tensor_io --only 08 --dtype fp16 "${one_head[@]}" --seq 1024
# For the plots against N. That of io.jsonl goes on where the sweep ends.
count sweep "${one_head[@]}" --sweep seq=64,128,256,512
count sweep16 --only 08 --dtype fp16 "${one_head[@]}" --sweep seq=64,128,256,512

# What a block of a kernel with rings does, in order, for pictures of their phases: the first launch of that kernel.
mkdir "$results/traces"
trace() {  # FILE KERNEL OPTION...
  FLASH_SIMT_TRACE="$results/all.txt" "$bin/08_tensor_cores" --device cpu --dtype fp16 --batch 1 --heads 1 "${@:3}" >/dev/null
  awk -v kernel="\"$2\"" '/"kernel"/ { wanted = index($0, kernel) && !launches++ } NR == 1 || wanted' "$results/all.txt" >"$results/traces/$1"
}
trace overlap.jsonl tensor_overlap --variant overlap --seq-q 128 --seq-k 384 --head-dim 64 --tiles 128,128
trace backward.jsonl backward_ring --variant ring --pass backward --seq-q 128 --seq-k 128 --head-dim 128 --tiles 64,128
FLASH_SIMT_TRACE="$results/traces/ring.jsonl" "$build/tests/machine_test" -ns -tc='trace: the ring for its picture' >/dev/null
rm "$results/all.txt"

cp "$saved/ring_events.csv" "$results/"  # a recording of two processes
for lab in autograd triton_stages; do  # where torch, and Triton for the second, are installed
  python3 -B docs/lab/$lab.py >"$results/$lab.txt" || { [ $? = 3 ] && cp "$saved/$lab.txt" "$results/"; }
done

rm -rf "$saved"
mv "$results" "$saved"
chmod 755 "$saved"
