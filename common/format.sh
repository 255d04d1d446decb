#!/usr/bin/env bash
# Formats the C++ and CUDA sources with clang-format 14 and the Python sources with ruff, and mends of what ruff finds what it can.
# With --check it changes nothing and names what differs (exit code 1). Other versions lay out some lines differently, so they are refused.
set -euo pipefail
cd "$(dirname "$0")/.."

clang_format=""
for program in clang-format-14 clang-format; do
  if command -v $program >/dev/null && $program --version | grep -q 'version 14\.'; then
    clang_format=$program
    break
  fi
done
if [ -z "$clang_format" ]; then
  echo "format: clang-format 14 is missing: common/setup.sh --dev, or python3 -m pip install clang-format==14.0.6" >&2
  exit 3
fi

version=$(sed -n 's/^required-version = "==\(.*\)"$/\1/p' ruff.toml)
ruff=""
for program in .tools/bin/ruff ruff; do
  if [ "$($program --version 2>/dev/null)" = "ruff $version" ]; then
    ruff=$program
    break
  fi
done
if [ -z "$ruff" ]; then
  echo "format: ruff $version is missing: common/setup.sh --dev, or python3 -m pip install ruff==$version" >&2
  exit 3
fi

case ${1:-} in
  "" | --check) action=${1:---apply} ;;
  *) echo "usage: common/format.sh [--check]" >&2 && exit 2 ;;
esac

# Tracked files and new ones that git does not ignore
status=0
while IFS= read -r -d '' file; do
  if [ ! -f "$file" ]; then
    continue  # deleted, not committed yet
  elif [ "$action" = --apply ]; then
    "$clang_format" -i "$file"
  elif ! "$clang_format" --dry-run --Werror "$file" 2>/dev/null; then
    echo "format: $file differs; common/format.sh mends it"
    status=1
  fi
done < <(git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cuh' '*.cu')

if [ "$action" = --apply ]; then
  "$ruff" check --quiet --fix || status=1
  "$ruff" format --quiet
else
  "$ruff" check --quiet --output-format concise || status=1
  while IFS=: read -r file _; do
    echo "format: $file differs; common/format.sh mends it"
    status=1
  done < <("$ruff" format --check --output-format concise | grep ': unformatted: ')
fi
exit $status
