#!/usr/bin/env bash
# Installs what the project needs to build: a C++20 compiler, CMake, Ninja and four header-only libraries.
#
# It looks for the things themselves first, so that it is quick, works offline and leaves alone what is there, however it got
# there. Only what is missing goes to the package manager (apt, dnf, pacman or brew). Exit code 1: no compiler, CMake or Ninja
# in the end. A library that no package offers is no error, since CMake downloads it. CUDA is looked for, never installed: every kernel
# also runs on the CPU.
#
# Written for bash 3.2 too (macOS): lists are strings of words.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: common/setup.sh [--check] [--dev] [--browser] [--help]

  --check  say what is missing, install nothing; exit code 1 if a compiler, CMake or Ninja is missing
  --dev    also what .ci/run needs: clang 14 with its sanitizers, clang-format 14, git,
           ccache, Python 3 with NumPy, pandas, matplotlib, Jinja2, shellcheck, ruff (by
           pip, into .tools); for the checks of the site Chromium; for the course bubblewrap
           (its grader) and pandoc (its slides)
  --browser  also emscripten and node, which build and run the stages as WebAssembly
  --help   this text
TEXT
}

check_only=no
dev=no
browser=no
for argument in "$@"; do
  case $argument in
    --check) check_only=yes ;;
    --dev) dev=yes ;;
    --browser) browser=yes ;;
    --help | -h) usage && exit 0 ;;
    *) echo "setup: unknown option '$argument'; allowed: --check, --dev, --browser, --help" >&2 && exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*"; }
has() { command -v "$1" >/dev/null 2>&1; }

# --- What is there? -------------------------------------------------------------------------------------------------------

# The compiler that CMake would take, if it knows the language and finds its standard library.
working_compiler() {
  local compiler
  for compiler in ${CXX:-} c++ g++ clang++; do
    if has "$compiler" && printf '#include <concepts>\n#include <span>\n#include <version>\n' |
      "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
      echo "$compiler"
      return
    fi
  done
  return 1
}

cmake_version() { cmake --version | awk 'NR == 1 { print $3 }'; }

