// Looks at every memory access of a launch: which two of them race, and which read memory that no thread has written.
//
// Kernels are compiled with -fsanitize=thread, by which the compiler calls a function before each access to memory. Those functions are
// the simulator's own (instrumentation.cpp), not ThreadSanitizer's. What two CUDA threads do is ordered by barriers, __syncwarp, and fences
// with atomics, never by the order in which the simulator happens to run them: so a race is found whatever the result was.
//
// Each thread has a vector clock; each 4-byte word remembers its last few accesses, writes longer than reads, and is held against them (as
// in ThreadSanitizer: Serebryany and Iskhodzhanov 2009). Blocks of a launch run one after the other, which orders nothing: only a release of
// a word in global memory in one block and an acquire of it in a later one do.
#pragma once

#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/launch.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/access_log.hpp"
#include "common/machine/engine/device_memory.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/knowledge.hpp"
#include "common/machine/engine/shared_memory.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace flash::machine {

using simt::Site;

/// A place in the source: a Site that a view took, or the return address of a raw access.
struct CodePlace {
  const char* file = nullptr;
  int line = 0;
  std::uintptr_t address = 0;               ///< where the access returns to; the line, if there is no file
  std::array<std::uintptr_t, 3> callers{};  ///< where the functions around it return to, from inside out; 0: not known
  bool operator==(const CodePlace&) const = default;
  struct Hash {
    std::size_t operator()(const CodePlace& p) const {
      return p.address ^ p.callers[0] * 31u ^ p.callers[1] * 1031u ^ reinterpret_cast<std::uintptr_t>(p.file) ^
             static_cast<unsigned>(p.line) * 67u;
    }
  };
};

constexpr std::size_t page_words = 256;

/// What watched launches have written to global memory, by its address / 4 / page_words.
struct GlobalWrites {
  struct Page {
    std::array<std::uint8_t, page_words> written{};  ///< bytes of each word: a mask
    std::string writer;                              ///< the last launch to write there
    std::uint64_t launch = 0;                        ///< its number
  };
  std::unordered_map<std::uintptr_t, Page> pages;
  std::uint64_t launches = 0;

  std::uint8_t of_word(std::uintptr_t word) const {
    const auto found = pages.find(word / page_words);
    return found == pages.end() ? std::uint8_t{0} : found->second.written[word % page_words];
  }
};
/// Since the last reset of the findings. Launches that are watched run one after the other.
GlobalWrites& global_writes();

/// What simt::follow_writes() asks for; 0: nothing.
std::uintptr_t followed_address();

/// What the detector knows of the block that runs.
struct WatchedBlock {
  /// One access to a word, against which later ones are held.
  struct Access {
    std::uint32_t place;  ///< index in places_
    std::uint32_t clock;
    std::uint32_t block;
    std::uint16_t thread;
    std::uint8_t bytes;  ///< of the word: a mask
    AccessKind kind : 7;
    bool guess : 1 = false;  ///< a read, and behind it an atomic of the same thread there, with no fence or barrier between
  };
  struct Word {
    std::array<Access, 4> last;
    std::uint32_t block = ~0u;  ///< whose shared memory it was last
    std::uint8_t used = 0, next = 0;
    std::uint8_t written = 0;  ///< bytes: a mask
    bool writes = false;       ///< of this launch
    bool awaited = true;       ///< false: this launch is early, and the previous one wrote here
    bool ignored = false;
    bool valued = false;  ///< a write lies before what threads do now, or before the launch
  };

  std::uint32_t block_ = 0;
  MemoryRange dynamic_{}, static_{};
  std::vector<Word> dynamic_words_, static_words_;
  // Vector clocks: up to which time of thread u everything lies before what thread t does now, known(t, u). Only what barriers did not tell
  // everybody is kept for each thread by itself.
  Clock own_;                                            ///< t's own time
  Clock barrier_;                                        ///< u's time at the last barrier
  Clock busy_at_;                                        ///< t's own time when it last accessed shared memory or wrote to any
  std::vector<std::array<std::uint32_t, 32>> of_warp_;   ///< [t][lane of u], if they are of one warp
  std::unordered_map<std::size_t, Knowledge> acquired_;  ///< [t], by a token since the last barrier
  BlockClocks earlier_;                                  ///< known to all threads since the last barrier
  std::unordered_map<const void*, Knowledge> tokens_;    ///< but for those in global memory
  std::vector<const void*> drawn_;                       ///< likewise
  std::vector<std::pair<int, std::uint32_t>> waits_;     ///< for the previous kernel: thread, time
  AccessLog arrays_;                                     ///< accesses to shared memory that no view has announced
  MemoryRange announced_{};                              ///< by the last view
  bool unordered_ = false;                               ///< the next barrier
};

class RaceDetector : WatchedBlock {
 public:
  /// It looks at Options::watch_limit accesses and then at no more, which report() says. `device`: the allocations whose words are followed.
  RaceDetector(const simt::KernelCall&, const simt::Options&, std::vector<Allocation> device);

  /// Block number `block` of the grid begins: its threads and its shared memory are new.
  void start_block(std::uint64_t block, MemoryRange dynamic_shared, MemoryRange static_shared);
  void end_block();

  /// Was the last access between the static arrays of a plain file?
  bool left_array() const { return left_array_; }
  /// False if it has seen enough.
  bool access(int thread, std::uintptr_t address, std::size_t bytes, AccessKind, const CodePlace&);
  /// Bytes that have a value from the start.
  void assume_written(std::uintptr_t address, std::size_t bytes) { set_written(address, bytes, 0xF); }
  /// These thread-local variables are not the kernel's.
  void ignore(const std::vector<SharedVariable>&);
  /// An asynchronous copy is to fill these bytes: until it lands they are as if nobody had written them.
  void forget_writes(std::uintptr_t address, std::size_t bytes) { set_written(address, bytes, 0); }

