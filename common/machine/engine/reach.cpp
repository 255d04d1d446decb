#include "common/machine/engine/reach.hpp"

#include "common/machine/cpu/view.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/module.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/source_line.hpp"
#include "common/machine/engine/worker.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flash::machine {
namespace {

bool within(const MemoryRange& range, std::uintptr_t address, std::size_t bytes = 1) {
  return address >= range.begin && address + bytes <= range.end;
}

constexpr std::uintptr_t near_by = 1u << 20;

}  // namespace

std::string place_near(std::uintptr_t at, std::size_t size) {
  const std::optional<Allocation> memory = origin_near(at, near_by);
  if (!memory) return "";
  const auto bytes = [](std::uintptr_t count) { return std::to_string(count) + " bytes"; };
  std::string text = at == memory->begin ? "the first of" : bytes(at - memory->begin) + " into";
  if (at < memory->begin) text = bytes(memory->begin - at) + " before";
  if (at >= memory->end) text = (at == memory->end ? "right" : bytes(at - memory->end)) + " past the end of";
  if (at < memory->end && at + size > memory->end) text = "across the end of";
  text += " the " + bytes(memory->end - memory->begin) + " of " + name_of(*memory->origin);
  const auto offset = static_cast<std::intptr_t>(at - memory->begin),
             all = static_cast<std::intptr_t>(memory->end - memory->begin);
  const auto element = static_cast<std::intptr_t>(size);
  if (!memory->freed && offset % element == 0 && all % element == 0)
    text += " (element " + std::to_string(offset / element) + ", and the last is " + std::to_string(all / element - 1) + ")";
  return text + (memory->freed ? ", freed at " + machine::words(*memory->freed) : "");
}

std::string far_from_parameters(std::uintptr_t at, const KernelCall& kernel) {
  std::uintptr_t least = at < near_by ? 0 : ~std::uintptr_t{0}, word;  // a null pointer is in no array
  std::string text;
  for (std::size_t i = 0; i + sizeof word <= kernel.call_bytes; i += sizeof word) {
    std::memcpy(&word, static_cast<const std::byte*>(kernel.call) + i, sizeof word);
    const std::uintptr_t distance = at > word ? at - word : word - at;
    if (distance < near_by) return "";
    const std::optional<Allocation> memory = origin_near(word, 0);
    if (memory && distance < least) text = ", or an index far outside of " + name_of(*memory->origin) + ",";
    if (memory) least = std::min(least, distance);
  }
  return text;
}

void announce(const void* address, std::size_t bytes, AccessKind kind, simt::Site site) {
  instruments.announced = {{reinterpret_cast<std::uintptr_t>(address), bytes}, bytes, kind, site};
}

void Reach::start(const KernelCall& kernel, const StackPool& stacks, bool host_pointers) {
  const auto call = reinterpret_cast<std::uintptr_t>(kernel.call);
  call_ = {call, call + kernel.call_bytes};
  stacks_ = stacks.range();
  raw_.clear();
  host_ = false;
  for (const Allocation& allocation : device_memory()) {
    const auto points_there = [&](const volatile void* p) { return within(allocation, reinterpret_cast<std::uintptr_t>(p)); };
    Raw raw{allocation, {}, allocation.id, std::ranges::any_of(kernel.pointers, points_there)};
    if (allocation.origin == nullptr) raw.tensors = tensors_in(allocation);
    for (const std::string& name : raw.tensors) raw.id = simt::traffic_id(name.c_str());
    raw_.push_back(std::move(raw));
  }
  for (const volatile void* const pointer : kernel.pointers) {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    host_ = host_ || (host_pointers && at != 0 && allocation_at(at).end == 0);
  }
}

std::optional<int> Reach::counts_as(std::uintptr_t address, std::size_t bytes, AccessKind kind) {
  const auto after = std::ranges::upper_bound(raw_, address, {}, &Raw::begin);
  if (after == raw_.begin() || !within(*std::prev(after), address, bytes)) return std::nullopt;
  Raw& found = *std::prev(after);
  if (!reads(kind) && instruments.watch == nullptr) found.written = true;
  return found.tensors.size() <= 1 ? found.id : simt::traffic_id(tensor_at(address).c_str());  // packed together
}

void Reach::end() {
  for (const Raw& raw : raw_) {
    if (raw.written && origin_near(raw.begin, 0)) set_poisoned(reinterpret_cast<const void*>(raw.begin), false);
  }
}

