#!/usr/bin/env bash
# Everything that needs a GPU, in one go: build, all tests, compute-sanitizer's four tools on every kernel, the comparisons.
#
#   common/check_gpu.sh [--help] [OUTPUT_DIR [CMAKE_ARGUMENT...]]
#
# Logs and saved results go to OUTPUT_DIR (default: build-gpu/report):
#   compare.jsonl         all stages in fp32, b8 h12 N1024 d64 causal
#   compare16.jsonl       and those that take fp16
#   large.jsonl           stages 06 and 07 on 4096 queries and keys; the others would take too long
#   peers.jsonl           torch's attention on the problems of both, if torch is installed
#   sweep16.jsonl         the last steps of stage 08, FlashAttention-2, -3 and cuDNN, timed in turns, on 16,384 tokens with H*d = 2048: N of
#                         1024, 4096 and 16,384, d 64 and 128, causal or not, fp16
#   tensor_cores.jsonl    likewise in bf16, for other d, and for odd shapes
#   tensor_steps.jsonl    all steps of stage 08 at N4096
#   front.jsonl           the front page's problem: the last step of each stage, FlashAttention-2 and cuDNN
#   peers16.jsonl         all of torch on the problem of compare16.jsonl, if torch is installed
#   sweep.jsonl, sweep_peers.jsonl
#                         part `sweep` alone: the last steps of the stages in fp32, and torch, on 16,384 tokens with H*d = 2048, for N from
#                         1024 to 16,384, d 64 and 128, causal or not. Takes about ten minutes; goes on with the files
#                         that OUTPUT_DIR has from an interrupted run
#   tuned.jsonl           part `tune` alone: --tune of the last steps of stages 06 to 08 over widths and masks
#   virtual.txt           part `virtual` alone: what the GPU tests of all stages say of builds for 75-virtual and 80-virtual, which have
#                         no machine code: the driver compiles the kernels of Turing and of Ampere for the GPU at hand
#   standalone.txt        the standalone.cu files, N1024 with 128 heads and N4096 with 32, causal or not
#   few_heads.jsonl       all stages on one batch of 8 heads, N4096 d64 causal: less work than the SMs could share
#   counted_problem.jsonl the problem whose counts the docs show, so that they can be held against the GPU's own
#   profile.jsonl         what Nsight Compute says of stage 08, N4096 d128
# Exits 1 if anything failed, 2 on bad usage, 3 if no GPU answers. FLASH_COMMIT says which commit the results belong to, in a copy of
# the project of which git knows another or none. All of it takes a quarter of an hour on an H200 with 16 cores: FLASH_CHECK_SECONDS
# (default 1200) is when the last part, the profile, has to end; what it lacks is said. FLASH_CHECK_PARTS names the parts to run after
# the build, for less time at once: tests comparison large peers tensor sanitizers profile (the default: these), sweep, tune, virtual.
# FLASH_CHECK_STAGES: the number of the one stage that compute-sanitizer looks at (the default: all).
set -uo pipefail
case ${1:-} in
  --help | -h) awk 'NR > 1 && (!/^#/ || /^# shellcheck/) { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0" && exit 0 ;;
  -*) echo "check_gpu: '$1' is no folder for the results; --help says what is allowed" >&2 && exit 2 ;;
esac
cd "$(dirname "$0")/.." || exit 1
{ command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; } || { echo "check_gpu: no GPU answers (nvidia-smi)" >&2 && exit 3; }
output=${1:-build-gpu/report}
shift || true
build="build-gpu"
deadline=${FLASH_CHECK_SECONDS:-1200}
parts=" ${FLASH_CHECK_PARTS:-tests comparison large peers tensor sanitizers profile} "
mkdir -p "$output"
output=$(realpath "$output")
failed=0
rm -f "$output"/sanitizer*.log "$output/profile.log"  # of an earlier run

# part NAME WORD...: is this part asked for? Then its heading is printed.
part() { [[ $parts == *" $1 "* ]] && note "${@:2}"; }
note() { printf '\n== %s (after %d s)\n' "$*" $SECONDS; }
fail() { printf 'FAILED: %s\n' "$*"; failed=1; }

