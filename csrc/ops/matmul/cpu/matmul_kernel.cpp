// SPDX-License-Identifier: Apache-2.0
#include "row_words.h"
#include "tile.h"
#include "vec.h"
#include "words.h"

#if defined(BI_AMX)
#include "amx_multiply.h"
#endif

namespace bi {
namespace BI_ISA {
namespace {

// ---- how one word of A meets one word of B --------------------------------------------------
// `Packed` is a word of A as the kernel wants it, and `packed` words of B. A word is worked off in
// `kParts`: for each, `load` takes it from sixteen columns of B, `broadcast` from a row of A, and
// `step` continues sixteen chains by it.

struct Float32 {
  using Element = float;
  struct Packed {
    float x;
  };
  static constexpr int kParts = 1;
  static Packed pack(float first, float) { return {first}; }
  static Words packed(Words b) { return b; }
  static Vec load(const uint32_t *b, int) { return Words::load(b).as_float(); }
  static Vec broadcast(const Packed &a, int) { return Vec::set1(a.x); }
  static Vec step(Vec a, Vec b, Vec sum) { return Vec::fma(a, b, sum); }
};

// Two elements, widened.
template <typename Half>
struct Widened {
  using Element = Half;
  struct Packed {
    float part[2];
  };
  static constexpr int kParts = 2;
  static Packed pack(Half first, Half second) { return {{to_float(first), to_float(second)}}; }
  static Vec broadcast(const Packed &a, int part) { return Vec::set1(a.part[part]); }
  static Vec step(Vec a, Vec b, Vec sum) { return Vec::fma(a, b, sum); }
};

struct Float16 : Widened<f16> {
  static Words packed(Words b) { return b.halves_apart(); }
  static Vec load(const uint32_t *b, int part) {
    return Vec::load(reinterpret_cast<const f16 *>(b) + part * 16);
  }
};

#if defined(BI_BF16_PAIRS)
// vdpbf16ps adds the product of the high halves, then that of the low halves, each as a fused
// multiply-add rounded to nearest, with subnormal operands and results replaced by zeros.
struct Bfloat16 {
  using Element = bf16;
  struct Packed {
    uint32_t pair;
  };
  static constexpr int kParts = 1;
  static Packed pack(bf16 first, bf16 second) {
    return {static_cast<uint32_t>(first.bits) << 16 | second.bits};
  }
  static Words packed(Words b) { return b; }
  static Words load(const uint32_t *b, int) { return Words::load(b); }
  static __m512i broadcast(const Packed &a, int) {
    return _mm512_set1_epi32(static_cast<int>(a.pair));
  }
  static Vec step(__m512i a, Words b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)a, (__m512bh)b.v)};
  }
};
#else
struct Bfloat16 : Widened<bf16> {
  static Words packed(Words b) { return b; }
  static Vec load(const uint32_t *b, int part) {
    return part == 0 ? Words::load(b).first() : Words::load(b).second();
  }
};
#endif

template <typename Form>
constexpr int elements_per_word() {
  return 4 / sizeof(typename Form::Element);
}

// ---- packing --------------------------------------------------------------------------------

template <typename Form>
void pack_a(const Matrix &a, int64_t rows, int64_t k, int64_t block, void *packed) {
  using Element = typename Form::Element;
  auto *const to = static_cast<typename Form::Packed *>(packed);
  for_each_row_word<Element>(
      a, rows, k, block, kRows,
      [to](int64_t base, int64_t height, int64_t, int64_t r, int64_t w, Element first,
           Element second) { to[base + w * height + r] = Form::pack(first, second); });
}

inline uint32_t word_at(const float *p, int64_t, int64_t) {
  uint32_t u;
  std::memcpy(&u, p, sizeof(u));
  return u;
}
template <typename Half>
uint32_t word_at(const Half *p, int64_t stride, int64_t left) {
  return static_cast<uint32_t>(p[0].bits) << 16 | (left > 1 ? p[stride].bits : 0u);
}
inline Words words_across(const float *p, int64_t, int64_t, int columns) {
  return Words::load_run(p, columns);
}
template <typename Half>
Words words_across(const Half *p, int64_t stride, int64_t left, int columns) {
  return Words::interleave(p, left > 1 ? p + stride : static_cast<const Half *>(nullptr), columns);
}

