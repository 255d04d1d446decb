macro(refuse_unknown function)  # arguments that cmake_parse_arguments() did not know, such as a misspelled keyword
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}() does not know: ${arg_UNPARSED_ARGUMENTS}")
  endif()
endmacro()

# Test programs are doctest programs; each of their test cases becomes one CTest test. With BUILD_TESTING=OFF there are none.
if(BUILD_TESTING)
  enable_testing()
  include(doctest)  # doctest_discover_tests()

  # doctest's implementation and a main(), compiled once for all test programs. An archive gives out only what is still missing,
  # so a program with a main() of its own takes the implementation and leaves the other.
  set(tests ${CMAKE_CURRENT_LIST_DIR}/../tests)
  add_library(flash_doctest STATIC ${tests}/doctest_implementation.cpp ${tests}/doctest_main.cpp)
  run_seldom(${tests}/doctest_implementation.cpp ${tests}/doctest_main.cpp)
  target_link_libraries(flash_doctest PUBLIC flash_options doctest::doctest)
endif()

# add_test_cases(TARGET PREFIX [DEVICE cpu|gpu] [FULL regex]): registers the cases of a doctest program as "PREFIX:case".
# DEVICE is for the programs of the stages; on the gpu they run the cases of the common grid, labelled gpu and skipped where none answers. The
# far cases fill a GPU's memory, so only one of them runs at a time. Cases that match FULL take long: the label `full` leaves them to the night.
#
# doctest is content when no case has the name that it is asked for, and CMake splits names at semicolons: a test that runs no
# case has to fail.
function(add_test_cases target prefix)
  cmake_parse_arguments(arg "" "DEVICE;FULL" "" ${ARGN})
  set(properties FAIL_REGULAR_EXPRESSION "test cases: +0" SKIP_RETURN_CODE 77)
  set(selection)
  if(arg_DEVICE)
    set(selection EXTRA_ARGS --device=${arg_DEVICE})
    string(REGEX MATCH "^[0-9]+" number ${target})
    list(APPEND properties COST ${number})  # later stages first: they take longer, and alone at the end they would leave cores idle
  endif()
  if(arg_DEVICE STREQUAL "gpu")
    list(APPEND properties LABELS gpu)
    list(APPEND selection TEST_SPEC "grid*")
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(arg_DEVICE STREQUAL "gpu")
    doctest_discover_tests(${target} TEST_PREFIX "${prefix}: " EXTRA_ARGS --device=gpu TEST_SPEC "far*"
                           PROPERTIES ${properties} RESOURCE_LOCK gpu_memory)
  endif()
  doctest_discover_tests(${target} TEST_PREFIX "${prefix}: " ${selection} PROPERTIES ${properties})
  if(arg_FULL)  # ctest reads this after doctest's list
    file(CONFIGURE OUTPUT ${target}_full.cmake @ONLY CONTENT [[
foreach(test IN LISTS @target@_TESTS)
  if(test MATCHES "@arg_FULL@")
    set_tests_properties("${test}" PROPERTIES LABELS full)
  endif()
endforeach()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${target}_full.cmake)
  endif()
endfunction()

# add_unit_test(NAME SOURCES file... [LIBRARIES library...]). main() comes from flash_doctest unless a source has its own. Sources without
# kernels are compiled together.
function(add_unit_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  refuse_unknown(add_unit_test)
  add_executable(${name} ${arg_SOURCES})
  if(flash_kernel IN_LIST arg_LIBRARIES)
    run_seldom(${arg_SOURCES})
  else()
    compile_together(${name})
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE flash_options ${arg_LIBRARIES} flash_doctest)
  add_test_cases(${name} ${name})
endfunction()
