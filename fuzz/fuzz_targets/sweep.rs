//! Any bytes as a sweep's file and as what an experiment remembers: read, or refused in words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (study, outcomes) = tprop_cli::read_experiment(bytes);
    if let Err(why) = study {
        assert!(!why.is_empty());
    }
    if let Err(why) = outcomes {
        assert!(why.starts_with("line "));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Err(why) = tprop_cli::read_sweep(text) {
            assert!(!why.contains('\n'), "{why}");
        }
    }
});
