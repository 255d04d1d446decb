# The GPU backend. FLASH_CUDA: AUTO compiles it for the GPUs that answer, if any does; ON also where none does, for 75, 80 and 90a;
# OFF never. Sets FLASH_HAS_CUDA, or FLASH_WHY_NO_CUDA, which the programs repeat.
# CMAKE_CUDA_ARCHITECTURES and the environment variable CUDAARCHS win over the architectures chosen here.
set(FLASH_CUDA AUTO CACHE STRING "AUTO | ON | OFF")
if(NOT FLASH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FLASH_CUDA is '${FLASH_CUDA}'; allowed: AUTO, ON, OFF")
endif()
set(FLASH_HAS_CUDA OFF)

# The architectures of the GPUs that answer, such as 80;90a; empty if none does.
set(native_architectures)
execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE output RESULT_VARIABLE failed ERROR_QUIET)
if(NOT failed)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${output}")
  string(REPLACE "." "" native_architectures "${capabilities}")
  list(REMOVE_DUPLICATES native_architectures)
  list(FILTER native_architectures EXCLUDE REGEX "^([3-6].|70|72)$")  # before tensor cores with ldmatrix; nvcc 13 knows none of them
  list(TRANSFORM native_architectures REPLACE "^90$" "90a")  # with Hopper's own instructions
endif()

set(FLASH_WHY_NO_CUDA "")
if(FLASH_CUDA STREQUAL "OFF")
  set(FLASH_WHY_NO_CUDA "FLASH_CUDA was OFF")
elseif(FLASH_CUDA STREQUAL "AUTO" AND NOT native_architectures)
  set(FLASH_WHY_NO_CUDA "no GPU answered (where one does, configure and build again, or compile it anyway by -DFLASH_CUDA=ON)")
else()
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)  # it may have been installed since the last look
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(FLASH_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)  # often not in PATH
    if(FLASH_NVCC)
      set(ENV{CUDACXX} ${FLASH_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(FLASH_WHY_NO_CUDA "no working nvcc was found")
  else()
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE output ERROR_QUIET)
    if(output MATCHES "release ([0-9]+)\\.([0-9]+)" AND CMAKE_MATCH_1 LESS 12)
      set(FLASH_WHY_NO_CUDA "nvcc ${CMAKE_MATCH_1}.${CMAKE_MATCH_2} was found, and C++20 needs 12.0")
    endif()
  endif()
endif()
if(FLASH_WHY_NO_CUDA)
  message(STATUS "GPU backend: not built, because ${FLASH_WHY_NO_CUDA}; every kernel runs on the CPU")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 75 80 90a)
  if(FLASH_CUDA STREQUAL "AUTO")
    set(CMAKE_CUDA_ARCHITECTURES ${native_architectures})
  endif()
endif()
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know it yet
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)
set(FLASH_HAS_CUDA ON)
target_compile_options(flash_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;-Wreorder>")
# Kernels of the stages spill no registers and put no array into local memory on the architectures that the tile sizes are written for.
option(FLASH_FAST_NVCC "nvcc hardly optimizes: says whether everything compiles, but nothing of registers or speed" OFF)
if(FLASH_FAST_NVCC)
  set(CMAKE_CUDA_FLAGS_RELEASE -DNDEBUG)  # its -O3 would be the host compiler's, too
  target_compile_options(flash_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>")
elseif("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "^((75|80|90a?)(-real|-virtual)?;?)+$")
  set(FLASH_NO_LOCAL_MEMORY -Xptxas=-warn-spills,-warn-lmem-usage)
endif()
message(STATUS "GPU backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
