# add_unit_test(NAME SOURCES file... [LIBRARIES library...]): a doctest program whose test cases each become one CTest test.
# main() comes from flash_doctest unless a source has its own.
enable_testing()
include(doctest)  # doctest_discover_tests()

function(add_unit_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE flash_options ${arg_LIBRARIES} flash_doctest)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  doctest_discover_tests(${name} TEST_PREFIX "${name}: ")
endfunction()
