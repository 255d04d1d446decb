#!/usr/bin/env bash
# What compute-sanitizer's tools say of each hazard of zoo_async.hpp, and of its correct twin if they are not silent; and whether the GPU's result
# is the twin's. The table of docs/howto/debugging.md, as JSON. Needs a GPU with sm_90.
#
#   common/machine/test/zoo_sanitizer.sh BUILD_DIR/tests [NAME...] >zoo_sanitizer.json
#
# ZOO_SECONDS (default 5): after so many a kernel counts as hanging; under a tool after four times as many, since it starts slowly.
# ZOO_JOBS (default: one per processor) runs at once. Exits 2 on bad usage, 3 without GPU or compute-sanitizer.
set -euo pipefail
stop() { echo "zoo_sanitizer: $2" >&2; exit "$1"; }
[ -x "${1:-}/zoo_gpu" ] || stop 2 "'${1:-}' holds no zoo_gpu; usage: $0 BUILD_DIR/tests [NAME...]"
command -v compute-sanitizer >/dev/null || stop 3 "compute-sanitizer was not found"
gpu=$({ nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | head -n 1)
[ -n "$gpu" ] || stop 3 "no GPU answers (nvidia-smi)"
program=$1/zoo_gpu
shift
seconds=${ZOO_SECONDS:-5}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || stop 2 "ZOO_SECONDS is '$seconds'; allowed is a whole number from 1"
names=$("$program")
for name in "$@"; do
  grep -q "^$name " <<<"$names" || stop 2 "there is no case '$name'"
done
[ $# -eq 0 ] || names=$(grep -E "^($(IFS='|'; echo "$*")) " <<<"$names")

# shellcheck disable=SC2317  # xargs starts it
one() {  # one PROGRAM SECONDS TOOL NAME WHICH: prints NAME WHICH TOOL and clean, found, hangs, error or, without a tool, the checksum
  local output status=0
  if [ "$3" = result ]; then
    output=$(timeout -s KILL "$2" "$1" "$4" "$5" 2>/dev/null) || status=$?
  else
    output=clean
    timeout -s KILL $((4 * $2)) compute-sanitizer --tool "$3" --error-exitcode 9 "$1" "$4" "$5" >/dev/null 2>&1 || status=$?
  fi
  case $status in
    0) ;;
    9) output=found ;;
    137) output=hangs ;;
    *) output=error ;;
  esac
  echo "$4 $5 $3 $output"
}
export -f one
while read -r name kernels; do
  for which in $kernels; do
    for tool in result memcheck racecheck synccheck initcheck; do
      printf '%s\0' "$program" "$seconds" "$tool" "$name" "$which"
    done
  done
done <<<"$names" | xargs -0 -n 5 -P "${ZOO_JOBS:-$(nproc)}" bash -c 'one "$@"' _ |
  GPU=$gpu VERSION=$(compute-sanitizer --version | grep -oE '[0-9]{4}\.[0-9.]+' | head -n 1) python3 -c '
import json, os, sys
said = {}
for line in sys.stdin:
    name, which, tool, verdict = line.split()
    said[name, which, tool] = verdict
cases = []
for name, *kernels in (line.split() for line in sys.argv[1].splitlines()):
    result, twin = said[name, kernels[0], "result"], said[name, "right", "result"]
    case = {"kernel": name, "result": result if result in ("hangs", "error") else "same" if result == twin else "differs"}
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        verdicts = [said[name, which, tool].replace("clean", "") for which in kernels]
        case[tool] = verdicts[0] if len(kernels) > 1 else ""
        if verdicts[-1]:
            case[tool] = f"{case[tool]} (twin: {verdicts[-1]})".strip()
    cases.append(case)
head = {"device": os.environ["GPU"], "compute_sanitizer": os.environ["VERSION"]}
print(json.dumps(head)[:-1] + ", \"cases\": [\n" + ",\n".join(map(json.dumps, cases)) + "\n]}")' "$names"