std::string Reach::past_the_end(std::uintptr_t address) const {
  const Raw* last = nullptr;
  for (const Raw& raw : raw_) {
    if (raw.pointed && raw.end <= address && address - raw.end < near_by && (last == nullptr || raw.end > last->end))
      last = &raw;
  }
  if (last == nullptr) return "";
  std::string names;
  for (const std::string& name : last->tensors) names += (names.empty() ? "" : ", ") + name;
  const std::uintptr_t past = address - last->end;
  return (past == 0 ? "right past" : std::to_string(past) + " bytes past") + " the end of " +
         (names.empty() ? "an allocation" : names) + " (" + std::to_string(last->end - last->begin) + " bytes)";
}

bool Reach::allows(std::uintptr_t address, std::size_t bytes, AccessKind kind) const {
  const auto holds = [&](const MemoryRange& range) { return within(range, address, bytes); };
  if (reads(kind) && (holds(call_) || std::ranges::any_of(constant_memory(), holds))) return true;
  return host_ && !within(stacks_, address) && !within(thread_locals().all, address) && allocation_at(address).end == 0;
}

/// What a view would count (cpu/view.cpp).
void Worker::count_plain_pointer(int id, const void* address, std::size_t bytes, AccessKind kind, const CodePlace& place) {
  Traffic& traffic = block.traffic(id);
  if (kind != AccessKind::write) traffic.read += bytes;
  if (!reads(kind)) traffic.written += bytes;
  if (!block.options.count) return;
  constexpr std::size_t most = 16;  // of one access of a lane
  const auto* const line = place.file != nullptr ? place.file : reinterpret_cast<const char*>(place.address);
  for (const bool write : {false, true}) {
    if (write ? reads(kind) : kind == AccessKind::write) continue;
    for (std::size_t from = 0; from < bytes; from += most) {
      const int width = static_cast<int>(std::min(most, bytes - from));
      const AccessLog::Key key{line, place.line, width, static_cast<std::uintptr_t>(id), write};
      if (!block.global_log.add(current().warp(), current().lane(), key, reinterpret_cast<std::uintptr_t>(address) + from))
        log_is_full({place.file != nullptr ? place.file : "", place.line});
    }
  }
}

// It may also be no memory at all: then the access faults, and is reported for that.
void Worker::hold_against_reach(const void* address, std::size_t bytes, AccessKind kind, const CodePlace& place) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (const std::optional<int> id = reach_.counts_as(at, bytes, kind))
    return count_plain_pointer(*id, address, bytes, kind, place);
  if (reach_.allows(at, bytes, kind)) return;
  const std::string does = reads(kind) ? "reads " : kind == AccessKind::write ? "writes " : "accesses ";
  RuleId rule = RuleId::foreign_memory;
  std::string what;
  if (block.shared.in_margin(address)) {
    rule = RuleId::out_of_bounds;
    what = "an access to " + block.shared.words(address, bytes);
  } else if (in_static_margin(at)) {
    rule = RuleId::out_of_bounds;
    what = does + static_shared_words(at, bytes);
  } else if (const int owner = scheduler.stacks().owner(address); owner >= 0) {
    if (owner == current().number) return;
    if (static_cast<std::size_t>(owner) >= scheduler.threads().size()) return;
    what = does + "a local variable of thread " + machine::words(scheduler.threads()[static_cast<std::size_t>(owner)]->index) +
           ", which no other thread can reach on a GPU";
  } else if (const std::optional<Allocation> near = origin_near(at, near_by);
             near && (variable_at(at).empty() || origin_near(at, 1024))) {
    rule = near->freed && within(*near, at) ? RuleId::use_after_free : RuleId::out_of_bounds;
    what = does + place_near(at, bytes) + ",";
  } else if (!is_mapped(at)) {
    return;
  } else if (const std::string past = reach_.past_the_end(at); !past.empty()) {
    rule = RuleId::out_of_bounds;
    what = does + past;
  } else if (allocation_at(at).end != 0) {
    rule = RuleId::out_of_bounds;
    what = does + "across the end of an allocation";
  } else if (within(thread_locals().all, at) ||
             within({reinterpret_cast<std::uintptr_t>(this), reinterpret_cast<std::uintptr_t>(this + 1)}, at)) {
    what = does + "the simulator's own memory";
  } else {
    const std::string name = variable_at(at);
    what = does + (name.empty() ? "memory of the host" : "the host's variable " + name) +
           ", which no kernel can reach on a GPU" + far_from_parameters(at, *block.kernel);
  }
  scheduler.abandon(rule, what + " at " +
                              words(place.file != nullptr && !is_machine(place.file)
                                        ? source_line(place)
                                        : source_line_of_call(reinterpret_cast<const void*>(place.address))));
}

}  // namespace flash::machine
