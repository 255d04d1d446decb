# add_stage(KERNELS file.cuh...): the program and the tests of the stage in the current folder.
#
# Each kernel file is compiled twice, by nvcc for the GPU and by the host compiler against common/simt for the CPU, through two
# generated one-line sources that include it and register its `variant`. A number at the start of a file's name orders the steps.
function(add_stage)
  cmake_parse_arguments(arg "" "" "KERNELS" ${ARGN})
  get_filename_component(stage ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(objects)
  foreach(kernel IN LISTS arg_KERNELS)
    get_filename_component(step ${kernel} NAME_WE)
    string(REGEX MATCH "^[0-9]+" number "${step}")
    if(NOT number)
      set(number 1)
    endif()
    set(FLASH_KERNEL ${stage}/${kernel})
    set(FLASH_NUMBER ${number})
    set(backends cpu)
    if(FLASH_HAS_CUDA)
      list(APPEND backends gpu)
    endif()
    foreach(FLASH_BACKEND IN LISTS backends)
      set(extension cpp)
      if(FLASH_BACKEND STREQUAL "gpu")
        set(extension cu)
      endif()
      set(source ${CMAKE_CURRENT_BINARY_DIR}/${step}_${FLASH_BACKEND}.${extension})
      configure_file(${PROJECT_SOURCE_DIR}/common/cmake/register_kernel.in ${source} @ONLY)
      list(APPEND sources_${FLASH_BACKEND} ${source})
    endforeach()
  endforeach()

  add_library(${stage}_cpu OBJECT ${sources_cpu})
  target_link_libraries(${stage}_cpu PUBLIC flash_options flash_simt PRIVATE flash_sanitize)
  list(APPEND objects $<TARGET_OBJECTS:${stage}_cpu>)
  if(FLASH_HAS_CUDA)
    add_library(${stage}_gpu OBJECT ${sources_gpu})
    target_link_libraries(${stage}_gpu PUBLIC flash_options flash_device)
    list(APPEND objects $<TARGET_OBJECTS:${stage}_gpu>)
  endif()

  add_executable(${stage} main.cpp ${objects})
  target_link_libraries(${stage} PRIVATE flash_options flash_harness)
  set_property(GLOBAL APPEND PROPERTY FLASH_STAGES ${stage})  # the demo runs them all

  # test.cpp may include kernel files and run their device functions through the simulator.
  add_executable(${stage}_test test.cpp ${objects})
  target_link_libraries(${stage}_test PRIVATE flash_options flash_sanitize flash_grid flash_simt flash_doctest)
  set_target_properties(${stage}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  doctest_discover_tests(${stage}_test TEST_PREFIX "${stage} cpu: " EXTRA_ARGS --device=cpu)
  if(FLASH_HAS_CUDA)
    doctest_discover_tests(${stage}_test TEST_PREFIX "${stage} gpu: " TEST_SPEC "grid*" EXTRA_ARGS --device=gpu
                           PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
  endif()
endfunction()
