#!/usr/bin/env bash
# Builds the site of the book from the pages, which stay as GitHub renders them. It opens from its folder or from a server, without a
# network. Where a forge shows the code, SITE_REPOSITORY has links lead there. An old site stays until the new one is complete.
#
# usage: docs/site.sh [--check] [--help] [FOLDER]
#
#   FOLDER   where to (default: build-site of the project); the site is in its html/,
#            which opens in a browser without a server
#   --check  also opens every page in Chromium: formulas, both themes, narrow screens,
#            code that fits, search; and draws docs/plots again
#
# Pages of the playground that docs/playground/make.py has made become part of it.
set -euo pipefail

fail() { printf 'site: %s\n' "$*" >&2 && exit 1; }

project=$(cd "$(dirname "$0")/.." && pwd)
folder=$project/build-site
check=no
for argument in "$@"; do
  case $argument in
    --check) check=yes ;;
    --help | -h) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit 0 ;;
    -*) echo "site: unknown option '$argument'; allowed: --check, --help" >&2 && exit 2 ;;
    /*) folder=$argument ;;
    *) folder=$PWD/$argument ;;
  esac
done
export PYTHONDONTWRITEBYTECODE=1
cd "$project"

ours="# of docs/site.sh"
if [ -e "$folder" ] && [ -n "$(ls -A "$folder")" ] && ! grep -qs "$ours" "$folder/.gitignore"; then
  fail "$folder is there and was not made by docs/site.sh; name another folder"
fi
mkdir -p "$folder"
printf '%s\n*\n' "$ours" >"$folder/.gitignore"

venv=$folder/venv
python=$venv/bin/python
"$python" -c 'import pip' 2>/dev/null || { python3 -c 'import tomllib' && python3 -m venv --clear "$venv"; } ||
  fail "Python 3.11 or newer with venv is missing; on Debian and Ubuntu: apt install python3-venv"
lists=(docs/site/requirements.txt)
[ $check = no ] || lists+=(docs/site/check.txt docs/site/plots.txt)
if ! cat "${lists[@]}" | cmp -s - "$venv/installed"; then  # later runs need no network
  install=("$python" -m pip install --quiet --disable-pip-version-check --retries 1)
  { "${install[@]}" "${lists[@]/#/--requirement=}" && "${install[@]}" --no-deps djangocms-katex==1.0.2; } ||
    fail "pip could not install ${lists[*]}, see above. The first run needs PyPI"
  cat "${lists[@]}" >"$venv/installed"
fi

new=$folder/html.new
rm -rf "$new" "$folder/doctrees"
"$python" -m sphinx --builder html --conf-dir docs/site --doctree-dir "$folder/doctrees" --jobs 2 --fail-on-warning --quiet . "$new" ||
  fail "the pages have errors, named above; $folder/html is as it was"
rm -rf "$folder/html"
mv "$new" "$folder/html"
echo "site: $folder/html/index.html"

if [ $check = yes ]; then
  "$python" -m docs.site.walk "$folder/html"
  "$python" -B -m common.compare plot >/dev/null
  git diff --exit-code --stat docs/plots || fail "docs/plots was not what compare plot draws; it is now"
fi
