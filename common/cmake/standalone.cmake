# add_standalone(): standalone.cu in the current folder, a kernel in one file for nvcc alone. Two programs, each with a test:
#   standalone_NN_cpu  the same text on the simulator, by way of common/simt/standalone.hpp
#   standalone_NN      by nvcc; if FLASH_CUDA is ON, for all its architectures, whatever the kernels of the stages are compiled for
function(add_standalone)
  get_filename_component(stage ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  string(REGEX MATCH "^[0-9]+" number ${stage})
  set(standalone ${CMAKE_CURRENT_SOURCE_DIR}/standalone.cu)
  set(simulated ${CMAKE_CURRENT_BINARY_DIR}/standalone_cpu.cpp)
  add_custom_command(  # every line keeps its number
    OUTPUT ${simulated}
    COMMAND sed -E -e "1s|.*|#line 2 \"${standalone}\"|" -e "/^#include <cuda/s/.*//" -e "/^\\/\\/ ---- PTX/,/^\\/\\/ ----$/s/.*//"
            -e "s/([a-z_]+)<<<(.*)>>>\\(/simulate(\"\\1\", \\2, \\1, /" ${standalone} > ${simulated}
    DEPENDS ${standalone} VERBATIM)
  add_executable(standalone_${number}_cpu ${simulated})
  target_compile_options(standalone_${number}_cpu PRIVATE -include ${PROJECT_SOURCE_DIR}/common/simt/standalone.hpp)
  target_link_libraries(standalone_${number}_cpu PRIVATE flash_options flash_kernel flash_simt)
  set(programs standalone_${number}_cpu)
  if(FLASH_HAS_CUDA)
    add_executable(standalone_${number} standalone.cu)
    target_link_libraries(standalone_${number} PRIVATE flash_options)
    if(FLASH_CUDA STREQUAL "ON")
      set_target_properties(standalone_${number} PROPERTIES CUDA_ARCHITECTURES "75;80;90a")
      target_compile_options(standalone_${number} PRIVATE ${FLASH_NO_LOCAL_MEMORY})
    endif()
    list(APPEND programs standalone_${number})
  endif()
  set_target_properties(${programs} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

  set(runs "for n in 1 63 64 65 129; do for mask in '' causal; do \"$0\" $n 2 0 $mask || exit; done; done")
  add_test(NAME "standalone: ${stage} cpu" COMMAND sh -c "${runs}" $<TARGET_FILE:standalone_${number}_cpu>)
  if(FLASH_HAS_CUDA)
    string(REPLACE "129" "129 1000" runs "${runs}")
    add_test(NAME "standalone: ${stage} gpu" COMMAND sh -c "${runs}" $<TARGET_FILE:standalone_${number}>)
    set_tests_properties("standalone: ${stage} gpu" PROPERTIES LABELS gpu SKIP_RETURN_CODE 3)
  endif()
endfunction()
