//! Any bytes at all three levels: refused, or three splits inside the vocabulary.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tprop::corpus::{CorpusConfig, Level, Split, SynthConfig, load};

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    for level in [Level::Word, Level::Char, Level::Byte] {
        let source = Some(file.path().to_str().unwrap().to_owned());
        let config = CorpusConfig { source, level, ..CorpusConfig::default() };
        if let Ok(corpus) = load(&config, &SynthConfig::default()) {
            for split in Split::ALL {
                assert!(corpus.tokens(split).iter().all(|t| (t as usize) < corpus.vocab.len()));
            }
        }
    }
});
