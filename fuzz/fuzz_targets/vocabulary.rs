//! Any bytes: refused, or a vocabulary that writes itself so that it reads back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tprop::vocab::Vocab;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(vocab) = Vocab::read_tokenizer_json(bytes) {
        let back = Vocab::from_tokenizer_json(&vocab.to_tokenizer_json()).unwrap();
        assert_eq!(back.words(), vocab.words());
        let _ = vocab.decode(&vocab.encode(&String::from_utf8_lossy(bytes)));
    }
});
