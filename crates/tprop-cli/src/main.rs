//! The program `tprop`.

// Used by `tprop data get` once there are commands.
#[allow(dead_code)]
mod fetch;

fn main() {}
