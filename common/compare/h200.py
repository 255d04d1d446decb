"""The machine that the docs compute with: figures of NVIDIA's H200 data sheet and Hopper white paper, and what follows from them."""

HBM_BYTES_PER_SECOND = 4.8e12  # data sheet
FP32_FLOPS = 67e12  # data sheet, without tensor cores
BF16_FLOPS = 1979e12 / 2  # data sheet says 1979 with sparsity; dense is half
HBM_GB = 141  # data sheet
SMS = 132  # Hopper architecture white paper: the chip of the H100
L2_MB = 60  # torch.cuda.get_device_properties(): L2_cache_size=60MB
REGISTER_KB_PER_SM = 256  # CUDA C++ Programming Guide, compute capability 9.0: 64 K registers of 4 bytes
SHARED_KB_PER_SM = 228  # the same
FP32_UNITS_PER_SM = 128  # the same
SHARED_BYTES_PER_CLOCK = 32 * 4  # 32 banks of 4 bytes

CLOCK_HZ = FP32_FLOPS / (SMS * FP32_UNITS_PER_SM * 2)  # (0.2): two FLOPs a multiply-add
REGISTER_BYTES_PER_SECOND = SMS * FP32_UNITS_PER_SM * 12 * CLOCK_HZ  # (0.3): three operands
SHARED_BYTES_PER_SECOND = SMS * SHARED_BYTES_PER_CLOCK * CLOCK_HZ  # (0.4)
