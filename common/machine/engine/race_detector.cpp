#include "common/machine/engine/race_detector.hpp"

#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/source_line.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flash::machine {
namespace {

constexpr std::size_t word_bytes = 4;
constexpr std::size_t most_races = 32;  // pairs of places; several may be one pair of lines

bool contains(const MemoryRange& range, std::uintptr_t address) { return address >= range.begin && address < range.end; }

std::size_t words_in(const MemoryRange& range) { return (range.end - range.begin + word_bytes - 1) / word_bytes; }

/// Two of these to one word, by two threads in no order: is that a race?
bool conflict(AccessKind a, AccessKind b, bool one_block) {
  const bool of_block = a == AccessKind::block_atomic || b == AccessKind::block_atomic;
  return !(reads(a) && reads(b)) && !(is_atomic(a) && is_atomic(b) && (one_block || !of_block));
}

/// Does every access that conflicts with `before` conflict with `now` too? An atomic does not stand for a plain access: only one of them races
/// with other atomics.
bool stands_for(AccessKind now, AccessKind before) { return now == AccessKind::write || now == before; }

/// Has the host stored to this word of managed memory? One of the upper 4 bytes of 8 may be padding behind the lower ones.
bool filled(const Allocation& allocation, std::uintptr_t word) {
  if (allocation.origin == nullptr || allocation.origin->kind != simt::MemoryKind::managed) return false;
  const auto* const at = reinterpret_cast<const std::uint32_t*>(word * word_bytes);
  return at[0] != unwritten_managed || (word % 2 == 1 && at[-1] != unwritten_managed);
}

}  // namespace

RaceDetector::RaceDetector(const simt::KernelCall& kernel, const simt::Options& options, std::vector<Allocation> device)
    : kernel_(kernel.name),
      grid_(kernel.shape.grid),
      block_shape_(kernel.shape.block),
      threads_(std::size_t{block_shape_.x} * block_shape_.y * block_shape_.z),
      device_(std::move(device)),
      limit_(options.watch_limit),
      lenient_(options.lenient || !options.host_pointers),
      early_(kernel.shape.early) {}

void RaceDetector::switch_to(std::size_t worker) {
  if (worker == worker_) return;
  settle();
  WatchedBlock& self = *this;
  std::swap(self, paused_[worker_]);
  std::swap(self, paused_[worker]);
  worker_ = worker;
}

void RaceDetector::grid_barrier() {
  met_[block_] = barrier_;
  for (const auto& [worker, paused] : paused_) {
    if (worker != worker_) met_[paused.block_] = paused.barrier_;
  }
}

void RaceDetector::start_block(std::uint64_t block, MemoryRange dynamic_shared, MemoryRange static_shared) {
  block_ = static_cast<std::uint32_t>(block);
  dynamic_ = dynamic_shared;
  static_ = static_shared;
  if (dynamic_words_.size() < words_in(dynamic_)) dynamic_words_.resize(words_in(dynamic_));
  if (static_words_.size() < words_in(static_)) static_words_.resize(words_in(static_));
  own_.assign(threads_, 1);
  barrier_.assign(threads_, 0);
  busy_at_.assign(threads_, 0);
  of_warp_.assign(threads_, {});
  acquired_.clear();
  earlier_.clear();
  drawn_.clear();
  waits_.clear();
  tokens_.clear();
  arrays_.reset(static_cast<int>((threads_ + 31) / 32));
}

void RaceDetector::end_block() {
  settle();
  arrays_.flush([this](const auto& key, const auto& access) { count_conflicts(key, access); });
}

void RaceDetector::ignore(const std::vector<SharedVariable>& variables) {
  for (const SharedVariable& variable : variables) {
    for (std::size_t at = variable.offset; at < variable.offset + variable.bytes; at += word_bytes)
      static_words_[at / word_bytes].ignored = true;
  }
}

bool RaceDetector::in_device(std::uintptr_t address) const {
  if (device_.empty() || address < device_.front().begin || address >= device_.back().end) return false;
  const auto after = std::ranges::upper_bound(device_, address, {}, &Allocation::begin);
  return after != device_.begin() && contains(*std::prev(after), address);
}

