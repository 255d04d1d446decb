# Settings of all targets: language level, warnings, AddressSanitizer, output folders.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, ..." FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(FLASH_SANITIZE "" CACHE STRING "'' | 'address' (with undefined)")
if(NOT FLASH_SANITIZE MATCHES "^(address)?$")
  message(FATAL_ERROR "FLASH_SANITIZE is '${FLASH_SANITIZE}'; allowed: '', 'address'")
endif()

# By g++ -Og compiles in half the time of -O1, and runs up to half as long again. For clang the two are one.
set(FLASH_KERNEL_OPTIMIZE -Og CACHE STRING "How kernels are optimised for the CPU")

option(FLASH_BINDING "Build a shared library of each stage, for PyTorch and others: docs/howto/pytorch.md" OFF)
if(FLASH_BINDING)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)  # a process may load several stages, and each keeps to its own functions
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
endif()

find_package(Threads REQUIRED)

# Link this to get the warnings, the sanitizer and the include root.
add_library(flash_options INTERFACE)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
target_include_directories(flash_options INTERFACE ${root})
target_link_libraries(flash_options INTERFACE Threads::Threads)
set(cxx_warnings -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND cxx_warnings -Wno-restrict)  # g++ 12 sees overlaps where strings are joined: GCC bug 105651
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # In C++ g++'s -Wconversion leaves signs out, clang's does not. Every CUDA kernel has `int i = blockIdx.x * blockDim.x + threadIdx.x`.
  list(APPEND cxx_warnings -Wno-sign-conversion)
endif()
target_compile_options(flash_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>")

# Link this, too, to sources with kernels for the CPU: the simulator then hears of each access to memory, index and division
# (common/machine/engine/instrumentation.cpp and undefined.cpp). Line tables (-g1) let messages name source lines (DWARF 4, since
# addr2line 2.40 may name the wrong file in DWARF 5), and frame pointers the line that called a helper.
# -fstack-clash-protection makes a frame of any size meet the hole below the stack. A local variable that no one has written holds NaN: clang
# stores it (the pattern of g++ is a number, which a factor of 0 would hide), for g++ the stack holds it (machine/engine/scheduler.cpp).
# AddressSanitizer watches everything, and brings its own.
add_library(flash_kernel INTERFACE)
include(CheckCXXCompilerFlag)
if(NOT EMSCRIPTEN)  # has no hole below a stack
  check_cxx_compiler_flag(-fstack-clash-protection FLASH_STACK_CLASH)
endif()
set(kernel_flags -fno-omit-frame-pointer $<$<BOOL:${FLASH_STACK_CLASH}>:-fstack-clash-protection>)
if(FLASH_SANITIZE)
  list(APPEND kernel_flags -O0)  # with AddressSanitizer -O1 takes three times as long
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND kernel_flags -fsanitize=array-bounds,integer-divide-by-zero -gline-tables-only -gdwarf-4 -ftrivial-auto-var-init=pattern)
  list(APPEND kernel_flags "SHELL:-Xclang -fsanitize=thread")  # emscripten's driver refuses what its compiler can do
  # `#pragma unroll` is for nvcc. clang obeys it too, and then takes three times as long.
  list(APPEND kernel_flags "SHELL:-mllvm -pragma-unroll-threshold=1" -Wno-pass-failed ${FLASH_KERNEL_OPTIMIZE})
  list(APPEND kernel_flags "SHELL:-mllvm -tsan-instrument-func-entry-exit=0")  # nobody has use for these calls
  # clang leaves out an access to a local array if the address of that very element goes nowhere, even where the array's does: accumulators
  # would go unseen. With this each address goes somewhere, to a function that does nothing.
  list(APPEND kernel_flags -fsanitize-coverage=func,trace-loads,trace-stores)
else()
  list(APPEND kernel_flags -fsanitize=thread,bounds,integer-divide-by-zero -g1 -gdwarf-4 -fstack-reuse=none ${FLASH_KERNEL_OPTIMIZE}
       "SHELL:--param tsan-instrument-func-entry-exit=0")
endif()
target_compile_options(flash_kernel INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${kernel_flags}>")

# nvcc's objects stay as they are. Checks of null pointers, sizes of objects and virtual tables are left out: AddressSanitizer stops at such
# accesses too, and they take a third of the time to compile.
if(FLASH_SANITIZE)
  set(flags -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -Wno-maybe-uninitialized)  # false alarms: the instrumentation hides from g++ what is initialised
  endif()
  target_compile_options(flash_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  target_link_options(flash_options INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(flash_options INTERFACE FLASH_ASAN)
endif()

# compile_together(LIBRARY): with FLASH_UNITY its sources go through the compiler as one, since the headers that they share take longer than
# they do. For an editor configure the preset cpu: with FLASH_UNITY clangd finds no command for any of these sources.
option(FLASH_UNITY "Compile the sources of the larger libraries together" OFF)
function(compile_together library)
  set_target_properties(${library} PROPERTIES UNITY_BUILD ${FLASH_UNITY} UNITY_BUILD_BATCH_SIZE 0)
endfunction()

if(EMSCRIPTEN)
  include(${root}/common/wasm/options.cmake)
endif()
