#!/usr/bin/env bash
# Makes the site of the book: all pages, each with search, dark mode and the way on, and the code that they link to. The pages stay as
# GitHub renders them; docs/site/ has what turns them into the site. It is read from its folder or from a server, without a network.
#
# What it runs comes from PyPI, pinned in docs/site/requirements.txt, into a virtual environment of its own. A site that is there stays
# until the new one is whole.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: docs/site.sh [--pdf] [--check] [--help] [FOLDER]

  FOLDER   where to (default: build-site of the project); the site is in its html/,
           which opens in a browser without a server
  --pdf    also each chapter as a PDF, with its answers unfolded, in html/pdf/
  --check  also the tests of what makes the site, and a walk over all pages in
           Chromium: formulas, both themes, narrow screens, links, search
  --help   this text
TEXT
}

fail() { printf 'site: %s\n' "$*" >&2 && exit 1; }

# need THING COMMAND...: the command tells whether it is there
need() {
  local thing=$1
  shift
  "$@" >/dev/null 2>&1 || fail "$thing is missing; common/setup.sh --dev installs what the site needs (on Debian and Ubuntu)"
}

project=$(cd "$(dirname "$0")/.." && pwd)
folder=$project/build-site
steps=""
for argument in "$@"; do
  case $argument in
    --pdf | --check) steps="$steps $argument" ;;
    --help | -h) usage && exit 0 ;;
    -*) echo "site: unknown option '$argument'; allowed: --pdf, --check, --help" >&2 && exit 2 ;;
    /*) folder=$argument ;;
    *) folder=$PWD/$argument ;;
  esac
done
cd "$project"

ours="# of docs/site.sh"
if [ -e "$folder" ] && [ -n "$(ls -A "$folder")" ] && ! grep -qs "$ours" "$folder/.gitignore"; then
  fail "$folder is there and was not made by docs/site.sh; name another folder"
fi

need "Python 3.11 with venv (python3-venv)" python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'
need "git, or the project's repository," git -C "$project" rev-parse
need "node (nodejs)" node --version
need "KaTeX (libjs-katex)" test -e /usr/share/javascript/katex/katex.min.js
need "the fonts of KaTeX (fonts-katex)" test -e /usr/share/fonts/truetype/katex/KaTeX_Main-Regular.woff2
[ -z "$steps" ] || need "Chromium" python3 -B docs/site/browser.py

mkdir -p "$folder"
printf '%s\n*\n' "$ours" >"$folder/.gitignore"

venv=$folder/venv
requirements=$project/docs/site/requirements.txt
if ! cmp -s "$requirements" "$venv/requirements.txt"; then
  echo "site: installing docs/site/requirements.txt into $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --requirement "$requirements" ||
    fail "pip could not install docs/site/requirements.txt; why is said above. The first run needs PyPI, later ones no network"
  cp "$requirements" "$venv"
fi

new=$folder/html.new
rm -rf "$new" "$folder/doctrees"
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m sphinx --builder html --conf-dir docs/site --doctree-dir "$folder/doctrees" --jobs 2 \
  --fail-on-warning --quiet . "$new" || fail "the pages have errors, named above; $folder/html is as it was"
rm -rf "$folder/html"
mv "$new" "$folder/html"
echo "site: $folder/html/index.html"

for step in $steps; do
  case $step in
    --pdf) "$venv/bin/python" -B docs/site/pdf.py "$folder/html" ;;
    --check)
      "$venv/bin/python" -B docs/site/test_site.py
      "$venv/bin/python" -B docs/site/walk.py "$folder/html"
      ;;
  esac
done
