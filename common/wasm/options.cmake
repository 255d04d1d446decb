# What a build for WebAssembly (common/wasm/toolchain.cmake) needs in addition to common/cmake/options.cmake.

# Kernels are switched by emscripten's fibers, which the Asyncify pass makes possible for the functions that are named. A fiber that is not
# running keeps its calls in memory of its own: FLASH_FIBER_BYTES. Exceptions are JavaScript's: those of WebAssembly itself and Asyncify
# exclude each other. size_t has 32 bits, 64-bit extents are narrowed to it.
set(FLASH_FIBER_BYTES 65536)
target_compile_definitions(flash_options INTERFACE FLASH_FIBER_BYTES=${FLASH_FIBER_BYTES})
target_compile_options(flash_options INTERFACE -fexceptions -Wno-shorten-64-to-32 -Wno-implicit-int-float-conversion -Wno-unused-private-field
                       -include ${PROJECT_SOURCE_DIR}/common/wasm/library.hpp)
target_link_options(flash_options INTERFACE -fexceptions -sASYNCIFY=1 "-sASYNCIFY_ONLY=main,*flash*,*__function*,*::function*,*invoke*,dynCall*,__tsan*,__ubsan*,__sanitizer*"
                    -sASYNCIFY_STACK_SIZE=${FLASH_FIBER_BYTES} -sALLOW_MEMORY_GROWTH=1
                    -sTOTAL_STACK=1048576 -sEXIT_RUNTIME=1)

# Programs for node, which read and write the files of the machine; targets with the property FLASH_PAGE are modules for a worker of a page.
set(is_page $<BOOL:$<TARGET_PROPERTY:FLASH_PAGE>>)
set(page -Os -sENVIRONMENT=worker,node -sMODULARIZE=1 -sINVOKE_RUN=0 -sEXPORTED_RUNTIME_METHODS=callMain,ENV)
target_link_options(flash_options INTERFACE "$<${is_page}:${page}>" "$<$<NOT:${is_page}>:-sENVIRONMENT=node;-sNODERAWFS=1>")

# A return address cannot be had here: places.py tells the simulator where each access to memory stands in the source.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(FLASH_KERNEL_LAUNCHER ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/common/wasm/places.py ${CMAKE_CXX_COMPILER_LAUNCHER})

# Debian's emscripten looks for its JavaScript parser where only Debian's node finds it.
if(EXISTS /usr/share/nodejs/acorn)
  set(CMAKE_CXX_LINKER_LAUNCHER ${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs)
endif()

# own_headers(TARGET FOLDER): of a header-only library that is installed, only FOLDER, below its include folder. All of /usr/include would hide
# emscripten's C library.
function(own_headers target folder)
  get_target_property(where ${target} INTERFACE_INCLUDE_DIRECTORIES)
  list(GET where 0 where)
  if(where MATCHES "/include$")
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/headers)
    file(CREATE_LINK ${where}/${folder} ${PROJECT_BINARY_DIR}/headers/${folder} SYMBOLIC)
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR}/headers)
  endif()
endfunction()
