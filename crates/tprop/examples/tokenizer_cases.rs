//! Writes vocabularies as `tokenizer.json` together with texts and our tokens for them, one file for each kind, into the
//! directory given; `scripts/check_tokenizer.py` then compares with the `tokenizers` package.

use serde_json::{Value, json};
use tprop::vocab::{Cutting, Level, Vocab};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::path::PathBuf::from(std::env::args().nth(1).ok_or("usage: tokenizer_cases DIR")?);
    let texts = [
        "the cat sat",
        "the  cat\tsat \n",
        "\n the cat\n\n sat\r\nthe dog",
        "  leading and trailing  \n  twice  ",
        "quote \" backslash \\ é 😀 \u{a0} nbsp\u{2003}em\n",
        "",
        "\n",
        "<unk> <eos> _ a_b",
        "tab\tand\x1bescape",
    ];
    let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let letters: Vec<String> = texts.concat().chars().filter(|c| !"\rq".contains(*c)).map(String::from).collect();
    let mut different = words(&["\n", "_", " ", "<unk>"]);
    for letter in letters {
        if !different.contains(&letter) {
            different.push(letter);
        }
    }
    let word = Cutting { level: Level::Word, eos: true, underscores: false };
    let char = Cutting { level: Level::Char, ..word };
    let list = words(&["<eos>", "the", "<unk>", "cat", "sat", "\"", "\\", "é", "😀", "_"]);
    let kinds = [
        ("word", Vocab::new(list.clone(), word)),
        ("word-no-eos", Vocab::new(list, Cutting { eos: false, ..word })),
        ("char", Vocab::new(different.clone(), char)),
        ("char-no-eos", Vocab::new(different.clone(), Cutting { eos: false, ..char })),
        ("char-underscores", Vocab::new(different.clone(), Cutting { underscores: true, ..char })),
        ("char-joined", Vocab::new(different, Cutting { underscores: true, eos: false, ..char })),
        ("byte", Some(Vocab::bytes(true))),
    ];
    for (name, vocab) in kinds {
        let vocab = vocab.ok_or("a word occurs twice")?;
        let tokenizer: Value = serde_json::from_str(&vocab.to_tokenizer_json())?;
        let cases: Vec<Value> = texts.iter().map(|text| json!([text, vocab.encode(text)])).collect();
        let path = folder.join(format!("{name}.json"));
        std::fs::write(path, json!({"tokenizer": tokenizer, "cases": cases}).to_string())?;
    }
    Ok(())
}
