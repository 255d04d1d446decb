# Eigen, doctest, CLI11 and nlohmann_json, all header-only: the installed ones if there are any, else the releases pinned here.
include(FetchContent)

# header_library(PACKAGE TARGET INCLUDE URL SHA256): makes TARGET available. Of a release only the headers are used, from its folder INCLUDE.
function(header_library package target include url sha256)
  FetchContent_Declare(${package} URL ${url} URL_HASH SHA256=${sha256} TIMEOUT 60 INACTIVITY_TIMEOUT 10
                       SOURCE_SUBDIR no_project FIND_PACKAGE_ARGS CONFIG)
  FetchContent_MakeAvailable(${package})
  if(NOT TARGET ${target})
    FetchContent_GetProperties(${package} SOURCE_DIR source)
    if(NOT EXISTS ${source}/${include})
      message(FATAL_ERROR "${package} is neither installed nor downloaded. common/setup.sh installs it.")
    endif()
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} INTERFACE ${source}/${include})
    set(${package}_DIR ${source} PARENT_SCOPE)
  endif()
endfunction()

header_library(Eigen3 Eigen3::Eigen . https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.gz
               8586084f71f9bde545ee7fa6d00288b264a2b7ac3607b974e54d13e7162c1c72)
header_library(CLI11 CLI11::CLI11 include https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.3.2.tar.gz
               aac0ab42108131ac5d3344a9db0fdf25c4db652296641955720a4fbe52334e22)
header_library(nlohmann_json nlohmann_json::nlohmann_json include https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
               d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
if(EMSCRIPTEN)
  own_headers(CLI11::CLI11 CLI)
  own_headers(nlohmann_json::nlohmann_json nlohmann)
endif()
if(BUILD_TESTING)
  header_library(doctest doctest::doctest . https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz
                 632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186)
  # doctest.cmake with doctest_discover_tests(): next to an installed doctest's configuration, or in a downloaded one's scripts/.
  list(APPEND CMAKE_MODULE_PATH ${doctest_DIR} ${doctest_DIR}/scripts/cmake)
endif()
