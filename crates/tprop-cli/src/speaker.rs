//! A trained model that reads tokens one after the other: for writing text and for scoring lines.

use tprop::model::{Model, Tape};
use tprop::params::Params;
use tprop::vocab::{Level, Vocab, printable};
use tprop::window::Layout;

use crate::console;

/// Tokens that are read at once when scoring; bounds the memory for long lines.
const CHUNK: usize = 128;

/// Reads and predicts.
#[derive(Debug)]
pub struct Speaker<'a> {
    model: &'a Model<f32>,
    params: &'a Params<f32>,
    one: Tape<f32>,
    state: Vec<f32>,
    ends: Vec<f32>,
}

impl<'a> Speaker<'a> {
    /// Begins in the rest state.
    pub fn new(model: &'a Model<f32>, params: &'a Params<f32>) -> Self {
        let state = vec![model.rest(); model.state_width()];
        Self { model, params, one: model.tape(Layout::new(1, 1)), ends: state.clone(), state }
    }

    /// Forgets everything.
    pub fn rest(&mut self) {
        self.state.fill(self.model.rest());
    }

    /// Reads a token.
    pub fn read(&mut self, token: u32) {
        let tape = &mut self.one;
        tape.inputs.clear();
        tape.inputs.push(token);
        self.model.prepare(self.params, tape);
        self.model.recur(self.params, tape, &self.state);
        self.model.ends(tape, &mut self.ends);
        std::mem::swap(&mut self.state, &mut self.ends);
    }

    /// Logits of the token after the last one that was read.
    pub fn logits(&self, logits: &mut Vec<f64>) {
        let (weight, bias) = self.model.output_ids();
        let h = self.one.top();
        let rows = self.params.get(weight).chunks_exact(h.len());
        logits.clear();
        logits.extend(rows.zip(self.params.get(bias)).map(|(row, b)| {
            let dot: f64 = row.iter().zip(h).map(|(w, h)| f64::from(*w) * f64::from(*h)).sum();
            dot + f64::from(*b)
        }));
    }

    /// Log-probabilities, in nats, of tokens 1, 2, … of `tokens`, each after all before it, from the rest state.
    pub fn score(&mut self, tokens: &[u32]) -> Vec<f64> {
        self.rest();
        let mut scores = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at + 1 < tokens.len() {
            let steps = CHUNK.min(tokens.len() - 1 - at);
            let mut tape = self.model.tape(Layout::new(1, steps));
            tape.inputs.extend_from_slice(&tokens[at..at + steps]);
            tape.targets.extend_from_slice(&tokens[at + 1..=at + steps]);
            self.model.prepare(self.params, &mut tape);
            self.model.recur(self.params, &mut tape, &self.state);
            self.model.nats(self.params, &mut tape);
            // One row: its steps stand in order.
            scores.extend(tape.nats.iter().map(|n| -f64::from(*n)));
            self.model.ends(&tape, &mut self.ends);
            std::mem::swap(&mut self.state, &mut self.ends);
            at += steps;
        }
        scores
    }
}

/// What a line begins after: the line end, or where there is none a space or the most frequent token.
pub fn opening(vocab: &Vocab) -> u32 {
    vocab.eos().or_else(|| vocab.token(" ")).or_else(|| vocab.token("_")).unwrap_or(0)
}

/// Says which words of a text the model does not know.
pub fn tell_unknown(text: &str, vocab: &Vocab, place: &str) {
    let known = |piece: &str| vocab.token(piece).is_some();
    let mut unknown: Vec<String> = match vocab.level() {
        Level::Byte => Vec::new(),
        Level::Word => text.split_whitespace().filter(|word| !known(word)).map(printable).collect(),
        Level::Char => {
            let spaces = vocab.cutting().underscores;
            let piece = |c: char| if c == ' ' && spaces { "_".to_owned() } else { c.to_string() };
            let pieces = text.chars().filter(|c| *c != '\n').map(piece);
            pieces.filter(|p| !known(p)).map(|p| printable(&p)).collect()
        }
    };
    unknown.dedup();
    if !unknown.is_empty() {
        let fate = if vocab.unk().is_some() { "read as <unk>" } else { "left out" };
        console::note(format!("{place}not in the vocabulary, {fate}: {}", unknown.join(" ")));
    }
}
