// Runs stage programs and collects rows.
#pragma once

#include "common/compare/options.hpp"
#include "common/compare/row.hpp"

#include <ostream>
#include <vector>

namespace flash {

/// The device that all rows run on: for auto, a GPU if the first stage program finds one. DeviceError with the reason if --device
/// gpu finds none.
Backend choose_backend(const CompareOptions&, const Stage& first);

/// Runs every variant that has the pass and takes the dtype, one after the other, and writes a line for each to `progress`. Where a
/// stage has steps of the forward pass alone, those of the backward pass are left out of the forward pass, which is not theirs.
/// On a GPU each is timed; its HBM bytes are counted by the simulator on a part of the problem (see count_traffic()).
std::vector<Row> run_pass(const CompareOptions&, const std::vector<Stage>&, const RequestedSizes&, Pass, Backend,
                          std::ostream& progress);

/// Adds hbm_read_bytes and hbm_written_bytes to the report: on the CPU what the run itself counted. On a GPU what the simulator
/// counts for one batch and one key/value head with its group of query heads, times B*Hkv, since every group makes the same
/// accesses on other data; nothing if that part is too large to simulate in seconds.
void count_traffic(Row&, const Stage&, const CompareOptions&, const RequestedSizes&, Backend);

}  // namespace flash