// The last, incomplete squares of sixteen columns by sixteen words, zeros where nothing is present.
template <typename Form>
void pack_corner(const typename Form::Element *corner, int64_t stride, int64_t columns, int64_t run,
                 uint32_t *to, int64_t width, int64_t rows) {
  Words x[16];
  for (int64_t i = 0; i < 16; ++i)
    x[i] = i < columns ? Words::load_run(corner + i * stride, run) : Words::zero();
  transpose(x);
  for (int64_t i = 0; i < 16 && i < rows; ++i) Form::packed(x[i]).store(to + i * width);
}

// Rows of a plain weight lie far apart, often by a power of two, and are read in short runs: the
// hardware does not foresee them, and they share sets of L1. They are fetched into L2, this many
// squares, or this many words of a row-major matrix, ahead.
constexpr int kIntoL2 = 2;  // the locality argument of __builtin_prefetch
constexpr int64_t kAheadSquares = 8;
constexpr int64_t kAheadWords = 16;

// Words [w0, w0 + count) of columns n0 .. of b [k, n], as [count][width], zeros beyond n and k.
template <typename Form>
void pack_block(const Matrix &b, int64_t k, int64_t n, int64_t n0, int64_t w0, int64_t count,
                uint32_t *to) {
  using Element = typename Form::Element;
  constexpr int kStep = elements_per_word<Form>();
  const int64_t width = panel_width(n, n0);
  const int64_t columns = n - n0 < width ? n - n0 : width;
  const Element *from =
      static_cast<const Element *>(b.data) + n0 * b.col_stride + w0 * kStep * b.row_stride;
  const int64_t left = k - w0 * kStep;  // elements of K from here on
  if (b.row_stride == 1) {              // a weight as a linear layer keeps it, [N, K]
    for (int64_t j = 0; j < width; j += 16) {
      const Element *column = from + j * b.col_stride;
      const int64_t present = columns - j < 16 ? columns - j : 16;
      for (int64_t w = 0; w < count; w += 16) {
        const Element *corner = column + w * kStep;
        for (int64_t i = 0; i < present; ++i)
          __builtin_prefetch(corner + i * b.col_stride + kAheadSquares * 16 * kStep, 0, kIntoL2);
        const int64_t run = left - w * kStep;
        uint32_t *square = to + w * width + j;
        if (present == 16 && run >= 16 * kStep && count - w >= 16) {
          Words x[16];
          for (int i = 0; i < 16; ++i)
            x[i] = Words::load_run(corner + i * b.col_stride, 16 * kStep);
          transpose(x);
          for (int i = 0; i < 16; ++i) Form::packed(x[i]).store(square + i * width);
        } else {
          pack_corner<Form>(corner, b.col_stride, present, run, square, width, count - w);
        }
      }
    }
  } else if (b.col_stride == 1) {
    for (int64_t w = 0; w < count; ++w)
      for (int64_t j = 0; j < width; j += 16) {
        for (int64_t i = 0; i < kStep; ++i)
          __builtin_prefetch(from + ((w + kAheadWords) * kStep + i) * b.row_stride + j, 0, kIntoL2);
        const int present = static_cast<int>(columns - j < 16 ? columns - j : 16);
        const Words x = words_across(from + w * kStep * b.row_stride + j, b.row_stride,
                                     left - w * kStep, present);
        Form::packed(x).store(to + w * width + j);
      }
  } else {
    for (int64_t w = 0; w < count; ++w)
      for (int64_t j = 0; j < width; j += 16) {
        uint32_t x[16] = {};
        for (int64_t i = j; i < j + 16 && i < columns; ++i)
          x[i - j] = word_at(from + w * kStep * b.row_stride + i * b.col_stride, b.row_stride,
                             left - w * kStep);
        Form::packed(Words::load(x)).store(to + w * width + j);
      }
  }
}

template <typename Form>
void pack_panel(const Matrix &b, int64_t k, int64_t n, int64_t n0, uint32_t *packed) {
  constexpr int kStep = elements_per_word<Form>();
  const int64_t words = (k + kStep - 1) / kStep;
  for (int64_t w0 = 0; w0 < words; w0 += kBlock) {
    const int64_t count = words - w0 < kBlock ? words - w0 : kBlock;
    pack_block<Form>(b, k, n, n0, w0, count, packed + w0 * panel_width(n, n0));
  }
}

// ---- multiplication -------------------------------------------------------------------------

// What becomes of the sums after a block: kept, or finished.
template <typename Element>
struct Finish {
  const float *bias;  // of the panel's columns, or null
  Element *out;
  int64_t stride;
  int columns;
};

