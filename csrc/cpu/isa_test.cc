// SPDX-License-Identifier: Apache-2.0
//
// The choice of the instruction set. It is made once a process, so each is tried in a child.
#include "isa.h"

#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

namespace {

using bi_test::expect;

// What a process sees in whose environment BI_CPU_ISA is `wanted`: "<name>, <status>: <message>".
std::string chosen_with(const char *wanted) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    if (wanted == nullptr)
      unsetenv("BI_CPU_ISA");
    else
      setenv("BI_CPU_ISA", wanted, 1);
    bi_test::Tensor x(BI_FLOAT32, {4}), sum(BI_FLOAT32, {1});
    for (int64_t i = 0; i < 4; ++i) x.set(i, static_cast<float>(i));
    const bi_tensor vx = x.view(), vsum = sum.view();
    const int32_t dim = 0;
    const bi_status status = bi_reduce_sum(&vx, &dim, 1, &vsum, 1);
    const std::string text =
        std::string(bi_cpu_isa()) + ", " + std::to_string(status) + ": " + bi_last_error();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  char text[1024];
  const ssize_t length = read(ends[0], text, sizeof(text));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 && length > 0 ? std::string(text, static_cast<size_t>(length)) : "died";
}

}  // namespace

int main() {
#define BI_QUOTED(isa, ...) #isa,
  const std::string known[] = {BI_EACH_ISA(BI_QUOTED, )};
#undef BI_QUOTED
  const std::string bad = "invalid, " + std::to_string(BI_INVALID_ARGUMENT) + ": BI_CPU_ISA: ";
  std::string names, run;
  for (const std::string &isa : known) {
    names += (names.empty() ? "" : ", ") + isa;
    if (chosen_with(isa.c_str()) == isa + ", 0: ") run += (run.empty() ? "" : ", ") + isa;
  }
  expect(run.find("portable") != std::string::npos,
         "every machine runs portable, found '" + run + "'");
  for (const std::string &isa : known) {
    const std::string found = chosen_with(isa.c_str());
    expect(found == isa + ", 0: " ||
               found == bad + "this machine does not run '" + isa + "'; it runs " + run,
           "a name that is run, or an error that says what is: " + found);
  }
  const size_t comma = run.rfind(", ");
  const std::string best = (comma == std::string::npos ? run : run.substr(comma + 2)) + ", 0: ";
  expect(chosen_with(nullptr) == best, "the best by default: " + chosen_with(nullptr));
  expect(chosen_with("") == best, "an empty variable is none: " + chosen_with(""));
  for (const char *wanted : {"nonsense", "AVX2", "portable "}) {
    const std::string found = chosen_with(wanted);
    expect(found == bad + "unknown instruction set '" + wanted + "'; expected one of " + names,
           "an unknown name is an error: " + found);
  }
  return bi_test::failures() != 0 ? 1 : bi_test::finish([] {});
}
