# add_cuda_on_cpu(PROGRAM SOURCE... [INCLUDE FOLDER...]): plain CUDA C++, compiled for the simulator. When the program ends it says on stderr what each
# kernel did wrong, and its exit code is 1 if that is anything; so add_test(NAME ... COMMAND PROGRAM) finds races without a GPU.
find_package(Python3 COMPONENTS Interpreter)
# How plain files are compiled, besides the flags of all kernels; common/run reads them from the build's run_flags.
set(FLASH_PLAIN_FLAGS -std=gnu++20 -fpermissive -fsanitize=alignment -w -UNDEBUG CACHE INTERNAL "")
set(FLASH_RUN_FOLDER ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "")
set(FLASH_RUN_PYTHON ${Python3_EXECUTABLE} CACHE INTERNAL "")

function(add_cuda_on_cpu name)
  cmake_parse_arguments(arg "" "" "INCLUDE" ${ARGN})
  set(rewritten ${CMAKE_CURRENT_BINARY_DIR}/${name}_rewritten)
  set(folders)
  foreach(folder IN LISTS arg_INCLUDE)
    get_filename_component(folder ${folder} ABSOLUTE)
    list(APPEND folders ${folder})
  endforeach()
  set(sources)
  foreach(source IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(source ${source} ABSOLUTE)
    set(output ${rewritten}${source})
    add_custom_command(
      OUTPUT ${output} DEPFILE ${output}.d
      COMMAND ${FLASH_RUN_PYTHON} -B ${FLASH_RUN_FOLDER}/rewrite.py ${source} ${rewritten} ${output}.d ${folders}
      DEPENDS ${source} ${FLASH_RUN_FOLDER}/rewrite.py ${FLASH_RUN_FOLDER}/ptx.py VERBATIM)
    list(APPEND sources ${output})
    get_filename_component(folder ${source} DIRECTORY)
    list(APPEND folders ${folder})
  endforeach()
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX)
  add_executable(${name} ${sources})
  target_compile_options(${name} PRIVATE ${FLASH_PLAIN_FLAGS} -include cuda_runtime.h)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS ON)
  foreach(folder IN LISTS folders)
    target_include_directories(${name} PRIVATE ${rewritten}${folder} ${folder})
  endforeach()
  target_link_libraries(${name} PRIVATE flash_run flash_kernel)
endfunction()
