# add_standalone(): standalone.cu in the current folder, a kernel in one file for nvcc alone. Two programs and their tests:
#   standalone_NN_cpu  the same text on the simulator, by way of common/machine/cpu/standalone.hpp
#   standalone_NN      by nvcc; if FLASH_CUDA is ON, for all its architectures, whatever the stages are compiled for
function(add_standalone)
  get_filename_component(stage ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  string(REGEX MATCH "^[0-9]+" number ${stage})
  set(standalone ${CMAKE_CURRENT_SOURCE_DIR}/standalone.cu)
  set(simulated ${CMAKE_CURRENT_BINARY_DIR}/standalone_cpu.cpp)
  add_custom_command(  # every line keeps its number
    OUTPUT ${simulated}
    COMMAND sed -E -e "1s|.*|#line 2 \"${standalone}\"|" -e "/^#include <cuda/s/.*//" -e "/^\\/\\/ ---- PTX/,/^\\/\\/ ----$/s/.*//"
            -e "s/([a-z_]+)<<<(.*)>>>\\(/simulate(\"\\1\", \\2, \\1, /" -e "s/__sync(threads|warp)\\(\\);/if (kept(__LINE__)) &/"
            ${standalone} > ${simulated}
    DEPENDS ${standalone} VERBATIM)
  set(cpu standalone_${number}_cpu)
  add_executable(${cpu} ${simulated})
  target_compile_options(${cpu} PRIVATE -include ${PROJECT_SOURCE_DIR}/common/machine/cpu/standalone.hpp)
  target_link_libraries(${cpu} PRIVATE flash_options flash_kernel flash_machine)
  set_target_properties(${cpu} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set(every_size "for N in 1 63 64 65 129; do for mask in '' causal; do \"$0\" $N 2 0 $mask || exit; done; done")
  add_test(NAME "standalone: ${stage} cpu" COMMAND sh -c "${every_size}" $<TARGET_FILE:${cpu}>)
  if(NOT FLASH_SANITIZE)  # without any one of its barriers it has a race, and the report names both lines
    add_test(NAME "standalone: ${stage} barriers"
             COMMAND sh -c "lines=$(grep -n '^ *__sync' \"$1\" | cut -d: -f1); for line in \${lines:?}; do FLASH_WITHOUT_LINE=$line \"$0\" 129 1 0 2>&1 |
                            grep -m 1 'RACE: .*standalone[a-z_.]*:[0-9]* .* and .*standalone[a-z_.]*:[0-9]* ' || exit; done"
                     $<TARGET_FILE:${cpu}> ${standalone})
  endif()

  if(FLASH_HAS_CUDA)
    set(gpu standalone_${number})
    add_executable(${gpu} standalone.cu)
    target_link_libraries(${gpu} PRIVATE flash_options)
    set_target_properties(${gpu} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    if(FLASH_CUDA STREQUAL "ON")
      set_target_properties(${gpu} PROPERTIES CUDA_ARCHITECTURES "75;80;90a")
      if(FLASH_STRICT_PTXAS)
        target_compile_options(${gpu} PRIVATE ${FLASH_NO_LOCAL_MEMORY})
      endif()
    endif()
    string(REPLACE "129" "129 1000" every_size "${every_size}")
    add_test(NAME "standalone: ${stage} gpu" COMMAND sh -c "${every_size}" $<TARGET_FILE:${gpu}>)
    set_tests_properties("standalone: ${stage} gpu" PROPERTIES LABELS gpu SKIP_RETURN_CODE 3)
  endif()
endfunction()
