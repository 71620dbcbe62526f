//! Any text: refused in one sentence, or settings that read back as themselves.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match tprop_cli::read_settings(text) {
        Ok(toml) => assert_eq!(tprop_cli::read_settings(&toml), Ok(toml)),
        Err(why) => assert!(!why.contains('\n')),
    }
});