cmake_is_new_enough() {  # 3.25, the first with workflow presets
  has cmake && cmake_version | awk '{ split($0, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}

# has_library PACKAGE: does find_package(PACKAGE) have a configuration to find?
has_library() {
  local lower prefix directory
  lower=$(printf '%s' "$1" | tr '[:upper:]' '[:lower:]')
  for prefix in ${CMAKE_PREFIX_PATH:+$(printf '%s' "$CMAKE_PREFIX_PATH" | tr ':;' '  ')} /usr /usr/local /opt/homebrew \
    /home/linuxbrew/.linuxbrew; do
    for directory in share lib lib64 lib/"$(uname -m)"-linux-gnu; do
      compgen -G "$prefix/$directory/cmake/$1*/$1Config.cmake" >/dev/null && return 0
      compgen -G "$prefix/$directory/cmake/$1*/$lower-config.cmake" >/dev/null && return 0
      compgen -G "$prefix/$directory/$lower/cmake/$1Config.cmake" >/dev/null && return 0
    done
  done
  return 1
}

# clang with the run-time library of ThreadSanitizer, and what turns its addresses into lines.
clang_finds_races() {
  local compiler
  compiler=$(command -v clang++-14 || command -v clang++) && has llvm-symbolizer &&
    echo 'int main() {}' | "$compiler" -fsanitize=thread -x c++ -o /dev/null - 2>/dev/null
}

clang_format_14() {
  local program
  for program in clang-format-14 clang-format; do
    has "$program" && "$program" --version | grep -q 'version 14\.' && return 0
  done
  return 1
}

# The version that ruff.toml asks for, in the project's own folder or elsewhere.
has_ruff() {
  local program
  for program in "$project/.tools/bin/ruff" ruff; do
    [ "$("$program" --version 2>/dev/null)" = "ruff $ruff_version" ] && return 0
  done
  return 1
}

# By one of the names that docs/site.sh knows
has_chromium() { has chromium || has chromium-browser || has google-chrome; }

# Sets `tools` (needed) and `extras` (libraries, and with --dev the developer's tools): what is missing, in our own names.
look() {
  tools=""
  extras=""
  working_compiler >/dev/null || tools="$tools compiler"
  cmake_is_new_enough || tools="$tools cmake"
  has ninja || has ninja-build || tools="$tools ninja"
  local library
  for library in Eigen3 doctest CLI11 nlohmann_json; do
    has_library $library || extras="$extras $library"
  done
  if [ $browser = yes ]; then
    has em++ || extras="$extras emscripten"
    has node || has nodejs || extras="$extras nodejs"
  fi
  [ $dev = yes ] || return 0
  has git || extras="$extras git"
  has ccache || extras="$extras ccache"
  has clang++ || has clang++-14 || extras="$extras clang"
  clang_finds_races || extras="$extras sanitizer"
  clang_format_14 || extras="$extras clang-format"
  has shellcheck || extras="$extras shellcheck"
  has_ruff || extras="$extras ruff"
  [ "$(uname)" != Linux ] || has bwrap || extras="$extras bubblewrap"
  has pandoc || extras="$extras pandoc"
  has_chromium || extras="$extras chromium"
  { has python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; } || extras="$extras venv"
  for library in numpy matplotlib pandas jinja2; do
    { has python3 && python3 -c "import $library" 2>/dev/null; } || extras="$extras $library"
  done
}

# --- What is it called here? ----------------------------------------------------------------------------------------------

# package NAME: its name for $manager, empty if there is none
package() {
  case $manager:$1 in
    apt:compiler) echo g++ ;; dnf:compiler) echo gcc-c++ ;; pacman:compiler) echo gcc ;; brew:compiler) ;;
    *:cmake) echo cmake ;;
    apt:ninja | dnf:ninja) echo ninja-build ;; *:ninja) echo ninja ;;
    apt:Eigen3) echo libeigen3-dev ;; dnf:Eigen3) echo eigen3-devel ;; *:Eigen3) echo eigen ;;
    apt:doctest) echo doctest-dev ;; dnf:doctest) echo doctest-devel ;; *:doctest) echo doctest ;;
    apt:CLI11) echo libcli11-dev ;; dnf:CLI11) echo cli11-devel ;; *:CLI11) echo cli11 ;;
    apt:nlohmann_json) echo nlohmann-json3-dev ;; dnf:nlohmann_json) echo json-devel ;; *:nlohmann_json) echo nlohmann-json ;;
    brew:nodejs) echo node ;; *:emscripten | *:nodejs) echo "$1" ;;
    pacman:pandoc) echo pandoc-cli ;; *:git | *:ccache | *:pandoc) echo "$1" ;;
    brew:clang) ;; *:clang) echo clang ;;
    apt:sanitizer) echo libclang-rt-14-dev llvm ;; dnf:sanitizer | pacman:sanitizer) echo compiler-rt llvm ;; *:sanitizer) ;;
    apt:clang-format) echo clang-format-14 ;; *:clang-format) ;;  # elsewhere only newer ones, which format differently
    dnf:shellcheck) echo ShellCheck ;; *:shellcheck) echo shellcheck ;;
    apt:ruff) echo python3-venv ;; pacman:ruff) echo python ;; *:ruff) echo python3 ;;  # which fetches it
    apt:venv) echo python3-venv ;; pacman:venv) echo python ;; *:venv) echo python3 ;;
    brew:chromium) ;; *:chromium) echo chromium ;;
    brew:bubblewrap) ;; *:bubblewrap) echo bubblewrap ;;
    brew:numpy) echo numpy ;; pacman:numpy) echo python-numpy ;; *:numpy) echo python3-numpy ;;
    brew:pandas) ;;
    brew:matplotlib | pacman:matplotlib | pacman:pandas) echo "python-$1" ;; *:matplotlib | *:pandas) echo "python3-$1" ;;
    brew:jinja2) ;; pacman:jinja2) echo python-jinja ;; *:jinja2) echo python3-jinja2 ;;
  esac
}

# packages NAME...: the names for $manager
packages() {
  local name list=""
  for name in "$@"; do list="$list $(package "$name")"; done
  # shellcheck disable=SC2086  # one space between words
  echo $list
}

find_manager() {
  if has apt-get; then echo apt
  elif has dnf; then echo dnf
  elif has pacman; then echo pacman
  elif has brew; then echo brew
  fi
}

# The command that installs packages, as one would type it
install_command() {
  case $manager in
    apt) echo "$as_root apt-get install -y --no-install-recommends" ;;
    dnf) echo "$as_root dnf install -y" ;;
    pacman) echo "$as_root pacman -S --needed --noconfirm" ;;
    brew) echo "brew install" ;;
  esac | sed 's/^ //'
}

# --- Act ------------------------------------------------------------------------------------------------------------------

# install_packages PACKAGE...
install_packages() {
  [ $# -gt 0 ] || return 0
  local command
  command=$(install_command)
  say "$command $*"
  $command "$@"
}

# The package lists of a fresh machine or container are empty or old.
refresh() {
  case $manager in
    apt) $as_root apt-get update ;;
    pacman) $as_root pacman -Sy --noconfirm ;;
  esac
}

install_missing() {
  refresh || say "could not refresh the package lists; trying with those that are there"
  local name
  # shellcheck disable=SC2046,SC2086  # lists of words
  install_packages $(packages $tools $extras) && return
  say "not all at once; one by one"
  for name in $tools $extras; do
    # shellcheck disable=SC2046
    install_packages $(packages "$name") || say "could not install $name"
  done
}

