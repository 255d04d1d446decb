// The runtime's functions, on a device that has done everything when a call returns.
#pragma once

// FLASH_EACH(name, number, text)
#define FLASH_ERRORS(FLASH_EACH) \
  FLASH_EACH(cudaSuccess, 0, "no error") \
  FLASH_EACH(cudaErrorInvalidValue, 1, "invalid argument") \
  FLASH_EACH(cudaErrorMemoryAllocation, 2, "out of memory") \
  FLASH_EACH(cudaErrorInitializationError, 3, "cudaErrorInitializationError") \
  FLASH_EACH(cudaErrorCudartUnloading, 4, "cudaErrorCudartUnloading") \
  FLASH_EACH(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
  FLASH_EACH(cudaErrorInvalidSymbol, 13, "cudaErrorInvalidSymbol") \
  FLASH_EACH(cudaErrorInvalidDevicePointer, 17, "cudaErrorInvalidDevicePointer") \
  FLASH_EACH(cudaErrorInvalidMemcpyDirection, 21, "cudaErrorInvalidMemcpyDirection") \
  FLASH_EACH(cudaErrorInsufficientDriver, 35, "cudaErrorInsufficientDriver") \
  FLASH_EACH(cudaErrorInvalidDeviceFunction, 98, "cudaErrorInvalidDeviceFunction") \
  FLASH_EACH(cudaErrorNoDevice, 100, "cudaErrorNoDevice") \
  FLASH_EACH(cudaErrorInvalidDevice, 101, "cudaErrorInvalidDevice") \
  FLASH_EACH(cudaErrorInvalidResourceHandle, 400, "cudaErrorInvalidResourceHandle") \
  FLASH_EACH(cudaErrorNotReady, 600, "cudaErrorNotReady") \
  FLASH_EACH(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
  FLASH_EACH(cudaErrorLaunchOutOfResources, 701, "cudaErrorLaunchOutOfResources") \
  FLASH_EACH(cudaErrorLaunchTimeout, 702, "cudaErrorLaunchTimeout") \
  FLASH_EACH(cudaErrorPeerAccessAlreadyEnabled, 704, "cudaErrorPeerAccessAlreadyEnabled") \
  FLASH_EACH(cudaErrorPeerAccessNotEnabled, 705, "cudaErrorPeerAccessNotEnabled") \
  FLASH_EACH(cudaErrorAssert, 710, "cudaErrorAssert") \
  FLASH_EACH(cudaErrorHostMemoryAlreadyRegistered, 712, "cudaErrorHostMemoryAlreadyRegistered") \
  FLASH_EACH(cudaErrorHostMemoryNotRegistered, 713, "cudaErrorHostMemoryNotRegistered") \
  FLASH_EACH(cudaErrorMisalignedAddress, 716, "misaligned address") \
  FLASH_EACH(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
  FLASH_EACH(cudaErrorCooperativeLaunchTooLarge, 720, "cudaErrorCooperativeLaunchTooLarge") \
  FLASH_EACH(cudaErrorNotSupported, 801, "cudaErrorNotSupported") \
  FLASH_EACH(cudaErrorUnknown, 999, "cudaErrorUnknown")
enum cudaError {
#define FLASH_EACH(name, number, text) name = number,
  FLASH_ERRORS(FLASH_EACH)
#undef FLASH_EACH
};
typedef enum cudaError cudaError_t;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
// FLASH_EACH(name, number, member of cudaDeviceProp)
#define FLASH_ATTRIBUTES(FLASH_EACH) \
  FLASH_EACH(cudaDevAttrMaxThreadsPerBlock, 1, maxThreadsPerBlock) \
  FLASH_EACH(cudaDevAttrMaxBlockDimX, 2, maxThreadsDim[0]) \
  FLASH_EACH(cudaDevAttrMaxGridDimX, 5, maxGridSize[0]) \
  FLASH_EACH(cudaDevAttrMaxSharedMemoryPerBlock, 8, sharedMemPerBlock) \
  FLASH_EACH(cudaDevAttrTotalConstantMemory, 9, totalConstMem) \
  FLASH_EACH(cudaDevAttrWarpSize, 10, warpSize) \
  FLASH_EACH(cudaDevAttrMaxRegistersPerBlock, 12, regsPerBlock) \
  FLASH_EACH(cudaDevAttrClockRate, 13, clockRate) \
  FLASH_EACH(cudaDevAttrGpuOverlap, 15, deviceOverlap) \
  FLASH_EACH(cudaDevAttrMultiProcessorCount, 16, multiProcessorCount) \
  FLASH_EACH(cudaDevAttrKernelExecTimeout, 17, kernelExecTimeoutEnabled) \
  FLASH_EACH(cudaDevAttrIntegrated, 18, integrated) \
  FLASH_EACH(cudaDevAttrCanMapHostMemory, 19, canMapHostMemory) \
  FLASH_EACH(cudaDevAttrComputeMode, 20, computeMode) \
  FLASH_EACH(cudaDevAttrConcurrentKernels, 31, concurrentKernels) \
  FLASH_EACH(cudaDevAttrMemoryClockRate, 36, memoryClockRate) \
  FLASH_EACH(cudaDevAttrGlobalMemoryBusWidth, 37, memoryBusWidth) \
  FLASH_EACH(cudaDevAttrL2CacheSize, 38, l2CacheSize) \
  FLASH_EACH(cudaDevAttrMaxThreadsPerMultiProcessor, 39, maxThreadsPerMultiProcessor) \
  FLASH_EACH(cudaDevAttrUnifiedAddressing, 41, unifiedAddressing) \
  FLASH_EACH(cudaDevAttrComputeCapabilityMajor, 75, major) \
  FLASH_EACH(cudaDevAttrComputeCapabilityMinor, 76, minor) \
  FLASH_EACH(cudaDevAttrStreamPrioritiesSupported, 78, streamPrioritiesSupported) \
  FLASH_EACH(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81, sharedMemPerMultiprocessor) \
  FLASH_EACH(cudaDevAttrMaxRegistersPerMultiprocessor, 82, regsPerMultiprocessor) \
  FLASH_EACH(cudaDevAttrManagedMemory, 83, managedMemory) \
  FLASH_EACH(cudaDevAttrConcurrentManagedAccess, 89, concurrentManagedAccess) \
  FLASH_EACH(cudaDevAttrCooperativeLaunch, 95, cooperativeLaunch) \
  FLASH_EACH(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97, sharedMemPerBlockOptin) \
  FLASH_EACH(cudaDevAttrMaxBlocksPerMultiprocessor, 106, maxBlocksPerMultiProcessor) \
  FLASH_EACH(cudaDevAttrReservedSharedMemoryPerBlock, 111, reservedSharedMemPerBlock) \
  FLASH_EACH(cudaDevAttrMemoryPoolsSupported, 115, integrated)
enum cudaDeviceAttr {
#define FLASH_EACH(name, number, member) name = number,
  FLASH_ATTRIBUTES(FLASH_EACH)
#undef FLASH_EACH
};
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited, cudaComputeModeExclusiveProcess };
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitPersistingL2CacheSize = 6 };
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly,
  cudaMemAdviseSetPreferredLocation,
  cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy,
  cudaMemAdviseUnsetAccessedBy
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2, cudaHostRegisterReadOnly = 8 };
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaMemAttachSingle = 4, cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1 };
enum { cudaDeviceScheduleYield = 2, cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8, cudaOccupancyDefault = 0, cudaCpuDeviceId = -1 };
enum { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0, cudaInvalidDeviceId = -2 };
typedef unsigned long long cudaTextureObject_t __attribute__((unavailable("read the array by its pointer instead")));
typedef unsigned long long cudaSurfaceObject_t __attribute__((unavailable("write the array by its pointer instead")));
#define cudaStreamLegacy (static_cast<cudaStream_t>(nullptr))
#define cudaStreamPerThread (static_cast<cudaStream_t>(nullptr))

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerMultiprocessor, sharedMemPerBlockOptin, reservedSharedMemPerBlock, totalConstMem, memPitch,
      textureAlignment;
  int major, minor, warpSize, multiProcessorCount, maxThreadsPerBlock, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, memoryBusWidth;
  int regsPerBlock, regsPerMultiprocessor, clockRate, memoryClockRate, l2CacheSize, persistingL2CacheMaxSize, cooperativeLaunch, concurrentKernels;
  int unifiedAddressing, canMapHostMemory, integrated, managedMemory, concurrentManagedAccess, pageableMemoryAccess, asyncEngineCount, computeMode;
  int pageableMemoryAccessUsesHostPageTables, accessPolicyMaxWindowSize;
  int deviceOverlap, ECCEnabled, kernelExecTimeoutEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, isMultiGpuBoard, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported, hostNativeAtomicSupported, computePreemptionSupported;
  int maxThreadsDim[3], maxGridSize[3];
};
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
struct cudaPointerAttributes {
  enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged } type;
  int device;
  void *devicePointer, *hostPointer;
};
constexpr auto cudaMemoryTypeUnregistered = cudaPointerAttributes::cudaMemoryTypeUnregistered;
constexpr auto cudaMemoryTypeHost = cudaPointerAttributes::cudaMemoryTypeHost;
constexpr auto cudaMemoryTypeDevice = cudaPointerAttributes::cudaMemoryTypeDevice;
constexpr auto cudaMemoryTypeManaged = cudaPointerAttributes::cudaMemoryTypeManaged;
// ---- errors --------------------------------------------------------------------------------------------------------------------------------

