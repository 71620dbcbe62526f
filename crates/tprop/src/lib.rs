//! Recurrent language models on ordinary CPUs, trained by truncated back-propagation through time (BPTT) and by block target
//! propagation: free hidden states, tied to the recurrence by penalties and duals. For people who compare such methods, and
//! for people who want a small, exact and reproducible implementation of one.
//!
//! # The picture
//!
//! A text is a row of tokens. It is cut into S *streams* that are read side by side. A *window* is M consecutive *blocks* of B
//! *steps* of every stream, and each window makes one update of the weights θ:
//!
//! ```text
//!             block 1     block 2           block M
//! stream 1  [ B steps ]●[ B steps ]● … ●[ B steps ]      → the next window continues here
//! stream 2  [ B steps ]●[ B steps ]● … ●[ B steps ]
//!    ⋮
//! stream S  [ B steps ]●[ B steps ]● … ●[ B steps ]        ● a boundary state between two blocks
//! ```
//!
//! BPTT runs through a window in order, and the gradient flows back through all of it. Target propagation makes the boundary states
//! variables of their own: all S × M blocks then run at the same time, and a penalty λ/2 ‖F − s‖² pulls the start s of a block
//! and the end F of the block before it together. The variant *reach* holds exact starts and moves targets alone; its n state
//! steps give the gradient of BPTT that reaches n blocks back ([`BtpropConfig::reach`](method::BtpropConfig::reach)).
//!
//! # An example
//!
//! ```
//! use tprop::prelude::*;
//!
//! // A text of 4 tokens that repeats, in three splits.
//! let text: Vec<u32> = (0..1200).map(|i| [0, 1, 2, 1, 3, 3][i % 6]).collect();
//! let data = Data::new(&text[..900], &text[900..1050], &text[1050..]);
//! let model = Model::<f32>::new(ModelConfig { hidden: 16, embed: 8, ..ModelConfig::new(4) });
//!
//! let bptt = MethodConfig::Bptt(BpttConfig { window: 10, streams: 4, ..BpttConfig::default() });
//! let reach = MethodConfig::Btprop(BtpropConfig { block: 5, blocks: 4, streams: 4, ..BtpropConfig::reach(1) });
//! for method in [bptt, reach] {
//!     let config = TrainConfig { method, epochs: 8, eval_streams: 2, ..TrainConfig::default() };
//!     let mut trainer = Trainer::new(&model, data, config, &Solo)?;
//!     let end = trainer.run(&mut |event: &Event| {
//!         if let Event::Eval(eval) = event {
//!             println!("epoch {}: validation perplexity {:.3}", eval.epoch, eval.valid_ppl);
//!         }
//!     })?;
//!     assert!(end.best_valid_ppl < 1.5); // guessing would be 4
//!
//!     let params = trainer.best_params();
//!     let reading = Reader::new(10).read(&model, params, data.test, 2);
//!     println!("test perplexity {:.3}", reading.perplexity());
//!
//!     let mut generator = Generator::new(&model, params);
//!     generator.read(0);
//!     let mut tokens = Vec::new();
//!     generator.generate(5, Sampling::default(), |token| {
//!         tokens.push(token);
//!         true
//!     });
//!     println!("0 → {tokens:?}");
//! }
//! # Ok::<(), tprop::train::TrainError>(())
//! ```
//!
//! # Which module answers which question
//!
//! In the order of dependence: a module uses only those above it.
//!
//! | question | module |
//! |---|---|
//! | Which number type? | [`real`] |
//! | How is a text held in memory? | [`tokens`] |
//! | How is a text cut into words, characters or bytes, and which number has each? | [`vocab`] |
//! | Where do train, valid and test come from? What is the built-in language? | [`corpus`] |
//! | What are streams, windows and blocks? | [`window`] |
//! | Where are weights, gradients and their names? | [`params`] |
//! | What does a GRU, LSTM, … compute? | [`cell`] |
//! | How do embedding, cells and softmax run forward and backward? | [`model`] |
//! | How do several processes work on one model? | [`comm`] |
//! | What ties blocks together? | [`objective`] |
//! | How is θ updated? | [`optim`] |
//! | How does BPTT, target propagation or least squares train? | [`method`] |
//! | What is the perplexity of a text? | [`eval`] |
//! | How is text generated, and how are lines scored? | [`generate`] |
//! | What if states may move at test time? | [`adapt`] |
//! | What is a method's gradient over a stretch of text? | [`probe`] |
//! | Does the paper's theorem hold? | [`theorem`] |
//! | How good is a method's gradient? | [`meter`] |
//! | What does a run record? | [`record`] |
//! | How is a run saved? | [`checkpoint`] |
//! | How does a run go from its first update to its end, and resume? | [`train`] |
//!
//! [`prelude`] has the types that most programs need. The library never prints and never exits, and the same settings and seed
//! give the same weights, bit for bit, on any number of threads and ranks.

pub mod prelude;

#[doc(hidden)]
pub mod words;
#[doc(hidden)]
pub mod fault;
#[doc(hidden)]
pub mod file;
pub mod real;
#[allow(unsafe_code)]
#[doc(hidden)]
pub mod mat;
#[allow(unsafe_code)]
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod rng;
pub mod tokens;
pub mod vocab;
pub mod corpus;
pub mod window;
pub mod params;
#[doc(hidden)]
pub mod clock;
pub mod cell;
pub mod model;
pub mod comm;
pub mod objective;
pub mod optim;
pub mod method;
pub mod eval;
pub mod generate;
pub mod adapt;
pub mod probe;
pub mod theorem;
pub mod meter;
pub mod record;
pub mod checkpoint;
pub mod train;
