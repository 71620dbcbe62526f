//! What a rank sends and receives during one update, with the time of each: two threads as ranks, `reach` with two state steps.
//! docs/cluster.md shows what it prints.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tprop::comm::{Comm, Team, Topic};
use tprop::method::*;
use tprop::model::{Model, ModelConfig};
use tprop::rng::Draws;
use tprop::train::{Data, TrainConfig, Trainer};

/// Writes down what passes by.
#[derive(Debug)]
struct Traced {
    team: Team,
    since: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Traced {
    fn note(&self, since: Instant, what: &str, topic: Topic, bytes: usize) {
        let at = (since - self.since).as_secs_f64() * 1e3;
        let waited = since.elapsed().as_secs_f64() * 1e3;
        let waited = if what == "takes" { format!(" after {waited:.1} ms") } else { String::new() };
        let line = format!("{at:8.1} ms  {what}  {:<34} {bytes:>9} bytes{waited}", topic.name());
        self.lines.lock().expect("no panic elsewhere").push(line);
    }
}

impl Comm for Traced {
    fn rank(&self) -> usize {
        self.team.rank()
    }
    fn size(&self) -> usize {
        self.team.size()
    }
    fn shares(&self) -> usize {
        self.team.shares()
    }
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>) {
        self.note(Instant::now(), "sends", topic, message.len());
        self.team.send(to, topic, message);
    }
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8> {
        let since = Instant::now();
        let message = self.team.receive(from, topic);
        self.note(since, "receives", topic, message.len());
        message
    }
}

fn main() {
    let (vocab, streams, blocks, block) = (5000, 4, 24, 10);
    let model = Model::<f32>::new(ModelConfig { hidden: 128, embed: 128, ..ModelConfig::new(vocab) });
    let draws = Draws::new(1, "trace");
    let text: Vec<u32> =
        (0..(2 * streams * blocks * block + 1) as u64).map(|i| draws.below(i, vocab as u64) as u32).collect();
    let reach = BtpropConfig {
        block,
        blocks,
        streams,
        solver: Solver::Penalty,
        lambda: 1.0,
        init: Init::Sequential,
        states: StateConfig { steps: 2, rate: 1.0, ..StateConfig::default() },
        starts: Starts::Held,
        ..BtpropConfig::default()
    };
    let config =
        TrainConfig { method: MethodConfig::Btprop(reach), epochs: 1, eval_streams: 1, ..TrainConfig::default() };
    let data = Data::new(&text, &[], &[]);
    let lines: Vec<String> = std::thread::scope(|scope| {
        let ranks: Vec<_> = Team::in_shares(2, 4)
            .into_iter()
            .map(|team| {
                let (model, config) = (&model, config.clone());
                scope.spawn(move || {
                    let lines = Arc::new(Mutex::new(Vec::new()));
                    let traced = Traced { team, since: Instant::now(), lines: lines.clone() };
                    let mut trainer = Trainer::new(model, data, config, &traced).expect("the text is long enough");
                    // The first update allocates; the second one is shown.
                    trainer.advance(&mut || false);
                    let from = lines.lock().expect("no panic elsewhere").len();
                    trainer.advance(&mut || false);
                    lines.lock().expect("no panic elsewhere").split_off(from)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).next().expect("rank 0")
    });
    for line in lines {
        println!("{line}");
    }
}