cudaError_t cudaGetLastError();   ///< and forgets it
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);

// ---- memory --------------------------------------------------------------------------------------------------------------------------------

namespace flash::plain {
cudaError_t allocate(void**, std::size_t bytes, const char* call, bool managed, Site);
cudaError_t release(void*, const char* call, Site);
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, const char* call, Site);
cudaError_t fill(void* to, int value, std::size_t bytes, const char* call, Site);
cudaError_t last_error();  ///< what kernels have left behind, once
}  // namespace flash::plain

#define FLASH_SITE ::flash::Site site = ::flash::Site::here()
#define FLASH_ALLOCATE(name, managed, ...)                                                                    \
  template <class T>                                                                                          \
  cudaError_t name(T** p, std::size_t bytes, ##__VA_ARGS__, FLASH_SITE) {                                     \
    return ::flash::plain::allocate(reinterpret_cast<void**>(p), bytes, #name, managed, site);                \
  }
FLASH_ALLOCATE(cudaMalloc, false)
FLASH_ALLOCATE(cudaMallocAsync, false, cudaStream_t = nullptr)
FLASH_ALLOCATE(cudaMallocManaged, true, unsigned = 1)
FLASH_ALLOCATE(cudaMallocHost, true, unsigned = 0)
FLASH_ALLOCATE(cudaHostAlloc, true, unsigned = 0)
template <class T>
cudaError_t cudaMallocPitch(T** p, std::size_t* pitch, std::size_t width, std::size_t height, FLASH_SITE) {
  *pitch = (width + 511) / 512 * 512;
  return ::flash::plain::allocate(reinterpret_cast<void**>(p), *pitch * height, "cudaMallocPitch", false, site);
}
inline cudaError_t cudaFree(void* p, FLASH_SITE) { return ::flash::plain::release(p, "cudaFree", site); }
inline cudaError_t cudaFreeHost(void* p, FLASH_SITE) { return ::flash::plain::release(p, "cudaFreeHost", site); }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t, FLASH_SITE) { return ::flash::plain::release(p, "cudaFreeAsync", site); }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind = cudaMemcpyDefault, FLASH_SITE) {
  return ::flash::plain::copy(to, from, bytes, kind, "cudaMemcpy", site);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind = cudaMemcpyDefault, cudaStream_t = nullptr,
                                   FLASH_SITE) {
  return ::flash::plain::copy(to, from, bytes, kind, "cudaMemcpyAsync", site);
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes, FLASH_SITE) {
  return ::flash::plain::copy(to, from, bytes, cudaMemcpyDeviceToDevice, "cudaMemcpyPeer", site);
}
inline cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height,
                                cudaMemcpyKind kind, FLASH_SITE) {
  cudaError_t error = cudaSuccess;
  for (std::size_t row = 0; row < height && error == cudaSuccess; ++row)
    error = ::flash::plain::copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind, "cudaMemcpy2D", site);
  return error;
}
inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height,
                                     cudaMemcpyKind kind, cudaStream_t = nullptr, FLASH_SITE) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind, site);
}
inline cudaError_t cudaMemset(void* to, int value, std::size_t bytes, FLASH_SITE) {
  return ::flash::plain::fill(to, value, bytes, "cudaMemset", site);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t = nullptr, FLASH_SITE) {
  return ::flash::plain::fill(to, value, bytes, "cudaMemsetAsync", site);
}
inline cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, FLASH_SITE) {
  cudaError_t error = cudaSuccess;
  for (std::size_t row = 0; row < height && error == cudaSuccess; ++row)
    error = ::flash::plain::fill(static_cast<char*>(to) + row * pitch, value, width, "cudaMemset2D", site);
  return error;
}
template <class T>
void* flash_symbol(const T& symbol) {
  if constexpr (std::is_pointer_v<T> && (std::is_void_v<std::remove_pointer_t<T>>)) return const_cast<void*>(static_cast<const void*>(symbol));
  return const_cast<void*>(static_cast<const volatile void*>(&symbol));
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice, FLASH_SITE) {
  return ::flash::plain::copy(static_cast<char*>(flash_symbol(symbol)) + offset, from, bytes, kind, "cudaMemcpyToSymbol", site);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                 FLASH_SITE) {
  return ::flash::plain::copy(to, static_cast<const char*>(flash_symbol(symbol)) + offset, bytes, kind, "cudaMemcpyFromSymbol", site);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, std::size_t bytes, std::size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr,
                                    FLASH_SITE) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind, site);
}
template <class P, class T>
cudaError_t cudaGetSymbolAddress(P** p, const T& symbol) {
  *p = static_cast<P*>(flash_symbol(symbol));
  return cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T&) {
  *bytes = sizeof(T);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
  *device = static_cast<T*>(host);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, std::size_t bytes, unsigned flags, FLASH_SITE);
