// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace bi_fuzz {
namespace {

// A run of pages between two that must not be touched. Kept for the next buffer: mapping them anew
// for each would take longer than most calls.
struct Pages {
  unsigned char *first;
  size_t size;
};

std::vector<Pages> &unused_pages() {
  static std::vector<Pages> list;
  return list;
}

constexpr size_t kPages = 64;

Pages take_pages(size_t page) {
  auto &unused = unused_pages();
  if (!unused.empty()) {
    const Pages pages = unused.back();
    unused.pop_back();
    return pages;
  }
  const size_t size = kPages * page;
  void *const all = mmap(nullptr, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  unsigned char *const first = static_cast<unsigned char *>(all) + page;
  if (mprotect(first, size, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  return {first, size};
}

}  // namespace

Buffer::Buffer(size_t bytes, Edge edge) : size_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (edge == Edge::heap || bytes > kPages * page) {
    owner_ = std::shared_ptr<void>(std::malloc(bytes), std::free);
    if (owner_ == nullptr) throw std::bad_alloc();
    data_ = static_cast<unsigned char *>(owner_.get());
    return;
  }
  const Pages pages = take_pages(page);
  owner_ = std::shared_ptr<void>(pages.first, [pages](void *) { unused_pages().push_back(pages); });
  data_ = edge == Edge::after ? pages.first + pages.size - bytes : pages.first;
}

}  // namespace bi_fuzz
