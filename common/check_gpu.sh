#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, all tests, compute-sanitizer's four tools on every kernel, the comparisons.
#
#   common/check_gpu.sh [--help] [OUTPUT_DIR [CMAKE_ARGUMENT...]]
#
# Logs and saved rows go to OUTPUT_DIR (default: build-gpu/report), by part:
#   tests        all tests
#   comparison   all stages on one problem, in fp32 and fp16, on few heads and on long sequences; torch's attention, if it is installed
#   tensor       stage 08 in turns with FlashAttention-2, -3 and cuDNN if torch is installed; the front page's problem
#   sanitizers   memcheck, racecheck, initcheck, synccheck: sanitizers.txt, and the log of each failure
#   profile      Nsight Compute on these problems and on one that the docs count
#   sweep        the last steps in fp32, and torch, for N from 1024 to 16,384: ten minutes; goes on with the files of an interrupted run
#
# FLASH_CHECK_PARTS names the parts to run (default: all but sweep), FLASH_COMMIT the commit of the results, in a copy of the project
# that git does not know. Exits 1 if anything failed, 2 on bad usage, 3 if no GPU answers. It takes a quarter of an hour on an H200.
set -uo pipefail
case ${1:-} in
  --help | -h) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit 0 ;;
  -*) echo "check_gpu: '$1' is no folder for the results; --help says what is allowed" >&2 && exit 2 ;;
esac
for part in ${FLASH_CHECK_PARTS:-}; do
  [[ $part =~ ^(tests|comparison|tensor|sanitizers|profile|sweep)$ ]] && continue
  echo "check_gpu: FLASH_CHECK_PARTS has '$part'; allowed: tests comparison tensor sanitizers profile sweep" >&2 && exit 2
done
cd "$(dirname "$0")/.." || exit 1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || { echo "check_gpu: no GPU answers (nvidia-smi)" >&2 && exit 3; }
output=${1:-build-gpu/report}
shift || true
build="build-gpu"
mkdir -p "$output"
output=$(realpath "$output")
rm -f "$output"/sanitizer*.log "$output/profile.log"  # of an earlier run
failed=0

part() { [[ " ${FLASH_CHECK_PARTS:-tests comparison tensor sanitizers profile} " == *" $1 "* ]] && printf '\n== %s (after %d s)\n' "$1" $SECONDS; }
fail() { printf 'FAILED: %s\n' "$*"; failed=1; }

# compare FILE OPTION...: adds rows to OUTPUT_DIR/FILE.jsonl, and the table to FILE.txt
compare() { "$build/bin/compare" --device gpu "${@:2}" --save "$output/$1.jsonl" 2>>"$output/compare.log" | tee -a "$output/$1.txt" || fail "compare $*"; }

cmake -S . -B "$build" -G Ninja -DFLASH_CUDA=AUTO -DFLASH_BINDING=ON "$@" >"$output/configure.log" 2>&1 || { tail -n 20 "$output/configure.log"; exit 1; }
cmake --build "$build" >"$output/build.log" 2>&1 || { tail -n 40 "$output/build.log"; exit 1; }
torch=no
if python3 -c 'import torch; torch.empty(1, device="cuda")' 2>"$output/peers.log"; then torch=yes; else echo "no torch here: no peers"; fi

if part tests; then
  ctest --test-dir "$build" --output-on-failure -j "$(nproc)" >"$output/ctest.log" 2>&1 || fail "ctest"
  grep -A 40 'tests passed\|tests failed' "$output/ctest.log" | head -n 40 | tee "$output/tests.txt"
fi

# Times come next, while nothing else runs.
if part comparison; then
  compare compare
  compare compare16 --dtype fp16
  compare few_heads --batch 1 --heads 8 --seq 4096 --iterations 10
  large=(--batch 4 --width 2048 --seq 4096 --sweep "d=128,64" --sweep "causal=no,yes")
  compare large --only 06,07 --iterations 10 "${large[@]}"
  [ $torch = no ] || compare peers --only peer --wide "${large[@]}"
  [ $torch = no ] || compare peers --only peer --wide
fi

