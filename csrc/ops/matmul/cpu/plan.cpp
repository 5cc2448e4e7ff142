// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include "operands.h"

namespace bi {
namespace {

// Packed rows of A that are worked on together: they are read once for each panel, so they should
// stay in the last-level cache.
constexpr int64_t kRowsBytes = int64_t{16} << 20;
// Rows of one tile, at most: its sums (kPanel fp32 a row) stay in L2 beside a block of B.
constexpr int64_t kTileRows = 512;
// A thread is worth starting for this many multiply-adds.
constexpr int64_t kThreadWork = int64_t{1} << 18;
// Tiles for each thread, so that one that comes late costs little.
constexpr int64_t kTilesPerThread = 4;
constexpr size_t kLine = 64;

struct Free {
  void operator()(void *p) const { std::free(p); }
};
using Workspace = std::unique_ptr<char, Free>;

Workspace allocate(size_t bytes) {
  const size_t rounded = (std::max(bytes, kLine) + kLine - 1) / kLine * kLine;
  Workspace space(static_cast<char *>(std::aligned_alloc(kLine, rounded)));
  if (space == nullptr) throw std::bad_alloc();
  return space;
}

// A product, and where its parts lie in the flat lists of row blocks and tiles.
struct Piece {
  Product product;
  int64_t rows_before;    // rows of A packed before it
  int64_t blocks_before;  // row blocks before it
  int64_t tiles_before;
  int64_t cuts;  // tiles in the direction of the rows
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Before>
const Piece &piece_of(const std::vector<Piece> &pieces, int64_t index, Before before) {
  auto after = std::upper_bound(pieces.begin(), pieces.end(), index,
                                [&](int64_t i, const Piece &piece) { return i < piece.*before; });
  return *(after - 1);
}

void multiply_pieces(const Shape &shape, std::vector<Piece> &pieces, int threads) {
  const MatmulKernels &kernels = BI_CALL_MATRIX(matmul_kernels)();
  const int64_t words = words_of(shape.dtype, shape.k);
  const int64_t row_bytes = words * static_cast<int64_t>(kernels.a_bytes(shape.dtype));
  const int64_t panels = ceil_div(shape.n, kPanel);
  const int64_t block_rows = kernels.block_rows(shape.dtype);

  int64_t rows = 0, blocks = 0;
  for (Piece &piece : pieces) {
    piece.rows_before = rows;
    piece.blocks_before = blocks;
    rows += piece.product.rows;
    blocks += row_blocks(piece.product.rows, block_rows);
  }
  const double work = static_cast<double>(rows) * static_cast<double>(shape.n) *
                      static_cast<double>(std::max<int64_t>(shape.k, 1));
  const int64_t useful = work < static_cast<double>(kThreadWork) * threads
                             ? 1 + static_cast<int64_t>(work / static_cast<double>(kThreadWork))
                             : threads;
  threads = static_cast<int>(std::min<int64_t>(threads, useful));

  int64_t tiles = 0, tile_rows = 0;
  bool unpacked = false;
  const int64_t strips = panels * static_cast<int64_t>(pieces.size());
  const int64_t wanted_cuts = threads == 1 ? 1 : ceil_div(kTilesPerThread * threads, strips);
  for (Piece &piece : pieces) {
    const int64_t height = piece.product.rows;
    piece.cuts = std::min(row_blocks(height, block_rows),
                          std::max(ceil_div(height, kTileRows), wanted_cuts));
    piece.tiles_before = tiles;
    tiles += piece.cuts * panels;
    tile_rows =
        std::max(tile_rows, ceil_div(row_blocks(height, block_rows), piece.cuts) * block_rows);
    unpacked |= piece.product.packed_b == nullptr;
  }

  // Tasks must not fail, so all memory is taken here: packed A, and for each worker its sums and,
  // where B comes unpacked, its block of B.
  const int64_t workers = std::min<int64_t>(threads, tiles);
  const int64_t sums_bytes = tile_rows * kPanel * static_cast<int64_t>(sizeof(float));
  const int64_t block_bytes = unpacked ? std::min(words, kBlock) * kPanel * 4 : 0;
  const int64_t a_bytes = ceil_div(checked_product("a", rows, row_bytes), kLine) * kLine;
  const Workspace packed_a = allocate(static_cast<size_t>(a_bytes));
  const Workspace scratch = allocate(static_cast<size_t>(workers * (sums_bytes + block_bytes)));

  // One round of tasks. Each worker first packs row blocks of A until none is left, waits for those
  // that others are still packing, and then takes tiles; neighbours in their order share a panel.
  // It waits only for workers that run already, so a pool that runs them one after another is fine
  // too.
  std::atomic<int64_t> next_block{0}, packed_blocks{0}, next{0};
  auto work_off = [&](int64_t worker) {
    for (int64_t index = next_block++; index < blocks; index = next_block++) {
      const Piece &piece = piece_of(pieces, index, &Piece::blocks_before);
      kernels.pack_a(shape.dtype, piece.product.a, piece.product.rows, shape.k,
                     index - piece.blocks_before, packed_a.get() + piece.rows_before * row_bytes);
      packed_blocks.fetch_add(1, std::memory_order_release);
    }
    while (packed_blocks.load(std::memory_order_acquire) < blocks) std::this_thread::yield();

    char *own = scratch.get() + worker * (sums_bytes + block_bytes);
    for (int64_t index = next++; index < tiles; index = next++) {
      const Piece &piece = piece_of(pieces, index, &Piece::tiles_before);
      const Product &product = piece.product;
      const int64_t local = index - piece.tiles_before;
      const int64_t panel = local / piece.cuts, cut = local % piece.cuts;
      const int64_t count = row_blocks(product.rows, block_rows);
      Tile tile;
      tile.dtype = shape.dtype;
      tile.rows = product.rows;
      tile.k = shape.k;
      tile.n = shape.n;
      tile.packed_a = packed_a.get() + piece.rows_before * row_bytes;
      tile.first_block = cut * count / piece.cuts;
      tile.last_block = (cut + 1) * count / piece.cuts;
      tile.n0 = panel * kPanel;
      tile.packed_b = product.packed_b == nullptr ? nullptr : product.packed_b + tile.n0 * words;
      tile.b = product.b;
      tile.bias = shape.bias;
      tile.out = product.out;
      tile.out_stride = shape.out_stride;
      kernels.multiply(tile, reinterpret_cast<float *>(own),
                       reinterpret_cast<uint32_t *>(own + sums_bytes));
    }
  };
  parallel_for(workers, threads, work_off);
}

}  // namespace

void multiply_all(const Shape &shape, const std::vector<Product> &products, int threads) {
  if (shape.n == 0) return;
  const MatmulKernels &kernels = BI_CALL_MATRIX(matmul_kernels)();
  const int64_t row_bytes =
      checked_product("a", words_of(shape.dtype, std::max<int64_t>(shape.k, 1)),
                      static_cast<int64_t>(kernels.a_bytes(shape.dtype)));
  const int64_t limit =
      std::max<int64_t>(kRowsBytes / row_bytes, 16 * kernels.block_rows(shape.dtype));
  const int64_t element = element_bytes(shape.dtype);

  std::vector<Piece> pieces;
  int64_t gathered = 0;
  for (const Product &product : products) {
    if (product.rows == 0) continue;
    // Nearly equal parts of at most `limit` rows.
    const int64_t parts = ceil_div(product.rows, limit);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t r0 = part * product.rows / parts;
      Product piece = product;
      piece.rows = (part + 1) * product.rows / parts - r0;
      piece.a.data =
          static_cast<const char *>(product.a.data) + r0 * product.a.row_stride * element;
      piece.out = static_cast<char *>(product.out) + r0 * shape.out_stride * element;
      if (gathered + piece.rows > limit) {
        multiply_pieces(shape, pieces, threads);
        pieces.clear();
        gathered = 0;
      }
      gathered += piece.rows;
      pieces.push_back(Piece{piece, 0, 0, 0, 0});
    }
  }
  if (!pieces.empty()) multiply_pieces(shape, pieces, threads);
}

}  // namespace bi
