// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <elf.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "threads.h"

namespace batch_invariant_ops {
namespace {

namespace fs = std::filesystem;

constexpr const char *kVendor = "batch_invariant";
constexpr const char *kLibrary = "op_api/lib/libcust_opapi.so";
constexpr const char *kInstall =
    "install the package ascendc-batch-invariant-ops (conda or Spack), or run "
    "`bash csrc/build_batch_invariant_ops.sh cpu`";

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "batch_invariant_ops: expected x86_64 or aarch64"
#endif

std::mutex mutex;
std::string python_prefix;  // guarded by mutex
std::atomic<const Library *> loaded{nullptr};

const char *machine_name(Elf64_Half machine) {
  if (machine == EM_X86_64) return "x86_64";
  if (machine == EM_AARCH64) return "aarch64";
  return "another architecture";
}

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where the library may lie, in order of preference, and how the search is described when it isn't
// there.
struct Search {
  std::vector<fs::path> candidates;
  std::string places;
};

void add_place(Search &search, const std::string &words) {
  if (!search.places.empty()) search.places += ", then ";
  search.places += words;
}

void add_variable(Search &search, const char *name, const std::string &value) {
  add_place(search,
            value.empty() ? std::string(name) + " (not set)" : std::string(name) + "=" + value);
}

Search search_path() {
  Search search;
  auto add_root = [&](const fs::path &root) {
    search.candidates.push_back(fs::absolute(root) / "vendors" / kVendor / kLibrary);
  };

  const std::string custom = environment("ASCEND_CUSTOM_OPP_PATH");
  std::istringstream entries(custom);
  for (std::string entry; std::getline(entries, entry, ':');) {
    while (entry.size() > 1 && entry.back() == '/') entry.pop_back();
    if (entry.empty()) continue;
    // An entry is a vendor's own directory, as set_env.bash writes it, or a root of vendors.
    if (fs::path(entry).filename() == kVendor) {
      search.candidates.push_back(fs::absolute(entry) / kLibrary);
    }
    add_root(entry);
  }
  add_variable(search, "ASCEND_CUSTOM_OPP_PATH", custom);

  if (!python_prefix.empty()) {
    const fs::path root = fs::path(python_prefix) / "share" / "ascend" / "opp";
    add_root(root);
    add_place(search, root.string());
  }

  const std::string cann = environment("ASCEND_OPP_PATH");
  if (!cann.empty()) add_root(cann);
  add_variable(search, "ASCEND_OPP_PATH", cann);
  return search;
}

// What the loader would say nothing useful about: a file that is no library, one that was cut off
// (it may crash on it), one for another machine (it calls that "no such file").
void check_file(const char *op, const fs::path &path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  TORCH_CHECK(file.good(), op, ": cannot read ", path.string(), ": ", std::strerror(errno));
  const auto size = static_cast<uint64_t>(file.tellg());
  Elf64_Ehdr header{};
  file.seekg(0);
  file.read(reinterpret_cast<char *>(&header), sizeof(header));
  // The section headers are the end of the file.
  const bool whole = file.gcount() == sizeof(header) &&
                     std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                     header.e_ident[EI_CLASS] == ELFCLASS64 &&
                     header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize <= size;
  TORCH_CHECK(whole, op, ": ", path.string(),
              " is not a whole 64-bit library, it is damaged: ", kInstall);
  TORCH_CHECK(header.e_machine == kMachine, op, ": ", path.string(), " is for ",
              machine_name(header.e_machine), ", and this is ", machine_name(kMachine), ": ",
              kInstall);
}

std::unique_ptr<Library> open_library(const char *op, const fs::path &path) {
  check_file(op, path);
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle != nullptr, op, ": cannot open ", path.string(), ": ", dlerror());
  auto lib = std::make_unique<Library>();
  lib->path = path.string();

  lib->bi_abi_version =
      reinterpret_cast<decltype(lib->bi_abi_version)>(dlsym(handle, "bi_abi_version"));
  if (lib->bi_abi_version == nullptr) {
    dlclose(handle);
    TORCH_CHECK(false, op, ": ", path.string(),
                " is not the operator library for soc=cpu (it has no bi_abi_version): ", kInstall);
  }
  const uint32_t abi = lib->bi_abi_version();
  if (abi != BI_ABI_VERSION) {
    dlclose(handle);
    TORCH_CHECK(false, op, ": ", path.string(), " has interface version ", abi,
                ", and batch_invariant_ops was built for version ", BI_ABI_VERSION,
                ": install both from one release");
  }
  const char *missing = nullptr;
#define BATCH_INVARIANT_OPS_RESOLVE(name)                                  \
  lib->name = reinterpret_cast<decltype(lib->name)>(dlsym(handle, #name)); \
  if (lib->name == nullptr && missing == nullptr) missing = #name;
  BATCH_INVARIANT_OPS_FUNCTIONS(BATCH_INVARIANT_OPS_RESOLVE)
#undef BATCH_INVARIANT_OPS_RESOLVE
  if (missing != nullptr) {
    dlclose(handle);
    TORCH_CHECK(false, op, ": ", path.string(), " has no function ", missing,
                ", which batch_invariant_ops needs: install both from one release");
  }
  lib->bi_set_run(&run_on_torch_threads);
  return lib;
}

const Library &search_and_open(const char *op) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (const Library *lib = loaded.load(std::memory_order_relaxed)) return *lib;
  const Search search = search_path();
  std::string unreadable;
  for (const fs::path &path : search.candidates) {
    std::error_code error;
    if (fs::exists(path, error)) {
      // Never closed: operators may run until the process ends.
      const Library *lib = open_library(op, path).release();
      loaded.store(lib, std::memory_order_release);
      return *lib;
    }
    if (error) unreadable += "\n" + path.string() + ": " + error.message();
  }
  TORCH_CHECK(false, op, ": the operator library (stage 1) is not installed: ", kInstall,
              ".\nSearched for vendors/", kVendor, "/", kLibrary, " in ", search.places,
              unreadable);
}

}  // namespace

const Library &library(const char *op) {
  if (const Library *lib = loaded.load(std::memory_order_acquire)) return *lib;
  return search_and_open(op);
}

void check_status(const Library &lib, const char *op, bi_status status) {
  if (status == BI_OK) return;
  const char *words = lib.bi_last_error();
  TORCH_CHECK_NOT_IMPLEMENTED(status != BI_UNSUPPORTED_DTYPE, op, ": ", words);
  TORCH_CHECK_WITH(OutOfMemoryError, status != BI_OUT_OF_MEMORY, op, ": ", words);
  TORCH_CHECK(false, op, ": ", words);
}

void set_prefix(std::string prefix) {
  const std::lock_guard<std::mutex> lock(mutex);
  python_prefix = std::move(prefix);
}

}  // namespace batch_invariant_ops
