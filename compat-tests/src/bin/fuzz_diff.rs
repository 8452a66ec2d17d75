//! `fuzz_diff [--redis URL] DIR...`: replays recorded vectors; see `replay --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    compat_tests::fuzz::main(std::env::args().skip(1))
}