RaceDetector::Word* RaceDetector::word_at(std::uintptr_t address, bool& shared) {
  shared = true;
  if (contains(dynamic_, address)) return &dynamic_words_[(address - dynamic_.begin) / word_bytes];
  if (contains(static_, address)) return &static_words_[(address - static_.begin) / word_bytes];
  shared = false;
  if (!in_device(address)) return nullptr;  // the thread's own, or the simulator's
  const std::uintptr_t word = address / word_bytes;
  if (word / page_words != recent_page_number_) {
    std::unique_ptr<Word[]>& page = device_pages_[word / page_words];
    if (page == nullptr) page = new_page(word / page_words);
    recent_page_number_ = word / page_words;
    recent_page_ = page.get();
  }
  return &recent_page_[word % page_words];
}

/// Whoever reads words outside of poisoned allocations may do so.
std::unique_ptr<RaceDetector::Word[]> RaceDetector::new_page(std::uintptr_t number) const {
  auto page = std::make_unique<Word[]>(page_words);
  for (std::size_t i = 0; i < page_words; ++i) {
    const std::uintptr_t word = number * page_words + i;
    const auto holds = [&](const Allocation& allocation) { return contains(allocation, word * word_bytes); };
    const auto allocation = std::ranges::find_if(device_, holds);
    const std::uint8_t written = global_writes().of_word(word);
    page[i].written = allocation != device_.end() && allocation->poisoned && !filled(*allocation, word) ? written : 0xF;
    page[i].valued = page[i].written != 0;
    page[i].awaited = !early_ || written == 0 || global_writes().pages[number].launch != global_writes().launches;
  }
  return page;
}

std::uint32_t RaceDetector::index_of(const CodePlace& place) {
  const std::size_t key = CodePlace::Hash()(place);
  std::uint32_t& recent = recent_places_[(key ^ key >> 10) % recent_places_.size()];
  if (recent < places_.size() && places_[recent] == place) return recent;
  const auto [found, is_new] = number_of_.try_emplace(place, static_cast<std::uint32_t>(places_.size()));
  recent = found->second;
  if (is_new) places_.push_back(place);
  return recent;
}

bool RaceDetector::access(int thread, std::uintptr_t address, std::size_t bytes, AccessKind kind, const CodePlace& place) {
  stores_ = kind >= AccessKind::store;
  if (kind >= AccessKind::atomic) [[unlikely]] {
    const bool of_block = instruments.in_block || kind == AccessKind::block_store;
    kind = of_block ? AccessKind::block_atomic : AccessKind::atomic;
  }
  // A compiler tells of the read behind a structure's copy after the write, and before either happens.
  if (store_.bytes > 0 && !reads(kind)) [[unlikely]]
    settle();
  if (accesses_ >= limit_) return false;
  const MemoryRange stored{address, place.file == nullptr && kind == AccessKind::write ? address + bytes : address};
  Access now{0, own_[static_cast<std::size_t>(thread)], block_, static_cast<std::uint16_t>(thread), 0, kind};
  bool known_place = false;
  for (std::uintptr_t at = address; at < address + bytes;) {
    const std::uintptr_t first = at % word_bytes, last = std::min(word_bytes, first + (address + bytes - at));
    bool shared;
    const std::uintptr_t here = at;
    Word* const word = word_at(at, shared);
    at += last - first;
    if (word == nullptr) continue;
    if (word->ignored) {
      left_array_ = in_static_margin(here);
      continue;
    }
    if (!known_place) {
      if (shared) log_array(thread, address, bytes, kind, place);
      if (shared || !reads(kind)) busy_at_[static_cast<std::size_t>(thread)] = now.clock;
      now.place = index_of(place);
      known_place = true;
      ++accesses_;
    }
    now.bytes = static_cast<std::uint8_t>((1u << last) - (1u << first));
    if (!reads(kind) && address <= followed_ && followed_ < address + bytes) last_write_ = now;
    access_word(*word, here, shared, now, stored);
  }
  return true;
}

[[gnu::always_inline]] inline void RaceDetector::log_array(int thread, std::uintptr_t address, std::size_t bytes,
                                                           AccessKind kind, const CodePlace& place) {
  const bool in_view = address >= announced_.begin && address + bytes <= announced_.end;
  if (place.file != nullptr) {
    announced_ = {address, address + bytes};
  } else if (!in_view && (reads(kind) || kind == AccessKind::write) && bytes <= 16) {
    announced_ = {};
    const AccessLog::Key key{reinterpret_cast<const char*>(place.address), 0, static_cast<int>(bytes), 0,
                             kind == AccessKind::write};
    if (!arrays_.add(thread / 32, thread % 32, key, address)) give_up();
  }
}

