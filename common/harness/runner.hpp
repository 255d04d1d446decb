// One variant on one problem on one device: buffers laid out and poisoned, launches run, results brought back.
#pragma once

#include "common/attention/registry.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/device.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flash {

/// The last run that began. A test program names it when a test case fails.
struct LastRun {
  std::string variant;
  FullProblem problem;
  Pass pass = Pass::forward;
  std::optional<Tiles> tiles;                             ///< of the pass; absent: the default
  int sm = 0;                                             ///< of the device's limits
  std::string order = simt::order_text(simt::options());  ///< of the simulator's threads
};
inline std::optional<LastRun> last_run;

/// The workspaces of a pass, in buffers of their own: those that start as zeros in `zeroed`, the others in `others`.
std::vector<TensorRef> make_workspaces(Device&, const Variant&, const FullProblem&, Pass, std::vector<Buffer>& others,
                                       std::vector<Buffer>& zeroed);

/// DeviceError if inputs, outputs and workspaces cannot fit in the device's memory or in main memory. With --load the inputs are
/// in main memory already.
void check_memory(const DeviceInfo&, const Variant&, const FullProblem&, Pass, bool loaded);

class Runner {
 public:
  /// Allocates and uploads everything. Throws DeviceError if it does not fit (the message gives the bytes wanted and free).
  /// `tiles`: for the pass; by default the variant's default. Throws as plan_pass() does.
  Runner(Device&, const Variant&, const FullProblem&, const Inputs&, Pass, std::optional<Tiles> tiles = {});

  /// Poisons outputs and workspaces, runs the pass (backward: forward first) to its end.
  void run();

  /// The tensors, as kernels get them. Workspaces include those that start as zeros.
  const Attention& attention() const { return launches_.at(pass_); }

  /// The outputs of the last run.
  Results<float> results() const;

  /// Times the pass alone (backward without its forward, which has run before). GPU only.
  Timing time(int iterations);

  /// run(), and the simulator's counts of the pass alone; those of the forward pass before a backward one go to `before`. CPU only.
  Counters count(Counters* before = nullptr);

  std::size_t workspace_bytes() const;  ///< extra memory beyond inputs and outputs

 private:
  void upload_all(const Inputs&);
  TensorRef upload_pairs(const char* name, const std::vector<int>& pairs);
  void begin();  ///< poisons outputs and workspaces, and sets last_run
  void launch(Pass pass) { launch_pass(variant_, launches_.at(pass), pass); }

  Device& device_;
  const Variant& variant_;
  Pass pass_;
  std::optional<Tiles> tiles_;
  std::map<Pass, Attention> launches_;  ///< also of the forward pass before a backward one
  std::vector<Buffer> inputs_, outputs_, workspaces_;
  std::vector<Buffer> kept_;  ///< which kernels leave as they found them: workspaces of zeros, and the host's pairs of ints
};

}  // namespace flash
