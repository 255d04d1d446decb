# What add_resources_test() lacks.
set(FLASH_NO_RESOURCES "")
if(FLASH_HAS_CUDA)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  find_program(FLASH_CUOBJDUMP cuobjdump HINTS ${CUDAToolkit_BIN_DIR})
  mark_as_advanced(FLASH_CUOBJDUMP)
  if(NOT Python3_FOUND)
    set(FLASH_NO_RESOURCES "Python 3")
  elseif(NOT FLASH_CUOBJDUMP)
    set(FLASH_NO_RESOURCES "cuobjdump")
  endif()
  if(FLASH_NO_RESOURCES)
    message(STATUS "Tests of the kernels' registers and local memory: left out, ${FLASH_NO_RESOURCES} was not found")
  endif()
endif()

# "NN_name resources": no kernel of the stage spills registers or uses local memory, for those of FLASH_STRICT_ARCHITECTURES that are
# compiled; for others it is said. Needs no GPU. The table is saved as build/resources/NN_name.json.
function(add_resources_test stage)
  if(FLASH_NO_RESOURCES)
    return()
  endif()
  list(JOIN FLASH_STRICT_ARCHITECTURES "," strict)
  add_test(NAME "${stage} resources"
           COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/common/testing/resources.py --stage ${stage}
                   --cuobjdump ${FLASH_CUOBJDUMP} --strict ${strict} --save ${PROJECT_BINARY_DIR}/resources/${stage}.json
                   $<TARGET_OBJECTS:${stage}_gpu>
           COMMAND_EXPAND_LISTS)
endfunction()

# add_stage(KERNELS file.cuh... [NAMESPACE flash::name] [FORWARD stage/file.cuh flash::name] [TESTS file.cpp...]): the program and the
# tests of the stage in the current folder.
#
# Each kernel file, in the order of the steps, is compiled twice, by nvcc for the GPU and by the host compiler against common/simt for
# the CPU, through two generated one-line sources that include it and register its `variant`, which lies in NAMESPACE (default: flash; a
# stage whose kernels another stage includes has its own). FORWARD: the step, and its namespace, that is the forward pass of the backward
# steps (common/device/forward_pass.hpp): one of this stage, or one of another, which is compiled once more. Tests: default test.cpp.
function(add_stage)
  cmake_parse_arguments(arg "" "NAMESPACE" "KERNELS;FORWARD;TESTS" ${ARGN})
  if(NOT arg_TESTS)
    set(arg_TESTS test.cpp)
  endif()
  set(FLASH_NAMESPACE flash)
  if(arg_NAMESPACE)
    set(FLASH_NAMESPACE ${arg_NAMESPACE})
  endif()
  get_filename_component(stage ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(objects)
  set(FLASH_NUMBER 0)
  set(backends cpu)
  if(FLASH_HAS_CUDA)
    list(APPEND backends gpu)
  endif()
  set(extension_cpu cpp)
  set(extension_gpu cu)
  if(arg_FORWARD)
    list(GET arg_FORWARD 0 FLASH_FORWARD)
    list(GET arg_FORWARD 1 FLASH_FORWARD_NAMESPACE)
  endif()
  if(arg_FORWARD AND NOT FLASH_FORWARD MATCHES "^${stage}/")
    foreach(FLASH_BACKEND IN LISTS backends)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/forward_pass_${FLASH_BACKEND}.${extension_${FLASH_BACKEND}})
      configure_file(${PROJECT_SOURCE_DIR}/common/cmake/forward_pass.in ${source} @ONLY)
      list(APPEND sources_${FLASH_BACKEND} ${source})
    endforeach()
  endif()
  foreach(kernel IN LISTS arg_KERNELS)
    string(REGEX REPLACE "\\.cuh$" "" step ${kernel})
    set(FLASH_KERNEL ${stage}/${kernel})
    math(EXPR FLASH_NUMBER "${FLASH_NUMBER} + 1")
    set(FLASH_FORWARD_PASS "")
    if(FLASH_KERNEL STREQUAL FLASH_FORWARD)
      set(FLASH_FORWARD_PASS "\n#include \"common/device/forward_pass.hpp\"
const flash::Variant& flash::forward_pass() { return ${FLASH_FORWARD_NAMESPACE}::variant; }")
    endif()
    foreach(FLASH_BACKEND IN LISTS backends)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/${step}_${FLASH_BACKEND}.${extension_${FLASH_BACKEND}})
      configure_file(${PROJECT_SOURCE_DIR}/common/cmake/register_kernel.in ${source} @ONLY)
      list(APPEND sources_${FLASH_BACKEND} ${source})
    endforeach()
  endforeach()

  add_library(${stage}_cpu OBJECT ${sources_cpu})
  target_link_libraries(${stage}_cpu PUBLIC flash_options flash_simt PRIVATE flash_kernel)
  list(APPEND objects $<TARGET_OBJECTS:${stage}_cpu>)
  if(FLASH_HAS_CUDA)
    add_library(${stage}_gpu OBJECT ${sources_gpu})
    target_link_libraries(${stage}_gpu PUBLIC flash_options flash_device)
    if(NOT FLASH_OTHER_ARCHITECTURES)
      target_compile_options(${stage}_gpu PRIVATE ${FLASH_NO_LOCAL_MEMORY})
    endif()
    list(APPEND objects $<TARGET_OBJECTS:${stage}_gpu>)
  endif()

  add_executable(${stage} main.cpp ${objects})
  target_link_libraries(${stage} PRIVATE flash_options flash_harness)
  set_property(GLOBAL APPEND PROPERTY FLASH_STAGES ${stage})  # the demo runs them all

  # Tests may include kernel files and run their device functions through the simulator.
  add_executable(${stage}_test ${arg_TESTS} ${objects})
  target_link_libraries(${stage}_test PRIVATE flash_options flash_kernel flash_grid flash_simt flash_doctest)
  target_compile_options(${stage}_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)  # as run_seldom() does; the kernels are in other objects
  add_test_cases(${stage}_test "${stage} cpu" DEVICE cpu)
  if(FLASH_HAS_CUDA)
    add_test_cases(${stage}_test "${stage} gpu" DEVICE gpu)
    add_resources_test(${stage})
  endif()
endfunction()