void RaceDetector::count_conflicts(const AccessLog::Key& key, const WarpAccess& access) {
  if (const std::uint64_t count = bank_conflicts(access, key.bytes))
    conflicts_[reinterpret_cast<std::uintptr_t>(key.file)] += count;
}

void RaceDetector::access_word(Word& word, std::uintptr_t address, bool shared, const Access& now, const MemoryRange& stored) {
  if (shared) begin_word(word);
  const bool unwritten = !word.awaited || (word.written & now.bytes) != now.bytes || (is_atomic(now.kind) && !word.valued);
  if (unwritten && now.kind != AccessKind::write && !stores_) [[unlikely]]
    read_unwritten(word, address, shared, now);
  if (!reads(now.kind)) {
    word.written |= now.bytes;
    word.writes = true;
  }

  if (is_atomic(now.kind) && !reads(now.kind) && !stores_) confirm_guesses(word, address / word_bytes, now);

  int replaced = -1;
  for (int i = 0; i < word.used; ++i) {
    Access& before = word.last[static_cast<std::size_t>(i)];
    const bool own = before.thread == now.thread && before.block == now.block;
    if (own && before.clock == now.clock && before.kind == now.kind && (now.bytes & ~before.bytes) == 0 && !before.guess)
      return;  // known, and by its first place
    if (own || ordered(before, now.thread)) {
      if ((before.bytes & ~now.bytes) != 0 || !stands_for(now.kind, before.kind)) continue;
      if (replaced < 0) {
        replaced = i;
      } else {
        before = word.last[--word.used];
        --i;
      }
    } else if ((before.bytes & now.bytes) != 0 && conflict(before.kind, now.kind, before.block == now.block)) {
      add_race(before, now, address / word_bytes, shared, stored);
    }
  }
  if (replaced < 0 && word.used < word.last.size()) {
    word.last[word.used++] = now;
    return;
  }
  Access& old = word.last[static_cast<std::size_t>(replaced < 0 ? least_of(word, shared) : replaced)];
  word.valued |= !reads(old.kind) && (old.thread != now.thread || old.clock != now.clock);  // perhaps: it is forgotten
  old = now;
}

/// A thread asks for a value that is not there, or may as well not be there yet. Of plain accesses that come first by luck a race tells.
[[gnu::noinline]] void RaceDetector::read_unwritten(Word& word, std::uintptr_t address, bool shared, const Access& now) {
  const auto waited = [&](const auto& wait) { return known(now.thread, static_cast<std::size_t>(wait.first)) >= wait.second; };
  const bool early = !word.awaited && std::ranges::none_of(waits_, waited);
  const bool written = (word.written & now.bytes) == now.bytes;
  const auto before = [&](const Access& write) {
    return !reads(write.kind) && ((write.thread == now.thread && write.block == now.block) || ordered(write, now.thread));
  };
  word.valued |= written && (word.used == 0 || std::any_of(word.last.begin(), word.last.begin() + word.used, before));
  const bool late = written && !word.valued && is_atomic(now.kind);
  if (written && !early && !late) return;
  const auto same = [&](const Unwritten& other) { return other.read.place == now.place; };
  if (unwritten_.size() < most_races && std::ranges::none_of(unwritten_, same))
    unwritten_.push_back({now, shared, address, early, late});
}

/// Which access a full word forgets: one that a barrier has ordered before all that may come, else a read, else an atomic, else a write, which
/// is to be held against many reads.
int RaceDetector::least_of(Word& word, bool shared) const {
  const auto rank = [&](const Access& access) {
    if (shared && barrier_[access.thread] >= access.clock) return 0;
    return reads(access.kind) ? 1 : is_atomic(access.kind) ? 2 : 3;
  };
  std::size_t least = word.next;
  for (std::size_t i = 1; i < word.last.size(); ++i) {
    const std::size_t other = (word.next + i) % word.last.size();
    if (rank(word.last[other]) < rank(word.last[least])) least = other;
  }
  word.next = static_cast<std::uint8_t>((least + 1) % word.last.size());
  return static_cast<int>(least);
}