cudaError_t cudaHostUnregister(void*, FLASH_SITE);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
template <class... A>
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, A...) {
  return cudaSuccess;
}
template <class... A>
cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, A...) {
  return cudaSuccess;
}

// ---- the device ------------------------------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return ::flash::plain::last_error(); }
inline cudaError_t cudaThreadSynchronize() { return ::flash::plain::last_error(); }
inline cudaError_t cudaDeviceReset() { return ::flash::plain::last_error(); }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit) { return *value = 1024, cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorInvalidDevice; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

// ---- streams and events ----------------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t*);
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t);
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return ::flash::plain::last_error(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return ::flash::plain::last_error(); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, void (*call)(cudaStream_t, cudaError_t, void*), void* data, unsigned) {
  call(stream, cudaSuccess, data);
  return cudaSuccess;
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*call)(void*), void* data) { return call(data), cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t*);
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return ::flash::plain::last_error(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t);
/// Of this computer, and of no use as a GPU's.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop);

// ---- kernels ---------------------------------------------------------------------------------------------------------------------------------

/// Kernels, whichever they are: a program may set the attribute through a pointer.
cudaError_t flash_allow_shared(int bytes);
template <class F>
cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute attribute, int value) {
  return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? flash_allow_shared(value) : cudaSuccess;
}
template <class F>
cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) {
  return cudaSuccess;
}
template <class F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  return cudaSuccess;
}
/// As if registers were no limit.
int flash_blocks_per_sm(int threads, std::size_t shared_bytes);
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, std::size_t shared_bytes) {
  return *blocks = flash_blocks_per_sm(threads, shared_bytes), cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, F, int threads, std::size_t shared_bytes, unsigned) {
  return *blocks = flash_blocks_per_sm(threads, shared_bytes), cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, std::size_t shared_bytes = 0, int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = flash_blocks_per_sm(*block, shared_bytes);
  return cudaSuccess;
}

