//! t
mod settings;
fn main(){}