// Vectors of columns that R rows work on at once: as many as registers allow. AVX-512 holds 24
// accumulators, the whole panel for the highest row block; elsewhere a vector is two or four
// registers, and there are six.
#if defined(BI_VEC_AVX512)
constexpr int kAccumulators = 24;
#else
constexpr int kAccumulators = 6;
#endif
constexpr int vectors_of(int64_t rows) {
  return kAccumulators / rows >= 4 ? 4 : kAccumulators / rows >= 2 ? 2 : 1;
}

// R rows by V vectors of columns, over `count` words of a block of B with rows of `width` words.
// `sums` is [R][V*16]. Meanwhile two cache lines a word are fetched from `ahead` on, in steps of
// `ahead_step` bytes (0: nothing new).
template <typename Form, int R, int V>
void micro(int64_t count, const typename Form::Packed *a, const uint32_t *b, int64_t width,
           float *sums, bool first, const Finish<typename Form::Element> *finish, const char *ahead,
           int64_t ahead_step) {
  Vec c[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) c[r][v] = first ? Vec::zero() : Vec::load(sums + (r * V + v) * 16);
  for (int64_t w = 0; w < count; ++w) {
    __builtin_prefetch(ahead, 0, kIntoL2);
    __builtin_prefetch(ahead + 64, 0, kIntoL2);
    ahead += ahead_step;
#pragma GCC unroll 2
    for (int part = 0; part < Form::kParts; ++part) {
      decltype(Form::load(b, 0)) x[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) x[v] = Form::load(b + v * 16, part);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const auto y = Form::broadcast(a[r], part);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) c[r][v] = Form::step(y, x[v], c[r][v]);
      }
    }
    a += R;
    b += width;
  }
  if (finish == nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) c[r][v].store(sums + (r * V + v) * 16);
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const int columns = finish->columns - v * 16;
    const int present = columns < 16 ? columns : 16;
    const Vec bias =
        finish->bias != nullptr ? Vec::load_n(finish->bias + v * 16, present) : Vec::zero();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec y = finish->bias != nullptr ? c[r][v] + bias : c[r][v];
      auto *out = finish->out + r * finish->stride + v * 16;
      if (present == 16)
        y.store(out);
      else
        y.store_n(out, present);
    }
  }
}

template <typename Form>
using Micro = void (*)(int64_t, const typename Form::Packed *, const uint32_t *, int64_t, float *,
                       bool, const Finish<typename Form::Element> *, const char *, int64_t);

template <typename Form, int R>
Micro<Form> micro_of_vectors(int64_t vectors) {
  constexpr int kMost = vectors_of(R);
  if constexpr (kMost == 4) {
    if (vectors == 4) return micro<Form, R, 4>;
    if (vectors == 3) return micro<Form, R, 3>;
  }
  if constexpr (kMost >= 2)
    if (vectors == 2) return micro<Form, R, 2>;
  return micro<Form, R, 1>;
}

template <typename Form>
Micro<Form> micro_of(int64_t rows, int64_t vectors) {
  static_assert(kRows == 6, "one instance for each height of a row block");
  switch (rows) {
    case 1:
      return micro_of_vectors<Form, 1>(vectors);
    case 2:
      return micro_of_vectors<Form, 2>(vectors);
    case 3:
      return micro_of_vectors<Form, 3>(vectors);
    case 4:
      return micro_of_vectors<Form, 4>(vectors);
    case 5:
      return micro_of_vectors<Form, 5>(vectors);
    default:
      return micro_of_vectors<Form, 6>(vectors);
  }
}