# No package has this very version: pip installs it into .tools of the project, which git ignores.
install_ruff() {
  case " $extras " in *" ruff "*) ;; *) return 0 ;; esac
  has python3 && python3 -c 'import ensurepip' 2>/dev/null || return 0
  say "python3 -m venv .tools && .tools/bin/pip install ruff==$ruff_version"
  python3 -m venv "$project/.tools" && "$project/.tools/bin/pip" install --quiet --disable-pip-version-check "ruff==$ruff_version" || return 0
  look
}

# Lists what is still missing and other ways to get it
advise() {
  local name libraries="" by_pip="" other="" old=""
  for name in $tools $extras; do
    case $name in
      compiler) say "a C++20 compiler is needed: g++ 12, clang 14 or newer$([ "$manager" != brew ] || echo ' (xcode-select --install)'); CXX=... names one" ;;
      cmake)
        ! has cmake || old="cmake $(cmake_version) is too old; "
        by_pip="$by_pip 'cmake>=3.25'"
        ;;
      ninja) by_pip="$by_pip ninja" ;;
      Eigen3 | doctest | CLI11 | nlohmann_json) libraries="$libraries $name" ;;
      clang-format) say "clang-format 14 without root: python3 -m pip install --user clang-format==14.0.6" ;;
      ruff) say "ruff without root: python3 -m pip install --user ruff==$ruff_version" ;;
      *) other="$other $name" ;;
    esac
  done
  [ -z "$by_pip" ] || say "${old}without root: python3 -m pip install --user$by_pip, and put $(user_programs) first in PATH"
  [ -z "$libraries" ] || say "CMake will download:$libraries (offline: docs/howto/platforms.md)"
  [ -z "$other" ] || say "not installed:$other"
}

# The folder into which pip --user puts programs
user_programs() { python3 -c 'import site; print(site.getuserbase() + "/bin")' 2>/dev/null || echo "$HOME/.local/bin"; }

# compiler_in_words COMPILER: its kind and version, whatever it is called
compiler_in_words() {
  local kind=g++
  if "$1" --version | grep -q clang; then kind=clang++; fi
  echo "$kind $("$1" -dumpfullversion 2>/dev/null || "$1" -dumpversion)"
}

# All that is there, in one line; a GPU and nvcc are optional.
there() {
  local list="" name nvcc="" gpu=""
  for name in compiler cmake ninja Eigen3 doctest CLI11 nlohmann_json; do
    case " $tools $extras " in *" $name "*) continue ;; esac
    case $name in
      compiler) name=$(compiler_in_words "$(working_compiler)") ;;
      cmake) name="cmake $(cmake_version)" ;;
    esac
    list="$list${list:+, }$name"
  done
  for name in nvcc /usr/local/cuda/bin/nvcc; do
    [ -n "$nvcc" ] || ! has $name || nvcc=$($name --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  done
  if has nvidia-smi; then gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || gpu=""; fi
  echo "${list:-nothing}; nvcc: ${nvcc:-none}; GPU: ${gpu:-none}"
}

# The kernels need no Python.
say_old_python() {
  has python3 && python3 -c 'import sys; sys.exit(sys.version_info >= (3, 11))' || return 0
  say "python3 is $(python3 -c 'import platform; print(platform.python_version())'); the course, the site and try.sh --serve need 3.11 (docs/howto/platforms.md)"
}

finish() { say_old_python && [ -z "$tools" ]; exit; }

export DEBIAN_FRONTEND=noninteractive
manager=$(find_manager)
as_root=""
if [ "$(id -u)" != 0 ]; then as_root=sudo; fi
project=$(cd "$(dirname "$0")/.." && pwd)
[ $dev = no ] || ruff_version=$(sed -n 's/^required-version = "==\(.*\)"$/\1/p' "$project/ruff.toml")
look
[ $check_only = yes ] || install_ruff
if [ -z "$tools$extras" ]; then
  say "all there: $(there)"
  finish
fi
say "missing:$tools$extras; there: $(there)"

# shellcheck disable=SC2086  # lists of words
wanted=$(packages $tools $extras)
if [ -z "$manager" ]; then
  say "no package manager that this script knows (apt, dnf, pacman, brew)"
elif [ -z "$wanted" ]; then
  say "$manager has no package for it"
elif [ $check_only = yes ]; then
  say "to install: $(install_command) $wanted"
elif [ -n "$as_root" ] && [ "$manager" != brew ] && ! { has sudo && sudo -v; }; then  # sudo asks for the password once, here
  say "you are not root, and sudo is missing or refuses; as root: $(as_root='' install_command) $wanted"
else
  install_missing
  look
  install_ruff
  [ -n "$tools$extras" ] || say "all there now: $(there)"
fi
advise
finish
