#!/usr/bin/env bash
# Formats C++ and CUDA by clang-format 14 and Python by ruff, and fixes what ruff can fix by itself.
# With --check it changes nothing and names what differs (exit code 1). Other versions lay out some lines differently, so they are refused.
set -euo pipefail
cd "$(dirname "$0")/.."

check=no
case ${1:-} in
  "") ;;
  --check) check=yes ;;
  *) echo "usage: common/format.sh [--check]" >&2 && exit 2 ;;
esac

# of_version VERSION PROGRAM...: the first of these programs that has this version
of_version() {
  local version=$1 program
  for program in "${@:2}"; do
    "$program" --version 2>/dev/null | grep -qF "$version" && echo "$program" && return
  done
  echo "format: there is no ${*: -1} with '$version': common/setup.sh --dev installs it" >&2
  exit 3
}
clang_format=$(of_version 'version 14.' clang-format-14 clang-format)
ruff=$(of_version "ruff $(sed -n 's/^required-version = "==\(.*\)"$/\1/p' common/ruff.toml)" .tools/bin/ruff ruff)

status=0
differs() { echo "format: $1 differs; common/format.sh fixes it" && status=1; }
while IFS= read -r -d '' file; do
  if [ ! -f "$file" ]; then
    continue  # deleted, not committed yet
  elif [ $check = no ]; then
    "$clang_format" -i "$file"
  else
    "$clang_format" --dry-run --Werror "$file" 2>/dev/null || differs "$file"
  fi
done < <(git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cuh' '*.cu')

config=(--config common/ruff.toml)
if [ $check = no ]; then
  "$ruff" check "${config[@]}" --quiet --fix || status=1
  "$ruff" format "${config[@]}" --quiet
else
  "$ruff" check "${config[@]}" --quiet --output-format concise || status=1
  while IFS=: read -r file _; do
    differs "$file"
  done < <("$ruff" format "${config[@]}" --check --output-format concise | grep ': unformatted: ')
fi
exit $status
