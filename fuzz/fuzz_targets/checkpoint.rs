//! Any bytes: refused in words, or a snapshot that comes back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use tprop::checkpoint::Snapshot;

fuzz_target!(|bytes: &[u8]| {
    match Snapshot::decode(bytes) {
        Ok(snapshot) => assert_eq!(Snapshot::decode(&snapshot.encode()).as_ref(), Ok(&snapshot)),
        Err(why) => assert!(why.len() > 10),
    }
    // The hash lets hardly any input through, so a right one is put in where there is room for it.
    let zeros = [b'0'; 64];
    if let Some(at) = bytes.windows(64).position(|w| w == zeros) {
        let mut bytes = bytes.to_vec();
        let hash = tprop::checkpoint::hex(&Sha256::digest(&bytes));
        bytes[at..at + 64].copy_from_slice(hash.as_bytes());
        let _ = Snapshot::decode(&bytes);
    }
});
