# Eigen, doctest, CLI11 and nlohmann_json, all header-only: the installed ones if there are any, else the releases pinned here.
option(FLASH_FETCH "Download the header-only libraries that are not installed" ON)
include(unpack_release)

# header_library(PACKAGE TARGET INCLUDE dir MINIMUM version VERSION version URL url SHA256 hash)
#
# Makes TARGET available. An installed PACKAGE counts from MINIMUM on, whatever its major version (Eigen 5 would not answer to a
# request for 3.3). A downloaded one is only unpacked: its own CMake project, with its tests and its ideas about the oldest
# CMake, stays out, and INCLUDE is the folder of its headers. Headers of imported targets are system headers: no warnings.
function(header_library package target)
  cmake_parse_arguments(arg "" "INCLUDE;MINIMUM;VERSION;URL;SHA256" "" ${ARGN})
  find_package(${package} CONFIG QUIET)
  if(${package}_FOUND AND ${package}_VERSION VERSION_GREATER_EQUAL arg_MINIMUM)
    message(STATUS "${package} ${${package}_VERSION}: ${${package}_DIR}")
    set(${package}_DIR ${${package}_DIR} PARENT_SCOPE)
    return()
  endif()
  set(missing "${package} >= ${arg_MINIMUM} is not installed")
  if(TARGET ${target})  # find_package has made the target, and it cannot be made twice
    message(FATAL_ERROR "${missing}: ${${package}_VERSION} in ${${package}_DIR} is too old. "
                        "Set CMAKE_DISABLE_FIND_PACKAGE_${package}=ON to download ${arg_VERSION} instead.")
  endif()
  if(NOT FLASH_FETCH)
    message(FATAL_ERROR "${missing}, and FLASH_FETCH=OFF forbids to download it. common/setup.sh installs it.")
  endif()
  unpack_release(source "${missing}" ${arg_URL} ${arg_SHA256})
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} INTERFACE ${source}/${arg_INCLUDE})
  set(${package}_DIR ${source} PARENT_SCOPE)
endfunction()

header_library(Eigen3 Eigen3::Eigen MINIMUM 3.3 VERSION 3.4.0 INCLUDE .
               URL https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.gz
               SHA256 8586084f71f9bde545ee7fa6d00288b264a2b7ac3607b974e54d13e7162c1c72)
header_library(doctest doctest::doctest MINIMUM 2.4 VERSION 2.4.11 INCLUDE .
               URL https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz
               SHA256 632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186)
header_library(CLI11 CLI11::CLI11 MINIMUM 2.1 VERSION 2.3.2 INCLUDE include
               URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.3.2.tar.gz
               SHA256 aac0ab42108131ac5d3344a9db0fdf25c4db652296641955720a4fbe52334e22)
header_library(nlohmann_json nlohmann_json::nlohmann_json MINIMUM 3.9 VERSION 3.11.3 INCLUDE include
               URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
               SHA256 d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)

# doctest.cmake with doctest_discover_tests(): beside an installed doctest's configuration, or in a downloaded one's scripts/.
list(APPEND CMAKE_MODULE_PATH ${doctest_DIR} ${doctest_DIR}/scripts/cmake)
