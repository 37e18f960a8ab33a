//! The binary: hands the command line over.

fn main() -> std::process::ExitCode {
    riskgate::cli::main()
}
