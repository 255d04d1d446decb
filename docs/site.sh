#!/usr/bin/env bash
# Builds the site of the book: all pages, with search and dark mode. The pages stay as GitHub renders them; docs/site/ turns them into the
# site, which opens from its folder or from a server, without a network. Where a forge shows the code, SITE_REPOSITORY has links lead there.
#
# Its packages are pinned and installed from PyPI into a virtual environment. An old site stays until the new one is complete.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: docs/site.sh [--check] [--browser] [--help] [FOLDER]

  FOLDER   where to (default: build-site of the project); the site is in its html/,
           which opens in a browser without a server
  --check  also the tests of docs/site/, all pages opened in Chromium: formulas, both
           themes, narrow screens, code that fits, search; and docs/plots drawn again
  --browser  also the playground, which runs the kernels in the reader's browser: it takes
           emscripten and node (common/setup.sh --browser), and an hour to compile.
           SITE_PLAYGROUND=FOLDER instead takes pages that docs/playground/make.py has made
  --help   this text
TEXT
}

fail() { printf 'site: %s\n' "$*" >&2 && exit 1; }

project=$(cd "$(dirname "$0")/.." && pwd)
folder=$project/build-site
check=no
browser=no
for argument in "$@"; do
  case $argument in
    --check) check=yes ;;
    --browser) browser=yes ;;
    --help | -h) usage && exit 0 ;;
    -*) echo "site: unknown option '$argument'; allowed: --check, --browser, --help" >&2 && exit 2 ;;
    /*) folder=$argument ;;
    *) folder=$PWD/$argument ;;
  esac
done
[ -z "${SITE_PLAYGROUND:-}" ] || compgen -G "$SITE_PLAYGROUND/*.html" >/dev/null ||
  fail "SITE_PLAYGROUND is $SITE_PLAYGROUND; allowed: a folder of pages that docs/playground/make.py has made"
playground=${SITE_PLAYGROUND:+$(realpath "$SITE_PLAYGROUND")}
cd "$project"

ours="# of docs/site.sh"
if [ -e "$folder" ] && [ -n "$(ls -A "$folder")" ] && ! grep -qs "$ours" "$folder/.gitignore"; then
  fail "$folder is there and was not made by docs/site.sh; name another folder"
fi
python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 ||
  fail "Python 3.11 or newer with venv is missing; on Debian and Ubuntu: apt install python3-venv"
[ $check = no ] || command -v chromium chromium-browser google-chrome >/dev/null ||
  fail "--check needs Chromium; on Debian and Ubuntu: common/setup.sh --dev"

mkdir -p "$folder"
printf '%s\n*\n' "$ours" >"$folder/.gitignore"

venv=$folder/venv
python=$venv/bin/python
"$python" -c 'import pip' 2>/dev/null || { echo "site: making $venv" && rm -rf "$venv" && python3 -m venv "$venv"; }

# install LIST: unless that very list was installed before
install() {
  local list=docs/site/$1
  cmp -s "$list" "$venv/$1" && return
  echo "site: installing $list into $venv"
  "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --no-deps --requirement "$list" ||
    fail "pip could not install $list, see above. The first run needs PyPI, later ones no network"
  cp "$list" "$venv"
}
install requirements.txt
[ $check = no ] || { install check.txt && install plots.txt; }

if [ $browser = yes ]; then
  playground=$folder/playground
  rm -rf "$playground"
  "$python" -B docs/playground/make.py --out "$playground" || fail "the playground could not be made, see above"
fi
export SITE_PLAYGROUND=$playground

new=$folder/html.new
rm -rf "$new" "$folder/doctrees"
PYTHONDONTWRITEBYTECODE=1 "$python" -m sphinx --builder html --conf-dir docs/site --doctree-dir "$folder/doctrees" --jobs 2 \
  --fail-on-warning --quiet . "$new" || fail "the pages have errors, named above; $folder/html is as it was"
rm -rf "$folder/html"
mv "$new" "$folder/html"
echo "site: $folder/html/index.html"

if [ $check = yes ]; then
  "$python" -B docs/site/test_site.py
  "$python" -B docs/site/walk.py "$folder/html"
  "$python" -B -m common.compare plot --docs >/dev/null
  git diff --exit-code --stat docs/plots || fail "docs/plots was not what compare plot --docs draws; it is now"
fi