template <typename Form>
void multiply(const Tile &t, float *sums, uint32_t *block) {
  using Element = typename Form::Element;
  constexpr int kStep = elements_per_word<Form>();
  const int64_t words = (t.k + kStep - 1) / kStep;
  const int64_t width = panel_width(t.n, t.n0);
  const int64_t top = row_block_start(t.rows, t.first_block, kRows);
  const int64_t columns = t.n - t.n0 < width ? t.n - t.n0 : width;
  Finish<Element> finish{nullptr, nullptr, t.out_stride, 0};
  int64_t w0 = 0;
  do {  // once for K = 0
    const int64_t count = words - w0 < kBlock ? words - w0 : kBlock;
    const uint32_t *b = block;
    if (t.packed_b != nullptr)
      b = t.packed_b + w0 * width;
    else
      pack_block<Form>(t.b, t.k, t.n, t.n0, w0, count, block);
    const bool last = w0 + count == words;
    const auto *a = static_cast<const typename Form::Packed *>(t.packed_a) + t.rows * w0;
    for (int64_t i = t.first_block; i < t.last_block; ++i) {
      const int64_t r0 = row_block_start(t.rows, i, kRows);
      const int64_t height = row_block_start(t.rows, i + 1, kRows) - r0;
      // While B's block is used again and again, memory is idle: the first two row blocks fetch the
      // panel's next block, two of its four lines a word each. A single row block streams B, which
      // the hardware sees coming.
      const char *ahead = reinterpret_cast<const char *>(b);
      int64_t ahead_step = 0;
      if (t.packed_b != nullptr && t.last_block - t.first_block > 1 && i < t.first_block + 2) {
        ahead += (count * width * 4) + (i - t.first_block) * count * 128;
        ahead_step = 128;
      }
      int64_t vectors = 0;
      for (int64_t j = 0; j < width; j += vectors * 16) {
        const int64_t left = (width - j) / 16;
        vectors = left < vectors_of(height) ? left : vectors_of(height);
        finish.bias = t.bias == nullptr ? nullptr : t.bias + t.n0 + j;
        finish.out = static_cast<Element *>(t.out) + r0 * t.out_stride + t.n0 + j;
        finish.columns = static_cast<int>(columns - j);
        micro_of<Form>(height, vectors)(count, a + r0 * count, b + j, width,
                                        sums + (r0 - top) * width + height * j, w0 == 0,
                                        last ? &finish : nullptr, ahead, ahead_step);
        ahead_step = 0;  // it has been fetched
      }
    }
    w0 += kBlock;
  } while (w0 < words);
}

// ---- the table ------------------------------------------------------------------------------

// Calls f with the form of a type.
template <typename F>
void with_form(int32_t dtype, F &&f) {
  if (dtype == BI_BFLOAT16)
    f(Bfloat16{});
  else if (dtype == BI_FLOAT16)
    f(Float16{});
  else
    f(Float32{});
}

size_t a_bytes_of(int32_t dtype) {
  size_t bytes = 0;
  with_form(dtype, [&](auto form) { bytes = sizeof(typename decltype(form)::Packed); });
  return bytes;
}
void pack_a_of(int32_t dtype, const Matrix &a, int64_t rows, int64_t k, int64_t block,
               void *packed) {
  with_form(dtype, [&](auto form) { pack_a<decltype(form)>(a, rows, k, block, packed); });
}
void pack_b_of(int32_t dtype, const Matrix &b, int64_t k, int64_t n, int64_t n0, uint32_t *packed) {
  with_form(dtype, [&](auto form) { pack_panel<decltype(form)>(b, k, n, n0, packed); });
}
void multiply_of(const Tile &tile, float *sums, uint32_t *block) {
  with_form(tile.dtype, [&](auto form) { multiply<decltype(form)>(tile, sums, block); });
}

#if defined(BI_AMX)
// bf16 is multiplied by tiles, out of the same packed B.
int64_t block_rows(int32_t dtype) { return dtype == BI_BFLOAT16 ? kAmxRows : kRows; }
size_t a_bytes(int32_t dtype) {
  return dtype == BI_BFLOAT16 ? sizeof(uint32_t) : a_bytes_of(dtype);
}
void pack_rows(int32_t dtype, const Matrix &a, int64_t rows, int64_t k, int64_t block,
               void *packed) {
  if (dtype == BI_BFLOAT16)
    amx_pack_a(a, rows, k, block, packed);
  else
    pack_a_of(dtype, a, rows, k, block, packed);
}
void multiply_tile(const Tile &t, float *sums, uint32_t *block) {
  if (t.dtype != BI_BFLOAT16) return multiply_of(t, sums, block);
  amx_multiply(t, sums, block, [&t](int64_t w0, int64_t count, uint32_t *to) {
    pack_block<Bfloat16>(t.b, t.k, t.n, t.n0, w0, count, to);
  });
}

constexpr MatmulKernels kKernels = {block_rows, a_bytes, pack_rows, pack_b_of, multiply_tile};
#else
int64_t block_rows(int32_t) { return kRows; }

constexpr MatmulKernels kKernels = {block_rows, a_bytes_of, pack_a_of, pack_b_of, multiply_of};
#endif

}  // namespace

const MatmulKernels &matmul_kernels() { return kKernels; }

}  // namespace BI_ISA
}  // namespace bi
