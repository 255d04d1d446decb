// The size of main memory, so that a problem that cannot fit is refused before anything is allocated.
#pragma once

#include <string>

namespace flash {

/// Bytes of main memory that can be taken without swapping; within a container, what its limit leaves.
/// The largest double's worth (infinity) where the system does not tell.
double available_host_memory();

/// "1.5 GiB", "512 B".
std::string bytes_text(double bytes);

/// DeviceError if `bytes` exceed what is available: "reading q.npy needs 3 TiB of main memory, 20 GiB are available".
void require_host_memory(double bytes, const std::string& purpose);

}  // namespace flash