[[gnu::always_inline]] inline bool RaceDetector::ordered(const Access& before, int thread) const {
  if (before.block == block_) return known(static_cast<std::size_t>(thread), before.thread) >= before.clock;
  const auto knows = [&](const BlockClocks& blocks) {
    const auto found = blocks.find(before.block);
    return found != blocks.end() && found->second[before.thread] >= before.clock;
  };
  const auto acquired = acquired_.find(static_cast<std::size_t>(thread));
  return knows(met_) || knows(earlier_) || (acquired != acquired_.end() && knows(acquired->second.earlier));
}

bool RaceDetector::drew(const Access& before, int thread, std::uintptr_t address) const {
  const auto passed_on = [&](const void* token) {
    if (before.kind == AccessKind::atomic && token == reinterpret_cast<const void*>(address)) return true;
    const auto ticket = tickets_.find(token);
    if (ticket == tickets_.end()) return false;
    const auto clock = ticket->second.find(before.block);
    return clock != ticket->second.end() && clock->second[before.thread] >= before.clock;
  };
  const auto acquired = acquired_.find(static_cast<std::size_t>(thread));
  return std::ranges::any_of(drawn_, passed_on) ||
         (acquired != acquired_.end() && std::ranges::any_of(acquired->second.drawn, passed_on));
}

/// The thread's reads of the word since its last fence or barrier were guesses, as before a loop of atomicCAS().
void RaceDetector::confirm_guesses(Word& word, std::uintptr_t number, const Access& atomic) {
  for (int i = 0; i < word.used; ++i) {
    Access& read = word.last[static_cast<std::size_t>(i)];
    if (read.thread == atomic.thread && read.block == atomic.block && read.clock == atomic.clock)
      read.guess |= read.kind == AccessKind::read;
  }
  if (guesses_.empty()) return;
  const auto found = guesses_.find({atomic.block, atomic.thread, number});
  if (found == guesses_.end()) return;
  for (const auto& [clock, race] : found->second) races_[race].guess &= clock == atomic.clock;
  guesses_.erase(found);
}

void RaceDetector::add_race(const Access& before, const Access& now, std::uintptr_t word, bool shared,
                            const MemoryRange& stored) {
  const bool ticket = before.block != block_ && drew(before, now.thread, stored.begin);
  if (ticket && before.kind == AccessKind::atomic) return;  // its word has told
  const std::size_t bytes = stored.end - stored.begin;
  const bool stores = lenient_ && before.kind == AccessKind::write && bytes > 0 && bytes <= store_.before.size();
  const auto same = [&](const FoundRace& race) { return race.first.place == before.place && race.second.place == now.place; };
  auto found = std::ranges::find_if(races_, same);
  if (found == races_.end() && races_.size() < most_races)
    found = races_.insert(found, {before, now, shared, stores, ticket, lenient_});
  if (found == races_.end()) return;
  found->same_value &= stores;
  found->ticket &= ticket;
  const Access &read = reads(now.kind) ? now : before, &other = reads(now.kind) ? before : now;
  found->guess &=
      read.kind == AccessKind::read && is_atomic(other.kind) && (other.kind == AccessKind::atomic || read.block == other.block);
  if (found->guess && !read.guess) {
    std::vector<Guess>& guesses = guesses_[{read.block, read.thread, word}];
    const Guess guess{read.clock, static_cast<std::size_t>(found - races_.begin())};
    if (std::ranges::find(guesses, guess) == guesses.end()) guesses.push_back(guess);
  }
  if (!found->same_value) return;
  store_.address = reinterpret_cast<const void*>(stored.begin);
  store_.bytes = bytes;
  std::memcpy(store_.before.data(), store_.address, bytes);
  store_.races.push_back(static_cast<std::size_t>(found - races_.begin()));
}

void RaceDetector::settle() {
  if (store_.bytes == 0) return;
  const bool same = std::memcmp(store_.before.data(), store_.address, store_.bytes) == 0;
  for (const std::size_t race : store_.races) races_[race].same_value &= same;
  store_.races.clear();
  store_.bytes = 0;
}

void RaceDetector::draw(int thread, const void* token) {
  if (tickets_.contains(token)) join(acquired_[static_cast<std::size_t>(thread)].drawn, {token});
}

void RaceDetector::begin_word(Word& word) const {
  if (word.block == block_) return;
  word.used = word.next = word.written = 0;
  word.valued = false;
  word.block = block_;
}

