# The toolchain of emscripten, wherever em++ comes from: a distribution's package, or emsdk.
find_program(FLASH_EMXX em++)
if(NOT FLASH_EMXX)
  message(FATAL_ERROR "em++ is missing: common/setup.sh --browser installs emscripten")
endif()
file(REAL_PATH ${FLASH_EMXX} emxx)
get_filename_component(EMSCRIPTEN_ROOT_PATH ${emxx} DIRECTORY)
set(CMAKE_CXX_COMPILER ${FLASH_EMXX})
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # the header-only libraries of the host
include(${EMSCRIPTEN_ROOT_PATH}/cmake/Modules/Platform/Emscripten.cmake)
