// SPDX-License-Identifier: Apache-2.0
//
// fuzz: random calls of the operators, compared with a float64 reference. See README.md.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "batch_invariant.h"
#include "operators.h"

#if defined(__SANITIZE_ADDRESS__)
// An allocation that is refused is one of the library's errors, not the end of the run.
extern "C" const char *__asan_default_options();
extern "C" const char *__asan_default_options() {
  return "allocator_may_return_null=1:detect_stack_use_after_return=1";
}
#endif

namespace {

constexpr char kUsage[] =
    "Usage: fuzz [--seed N] [--first N] [--calls N] [--operator NAME] [--trace] [--help]\n"
    "\n"
    "Random calls of the operators through the C interface, each compared with a float64 "
    "reference;\n"
    "some with an argument that is wrong, which must be refused by name.\n"
    "\n"
    "  --seed N         which calls: the same seed makes the same calls (default 1)\n"
    "  --first N        begin with call N of the seed, to repeat one (default 0)\n"
    "  --calls N        how many (default 1000)\n"
    "  --operator NAME  of one operator only: %s\n"
    "  --trace          name each call before it is made: after a crash the last one is to blame\n"
    "\n"
    "BI_CPU_ISA in the environment chooses the instruction set.\n"
    "Exit code: 0 nothing found, 1 findings (on standard error), 2 wrong usage,\n"
    "77 this machine does not run BI_CPU_ISA.\n";

std::string names() {
  std::string text;
  for (const auto &entry : bi_fuzz::kOperators)
    text += std::string(text.empty() ? "" : ", ") + entry.name;
  return text;
}

[[noreturn]] void usage_error(const std::string &what) {
  std::fprintf(stderr, "fuzz: %s; see --help\n", what.c_str());
  std::exit(2);
}

int64_t number(const char *option, const char *text) {
  char *end = nullptr;
  const long long value = text != nullptr ? std::strtoll(text, &end, 10) : -1;
  if (text == nullptr || end == text || *end != '\0' || value < 0)
    usage_error(std::string(option) + ": expected a number, found '" +
                (text != nullptr ? text : "") + "'");
  return value;
}

struct Options {
  int64_t seed = 1, first = 0, calls = 1000;
  std::string only;
  bool trace = false;
};

Options parse(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char *const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (option == "--help") {
      std::printf(kUsage, names().c_str());
      std::exit(0);
    }
    if (option == "--trace") {
      options.trace = true;
      continue;
    }
    ++i;
    if (option == "--seed") {
      options.seed = number("--seed", value);
    } else if (option == "--first") {
      options.first = number("--first", value);
    } else if (option == "--calls") {
      options.calls = number("--calls", value);
    } else if (option == "--operator") {
      options.only = value != nullptr ? value : "";
      bool known = false;
      for (const auto &entry : bi_fuzz::kOperators) known |= options.only == entry.name;
      if (!known)
        usage_error("--operator: expected one of " + names() + ", found '" + options.only + "'");
    } else {
      usage_error("unknown option '" + option + "'");
    }
  }
  return options;
}

}  // namespace

int main(int argc, char **argv) {
  const Options options = parse(argc, argv);
  if (std::strcmp(bi_cpu_isa(), "invalid") == 0) {
    const char *const wanted = std::getenv("BI_CPU_ISA");
    std::printf("skipped: this machine does not run BI_CPU_ISA=%s\n",
                wanted != nullptr ? wanted : "");
    return 77;
  }
  bi_fuzz::Report report;
  for (int64_t call = options.first; call < options.first + options.calls; ++call) {
    bi_fuzz::Random random(static_cast<uint64_t>(options.seed), static_cast<uint64_t>(call));
    constexpr int64_t kCount = sizeof(bi_fuzz::kOperators) / sizeof(bi_fuzz::kOperators[0]);
    const auto *chosen = &bi_fuzz::kOperators[random.below(kCount)];
    for (const auto &entry : bi_fuzz::kOperators)
      if (options.only == entry.name) chosen = &entry;
    if (options.trace) std::fprintf(stderr, "call %" PRId64 ": %s\n", call, chosen->name);
    report.begin(call, chosen->name);
    chosen->call(random, report);
  }
  if (report.findings > 0)
    std::fprintf(stderr, "fuzz: to repeat one: --seed %" PRId64 " --first <call> --calls 1%s\n",
                 options.seed, options.only.empty() ? "" : (" --operator " + options.only).c_str());
  std::printf("%s: %" PRId64 " calls, %" PRId64 " of them refused; %" PRId64
              " elements compared, %" PRId64 " inf or nan, %" PRId64
              " undecided; calls' digest %016" PRIx64 "; %" PRId64 " findings\n",
              bi_cpu_isa(), report.calls, report.refusals, report.elements, report.special,
              report.open, report.digest, report.findings);
  return report.findings == 0 ? 0 : 1;
}