void RaceDetector::set_written(std::uintptr_t address, std::size_t bytes, std::uint8_t mask) {
  for (std::uintptr_t at = address; at < address + bytes; at += word_bytes) {
    bool shared;
    Word* const word = word_at(at, shared);
    if (word == nullptr) continue;
    if (shared) begin_word(*word);
    word->written = mask;
    word->valued = word->writes = mask != 0;
  }
}

std::uint32_t RaceDetector::known(std::size_t thread, std::size_t of) const {
  if (thread == of) return own_[of];
  std::uint32_t time = barrier_[of];
  if (thread / 32 == of / 32) time = std::max(time, of_warp_[thread][of % 32]);
  if (acquired_.empty()) return time;
  const auto found = acquired_.find(thread);
  return found == acquired_.end() || found->second.here.empty() ? time : std::max(time, found->second.here[of]);
}

// Of a thread's time nobody knows more than itself.
void RaceDetector::barrier() {
  arrays_.flush([this](const auto& key, const auto& access) { count_conflicts(key, access); });
  if (std::exchange(unordered_, false)) return;
  barrier_ = own_;
  for (const auto& [thread, acquired] : acquired_) {
    join(earlier_, acquired.earlier);
    join(drawn_, acquired.drawn);
  }
  acquired_.clear();
  for (std::uint32_t& time : own_) ++time;
}

// Of other warps' times they tell each other only what a token told one of them.
void RaceDetector::meet(const std::vector<int>& threads) {
  const auto count = [this](const auto& key, const auto& access) { count_conflicts(key, access); };
  if (threads.size() == 32) arrays_.flush_warp(static_cast<std::size_t>(threads.front()) / 32, count);
  std::array<std::uint32_t, 32> told{};
  Knowledge acquired;
  for (const int thread : threads) {
    const auto t = static_cast<std::size_t>(thread), first = t / 32 * 32;
    for (std::size_t u = first; u < std::min(first + 32, threads_); ++u) told[u % 32] = std::max(told[u % 32], known(t, u));
    if (const auto found = acquired_.find(t); found != acquired_.end()) join(acquired, found->second);
  }
  for (const int thread : threads) {
    const auto t = static_cast<std::size_t>(thread);
    of_warp_[t] = told;
    if (!acquired.here.empty() || !acquired.earlier.empty() || !acquired.drawn.empty()) join(acquired_[t], acquired);
    ++own_[t];
  }
}

void RaceDetector::release(int thread, const void* token) {
  const auto t = static_cast<std::size_t>(thread);
  Knowledge now{Clock(threads_), earlier_, drawn_};
  for (std::size_t u = 0; u < threads_; ++u) now.here[u] = known(t, u);
  if (const auto found = acquired_.find(t); found != acquired_.end()) {
    join(now.earlier, found->second.earlier);
    join(now.drawn, found->second.drawn);
  }
  ++own_[t];
  leave(token, now);
}

void RaceDetector::pass_on(const void* from, const void* token) {
  const auto& tokens = in_device(reinterpret_cast<std::uintptr_t>(from)) ? device_tokens_ : tokens_;
  if (const auto found = tokens.find(from); found != tokens.end()) leave(token, Knowledge(found->second));
}

void RaceDetector::leave(const void* token, const Knowledge& knowledge) {
  if (!in_device(reinterpret_cast<std::uintptr_t>(token))) return join(tokens_[token], knowledge);
  Knowledge& left = device_tokens_[token];
  join(left.earlier[block_], knowledge.here);
  join(left.earlier, knowledge.earlier);
  join(left.drawn, knowledge.drawn);
  if (!lenient_) return;
  join(tickets_[token][block_], knowledge.here);
}

void RaceDetector::acquire(int thread, const void* token) {
  const auto& tokens = in_device(reinterpret_cast<std::uintptr_t>(token)) ? device_tokens_ : tokens_;
  const auto found = tokens.find(token);
  if (found == tokens.end()) return;
  Knowledge& acquired = acquired_[static_cast<std::size_t>(thread)];
  join(acquired, found->second);
  if (const auto own = acquired.earlier.find(block_); own != acquired.earlier.end()) join(acquired.here, own->second);
}

simt::ThreadName RaceDetector::name(const Access& access) const {
  const auto index = [](std::uint32_t n, const dim3& shape) {
    return uint3{n % shape.x, n / shape.x % shape.y, n / shape.x / shape.y};
  };
  return {index(access.block, grid_), index(access.thread, block_shape_)};
}