note "build"
cmake -S . -B "$build" -G Ninja -DFLASH_CUDA=AUTO "$@" >"$output/configure.log" 2>&1 || { tail -n 20 "$output/configure.log"; exit 1; }
cmake --build "$build" >"$output/build.log" 2>&1 || { tail -n 40 "$output/build.log"; exit 1; }
torch_here() {  # asked once, since torch takes seconds to load
  [ -n "${torch:-}" ] || { python3 -c 'import torch; torch.empty(1, device="cuda")' 2>>"$output/peers.log" && torch=yes || torch=no; }
  [ "$torch" = yes ] || { echo "no torch here: no peers"; false; }
}

if part tests "tests"; then
  ctest --test-dir "$build" --output-on-failure -j "$(nproc)" >"$output/ctest.log" 2>&1 || fail "ctest"
  grep -A 40 'tests passed\|tests failed' "$output/ctest.log" | head -n 40 | tee "$output/tests.txt"
fi

# Times come next, while nothing else runs.
compare() { "$build/bin/compare" --device gpu "$@" || fail "compare $*"; }
look_for_failures() { grep -h '^FAILED: compare' "$@" && failed=1; }  # in what compare printed to files
if part comparison "comparison"; then
  { compare --save "$output/compare.jsonl"; compare --dtype fp16 --save "$output/compare16.jsonl"; } | tee "$output/compare.txt"
  compare --batch 1 --heads 8 --seq 4096 --iterations 10 --save "$output/few_heads.jsonl" >"$output/few_heads.txt"
  look_for_failures "$output/compare.txt" "$output/few_heads.txt"
  for program in "$build"/tests/standalone_0?; do
    for problem in "1024 128 20" "1024 128 20 causal" "4096 32 20" "4096 32 20 causal"; do
      # shellcheck disable=SC2086  # the problem is a list of arguments
      "$program" $problem || fail "$program $problem"
    done
  done 2>&1 | tee "$output/standalone.txt"
  grep -q '^FAILED' "$output/standalone.txt" && failed=1
fi

large=(--batch 4 --width 2048 --seq 4096 --sweep "d=128,64" --sweep "causal=no,yes")
if part large "large problems"; then
  # The forward pass of 07 is that of 06.
  {
    compare --only 07 --pass backward --iterations 10 "${large[@]}" --save "$output/large.jsonl"
    compare --only 06 --pass forward --iterations 10 "${large[@]}" --save "$output/large.jsonl" --resume
  } 2>&1 | tee "$output/large.txt"
  look_for_failures "$output/large.txt"
fi

if part peers "peers" && torch_here; then
  for problems in "${large[*]}" ""; do
    # shellcheck disable=SC2086  # a list of options
    compare --only peer --wide $problems --save "$output/peers.jsonl"
  done 2>>"$output/peers.log" | tee "$output/peers.txt"
  look_for_failures "$output/peers.txt"
fi

# 16,384 tokens with H*d = 2048, as nearly as N and d allow. Rivals take turns: a card at its power limit favours whoever comes first.
papers=(--tokens 16384 --width 2048 --sweep "causal=no,yes")
rivals=(--only 08 --variant "lazy_maximum,scheduled,staggered,warpgroups,bulk,ordered,resident,relay" --iterations 10 "${papers[@]}")
if part tensor "tensor cores"; then
  if torch_here; then
    rivals=(--only "08,peer" --variant "lazy_maximum,scheduled,staggered,warpgroups,bulk,ordered,resident,relay,flash,flash3,cudnn" "${rivals[@]:4}")
    # For the page of the comparison
    compare --only peer --wide --dtype fp16 --iterations 10 --save "$output/peers16.jsonl" >"$output/peers16.txt" 2>>"$output/peers.log"
  fi
  {
    compare "${rivals[@]}" --rounds 2 --dtype fp16 --sweep d=64,128 --sweep seq=1024,4096,16384 --save "$output/sweep16.jsonl"
    compare --only 08 --iterations 10 "${papers[@]}" --dtype fp16 --seq 4096 --sweep d=64,128 --save "$output/tensor_steps.jsonl"
    for problems in "--dtype bf16 --sweep d=64,128 --sweep seq=1024,4096,16384" "--dtype fp16 --seq 4096 --sweep d=32,80,96,111" \
      "--dtype fp16 --head-dim 256 --sweep seq=1024,4096,16384" "--dtype fp16 --seq 4000 --head-dim 128"; do
      # shellcheck disable=SC2086  # a list of options
      compare "${rivals[@]}" --rounds 2 $problems --save "$output/tensor_cores.jsonl"
    done
    front=(--batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --iterations 10 --rounds 2 --save "$output/front.jsonl")
    compare "${front[@]}" --only 01,03,04,05,06,07 --variant last
    compare "${front[@]}" "${rivals[@]:0:4}" --dtype fp16 --resume
  } >"$output/tensor_cores.txt" 2>"$output/tensor_cores.log"
  look_for_failures "$output/peers16.txt" "$output/tensor_cores.txt"
