#include "common/machine/engine/copies.hpp"

#include "common/machine/cpu/atomic.hpp"
#include "common/machine/cpu/shared_view.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/isa/fragments.hpp"

#include <algorithm>
#include <cstring>

namespace flash::machine {
namespace {

constexpr std::size_t row_bytes = 128, chunk_bytes = 16;

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

void Copies::start_block(std::size_t threads) {
  issuers_.assign(threads, {});
  in_flight_ = 0;
}

/// Chunk by chunk, as the swizzle places them; a chunk across the last column in two pieces.
std::vector<Copies::Piece> Copies::pieces_of(const TensorMap& map, const BoxAt& at) {
  std::vector<Piece> pieces;
  const auto outside = [&](int index, std::size_t axis) { return index < 0 || index >= map.extents[axis]; };
  for (int r = 0; r < map.box_rows; ++r) {
    const bool no_row = outside(at.row + r, 1) || outside(at.head, 2) || outside(at.batch, 3);
    for (int chunk = 0; chunk < 8; ++chunk) {
      const int col = at.col + 8 * chunk;
      const std::size_t offset = static_cast<std::size_t>(r) * row_bytes +
                                 static_cast<std::size_t>(swizzled_chunk(tensor_map_cols, r, chunk)) * chunk_bytes;
      const int inside = no_row || col < 0 ? 0 : static_cast<int>(std::clamp<std::int64_t>(map.extents[0] - col, 0, 8));
      std::byte* const row = map.data + at.batch * map.strides[2] + at.head * map.strides[1] + (at.row + r) * map.strides[0];
      const auto part = [&](int first, int count, bool exists) {
        if (count == 0) return;
        pieces.push_back({exists ? row + 2 * (col + first) : nullptr, offset + 2 * static_cast<std::size_t>(first),
                          2 * static_cast<std::size_t>(count)});
      };
      part(0, inside, true);
      part(inside, 8 - inside, false);
    }
  }
  return pieces;
}

void Copies::check(const char* what, const void* shared, int bytes, const BoxAt* box, const void* global, Site site) const {
  if (bytes < 16 || bytes % 16 != 0)
    simt::fail(RuleId::bad_argument, site,
               std::string(what) + " of " + std::to_string(bytes) + " bytes: allowed are multiples of 16");
  if (box != nullptr && box->col % 8 != 0) {  // the PTX ISA does not say so, an H200 stops with an illegal instruction
    simt::fail(RuleId::bad_argument, site,
               std::string(what) + " of a box from column " + std::to_string(box->col) +
                   " on: allowed are multiples of 8, which are 16 bytes");
  }
  const std::size_t alignment = box != nullptr ? 1024 : 16;
  if (number(shared) % alignment != 0)
    simt::fail_misaligned((std::string(what) + "'s shared memory").c_str(), shared, alignment, site);
  if (box == nullptr && number(global) % 16 != 0)
    simt::fail_misaligned((std::string(what) + "'s global memory").c_str(), global, 16, site);
  if (!proxy_.contains(shared) || !proxy_.contains(static_cast<const std::byte*>(shared) + bytes - 1)) {
    simt::fail(RuleId::out_of_bounds, site,
               std::string(what) + " of " + std::to_string(bytes) +
                   " bytes that do not lie within the launch's dynamic shared memory");
  }
}

void Copies::count(const std::vector<Piece>& pieces, int id, bool read, bool written, Site site) {
  Traffic& traffic = block_.traffic(id);
  const auto end_of = [](const Piece& piece) { return piece.global + piece.bytes; };
  for (std::size_t i = 0; i < pieces.size();) {
    std::byte* const begin = pieces[i].global;
    std::size_t next = i + 1;
    while (begin != nullptr && next < pieces.size() && pieces[next].global == end_of(pieces[next - 1])) ++next;
    if (begin != nullptr) {
      const auto bytes = static_cast<std::size_t>(end_of(pieces[next - 1]) - begin);
      if (read) traffic.read += bytes;
      if (written) traffic.written += bytes;
      if (read && written) {
        watch_atomic(site, begin, bytes);
        block_.counters.atomics += bytes / sizeof(float);
      } else {
        watch_view(site, begin, bytes, written);
      }
    }
    i = next;
  }
  if (!block_.options.count) return;
  std::vector<std::uintptr_t> sectors;
  for (const Piece& piece : pieces) {
    if (piece.global == nullptr) continue;
    for (std::uintptr_t s = number(piece.global) / 32; s <= (number(piece.global) + piece.bytes - 1) / 32; ++s)
      sectors.push_back(s);
  }
  std::ranges::sort(sectors);
  const auto different = static_cast<std::uint64_t>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
  if (read) traffic.read_sectors += different;
  if (written) traffic.written_sectors += different;
}

void Copies::load(void* to, int bytes, const TensorMap* map, const BoxAt& at, const BulkMemory* from, const void* barrier,
                  Site site) {
  check(map != nullptr ? "tma_load" : "bulk_load", to, bytes, map != nullptr ? &at : nullptr,
        map != nullptr ? nullptr : from->data, site);
  if (from != nullptr && !from->view) require_reach(site, from->data, static_cast<std::size_t>(bytes), AccessKind::read);
  Load load{static_cast<std::byte*>(to),           bytes, {}, barrier,
            mbarriers_.expect_copy(barrier, site), site,  0,  map != nullptr ? map->name : nullptr};
  load.pieces = map != nullptr ? pieces_of(*map, at)
                               : std::vector<Piece>{{static_cast<std::byte*>(from->data), 0, static_cast<std::size_t>(bytes)}};
  count(load.pieces, map != nullptr ? map->id : from->id, true, false, site);
  load.flight = proxy_.begin_load(scheduler_.current().number, site, proxy_.units_of(to, static_cast<std::size_t>(bytes)));
  watch_view(site, to, static_cast<std::size_t>(bytes), true);
  std::memset(to, 0xFF, static_cast<std::size_t>(bytes));
  simt::forget_writes(to, static_cast<std::size_t>(bytes));
  ++in_flight_;
  last_load_ = site;
  trace("load", load);
  scheduler_.later(
      scheduler_.current(), [this, load = std::move(load)] { land(load); },
      [this, barrier] { return mbarriers_.awaited(barrier); });
}

/// Places in shared memory are bytes from its start.
void Copies::trace(const char* event, const Load& load) const {
  if (!observers_.traced()) return;
  const auto to = load.to - block_.shared.data();
  observers_.trace(event,
                   {{"barrier", mbarriers_.number(load.barrier)}, {"phase", load.phase}, {"to", to}, {"bytes", load.bytes}},
                   load.site, load.tensor);
}
void Copies::trace(const char* event, const Store& store) const {
  if (!observers_.traced()) return;
  const auto from = store.from - block_.shared.data();
  const auto bytes = static_cast<std::int64_t>(store.data.size());
  observers_.trace(event, {{"group", store.group}, {"from", from}, {"bytes", bytes}}, store.site, store.tensor);
}

void Copies::land(const Load& load) {
  for (const Piece& piece : load.pieces) {
    if (piece.global != nullptr) {
      std::memcpy(load.to + piece.offset, piece.global, piece.bytes);
    } else {
      std::memset(load.to + piece.offset, 0, piece.bytes);
    }
  }
  --in_flight_;
  trace("landed", load);
  if (instruments.watch != nullptr) instruments.watch->assume_written(number(load.to), static_cast<std::size_t>(load.bytes));
  proxy_.end_load(load.flight, load.barrier, load.phase);
  mbarriers_.complete(load.barrier, load.phase, load.bytes, load.site);
}

void Copies::store(const void* from, int bytes, const TensorMap* map, const BoxAt& at, const BulkMemory* to, bool add,
                   Site site) {
  const char* const name = map != nullptr ? "tma_store" : add ? "bulk_reduce_add" : "bulk_store";
  check(name, from, bytes, map != nullptr ? &at : nullptr, map != nullptr ? nullptr : to->data, site);
  if (map != nullptr && std::min({at.col, at.row, at.head, at.batch}) < 0)  // an H200 stops with an illegal instruction
    simt::fail(RuleId::bad_argument, site, "tma_store of a box that begins before the tensor: only tma_load may do that");
  if (to != nullptr && !to->view) require_reach(site, to->data, static_cast<std::size_t>(bytes), AccessKind::write);
  Issuer& issuer = issuers_[static_cast<std::size_t>(scheduler_.current().number)];
  Store store{static_cast<const std::byte*>(from), {}, {}, add, false, site, issuer.groups, 0,
              map != nullptr ? map->name : nullptr};
  store.data.resize(static_cast<std::size_t>(bytes));
  store.pieces = map != nullptr ? pieces_of(*map, at)
                                : std::vector<Piece>{{static_cast<std::byte*>(to->data), 0, static_cast<std::size_t>(bytes)}};
  store.flight =
      proxy_.begin_reading(scheduler_.current().number, name, site, proxy_.units_of(from, static_cast<std::size_t>(bytes)));
  watch_view(site, from, static_cast<std::size_t>(bytes), false);
  count(store.pieces, map != nullptr ? map->id : to->id, add, true, site);
  for (const Piece& piece : store.pieces) {
    if (piece.global != nullptr && !add) simt::forget_writes(piece.global, piece.bytes);
  }
  trace(name, store);
  issuer.stores.push_back(std::move(store));
}

void Copies::commit() { ++issuers_[static_cast<std::size_t>(scheduler_.current().number)].groups; }

void Copies::wait(int newest, bool complete, Site site) {
  Thread& self = scheduler_.current();
  scheduler_.later(self, [this, &self, newest, complete] {
    wait_now(self, newest, complete);
    scheduler_.wake({&self});
  });
  scheduler_.park("bulk_wait", site);
}

void Copies::wait_now(const Thread& thread, int newest, bool complete) {
  Issuer& issuer = issuers_[static_cast<std::size_t>(thread.number)];
  const int closed = issuer.groups - newest;
  // Nothing orders those that wait together: the last one comes first.
  for (auto store = issuer.stores.rbegin(); store != issuer.stores.rend(); ++store) {
    if (store->group >= closed) continue;
    if (!store->read) read(*store);
    if (complete) finish(*store);
  }
  if (complete) std::erase_if(issuer.stores, [closed](const Store& store) { return store.group < closed; });
}

void Copies::read(Store& store) {
  watch_view(store.site, store.from, store.data.size(), false);
  std::memcpy(store.data.data(), store.from, store.data.size());
  store.read = true;
  trace("store read", store);
  proxy_.end_reading(store.flight);
}

void Copies::finish(const Store& store) const {
  trace("stored", store);
  for (const Piece& piece : store.pieces) {
    if (piece.global == nullptr) continue;
    const std::byte* const data = store.data.data() + piece.offset;
    if (!store.add) {
      std::memcpy(piece.global, data, piece.bytes);
      // Not by `instruments`, which are reset when what is left at the end of the block happens.
      if (observers_.race_detector() != nullptr) observers_.race_detector()->assume_written(number(piece.global), piece.bytes);
      continue;
    }
    for (std::size_t i = 0; i < piece.bytes / sizeof(float); ++i) {  // other blocks add, too
      auto* const sum = reinterpret_cast<float*>(piece.global) + i;
      float summand, old, changed;
      std::memcpy(&summand, data + i * sizeof(float), sizeof(float));
      __atomic_load(sum, &old, __ATOMIC_RELAXED);
      do changed = old + summand;
      while (!__atomic_compare_exchange(sum, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    }
  }
}

void Copies::thread_exits(const Thread& thread) const {
  const Issuer& issuer = issuers_[static_cast<std::size_t>(thread.number)];
  for (const Store& store : issuer.stores) {
    if (store.group >= issuer.groups)
      simt::fail(RuleId::not_awaited, store.site, "the thread ends without bulk_commit() after its bulk store");
    if (!store.read) {
      simt::fail(RuleId::not_awaited, store.site,
                 "the thread ends without having waited for its bulk store: its shared memory may be gone before it "
                 "is read");
    }
  }
}

void Copies::end_block() {
  if (in_flight_ > 0) simt::fail(RuleId::not_awaited, last_load_, "the block ends before its load has landed");
  for (const Issuer& issuer : issuers_) {
    for (auto store = issuer.stores.rbegin(); store != issuer.stores.rend(); ++store) finish(*store);
  }
}

}  // namespace flash::machine
