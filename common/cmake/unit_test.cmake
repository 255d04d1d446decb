# add_unit_test(NAME SOURCES file... [LIBRARIES library...]): a doctest program whose test cases each become one CTest test.
include(doctest)

function(add_unit_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE flash_options doctest::doctest ${arg_LIBRARIES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  doctest_discover_tests(${name} TEST_PREFIX "${name}: ")
endfunction()
