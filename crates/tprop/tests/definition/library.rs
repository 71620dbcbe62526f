//! The library's side of the comparison.

use tprop::comm::{Comm, Solo, Team};
use tprop::method::{Advance, Update};
use tprop::model::{Model, ModelConfig};
use tprop::params::Params;
use tprop::record::{Eval, Event, Step};
use tprop::train::{Data, TrainConfig, Trainer};

use super::net::{Net, Theta};

/// One run.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub model: ModelConfig,
    pub train: TrainConfig,
    pub ranks: usize,
    pub text: Vec<u32>,
    pub valid: Vec<u32>,
}

/// Every update with the weights after it, and the records of the same run.
pub struct Trace {
    /// Updates and tokens of an epoch, as they are announced.
    pub per_epoch: (usize, u64),
    pub updates: Vec<(Update, Theta)>,
    pub steps: Vec<Step>,
    pub evals: Vec<Eval>,
}

impl Case {
    pub fn net(&self) -> Net {
        let ModelConfig { cell, hidden, layers, tied, .. } = self.model;
        Net { cell, hidden, layers, tied }
    }

    pub fn initial(&self) -> Theta {
        named(&Model::<f64>::new(self.model.clone()).initial(self.train.seed))
    }

    /// What each rank saw.
    pub fn traces(&self) -> Vec<Trace> {
        if self.ranks == 1 {
            return vec![self.trace(&Solo)];
        }
        std::thread::scope(|scope| {
            let ranks: Vec<_> =
                Team::new(self.ranks).into_iter().map(|comm| scope.spawn(move || self.trace(&comm))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    fn trace(&self, comm: &dyn Comm) -> Trace {
        let model = Model::<f64>::new(self.model.clone());
        let data = Data::new(&self.text, &self.valid, &[]);
        // Update by update …
        let mut trainer = Trainer::new(&model, data, self.train.clone(), comm).unwrap();
        let (mut updates, mut epochs) = (Vec::new(), 0);
        while epochs < self.train.epochs {
            match trainer.advance(&mut || false) {
                Advance::Update(update) => updates.push((update, named(trainer.params()))),
                Advance::EpochEnd => epochs += 1,
                other => panic!("{}: {other:?}", self.name),
            }
        }
        // … and once more as a user sees it.
        let mut trainer = Trainer::new(&model, data, self.train.clone(), comm).unwrap();
        let (mut steps, mut evals) = (Vec::new(), Vec::new());
        let mut watch = |event: &Event| match event {
            Event::Step(step) => steps.push(step.clone()),
            Event::Eval(eval) => evals.push((**eval).clone()),
            _ => {}
        };
        trainer.run(&mut watch).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert_eq!(named(trainer.params()), updates.last().unwrap().1, "{}: both runs end alike", self.name);
        let per_epoch = (trainer.updates_per_epoch(), trainer.tokens_per_epoch());
        Trace { per_epoch, updates, steps, evals }
    }
}

fn named(params: &Params<f64>) -> Theta {
    let shapes = params.shapes();
    shapes
        .entries()
        .iter()
        .zip(shapes.ids())
        .map(|(entry, id)| (entry.name.clone(), params.get(id).chunks(entry.cols).map(<[f64]>::to_vec).collect()))
        .collect()
}