void RaceDetector::report_conflicts(simt::Findings& findings) const {
  for (const auto& [address, count] : conflicts_) {
    const auto place = std::ranges::find(places_, address, &CodePlace::address);  // with its callers
    const std::string line = source_line(place == places_.end() ? CodePlace{.address = address} : *place).line;
    const auto same = [&](const simt::ArrayConflicts& other) { return other.line == line && other.kernel == kernel_; };
    auto found = std::ranges::find_if(findings.conflicts, same);
    if (found == findings.conflicts.end()) found = findings.conflicts.insert(found, {kernel_, line, 0});
    found->count += count;
  }
}

void RaceDetector::keep_writes() const {
  const auto words = [](const dim3& size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
  };
  const std::string writer =
      std::string("kernel ") + kernel_ + ", " + words(grid_) + " blocks of " + words(block_shape_) + " threads,";
  ++global_writes().launches;
  for (const auto& [number, page] : device_pages_) {
    for (std::size_t i = 0; i < page_words; ++i) {
      if (!page[i].writes) continue;
      GlobalWrites::Page& record = global_writes().pages[number];
      record.written[i] |= page[i].written;
      record.writer = writer;
      record.launch = global_writes().launches;
    }
  }
}

void RaceDetector::report(simt::Findings& findings) {
  report_conflicts(findings);
  findings.accesses += accesses_;
  if (accesses_ >= limit_) findings.complete = false;
  std::vector<SourceLine> lines(places_.size());
  const auto line_of = [&](const Access& access) -> const SourceLine& {
    SourceLine& line = lines[access.place];
    if (line.line.empty()) line = source_line(places_[access.place]);
    return line;
  };
  const auto called_from = [&](const SourceLine& first, const SourceLine& second) {
    std::string text = first.caller.empty() ? "" : ", called from " + first.caller;
    if (second.caller.empty() || second.caller == first.caller) return text;
    return text + (text.empty() ? ", called from " : " and ") + second.caller;
  };
  for (const auto& [reader, guesses] : guesses_) {
    for (const Guess& guess : guesses) races_[guess.race].guess = false;
  }
  for (const FoundRace& in_time : races_) {
    FoundRace race = in_time;
    if (reads(race.first.kind)) std::swap(race.first, race.second);  // a write first: it reads better
    simt::Race found{.kernel = kernel_,
                     .shared = race.shared,
                     .one_block = race.first.block == race.second.block,
                     .first_line = line_of(race.first).line,
                     .second_line = line_of(race.second).line,
                     .called_from = called_from(line_of(race.first), line_of(race.second)),
                     .first_writes = !reads(race.first.kind),
                     .second_writes = !reads(race.second.kind),
                     .first = name(race.first),
                     .second = name(race.second),
                     .block_atomics = std::max(race.first.kind, race.second.kind) == AccessKind::block_atomic,
                     .remark = race.same_value ? RuleId::same_value
                               : race.ticket   ? RuleId::ticket
                               : race.guess    ? RuleId::read_before_atomic
                                               : RuleId::race,
                     .launch = global_writes().launches};
    std::vector<simt::Race>& races = found.remark == RuleId::race ? findings.races : findings.remarks;
    const auto same = [&](const simt::Race& other) {
      const bool there = other.first_line == found.first_line && other.second_line == found.second_line;
      return there || (other.first_line == found.second_line && other.second_line == found.first_line);
    };
    if (std::ranges::none_of(races, same)) races.push_back(std::move(found));
  }
  for (const auto& [access, shared, address, early, late] : unwritten_) {
    const SourceLine& line = line_of(access);
    const simt::UnwrittenRead found{
        kernel_, line.line, called_from(line, {}), name(access), shared, address, global_writes().launches, early, late};
    const auto same = [&](const simt::UnwrittenRead& other) { return other.line == found.line; };
    if (std::ranges::none_of(findings.unwritten, same)) findings.unwritten.push_back(found);
  }
  if (last_write_) {
    const simt::ThreadName who = name(*last_write_);
    findings.last_write = machine::words(line_of(*last_write_)) + ", thread " + machine::words(who.thread) + " of block " +
                          machine::words(who.block) + " (kernel " + kernel_ + ")";
  }
  keep_writes();
}

}  // namespace flash::machine