template <class... P>
cudaError_t flash_launch_array(const ::flash::plain::Function<P...>& kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                               bool cooperative, ::flash::Site site) {
  const auto call = [&]<std::size_t... i>(std::index_sequence<i...>) {
    ::flash::plain::run_with(kernel.name, {grid, block, shared_bytes, site}, kernel.function, cooperative, *static_cast<P*>(arguments[i])...);
  };
  call(std::index_sequence_for<P...>{});
  return cudaPeekAtLastError();
}
template <class... P>
cudaError_t cudaLaunchKernel(const ::flash::plain::Function<P...>& kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0,
                             cudaStream_t = nullptr, FLASH_SITE) {
  return flash_launch_array(kernel, grid, block, arguments, shared_bytes, false, site);
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(const ::flash::plain::Function<P...>& kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes = 0, cudaStream_t = nullptr, FLASH_SITE) {
  return flash_launch_array(kernel, grid, block, arguments, shared_bytes, true, site);
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8
};
union cudaLaunchAttributeValue {
  int cooperative, programmaticStreamSerializationAllowed, priority;
  struct {
    unsigned x, y, z;
  } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... P, class... A>
cudaError_t flash_launch_ex(const cudaLaunchConfig_t* config, ::flash::Site site, const ::flash::plain::Function<P...>& kernel, A&&... arguments) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    cooperative |= attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
    const auto& cluster = attribute.val.clusterDim;
    if (attribute.id == cudaLaunchAttributeClusterDimension && cluster.x * cluster.y * cluster.z > 1)
      ::flash::plain::unsupported("a launch in clusters of several blocks", site);
  }
  ::flash::plain::run_with(kernel.name, {config->gridDim, config->blockDim, config->dynamicSmemBytes, site}, kernel.function, cooperative,
                           static_cast<P>(arguments)...);
  return cudaPeekAtLastError();
}
// rewrite.py puts the line in, since nothing can follow a pack.
#define cudaLaunchKernelEx(config, ...) flash_launch_ex(config, ::flash::Site::here(), __VA_ARGS__)
