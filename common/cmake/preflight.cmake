# Before project(), which would write files first, or say less.
if(CMAKE_BINARY_DIR STREQUAL CMAKE_SOURCE_DIR)
  message(FATAL_ERROR "This would scatter files among the sources. Use a preset: cmake --workflow --preset demo (or test). "
                      "To remove what CMake has left here: rm -r CMakeCache.txt CMakeFiles")
endif()
if(CMAKE_GENERATOR STREQUAL "Ninja")
  find_program(CMAKE_MAKE_PROGRAM NAMES ninja-build ninja samu)
  if(NOT CMAKE_MAKE_PROGRAM)
    message(FATAL_ERROR "Ninja is missing: common/setup.sh installs it, or, without root, python3 -m pip install ninja")
  endif()
endif()
