//! The program `tprop`.
fn main() {}