  /// The block of another worker goes on, or is about to begin.
  void switch_to(std::size_t worker);
  void grid_barrier();
  // What orders the threads of the block: a barrier of all, a __syncwarp of some, a token that one releases and another acquires.
  void barrier();
  void meet_unordered() { unordered_ = true; }  ///< at the next barrier
  void meet(const std::vector<int>& threads);
  /// Has the thread accessed shared memory or written to any since the last barrier?
  bool was_busy(int thread) const {
    return busy_at_[static_cast<std::size_t>(thread)] > barrier_[static_cast<std::size_t>(thread)];
  }
  void release(int thread, const void* token);
  void pass_on(const void* from, const void* token);  ///< what `from` has, as it was left there
  void acquire(int thread, const void* token);
  /// An atomic of the thread meets those of other blocks: an order in practice, without the fence that CUDA asks for.
  void draw(int thread, const void* token);
  void wait_for_previous_kernel(int thread) { waits_.emplace_back(thread, now(thread)); }

  std::uint32_t now(int thread) const { return own_[static_cast<std::size_t>(thread)]; }
  /// Up to which time of `other` everything lies before what the thread does now.
  std::uint32_t knows(int thread, int other) const {
    return known(static_cast<std::size_t>(thread), static_cast<std::size_t>(other));
  }

  /// Memory is full: look no further.
  void give_up() { accesses_ = limit_; }

  void report(simt::Findings&);

 private:
  /// The last store has happened: did it change what another thread had stored there?
  void settle();
  struct Unwritten {
    Access read;
    bool shared;
    std::uintptr_t address;
    bool early;  ///< perhaps written: by the previous kernel, for which this one has to wait
    bool late;   ///< perhaps not yet written: by a thread with which no order exists
  };
  struct FoundRace {
    Access first, second;
    bool shared;
    bool same_value, ticket, guess;  ///< each time so far
  };
  /// A store that has raced with others, until it has happened.
  struct Store {
    const void* address = nullptr;
    std::size_t bytes = 0;  ///< 0: there is none
    std::array<std::byte, 16> before{};
    std::vector<std::size_t> races;
  };

  void log_array(int thread, std::uintptr_t address, std::size_t bytes, AccessKind, const CodePlace&);
  void count_conflicts(const AccessLog::Key&, const WarpAccess&);
  void set_written(std::uintptr_t address, std::size_t bytes, std::uint8_t mask);
  void begin_word(Word&) const;
  void read_unwritten(Word&, std::uintptr_t address, bool shared, const Access&);
  Word* word_at(std::uintptr_t address, bool& shared);
  std::unique_ptr<Word[]> new_page(std::uintptr_t number) const;
  int least_of(Word&, bool shared) const;
  void access_word(Word&, std::uintptr_t address, bool shared, const Access&, const MemoryRange& stored);
  bool ordered(const Access& before, int thread) const;
  bool in_device(std::uintptr_t address) const;
  bool drew(const Access& before, int thread, std::uintptr_t address) const;
  void add_race(const Access& before, const Access& now, std::uintptr_t word, bool shared, const MemoryRange& stored);
  void confirm_guesses(Word&, std::uintptr_t word, const Access& atomic);
  void leave(const void* token, const Knowledge&);
  std::uint32_t index_of(const CodePlace&);
  std::uint32_t known(std::size_t thread, std::size_t of) const;
  void report_conflicts(simt::Findings&) const;
  void keep_writes() const;  ///< in global_writes()
  simt::ThreadName name(const Access&) const;

  const char* kernel_;
  dim3 grid_, block_shape_;
  std::size_t threads_;
  std::size_t worker_ = 0;
  std::unordered_map<std::size_t, WatchedBlock> paused_;  ///< those of other workers
  BlockClocks met_;                                       ///< at the last grid.sync()
  std::unordered_map<const void*, Knowledge>
      device_tokens_;                                     ///< words in global memory, which pass on all they know as earlier
  std::unordered_map<const void*, BlockClocks> tickets_;  ///< likewise, and the atomic that left it
  std::vector<Allocation> device_;                        ///< in ascending order
  std::unordered_map<std::uintptr_t, std::unique_ptr<Word[]>> device_pages_;
  std::uintptr_t recent_page_number_ = 0;
  Word* recent_page_ = nullptr;

  std::vector<CodePlace> places_;
  std::unordered_map<CodePlace, std::uint32_t, CodePlace::Hash> number_of_;  ///< in places_
  std::array<std::uint32_t, 1024> recent_places_{};                          ///< of places with this hash, the one seen last

  std::unordered_map<std::uintptr_t, std::uint64_t> conflicts_;  ///< by the code's address

  const std::uintptr_t followed_ = followed_address();
  std::optional<Access> last_write_;  ///< there

  bool stores_ = false;      ///< the last access asks for no value
  bool left_array_ = false;  ///< it lies between static arrays
  std::uint64_t accesses_ = 0;
  const std::uint64_t limit_;
  const bool lenient_, early_;
  std::vector<FoundRace> races_;
  Store store_;
  struct Guess {
    std::uint32_t clock;
    std::size_t race;
    bool operator==(const Guess&) const = default;
  };
  std::map<std::tuple<std::uint32_t, int, std::uintptr_t>, std::vector<Guess>>
      guesses_;  ///< [block, thread, word], with no atomic yet
  std::vector<Unwritten> unwritten_;
};

/// Adds what was found to simt::findings().
void add_findings(RaceDetector&);
void add_remark(const simt::ApartBarriers&);

}  // namespace flash::machine
