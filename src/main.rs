//! The binary: hands the command line over.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    riskgate::cli::main()
}
