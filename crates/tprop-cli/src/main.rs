//! The program `tprop`: see the library beside it.

fn main() -> std::process::ExitCode {
    tprop_cli::program()
}