fi

# The problems of the FlashAttention papers. Five repetitions: most of what takes long is plain attention. The forward passes of 05 and 07
# are those of 04 and 06, hence the two halves of fp32.
if part sweep "sweep"; then
  sweep() { compare --iterations 5 --time-limit 10 --resume "$@" --sweep d=64,128 "${papers[@]}" --sweep seq=1024,2048,4096,8192,16384; }
  {
    sweep --pass backward --variant last --only 01,05,07 --save "$output/sweep.jsonl"
    sweep --pass forward --variant last --only 01,02,03,04,06 --save "$output/sweep.jsonl"
    torch_here && sweep --only peer --sweep dtype=fp32,fp16 --save "$output/sweep_peers.jsonl"
  } >"$output/sweep.txt"
  look_for_failures "$output/sweep.txt"
fi

if part tune "tile sizes"; then
  for run in "06_fa2_forward tuned forward fp32" "07_fa2_backward one_kernel backward fp32" "08_tensor_cores lazy_maximum forward fp16" \
    "08_tensor_cores scheduled forward fp16" "08_tensor_cores staggered backward fp16" "08_tensor_cores bulk backward fp16"; do
    read -r stage variant pass dtype <<<"$run"
    compare --tune --only "$stage" --variant "$variant" --pass "$pass" --dtype "$dtype" --batch 4 --width 2048 --seq 4096 \
      --sweep d=32,64,96,128,256 --sweep causal=no,yes --iterations 5 --save "$output/tuned.jsonl"
  done >"$output/tuned.txt" 2>"$output/tuned.log"
  look_for_failures "$output/tuned.txt"
fi

if part virtual "kernels that the driver compiles"; then
  for arch in 75-virtual 80-virtual; do
    tree="$build-$arch"
    { cmake -S . -B "$tree" -G Ninja -DFLASH_CUDA=AUTO "$@" -DCMAKE_CUDA_ARCHITECTURES=$arch && cmake --build "$tree"; } >"$output/build-$arch.log" 2>&1 ||
      { fail "build for $arch"; tail -n 20 "$output/build-$arch.log"; continue; }
    ctest --test-dir "$tree" --output-on-failure -j "$(nproc)" --no-tests=error -R ' gpu:' >"$output/ctest-$arch.log" 2>&1 || fail "GPU tests of $arch"
    { echo "$arch"; grep -A 40 'tests passed\|tests failed' "$output/ctest-$arch.log" | head -n 40; }
  done | tee "$output/virtual.txt"
  grep -q '^FAILED' "$output/virtual.txt" && failed=1
fi

