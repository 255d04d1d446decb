#!/usr/bin/env bash
# Formats C++ and CUDA by clang-format 14 and Python by ruff, and fixes what ruff can fix by itself.
# With --check it changes nothing and names what differs (exit code 1). Other versions lay out some lines differently, so they are refused.
set -u
check=no
case $* in
  "") ;;
  --check) check=yes ;;
  --help | -h) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;;
  *) echo "format: unknown argument '$*'; allowed: --check, --help" >&2 && exit 2 ;;
esac
cd "$(dirname "$0")/.." || exit 1

# of_version VERSION PROGRAM...: the first of these programs that has this version
of_version() {
  local version=$1 program
  for program in "${@:2}"; do
    "$program" --version 2>/dev/null | grep -qF "$version" && echo "$program" && return
  done
  echo "format: there is no ${*: -1} with '$version': common/setup.sh --dev installs it" >&2
  exit 3
}
clang_format=$(of_version 'version 14.' clang-format-14 clang-format) || exit
ruff=$(of_version "ruff $(sed -n 's/^required-version = "==\(.*\)"$/\1/p' common/ruff.toml)" .tools/bin/ruff ruff) || exit

sources() {  # those that are there: one may be deleted, and not committed yet
  git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cuh' '*.cu' | xargs -0 ls 2>/dev/null | tr '\n' '\0'
}
side_by_side='^0[^/]*/\(standalone\|.*\.cuh$\|.*shapes\.hpp$\)\|^common/parts/.*[hp]$'  # two are compared side by side
narrow="--style={$(sed 's/^ColumnLimit:.*/ColumnLimit: 100/; s/$/,/' .clang-format)}"
format() {
  sources | grep -zv "$side_by_side" | xargs -0 "$clang_format" "$@"
  sources | grep -z "$side_by_side" | xargs -0 "$clang_format" "$narrow" "$@"
}
config=(--config common/ruff.toml)
if [ $check = no ]; then
  format -i
  "$ruff" check "${config[@]}" --quiet --fix
  status=$?
  "$ruff" format "${config[@]}" --quiet
  exit $status
fi
differ=$(format --dry-run --Werror 2>&1 | sed -n 's/^\([^:]*\):.*\[-Wclang-format-violations\]$/\1/p' | uniq
  "$ruff" format "${config[@]}" --check --output-format concise | sed -n 's/^\([^:]*\):.*: unformatted: .*/\1/p')
for file in $differ; do echo "format: $file differs; common/format.sh fixes it"; done
"$ruff" check "${config[@]}" --quiet --output-format concise && [ -z "$differ" ]
