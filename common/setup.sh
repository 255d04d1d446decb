#!/usr/bin/env bash
# Installs what the project needs to build: a C++20 compiler, CMake, Ninja and four header-only libraries.
#
# usage: common/setup.sh [--check] [--dev] [--browser] [--help]
#
#   --check  say what is missing, install nothing
#   --dev    also what .ci/run needs, on Debian: clang-format 14, git, ccache, Python
#            with NumPy, shellcheck, ruff (by pip, into .tools), Chromium for the site,
#            and for the course bubblewrap (its grader) and pandoc (its slides)
#   --browser  also emscripten and node, which build and run the stages as WebAssembly
#
# What is there stays, however it got there; only what is missing goes to the package manager. Exit code 1: no compiler, CMake or Ninja in
# the end. A missing library is no error, since CMake downloads it. CUDA is looked for, never installed: every kernel also runs on the CPU.
set -euo pipefail  # bash 3.2 of macOS takes it, too

check_only=no
names="compiler cmake ninja python3 Eigen3 doctest CLI11 nlohmann_json"
dev="" browser=""
for argument in "$@"; do
  case $argument in
    --check) check_only=yes ;;
    --dev)
      names="$names git ccache clang-format-14 shellcheck pandoc bwrap ruff"
      dev="git ccache clang-format-14 shellcheck chromium pandoc bubblewrap python3-venv python3-numpy"  # of Debian
      ;;
    --browser) names="$names em++ node" browser="emscripten nodejs" ;;
    --help | -h) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit 0 ;;
    *) echo "setup: unknown option '$argument'; allowed: --check, --dev, --browser, --help" >&2 && exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*"; }
has() { command -v "$1" >/dev/null 2>&1; }

# The version of the compiler that CMake would take, if it knows the language and finds its standard library.
compiler() {
  local each
  for each in ${CXX:-} c++ g++ clang++; do
    printf '#include <concepts>\n#include <span>\n#include <version>\n' | "$each" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null &&
      "$each" --version | head -n 1 && return
  done
  return 1
}

# has_library PACKAGE: does find_package(PACKAGE) have a configuration to find?
has_library() {
  # shellcheck disable=SC2046  # a list of folders
  [ -n "$(find $(printf '%s' "${CMAKE_PREFIX_PATH:-}" | tr ':;' '  ') {/usr,/usr/local,/opt/homebrew,/home/linuxbrew/.linuxbrew}/{lib,lib64,share} \
    -maxdepth 4 -path '*/cmake/*' \( -iname "$1Config.cmake" -o -iname "$1-config.cmake" \) 2>/dev/null)" ]
}

is_there() {
  case $1 in
    compiler) compiler >/dev/null ;;
    cmake) has cmake && cmake --version | awk -F '[ .]' '{ exit !($3 > 3 || ($3 == 3 && $4 >= 25)) }' ;;  # 3.25 is the first with workflow presets
    ninja) has ninja || has ninja-build ;;
    Eigen3 | doctest | CLI11 | nlohmann_json) has_library "$1" ;;
    ruff) { "$project/.tools/bin/ruff" --version || ruff --version; } 2>/dev/null | grep -qx "ruff $ruff_version" ;;
    *) has "$1" ;;
  esac
}

look() {  # sets what is `missing`
  missing=$(for name in $names; do is_there "$name" || printf ' %s' "$name"; done)
}

# Installs all packages at once, or if that fails at least those that have this name here.
install_packages() {
  local install packages sudo=sudo
  if has apt-get; then
    install="apt-get install -y --no-install-recommends"
    packages="g++ cmake ninja-build python3 libeigen3-dev doctest-dev libcli11-dev nlohmann-json3-dev $dev"
  elif has dnf; then
    install="dnf install -y" packages="gcc-c++ cmake ninja-build python3 eigen3-devel doctest-devel cli11-devel json-devel"
  elif has pacman; then
    install="pacman -Sy --needed --noconfirm" packages="gcc cmake ninja python eigen doctest cli11 nlohmann-json"
  elif has brew; then
    sudo="" browser=${browser/nodejs/node} install="brew install" packages="cmake ninja python3 eigen doctest cli11 nlohmann-json"
  else
    say "no package manager that this script knows (apt, dnf, pacman, brew)" && return
  fi
  packages="$packages $browser"
  [ "$(id -u)" != 0 ] || sudo=""
  install="${sudo:+sudo }$install"
  say "missing:$missing; to install${sudo:+ for all users, for which sudo may want your password}: $install $packages"
  if [ $check_only = yes ] || [ "$missing" = " ruff" ]; then return; fi
  [ -z "$sudo" ] || has sudo || { say "you are not root, and sudo is missing" && return; }
  # shellcheck disable=SC2086  # lists of words
  { ! has apt-get || $sudo apt-get update; } && $install $packages && return
  for package in $packages; do $install "$package" || say "could not install $package"; done
}

export DEBIAN_FRONTEND=noninteractive
project=$(cd "$(dirname "$0")/.." && pwd)
ruff_version=$(sed -n 's/^required-version = "==\(.*\)"$/\1/p' "$project/common/ruff.toml")
look
[ -z "$missing" ] || install_packages
if [ $check_only = no ]; then
  case $missing in *ruff*)  # no package has this very version; git ignores .tools
    say "python3 -m venv .tools && .tools/bin/pip install ruff==$ruff_version"
    { python3 -m venv "$project/.tools" && "$project/.tools/bin/pip" install --quiet --disable-pip-version-check "ruff==$ruff_version"; } ||
      say "could not install ruff"
    ;;
  esac
  look
fi

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || gpu=none
nvcc=$({ nvcc --version || /usr/local/cuda/bin/nvcc --version; } 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p') || nvcc=none
say "there: $(compiler || echo no compiler); $(cmake --version 2>/dev/null | head -n 1); nvcc: $nvcc; GPU: $gpu"
say "missing:${missing:- nothing}"
case $missing in *Eigen3* | *doctest* | *CLI11* | *json*) say "CMake downloads missing libraries (offline: docs/howto/platforms.md)" ;; esac
case "$missing " in
  *" compiler "*) say "needed: g++ 12, clang 14 or newer (on a Mac: xcode-select --install); CXX=... names one" && exit 1 ;;
  *" cmake "* | *" ninja "*)
    old=$(cmake --version 2>/dev/null | sed -n '1s/.* /; this is CMake /p')
    say "needed: CMake 3.25 and Ninja$old. To get them, also without root: python3 -m pip install --user 'cmake>=3.25' ninja," \
      "then export PATH=~/.local/bin:\$PATH (docs/howto/platforms.md)" && exit 1
    ;;
esac