# initcheck reports reads of memory that nobody wrote; the outputs are poisoned by a memset, which counts as written, so NaN in the check
# covers what it cannot see.
# shellcheck disable=SC2317  # xargs starts it
sanitize() {  # sanitize LOG_FOLDER TOOL STAGE VARIANT PASS PROBLEM: one line, and the log of a failure
  local name log
  name="$2 $(basename "$3") $4 $5 $6"
  log="$1/sanitizer ${name// --/ }.log"
  # shellcheck disable=SC2086  # the problem is a list of options
  if compute-sanitizer --tool "$2" --error-exitcode 9 "$3" --device gpu --variant "$4" --pass "$5" $6 >"$log" 2>&1; then
    echo "clean: $name"
    rm "$log"
  elif grep -q 'refuses this problem' "$log"; then  # a step that has no tiles for it, and says so
    rm "$log"
  else
    echo "FAILED: $name"
  fi
}
export -f sanitize
# racecheck does not follow the order by which one lane arrives on an mbarrier for its warp (docs/howto/debugging.md, section 7): it gets
# a build of stage 08 in which every lane arrives.
racecheck_build="$build-racecheck"
build_for_racecheck() {
  cmake -S . -B "$racecheck_build" -G Ninja -DFLASH_CUDA=AUTO "$@" -DBUILD_TESTING=OFF -DCMAKE_CUDA_FLAGS=-DFLASH_ARRIVE_PER_LANE &&
    cmake --build "$racecheck_build" --target 08_tensor_cores
}
sanitizer_runs() {  # the arguments of all runs, each ended by a zero byte
  local stage variant pass problem tool program
  for stage in "$build"/bin/[0-9][0-9]_*; do
    [[ $(basename "$stage") == ${FLASH_CHECK_STAGES:-}* ]] || continue
    # Small problems that still meet every kernel, every tail and the mask, and those of the options that a variant takes.
    "$stage" --list --json | python3 -c '
import json, sys
small = "--seq-q 65 --seq-k 97 --head-dim 40 --heads 4 --kv-heads 2"
problems = {"": [small + " --causal", "--seq 33 --head-dim 59 --layout qkv --bias matrix"],
            "bf16": ["--seq-q 130 --seq-k 201 --head-dim 160 --heads 2 --kv-heads 1 --causal --dtype bf16"],
            "--window": [small + " --window 20,5 --softcap 2"], "--dropout": [small + " --dropout 0.3"],
            "--lengths": ["--lengths 65:97,0,3:40 --head-dim 40 --heads 4 --kv-heads 2 --causal"],
            "--bias-gradient": ["--seq 33 --head-dim 59 --bias matrix --bias-gradient"],
            "--score lorentz": [small + " --causal --score lorentz"],
            "--values centroid": [small + " --causal --score lorentz --values centroid"]}
for variant in json.load(sys.stdin)["variants"]:
    for which in variant["passes"]:
        for of, texts in problems.items():
            if of in ["", *variant["takes"], *variant["dtypes"]] and not (of == "--bias-gradient" and which == "forward"):
                for text in texts:
                    print(variant["name"], which, text)' | while read -r variant pass problem; do
      for tool in memcheck racecheck initcheck synccheck; do
        program=$stage
        [ "$tool" = racecheck ] && [ -x "$racecheck_build/bin/$(basename "$stage")" ] && program="$racecheck_build/bin/$(basename "$stage")"
        printf '%s\0' "$output" "$tool" "$program" "$variant" "$pass" "$problem"
      done
    done
  done
}
if part sanitizers "compute-sanitizer"; then
  if [[ 08 == "${FLASH_CHECK_STAGES:-}"* ]]; then
    build_for_racecheck "$@" >"$output/build-racecheck.log" 2>&1 || { fail "build for racecheck"; tail -n 20 "$output/build-racecheck.log"; }
  fi
  # shellcheck disable=SC2016  # the inner shell expands its arguments
  sanitizer_runs | xargs -0 -n 6 -P "$(nproc)" bash -c 'sanitize "$@"' _ | sort >"$output/sanitizers.txt"
  cut -d ' ' -f 1-5 "$output/sanitizers.txt" | sort | uniq -c
  grep -q '^clean' "$output/sanitizers.txt" || fail "no run under compute-sanitizer"
  grep -q '^FAILED' "$output/sanitizers.txt" && failed=1
  for program in "$build"/tests/standalone_0?; do
    for tool in memcheck racecheck initcheck synccheck; do
      log="$output/sanitizer $tool $(basename "$program").log"
      if compute-sanitizer --tool $tool --error-exitcode 9 "$program" 129 2 0 causal >"$log" 2>&1; then rm "$log"; else fail "$tool $program"; fi
    done
  done
  tail -q -n 15 "$output"/sanitizer\ *.log 2>/dev/null
fi

if command -v ncu >/dev/null && part profile "profile"; then
  "$build/bin/compare" --heads 2 --seq 256 --batch 1 --save "$output/counted_problem.jsonl" >"$output/compare.log" || fail "compare"
  "$build/bin/compare" --device gpu --only 08 --dtype fp16 --batch 4 --heads 16 --seq 4096 --head-dim 128 --no-causal --iterations 5 \
    --save "$output/profile.jsonl" >"$output/compare.log" || fail "compare"
  for rows in compare counted_problem "profile --details"; do
    [ -e "$output/${rows%% *}.jsonl" ] || continue  # without the part `comparison`
    # shellcheck disable=SC2086  # the last is a name and an option
    "$build/bin/compare" profile "$output/${rows%% *}.jsonl" ${rows#"${rows%% *}"} --seconds $((deadline - SECONDS)) >>"$output/profile.log" 2>&1 ||
      fail "profile of $rows"
  done
  grep 'not profiled' "$output/profile.log"
fi
note "end"
exit $failed
