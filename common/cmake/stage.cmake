# step_name(stage/file.cuh cpu|gpu RESULT): one backend of a kernel file, as the name of its library and of the function that hands out
# its variant.
function(step_name kernel backend result)
  string(REGEX REPLACE "\\.cuh$" "_${backend}" name ${kernel})
  string(MAKE_C_IDENTIFIER "step_${name}" name)
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# add_kernel(stage/file.cuh cpu|gpu NAMESPACE): that library, so that other stages can link it. Its source is generated: it includes the
# file, whose `variant` lies in NAMESPACE, for nvcc or, against common/simt, for the host's compiler. If that is a namespace of the stage's
# own, each step has another one in it: step_2 for 2_name.cuh, forward_2 for forward/2_name.cuh.
#
# With FLASH_FAST_NVCC the GPU's kernels of a folder are compiled as one source, in the library of the first, if each has a namespace of
# its own and FLASH_APART does not list it: for most kernels nvcc takes longer to read the headers, once for each side, than to compile the
# rest. kernel_library() names the library that holds a kernel.
function(add_kernel FLASH_KERNEL backend FLASH_NAMESPACE)
  step_name(${FLASH_KERNEL} ${backend} FLASH_STEP)
  if(NOT FLASH_NAMESPACE STREQUAL flash AND FLASH_KERNEL MATCHES "^[^/]*/(([^/]*)/)?([0-9]+)_")
    set(folder "${CMAKE_MATCH_2}")
    if(NOT folder)
      set(folder step)
    endif()
    string(APPEND FLASH_NAMESPACE "::${folder}_${CMAKE_MATCH_3}")
  endif()
  set(extension_cpu cpp)
  set(extension_gpu cu)
  string(REGEX REPLACE "^[^/]*/(.*)\\.cuh$" "\\1" file ${FLASH_KERNEL})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${file}_${backend}.${extension_${backend}})
  configure_file(${PROJECT_SOURCE_DIR}/common/cmake/kernel.in ${source} @ONLY)
  if(backend STREQUAL gpu AND FLASH_FAST_NVCC AND NOT FLASH_NAMESPACE STREQUAL flash AND NOT FLASH_KERNEL IN_LIST FLASH_APART)
    get_filename_component(folder ${source} DIRECTORY)
    get_property(together GLOBAL PROPERTY FLASH_LIBRARY_OF_${folder})
    if(together)
      set_property(GLOBAL PROPERTY FLASH_LIBRARY_OF_${FLASH_STEP} ${together})
      set_property(TARGET ${together} APPEND PROPERTY FLASH_KERNELS ${source})
      return()
    endif()
    set_property(GLOBAL PROPERTY FLASH_LIBRARY_OF_${folder} ${FLASH_STEP})
    set(first ${source})
    set(source ${folder}/together_gpu.cu)
    file(GENERATE OUTPUT ${source} CONTENT "#include \"$<JOIN:$<TARGET_PROPERTY:${FLASH_STEP},FLASH_KERNELS>,\"\n#include \">\"\n")
  endif()
  add_library(${FLASH_STEP} OBJECT ${source})
  set_target_properties(${FLASH_STEP} PROPERTIES FLASH_KERNELS "${first}")
  target_link_libraries(${FLASH_STEP} PUBLIC flash_options)
  if(backend STREQUAL cpu)
    target_link_libraries(${FLASH_STEP} PUBLIC flash_simt PRIVATE flash_kernel)
    if(TARGET flash_kernel_headers)
      target_precompile_headers(${FLASH_STEP} REUSE_FROM flash_kernel_headers)
    endif()
    if(FLASH_KERNEL_LAUNCHER)
      set_property(TARGET ${FLASH_STEP} PROPERTY CXX_COMPILER_LAUNCHER ${FLASH_KERNEL_LAUNCHER})
    endif()
  else()
    target_link_libraries(${FLASH_STEP} PUBLIC flash_device)
    if(FLASH_STRICT_PTXAS)
      set_property(TARGET ${FLASH_STEP} PROPERTY CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/common/cmake/strict_ptxas.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
      target_compile_options(${FLASH_STEP} PRIVATE ${FLASH_NO_LOCAL_MEMORY})
    endif()
  endif()
endfunction()

function(kernel_library kernel backend result)
  step_name(${kernel} ${backend} step)
  get_property(library GLOBAL PROPERTY FLASH_LIBRARY_OF_${step})
  if(NOT library)
    set(library ${step})
  endif()
  set(${result} ${library} PARENT_SCOPE)
endfunction()

# add_stage(KERNELS file.cuh[@namespace]... [NAMESPACE flash::name] [FORWARD stage/file.cuh [FORWARD_WITH_OPTIONS stage/file.cuh]
#           [FORWARD_WITH_DISTANCES stage/file.cuh] [FORWARD_WITH_CENTROIDS stage/file.cuh]] [PREDICT flash::name::function] [TESTS file.cpp...] [APART file.cuh...]): the program and the tests of the stage in the current folder.
#
# Each kernel file, in the order of the steps, is compiled for each backend.
# NAMESPACE (default: flash): of the variants, see add_kernel(), but for a file that names its own; a stage whose code other stages use
#   has its own.
# FORWARD: the forward pass of the backward steps (common/device/forward_pass.hpp), a step of this stage or of an earlier one.
# FORWARD_WITH_OPTIONS, FORWARD_WITH_DISTANCES, FORWARD_WITH_CENTROIDS: that of the backward step that knows the options of chapter 09,
#   hyperbolic scores, or centroids.
# PREDICT: the function of the stage's predicted.hpp that says what the kernels move (Variant::predict).
# TESTS: default test.cpp.
# APART: steps with a function that later steps have from a header. A source that included both would have two.
function(add_stage)
  cmake_parse_arguments(arg "" "NAMESPACE;FORWARD;FORWARD_WITH_OPTIONS;FORWARD_WITH_DISTANCES;FORWARD_WITH_CENTROIDS;PREDICT" "KERNELS;TESTS;APART" ${ARGN})
  if(NOT arg_TESTS)
    set(arg_TESTS test.cpp)
  endif()
  if(NOT arg_NAMESPACE)
    set(arg_NAMESPACE flash)
  endif()
  get_filename_component(stage ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  foreach(kernel IN LISTS arg_KERNELS)
    if(kernel MATCHES "^(.*)@(.*)$")
      set(namespace_of_${stage}/${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    endif()
  endforeach()
  list(TRANSFORM arg_KERNELS REPLACE "@.*" "")
  list(TRANSFORM arg_KERNELS PREPEND ${stage}/ OUTPUT_VARIABLE kernels)
  list(TRANSFORM arg_APART PREPEND ${stage}/ OUTPUT_VARIABLE FLASH_APART)
  set(linked ${kernels} ${arg_FORWARD} ${arg_FORWARD_WITH_OPTIONS} ${arg_FORWARD_WITH_DISTANCES}
             ${arg_FORWARD_WITH_CENTROIDS})
  list(REMOVE_DUPLICATES linked)
  set(predict nullptr)
  if(arg_PREDICT)
    set(predict &${arg_PREDICT})
    set(FLASH_PREDICTED "#include \"${stage}/predicted.hpp\"")
  endif()
  set(backends cpu)
  if(FLASH_HAS_CUDA)
    list(APPEND backends gpu)
  endif()
  set(inline_namespace_cpu simt)  # of what a file has that is compiled for both
  set(inline_namespace_gpu gpu)
  foreach(backend IN LISTS backends)
    set(number 0)
    foreach(kernel IN LISTS kernels)
      if(namespace_of_${kernel})
        add_kernel(${kernel} ${backend} ${namespace_of_${kernel}})
      else()
        add_kernel(${kernel} ${backend} ${arg_NAMESPACE})
      endif()
      step_name(${kernel} ${backend} step)
      math(EXPR number "${number} + 1")
      string(APPEND FLASH_REGISTRATIONS "    {Backend::${backend}, ${number}, ${step}(), \"${kernel}\", ${predict}},\n")
    endforeach()
    foreach(kernel IN LISTS linked)
      step_name(${kernel} ${backend} step)
      string(APPEND FLASH_DECLARATIONS "const Variant& ${step}();\n")
      kernel_library(${kernel} ${backend} library)
      list(APPEND objects $<TARGET_OBJECTS:${library}>)
    endforeach()
    foreach(pass FORWARD FORWARD_WITH_OPTIONS FORWARD_WITH_DISTANCES FORWARD_WITH_CENTROIDS)
      if(arg_${pass})
        step_name(${arg_${pass}} ${backend} step)
        string(REPLACE FORWARD forward_pass function ${pass})
        string(TOLOWER ${function} function)
        string(APPEND FLASH_FORWARD_PASSES "namespace ${inline_namespace_${backend}} {\n"
                                           "const Variant& ${function}() { return ${step}(); }\n}\n")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES objects)
  configure_file(${PROJECT_SOURCE_DIR}/common/cmake/steps.in steps.cpp @ONLY)
  list(APPEND objects ${CMAKE_CURRENT_BINARY_DIR}/steps.cpp)

  add_executable(${stage} main.cpp ${objects})
  compile_together(${stage})
  target_compile_options(${stage} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)  # names and formulas; the kernels are in other objects
  target_link_libraries(${stage} PRIVATE flash_options flash_harness)
  set_property(GLOBAL APPEND PROPERTY FLASH_STAGES ${stage})  # the demo runs them all

  if(FLASH_BINDING)
    add_library(flash_c_${stage} SHARED ${objects})
    target_link_libraries(flash_c_${stage} PRIVATE flash_options flash_binding)
    set_target_properties(flash_c_${stage} PROPERTIES OUTPUT_NAME flash_${stage} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
    if(NOT APPLE)
      target_link_options(flash_c_${stage} PRIVATE LINKER:--exclude-libs,ALL)  # torch brings a CUDA runtime of its own
    endif()
    add_dependencies(flash_c flash_c_${stage})
  endif()

  if(NOT BUILD_TESTING)
    return()
  endif()
  # Tests may include kernel files and run their device functions through the simulator.
  add_executable(${stage}_test ${arg_TESTS} ${objects})
  target_link_libraries(${stage}_test PRIVATE flash_options flash_kernel flash_grid flash_simt flash_doctest)
  run_seldom(${arg_TESTS})  # the kernels are in other objects
  add_test_cases(${stage}_test "${stage} cpu" DEVICE cpu FULL "grid: (random mixture|every compiled tile size|every problem by every variant)")
  if(FLASH_HAS_CUDA)
    add_test_cases(${stage}_test "${stage} gpu" DEVICE gpu)
  endif()
endfunction()
