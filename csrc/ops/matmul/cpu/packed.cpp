// SPDX-License-Identifier: Apache-2.0
#include "packed.h"

#include <cstring>
#include <string>

#include "operands.h"
#include "runtime.h"
#include "tile.h"

namespace bi {
namespace {

// One cache line, so that panels stay aligned as the buffer is.
struct Header {
  char magic[8];
  int64_t dtype, experts, k, n;
  int64_t reserved[3];
};
static_assert(sizeof(Header) == 64, "a cache line");
// The digit changes with the layout.
constexpr char kMagic[8] = {'b', 'i', '-', 'p', 'a', 'c', 'k', '1'};

}  // namespace

int64_t PackedWeight::expert_words() const {
  const int64_t columns = checked_product("n", n / 16 + (n % 16 != 0), 16);
  return checked_product("k", words_of(dtype, k), columns);
}

size_t PackedWeight::bytes() const {
  const int64_t words = checked_product("experts", expert_words(), experts);
  const int64_t bytes = checked_product("packed", words, 4);
  if (bytes > INT64_MAX - static_cast<int64_t>(sizeof(Header)))
    fail(BI_INVALID_ARGUMENT, "packed: size overflows");
  return static_cast<size_t>(bytes) + sizeof(Header);
}

void PackedWeight::write_header(void *packed) const {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.dtype = dtype;
  header.experts = experts;
  header.k = k;
  header.n = n;
  std::memcpy(packed, &header, sizeof(header));
}

PackedWeight PackedWeight::read_header(const void *packed, size_t size) {
  if (packed == nullptr)
    fail(BI_INVALID_ARGUMENT, "packed: expected a buffer, found a null pointer");
  Header header;
  if (size < sizeof(header) || std::memcmp(packed, kMagic, sizeof(kMagic)) != 0)
    fail(BI_INVALID_ARGUMENT,
         "packed: not a weight that bi_matmul_pack of this library version has packed");
  std::memcpy(&header, packed, sizeof(header));
  const PackedWeight weight{static_cast<int32_t>(header.dtype), header.experts, header.k, header.n};
  if (header.dtype != weight.dtype || header.experts < 0 || header.k < 0 || header.n < 0)
    fail(BI_INVALID_ARGUMENT, "packed: its header is damaged");
  if (size != weight.bytes())
    fail(BI_INVALID_ARGUMENT, "packed: expected " + std::to_string(weight.bytes()) +
                                  " bytes, found " + std::to_string(size));
  return weight;
}

const uint32_t *PackedWeight::expert(const void *packed, int64_t e) const {
  return reinterpret_cast<const uint32_t *>(static_cast<const char *>(packed) + sizeof(Header)) +
         e * expert_words();
}

}  // namespace bi
