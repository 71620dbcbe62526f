//! Any bytes: events, or the number of the line that is none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    if let Err(e) = tprop::record::read(file.path()) {
        assert!(e.to_string().contains("line "));
    }
});
