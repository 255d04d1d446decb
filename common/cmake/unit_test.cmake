# Test programs are doctest programs; each of their test cases becomes one CTest test. With BUILD_TESTING=OFF there are none.
if(BUILD_TESTING)
  enable_testing()
  include(doctest)  # doctest_discover_tests()

  # doctest's implementation and a main(), compiled once for all test programs; a program with a main() of its own leaves the other.
  set(tests ${CMAKE_CURRENT_LIST_DIR}/../tests)
  add_library(flash_doctest STATIC ${tests}/doctest_implementation.cpp ${tests}/doctest_main.cpp)
  target_compile_options(flash_doctest PRIVATE -O0)
  target_link_libraries(flash_doctest PUBLIC flash_options doctest::doctest)
endif()

# add_test_cases(TARGET PREFIX [DEVICE cpu|gpu]): registers the cases of a doctest program as "PREFIX:case".
# DEVICE is for the programs of the stages; on the gpu they run the cases of the common grid, labelled gpu and skipped where none answers. The
# far cases fill a GPU's memory, so only one of them runs at a time. A test that runs no case, since CMake has split its name at a semicolon, fails.
function(add_test_cases target prefix)
  cmake_parse_arguments(arg "" "DEVICE" "" ${ARGN})
  set(properties FAIL_REGULAR_EXPRESSION "test cases: +0" SKIP_RETURN_CODE 77)
  if(arg_DEVICE)
    set(selection EXTRA_ARGS --device=${arg_DEVICE})
    string(REGEX MATCH "^[0-9]+" number ${target})
    list(APPEND properties COST ${number})  # later stages first: they take longer, and alone at the end they would leave cores idle
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(arg_DEVICE STREQUAL "gpu")
    list(APPEND properties LABELS gpu)
    list(APPEND selection TEST_SPEC "grid*")
    doctest_discover_tests(${target} TEST_PREFIX "${prefix}: " EXTRA_ARGS --device=gpu TEST_SPEC "far*"
                           PROPERTIES ${properties} RESOURCE_LOCK gpu_memory)
  endif()
  doctest_discover_tests(${target} TEST_PREFIX "${prefix}: " ${selection} PROPERTIES ${properties})
endfunction()

# add_unit_test(NAME SOURCES file... [LIBRARIES library...]). Sources without kernels are compiled together. None is optimised: most cases take
# less time than that would.
function(add_unit_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  if(flash_kernel IN_LIST arg_LIBRARIES)
    set_source_files_properties(${arg_SOURCES} PROPERTIES COMPILE_OPTIONS -O0)  # against the -Og of flash_kernel
  else()
    compile_together(${name})
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE flash_options ${arg_LIBRARIES} flash_doctest)
  add_test_cases(${name} ${name})
endfunction()

# add_python_test(NAME script.py|-m module [ARG...] [PROPERTIES ...]): runs it in the root; exit code 77 means skipped. There is none without
# Python, nor under a sanitizer, with which stage programs take minutes to compile.
function(add_python_test name)
  if(BUILD_TESTING AND Python3_FOUND AND NOT FLASH_SANITIZE)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" PROPERTIES)
    add_test(NAME "${name}" COMMAND ${Python3_EXECUTABLE} -B ${arg_UNPARSED_ARGUMENTS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties("${name}" PROPERTIES SKIP_RETURN_CODE 77 ${arg_PROPERTIES})
  endif()
endfunction()
