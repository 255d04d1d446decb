"""The machine that the docs compute with: figures of NVIDIA's H100 data sheet and white papers, and what follows from them."""

NAME = "NVIDIA H100 (SXM)"
HBM_BYTES_PER_SECOND = 3.35e12  # data sheet
FP32_FLOPS = 67e12  # data sheet, without tensor cores
BF16_FLOPS = 1979e12 / 2  # data sheet says 1979 with sparsity; dense is half
HBM_GB = 80  # data sheet
SMS = 132  # H100 architecture white paper
L2_MB = 50  # cudaDeviceProp::l2CacheSize
REGISTER_KB_PER_SM = 256  # CUDA C++ Programming Guide, compute capability 9.0: 64 K registers of 4 bytes
SHARED_KB_PER_SM = 228  # the same
FP32_UNITS_PER_SM = 128  # the same
SHARED_BYTES_PER_CLOCK = 32 * 4  # 32 banks of 4 bytes

CLOCK_HZ = FP32_FLOPS / (SMS * FP32_UNITS_PER_SM * 2)  # (0.2): two FLOPs a multiply-add
REGISTER_BYTES_PER_SECOND = SMS * FP32_UNITS_PER_SM * 12 * CLOCK_HZ  # (0.3): three operands
SHARED_BYTES_PER_SECOND = SMS * SHARED_BYTES_PER_CLOCK * CLOCK_HZ  # (0.4)