# 16,384 tokens with H*d = 2048, as nearly as N and d allow. Rivals take turns: a card at its power limit favours whoever comes first.
papers=(--tokens 16384 --width 2048 --sweep "causal=no,yes")
rivals=(--only 08 --variant "last,ordered,relay")
[ $torch = no ] || rivals=(--only "08,peer" --variant "last,ordered,relay,flash,flash3,cudnn")
if part tensor; then
  [ $torch = no ] || compare peers16 --only peer --wide --dtype fp16 --iterations 10
  turns=("${rivals[@]}" --iterations 10 --rounds 2)
  lengths=seq=1024,4096,16384
  compare sweep16 "${turns[@]}" "${papers[@]}" --dtype fp16 --sweep d=64,128 --sweep $lengths
  compare tensor_steps --only 08 --iterations 10 "${papers[@]}" --dtype fp16 --seq 4096 --sweep d=64,128
  compare tensor_cores "${turns[@]}" "${papers[@]}" --dtype bf16 --sweep d=64,128 --sweep $lengths
  compare tensor_cores "${turns[@]}" "${papers[@]}" --dtype fp16 --seq 4096 --sweep d=32,80,96,111
  compare tensor_cores "${turns[@]}" "${papers[@]}" --dtype fp16 --head-dim 256 --sweep $lengths
  compare tensor_cores "${turns[@]}" "${papers[@]}" --dtype fp16 --seq 4000 --head-dim 128
  front=(--batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --iterations 10 --rounds 2)
  compare front "${front[@]}" --only 01,03,04,05,06,07 --variant last
  compare front "${front[@]}" "${rivals[@]}" --dtype fp16 --resume
fi

# The problems of the FlashAttention papers. Five repetitions: most of what takes long is plain attention.
if part sweep; then
  sweep=(--iterations 5 --time-limit 10 --resume --sweep "d=64,128" "${papers[@]}" --sweep "seq=1024,2048,4096,8192,16384")
  compare sweep "${sweep[@]}" --variant last
  [ $torch = no ] || compare sweep_peers "${sweep[@]}" --only peer --sweep dtype=fp32,fp16
fi

# sanitize TOOL PROGRAM OPTION...: one line, and the log of a failure. The outputs are poisoned by a memset, which counts as written for
# initcheck, so NaN in the check covers what it cannot see.
# shellcheck disable=SC2317  # xargs starts it
sanitize() {
  local name="$1 ${2##*/} ${*:3}" log
  log="$output/sanitizer ${name// --/ }.log"
  compute-sanitizer --tool "$1" --error-exitcode 9 "${@:2}" >"$log" 2>&1 && echo "clean: $name" && rm "$log" && return
  if grep -q 'refuses this problem' "$log"; then rm "$log"; else echo "FAILED: $name"; fi  # no tiles for it
}
if part sanitizers; then
  # racecheck does not follow the order by which one lane arrives on an mbarrier for its warp (docs/howto/debugging.md, section 7): it gets
  # a build of stage 08 in which every lane arrives.
  racecheck="$build-racecheck"
  { cmake -S . -B "$racecheck" -G Ninja -DFLASH_CUDA=AUTO "$@" -DBUILD_TESTING=OFF -DCMAKE_CUDA_FLAGS=-DFLASH_ARRIVE_PER_LANE &&
    cmake --build "$racecheck" --target 08_tensor_cores; } >"$output/build-racecheck.log" 2>&1 || fail "build for racecheck"
  export -f sanitize && export output
  for tool in memcheck racecheck initcheck synccheck; do
    for program in "$build"/tests/standalone_*0?; do
      [[ $tool$program = racecheck*hopper* ]] || echo "$tool $program 129 2 0 causal"
    done
    for stage in "$build"/bin/[0-9][0-9]_*; do
      program=$stage
      [ $tool = racecheck ] && [ "${stage##*/}" = 08_tensor_cores ] && program=$racecheck/bin/08_tensor_cores
      python3 -m common.compare.sanitized "$tool" "$stage" "$program"
    done
  done | xargs -P "$(nproc)" -I '{}' bash -c 'sanitize {}' >"$output/sanitizers.txt"
  cut -d ' ' -f 1-3 "$output/sanitizers.txt" | grep '^clean\|^FAILED' | sort | uniq -c
  grep -q '^clean' "$output/sanitizers.txt" || fail "no run under compute-sanitizer"
  ! grep '^FAILED' "$output/sanitizers.txt" || failed=1
fi

# profile FILE OPTION...
profile() { "$build/bin/compare" profile "$output/$1.jsonl" "${@:2}" >>"$output/profile.log" 2>&1 || fail "profile of $1"; }
if command -v ncu >/dev/null && part profile; then
  compare counted_problem --heads 2 --seq 256 --batch 1
  compare profile --only 08 --dtype fp16 --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal=false --iterations 5
  [ ! -e "$output/compare.jsonl" ] || profile compare  # of the part `comparison`
  profile counted_problem
  profile profile --details
fi
exit $failed
